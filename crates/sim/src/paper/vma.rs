//! The announcement of per-region read-ahead: programs that write in order beside programs that
//! write at random, and Linpack, in less memory than they need, on an NVMe drive, with the detector
//! by slots and the one by region.
//!
//! Sizes and times are the published ones divided by one number, which leaves rates, shares and
//! latencies as they are. What is not published is chosen here and named in the notes: the drive
//! (the smallest data-centre one of the time's best known), the swap area, and Linpack's matrix.

use super::{Cell, Effort, Judge, Row, Sheet};
use crate::device::params::Model;
use crate::engine::histogram::Histogram;
use crate::engine::outcome::Outcome;
use crate::generate;
use crate::paper::lu::Lu;
use crate::sweep::{Extent, Machine, System, options, parallel, simulate, simulate_with};
use crate::time::{SECOND, muldiv, permille};
use crate::workload::{Workload, WorkloadError};
use overspill_mm::types::PAGE_SIZE;

/// Sizes and times of the mixed load are divided by this.
const SCALE: u64 = 64;
/// Programs that write in order; they come first in the load, and the published values are theirs.
const FOREGROUND: usize = 4;
/// The swap area of the mixed load, twice the RAM as was usual: 80 GB in 32 and 64 fill the area
/// enough for its free slots to lie apart, which is what read-ahead by slot finds there.
const SWAP_BYTES: u64 = 64_000_000_000;
/// The columns' policies.
const POLICIES: [&str; 2] = ["cluster", "vma"];
/// Linpack's matrix is larger than its RAM by so many percent.
const LINPACK_RAM_PERCENT: u64 = 80;

/// A row: its name, the published values, what must hold, its value out of a simulation, and why it
/// differs if it does.
type Line = (&'static str, [u64; 2], Judge, fn(&Outcome) -> u64, Option<&'static str>);

const CLOSE: Judge = Judge::Ratios { within_permille: 150 };

const LINES: [Line; 10] = [
    ("throughput, KB/s", [345_413, 414_029], CLOSE, throughput, None),
    ("mean latency, ns", [97_140, 61_060], CLOSE, |outcome| refaults(outcome).mean_ns(), None),
    ("50 %, ns", [2_000, 1_000], Judge::Nothing, |outcome| refaults(outcome).quantile_ns(500), None),
    ("60 %, ns", [2_000, 1_000], Judge::Nothing, |outcome| refaults(outcome).quantile_ns(600), None),
    ("70 %, ns", [98_000, 2_000], Judge::Order, |outcome| refaults(outcome).quantile_ns(700), None),
    ("80 %, ns", [160_000, 2_000], Judge::Order, |outcome| refaults(outcome).quantile_ns(800), None),
    ("90 %, ns", [260_000, 217_000], Judge::Order, |outcome| refaults(outcome).quantile_ns(900), Some(TAIL)),
    ("95 %, ns", [346_000, 369_000], Judge::Order, |outcome| refaults(outcome).quantile_ns(950), Some(TAIL)),
    (
        "99 %, ns",
        [1_340_000, 1_090_000],
        Judge::Order,
        |outcome| refaults(outcome).quantile_ns(990),
        Some(TAIL),
    ),
    ("read-ahead used, 1/10,000", [5_269, 9_998], CLOSE, used, None),
];

const LINPACK_LINES: [Line; 2] = [
    (
        "elapsed, hundredths of a second",
        [39_349, 32_988],
        CLOSE,
        |outcome| outcome.elapsed_ns / 10_000_000,
        Some(LINPACK),
    ),
    ("read-ahead used, 1/10,000", [8_621, 9_882], CLOSE, used, None),
];

const TAIL: &str = "what the slowest reads wait for is not published of any drive: modelled is one program on their die, all equally \
                    long, so most reads take 0.13 ms and the rest up to 1.1 ms";
const LINPACK: &str =
    "neither the matrix nor the machine's share of it is published; the ratio is what counts";

