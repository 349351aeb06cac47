//! The pager's own pages: the staging frames and what they hold, pages for I/O, and the trash.

use overspill_sys::mem::{self, Advice, Mapping};
use overspill_sys::uffd::{MoveMode, Partial};
use overspill_sys::{Errno, PAGE_SIZE};

use super::{BOUNCE, Memory};
use crate::fingerprint::WORDS;
use crate::pool::Page;
use crate::staging::Frame;

/// How often a frame of one's own is tried to be dropped.
const PATIENCE: u32 = 20_000;

impl Memory {
    /// The address of a frame, for direct I/O.
    pub fn frame_address(&self, frame: Frame) -> usize {
        self.staging_start + frame.0 as usize * PAGE_SIZE
    }

    /// Overwrites `count` populated frames with zeroes.
    pub fn clear_frames(&mut self, first: Frame, count: u32) {
        let address = self.frame_address(first);
        // SAFETY: the frames hold no page; staging is ours alone.
        unsafe { core::ptr::write_bytes(address as *mut u8, 0, count as usize * PAGE_SIZE) };
    }

    /// What a populated frame holds.
    pub fn frame_words(&self, frame: Frame) -> &[u64; WORDS] {
        // SAFETY: the frame lies within staging, is aligned, and nobody writes to it while it holds a page.
        unsafe { &*(self.frame_address(frame) as *const [u64; WORDS]) }
    }

    /// What a populated frame holds, in bytes.
    pub fn frame_page(&self, frame: Frame) -> &Page {
        // SAFETY: as for `frame_words`.
        unsafe { &*(self.frame_address(frame) as *const Page) }
    }

    /// A page was taken into the frame: from now on it stays what it is.
    ///
    /// *The story:* the kernel moves a page that the program has freed by MADV_FREE as such a page. Where
    /// it needed memory it took the frame's page away, and zeroes were in its place: after it was hashed
    /// and before it was written, so that what came back was taken for a fault of the disk; or there was
    /// none to be moved, for ever. A store to it takes that back, whatever is in it. It must be one to the
    /// page that is there by then: a load and a store would bring a word of the old page into a new one.
    pub fn keep(&mut self, frame: Frame) {
        if is_zero(self.frame_words(frame)) {
            // A store might give it a page. If it loses one it shows the same.
            return;
        }
        let address = self.frame_address(frame) as *mut u32;
        // SAFETY: the frame lies within staging, which may be stored to. It changes nothing of what is
        // there. (The compiler knows that of its own atomic operations, and leaves the store out.)
        unsafe { core::arch::asm!("lock or dword ptr [{}], 0", in(reg) address, options(nostack)) };
    }

    /// Has `fill` write a frame into which a page is being brought.
    pub fn fill_frame<R>(&mut self, frame: Frame, fill: impl FnOnce(&mut Page) -> R) -> R {
        // SAFETY: the frame lies within staging, and no request to the device is under way for it.
        // `&mut self` keeps others from looking meanwhile.
        fill(unsafe { &mut *(self.frame_address(frame) as *mut Page) })
    }

    /// Has `fill` write a bounce page that is not on its way to the device.
    pub fn fill_bounce<R>(&mut self, index: u32, fill: impl FnOnce(&mut Page) -> R) -> R {
        assert!(index < BOUNCE);
        // SAFETY: the page lies within the mapping, which is ours alone; the device only reads, and
        // not from this page.
        fill(unsafe { &mut *(self.bounce_address(index) as *mut Page) })
    }

    /// Has `fill` write the page on which children are given what is on swap.
    ///
    /// *A review's story:* it was the scratch page, into which a read that is under way may still
    /// write what nobody wants; a child would have been given that.
    pub fn fill_loan<R>(&mut self, fill: impl FnOnce(&mut Page) -> R) -> R {
        // SAFETY: the page lies within the mapping, which is ours alone, and no request that
        // outlives a call names it.
        fill(unsafe { &mut *(self.loan_address() as *mut Page) })
    }

