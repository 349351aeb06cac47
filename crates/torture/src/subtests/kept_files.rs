//! Mappings of files that fit in the budget, and that do not any more: other memory takes the room while
//! threads read them, change them, fork and are interrupted. Every byte is checked, all the while and
//! afterwards. Bare they are the kernel's own mappings, and must do the same.

use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::file_hazards::may_lock;
use super::mapped_files::{SEED, Scratch};
use crate::child::fork;
use crate::context::{Context, parallel};
use crate::faults::{self, Fault};
use crate::memory::{MIB, Memory, PAGE, RW};
use crate::outcome::Outcome;
use crate::rng::Rng;
use crate::{ensure, fail, pattern, sys};

/// What fits.
const LEN: usize = 24 * MIB;
/// What takes the room: as much as the budget.
const FRESH: usize = 64 * MIB;
/// Each in a process of its own, as it does not fit a second time.
const ROUNDS: usize = 4;
/// So often the room is taken, at most: who changes mappings all the time is not waited for.
const LAPS_MOST: usize = 40;
/// Pages from here on are changed by those who change any.
const CHANGED: usize = 2048;

/// In one process after another: a file of its own is mapped and read, and while other memory takes the
/// room `beside` goes on in two threads. It is taken then, if it `is_taken` by anybody at all.
fn rounds(
    context: &Context,
    is_taken: bool,
    beside: impl Fn(&Scratch, &Memory, usize, &AtomicBool) -> Outcome + Sync,
) -> Outcome {
    let waits = is_taken && context.options.expect_cold;
    for round in 0..ROUNDS {
        let file = Scratch::new(context, LEN)?;
        let flags = [libc::MAP_PRIVATE, libc::MAP_SHARED][round % 2];
        let child = fork(|| {
            let memory = map_what_fits(&file, flags)?;
            let is_over = AtomicBool::new(false);
            parallel(3, |lane| {
                if lane < 2 {
                    return beside(&file, &memory, lane, &is_over);
                }
                let filled = take_the_room(|| Ok(!waits || sys::is_watched(memory.base())?));
                is_over.store(true, Relaxed);
                filled
            })?;
            memory.forget();
            Ok(())
        })?;
        child.succeed(&format!("round {round}"))?;
    }
    Ok(())
}

/// What fits is the kernel's and complete, once there is room for it.
///
/// *The story:* one round in some twenty found it managed. What the process of the round before had held
/// was still out of the budget: the launcher gives it back when it looks, each 10 to 50 ms.
fn map_what_fits(file: &Scratch, flags: i32) -> Outcome<Memory> {
    let mut kept = None;
    sys::eventually(|| {
        let memory = file.map(LEN, libc::PROT_READ, flags)?;
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "while it fits")?;
        if sys::is_watched(memory.base())? {
            memory.unmap()?;
            fail!("what fits is managed");
        }
        kept = Some(memory);
        Ok(())
    })?;
    Ok(kept.expect("it was mapped"))
}

/// Fills as much as the budget, over and over until enough of it `is_done`; each time with other bytes, or
/// nobody would see a page of the last time.
fn take_the_room(is_done: impl Fn() -> Outcome<bool>) -> Outcome {
    // Whoever is beside has begun.
    sys::pause_ms(3);
    let fresh = Memory::map(FRESH)?;
    for lap in 0..LAPS_MOST {
        let seed = SEED + 9 + lap as u64;
        pattern::fill_pages(&fresh, 0..fresh.pages(), seed);
        pattern::check_pages(&fresh, 0..fresh.pages(), seed, &format!("what takes the room, lap {lap}"))?;
        if lap > 0 && is_done()? {
            return fresh.unmap();
        }
    }
    fail!("what does not fit is not managed")
}

/// Checks pages until it is over, and once more.
fn read_on(memory: &Memory, pages: std::ops::Range<usize>, is_over: &AtomicBool) -> Outcome {
    loop {
        let was_over = is_over.load(Relaxed);
        pattern::check_pages(memory, pages.clone(), SEED, "while others take the room")?;
        if was_over {
            return Ok(());
        }
    }
}

/// Where a handler reads; how often it did, and what was wrong there.
static PLACE: AtomicUsize = AtomicUsize::new(0);
static HANDLED: AtomicUsize = AtomicUsize::new(0);
static WRONG: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_tick(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let page = HANDLED.fetch_add(1, Relaxed) * 7 % (LEN / PAGE);
    // SAFETY: the mapping is there while signals are sent.
    let found = unsafe { *((PLACE.load(Relaxed) + page * PAGE) as *const u64) };
    WRONG.fetch_add(usize::from(found != pattern::word(SEED, page, 0)), Relaxed);
}

