//! Spaces and regions: which ranges of which address spaces are managed, and what each region remembers.
//!
//! A region is what is remembered of a place. It has one range, or several with small holes between
//! them: the program has unmapped a few pages here and there. Ranges of a space are disjoint and
//! sorted, and no other region's lie between those of one. Where a hole becomes larger, or something
//! else comes into it, the region keeps its state in the left part, and the right part starts anew, as
//! a split VMA does in the kernel (specification 2.2); under policies that follow the kernel's every
//! cut is one. So it is with files, whose loops are measured by their regions.
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
    /// Pages of swap and of files that were mapped on arrival since the last marker was touched: hits as
    /// soon as the next one is.
    pub eager_pending: [u32; 2],
    pub stats: RegionStats,
    /// How many ranges it has.
    ranges: u32,
}

/// A managed range, and the index of its region: that is all a search looks at. Policies keep a
/// kilobyte a region, which is not moved when others come before it.
#[derive(Clone, Copy, Debug)]
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
}

impl<R: Default> Regions<R> {
    /// None as yet.
    pub fn new() -> Self {
        Regions { spaces: Vec::new(), regions: Vec::new(), free: Vec::new() }
    }

    /// The region that contains `vpn`.
    pub fn find(&mut self, space: SpaceId, vpn: Vpn) -> Option<&mut Region<R>> {
        let index = self.range(space, vpn)?.region;
        Some(self.region(index))
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
        self.add_parts(space, start, end, kind, false);
    }

    /// The same, where the private memory behind it has grown down by that: one region with it.
    pub fn grow_down(&mut self, space: SpaceId, start: Vpn, end: Vpn) {
        self.add_parts(space, start, end, RegionKind::Anon, true);
    }

    fn add_parts(&mut self, space: SpaceId, start: Vpn, end: Vpn, kind: RegionKind, grows_down: bool) {
        let space = space.0 as usize;
        while self.spaces.len() <= space {
            self.spaces.push(Vec::new());
        }
        let mut at = first_beyond(&self.spaces[space], start);
        let mut from = start;
        while from < end {
            let until = self.spaces[space].get(at).map_or(end, |next| next.start.min(end));
            if from < until {
                self.insert_merging(space, &mut at, (from, until), kind, grows_down);
            }
            from = self.spaces[space].get(at).map_or(end, |range| range.end.max(until));
            at += 1;
        }
    }

    /// Inserts a part before index `at`: into the region in whose hole it lies, or else into a
    /// neighbour that touches it, if that is of one kind: the left one, or, if that `grows_down`, the
    /// right one. Ranges of a region that touch become one. Afterwards `at` is the index of the range
    /// that contains the part.
    ///
    /// *The story:* any right one grew down. mmap goes downwards: the blocks of 24 threads, each of
    /// which touched the last, were one region, whose 16 streams are not enough for them.
    fn insert_merging(
        &mut self,
        space: usize,
        at: &mut usize,
        (from, until): (Vpn, Vpn),
        kind: RegionKind,
        grows_down: bool,
    ) {
        let ranges = &self.spaces[space];
        let left = at.checked_sub(1).map(|left| ranges[left]);
        let right = ranges.get(*at).copied();
        let hole_of = left.zip(right).filter(|(left, right)| left.region == right.region);
        let before = left.filter(|left| left.end == from);
        let beyond = right.filter(|right| right.start == until);
        let grown = hole_of.map(|(left, _)| left).or(if grows_down { beyond } else { before });
        let grown = grown.map(|range| range.region).filter(|&index| self.region(index).kind == kind);
        let Some(index) = grown else {
            if hole_of.is_some() {
                self.part(space, *at);
            }
            let region = self.begin(from, until, kind);
            return self.spaces[space].insert(*at, Range { start: from, end: until, region });
        };
        let before = before.filter(|range| range.region == index);
        let beyond = beyond.filter(|range| range.region == index);
        let start = before.map_or(from, |range| range.start);
        let end = beyond.map_or(until, |range| range.end);
        let joined = *at - before.iter().len()..*at + beyond.iter().len();
        let region = self.region(index);
        region.ranges = region.ranges + 1 - joined.len() as u32;
        (region.start, region.end) = (region.start.min(start), region.end.max(end));
        *at = joined.start;
        self.spaces[space].splice(joined, [Range { start, end, region: index }]);
    }

