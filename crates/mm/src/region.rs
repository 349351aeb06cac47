//! Spaces and regions: which ranges of which address spaces are managed, and what each region remembers.
//!
//! A region is what is remembered of a place. It has one range, or several with small holes between
//! them: the program has unmapped a few pages here and there. Ranges of a space are disjoint and
//! sorted. Where more is cut out the region keeps its state in the left part, and the right part
//! starts anew, as a split VMA does in the kernel (specification 2.2); under policies that follow the
//! kernel's every cut is one. So it is with files, whose loops are measured by their regions.
//!
//! *The story:* a region that had 32,000 single pages cut out was as many regions. No window reached
//! beyond the next hole, so all came back page by page: 70 times as long as without holes. And what
//! they remembered came to 40 MiB, in a budget of 64.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::stats::RegionStats;
use crate::types::{RegionKind, SpaceId, Vpn};

/// A hole of up to so many pages leaves a region one.
const HOLE_MAX: u64 = 16;

/// What is remembered of a place.
pub(crate) struct Region<R> {
    /// From the first page of its first range on.
    pub start: Vpn,
    /// One past the last page of its last range.
    pub end: Vpn,
    pub kind: RegionKind,
    /// State of the read-ahead policy.
    pub readahead: R,
    /// Pages mapped on arrival since the last marker was touched: hits as soon as the next one is.
    pub eager_pending: u32,
    pub stats: RegionStats,
    /// How many ranges it has.
    ranges: u32,
}

/// A managed range, and the index of its region: that is all a search looks at. Policies keep a
/// kilobyte a region, which is not moved when others come before it.
#[derive(Clone, Copy)]
struct Range {
    start: Vpn,
    end: Vpn,
    region: u32,
}

/// All regions of all spaces.
pub(crate) struct Regions<R> {
    /// The ranges of each space.
    spaces: Vec<Vec<Range>>,
    regions: Vec<Option<Box<Region<R>>>>,
    /// Indices of regions that are no more.
    free: Vec<u32>,
    /// A region may have holes.
    has_holes: bool,
}

impl<R: Default> Regions<R> {
    /// None as yet. `has_holes`: what is cut by a small hole goes on as one region.
    pub fn new(has_holes: bool) -> Self {
        Regions { spaces: Vec::new(), regions: Vec::new(), free: Vec::new(), has_holes }
    }

    /// The region that contains `vpn`.
    pub fn find(&mut self, space: SpaceId, vpn: Vpn) -> Option<&mut Region<R>> {
        let index = self.range(space, vpn)?.region;
        Some(self.region(index))
    }

    /// The region that contains `vpn`, or has a hole there.
    pub fn find_around(&mut self, space: SpaceId, vpn: Vpn) -> Option<&mut Region<R>> {
        let ranges = self.spaces.get(space.0 as usize)?;
        let index = ranges.get(first_beyond(ranges, vpn))?.region;
        Some(self.region(index)).filter(|region| region.start <= vpn)
    }

    /// The region that contains `vpn`, to look at.
    pub fn at(&self, space: SpaceId, vpn: Vpn) -> Option<&Region<R>> {
        self.regions[self.range(space, vpn)?.region as usize].as_deref()
    }

    /// The bounds of the managed range that contains `vpn`.
    pub fn bounds(&self, space: SpaceId, vpn: Vpn) -> Option<(Vpn, Vpn)> {
        self.range(space, vpn).map(|range| (range.start, range.end))
    }

    fn range(&self, space: SpaceId, vpn: Vpn) -> Option<&Range> {
        let ranges = self.spaces.get(space.0 as usize)?;
        ranges.get(first_beyond(ranges, vpn)).filter(|range| range.start <= vpn)
    }

    fn region(&mut self, index: u32) -> &mut Region<R> {
        self.regions[index as usize].as_mut().expect("a range has a region")
    }

