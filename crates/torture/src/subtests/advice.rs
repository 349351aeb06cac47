//! madvise on memory that is out of RAM, alone and racing with threads that touch it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use crate::child;
use crate::context::{Context, parallel};
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW, WORDS};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0xadf1;

/// `dontneed`: cold and warm parts are given up, are zero, and the rest is right.
pub fn dontneed(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    for round in 0..3 {
        context.cool(&memory)?;
        let quarter = memory.pages() / 4;
        let parts =
            [round..round + 1, 77..778 + round, quarter..2 * quarter - 1, memory.pages() - 3..memory.pages()];
        for part in &parts {
            sys::madvise(memory.page(part.start), part.len() * PAGE, libc::MADV_DONTNEED)?;
        }
        if round == 1 {
            context.press()?;
        }
        for page in 0..memory.pages() {
            if parts.iter().any(|part| part.contains(&page)) {
                pattern::check_zero(&memory, page..page + 1, "given up")?;
                pattern::fill_page(&memory, page, SEED, page);
            } else {
                pattern::check_page(&memory, page, SEED, page, "beside what was given up")?;
            }
        }
    }
    Ok(())
}

/// `discard-slowly`: memory that is in RAM is given up by a thread that hardly gets a processor.
///
/// *The story:* the kernel tells of MADV_DONTNEED, and frees afterwards. In between the pager found
/// pages of which its books knew nothing any more, took them for memory that had come unheard, and
/// took them out of view: some 500 pages came back with their old content, one time in eight on a
/// busy machine. A thread that is slow makes the time in between long.
pub fn discard_slowly(context: &mut Context) -> Outcome {
    // More than the budget: what is found must leave at once.
    let memory = Memory::map(context.options.mib * MIB / 2)?;
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    context.cool(&memory)?;
    let until = context.deadline();
    while Instant::now() < until {
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "before it is given up")?;
        slowly(|| sys::madvise(memory.base(), memory.len(), libc::MADV_DONTNEED))?;
        pattern::check_zero(&memory, 0..memory.pages(), "given up slowly")?;
        pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    }
    Ok(())
}

/// Has `body` done by a thread that runs only where no other wants to, with others that always do.
fn slowly(body: impl FnOnce() -> Outcome + Send) -> Outcome {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism()?.get() {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let slow = scope.spawn(|| {
            let outcome = sys::run_when_idle().and_then(|()| body());
            done.store(true, Relaxed);
            outcome
        });
        slow.join().expect("the slow thread does not panic")
    })
}

/// `free`: after MADV_FREE a page is the old one or zero; a store makes it the program's again.
pub fn free(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    for _ in 0..3 {
        context.cool(&memory)?;
        let part = memory.pages() / 2 + 1..memory.pages() - 7;
        sys::madvise(memory.page(part.start), part.len() * PAGE, libc::MADV_FREE)?;
        for page in part.clone().step_by(2) {
            memory.word(page, 9).store(page as u64, Relaxed);
        }
        context.press()?;
        for page in part.clone() {
            if page % 2 == part.start % 2 {
                let found = memory.word(page, 9).load(Relaxed);
                ensure!(
                    found == page as u64,
                    "page {page}: a store after MADV_FREE is lost, found {found:#x}"
                );
            }
            old_or_zero(&memory, page)?;
        }
        pattern::fill_pages(&memory, part, SEED);
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "beside MADV_FREE")?;
    }
    Ok(())
}

/// `free-taken`: what MADV_FREE released leaves, and the kernel takes it wherever it is by then. As if it
/// lacked memory: it is told to take all that is mapped.
///
/// *The story:* pages that were freed so and had left the program's view were taken out of staging. A store
/// to one waited for ever, and so did a fork.
pub fn free_taken(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let other = context.subject(SEED + 1)?;
    for round in 0..3 {
        pattern::fill_pages(&memory, 0..memory.pages(), SEED);
        sys::madvise(memory.base(), memory.len(), libc::MADV_FREE)?;
        // A pager that was told of it may know of the pages that are still there after a while only.
        sys::pause_ms(2500);
        pattern::fill_pages(&other, 0..other.pages() / 2 * (1 + round % 2), SEED + 1);
        take_all_mappings()?;
        if round == 1 {
            let child = sys::fork_and_wait(false, &|| 0);
            ensure!(child > 0, "fork gave {child}");
        }
        for page in (0..memory.pages()).step_by(2) {
            memory.word(page, 9).store(page as u64, Relaxed);
        }
        context.sabotage(&memory);
        for page in 0..memory.pages() {
            let found = memory.word(page, 9).load(Relaxed);
            ensure!(page % 2 == 1 || found == page as u64, "page {page}: a store is lost, found {found:#x}");
            old_or_zero(&memory, page)?;
        }
    }
    Ok(())
}

/// The kernel is to take what it can of all private memory. Without swap that is what was freed lazily.
fn take_all_mappings() -> Outcome {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    for line in maps.lines().filter(|line| line.contains(" rw-p 00000000 00:00 0 ") && !line.contains('[')) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let ends = range.and_then(|(start, end)| {
            Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
        });
        if let Some((start, end)) = ends {
            // What was unmapped meanwhile is nobody's loss.
            let _ = sys::madvise(start, end - start, libc::MADV_PAGEOUT);
        }
    }
    Ok(())
}

