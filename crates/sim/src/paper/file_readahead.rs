//! The announcement of on-demand read-ahead (2.6.23): the same for plain reads, more transactions of
//! a database, and three times as much from two hundred slow streams in too little memory.
//!
//! The machine is the published one as far as it is known: 2 GB, a limit of 1 MiB, a 7200 rpm disk.
//! The old column is 2.6.20, the new one the patch itself. Sizes of the plain patterns are divided
//! by `shorten` (file and memory alike); everything else is as published or named in the notes.

use std::cell::Cell;
use std::rc::Rc;

use super::{Cell as Value, Effort, Judge, Row, Sheet};
use crate::device::params::Model;
use crate::files::programs::{Blocks, FileIo, Oltp, ROWS_A_BLOCK, Records, SlowStream, shuffled, strided};
use crate::files::{Costs, Machine, Outcome, Placed, Program};
use crate::rng::Rng;
use crate::sweep::parallel;
use crate::time::{Nanos, SECOND, muldiv};
use crate::workload::WorkloadError;
use overspill_mm::fileread::policy::{Config, Policy};
use overspill_mm::fileread::{Limits, adaptive};
use overspill_mm::types::PAGE_SIZE;

/// Old and new.
const COLUMNS: [&str; 2] = ["2.6.20", "on-demand"];
const POLICIES: [&str; 2] = ["2.6.20", "2.6.23"];
/// The largest window of the announcement, 1 MiB.
const LIMIT: u64 = 256;
const GIB: u64 = 1 << 30;
/// Of 2 GB, what the page cache has.
const CACHE_PAGES: u64 = 1_800 * (1 << 20) / PAGE_SIZE;
/// Of 128 MB: what a kernel and two hundred readers leave.
const SMALL_CACHE_PAGES: u64 = 86 * (1 << 20) / PAGE_SIZE;
/// The streams of the last test, their rate, and what one of them reads at most.
const STREAMS: u64 = 200;
const STREAM_RATE: u64 = 100_000;
const STREAM_BYTES: u64 = 30_000_000;
/// A record of iozone, 64 KiB, and a request of aio-stress, 128 KiB.
const RECORD: u64 = 16;
const REQUEST: u64 = 32;

const PLAIN: Judge = Judge::Ratios { within_permille: 10 };
const ALIKE: Judge = Judge::Ratios { within_permille: 80 };

/// One simulation: which row it belongs to and which rules it follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Job {
    what: What,
    policy: &'static str,
}

/// What is simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Pattern(Pattern),
    FileIo { threads: u64, run: u64 },
    Oltp { transactions: u64, threads: u64 },
    Thrash,
    Processor(Load),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pattern {
    Read,
    ReRead,
    Reverse,
    Stride,
    Random,
    Pread,
    AioSequential,
    AioRandom,
}

/// Loads of which the processor's part is published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    Sequential,
    CachedSingly,
    CachedInPieces,
    CachedSmallFiles,
    Random,
}

const PATTERNS: [(&str, Pattern, [u64; 2]); 7] = [
    ("read, KB/s", Pattern::Read, [62_086, 62_196]),
    ("re-read, KB/s", Pattern::ReRead, [62_253, 62_225]),
    ("reverse read, KB/s", Pattern::Reverse, [50_001, 50_278]),
    ("stride read, KB/s", Pattern::Stride, [8_656, 8_646]),
    ("random read, KB/s", Pattern::Random, [13_908, 13_924]),
    ("mixed workload, KB/s", Pattern::Random, [19_055, 19_063]),
    ("pread, KB/s", Pattern::Pread, [62_218, 62_265]),
];

const AIO: [(&str, Pattern, [u64; 2]); 2] = [
    ("sequential, 1/100 s", Pattern::AioSequential, [9_257, 9_254]),
    ("random, 1/100 s", Pattern::AioRandom, [31_187, 31_215]),
];

