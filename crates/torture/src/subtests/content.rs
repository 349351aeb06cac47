//! Plain memory: cold pages read back, all-zero pages, pages written again after they came back,
//! first touches by many threads at once, huge page advice.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::context::{Context, parallel};
use crate::memory::{MIB, Memory, PAGE, WORDS};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

/// `cold`: what was written is read back, over several rounds of reading only, writing some, writing all.
pub fn cold(context: &mut Context) -> Outcome {
    let memory = context.subject(1)?;
    let mut seeds: Vec<u64> = vec![1; memory.pages()];
    let mut rng = context.rng(0);
    for round in 2..6 {
        context.cool(&memory)?;
        for (page, seed) in seeds.iter_mut().enumerate() {
            pattern::check_page(&memory, page, *seed, page, "cold page")?;
            if rng.below(4) < round - 2 {
                *seed = round as u64;
                pattern::fill_page(&memory, page, *seed, page);
            }
        }
    }
    Ok(())
}

/// `zero`: all-zero pages are read back as zeroes, also beside others and after they were written
/// and zeroed again.
pub fn zero(context: &mut Context) -> Outcome {
    let memory = context.subject(1)?;
    for round in 0..3 {
        for page in 0..memory.pages() {
            if page % 4 == round {
                (0..WORDS).for_each(|index| memory.word(page, index).store(0, Relaxed));
            }
        }
        context.cool(&memory)?;
        for page in 0..memory.pages() {
            if page % 4 <= round {
                pattern::check_zero(&memory, page..page + 1, "zeroed page")?;
            } else {
                pattern::check_page(&memory, page, 1, page, "page beside a zeroed one")?;
            }
        }
    }
    let last = WORDS - 1;
    (0..memory.pages()).step_by(4).for_each(|page| memory.word(page, last).store(page as u64 + 1, Relaxed));
    context.cool(&memory)?;
    for page in (0..memory.pages()).step_by(4) {
        let found = memory.word(page, last).load(Relaxed);
        ensure!(found == page as u64 + 1, "last word of page {page}, written into zeroes, is {found}");
        ensure!(memory.word(page, 0).load(Relaxed) == 0, "first word of page {page} is not zero");
    }
    Ok(())
}

/// `first-touch`: threads touch fresh memory for the first time at full speed: in blocks,
/// interleaved, and all of them everywhere.
pub fn first_touch(context: &mut Context) -> Outcome {
    let threads = context.options.threads;
    let len = context.options.mib * MIB;
    let blocks = Memory::map(len)?;
    in_blocks(threads, &blocks, |pages| {
        pattern::check_zero(&blocks, pages.clone(), "first touch")?;
        pattern::fill_pages(&blocks, pages, 2);
        Ok(())
    })?;
    context.sabotage(&blocks);
    pattern::check_pages(&blocks, 0..blocks.pages(), 2, "touched in blocks")?;
    drop(blocks);

    let interleaved = Memory::map(len)?;
    parallel(threads, |lane| {
        for page in (lane..interleaved.pages()).step_by(threads) {
            pattern::fill_page(&interleaved, page, 3, page);
        }
        Ok(())
    })?;
    pattern::check_pages(&interleaved, 0..interleaved.pages(), 3, "touched interleaved")?;
    drop(interleaved);

    let shared = Memory::map(len)?;
    parallel(threads, |lane| {
        let start = shared.pages() / threads * lane;
        for page in (start..shared.pages()).chain(0..start) {
            shared.word(page, 8 * lane).fetch_add(1 + lane as u64, Relaxed);
            shared.word(page, WORDS - 1).fetch_add(1, Relaxed);
        }
        Ok(())
    })?;
    for page in 0..shared.pages() {
        let counted = shared.word(page, WORDS - 1).load(Relaxed);
        ensure!(
            counted == threads as u64,
            "page {page}: {counted} of {threads} threads' first touches are there"
        );
        for lane in 0..threads {
            let found = shared.word(page, 8 * lane).load(Relaxed);
            ensure!(found == 1 + lane as u64, "page {page}: thread {lane} left {found}");
        }
    }
    Ok(())
}

/// Each of so many threads does its work on a block of pages of its own.
fn in_blocks(threads: usize, memory: &Memory, work: impl Fn(Range<usize>) -> Outcome + Sync) -> Outcome {
    let share = memory.pages().div_ceil(threads);
    parallel(threads, |lane| work(lane * share..((lane + 1) * share).min(memory.pages())))
}

/// `awakened`: as in `first-touch`, by a program that has done nothing but compute for a while, so
/// that nobody expects it.
pub fn awakened(context: &mut Context) -> Outcome {
    const QUIET: Duration = Duration::from_millis(300);
    let until = Instant::now() + QUIET;
    let mut number = context.options.seed | 1;
    while Instant::now() < until {
        number = std::hint::black_box(number.wrapping_mul(number));
    }
    let memory = Memory::map(context.options.mib * MIB)?;
    in_blocks(context.options.threads.min(2), &memory, |pages| {
        pattern::fill_pages(&memory, pages, 6);
        Ok(())
    })?;
    context.sabotage(&memory);
    pattern::check_pages(&memory, 0..memory.pages(), 6, "touched after a quiet while")
}

/// `huge`: memory under MADV_HUGEPAGE, collapsed while parts of it are cold.
pub fn huge(context: &mut Context) -> Outcome {
    const HUGE: usize = 2 * MIB;
    let memory = Memory::map_aligned(context.options.mib * MIB / 4 / HUGE * HUGE, HUGE)?;
    sys::madvise(memory.base(), memory.len(), libc::MADV_HUGEPAGE)?;
    pattern::fill_pages(&memory, 0..memory.pages(), 4);
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), 4, "huge page advice")?;
    context.cool(&memory)?;
    for offset in (0..memory.len()).step_by(HUGE) {
        // A few pages come back, then the kernel is asked to make one huge page of what is there:
        // it may refuse.
        pattern::check_pages(&memory, offset / PAGE..offset / PAGE + 9, 4, "before a collapse")?;
        // SAFETY: a range of ours; collapsing must not change its bytes, which is what is tested.
        unsafe { libc::madvise(memory.at(offset).cast(), HUGE, libc::MADV_COLLAPSE) };
    }
    pattern::check_pages(&memory, 0..memory.pages(), 4, "after a collapse")?;
    pattern::fill_pages(&memory, 0..memory.pages(), 5);
    sys::madvise(memory.base(), memory.len(), libc::MADV_NOHUGEPAGE)?;
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), 5, "after MADV_NOHUGEPAGE")
}
