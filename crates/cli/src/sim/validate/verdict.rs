//! The counters side by side, and what to think of each.

use crate::human::folded;
use overspill_mm::types::PAGE_SIZE;
use overspill_sim::options::show_bytes;
use overspill_sim::report::table::fitting;
use overspill_sim::time::permille;
use serde::Serialize;

use super::simulated::BEGINNINGS;
use super::{Case, Counters, Devices, Setting};

/// The counters that are compared.
pub const COUNTERS: [&str; 9] = [
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
/// The kernel may be off by this much, in percent.
const KERNEL_TOLERANCE: u64 = 15;
/// The live pager by this much.
const PAGER_TOLERANCE: u64 = 5;
/// Differences of fewer pages than this share of all pages (1 in so many) mean nothing.
const NOISE_SHARE: u64 = 200;

/// One counter, real and simulated: means, with the least and the greatest value.
#[derive(Serialize)]
pub struct Figure {
    /// Which system.
    system: String,
    /// The load.
    load: String,
    /// The counter, by its kernel name.
    counter: &'static str,
    /// The mean of the real runs.
    real: u64,
    /// The least of them.
    real_least: u64,
    /// The greatest.
    real_most: u64,
    /// The mean of the simulated runs.
    simulated: u64,
    /// The least of them.
    simulated_least: u64,
    /// The greatest.
    simulated_most: u64,
    /// So far apart they may be.
    tolerance_percent: u64,
    /// Whether the verdict depends on it.
    judged: bool,
    /// Judged and within the tolerance, or not judged.
    pub holds: bool,
}

/// The figures of a case.
pub fn figures(
    case: &Case,
    real: &[Counters],
    simulated: &[Counters],
    setting: &Setting,
    more: bool,
) -> Vec<Figure> {
    let noise = setting.size_bytes / PAGE_SIZE / NOISE_SHARE;
    let tolerance_percent = if case.is_pager() { PAGER_TOLERANCE } else { KERNEL_TOLERANCE };
    let shown = if more && !case.is_pager() { COUNTERS.len() } else { JUDGED };
    let figure = |(index, &counter): (usize, &&'static str)| {
        let judged = index < JUDGED && !(case.is_pager() && counter == "pgmajfault");
        let real = Spread::of(real, counter);
        let simulated = Spread::of(simulated, counter);
        let difference = real.mean.abs_diff(simulated.mean);
        let within = difference <= noise || difference * 100 <= real.mean * tolerance_percent;
        Figure {
            system: case.system(),
            load: case.pattern.to_string(),
            counter,
            real: real.mean,
            real_least: real.least,
            real_most: real.most,
            simulated: simulated.mean,
            simulated_least: simulated.least,
            simulated_most: simulated.most,
            tolerance_percent,
            judged,
            holds: !judged || within,
        }
    };
    COUNTERS[..shown].iter().enumerate().map(figure).collect()
}

struct Spread {
    mean: u64,
    least: u64,
    most: u64,
}

impl Spread {
    fn of(runs: &[Counters], counter: &str) -> Spread {
        let values = runs.iter().map(|counters| counters[counter]);
        Spread {
            mean: values.clone().sum::<u64>() / runs.len().max(1) as u64,
            least: values.clone().min().unwrap_or(0),
            most: values.max().unwrap_or(0),
        }
    }
}

impl Figure {
    fn line(&self) -> Vec<String> {
        let ratio = permille(self.simulated, self.real);
        let (least, most) = (self.real_least, self.real_most);
        vec![
            self.system.clone(),
            self.load.clone(),
            self.counter.to_owned(),
            self.real.to_string(),
            if least == most { String::new() } else { format!("{least}..{most}") },
            self.simulated.to_string(),
            if self.real == 0 {
                "-".to_owned()
            } else {
                format!("{}.{:02}", ratio / 1000, ratio % 1000 / 10)
            },
            self.remark(),
        ]
    }

    /// A mark that the legend explains.
    fn remark(&self) -> String {
        let overlap = self.simulated_least <= self.real_most && self.real_least <= self.simulated_most;
        let mark = match (self.judged, self.holds, overlap) {
            (false, _, _) => "-",
            (true, true, _) => "",
            (true, false, true) => "~",
            (true, false, false) => "!",
        };
        mark.to_owned()
    }
}

/// The table, the score, and what is known to differ.
pub fn render(figures: &[Figure], setting: &Setting, devices: &Devices) -> String {
    let head = ["system", "load", "counter", "real", "", "simulated", "ratio", ""];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    lines.extend(figures.iter().map(Figure::line));
    let judged = figures.iter().filter(|figure| figure.judged).count();
    let held = figures.iter().filter(|figure| figure.judged && figure.holds).count();
    let subject = format!(
        "{} filled in order, stored to {} times over, verified in order, in {}; means of {} real and {BEGINNINGS} simulated runs, with the least and the most of the real ones; device: {}",
        show_bytes(setting.size_bytes),
        setting.laps,
        show_bytes(setting.ram_bytes),
        setting.runs,
        devices.names()
    );
    let table = fitting(lines, &[false, false, false, true, true, true, true, false], 2);
    let legend = format!(
        "- not judged    ! beyond the tolerance (kernel {KERNEL_TOLERANCE} %, overspill {PAGER_TOLERANCE} %)\n\
         ~ beyond it, but the ranges of the runs overlap\n"
    );
    format!(
        "{}\n{table}\n{legend}{held} of {judged} counters within their tolerance\n\n{}",
        folded(&subject, "    "),
        folded(EXPLANATION, "")
    )
}

/// What is known to differ.
const EXPLANATION: &str = "\
Why the two differ: the kernel sums a cgroup's statistics every two seconds and ages its active \
list by them, in bursts; when a burst falls makes the kernel's own runs differ by a tenth and \
more. Simulated: ten beginnings within that period. Random faults close and open the one window \
of read-ahead by slot, whose share of all reading is therefore a matter of luck. The kernel \
charges a cgroup 64 pages ahead for each processor and moves pages between lists in batches: \
left out. The pager's agent takes over at 73 % of the budget and learns the order of the pages \
by address: simulated by order of use. A cyclic load just beyond its RAM is a cliff: one frame \
in a hundred more or less is a tenth of the refaults. What the agent keeps its books in grows \
with the run and comes off the budget: simulated is the mean of what was left, with the \
watermarks and the swap cache of the whole, as the agent has them. The adaptive default expels \
scans by what it sees come back, and amplifies small things: simulated ten times, with the \
budgets of the real runs in turn, a frame more every time round. The kernel's counters are the \
whole system's. If by region looks like by slot, the kernel believes that a disk that rotates is \
swapped to: so it is for ever after a disk's flag `rotational` was switched between swapon and \
swapoff.";
