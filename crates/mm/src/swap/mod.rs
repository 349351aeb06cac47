//! A swap area: its slots, their reference counts and owners, and where the next page goes.
//!
//! Slots are handed out in clusters of 512. Under [`Placement::ByAddress`] a cluster belongs to one 2 MiB chunk of
//! address space and a page goes to the slot at its own offset, so that neighbours in memory are neighbours on disk and
//! a read-ahead window is one request. Under [`Placement::InOrder`] slots follow the order of eviction and fill holes, as the
//! kernel's do: `clusters`.

mod clusters;
pub mod extents;
pub mod header;
mod next_fit;

use alloc::vec::Vec;

use self::clusters::Clusters;
use self::next_fit::NextFit;

use crate::page::NONE;
use crate::types::{CHUNK_PAGES, PageId, Slot};

/// How many refer to a slot. As many spaces as there can be ([`crate::types::SpaceId`]) may share one.
pub(super) type References = u16;

/// Slots in a cluster.
const CLUSTER: u32 = CHUNK_PAGES as u32;

/// Which slot an evicted page gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Neighbours in memory become neighbours on disk.
    ByAddress,
    /// Neighbours in time become neighbours on disk, as today's kernel has it.
    InOrder,
    /// The same as kernels of 2012 had it.
    NextFit,
}

/// One swap area.
pub(crate) struct SwapArea {
    placement: Placement,
    /// Slots it may have in all; the tables below grow with use, a cluster at a time.
    limit: u32,
    /// References to each slot: 0 = free.
    references: Vec<References>,
    /// The page that wrote the slot last; meaningful while the slot is in use.
    owner: Vec<u32>,
    /// Slots in use per cluster.
    cluster_used: Vec<u16>,
    /// Is the cluster some chunk's own?
    cluster_owned: Vec<bool>,
    /// No free cluster lies below this one.
    free_from: u32,
    /// Where the search for any slot goes on.
    next: u32,
    /// For `InOrder`.
    clusters: Clusters,
    /// For `NextFit`.
    next_fit: NextFit,
    used: u32,
    retired: bool,
}

impl SwapArea {
    /// An area of at most `limit` slots, of which slot 0 is the header. Its tables take five bytes for each slot that
    /// was ever in a cluster in use, nothing for the rest.
    pub fn new(limit: u32, placement: Placement) -> Self {
        SwapArea {
            placement,
            limit,
            references: Vec::new(),
            owner: Vec::new(),
            cluster_used: Vec::new(),
            cluster_owned: Vec::new(),
            free_from: 0,
            next: 1,
            clusters: Clusters::new(),
            next_fit: NextFit::new(),
            used: 0,
            retired: false,
        }
    }

    /// Adds a cluster to the tables. False at the limit.
    fn grow(&mut self) -> bool {
        let old = self.references.len() as u32;
        let slots = (self.limit - old).min(CLUSTER);
        if slots == 0 {
            return false;
        }
        self.references.resize((old + slots) as usize, 0);
        self.owner.resize((old + slots) as usize, NONE);
        self.cluster_used.push(0);
        self.cluster_owned.push(false);
        if self.placement == Placement::InOrder {
            self.clusters.add();
        }
        if old == 0 {
            self.references[0] = 1;
            self.cluster_used[0] = 1;
        }
        true
    }

    /// Slots in use, without the header.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Slots that pages can use.
    pub fn capacity(&self) -> u32 {
        self.limit.saturating_sub(1)
    }

    /// Takes no more pages; what is in it can still be read.
    pub fn retire(&mut self) {
        self.retired = true;
    }

    /// Does it take no more pages?
    pub fn is_retired(&self) -> bool {
        self.retired
    }

    /// Has it no slot to give?
    pub fn is_full(&self) -> bool {
        self.retired || self.used >= self.capacity()
    }

    /// Is the area more than half full? Then slots of pages in RAM are not worth keeping (specification 1.7).
    pub fn is_tight(&self) -> bool {
        (self.capacity() - self.used) * 2 < self.capacity()
    }

    /// The page that wrote `slot`, while the slot is in use.
    pub fn owner(&self, slot: Slot) -> Option<PageId> {
        let index = slot.0 as usize;
        (slot.0 != 0 && *self.references.get(index)? > 0).then(|| PageId(self.owner[index]))
    }

    /// Number of slots, the header included.
    pub fn len(&self) -> u32 {
        self.limit
    }

