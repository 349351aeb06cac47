//! `overspill sim TRACE-or-LOAD`: every combination of RAM, read-ahead, device and system, as a
//! table, JSON, curves or a sentence.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use overspill_mm::fileread::policy::NAMES as FILE_POLICIES;
use overspill_mm::readahead::policy::{Knobs, NAMES as POLICIES};
use overspill_mm::reclaim::policy::NAMES as RECLAIM;
use overspill_mm::reclaim::scan::Era;
use overspill_mm::types::PAGE_SIZE;
use overspill_sim::device::params::Model;
use overspill_sim::generate::named::LoadError;
use overspill_sim::generate::{self, Load};
use overspill_sim::nearest;
use overspill_sim::options::{Amount, amount, amounts, distinct, names, show_bytes};
use overspill_sim::replace::{self, Touches, report::Cell};
use overspill_sim::report::explain::{Cost, Knee, Question};
use overspill_sim::report::{Header, Row, explain, html, json, table};
use overspill_sim::sweep::{Extent, Machine, System, parallel, simulate};
use overspill_sim::trace::open::open as open_trace;
use overspill_sim::trace::sightings::Learned;
use overspill_sim::trace::workload::{Counted, TraceWorkload};
use overspill_sim::trace::{Format, Record};
use overspill_sim::workload::{Filled, Workload};

use super::pool::Asked;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::stdout::print;

/// The RAM when nothing is said.
const RAM_DEFAULT: &str = "10%..100%/10";

/// The kernel's own.
const PAGE_CLUSTER_DEFAULT: u8 = 3;

/// Of loads.
const SEED_DEFAULT: u64 = 1;

/// What most of those who do not say it want to know.
const READAHEAD_DEFAULT: &str = "adaptive";
const DEVICE_DEFAULT: &str = "nvme";
const LIMIT_KB_DEFAULT: u64 = 128;
const LARGEST_KB_DEFAULT: u64 = 1280;

/// Of pages that a program stores to, by LZ4.
const RATIO_DEFAULT: f64 = 2.0;
const COSTS_DEFAULT: &str = "6000,1800";

/// The least RAM that is simulated: less cannot hold what one fault and its reclaim need.
const LEAST_BYTES: u64 = 16 << 12;