    /// A region of one range that nothing is known of.
    fn begin(&mut self, start: Vpn, end: Vpn, kind: RegionKind) -> u32 {
        assert!(start < end, "a region is not empty");
        let (readahead, stats) = (R::default(), RegionStats::default());
        let region =
            Box::new(Region { start, end, kind, readahead, eager_pending: [0; 2], stats, ranges: 1 });
        let index = self.free.pop().unwrap_or_else(|| {
            self.regions.push(None);
            self.regions.len() as u32 - 1
        });
        self.regions[index as usize] = Some(region);
        index
    }

    /// Removes `[start, end)` from the managed ranges. `spans_holes`: what has a small hole then goes
    /// on as one region.
    pub fn remove(&mut self, space: SpaceId, start: Vpn, end: Vpn, spans_holes: bool) {
        let space = space.0 as usize;
        if space >= self.spaces.len() || start >= end {
            return;
        }
        let mut at = first_beyond(&self.spaces[space], start);
        if let Some(&range) = self.spaces[space].get(at).filter(|range| range.start < start) {
            self.spaces[space][at].end = start;
            at += 1;
            if end < range.end {
                self.spaces[space].insert(at, Range { start: end, ..range });
                self.region(range.region).ranges += 1;
            }
        }
        let gone = first_beyond(&self.spaces[space], end);
        (at..gone).for_each(|index| self.leave(self.spaces[space][index].region));
        self.spaces[space].drain(at..gone);
        if let Some(right) = self.spaces[space].get_mut(at) {
            right.start = right.start.max(end);
        }
        self.end_at_hole(space, at, spans_holes);
    }

    /// A range of a region is gone, and the region with its last.
    fn leave(&mut self, index: u32) {
        let region = self.region(index);
        region.ranges -= 1;
        if region.ranges == 0 {
            self.regions[index as usize] = None;
            self.free.push(index);
        }
    }

    /// Something was removed before index `at`: one region goes on over a small hole, else the left one
    /// ends and the right one begins there.
    ///
    /// *The story:* only what was cut out of one range was looked at. Of holes side by side a region had
    /// one of any size, and of two ranges of one region the first, when it was cut, was given to another:
    /// the plans of the one were told to the other.
    fn end_at_hole(&mut self, space: usize, at: usize, spans_holes: bool) {
        let ranges = &self.spaces[space];
        let (left, right) = (at.checked_sub(1).map(|left| ranges[left]), ranges.get(at).copied());
        if let Some((left, right)) = left.zip(right).filter(|(left, right)| left.region == right.region) {
            let is_small = spans_holes && right.start.0 - left.end.0 <= HOLE_MAX;
            if !is_small || !self.region(left.region).kind.is_zero_at_first() {
                self.part(space, at);
            }
            return;
        }
        if let Some(left) = left {
            self.region(left.region).end = left.end;
        }
        if let Some(right) = right {
            self.region(right.region).start = right.start;
        }
    }

    /// The region that has a hole before index `at` ends there, and its ranges from there on are of a
    /// new one. Of the two the one with fewer ranges gets the new index.
    ///
    /// *The story:* the right one got it always. A region with many holes, parted again and again from the
    /// left, was walked to its end each time.
    fn part(&mut self, space: usize, at: usize) {
        let ranges = &self.spaces[space];
        let (left, right) = (ranges[at - 1], ranges[at]);
        let old = left.region;
        let is_old = |index: usize| ranges.get(index).is_some_and(|range| range.region == old);
        let few =
            (1..).find(|&n| at == n || !is_old(at - n - 1) || !is_old(at + n)).expect("both have an end");
        let is_right = !is_old(at + few);
        let renamed = if is_right { at..at + few } else { at - few..at };
        let Region { end, kind, ranges: all, .. } = *self.region(old);
        let new = self.begin(right.start, end, kind);
        self.spaces[space][renamed].iter_mut().for_each(|range| range.region = new);
        let few = few as u32;
        let (of_left, of_right) = if is_right { (all - few, few) } else { (few, all - few) };
        self.region(new).ranges = of_right;
        let region = self.region(old);
        (region.ranges, region.end) = (of_left, left.end);
        if !is_right {
            self.regions.swap(old as usize, new as usize);
        }
    }

