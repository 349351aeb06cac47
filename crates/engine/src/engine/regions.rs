//! What owners do with the regions of the program's own memory, and with any region by one of its pages.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;

use overspill_mm::readahead::policy::{Overrides, RegionState};
use overspill_mm::types::{RegionKind, Vpn};
use overspill_mm::{Event, RegionStats, State};
use overspill_sys::mem::{self, OwnMemory};
use overspill_sys::pagemap::{Categories, Query};
use overspill_sys::uffd::Message;
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock};

use super::Engine;
use crate::join_words::JoinWords;
use crate::robust::Robust;
use crate::view::{PROGRAM, Place, address, vpn, vpns};

/// What is brought back at a time when a process has its turn, and how often in a row at most.
const RETURN_PAGES: u32 = 256;
const RETURN_STEPS: u32 = 4096;

impl Engine {
    /// Asks the kernel to report the missing pages of a range of private anonymous memory.
    pub fn register(&self, range: AddressRange) -> Result<(), Errno> {
        self.view.program.register(range)
    }

    /// The same of a range that was just mapped, and that nobody else knows of: nothing may be there.
    /// EBUSY: it is locked, or something is. EAGAIN: others change the address space all the time; to be
    /// tried again. It is registered in either case.
    ///
    /// *The story:* what is mapped after mlockall(MCL_FUTURE) is filled with zeroes at once. No fault was
    /// told of, and the file was never read: it was all zeroes (`torture file-locked`).
    ///
    /// *The other story:* one thread unmapped what was managed, and a file was mapped in its place before the
    /// event of that was read. The event ended what had just begun, and who touched the file found zeroes
    /// (`torture file-grow-beside`).
    pub fn register_empty(&mut self, range: AddressRange) -> Result<(), Errno> {
        self.register(range.clone())?;
        // From now on whoever locks it waits for what he finds missing. Where pages cannot be asked for
        // quickly only the lock is.
        let present = Query { any_of: Categories::PRESENT | Categories::SWAPPED, ..Query::default() };
        let is_filled = mem::is_locked(range.clone())
            || self.view.program.can_move() && self.pagemap().has_any(range.clone(), present)?;
        if is_filled {
            return Err(Errno::BUSY);
        }
        // Whatever was there has gone, and its event is on its way, or was read.
        if self.settle(|_| {}) && !self.manages(&range) { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// Is the page at an address of the program's in a registered mapping? Not sure, while the
    /// address space changes: no.
    #[must_use]
    pub fn is_registered(&self, address: usize) -> bool {
        self.view.program.is_registered(address)
    }

    /// Is a page that is managed in no registered mapping any more, and will no event say so? To be asked
    /// when all changes are handled.
    #[must_use]
    pub fn is_lost(&self, address: usize) -> bool {
        self.view.program.is_lost(address)
    }

    /// Forgets a range that is: it is as if an event had said that it was unmapped.
    pub fn forget_lost(&mut self, range: AddressRange) {
        self.handle(Message::Unmap { start: range.start, end: range.end });
    }

    /// `rings` is set before the program makes an io_uring, where that is heard of.
    pub fn watch_rings(&mut self, rings: &'static AtomicBool) {
        self.lending.watch_rings(rings);
    }

    /// `installed` is set before the program puts the first guard (MADV_GUARD_INSTALL) in the place
    /// of a page.
    pub fn watch_guards(&mut self, installed: &'static AtomicBool) {
        self.view.program.watch_guards(installed);
    }

    /// From now on pages that are copied are read by `memory`, without waiting for it.
    pub fn read_by(&mut self, memory: Arc<OwnMemory>) {
        self.view.program.read_by(memory);
    }

    /// From now on pages that the kernel needs when a thread of this process ends stay in RAM:
    /// those of `words`, too.
    pub fn watch_threads(&mut self, memory: Arc<OwnMemory>, words: &'static JoinWords) {
        self.robust = Some(Robust::new(memory, words));
    }

    /// Can pages that were only read so far be taken out of view?
    #[must_use]
    pub fn takes_zero_pages(&self) -> bool {
        self.view.program.takes_zero_pages()
    }

    /// Is any page of the range managed?
    #[must_use]
    pub fn manages(&self, range: &AddressRange) -> bool {
        let (start, end) = vpns(range);
        self.mm.manages(PROGRAM, start, end)
    }

    /// Every part of the range that is not managed, in order.
    pub fn unmanaged(&self, range: &AddressRange) -> impl Iterator<Item = AddressRange> + '_ {
        let (start, end) = vpns(range);
        self.mm.unmanaged(PROGRAM, start, end).map(|(start, end)| address(start)..address(end))
    }

    /// The managed ranges of the program's own memory.
    pub fn regions(&self) -> impl Iterator<Item = AddressRange> + '_ {
        let own = self.mm.regions().filter(|&(space, ..)| space == PROGRAM);
        own.map(|(_, start, end)| address(start)..address(end))
    }

    /// The engine's own mappings, which must never be managed.
    #[must_use]
    pub fn own_ranges(&self) -> [AddressRange; 10] {
        let [staging, trash, zeroes, bounce, lobby, helper] = self.view.program.own_ranges();
        let (io, pool) = (self.transfers.io().range(), self.compressed.pool.range());
        let [envelopes, key] = self.sealing_ranges();
        [staging, trash, zeroes, bounce, lobby, helper, io, pool, envelopes, key]
    }

