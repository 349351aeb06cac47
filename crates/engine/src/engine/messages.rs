//! What the kernel reports: changes of the address space and faults, each turned into events of `mm`.

use overspill_mm::types::Access;
use overspill_mm::{Event, State};
use overspill_sys::uffd::Message;
use overspill_sys::{AddressRange, PAGE_SIZE, clock};

use super::{Engine, Notice};
use crate::memory::REST_NS;
use crate::report::Wait;
use crate::shared_regions::SharedFault;
use crate::view::{PROGRAM, Place, SHARED, vpn, vpns};

/// How often [`Engine::settle`] looks.
const SETTLE_TRIES: u32 = 200;

impl Engine {
    /// Handles the changes of the address space that the kernel has reported.
    pub fn handle_changes(&mut self) {
        self.handle_changes_telling(&mut |_| {});
    }

    /// Handles and tells changes until none is under way whose event is still to be read. False when
    /// such a moment does not come soon: threads may change the address space all the time, and a
    /// change counts until the thread that made it runs again.
    pub fn settle(&mut self, mut replaced: impl FnMut(AddressRange)) -> bool {
        for _ in 0..SETTLE_TRIES {
            self.handle_changes_telling(&mut replaced);
            if self.view.program.is_quiet() && !self.view.program.is_changed() {
                return true;
            }
            clock::sleep_ns(REST_NS);
        }
        false
    }

    /// Answers a thread that waited at an unknown address, whatever that is now. Where it is in
    /// no region still, and cannot be (memory that grew by mremap and was made read-only at once),
    /// the page was never touched and shows zeroes.
    ///
    /// *The story:* it was only woken, and had to touch the page once more to get it: memory that
    /// grows down cost two faults a page.
    pub fn answer_unknown(&mut self, address: usize, write: bool) {
        let page = address / PAGE_SIZE * PAGE_SIZE;
        let vpn = vpn(page);
        if self.mm.manages(PROGRAM, vpn, vpn.offset(1)) {
            return self.missing((PROGRAM, vpn), write);
        }
        self.view.program.fill_fresh(page, 1);
        self.view.program.wake(page..page + PAGE_SIZE);
    }

    /// Is nothing under way in the address space that is still to be told?
    pub fn is_all_told(&mut self) -> bool {
        self.view.program.is_quiet()
    }

    /// Whoever waits at an address that nothing is known of touches it again.
    pub fn let_touch_again(&mut self, page: usize) {
        self.view.program.wake(page..page + PAGE_SIZE);
    }

    /// Nothing of a range that is not managed is told any more, and whoever waits there goes on: the kernel
    /// fills it.
    ///
    /// # Safety
    /// Nobody has touched it: zeroes are right.
    pub unsafe fn leave_to_kernel(&mut self, range: AddressRange) {
        // SAFETY: the caller vouches for it.
        unsafe { self.view.program.unregister(range) };
    }

    /// Handles the changes that the kernel has reported, and tells the ranges where mappings ended,
    /// moved away or arrived.
    pub fn handle_changes_telling(&mut self, replaced: &mut impl FnMut(AddressRange)) {
        self.view.program.read_messages();
        while let Some(message) = self.next_change() {
            match message {
                Message::Unmap { start, end } => replaced(start..end),
                Message::Remap { from, to, len } => {
                    replaced(from..from + len);
                    replaced(to..to + len);
                }
                _ => {}
            }
            self.handle(message);
        }
        self.tell_file_ranges();
    }

    /// The change to be handled next.
    pub(super) fn next_change(&mut self) -> Option<Message> {
        let mm = &self.mm;
        self.view.program.next_change(|range| {
            let (start, end) = vpns(range);
            mm.manages(PROGRAM, start, end)
        })
    }

