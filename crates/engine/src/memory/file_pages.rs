//! Pages of files come into view write-protected: the first store to one is told before it is made.
//!
//! So nobody has to compare what leaves with what came. A page of a mapping that may be stored to is
//! copied, since only a copy arrives protected; others are moved, protected, and only then is who
//! waits there woken. (UFFDIO_MOVE cannot protect. Between the two another thread could store to a
//! page that it may not store to: it would not get its SIGSEGV.)

use overspill_sys::mem::{self, Prot};
use overspill_sys::uffd::{CopyMode, MoveMode};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use super::{COPIED_MAX, Memory, Put, Reach, bits, progress};
use crate::helper::{Helper, Job};
use crate::staging::Frame;

impl Memory {
    /// As [`Memory::put_in`]: the pages come write-protected. `stored`: the program may store to them.
    pub fn put_in_protected(&mut self, address: usize, first: Frame, count: u32, stored: bool) -> Put {
        let mut result = Put::default();
        let range = address..address + count as usize * PAGE_SIZE;
        if self.is_changing(&range) {
            return result;
        }
        let mut copy = stored || !self.can_move || count <= COPIED_MAX;
        let (mut tries, mut pinned) = (0, 0);
        let mut reach = Reach::new(count);
        while result.done < count {
            let at = result.done as usize * PAGE_SIZE;
            let len = reach.len(count - result.done);
            let (dst, src) = (address + at, self.frame_address(first) + at);
            let outcome = if copy {
                // SAFETY: the frames hold the pages' content; mm ordered it into the program's view.
                unsafe { self.program.copy(dst, src, len, CopyMode::WP) }
            } else {
                // SAFETY: as above; the frames are ours to give.
                unsafe { self.program.move_pages(dst, src, len, MoveMode::DONTWAKE) }
            };
            let (done, errno) = progress(outcome, len);
            if !copy && done > 0 {
                result.moved |= bits(result.done, done);
                let moved = dst..dst + done as usize * PAGE_SIZE;
                // Refused, their range is changing: what is there is settled by that.
                self.protect(moved.clone());
                self.wake(moved);
            }
            result.done += done;
            match errno {
                None => {}
                Some(Errno::AGAIN) if done > 0 => {}
                Some(Errno::AGAIN) if self.is_conflict(&range, &mut tries) => break,
                Some(Errno::AGAIN) => {}
                Some(Errno::EXIST) => {
                    self.wake(dst..dst + PAGE_SIZE);
                    result.done += 1;
                }
                Some(Errno::BUSY) if !copy && pinned < super::PIN_PATIENCE => {
                    pinned += 1;
                    core::hint::spin_loop();
                }
                Some(Errno::NOENT | Errno::INVAL) if reach.shorten() => {}
                Some(Errno::BUSY | Errno::INVAL) if !copy => copy = true,
                Some(_) => break,
            }
        }
        result
    }

    /// A store to a page that the program mapped for reading: the mapping says so from now on, and
    /// the thread that waits there gets its SIGSEGV.
    pub fn forbid_stores(&mut self, page: usize) {
        // SAFETY: takes a permission away that the program does not know of; content stays.
        let _ = unsafe { mem::mprotect(page..page + PAGE_SIZE, Prot::READ) };
        self.unprotect(page..page + PAGE_SIZE);
    }

    /// Maps a file over a range, for good. The kernel tells that the range goes, which is handled as
    /// any such event. False where that could not be done.
    pub fn replace(&mut self, range: AddressRange, file: i32, offset: u64, prot: Prot, shared: bool) -> bool {
        if self.helper.is_none() {
            self.helper = Helper::start().ok();
        }
        let Some(helper) = self.helper else { return false };
        helper.order_mapping(Job::Replace, range, file, offset, prot, shared);
        while !helper.is_idle() {
            if !self.read_messages() {
                overspill_sys::clock::sleep_ns(super::REST_NS);
            }
        }
        helper.succeeded()
    }
}