    /// Its address.
    pub fn loan_address(&self) -> usize {
        self.bounce_address(BOUNCE + 1)
    }

    /// The address of a bounce page, for direct I/O.
    pub fn bounce_address(&self, index: u32) -> usize {
        self.bounce.page(index as usize)
    }

    /// The address of a page whose content does not matter, for direct I/O.
    pub fn scratch_address(&self) -> usize {
        self.bounce_address(BOUNCE)
    }

    /// Gives the memory of `count` (at most a block) populated frames that hold nothing back to the
    /// kernel. Returns how many, from the first, are holes then. One that is a hole already counts.
    ///
    /// *The story:* it ended the search for frames to give back, and nothing was given back any more.
    pub fn drop_frames(&mut self, first: Frame, count: u32) -> u32 {
        let (address, len) = (self.frame_address(first), count as usize * PAGE_SIZE);
        if !self.can_move {
            // SAFETY: the frames hold nothing and are not registered anywhere.
            let dropped = unsafe { mem::madvise(address..address + len, Advice::DontNeed) };
            return if dropped.is_ok() { count } else { 0 };
        }
        let mode = MoveMode::DONTWAKE | MoveMode::ALLOW_SRC_HOLES;
        let mut done = 0;
        let mut pinned = 0;
        while done < len {
            // SAFETY: both sides are ours and hold nothing.
            let moved =
                unsafe { self.own.move_pages(self.trash.start() + done, address + done, len - done, mode) };
            match moved {
                Ok(()) => done = len,
                Err(Partial { done: more, .. }) if more > 0 => done += more,
                Err(Partial { errno: Errno::BUSY | Errno::AGAIN, .. }) if pinned < PATIENCE => {
                    pinned += 1;
                    core::hint::spin_loop();
                }
                Err(_) => break,
            }
        }
        self.empty_trash();
        (done / PAGE_SIZE) as u32
    }

    /// Takes the page of a doorbell away, so that its next touch is reported again. False when it
    /// is still there.
    pub fn rearm(&mut self, address: usize) -> bool {
        if self.is_missing(address) {
            return true;
        }
        let trash = self.trash.start();
        if self.can_move {
            // SAFETY: the page belongs to the pager and holds nothing.
            let _ = unsafe { self.own.move_pages(trash, address, PAGE_SIZE, MoveMode::DONTWAKE) };
            // SAFETY: the trash is ours and holds nothing.
            let _ = unsafe { self.trash.advise(Advice::DontNeed) };
        } else {
            self.drop_program_pages(address..address + PAGE_SIZE);
        }
        self.is_missing(address)
    }

    /// Takes locks off that mlockall of the program put on memory of ours, by a call that nobody heard of.
    pub(super) fn unlock(&self) {
        for range in [&self.staging, &self.trash, &self.zeroes, &self.bounce].map(Mapping::range) {
            // It fails for what is not mapped, which ours is.
            let _ = mem::munlock(range);
        }
    }

    pub(super) fn empty_trash(&mut self) {
        // SAFETY: the trash is ours and holds nothing; it is registered where no events are reported.
        let empty = || unsafe { self.trash.advise(Advice::DontNeed) };
        let emptied = empty().or_else(|_| {
            self.unlock();
            empty()
        });
        assert!(emptied.is_ok(), "dropping pages of a mapping of one's own cannot fail");
    }
}

/// Are all of these words zero?
pub(crate) fn is_zero(words: &[u64]) -> bool {
    words.chunks(32).all(|chunk| chunk.iter().fold(0, |all, word| all | word) == 0)
}

/// A page's bytes as words.
pub(crate) fn words_of(page: &Page) -> &[u64; WORDS] {
    let words = page.as_ptr().cast::<[u64; WORDS]>();
    assert!(words.is_aligned(), "pages are aligned");
    // SAFETY: the same bytes, aligned as was just seen.
    unsafe { &*words }
}
