//! What the outside sees: the counters of `mm`, latencies of faults, time stalled, written to the
//! shared page.

use core::sync::atomic::{AtomicU64, Ordering};

use overspill_mm::Vmstat;
use overspill_mm::pool::Waits;
use overspill_mm::types::{Nanos, Vpn};
use overspill_sys::{Errno, clock};

use crate::shared::{Process, latency_bucket};
use crate::waiters::Waiters;

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
    /// It is being read already: somebody else waits for it, or it is read ahead.
    Coming,
    /// It has to be read.
    Read,
}

/// A thread that waits for a page.
struct Pending {
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

/// Counts the time in which at least one thread waits.
#[derive(Default)]
struct Stopwatch {
    waiting: u32,
    since: Nanos,
}

impl Stopwatch {
    fn start(&mut self, now: Nanos) {
        if self.waiting == 0 {
            self.since = now;
        }
        self.waiting += 1;
    }

    /// The time that is over when nobody waits any more.
    fn stop(&mut self, now: Nanos) -> Nanos {
        self.waiting -= 1;
        if self.waiting == 0 { now.saturating_sub(self.since) } else { 0 }
    }

    fn running(&self, now: Nanos) -> Nanos {
        if self.waiting == 0 { 0 } else { now.saturating_sub(self.since) }
    }
}

/// The pen that fills one [`Process`].
pub struct Report {
    process: &'static Process,
    pending: Waiters<Vpn, Pending>,
    waits: Waits,
    /// Threads that wait for what is read for them; for anything that was paged out; at all.
    for_reads: Stopwatch,
    for_swap: Stopwatch,
    at_all: Stopwatch,
}

/// Why a mapping of a file is the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// It is shared and writable.
    Writable,
    /// It is executable.
    Executable,
    /// The file is in memory.
    InMemory,
    /// It is locked.
    Locked,
    /// It is small.
    Small,
    /// Somebody writes to the file, or could, unheard.
    Changing,
    /// Anything else.
    Other,
}

impl Left {
    /// All of them.
    pub const ALL: [Left; 7] = [
        Left::Writable,
        Left::Executable,
        Left::InMemory,
        Left::Locked,
        Left::Small,
        Left::Changing,
        Left::Other,
    ];
}

impl Report {
    /// Writes to `process` from now on.
    #[must_use]
    pub fn new(process: &'static Process) -> Self {
        Report {
            process,
            pending: Waiters::new(),
            waits: Waits::default(),
            for_reads: Stopwatch::default(),
            for_swap: Stopwatch::default(),
            at_all: Stopwatch::default(),
        }
    }

