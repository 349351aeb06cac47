//! Per-region mode ("VMA"): the pages around the fault in memory, whatever their slots
//! (specification 2.2 to 2.4).
//!
//! The state of a region is one word; the word follows every access to the swap cache, so that the
//! direction of a stream is known when its window is used up. Unfit for: more than one stream a
//! region, strides over 2, windows over 32 pages.

use super::window::{HITS_INITIAL, win};
use super::{Mapping, Plan, SwapIn, Touch, Window};
use crate::types::{CHUNK_PAGES, PAGE_SHIFT, Vpn};

/// Larger values of `page_cluster` count as this: the window must fit its six bits.
const ORDER_MAX: u8 = 5;
/// Low six bits: hits. Next six: last window. The rest: page-aligned address of the last access.
const HALF: u32 = PAGE_SHIFT / 2;
const HITS_MAX: u64 = (1 << HALF) - 1;

/// What a region remembers, packed as the kernel packs it. A word of 0 stands for "4 hits, window 0, page 0".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Word(u64);

impl Word {
    /// The last window.
    #[must_use]
    pub fn last_window(self) -> u32 {
        self.unpack().1
    }

    fn pack(prev: Vpn, window: u32, hits: u64) -> Self {
        assert!(u64::from(window) <= HITS_MAX && prev.0 >> (64 - PAGE_SHIFT) == 0, "a field overflows");
        Word(prev.0 << PAGE_SHIFT | u64::from(window) << HALF | hits.min(HITS_MAX))
    }

    /// Page of the last access, last window, hits.
    fn unpack(self) -> (Vpn, u32, u64) {
        match self.0 {
            0 => (Vpn(0), 0, u64::from(HITS_INITIAL)),
            word => (Vpn(word >> PAGE_SHIFT), (word >> HALF & HITS_MAX) as u32, word & HITS_MAX),
        }
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct PerRegion {
    /// log2 of the largest window; 0 switches read-ahead off.
    pub page_cluster: u8,
}

/// `[start, end)` of the `pages` pages to read for a fault at `fault`: on, back, or around when
/// there is no direction. A start below page 0 becomes page 0.
fn range(Vpn(prev): Vpn, Vpn(fault): Vpn, pages: u64) -> (u64, u64) {
    let before = if fault == prev + 1 {
        0
    } else if prev == fault + 1 {
        pages - 1
    } else {
        (pages - 1) / 2
    };
    (fault.saturating_sub(before), fault + pages - before)
}

impl SwapIn for PerRegion {
    type Region = Word;

    fn cached(&mut self, word: &mut Word, touch: &Touch) -> Option<Plan> {
        let (_, window, hits) = word.unpack();
        *word = Word::pack(touch.vpn, window, hits + u64::from(touch.read_ahead));
        None
    }

    fn miss(&mut self, word: &mut Word, touch: &Touch) -> Option<Plan> {
        let max = 1 << self.page_cluster.min(ORDER_MAX);
        if max == 1 {
            return None;
        }
        let (prev, last, hits) = word.unpack();
        let pages = win(prev.0, touch.vpn.0, hits as u32, max, last);
        *word = Word::pack(touch.vpn, pages, 0);
        (pages > 1).then(|| clipped(range(prev, touch.vpn, u64::from(pages)), touch))
    }

    fn unused(&mut self, _: &mut Word, _: Vpn) {}
}

/// The plan for `[start, end)` within the region and within the page-table page of the fault.
fn clipped((start, end): (u64, u64), touch: &Touch) -> Plan {
    let table = touch.vpn.0 / CHUNK_PAGES * CHUNK_PAGES;
    let start = start.max(touch.region_start.0).max(table);
    let end = end.min(touch.region_end.0).min(table + CHUNK_PAGES);
    assert!(start <= touch.vpn.0 && touch.vpn.0 < end, "the window contains the fault");
    Plan {
        window: Window::Pages { start: Vpn(start), stride: 1, count: (end - start) as u32 },
        marker: None,
        mapping: Mapping::OnTouch,
        passed: None,
        wanted_first: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_packed_as_specified() {
        assert_eq!(Word::pack(Vpn(0x12345), 32, 99).0, 0x12345 << 12 | 32 << 6 | 63);
        assert_eq!(Word::pack(Vpn(0x12345), 32, 99).unpack(), (Vpn(0x12345), 32, 63));
        assert_eq!(Word(0).unpack(), (Vpn(0), 0, 4));
    }

    #[test]
    fn the_range_follows_the_direction() {
        assert_eq!(range(Vpn(99), Vpn(100), 8), (100, 108));
        assert_eq!(range(Vpn(101), Vpn(100), 8), (93, 101));
        assert_eq!(range(Vpn(0), Vpn(100), 8), (97, 105));
        assert_eq!(range(Vpn(50), Vpn(100), 2), (100, 102));
        assert_eq!(range(Vpn(4), Vpn(3), 8), (0, 4));
    }
}