    /// Adds `[start, end)`; parts that are already managed stay as they are.
    pub fn add(&mut self, space: SpaceId, start: Vpn, end: Vpn, kind: RegionKind) {
        let space = space.0 as usize;
        while self.spaces.len() <= space {
            self.spaces.push(Vec::new());
        }
        let mut at = first_beyond(&self.spaces[space], start);
        let mut from = start;
        while from < end {
            let until = self.spaces[space].get(at).map_or(end, |next| next.start.min(end));
            if from < until {
                self.insert_merging(space, &mut at, from, until, kind);
            }
            from = self.spaces[space].get(at).map_or(end, |range| range.end.max(until));
            at += 1;
        }
    }

    /// Inserts `[from, until)` before index `at`, growing a neighbour instead that touches and is of
    /// one kind, the left one if both do. Afterwards `at` is the index of the range that contains it.
    fn insert_merging(&mut self, space: usize, at: &mut usize, from: Vpn, until: Vpn, kind: RegionKind) {
        let left = at.checked_sub(1).filter(|&left| self.spaces[space][left].end == from);
        let right =
            Some(*at).filter(|&right| self.spaces[space].get(right).is_some_and(|r| r.start == until));
        let fits = |this: &mut Self, index: usize| {
            let region = this.spaces[space][index].region;
            this.region(region).kind == kind
        };
        let grown = [left, right].into_iter().flatten().find(|&index| fits(self, index));
        let Some(index) = grown else {
            let region = self.begin(from, until, kind);
            return self.spaces[space].insert(*at, Range { start: from, end: until, region });
        };
        let range = &mut self.spaces[space][index];
        (range.start, range.end) = (range.start.min(from), range.end.max(until));
        let region = range.region;
        let region = self.region(region);
        (region.start, region.end) = (region.start.min(from), region.end.max(until));
        *at = index;
    }

    /// A region of one range that nothing is known of.
    fn begin(&mut self, start: Vpn, end: Vpn, kind: RegionKind) -> u32 {
        assert!(start < end, "a region is not empty");
        let (readahead, stats) = (R::default(), RegionStats::default());
        let region = Box::new(Region { start, end, kind, readahead, eager_pending: 0, stats, ranges: 1 });
        let index = self.free.pop().unwrap_or_else(|| {
            self.regions.push(None);
            self.regions.len() as u32 - 1
        });
        self.regions[index as usize] = Some(region);
        index
    }

    /// Removes `[start, end)` from the managed ranges.
    pub fn remove(&mut self, space: SpaceId, start: Vpn, end: Vpn) {
        let space = space.0 as usize;
        if space >= self.spaces.len() {
            return;
        }
        let mut at = first_beyond(&self.spaces[space], start);
        while let Some(&range) = self.spaces[space].get(at).filter(|range| range.start < end) {
            match (range.start < start, end < range.end) {
                (true, true) => self.cut(space, at, start, end),
                (true, false) => self.spaces[space][at].end = start,
                (false, true) => self.spaces[space][at].start = end,
                (false, false) => drop(self.spaces[space].remove(at)),
            }
            let is_gone = start <= range.start && range.end <= end;
            if is_gone {
                self.region(range.region).ranges -= 1;
            }
            self.narrow(space, at, range);
            at += usize::from(!is_gone);
        }
    }

    /// Cuts `[start, end)` out of the middle of a range.
    fn cut(&mut self, space: usize, at: usize, start: Vpn, end: Vpn) {
        let range = self.spaces[space][at];
        let kind = self.region(range.region).kind;
        let stays_one = self.has_holes && kind.is_zero_at_first() && end.0 - start.0 <= HOLE_MAX;
        let region = if stays_one {
            self.region(range.region).ranges += 1;
            range.region
        } else {
            self.begin(end, range.end, kind)
        };
        self.spaces[space][at].end = start;
        self.spaces[space].insert(at + 1, Range { start: end, end: range.end, region });
    }