    /// A slot for `page`. `cluster` is the memory of the page's chunk and may be changed.
    pub fn allocate(&mut self, page: PageId, cluster: &mut u32) -> Option<Slot> {
        if self.is_full() {
            return None;
        }
        let slot = match self.placement {
            Placement::ByAddress => self.by_address(page, cluster),
            Placement::InOrder => self.in_order(),
            Placement::NextFit => self.next_fit(),
        }?;
        let index = slot as usize;
        assert_eq!(self.references[index], 0, "a slot in use is never given away");
        self.references[index] = 1;
        self.owner[index] = page.0;
        let cluster = index as u32 / CLUSTER;
        self.cluster_used[cluster as usize] += 1;
        self.used += 1;
        if self.placement == Placement::InOrder {
            self.clusters.taken(cluster, self.cluster_used[cluster as usize] == self.cluster_size(cluster));
        }
        Some(Slot(slot))
    }

    /// The page that owns a slot lives elsewhere now (mremap).
    pub fn set_owner(&mut self, slot: Slot, page: PageId) {
        assert!(self.references[slot.0 as usize] > 0, "only a slot in use has an owner");
        self.owner[slot.0 as usize] = page.0;
    }

    /// One more refers to the slot. False: no more can, and nothing has changed.
    #[must_use]
    #[cfg_attr(not(test), expect(dead_code, reason = "for forks that share what is on swap"))]
    pub fn share(&mut self, slot: Slot) -> bool {
        let references = &mut self.references[slot.0 as usize];
        assert!(slot.0 != 0 && *references > 0, "only a slot in use is shared");
        let more = references.checked_add(1);
        *references = more.unwrap_or(*references);
        more.is_some()
    }

    /// Gives a reference back; the slot is free when none is left.
    pub fn release(&mut self, slot: Slot) {
        let index = slot.0 as usize;
        assert!(slot.0 != 0 && self.references[index] > 0, "a slot is released once a reference");
        self.references[index] -= 1;
        if self.references[index] > 0 {
            return;
        }
        let cluster = index / CLUSTER as usize;
        self.cluster_used[cluster] -= 1;
        self.used -= 1;
        if self.placement == Placement::InOrder {
            self.clusters.freed(cluster as u32, self.cluster_used[cluster] == u16::from(cluster == 0));
        }
        if self.cluster_used[cluster] == 0 && !self.cluster_owned[cluster] {
            self.free_from = self.free_from.min(cluster as u32);
        }
    }

    /// The chunk that owned the cluster is gone.
    pub fn disown(&mut self, cluster: u32) {
        if cluster != NONE {
            self.cluster_owned[cluster as usize] = false;
            if self.cluster_used[cluster as usize] == 0 {
                self.free_from = self.free_from.min(cluster);
            }
        }
    }

    /// A slot that must never be used again (its write failed for lack of space).
    pub fn mark_bad(&mut self, slot: Slot) {
        let references = &mut self.references[slot.0 as usize];
        *references = references.checked_add(1).expect("nobody shares a slot whose first write failed");
    }

    fn by_address(&mut self, page: PageId, cluster: &mut u32) -> Option<u32> {
        let offset = page.0 % CLUSTER;
        if *cluster != NONE {
            let slot = *cluster * CLUSTER + offset;
            if self.is_free(slot) {
                return Some(slot);
            }
        } else if let Some(fresh) = self.take_free_cluster() {
            *cluster = fresh;
            let slot = fresh * CLUSTER + offset;
            if self.is_free(slot) {
                return Some(slot);
            }
        }
        self.anywhere()
    }

    fn take_free_cluster(&mut self) -> Option<u32> {
        let known = self.cluster_used.len() as u32;
        // Cluster 0 holds the header but is as good as free while nothing else is in it.
        let is_free =
            |&c: &u32| self.cluster_used[c as usize] == u16::from(c == 0) && !self.cluster_owned[c as usize];
        let mut found = (self.free_from..known).find(is_free);
        if found.is_none() && self.grow() {
            found = Some(known);
        }
        self.free_from = found.map_or(known, |cluster| cluster + 1);
        if let Some(cluster) = found {
            self.cluster_owned[cluster as usize] = true;
        }
        found
    }

    fn next_fit(&mut self) -> Option<u32> {
        // These kernels know all of their slots from the start.
        while self.grow() {}
        self.next_fit.allocate(&self.references, self.capacity() - self.used)
    }

