//! Pages of files in the program's view: what a store to one means that must not be, and a mapping
//! that goes back to the kernel. How such pages come into view is in `putting`.

use overspill_sys::mem::{self, Prot};
use overspill_sys::{AddressRange, PAGE_SIZE};

use super::Memory;
use crate::helper::{Helper, Job};

impl Memory {
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