/// Run, threads, and hundredths of a second.
const FILEIO: [(u64, u64, [u64; 2]); 13] = [
    (1, 1, [5_920, 5_923]),
    (1, 2, [5_806, 5_823]),
    (1, 4, [4_805, 4_712]),
    (1, 8, [4_107, 4_122]),
    (1, 16, [3_588, 3_644]),
    (1, 32, [3_266, 3_282]),
    (1, 64, [2_376, 2_415]),
    (1, 128, [2_437, 2_382]),
    (1, 256, [2_324, 2_205]),
    (2, 1, [5_967, 5_957]),
    (2, 8, [4_152, 4_195]),
    (2, 64, [2_502, 2_396]),
    (2, 256, [2_255, 2_095]),
];

/// Transactions, threads, and hundredths of a transaction a second.
const OLTP: [(u64, u64, [u64; 2]); 17] = [
    (10_000, 1, [6_281, 6_456]),
    (10_000, 2, [6_797, 7_093]),
    (10_000, 4, [8_181, 8_587]),
    (10_000, 8, [9_460, 9_789]),
    (10_000, 16, [9_907, 10_468]),
    (10_000, 32, [9_593, 10_428]),
    (10_000, 64, [9_648, 10_368]),
    (5_000, 1, [4_821, 4_865]),
    (5_000, 8, [6_860, 7_019]),
    (5_000, 64, [7_057, 7_472]),
    (2_000, 1, [3_757, 3_804]),
    (2_000, 2, [3_843, 3_899]),
    (2_000, 4, [4_539, 4_645]),
    (2_000, 8, [5_164, 5_236]),
    (2_000, 16, [5_439, 5_518]),
    (2_000, 32, [5_213, 5_449]),
    (2_000, 64, [5_413, 5_461]),
];

/// Time of the processor in thousandths of the old one.
const PROCESSOR: [(&str, Load, [u64; 2]); 5] = [
    ("1-page sequential, sparse file", Load::Sequential, [1000, 997]),
    ("1-page sequential, cached", Load::CachedSingly, [1000, 988]),
    ("256-page sequential, cached", Load::CachedInPieces, [1000, 968]),
    ("small files, cached", Load::CachedSmallFiles, [1000, 987]),
    ("1-page random, sparse file", Load::Random, [1000, 1010]),
];

/// Runs it.
pub fn run(effort: &Effort<'_>) -> Result<Vec<Sheet>, WorkloadError> {
    let jobs = jobs();
    let work = |index: usize| simulate(jobs[index], effort.shorten);
    let outcomes = parallel(jobs.len(), effort.jobs, work, |done| (effort.progress)(done, jobs.len()));
    let results = Results { jobs, outcomes };
    Ok(vec![
        plain_sheet(&results, effort.shorten),
        aio_sheet(&results),
        fileio_sheet(&results),
        oltp_sheet(&results),
        gains_sheet(&results),
        thrash_sheet(&results),
        processor_sheet(&results),
    ])
}

fn jobs() -> Vec<Job> {
    let patterns = PATTERNS.iter().chain(&AIO).map(|line| What::Pattern(line.1));
    let fileio = FILEIO.iter().map(|line| What::FileIo { run: line.0, threads: line.1 });
    let oltp = OLTP.iter().map(|line| What::Oltp { transactions: line.0, threads: line.1 });
    let processor = PROCESSOR.iter().map(|line| What::Processor(line.1));
    let mut all: Vec<What> = Vec::new();
    for what in patterns.chain(fileio).chain(oltp).chain([What::Thrash]).chain(processor) {
        // One simulation may be of two rows.
        if !all.contains(&what) {
            all.push(what);
        }
    }
    let mut jobs: Vec<Job> =
        all.into_iter().flat_map(|what| POLICIES.map(|policy| Job { what, policy })).collect();
    jobs.extend(["6.8", "6.19", "adaptive"].map(|policy| Job { what: What::Thrash, policy }));
    jobs
}

struct Results {
    jobs: Vec<Job>,
    outcomes: Vec<Outcome>,
}

