//! Pages that are only read show the kernel's zero page, write-protected: they have no frame, and
//! the first store to one is told before it is made.
//!
//! UFFDIO_ZEROPAGE cannot protect. So who waits is woken only when the pages are protected, and
//! what another thread has stored to in between is looked for afterwards, when nobody can store any
//! more: such a page has a frame, and the caller is told. Protection stays with the page through
//! mremap, and ends with it at MADV_DONTNEED; a child of fork that is not managed does not have it.

use overspill_sys::pagemap::Query;
use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use super::{Memory, Reach, progress};

impl Memory {
    /// Can pages show the zero page until they are stored to? It takes a kernel that tells which do
    /// (6.7), and one that can take such a page out of view again once it may be stored to.
    pub fn shows_zeroes(&self) -> bool {
        self.can_move && self.takes_zero_pages
    }

    /// Shows the zero page in the missing ones of `count` pages at `address`, and wakes nobody.
    /// Returns how many there are now, from the first, up to one that is there already.
    pub fn show_zeroes(&mut self, address: usize, count: u32) -> u32 {
        let range = address..address + count as usize * PAGE_SIZE;
        if self.refuses(&range) {
            return 0;
        }
        let (mut done, mut tries) = (0, 0);
        let mut reach = Reach::new(count);
        while done < count {
            let at = address + done as usize * PAGE_SIZE;
            let len = reach.len(count - done);
            // SAFETY: mm found the pages untouched: they show zeroes.
            let (pages, errno) = progress(unsafe { self.program.zeropage(at..at + len, true) }, len);
            done += pages;
            match errno {
                None => {}
                Some(Errno::AGAIN) if pages > 0 => {}
                Some(Errno::AGAIN) if self.is_conflict(&range, &mut tries) || self.is_forked() => break,
                Some(Errno::AGAIN) => {}
                // As for `fill_fresh`.
                Some(Errno::EXIST) => break,
                Some(_) if reach.shorten() => {}
                Some(_) => break,
            }
        }
        done
    }

    /// Protects what shows the zero page and calls `visit` with each run of pages that has frames
    /// all the same.
    pub fn protect_zeroes(&mut self, range: AddressRange, mut visit: impl FnMut(AddressRange)) {
        let is_protected = self.protect(range.clone());
        let seen = self.pagemap.for_each_run(range.clone(), Query::OWN_CONTENT, &mut visit);
        if !is_protected || seen.is_err() {
            // Nobody would hear of a store: all of it counts.
            visit(range);
        }
    }
}
