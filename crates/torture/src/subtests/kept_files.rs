//! Mappings of files that fit in the budget, and that do not any more: other memory takes the room while
//! threads read them, change them, fork and are interrupted. Every byte is checked, all the while and
//! afterwards. Bare they are the kernel's own mappings, and must do the same.

use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::mapped_files::{SEED, Scratch};
use crate::child::fork;
use crate::context::{Context, parallel};
use crate::faults::{self, Fault};
use crate::memory::{MIB, Memory, PAGE, RW};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

/// What fits.
const LEN: usize = 24 * MIB;
/// What takes the room: as much as the budget.
const FRESH: usize = 64 * MIB;
/// Each in a process of its own, as it does not fit a second time.
const ROUNDS: usize = 4;
/// Pages from here on are changed by those who change any.
const CHANGED: usize = 2048;

/// In one process after another: a file of its own is mapped and read, and while other memory takes the
/// room `beside` goes on in two threads. It is taken then, if it `is_taken` by anybody at all.
fn rounds(
    context: &Context,
    is_taken: bool,
    beside: impl Fn(&Scratch, &Memory, usize, &AtomicBool) -> Outcome + Sync,
) -> Outcome {
    for round in 0..ROUNDS {
        let file = Scratch::new(context, LEN)?;
        let flags = [libc::MAP_PRIVATE, libc::MAP_SHARED][round % 2];
        let child = fork(|| {
            let memory = file.map(LEN, libc::PROT_READ, flags)?;
            pattern::check_pages(&memory, 0..memory.pages(), SEED, "while it fits")?;
            ensure!(!sys::is_watched(memory.base())?, "what fits is managed");
            let is_over = AtomicBool::new(false);
            parallel(3, |lane| {
                if lane < 2 {
                    return beside(&file, &memory, lane, &is_over);
                }
                let filled = take_the_room();
                is_over.store(true, Relaxed);
                filled
            })?;
            let is_managed = sys::is_watched(memory.base())?;
            ensure!(
                !is_taken || !context.options.expect_cold || is_managed,
                "what does not fit is not managed"
            );
            memory.forget();
            Ok(())
        })?;
        child.succeed(&format!("round {round}"))?;
    }
    Ok(())
}

fn take_the_room() -> Outcome {
    // Whoever is beside has begun.
    sys::pause_ms(3);
    let fresh = Memory::map(FRESH)?;
    for _ in 0..2 {
        pattern::fill_pages(&fresh, 0..fresh.pages(), SEED + 9);
        pattern::check_pages(&fresh, 0..fresh.pages(), SEED + 9, "what takes the room")?;
    }
    fresh.unmap()
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
    context.sabotage_status()
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
    context.sabotage_status()
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
            for page in 0..PAGES {
                pattern::check_page(&moved, page, SEED, first + page, "moved")?;
            }
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
    context.sabotage_status()
}

/// `file-kept-cut`: the file is cut in the midst of it, and grows again.
pub fn cut(context: &mut Context) -> Outcome {
    faults::install()?;
    // Who is about to write to it is a reason to leave it alone.
    rounds(context, false, |file, memory, lane, is_over| {
        if lane == 0 {
            return read_on(memory, 0..CHANGED, is_over);
        }
        let mut rng = crate::rng::Rng::new(std::process::id().into(), lane);
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
    context.sabotage_status()
}