impl Results {
    fn of(&self, what: What, policy: &str) -> &Outcome {
        let at = self.jobs.iter().position(|job| job.what == what && job.policy == policy);
        &self.outcomes[at.expect("every row is simulated")]
    }

    fn row(
        &self,
        name: String,
        what: What,
        published: [u64; 2],
        judge: Judge,
        value: fn(&Outcome) -> u64,
    ) -> Row {
        let cells = POLICIES
            .iter()
            .zip(published)
            .map(|(policy, published)| Value {
                published: Some(published),
                simulated: value(self.of(what, policy)),
            })
            .collect();
        Row { name, cells, judge, reasons: Vec::new() }
    }
}

fn sheet(title: &str, unit: &'static str, rows: Vec<Row>, notes: &[String]) -> Sheet {
    Sheet { title: title.to_owned(), unit, columns: COLUMNS.to_vec(), rows, notes: notes.to_vec() }
}

fn plain_sheet(results: &Results, shorten: u64) -> Sheet {
    let rows = PATTERNS.iter().map(|&(name, pattern, published)| {
        results.row(name.to_owned(), What::Pattern(pattern), published, PLAIN, read_rate)
    });
    let notes = [
        format!("a file of 4 GiB in 2 GB, both divided by {shorten}; records of 64 KiB; hdd-2007"),
        "not simulated: writing; with one process mixed is the random one".to_owned(),
        "judged: new by old alone; reading backwards is far slower on this disk than published".to_owned(),
    ];
    sheet("iozone: plain patterns are as before", "as each row says", rows.collect(), &notes)
}

fn aio_sheet(results: &Results) -> Sheet {
    let rows = AIO.iter().map(|&(name, pattern, published)| {
        results.row(name.to_owned(), What::Pattern(pattern), published, PLAIN, hundredths)
    });
    sheet("aio-stress: requests of 128 KiB", "as each row says", rows.collect(), &[])
}

fn fileio_sheet(results: &Results) -> Sheet {
    let mut rows: Vec<Row> = FILEIO
        .iter()
        .map(|&(run, threads, published)| {
            let again = if run == 1 { "" } else { ", once more" };
            let name = format!("{threads} threads{again}");
            results.row(name, What::FileIo { threads, run }, published, ALIKE, hundredths)
        })
        .collect();
    let sum = |column: usize| Value {
        published: rows.iter().map(|row| row.cells[column].published).sum(),
        simulated: rows.iter().map(|row| row.cells[column].simulated).sum(),
    };
    let cells = vec![sum(0), sum(1)];
    rows.push(Row {
        name: "all".to_owned(),
        cells,
        judge: Judge::Ratios { within_permille: 20 },
        reasons: Vec::new(),
    });
    let notes = [
        "128 files, 4 GiB in all, blocks of 64 KiB, 3 reads for 2 writes, a sync after 100 requests, \
         10,000 requests"
            .to_owned(),
        "judged: new by old alone; threads do not shorten it here, as they did".to_owned(),
    ];
    sheet("sysbench fileio, random reads and writes", "1/100 s", rows, &notes)
}

fn oltp_sheet(results: &Results) -> Sheet {
    let rows = OLTP.iter().map(|&(transactions, threads, published)| {
        let name = format!("{transactions} transactions, {threads} threads");
        let value = |outcome: &Outcome| outcome.elapsed_ns;
        let mut row = results.row(
            name,
            What::Oltp { transactions, threads },
            published,
            Judge::AtLeast { permille: 1001 },
            value,
        );
        for cell in &mut row.cells {
            cell.simulated = muldiv(transactions * 100, SECOND, cell.simulated.max(1));
        }
        row
    });
    let notes = [
        "10,000,000 rows in blocks of 16 KiB, 64 a block; 2 GB; the database keeps 8 MiB itself".to_owned(),
        "judged: the gain is a gain in every row".to_owned(),
        "with several threads the old rules lose more than published: after 256 cached pages they are \
         off, so that a miss costs two requests, and here another thread's comes between them"
            .to_owned(),
    ];
    sheet("sysbench OLTP, read only", "transactions in 100 s", rows.collect(), &notes)
}

