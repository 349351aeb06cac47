//! Spaces and regions: which ranges of which address spaces are managed, and what each region remembers.
//!
//! Regions of a space are disjoint and sorted. A region that is cut keeps its state in the left
//! part; the right part starts anew, as a split VMA does in the kernel (specification 2.2).

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

struct Space<R> {
    regions: Vec<Region<R>>,
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
        let at = regions.partition_point(|region| region.end <= vpn);
        regions.get_mut(at).filter(|region| region.start <= vpn)
    }

    /// The same, to look at.
    pub fn at(&self, space: SpaceId, vpn: Vpn) -> Option<&Region<R>> {
        let regions = &self.spaces.get(space.0 as usize)?.regions;
        let at = regions.partition_point(|region| region.end <= vpn);
        regions.get(at).filter(|region| region.start <= vpn)
    }

    /// Adds `[start, end)`; parts that are already managed stay as they are.
    pub fn add(&mut self, space: SpaceId, start: Vpn, end: Vpn, kind: RegionKind) {
        while self.spaces.len() <= space.0 as usize {
            self.spaces.push(Space { regions: Vec::new() });
        }
        let regions = &mut self.spaces[space.0 as usize].regions;
        let mut at = regions.partition_point(|region| region.end <= start);
        let mut from = start;
        while from < end {
            let next = regions.get(at).map(|region| (region.start, region.end));
            let until = next.map_or(end, |(start, _)| start.min(end));
            if from < until {
                insert_merging(regions, &mut at, from, until, kind);
            }
            from = regions.get(at).map_or(end, |region| region.end.max(until));
            at += 1;
        }
    }

    /// Removes `[start, end)` from the managed ranges.
    pub fn remove(&mut self, space: SpaceId, start: Vpn, end: Vpn) {
        let Some(space) = self.spaces.get_mut(space.0 as usize) else { return };
        let regions = &mut space.regions;
        let mut at = regions.partition_point(|region| region.end <= start);
        while let Some(region) = regions.get_mut(at).filter(|region| region.start < end) {
            let (first, last) = (region.start, region.end);
            if first < start {
                region.end = start;
                if last > end {
                    let right = Region::new(end, last, region.kind);
                    regions.insert(at + 1, right);
                }
                at += 1;
            } else if last > end {
                region.start = end;
                at += 1;
            } else {
                regions.remove(at);
            }
        }
    }

    /// Is any page of `[start, end)` managed?
    pub fn overlaps(&self, space: SpaceId, start: Vpn, end: Vpn) -> bool {
        self.spaces.get(space.0 as usize).is_some_and(|space| {
            let at = space.regions.partition_point(|region| region.end <= start);
            space.regions.get(at).is_some_and(|region| region.start < end)
        })
    }

    /// Calls `visit` with every part of `[start, end)` that is not managed, in order.
    pub fn gaps(&self, space: SpaceId, start: Vpn, end: Vpn, mut visit: impl FnMut(Vpn, Vpn)) {
        let mut from = start;
        if let Some(space) = self.spaces.get(space.0 as usize) {
            let at = space.regions.partition_point(|region| region.end <= start);
            for region in space.regions[at..].iter().take_while(|region| region.start < end) {
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
            space.regions.iter().map(move |region| (SpaceId(index as u16), region.start, region.end))
        })
    }
}

impl<R: Default> Region<R> {
    fn new(start: Vpn, end: Vpn, kind: RegionKind) -> Self {
        assert!(start < end, "a region is not empty");
        Region { start, end, kind, readahead: R::default(), eager_pending: 0, stats: RegionStats::default() }
    }
}

/// Inserts `[from, until)` before index `at`, growing the left neighbour instead when it touches
/// and is of one kind. Afterwards `at` is the index of the region that contains the new range.
fn insert_merging<R: Default>(
    regions: &mut Vec<Region<R>>,
    at: &mut usize,
    from: Vpn,
    until: Vpn,
    kind: RegionKind,
) {
    if let Some(left) = at.checked_sub(1).map(|left| &mut regions[left])
        && left.end == from
        && left.kind == kind
    {
        left.end = until;
        *at -= 1;
        return;
    }
    regions.insert(*at, Region::new(from, until, kind));
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
                last = end;
            }
        }
    }
}
