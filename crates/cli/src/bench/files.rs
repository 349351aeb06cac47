//! `overspill bench files`: files larger than the budget, read by `run --files`, by the library's
//! `map_file` and `File`, and by the kernel's mmap and pread in a memory cgroup of the same size.
//!
//! The kernel has no swap in its group, the file's cache is dropped before each run, and it is
//! measured at a read-ahead of 128 KiB and at the disk's own setting: the best of its rows counts.
//! Against `File`, whose reads copy, only its reads do. The file is made once a load, of noise, and
//! removed; every page that is visited is checked. The read-ahead setting is the guardian's to
//! restore.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use overspill_engine::shared::ENV;
use serde::Serialize;

use super::options::Options;
use super::{ALLOWANCE_BYTES, MIB, figures_file};
use crate::args::BenchArgs;
use crate::cgroup::{self, Group, Hierarchy, Limit};
use crate::compare::figures::median;
use crate::compare::guardian::{Guardian, Resource};
use crate::compare::{self, Table};
use crate::load::files::{Done, How, Lap, make};
use crate::load::pattern::Pattern;
use crate::os::inherit;
use crate::output::Output;
use crate::progress::Progress;
use crate::size::{Size, shortest};
use crate::stdout::print;
use crate::{human, machine};

pub const OPTIONS: Options =
    Options { names: &["ram", "only", "swap", "runs", "json", "out"], tuning: false };

/// What most disks are set to, in KiB.
const USUAL_READ_AHEAD: u64 = 128;
/// The budget unless it is given.
const RAM_BYTES: u64 = 900 * MIB;
/// Of less, what everybody gets beyond it would be more than a quarter.
const RAM_BYTES_MIN: u64 = 4 * ALLOWANCE_BYTES;
const SCHEMA_VERSION: u32 = 1;

/// Which laps count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Laps {
    First,
    Later,
}

/// A load.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    order: Pattern,
    /// Of the file, in hundredths of the budget.
    percent: u64,
    threads: u32,
    laps: u32,
    counts: Laps,
    /// A lap's end, in seconds.
    lap_seconds: u64,
    unit: usize,
    advise_random: bool,
    /// Of a hundred visits so many write; what was written is synced with each hundredth.
    write_percent: u64,
    /// The budget is the part 1 / `ram_part` of the bench's.
    ram_part: u64,
    /// What is asked of a mapping, and of `File`, against the kernel.
    goal: Option<f64>,
    file_goal: Option<f64>,
}

const CYCLIC: Case = Case {
    name: "cyclic",
    order: Pattern::Sequential,
    percent: 111,
    threads: 1,
    laps: 4,
    counts: Laps::Later,
    lap_seconds: 3600,
    unit: 16,
    advise_random: false,
    write_percent: 0,
    ram_part: 1,
    goal: Some(3.5),
    file_goal: None,
};
const RANDOM: Case = Case {
    name: "random",
    order: Pattern::Random,
    percent: 400,
    laps: 3,
    lap_seconds: 5,
    goal: Some(2.0),
    ..CYCLIC
};
/// sysbench fileio's random reads and writes: blocks of 64 KiB, three reads for two writes.
const FILEIO: Case =
    Case { name: "fileio", percent: 200, threads: 16, write_percent: 40, goal: None, ..RANDOM };

const CASES: [Case; 17] = [
    CYCLIC,
    Case { name: "cyclic-2x", percent: 200, goal: Some(2.0), ..CYCLIC },
    Case { name: "cyclic-4x", percent: 400, laps: 3, goal: Some(1.2), ..CYCLIC },
    Case {
        name: "cold",
        percent: 111,
        laps: 1,
        counts: Laps::First,
        goal: Some(1.0),
        file_goal: Some(1.0),
        ..CYCLIC
    },
    Case { name: "backward", order: Pattern::Descending, goal: Some(4.0), ..CYCLIC },
    Case { name: "strided", order: Pattern::Stride(16), goal: None, lap_seconds: 20, laps: 3, ..CYCLIC },
    Case { name: "interleaved-8", order: Pattern::Interleaved(8), goal: Some(2.0), ..CYCLIC },
    Case { name: "halves", threads: 2, goal: Some(2.5), ..CYCLIC },
    RANDOM,
    Case { name: "random-advised", advise_random: true, goal: Some(1.0), ..RANDOM },
    Case { name: "random-advised-8", advise_random: true, threads: 8, goal: Some(0.9), ..RANDOM },
    Case {
        name: "slow-200",
        order: Pattern::Interleaved(200),
        percent: 800,
        laps: 1,
        counts: Laps::First,
        lap_seconds: 20,
        unit: 1,
        ram_part: 7,
        goal: Some(2.0),
        ..CYCLIC
    },
    Case { name: "fileio-1", threads: 1, ..FILEIO },
    FILEIO,
    Case { name: "fileio-128", threads: 128, ..FILEIO },
    Case { name: "cached-64k", percent: 25, goal: None, file_goal: Some(1.0), ..CYCLIC },
    Case { name: "cached-4k", percent: 25, unit: 1, goal: None, file_goal: Some(1.0), ..CYCLIC },
];

