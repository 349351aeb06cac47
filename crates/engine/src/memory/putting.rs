//! Frames into the program's view, by one loop for all kinds of pages: it owns what each refusal of
//! the kernel means.
//!
//! Pages of files come write-protected: the first store to one is told before it is made, so that
//! nobody has to compare what leaves with what came. A page that may be stored to is copied, since
//! only a copy arrives protected; others are moved, protected, and only then is who waits there
//! woken. (UFFDIO_MOVE cannot protect. Between the two another thread could store to a page that it
//! may not store to: it would not get its SIGSEGV.)
//!
//! Nothing comes into view while a change of the range, or a fork, was read of and not handled:
//! what the books say to be out is what a child lacks.

use overspill_sys::uffd::{CopyMode, MoveMode, Partial};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use super::{COPIED_MAX, Memory, PIN_PATIENCE, Put, bits, progress, tries::Reach};
use crate::staging::Frame;

/// How pages come into view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// As ordinary memory.
    Open,
    /// Write-protected; the program may store to them.
    Watched,
    /// Write-protected; the program may not store to them.
    Sealed,
}

impl Manner {
    fn is_protected(self) -> bool {
        self != Manner::Open
    }

    fn copy_mode(self) -> CopyMode {
        if self.is_protected() { CopyMode::WP } else { CopyMode::empty() }
    }

    /// Whoever waits for a page that has to be protected first is woken after that.
    pub(super) fn move_mode(self) -> MoveMode {
        if self.is_protected() { MoveMode::DONTWAKE } else { MoveMode::empty() }
    }
}

impl Memory {
    /// Puts `count` (at most a block) frames from `first` on at `address`, waking whoever waits there.
    ///
    /// *The story:* a fork was read of amid pages that were just taken out, and before it was
    /// handled, read-ahead put pages into view. The child was not given them, and read zeroes. It
    /// was mended for ordinary memory; pages of files had a loop of their own, and went on for a day.
    pub fn put_in(&mut self, address: usize, first: Frame, count: u32, manner: Manner) -> Put {
        let mut result = Put::default();
        let range = address..address + count as usize * PAGE_SIZE;
        let mut copy = manner == Manner::Watched || !self.can_move || count <= COPIED_MAX;
        let (mut tries, mut pinned) = (0, 0);
        let mut reach = Reach::new(count);
        // Each time: a protection that was tried again may have read of a change.
        while result.done < count && !self.refuses(&range) {
            let at = result.done as usize * PAGE_SIZE;
            let len = reach.len(count - result.done);
            let (dst, src) = (address + at, self.frame_address(first) + at);
            let outcome = self.put(dst, Frame(first.0 + result.done), len, manner, copy);
            let (done, errno) = progress(outcome, len);
            if !copy && done > 0 {
                result.moved |= bits(result.done, done);
                self.seal_moved(dst..dst + done as usize * PAGE_SIZE, manner);
            }
            result.done += done;
            self.refused.came(dst, done);
            match errno {
                None => {}
                Some(Errno::AGAIN) if done > 0 => {}
                Some(Errno::AGAIN) if self.is_conflict(&range, &mut tries) => break,
                Some(Errno::AGAIN) => {}
                // This page came, and was not told of.
                Some(Errno::EXIST) if self.has_passed(src, dst) => {
                    result.moved |= bits(result.done, 1);
                    result.done += 1;
                    self.seal_moved(dst..dst + PAGE_SIZE, manner);
                    self.wake(dst..dst + PAGE_SIZE);
                }
                // The page came back by itself (MADV_FREE that was not carried out): what is there is newer.
                Some(Errno::EXIST) => {
                    self.wake(dst..dst + PAGE_SIZE);
                    result.found |= bits(result.done, 1);
                    result.done += 1;
                }
                // Still pinned by the read that filled it; or protections differ: a copy does it.
                Some(Errno::BUSY) if !copy && pinned < PIN_PATIENCE => {
                    pinned += 1;
                    core::hint::spin_loop();
                }
                // A page of zeroes that was freed lazily: see `Memory::keep`. Read, it is one still.
                Some(Errno::NOENT) if !copy && self.is_missing(src) => {
                    copy = true;
                    reach = Reach::new(1);
                }
                Some(Errno::NOENT | Errno::INVAL) if reach.shorten() => {}
                Some(Errno::BUSY | Errno::INVAL) if !copy => {
                    copy = true;
                    // Protections do not matter to a copy.
                    reach = Reach::new(count - result.done);
                }
                Some(errno) => {
                    self.refused.note(address + result.done as usize * PAGE_SIZE, errno);
                    break;
                }
            }
        }
        result
    }

    /// Would what is put into the range be wrong, by what was read and not handled?
    pub(super) fn refuses(&self, range: &AddressRange) -> bool {
        self.is_changing(range) || self.is_forked()
    }

    /// Frames from `first` on to `dst`, `len` bytes.
    fn put(
        &mut self,
        dst: usize,
        first: Frame,
        len: usize,
        manner: Manner,
        copy: bool,
    ) -> Result<(), Partial> {
        let src = self.frame_address(first);
        if copy {
            // SAFETY: the frames hold the pages' content; mm ordered it into the program's view.
            return unsafe { self.program.copy(dst, src, len, manner.copy_mode()) };
        }
        self.with_rights_of(&(dst..dst + len), first, (len / PAGE_SIZE) as u32, |memory| {
            // SAFETY: as above; the frames are ours to give.
            unsafe { memory.program.move_pages(dst, src, len, manner.move_mode()) }
        })
    }

    pub(super) fn seal_moved(&mut self, moved: AddressRange, manner: Manner) {
        if manner.is_protected() {
            // Refused, their range is changing: what is there is settled by that.
            self.protect(moved.clone());
            self.wake(moved);
        }
    }
}
