//! Pages of files in the program's view: what a store to one means that must not be, and a mapping
//! that goes back to the kernel. How such pages come into view is in `putting`.

use overspill_sys::mem::{self, Prot};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use super::Memory;
use crate::file_table::MappedFile;
use crate::helper::{Helper, Job};

impl Memory {
    /// A store to a page that the program mapped for reading: the mapping says so from now on, and
    /// the thread that waits there gets its SIGSEGV. Where the program has changed what it may do there
    /// the thread tries again.
    ///
    /// The page stays protected: the program may be given the right to store to it later.
    pub fn forbid_stores(&mut self, page: usize, place: Option<&MappedFile>) {
        let mut is_refused = false;
        let mut forbid = || {
            // SAFETY: takes a permission away that the program does not know of; content stays.
            is_refused = unsafe { mem::mprotect(page..page + PAGE_SIZE, Prot::READ) }.is_err();
        };
        match place {
            Some(place) => place.forbid(forbid),
            None => (forbid)(),
        }
        if is_refused {
            // Too many mappings: the store goes through, or it would be told for ever.
            self.unprotect(page..page + PAGE_SIZE);
        } else {
            self.wake(page..page + PAGE_SIZE);
        }
    }

    /// Maps a file over a range, for good. The kernel tells that the range goes, which is handled as
    /// any such event. False where that could not be done.
    ///
    /// The caller has found the range to be there just now. Whoever unmaps it since waits until that is
    /// read, which is not before the file is mapped; but a third thread may have been given the place
    /// within these microseconds, as with [`Memory::drop_program_pages`].
    pub fn replace(&mut self, range: AddressRange, file: i32, offset: u64, prot: Prot, shared: bool) -> bool {
        let Some(helper) = self.started_helper().filter(Helper::is_idle) else { return false };
        helper.order_mapping(Job::Replace, range, file, offset, prot, shared);
        self.await_helper(helper);
        helper.succeeded()
    }

    /// Moves a range over another of the program's, from `to` on, in one step. The kernel tells of it as of
    /// any such move. Where it refuses nothing was moved; EAGAIN: the helper is busy.
    pub fn move_over(&mut self, range: AddressRange, to: usize) -> Result<(), Errno> {
        let helper = self.started_helper().filter(Helper::is_idle).ok_or(Errno::AGAIN)?;
        helper.order_move(range, to);
        self.await_helper(helper);
        helper.failure().map_or(Ok(()), Err)
    }

    /// Unmaps a range that nobody else knows of. Where the helper is busy it stays, for ever: addresses
    /// without a page.
    pub fn unmap(&mut self, range: AddressRange) {
        if let Some(helper) = self.started_helper().filter(Helper::is_idle) {
            helper.order(Job::Unmap, range);
            self.await_helper(helper);
        }
    }

    /// Drops all that is in a range, and the poison there. False where that could not be done, as the
    /// range is changing, or the helper waits for a page.
    ///
    /// *The story:* pages were moved out to be dropped. The kernel moves none that a child of fork had,
    /// and there are only so many holes: what stayed in view showed what a file had held before.
    ///
    /// *Another story:* that a file's range had been moved over was read and not handled. The kernel
    /// refuses nothing then, and what had arrived there was dropped.
    pub fn discard(&mut self, range: AddressRange) -> bool {
        let Some(helper) = self.started_helper().filter(Helper::is_idle) else { return false };
        // The kernel says no where it is not registered, or was not a moment ago, or is changing now.
        if self.is_changing(&range) || !self.protect(range.clone()) {
            return false;
        }
        self.drop_program_pages(range);
        helper.succeeded()
    }
}