/// Who reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The kernel, at so many KiB of read-ahead; `None`: as the disk is set.
    Kernel(How, Option<u64>),
    /// The kernel's mmap under `run --files`.
    Run,
    /// The library.
    Library(How),
}

impl Way {
    const ALL: [Way; 7] = [
        Way::Kernel(How::Mmap, Some(USUAL_READ_AHEAD)),
        Way::Kernel(How::Mmap, None),
        Way::Kernel(How::Read, Some(USUAL_READ_AHEAD)),
        Way::Kernel(How::Read, None),
        Way::Run,
        Way::Library(How::MapFile),
        Way::Library(How::File),
    ];

    fn name(self, own_kib: u64) -> String {
        let kernel = |how: &str, kib: Option<u64>| format!("{how} {}K", kib.unwrap_or(own_kib));
        match self {
            Way::Kernel(How::Mmap, kib) => kernel("mmap", kib),
            Way::Kernel(_, kib) => kernel("pread", kib),
            Way::Run => "run --files".into(),
            Way::Library(How::File) => "File".into(),
            Way::Library(_) => "map_file".into(),
        }
    }

    fn how(self) -> How {
        match self {
            Way::Kernel(how, _) | Way::Library(how) => how,
            Way::Run => How::Mmap,
        }
    }

    /// Can it take part? Mappings of the kernel's and of a program's are not written to here: `run`
    /// leaves those that are with the kernel.
    fn can(self, case: &Case) -> bool {
        case.write_percent == 0 || self.how() != How::Mmap
    }

    /// The ways of a load.
    fn of(case: &Case) -> impl Iterator<Item = Way> {
        let case = *case;
        Way::ALL.into_iter().filter(move |way| way.can(&case))
    }

    /// Is this a row of the kernel's that the other is held against?
    fn judges(self, other: Way) -> bool {
        match (self, other) {
            (Way::Kernel(how, _), Way::Library(How::File)) => how == How::Read,
            (Way::Kernel(..), Way::Run | Way::Library(_)) => true,
            _ => false,
        }
    }
}

/// A way's figures: medians of its runs.
#[derive(Serialize, Clone, Debug)]
struct Row {
    /// The load.
    load: &'static str,
    /// Who reads, and how.
    way: String,
    /// The file's size.
    file_bytes: u64,
    /// The budget.
    ram_bytes: u64,
    /// Pages visited in a second.
    pages_per_second: f64,
    /// Read from the device a lap.
    read_bytes: f64,
    /// Read for each page that was visited.
    reads_per_page: f64,
    /// By the best rate of the kernel.
    ratio: Option<f64>,
    /// What is asked of that ratio.
    goal: Option<f64>,
    /// Every run.
    runs: Vec<Done>,
    #[serde(skip)]
    who: Option<Way>,
}

#[derive(Serialize)]
struct Document<'a> {
    /// Of this layout.
    schema_version: u32,
    /// `bench files`.
    kind: &'static str,
    /// What machine this is.
    machine: machine::Machine,
    /// The budget.
    ram_bytes: u64,
    /// What kernel and overspill get beyond it.
    allowance_bytes: u64,
    /// An entry for each load and way.
    rows: &'a [Row],
}

/// Carries out the command; the exit code is 1 if a goal is missed.
pub fn main(args: &BenchArgs) -> Result<u8> {
    let cases = chosen(&args.only)?;
    let ram_bytes = budget(args.ram, machine::ram_bytes())?;
    cgroup::require_root("bench files")?;
    let path = figures_file(args, "files")?;
    let place = compare::place_for(&[], &args.tuning)?;
    let mut bench = Bench::new(args, &place.directory, ram_bytes)?;
    let mut rows = Vec::new();
    for case in &cases {
        let of_case = bench.measure(case)?;
        print(&table(&of_case))?;
        rows.extend(of_case);
    }
    if let Some(path) = path {
        let document = Document {
            schema_version: SCHEMA_VERSION,
            kind: "bench files",
            machine: machine::describe(&place.directory),
            ram_bytes,
            allowance_bytes: ALLOWANCE_BYTES,
            rows: &rows,
        };
        let text = serde_json::to_string_pretty(&document)? + "\n";
        Output::prepare(&path)?.write(std::process::id(), &text)?;
    }
    Ok(u8::from(rows.iter().any(|row| !holds(row))))
}

