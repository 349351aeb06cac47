//! `overspill compare`: one command, several ways, one table. `bench` drives its built-in load
//! through the same series.

mod capture;
pub mod figures;
pub mod guardian;
mod lab;
mod leftovers;
mod page;
mod stdin;
mod swap_file;
mod table;
pub mod way;

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::args::{CompareArgs, Tuning};
use crate::machine::{self, Machine};
use crate::os::signals;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::run::launch::program;
use crate::stderr::say;
use crate::stdout::print;
use crate::{cgroup, checks, human};
use figures::{Median, Ratio};
pub use lab::{Lab, Measurement};
pub use stdin::Input;
pub use table::Table;
use way::Way;

/// Of the JSON files' layout.
const SCHEMA_VERSION: u32 = 1;

/// How often a run is made that the kernel kills: its swap does so at times for want of memory,
/// with swap free.
pub const ATTEMPTS: u32 = 3;

/// What is going on while another comparison has the machine.
pub const WAITING: &str = "waiting for other comparisons to end";

/// What a series measured, as `--json` writes it.
#[derive(Serialize)]
pub struct Document<P: Serialize> {
    /// Of this layout.
    schema_version: u32,
    /// `compare`, `bench` or `bench reclaim`.
    kind: &'static str,
    /// What machine this is.
    machine: Machine,
    /// The command line.
    command: Vec<String>,
    /// The budget.
    ram_bytes: u64,
    /// What kernel and overspill get beyond it.
    allowance_bytes: u64,
    /// What the load was; null for `compare`.
    parameters: P,
    /// An entry for each way.
    medians: Vec<Median>,
    /// Each way of overspill against each other way.
    ratios: Vec<Ratio>,
    /// Whether all runs that were not killed ended alike, with the same output.
    same_output: bool,
    /// Every run.
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

/// Refuses early ways that take root, and names those that do not.
pub fn require_root_for(ways: &[Way], command: &str) -> Result<()> {
    if !ways.iter().any(|way| way.needs_root()) {
        return Ok(());
    }
    cgroup::require_root(command).context("--ways bare,overspill takes no root, the kernel's swap does")
}

/// Runs the comparison; the exit code is 1 when the runs did not all end alike with the same
/// output.
pub fn main(args: &CompareArgs) -> Result<u8> {
    let ways = args.measuring.ways();
    require_root_for(&ways, "compare")?;
    // Before anything is set up, so that a typing error costs nothing.
    if let Some(code) = program::refused(&args.command) {
        return Ok(code);
    }
    let place = place_for(&ways, &args.tuning)?;
    let ram_bytes = args.ram.bytes(machine::ram_for_shares());
    if let Some(note) = machine::budget_note(ram_bytes) {
        say!("{note}");
    }
    let exports = Exports::prepare(args)?;
    let keep = args.keep_output.as_deref().map(create).transpose()?;
    let directory = place.directory.clone();
    let progress = Progress::new();
    progress.say("reading standard input");
    let input = Input::capture(&directory)?;
    progress.say(WAITING);
    let mut lab = Lab::new(place, &ways, &args.tuning, ram_bytes, 0)?;
    let rounds = args.measuring.runs;
    let runs =
        series(&mut lab, Turns { ways: &ways, rounds }, &args.command, &input, keep, &progress, |_| Ok(()));
    drop(progress);
    let mut runs = end_of(lab, runs)?;
    runs.sort_by_key(Measurement::was_killed_for_memory); // figures are held against the first run's
    let subject =
        Subject { kind: "compare", command: &args.command, ram_bytes, allowance_bytes: 0, parameters: () };
    let alike = alike(&runs);
    let title = human::command(&args.command);
    exports.write(&title, &subject, rounds, &runs)?;
    let text = table(&subject, rounds, &runs);
    // Who does not read the table may want the file.
    if let Some(path) = &args.measuring.json {
        write(path, subject, runs, &directory)?;
    }
    print(&format!(
        "{}\n{text}{}",
        human::clipped(&title, human::WIDTH),
        human::folded(alike.text(), "    ")
    ))?;
    Ok(u8::from(alike != Alike::Yes))
}

/// Whether the runs did the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Alike {
    Yes,
    /// Some way has no run that the kernel let end.
    Killed,
    No,
}