/// Both loads.
pub fn run(effort: &Effort<'_>) -> Result<Vec<Sheet>, WorkloadError> {
    let total = 2 * POLICIES.len();
    let work = |job: usize| {
        let policy = POLICIES[job % POLICIES.len()];
        if job < POLICIES.len() { mixed(policy, effort.shorten) } else { linpack(policy, effort.shorten) }
    };
    let outcomes = parallel(total, effort.jobs, work, |done| (effort.progress)(done, total));
    let outcomes: Vec<Outcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
    let sheet = |title: &str, lines: &[Line], outcomes: &[Outcome], notes: Vec<String>| Sheet {
        title: title.to_owned(),
        unit: "as each row says",
        columns: vec!["cluster", "VMA"],
        rows: lines.iter().map(|line| row(line, outcomes)).collect(),
        notes,
    };
    let (mixed, linpack) = outcomes.split_at(POLICIES.len());
    Ok(vec![
        sheet(
            "4 programs write 50 GB in order beside 8 that write 30 GB at random, in 32 GB; values of the 4",
            &LINES,
            mixed,
            vec![
                format!(
                    "sizes and the 300 s divided by {}; swap of 64 GB; drive: nvme-2014 of `sim devices`",
                    SCALE * effort.shorten
                ),
                "latencies of faults on pages touched before; kernel of 2017".to_owned(),
                "fitted: that a read waits for the program on its die (0.93 ms; suspended after 0.1 ms the gain was 1.48 in place of \
                 1.20), and the size of the swap area, which decides how far apart free slots lie"
                    .to_owned(),
                "published by slot are 106 GB in 300 s, half of it touched before, at 97 us a page: 310 s of waiting for \
                 each program, so mean and throughput cannot both be met"
                    .to_owned(),
            ],
        ),
        sheet(
            "Linpack in less memory than its matrix",
            &LINPACK_LINES,
            linpack,
            vec![Lu::new(effort.shorten).describe()],
        ),
    ])
}

fn row(line: &Line, outcomes: &[Outcome]) -> Row {
    let (name, published, judge, value, reason) = line;
    let cells = published.iter().zip(outcomes);
    Row {
        name: (*name).to_owned(),
        cells: cells
            .map(|(&published, outcome)| Cell { published: Some(published), simulated: value(outcome) })
            .collect(),
        judge: *judge,
        reasons: reason.map(|reason| vec![(0, reason), (1, reason)]).unwrap_or_default(),
    }
}

fn machine(policy: &str, ram_bytes: u64, swap_bytes: Option<u64>, until: Option<u64>) -> Machine {
    let device = Model::builtin("nvme-2014").expect("built in");
    Machine { swap_bytes, until, ..Machine::new(System::Kernel2017, ram_bytes, policy, device) }
}

fn mixed(policy: &str, shorten: u64) -> Result<Outcome, WorkloadError> {
    let load = generate::parse(&format!("mixed:scale={}", SCALE * shorten)).expect("a load");
    let swap_bytes = SWAP_BYTES / (SCALE * shorten);
    let ram_bytes = load.ram_bytes.expect("published");
    let machine = machine(policy, ram_bytes, Some(swap_bytes), load.until_ns);
    let mut options = options(&machine, &Extent::of_load(&load));
    // The share of the active list grows with memory: that of the published machine counts.
    options.mm.scale = u32::try_from(SCALE * shorten).unwrap_or(u32::MAX);
    simulate_with(options, &machine, load.start())
}

fn linpack(policy: &str, shorten: u64) -> Result<Outcome, WorkloadError> {
    let lu = Lu::new(shorten);
    let pages = lu.pages();
    let machine = machine(policy, pages * PAGE_SIZE / 100 * LINPACK_RAM_PERCENT, None, None);
    let programs: Vec<Box<dyn Workload + Send>> = vec![Box::new(lu)];
    simulate(&machine, &Extent { pages, chunks: pages / 512 + 2 }, programs)
}

/// KB a second that the foreground writes, a page a touch.
fn throughput(outcome: &Outcome) -> u64 {
    let touches: u64 = outcome.threads.iter().take(FOREGROUND).map(|thread| thread.accesses).sum();
    muldiv(touches * (PAGE_SIZE / 1024), SECOND, outcome.elapsed_ns.max(1))
}

/// Latencies of the foreground.
fn refaults(outcome: &Outcome) -> Histogram {
    let mut all = Histogram::default();
    outcome.threads.iter().take(FOREGROUND).for_each(|thread| all.merge(&thread.refaults));
    all
}

/// Of the pages read ahead, those that were used.
fn used(outcome: &Outcome) -> u64 {
    permille(outcome.vmstat.swap_ra_hit * 10, outcome.vmstat.swap_ra)
}