/// `file-kept`: two threads read, and the handler of a signal that interrupts all of them.
pub fn readers(context: &mut Context) -> Outcome {
    faults::install_handler(libc::SIGUSR2, on_tick)?;
    rounds(context, true, |_, memory, lane, is_over| {
        if lane == 0 {
            return read_on(memory, 0..memory.pages(), is_over);
        }
        PLACE.store(memory.base(), Relaxed);
        while !is_over.load(Relaxed) {
            // SAFETY: a handler is installed.
            unsafe { libc::kill(libc::getpid(), libc::SIGUSR2) };
            std::thread::sleep(Duration::from_micros(200));
        }
        let (handled, wrong) = (HANDLED.load(Relaxed), WRONG.load(Relaxed));
        ensure!(handled > 10 && wrong == 0, "{wrong} of {handled} reads in a handler were wrong");
        Ok(())
    })?;
    Ok(())
}

/// `file-kept-changed`: parts are unmapped, replaced, moved, made inaccessible and opened while it is taken.
pub fn changed(context: &mut Context) -> Outcome {
    faults::install()?;
    rounds(context, true, |_, memory, lane, is_over| {
        if lane == 0 {
            return read_on(memory, 0..CHANGED, is_over);
        }
        let mut changes = 0;
        // Some more when it is over: of what is managed by then.
        while changes < 30 && (changes < 8 || !is_over.load(Relaxed)) {
            let first = CHANGED + changes * 100;
            pattern::check_pages(memory, first..first + 100, SEED, "before it is changed")?;
            change(memory, first, changes)?;
            changes += 1;
            std::thread::sleep(Duration::from_millis(3));
        }
        pattern::check_pages(memory, CHANGED + changes * 100..memory.pages(), SEED, "what was not changed")
    })?;
    Ok(())
}

