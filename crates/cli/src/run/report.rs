//! Everything a run left behind, as one value: what `--json` writes, and what the summary and the verdict are made from.

use std::collections::BTreeMap;

use overspill_engine::shared::{events, paths, state};
use serde::Serialize;

use super::shared_page::Report as AgentReport;
use super::verdict::{self, Verdict};
use crate::args::RunArgs;
use crate::histogram::{Histogram, Latency};
use crate::os::child::{Ended, Status};

/// Of the JSON file's layout; a reader that knows it can read later files of the same number.
const SCHEMA_VERSION: u32 = 1;

/// Counters that have the kernel's names because they count what the kernel's own count.
const VMSTAT: [&str; 17] = [
    "pgfault",
    "pgmajfault",
    "pswpin",
    "pswpout",
    "zswpin",
    "zswpout",
    "zswpwb",
    "swap_ra",
    "swap_ra_hit",
    "pgscan_kswapd",
    "pgsteal_kswapd",
    "pgscan_direct",
    "pgsteal_direct",
    "allocstall",
    "workingset_refault_anon",
    "pgactivate",
    "pgdeactivate",
];
/// Counters that are levels, not sums: added up over processes they would mean nothing.
const LEVELS: [&str; 9] = [
    "pool_peak_bytes",
    "resident_bytes",
    "resident_peak_bytes",
    "resident_sum_bytes",
    "resident_samples",
    "swap_used_bytes",
    "swap_peak_bytes",
    "budget_sum_bytes",
    "budget_samples",
];

type Counts = BTreeMap<&'static str, u64>;

/// A run.
#[derive(Serialize, Debug, Default)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The command line.
    pub command: Vec<String>,
    /// Process id of the command.
    pub pid: u32,
    /// Its exit status, unless a signal killed it.
    pub exit_code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// From start to end.
    pub wall_seconds: f64,
    /// CPU time in the programs of the whole tree, agents included.
    pub user_seconds: f64,
    /// CPU time of the tree in the kernel.
    pub system_seconds: f64,
    /// The budget of each process.
    pub ram_bytes: u64,
    /// The bound of its swap.
    pub swap_max_bytes: Option<u64>,
    /// Where it spilled to.
    pub swap: String,
    /// `--page-cluster`.
    pub page_cluster: Option<u32>,
    /// The read-ahead policy.
    pub readahead: &'static str,
    /// `--strict`.
    pub strict: bool,
    /// Whether an agent watched or managed at least one process to the end.
    pub managed: bool,
    /// Why none did.
    pub unmanaged_reason: Option<String>,
    /// Why some did not, although others did.
    pub partly_unmanaged_reason: Option<String>,
    /// Swap was full at some time.
    pub swap_full: bool,
    /// ... and `--strict` ended the program for it.
    pub strict_ended: bool,
    /// The most anonymous memory that a process held.
    pub resident_peak_bytes: u64,
    /// The mean over that process's life.
    pub resident_mean_bytes: u64,
    /// The most that a process had in swap.
    pub swap_peak_bytes: u64,
    /// Time in which a process waited for major faults (the process that waited most).
    pub stalled_seconds: f64,
    /// Its share of the wall time.
    pub stalled_share: f64,
    /// Latency of the faults that needed no reading.
    pub soft_faults: Latency,
    /// Latency of those that did.
    pub major_faults: Latency,
    /// Sums of the counters with kernel names.
    pub vmstat: Counts,
    /// Sums of the pager's other counters.
    pub pager: Counts,
    /// What to think of it.
    pub verdict: Verdict,
    /// Every process that reported.
    pub processes: Vec<Process>,
}

/// A process of the run.
#[derive(Serialize, Debug)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// `watching`, `managing`, `unmanaged` or `strict_full`.
    pub state: &'static str,
    /// What the summary must mention.
    pub events: Vec<&'static str>,
    /// The ways that its agent goes: `move` (UFFDIO_MOVE, else copies), `io_uring` (else threads).
    pub paths: Vec<&'static str>,
    /// errno behind its failure; 0 = none.
    pub error: u32,
    /// The step that failed; 0 = none.
    pub error_step: u32,
    /// Latency of its soft faults.
    pub soft_faults: Latency,
    /// Latency of its major faults.
    pub major_faults: Latency,
    /// Its counters with kernel names.
    pub vmstat: Counts,
    /// Its other counters.
    pub pager: Counts,
}

/// What `run` knows without the agents.
pub struct Run<'a> {
    /// The options.
    pub args: &'a RunArgs,
    /// The budget.
    pub ram_bytes: u64,
    /// Where it spilled to.
    pub swap: String,
    /// The command's process id.
    pub pid: u32,
    /// How it ended.
    pub ended: Ended,
    /// How long it took.
    pub wall_seconds: f64,
    /// Why the agent could not be loaded, if that was known beforehand.
    pub unmanageable: Option<String>,
}

