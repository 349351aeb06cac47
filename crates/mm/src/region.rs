//! Spaces and regions: which ranges of which address spaces are managed, and what each region remembers.
//!
//! Regions of a space are disjoint and sorted. A region that is cut keeps its state in the left
//! part; the right part starts anew, as a split VMA does in the kernel (specification 2.2).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::stats::RegionStats;
use crate::types::{RegionKind, SpaceId, Vpn};

/// One managed range.
pub(crate) struct Region<R> {
    pub start: Vpn,
    pub end: Vpn,
    pub kind: RegionKind,
    /// State of the read-ahead policy.
    pub readahead: R,
    /// Pages mapped on arrival since the last marker was touched: hits as soon as the next one is.
    pub eager_pending: u32,
    pub stats: RegionStats,
}

/// A region, and its end beside it: that is all a search looks at. Policies keep a kilobyte a
/// region, which is not moved when others come before it.
struct Entry<R> {
    end: Vpn,
    region: Box<Region<R>>,
}

struct Space<R> {
    regions: Vec<Entry<R>>,
}

/// All regions of all spaces.
pub(crate) struct Regions<R> {
    spaces: Vec<Space<R>>,
}

impl<R: Default> Regions<R> {
    pub fn new() -> Self {
        Regions { spaces: Vec::new() }
    }

    /// The region that contains `vpn`.
    pub fn find(&mut self, space: SpaceId, vpn: Vpn) -> Option<&mut Region<R>> {
        let regions = &mut self.spaces.get_mut(space.0 as usize)?.regions;
        let at = first_beyond(regions, vpn);
        regions.get_mut(at).map(|entry| &mut *entry.region).filter(|region| region.start <= vpn)
    }

    /// The same, to look at.
    pub fn at(&self, space: SpaceId, vpn: Vpn) -> Option<&Region<R>> {
        let regions = &self.spaces.get(space.0 as usize)?.regions;
        let entry = regions.get(first_beyond(regions, vpn))?;
        Some(&*entry.region).filter(|region| region.start <= vpn)
    }

    /// Adds `[start, end)`; parts that are already managed stay as they are.
    pub fn add(&mut self, space: SpaceId, start: Vpn, end: Vpn, kind: RegionKind) {
        while self.spaces.len() <= space.0 as usize {
            self.spaces.push(Space { regions: Vec::new() });
        }
        let regions = &mut self.spaces[space.0 as usize].regions;
        let mut at = first_beyond(regions, start);
        let mut from = start;
        while from < end {
            let until = regions.get(at).map_or(end, |next| next.region.start.min(end));
            if from < until {
                insert_merging(regions, &mut at, from, until, kind);
            }
            from = regions.get(at).map_or(end, |entry| entry.end.max(until));
            at += 1;
        }
    }

    /// Removes `[start, end)` from the managed ranges.
    pub fn remove(&mut self, space: SpaceId, start: Vpn, end: Vpn) {
        let Some(space) = self.spaces.get_mut(space.0 as usize) else { return };
        let regions = &mut space.regions;
        let mut at = first_beyond(regions, start);
        while let Some(entry) = regions.get_mut(at).filter(|entry| entry.region.start < end) {
            let (first, last) = (entry.region.start, entry.end);
            if first < start {
                entry.end_at(start);
                if last > end {
                    let right = Entry::new(end, last, entry.region.kind);
                    regions.insert(at + 1, right);
                }
                at += 1;
            } else if last > end {
                entry.region.start = end;
                at += 1;
            } else {
                regions.remove(at);
            }
        }
    }

    /// Is any page of `[start, end)` managed?
    pub fn overlaps(&self, space: SpaceId, start: Vpn, end: Vpn) -> bool {
        self.spaces.get(space.0 as usize).is_some_and(|space| {
            let at = first_beyond(&space.regions, start);
            space.regions.get(at).is_some_and(|entry| entry.region.start < end)
        })
    }

    /// Calls `visit` with every part of `[start, end)` that is not managed, in order.
    pub fn gaps(&self, space: SpaceId, start: Vpn, end: Vpn, mut visit: impl FnMut(Vpn, Vpn)) {
        let mut from = start;
        if let Some(space) = self.spaces.get(space.0 as usize) {
            let beyond = &space.regions[first_beyond(&space.regions, start)..];
            for region in beyond.iter().map(|entry| &entry.region).take_while(|region| region.start < end) {
                if from < region.start {
                    visit(from, region.start);
                }
                from = region.end;
            }
        }
        if from < end {
            visit(from, end);
        }
    }

    /// Every region: `(space, start, end)`.
    pub fn each(&self) -> impl Iterator<Item = (SpaceId, Vpn, Vpn)> + '_ {
        self.spaces.iter().enumerate().flat_map(|(index, space)| {
            let space_id = SpaceId(index as u16);
            space.regions.iter().map(move |entry| (space_id, entry.region.start, entry.end))
        })
    }
}

/// Index of the first region that ends beyond `vpn`.
fn first_beyond<R>(regions: &[Entry<R>], vpn: Vpn) -> usize {
    regions.partition_point(|entry| entry.end <= vpn)
}

impl<R: Default> Entry<R> {
    fn new(start: Vpn, end: Vpn, kind: RegionKind) -> Self {
        assert!(start < end, "a region is not empty");
        let (readahead, stats) = (R::default(), RegionStats::default());
        Entry { end, region: Box::new(Region { start, end, kind, readahead, eager_pending: 0, stats }) }
    }

    fn end_at(&mut self, end: Vpn) {
        (self.end, self.region.end) = (end, end);
    }
}

/// Inserts `[from, until)` before index `at`, growing the left neighbour instead when it touches
/// and is of one kind. Afterwards `at` is the index of the region that contains the new range.
fn insert_merging<R: Default>(
    regions: &mut Vec<Entry<R>>,
    at: &mut usize,
    from: Vpn,
    until: Vpn,
    kind: RegionKind,
) {
    if let Some(left) = at.checked_sub(1).map(|left| &mut regions[left])
        && left.end == from
        && left.region.kind == kind
    {
        left.end_at(until);
        *at -= 1;
        return;
    }
    regions.insert(*at, Entry::new(from, until, kind));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_a_set_of_pages() {
        let mut regions = Regions::<()>::new();
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
                assert_eq!(regions.at(SpaceId(0), start).map(|region| region.end), Some(end));
                last = end;
            }
        }
    }

    /// *The story:* 40,000 scattered pages took 25 s: each new region moved the kilobytes of all
    /// those above it.
    #[test]
    fn a_region_that_comes_before_others_does_not_move_what_they_remember() {
        let mut regions = Regions::<[[u64; 32]; 4]>::new();
        let mut add = |vpn| regions.add(SpaceId(0), Vpn(vpn), Vpn(vpn + 1), RegionKind::Anon);
        (0..10_000).rev().for_each(|index| add(index * 2));
        assert!(size_of::<Entry<[[u64; 32]; 4]>>() <= 16);
        let mut region = |vpn| regions.find(SpaceId(0), Vpn(vpn)).map(core::ptr::from_mut);
        let before = region(100);
        assert!(before.is_some() && region(101).is_none());
        regions.add(SpaceId(0), Vpn(31), Vpn(32), RegionKind::Shared);
        assert_eq!(before, regions.find(SpaceId(0), Vpn(100)).map(core::ptr::from_mut));
    }
}
