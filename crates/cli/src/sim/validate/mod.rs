//! `overspill sim validate`: is the simulation right about this machine?
//!
//! The built-in load runs on the kernel's swap in a memory cgroup, and under overspill; the same
//! load is simulated with the same RAM, swap area and read-ahead; the counters stand side by side.
//! The kernel's read-ahead by slots and by region are both tried: a disk that calls itself rotating
//! is told otherwise for the latter, and reminded afterwards. The kernel's counters are the whole
//! system's (/proc/vmstat), so nothing else should swap meanwhile.

mod real;
mod simulated;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use overspill_sim::device::params::Model;

use super::devices::measure;
use crate::args::Tuning;
use crate::compare::way::{KernelRules, Way};
use crate::compare::{self, Lab};
use crate::idle::Idle;
use crate::load::pattern::Pattern;
use crate::progress::Progress;
use crate::size::Size;
use crate::stdout::{print, print_json};
use crate::{cgroup, machine};
use verdict::Figure;

/// What the load needs beside its pages: code, stacks, page tables, and what the cgroup charges
/// ahead.
const ALLOWANCE_BYTES: u64 = 4 << 20;

/// Options of `overspill sim validate`.
#[derive(clap::Args)]
pub struct Args {
    /// Memory that the load touches
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    size: Size,
    /// RAM that it gets
    #[arg(long, value_name = "SIZE", default_value = "192M")]
    ram: Size,
    /// Touches, in multiples of the number of pages
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    laps: u32,
    /// Real runs of each kind; their mean counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Only the kernel, only the pager [default: both]
    #[arg(long, value_name = "WHICH", value_parser = ["kernel", "pager"])]
    only: Option<String>,
    /// The loads, as `overspill load` has them
    #[arg(long, value_name = "PATTERN,...", value_delimiter = ',', default_value = "seq,random,stride:16")]
    loads: Vec<Pattern>,
    /// Device model for the simulation [default: the swap directory's device is measured]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Also show counters that are not judged but may explain a difference
    #[arg(long)]
    more: bool,
    /// Print JSON (its fields: docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tuning: Tuning,
}

/// Values by name.
type Counters = BTreeMap<&'static str, u64>;

/// One comparison to make.
#[derive(Clone, Copy)]
struct Case {
    way: Way,
    pattern: Pattern,
}

impl Case {
    fn is_pager(&self) -> bool {
        matches!(self.way, Way::Overspill { .. })
    }

    /// As the table names the system.
    fn system(&self) -> String {
        match self.way {
            Way::Kernel { rules: KernelRules::Vma, .. } => "kernel, by region".to_owned(),
            Way::Kernel { .. } => "kernel, by slot".to_owned(),
            way => way.to_string(),
        }
    }
}

/// The load and its budget.
#[derive(Clone, Copy)]
struct Setting {
    size_bytes: u64,
    ram_bytes: u64,
    laps: u32,
    runs: u32,
}

/// Carries out the command. 0 when every counter is within its tolerance, else 1.
pub fn main(args: &Args) -> Result<u8> {
    cgroup::require_root("sim validate")?;
    let setting = Setting {
        size_bytes: args.size.bytes(machine::ram_for_shares()),
        ram_bytes: args.ram.bytes(machine::ram_for_shares()),
        laps: args.laps,
        runs: args.runs,
    };
    let cases = cases(args.only.as_deref(), &args.loads);
    let ways: Vec<Way> = cases.iter().map(|case| case.way).collect();
    let place = compare::place_for(&ways, &args.tuning)?;
    let progress = Progress::new();
    let devices = devices(args, &cases, &place.directory, &progress)?;
    progress.say(compare::WAITING);
    let mut lab =
        Lab::new(place, &ways, &args.tuning, setting.ram_bytes + ALLOWANCE_BYTES, setting.size_bytes)?;
    let mut bench = real::Bench { lab: &mut lab, setting, progress: &progress };
    let figures = compare_all(&mut bench, &cases, &devices, args.more);
    drop(progress);
    let figures = compare::end_of(lab, figures)?;
    if args.json {
        print_json(&figures)?;
    } else {
        print(&verdict::render(&figures, &setting, &devices))?;
    }
    Ok(u8::from(figures.iter().any(|figure| !figure.holds)))
}

/// The swap device, as each of the two systems meets it.
#[derive(Default)]
struct Devices {
    kernel: Option<Model>,
    pager: Option<Model>,
}

impl Devices {
    fn of(&self, case: &Case) -> &Model {
        let device = if case.is_pager() { &self.pager } else { &self.kernel };
        device.as_ref().expect("there is one for every system that is compared")
    }

    /// What they are called.
    fn names(&self) -> String {
        let names: BTreeSet<&str> =
            [&self.kernel, &self.pager].into_iter().flatten().map(|device| device.name.as_str()).collect();
        names.into_iter().collect::<Vec<_>>().join("; ")
    }
}

/// The device that was named; else the directory's is measured, with the processors idle as each
/// system has them.
fn devices(args: &Args, cases: &[Case], directory: &Path, progress: &Progress) -> Result<Devices> {
    if let Some(name) = &args.device {
        let device = Model::find(name)?;
        return Ok(Devices { kernel: Some(device.clone()), pager: Some(device) });
    }
    let mut devices = Devices::default();
    if cases.iter().any(|case| !case.is_pager()) {
        devices.kernel = Some(measure(directory, Idle::Sleep, progress)?.model);
    }
    if cases.iter().any(Case::is_pager) {
        devices.pager = Some(measure(directory, args.tuning.idle.unwrap_or_default(), progress)?.model);
    }
    Ok(devices)
}

fn compare_all(
    bench: &mut real::Bench,
    cases: &[Case],
    devices: &Devices,
    more: bool,
) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for case in cases {
        let device = devices.of(case);
        let real = bench.measure(case)?;
        bench.progress.say(&format!("{} {}, simulated", case.system(), case.pattern));
        let simulated = simulated::counters(case, &bench.setting, &real, device)?;
        figures.extend(verdict::figures(case, &real, &simulated, &bench.setting, more));
    }
    Ok(figures)
}

fn cases(only: Option<&str>, loads: &[Pattern]) -> Vec<Case> {
    let kernel = |rules| Way::Kernel { page_cluster: 3, rules };
    let pager = |name: &str| Way::Overspill { readahead: name.parse().ok(), reclaim: None, fenced: false };
    let mut ways = Vec::new();
    if only != Some("pager") {
        ways.extend([kernel(KernelRules::Cluster), kernel(KernelRules::Vma)]);
    }
    if only != Some("kernel") {
        ways.extend([pager("vma"), pager("adaptive")]);
    }
    let of_way = |way| loads.iter().map(move |&pattern| Case { way, pattern });
    ways.into_iter().flat_map(of_way).collect()
}
