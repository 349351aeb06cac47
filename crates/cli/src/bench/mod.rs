//! `overspill bench`: the built-in load ([`crate::load`]) as the command of a comparison. A single
//! load gets the table of `compare`; a suite gets one table a load, made for read-ahead, and a file
//! of raw figures a load.

mod extents;
mod files;
mod goals;
pub mod options;
mod reclaim;
mod rows;
mod slots;
pub mod suite;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::args::BenchArgs;
use crate::compare::way::Way;
use crate::compare::{self, Input, Lab, Measurement, Subject, Turns};
use crate::load::pattern::Pattern;
use crate::load::{Done, LoadArgs, Work};
use crate::progress::Progress;
use crate::size::{Size, shortest};
use crate::stderr::say;
use crate::stdout::print;
use crate::{human, machine, output};
use goals::Verdict;
use options::Options;
use rows::Row;
use suite::{Load, Suite};

/// What kernel and overspill get beyond `--ram`: the load's own code, stacks and page tables.
const ALLOWANCE_BYTES: u64 = 4 << 20;
/// The budget unless it is given, if it is no more than a quarter of the machine's RAM.
const RAM_BYTES: u64 = 900 << 20;
const MIB: u64 = 1 << 20;
/// Kernel settings slower than this share of the best one are not measured again.
const WORTH_REPEATING: f64 = 0.7;

/// What to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// One load.
    Single(Pattern),
    /// Several.
    Suite(Suite),
    /// Finding pages in a file that is in pieces.
    Extents,
    /// Giving pages slots and taking them back.
    Slots,
    /// Readers beside a hot set, under each reclaim policy.
    Reclaim,
    /// Files larger than the budget.
    Files,
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<What, String> {
        match text {
            "extents" => return Ok(What::Extents),
            "slots" => return Ok(What::Slots),
            "reclaim" => return Ok(What::Reclaim),
            "files" => return Ok(What::Files),
            _ => {}
        }
        match (text.parse(), text.parse()) {
            (Ok(suite), _) => Ok(What::Suite(suite)),
            (_, Ok(pattern)) => Ok(What::Single(pattern)),
            (_, Err(message)) => Err(format!(
                "{message}; the suites are swapin, mixed, all; and there are reclaim, files, extents and slots"
            )),
        }
    }
}

impl What {
    /// Its name, and what it takes; none: it is a load or a suite.
    fn options(self) -> Option<(&'static str, Options)> {
        match self {
            What::Single(_) | What::Suite(_) => None,
            What::Extents => Some(("extents", extents::OPTIONS)),
            What::Slots => Some(("slots", slots::OPTIONS)),
            What::Reclaim => Some(("reclaim", reclaim::OPTIONS)),
            What::Files => Some(("files", files::OPTIONS)),
        }
    }
}

/// What the JSON file says about the load beside its command line.
#[derive(Serialize)]
struct Parameters {
    /// The order of the touches.
    pattern: String,
    /// Memory that is touched.
    size_bytes: u64,
    /// Threads.
    threads: u32,
    /// Whether touches store.
    write: bool,
    /// Whether the mapping is shared.
    shared: bool,
    /// The load's name in its suite.
    load: Option<&'static str>,
    /// The suite's table.
    rows: Vec<Row>,
    /// What the suite thinks of it.
    goals: Vec<Verdict>,
}

/// Budget and memory of the loads.
#[derive(Clone, Copy)]
struct Sizes {
    ram_bytes: u64,
    size_bytes: u64,
}

impl Sizes {
    /// As asked for; else 900M of RAM, or less on a small machine, and so many ninths of that.
    fn new(args: &BenchArgs, ninths: u64) -> Sizes {
        let machine_bytes = machine::ram_for_shares();
        let ram_bytes = args.ram.map_or(RAM_BYTES.min(machine_bytes / 4), |ram| ram.bytes(machine_bytes));
        let default = Size::Bytes((ram_bytes * ninths / 9).max(MIB) / MIB * MIB);
        Sizes { ram_bytes, size_bytes: args.size.unwrap_or(default).bytes(machine_bytes) }
    }
}

