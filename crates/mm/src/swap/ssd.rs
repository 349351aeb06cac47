//! Where the kernels from 3.12 on put an evicted page on an SSD: aligned clusters, a current one, a
//! list of free ones (specification 3.4, 3.14).
//!
//! The current cluster is used up from its first slot to its last; then comes the head of the list
//! of free clusters. Where there is none it is first-fit from the lowest slot on. A cluster goes to
//! the end of the list when its last slot is freed. (The kernel has a current cluster for each
//! processor and begins at a random one; here is one processor, and it begins at the first.)

use alloc::collections::VecDeque;

use super::CLUSTER;
use super::allocator::SlotAllocator;
use super::table::SlotTable;
use crate::page::NONE;

/// The list, and the current cluster.
#[derive(Debug)]
pub(super) struct Ssd {
    free: VecDeque<u32>,
    current: u32,
    /// Where the search in the current cluster goes on.
    next: u32,
    /// No free slot lies below this one.
    lowest: u32,
}

impl Default for Ssd {
    fn default() -> Self {
        Ssd { free: VecDeque::new(), current: NONE, next: 0, lowest: 1 }
    }
}

impl SlotAllocator for Ssd {
    fn choose(&mut self, table: &mut SlotTable, _count: u32) -> Option<(u32, u32)> {
        while table.grow() {
            self.free.push_back(table.clusters() - 1);
        }
        loop {
            if self.current != NONE {
                let end = self.current * CLUSTER + table.cluster_size(self.current);
                if let Some(slot) = (self.next..end).find(|&slot| table.is_free(slot)) {
                    self.next = slot + 1;
                    return Some((slot, 1));
                }
            }
            // One that was used by first-fit meanwhile, or is withheld, is passed over: it comes
            // back when it is free.
            let Some(cluster) = self.free.pop_front() else { break };
            if table.is_cluster_free(cluster) {
                (self.current, self.next) = (cluster, cluster * CLUSTER);
            }
        }
        let slot = (self.lowest..table.known()).find(|&slot| table.is_free(slot))?;
        self.lowest = slot + 1;
        Some((slot, 1))
    }

    fn freed(&mut self, table: &SlotTable, slot: u32) {
        let cluster = slot / CLUSTER;
        if table.is_cluster_free(cluster) && cluster != self.current && !self.free.contains(&cluster) {
            self.free.push_back(cluster);
        }
        self.lowest = self.lowest.min(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::PageId;

    #[test]
    fn whole_clusters_first_then_the_lowest_slot() {
        let (mut table, mut ssd) = (SlotTable::new(3 * CLUSTER), Ssd::default());
        let take = |table: &mut SlotTable, ssd: &mut Ssd| {
            let (slot, _) = ssd.choose(table, 1)?;
            table.take(slot, 1, PageId(0));
            Some(slot)
        };
        let free = |table: &mut SlotTable, ssd: &mut Ssd, slot: u32| {
            assert!(table.release(slot));
            ssd.freed(table, slot);
        };
        let first: Vec<u32> = (0..CLUSTER).filter_map(|_| take(&mut table, &mut ssd)).collect();
        assert_eq!(first, (1..=CLUSTER).collect::<Vec<_>>(), "the header is left out");
        free(&mut table, &mut ssd, 7);
        assert_eq!(take(&mut table, &mut ssd), Some(CLUSTER + 1), "a hole in an old cluster waits");
        let rest: Vec<u32> = std::iter::from_fn(|| take(&mut table, &mut ssd)).collect();
        assert_eq!(rest.last(), Some(&7));
        (1..CLUSTER).for_each(|slot| free(&mut table, &mut ssd, slot));
        free(&mut table, &mut ssd, 2 * CLUSTER + 9);
        assert_eq!(take(&mut table, &mut ssd), Some(1), "a cluster that became free comes before a hole");
    }
}
