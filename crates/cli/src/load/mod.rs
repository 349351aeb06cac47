//! The built-in load of `bench`: an ordinary program that fills memory, touches one word a page in
//! the order of a pattern, checks every word it meets and every page at the end, and prints one
//! line of JSON.
//!
//! A page's word holds the page's number (upper half) and how often it was written (lower half). A
//! touch that reads checks the number; a touch that writes adds one, atomically, and checks the
//! number it found. At the end the counts of all pages must add up to the writes that were made: a
//! lost or torn store, or a page in the wrong place, is found. The rest of a page is noise (but for
//! the share that `--compressible` leaves zero), so that nobody gains by compressing what only a
//! benchmark would hold; it is checked at the end, too.

pub mod files;
pub mod generator;
pub mod neighbours;
pub mod pattern;
mod shared;
pub mod traffic;
mod worker;

use std::io::Write;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::histogram::{Histogram, Latency};
use crate::os::memory::{PAGE_BYTES, Pages};
use crate::size::{Size, shortest};
use generator::{SplitMix, part};
use pattern::Pattern;
use traffic::{Meter, Traffic};
use worker::{Limit, Mismatch, Outcome, TAG_SHIFT, Task, tag};

/// Words of a page.
const WORDS: usize = PAGE_BYTES / 8;
/// How many pages are asked for at a time before they are verified.
const HINT_PAGES: usize = 512;

/// How much the load does, and how.
#[derive(Args, Clone, Debug)]
pub struct Work {
    /// Threads (for `mixed`: see the pattern)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Touches, in multiples of the number of pages [default: 1 for random, else 3]
    #[arg(long, value_name = "N", conflicts_with_all = ["touches", "seconds"],
          value_parser = clap::value_parser!(u32).range(1..))]
    pub laps: Option<u32>,
    /// Touches
    #[arg(long, value_name = "N", conflicts_with = "seconds",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub touches: Option<u64>,
    /// Touch for so long [default for mixed and phases: 10]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: Option<u32>,
    /// Store instead of load
    #[arg(long)]
    pub write: bool,
    /// Touch a shared mapping instead of a private one; under overspill it is a region of the pager
    /// library
    #[arg(long)]
    pub shared: bool,
    /// Measure the latency of every touch
    #[arg(long)]
    pub latency: bool,
    /// Ask the kernel for the pages before they are verified, which is not measured and can take
    /// long
    #[arg(long)]
    pub hint: bool,
    /// How much of every page is zeroes, in percent; the rest is noise
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub compressible: u32,
    /// Seed of the random patterns
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// `overspill load`.
#[derive(Args)]
pub struct LoadArgs {
    /// seq, random, descending, interleaved:K, stride:S, mixed:K+L, phases or graph
    pub pattern: Pattern,
    /// Memory to touch
    #[arg(long, value_name = "SIZE")]
    pub size: Size,
    /// What to do.
    #[command(flatten)]
    pub work: Work,
}

/// What a load did; one line of JSON on its standard output.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Done {
    /// The pattern's name.
    pub pattern: String,
    /// Threads.
    pub threads: u32,
    /// Whether the touches stored.
    pub write: bool,
    /// Whether the mapping was shared.
    pub shared: bool,
    /// Pages of memory.
    pub pages: u64,
    /// Touches, without filling and verifying.
    pub touches: u64,
    /// Time of the touches.
    pub seconds: f64,
    /// Touches a second.
    pub touches_per_second: f64,
    /// Millions of bytes a second, each touch standing for its page.
    pub megabytes_per_second: f64,
    /// Time of filling the memory in order.
    pub populate_seconds: f64,
    /// Time of verifying it in order.
    pub verify_seconds: f64,
    /// What was swapped during the touches.
    pub traffic: Traffic,
    /// Every thread's work.
    pub parts: Vec<Part>,
    /// Latency of all touches, with `--latency`.
    pub latency: Option<Latency>,
    /// Latency of the touches that took as long as a fault takes, with `--latency`.
    pub fault_latency: Option<Latency>,
}

impl Done {
    /// Touches a second of all threads of a pattern.
    pub fn kind_rate(&self, pattern: &str) -> f64 {
        let parts = self.parts.iter().filter(|part| part.pattern == pattern);
        parts.map(|part| part.touches_per_second).sum()
    }
}

/// The work of one thread.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Part {
    /// Its pattern.
    pub pattern: String,
    /// Its touches.
    pub touches: u64,
    /// Its time.
    pub seconds: f64,
    /// Its rate.
    pub touches_per_second: f64,
}

