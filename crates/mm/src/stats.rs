//! Counters, with the kernel's names and meanings (specification 2.5 and 5.8) where the kernel has
//! the counter: of the whole, and of one region.

use crate::ledger::Look;

/// What becomes of a page that is read ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ahead {
    /// It is being read.
    Read,
    /// It was touched.
    Used,
    /// It left before that.
    Unused,
}

macro_rules! counts_read_ahead {
    ($stats:ty) => {
        impl $stats {
            /// So many pages of a file, or of swap, were read ahead, or that came of it.
            pub(crate) fn note_ahead(&mut self, what: Ahead, is_file: bool, pages: u64) {
                *match (what, is_file) {
                    (Ahead::Read, false) => &mut self.swap_ra,
                    (Ahead::Used, false) => &mut self.swap_ra_hit,
                    (Ahead::Unused, false) => &mut self.swap_ra_unused,
                    (Ahead::Read, true) => &mut self.file_ra,
                    (Ahead::Used, true) => &mut self.file_ra_hit,
                    (Ahead::Unused, true) => &mut self.file_ra_unused,
                } += pages;
            }
        }
    };
}
counts_read_ahead!(Vmstat);
counts_read_ahead!(RegionStats);

/// Everything `mm` counts. All values only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vmstat {
    /// Faults, first touches and soft faults included.
    pub pgfault: u64,
    /// Faults that had to read from swap, or from the file that a region stands for.
    pub pgmajfault: u64,
    /// Pages read from swap, read-ahead included.
    pub pswpin: u64,
    /// Pages read from files that regions stand for, read-ahead included.
    pub file_in: u64,
    /// Pages written to swap.
    pub pswpout: u64,
    /// Pages read ahead from swap (without the faulting one).
    pub swap_ra: u64,
    /// Of these, pages that were touched.
    pub swap_ra_hit: u64,
    /// Of these, pages that were evicted before their first touch.
    pub swap_ra_unused: u64,
    /// Pages read ahead from files (without the faulting one).
    pub file_ra: u64,
    /// Of these, pages that were touched.
    pub file_ra_hit: u64,
    /// Of these, pages that were evicted before their first touch.
    pub file_ra_unused: u64,
    /// Pages looked at by background reclaim.
    pub pgscan_kswapd: u64,
    /// Pages freed that background reclaim had looked at.
    pub pgsteal_kswapd: u64,
    /// Pages looked at while a fault waited for a frame.
    pub pgscan_direct: u64,
    /// Pages freed that were looked at while a fault waited for a frame.
    pub pgsteal_direct: u64,
    /// Of the pages looked at, those whose bytes are no file's.
    pub pgscan_anon: u64,
    /// ... those whose bytes are in a file.
    pub pgscan_file: u64,
    /// Of the pages freed, those whose bytes are no file's.
    pub pgsteal_anon: u64,
    /// ... those whose bytes are in a file.
    pub pgsteal_file: u64,
    /// Times that room began to be made that no fault waited for.
    pub pageoutrun: u64,
    /// Pages whose write reclaim began.
    pub nr_vmscan_write: u64,
    /// Faults that had to wait for a frame.
    pub allocstall: u64,
    /// Pages that reclaim had evicted and that are read again, for a fault or ahead of one.
    pub workingset_refault_anon: u64,
    /// The same of pages whose bytes are in a file.
    pub workingset_refault_file: u64,
    /// Refaults close enough to go straight to the active list.
    pub workingset_activate_anon: u64,
    /// ... of pages whose bytes are in a file.
    pub workingset_activate_file: u64,
    /// Of these, pages that had been active before.
    pub workingset_restore_anon: u64,
    /// ... of pages whose bytes are in a file.
    pub workingset_restore_file: u64,
    /// Pages that moved to the active list.
    pub pgactivate: u64,
    /// Pages that moved from the active to the inactive list.
    pub pgdeactivate: u64,
    /// Pages looked at on the active list.
    pub pgrefill: u64,
    /// Pages given a zeroed frame.
    pub zero_fill: u64,
    /// Pages that showed the zero page when they were read first.
    pub zero_shown: u64,
    /// All-zero pages dropped without a write.
    pub zero_dropped: u64,
    /// Clean pages dropped without a write.
    pub clean_dropped: u64,
    /// Faults answered from the swap cache.
    pub soft_fault: u64,
    /// Read requests.
    pub read_ops: u64,
    /// Write requests.
    pub write_ops: u64,
}

impl Vmstat {
    /// Reclaim looks at a page.
    pub(crate) fn note_scan(&mut self, look: Look) {
        *(if look.is_direct { &mut self.pgscan_direct } else { &mut self.pgscan_kswapd }) += 1;
        *(if look.is_file { &mut self.pgscan_file } else { &mut self.pgscan_anon }) += 1;
    }

    /// A page is freed that was looked at.
    pub(crate) fn note_steal(&mut self, look: Look) {
        *(if look.is_direct { &mut self.pgsteal_direct } else { &mut self.pgsteal_kswapd }) += 1;
        *(if look.is_file { &mut self.pgsteal_file } else { &mut self.pgsteal_anon }) += 1;
    }

    /// What holds of the counters of reclaim at any time (specification 5.8).
    ///
    /// # Panics
    /// When it does not.
    pub fn check(&self) {
        let pairs = [
            (self.pgsteal_kswapd, self.pgscan_kswapd),
            (self.pgsteal_direct, self.pgscan_direct),
            (self.pgsteal_anon, self.pgscan_anon),
            (self.pgsteal_file, self.pgscan_file),
            (self.pgdeactivate, self.pgrefill),
            (self.workingset_activate_anon, self.workingset_refault_anon),
            (self.workingset_activate_file, self.workingset_refault_file),
            (self.workingset_restore_anon, self.workingset_activate_anon),
            (self.workingset_restore_file, self.workingset_activate_file),
            (self.pgmajfault, self.pgfault),
            (self.swap_ra, self.pswpin),
            (self.file_ra, self.file_in),
        ];
        assert!(pairs.iter().all(|(part, all)| part <= all), "a part of it is not more than it: {self:?}");
        let sums = [
            (self.pgscan_kswapd + self.pgscan_direct, self.pgscan_anon + self.pgscan_file),
            (self.pgsteal_kswapd + self.pgsteal_direct, self.pgsteal_anon + self.pgsteal_file),
        ];
        assert!(sums.iter().all(|(by, of)| by == of), "divided in two ways: {self:?}");
    }
}

/// What is counted for one region, by the region in which the page lies. All values only grow,
/// while the region is not cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionStats {
    /// Faults that had to read from swap, or from the file that a region stands for.
    pub pgmajfault: u64,
    /// Pages read ahead from swap (without the faulting one).
    pub swap_ra: u64,
    /// Of these, pages that were touched.
    pub swap_ra_hit: u64,
    /// Of these, pages that were evicted before their first touch.
    pub swap_ra_unused: u64,
    /// Pages read ahead from files (without the faulting one).
    pub file_ra: u64,
    /// Of these, pages that were touched.
    pub file_ra_hit: u64,
    /// Of these, pages that were evicted before their first touch.
    pub file_ra_unused: u64,
}
