//! Where the kernels before the cluster lists put an evicted page on a disk: after the last one
//! (specification 3.4, 3.14).
//!
//! After a cluster's worth of slots the first run of that many free slots is sought from the lowest
//! on; where there is none, and within a run, it is the next free slot upwards, and from the lowest
//! again.

use super::WINDOW;
use super::allocator::SlotAllocator;
use super::table::SlotTable;

/// The cursor.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextFit {
    next: u32,
    /// Slots left to take before the next run is sought.
    left: u32,
}

/// Slots in a cluster, in those days.
const RUN: u32 = 256;

impl SlotAllocator for NextFit {
    fn choose(&mut self, table: &mut SlotTable, _count: u32) -> Option<(u32, u32)> {
        // These kernels know all of their slots from the start.
        while table.grow() {}
        if self.left == 0 {
            self.left = RUN;
            if table.capacity() - table.used() >= RUN
                && let Some(start) = first_run(table)
            {
                self.next = start;
            }
        }
        self.left -= 1;
        let slots = table.known();
        let slot =
            first_free(table, self.next, slots).or_else(|| first_free(table, 1, self.next.min(slots)))?;
        self.next = slot + 1;
        Some((slot, 1))
    }
}

impl NextFit {
    pub fn new() -> Self {
        NextFit { next: 1, left: 0 }
    }
}

/// The lowest free slot of those from `slot` to `end`.
fn first_free(table: &SlotTable, mut slot: u32, end: u32) -> Option<u32> {
    while slot < end && !table.is_free(slot) {
        slot += table.taken_run(slot, WINDOW - slot % WINDOW);
    }
    (slot < end).then_some(slot)
}

/// The lowest run of [`RUN`] free slots.
fn first_run(table: &SlotTable) -> Option<u32> {
    let (mut start, mut slot) = (1, 1);
    while slot < table.known() {
        let rest = WINDOW - slot % WINDOW;
        let taken = table.taken_run(slot, rest);
        if taken > 0 {
            slot += taken;
            start = slot;
            continue;
        }
        slot += table.free_run(slot, rest);
        if slot - start >= RUN {
            return Some(start);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::PageId;

    #[test]
    fn runs_first_then_holes() {
        let (mut table, mut cursor) = (SlotTable::new(1 + 3 * RUN), NextFit::new());
        table.exclude(10);
        let take = |table: &mut SlotTable, cursor: &mut NextFit| {
            let (slot, _) = cursor.choose(table, 1)?;
            table.take(slot, 1, PageId(0));
            Some(slot)
        };
        let first: Vec<u32> = (0..RUN).filter_map(|_| take(&mut table, &mut cursor)).collect();
        assert_eq!(first, (11..11 + RUN).collect::<Vec<_>>(), "the first run of free slots");
        assert!(table.release(12));
        let second: Vec<u32> = (0..RUN).filter_map(|_| take(&mut table, &mut cursor)).collect();
        assert_eq!(second[0], 11 + RUN, "one hole is no run");
        let rest: Vec<u32> = core::iter::from_fn(|| take(&mut table, &mut cursor)).collect();
        assert_eq!(rest.last(), Some(&12), "in the end the holes are filled");
        assert!(rest.contains(&1));
    }
}
