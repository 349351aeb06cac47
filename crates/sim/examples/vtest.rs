use overspill_mm::readahead::policy::Knobs;
use overspill_sim::{device::params::Model, generate::{Pattern, Spec, Stream}, sweep::*, workload::*};
fn main() {
    for readahead in ["cluster", "vma"] {
        for (name, pattern) in [("seq", Pattern::Sequential), ("random", Pattern::Random), ("stride", Pattern::Strided { stride: 16 })] {
            let pages = 65536;
            let spec = |pattern: Pattern, touches, write_percent, prefill| Stream::new(Spec { start: 1 << 20, pages, pattern, touches, write_percent, prefill, think_ns: 50, ..Spec::default() });
            for phases in [1, 2] {
                let mut parts: Vec<Box<dyn Workload + Send>> = vec![Box::new(spec(pattern.clone(), pages * 3, 100, true))];
                if phases == 2 { parts.push(Box::new(spec(Pattern::Sequential, pages, 0, false))); }
                let machine = Machine { ram_bytes: 192 << 20, readahead: readahead.into(), device: Model::builtin("vm").unwrap(), swap_bytes: None, system: System::Kernel, knobs: Knobs::default(), processors: 0, until: None };
                let o = simulate(&machine, &Extent { pages, chunks: 129 }, vec![Box::new(Chain::new(parts))]).unwrap();
                let v = o.vmstat;
                println!("{readahead} {name} {phases}: in {} out {} maj {} ra {} hit {} activate {} deact {} refault {} scan {} time {}", v.pswpin, v.pswpout, v.pgmajfault, v.swap_ra, v.swap_ra_hit, v.pgactivate, v.pgdeactivate, v.workingset_refault_anon, v.pgscan_direct, overspill_sim::time::show(o.elapsed_ns));
            }
        }
    }
}