impl Alike {
    fn text(self) -> &'static str {
        match self {
            Alike::Yes => "the same output in all runs",
            Alike::Killed => {
                "the same output in all runs that were not killed, but every run of some way was"
            }
            Alike::No => "THE OUTPUT OR THE STATUS DIFFERS",
        }
    }
}

/// Runs that the kernel killed are made again; they say nothing about the command.
fn alike(runs: &[Measurement]) -> Alike {
    let ended: Vec<&Measurement> = runs.iter().filter(|run| !run.was_killed_for_memory()).collect();
    if !has_same_output(&ended) {
        return Alike::No;
    }
    let has_ended = |killed: &Measurement| ended.iter().any(|run| run.way == killed.way);
    if runs.iter().all(has_ended) { Alike::Yes } else { Alike::Killed }
}

fn create(path: &Path) -> Result<File> {
    output::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// The table in files, for documents.
struct Exports {
    markdown: Option<Output>,
    html: Option<Output>,
}

impl Exports {
    /// Whether they can be written is said before the work, not after.
    fn prepare(args: &CompareArgs) -> Result<Exports> {
        let files = [
            ("--keep-output", &args.keep_output),
            ("--markdown", &args.markdown),
            ("--html", &args.html),
            ("--json", &args.measuring.json),
        ];
        output::ensure_apart(&files.map(|(name, path)| (name, path.as_deref())))?;
        let prepare = |path: &Option<PathBuf>| path.as_deref().map(Output::prepare).transpose();
        args.measuring.json.as_deref().map_or(Ok(()), output::ensure_writable)?;
        Ok(Exports { markdown: prepare(&args.markdown)?, html: prepare(&args.html)? })
    }

    fn write<P: Serialize>(
        self,
        title: &str,
        subject: &Subject<'_, P>,
        rounds: u32,
        runs: &[Measurement],
    ) -> Result<()> {
        let medians = figures::medians(runs);
        let table = figures::table(&medians);
        let budget = budget_line(subject.ram_bytes, subject.allowance_bytes, rounds);
        let ratios = figures::ratio_lines(&figures::ratios(&medians));
        if let Some(file) = self.markdown {
            let text = format!("`{title}`, {budget}:\n\n{}\n{ratios}", table.markdown());
            file.write(std::process::id(), &text)?;
        }
        if let Some(file) = self.html {
            let text = page::render(title, &budget, &ratios, &medians, &table);
            file.write(std::process::id(), &text)?;
        }
        Ok(())
    }
}

/// Where to spill, with the checks that `run` would make anyway, and what --erase has it do.
///
/// *The story:* `compare --erase --swap FILE` was refused, and --erase named as the mend.
pub fn place_for(ways: &[Way], tuning: &Tuning) -> Result<checks::SwapPlace> {
    let wants_agent = ways.iter().any(|way| matches!(way, Way::Overspill { .. }));
    let found = if wants_agent {
        checks::ready(tuning).map(|ready| ready.swap)
    } else {
        checks::swap_place::resolve_all(&tuning.swap)
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

/// Every way, as often as asked for, in turns: so that a drift of the machine meets all of them. A
/// run that the kernel kills for want of memory, as its swap does now and then in a cgroup, is made
/// again.
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
        let label =
            if turns.rounds == 1 { String::new() } else { format!(", run {round} of {}", turns.rounds) };
        let mut pending = turns.ways.to_vec();
        for attempt in 1..=ATTEMPTS {
            let again = if attempt == 1 { "" } else { ", again: the kernel killed it" };
            let mut killed = Vec::new();
            for way in pending {
                progress.say(&format!("{way}{label}{again}"));
                let mut run = lab.run(way, command, input, keep.take())?;
                if run.overspill.is_none() && matches!(way, Way::Overspill { .. }) {
                    bail!("`overspill run` failed ({}): {}", run.status, run.captured.error_tail);
                }
                complete(&mut run).with_context(|| format!("{way}: {}", run.status))?;
                if run.was_killed_for_memory() {
                    killed.push(way);
                }
                runs.push(run);
            }
            pending = killed;
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

fn has_same_output(runs: &[&Measurement]) -> bool {
    let key = |run: &&Measurement| (run.status.clone(), run.output_bytes, run.output_hash.clone());
    runs.windows(2).all(|pair| key(&pair[0]) == key(&pair[1]))
}

/// The table, with what else is worth a line.
pub fn table<P: Serialize>(subject: &Subject<'_, P>, rounds: u32, runs: &[Measurement]) -> String {
    let medians = figures::medians(runs);
    let ratios = figures::ratios(&medians);
    let budget = budget_line(subject.ram_bytes, subject.allowance_bytes, rounds);
    let budget = human::folded(&budget, "    ");
    let notes = killed_lines(runs) + &left_behind_line(runs);
    let table = figures::text(&medians);
    let peaks = peak_line(&table, runs);
    format!("{budget}{table}{}{peaks}{notes}", figures::ratio_lines(&ratios))
}

/// *The story:* of `true` it was 28 KiB for overspill beside 1.7 MiB bare, as if that were saved.
fn peak_line(table: &str, runs: &[Measurement]) -> String {
    let (own, others): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.overspill.is_some());
    let is_shown = table.lines().next().is_some_and(|head| head.contains("peak"));
    if !is_shown || own.is_empty() || others.is_empty() {
        return String::new();
    }
    let all = if others.iter().any(|run| run.cgroup_peak_bytes > 0) {
        "their cgroup's, with code and files"
    } else {
        "their largest process's, with code and files"
    };
    let line =
        format!("peak: overspill's is the anonymous memory of its largest process; that of others is {all}");
    human::folded(&line, "    ")
}

/// A line where the command does not end with its end.
fn left_behind_line(runs: &[Measurement]) -> String {
    let line = if runs.iter().any(|run| run.captured.is_cut) {
        "a process that was not killed holds the command's output open: what it writes does not count"
    } else if runs.iter().any(|run| run.left_behind) {
        "the command left processes behind, which were killed: what counts is its own end"
    } else {
        return String::new();
    };
    human::folded(line, "    ")
}

/// A line for each way that the kernel killed, be it now and then or always.
pub fn killed_lines(runs: &[Measurement]) -> String {
    let mut ways: Vec<&str> =
        runs.iter().filter(|run| run.was_killed_for_memory()).map(|run| run.way.as_str()).collect();
    ways.sort_unstable();
    ways.dedup();
    let line = |way: &&str| {
        let of_way = || runs.iter().filter(|run| run.way == **way);
        let (all, killed) = (of_way().count(), of_way().filter(|run| run.was_killed_for_memory()).count());
        let rest = if killed < all { "; it was run again" } else { ": this way did not get through" };
        let line =
            format!("{way}: the kernel killed {killed} of {all} runs, out of memory in their cgroup{rest}");
        human::folded(&line, "    ")
    };
    ways.iter().map(line).collect()
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
        same_output: alike(&runs) != Alike::No,
        runs,
    };
    let text = serde_json::to_string_pretty(&document)? + "\n";
    Output::prepare(path)?.write(std::process::id(), &text)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn run(way: &str, status: &str, oom_kills: u64, hash: &str) -> Measurement {
        Measurement {
            way: way.into(),
            status: status.into(),
            oom_kills,
            output_hash: hash.into(),
            ..Measurement::default()
        }
    }

    #[test]
    fn what_the_kernel_killed_is_said_and_no_difference() {
        let runs = [
            run("bare", "exit 0", 0, "a"),
            run("kernel:3", "exit 0", 0, "a"),
            run("kernel:3", "killed by SIGKILL", 1, ""),
        ];
        assert_eq!(alike(&runs), Alike::Yes);
        let line = killed_lines(&runs);
        assert!(
            line.starts_with("kernel:3: the kernel killed 1 of 2 runs") && line.contains("run again"),
            "{line}"
        );
        assert!(line.lines().all(|line| line.len() <= human::WIDTH));
        let never = [run("bare", "exit 0", 0, "a"), run("kernel:0", "killed by SIGKILL", 1, "")];
        assert_eq!(alike(&never), Alike::Killed);
        assert!(killed_lines(&never).replace("\n    ", " ").contains("this way did not get through"));
        assert_eq!(alike(&[run("bare", "exit 0", 0, "a"), run("overspill", "exit 0", 0, "b")]), Alike::No);
    }

    #[test]
    fn the_page_and_the_markdown_have_every_figure() {
        let runs = [run("bare", "exit 0", 0, "a"), run("overspill", "exit 0", 0, "a")];
        let medians = figures::medians(&runs);
        let table = figures::table(&medians);
        assert!(table.markdown().contains("| minor |"));
        let page = page::render("sort <x>", "budget", "speed", &medians, &table);
        assert!(page.contains("sort &lt;x&gt;") && page.contains("<th>minor</th>"));
        for foreign in ["http", "src=", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