    /// A range has become smaller, or is gone from before index `at`: its region reaches no further
    /// than its outermost ranges, and ends with its last.
    fn narrow(&mut self, space: usize, at: usize, was: Range) {
        let Region { start, end, ranges, .. } = *self.region(was.region);
        if ranges == 0 {
            self.regions[was.region as usize] = None;
            return self.free.push(was.region);
        }
        let is_of = |range: &&Range| range.region == was.region;
        let (before, beyond) = self.spaces[space].split_at(at);
        // The range itself, or what was cut from it, is among those beyond.
        let nearest = beyond.iter().take_while(|range| range.start < was.end).filter(is_of);
        let mut narrowed = (start, end);
        if start == was.start {
            narrowed.0 = beyond.iter().find(is_of).expect("it has a range beyond").start;
        }
        if end == was.end {
            let last = nearest.last().or_else(|| before.iter().rfind(is_of));
            narrowed.1 = last.expect("it has a range before").end;
        }
        let region = self.region(was.region);
        (region.start, region.end) = narrowed;
    }

    /// Is any page of `[start, end)` managed?
    pub fn overlaps(&self, space: SpaceId, start: Vpn, end: Vpn) -> bool {
        self.spaces.get(space.0 as usize).is_some_and(|ranges| {
            ranges.get(first_beyond(ranges, start)).is_some_and(|range| range.start < end)
        })
    }

    /// Calls `visit` with every part of `[start, end)` that is not managed, in order.
    pub fn gaps(&self, space: SpaceId, start: Vpn, end: Vpn, mut visit: impl FnMut(Vpn, Vpn)) {
        let mut from = start;
        if let Some(ranges) = self.spaces.get(space.0 as usize) {
            let beyond = &ranges[first_beyond(ranges, start)..];
            for range in beyond.iter().take_while(|range| range.start < end) {
                if from < range.start {
                    visit(from, range.start);
                }
                from = range.end;
            }
        }
        if from < end {
            visit(from, end);
        }
    }

    /// Every managed range: `(space, start, end)`.
    pub fn each(&self) -> impl Iterator<Item = (SpaceId, Vpn, Vpn)> + '_ {
        self.spaces.iter().enumerate().flat_map(|(index, ranges)| {
            let space = SpaceId(index as u16);
            ranges.iter().map(move |range| (space, range.start, range.end))
        })
    }
}

