//! One workload under many machines: every combination of RAM, read-ahead, device and system, on all cores.
//!
//! Each combination is a simulation of its own, so they run side by side, and the rows come out in
//! the order of the combinations whoever finishes first. The workload is begun anew for each.

use crate::device::params::Model;
use crate::engine::outcome::Outcome;
use crate::engine::pool::PoolModel;
use crate::engine::{Engine, Options};
use crate::generate::{Load, Spec};
use crate::time::Nanos;
use crate::workload::{Workload, WorkloadError};
use overspill_mm::readahead::policy::{self, Policy};
use overspill_mm::reclaim::policy::Choice;
use overspill_mm::types::{CHUNK_PAGES, PAGE_SIZE};
use overspill_mm::{Config, Probe};
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which system manages the memory: the names of `--policy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// The live pager: no hardware bits, faults sent to a reactor.
    Live,
    /// A kernel, for the pages of a memory cgroup: hardware bits, faults handled where they happen.
    Kernel,
    /// A kernel of 2012, for all pages of a machine.
    Kernel2012,
    /// A kernel of 2017: the same but for what read-ahead marks, and for slots on what does not rotate.
    Kernel2017,
}

impl System {
    /// The names.
    pub const NAMES: [&str; 4] = ["live", "kernel", "kernel-2012", "kernel-2017"];

    /// The live pager with a reclaim policy of its own is called by both names.
    pub const LIVE_WITH: &str = "live:";

    /// The system of that name, and its reclaim policy: `live` has the default, `live:NAME` another.
    #[must_use]
    pub fn with_reclaim(name: &str) -> Option<(System, Choice)> {
        match name.strip_prefix(System::LIVE_WITH) {
            Some(reclaim) => Some((System::Live, Choice::by_name(reclaim)?)),
            None => Some((System::of_name(name)?, Choice::default())),
        }
    }

    /// The system of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<System> {
        match name {
            "live" => Some(System::Live),
            "kernel" => Some(System::Kernel),
            "kernel-2012" => Some(System::Kernel2012),
            "kernel-2017" => Some(System::Kernel2017),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Live => "live",
            System::Kernel => "kernel",
            System::Kernel2012 => "kernel-2012",
            System::Kernel2017 => "kernel-2017",
        }
    }
}

/// One machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The budget.
    pub ram_bytes: u64,
    /// A name of [`policy::NAMES`].
    pub readahead: String,
    /// The swap device.
    pub device: Model,
    /// The swap area, on the device; `None`: room for all pages, twice over, as far as that has it.
    pub swap_bytes: Option<u64>,
    /// Who manages.
    pub system: System,
    /// Which pages leave; the live pager's.
    pub reclaim: Choice,
    /// The live pager has a feed of accessed bits, which are those of the simulated hardware.
    pub accessed: bool,
    /// The live pager's compressed pool.
    pub pool: Option<PoolModel>,
    /// Knobs of the read-ahead.
    pub knobs: policy::Knobs,
    /// Processors for the program; 0 = one for each thread.
    pub processors: u32,
    /// End after this time.
    pub until: Option<Nanos>,
}

impl Machine {
    /// A machine of which nothing else is asked: the default reclaim policy and knobs, a swap area
    /// with room for all pages, a processor for each thread, to the end of the load.
    #[must_use]
    pub fn new(system: System, ram_bytes: u64, readahead: &str, device: Model) -> Machine {
        Machine {
            ram_bytes,
            readahead: readahead.to_owned(),
            device,
            swap_bytes: None,
            system,
            reclaim: Choice::default(),
            accessed: false,
            pool: None,
            knobs: policy::Knobs::default(),
            processors: 0,
            until: None,
        }
    }

    /// Does the kernel read single pages from the device as it answers within the call (4.15 and later)?
    fn is_synchronous(&self) -> bool {
        self.system == System::Kernel && self.device.synchronous()
    }

    /// The name of its system, as `--policy` has it.
    #[must_use]
    pub fn policy_name(&self) -> String {
        if self.reclaim == Choice::default() {
            return self.system.name().to_owned();
        }
        format!("{}{}", System::LIVE_WITH, self.reclaim.name())
    }
}

/// What a workload is like, as far as machines for it must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Extent {
    /// Distinct pages.
    pub pages: u64,
    /// 2 MiB pieces of address space that they lie in.
    pub chunks: u64,
}

impl Extent {
    /// Goes through the accesses once.
    pub fn of(workloads: Vec<Box<dyn Workload + Send>>) -> Result<Extent, WorkloadError> {
        let mut extent = Extent::default();
        for mut workload in workloads {
            extent.add(&mut *workload)?;
        }
        Ok(extent)
    }

    /// Goes through the accesses of one more.
    pub fn add(&mut self, workload: &mut dyn Workload) -> Result<(), WorkloadError> {
        let mut pages: HashSet<(u16, u64)> = HashSet::new();
        let mut chunks: HashSet<(u16, u64)> = HashSet::new();
        let mut last = None;
        while let Some(access) = workload.next()? {
            let place = (access.space, access.vpn);
            if last != Some(place) && pages.insert(place) {
                chunks.insert((access.space, access.vpn / CHUNK_PAGES));
            }
            last = Some(place);
        }
        self.pages += pages.len() as u64;
        self.chunks += chunks.len() as u64;
        Ok(())
    }

    /// Of a load whose programs say themselves what they touch.
    #[must_use]
    pub fn of_load(load: &Load) -> Extent {
        let chunks = |spec: &Spec| (spec.start + spec.pages).div_ceil(CHUNK_PAGES) - spec.start / CHUNK_PAGES;
        Extent { pages: load.pages(), chunks: load.programs.iter().map(chunks).sum() }
    }

    /// Bytes of its pages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages * PAGE_SIZE
    }

    /// A swap area in which all of it finds room, by address too, and that never gets more than half full.
    fn slots(&self) -> u64 {
        (self.chunks + 2) * CHUNK_PAGES * 2 + self.pages / 8
    }
}

/// The options of the engine for `machine`.
#[must_use]
pub fn options(machine: &Machine, extent: &Extent) -> Options {
    let budget = u32::try_from((machine.ram_bytes / PAGE_SIZE).max(16)).unwrap_or(u32::MAX);
    let device = machine.device.clone();
    let room = device.room_bytes() / PAGE_SIZE;
    let slots = machine.swap_bytes.map_or(extent.slots().min(room), |bytes| bytes / PAGE_SIZE);
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    let window = if machine.readahead == "none" { 1 } else { 1 << machine.knobs.page_cluster.min(16) };
    let mut options = match machine.system {
        System::Live => Options {
            managed_from: u64::from(budget) * Config::MANAGED_FROM_PERCENT / 100,
            pool: machine.pool,
            ..Options::live(budget, slots, device)
        },
        System::Kernel => Options::kernel(budget, slots, device, window),
        System::Kernel2012 => Options::kernel_2012(budget, slots, device, window),
        System::Kernel2017 => Options::kernel_2017(budget, slots, device, window),
    };
    options.mm.reclaim = machine.reclaim;
    if machine.accessed && machine.system == System::Live {
        options.mm.probe = Probe::Accessed;
    }
    Options { processors: machine.processors, until: machine.until, ..options }
}

/// Runs `workloads` on `machine`.
pub fn simulate(
    machine: &Machine,
    extent: &Extent,
    workloads: Vec<Box<dyn Workload + Send>>,
) -> Result<Outcome, WorkloadError> {
    simulate_with(options(machine, extent), machine, workloads)
}

/// The same with options of the engine that differ from the machine's own.
pub fn simulate_with(
    options: Options,
    machine: &Machine,
    workloads: Vec<Box<dyn Workload + Send>>,
) -> Result<Outcome, WorkloadError> {
    let config = policy::Config {
        knobs: machine.knobs,
        rotating: machine.device.rotating(),
        synchronous: machine.is_synchronous(),
        // Kernels before 4.13 marked what was cached already, too.
        marks_cached: machine.system == System::Kernel2012,
        frames: options.mm.budget,
    };
    let policy = Policy::by_name(&machine.readahead, config).expect("the name was checked");
    let mut engine = Engine::new(options, policy);
    for workload in workloads {
        engine.add(workload)?;
    }
    engine.run()
}

/// Runs `jobs` numbered jobs, `threads` at a time; results by number. `done` hears how many are finished.
pub fn parallel<T: Send>(
    jobs: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
    done: impl Fn(usize) + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let finished = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<T>>> = (0..jobs).map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.max(1)) {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let Some(place) = results.get(job) else { break };
                    let result = work(job);
                    *place.lock().expect("nobody panics with the lock") = Some(result);
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let taken = |place: Mutex<Option<T>>| place.into_inner().expect("nobody panics with the lock");
    results.into_iter().map(|place| taken(place).expect("every job was done")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;
    use crate::workload::Access;

    fn machine(ram_bytes: u64, readahead: &str, system: System) -> Machine {
        Machine::new(system, ram_bytes, readahead, Model::builtin("nvme").expect("built in"))
    }

    #[test]
    fn slots_are_placed_as_the_era_has_it() {
        use overspill_mm::Placement;
        let placement = |system, device: &str| {
            let device = Model::builtin(device).expect("built in");
            options(&Machine::new(system, 1 << 20, "linux", device), &Extent::default()).mm.placement
        };
        assert_eq!(placement(System::Kernel, "nvme"), Placement::InOrder);
        assert_eq!(placement(System::Kernel2012, "nvme"), Placement::NextFit, "before clusters");
        assert_eq!(placement(System::Kernel2017, "nvme"), Placement::Ssd);
        assert_eq!(placement(System::Kernel2017, "hdd"), Placement::NextFit, "a disk has none");
    }

    /// *The story:* of a workload that is half as large as a disk the area went beyond its end, where a
    /// request was a panic.
    #[test]
    fn the_swap_area_ends_with_its_device() {
        let device = Model::builtin("hdd-2007").expect("built in");
        let room = device.room_bytes() / PAGE_SIZE;
        let machine = Machine::new(System::Live, 1 << 30, "none", device);
        let extent = Extent { pages: room * 3 / 4, chunks: room * 3 / 4 / CHUNK_PAGES };
        assert_eq!(u64::from(options(&machine, &extent).mm.swap_slots), room);
        let small = Extent { pages: 5000, chunks: 10 };
        assert_eq!(u64::from(options(&machine, &small).mm.swap_slots), small.slots());
    }

    /// One thread that stores to these pages.
    struct Laps(Box<dyn Iterator<Item = u64> + Send>);

    impl Workload for Laps {
        fn next(&mut self) -> Result<Option<Access>, WorkloadError> {
            let access = |vpn| Access { vpn, think_ns: 100, thread: 0, space: 0, write: true };
            Ok(self.0.next().map(access))
        }
    }

    /// With accessed bits the pager sees the touches of what is in view: it keeps more of what is hot,
    /// and has fewer soft faults.
    #[test]
    fn a_feed_of_accessed_bits_tells_what_is_hot() {
        let load = generate::parse("zipf:size=8M,touches=100k").expect("a load");
        let extent = Extent::of(load.start()).expect("no error");
        let [without, with] = [false, true].map(|accessed| {
            let machine = Machine { accessed, ..machine(4 << 20, "none", System::Live) };
            simulate(&machine, &extent, load.start()).expect("it runs").vmstat
        });
        assert!(with.pswpin * 100 < without.pswpin * 97, "{} and {}", with.pswpin, without.pswpin);
        assert!(with.soft_fault < without.soft_fault);
    }

    /// *The story:* whoever was found used in view became active, however long ago it was used before:
    /// of a loop all were, and of a walk up and down. With accessed bits the default read more than
    /// without: 0.99 of LRU in place of 0.59, and 1.96 in place of 1.31.
    #[test]
    fn with_accessed_bits_a_loop_keeps_what_fits_and_a_walk_up_and_down_is_not_upset() {
        let loops = || (0..30).flat_map(|_| 0..2000);
        let walks =
            || (0..30).flat_map(|lap| (0..2000).map(move |at| if lap % 2 == 0 { at } else { 1999 - at }));
        let read = |touches: Box<dyn Fn() -> Laps>| {
            let start = || -> Vec<Box<dyn Workload + Send>> { vec![Box::new(touches())] };
            let extent = Extent::of(start()).expect("no error");
            let machine = Machine { accessed: true, ..machine(1500 * PAGE_SIZE, "none", System::Live) };
            simulate(&machine, &extent, start()).expect("no error").vmstat.pswpin
        };
        let of_loop = read(Box::new(move || Laps(Box::new(loops()))));
        assert!(of_loop < 29 * 2000 * 2 / 5, "{of_loop} pages, of 58,000 in order of use");
        let of_walk = read(Box::new(move || Laps(Box::new(walks()))));
        assert!(of_walk < 29 * 500 * 4 / 3, "{of_walk} pages, of 14,500 in order of use");
    }

    fn simulated(machine: &Machine, load: &str) -> Outcome {
        let load = generate::parse(load).expect("a load");
        let extent = Extent::of(load.start()).expect("no error");
        simulate(machine, &extent, load.start()).expect("no error")
    }

    /// *The story:* the simulated kernel of today read ahead from compressed RAM (specification 1.6), that
    /// of 2017 does so.
    #[test]
    fn the_kernel_reads_single_pages_from_compressed_ram_since_4_15() {
        let run = |system, readahead, device| {
            let device = Model::builtin(device).expect("built in");
            let vmstat =
                simulated(&Machine::new(system, 12 << 20, readahead, device), "seq:size=16M,laps=2").vmstat;
            (vmstat.pswpin, vmstat.swap_ra)
        };
        let (pages, ahead) = run(System::Kernel, "linux", "zram-lz4");
        assert!(pages > 4000 && ahead == 0, "{pages} {ahead}");
        assert!(run(System::Kernel, "vma", "zram-lz4").1 > 0, "by name it may");
        assert!(run(System::Kernel, "linux", "nvme").1 > 0);
        assert!(run(System::Kernel2017, "linux", "zram-lz4").1 > 0);
    }

    /// *The story:* the kernels of 2012 and 2017 kept some frames back, so that blind read-ahead of eight
    /// pages began with one (specification 1.4).
    #[test]
    fn kernels_allocate_for_a_whole_window() {
        for system in [System::Kernel, System::Kernel2012, System::Kernel2017] {
            let machine = machine(16 << 20, "blind", system);
            let vmstat = simulated(&machine, "random:size=64M,touches=1,prefill").vmstat;
            assert_eq!((vmstat.pgmajfault, vmstat.pswpin), (1, 8), "{system:?}");
        }
    }

    /// *The story:* who touched a page that was on its way by read-ahead was counted as a major fault:
    /// 12,833 where 8,200 had read (specification 1.7).
    #[test]
    fn major_faults_are_those_that_had_to_read() {
        for system in [System::Kernel, System::Kernel2012, System::Live] {
            let outcome = simulated(&machine(4 << 20, "vma", system), "seq:size=16M,laps=3,prefill");
            let vmstat = outcome.vmstat;
            assert_eq!(outcome.major_faults(), vmstat.pgmajfault, "{system:?}");
            assert_eq!(vmstat.pswpin - vmstat.swap_ra, vmstat.pgmajfault, "{system:?}");
            assert!(outcome.waited.count() > vmstat.pgmajfault, "{system:?}: some found theirs on its way");
            let all = outcome.major_faults() + outcome.soft_faults() + outcome.fill.count();
            assert_eq!(all, outcome.faults().count(), "{system:?}");
        }
    }

    /// More RAM is never much worse, and enough RAM reads nothing.
    #[test]
    fn ram_helps() {
        let load = generate::parse("moving:size=32M,window=8M,touches=60k").expect("a load");
        let extent = Extent::of(load.start()).expect("no error");
        for system in [System::Live, System::Kernel] {
            let outcomes = parallel(
                5,
                2,
                |job| {
                    let ram_bytes = extent.bytes() * [20, 40, 60, 80, 120][job] / 100;
                    simulate(&machine(ram_bytes, "linux", system), &extent, load.start()).expect("no error")
                },
                |_| {},
            );
            let times: Vec<_> = outcomes.iter().map(|outcome| outcome.elapsed_ns).collect();
            assert!(times.windows(2).all(|pair| pair[1] <= pair[0] + pair[0] / 20), "{system:?} {times:?}");
            assert_eq!(outcomes[4].vmstat.pswpin, 0);
            assert!(outcomes[0].vmstat.pgmajfault > 100);
        }
    }

    /// *The story:* a sort that fits was simulated to take 1.5 times as long as it does: the agent
    /// answered all its first touches.
    #[test]
    fn what_fits_is_left_alone() {
        let load = generate::parse("sequential:size=32M,laps=1").expect("a load");
        let extent = Extent::of(load.start()).expect("no error");
        let run = |ram_bytes: u64| {
            let machine = machine(ram_bytes, "adaptive", System::Live);
            simulate(&machine, &extent, load.start()).expect("no error")
        };
        assert_eq!(run(48 << 20).pager_ns, 0, "two thirds of its RAM");
        let some = run(36 << 20);
        assert!(some.pager_ns > 0 && some.vmstat.zero_fill < extent.pages / 4, "the last sixth");
    }

    /// The pager keeps an eighth of 16 MiB in reserve at first: of a program that fills 94 % some
    /// leaves, and has room later. See [`overspill_mm::reserve`].
    #[test]
    fn a_reserve_is_kept_at_first() {
        let load = generate::parse("sequential:size=15M,laps=2,think=100000,write=100").expect("a load");
        let extent = Extent::of(load.start()).expect("no error");
        let machine = machine(16 << 20, "adaptive", System::Live);
        let run = |options| simulate_with(options, &machine, load.start()).expect("no error").vmstat;
        let kept = run(options(&machine, &extent));
        assert!(kept.pswpout > 0 && kept.pswpin > 0, "some leaves, and comes back: {kept:?}");
        let not_kept = run(Options { managed_from: 0, ..options(&machine, &extent) });
        assert_eq!(not_kept.pswpout, 0, "all of it fits");
    }

    /// A sequential sweep over more than the RAM, with read-ahead, is bound by the device and not
    /// by round trips.
    #[test]
    fn readahead_helps_a_stream() {
        let load = generate::parse("sequential:size=64M,laps=4").expect("a load");
        let extent = Extent::of(load.start()).expect("no error");
        let time = |readahead| {
            let machine = machine(48 << 20, readahead, System::Live);
            simulate(&machine, &extent, load.start()).expect("no error").elapsed_ns
        };
        let (none, adaptive) = (time("none"), time("adaptive"));
        assert!(adaptive * 3 < none, "adaptive {adaptive} none {none}");
    }

    /// Pages read while one thread touches the pages of each range in order, so many times over, in
    /// a RAM of 4096 pages.
    fn pages_read(phases: &[(std::ops::Range<u64>, u32)]) -> u64 {
        pages_read_in(4096, phases)
    }

    /// The same in a RAM of `frames` pages.
    fn pages_read_in(frames: u64, phases: &[(std::ops::Range<u64>, u32)]) -> u64 {
        let laps = || -> Vec<Box<dyn Workload + Send>> {
            let phases = phases.to_vec();
            let touches =
                phases.into_iter().flat_map(|(pages, laps)| (0..laps).flat_map(move |_| pages.clone()));
            vec![Box::new(Laps(Box::new(touches)))]
        };
        let extent = Extent::of(laps()).expect("no error");
        let machine = machine(frames * PAGE_SIZE, "adaptive", System::Live);
        simulate(&machine, &extent, laps()).expect("no error").vmstat.pswpin
    }

    /// Of a scan over a little more than RAM most stays; in order of use each lap would read all of it.
    #[test]
    fn a_scan_larger_than_ram_reads_what_does_not_fit() {
        let read = pages_read(&[(0..4608, 20)]);
        assert!(read < 20 * 4608 / 2, "{read} pages in 20 laps over 4608");
        let read = pages_read(&[(0..8192, 20)]);
        assert!(read < 20 * 8192 * 3 / 4, "{read} pages in 20 laps over 8192");
    }

    /// A loop keeps what fits for as long as it goes on. *The story:* what had left was held against
    /// what came back in the same while, though it comes back a lap later; so expelling ended in the
    /// fourth lap, began again in the sixth, and 2.4 times the pages that do not fit were read.
    #[test]
    fn a_long_loop_keeps_what_fits() {
        for (frames, pages, most_percent) in [(57_600, 64_000, 205), (32_000, 64_000, 125)] {
            let read = pages_read_in(frames, &[(0..pages, 16)]);
            let bound = 15 * (pages - frames);
            assert!(read < bound * most_percent / 100, "{read} pages in 16 laps, {bound} at least");
        }
    }

    /// Who turns from one set that fits to another has it in RAM soon: expelling what was passed
    /// must not keep it out.
    #[test]
    fn a_new_set_that_fits_is_kept() {
        let (one, other) = (0..3000, 3000..6000);
        let set = |index: u32| if index.is_multiple_of(2) { one.clone() } else { other.clone() };
        let phases: Vec<_> = (0..6).map(|index| (set(index), 20)).collect();
        let read = pages_read(&phases);
        assert!(read < 4 * 3 * 3000, "{read} pages at four returns");
        // Even after a scan that was right to expel.
        let read_by_scan = pages_read(&[(0..4608, 20)]);
        let read = pages_read(&[(0..4608, 20), (8000..11_000, 20), (0..3000, 20)]) - read_by_scan;
        assert!(read < 5 * 3000, "{read} pages at one return");
    }
}
