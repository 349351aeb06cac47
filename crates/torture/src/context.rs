//! What every subtest is given: its options, and the means to push memory out of RAM. A budget
//! smaller than the ballast makes the rest cold as soon as the ballast is walked; on a bare machine
//! nothing goes cold and the checks are the same.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::memory::{MIB, Memory, PAGE};
use crate::outcome::Outcome;
use crate::rng::Rng;
use crate::{ensure, pattern};

/// Walks over the ballast before memory that stays resident counts as a failure.
const WALKS_MAX: usize = 8;
/// Seed of the ballast's pattern.
const BALLAST_SEED: u64 = 0x0ba1_1a57;

/// The command line, decoded.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of the ballast, and of what a subtest works on where it says so.
    pub mib: usize,
    /// How long the open-ended subtests run.
    pub seconds: u64,
    /// Threads of the threaded subtests.
    pub threads: usize,
    /// Seed of every random choice.
    pub seed: u64,
    /// Where scratch files go; its file system must take O_DIRECT.
    pub directory: PathBuf,
    /// Fail when memory cannot be made cold: proves that a run under a budget tested what it claims.
    pub expect_cold: bool,
    /// Damage memory on purpose, to prove that the checks can fail.
    pub sabotage: bool,
}

/// Options, ballast and clock of one subtest.
pub struct Context {
    /// The command line, decoded.
    pub options: Options,
    ballast: Option<Memory>,
}

impl Context {
    /// Nothing is mapped yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, ballast: None }
    }

    /// A generator for a lane of this run.
    #[must_use]
    pub fn rng(&self, lane: usize) -> Rng {
        Rng::new(self.options.seed, lane)
    }

    /// Memory of a quarter of the ballast's size, filled with the pattern of `seed`.
    pub fn subject(&self, seed: u64) -> Outcome<Memory> {
        let memory = Memory::map(self.options.mib * MIB / 4)?;
        pattern::fill_pages(&memory, 0..memory.pages(), seed);
        Ok(memory)
    }

    /// The moment at which an open-ended subtest stops.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.options.seconds)
    }

    /// Pushes the subject out of RAM by walking the ballast, whose content is checked on the way.
    pub fn cool(&mut self, subject: &Memory) -> Outcome {
        self.cool_all(&[subject])
    }

    /// The same of one that is in several parts.
    pub fn cool_all(&mut self, parts: &[impl Deref<Target = Memory>]) -> Outcome {
        self.ensure_ballast()?;
        let pages: usize = parts.iter().map(|part| part.pages()).sum();
        let mut resident = pages;
        for _ in 0..WALKS_MAX {
            self.walk_ballast()?;
            let there = parts.iter().map(|part| crate::sys::resident_pages(part.base(), part.len()));
            resident = there.sum::<Outcome<usize>>()?;
            if resident <= pages / 8 || !self.options.expect_cold {
                break;
            }
        }
        ensure!(
            !self.options.expect_cold || resident <= pages / 2,
            "{resident} of {pages} pages are still in RAM after {WALKS_MAX} walks over {} MiB of others",
            self.options.mib
        );
        parts.iter().for_each(|part| self.sabotage(part));
        Ok(())
    }

    /// As [`Self::cool`], for memory that may stay in RAM (locked, pinned, small): walks a few
    /// times, expects nothing.
    pub fn press(&mut self) -> Outcome {
        self.ensure_ballast()?;
        (0..2).try_for_each(|_| self.walk_ballast())
    }

    /// Runs `body` while another thread walks the ballast over and over.
    pub fn under_pressure<T>(&mut self, body: impl FnOnce(&Self) -> Outcome<T>) -> Outcome<T> {
        self.ensure_ballast()?;
        let stop = AtomicBool::new(false);
        let context: &Self = self;
        std::thread::scope(|scope| {
            let walker = scope.spawn(|| {
                while !stop.load(Relaxed) {
                    context.walk_ballast()?;
                }
                Ok(())
            });
            let result = body(context);
            stop.store(true, Relaxed);
            let walked: Outcome = walker.join().expect("a panic ends the process");
            walked.and(result)
        })
    }

    /// Zeroes a page in the middle when the run is to fail: what a pager does that loses one.
    pub fn sabotage(&self, subject: &Memory) {
        if self.options.sabotage {
            let page = subject.pages() / 2;
            (0..crate::memory::WORDS).for_each(|index| subject.word(page, index).store(0, Relaxed));
        }
    }

    /// Fails when the run is to fail: for subtests whose checks are not about the content of memory.
    pub fn sabotage_status(&self) -> Outcome {
        ensure!(!self.options.sabotage, "sabotaged");
        Ok(())
    }

    fn ensure_ballast(&mut self) -> Outcome {
        if self.ballast.is_none() {
            let ballast = Memory::map(self.options.mib * MIB)?;
            pattern::fill_pages(&ballast, 0..ballast.pages(), BALLAST_SEED);
            self.ballast = Some(ballast);
        }
        Ok(())
    }

    /// Checks every word and dirties every page (with the value it has).
    fn walk_ballast(&self) -> Outcome {
        let ballast = self.ballast.as_ref().expect("made by ensure_ballast");
        assert!(ballast.len().is_multiple_of(PAGE));
        for page in 0..ballast.pages() {
            pattern::check_page(ballast, page, BALLAST_SEED, page, "ballast")?;
            ballast.word(page, 7).store(pattern::word(BALLAST_SEED, page, 7), Relaxed);
        }
        Ok(())
    }
}

/// Runs `body` in `threads` threads, each with its number, and returns the first failure.
pub fn parallel(threads: usize, body: impl Fn(usize) -> Outcome + Sync) -> Outcome {
    std::thread::scope(|scope| {
        let body = &body;
        let handles: Vec<_> = (0..threads).map(|lane| scope.spawn(move || body(lane))).collect();
        let results: Vec<Outcome> =
            handles.into_iter().map(|handle| handle.join().expect("a panic ends the process")).collect();
        results.into_iter().collect()
    })
}