fn gains_sheet(results: &Results) -> Sheet {
    let oltp = oltp_sheet(results);
    let at = |transactions, threads| {
        OLTP.iter().position(|line| line.0 == transactions && line.1 == threads).expect("a row")
    };
    let compare = |name: &str, few: usize, many: usize| {
        let (few, many) = (oltp.rows[few].ratios(1), oltp.rows[many].ratios(1));
        let cells = [few, many].map(|(published, simulated)| Value { published, simulated }).to_vec();
        Row { name: name.to_owned(), cells, judge: Judge::AtLeast { permille: 1001 }, reasons: Vec::new() }
    };
    let rows = vec![
        compare("10,000 transactions: 1 and 64 threads", at(10_000, 1), at(10_000, 64)),
        compare("1 thread: 2,000 and 10,000 transactions", at(2_000, 1), at(10_000, 1)),
        compare("64 threads: 2,000 and 10,000 transactions", at(2_000, 64), at(10_000, 64)),
    ];
    Sheet {
        title: "OLTP: the gain grows with threads and with the density of reads".to_owned(),
        unit: "on-demand in thousandths of 2.6.20",
        columns: vec!["fewer", "more"],
        rows,
        notes: Vec::new(),
    }
}

fn thrash_sheet(results: &Results) -> Sheet {
    let rows = vec![
        results.row(
            "largest throughput, KB/s".to_owned(),
            What::Thrash,
            [5_000, 15_000],
            Judge::AtLeast { permille: 2_500 },
            largest_throughput,
        ),
        results.row(
            "smallest average I/O, KB".to_owned(),
            What::Thrash,
            [16, 140],
            Judge::AtLeast { permille: 5_000 },
            smallest_io,
        ),
    ];
    let mut notes = vec![
        "128 MB, of which 86 MiB are page cache; one more stream of 100 KB/s every second, 200 in all; \
         spans of 5 s"
            .to_owned(),
        "assumed: a file of 30 MB each, one after another on the disk, reads of 16 KiB; a stream \
         that is late does not catch up"
            .to_owned(),
    ];
    notes.extend(["6.8", "6.19", "adaptive"].map(|policy| {
        let outcome = results.of(What::Thrash, policy);
        let (rate, io) = (largest_throughput(outcome), smallest_io(outcome));
        format!("{policy}, not published: {rate} KB/s, {io} KB, at the end {} KB/s", last_rate(outcome))
    }));
    notes.extend(
        POLICIES.map(|policy| {
            format!("{policy} at the end: {} KB/s", last_rate(results.of(What::Thrash, policy)))
        }),
    );
    sheet("two hundred slow streams in too little memory", "as each row says", rows, &notes)
}

fn processor_sheet(results: &Results) -> Sheet {
    let mut notes = vec![
        "assumed: 60 ns a decision, 40 ns a look into the page cache, 300 ns a call, 1300 ns a page"
            .to_owned(),
        "all published differences are below 4 %: ties, whose side is not judged".to_owned(),
    ];
    let rows = PROCESSOR.iter().map(|&(name, load, published)| {
        let mut row = results.row(name.to_owned(), What::Processor(load), published, ALIKE, processor_ns);
        let old = row.cells[0].simulated.max(1);
        for cell in &mut row.cells {
            cell.simulated = muldiv(cell.simulated, 1000, old);
        }
        notes.push(format!(
            "{name}: {}",
            POLICIES.map(|policy| counted(results.of(What::Processor(load), policy))).join("; ")
        ));
        row
    });
    let rows = rows.collect();
    sheet("time of the processor", "thousandths of 2.6.20", rows, &notes)
}

fn counted(outcome: &Outcome) -> String {
    let each = |count: u64| muldiv(count, 1000, outcome.counts.pages_used.max(1));
    let (calls, lookups) = (each(outcome.counts.policy_calls), each(outcome.counts.lookups));
    format!("{calls} calls and {lookups} lookups for 1000 pages")
}

