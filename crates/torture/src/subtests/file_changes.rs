//! Mappings of files that change in all of their length at once: they go back to the kernel, with many
//! stores in them, other memory takes their place meanwhile, their file is cut and grows again.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

use super::mapped_files::{LEN, SEED, Scratch};
use crate::child::fork;
use crate::context::{Context, parallel};
use crate::faults::{self, Fault};
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const OF_FILE: i32 = libc::MAP_PRIVATE;

/// `file-many-stores`: a mapping with stores in many separate pages, of which a part is locked. What was
/// stored stays, what is discarded shows the file again, and children see the same.
///
/// *The story:* a pager that gave such a mapping back to the kernel was left with more pieces than it
/// had room to tell of. So it gave the mapping back that was in most pieces, which was this one: until
/// its stack was used up.
pub fn many_stores(context: &mut Context) -> Outcome {
    const STEP: usize = 64;
    let file = Scratch::new(context, LEN)?;
    let memory = file.map(LEN, RW, OF_FILE)?;
    for page in (0..memory.pages()).step_by(STEP) {
        pattern::fill_page(&memory, page, SEED + 1, page);
    }
    let check = |discarded: usize, what: &str| {
        (0..memory.pages()).try_for_each(|page| {
            let stored = page >= discarded && page % STEP == 0;
            pattern::check_page(&memory, page, SEED + u64::from(stored), page, what)
        })
    };
    sys::mlock(memory.page(100), PAGE)?;
    check(0, "locked in part")?;
    sys::munlock(memory.page(100), PAGE)?;
    let discarded = memory.pages() / 2;
    sys::madvise(memory.base(), discarded * PAGE, libc::MADV_DONTNEED)?;
    fork(|| check(discarded, "in a child"))?.succeed("a child after a part was discarded")?;
    context.press()?;
    check(discarded, "discarded in part, and cold")?;
    for page in (0..discarded).step_by(STEP) {
        pattern::fill_page(&memory, page, SEED + 1, page);
    }
    sys::mlock(memory.page(200), PAGE)?;
    fork(|| check(0, "in a second child"))?.succeed("a child after new stores")?;
    context.press()?;
    check(0, "at last")?;
    Ok(())
}

/// `file-many-holes`: of a mapping so many single pages are unmapped that nobody can tell of its pieces.
/// They show the file, to children too.
pub fn many_holes(context: &mut Context) -> Outcome {
    let file = Scratch::new(context, LEN)?;
    let memory = file.map(LEN, libc::PROT_READ, libc::MAP_SHARED)?;
    let is_hole = |page: usize| page % 100 == 50;
    let check = |what: &str| {
        let pages = (0..memory.pages()).filter(|&page| !is_hole(page));
        pages.into_iter().try_for_each(|page| pattern::check_page(&memory, page, SEED, page, what))
    };
    (0..memory.pages())
        .filter(|&page| is_hole(page))
        .try_for_each(|page| sys::munmap(memory.page(page), PAGE))?;
    fork(|| check("in a child"))?.succeed("a child of a process with many pieces of a file")?;
    context.press()?;
    check("with holes")?;
    memory.unmap()?;
    Ok(())
}

/// `file-taken-over`: while a mapping goes back to the kernel, since a part of it is locked, another
/// thread puts memory of its own in the place of the rest, bit by bit. What it stores there stays.
///
/// *The story:* a pager looked once where the mapping was, and mapped the file over all of it, run by
/// run: over what the program had mapped there since.
pub fn taken_over(context: &mut Context) -> Outcome {
    const ROUNDS: usize = 20;
    const STEP: usize = 80;
    /// Pages that are replaced at a time.
    const BIT: usize = 32;
    let len = 32 * MIB;
    let file = Scratch::new(context, len)?;
    for round in 0..ROUNDS {
        let memory = file.map(len, RW, OF_FILE)?;
        let half = memory.pages() / 2;
        for page in (0..memory.pages()).step_by(STEP) {
            pattern::fill_page(&memory, page, SEED + 1, page);
        }
        let take_over = |first: usize| -> Outcome {
            if round % 2 == 0 {
                sys::munmap(memory.page(first), BIT * PAGE)?;
            }
            let other = sys::mmap(memory.page(first), BIT * PAGE, RW, PRIVATE | libc::MAP_FIXED, -1)?;
            ensure!(other == memory.page(first), "MAP_FIXED gave another place");
            (first..first + BIT).for_each(|page| memory.word(page, 3).store(page as u64, Relaxed));
            Ok(())
        };
        // From the end, towards which the pager is on its way.
        let take_over_all = || {
            (half..memory.pages()).step_by(BIT).rev().try_for_each(|first| {
                std::thread::sleep(std::time::Duration::from_micros(round as u64 * 50));
                take_over(first)
            })
        };
        let lock = || sys::mlock(memory.page(1), PAGE);
        parallel(2, |lane| if lane == 0 { lock() } else { take_over_all() })?;
        for page in half..memory.pages() {
            let found = memory.word(page, 3).load(Relaxed);
            ensure!(found == page as u64, "page {page} of new memory holds {found:#x}, round {round}");
        }
        for page in 0..half {
            let stored = page.is_multiple_of(STEP);
            pattern::check_page(&memory, page, SEED + u64::from(stored), page, "what was left alone")?;
        }
        memory.unmap()?;
    }
    context.press()?;
    Ok(())
}

