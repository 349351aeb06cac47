//! `overspill sim validate`: is the simulation right about this machine?
//!
//! The built-in load runs on the kernel's swap in a memory cgroup, and under overspill; the same load is simulated with the
//! same RAM, swap area and read-ahead; the counters stand side by side. The kernel's read-ahead by slots and by region are
//! both tried: a disk that calls itself rotating is told otherwise for the latter, and reminded afterwards. Counters are the
//! whole system's (/proc/vmstat), so nothing else should swap meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use overspill_mm::Vmstat;
use overspill_mm::readahead::policy::Knobs;
use overspill_sim::device::params::Model;
use overspill_sim::generate::{Pattern as Order, Spec, Stream};
use overspill_sim::options::show_bytes;
use overspill_sim::report::table::aligned;
use overspill_sim::sweep::{Extent, Machine, System, simulate};
use overspill_sim::workload::{Chain, Workload};
use serde::Serialize;

use crate::args::Tuning;
use crate::compare::way::Way;
use crate::compare::{self, Input, Lab};
use crate::load::pattern::Pattern;
use crate::load::{LoadArgs, Work};
use crate::progress::Progress;
use crate::size::Size;
use crate::{cgroup, machine};

/// What the load needs beside its pages: code, stacks, page tables, and what the cgroup charges ahead.
const ALLOWANCE_BYTES: u64 = 4 << 20;
/// The kernel may be off by this much, in percent.
const KERNEL_TOLERANCE: u64 = 15;
/// The live pager by this much.
const PAGER_TOLERANCE: u64 = 5;
/// Differences of fewer pages than this share of all pages (1 in so many) mean nothing.
const NOISE_SHARE: u64 = 200;

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
    #[arg(long, value_name = "N", default_value_t = 3)]
    laps: u32,
    /// Only the kernel, only the pager [default: both]
    #[arg(long, value_name = "WHICH", value_parser = ["kernel", "pager"])]
    only: Option<String>,
    /// Device model for the simulation
    #[arg(long, value_name = "DEVICE", default_value = "vm")]
    device: String,
    /// Also show counters that are not judged but may explain a difference
    #[arg(long)]
    more: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tuning: Tuning,
}

/// One comparison to make.
#[derive(Clone, Copy)]
struct Case {
    way: Way,
    pattern: Pattern,
    /// The disk must not call itself rotating.
    per_region: bool,
}

impl Case {
    fn is_pager(&self) -> bool {
        matches!(self.way, Way::Overspill { .. })
    }
}

/// One counter, real and simulated.
#[derive(Serialize)]
struct Figure {
    system: String,
    load: String,
    counter: &'static str,
    real: u64,
    simulated: u64,
    tolerance_percent: u64,
    holds: bool,
}

/// Carries out the command. 0 when every counter is within its tolerance, else 1.
pub fn main(args: &Args) -> Result<u8> {
    cgroup::require_root("sim validate")?;
    let cases = cases(args.only.as_deref());
    let ways: Vec<Way> = cases.iter().map(|case| case.way).collect();
    let place = compare::place_for(&ways, args.tuning.swap.as_deref())?;
    let (size_bytes, ram_bytes) =
        (args.size.bytes(machine::ram_bytes()), args.ram.bytes(machine::ram_bytes()));
    let device = Model::find(&args.device)?;
    let rotating = rotating_flag(&place.directory);
    let progress = Progress::new();
    progress.say(compare::WAITING);
    let mut lab = Lab::new(place, &args.tuning, ram_bytes + ALLOWANCE_BYTES, size_bytes)?;
    let mut figures = Vec::new();
    let mut result = Ok(());
    for case in &cases {
        progress.say(&format!("{} {}", case.way, case.pattern));
        let real = real(&mut lab, case, args, size_bytes, rotating.as_deref());
        match real {
            Ok(counters) => {
                let simulated = simulated(case, args, size_bytes, ram_bytes, &device)?;
                let shown = if args.more && !case.is_pager() { COUNTERS.len() } else { JUDGED };
                figures.extend(compare_counters(case, &counters, &simulated, size_bytes, shown));
            }
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    drop(progress);
    compare::end_of(lab, result)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&figures)?);
    } else {
        print!("{}", render(&figures, size_bytes, ram_bytes));
    }
    Ok(u8::from(figures.iter().any(|figure| !figure.holds)))
}

