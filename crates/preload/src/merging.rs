//! Pages of the program are not merged with others that are the same (KSM).
//!
//! The kernel takes away from what it merges that a store is to be told before it is made, and moves no such
//! page. So the agent takes the program's wish back as soon as it sees it: each look asks the kernel, and
//! madvise is seen here.
//!
//! *The story:* of 5120 stores to a mapping of a file 536 were lost, and what was merged never left: a limit
//! of 64 MiB was none.

use overspill_sys::mem::{self, Advice};

use crate::{filters, fork};

/// At a look: nothing is merged any more, whoever asked for it (the program, its parent, a service manager).
pub fn stop() {
    if !filters::is_filtered() && mem::merges() {
        let _ = mem::stop_merging();
    }
}

/// After madvise(MADV_MERGEABLE).
pub fn take_back(start: usize, len: usize) {
    if fork::is_ours() && !filters::is_filtered() {
        // SAFETY: changes no content.
        let _ = unsafe { mem::madvise(start..start.saturating_add(len), Advice::Unmergeable) };
    }
}
