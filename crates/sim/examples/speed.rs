//! How many accesses a second the simulator gets through, one core: per system and policy, hits mostly.
//!
//! `cargo run --release -p overspill-sim --example speed [MILLIONS]`. Time is the processor time of this thread, so that a
//! busy machine does not spoil it much.

use overspill_mm::readahead::policy;
use overspill_sim::device::params::Model;
use overspill_sim::generate;
use overspill_sim::sweep::{Extent, Machine, System, simulate};

/// Nanoseconds that this thread has run.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has schedstat");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("its first field is a number")
}

fn main() {
    let millions: u64 =
        std::env::args().nth(1).map_or(20, |text| text.parse().expect("a number of millions"));
    let loads = [
        ("sequential, all hits", "sequential:size=512M,write=20", 110),
        ("moving working set", "moving:size=1G,window=256M,dwell=64,write=20", 50),
        ("zipf 1.0", "zipf:size=1G,write=20,exponent=1", 75),
        ("random", "random:size=1G,write=20", 99),
    ];
    println!("{:24} {:8} {:10} {:>10} {:>8}", "load", "policy", "read-ahead", "faults", "M/s");
    for (name, text, percent) in loads {
        let load = generate::parse(&format!("{text},prefill,touches={millions}M")).expect("a load");
        let extent = Extent::of_load(&load);
        for (system, readahead) in [
            (System::Kernel, "linux"),
            (System::Live, "none"),
            (System::Live, "linux"),
            (System::Live, "adaptive"),
        ] {
            let machine = Machine {
                ram_bytes: extent.bytes() / 100 * percent,
                readahead: readahead.to_owned(),
                device: Model::builtin("nvme").expect("built in"),
                swap_bytes: None,
                system,
                knobs: policy::Knobs::default(),
                processors: 0,
                until: None,
            };
            let begin_ns = processor_ns();
            let outcome = simulate(&machine, &extent, load.start()).expect("loads do not fail");
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