    pub(super) fn handle(&mut self, message: Message) {
        match message {
            Message::Fault { address, write, wp, thread_id, .. } => {
                self.fault(address & !(PAGE_SIZE - 1), write, wp, thread_id);
            }
            Message::Remove { start, end } => {
                self.forget_stores(&(start..end));
                self.discards.note(start..end, clock::monotonic_ns());
                let (start, end) = vpns(&(start..end));
                self.feed(Event::Discarded { space: PROGRAM, start, end });
            }
            Message::Unmap { start, end } => {
                self.reservations.forget(&(start..end));
                self.discards.forget(&(start..end));
                let (from, to) = vpns(&(start..end));
                self.feed(Event::RegionRemoved { space: PROGRAM, start: from, end: to });
                self.file_range_changed(&(start..end));
            }
            Message::Remap { from, to, len } => {
                if from != to {
                    // What is on its way belongs to pages by their old places, where nothing may be
                    // put any more: with MREMAP_DONTUNMAP the kernel would not refuse it, and the
                    // content would be lost.
                    self.view.program.handle(from..from + len, to..to + len);
                    self.finish_transfers();
                    let pages = (len / PAGE_SIZE) as u64;
                    let (old, new) = (vpn(from), vpn(to));
                    self.feed(Event::Moved { space: PROGRAM, from: old, to: new, pages });
                    self.view.program.handled();
                    self.file_range_changed(&(from..from + len));
                    self.file_range_changed(&(to..to + len));
                }
            }
            Message::Fork { fd } => self.forked(fd),
            Message::Other(_) => {}
        }
    }

    pub(super) fn fault(&mut self, address: usize, write: bool, wp: bool, thread: u32) {
        if self.doorbells.contains(&address) {
            self.notices.push_back(Notice::Doorbell(address));
            return;
        }
        let vpn = vpn(address);
        if !self.mm.manages(PROGRAM, vpn, vpn.offset(1)) {
            self.notices.push_back(Notice::Unknown { address, write, thread });
            return;
        }
        if wp && self.file_store(address) {
            return;
        }
        let state = self.mm.lookup(PROGRAM, vpn).map(|id| self.mm.state(id));
        if wp && !matches!(state, Some(State::Zero | State::Untouched)) {
            if self.holds_store(address) {
                return;
            }
            // Copying a page out protects it, for an instant, and so does the adoption of zero
            // pages. It is gone by now, or it stays.
            self.view.program.unprotect(address..address + PAGE_SIZE);
            return;
        }
        if !wp && self.view.program.is_stuck() {
            self.notices.push_back(Notice::Stuck { address, write, thread });
            return;
        }
        if !self.is_behind_end((address, write, thread)) {
            self.missing((PROGRAM, vpn), write);
        }
    }

    pub(super) fn shared_fault(&mut self, fault: &SharedFault) {
        let vpn = fault.vpn;
        if fault.wp {
            self.view.shared.unprotect(fault);
        } else if self.mm.manages(SHARED, vpn, vpn.offset(1)) {
            self.missing((SHARED, vpn), fault.write);
        }
    }

    /// A thread waits for a page of a region.
    pub(super) fn missing(&mut self, place: Place, write: bool) {
        let now = clock::monotonic_ns();
        self.vigil.fault(now);
        let access = if write { Access::Write } else { Access::Read };
        let (space, vpn) = place;
        if write {
            self.foresee_store(place);
        }
        let id = self.mm.lookup(space, vpn);
        let before = id.map(|id| self.mm.state(id));
        let wait = match id {
            Some(id) if before == Some(State::Swapped) => {
                if self.is_packed(id) {
                    Wait::Pool
                } else {
                    Wait::Read
                }
            }
            Some(id) if self.mm.state(id) == State::Reading => Wait::Coming,
            // A page of a file is out before it was ever touched. *The story:* one of whose neighbours
            // something was known counted as a soft fault: nine waits of ten were no waits for pages.
            _ if matches!(before, None | Some(State::Untouched)) && self.is_of_file(place) => Wait::Read,
            _ => Wait::Soft,
        };
        let was_in_view = matches!(before, Some(State::Mapped | State::Zero));
        if was_in_view && self.view.is_missing(place) {
            // The page went without a word (the kernel reclaims what MADV_FREE released): it is
            // untouched again.
            self.feed(Event::Discarded { space, start: vpn, end: vpn.offset(1) });
        }
        self.report.fault_begins(vpn, wait, now);
        if let Some(tracer) = &mut self.tracer {
            tracer.fault(now, vpn, self.mm.lookup(space, vpn), before);
        }
        self.feed(Event::Fault { space, vpn, access });
    }
}
