//! `overspill sim policies`: how near reclaim policies come to Belady's optimum, over many traces.
//!
//! For every trace and amount of RAM: the pages that come into RAM, each first touch being one, under
//! the live pager with each policy, under plain LRU, and at best (Belady). The last lines are the
//! geometric means of the ratios, and the worst point. A trace is whatever `sim` takes; a text with a
//! page number a line, as the traces of the LIRS suite are, too.

use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow, ensure};
use overspill_mm::readahead::policy::NAMES as READAHEADS;
use overspill_mm::reclaim::policy::NAMES;
use overspill_mm::types::PAGE_SIZE;
use overspill_sim::device::params::Model;
use overspill_sim::generate;
use overspill_sim::options::{Amount, amounts, names};
use overspill_sim::replace::{self, Touches};
use overspill_sim::report::table::{aligned, in_blocks};
use overspill_sim::sweep::{Extent, Machine, System, parallel, simulate};
use overspill_sim::trace::workload::TraceWorkload;
use overspill_sim::workload::{Filled, Workload};
use serde::Serialize;

use crate::human;
use crate::progress::Progress;
use crate::stdout::{print, print_json};

/// Of a trace's name in a table.
const NAME_CHARS_MAX: usize = 22;

/// Options of `overspill sim policies`.
#[derive(clap::Args)]
pub struct Args {
    /// Traces, or loads
    #[arg(required = true, value_name = "TRACE-or-LOAD")]
    traces: Vec<String>,
    /// Reclaim policies of the live pager [default: all]
    #[arg(long, value_name = "LIST")]
    reclaim: Option<String>,
    /// Give it the accessed bits of its pages, as no kernel does so far: what a feed would bring
    #[arg(long)]
    accessed: bool,
    /// Its read-ahead
    #[arg(long, value_name = "POLICY", default_value = "none")]
    readahead: String,
    /// RAM, as shares of the pages
    #[arg(long, value_name = "LIST", default_value = "25%,50%,75%")]
    ram: String,
    /// The swap device
    #[arg(long, value_name = "DEVICE", default_value = "nvme")]
    device: String,
    /// Simulations at a time [default: one for each processor]
    #[arg(long, env = "OVERSPILL_SIM_JOBS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print JSON (its fields: docs/json.md)
    #[arg(long)]
    json: bool,
}

/// What is gone through, from the beginning each time.
enum Subject {
    Load(Box<generate::Load>),
    Trace(String),
}

impl Subject {
    fn find(name: &str) -> Result<Subject> {
        if !Path::new(name).exists() {
            let load =
                generate::parse(name).map_err(|error| anyhow!("{error}; nor is there such a trace"))?;
            return Ok(Subject::Load(Box::new(load)));
        }
        Ok(Subject::Trace(name.to_owned()))
    }

    fn start(&self) -> Result<Vec<Box<dyn Workload + Send>>> {
        Ok(match self {
            // As those of traces: to lose a page costs a read.
            Subject::Load(load) => Filled::all(load.start()),
            Subject::Trace(path) => {
                let trace = TraceWorkload::open(Path::new(path), None);
                vec![Box::new(trace.map_err(|error| anyhow!("{path}: {error}"))?.with_content(true))]
            }
        })
    }
}

/// One trace with one amount of RAM.
#[derive(Serialize, Clone, Debug)]
struct Point {
    /// The trace or load.
    trace: String,
    /// RAM, of the trace's pages.
    ram_percent: u64,
    /// Its distinct pages.
    pages: u64,
    /// Pages that come in at best, by Belady's optimum.
    opt: u64,
    /// Pages that come in under LRU.
    lru: u64,
    /// An entry for each policy.
    policies: Vec<Figures>,
}

/// The live pager under one policy.
#[derive(Serialize, Clone, Debug)]
struct Figures {
    /// The policy.
    policy: String,
    /// Pages that come in under it.
    pages_in: u64,
    /// Faults that had to read.
    major: u64,
    /// Faults that did not.
    soft: u64,
}

/// A policy over all points.
#[derive(Serialize, Clone, Debug)]
struct Summary {
    /// The policy.
    policy: String,
    /// Pages that come in, of LRU's: the geometric mean over all traces and amounts.
    of_lru: f64,
    /// The same of the optimum's.
    of_opt: f64,
    /// The largest of those of LRU's.
    worst: f64,
    /// Where that was.
    worst_at: String,
    /// Soft faults for each major one.
    soft_per_major: f64,
}

