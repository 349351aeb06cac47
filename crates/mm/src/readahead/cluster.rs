//! Cluster mode: the aligned block of slots around the wanted one, whoever owns them (specification
//! 1.2 to 1.5).
//!
//! One detector serves the whole system; it sees slots, never addresses. The rule that sizes the
//! block is a [`Variant`], so that the kernel's detector runs beside the ones it was preferred to.
//! Unfit for: several streams or random faults beside a stream (one counter for all), slots in the
//! order of eviction that is not the order of use.

use super::window::{HITS_INITIAL, win};
use super::{Mapping, Plan, SwapIn, Touch, Window};
use crate::types::{RegionKind, Slot, Vpn};

/// The largest `page_cluster`.
pub const PAGE_CLUSTER_MAX: u8 = 31;
/// Misses beyond hits above which Shaohua's variant reads single pages, and where the count stops.
const DISTRUST_LIMIT: u16 = 100;
const DISTRUST_MAX: u16 = 1000;
/// Konstantin's score is a share of this.
const SCORE_MAX: u16 = 1024;
/// The window with which HughOld starts.
const HUGH_OLD_WINDOW: u32 = 8;

/// How the size of the block is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// Always the full block ("Vanilla": up to 3.13).
    Blind,
    /// September 2012: full block or single page, by a counter per region; shared memory is never limited.
    Shaohua,
    /// A score of 1024 that scales the order of the block.
    Konstantin,
    /// October 2012: doubles and halves by the share that was used; settles at 2 pages on random access.
    HughOld,
    /// November 2012: the window function without its floor.
    HughNew,
    /// What was merged in 3.14 and stands to this day: the window function.
    Merged,
}

/// Shaohua's counter: misses of the region beyond its swap-cache hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Distrust(u16);

/// The policy.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// log2 of the largest block; 0 switches read-ahead off.
    pub page_cluster: u8,
    /// Mark what was cached already, too (3.14's defect).
    pub marks_cached: bool,
    variant: Variant,
    hits: u32,
    prev: u32,
    last_win: u32,
    score: u16,
}

impl Cluster {
    /// A detector in its initial state.
    #[must_use]
    pub fn new(variant: Variant, page_cluster: u8) -> Self {
        let last_win = if variant == Variant::HughOld { HUGH_OLD_WINDOW } else { 0 };
        Cluster {
            page_cluster,
            marks_cached: false,
            variant,
            hits: HITS_INITIAL,
            prev: 0,
            last_win,
            score: SCORE_MAX - 1,
        }
    }

    /// The last window that was decided by hits.
    #[must_use]
    pub fn last_window(&self) -> u32 {
        self.last_win
    }

    fn window(&mut self, distrust: Distrust, kind: RegionKind, off: u32) -> u32 {
        let order = u32::from(self.page_cluster.min(PAGE_CLUSTER_MAX));
        let max = 1 << order;
        if max <= 1 {
            return 1;
        }
        match self.variant {
            Variant::Blind => max,
            Variant::Shaohua if kind == RegionKind::Anon && distrust.0 > DISTRUST_LIMIT => 1,
            Variant::Shaohua => max,
            Variant::Konstantin => 1 << (order * u32::from(self.score) / u32::from(SCORE_MAX)),
            Variant::HughOld => self.by_share(off, max),
            Variant::HughNew => self.by_hits(off, max, 0),
            Variant::Merged => self.by_hits(off, max, self.last_win),
        }
    }

    fn by_hits(&mut self, off: u32, max: u32, last: u32) -> u32 {
        let hits = core::mem::take(&mut self.hits);
        let window = win(u64::from(self.prev), u64::from(off), hits, max, last);
        if hits == 0 {
            self.prev = off;
        }
        self.last_win = window;
        window
    }

    fn by_share(&mut self, off: u32, max: u32) -> u32 {
        let used = core::mem::take(&mut self.hits).saturating_add(1);
        let adjacent = off.abs_diff(self.prev) == 1;
        let half = self.last_win / 2;
        let window = match used {
            _ if half == 0 => 1 + u32::from(adjacent),
            used if used < half => half,
            used if used > half => self.last_win.saturating_mul(2),
            _ => self.last_win,
        };
        self.prev = off;
        self.last_win = window.min(max);
        self.last_win
    }
}

/// The aligned block of `pages` slots that contains `off`, without the header and within the area.
fn block(off: u32, pages: u32, area_slots: u32) -> Window {
    assert!(pages.is_power_of_two() && off < area_slots, "slot {off} of {area_slots}, block of {pages}");
    let start = off & !(pages - 1);
    let end = start.saturating_add(pages).min(area_slots);
    let start = start.max(1);
    Window::Slots { start: Slot(start), count: end - start }
}

impl SwapIn for Cluster {
    type Region = Distrust;

    fn cached(&mut self, distrust: &mut Distrust, touch: &Touch) -> Option<Plan> {
        distrust.0 = distrust.0.saturating_sub(1);
        if touch.read_ahead {
            self.hits = self.hits.saturating_add(1);
            self.score = (self.score + 10).min(SCORE_MAX);
        }
        None
    }

    fn miss(&mut self, distrust: &mut Distrust, touch: &Touch) -> Option<Plan> {
        let Slot(off) = touch.slot?;
        distrust.0 = (distrust.0 + 1).min(DISTRUST_MAX);
        self.score = (self.score + 1).min(SCORE_MAX);
        let pages = self.window(*distrust, touch.kind, off);
        (pages > 1).then(|| Plan {
            window: block(off, pages, touch.area_slots),
            marker: None,
            mapping: Mapping::OnTouch,
            passed: None,
            wanted_first: false,
        })
    }

    fn unused(&mut self, _: &mut Distrust, _: Vpn) {
        self.score = self.score.saturating_sub(1);
    }

    fn swapped_out(&mut self, _: &mut Distrust, pages: u32) {
        let lost = pages.saturating_mul(10).min(u32::from(SCORE_MAX));
        self.score = self.score.saturating_sub(lost as u16);
    }

    fn marks_cached(&self) -> bool {
        self.marks_cached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_leave_out_the_header_and_end_with_the_area() {
        let slots = |start, count| Window::Slots { start: Slot(start), count };
        assert_eq!(block(1, 8, 4096), slots(1, 7));
        assert_eq!(block(8, 8, 4096), slots(8, 8));
        assert_eq!(block(15, 8, 4096), slots(8, 8));
        assert_eq!(block(4097, 16, 4100), slots(4096, 4));
        assert_eq!(block(u32::MAX - 1, 1 << 31, u32::MAX), slots(1 << 31, (1 << 31) - 1));
    }
}
