//! When the active list is aged where there are access bits: the kernel's rules for a memory cgroup.
//!
//! The lists are compared and activations are looked at (specification 5.1, right column), but
//! through statistics that the kernel sums every two seconds only. Measured on 6.18, by its own
//! tracepoints (memcg_flush_stats, mm_vmscan_lru_shrink_active) while a load ran in a cgroup: the
//! sums come 2.02 s apart; in the two seconds after one of them some 67,000 pages were deactivated,
//! 40,000 of them within half a second, in the two before and the two after next to none. So ageing
//! comes in bursts, and a refault is held to be close by an active list as long as it was at the
//! last sum.

use crate::types::Nanos;

/// Between two sums.
const PERIOD: Nanos = 2_000_000_000;
/// Pages moved from the active to the inactive list at a time (SWAP_CLUSTER_MAX).
pub(crate) const BATCH: u32 = 32;
/// Visits that free a batch of pages: one starts the swap-out, the next frees (specification 5.2).
const VISITS: u32 = 2 * BATCH;
/// The first priority: a list is scanned by its length shifted right by this, then by one less
/// (specification 5.3).
const PRIORITY: u32 = 12;

/// What reclaim believes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ageing {
    period: Nanos,
    /// The period in which reclaim began.
    begun: Nanos,
    inactive: u32,
    active: u32,
    activations: u64,
    /// Activations as known when reclaim ended last.
    noted: u64,
    /// The active list is scanned along with the inactive one while this reclaim goes on.
    ongoing: bool,
    /// Parts of a page that the active list is still owed; the whole is the inactive list's length.
    owed: u64,
}

impl Ageing {
    /// Looks at the clock, and sums when a period has passed.
    pub fn look(&mut self, now: Nanos, inactive: u32, active: u32, activations: u64) {
        if now / PERIOD != self.period {
            (self.period, self.inactive, self.active) = (now / PERIOD, inactive, active);
            self.activations = activations;
        }
    }

    /// Length of the active list, for refault distances.
    pub fn active(&self) -> u32 {
        self.active
    }

    /// Has there been a sum since reclaim began? A reclaim that never gets its frames would else go
    /// by the same sums for ever.
    pub fn is_outdated(&self) -> bool {
        self.begun != self.period
    }

    /// Reclaim begins: gives how many pages are deactivated at once, to even the lists out, once
    /// for each priority.
    pub fn begin(&mut self) -> u32 {
        self.begun = self.period;
        let low = is_low(self.inactive, self.active, 1);
        self.ongoing = low || self.activations != self.noted;
        if low { BATCH * priorities(self.inactive) } else { 0 }
    }

    /// Reclaim has done its work.
    pub fn end(&mut self) {
        self.noted = self.activations;
        self.ongoing = false;
    }

    /// One inactive page is scanned: gives how many active ones are, in proportion to the lists as they are.
    pub fn due(&mut self, inactive: u32, active: u32) -> u32 {
        if !self.ongoing {
            return 0;
        }
        let whole = u64::from(inactive.max(1));
        self.owed += u64::from(active);
        let due = (self.owed / whole).min(u64::from(BATCH));
        self.owed %= whole;
        due as u32
    }
}

/// Is the inactive list too short: inactive x ratio < active (section 5.1)? On a machine `scale`
/// times as large.
pub(crate) fn is_low(inactive: u32, active: u32, scale: u32) -> bool {
    let pages = u64::from(inactive + active) * u64::from(scale);
    u64::from(inactive) * ratio(pages) < u64::from(active)
}

/// How much longer the active list may be than the inactive one: floor(sqrt(10 x GiB)), 1 below 1 GiB.
fn ratio(pages: u64) -> u64 {
    let gib = pages >> 18;
    if gib == 0 { 1 } else { (10 * gib).isqrt() }
}

/// Priorities that it takes to make [`VISITS`] to a list of `inactive` pages.
fn priorities(inactive: u32) -> u32 {
    let mut visits = 0;
    for taken in 1..=PRIORITY {
        visits += inactive >> (PRIORITY + 1 - taken);
        if visits >= VISITS {
            return taken;
        }
    }
    PRIORITY + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_the_table_of_section_5_1() {
        let table = [(1, 3), (2, 4), (4, 6), (8, 8), (16, 12), (32, 17), (64, 25), (256, 50), (1024, 101)];
        assert_eq!(ratio((1 << 18) - 1), 1);
        for (gib, expected) in table {
            assert_eq!(ratio(gib << 18), expected, "{gib} GiB");
        }
    }

    #[test]
    fn what_is_not_summed_is_not_known() {
        let mut ageing = Ageing::default();
        ageing.look(1, 10, 1000, 5);
        assert_eq!((ageing.begin(), ageing.active(), ageing.due(10, 1000)), (0, 0, 0));
        ageing.look(PERIOD, 10, 1000, 5);
        assert!(ageing.begin() >= BATCH);
        assert_eq!((ageing.active(), ageing.due(10, 25)), (1000, 2));
        assert_eq!((ageing.due(10, 25), ageing.due(10, 25)), (3, 2));
        ageing.end();
        assert_eq!(ageing.due(10, 25), 0);
    }

    #[test]
    fn long_lists_take_few_priorities() {
        assert_eq!([64 << 12, 49152, 4096, 64, 1].map(priorities), [1, 3, 7, 13, 13]);
    }
}
