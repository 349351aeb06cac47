//! Idle processors stay awake while the program waits for one page after another.
//!
//! A fault wakes the agent and the agent wakes whoever waits, each on a processor that is idle by
//! then; and the device interrupts one that is idle, too. A processor that sleeps takes 10 to 40 us
//! for each of these on a virtual machine (it must be entered anew), and as long as its deepest
//! sleep allows elsewhere. So while faults follow each other the machine is asked to let idle
//! processors look for work instead. That takes access to /dev/cpu_dma_latency (root); without it
//! things are merely slower.
//!
//! *The story:* before, the agent bound itself and, for the microseconds of an answer, the waiting
//! thread to one processor, and came before ordinary threads meanwhile (`SCHED_FIFO`). That does
//! not keep the thread from running: after a real-time thread has kept a processor busy for a while
//! the kernel lets ordinary ones go first, and a thread that was started just then inherited the
//! narrow set for life. In one run of ten `bench random` ran so.

use overspill_mm::types::Nanos;
use overspill_sys::idle::WakeLatency;

/// Faults that come at most so far apart follow each other.
const RECENT_NS: Nanos = 2_000_000;

/// Whether processors are kept awake.
pub(crate) struct Vigil {
    /// None: not wanted, or not allowed.
    latency: Option<WakeLatency>,
    is_kept: bool,
    last_fault: Nanos,
}

impl Vigil {
    /// `wanted`: if it may be.
    pub fn new(wanted: bool) -> Self {
        let latency = if wanted { WakeLatency::open().ok() } else { None };
        Vigil { latency, is_kept: false, last_fault: 0 }
    }

    /// Can it be kept at all?
    pub fn is_possible(&self) -> bool {
        self.latency.is_some()
    }

    /// A thread waits for a page since `now`.
    pub fn fault(&mut self, now: Nanos) {
        if !self.is_kept && self.is_recent(now) {
            self.keep(true);
        }
        self.last_fault = now;
    }

    /// Time passed.
    pub fn tick(&mut self, now: Nanos) {
        if self.is_kept && !self.is_recent(now) {
            self.keep(false);
        }
    }

    fn is_recent(&self, now: Nanos) -> bool {
        now.saturating_sub(self.last_fault) < RECENT_NS
    }

    fn keep(&mut self, keep: bool) {
        if let Some(latency) = &self.latency {
            let set = if keep { latency.forbid_sleep() } else { latency.allow_sleep() };
            self.is_kept = keep && set.is_ok();
        }
    }
}