/// Only what differs between the rules counts, and what both do.
fn processor_ns(outcome: &Outcome) -> u64 {
    let costs = Costs::default();
    outcome.counts.pages_used * (costs.page_ns + costs.call_ns)
        + outcome.counts.policy_calls * costs.decision_ns
        + outcome.counts.lookups * costs.lookup_ns
}

fn read_rate(outcome: &Outcome) -> u64 {
    muldiv(outcome.counts.pages_used * (PAGE_SIZE / 1024), SECOND, outcome.elapsed_ns.max(1))
}

fn hundredths(outcome: &Outcome) -> u64 {
    outcome.elapsed_ns / 10_000_000
}

fn spans(outcome: &Outcome) -> impl Iterator<Item = &crate::files::Sample> {
    // The last span is not whole.
    outcome.samples.iter().take(outcome.samples.len().saturating_sub(1))
}

fn largest_throughput(outcome: &Outcome) -> u64 {
    spans(outcome)
        .map(|sample| muldiv(sample.used_bytes, SECOND, Machine::SAMPLE_NS) / 1000)
        .max()
        .unwrap_or(0)
}

fn last_rate(outcome: &Outcome) -> u64 {
    spans(outcome).last().map_or(0, |sample| muldiv(sample.used_bytes, SECOND, Machine::SAMPLE_NS) / 1000)
}

fn smallest_io(outcome: &Outcome) -> u64 {
    spans(outcome)
        .filter(|sample| sample.reads > 0)
        .map(|sample| sample.read_bytes / sample.reads / 1024)
        .min()
        .unwrap_or(0)
}

fn policy(name: &str, cache_pages: u64) -> Policy {
    let limits = Limits { ra_pages: LIMIT, io_pages: LIMIT };
    // A disk of 2007: 10 ms to a place, 64 MB/s.
    let adaptive = adaptive::Config {
        window_max: 4 * LIMIT,
        frames: cache_pages,
        latency_ns: 10_000_000,
        page_ns: 64_000,
    };
    Policy::by_name(name, Config { limits, adaptive }).expect("a policy's name")
}

fn simulate(job: Job, shorten: u64) -> Outcome {
    match job.what {
        What::Pattern(pattern) => plain(pattern, job.policy, shorten),
        What::FileIo { threads, run } => fileio(threads, run, job.policy),
        What::Oltp { transactions, threads } => oltp(transactions, threads, job.policy),
        What::Thrash => thrash(job.policy),
        What::Processor(load) => processor(load, job.policy),
    }
}

fn disk() -> Box<dyn crate::device::Device + Send> {
    Model::builtin("hdd-2007").expect("built in").build()
}

fn machine(name: &str, placed: &[Placed], cache_pages: u64) -> Machine {
    Machine::new(policy(name, cache_pages), placed, cache_pages, disk())
}

fn alone(mut machine: Machine, starts: Vec<u64>, pages: u64) -> Outcome {
    machine.add(Box::new(Records { starts: starts.into_iter(), pages }), 0);
    machine.run()
}

fn plain(pattern: Pattern, name: &str, shorten: u64) -> Outcome {
    let pages = 4 * GIB / PAGE_SIZE / shorten;
    let place = [Placed { offset_bytes: 0, pages }];
    let machine = machine(name, &place, CACHE_PAGES / shorten);
    let size = if matches!(pattern, Pattern::AioSequential | Pattern::AioRandom) { REQUEST } else { RECORD };
    let count = pages / size;
    let order: Vec<u64> = match pattern {
        Pattern::Read | Pattern::Pread | Pattern::AioSequential => (0..count).collect(),
        // Both passes: what was read first is gone when it is read again.
        Pattern::ReRead => (0..count).chain(0..count).collect(),
        Pattern::Reverse => (0..count).rev().collect(),
        Pattern::Stride => strided(count, 17),
        Pattern::Random | Pattern::AioRandom => shuffled(count, 1),
    };
    alone(machine, order.into_iter().map(|record| record * size).collect(), size)
}