    /// Manages a range that is registered already.
    pub fn add_region(&mut self, range: AddressRange, kind: RegionKind) {
        self.discards.forget(&range);
        let (start, end) = vpns(&range);
        self.feed(Event::RegionAdded { space: PROGRAM, start, end, kind });
    }

    /// The same, where private memory that is managed has grown down by the range.
    pub fn grow_region_down(&mut self, range: AddressRange) {
        self.discards.forget(&range);
        let (start, end) = vpns(&range);
        self.feed(Event::RegionGrown { space: PROGRAM, start, end });
    }

    /// A part of the managed range may not be accessible yet: first touches fill no more than what is.
    pub fn note_reservation(&mut self, range: AddressRange) {
        self.reservations.note(range);
    }

    /// Forgets a range whose content nobody wants any more.
    pub fn remove_region(&mut self, range: AddressRange) {
        let (start, end) = vpns(&range);
        self.feed(Event::RegionRemoved { space: PROGRAM, start, end });
        // Reports end with the mapping, which the caller unmaps next.
    }

    /// Takes write permission away from registered memory, as far as the kernel allows: whoever
    /// stores to what is there waits until [`Engine::unprotect`]. What stays protected costs its
    /// next store one fault.
    pub fn protect(&mut self, range: AddressRange) {
        self.view.program.protect(range);
    }

    /// Gives write permission back.
    pub fn unprotect(&mut self, range: AddressRange) {
        self.view.program.unprotect(range);
    }

    /// Does it take long to take pages out of view, since they cannot be moved?
    #[must_use]
    pub fn evicts_slowly(&self) -> bool {
        !self.view.program.can_move()
    }

    /// Where taking pages out of view takes long, the budget grows to what is held and `pages`
    /// more: what is found resident need not leave at once, and the owner takes the budget back in
    /// steps, between which it can look around.
    pub fn make_room(&mut self, pages: usize) {
        if self.evicts_slowly() {
            let pages = u32::try_from(pages).unwrap_or(u32::MAX);
            self.set_budget(self.budget().max(self.frames().saturating_add(pages)));
        }
    }

    /// These pages of a region are present although nobody told. True when that is not believed of
    /// all that the books lack: what the program has just discarded may still be there, see
    /// [`crate::discards`].
    ///
    /// *The story:* a program discarded 24 MiB and read zeroes, but for some 500 pages that showed
    /// what had been there, one time in eight on a busy machine. The books lacked what the kernel
    /// was about to free, so the agent looked for pages that were there unheard, found those, and
    /// took them out of view before they were freed (`torture discard-slowly`).
    pub fn add_resident(&mut self, range: AddressRange) -> bool {
        let mut parts = Vec::new();
        self.discards.each_part(range, clock::monotonic_ns(), |part, rested| parts.push((part, rested)));
        let mut again = false;
        for (part, rested) in parts {
            let (start, end) = vpns(&part);
            if rested {
                self.feed(Event::Resident { space: PROGRAM, start, end });
            } else {
                again |= (start.0..end.0).any(|vpn| self.is_unknown(Vpn(vpn)));
            }
        }
        again
    }

    /// Is the page in no frame by the books?
    fn is_unknown(&self, vpn: Vpn) -> bool {
        let state = self.mm.lookup(PROGRAM, vpn).map(|id| self.mm.state(id));
        matches!(state, None | Some(State::Untouched | State::Zero))
    }

    /// Waits until whoever has the lock of the address space has let go of it.
    pub fn outwait_changes(&self) {
        self.view.program.outwait();
    }

    // Any region, by any of its pages.

    /// The page of the program's own memory at an address.
    #[must_use]
    pub fn place(address: usize) -> Place {
        (PROGRAM, vpn(address))
    }

    /// What is counted for a region, and what its read-ahead policy keeps.
    pub fn region(&mut self, (space, vpn): Place) -> Option<(&RegionStats, &mut RegionState)> {
        self.mm.region(space, vpn)
    }

    /// Knobs that hold for a region in place of those of all.
    pub fn set_overrides(&mut self, place: Place, overrides: Overrides) {
        if let Some((_, state)) = self.region(place) {
            state.overrides = overrides;
        }
    }

    /// Reads back what is out from an address on, as far as frames are free: the process has its
    /// turn. Answers where to go on, so that no page is brought back twice: what reclaim chose
    /// meanwhile stays out.
    pub fn bring_back(&mut self, from: usize) -> usize {
        let regions: Vec<AddressRange> = self.regions().collect();
        let mut steps = 0;
        for region in regions.into_iter().filter(|region| region.end > from) {
            let mut at = region.start.max(from);
            while at < region.end {
                let config = self.mm.config();
                let room = config.budget.saturating_sub(self.mm.frames_held() + config.low);
                if room < RETURN_PAGES || steps == RETURN_STEPS {
                    return at;
                }
                steps += 1;
                let end = region.end.min(at + RETURN_PAGES as usize * PAGE_SIZE);
                self.feed(Event::WillNeed { space: PROGRAM, start: vpn(at), end: vpn(end) });
                at = end;
            }
        }
        usize::MAX
    }

    /// `pages` pages from `first` on will be needed soon.
    pub fn will_need(&mut self, first: Place, pages: u64) {
        let (space, start) = first;
        self.feed(Event::WillNeed { space, start, end: Vpn(start.0 + pages) });
    }
}
