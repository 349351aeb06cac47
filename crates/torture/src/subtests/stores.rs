//! Threads store to random pages while they are evicted; every word is checked: a lost or torn
//! store is a failure.
//!
//! ```text
//! word of a page:  0        8 .. 8+48*lanes            500        511
//!                  |edge|   | lane 0 | lane 1 | ... |  |counter|  |edge|
//! ```
//! A lane belongs to one thread, which keeps the sequence number it stored last in its own memory.
//! The counter is added to by every thread. The edge words of two neighbours carry one eight-byte
//! store that straddles the page boundary.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::context::{Context, parallel};
use crate::memory::{MIB, Memory, PAGE, WORDS};
use crate::outcome::Outcome;
use crate::pattern::mix;
use crate::rng::Rng;
use crate::{ensure, fail};

/// Words of a lane that are used: its ends, cache-line neighbours, and some between.
const PLACES: [usize; 6] = [0, 1, 15, 31, 46, 47];
const LANE_WORDS: usize = 48;
const FIRST_LANE: usize = 8;
const COUNTER: usize = 500;
const OPERATIONS_BETWEEN_CLOCKS: usize = 64;

const _: () = assert!(FIRST_LANE + super::THREADS_MAX * LANE_WORDS <= COUNTER && COUNTER < WORDS - 1);

/// What one thread knows about its part of every page.
struct Lane<'a> {
    memory: &'a Memory,
    number: usize,
    threads: usize,
    rng: Rng,
    stored: Vec<u32>,
    straddled: Vec<u32>,
    added: u64,
}

/// `stores`: see the head of this file.
pub fn run(context: &mut Context) -> Outcome {
    let memory = &Memory::map(context.options.mib * MIB)?;
    let (threads, deadline) = (context.options.threads, context.deadline());
    let (added, operations) = (AtomicU64::new(0), AtomicU64::new(0));
    parallel(threads, |number| {
        let mut lane = Lane {
            memory,
            number,
            threads,
            rng: context.rng(number),
            stored: vec![0; memory.pages()],
            straddled: vec![0; memory.pages()],
            added: 0,
        };
        operations.fetch_add(lane.store_until(deadline)?, Relaxed);
        if number == 0 {
            context.sabotage(memory);
        }
        added.fetch_add(lane.added, Relaxed);
        (0..memory.pages()).try_for_each(|page| lane.check(page))?;
        (0..memory.pages() - 1)
            .filter(|page| page % threads == number)
            .try_for_each(|page| lane.check_edge(page))
    })?;
    let counted: u64 = (0..memory.pages()).map(|page| memory.word(page, COUNTER).load(Relaxed)).sum();
    let (added, operations) = (added.into_inner(), operations.into_inner());
    ensure!(counted == added, "the counters say {counted}, the threads added {added}");
    println!("{operations} operations by {threads} threads on {} pages", memory.pages());
    Ok(())
}

impl Lane<'_> {
    fn store_until(&mut self, deadline: Instant) -> Outcome<u64> {
        let mut operations = 0;
        while Instant::now() < deadline {
            for _ in 0..OPERATIONS_BETWEEN_CLOCKS {
                self.operate()?;
            }
            operations += OPERATIONS_BETWEEN_CLOCKS as u64;
        }
        Ok(operations)
    }

    fn operate(&mut self) -> Outcome {
        let page = self.rng.below(self.memory.pages());
        match self.rng.below(5) {
            0 => {
                self.check(page)?;
                self.store(page);
            }
            1 => {
                self.store(page);
                self.check(page)?;
            }
            2 => {
                self.memory.word(page, COUNTER).fetch_add(1, Relaxed);
                self.added += 1;
            }
            3 => self.check(page)?,
            _ => self.straddle(page)?,
        }
        Ok(())
    }

    fn word(&self, page: usize, place: usize) -> &AtomicU64 {
        self.memory.word(page, FIRST_LANE + self.number * LANE_WORDS + place)
    }

    fn value(&self, page: usize, place: usize, sequence: u32) -> u64 {
        if sequence == 0 {
            return 0;
        }
        let owner = (page * super::THREADS_MAX + self.number) * LANE_WORDS + place;
        (u64::from(sequence) << 32) | (mix(owner as u64 ^ mix(u64::from(sequence))) >> 32)
    }

    fn store(&mut self, page: usize) {
        self.stored[page] += 1;
        for place in PLACES {
            self.word(page, place).store(self.value(page, place, self.stored[page]), Relaxed);
        }
    }

    fn check(&self, page: usize) -> Outcome {
        for place in PLACES {
            let (found, expected) =
                (self.word(page, place).load(Relaxed), self.value(page, place, self.stored[page]));
            ensure!(
                found == expected,
                "thread {} page {page} place {place}: store number {} is {expected:#018x}, found {found:#018x}, which \
                 has number {}",
                self.number,
                self.stored[page],
                found >> 32
            );
        }
        Ok(())
    }

    /// Stores across the boundary behind the page of ours that is nearest to `page`, and checks
    /// what was there.
    fn straddle(&mut self, page: usize) -> Outcome {
        let page = page / self.threads * self.threads + self.number;
        if page + 1 >= self.memory.pages() {
            return Ok(());
        }
        self.check_edge(page)?;
        self.straddled[page] += 1;
        let value = self.value(page, LANE_WORDS - 1, self.straddled[page]);
        // SAFETY: eight bytes inside the mapping that no other thread touches.
        unsafe { self.edge(page).write_unaligned(value) };
        Ok(())
    }

    fn check_edge(&self, page: usize) -> Outcome {
        // SAFETY: as in `straddle`.
        let found = unsafe { self.edge(page).read_unaligned() };
        let expected = self.value(page, LANE_WORDS - 1, self.straddled[page]);
        if found != expected {
            // Is it lost, or was it only shown wrong?
            std::thread::sleep(std::time::Duration::from_millis(20));
            // SAFETY: as above.
            let later = unsafe { self.edge(page).read_unaligned() };
            // Is it the store alone, or the page?
            let [words, behind] = [page, page + 1].map(|page| self.words_in_use(page));
            fail!(
                "thread {} boundary behind page {page}: store number {} is {expected:#018x}, found \
                 {found:#018x}, and {later:#018x} a moment later; {words} words of the page are not 0, \
                 {behind} of the next one, and this thread has stored to them {} and {} times",
                self.number,
                self.straddled[page],
                self.stored[page],
                self.stored[page + 1]
            );
        }
        Ok(())
    }

    fn words_in_use(&self, page: usize) -> usize {
        (0..WORDS).filter(|&word| self.memory.word(page, word).load(Relaxed) != 0).count()
    }

    fn edge(&self, page: usize) -> *mut u64 {
        self.memory.at((page + 1) * PAGE - 4).cast()
    }
}