/// The `run`th time, which is another chance.
fn fileio(threads: u64, run: u64, name: &str) -> Outcome {
    const FILES: u64 = 128;
    let pages = 4 * GIB / PAGE_SIZE / FILES;
    let place: Vec<Placed> =
        (0..FILES).map(|file| Placed { offset_bytes: file * pages * PAGE_SIZE, pages }).collect();
    let mut machine = machine(name, &place, CACHE_PAGES);
    let left = Rc::new(Cell::new(10_000));
    for thread in 0..threads {
        let rng = Rng::new(thread + 1 + 1000 * (run - 1));
        let program = FileIo { rng, left: Rc::clone(&left), files: FILES, blocks: pages / RECORD };
        machine.add(Box::new(program), 0);
    }
    machine.run()
}

fn oltp(transactions: u64, threads: u64, name: &str) -> Outcome {
    const ROWS: u64 = 10_000_000;
    let pages = (ROWS / ROWS_A_BLOCK + 1) * 4;
    let mut machine = machine(name, &[Placed { offset_bytes: 0, pages }], CACHE_PAGES);
    let left = Rc::new(Cell::new(transactions));
    let blocks = Blocks::new(512);
    for thread in 0..threads {
        let (left, blocks) = (Rc::clone(&left), Rc::clone(&blocks));
        let rng = Rng::new(thread + 1);
        machine.add(Box::new(Oltp { rng, left, blocks, rows: ROWS, queries: 0, range: (0, 0) }), 0);
    }
    machine.run()
}

fn thrash(name: &str) -> Outcome {
    let pages = STREAM_BYTES / PAGE_SIZE;
    let place: Vec<Placed> =
        (0..STREAMS).map(|file| Placed { offset_bytes: file * STREAM_BYTES, pages }).collect();
    let mut machine = machine(name, &place, SMALL_CACHE_PAGES);
    let until: Nanos = (STREAMS + 60) * SECOND;
    for stream in 0..STREAMS {
        let since = stream * SECOND;
        let program: Box<dyn Program> = Box::new(SlowStream {
            file: stream as usize,
            pages,
            rate: STREAM_RATE,
            read_pages: 4,
            since,
            until,
            reads: 0,
            slept: false,
        });
        machine.add(program, since);
    }
    machine.run()
}

fn processor(load: Load, name: &str) -> Outcome {
    let pages = 1 << 16;
    let small = 64;
    let files = if load == Load::CachedSmallFiles { pages / small } else { 1 };
    let each = pages / files;
    let place: Vec<Placed> =
        (0..files).map(|file| Placed { offset_bytes: file * each * PAGE_SIZE, pages: each }).collect();
    let ram = Model::builtin("zram-lz4").expect("built in").build();
    let mut machine = Machine::new(policy(name, CACHE_PAGES), &place, CACHE_PAGES, ram);
    let record = if load == Load::CachedInPieces { 256 } else { 1 };
    let passes = match load {
        Load::Sequential | Load::Random => 1,
        _ => 4,
    };
    for file in 0..files {
        let starts: Vec<u64> = match load {
            Load::Random => shuffled(each, 1),
            _ => (0..passes).flat_map(|_| (0..each / record).map(move |at| at * record)).collect(),
        };
        machine.add(Box::new(OfFile { file: file as usize, starts, pages: record, next: 0 }), 0);
    }
    machine.run()
}

/// Reads of one file among several.
struct OfFile {
    file: usize,
    starts: Vec<u64>,
    pages: u64,
    next: usize,
}