fn cases(only: Option<&str>) -> Vec<Case> {
    let patterns = [Pattern::Sequential, Pattern::Random, Pattern::Stride(16)];
    let kernel = |cluster_only| Way::Kernel { page_cluster: 3, cluster_only };
    let pager = |name: &str| Way::Overspill { readahead: name.parse().ok(), fenced: false };
    let mut cases = Vec::new();
    if only != Some("pager") {
        for (way, per_region) in [(kernel(true), false), (kernel(false), true)] {
            cases.extend(patterns.map(|pattern| Case { way, pattern, per_region }));
        }
    }
    if only != Some("kernel") {
        for name in ["vma", "adaptive"] {
            cases.extend(patterns.map(|pattern| Case { way: pager(name), pattern, per_region: false }));
        }
    }
    cases
}

/// The file that says whether the disk under `directory` rotates, if there is one.
fn rotating_flag(directory: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let device = fs::metadata(directory).ok()?.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let block = Path::new("/sys/dev/block").join(format!("{major}:{minor}")).canonicalize().ok()?;
    // A partition has no queue of its own: its disk is one level up.
    [block.join("queue/rotational"), block.join("../queue/rotational")]
        .into_iter()
        .find(|path| path.exists())
        .map(|path| path.display().to_string())
}

/// Runs the load and gives the counters' increase.
fn real(
    lab: &mut Lab,
    case: &Case,
    args: &Args,
    size_bytes: u64,
    rotating: Option<&str>,
) -> Result<BTreeMap<&'static str, u64>> {
    let work = Work {
        threads: 1,
        laps: Some(args.laps),
        touches: None,
        seconds: None,
        write: true,
        shared: false,
        latency: false,
        seed: 1,
    };
    let mut command: Vec<OsString> = vec![std::env::current_exe()?.into()];
    command.extend(LoadArgs::command_line(case.pattern, size_bytes, &work).into_iter().map(OsString::from));
    let setting = match rotating {
        Some(path) if case.per_region => Some(lab.set(path, "0")?),
        _ => None,
    };
    let before = kernel_counters()?;
    let run = lab.run(case.way, &command, &Input::nothing()?, None);
    let after = kernel_counters()?;
    if let Some(setting) = setting {
        lab.restore(&setting)?;
    }
    let run = run?;
    ensure!(run.is_success(), "the load failed: {}", run.captured.error_tail);
    if let Some(report) = &run.overspill {
        let counter = |name: &str| {
            report.pointer(&format!("/vmstat/{name}")).and_then(serde_json::Value::as_u64).unwrap_or(0)
        };
        return Ok(COUNTERS.map(|name| (name, counter(name))).into());
    }
    let grown = |name| after.get(name).unwrap_or(&0).saturating_sub(*before.get(name).unwrap_or(&0));
    Ok(COUNTERS.map(|name| (name, grown(name))).into())
}

/// The counters that are compared.
const COUNTERS: [&str; 9] = [
    "pswpin",
    "pswpout",
    "pgmajfault",
    "swap_ra",
    "swap_ra_hit",
    "workingset_refault_anon",
    "workingset_activate_anon",
    "pgactivate",
    "pgdeactivate",
];
/// So many of them are judged; the others help to explain.
const JUDGED: usize = 5;

fn kernel_counters() -> Result<BTreeMap<String, u64>> {
    let text = fs::read_to_string("/proc/vmstat").context("cannot read /proc/vmstat")?;
    let line = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    Ok(text.lines().filter_map(line).collect())
}

/// The same load and machine, simulated.
fn simulated(
    case: &Case,
    args: &Args,
    size_bytes: u64,
    ram_bytes: u64,
    device: &Model,
) -> Result<BTreeMap<&'static str, u64>> {
    let pages = size_bytes / 4096;
    let (system, readahead, ram_bytes) = match case.way {
        Way::Overspill { readahead, .. } => {
            let name = readahead.map_or("adaptive".to_owned(), |policy| policy.to_string());
            // The agent is given the allowance too, and the load's own few pages take it up.
            (System::Live, name, ram_bytes + ALLOWANCE_BYTES)
        }
        _ if case.per_region => (System::Kernel, "vma".to_owned(), ram_bytes),
        _ => (System::Kernel, "cluster".to_owned(), ram_bytes),
    };
    let machine = Machine {
        ram_bytes,
        readahead,
        device: device.clone(),
        swap_bytes: None,
        system,
        knobs: Knobs::default(),
        processors: 0,
        until: None,
    };
    let extent = Extent { pages, chunks: pages.div_ceil(512) + 1 };
    let outcome = simulate(&machine, &extent, vec![load(case.pattern, pages, args.laps)])
        .map_err(|error| anyhow!("{error}"))?;
    Ok(counters_of(&outcome.vmstat))
}