/// Options of a sweep.
#[derive(Args)]
pub struct SweepArgs {
    /// A trace, or a load: NAME or NAME:key=value,... (seq, descending, random, zipf, stride,
    /// interleaved, moving, phases, graph, usemem, usemem-random, swapload, mixed)
    #[arg(value_name = "TRACE-or-LOAD")]
    pub(super) workload: OsString,
    /// RAM: sizes, shares of the workload's pages, ranges [default: the load's own, else
    /// 10%..100%/10; of a trace of calls on files 10%,25%,50%,100%,125%]
    #[arg(long, env = "OVERSPILL_SIM_RAM", value_name = "LIST")]
    pub(super) ram: Option<String>,
    /// Read-ahead policies; of a trace of calls on files (strace) those of file read-ahead: adaptive,
    /// none, 2.6.20, 2.6.23, 2.6.24, 3.14, 4.10, 6.8, 6.19, 6.19-folios
    #[arg(long, env = "OVERSPILL_SIM_READAHEAD", value_name = "LIST", default_value = READAHEAD_DEFAULT)]
    pub(super) readahead: String,
    /// Swap devices, or those that the files are on: names of `sim devices`, or files as `sim
    /// calibrate` makes them
    #[arg(long, env = "OVERSPILL_SIM_DEVICE", value_name = "LIST", default_value = DEVICE_DEFAULT)]
    pub(super) device: String,
    /// Who manages the memory: live (overspill), live:NAME (with a reclaim policy of `run
    /// --reclaim`), kernel (today's), kernel-2012, kernel-2017; or pure replacement, as columns: opt,
    /// lru, fifo, clock, s3fifo, sieve, 2q, arc, lirs, w-tinylfu, mglru, and the scan loops
    /// kernel-3.10, kernel-3.15, kernel-3.16, kernel-6.1, bounded
    #[arg(long, env = "OVERSPILL_SIM_POLICY", value_name = "LIST", default_value = "live")]
    policy: String,
    /// Largest window of the kernel's read-ahead rules, as a power of two of pages
    #[arg(long, env = "OVERSPILL_PAGE_CLUSTER", value_name = "N", default_value_t = PAGE_CLUSTER_DEFAULT, value_parser = clap::value_parser!(u8).range(0..=10))]
    page_cluster: u8,
    /// Largest window of the kernel's file read-ahead, as in /sys/block/DISK/queue/read_ahead_kb; never
    /// more than half of the RAM
    #[arg(long, env = "OVERSPILL_SIM_READ_AHEAD_KB", value_name = "N", default_value_t = LIMIT_KB_DEFAULT)]
    #[arg(value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    pub(super) read_ahead_kb: u64,
    /// Largest request of the device, as in /sys/block/DISK/queue/max_sectors_kb: from 4.10 on a read of
    /// more than --read-ahead-kb has windows of up to that; never more than half of the RAM
    #[arg(long, env = "OVERSPILL_SIM_MAX_SECTORS_KB", value_name = "N", default_value_t = LARGEST_KB_DEFAULT)]
    #[arg(value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    pub(super) max_sectors_kb: u64,
    /// Size of the swap area [default: room for all pages, twice over]
    #[arg(long, env = "OVERSPILL_SIM_SWAP", value_name = "SIZE")]
    swap: Option<String>,
    /// Simulate the compressed pool of live, which may have so much of the RAM (a size, or a share
    /// of up to 90%), as far as it pays
    #[arg(long, env = "OVERSPILL_SIM_POOL", value_name = "SIZE")]
    pool: Option<String>,
    /// What pages shrink to in the pool: N stands for N:1
    #[arg(long, env = "OVERSPILL_SIM_POOL_RATIO", value_name = "N", default_value_t = RATIO_DEFAULT)]
    pool_ratio: f64,
    /// Nanoseconds that a page takes to be packed, and to be unpacked
    #[arg(long, env = "OVERSPILL_SIM_POOL_COSTS", value_name = "PACK,UNPACK", default_value = COSTS_DEFAULT)]
    pool_costs: String,
    /// The pool may have all of that from the start, whatever it costs
    #[arg(long, requires = "pool")]
    fixed_pool: bool,
    /// Processors for the program's threads [default: one for each]
    #[arg(long, env = "OVERSPILL_SIM_PROCESSORS", value_name = "N", default_value_t = 0)]
    processors: u32,
    /// Seed of a load
    #[arg(long, env = "OVERSPILL_SIM_SEED", value_name = "N", default_value_t = SEED_DEFAULT)]
    seed: u64,
    /// Print JSON in place of the table (its fields: docs/json.md)
    #[arg(long)]
    pub(super) json: bool,
    /// Write the curves to this file, which needs nothing else
    #[arg(long, value_name = "FILE", value_parser = output::any_file_name())]
    html: Option<PathBuf>,
    /// Say in a sentence how much RAM is enough (for the first policy and device)
    #[arg(long)]
    explain: bool,
    /// Simulations at a time [default: one for each processor]
    #[arg(long, env = "OVERSPILL_SIM_JOBS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) jobs: Option<u16>,
    /// When a page gets content: with its first touch, or when it is stored to (auto: with its first
    /// touch if a trace knows no stores at all, as most public ones do)
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    content: Content,
    /// Format of the trace, if it cannot be told from its beginning
    #[arg(long = "from", value_name = "FORMAT", value_parser = crate::trace::parse_format)]
    pub(super) from: Option<Format>,
}