/// Carries out the command.
pub fn main(args: &Args) -> Result<u8> {
    let names = match &args.reclaim {
        Some(list) => names(list, &NAMES).context("--reclaim")?,
        None => NAMES.map(str::to_owned).to_vec(),
    };
    ensure!(READAHEADS.contains(&args.readahead.as_str()), "--readahead: one of {}", READAHEADS.join(", "));
    let device = Model::find(&args.device).context("--device")?;
    let shares = shares(&args.ram)?;
    let progress = Mutex::new(Progress::new());
    let total = args.traces.len();
    let say = |done: usize| {
        if let Ok(progress) = progress.lock() {
            progress.share(done, total, "traces");
        }
    };
    say(0);
    let of_trace = |index: usize| points(args, &args.traces[index], &names, &shares, &device);
    let points = parallel(total, super::jobs(args.jobs), of_trace, say);
    let points: Vec<Point> = points.into_iter().collect::<Result<Vec<_>>>()?.concat();
    drop(progress);
    let summaries: Vec<Summary> = (0..names.len()).map(|index| summary(&points, index)).collect();
    if args.json {
        print_json(&(&summaries, &points))?;
    } else {
        print(&render(&points, &summaries))?;
    }
    Ok(0)
}

/// Shares of all pages, in percent.
fn shares(list: &str) -> Result<Vec<u64>> {
    let share = |amount: &Amount| match amount {
        Amount::Permille(permille @ 10..=1000) if permille % 10 == 0 => Ok(permille / 10),
        _ => Err(anyhow!("--ram: whole shares of the pages, from 1% to 100%, as in 25%,50%")),
    };
    amounts(list).context("--ram")?.iter().map(share).collect()
}

fn points(args: &Args, trace: &str, names: &[String], shares: &[u64], device: &Model) -> Result<Vec<Point>> {
    let subject = Subject::find(trace)?;
    let error = |error| anyhow!("{error}");
    let touches = Touches::of(subject.start()?).map_err(error)?;
    let extent = Extent::of(subject.start()?).map_err(error)?;
    let pages = u64::from(touches.pages());
    let point = |&share: &u64| -> Result<Point> {
        let frames = (pages * share / 100).max(16);
        let ideal = |name: &str| {
            let frames = u32::try_from(frames.min(pages)).unwrap_or(u32::MAX);
            let mut policy = replace::by_name(name, frames, touches.pages()).expect("these are known");
            touches.misses(&mut *policy)
        };
        let live = |name: &String| -> Result<Figures> {
            let (system, reclaim) = System::with_reclaim(&format!("{}{name}", System::LIVE_WITH))
                .expect("the names were checked");
            let bytes = frames * PAGE_SIZE;
            let accessed = args.accessed;
            let machine =
                Machine { reclaim, accessed, ..Machine::new(system, bytes, &args.readahead, device.clone()) };
            let outcome = simulate(&machine, &extent, subject.start()?).map_err(error)?;
            Ok(Figures {
                policy: name.clone(),
                pages_in: pages + outcome.vmstat.pswpin,
                major: outcome.vmstat.pgmajfault,
                soft: outcome.vmstat.soft_fault,
            })
        };
        Ok(Point {
            trace: trace.rsplit('/').next().unwrap_or(trace).to_owned(),
            ram_percent: share,
            pages,
            opt: ideal("opt"),
            lru: ideal("lru"),
            policies: names.iter().map(live).collect::<Result<_>>()?,
        })
    };
    shares.iter().map(point).collect()
}

fn summary(points: &[Point], index: usize) -> Summary {
    let mean = |of: &dyn Fn(&Point) -> u64| {
        let sum: f64 = points.iter().map(|point| ratio(point.policies[index].pages_in, of(point)).ln()).sum();
        (sum / points.len() as f64).exp()
    };
    let worst = points
        .iter()
        .max_by(|one, other| {
            let of = |point: &Point| ratio(point.policies[index].pages_in, point.lru);
            of(one).total_cmp(&of(other))
        })
        .expect("there is a trace");
    let sum = |of: fn(&Figures) -> u64| points.iter().map(|point| of(&point.policies[index])).sum::<u64>();
    Summary {
        policy: points[0].policies[index].policy.clone(),
        of_lru: mean(&|point| point.lru),
        of_opt: mean(&|point| point.opt),
        worst: ratio(worst.policies[index].pages_in, worst.lru),
        worst_at: format!("{} {}%", worst.trace, worst.ram_percent),
        soft_per_major: ratio(sum(|figures| figures.soft), sum(|figures| figures.major)),
    }
}

