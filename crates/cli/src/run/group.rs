//! Tells the agents that a memory cgroup around the launcher has next to nothing left. They cannot
//! see that group by themselves: in a namespace, or as another user, there is no way to it.
//!
//! What is told holds for a moment only: should the launcher end nobody is ended for it.

use std::sync::Arc;
use std::time::Duration;

use overspill_sys::clock;

use crate::cgroup::{Bound, Own};
use crate::run::shared_page::SharedPage;

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
    /// The innermost one, limit or not, and how many of its processes the kernel had ended before.
    innermost: Option<Own>,
    killed_before: u64,
}

/// What there is to tell of them when the run is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// The least of their limits.
    pub limit_bytes: Option<u64>,
    /// So many processes of the innermost group the kernel has ended for want of memory.
    pub killed: u64,
}

impl Group {
    /// Those around this process.
    pub fn own(page: Arc<SharedPage>) -> Group {
        let innermost = Own::find();
        let killed_before = innermost.as_ref().map_or(0, Own::killed_count);
        Group { page, bounds: Bound::own(), was_full: false, innermost, killed_before }
    }

    /// See there. Version 1 counts who is ended with the group that he was in, not with those above, one of
    /// which may have the limit.
    ///
    /// *The story:* of a run in a group without a limit below one that was full nothing was told.
    pub fn told(&self) -> Told {
        let killed = self.innermost.as_ref().map_or(0, Own::killed_count);
        let limit_bytes = self.bounds.iter().filter_map(Bound::limit_bytes).min();
        Told { limit_bytes, killed: killed.saturating_sub(self.killed_before) }
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
