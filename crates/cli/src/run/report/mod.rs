//! Everything a run left behind, as one value: what `--json` writes, and what the summary and the
//! verdict are made from.

pub mod ending;
pub mod first_touch;
pub mod proposal;
pub mod scanning;
pub mod slowdown;
pub mod summary;
pub mod verdict;
pub mod vmstat;

use std::collections::BTreeMap;

use overspill_engine::shared::{events, paths, state};
use serde::Serialize;

use crate::args::RunArgs;
use crate::histogram::{Histogram, Latency};
use crate::human;
use crate::os::child::{Ended, Status};
use crate::run::places::Place;
use crate::run::shared_page::{LEVELS, Report as AgentReport};
use crate::run::tree::census::{Census, Record};
use crate::run::tree::others::{self, OtherRun};
use crate::run::watch::Watched;
use scanning::Scanning;
use slowdown::{Machine, Slowdown, waiters};
use verdict::Verdict;
use vmstat::VMSTAT;

/// Of the JSON file's layout; a reader that knows it can read later files of the same number.
const SCHEMA_VERSION: u32 = 1;

/// Counters of large mappings of files that were left to the kernel, and why that was.
const FILES_LEFT: [(&str, &str); 7] = [
    ("files_left_writable_bytes", "shared and writable"),
    ("files_left_executable_bytes", "executable"),
    ("files_left_memory_bytes", "in memory anyway"),
    ("files_left_locked_bytes", "locked"),
    ("files_left_small_bytes", "small"),
    ("files_left_changing_bytes", "written to by others"),
    ("files_left_other_bytes", "for other reasons"),
];

/// So much more than what was seen, and a quarter of that, may have gone by between two looks
/// without being told.
const UNSEEN_BYTES: u64 = 8 << 20;
const UNSEEN_SHARE: u64 = 4;

type Counts = BTreeMap<&'static str, u64>;