/// *The story:* `--ram 1M` was taken: what was measured was the 4 MiB beyond it.
fn budget(asked: Option<Size>, machine_bytes: u64) -> Result<u64> {
    let bytes = asked.map_or(RAM_BYTES.min(machine_bytes / 4), |ram| ram.bytes(machine_bytes));
    let least = shortest(RAM_BYTES_MIN);
    ensure!(bytes >= RAM_BYTES_MIN, "`bench files` has to have {least} at least: --ram {least}");
    Ok(bytes)
}

fn chosen(names: &[String]) -> Result<Vec<Case>> {
    if let Some(stranger) = names.iter().find(|name| !CASES.iter().any(|case| case.name == **name)) {
        let known: Vec<_> = CASES.iter().map(|case| case.name).collect();
        bail!("`{stranger}` is no load of `files`: it has {}", known.join(", "));
    }
    Ok(CASES
        .into_iter()
        .filter(|case| names.is_empty() || names.iter().any(|name| name == case.name))
        .collect())
}

fn holds(row: &Row) -> bool {
    row.goal.is_none_or(|goal| row.ratio.is_some_and(|ratio| ratio >= goal))
}

/// What the runs share.
struct Bench {
    guardian: Guardian,
    hierarchy: Hierarchy,
    directory: PathBuf,
    /// The disk's setting of read-ahead, and what it is.
    setting: PathBuf,
    own_kib: u64,
    ram_bytes: u64,
    runs: u32,
    serial: u32,
}

impl Bench {
    fn new(args: &BenchArgs, directory: &Path, ram_bytes: u64) -> Result<Bench> {
        let hierarchy = Hierarchy::find()?;
        let device = nix::sys::stat::stat(directory)?.st_dev;
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let setting = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
        let own = machine::first_line(&setting).and_then(|line| line.parse().ok());
        let own_kib: u64 = own.with_context(|| format!("cannot read {}", setting.display()))?;
        let mut guardian = Guardian::start()?;
        guardian.hold(Resource::Setting { path: setting.clone(), value: own_kib.to_string() })?;
        if let Some(path) = hierarchy.missing_controller() {
            guardian.hold(Resource::Setting { path: path.clone(), value: "-memory".into() })?;
            fs::write(&path, "+memory")
                .with_context(|| format!("cannot write +memory to {}", path.display()))?;
        }
        let (directory, runs) = (directory.to_path_buf(), args.measuring.runs);
        Ok(Bench { guardian, hierarchy, directory, setting, own_kib, ram_bytes, runs, serial: 0 })
    }

    /// Every way, in turns.
    fn measure(&mut self, case: &Case) -> Result<Vec<Row>> {
        let ram_bytes = self.ram_bytes / case.ram_part;
        let file_bytes = (ram_bytes / 100 * case.percent / MIB * MIB).max(MIB);
        let path = self.directory.join(format!("overspill-bench-files-{}", std::process::id()));
        let held = Resource::File(path.clone());
        self.guardian.hold(held.clone())?;
        let progress = Progress::about(&format!("{}: ", case.name));
        progress.say("making the file");
        make(&path, file_bytes)?;
        let mut runs: Vec<Vec<Done>> = vec![Vec::new(); Way::of(case).count()];
        for run in 1..=self.runs {
            for (way, done) in Way::of(case).zip(&mut runs) {
                progress.say(&format!("{}, run {run} of {}", way.name(self.own_kib), self.runs));
                done.push(self.run(case, way, &path, file_bytes, ram_bytes)?);
            }
        }
        drop(progress);
        self.guardian.release(&held)?;
        let own_kib = self.own_kib;
        let rows = Way::of(case).zip(runs);
        let mut rows: Vec<Row> =
            rows.map(|(way, runs)| row(case, way, way.name(own_kib), file_bytes, ram_bytes, runs)).collect();
        compare_with_the_kernel(case, &mut rows);
        Ok(rows)
    }