fn change(memory: &Memory, first: usize, number: usize) -> Outcome {
    const PAGES: usize = 20;
    let (start, len) = (memory.page(first), PAGES * PAGE);
    match number % 5 {
        0 => sys::munmap(start, len)?,
        1 => {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            ensure!(sys::mmap(start, len, RW, flags, -1)? == start, "MAP_FIXED gave another place");
            pattern::fill_pages(memory, first..first + PAGES, SEED + 1);
            sys::pause_ms(2);
            pattern::check_pages(memory, first..first + PAGES, SEED + 1, "what replaces it")?;
        }
        2 => {
            let target = sys::mmap(0, len, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let moved = Memory::adopt(sys::mremap(start, len, len, flags, target)?, len);
            pattern::check_moved(&moved, first, SEED, "moved")?;
            sys::munmap(moved.base(), len)?;
            moved.forget();
        }
        3 => {
            sys::mprotect(start, len, libc::PROT_NONE)?;
            let fault = faults::load(start).map(drop);
            ensure!(fault == Err(Fault { signal: libc::SIGSEGV, address: start }), "inaccessible: {fault:?}");
            sys::mprotect(start, len, libc::PROT_READ)?;
            pattern::check_pages(memory, first..first + PAGES, SEED, "accessible again")?;
        }
        _ => {
            let opened = sys::mprotect(start, len, RW);
            // A shared mapping of what was opened for reading is not.
            if opened.is_ok() {
                pattern::fill_pages(memory, first..first + PAGES, SEED + 2);
                sys::pause_ms(2);
                pattern::check_pages(memory, first..first + PAGES, SEED + 2, "stored to")?;
            }
        }
    }
    Ok(())
}

/// `file-kept-fork`: children are made all the while, and see all of it.
pub fn forks(context: &mut Context) -> Outcome {
    rounds(context, true, |_, memory, lane, is_over| {
        if lane == 0 {
            return read_on(memory, 0..memory.pages(), is_over);
        }
        while !is_over.load(Relaxed) {
            let pages = 0..memory.pages();
            fork(|| pattern::check_pages(memory, pages, SEED, "in a child"))?.succeed("a child")?;
        }
        Ok(())
    })?;
    Ok(())
}

/// `file-kept-cut`: the file is cut in the midst of it, and grows again.
pub fn cut(context: &mut Context) -> Outcome {
    faults::install()?;
    // Who is about to write to it is a reason to leave it alone.
    rounds(context, false, |file, memory, lane, is_over| {
        if lane == 0 {
            return read_on(memory, 0..CHANGED, is_over);
        }
        let mut rng = Rng::new(std::process::id().into(), lane);
        std::thread::sleep(Duration::from_micros(rng.below(60_000) as u64));
        let length =
            |pages: usize| OpenOptions::new().write(true).open(&file.path)?.set_len((pages * PAGE) as u64);
        length(CHANGED)?;
        let pages = [CHANGED, CHANGED + 1, memory.pages() - 1];
        sys::eventually(|| {
            for address in pages.map(|page| memory.page(page)) {
                let found = faults::load(address).map(drop);
                ensure!(found == Err(Fault { signal: libc::SIGBUS, address }), "cut off: {found:?}");
            }
            Ok(())
        })?;
        length(memory.pages())?;
        sys::eventually(|| {
            for address in pages.map(|page| memory.page(page)) {
                ensure!(faults::load(address) == Ok(0), "page at {address:#x} is not there again");
            }
            Ok(())
        })
    })?;
    Ok(())
}

/// `file-kept-locked`: parts are locked, move and grow, all the while: they are in RAM, and the file's,
/// though the agent was about to take them.
///
/// *The story* (by reading): the agent had looked before the call, and put what cannot be locked, or grow,
/// in its place.
pub fn locked(context: &mut Context) -> Outcome {
    rounds(context, false, |_, memory, lane, is_over| {
        if lane == 0 {
            return read_on(memory, 0..CHANGED, is_over);
        }
        let mut rng = Rng::new(std::process::id().into(), lane);
        let mut growing = (CHANGED..memory.pages() - RUN).step_by(RUN);
        while !is_over.load(Relaxed) {
            lock(memory, rng.below(CHANGED - RUN))?;
            if let Some(first) = growing.next() {
                grow(memory, first)?;
            }
            std::thread::sleep(Duration::from_micros(rng.below(2000) as u64));
        }
        Ok(())
    })?;
    Ok(())
}

/// `file-kept-all-locked`: what fits was mapped, and is locked, after mlockall(MCL_FUTURE). It is the file's
/// and in RAM when other memory takes the room.
///
/// *The story:* what was to be put in its place was filled with zeroes by the kernel before anybody watched
/// it. The mapping was right at first, and all zeroes from then on.
pub fn all_locked(context: &mut Context) -> Outcome {
    let ways: &[i32] = if may_lock() { &[libc::MAP_SHARED, libc::MAP_PRIVATE] } else { &[] };
    for &flags in ways {
        let file = Scratch::new(context, LEN)?;
        let child = fork(|| {
            // SAFETY: changes no content.
            sys::check("mlockall", unsafe { libc::mlockall(libc::MCL_FUTURE) } as isize)?;
            let memory = map_what_fits(&file, flags)?;
            take_the_room(|| Ok(true))?;
            // Whoever is to look at it has done so.
            sys::pause_ms(300);
            pattern::check_pages(&memory, 0..memory.pages(), SEED, "locked while others take the room")?;
            let there = sys::resident_pages(memory.base(), memory.len())?;
            ensure!(there == memory.pages(), "{there} pages of a locked file are in RAM");
            memory.forget();
            Ok(())
        })?;
        child.succeed("a child that locks all")?;
    }
    context.press()?;
    Ok(())
}

/// Pages that are locked, or grow, at a time.
const RUN: usize = 20;

fn lock(memory: &Memory, first: usize) -> Outcome {
    let (start, len) = (memory.page(first), RUN * PAGE);
    sys::mlock(start, len)?;
    let present = sys::resident_pages(start, len)?;
    ensure!(present == RUN, "{present} of {RUN} locked pages are in RAM");
    pattern::check_pages(memory, first..first + RUN, SEED, "locked")?;
    sys::munlock(start, len)
}

/// A part moves and shows the file where it was, too; what has moved doubles: the file goes on there.
///
/// *The story:* where managed memory had been moved from there were zeroes.
fn grow(memory: &Memory, first: usize) -> Outcome {
    let half = RUN / 2 * PAGE;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
    let moved = sys::mremap(memory.page(first), half, half, flags, 0)?;
    pattern::check_pages(memory, first..first + RUN, SEED, "moved, and there still")?;
    let grown = sys::mremap(moved, half, 2 * half, libc::MREMAP_MAYMOVE, 0)?;
    let grown = Memory::adopt(grown, 2 * half);
    pattern::check_moved(&grown, first, SEED, "grown")?;
    grown.unmap()
}
