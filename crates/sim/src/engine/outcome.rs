//! What a simulation found out.

use super::histogram::Histogram;
use super::pool::PoolOutcome;
use crate::device::Usage;
use crate::time::Nanos;
use overspill_mm::Vmstat;

/// What an answered fault had waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultClass {
    /// A read from the device, its own or one that had been ordered before.
    Read,
    /// A page of the swap cache, or permission to store.
    Soft,
    /// A zeroed frame.
    Fill,
}

/// How one thread fared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadOutcome {
    /// Which workload, in the order in which they were added.
    pub program: usize,
    /// Its thread.
    pub thread: u16,
    /// When it began.
    pub start_ns: Nanos,
    /// When it had done its last access.
    pub end_ns: Nanos,
    /// Its accesses.
    pub accesses: u64,
    /// Time spent waiting for faults.
    pub stalled_ns: Nanos,
    /// Latencies of its faults on pages that it had touched before.
    pub refaults: Histogram,
}

/// The figures of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// From the start until the last thread was done.
    pub elapsed_ns: Nanos,
    /// Accesses of all threads.
    pub accesses: u64,
    /// `mm`'s counters; pages that a compressed pool took or gave are not among those of the device.
    pub vmstat: Vmstat,
    /// What the compressed pool did, if there was one.
    pub pool: Option<PoolOutcome>,
    /// Latencies of faults that waited for a read. Those that found their page on its way, by read-ahead
    /// or for another thread, are minor all the same (specification 1.7).
    pub waited: Histogram,
    /// Latencies of faults answered from the swap cache.
    pub soft: Histogram,
    /// Latencies of first touches.
    pub fill: Histogram,
    /// The device.
    pub device: Usage,
    /// Processor time of the pager (0 for the kernel, whose time is the threads' own).
    pub pager_ns: Nanos,
    /// Most frames held at once, but for those of the compressed pool.
    pub frames_max: u64,
    /// By thread.
    pub threads: Vec<ThreadOutcome>,
    /// Touches of pages that could not be read back.
    pub lost: u64,
}

impl Outcome {
    /// Latencies of all faults.
    #[must_use]
    pub fn faults(&self) -> Histogram {
        let mut all = self.waited.clone();
        all.merge(&self.soft);
        all.merge(&self.fill);
        all
    }

    /// Faults that had to read: `pgmajfault`.
    #[must_use]
    pub fn major_faults(&self) -> u64 {
        self.vmstat.pgmajfault
    }

    /// Faults that found their page in the swap cache, there or on its way, or asked for leave to store.
    #[must_use]
    pub fn soft_faults(&self) -> u64 {
        (self.soft.count() + self.waited.count()).saturating_sub(self.vmstat.pgmajfault)
    }

    /// Time that threads spent waiting for faults.
    #[must_use]
    pub fn stalled_ns(&self) -> Nanos {
        self.threads.iter().map(|thread| thread.stalled_ns).sum()
    }
}