impl Program for OfFile {
    fn next(&mut self, _: Nanos) -> crate::files::Step {
        let Some(&page) = self.starts.get(self.next) else { return crate::files::Step::End };
        self.next += 1;
        crate::files::Step::read_pages(self.file, page, self.pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_patterns_do_not_tell_the_rules_apart() {
        for pattern in [Pattern::Read, Pattern::Reverse, Pattern::Random] {
            let [old, new] = POLICIES.map(|policy| read_rate(&plain(pattern, policy, 256)));
            assert!(old.abs_diff(new) * 100 <= old, "{pattern:?}: {old} and {new} KB/s");
        }
    }

    /// What the published tables leave no doubt about: plain patterns do not tell the rules apart, a
    /// database gains, more with more threads and denser reads, and slow streams gain most.
    #[test]
    fn what_must_hold_of_the_tables_holds() {
        const DATABASE: [(u64, u64); 4] = [(10_000, 1), (10_000, 64), (2_000, 1), (2_000, 64)];
        let patterns = PATTERNS.iter().chain(&AIO).map(|line| What::Pattern(line.1));
        let database = DATABASE.map(|(transactions, threads)| What::Oltp { transactions, threads });
        let all = patterns.chain(database).chain([What::Thrash]);
        let jobs: Vec<Job> = all.flat_map(|what| POLICIES.map(|policy| Job { what, policy })).collect();
        let outcomes = parallel(jobs.len(), 4, |index| simulate(jobs[index], 32), |_| ());
        let results = Results { jobs, outcomes };
        let both = |what, value: fn(&Outcome) -> u64| POLICIES.map(|policy| value(results.of(what, policy)));
        for (name, pattern, _) in PATTERNS {
            let [old, new] = both(What::Pattern(pattern), read_rate);
            assert!(old.abs_diff(new) * 100 <= old, "{name}: {old} and {new}");
        }
        for (name, pattern, _) in AIO {
            let [old, new] = both(What::Pattern(pattern), hundredths);
            assert!(old.abs_diff(new) * 100 <= old, "{name}: {old} and {new}");
        }
        let gain = |transactions, threads| {
            let [old, new] = both(What::Oltp { transactions, threads }, |outcome| outcome.elapsed_ns);
            assert!(new < old, "{transactions} transactions, {threads} threads: {old} and {new} ns");
            old as f64 / new as f64
        };
        let [dense, dense_64, sparse, sparse_64] = DATABASE.map(|(count, threads)| gain(count, threads));
        assert!(dense_64 > dense, "with threads: {dense}, {dense_64}");
        assert!(dense > sparse && dense_64 > sparse_64, "with density: {sparse}, {sparse_64}");
        let [old, new] = both(What::Thrash, largest_throughput);
        assert!(new * 2 >= old * 5, "throughput of slow streams: {old} and {new} KB/s");
        let [old, new] = both(What::Thrash, smallest_io);
        assert!(new >= old * 5, "their requests: {old} and {new} KB");
    }

    /// Each row of the announcement is there. Its sum of all runs of fileio is 495.046 s and 491.514.
    #[test]
    fn no_published_row_is_left_out() {
        let sum = |column: usize| FILEIO.iter().map(|line| line.2[column]).sum::<u64>();
        assert_eq!([sum(0), sum(1)], [49_505, 49_151]);
        let rows = |transactions| {
            let of = OLTP.iter().filter(|line| line.0 == transactions);
            of.map(|line| line.1).collect::<Vec<_>>()
        };
        assert_eq!([rows(10_000), rows(2_000)], [[1, 2, 4, 8, 16, 32, 64]; 2].map(Vec::from));
        assert_eq!(rows(5_000), [1, 8, 64]);
    }

    #[test]
    fn cached_reads_ask_on_demand_only() {
        for load in [Load::CachedSingly, Load::CachedInPieces, Load::CachedSmallFiles] {
            let [old, new] = POLICIES.map(|policy| processor(load, policy).counts.policy_calls);
            assert!(new * 10 < old, "{load:?}: {old} and {new} calls");
        }
    }

    #[test]
    fn a_database_gains_by_marks_left_in_hot_areas() {
        let [old, new] = POLICIES.map(|policy| oltp(300, 8, policy).elapsed_ns);
        assert!(new < old, "{old} and {new} ns");
    }
}
