//! Guards (MADV_GUARD_INSTALL, 6.13) in the program's memory: what lies before one, and what behind.
//! Where a guard is no page is put: its content is gone.

use core::sync::atomic::{AtomicBool, Ordering};

use overspill_sys::pagemap::{Categories, PageRegion, Query};
use overspill_sys::{AddressRange, PAGE_SIZE};

use super::Memory;

/// Guards in place of pages.
const GUARDS: Query = Query {
    required: Categories::GUARD,
    excluded: Categories::empty(),
    any_of: Categories::empty(),
    report: Categories::empty(),
};

/// What is known of guards (MADV_GUARD_INSTALL) in the program's memory.
#[derive(Default)]
pub(super) struct Guards {
    /// The kernel tells them from other pages (6.15).
    are_told: bool,
    /// One was seen.
    seen: bool,
    /// Set before the program installs the first one by a call that is heard of.
    announced: Option<&'static AtomicBool>,
}

impl Guards {
    /// None was seen; `are_told`: the kernel tells them from other pages.
    pub fn new(are_told: bool) -> Self {
        Guards { are_told, ..Guards::default() }
    }

    fn may_be(&self) -> bool {
        self.are_told && (self.seen || self.announced.is_some_and(|flag| flag.load(Ordering::SeqCst)))
    }
}

impl Memory {
    /// Guards are announced by `flag`, before they are installed.
    pub fn watch_guards(&mut self, flag: &'static AtomicBool) {
        self.guards.announced = Some(flag);
    }

    /// Of `count` pages at `address`: how many at the head are not guarded, and how many behind
    /// those are. While nothing is known of any guard that is not looked for.
    pub fn guards(&mut self, address: usize, count: u32) -> (u32, u32) {
        if self.guards.may_be() { self.find_guards(address, count) } else { (count, 0) }
    }

    /// How many of `count` pages, of which a thread waits for the first, lie before the next guard.
    /// It does not wait where there is one.
    pub fn open_before_guards(&mut self, address: usize, count: u32) -> u32 {
        if count == 1 || !self.guards.are_told {
            return count;
        }
        let (open, guarded) = self.find_guards(address, count);
        self.guards.seen |= guarded > 0;
        open.max(1)
    }

    /// Does the kernel tell guards from other pages?
    pub fn tells_guards(&self) -> bool {
        self.guards.are_told
    }

    /// One was seen: from now on they are looked for before pages are put anywhere.
    pub fn note_guard(&mut self) {
        self.guards.seen = true;
    }

    /// Tells every run of guards of a range.
    pub fn each_guard(&self, range: AddressRange, visit: impl FnMut(AddressRange)) {
        let _ = self.pagemap.for_each_run(range, GUARDS, visit);
    }

    fn find_guards(&self, address: usize, count: u32) -> (u32, u32) {
        let mut runs = [PageRegion::default(); 1];
        let range = address..address + count as usize * PAGE_SIZE;
        match self.pagemap.scan(range, GUARDS, &mut runs) {
            Ok(scan) if scan.regions > 0 => {
                let open = (runs[0].start as usize - address) / PAGE_SIZE;
                (open as u32, runs[0].pages() as u32)
            }
            _ => (count, 0),
        }
    }
}