fn counters_of(vmstat: &Vmstat) -> BTreeMap<&'static str, u64> {
    [
        ("pswpin", vmstat.pswpin),
        ("pswpout", vmstat.pswpout),
        ("pgmajfault", vmstat.pgmajfault),
        ("swap_ra", vmstat.swap_ra),
        ("swap_ra_hit", vmstat.swap_ra_hit),
        ("workingset_refault_anon", vmstat.workingset_refault_anon),
        ("workingset_activate_anon", vmstat.workingset_activate_anon),
        ("pgactivate", vmstat.pgactivate),
        ("pgdeactivate", vmstat.pgdeactivate),
    ]
    .into()
}

/// What `overspill load` does: fill in order, touch by the pattern, verify in order.
fn load(pattern: Pattern, pages: u64, laps: u32) -> Box<dyn Workload + Send> {
    let order = match pattern {
        Pattern::Random => Order::Random,
        Pattern::Stride(stride) => Order::Strided { stride: u64::from(stride) },
        _ => Order::Sequential,
    };
    let spec = |pattern: Order, touches, write_percent, prefill| {
        Stream::new(Spec {
            start: 1 << 20,
            pages,
            pattern,
            touches,
            write_percent,
            prefill,
            think_ns: 50,
            ..Spec::default()
        })
    };
    Box::new(Chain::new(vec![
        Box::new(spec(order, pages * u64::from(laps), 100, true)),
        Box::new(spec(Order::Sequential, pages, 0, false)),
    ]))
}

fn compare_counters(
    case: &Case,
    real: &BTreeMap<&'static str, u64>,
    simulated: &BTreeMap<&'static str, u64>,
    size_bytes: u64,
    shown: usize,
) -> Vec<Figure> {
    let is_pager = case.is_pager();
    let tolerance_percent = if is_pager { PAGER_TOLERANCE } else { KERNEL_TOLERANCE };
    COUNTERS[..shown]
        .iter()
        .enumerate()
        .filter(|&(_, &counter)| !(is_pager && counter == "pgmajfault"))
        .map(|(index, &counter)| {
            let (real, simulated) = (real[counter], simulated[counter]);
            let difference = real.abs_diff(simulated);
            let noise = size_bytes / 4096 / NOISE_SHARE;
            let holds =
                index >= JUDGED || difference <= noise || difference * 100 <= real.max(1) * tolerance_percent;
            let system = case.way.to_string();
            let load = case.pattern.to_string();
            Figure { system, load, counter, real, simulated, tolerance_percent, holds }
        })
        .collect()
}

fn render(figures: &[Figure], size_bytes: u64, ram_bytes: u64) -> String {
    let mut lines =
        vec![["system", "load", "counter", "real", "simulated", "ratio", ""].map(str::to_owned).to_vec()];
    for figure in figures {
        let permille = overspill_sim::time::permille(figure.simulated, figure.real);
        let ratio = format!("{}.{:02}", permille / 1000, permille % 1000 / 10);
        let verdict =
            if figure.holds { String::new() } else { format!("beyond {} %", figure.tolerance_percent) };
        lines.push(vec![
            figure.system.clone(),
            figure.load.clone(),
            figure.counter.to_owned(),
            figure.real.to_string(),
            figure.simulated.to_string(),
            if figure.real == 0 { "-".to_owned() } else { ratio },
            verdict,
        ]);
    }
    let held = figures.iter().filter(|figure| figure.holds).count();
    format!(
        "{} touched in {}; every store fills, touches and verifies\n\n{}\n{held} of {} counters within their tolerance\n{}",
        show_bytes(size_bytes),
        show_bytes(ram_bytes),
        aligned(&lines, &[false, false, false, true, true, true, false]),
        figures.len(),
        EXPLANATION
    )
}

/// What is known to differ.
const EXPLANATION: &str = "\
What the simulation leaves out: the kernel charges a cgroup 64 pages ahead for each processor; its LRU moves pages in
batches of 15 to 31; a random order is another one of the same kind. Counters are the whole system's.
";