    fn run(&mut self, case: &Case, way: Way, path: &Path, file_bytes: u64, ram_bytes: u64) -> Result<Done> {
        let kib = if let Way::Kernel(_, Some(kib)) = way { kib } else { self.own_kib };
        fs::write(&self.setting, kib.to_string())
            .with_context(|| format!("cannot write to {}", self.setting.display()))?;
        forget(path)?;
        self.serial += 1;
        let name = cgroup::unique_name(self.serial);
        let held = Resource::Cgroup(self.hierarchy.group_path(&name));
        self.guardian.hold(held.clone())?;
        let limit = if matches!(way, Way::Kernel(..)) {
            Limit::Fenced(ram_bytes + ALLOWANCE_BYTES)
        } else {
            Limit::None
        };
        let group = Group::create(&self.hierarchy, &name, limit)?;
        let mut command = command(case, way, path, file_bytes, ram_bytes)?;
        command.env_remove(ENV).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = inherit::spawn(&mut command, Some(group.entrance()?)).context("cannot start the load")?;
        let output = child.wait_with_output()?;
        self.guardian.release(&held)?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed: {complaint}", way.name(self.own_kib));
        serde_json::from_slice(&output.stdout).context("the load's line of JSON")
    }
}

/// Drops what the kernel has of the file.
fn forget(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(())
}

fn command(case: &Case, way: Way, path: &Path, file_bytes: u64, ram_bytes: u64) -> Result<Command> {
    let own = std::env::current_exe()?;
    let mut command = Command::new(&own);
    if way == Way::Run {
        command.args(["run", "-q", "--files=1M"]).arg(format!("--ram={ram_bytes}")).arg("--swap");
        command.arg(path.parent().context("the file lies in a directory")?).arg("--").arg(&own);
    }
    let how = clap::ValueEnum::to_possible_value(&way.how()).context("every way has a name")?;
    command.arg("read-file").arg(path).arg("--how").arg(how.get_name());
    command.arg(format!("--order={}", case.order)).arg(format!("--size={file_bytes}"));
    command.arg(format!("--threads={}", case.threads)).arg(format!("--laps={}", case.laps));
    command.arg(format!("--lap-seconds={}", case.lap_seconds)).arg(format!("--unit={}", case.unit));
    if case.write_percent > 0 {
        command.arg(format!("--write-percent={}", case.write_percent)).arg("--sync-every=100");
    }
    if case.advise_random {
        command.arg("--advise-random");
    }
    if matches!(way, Way::Library(_)) {
        command.arg(format!("--ram={ram_bytes}"));
    }
    Ok(command)
}

fn row(case: &Case, way: Way, name: String, file_bytes: u64, ram_bytes: u64, runs: Vec<Done>) -> Row {
    let counted = |done: &Done| -> Vec<Lap> {
        let skipped = usize::from(case.counts == Laps::Later && done.laps.len() > 1);
        done.laps[skipped..].to_vec()
    };
    let of_runs = |figure: &dyn Fn(&Lap) -> f64| {
        median(runs.iter().map(|done| median(counted(done).iter().map(figure).collect())).collect())
    };
    let goal = match way {
        Way::Kernel(..) => None,
        Way::Library(How::File) => case.file_goal,
        Way::Run | Way::Library(_) => case.goal,
    };
    Row {
        load: case.name,
        way: name,
        file_bytes,
        ram_bytes,
        pages_per_second: of_runs(&|lap| lap.pages as f64 / lap.seconds.max(1e-9)),
        read_bytes: of_runs(&|lap| lap.read_bytes as f64),
        reads_per_page: of_runs(&|lap| lap.read_bytes as f64 / 4096.0 / lap.pages.max(1) as f64),
        ratio: None,
        goal,
        runs,
        who: Some(way),
    }
}

fn compare_with_the_kernel(case: &Case, rows: &mut [Row]) {
    assert!(rows.iter().all(|row| row.load == case.name));
    let best = |way: Way| {
        let judges = rows.iter().filter(|row| row.who.is_some_and(|other| other.judges(way)));
        judges.map(|row| row.pages_per_second).reduce(f64::max)
    };
    let ratios: Vec<Option<f64>> = rows
        .iter()
        .map(|row| row.who.and_then(best).map(|best| row.pages_per_second / best.max(1e-9)))
        .collect();
    rows.iter_mut().zip(ratios).for_each(|(row, ratio)| row.ratio = ratio);
}