impl Report {
    /// Puts together what `run` and the agents know.
    pub fn new(run: &Run<'_>, agents: &[AgentReport]) -> Report {
        let args = run.args;
        let machine_bytes = crate::machine::ram_bytes();
        let mut report = Report {
            schema_version: SCHEMA_VERSION,
            command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            pid: run.pid,
            wall_seconds: run.wall_seconds,
            user_seconds: run.ended.user.as_secs_f64(),
            system_seconds: run.ended.system.as_secs_f64(),
            ram_bytes: run.ram_bytes,
            swap_max_bytes: args.tuning.swap_max.map(|size| size.bytes(machine_bytes)),
            swap: run.swap.clone(),
            page_cluster: args.tuning.page_cluster,
            readahead: args.tuning.readahead.unwrap_or_default().name(),
            strict: args.tuning.strict,
            processes: agents.iter().map(process).collect(),
            ..Report::default()
        };
        match run.ended.status {
            Status::Exited(code) => report.exit_code = Some(code),
            Status::Signaled(signal) => report.signal = Some(signal),
        }
        report.add_up(agents);
        report.unmanaged_reason = unmanaged_reason(run, agents);
        report.managed = report.unmanaged_reason.is_none();
        report.partly_unmanaged_reason = agents.iter().find_map(failure).filter(|_| report.managed);
        report.verdict = verdict::judge(&report, &args.tuning);
        report
    }

    fn add_up(&mut self, agents: &[AgentReport]) {
        let (mut soft, mut major) = (Histogram::default(), Histogram::default());
        let mut stalled_ns = 0;
        for agent in agents {
            soft.add(&agent.soft);
            major.add(&agent.major);
            stalled_ns = stalled_ns.max(agent.counter("stalled_ns"));
            self.swap_full |= agent.events & events::SWAP_FULL != 0 || agent.state == state::STRICT_FULL;
            self.strict_ended |= agent.state == state::STRICT_FULL;
            self.swap_peak_bytes = self.swap_peak_bytes.max(agent.counter("swap_peak_bytes"));
            for &(name, value) in &agent.counters {
                if !LEVELS.contains(&name) {
                    *group(name, &mut self.vmstat, &mut self.pager).entry(name).or_default() += value;
                }
            }
        }
        if let Some(largest) = agents.iter().max_by_key(|agent| agent.counter("resident_peak_bytes")) {
            self.resident_peak_bytes = largest.counter("resident_peak_bytes");
            let samples = largest.counter("resident_samples");
            self.resident_mean_bytes =
                largest.counter("resident_sum_bytes").checked_div(samples).unwrap_or(0);
        }
        self.soft_faults = soft.latency();
        self.major_faults = major.latency();
        self.stalled_seconds = stalled_ns as f64 / 1e9;
        self.stalled_share =
            if self.wall_seconds > 0.0 { self.stalled_seconds / self.wall_seconds } else { 0.0 };
    }

    /// A sum by its name; 0 when no process reported.
    pub fn sum(&self, name: &str) -> u64 {
        self.vmstat.get(name).or_else(|| self.pager.get(name)).copied().unwrap_or(0)
    }

    /// How the command ended.
    pub fn status(&self) -> Status {
        self.signal.map_or_else(|| Status::Exited(self.exit_code.unwrap_or(0)), Status::Signaled)
    }

    /// Whether some process had this event.
    pub fn has_event(&self, name: &str) -> bool {
        self.processes.iter().any(|process| process.events.contains(&name))
    }
}

fn group<'a>(name: &str, vmstat: &'a mut Counts, pager: &'a mut Counts) -> &'a mut Counts {
    if VMSTAT.contains(&name) { vmstat } else { pager }
}

fn process(agent: &AgentReport) -> Process {
    let (mut vmstat, mut pager) = (Counts::new(), Counts::new());
    for &(name, value) in &agent.counters {
        group(name, &mut vmstat, &mut pager).insert(name, value);
    }
    Process {
        pid: agent.pid,
        state: state_name(agent.state),
        events: names(agent.events, &EVENTS),
        paths: names(agent.paths, &PATHS),
        error: agent.error,
        error_step: agent.error_step,
        soft_faults: agent.soft.latency(),
        major_faults: agent.major.latency(),
        vmstat,
        pager,
    }
}

fn state_name(number: u32) -> &'static str {
    match number {
        state::WATCHING => "watching",
        state::MANAGING => "managing",
        state::UNMANAGED => "unmanaged",
        state::STRICT_FULL => "strict_full",
        _ => "unknown",
    }
}

const EVENTS: [(u32, &str); 4] = [
    (events::SWAP_FULL, "swap_full"),
    (events::WRITE_ERROR, "write_error"),
    (events::READ_ERROR, "read_error"),
    (events::FORKED, "forked"),
];
const PATHS: [(u32, &str); 3] =
    [(paths::MOVE, "move"), (paths::URING, "io_uring"), (paths::POLL_IDLE, "idle_poll")];

/// The names of the bits that are set.
fn names(bits: u32, names: &[(u32, &'static str)]) -> Vec<&'static str> {
    names.iter().filter(|(bit, _)| bits & bit != 0).map(|&(_, name)| name).collect()
}

/// Why no process was managed to the end; `None` if one was.
fn unmanaged_reason(run: &Run<'_>, agents: &[AgentReport]) -> Option<String> {
    if agents.iter().any(|agent| agent.state != state::UNMANAGED) {
        return None;
    }
    if let Some(reason) = agents.iter().find_map(failure) {
        return Some(reason);
    }
    Some(run.unmanageable.clone().unwrap_or_else(|| "the agent never reported from the program".into()))
}

fn failure(agent: &AgentReport) -> Option<String> {
    (agent.state == state::UNMANAGED).then(|| super::failure_text(agent.error_step, agent.error))
}
