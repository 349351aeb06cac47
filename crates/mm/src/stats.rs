//! Counters, with the kernel's names and meanings (specification 2.5 and 5.8) where the kernel has
//! the counter: of the whole, and of one region.

/// Everything `mm` counts. All values only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vmstat {
    /// Faults, first touches and soft faults included.
    pub pgfault: u64,
    /// Faults that had to read from swap, or from the file that a region stands for.
    pub pgmajfault: u64,
    /// Pages read from swap, or from files that regions stand for, read-ahead included.
    pub pswpin: u64,
    /// Of those, pages read from mapped files.
    pub file_in: u64,
    /// Pages written to swap.
    pub pswpout: u64,
    /// Pages read ahead (without the faulting one).
    pub swap_ra: u64,
    /// Read-ahead pages that were touched.
    pub swap_ra_hit: u64,
    /// Read-ahead pages that were evicted before their first touch.
    pub swap_ra_unused: u64,
    /// Pages looked at by background reclaim.
    pub pgscan_kswapd: u64,
    /// Pages freed by background reclaim.
    pub pgsteal_kswapd: u64,
    /// Pages looked at while a fault waited for a frame.
    pub pgscan_direct: u64,
    /// Pages freed while a fault waited for a frame.
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
    /// Touches of pages that reclaim had evicted.
    pub workingset_refault_anon: u64,
    /// Refaults close enough to go straight to the active list.
    pub workingset_activate_anon: u64,
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
    pub(crate) fn note_scan(&mut self, is_direct: bool, is_file: bool) {
        *(if is_direct { &mut self.pgscan_direct } else { &mut self.pgscan_kswapd }) += 1;
        *(if is_file { &mut self.pgscan_file } else { &mut self.pgscan_anon }) += 1;
    }

    /// Reclaim frees a page.
    pub(crate) fn note_steal(&mut self, is_direct: bool, is_file: bool) {
        *(if is_direct { &mut self.pgsteal_direct } else { &mut self.pgsteal_kswapd }) += 1;
        *(if is_file { &mut self.pgsteal_file } else { &mut self.pgsteal_anon }) += 1;
    }
}

/// What is counted for one region, by the region in which the page lies. All values only grow,
/// while the region is not cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionStats {
    /// Faults that had to read from swap, or from the file that a region stands for.
    pub pgmajfault: u64,
    /// Pages read ahead (without the faulting one).
    pub swap_ra: u64,
    /// Read-ahead pages that were touched.
    pub swap_ra_hit: u64,
    /// Read-ahead pages that were evicted before their first touch.
    pub swap_ra_unused: u64,
}
