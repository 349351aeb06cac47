//! What the outside sees: the counters of `mm`, latencies of faults, time stalled, written to the shared page.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use overspill_mm::Vmstat;
use overspill_mm::types::{Nanos, Vpn};
use overspill_sys::{Errno, clock};

use crate::shared::{Process, latency_bucket};

/// How a waiting thread was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Its page is there.
    Mapped,
    /// It tries again: the page changed meanwhile. Its latency is not counted.
    Retry,
}

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// A frame, or its page is in one.
    Soft,
    /// The compressed pool has it.
    Pool,
    /// It has to be read.
    Read,
}

/// Faults that are over: those that were read for, the time in which at least one such was waited for, and those that the pool
/// answered, with the sum of their times.
#[derive(Clone, Copy, Default)]
pub(crate) struct Waits {
    pub reads: u64,
    pub reads_ns: Nanos,
    pub loads: u64,
    pub loads_ns: Nanos,
}

/// A thread that waits for a page.
struct Pending {
    vpn: Vpn,
    wait: Wait,
    /// When its fault was read.
    since: Nanos,
}

/// What the compressed pool did.
#[derive(Default)]
pub(crate) struct PoolStats {
    pub frames: u32,
    /// Pages loaded from it, stored in it, written back from it.
    pub zswpin: u64,
    pub zswpout: u64,
    pub zswpwb: u64,
    /// Pages that it took in place of the device.
    pub taken: u64,
    /// Requests that it took in place of the device.
    pub whole_reads: u64,
    pub whole_writes: u64,
}

/// The pen that fills one [`Process`].
pub struct Report {
    process: &'static Process,
    pending: Vec<Pending>,
    waits: Waits,
    majors: u32,
    stalled_since: Nanos,
}

impl Report {
    /// Writes to `process` from now on.
    #[must_use]
    pub fn new(process: &'static Process) -> Self {
        Report {
            process,
            pending: Vec::with_capacity(256),
            waits: Waits::default(),
            majors: 0,
            stalled_since: 0,
        }
    }