/// A run.
#[derive(Serialize, Debug, Default)]
pub struct Report {
    /// Of this layout.
    pub schema_version: u32,
    /// The command line, as text: of a word that is none (not UTF-8) what is wrong is replaced by U+FFFD.
    pub command: Vec<String>,
    /// The same, quoted for bash: exact, whatever bytes there are.
    pub command_line: String,
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
    /// The budget of the tree; of each process with `--per-process`.
    pub ram_bytes: u64,
    /// The bound of its swap.
    pub swap_max_bytes: Option<u64>,
    /// Where it spilled to.
    pub swap: String,
    /// What went to each of those places, and what was there.
    pub places: Vec<Place>,
    /// `--page-cluster`.
    pub page_cluster: Option<u32>,
    /// The read-ahead policy.
    pub readahead: &'static str,
    /// The reclaim policy.
    pub reclaim: &'static str,
    /// `--strict`.
    pub strict: bool,
    /// Whether every process that was seen was watched or managed by an agent to the end.
    pub managed: bool,
    /// Why none was.
    pub unmanaged_reason: Option<String>,
    /// Why some were not, although others were: that of the largest of them.
    pub partly_unmanaged_reason: Option<String>,
    /// Programs that ran.
    pub programs_total: u64,
    /// The most of them at one moment.
    pub programs_at_once: u64,
    /// How many of them had no agent.
    pub programs_unmanaged: u64,
    /// How many of them had the agent of a run within this one.
    pub programs_of_other_runs: u64,
    /// Which run that was.
    pub other_runs: Option<String>,
    /// How many of them had not ended when the command had.
    pub programs_left: u64,
    /// The most that the whole tree held at a time: anonymous and shared memory.
    pub tree_peak_bytes: u64,
    /// What of that was shared memory, which is not managed.
    pub tree_peak_shmem_bytes: u64,
    /// What of it was page tables, which nobody can page.
    pub tree_peak_table_bytes: u64,
    /// The most at a time that nobody could page: shared, unmanaged, locked.
    pub tree_peak_unpaged_bytes: u64,
    /// The most that it held at a time, less a MiB for each program that was there then.
    #[serde(skip)]
    pub tree_peak_beside_bytes: u64,
    /// The mean over the run of what the tree held.
    pub tree_mean_bytes: u64,
    /// The most at a time without pages of files that nobody had asked for.
    pub tree_used_bytes: u64,
    /// The most at a time that a process had of those.
    pub files_unseen_peak_bytes: u64,
    /// The most at a time that stopped processes held.
    pub stopped_peak_bytes: u64,
    /// How many of them there were.
    pub stopped_programs: u64,
    /// For how long some of them held anything.
    pub stopped_seconds: f64,
    /// Programs that were there for less than two looks.
    pub brief_programs: u64,
    /// What each of them held at its peak, added up.
    pub brief_programs_bytes: u64,
    /// Processes of its memory cgroup that the kernel ended meanwhile for want of memory.
    pub oom_kills: u64,
    /// The limit of the memory cgroup around the run, or of one above, if there is one.
    pub group_limit_bytes: Option<u64>,
    /// The most RAM of any kind that a process had in an instant that nobody saw; 0: what was seen
    /// explains all.
    pub unseen_peak_bytes: u64,
    /// The same where an agent had seen it, but the launcher had not, who could have told what of it were
    /// files.
    pub brief_peak_bytes: u64,
    /// What the whole tree would have held at a time with RAM enough, each page once; with
    /// `--per-process` the largest process.
    pub needed_bytes: u64,
    /// The same with what had left RAM as zeroes and was neither touched nor dropped since.
    pub needed_most_bytes: u64,
    /// What the largest process would have held with RAM enough.
    #[serde(skip)]
    pub needed_process_bytes: u64,
    /// What would have been needed if each process had all that it has by itself.
    #[serde(skip)]
    pub needed_apart_bytes: u64,
    /// Swap was full at some time.
    pub swap_full: bool,
    /// Swap was full, and `--strict` ended the program for it.
    pub strict_ended: bool,
    /// A program that was not managed, for which `--strict` ended it.
    pub strict_refused: Option<String>,
    /// There may have been processes that could not be looked at.
    pub overlooked: bool,
    /// Much came and went between two looks: more may have been held than was seen.
    pub looked_late: bool,
    /// The most anonymous memory that a process held.
    pub resident_peak_bytes: u64,
    /// The mean of what that process held over its life.
    pub resident_mean_bytes: u64,
    /// The most that a process had in swap.
    pub swap_peak_bytes: u64,
    /// Time in which a process waited for pages that were paged out, all processes together.
    pub stalled_seconds: f64,
    /// Its share of the wall time, or of the time that those processes lived if that is more.
    pub stalled_share: f64,
    /// Time in which a process waited for its agent at all, all processes together.
    pub waiting_seconds: f64,
    /// Processor time of the agents.
    pub agent_seconds: f64,
    /// What of that was in the kernel.
    pub agent_system_seconds: f64,
    /// Time in which first threads neither ran nor waited for a processor, of all processes that waited.
    pub blocked_seconds: f64,
    /// Faults of the tree that no agent answered.
    #[serde(skip)]
    pub kernels_faults: u64,
    /// How many times as long it took as it would have with RAM enough, as far as waiting and
    /// processor times tell.
    pub slowdown: Slowdown,
    /// Latency of the faults that needed no reading.
    pub soft_faults: Latency,
    /// Latency of those that did.
    pub major_faults: Latency,
    /// Sums of the counters with kernel names.
    pub vmstat: Counts,
    /// Sums of the pager's other counters.
    pub pager: Counts,
    /// What is derived from those of reclaim.
    pub scanning: Scanning,
    /// What to think of it.
    pub verdict: Verdict,
    /// Programs that are not among `processes`, where there were too many: they were managed, and
    /// nothing happened to them.
    pub programs_left_out: u64,
    /// Every program that a process ran and that was seen or reported; a process that called exec
    /// has several.
    pub processes: Vec<Process>,
}

/// A process of the run.
#[derive(Serialize, Debug)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Whether an agent watched or managed it to its end.
    pub managed: bool,
    /// Why not.
    pub reason: Option<String>,
    /// The most anonymous memory that it held.
    pub peak_bytes: u64,
    /// The most shared memory that it was seen to hold.
    pub shmem_peak_bytes: u64,
    /// It had not ended when the command had.
    pub left: bool,
    /// `watching`, `managing`, `unmanaged` or `strict_full`; `unseen`: there was no agent.
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
    /// What was seen meanwhile.
    pub watched: Watched,
}