/// What a live trace lacks, and how far its ratios were from those of runs (`bench/explain.py`;
/// docs/decisions/0060-live-traces.md).
const LIVE_CAUTION: &str = "\ncaution: a live trace lacks touches of pages in view: with less RAM than its run had its answers mean nothing; with that and more the \
     ratios of four programs were 0.6 to 1.2 of those of runs";

/// What a recording of each access lacks: a program's 110 million instructions take it 26 ms, not 110.
const INSTRUCTIONS_CAUTION: &str = "\ncaution: times in this trace are counts of instructions, a nanosecond each, four times what they took a \
     program that was measured: with too little RAM a run loses more than is said here. Believe pages, not times";

/// When a page gets content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Content {
    /// With its first touch if the trace knows no stores, else when it is stored to.
    Auto,
    /// With its first touch.
    First,
    /// When it is stored to: until then it is empty, and costs nothing to lose.
    Stores,
}

impl SweepArgs {
    /// Some options are about memory or loads, of which a trace of calls on files says nothing.
    pub(super) fn ensure_fit_for_files(&self) -> Result<()> {
        let unfit = [
            ("--explain", self.explain),
            ("--html", self.html.is_some()),
            ("--pool", self.pool.is_some()),
            ("--swap", self.swap.is_some()),
            ("--policy", self.policy != System::Live.name()),
            ("--page-cluster", self.page_cluster != PAGE_CLUSTER_DEFAULT),
            ("--processors", self.processors != 0),
            ("--content", self.content != Content::Auto),
            ("--seed", self.seed != SEED_DEFAULT),
        ];
        match unfit.iter().find(|(_, is_there)| *is_there) {
            Some((name, _)) => {
                bail!(
                    "{name} is not about files, and {} is a trace of calls on files",
                    self.workload.display()
                )
            }
            None => Ok(()),
        }
    }

    /// What this simulation would not hear of is not passed over in silence.
    ///
    /// *The story:* `--seed 2` of a trace, `--pool-ratio 4` without a pool and `--device hdd` of LRU gave
    /// what they gave without.
    fn ensure_fit(&self, subject: &Subject, policies: &Policies) -> Result<()> {
        const OF_FILES: &str = "there are no calls on files in it";
        const OF_A_POOL: &str = "there is no pool without --pool";
        const OF_TIME: &str = "pure replacement knows nothing of that";
        let (is_load, is_timeless) = (subject.load().is_some(), policies.systems.is_empty());
        let has_ratio = self.pool_ratio.to_bits() != RATIO_DEFAULT.to_bits();
        let unfit = [
            ("--seed", !is_load && self.seed != SEED_DEFAULT, "there is no chance in a trace"),
            ("--read-ahead-kb", self.read_ahead_kb != LIMIT_KB_DEFAULT, OF_FILES),
            ("--max-sectors-kb", self.max_sectors_kb != LARGEST_KB_DEFAULT, OF_FILES),
            ("--pool-ratio", self.pool.is_none() && has_ratio, OF_A_POOL),
            ("--pool-costs", self.pool.is_none() && self.pool_costs != COSTS_DEFAULT, OF_A_POOL),
            ("--readahead", is_timeless && self.readahead != READAHEAD_DEFAULT, OF_TIME),
            ("--device", is_timeless && self.device != DEVICE_DEFAULT, OF_TIME),
            ("--page-cluster", is_timeless && self.page_cluster != PAGE_CLUSTER_DEFAULT, OF_TIME),
            ("--processors", is_timeless && self.processors != 0, OF_TIME),
            ("--swap", is_timeless && self.swap.is_some(), OF_TIME),
        ];
        match unfit.iter().find(|(_, is_there, _)| *is_there) {
            Some((name, _, why)) => bail!("{name}: {why}"),
            None => Ok(()),
        }
    }

