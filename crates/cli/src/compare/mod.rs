//! `overspill compare`: one command, several ways, one table. `bench` drives its built-in load through the same series.

mod capture;
pub mod figures;
pub mod guardian;
mod lab;
mod stdin;
mod swap_file;
mod table;
pub mod way;

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::args::CompareArgs;
use crate::machine::{self, Machine};
use crate::os::signals;
use crate::progress::Progress;
use crate::stdout::print;
use crate::swap::arg::SwapArg;
use crate::{cgroup, checks, exit, human};
use figures::{Median, Ratio};
pub use lab::{Lab, Measurement, require_program};
pub use stdin::Input;
pub use table::Table;
use way::Way;

/// Of the JSON files' layout.
const SCHEMA_VERSION: u32 = 1;

/// How often a run is made that the kernel kills: its swap does so at times for want of memory, with swap free.
pub const ATTEMPTS: u32 = 3;

/// What is going on while another comparison has the machine.
pub const WAITING: &str = "waiting for other comparisons to end";

/// What a series measured, as `--json` writes it.
#[derive(Serialize)]
pub struct Document<P: Serialize> {
    schema_version: u32,
    kind: &'static str,
    machine: Machine,
    command: Vec<String>,
    ram_bytes: u64,
    allowance_bytes: u64,
    parameters: P,
    medians: Vec<Median>,
    ratios: Vec<Ratio>,
    same_output: bool,
    runs: Vec<Measurement>,
}

/// What a series is about.
pub struct Subject<'a, P: Serialize> {
    /// `compare` or `bench`.
    pub kind: &'static str,
    /// What is run.
    pub command: &'a [OsString],
    /// `--ram`.
    pub ram_bytes: u64,
    /// What kernel and overspill get beyond it.
    pub allowance_bytes: u64,
    /// Anything else worth keeping.
    pub parameters: P,
}

/// Runs the comparison; the exit code is 1 when the runs did not all end alike with the same output.
pub fn main(args: &CompareArgs) -> Result<u8> {
    cgroup::require_root("compare")?;
    if let Err(message) = require_program(&args.command[0]) {
        eprintln!("overspill: {message}");
        return Ok(exit::NOT_FOUND);
    }
    let ways = args.measuring.ways();
    let place = place_for(&ways, &args.tuning.swap)?;
    let ram_bytes = args.ram.bytes(machine::ram_bytes());
    let keep = args.keep_output.as_deref().map(create).transpose()?;
    let directory = place.directory.clone();
    let progress = Progress::new();
    progress.say("reading standard input");
    let input = Input::capture(&directory)?;
    progress.say(WAITING);
    let mut lab = Lab::new(place, &args.tuning, ram_bytes, 0)?;
    let rounds = args.measuring.runs;
    let runs =
        series(&mut lab, Turns { ways: &ways, rounds }, &args.command, &input, keep, &progress, |_| Ok(()));
    drop(progress);
    let runs = end_of(lab, runs)?;
    let subject =
        Subject { kind: "compare", command: &args.command, ram_bytes, allowance_bytes: 0, parameters: () };
    let same_output = has_same_output(&runs);
    let table = table(&subject, rounds, &runs);
    if let Some(path) = &args.measuring.json {
        write(path, subject, runs, &directory)?;
    }
    let alike = if same_output { "the same output in all runs" } else { "THE OUTPUT OR THE STATUS DIFFERS" };
    print(&format!("{}\n{table}{alike}\n", human::command(&args.command)))?;
    Ok(u8::from(!same_output))
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Where to spill, with the checks that `run` would make anyway.
pub fn place_for(ways: &[Way], swap: &[SwapArg]) -> Result<checks::SwapPlace> {
    let wants_agent = ways.iter().any(|way| matches!(way, Way::Overspill { .. }));
    let found = if wants_agent {
        checks::essential(swap).map(|ready| ready.swap)
    } else {
        checks::swap_place::resolve_all(swap)
    };
    let found = found.map(|places| places.into_iter().next().expect("there is at least the default"));
    found.map_err(|check| anyhow::anyhow!("{}", check.line()))
}

/// Which ways, and how often.
#[derive(Clone, Copy)]
pub struct Turns<'a> {
    /// The ways of each round.
    pub ways: &'a [Way],
    /// How many rounds.
    pub rounds: u32,
}