impl Report {
    /// Puts together what was seen and what the agents told.
    pub fn new(mut run: Run<'_>) -> Report {
        let args = run.args;
        let records = run.watched.census.finish();
        let census = &run.watched.census;
        let orphans = run.watched.orphans;
        let mut report = Report {
            schema_version: SCHEMA_VERSION,
            command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            command_line: human::command(&args.command),
            pid: run.pid,
            wall_seconds: run.wall_seconds,
            user_seconds: run.ended.user.as_secs_f64() + orphans.user_us as f64 / 1e6,
            system_seconds: run.ended.system.as_secs_f64() + orphans.system_us as f64 / 1e6,
            ram_bytes: run.ram_bytes,
            swap_max_bytes: args.tuning.swap_max.map(|size| size.bytes(crate::machine::ram_for_shares())),
            swap: run.swap.clone(),
            places: run.watched.places.clone(),
            page_cluster: args.tuning.page_cluster,
            readahead: args.tuning.readahead.unwrap_or_default().name(),
            reclaim: args.tuning.reclaim.unwrap_or_default().name(),
            strict: args.tuning.strict,
            strict_refused: refused(&run, &records),
            overlooked: run.watched.overlooks,
            looked_late: run.watched.looks_late,
            tree_mean_bytes: census.tree_mean_bytes(),
            tree_peak_bytes: census.tree_peak_bytes,
            tree_peak_beside_bytes: census.tree_peak_beside_bytes,
            tree_peak_shmem_bytes: census.tree_peak_shmem_bytes,
            tree_peak_table_bytes: census.tree_peak_table_bytes,
            tree_peak_unpaged_bytes: census.tree_peak_unpaged_bytes,
            programs_total: records.len() as u64 + census.left_out,
            programs_left_out: census.left_out,
            programs_at_once: census.most_at_once,
            stopped_peak_bytes: census.stopped.peak_bytes,
            stopped_programs: census.stopped.programs,
            stopped_seconds: census.stopped.for_ns as f64 / 1e9,
            oom_kills: run.watched.group.killed,
            group_limit_bytes: run.watched.group.limit_bytes,
            kernels_faults: run.ended.faults_minor,
            processes: records.iter().map(process).collect(),
            ..Report::default()
        };
        match run.ended.status {
            Status::Exited(code) => report.exit_code = Some(code),
            Status::Signaled(signal) => report.signal = Some(signal),
        }
        report
            .add_up(records.iter().filter_map(|record| record.agent.as_ref()).chain(&census.left_out_agents));
        report.needed_process_bytes = report.needed_bytes;
        report.needed_apart_bytes = census.tree_needed_apart_bytes;
        if !args.tuning.per_process {
            report.needed_bytes = report.needed_bytes.max(census.tree_needed_bytes);
            report.needed_most_bytes = report.needed_most_bytes.max(census.tree_needed_most_bytes);
        }
        let lives_ns = waiters(&records).map(Record::lived_ns).sum::<u64>() + census.left_out_lives_ns;
        let blocked = waiters(&records).map(Record::blocked_ns);
        report.blocked_seconds = (blocked.sum::<u64>() + census.left_out_blocked_ns) as f64 / 1e9;
        report.estimate(lives_ns as f64 / 1e9, Machine::here(report.is_paged()));
        report.scanning = Scanning::new(|name| report.sum(name), report.wall_seconds);
        report.judge_records(&run, &records);
        report.verdict = verdict::judge(&report, &args.tuning);
        report
    }

    /// Who was managed, and what was held.
    fn judge_records(&mut self, run: &Run<'_>, records: &[Record]) {
        let unmanaged = || records.iter().filter(|record| !record.is_managed() && record.other_run.is_none());
        self.note_other_runs(records);
        let peak = |record: &&Record| record.anon_peak_bytes + record.shmem_peak_bytes;
        self.programs_unmanaged = unmanaged().count() as u64;
        self.programs_left = records.iter().filter(|record| record.is_left).count() as u64;
        let mut brief = run.watched.census.left_out_brief;
        records.iter().for_each(|record| brief.add(record));
        (self.brief_programs, self.brief_programs_bytes) = (brief.programs, brief.bytes);
        let largest = unmanaged().max_by_key(peak);
        let reason = largest.and_then(Record::complaint);
        if self.programs_total == 0 || self.programs_unmanaged == self.programs_total {
            let never = || "the agent never reported from the program".to_owned();
            // What was known of the command beforehand says more than what its process could be asked.
            self.unmanaged_reason = Some(run.unmanageable.clone().or(reason).unwrap_or_else(never));
        } else {
            self.partly_unmanaged_reason = reason;
        }
        let has_others = self.programs_unmanaged + self.programs_of_other_runs > 0;
        self.managed = !has_others && self.programs_total > 0 && !self.overlooked;
        let kept_peak = records.iter().map(|record| record.anon_peak_bytes).max().unwrap_or(0);
        let process_peak = kept_peak.max(run.watched.census.left_out_anon_bytes);
        self.resident_peak_bytes = self.resident_peak_bytes.max(process_peak);
        self.tree_peak_bytes = self.tree_peak_bytes.max(self.resident_peak_bytes);
        if !self.is_paged() {
            // Who paged had made room in time, as far as anybody knows.
            let late = run.watched.census.tree_late_bytes;
            self.tree_peak_bytes = self.tree_peak_bytes.max(late.min(self.ram_bytes));
        }
        self.tree_used_bytes = match self.files_unseen_peak_bytes {
            0 => self.tree_peak_bytes,
            _ => self.used_bytes(&run.watched.census),
        };
        let left_out = run.watched.census.left_out_resident_bytes;
        let most = |of: fn(&Record) -> u64| records.iter().map(of).chain([left_out]).max().unwrap_or(0);
        let reached = run.ended.resident_peak_bytes.max(run.watched.orphans.resident_peak_bytes);
        let filled = self.files_unseen_peak_bytes;
        let explains = |seen: u64| reached <= seen + filled + seen / UNSEEN_SHARE + UNSEEN_BYTES;
        if !explains(most(Record::held_peak_bytes)) {
            self.unseen_peak_bytes = reached;
        } else if !explains(most(|record| record.looked_peak_bytes.max(record.anon_peak_bytes))) {
            self.brief_peak_bytes = reached;
        }
    }