    /// A mapping of a file of so many bytes is managed.
    pub fn note_file(&self, bytes: u64) {
        let counters = &self.process.counters;
        counters.files_managed.fetch_add(1, Ordering::Relaxed);
        counters.files_managed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many mappings of files, of so many bytes, are left to the kernel while they fit.
    pub fn note_files_kept(&self, mappings: u64, bytes: u64) {
        let counters = &self.process.counters;
        counters.files_kept.fetch_add(mappings, Ordering::Relaxed);
        counters.files_kept_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Of those so many bytes are in RAM.
    pub fn sample_files_kept(&self, bytes: u64) {
        self.process.counters.files_kept_resident_bytes.store(bytes, Ordering::Relaxed);
    }

    /// A mapping of a file of so many bytes is the kernel's.
    pub fn note_file_left(&self, why: Left, bytes: u64) {
        let counters = &self.process.counters;
        counters.files_left.fetch_add(1, Ordering::Relaxed);
        let of_reason = match why {
            Left::Writable => &counters.files_left_writable_bytes,
            Left::Executable => &counters.files_left_executable_bytes,
            Left::InMemory => &counters.files_left_memory_bytes,
            Left::Locked => &counters.files_left_locked_bytes,
            Left::Small => &counters.files_left_small_bytes,
            Left::Changing => &counters.files_left_changing_bytes,
            Left::Other => &counters.files_left_other_bytes,
        };
        of_reason.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes of files were asked for ahead, of which some are not read for it.
    pub fn note_foreseen(&self, asked: u64, cut: u64) {
        let counters = &self.process.counters;
        counters.files_asked_bytes.fetch_add(asked, Ordering::Relaxed);
        counters.files_asked_cut_bytes.fetch_add(cut, Ordering::Relaxed);
    }

    /// The shared record.
    #[must_use]
    pub fn process(&self) -> &'static Process {
        self.process
    }

    /// What was waited for until `now`.
    pub(crate) fn waits(&self, now: Nanos) -> Waits {
        Waits { reads_ns: self.waits.reads_ns + self.for_reads.running(now), ..self.waits }
    }

    pub(crate) fn fault_begins(&mut self, vpn: Vpn, wait: Wait, since: Nanos) {
        if !self.pending.enter(vpn, || Pending { wait, since }) {
            return;
        }
        if wait == Wait::Read {
            self.for_reads.start(since);
        }
        if wait != Wait::Soft {
            self.for_swap.start(since);
        }
        self.at_all.start(since);
    }

    pub(crate) fn fault_ends(&mut self, first: Vpn, count: u32, answer: Answer) {
        let end = Vpn(first.0 + u64::from(count));
        let Some(mut pending) = self.pending.take_first(first, end) else { return };
        let now = clock::monotonic_ns();
        loop {
            self.count_end(&pending, now, answer);
            let Some(next) = self.pending.take_first(first, end) else { return };
            pending = next;
        }
    }

    fn count_end(&mut self, pending: &Pending, now: Nanos, answer: Answer) {
        if answer == Answer::Mapped {
            self.count_latency(pending, now);
        }
        if pending.wait == Wait::Read {
            self.waits.reads_ns += self.for_reads.stop(now);
        }
        let counters = &self.process.counters;
        if pending.wait != Wait::Soft {
            add(&counters.stalled_ns, self.for_swap.stop(now));
        }
        add(&counters.waiting_ns, self.at_all.stop(now));
    }

    fn count_latency(&mut self, pending: &Pending, now: Nanos) {
        let latency = now - pending.since;
        let histogram = match pending.wait {
            Wait::Soft | Wait::Coming => &self.process.soft_latency,
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

    /// Somebody waited for the process's turn for so long: see [`crate::turnstile`].
    pub fn note_wait(&mut self, waited: Nanos) {
        let counters = &self.process.counters;
        for counter in [&counters.stalled_ns, &counters.waiting_ns, &counters.held_ns] {
            add(counter, waited);
        }
    }

    pub(crate) fn note_error(&mut self, errno: Errno) {
        self.process.error.store(errno.raw_os_error() as u32, Ordering::Relaxed);
    }

    /// The kernel's reason for the last failure; EBADMSG stands for a checksum that did not agree.
    #[must_use]
    pub fn last_error(&self) -> Errno {
        Errno::from_raw_os_error(self.process.error.load(Ordering::Relaxed) as i32)
    }

    /// Sets bits of [`crate::shared::events`]. True: not all of them were set before.
    pub fn note_event(&mut self, bits: u32) -> bool {
        self.process.events.fetch_or(bits, Ordering::Relaxed) & bits != bits
    }

    /// Tells which ways the engine goes, and how large its swap area is.
    pub(crate) fn note_setup(&mut self, paths: u32, swap_bytes: u64) {
        self.process.paths.store(paths, Ordering::Relaxed);
        self.process.counters.swap_area_bytes.store(swap_bytes, Ordering::Relaxed);
    }

    /// Areas came or went.
    pub(crate) fn note_areas(&mut self, swap_bytes: u64) {
        self.process.counters.swap_area_bytes.store(swap_bytes, Ordering::Relaxed);
    }

    /// Takes a sample of what is resident: `bytes` of anonymous memory and of files that the kernel keeps
    /// while they fit, and what there is of other files and shared memory.
    pub fn sample_resident(&mut self, bytes: u64, shared_bytes: u64) {
        let counters = &self.process.counters;
        raise(&counters.rss_peak_bytes, bytes + shared_bytes);
        counters.resident_bytes.store(bytes, Ordering::Relaxed);
        raise(&counters.resident_peak_bytes, bytes);
        add(&counters.resident_sum_bytes, bytes);
        add(&counters.resident_samples, 1);
    }

    /// Tells what lies in slots that kin may know: see `Engine::heritage_bytes`.
    pub fn sample_heritage(&mut self, (inherited_bytes, gone_bytes): (u64, u64)) {
        let counters = &self.process.counters;
        counters.inherited_bytes.store(inherited_bytes, Ordering::Relaxed);
        counters.inherited_gone_bytes.store(gone_bytes, Ordering::Relaxed);
    }

    /// Tells how much of what kin has was copied only so that it could leave, and how many pages may have
    /// been stored to by now.
    pub fn sample_copies(&mut self, copied_bytes: u64, stored_pages: u32) {
        let counters = &self.process.counters;
        counters.copied_bytes.store(copied_bytes, Ordering::Relaxed);
        counters.stored_pages.store(stored_pages.into(), Ordering::Relaxed);
    }

    /// Tells how much memory the program has, in RAM or not, each page once; and how much of it left as
    /// zeroes, which is nowhere.
    pub fn sample_needed(&mut self, bytes: u64, blank_bytes: u64) {
        let counters = &self.process.counters;
        counters.needed_bytes.store(bytes, Ordering::Relaxed);
        counters.blank_bytes.store(blank_bytes, Ordering::Relaxed);
        raise(&counters.needed_peak_bytes, bytes);
        raise(&counters.needed_most_peak_bytes, bytes + blank_bytes);
    }

    /// Tells how much of what is resident nobody has asked for.
    pub(crate) fn sample_unseen(&mut self, bytes: u64) {
        let counters = &self.process.counters;
        counters.files_unseen_bytes.store(bytes, Ordering::Relaxed);
        raise(&counters.files_unseen_peak_bytes, bytes);
    }

    /// Was anything ever resident that nobody had asked for?
    pub(crate) fn has_filled(&self) -> bool {
        self.process.counters.files_unseen_peak_bytes.load(Ordering::Relaxed) > 0
    }

    /// Tells how much of what is resident cannot be paged.
    pub fn sample_fixed(&mut self, bytes: u64) {
        self.process.counters.fixed_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Tells how much of a processor the calling thread, the agent's, has taken so far.
    pub fn sample_cpu(&mut self) {
        let counters = &self.process.counters;
        counters.agent_system_ns.store(clock::thread_system_ns(), Ordering::Relaxed);
        counters.agent_cpu_ns.store(clock::thread_cpu_ns(), Ordering::Relaxed);
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
            (&c.files_read, stats.file_in),
            (&c.files_ahead, stats.file_ra),
            (&c.files_ahead_hit, stats.file_ra_hit),
            (&c.files_ahead_unused, stats.file_ra_unused),
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
            (&c.pgscan_anon, stats.pgscan_anon),
            (&c.pgscan_file, stats.pgscan_file),
            (&c.pgsteal_anon, stats.pgsteal_anon),
            (&c.pgsteal_file, stats.pgsteal_file),
            (&c.allocstall, stats.allocstall),
            (&c.pageoutrun, stats.pageoutrun),
            (&c.nr_vmscan_write, stats.nr_vmscan_write),
            (&c.workingset_refault_anon, stats.workingset_refault_anon),
            (&c.workingset_refault_file, stats.workingset_refault_file),
            (&c.workingset_activate_anon, stats.workingset_activate_anon),
            (&c.workingset_activate_file, stats.workingset_activate_file),
            (&c.workingset_restore_anon, stats.workingset_restore_anon),
            (&c.workingset_restore_file, stats.workingset_restore_file),
            (&c.pgactivate, stats.pgactivate),
            (&c.pgdeactivate, stats.pgdeactivate),
            (&c.pgrefill, stats.pgrefill),
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;

    /// *The story:* jq took 4.2 times as long and was called comfortable: most of its touches
    /// waited for pages that were read ahead already, which counted as no waiting at all.
    #[test]
    fn who_waits_for_a_page_that_is_on_its_way_waits() {
        let mut report = Report::new(Box::leak(Box::new(Process::new())));
        let counter = |report: &Report, name| {
            let mut counters = report.process().counters.each();
            counters.find(|(own, _)| *own == name).expect("it is a counter").1
        };
        let since = clock::monotonic_ns() - 5_000_000;
        report.fault_begins(Vpn(1), Wait::Coming, since);
        report.fault_ends(Vpn(1), 1, Answer::Mapped);
        assert!(counter(&report, "stalled_ns") >= 5_000_000);
        let stalled_ns = counter(&report, "stalled_ns");
        report.fault_begins(Vpn(2), Wait::Soft, since);
        report.fault_ends(Vpn(2), 1, Answer::Mapped);
        assert_eq!(counter(&report, "stalled_ns"), stalled_ns, "nothing was paged out");
        assert!(counter(&report, "waiting_ns") >= 10_000_000);
        assert_eq!(report.waits(clock::monotonic_ns()).reads_ns, 0, "nobody read for it");
    }

    #[test]
    fn time_in_which_several_wait_counts_once() {
        let mut watch = Stopwatch::default();
        watch.start(10);
        watch.start(15);
        assert_eq!((watch.stop(20), watch.running(22), watch.stop(30), watch.running(40)), (0, 12, 20, 0));
    }
}
