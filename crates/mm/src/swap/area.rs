//! One swap area: its slots, its allocator, and whether it takes pages.
//!
//! Slot numbers are the area's own here. Clusters that nobody uses any more are given back to the
//! backing (a hole is punched, a device is told), but for some that are kept for the next pages:
//! the first write of a block costs several times a later one.

use alloc::vec::Vec;

use super::allocator::Allocator;
use super::table::SlotTable;
use super::{AreaConfig, CLUSTER, Placement, WINDOW};
use crate::types::PageId;

/// Of clusters without pages that still have blocks on the backing so many are kept, and one for so
/// many in use.
const KEPT_MIN: u32 = 16;
const KEPT_SHARE: u32 = 8;

/// Does the area take pages?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stand {
    /// Yes.
    Open,
    /// The backing has no room: no more, and what is in it stays.
    Closed,
    /// No: what is in it is brought elsewhere.
    Leaving,
    /// No, and what could be brought elsewhere was.
    Left,
}

/// An area.
pub(super) struct Area {
    pub table: SlotTable,
    pub allocator: Allocator,
    /// Number of its header among the slots of all areas.
    pub base: u32,
    pub priority: i16,
    pub stand: Stand,
    /// Pages that are being written to it.
    pub writing: u32,
    /// Freed clusters are given back to the backing.
    discards: bool,
    /// By cluster: it has blocks on the backing. Empty when nothing is given back.
    written: Vec<bool>,
    /// Clusters without pages that have blocks.
    stale: u32,
    /// Where draining goes on, in which round over the slots, and whether it passed busy pages in
    /// this one.
    pub cursor: u32,
    pub round: u32,
    pub again: bool,
}

impl Area {
    pub fn new(config: &AreaConfig, placement: Placement, base: u32) -> Self {
        Area {
            table: SlotTable::new(config.slots),
            allocator: Allocator::new(placement),
            base,
            priority: config.priority,
            stand: Stand::Open,
            writing: 0,
            discards: config.discards,
            written: Vec::new(),
            stale: 0,
            cursor: 1,
            round: 0,
            again: false,
        }
    }

    /// Does it take no page?
    #[inline]
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Pages that it would still take.
    #[inline]
    pub fn room(&self) -> u32 {
        match self.stand {
            Stand::Open => self.table.capacity().saturating_sub(self.table.used()),
            _ => 0,
        }
    }

    /// So many free slots from this one on, in one window, are the pages'.
    #[inline]
    pub fn take(&mut self, slot: u32, count: u32, page: PageId) {
        if self.discards {
            self.note_written(slot / CLUSTER);
        }
        self.table.take(slot, count, page);
        self.allocator.taken(&self.table, slot);
    }

    fn note_written(&mut self, cluster: u32) {
        let index = cluster as usize;
        if index >= self.written.len() {
            self.written.resize(index + 1, false);
        }
        let was = core::mem::replace(&mut self.written[index], true);
        self.stale -= u32::from(was && self.table.is_cluster_free(cluster));
    }

    /// Gives a reference back. The answer is a cluster that is to be given back to the backing.
    pub fn release(&mut self, slot: u32) -> Option<u32> {
        if !self.table.release(slot) {
            return None;
        }
        self.allocator.freed(&self.table, slot);
        self.emptied(slot / CLUSTER)
    }

    /// Gives slots of one window back, each once.
    pub fn release_run(&mut self, slot: u32, count: u32) -> Option<u32> {
        if !self.table.release_run(slot, count) {
            // Some are shared: one by one, and at most the last of them empties the cluster.
            return (slot..slot + count).filter_map(|slot| self.release(slot)).last();
        }
        self.allocator.freed(&self.table, slot);
        self.emptied(slot / CLUSTER)
    }

    fn emptied(&mut self, cluster: u32) -> Option<u32> {
        if !self.discards || !self.table.is_cluster_free(cluster) {
            return None;
        }
        self.stale += 1;
        let kept = (self.table.used() / CLUSTER / KEPT_SHARE).max(KEPT_MIN);
        if self.stale <= kept {
            return None;
        }
        self.stale -= 1;
        self.written[cluster as usize] = false;
        self.table.withhold(cluster, true);
        self.allocator.taken(&self.table, cluster * CLUSTER);
        Some(cluster)
    }

    /// The backing has the cluster's blocks back: it can be used again.
    pub fn discarded(&mut self, cluster: u32) {
        self.table.withhold(cluster, false);
        let first = cluster * CLUSTER;
        let windows = (first..first + self.table.cluster_size(cluster)).step_by(WINDOW as usize);
        windows.for_each(|slot| self.allocator.freed(&self.table, slot));
    }
}
