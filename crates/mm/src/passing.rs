//! A window of a file makes room for itself: what its reader has just passed goes when the window is
//! ordered, not before.
//!
//! To take such pages out of view is cheap and done at once, so that no frames need be kept free for
//! windows: each of them would hold a page that a loop finds on its next lap. A window that lacks
//! frames waits, for no longer than the answers to those orders take; faults do not wait for it.
//!
//! *The story:* a loop over 71M in 64M read 17 MB a lap. As many frames as three windows take were
//! kept free; four times as many were free, since nobody counted that what was passed leaves as soon
//! as it is out of view; and where that did not suffice the oldest pages went, which are those that a
//! loop needs next.

use crate::event::Actions;
use crate::fault::plan_len;
use crate::mm::Mm;
use crate::readahead::{Mapping, Plan, SwapIn};
use crate::types::{SpaceId, Vpn};

/// Behind a reader so many of its windows are taken for passed, of those pages that are there: one for
/// the window that is ordered, one for what grows. All of what a plan names was walked through at each
/// mark, 8192 pages of a large window.
const PASSED_WINDOWS: u32 = 2;

/// A window that waits for frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Postponed {
    /// The page at whose touch it was planned.
    asked: (SpaceId, Vpn),
    plan: Plan,
    /// So many frames have to be free for all of it.
    frames: u32,
}

impl<P: SwapIn> Mm<P> {
    /// What the plan's reader has passed is the next to go. Frames are kept free for windows that do
    /// not make room for themselves in that way.
    pub(crate) fn pass(&mut self, space: SpaceId, plan: &Plan, out: &mut Actions) {
        if plan.mapping == Mapping::Filling {
            return;
        }
        self.yield_filler(plan_len(plan), out);
        let enough = PASSED_WINDOWS * plan_len(plan);
        let passes = plan.passed.is_some_and(|passed| self.leave_behind(space, passed, enough));
        if !passes {
            self.appetite.observe(plan_len(plan));
        }
    }

    /// True: the plan waits until what was passed is gone.
    pub(crate) fn waits_for_passed(&mut self, asked: (SpaceId, Vpn), plan: &Plan) -> bool {
        let space = asked.0;
        if self.pause.is_some() || self.postponed.is_some() || !self.has_passed() {
            return false;
        }
        self.know_plan(space, plan);
        let missing = (0..plan_len(plan))
            .filter(|&index| self.plan_page(space, plan, index).is_some_and(|id| self.is_on_swap(id)))
            .count() as u32;
        let waits = self.spare_frames() < missing;
        if waits {
            let frames = missing + self.low();
            self.postponed = Some(Postponed { asked, plan: *plan, frames });
        }
        waits
    }

    /// Orders the window that waits, if nothing that it waits for is on its way. True: it did.
    pub(crate) fn resume_window(&mut self, out: &mut Actions) -> bool {
        if self.leaving > 0 && self.pause.is_none() {
            return false;
        }
        let Some(Postponed { asked, plan, .. }) = self.postponed.take() else { return false };
        self.issue_now(asked, &plan, out);
        true
    }

    /// Takes what was passed out of view, for the window that waits.
    pub(crate) fn expel_for_window(&mut self, looks: &mut u32, out: &mut Actions) {
        let Some(Postponed { frames, .. }) = self.postponed else { return };
        while self.coming_free() < frames && *looks > 0 && self.has_passed() {
            if !self.unmap_passed(looks, out) {
                return;
            }
        }
    }

    /// Frames that are free, or will be when what is under way has ended.
    pub(crate) fn coming_free(&self) -> u32 {
        self.frames_free() + self.writing + self.leaving
    }

    /// Is the next page to leave one that a reader has passed?
    pub(crate) fn has_passed(&self) -> bool {
        let tail = self.lists.tail(crate::list::ListId::Inactive);
        !self.config.probe.is_kernel()
            && tail.is_some_and(|id| self.is_passed(id) && !self.answered.contains(&id))
    }
}