fn old_or_zero(memory: &Memory, page: usize) -> Outcome {
    let zero = memory.word(page, 0).load(Relaxed) == 0;
    for index in (0..WORDS).filter(|&index| index != 9) {
        let found = memory.word(page, index).load(Relaxed);
        let expected = if zero { 0 } else { pattern::word(SEED, page, index) };
        ensure!(found == expected, "page {page} word {index} after MADV_FREE is garbage: {found:#018x}");
    }
    Ok(())
}

/// `advice`: WILLNEED, COLD, PAGEOUT, SEQUENTIAL, RANDOM, POPULATE and their like change no byte.
pub fn harmless(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let harmless = [
        libc::MADV_WILLNEED,
        libc::MADV_COLD,
        libc::MADV_PAGEOUT,
        libc::MADV_SEQUENTIAL,
        libc::MADV_RANDOM,
        libc::MADV_NORMAL,
        libc::MADV_DONTDUMP,
        libc::MADV_DODUMP,
    ];
    for advice in harmless {
        context.cool(&memory)?;
        for part in 0..4 {
            let start = memory.len() / 4 * part + 5 * PAGE;
            sys::madvise(memory.base() + start, memory.len() / 8 + PAGE, advice)?;
        }
        sys::pause_ms(20);
        pattern::check_pages(&memory, 0..memory.pages(), SEED, &format!("after advice {advice}"))?;
    }
    for populate in [libc::MADV_POPULATE_READ, libc::MADV_POPULATE_WRITE] {
        context.cool(&memory)?;
        sys::madvise(memory.base(), memory.len(), populate)?;
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "populated")?;
    }
    Ok(())
}

/// `populate`: one call that populates fresh memory, more than the budget. The kernel holds the
/// lock of the address space all the while, so that nobody can register the memory before the call
/// ends, unless it is made in pieces.
pub fn populate(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let mapped = Memory::map_with(context.options.mib * MIB, RW, PRIVATE | libc::MAP_POPULATE)?;
    pattern::check_zero(&mapped, 0..mapped.pages(), "populated by mmap, more than the budget")?;
    mapped.unmap()?;
    let fresh = Memory::map(context.options.mib * MIB)?;
    sys::madvise(fresh.base(), fresh.len(), libc::MADV_POPULATE_WRITE)?;
    pattern::check_zero(&fresh, 0..fresh.pages(), "populated at once, more than the budget")?;
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "beside it")?;
    sys::madvise(fresh.base(), fresh.len(), libc::MADV_POPULATE_WRITE)?;
    pattern::check_zero(&fresh, 0..fresh.pages(), "populated again, managed by now")
}

/// `populate-child`: children of fork that do the same at once, before their agents have managed
/// anything, by mmap and by madvise in turns. Each waits a while, so that its peak is seen.
pub fn populate_in_child(context: &mut Context) -> Outcome {
    for round in 0..4 {
        let bytes = context.options.mib * MIB;
        child::fork(|| {
            let populated = if round % 2 == 0 {
                Memory::map_with(bytes, RW, PRIVATE | libc::MAP_POPULATE)?
            } else {
                let fresh = Memory::map(bytes)?;
                sys::madvise(fresh.base(), fresh.len(), libc::MADV_POPULATE_WRITE)?;
                fresh
            };
            sys::pause_ms(100);
            pattern::check_zero(&populated, 0..populated.pages(), "populated by a child")?;
            pattern::fill_pages(&populated, 0..populated.pages(), SEED);
            pattern::check_pages(&populated, 0..populated.pages(), SEED, "filled by a child")
        })?
        .succeed("a child that populates")?;
    }
    Ok(())
}

/// `advice-race`: while threads load and store, others give ranges up; a page is then the old one,
/// a new one or zero, and what was stored after the last advice is there.
pub fn race(context: &mut Context) -> Outcome {
    const GENERATIONS: u64 = 1 << 32;
    let memory = Memory::map(context.options.mib * MIB / 2)?;
    let deadline = context.deadline();
    let valid = |page: usize, value: u64| {
        value == 0 || value % GENERATIONS == pattern::mix(page as u64) % GENERATIONS
    };
    let threads = context.options.threads;
    if context.options.sabotage {
        (0..memory.pages()).for_each(|page| memory.word(page, 1).store(1 << 40, Relaxed));
    }
    context.under_pressure(|context| {
        parallel(threads + 1, |lane| {
            let mut rng = context.rng(lane);
            let mut generation = 0;
            while Instant::now() < deadline {
                let page = rng.below(memory.pages());
                if lane == threads {
                    let count = 1 + rng.below(256.min(memory.pages() - page));
                    let advice = [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_WILLNEED][rng.below(3)];
                    sys::madvise(memory.page(page), count * PAGE, advice)?;
                    continue;
                }
                generation += 1;
                for index in [1 + lane, 100 + lane, 400 + lane] {
                    let found = memory.word(page, index).load(Relaxed);
                    ensure!(valid(page, found), "page {page} word {index} is garbage: {found:#018x}");
                    let value = generation * GENERATIONS + pattern::mix(page as u64) % GENERATIONS;
                    memory.word(page, index).store(value, Relaxed);
                }
            }
            Ok(())
        })
    })?;
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after the race")
}