    /// The pool, if there is to be one.
    fn pool(&self) -> Result<Option<Asked>> {
        let asked = |size| Asked::new(size, self.pool_ratio, &self.pool_costs, self.fixed_pool);
        self.pool.as_deref().map(asked).transpose()
    }
}

/// What is simulated.
enum Subject {
    Trace(Recorded),
    Load {
        load: Load,
        /// Pages have content from their first touch on.
        is_filled: bool,
    },
}

/// A trace in a file.
struct Recorded {
    path: PathBuf,
    format: Option<Format>,
    content: Content,
    /// What only the whole of it tells.
    learned: Learned,
    /// Pages have content from their first touch on.
    filled: bool,
    /// What its answers are about.
    question: fn(u64) -> Question,
    /// The RAM of its run, if it knows nothing of less.
    floor: Option<u64>,
    /// What counts as a page each.
    counted: Option<Counted>,
    has_no_unit: bool,
}

impl Recorded {
    fn start(&self) -> Result<TraceWorkload> {
        Ok(open(&self.path, self.format)?.with_learned(self.learned.clone()).with_content(self.filled))
    }

    /// Goes through the trace; the result is its extent, and what must be said of answers from it.
    fn survey(&mut self) -> Result<(Extent, &'static str)> {
        let mut trace = open(&self.path, self.format)?;
        let mut extent = Extent::default();
        extent.add(&mut trace).map_err(|error| anyhow!("{error}"))?;
        self.learned = trace.learned();
        self.floor = trace.ram_bytes();
        (self.counted, self.has_no_unit) = (trace.counted(), trace.has_no_unit());
        self.filled = match self.content {
            Content::First => true,
            Content::Stores => false,
            Content::Auto => !trace.has_stores() && !trace.is_live(),
        };
        if trace.counts_seconds() {
            self.question = misses;
        }
        let caution = match () {
            () if trace.is_live() => LIVE_CAUTION,
            () if counts_instructions(&self.path, self.format)? => INSTRUCTIONS_CAUTION,
            () => "",
        };
        Ok((extent, caution))
    }
}

