//! Where the kernel puts an evicted page: clusters on lists, by how full they are (specification
//! 3.4, 6.19).
//!
//! Slots are taken from the cluster in hand, upwards from the last one. At its end the next cluster
//! is one that was used and has free slots again, in the order in which they came to have them;
//! else a free one; else one that was left with holes. So a page that is evicted among others soon
//! lies between strangers: the holes that earlier pages left are filled first.

use alloc::vec::Vec;

use super::CLUSTER;
use super::allocator::SlotAllocator;
use super::table::SlotTable;
use crate::page::NONE;

/// Which list a cluster is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum List {
    /// No slot in use.
    Free,
    /// Slots were freed since one was last taken.
    NonFull,
    /// A slot was taken last, and others are free.
    Frag,
    /// Every slot in use.
    Full,
}

const LISTS: usize = 4;

#[derive(Clone, Copy)]
struct Cluster {
    next: u32,
    prev: u32,
    list: List,
}

/// The lists, and the cluster in hand.
pub(super) struct Clusters {
    clusters: Vec<Cluster>,
    ends: [(u32, u32); LISTS],
    in_hand: u32,
    /// Where the search in the cluster in hand goes on.
    next: u32,
}

impl SlotAllocator for Clusters {
    /// The next free slot of the cluster in hand, or of the next one.
    fn choose(&mut self, table: &mut SlotTable, _count: u32) -> Option<(u32, u32)> {
        loop {
            if let Some(cluster) = self.in_hand() {
                let end = cluster * CLUSTER + table.cluster_size(cluster);
                if let Some(slot) = (self.next..end).find(|&slot| table.is_free(slot)) {
                    self.next = slot + 1;
                    return Some((slot, 1));
                }
            }
            // Clusters not known yet are free ones, the first on their list.
            let cluster = self.take_used().or_else(|| {
                table.grow().then(|| {
                    self.join(table.clusters());
                    self.take_newest()
                })
            });
            let cluster = cluster.or_else(|| {
                self.join(table.clusters());
                self.take_any()
            })?;
            self.next = cluster * CLUSTER;
        }
    }

    fn freed(&mut self, table: &SlotTable, slot: u32) {
        self.join(table.clusters());
        let cluster = slot / CLUSTER;
        self.change(cluster, if table.is_cluster_free(cluster) { List::Free } else { List::NonFull });
    }
}

impl Clusters {
    /// A slot was taken: the kernel's lists tell that apart from one that was freed.
    pub fn taken(&mut self, table: &SlotTable, slot: u32) {
        self.join(table.clusters());
        let cluster = slot / CLUSTER;
        let is_full = table.is_cluster_full(cluster);
        self.change(cluster, if is_full { List::Full } else { List::Frag });
    }

    pub fn new() -> Self {
        Clusters { clusters: Vec::new(), ends: [(NONE, NONE); LISTS], in_hand: NONE, next: 1 }
    }

    /// Clusters that the table knows and the lists do not join, free.
    fn join(&mut self, known: u32) {
        while (self.clusters.len() as u32) < known {
            self.add();
        }
    }

    /// A cluster joins, free.
    fn add(&mut self) {
        let index = self.clusters.len() as u32;
        self.clusters.push(Cluster { next: NONE, prev: NONE, list: List::Free });
        self.append(index, List::Free);
    }

    /// The cluster in hand.
    fn in_hand(&self) -> Option<u32> {
        (self.in_hand != NONE).then_some(self.in_hand)
    }

    /// The cluster in hand has come to its end: one that was used and has free slots again.
    fn take_used(&mut self) -> Option<u32> {
        self.take(&[List::NonFull])
    }

    /// A free one, else one that was left with holes.
    fn take_any(&mut self) -> Option<u32> {
        self.take(&[List::Free, List::Frag])
    }

    /// The one that joined last.
    fn take_newest(&mut self) -> u32 {
        self.in_hand = self.clusters.len() as u32 - 1;
        self.in_hand
    }

    fn take(&mut self, lists: &[List]) -> Option<u32> {
        let heads = lists.iter().map(|&list| self.ends[list as usize].0);
        let taken = heads.into_iter().find(|&cluster| cluster != NONE);
        self.in_hand = taken.unwrap_or(NONE);
        taken
    }

    /// To the end of a list; a cluster that is there already keeps its place.
    fn change(&mut self, cluster: u32, list: List) {
        if self.clusters[cluster as usize].list != list {
            self.unlink(cluster);
            self.append(cluster, list);
        }
    }

    fn unlink(&mut self, cluster: u32) {
        let Cluster { next, prev, list } = self.clusters[cluster as usize];
        match prev {
            NONE => self.ends[list as usize].0 = next,
            prev => self.clusters[prev as usize].next = next,
        }
        match next {
            NONE => self.ends[list as usize].1 = prev,
            next => self.clusters[next as usize].prev = prev,
        }
    }

    fn append(&mut self, cluster: u32, list: List) {
        let last = core::mem::replace(&mut self.ends[list as usize].1, cluster);
        match last {
            NONE => self.ends[list as usize].0 = cluster,
            last => self.clusters[last as usize].next = cluster,
        }
        self.clusters[cluster as usize] = Cluster { next: NONE, prev: last, list };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *The story* (by the model): clusters that were known by a bad page in the last of them were on no
    /// list. Nothing could grow any more, and no page was ever put there.
    #[test]
    fn clusters_that_are_known_by_a_bad_page_are_used() {
        let (mut clusters, mut table) = (Clusters::new(), SlotTable::new(900));
        table.exclude(700);
        assert_eq!(clusters.choose(&mut table, 1), Some((1, 1)));
    }

    #[test]
    fn holes_are_filled_before_fresh_clusters_are_begun() {
        let mut clusters = Clusters::new();
        let take = |clusters: &mut Clusters| clusters.take_used().or_else(|| clusters.take_any());
        (0..4).for_each(|_| clusters.add());
        assert_eq!(take(&mut clusters), Some(0));
        clusters.change(0, List::Full);
        assert_eq!(take(&mut clusters), Some(1));
        clusters.change(1, List::Full);
        clusters.change(1, List::NonFull);
        clusters.change(0, List::NonFull);
        assert_eq!(take(&mut clusters), Some(1));
        clusters.change(1, List::Frag);
        assert_eq!(take(&mut clusters), Some(0));
        clusters.change(0, List::Full);
        assert_eq!(take(&mut clusters), Some(2));
        clusters.change(2, List::Full);
        clusters.change(0, List::Free);
        assert_eq!([take(&mut clusters), clusters.in_hand()], [Some(3); 2]);
        clusters.change(3, List::Full);
        assert_eq!(take(&mut clusters), Some(0));
        clusters.change(0, List::Full);
        assert_eq!(take(&mut clusters), Some(1));
        clusters.change(1, List::Full);
        assert_eq!(take(&mut clusters), None);
    }
}