/// Runs a load or a suite every way and prints the tables.
pub fn main(args: &BenchArgs) -> Result<u8> {
    match args.what {
        What::Single(pattern) => single(args, pattern),
        What::Suite(suite) => all_of(args, suite),
        What::Extents => extents(args),
        What::Slots => slots::main(args.work.laps),
        What::Reclaim => reclaim::main(args),
        What::Files => files::main(args),
    }
}

/// Where the swap directory is, in files of 1280 MiB unless another size is asked for.
fn extents(args: &BenchArgs) -> Result<u8> {
    let place = compare::place_for(&[], &args.tuning)?;
    let bytes = args.size.map_or(1280 * MIB, |size| size.bytes(machine::ram_for_shares()));
    extents::main(&place.directory, bytes)
}

/// Where the figures of a bench go: a file, or one in a directory as the suites' are. Whether it can be
/// written is said before the work, not after.
fn figures_file(args: &BenchArgs, name: &str) -> Result<Option<PathBuf>> {
    let mut path = args.measuring.json.clone();
    if let Some(directory) = &args.out {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        path = Some(directory.join(format!("{}-{name}.json", machine::today())));
    }
    path.as_deref().map_or(Ok(()), output::ensure_writable)?;
    Ok(path)
}

fn note_budget(args: &BenchArgs) {
    if let Some(note) = machine::budget_note(Sizes::new(args, suite::NINTHS).ram_bytes) {
        say!("{note}");
    }
}

fn single(args: &BenchArgs, pattern: Pattern) -> Result<u8> {
    ensure!(
        args.only.is_empty() && args.out.is_none(),
        "--only and --out are for suites; one load has --json FILE"
    );
    let ways = args.measuring.ways();
    compare::require_root_for(&ways, "bench")?;
    note_budget(args);
    let json = figures_file(args, "load")?;
    let sizes = Sizes::new(args, if pattern == Pattern::Random { 18 } else { suite::NINTHS });
    let mut lab = lab(args, &ways, sizes)?;
    let directory = lab.directory().to_path_buf();
    let command = command(pattern, sizes, &args.work)?;
    let count = args.measuring.runs;
    let label = |run| if count == 1 { String::new() } else { format!("run {run} of {count}: ") };
    let rounds = (1..=count).map(|run| round(&mut lab, &ways, &command, &label(run)));
    let runs = rounds.collect::<Result<Vec<_>>>().map(|rounds| sorted(rounds.concat()));
    let runs = compare::end_of(lab, runs)?;
    let subject = subject(&command, sizes, parameters(pattern, sizes, &args.work));
    let table = compare::table(&subject, args.measuring.runs, &runs);
    let head = human::folded(&format!("load {}", load_line(&command, sizes)), "    ");
    let text = format!("{head}{table}{}", part_lines(&runs));
    if let Some(path) = &json {
        compare::write(path, subject, runs, &directory)?;
    }
    print(&text)?;
    Ok(0)
}

/// Runs the loads of a suite; the exit code is 1 if it has goals and not all are reached.
fn all_of(args: &BenchArgs, suite: Suite) -> Result<u8> {
    let is_changed = args.work.threads != 1 || args.work.shared;
    ensure!(!is_changed, "a suite has its own threads and memory: --threads and --shared are for one load");
    ensure!(
        args.measuring.json.is_none(),
        "a suite writes a file for each load: give --out DIR instead of --json"
    );
    let loads = suite.chosen(&args.only).map_err(anyhow::Error::msg)?;
    let ways = if args.measuring.ways.is_empty() { suite.ways() } else { args.measuring.ways.clone() };
    compare::require_root_for(&ways, "bench")?;
    note_budget(args);
    if let Some(directory) = &args.out {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let largest =
        loads.iter().map(|load| load.ninths).max().expect("no suite is empty, and names are of loads");
    let mut lab = lab(args, &ways, Sizes::new(args, largest))?;
    let measuring = Measuring { args, suite };
    let verdicts =
        loads.iter().map(|load| measuring.measure(&mut lab, load, &ways)).collect::<Result<Vec<_>>>();
    let verdicts = compare::end_of(lab, verdicts)?.concat();
    if !verdicts.is_empty() {
        print(&goals::table(&verdicts))?;
    }
    Ok(u8::from(!verdicts.iter().all(|verdict| verdict.holds)))
}

/// What the loads of a suite share.
struct Measuring<'a> {
    args: &'a BenchArgs,
    suite: Suite,
}