/// Index of the first range that ends beyond `vpn`.
fn first_beyond(ranges: &[Range], vpn: Vpn) -> usize {
    ranges.partition_point(|range| range.end <= vpn)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A region reaches from its first range to its last, and knows how many it has.
    fn check_hulls<R: Default>(regions: &Regions<R>) {
        let mut known = 0;
        for (index, region) in regions.regions.iter().enumerate() {
            let of = |range: &&Range| range.region as usize == index;
            let ranges: Vec<_> = regions.spaces.iter().flatten().filter(of).collect();
            known += ranges.len();
            match region {
                None => assert!(ranges.is_empty() && regions.free.contains(&(index as u32))),
                Some(region) => {
                    assert_eq!(region.ranges as usize, ranges.len());
                    let ends = (ranges[0].start, ranges[ranges.len() - 1].end);
                    assert_eq!((region.start, region.end), ends);
                }
            }
        }
        assert_eq!(known, regions.spaces.iter().flatten().count());
    }

    #[test]
    fn a_small_hole_leaves_a_region_one() {
        let whole = || {
            let mut regions = Regions::<u32>::new(true);
            regions.add(SpaceId(0), Vpn(0), Vpn(1000), RegionKind::Anon);
            regions.find(SpaceId(0), Vpn(0)).unwrap().readahead = 7;
            regions
        };
        let state =
            |regions: &Regions<u32>, vpn| regions.at(SpaceId(0), Vpn(vpn)).map(|region| region.readahead);
        let mut regions = whole();
        (0..100).for_each(|index| regions.remove(SpaceId(0), Vpn(10 * index + 5), Vpn(10 * index + 7)));
        assert_eq!(
            [0, 4, 5, 7, 999].map(|vpn| state(&regions, vpn)),
            [Some(7), Some(7), None, Some(7), Some(7)]
        );
        assert_eq!(regions.regions.len(), 1, "all of it is remembered once");
        assert!(regions.find_around(SpaceId(0), Vpn(505)).is_some());
        assert!(regions.find_around(SpaceId(0), Vpn(1000)).is_none());
        let mut regions = whole();
        regions.remove(SpaceId(0), Vpn(100), Vpn(101 + HOLE_MAX));
        assert_eq!(state(&regions, 99), Some(7));
        assert_eq!(state(&regions, 999), Some(0), "what is far begins anew");
        assert!(regions.find_around(SpaceId(0), Vpn(100)).is_none());
        let mut regions = Regions::<u32>::new(false);
        regions.add(SpaceId(0), Vpn(0), Vpn(10), RegionKind::Anon);
        regions.remove(SpaceId(0), Vpn(5), Vpn(6));
        assert_eq!(regions.regions.len(), 2, "as in the kernel");
    }

    #[test]
    fn ranges_agree_with_a_set_of_pages() {
        let mut regions = Regions::<()>::new(true);
        let mut model = [false; 200];
        let mut seed = 5u64;
        for _ in 0..4000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let start = (seed >> 33) % 190;
            let end = start + 1 + (seed >> 50) % 10;
            let add = seed & 1 << 30 != 0;
            if add {
                regions.add(SpaceId(0), Vpn(start), Vpn(end), RegionKind::Anon);
            } else {
                regions.remove(SpaceId(0), Vpn(start), Vpn(end));
            }
            model[start as usize..end as usize].fill(add);
            for (vpn, managed) in model.iter().enumerate() {
                assert_eq!(regions.find(SpaceId(0), Vpn(vpn as u64)).is_some(), *managed, "page {vpn}");
            }
            let mut unmanaged = 0;
            regions.gaps(SpaceId(0), Vpn(10), Vpn(150), |start, end| {
                assert!(model[start.0 as usize..end.0 as usize].iter().all(|managed| !managed));
                unmanaged += (end.0 - start.0) as usize;
            });
            assert_eq!(unmanaged, model[10..150].iter().filter(|managed| !**managed).count());
            let mut last = Vpn(0);
            for (_, start, end) in regions.each() {
                assert!(last <= start && start < end);
                assert_eq!(regions.bounds(SpaceId(0), start), Some((start, end)));
                last = end;
            }
            check_hulls(&regions);
        }
    }

    /// *The story:* a mapping that grew down by 107 MiB was 27,000 regions of a page each. No window
    /// of read-ahead reaches beyond its region: all of it came back page by page.
    #[test]
    fn what_grows_down_stays_one_region() {
        let mut regions = Regions::<u32>::new(true);
        let mut add = |start, end| regions.add(SpaceId(0), Vpn(start), Vpn(end), RegionKind::Anon);
        add(100, 116);
        (50..100).rev().for_each(|vpn| add(vpn, vpn + 1));
        regions.find(SpaceId(0), Vpn(50)).unwrap().readahead = 7;
        regions.add(SpaceId(0), Vpn(40), Vpn(50), RegionKind::Shared);
        regions.add(SpaceId(0), Vpn(30), Vpn(35), RegionKind::Anon);
        let all: Vec<_> = regions.each().map(|(_, start, end)| (start.0, end.0)).collect();
        assert_eq!(all, [(30, 35), (40, 50), (50, 116)]);
        assert_eq!(regions.at(SpaceId(0), Vpn(115)).unwrap().readahead, 7);
    }

    /// *The story:* 40,000 scattered pages took 25 s: each new region moved the kilobytes of all
    /// those above it.
    #[test]
    fn a_region_that_comes_before_others_does_not_move_what_they_remember() {
        let mut regions = Regions::<[[u64; 32]; 4]>::new(true);
        let mut add = |vpn| regions.add(SpaceId(0), Vpn(vpn), Vpn(vpn + 1), RegionKind::Anon);
        (0..10_000).rev().for_each(|index| add(index * 2));
        assert!(size_of::<Range>() <= 24);
        let mut region = |vpn| regions.find(SpaceId(0), Vpn(vpn)).map(core::ptr::from_mut);
        let before = region(100);
        assert!(before.is_some() && region(101).is_none());
        regions.add(SpaceId(0), Vpn(31), Vpn(32), RegionKind::Shared);
        assert_eq!(before, regions.find(SpaceId(0), Vpn(100)).map(core::ptr::from_mut));
    }
}
