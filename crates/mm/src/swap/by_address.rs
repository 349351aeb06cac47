//! Where the pager puts an evicted page: neighbours in memory become neighbours on disk.
//!
//! A window of slots is the home of a window of memory, and a page goes to the slot at its own
//! offset there; so a window that is read ahead is one request. Who has which home is kept with the
//! memory; here is known which windows are somebody's, so that nobody else's home is made there. A
//! page whose own slot is taken goes to the next free one anywhere.

use alloc::vec::Vec;

use super::allocator::SlotAllocator;
use super::table::SlotTable;
use super::{WINDOW, WINDOWS};

/// Free runs that are looked at for one that is long enough, and windows once there is one.
const LOOKS: u32 = 32;
const WINDOWS_LOOKED_AT: u32 = 64;

/// Which windows are homes.
#[derive(Debug)]
pub(super) struct ByAddress {
    /// By window.
    owned: Vec<bool>,
    /// No cluster in which nobody is at home and no slot in use lies below this one.
    clusters_from: u32,
    /// The same of windows.
    windows_from: u32,
    /// Where the search for any slot goes on.
    next: u32,
}

impl Default for ByAddress {
    fn default() -> Self {
        ByAddress { owned: Vec::new(), clusters_from: 0, windows_from: 0, next: 1 }
    }
}

impl ByAddress {
    #[inline]
    fn is_vacant(&self, table: &SlotTable, window: u32) -> bool {
        table.is_window_free(window) && !self.owned.get(window as usize).is_some_and(|&owned| owned)
    }

    fn is_cluster_vacant(&self, table: &SlotTable, cluster: u32) -> bool {
        let first = cluster * WINDOWS as u32;
        (first..first + WINDOWS as u32).all(|window| self.is_vacant(table, window))
    }

    fn cluster(&mut self, table: &mut SlotTable) -> Option<u32> {
        let known = table.clusters();
        let found = (self.clusters_from..known).find(|&cluster| self.is_cluster_vacant(table, cluster));
        let found = found.or_else(|| table.grow().then_some(known));
        self.clusters_from = found.map_or(known, |cluster| cluster + 1);
        found.map(|cluster| cluster * WINDOWS as u32)
    }

    fn window(&mut self, table: &mut SlotTable) -> Option<u32> {
        let known = table.clusters() * WINDOWS as u32;
        let found = (self.windows_from..known).find(|&window| self.is_vacant(table, window));
        let found = found.or_else(|| table.grow().then_some(known));
        self.windows_from = found.map_or(known, |window| window + 1);
        found
    }

    /// A window may be somebody's home again.
    #[inline]
    fn vacated(&mut self, table: &SlotTable, window: u32) {
        if self.is_vacant(table, window) {
            self.windows_from = self.windows_from.min(window);
            let cluster = window / WINDOWS as u32;
            if cluster < self.clusters_from && self.is_cluster_vacant(table, cluster) {
                self.clusters_from = cluster;
            }
        }
    }
}

impl SlotAllocator for ByAddress {
    fn home(&mut self, table: &mut SlotTable, windows: u32) -> Option<u32> {
        assert!(windows == 1 || windows == WINDOWS as u32, "a window, or a whole cluster");
        let first = if windows == 1 { self.window(table) } else { self.cluster(table) }?;
        self.owned.resize((table.clusters() as usize) * WINDOWS, false);
        self.owned[first as usize..(first + windows) as usize].fill(true);
        Some(first)
    }

    /// The next free run at or after the cursor that holds all, or the longest of the next few; new
    /// clusters are begun at the end.
    ///
    /// *The story:* it was the next free run, however short. Where swap was full the pages of a window
    /// were scattered over ever smaller gaps, and came back by a read for every one or two.
    fn choose(&mut self, table: &mut SlotTable, count: u32) -> Option<(u32, u32)> {
        let mut slot = self.next;
        let mut wrapped = false;
        let mut longest: Option<(u32, u32)> = None;
        let (mut seen, mut steps) = (0, 0);
        while longest.is_none_or(|(_, run)| run < count && seen < LOOKS && steps < WINDOWS_LOOKED_AT) {
            steps += u32::from(longest.is_some());
            let known = table.known();
            if slot >= known {
                // Half of what is known is free: going round is better than spreading further.
                if (table.used() * 2 >= known || wrapped) && table.grow() {
                    slot = slot.min(known).max(1);
                    continue;
                }
                if wrapped {
                    break;
                }
                (slot, wrapped) = (1, true);
                continue;
            }
            let run = table.free_run(slot, count);
            if run > 0 {
                seen += 1;
                longest = longest.filter(|&(_, other)| other >= run).or(Some((slot, run)));
            }
            slot += run + table.taken_run(slot + run, WINDOW - (slot + run) % WINDOW);
        }
        let (slot, run) = longest?;
        self.next = slot + run;
        Some((slot, run))
    }

    #[inline]
    fn freed(&mut self, table: &SlotTable, slot: u32) {
        self.vacated(table, slot / WINDOW);
    }

    fn disown(&mut self, table: &SlotTable, window: u32) {
        self.owned[window as usize] = false;
        self.vacated(table, window);
    }
}
