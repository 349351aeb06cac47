//! Accesses a second.
use overspill_mm::readahead::none::NoReadAhead;
use overspill_sim::device::params::Model;
use overspill_sim::engine::{Engine, Options};
use overspill_sim::generate::{Pattern, Spec, Stream};
fn main() {
    for (name, pattern) in
        [("zipf", Pattern::Zipf { tenths: 10 }), ("random", Pattern::Random), ("seq", Pattern::Sequential)]
    {
        for kernel in [true, false] {
            let device = Model::builtin("nvme").unwrap();
            let pages = 1 << 18;
            let budget = pages * 98 / 100;
            let options = if kernel {
                Options::kernel(budget, 1 << 20, device)
            } else {
                Options::live(budget, 1 << 20, device)
            };
            let touches = 50_000_000;
            let mut engine = Engine::new(options, NoReadAhead);
            let spec = Spec {
                pages: if name == "seq" { u64::from(budget) - 10000 } else { u64::from(pages) },
                pattern: pattern.clone(),
                touches,
                prefill: true,
                write_percent: 20,
                ..Spec::default()
            };
            engine.add(Box::new(Stream::new(spec))).unwrap();
            let begin = std::time::Instant::now();
            let outcome = engine.run().unwrap();
            let s = begin.elapsed().as_secs_f64();
            println!(
                "{name} kernel={kernel}: {:.1} M/s, faults {} major {} virtual {:.1}s real {s:.1}",
                outcome.accesses as f64 / s / 1e6,
                outcome.vmstat.pgfault,
                outcome.vmstat.pgmajfault,
                outcome.elapsed_ns as f64 / 1e9
            );
        }
    }
}
