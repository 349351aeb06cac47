//! scratch
use overspill_mm::readahead::policy::Knobs;
use overspill_sim::{device::params::Model, generate::{Pattern, Spec, Stream}, sweep::*, workload::*};
fn main() {
    for readahead in ["cluster", "vma"] {
        for touches in [65536, 65536 * 3] {
        for (name, pattern) in [("random", Pattern::Random), ("stride", Pattern::Strided { stride: 16 })] {
            let pages = 65536;
            let spec = |pattern: Pattern, touches, write_percent, prefill| Stream::new(Spec { start: 1 << 20, pages, pattern, touches, write_percent, prefill, think_ns: 50, ..Spec::default() });
            for offset in 0..5 {
                let first = Access { vpn: 1 << 20, think_ns: offset * 400_000_000, thread: 0, space: 0, write: true };
                let parts: Vec<Box<dyn Workload + Send>> = vec![Box::new(Listed::new(vec![first])), Box::new(spec(pattern.clone(), touches, 100, true)), Box::new(spec(Pattern::Sequential, pages, 0, false))];
                let machine = Machine { ram_bytes: 192 << 20, readahead: readahead.into(), device: Model::builtin("vm").unwrap(), swap_bytes: None, system: System::Kernel, knobs: Knobs::default(), processors: 0, until: None };
                let o = simulate(&machine, &Extent { pages, chunks: 129 }, vec![Box::new(Chain::new(parts))]).unwrap();
                let v = o.vmstat;
                println!("{readahead} {name} {touches} offset {offset}: refault {} activate {} in {} out {} pgact {} deact {} maj {} ra {} hit {} scan {} time {}", v.workingset_refault_anon, v.workingset_activate_anon, v.pswpin, v.pswpout, v.pgactivate, v.pgdeactivate, v.pgmajfault, v.swap_ra, v.swap_ra_hit, v.pgscan_direct, overspill_sim::time::show(o.elapsed_ns));
            }
        } }
    }
}