/// `file-regrown`: a file is cut within a page, and grows again, at leisure and at once. Behind the cut
/// everything is gone, stores to a private mapping too; what is there then is the file's, and what lay
/// before it was not touched.
///
/// *The story:* how long a file was could only become less. Behind the shortest that it had ever been a
/// mapping raised SIGBUS for good, and its stores there were remembered as such.
pub fn regrown(context: &mut Context) -> Outcome {
    faults::install()?;
    for hurries in [false, true] {
        let file = Scratch::new(context, LEN)?;
        let memory = file.map(LEN, RW, OF_FILE)?;
        let (last, end) = (memory.pages() / 2, memory.pages());
        let is_stored = |page: usize| page % 50 == 7;
        for page in (0..end).filter(|&page| is_stored(page)) {
            pattern::fill_page(&memory, page, SEED + 1, page);
        }
        pattern::check_page(&memory, last, SEED, last, "before the cut")?;
        let writer = OpenOptions::new().write(true).open(&file.path)?;
        let cut = || -> Outcome {
            // That one is read after the cut: where nobody does so in a hurry, it is not seen.
            sys::madvise(memory.page(last + 1), PAGE, libc::MADV_DONTNEED)?;
            writer.set_len((last * PAGE + 80) as u64)?;
            let pages = [last + 1, last + 57, end - 1];
            let is_gone = |hurries| pages.into_iter().try_for_each(|page| is_gone(&memory, page, hurries));
            if hurries { is_gone(true) } else { sys::eventually(|| is_gone(false)) }
        };
        for round in 1..4 {
            cut()?;
            grow(&writer, end, round)?;
            sys::eventually(|| {
                [last + 1, last + 57, end - 1].into_iter().try_for_each(|page| is_there(&memory, page))
            })?;
            sys::eventually(|| check_grown(&memory, last, round))?;
            let check = || {
                for page in 0..last {
                    let seed = SEED + u64::from(is_stored(page));
                    pattern::check_page(&memory, page, seed, page, "before the end of what was left")?;
                }
                check_grown(&memory, last, round)
            };
            check()?;
            fork(check)?.succeed("a child with a file that has grown")?;
            for page in [last + 50, end - 3] {
                pattern::fill_page(&memory, page, SEED + 1, page);
                pattern::check_page(&memory, page, SEED + 1, page, "stored to behind the cut")?;
            }
        }
        memory.unmap()?;
    }
    Ok(())
}

/// `file-regrown-at-once`: a file is cut and grows again. From then on a private mapping with stores shows
/// zeroes there, at once, but for what was touched behind the end.
///
/// *The story:* all that had been behind the end raised SIGBUS until somebody looked: twenty times of twenty,
/// for up to 95 ms.
pub fn regrown_at_once(context: &mut Context) -> Outcome {
    const ROUNDS: usize = 12;
    const STORED: usize = 7;
    faults::install()?;
    let file = Scratch::new(context, LEN)?;
    let memory = file.map(LEN, RW, OF_FILE)?;
    let (last, end) = (memory.pages() / 2, memory.pages());
    pattern::fill_page(&memory, STORED, SEED + 1, STORED);
    pattern::check_pages(&memory, last..end, SEED, "before the cut")?;
    let set_pages = |pages: usize| -> Outcome {
        let writer = OpenOptions::new().write(true).open(&file.path)?;
        Ok(writer.set_len((pages * PAGE) as u64)?)
    };
    for round in 0..ROUNDS {
        set_pages(last)?;
        sys::eventually(|| is_gone(&memory, last + 1, false))?;
        // The mapping is looked at meanwhile.
        sys::pause_ms(50);
        set_pages(end)?;
        for page in [last + 2 + round * 16, end - 1 - round] {
            let found = faults::load(memory.page(page));
            ensure!(found == Ok(0), "round {round}: page {page} of a file that has grown: {found:?}");
        }
        sys::eventually(|| is_there(&memory, last + 1))?;
    }
    for page in 0..last {
        let seed = SEED + u64::from(page == STORED);
        pattern::check_page(&memory, page, seed, page, "before the end of what was left")?;
    }
    memory.unmap()
}

/// A page behind the end raises SIGBUS; where nobody had time to look it may still show what it did.
fn is_gone(memory: &Memory, page: usize, hurries: bool) -> Outcome {
    let found = faults::load(memory.page(page));
    let expected = Fault { signal: libc::SIGBUS, address: memory.page(page) };
    ensure!(found == Err(expected) || hurries && found.is_ok(), "page {page} behind a cut: {found:?}");
    Ok(())
}

/// A page is touched where others may still raise SIGBUS.
fn is_there(memory: &Memory, page: usize) -> Outcome {
    let found = faults::load(memory.page(page));
    ensure!(found.is_ok(), "page {page} of what has grown: {found:?}");
    Ok(())
}

/// Makes the file as long as it was, with something in its last page but one.
fn grow(file: &File, pages: usize, round: u64) -> Outcome {
    file.set_len((pages * PAGE) as u64)?;
    file.write_all_at(&round.to_ne_bytes(), ((pages - 2) * PAGE) as u64)?;
    Ok(())
}

fn check_grown(memory: &Memory, last: usize, round: u64) -> Outcome {
    for index in 0..10 {
        let found = memory.word(last, index).load(Relaxed);
        ensure!(found == pattern::word(SEED, last, index), "word {index} before the cut is {found:#x}");
    }
    let rest = (10..crate::memory::WORDS).map(|index| memory.word(last, index).load(Relaxed));
    ensure!(rest.sum::<u64>() == 0, "the rest of the page that was cut is not zero");
    let written = memory.pages() - 2;
    pattern::check_zero(memory, last + 1..written, "what has grown")?;
    let found = memory.word(written, 0).load(Relaxed);
    ensure!(found == round, "what was written behind the cut is {found}, not {round}");
    pattern::check_zero(memory, written + 1..memory.pages(), "the end of what has grown")
}