impl Work {
    /// These options as command-line arguments.
    pub fn to_args(&self) -> Vec<String> {
        let mut args = vec![format!("--threads={}", self.threads), format!("--seed={}", self.seed)];
        if self.compressible > 0 {
            args.push(format!("--compressible={}", self.compressible));
        }
        let numbers = [
            ("laps", self.laps.map(u64::from)),
            ("touches", self.touches),
            ("seconds", self.seconds.map(u64::from)),
        ];
        args.extend(numbers.iter().filter_map(|(name, n)| n.map(|n| format!("--{name}={n}"))));
        let switches =
            [("write", self.write), ("shared", self.shared), ("latency", self.latency), ("hint", self.hint)];
        args.extend(switches.iter().filter(|(_, on)| *on).map(|(name, _)| format!("--{name}")));
        args
    }

    /// When a thread of `threads` may stop.
    fn limit(&self, pattern: Pattern, pages: usize, threads: usize) -> Limit {
        if let Some(seconds) = self
            .seconds
            .or((pattern.is_timed() && self.touches.or(self.laps.map(u64::from)).is_none()).then_some(10))
        {
            return Limit::Time(Duration::from_secs(seconds.into()));
        }
        let laps = self.laps.unwrap_or(if pattern == Pattern::Random { 1 } else { 3 });
        let touches = self.touches.unwrap_or(pages as u64 * u64::from(laps));
        Limit::Touches(touches.div_ceil(threads as u64))
    }
}

impl LoadArgs {
    /// The command line of this load, without the program.
    pub fn command_line(pattern: Pattern, size_bytes: u64, work: &Work) -> Vec<String> {
        let mut args =
            vec!["load".to_string(), pattern.to_string(), format!("--size={}", shortest(size_bytes))];
        args.extend(work.to_args());
        args
    }
}

/// Runs the load.
pub fn main(args: &LoadArgs) -> Result<u8> {
    let bytes = args.size.bytes(crate::machine::ram_for_shares());
    let page_count = usize::try_from(bytes)? / PAGE_BYTES;
    if page_count == 0 || page_count >= u32::MAX as usize {
        bail!("the load needs 1 page to {} pages, not {page_count}", u32::MAX);
    }
    let managed = if args.work.shared { shared::under_overspill(page_count)? } else { None };
    let (pages, meter) = match managed {
        Some((pages, pager)) => (pages, Meter::library(pager)),
        None => {
            let pages = Pages::new(page_count, args.work.shared).context("no memory for the load")?;
            (pages, Meter::find())
        }
    };
    let done = run(&pages, &meter, args.pattern, &args.work)?;
    let mut line = serde_json::to_string(&done)?;
    line.push('\n');
    std::io::stdout().write_all(line.as_bytes())?;
    Ok(0)
}

fn run(pages: &Pages, meter: &Meter, pattern: Pattern, work: &Work) -> Result<Done> {
    let tasks = tasks(pages.count(), pattern, work);
    let populate_seconds = timed(|| populate(pages, tasks.len(), work.compressible)).1;
    let before = meter.now();
    let (outcomes, seconds) = timed(|| worker::run_all(pages, &tasks));
    let traffic = meter.now().since(before);
    let outcomes = outcomes.map_err(describe)?;
    let touches: u64 = outcomes.iter().map(|outcome| outcome.touches).sum();
    let writes = if work.write { touches } else { 0 };
    let (verified, verify_seconds) = timed(|| verify(pages, writes, work.hint, work.compressible));
    verified?;
    let merged = |choose: fn(&Outcome) -> &Histogram| {
        let mut all = Histogram::default();
        outcomes.iter().for_each(|outcome| all.add(choose(outcome)));
        work.latency.then(|| all.latency())
    };
    Ok(Done {
        pattern: pattern.to_string(),
        threads: tasks.len() as u32,
        write: work.write,
        shared: work.shared,
        pages: pages.count() as u64,
        touches,
        seconds,
        touches_per_second: touches as f64 / seconds,
        megabytes_per_second: touches as f64 * PAGE_BYTES as f64 / seconds / 1e6,
        populate_seconds,
        verify_seconds,
        traffic,
        parts: tasks.iter().zip(&outcomes).map(|(task, outcome)| part_report(task, outcome)).collect(),
        latency: merged(|outcome| &outcome.latency),
        fault_latency: merged(|outcome| &outcome.fault_latency),
    })
}

fn part_report(task: &Task, outcome: &Outcome) -> Part {
    Part {
        pattern: task.pattern.to_string(),
        touches: outcome.touches,
        seconds: outcome.seconds,
        touches_per_second: outcome.touches as f64 / outcome.seconds,
    }
}

