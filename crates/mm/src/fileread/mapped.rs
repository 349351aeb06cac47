//! Faults of mappings, and advice, as all versions of the kernel have them (specification 4.7).
//!
//! What is left of a fault when the mapping has no advice and does not miss too often: the window
//! around it, a quarter of it ahead. Unfit for: random access, for which it reads 32 pages a fault
//! until it has missed a hundred times more often than hit.

use super::{Advice, Cause, Extent, Fault, MapAdvice, Reads, Window};

/// More misses than hits by this many: no window.
pub const MISS_MAX: u32 = 100;
/// The counter of misses stops here.
pub const MISS_CAP: u32 = 1000;

/// What becomes of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// All is said: read what the answer holds, or the page alone.
    Done,
    /// Decide as for a read.
    AsRead,
}

/// A page of a mapping is missing. `keeps_window`: the window around becomes the file's state.
pub fn missing(window: &mut Window, fault: &Fault, keeps_window: bool, reads: &mut Reads) -> Next {
    if let Some(next) = by_advice(window, fault) {
        return next;
    }
    window.mmap_miss = (window.mmap_miss + 1).min(MISS_CAP);
    if window.mmap_miss <= MISS_MAX {
        around(window, fault, keeps_window, reads);
    }
    Next::Done
}

/// What the program has said decides about a missing page, if it has.
pub fn by_advice(window: &Window, fault: &Fault) -> Option<Next> {
    match fault.advice {
        _ if window.limit == 0 => Some(Next::Done),
        MapAdvice::Random => Some(Next::Done),
        MapAdvice::Sequential => Some(Next::AsRead),
        MapAdvice::Normal => None,
    }
}

/// Reads the window around a missing page.
pub fn around(window: &mut Window, fault: &Fault, keeps_window: bool, reads: &mut Reads) {
    let around = Window {
        start: fault.ask.page.saturating_sub(window.limit / 2),
        size: window.limit,
        ahead: if keeps_window { window.limit / 4 } else { 0 },
        ..*window
    };
    reads.push(around.extent(Cause::Around));
    if keeps_window {
        *window = around;
    }
}

/// A page of a mapping was found: is its mark to be followed? `busy_counts`: a page that is just
/// being read counts as a hit, too.
pub fn cached(window: &mut Window, fault: &Fault, busy_counts: bool) -> bool {
    if fault.advice == MapAdvice::Random || window.limit == 0 {
        return false;
    }
    if busy_counts || !fault.arriving {
        window.mmap_miss = window.mmap_miss.saturating_sub(1);
    }
    fault.marked
}

/// WILLNEED: the range, `largest` pages of it at most, in silence.
pub fn will_need(advice: Advice, largest: u64, reads: &mut Reads) {
    if let Advice::WillNeed { page, pages } = advice {
        let pages = pages.min(largest);
        reads.push(Extent { start: page, pages, marker: None, cause: Cause::Forced });
    }
}