    /// Is any page of `[start, end)` managed?
    pub fn overlaps(&self, space: SpaceId, start: Vpn, end: Vpn) -> bool {
        self.spaces.get(space.0 as usize).is_some_and(|ranges| {
            ranges.get(first_beyond(ranges, start)).is_some_and(|range| range.start < end)
        })
    }

    /// Every part of `[start, end)` that is not managed, in order.
    pub fn gaps(&self, space: SpaceId, start: Vpn, end: Vpn) -> impl Iterator<Item = (Vpn, Vpn)> + '_ {
        let ranges = self.spaces.get(space.0 as usize).map_or(&[][..], |ranges| ranges);
        let beyond = ranges[first_beyond(ranges, start)..].iter().take_while(move |range| range.start < end);
        let managed = beyond.map(|range| (range.start, range.end)).chain([(end, end)]);
        let mut from = start;
        managed.filter_map(move |(start, end)| {
            let gap = (core::mem::replace(&mut from, end), start);
            (gap.0 < gap.1).then_some(gap)
        })
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

    const SPACE: SpaceId = SpaceId(0);

    /// A region reaches from its first range to its last, knows how many it has, and has small holes
    /// only, in which nobody else is. What is of one region does not touch.
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
        let hull = |range: &Range| regions.regions[range.region as usize].as_ref().expect("it has ranges");
        for pair in regions.spaces.iter().flat_map(|ranges| ranges.windows(2)) {
            if pair[0].region == pair[1].region {
                let hole = pair[1].start.0 - pair[0].end.0;
                assert!((1..=HOLE_MAX).contains(&hole), "{pair:?}: {hole}");
                assert!(hull(&pair[0]).kind.is_zero_at_first(), "a file's region has no holes");
            } else {
                assert!(hull(&pair[0]).end <= hull(&pair[1]).start, "{pair:?}");
            }
        }
    }

    /// Anonymous memory from 0 to 1000, of which 7 is remembered.
    fn whole() -> Regions<u32> {
        let mut regions = Regions::new();
        regions.add(SPACE, Vpn(0), Vpn(1000), RegionKind::Anon);
        regions.find(SPACE, Vpn(0)).unwrap().readahead = 7;
        regions
    }

    /// Those that are not walked keep the index of their region, on whichever side there are fewer; what
    /// is remembered stays on the left.
    #[test]
    fn a_part_costs_what_its_smaller_side_has() {
        for at_left in [true, false] {
            let mut regions = whole();
            (1..100).for_each(|n| regions.remove(SPACE, Vpn(10 * n), Vpn(10 * n + 1), true));
            let index =
                |regions: &Regions<u32>, vpn| regions.range(SPACE, Vpn(vpn)).map(|range| range.region);
            let (large, cut) = if at_left { (999, 30) } else { (0, 960) };
            let before = index(&regions, large);
            regions.remove(SPACE, Vpn(cut), Vpn(cut + 20), true);
            check_hulls(&regions);
            assert_eq!((remembered(&regions, 0), remembered(&regions, 999)), (Some(7), Some(0)));
            assert_eq!(index(&regions, large), before, "at the left: {at_left}");
            assert_ne!(index(&regions, 0), index(&regions, 999));
        }
    }

    fn remembered(regions: &Regions<u32>, vpn: u64) -> Option<u32> {
        regions.at(SPACE, Vpn(vpn)).map(|region| region.readahead)
    }

    fn all(regions: &Regions<u32>) -> Vec<(u64, u64)> {
        regions.each().map(|(_, start, end)| (start.0, end.0)).collect()
    }

    #[test]
    fn a_small_hole_leaves_a_region_one() {
        let mut regions = whole();
        (0..100).for_each(|index| regions.remove(SPACE, Vpn(10 * index + 5), Vpn(10 * index + 7), true));
        assert_eq!(
            [0, 4, 5, 7, 999].map(|vpn| remembered(&regions, vpn)),
            [Some(7), Some(7), None, Some(7), Some(7)]
        );
        assert_eq!(regions.regions.len(), 1, "all of it is remembered once");
        let mut regions = whole();
        regions.remove(SPACE, Vpn(100), Vpn(101 + HOLE_MAX), true);
        assert_eq!(remembered(&regions, 99), Some(7));
        assert_eq!(remembered(&regions, 999), Some(0), "what is far begins anew");
        let mut regions = whole();
        regions.remove(SPACE, Vpn(5), Vpn(6), false);
        assert_eq!(remembered(&regions, 999), Some(0), "as in the kernel");
    }

    /// Found by reading: only what was cut out of one range was looked at. Here a region had a hole of
    /// 980 pages.
    #[test]
    fn holes_side_by_side_are_one() {
        let mut regions = whole();
        regions.remove(SPACE, Vpn(500), Vpn(501), true);
        regions.remove(SPACE, Vpn(10), Vpn(990), true);
        check_hulls(&regions);
        assert_eq!([9, 990].map(|vpn| remembered(&regions, vpn)), [Some(7), Some(0)]);
        let mut regions = whole();
        (500..520).for_each(|vpn| regions.remove(SPACE, Vpn(vpn), Vpn(vpn + 1), true));
        check_hulls(&regions);
        assert_eq!([499, 520].map(|vpn| remembered(&regions, vpn)), [Some(7), Some(0)]);
    }

    /// Found by reading: here what is from 400 to 800 became a region that lay within the other, which
    /// kept what is beyond.
    #[test]
    fn all_that_is_beyond_a_large_hole_is_one_region() {
        let mut regions = whole();
        regions.remove(SPACE, Vpn(800), Vpn(801), true);
        regions.remove(SPACE, Vpn(100), Vpn(400), true);
        check_hulls(&regions);
        regions.find(SPACE, Vpn(400)).unwrap().readahead = 8;
        assert_eq!([99, 799, 801].map(|vpn| remembered(&regions, vpn)), [Some(7), Some(8), Some(8)]);
    }

    #[test]
    fn what_comes_into_a_hole_joins_the_region_or_parts_it() {
        let mut regions = whole();
        regions.remove(SPACE, Vpn(500), Vpn(510), true);
        regions.add(SPACE, Vpn(504), Vpn(506), RegionKind::Anon);
        assert_eq!(remembered(&regions, 504), Some(7));
        regions.add(SPACE, Vpn(502), Vpn(503), RegionKind::Shared);
        check_hulls(&regions);
        assert_eq!(
            [499, 502, 504, 999].map(|vpn| remembered(&regions, vpn)),
            [Some(7), Some(0), Some(0), Some(0)]
        );
        assert_eq!(all(&regions), [(0, 500), (502, 503), (504, 506), (510, 1000)]);
    }

    /// Found by reading: a collector that unmaps pieces and maps them again ended with a range for
    /// each, which nothing ever made one.
    #[test]
    fn a_hole_that_is_filled_is_gone() {
        let mut regions = whole();
        for vpn in (1..999).map(Vpn) {
            regions.remove(SPACE, vpn, vpn.offset(1), true);
            regions.add(SPACE, vpn, vpn.offset(1), RegionKind::Anon);
        }
        regions.remove(SPACE, Vpn(500), Vpn(510), true);
        regions.add(SPACE, Vpn(505), Vpn(510), RegionKind::Anon);
        assert_eq!(all(&regions), [(0, 500), (505, 1000)]);
        regions.add(SPACE, Vpn(490), Vpn(600), RegionKind::Anon);
        check_hulls(&regions);
        assert_eq!((all(&regions), remembered(&regions, 999)), (vec![(0, 1000)], Some(7)));
    }

    #[test]
    fn ranges_agree_with_a_set_of_pages() {
        let mut regions = Regions::<()>::new();
        let mut model = [None; 300];
        let mut seed = 5u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let most = [4, 60][(seed >> 62) as usize & 1];
            let start = (seed >> 33) % (300 - most);
            let end = start + 1 + (seed >> 50) % most;
            let kind = [RegionKind::Anon, RegionKind::File { bias: 9 }][(seed >> 61) as usize & 1];
            let (from, to) = (Vpn(start), Vpn(end));
            let pages = &mut model[start as usize..end as usize];
            match (seed >> 29) % 4 {
                0 | 1 => {
                    regions.remove(SPACE, from, to, seed & 1 << 29 != 0);
                    pages.fill(None);
                }
                2 if kind == RegionKind::Anon => {
                    regions.grow_down(SPACE, from, to);
                    pages.iter_mut().for_each(|page| *page = page.or(Some(kind)));
                }
                _ => {
                    regions.add(SPACE, from, to, kind);
                    pages.iter_mut().for_each(|page| *page = page.or(Some(kind)));
                }
            }
            for (vpn, kind) in model.iter().enumerate() {
                let region = regions.find(SPACE, Vpn(vpn as u64));
                assert_eq!(region.map(|region| region.kind), *kind, "page {vpn}");
            }
            let mut unmanaged = 0;
            for (start, end) in regions.gaps(SPACE, Vpn(10), Vpn(150)) {
                assert!(model[start.0 as usize..end.0 as usize].iter().all(Option::is_none));
                unmanaged += (end.0 - start.0) as usize;
            }
            assert_eq!(unmanaged, model[10..150].iter().filter(|page| page.is_none()).count());
            let mut last = Vpn(0);
            for (_, start, end) in regions.each() {
                assert!(last <= start && start < end);
                assert_eq!(regions.bounds(SPACE, start), Some((start, end)));
                last = end;
            }
            check_hulls(&regions);
        }
    }

    /// *The story:* a mapping that grew down by 107 MiB was 27,000 regions of a page each. No window
    /// of read-ahead reaches beyond its region: all of it came back page by page.
    #[test]
    fn what_grows_down_stays_one_region() {
        let mut regions = Regions::<u32>::new();
        regions.add(SPACE, Vpn(100), Vpn(116), RegionKind::Anon);
        (50..100).rev().for_each(|vpn| regions.grow_down(SPACE, Vpn(vpn), Vpn(vpn + 1)));
        regions.find(SPACE, Vpn(50)).unwrap().readahead = 7;
        regions.add(SPACE, Vpn(40), Vpn(50), RegionKind::Shared);
        regions.grow_down(SPACE, Vpn(30), Vpn(35));
        assert_eq!(all(&regions), [(30, 35), (40, 50), (50, 116)]);
        assert_eq!(remembered(&regions, 115), Some(7));
        check_hulls(&regions);
    }

    /// *The story:* mmap goes downwards, so that each new block of memory touches the last from below.
    /// The blocks of 24 threads became one region, whose streams were too few for all of them.
    #[test]
    fn what_is_mapped_below_another_mapping_is_a_region_of_its_own() {
        let mut regions = Regions::<u32>::new();
        for block in (0..24).rev() {
            regions.add(SPACE, Vpn(100 * block), Vpn(100 * block + 100), RegionKind::Anon);
            regions.find(SPACE, Vpn(100 * block)).unwrap().readahead = block as u32;
        }
        (0..24).for_each(|block| assert_eq!(remembered(&regions, 100 * block + 99), Some(block as u32)));
    }

    /// *The story:* 40,000 scattered pages took 25 s: each new region moved the kilobytes of all
    /// those above it.
    #[test]
    fn a_region_that_comes_before_others_does_not_move_what_they_remember() {
        let mut regions = Regions::<[[u64; 32]; 4]>::new();
        let mut add = |vpn| regions.add(SPACE, Vpn(vpn), Vpn(vpn + 1), RegionKind::Anon);
        (0..10_000).rev().for_each(|index| add(index * 2));
        assert!(size_of::<Range>() <= 24);
        let mut region = |vpn| regions.find(SPACE, Vpn(vpn)).map(core::ptr::from_mut);
        let before = region(100);
        assert!(before.is_some() && region(101).is_none());
        regions.add(SPACE, Vpn(31), Vpn(32), RegionKind::Shared);
        assert_eq!(before, regions.find(SPACE, Vpn(100)).map(core::ptr::from_mut));
    }
}