/// What each thread does.
fn tasks(page_count: usize, pattern: Pattern, work: &Work) -> Vec<Task> {
    let all = 0..page_count;
    let task = |pattern: Pattern, pages: Range<usize>, index: usize, threads: usize| Task {
        pattern,
        pages,
        seed: work.seed.wrapping_mul(0x1_0000).wrapping_add(index as u64),
        limit: work.limit(pattern, page_count, threads),
        write: work.write,
        latency: work.latency,
    };
    let mut tasks = Vec::new();
    match pattern {
        Pattern::Mixed { sequential, random } => {
            let (sequential, random) = (sequential as usize, random as usize);
            let (first, second) = (part(&all, 0, 2), part(&all, 1, 2));
            let limit = work.limit(pattern, page_count, sequential + random);
            for index in 0..sequential {
                tasks.push(task(Pattern::Sequential, part(&first, index, sequential), index, sequential));
            }
            for index in 0..random {
                tasks.push(task(Pattern::Random, second.clone(), sequential + index, random));
            }
            tasks.iter_mut().for_each(|task| task.limit = limit);
        }
        _ => {
            let threads = work.threads as usize;
            for index in 0..threads {
                let own = if pattern == Pattern::Random { all.clone() } else { part(&all, index, threads) };
                tasks.push(task(pattern, own, index, threads));
            }
        }
    }
    tasks.retain(|task| !task.pages.is_empty());
    tasks
}

/// Words of a page besides the first that are noise, when `compressible` percent are zero.
fn noisy_words(compressible: u32) -> usize {
    (WORDS - 1) * (100 - compressible as usize) / 100
}

/// The noise of a page.
fn noise(page: usize) -> impl Iterator<Item = u64> {
    let mut bits = SplitMix((page as u64) << 32);
    std::iter::repeat_with(move || bits.next())
}

/// Gives every page its number and its noise, in order.
fn populate(pages: &Pages, threads: usize, compressible: u32) {
    let noisy = noisy_words(compressible);
    let fill_page = |page: usize| {
        let [first, rest @ ..] = pages.words(page);
        first.store(tag(page), Relaxed);
        rest.iter().zip(noise(page)).take(noisy).for_each(|(word, noise)| word.store(noise, Relaxed));
    };
    let fill = |range: Range<usize>| range.for_each(fill_page);
    std::thread::scope(|scope| {
        for index in 0..threads {
            scope.spawn(move || fill(part(&(0..pages.count()), index, threads)));
        }
    });
}

/// Checks every page's number, and that no store was lost.
fn verify(pages: &Pages, writes: u64, hint: bool, compressible: u32) -> Result<()> {
    let noisy = noisy_words(compressible);
    let mut counted = 0;
    for page in 0..pages.count() {
        if hint && page % HINT_PAGES == 0 {
            pages.will_need(page..pages.count().min(page + HINT_PAGES));
        }
        let [first, rest @ ..] = pages.words(page);
        let word = first.load(Relaxed);
        worker::check(page, word).map_err(describe)?;
        let expected = noise(page).take(noisy).chain(std::iter::repeat(0));
        if rest.iter().zip(expected).any(|(word, noise)| word.load(Relaxed) != noise) {
            bail!("page {page} holds its number, but not the rest of what was stored there");
        }
        counted += word & ((1 << TAG_SHIFT) - 1);
    }
    if counted != writes {
        bail!("{writes} stores were made, but the pages hold {counted}");
    }
    Ok(())
}

fn describe(mismatch: Mismatch) -> anyhow::Error {
    let Mismatch { page, word } = mismatch;
    anyhow::anyhow!(
        "page {page} holds {word:#018x}, which is not its own: expected {:#010x} above",
        tag(page) >> TAG_SHIFT
    )
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(args: &[&str]) -> Work {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            work: Work,
        }
        Line::parse_from([&["x"], args].concat()).work
    }

    #[test]
    fn every_pattern_runs_and_verifies() {
        let patterns = ["seq", "random", "descending", "interleaved:3", "stride:4", "mixed:1+2", "phases"];
        for pattern in patterns {
            for options in [&["--laps=2"][..], &["--laps=2", "--write", "--threads=3", "--latency"]] {
                let pages = Pages::new(1000, false).unwrap();
                let done = run(&pages, &Meter::find(), pattern.parse().unwrap(), &work(options)).unwrap();
                assert!(done.touches >= 2000, "{pattern}: {}", done.touches);
                assert_eq!(done.latency.is_some(), options.len() > 1);
            }
        }
    }

    #[test]
    fn a_lost_store_is_found() {
        let pages = Pages::new(1000, false).unwrap();
        populate(&pages, 1, 30);
        for hint in [false, true] {
            verify(&pages, 0, hint, 30).unwrap();
            assert!(verify(&pages, 1, hint, 30).unwrap_err().to_string().contains("stores"));
        }
        pages.word(3).store(tag(4), std::sync::atomic::Ordering::Relaxed);
        assert!(verify(&pages, 0, true, 30).unwrap_err().to_string().contains("page 3"));
    }

    #[test]
    fn options_survive_the_trip_to_the_child() {
        let line = [
            "--threads=8",
            "--seed=7",
            "--compressible=30",
            "--touches=100",
            "--write",
            "--latency",
            "--hint",
        ];
        assert_eq!(work(&line).to_args(), line);
    }
}