impl Measuring<'_> {
    /// Measures a load, prints its table and writes its file.
    fn measure(&self, lab: &mut Lab, load: &Load, ways: &[Way]) -> Result<Vec<Verdict>> {
        let work = load.work(&self.args.work);
        let sizes = Sizes::new(self.args, load.ninths);
        let command = command(load.pattern, sizes, &work)?;
        let runs = self.runs(lab, load, ways.to_vec(), &command)?;
        let rows = rows::rows(&runs);
        let goals = if self.suite == Suite::All { goals::judge(load.name, &rows) } else { Vec::new() };
        let head = human::folded(&format!("{}: {}", load.name, load_line(&command, sizes)), "    ");
        let mut text = head + &rows::table(&rows);
        if load.is_shared() {
            text += "overspill's rows are those of its library: the agent does not manage shared memory\n";
        }
        text += &compare::killed_lines(&runs);
        if let Some(directory) = &self.args.out {
            let parameters = Parameters {
                load: Some(load.name),
                rows,
                goals: goals.clone(),
                ..parameters(load.pattern, sizes, &work)
            };
            let path = directory.join(file_name(self.suite, load.name, sizes));
            compare::write(&path, subject(&command, sizes, parameters), runs, lab.directory())?;
        }
        print(&(text + "\n"))?;
        Ok(goals)
    }

    /// Every way once, then again as often as asked for; where only the kernel's best setting
    /// matters, without those of its settings that are far from it.
    fn runs(
        &self,
        lab: &mut Lab,
        load: &Load,
        mut ways: Vec<Way>,
        command: &[OsString],
    ) -> Result<Vec<Measurement>> {
        let mut runs = Vec::new();
        for round in 1..=self.args.measuring.runs {
            let label = format!("{}, run {round} of {}: ", load.name, self.args.measuring.runs);
            runs.extend(self::round(lab, &ways, command, &label)?);
            if round == 1 && self.suite == Suite::All {
                let rows = rows::rows(&runs);
                ways.retain(|way| {
                    rows.iter().any(|row| row.way == way.to_string() && is_worth_repeating(row, &rows))
                });
            }
        }
        Ok(sorted(runs))
    }
}

/// Every way once.
fn round(lab: &mut Lab, ways: &[Way], command: &[OsString], label: &str) -> Result<Vec<Measurement>> {
    let progress = Progress::about(label);
    let turns = Turns { ways, rounds: 1 };
    compare::series(lab, turns, command, &Input::nothing()?, None, &progress, read_done)
}

/// Figures are held against the first run's.
fn sorted(mut runs: Vec<Measurement>) -> Vec<Measurement> {
    runs.sort_by_key(|run| run.load.is_none());
    runs
}

/// Whether a row may be, or be held against, the kernel's best.
fn is_worth_repeating(row: &Row, rows: &[Row]) -> bool {
    let best = rows::best_kernel(rows).map_or(0.0, Row::score);
    !row.is_kernel() || row.score() >= best * WORTH_REPEATING
}

fn lab(args: &BenchArgs, ways: &[Way], sizes: Sizes) -> Result<Lab> {
    let place = compare::place_for(ways, &args.tuning)?;
    let progress = Progress::new();
    progress.say(compare::WAITING);
    Lab::new(place, ways, &args.tuning, sizes.ram_bytes + ALLOWANCE_BYTES, sizes.size_bytes)
}

fn command(pattern: Pattern, sizes: Sizes, work: &Work) -> Result<Vec<OsString>> {
    let mut command: Vec<OsString> = vec![std::env::current_exe()?.into()];
    command.extend(LoadArgs::command_line(pattern, sizes.size_bytes, work).into_iter().map(OsString::from));
    Ok(command)
}

/// The load as it would be typed, and its budget.
fn load_line(command: &[OsString], sizes: Sizes) -> String {
    let words: Vec<_> = command[2..].iter().map(|word| word.to_string_lossy()).collect();
    format!("{} in {}", words.join(" "), human::bytes(sizes.ram_bytes))
}

fn parameters(pattern: Pattern, sizes: Sizes, work: &Work) -> Parameters {
    Parameters {
        pattern: pattern.to_string(),
        size_bytes: sizes.size_bytes,
        threads: work.threads,
        write: work.write,
        shared: work.shared,
        load: None,
        rows: Vec::new(),
        goals: Vec::new(),
    }
}

