//! Guards that nobody told of: an io_uring installs them, too (IORING_OP_MADVISE). What they stand over is
//! gone, and the kernel says so to nobody.
//!
//! *The story:* what stood over pages that were out was looked for when those came in, and nobody brings in
//! what is guarded. A MiB that had been guarded for a second, and through 192 MiB of pressure, had its old
//! bytes when the guards were taken away.

use alloc::vec::Vec;

use overspill_mm::State;
use overspill_sys::uffd::Message;
use overspill_sys::{AddressRange, PAGE_SIZE, clock};

use super::Engine;
use crate::view::{PROGRAM, vpn};

/// Two looks lie so far apart, and farther where a look takes long.
const LOOK_NS: u64 = 20_000_000;
const LOOK_SHARE: u64 = 100;

impl Engine {
    /// Forgets what guards stand over, where the program has an io_uring and something is out.
    pub(super) fn look_for_guards(&mut self, now: u64) {
        let may_be = now >= self.guards_next
            && !self.is_paused
            && self.mm.pages_swapped() > 0
            && self.view.program.tells_guards()
            && self.lending.has_ring(now);
        if !may_be {
            return;
        }
        self.forget_guarded();
        let ended = clock::monotonic_ns();
        self.guards_next = ended + LOOK_NS.max((ended - now) * LOOK_SHARE);
    }

    fn forget_guarded(&mut self) {
        self.handle_changes();
        if !self.is_still() {
            return;
        }
        let mut guarded: Vec<AddressRange> = Vec::new();
        for region in self.regions() {
            self.view.program.each_guard(region, |run| guarded.push(run));
        }
        // What has moved meanwhile is not what was asked for. What is guarded comes to nobody's view but by
        // this thread.
        if guarded.is_empty() || !self.is_still() {
            return;
        }
        self.view.program.note_guard();
        let has_content = |address: usize| {
            let id = self.mm.lookup(PROGRAM, vpn(address));
            id.is_some_and(|id| self.mm.state(id) != State::Untouched)
        };
        let mut gone: Vec<AddressRange> = Vec::new();
        for page in
            guarded.into_iter().flat_map(|run| run.step_by(PAGE_SIZE)).filter(|page| has_content(*page))
        {
            match gone.last_mut().filter(|last| last.end == page) {
                Some(last) => last.end += PAGE_SIZE,
                None => gone.push(page..page + PAGE_SIZE),
            }
        }
        for AddressRange { start, end } in gone {
            self.handle(Message::Remove { start, end });
        }
    }

    /// Is no change under way, or told and not handled?
    fn is_still(&mut self) -> bool {
        self.view.program.is_quiet() && !self.view.program.is_changed()
    }
}
