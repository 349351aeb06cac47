//! One thread of the load: touch, check, count.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::generator::{Generator, generator};
use super::pattern::Pattern;
use crate::histogram::Histogram;
use crate::os::memory::Pages;

/// Bits of a word below the page's number.
pub const TAG_SHIFT: u32 = 32;
/// How often the clock is asked when nobody wants latencies.
const TOUCHES_PER_LOOK: u64 = 64;
/// Touches that take longer were not answered by the processor alone.
const FAULT_NS_MIN: u64 = 1_000;
/// How long a phase of [`Pattern::Phases`] lasts.
const PHASE: Duration = Duration::from_secs(1);

/// What one thread is to do.
pub struct Task {
    /// In which order.
    pub pattern: Pattern,
    /// On which pages.
    pub pages: Range<usize>,
    /// Seed of a random order.
    pub seed: u64,
    /// For how long.
    pub limit: Limit,
    /// Store instead of load.
    pub write: bool,
    /// Measure every touch.
    pub latency: bool,
}

/// When a thread stops.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// After so many touches.
    Touches(u64),
    /// After so long.
    Time(Duration),
}

/// What one thread did.
#[derive(Default)]
pub struct Outcome {
    /// Touches made.
    pub touches: u64,
    /// Time they took.
    pub seconds: f64,
    /// Latency of all touches, if asked for.
    pub latency: Histogram,
    /// Latency of those that faulted.
    pub fault_latency: Histogram,
}

/// A page that does not hold what was stored there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its number.
    pub page: usize,
    /// Its word.
    pub word: u64,
}

/// The word of a page that was never written since it got its number. Page 0 differs from a page of
/// zeroes, too.
pub fn tag(page: usize) -> u64 {
    (page as u64 + 1) << TAG_SHIFT
}

/// Whether a word belongs to its page.
pub fn check(page: usize, word: u64) -> Result<(), Mismatch> {
    if word >> TAG_SHIFT == tag(page) >> TAG_SHIFT { Ok(()) } else { Err(Mismatch { page, word }) }
}

/// Runs all tasks at once, each in its thread, and returns when all have ended.
pub fn run_all(pages: &Pages, tasks: &[Task]) -> Result<Vec<Outcome>, Mismatch> {
    let start = Barrier::new(tasks.len());
    std::thread::scope(|scope| {
        let start = &start;
        let threads: Vec<_> = tasks
            .iter()
            .map(|task| {
                scope.spawn(move || {
                    start.wait();
                    run(pages, task)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker returns its failure")).collect()
    })
}

fn run(pages: &Pages, task: &Task) -> Result<Outcome, Mismatch> {
    let mut order = generator(task.pattern, task.pages.clone(), task.seed);
    let mut outcome = Outcome::default();
    let start = Instant::now();
    let mut phase_end = start + PHASE;
    loop {
        let batch = match task.limit {
            Limit::Touches(touches) => TOUCHES_PER_LOOK.min(touches - outcome.touches),
            Limit::Time(_) => TOUCHES_PER_LOOK,
        };
        touch_batch(pages, task, order.as_mut(), batch, &mut outcome)?;
        let now = Instant::now();
        let finished = match task.limit {
            Limit::Touches(touches) => outcome.touches == touches,
            Limit::Time(time) => now >= start + time,
        };
        if finished {
            outcome.seconds = (now - start).as_secs_f64();
            return Ok(outcome);
        }
        if now >= phase_end {
            order.next_phase();
            phase_end = now + PHASE;
        }
    }
}

fn touch_batch(
    pages: &Pages,
    task: &Task,
    order: &mut dyn Generator,
    batch: u64,
    outcome: &mut Outcome,
) -> Result<(), Mismatch> {
    outcome.touches += batch;
    if !task.latency {
        return (0..batch).try_for_each(|_| touch(pages, order.next_page(), task.write));
    }
    let mut before = Instant::now();
    for _ in 0..batch {
        touch(pages, order.next_page(), task.write)?;
        let now = Instant::now();
        let ns = (now - before).as_nanos() as u64;
        before = now;
        outcome.latency.record(ns);
        if ns >= FAULT_NS_MIN {
            outcome.fault_latency.record(ns);
        }
    }
    Ok(())
}

fn touch(pages: &Pages, page: usize, write: bool) -> Result<(), Mismatch> {
    let word = pages.word(page);
    check(page, if write { word.fetch_add(1, Relaxed) } else { word.load(Relaxed) })
}