fn subject(command: &[OsString], sizes: Sizes, parameters: Parameters) -> Subject<'_, Parameters> {
    Subject {
        kind: "bench",
        command,
        ram_bytes: sizes.ram_bytes,
        allowance_bytes: ALLOWANCE_BYTES,
        parameters,
    }
}

/// `2026-11-22-all-seq-1000M-in-900M.json`.
fn file_name(suite: Suite, load: &str, sizes: Sizes) -> String {
    let today = machine::today();
    format!("{today}-{suite}-{load}-{}-in-{}.json", shortest(sizes.size_bytes), shortest(sizes.ram_bytes))
}

/// Reads the load's line; a load that failed its own verification ends the bench. One that the
/// kernel killed for want of memory is let pass: its swap does that to small groups at times.
fn read_done(run: &mut Measurement) -> Result<()> {
    if run.was_killed_for_memory() {
        return Ok(());
    }
    ensure!(run.is_success(), "the load failed: {}", run.captured.error_tail);
    let done: Done = serde_json::from_slice(&run.captured.head).context("the load's line of JSON")?;
    run.load = Some(done);
    Ok(())
}

/// For loads whose threads do different things: each kind's rate, and with `--latency` the faults'
/// latency.
fn part_lines(runs: &[Measurement]) -> String {
    let mut lines = String::new();
    for row in rows::rows(runs) {
        if !row.kinds.is_empty() {
            let rate = |kind: &rows::Kind| {
                format!("{} {} touches/s", kind.pattern, human::count(kind.touches_per_second as u64))
            };
            let rates: Vec<_> = row.kinds.iter().map(rate).collect();
            lines.push_str(&human::folded(&format!("{}: {}", row.way, rates.join(", ")), "    "));
        }
        if row.faults > 0 {
            let [p50, p90, p99] = [row.fault_p50_ns, row.fault_p90_ns, row.fault_p99_ns].map(human::nanos);
            let count = human::count(row.faults);
            let line = format!("{}: {count} faults, p50 {p50}, p90 {p90}, p99 {p99}", row.way);
            lines.push_str(&human::folded(&line, "    "));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::rows::tests::row_of;
    use super::*;

    #[test]
    fn suites_come_before_patterns() {
        assert_eq!("mixed".parse(), Ok(What::Suite(Suite::Mixed)));
        assert_eq!("all".parse(), Ok(What::Suite(Suite::All)));
        assert_eq!("mixed:1+2".parse(), Ok(What::Single(Pattern::Mixed { sequential: 1, random: 2 })));
        let complaint = "sideways".parse::<What>().unwrap_err();
        assert!(
            complaint.contains("the patterns are") && complaint.contains("the suites are"),
            "{complaint}"
        );
    }

    #[test]
    fn what_is_far_from_the_kernels_best_is_measured_once() {
        let rows = [
            row_of("kernel:0", 1010.0, &[("seq", 10.0), ("random", 1000.0)]), // 100
            row_of("kernel:3", 920.0, &[("seq", 20.0), ("random", 900.0)]),   // 134
            row_of("kernel:5", 140.0, &[("seq", 40.0), ("random", 100.0)]),   // 63
            row_of("overspill", 1.0, &[("seq", 1.0), ("random", 0.0)]),
        ];
        let repeated: Vec<_> =
            rows.iter().filter(|row| is_worth_repeating(row, &rows)).map(|row| row.way.as_str()).collect();
        assert_eq!(repeated, ["kernel:0", "kernel:3", "overspill"]);
    }

    #[test]
    fn what_the_kernel_killed_is_no_failure_of_the_load() {
        let run = |way: &str, oom_kills| Measurement { way: way.into(), oom_kills, ..Measurement::default() };
        assert!(read_done(&mut run("kernel:3", 1)).is_ok());
        assert!(read_done(&mut run("overspill", 0)).is_err());
    }

    #[test]
    fn files_say_what_is_in_them() {
        let name = file_name(Suite::All, "seq", Sizes { ram_bytes: 900 << 20, size_bytes: 1000 << 20 });
        assert!(name.ends_with("-all-seq-1000M-in-900M.json") && name.len() == 37, "{name}");
    }
}