/// A load's table: 80 columns.
fn table(rows: &[Row]) -> String {
    let first = &rows[0];
    let mut table =
        Table::new(&["way", "pages/s", "MB/s", "MB read", "reads/page", "/ best", "goal", "holds"]);
    for row in rows {
        let goal = row.goal.map_or("-".into(), |goal| format!("{goal:.1}x"));
        let holds = match row.goal {
            None => "-",
            Some(_) if holds(row) => "yes",
            Some(_) => "NO",
        };
        table.push(vec![
            row.way.clone(),
            human::count(row.pages_per_second as u64),
            format!("{:.0}", row.pages_per_second * 4096.0 / 1e6),
            format!("{:.0}", row.read_bytes / 1e6),
            format!("{:.2}", row.reads_per_page),
            row.ratio.map_or("-".into(), |ratio| format!("{ratio:.2}x")),
            goal,
            holds.into(),
        ]);
    }
    let (file, ram) = (shortest(first.file_bytes), shortest(first.ram_bytes));
    let over = first.file_bytes.saturating_sub(first.ram_bytes) as f64 / 1e6;
    let head = format!("{}: a file of {file} in {ram}; {over:.0} MB of it do not fit", first.load);
    human::folded(&head, "    ") + &table.fitting(&["MB/s"]).render() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(case: &Case, rates: [f64; 7]) -> Vec<Row> {
        let done = |rate: f64| {
            let lap = |seconds| Lap { seconds, pages: 1000, read_bytes: 4096 * 100 };
            Done { laps: vec![lap(50.0), lap(1000.0 / rate), lap(1000.0 / rate)] }
        };
        let rows = Way::ALL.into_iter().zip(rates);
        let mut rows: Vec<Row> = rows
            .map(|(way, rate)| row(case, way, way.name(8192), 1000 * MIB, 900 * MIB, vec![done(rate)]))
            .collect();
        compare_with_the_kernel(case, &mut rows);
        rows
    }

    #[test]
    fn what_counts_is_the_kernels_best_row_and_for_copies_its_best_read() {
        let rows = rows(&CYCLIC, [100.0, 200.0, 50.0, 150.0, 700.0, 699.0, 300.0]);
        let ratios: Vec<_> = rows.iter().map(|row| row.ratio).collect();
        assert_eq!(ratios[..4], [None; 4]);
        let close = |ratio: Option<f64>, wanted: f64| (ratio.expect("a ratio") - wanted).abs() < 1e-9;
        assert!(close(ratios[4], 3.5) && close(ratios[5], 3.495) && close(ratios[6], 2.0), "{ratios:?}");
        assert!(holds(&rows[4]) && !holds(&rows[5]) && holds(&rows[6]));
        assert!((rows[4].reads_per_page - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_table_fits_80_columns() {
        for case in &CASES {
            let text = table(&rows(case, [1e6, 1e6, 1e6, 1e6, 1e7, 1e7, 1e6]));
            assert!(text.lines().all(|line| line.chars().count() <= human::WIDTH), "{text}");
            assert!(text.contains("mmap 8192K") && text.contains("run --files"), "{text}");
        }
    }

    /// See [`budget`].
    #[test]
    fn a_budget_that_says_nothing_is_refused() {
        assert_eq!(budget(None, 2 << 30).unwrap(), 512 * MIB);
        assert_eq!(budget(Some(Size::Bytes(16 * MIB)), 2 << 30).unwrap(), 16 * MIB);
        for small in [Size::Bytes(MIB), Size::Bytes(16 * MIB - 1), Size::Share(100)] {
            let text = budget(Some(small), 2 << 30).unwrap_err().to_string();
            assert!(text.contains("16M at least"), "{text}");
        }
    }

    /// *The story:* `overspill help bench` did not name it.
    #[test]
    fn help_names_every_load() {
        let mut table = crate::usage::table();
        let bench = table.find_subcommand_mut("bench").expect("it is a command");
        let help = bench.render_long_help().to_string();
        let loads =
            help.split("\n\n").find(|paragraph| paragraph.starts_with("`files`")).expect("it is told");
        let words: Vec<&str> = loads.split([' ', '\n', ',', '.', ';', ':']).collect();
        assert!(CASES.iter().all(|case| words.contains(&case.name)), "{loads}");
    }

    #[test]
    fn loads_have_different_names_and_strangers_are_told_them() {
        assert_eq!(chosen(&[]).unwrap().len(), CASES.len());
        assert_eq!(chosen(&["cold".into(), "random".into()]).unwrap().len(), 2);
        assert!(chosen(&["warm".into()]).unwrap_err().to_string().contains("cyclic-2x"));
        let mut names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
    }
}
