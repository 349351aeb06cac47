//! Tells the agents that a memory cgroup around the launcher has next to nothing left. They cannot
//! see that group by themselves: in a namespace, or as another user, there is no way to it.
//!
//! What is told holds for a moment only: should the launcher end nobody is ended for it.

use std::sync::Arc;
use std::time::Duration;

use overspill_sys::clock;

use super::shared_page::SharedPage;
use crate::cgroup::Bound;

/// A group is taken for full when less than this part of its limit is left.
const LEFT_SHARE: u64 = 16;
/// How often it is looked at, once swap is full: a program fills some MiB of RAM meanwhile.
pub const PAUSE: Duration = Duration::from_millis(5);
/// So long what was told holds.
const TOLD_NS: u64 = 200_000_000;

/// The groups.
pub struct Group {
    page: Arc<SharedPage>,
    bounds: Vec<Bound>,
    was_full: bool,
    /// How many of the innermost one's processes the kernel had ended before.
    killed_before: u64,
}

impl Group {
    /// Those around this process.
    pub fn own(page: Arc<SharedPage>) -> Group {
        let bounds = Bound::own();
        let killed_before = bounds.first().map_or(0, Bound::killed_count);
        Group { page, bounds, was_full: false, killed_before }
    }

    /// How many processes of the innermost group with a limit the kernel has ended since for want of memory.
    pub fn killed(&self) -> u64 {
        self.bounds.first().map_or(0, Bound::killed_count).saturating_sub(self.killed_before)
    }

    /// Is there a limit?
    pub fn is_bounded(&self) -> bool {
        !self.bounds.is_empty()
    }

    /// Looks what is left, and tells.
    pub fn look(&mut self) {
        let is_full = self.bounds.iter_mut().any(|bound| bound.is_nearly_full(LEFT_SHARE));
        if is_full || self.was_full {
            let until_ns = if is_full { clock::monotonic_ns() + TOLD_NS } else { 0 };
            // If it cannot be told the kernel ends what it likes, as it would without this.
            let _ = self.page.set_group_full_until(until_ns);
        }
        self.was_full = is_full;
    }
}