    /// The shared record.
    #[must_use]
    pub fn process(&self) -> &'static Process {
        self.process
    }

    /// What was waited for until `now`.
    pub(crate) fn waits(&self, now: Nanos) -> Waits {
        let running = if self.majors > 0 { now - self.stalled_since } else { 0 };
        Waits { reads_ns: self.waits.reads_ns + running, ..self.waits }
    }

    pub(crate) fn fault_begins(&mut self, vpn: Vpn, wait: Wait, since: Nanos) {
        if self.pending.iter().any(|pending| pending.vpn == vpn) {
            return;
        }
        self.pending.push(Pending { vpn, wait, since });
        if wait == Wait::Read {
            if self.majors == 0 {
                self.stalled_since = since;
            }
            self.majors += 1;
        }
    }

    pub(crate) fn fault_ends(&mut self, first: Vpn, count: u32, answer: Answer) {
        if self.pending.is_empty() {
            return;
        }
        let now = clock::monotonic_ns();
        let mut at = 0;
        while at < self.pending.len() {
            let pending = &self.pending[at];
            if pending.vpn < first || pending.vpn.0 >= first.0 + u64::from(count) {
                at += 1;
                continue;
            }
            let pending = self.pending.swap_remove(at);
            if answer == Answer::Mapped {
                self.count_latency(&pending, now);
            }
            if pending.wait == Wait::Read {
                self.majors -= 1;
                if self.majors == 0 {
                    self.waits.reads_ns += now - self.stalled_since;
                    add(&self.process.counters.stalled_ns, now - self.stalled_since);
                }
            }
        }
    }

    fn count_latency(&mut self, pending: &Pending, now: Nanos) {
        let latency = now - pending.since;
        let histogram = match pending.wait {
            Wait::Soft => &self.process.soft_latency,
            Wait::Pool => {
                self.waits.loads += 1;
                self.waits.loads_ns += latency;
                &self.process.soft_latency
            }
            Wait::Read => {
                self.waits.reads += 1;
                &self.process.major_latency
            }
        };
        add(&histogram[latency_bucket(latency)], 1);
    }

    pub(crate) fn note_error(&mut self, errno: Errno) {
        self.process.error.store(errno.raw_os_error() as u32, Ordering::Relaxed);
    }

    /// The kernel's reason for the last failure; EBADMSG stands for a checksum that did not agree.
    #[must_use]
    pub fn last_error(&self) -> Errno {
        Errno::from_raw_os_error(self.process.error.load(Ordering::Relaxed) as i32)
    }

    /// Sets bits of [`crate::shared::events`].
    pub fn note_event(&mut self, bits: u32) {
        self.process.events.fetch_or(bits, Ordering::Relaxed);
    }

    /// Tells which ways the engine goes, and how large its swap area is.
    pub(crate) fn note_setup(&mut self, paths: u32, swap_bytes: u64) {
        self.process.paths.store(paths, Ordering::Relaxed);
        self.process.counters.swap_area_bytes.store(swap_bytes, Ordering::Relaxed);
    }

    /// Takes a sample of resident anonymous memory.
    pub fn sample_resident(&mut self, bytes: u64) {
        let counters = &self.process.counters;
        counters.resident_bytes.store(bytes, Ordering::Relaxed);
        raise(&counters.resident_peak_bytes, bytes);
        add(&counters.resident_sum_bytes, bytes);
        add(&counters.resident_samples, 1);
    }

    /// Tells how much of a processor the calling thread, the agent's, has taken so far.
    pub fn sample_cpu(&mut self) {
        self.process.counters.agent_cpu_ns.store(clock::thread_cpu_ns(), Ordering::Relaxed);
    }

    /// Takes a sample of what managed memory may hold when no more than the least is kept in reserve.
    pub fn sample_budget(&mut self, bytes: u64) {
        let counters = &self.process.counters;
        add(&counters.budget_sum_bytes, bytes);
        add(&counters.budget_samples, 1);
    }

    /// Copies the counters of `mm`; slots in use are in pages.
    pub(crate) fn publish(&mut self, stats: &Vmstat, packed: &PoolStats, slots_used: u32) {
        let c = &self.process.counters;
        let pairs = [
            (&c.pgfault, stats.pgfault),
            (&c.pgmajfault, stats.pgmajfault),
            (&c.pswpin, stats.pswpin - packed.zswpin),
            (&c.pswpout, stats.pswpout - packed.taken + packed.zswpwb),
            (&c.zswpin, packed.zswpin),
            (&c.zswpout, packed.zswpout),
            (&c.zswpwb, packed.zswpwb),
            (&c.swap_ra, stats.swap_ra),
            (&c.swap_ra_hit, stats.swap_ra_hit),
            (&c.swap_ra_unused, stats.swap_ra_unused),
            (&c.pgscan_kswapd, stats.pgscan_kswapd),
            (&c.pgsteal_kswapd, stats.pgsteal_kswapd),
            (&c.pgscan_direct, stats.pgscan_direct),
            (&c.pgsteal_direct, stats.pgsteal_direct),
            (&c.allocstall, stats.allocstall),
            (&c.workingset_refault_anon, stats.workingset_refault_anon),
            (&c.pgactivate, stats.pgactivate),
            (&c.pgdeactivate, stats.pgdeactivate),
            (&c.zero_fill, stats.zero_fill),
            (&c.zero_dropped, stats.zero_dropped),
            (&c.clean_dropped, stats.clean_dropped),
            (&c.read_ops, stats.read_ops - packed.whole_reads),
            (&c.write_ops, stats.write_ops - packed.whole_writes),
        ];
        for (shared, value) in pairs {
            shared.store(value, Ordering::Relaxed);
        }
        let swap_used = u64::from(slots_used) * overspill_sys::PAGE_SIZE as u64;
        c.swap_used_bytes.store(swap_used, Ordering::Relaxed);
        raise(&c.swap_peak_bytes, swap_used);
        raise(&c.pool_peak_bytes, u64::from(packed.frames) * overspill_sys::PAGE_SIZE as u64);
    }
}

fn add(counter: &AtomicU64, value: u64) {
    // One writer: a plain load and store is enough.
    counter.store(counter.load(Ordering::Relaxed) + value, Ordering::Relaxed);
}

fn raise(counter: &AtomicU64, value: u64) {
    if counter.load(Ordering::Relaxed) < value {
        counter.store(value, Ordering::Relaxed);
    }
}