/// Are its times counts of instructions? By its format, or by the notes that it begins with.
fn counts_instructions(path: &Path, format: Option<Format>) -> Result<bool> {
    let (format, mut reader) =
        open_trace(path, format).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    if format == Format::Lackey {
        return Ok(true);
    }
    while let Ok(Some(record @ (Record::Name(_) | Record::Region(_)))) = reader.next_record() {
        if let Record::Name(note) = record
            && crate::record::counts_instructions(&note.text)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn time(whole_bytes: u64) -> Question {
    Question { cost: Cost::Time, whole_bytes, floor: None }
}

fn misses(whole_bytes: u64) -> Question {
    Question { cost: Cost::Misses, whole_bytes, floor: None }
}

fn open(path: &Path, format: Option<Format>) -> Result<TraceWorkload> {
    TraceWorkload::open(path, format).map_err(|error| anyhow!("{}: {error}", path.display()))
}

impl Subject {
    fn new(args: &SweepArgs) -> Result<Subject> {
        let path = PathBuf::from(&args.workload);
        if path.exists() {
            return Ok(Subject::Trace(Recorded {
                path,
                format: args.from,
                content: args.content,
                learned: Learned::default(),
                filled: false,
                question: time,
                floor: None,
                counted: None,
                has_no_unit: false,
            }));
        }
        let word = args.workload.to_string_lossy();
        match generate::parse(&word) {
            Ok(_) if args.from.is_some() => {
                bail!("--from: there is no trace of this name, and a load has no format")
            }
            Ok(mut load) => {
                load.reseed(args.seed);
                Ok(Subject::Load { load, is_filled: args.content == Content::First })
            }
            Err(error) => Err(neither(&word, &error)),
        }
    }

    fn start(&self) -> Result<Vec<Box<dyn Workload + Send>>> {
        match self {
            Subject::Load { load, is_filled: true } => Ok(Filled::all(load.start())),
            Subject::Load { load, .. } => Ok(load.start()),
            Subject::Trace(trace) => Ok(vec![Box::new(trace.start()?)]),
        }
    }

    /// Its extent, and what must be said of answers from it; a trace has been gone through then.
    fn survey(&mut self) -> Result<(Extent, &'static str)> {
        match self {
            Subject::Load { load, .. } => Ok((Extent::of_load(load), "")),
            Subject::Trace(trace) => trace.survey(),
        }
    }

    /// What its answers are about.
    fn question(&self, extent: &Extent) -> Question {
        match self {
            Subject::Load { .. } => time(extent.bytes()),
            Subject::Trace(trace) => Question { floor: trace.floor, ..(trace.question)(extent.bytes()) },
        }
    }

    fn trace(&self) -> Option<&Recorded> {
        match self {
            Subject::Load { .. } => None,
            Subject::Trace(trace) => Some(trace),
        }
    }

    fn load(&self) -> Option<&Load> {
        match self {
            Subject::Load { load, .. } => Some(load),
            Subject::Trace(_) => None,
        }
    }
}

/// Why a word is neither a trace nor a load.
fn neither(word: &str, error: &LoadError) -> anyhow::Error {
    match error {
        _ if word == "-" => anyhow!("a trace is read again and again, so it must be a file: not -"),
        LoadError::Nothing { .. } | LoadError::Entry { .. } => anyhow!("{error}"),
        LoadError::Name { .. } if word.contains(['/', '.']) => anyhow!("{word}: there is no such file"),
        LoadError::Name { .. } => {
            let hint = nearest::hint(word, super::COMMANDS.into_iter().chain(generate::named::NAMES));
            let (commands, loads) = (super::COMMANDS.join(", "), generate::named::NAMES.join(", "));
            anyhow!("`{word}` is no command{hint}: {commands}; no load: {loads}; and no trace in a file")
        }
    }
}

/// What `--policy` names: systems, and pure replacement.
struct Policies {
    systems: Vec<String>,
    replacement: Vec<String>,
}

impl Policies {
    fn new(args: &SweepArgs) -> Result<Policies> {
        let eras = Era::ALL.map(Era::name);
        let live = RECLAIM.map(|name| format!("{}{name}", System::LIVE_WITH));
        let live: Vec<&str> = live.iter().map(String::as_str).collect();
        let known = [&System::NAMES[..], &replace::NAMES[..], &eras[..], &live[..]].concat();
        let all = names(&args.policy, &known).context("--policy")?;
        let (systems, replacement): (Vec<String>, Vec<String>) =
            all.into_iter().partition(|name| System::with_reclaim(name).is_some());
        if systems.is_empty() && (args.explain || args.html.is_some()) {
            bail!("--policy: pure replacement takes no time, which --explain and --html are about");
        }
        Ok(Policies { systems, replacement })
    }
}

/// The amounts of RAM.
fn rams(args: &SweepArgs, subject: &Subject, extent: &Extent) -> Result<Vec<Amount>> {
    let own = subject.load().and_then(|load| load.ram_bytes);
    let enough = |ram: &Amount| ram.bytes(extent.bytes()) >= LEAST_BYTES;
    let rams = match (&args.ram, own) {
        (Some(list), _) => amounts(list).context("--ram")?,
        (None, Some(bytes)) => vec![Amount::Bytes(bytes)],
        // Of a workload of a few pages a tenth is nothing.
        (None, None) => {
            let shares = amounts(RAM_DEFAULT).expect("the default is a list").into_iter();
            let shares: Vec<Amount> = shares.filter(enough).collect();
            if shares.is_empty() { vec![Amount::Bytes(LEAST_BYTES)] } else { shares }
        }
    };
    if !rams.iter().all(enough) {
        bail!("--ram: the least is {} (16 pages)", show_bytes(LEAST_BYTES));
    }
    Ok(rams)
}

/// Every combination, RAM changing fastest.
fn machines(
    args: &SweepArgs,
    systems: &[String],
    rams: &[Amount],
    subject: &Subject,
    extent: &Extent,
) -> Result<Vec<Machine>> {
    ensure_not_of_files(&args.readahead)?;
    let readaheads = names(&args.readahead, &POLICIES).context("--readahead")?;
    let devices: Vec<Model> = devices(&args.device)?;
    let knobs = Knobs { page_cluster: args.page_cluster, ..Knobs::default() };
    let pool = args.pool()?;
    ensure!(
        pool.is_none() || systems.iter().any(|name| name.starts_with(System::Live.name())),
        "--pool: only live has a compressed pool"
    );
    let mut machines = Vec::new();
    let swap_bytes = args.swap.as_deref().map(amount).transpose().context("--swap")?;
    let swap_bytes = swap_bytes.map(|swap| swap.bytes(extent.bytes()));
    if let Some((bytes, small)) =
        swap_bytes.and_then(|bytes| Some((bytes, devices.iter().find(|device| device.room_bytes() < bytes)?)))
    {
        let (swap, room) = (show_bytes(bytes), show_bytes(small.room_bytes()));
        bail!("--swap: {swap} have no room on {} ({room})", small.name);
    }
    for name in systems {
        let (system, reclaim) = System::with_reclaim(name).expect("the name was checked");
        for device in &devices {
            for readahead in &readaheads {
                let machine = Machine {
                    swap_bytes,
                    reclaim,
                    knobs,
                    processors: args.processors,
                    until: subject.load().and_then(|load| load.until_ns),
                    ..Machine::new(system, 0, readahead, device.clone())
                };
                machines.extend(rams.iter().map(|ram| with_ram(&machine, pool, ram.bytes(extent.bytes()))));
            }
        }
    }
    Ok(machines)
}

/// The devices of a list.
pub(super) fn devices(list: &str) -> Result<Vec<Model>> {
    let names = distinct(list).context("--device")?;
    names.into_iter().map(|name| Model::find(name).context("--device")).collect()
}

/// *The story:* of `--readahead 6.8`, which the help lists, it was said that there is no such policy.
fn ensure_not_of_files(readaheads: &str) -> Result<()> {
    let of_files = |name: &&str| FILE_POLICIES.contains(name) && !POLICIES.contains(name);
    match readaheads.split(',').map(str::trim).find(of_files) {
        Some(name) => bail!("--readahead: {name} is of traces of calls on files, and this is none"),
        None => Ok(()),
    }
}

/// The machine with other RAM, of which the pool may have its share.
fn with_ram(machine: &Machine, pool: Option<Asked>, ram_bytes: u64) -> Machine {
    let pool = pool.filter(|_| machine.system == System::Live).map(|pool| pool.model(ram_bytes));
    Machine { ram_bytes, pool, ..machine.clone() }
}

/// Carries out the command.
pub fn main(args: &SweepArgs) -> Result<u8> {
    output::ensure_apart(&[
        ("the trace", Some(Path::new(&args.workload))),
        ("--html", args.html.as_deref()),
    ])?;
    let mut subject = Subject::new(args)?;
    if let Subject::Trace(trace) = &subject
        && super::files::is_of_files(&trace.path, trace.format)
    {
        return super::files::main(args);
    }
    let policies = Policies::new(args)?;
    args.ensure_fit(&subject, &policies)?;
    let progress = Progress::new();
    progress.say("counting the workload's pages");
    let (extent, caution) = subject.survey()?;
    let rams = rams(args, &subject, &extent)?;
    let machines = machines(args, &policies.systems, &rams, &subject, &extent)?;
    // Whether it can be written is said before the work, not after.
    args.html.as_deref().map_or(Ok(()), output::ensure_writable)?;
    let header = Header {
        workload: args.workload.to_string_lossy().into_owned(),
        workload_bytes: extent.bytes(),
        seed: subject.load().map(|_| args.seed),
        page_cluster: args.page_cluster,
        processors: args.processors,
        counted: subject.trace().and_then(|trace| trace.counted),
        has_no_unit: subject.trace().is_some_and(|trace| trace.has_no_unit),
        pool: args.pool()?.map(|pool| pool.to_string()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let jobs = super::jobs(args.jobs);
    // A page of curves has the answer on it.
    let answer = if args.explain || args.html.is_some() {
        Some(explain(&machines[0], args.pool()?, &subject, &extent, &progress)?)
    } else {
        None
    };
    let counts_instructions = caution == INSTRUCTIONS_CAUTION;
    let caution = cautions(&header, answer.as_ref(), machines.first(), caution);
    let explanation =
        answer.as_ref().filter(|_| args.explain).map(|answer| answer.sentence.clone() + &caution);
    let rows = if args.explain && args.ram.is_none() && args.html.is_none() {
        Vec::new()
    } else {
        simulate_all(&machines, &subject, &extent, jobs, &progress)?
    };
    let cells = replace_all(&policies.replacement, &rams, &subject, &extent, jobs, &progress)?;
    drop(progress);
    let text = if args.json {
        json::render(&header, &rows, &cells, explanation.as_deref())
    } else {
        // It is about the times of the table, too.
        let alone = INSTRUCTIONS_CAUTION.trim_start_matches('\n');
        let note = (explanation.is_none() && !rows.is_empty() && counts_instructions).then_some(alone);
        let timed = table::report(&header, &rows, explanation.as_deref().or(note));
        let gap = if rows.is_empty() || cells.is_empty() { "" } else { "\n" };
        timed + gap + &replace::report::render(&policies.replacement, &cells)
    };
    print(&text)?;
    if let Some(page) = &args.html {
        let lead = answer.as_ref().map(|answer| answer.sentence.clone() + &caution);
        let knee = answer.and_then(|answer| answer.knee);
        let text = html::render(&header, &rows, lead.as_deref(), knee.as_ref());
        // Not before: who is interrupted leaves none that is empty.
        Output::prepare(page)?.write(std::process::id(), &text)?;
    }
    Ok(0)
}

/// What must be said with the answer, a line each.
fn cautions(header: &Header, answer: Option<&Answer>, machine: Option<&Machine>, of_trace: &str) -> String {
    let mut text = of_trace.to_owned();
    let Some(knee) = answer.and_then(|answer| answer.knee) else { return text };
    if let Some(counted) = header.counted {
        let pages = knee.fine.0 / PAGE_SIZE;
        text += &format!(
            "\nnote: each of the {} counts as a page of 4 KiB, whatever its size: these are {} of {}",
            counted.what,
            pages.min(header.workload_bytes / PAGE_SIZE),
            header.workload_bytes / PAGE_SIZE
        );
    }
    let is_live = machine.is_some_and(|machine| machine.system == System::Live);
    if is_live && header.counted.is_none() && knee.fine.0 < table::SMALL_BYTES {
        text.push('\n');
        text += table::SMALL_NOTE;
    }
    text
}

fn simulate_all(
    machines: &[Machine],
    subject: &Subject,
    extent: &Extent,
    jobs: usize,
    progress: &Progress,
) -> Result<Vec<Row>> {
    // One line on the terminal, whichever thread writes it.
    let line = Mutex::new(progress);
    let total = machines.len();
    let say = |done: usize| {
        if let Ok(progress) = line.lock() {
            progress.share(done, total, "machines");
        }
    };
    say(0);
    let run = |job: usize| -> Result<Row> {
        let machine = &machines[job];
        let outcome = simulate(machine, extent, subject.start()?).map_err(|error| anyhow!("{error}"))?;
        Ok(Row::new(machine, extent.bytes(), &outcome))
    };
    parallel(total, jobs, run, say).into_iter().collect()
}

/// Every amount of RAM under every policy of pure replacement, the policy changing fastest.
fn replace_all(
    policies: &[String],
    rams: &[Amount],
    subject: &Subject,
    extent: &Extent,
    jobs: usize,
    progress: &Progress,
) -> Result<Vec<Cell>> {
    if policies.is_empty() {
        return Ok(Vec::new());
    }
    let touches = Touches::of(subject.start()?).map_err(|error| anyhow!("{error}"))?;
    let line = Mutex::new(progress);
    let total = policies.len() * rams.len();
    let say = |done: usize| {
        if let Ok(progress) = line.lock() {
            progress.share(done, total, "policies");
        }
    };
    let run = |job: usize| {
        let ram = &rams[job / policies.len()];
        replace::report::cell(&touches, &policies[job % policies.len()], ram.bytes(extent.bytes()))
    };
    Ok(parallel(total, jobs, run, say))
}

/// How much RAM is enough: in a sentence, and where it can be told as figures.
struct Answer {
    sentence: String,
    knee: Option<Knee>,
}

/// The answer for the combination of `machine`, whatever its RAM.
fn explain(
    machine: &Machine,
    pool: Option<Asked>,
    subject: &Subject,
    extent: &Extent,
    progress: &Progress,
) -> Result<Answer> {
    if let Some(sentence) = explain::too_small(extent.bytes()) {
        return Ok(Answer { sentence, knee: None });
    }
    if let Some(until_ns) = subject.load().and_then(|load| load.until_ns) {
        let sentence = format!(
            "this load runs for {} whatever the RAM: no time tells how much is enough",
            overspill_sim::time::show(until_ns)
        );
        return Ok(Answer { sentence, knee: None });
    }
    let (mut tried, mut exceeded) = (BTreeSet::new(), 0);
    let question = subject.question(extent);
    let knee = explain::find(question, |ram_bytes| -> Result<u64> {
        tried.insert(ram_bytes);
        progress.say(&format!(
            "looking for the knee: machine {} with {}",
            tried.len(),
            show_bytes(ram_bytes)
        ));
        let machine = with_ram(machine, pool, ram_bytes);
        let outcome = simulate(&machine, extent, subject.start()?).map_err(|error| anyhow!("{error}"))?;
        exceeded += u32::from(outcome.frames_max * PAGE_SIZE > ram_bytes);
        Ok(match question.cost {
            Cost::Time => outcome.elapsed_ns,
            Cost::Misses => extent.pages + outcome.major_faults(),
        })
    })?;
    if exceeded > 0 {
        return Ok(Answer { sentence: swap_was_full(exceeded), knee: None });
    }
    Ok(Answer { sentence: knee.sentence(), knee: Some(knee) })
}

/// Of machines that took more RAM than they were to have no threshold can be told.
fn swap_was_full(machines: u32) -> String {
    format!(
        "swap was full in {machines} of the machines tried, which took more than their RAM: \
         how much is enough can be told with a larger --swap, or without"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *The story:* of `sim zipf:sise=1G` it was said that there is no trace of this name, of `sim
    /// calbrate` and `sim -` that they are no loads.
    #[test]
    fn what_is_neither_a_trace_nor_a_load_is_told_by_what_it_looks_like() {
        let complaint = |word: &str| neither(word, &generate::parse(word).expect_err("neither")).to_string();
        assert!(complaint("zipf:sise=1G").contains("(did you mean `size`?)"));
        assert!(!complaint("zipf:sise=1G").contains("trace"));
        assert!(complaint("calbrate").contains("(did you mean `calibrate`?)"));
        assert!(complaint("zpif").contains("(did you mean `zipf`?)"));
        assert_eq!(complaint("no/such.ovt"), "no/such.ovt: there is no such file");
        assert!(complaint("-").contains("must be a file"));
    }
}
