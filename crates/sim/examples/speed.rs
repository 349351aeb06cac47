//! How many accesses a second the simulator gets through, one core: per system and policy, hits
//! mostly; and what it holds for each page.
//!
//! `cargo run --release -p overspill-sim --example speed [MILLIONS]`. The accesses are drawn
//! beforehand, so that what is measured is the simulation and not the drawing. Time is the
//! processor time of this thread, so that a busy machine does not spoil it much.

use overspill_sim::device::params::Model;
use overspill_sim::generate;
use overspill_sim::sweep::{Extent, Machine, System, simulate};
use overspill_sim::workload::{Access, RegionSpec, Workload, WorkloadError};
use std::sync::Arc;

/// Accesses drawn beforehand.
struct Drawn {
    accesses: Arc<Vec<Access>>,
    regions: Vec<RegionSpec>,
    at: usize,
}

impl Drawn {
    fn new(mut workload: Box<dyn Workload + Send>) -> Drawn {
        let regions = workload.regions();
        let mut accesses = Vec::new();
        while let Some(access) = workload.next().expect("loads do not fail") {
            accesses.push(access);
        }
        Drawn { accesses: Arc::new(accesses), regions, at: 0 }
    }

    fn again(&self) -> Box<dyn Workload + Send> {
        Box::new(Drawn { accesses: self.accesses.clone(), regions: self.regions.clone(), at: 0 })
    }
}

impl Workload for Drawn {
    fn next(&mut self) -> Result<Option<Access>, WorkloadError> {
        let access = self.accesses.get(self.at).copied();
        self.at += usize::from(access.is_some());
        Ok(access)
    }

    fn fill(&mut self, batch: &mut Vec<Access>, most: usize) -> Result<(), WorkloadError> {
        let end = (self.at + most).min(self.accesses.len());
        batch.extend_from_slice(&self.accesses[self.at..end]);
        self.at = end;
        Ok(())
    }

    fn regions(&self) -> Vec<RegionSpec> {
        self.regions.clone()
    }
}

/// Nanoseconds that this thread has run.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has schedstat");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("its first field is a number")
}

/// Bytes of anonymous memory of this process.
fn anonymous_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has statm");
    let mut pages = text.split(' ').skip(1).map(|field| field.parse::<u64>().expect("a number"));
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    (resident - shared) * 4096
}

fn machine(ram_bytes: u64, system: System, readahead: &str) -> Machine {
    Machine::new(system, ram_bytes, readahead, Model::builtin("nvme").expect("built in"))
}

fn speed(millions: u64) {
    let loads = [
        ("sequential, all hits", "sequential:size=512M,write=20", 110),
        ("moving working set", "moving:size=1G,window=256M,dwell=64,write=20", 50),
        ("zipf 1.0", "zipf:size=1G,write=20,exponent=1", 75),
        ("zipf 1.0, small", "zipf:size=256M,write=20,exponent=1", 90),
        ("random", "random:size=1G,write=20", 99),
    ];
    println!("{:24} {:8} {:10} {:>10} {:>8}", "load", "policy", "read-ahead", "faults", "M/s");
    for (name, text, percent) in loads {
        let load = generate::parse(&format!("{text},prefill,touches={millions}M")).expect("a load");
        let extent = Extent::of_load(&load);
        let drawn = Drawn::new(load.start().remove(0));
        for (system, readahead) in [
            (System::Kernel, "linux"),
            (System::Live, "none"),
            (System::Live, "linux"),
            (System::Live, "adaptive"),
        ] {
            let machine = machine(extent.bytes() / 100 * percent, system, readahead);
            let begin_ns = processor_ns();
            let outcome = simulate(&machine, &extent, vec![drawn.again()]).expect("loads do not fail");
            let ns = processor_ns() - begin_ns;
            println!(
                "{name:24} {:8} {readahead:10} {:10} {:8}",
                system.name(),
                outcome.vmstat.pgfault,
                overspill_sim::time::decimal(outcome.accesses * 1000, ns)
            );
        }
    }
}

/// Simulates 8 GiB of pages in half of the RAM and says what this process came to hold for each.
fn memory() {
    let load = generate::parse("random:size=8G,write=50,prefill,touches=2M").expect("a load");
    let extent = Extent::of_load(&load);
    for (system, readahead) in [(System::Kernel, "linux"), (System::Live, "adaptive")] {
        let before = anonymous_bytes();
        let until = load.pages() + 1_500_000;
        let peak = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let watched = Watched { workload: load.start().remove(0), left: until, peak: peak.clone() };
        let machine = machine(extent.bytes() / 2, system, readahead);
        simulate(&machine, &extent, vec![Box::new(watched)]).expect("loads do not fail");
        let grown = peak.load(std::sync::atomic::Ordering::Relaxed).saturating_sub(before);
        println!("{:8} {readahead:10} {} bytes a page", system.name(), grown.div_ceil(extent.pages));
    }
}

/// Notes the memory that is in use after so many accesses.
struct Watched {
    workload: Box<dyn Workload + Send>,
    left: u64,
    peak: Arc<std::sync::atomic::AtomicU64>,
}

impl Workload for Watched {
    fn next(&mut self) -> Result<Option<Access>, WorkloadError> {
        self.left = self.left.saturating_sub(1);
        if self.left == 1 {
            self.peak.store(anonymous_bytes(), std::sync::atomic::Ordering::Relaxed);
        }
        self.workload.next()
    }

    fn regions(&self) -> Vec<RegionSpec> {
        self.workload.regions()
    }
}

fn main() {
    let millions = std::env::args().nth(1).map_or(20, |text| text.parse().expect("a number of millions"));
    memory();
    speed(millions);
}