fn ratio(value: u64, base: u64) -> f64 {
    value as f64 / base.max(1) as f64
}

fn render(points: &[Point], summaries: &[Summary]) -> String {
    let mut lines = vec![["trace", "RAM", "pages", "Belady", "LRU"].map(str::to_owned).to_vec()];
    lines[0].extend(summaries.iter().map(|summary| summary.policy.clone()));
    lines.extend(points.iter().map(|point| {
        let mut line = vec![
            human::clipped(&point.trace, NAME_CHARS_MAX),
            format!("{}%", point.ram_percent),
            point.pages.to_string(),
            format!("{:.2}", ratio(point.opt, point.lru)),
            point.lru.to_string(),
        ];
        line.extend(point.policies.iter().map(|it| format!("{:.2}", ratio(it.pages_in, point.lru))));
        line
    }));
    let right: Vec<bool> = (0..lines[0].len()).map(|column| column > 0).collect();
    let mut means =
        vec![["policy", "of LRU", "of Belady", "worst", "at", "soft / major"].map(str::to_owned).to_vec()];
    means.extend(summaries.iter().map(|it| {
        vec![
            it.policy.clone(),
            format!("{:.3}", it.of_lru),
            format!("{:.3}", it.of_opt),
            format!("{:.2}", it.worst),
            clipped_place(&it.worst_at),
            format!("{:.2}", it.soft_per_major),
        ]
    }));
    format!(
        "pages that come in, first touches included: LRU's number, and ratios to it\n\n{}\n\
         geometric means, and the worst point of LRU\n\n{}",
        in_blocks(&lines, &right, 2),
        aligned(&means, &[false, true, true, true, false, true])
    )
}

/// `TRACE 50%`, with as much of the trace's name as there is room for.
fn clipped_place(place: &str) -> String {
    let (trace, ram) = place.rsplit_once(' ').unwrap_or((place, ""));
    format!("{} {ram}", human::clipped(trace, NAME_CHARS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_geometric_and_the_worst_is_named() {
        let point = |trace: &str, pages_in| Point {
            trace: trace.to_owned(),
            ram_percent: 50,
            pages: 10,
            opt: 50,
            lru: 100,
            policies: vec![Figures { policy: "adaptive".to_owned(), pages_in, major: 10, soft: 5 }],
        };
        let points = [point("one", 50), point("other", 200)];
        let summary = summary(&points, 0);
        assert!((summary.of_lru - 1.0).abs() < 1e-9 && (summary.of_opt - 2.0).abs() < 1e-9);
        assert_eq!((summary.worst, summary.worst_at.as_str()), (2.0, "other 50%"));
        let long = Summary { worst_at: format!("{} 75%", "x".repeat(90)), ..summary.clone() };
        for (summary, place) in [(summary, "other 50%"), (long, "... 75%")] {
            let text = render(&points, &[summary]);
            assert!(text.contains(place) && text.lines().all(|line| line.len() <= 80), "{text}");
        }
    }

    /// *The story:* pages that a load only reads were empty, and cost nothing to lose: policies were said to
    /// read less than Belady's optimum does.
    #[test]
    fn no_policy_reads_less_than_the_optimum() {
        let args = Args {
            traces: Vec::new(),
            reclaim: None,
            accessed: false,
            readahead: "none".to_owned(),
            ram: String::new(),
            device: String::new(),
            jobs: None,
            json: false,
        };
        let device = Model::find("nvme").expect("built in");
        for write in [0, 50] {
            let load = format!("random:size=2M,touches=20k,write={write}");
            let names = ["adaptive", "lru"].map(str::to_owned);
            for point in points(&args, &load, &names, &[25, 75], &device).expect("no error") {
                assert!(point.policies.iter().all(|it| it.pages_in >= point.opt), "{point:?}");
            }
        }
    }

    #[test]
    fn only_shares_are_amounts_here() {
        assert_eq!(shares("25%,50%").unwrap(), [25, 50]);
        // *The story:* 12.5 % was simulated as 12, and 0.5 % as none.
        for wrong in ["64M", "12.5%", "0.5%", "0%", "101%"] {
            assert!(shares(wrong).is_err(), "{wrong}");
        }
    }
}