    /// What was held and asked for, where something else was held, too.
    fn used_bytes(&self, census: &Census) -> u64 {
        let late = if self.is_paged() { 0 } else { census.tree_late_bytes.min(self.ram_bytes) };
        census.tree_used_bytes.max(self.needed_bytes).max(late).min(self.tree_peak_bytes)
    }

    fn note_other_runs(&mut self, records: &[Record]) {
        let of = |record: &Record| record.other_run.clone().filter(|_| !record.is_managed());
        let runs: Vec<OtherRun> = records.iter().filter_map(of).collect();
        self.programs_of_other_runs = runs.len() as u64;
        self.other_runs = others::told(&runs);
    }

    fn add_up<'a>(&mut self, agents: impl Iterator<Item = &'a AgentReport>) {
        let agents: Vec<&AgentReport> = agents.collect();
        let (mut soft, mut major) = (Histogram::default(), Histogram::default());
        let (mut stalled_ns, mut waiting_ns, mut agent_ns, mut agent_system_ns) = (0, 0, 0, 0);
        for agent in &agents {
            soft.add(&agent.soft);
            major.add(&agent.major);
            stalled_ns += agent.counter("stalled_ns");
            waiting_ns += agent.counter("waiting_ns");
            agent_ns += agent.counter("agent_cpu_ns");
            agent_system_ns += agent.counter("agent_system_ns");
            self.needed_bytes = self.needed_bytes.max(agent.counter("needed_peak_bytes"));
            self.needed_most_bytes = self.needed_most_bytes.max(agent.counter("needed_most_peak_bytes"));
            let unseen = agent.counter("files_unseen_peak_bytes");
            self.files_unseen_peak_bytes = self.files_unseen_peak_bytes.max(unseen);
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
        self.agent_seconds = agent_ns as f64 / 1e9;
        self.agent_system_seconds = agent_system_ns as f64 / 1e9;
        self.stalled_seconds = stalled_ns as f64 / 1e9;
        self.waiting_seconds = waiting_ns as f64 / 1e9;
    }

    /// Is the processor time that of all whose waits are counted? Of those that go on it is what a last look
    /// saw, and a wait that is not over is in no sum.
    ///
    /// *The story:* where a child went on, "x100+ the time with RAM enough" was said of a run that had
    /// waited for 28 % of it.
    pub fn is_told_of_all(&self) -> bool {
        self.programs_left == 0
    }

    /// A sum by its name; 0 when no process reported.
    pub fn sum(&self, name: &str) -> u64 {
        self.vmstat.get(name).or_else(|| self.pager.get(name)).copied().unwrap_or(0)
    }

    /// Why large mappings of files stayed with the kernel, and their bytes.
    pub fn files_left(&self) -> Vec<(&'static str, u64)> {
        let all = FILES_LEFT.iter().map(|&(name, why)| (why, self.sum(name)));
        all.filter(|&(_, bytes)| bytes > 0).collect()
    }

    /// Did anything leave RAM for want of room? Clean pages of files do without a write, and so do pages
    /// of zeroes, which cost a fault and no reading.
    pub fn is_paged(&self) -> bool {
        let left = self.sum("pswpout") + self.sum("zswpout") + self.sum("zero_dropped");
        let taken = self.sum("pgsteal_kswapd") + self.sum("pgsteal_direct");
        left > 0 || self.sum("files_managed") > 0 && taken > 0
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

/// What `--strict` does not allow: for that the run was ended, or it was over before.
fn refused(run: &Run<'_>, records: &[Record]) -> Option<String> {
    let late = || records.iter().find(|record| record.was_unkept()).and_then(Record::complaint);
    run.args.tuning.strict.then(|| run.watched.refused.clone().or_else(late))?
}

fn group<'a>(name: &str, vmstat: &'a mut Counts, pager: &'a mut Counts) -> &'a mut Counts {
    if VMSTAT.contains(&name) { vmstat } else { pager }
}

fn process(record: &Record) -> Process {
    let (mut vmstat, mut pager) = (Counts::new(), Counts::new());
    let agent = record.agent.as_ref();
    for &(name, value) in agent.map_or(&[][..], |agent| &agent.counters) {
        group(name, &mut vmstat, &mut pager).insert(name, value);
    }
    Process {
        pid: record.pid,
        comm: record.name.clone(),
        managed: record.is_managed(),
        reason: record.reason(),
        peak_bytes: record.anon_peak_bytes,
        shmem_peak_bytes: record.shmem_peak_bytes,
        left: record.is_left,
        state: agent.map_or("unseen", |agent| state_name(agent.state)),
        events: agent.map_or_else(Vec::new, |agent| names(agent.events, &EVENTS)),
        paths: agent.map_or_else(Vec::new, |agent| names(agent.paths, &PATHS)),
        error: agent.map_or(0, |agent| agent.error),
        error_step: agent.map_or(0, |agent| agent.error_step),
        soft_faults: agent.map_or_else(Latency::default, |agent| agent.soft.latency()),
        major_faults: agent.map_or_else(Latency::default, |agent| agent.major.latency()),
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

const EVENTS: [(u32, &str); 7] = [
    (events::SWAP_FULL, "swap_full"),
    (events::WRITE_ERROR, "write_error"),
    (events::READ_ERROR, "read_error"),
    (events::FORKED, "forked"),
    (events::FILE_READ_ERROR, "file_read_error"),
    (events::WRONG_BYTES, "wrong_bytes"),
    (events::LEAK_SEARCH, "leak_search"),
];
const PATHS: [(u32, &str); 4] = [
    (paths::MOVE, "move"),
    (paths::URING, "io_uring"),
    (paths::POLL_IDLE, "idle_poll"),
    (paths::ENCRYPT, "encrypt"),
];

/// The names of the bits that are set.
fn names(bits: u32, names: &[(u32, &'static str)]) -> Vec<&'static str> {
    names.iter().filter(|(bit, _)| bits & bit != 0).map(|&(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *The story:* from the 4097th program on those that were managed were left out, and nobody was told.
    #[test]
    fn programs_that_are_left_out_are_counted() {
        use clap::{Args, FromArgMatches};
        const PROGRAMS: u32 = 5000;
        let command = RunArgs::augment_args(clap::Command::new("x"));
        let args = RunArgs::from_arg_matches(&command.get_matches_from(["x", "--ram=20M", "true"])).unwrap();
        let mut census = crate::run::tree::census::Census::default();
        for pid in 10..10 + PROGRAMS {
            census.keep(AgentReport { state: state::WATCHING, ..AgentReport::empty(0, 1, pid, 30) });
        }
        let status = Status::Exited(0);
        let (user, system) = Default::default();
        let ended = Ended { status, user, system, faults_minor: 0, faults_major: 0, resident_peak_bytes: 0 };
        let watched = Watched {
            census,
            orphans: Default::default(),
            refused: None,
            overlooks: false,
            looks_late: false,
            group: Default::default(),
            places: vec![],
        };
        let run = Run {
            args: &args,
            ram_bytes: 20 << 20,
            swap: String::new(),
            pid: 10,
            ended,
            wall_seconds: 1.0,
            unmanageable: None,
            watched,
        };
        let report = serde_json::to_value(Report::new(run)).unwrap();
        let left_out = report["programs_left_out"].as_u64().unwrap();
        let listed = report["processes"].as_array().unwrap().len() as u64;
        assert!(left_out > 0, "{listed} are listed");
        assert_eq!((listed + left_out, &report["programs_total"]), (PROGRAMS.into(), &PROGRAMS.into()));
    }
}