    /// The next free slot of the cluster in hand, or of the next one; the area is not full.
    fn in_order(&mut self) -> Option<u32> {
        loop {
            if let Some(cluster) = self.clusters.in_hand() {
                let end = cluster * CLUSTER + u32::from(self.cluster_size(cluster));
                let start = self.next;
                if let Some(slot) = (start..end).find(|&slot| self.is_free(slot)) {
                    self.next = slot + 1;
                    return Some(slot);
                }
            }
            // Clusters not known yet are free ones, the first on their list.
            let cluster =
                self.clusters.take_used().or_else(|| self.grow().then(|| self.clusters.take_newest()));
            let cluster = cluster.or_else(|| self.clusters.take_any())?;
            self.next = cluster * CLUSTER;
        }
    }

    /// The next free slot at or after the cursor; full clusters are passed over, new ones are begun at the end.
    fn anywhere(&mut self) -> Option<u32> {
        let mut slot = self.next;
        let mut wrapped = false;
        loop {
            let known = self.references.len() as u32;
            if slot >= known {
                // Half of what is known is free: going round is better than spreading further.
                if (self.used * 2 >= known || wrapped) && self.grow() {
                    slot = slot.min(known).max(1);
                    continue;
                }
                if wrapped {
                    return None;
                }
                (slot, wrapped) = (1, true);
                continue;
            }
            let cluster = slot / CLUSTER;
            let size = self.cluster_size(cluster);
            if self.cluster_used[cluster as usize] == size {
                slot = (cluster + 1) * CLUSTER;
            } else if self.is_free(slot) {
                self.next = slot + 1;
                return Some(slot);
            } else {
                slot += 1;
            }
        }
    }

    /// Slots of a cluster: the last one may be short.
    fn cluster_size(&self, cluster: u32) -> u16 {
        CLUSTER.min(self.references.len() as u32 - cluster * CLUSTER) as u16
    }

    fn is_free(&self, slot: u32) -> bool {
        self.references.get(slot as usize) == Some(&0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_memory_are_neighbours_on_disk() {
        let mut area = SwapArea::new(4096, Placement::ByAddress);
        let mut cluster = NONE;
        let slots: Vec<u32> =
            [5, 7, 6, 100].iter().map(|&page| area.allocate(PageId(page), &mut cluster).unwrap().0).collect();
        assert_eq!(slots, [5, 7, 6, 100]);
        let mut other = NONE;
        assert_eq!(area.allocate(PageId(512 + 9), &mut other), Some(Slot(512 + 9)));
        assert_eq!(area.owner(Slot(6)), Some(PageId(6)));
        area.release(Slot(6));
        assert_eq!(area.owner(Slot(6)), None);
    }

    #[test]
    fn every_slot_is_found_and_none_twice() {
        for placement in [Placement::ByAddress, Placement::InOrder, Placement::NextFit] {
            let mut area = SwapArea::new(1500, placement);
            let mut clusters = [NONE; 8];
            let mut seen = std::collections::BTreeSet::new();
            for n in 0..1499u32 {
                // Pages scattered over eight chunks.
                let page = (n * 7) % 8 * 512 + (n * 13) % 512;
                let slot = area.allocate(PageId(page), &mut clusters[page as usize / 512]).unwrap();
                assert!(seen.insert(slot), "{slot:?} twice");
            }
            assert!(area.is_full());
            assert_eq!(area.allocate(PageId(0), &mut clusters[0]), None);
            for slot in seen {
                area.release(slot);
            }
            assert_eq!(area.used(), 0);
        }
    }

    /// *The story:* counts were bytes; the 256th fork would have made a slot free that 255 still refer to.
    #[test]
    fn a_slot_is_shared_by_as_many_as_there_can_be_and_no_more() {
        let mut area = SwapArea::new(64, Placement::ByAddress);
        let mut cluster = NONE;
        let slot = area.allocate(PageId(5), &mut cluster).unwrap();
        for _ in 1..u16::MAX {
            assert!(area.share(slot));
        }
        assert!(!area.share(slot), "one more does not fit, and is told");
        for _ in 1..u16::MAX {
            area.release(slot);
            assert_eq!(area.owner(slot), Some(PageId(5)));
        }
        area.release(slot);
        assert_eq!((area.owner(slot), area.used()), (None, 0));
    }

    #[test]
    fn freed_clusters_are_found_again() {
        let mut area = SwapArea::new(2048, Placement::ByAddress);
        let mut clusters = [NONE; 4];
        for round in 0..3 {
            let slots: Vec<Slot> = (0..4u32)
                .map(|c| area.allocate(PageId(c * 512 + 1 + round), &mut clusters[c as usize]).unwrap())
                .collect();
            slots.iter().for_each(|&slot| area.release(slot));
            clusters.iter_mut().for_each(|cluster| area.disown(core::mem::replace(cluster, NONE)));
        }
        assert_eq!(area.used(), 0);
    }
}
