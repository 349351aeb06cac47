//! What owners do around a fork of the program: the doorbell that announces it, and the pause.

use alloc::vec::Vec;

use overspill_mm::types::PageId;
use overspill_mm::{Event, State};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use super::{Engine, Notice};
use crate::view::{PROGRAM, address};

/// So often it is tried to arm a doorbell that is silent, where other threads change the address space.
const REARMS: u32 = 1000;

impl Engine {
    /// Page addresses in this range are doorbells: a touch is a
    /// [`Notice::Doorbell`](super::Notice::Doorbell).
    ///
    /// *The story:* a fork came while the agent before this one went, and was answered, or touched a
    /// page that was nobody's. The doorbell was silent from then on: the next fork looked at it for ever.
    pub fn set_doorbells(&mut self, range: AddressRange) -> Result<(), Errno> {
        self.view.program.register_doorbell(range.clone())?;
        let is_armed = (0..REARMS).any(|_| self.view.program.rearm(range.start));
        self.doorbells = range;
        if is_armed { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// Lets the threads at a doorbell go on, and silences it until [`Engine::rearm_doorbell`].
    /// Where that cannot be done, since other threads change the address space all the time, they
    /// are woken and ring again.
    ///
    /// *The story:* it gave up without a word once, while threads were in madvise: the fork waited for ever.
    pub fn answer_doorbell(&mut self, address: usize) {
        if self.view.program.fill_fresh(address, 1) == 0 {
            self.view.program.wake(address..address + PAGE_SIZE);
        }
    }

    /// Brings everything in and stops reclaiming until [`Engine::resume_after_fork`];
    /// [`Notice::Populated`](super::Notice::Populated) follows.
    pub fn pause(&mut self) {
        self.heirs.is_expected = false;
        self.begin_pause(Event::Pause);
    }

    /// What was said of a pause before this one and not judged is not said any more.
    ///
    /// *The story* (by reading): of two threads that rang at once one wanted everything in. That all is in
    /// or in slots was said for the other one, and taken for what the first had asked for.
    pub(super) fn begin_pause(&mut self, event: Event) {
        self.is_paused = true;
        self.notices.retain(|notice| *notice != Notice::Populated);
        self.feed(event);
    }

    /// Arms the doorbell again. False when that is to be tried again.
    pub fn rearm_doorbell(&mut self, address: usize) -> bool {
        self.view.program.rearm(address)
    }

    /// There was a fork, here or before this process began: pages may be shared with other
    /// processes. Each is made the program's own when it is taken out.
    pub fn note_sharing(&mut self) {
        self.view.program.note_sharing();
    }

    /// Does each page that leaves have to be made the program's own first, while RAM is short?
    pub fn copies_to_take(&mut self, is_so: bool) {
        self.mm.copies_to_take(is_so);
    }

    /// Was there one?
    #[must_use]
    pub fn may_share(&self) -> bool {
        self.view.program.may_share()
    }

    /// Lets go of all memory, which is the program's alone again. True when that is done; false
    /// while something is still out. To be called after [`Engine::pause`], with turns between, until it
    /// is true. What could not be read back raises SIGBUS.
    ///
    /// *The story:* pages that show the zero page counted as out, and nothing brings those in: each
    /// program with AddressSanitizer, which reads much that it never stores to, waited for the end
    /// of its agent for ever.
    ///
    /// *The other story:* so did one page that could not be read.
    pub fn release_all(&mut self) -> bool {
        self.finish_transfers();
        let is_in = |id: PageId| matches!(self.mm.state(id), State::Untouched | State::Mapped | State::Zero);
        if self.mm.known_pages().any(|id| !is_in(id) && !self.mm.is_lost(id)) {
            return false;
        }
        if !self.poison_lost() {
            return false;
        }
        let regions: Vec<AddressRange> =
            self.regions().chain([self.doorbells.clone()]).chain(self.heirs.mailbox()).collect();
        for region in regions {
            // What shows the zero page is protected.
            self.view.program.unprotect(region.clone());
            // SAFETY: nothing is out.
            unsafe { self.view.program.unregister(region) };
        }
        self.view.program.end_helper();
        true
    }

    /// Lost pages raise SIGBUS, in children, too, when everything else is in. False: not all of them
    /// yet, since the address space is changing.
    ///
    /// *The story* (by reading): a page whose range was changing when it was lost was not poisoned then,
    /// which is enough for whoever touches it. A fork followed, and its child read zeroes.
    pub(super) fn poison_lost(&mut self) -> bool {
        if !self.has_lost {
            return true;
        }
        self.handle_changes();
        let lost: Vec<PageId> = self.mm.known_pages().filter(|&id| self.mm.is_lost(id)).collect();
        for id in lost {
            self.view.poison(self.mm.place(id));
        }
        !self.view.program.is_changed()
    }

    /// The first store to each page in view waits until [`Engine::allow_copies`]: another process
    /// shares it, and the store makes a copy.
    pub fn guard_copies(&mut self) {
        if self.view.program.can_move() {
            self.view.program.note_guarded(true);
            self.stores_held = Some(Vec::new());
            for run in self.runs_in_view() {
                self.view.program.protect(run);
            }
        }
    }

    /// Copies are made as they come, again.
    pub fn allow_copies(&mut self) {
        let held = self.stores_held.take();
        for run in self.runs_in_view() {
            self.view.program.unprotect(run);
        }
        // What has left meanwhile is not in view: who waits there touches it again.
        for page in held.into_iter().flatten() {
            self.view.program.unprotect(page..page + PAGE_SIZE);
        }
        self.view.program.note_guarded(false);
    }

    /// Holds a store to a page that was in view when copies were guarded. False: they are not.
    pub(super) fn holds_store(&mut self, address: usize) -> bool {
        let Some(held) = &mut self.stores_held else { return false };
        held.push(address / PAGE_SIZE * PAGE_SIZE);
        true
    }

    /// Runs of the program's own pages in view. Of files, and of what shows the zero page, stores
    /// are told for other reasons.
    fn runs_in_view(&self) -> Vec<AddressRange> {
        let mut runs: Vec<AddressRange> = Vec::new();
        for id in self.mm.known_pages().filter(|&id| self.mm.state(id) == State::Mapped) {
            let (space, vpn) = self.mm.place(id);
            if space != PROGRAM || self.file_slot(vpn).is_some() {
                continue;
            }
            let at = address(vpn);
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += PAGE_SIZE,
                _ => runs.push(at..at + PAGE_SIZE),
            }
        }
        runs
    }

    /// Goes on after [`Engine::pause`].
    pub fn resume_after_fork(&mut self) {
        self.is_paused = false;
        (self.heirs.is_expected, self.heirs.was_expected) = (false, false);
        self.feed(Event::Resume);
    }
}