/// Every way, as often as asked for, in turns: so that a drift of the machine meets all of them.
pub fn series(
    lab: &mut Lab,
    turns: Turns,
    command: &[OsString],
    input: &Input,
    mut keep: Option<File>,
    progress: &Progress,
    mut complete: impl FnMut(&mut Measurement) -> Result<()>,
) -> Result<Vec<Measurement>> {
    let mut runs = Vec::new();
    for round in 1..=turns.rounds {
        for way in turns.ways {
            let round =
                if turns.rounds == 1 { String::new() } else { format!(", run {round} of {}", turns.rounds) };
            progress.say(&format!("{way}{round}"));
            let mut run = lab.run(*way, command, input, keep.take())?;
            if run.overspill.is_none() && matches!(way, Way::Overspill { .. }) {
                bail!("`overspill run` failed ({}): {}", run.status, run.captured.error_tail);
            }
            complete(&mut run).with_context(|| format!("{way}: {}", run.status))?;
            runs.push(run);
        }
    }
    Ok(runs)
}

/// Takes everything down; when a signal ended the series, ends by it.
pub fn end_of<T>(lab: Lab, result: Result<T>) -> Result<T> {
    drop(lab);
    match signals::last() {
        Some(signal) => signals::die_by(signal),
        None => result,
    }
}

fn has_same_output(runs: &[Measurement]) -> bool {
    let key = |run: &Measurement| (run.status.clone(), run.output_bytes, run.output_hash.clone());
    runs.windows(2).all(|pair| key(&pair[0]) == key(&pair[1]))
}

/// The table, with what else is worth a line.
pub fn table<P: Serialize>(subject: &Subject<'_, P>, rounds: u32, runs: &[Measurement]) -> String {
    let medians = figures::medians(runs);
    let ratios = figures::ratios(&medians);
    let budget = budget_line(subject.ram_bytes, subject.allowance_bytes, rounds);
    let killed = runs
        .iter()
        .filter(|run| run.oom_kills > 0)
        .map(|run| format!("{}: out of memory in its cgroup, {} killed\n", run.way, run.oom_kills));
    format!("{budget}\n{}{}", figures::table(&medians), figures::ratio_lines(&ratios))
        + &killed.collect::<String>()
}

/// Writes the JSON, with every run, to `path`; `directory` is where the runs spilled to.
pub fn write<P: Serialize>(
    path: &Path,
    subject: Subject<'_, P>,
    runs: Vec<Measurement>,
    directory: &Path,
) -> Result<()> {
    let medians = figures::medians(&runs);
    let ratios = figures::ratios(&medians);
    let document = Document {
        schema_version: SCHEMA_VERSION,
        kind: subject.kind,
        machine: machine::describe(directory),
        command: subject.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        ram_bytes: subject.ram_bytes,
        allowance_bytes: subject.allowance_bytes,
        parameters: subject.parameters,
        medians,
        ratios,
        same_output: has_same_output(&runs),
        runs,
    };
    let text = serde_json::to_string_pretty(&document)? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn budget_line(ram_bytes: u64, allowance_bytes: u64, runs: u32) -> String {
    let ram = human::bytes(ram_bytes);
    let runs = if runs == 1 { "one run each".to_string() } else { format!("medians of {runs} runs") };
    if allowance_bytes == 0 {
        return format!("budget {ram}; {runs}");
    }
    let allowance = human::bytes(allowance_bytes);
    format!("budget {ram} + {allowance} for the program itself, kernel and overspill alike; {runs}")
}
