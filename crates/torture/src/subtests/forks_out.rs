//! Forks of a program most of whose memory is out of RAM, where children inherit that where it is:
//! whoever stores to what, each sees what it had at its fork and what it stored itself.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::child;
use crate::context::Context;
use crate::faults::install_handler;
use crate::memory::{MIB, Memory, PAGE, RW};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0xf007;
const CHILDREN: usize = 20;
/// What one of the row stores to, and its parent between two forks: each so many pages apart.
const STEP: usize = 40;

/// Children that the handler of `fork-out-signal` makes, and its first wait; each next one is longer.
const MADE_MAX: u32 = 16;
const FIRST_US: i64 = 400;
const STEP_US: i64 = 400;

/// Whose page it is, of a row: each child has its own, and the parent one for each.
fn is_of(page: usize, who: usize) -> bool {
    page % STEP == who
}

/// `fork-out-row`: twenty children, one after the other, while the first ones live. Each stores to pages
/// of its own, and so does the parent after each fork.
pub fn row(context: &mut Context) -> Outcome {
    let memory = &context.subject(SEED)?;
    context.cool(memory)?;
    let mut children = Vec::new();
    for child in 0..CHILDREN {
        children.push(child::fork(|| {
            sys::pause_ms(100);
            // The parent had stored for those before it.
            check(memory, |page| (0..child).any(|other| is_of(page, CHILDREN + other)), "in a child")?;
            store(memory, |page| is_of(page, child));
            let is_stored =
                |page| is_of(page, child) || (0..child).any(|other| is_of(page, CHILDREN + other));
            check(memory, is_stored, "in a child that has stored")
        })?);
        store(memory, |page| is_of(page, CHILDREN + child));
    }
    for child in children {
        child.succeed("one of a row")?;
    }
    context.cool(memory)?;
    check(memory, |page| page % STEP >= CHILDREN, "in the parent of a row")
}

fn store(memory: &Memory, is_chosen: impl Fn(usize) -> bool) {
    (0..memory.pages()).filter(|&page| is_chosen(page)).for_each(|page| {
        pattern::fill_page(memory, page, SEED + 1, page);
    });
}

fn check(memory: &Memory, is_stored: impl Fn(usize) -> bool, what: &str) -> Outcome {
    (0..memory.pages())
        .try_for_each(|page| pattern::check_page(memory, page, SEED + u64::from(is_stored(page)), page, what))
}

/// `fork-killed`: who makes a child is killed at any moment of that. The child has what it inherits, or
/// was ended, since it may have seen zeroes.
pub fn killed(context: &mut Context) -> Outcome {
    const ROUNDS: usize = 60;
    const US_MAX: usize = 8_000;
    let memory = &context.subject(SEED)?;
    let told = &Memory::map_with(PAGE, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS)?;
    let mut rng = context.rng(0);
    child::take_orphans()?;
    context.cool(memory)?;
    for round in 0..ROUNDS {
        told.word(0, 0).store(0, Relaxed);
        let maker = child::fork(|| {
            told.word(0, 0).store(1, Relaxed);
            child::fork(|| pattern::check_pages(memory, 0..memory.pages(), SEED, "inherited")).map(drop)?;
            loop {
                sys::pause_ms(1000);
            }
        })?;
        let until = Instant::now() + Duration::from_secs(20);
        while told.word(0, 0).load(Relaxed) == 0 {
            ensure!(Instant::now() < until, "the maker of {round} does not begin");
            std::thread::sleep(Duration::from_micros(50));
        }
        std::thread::sleep(Duration::from_micros(rng.below(US_MAX) as u64));
        maker.kill()?;
        while let Some(status) = child::wait_any() {
            let is_right =
                status == 0 || libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
            ensure!(is_right, "whose maker was killed, {round}: {}", child::describe(status));
        }
    }
    pattern::check_pages(memory, 0..memory.pages(), SEED, "above who was killed")
}

/// `fork-growing`: memory that grows from nothing to more than the budget, and a fork at each step.
///
/// *The story:* at three quarters of what paging begins with everything is opened that it takes. From then
/// on the kernel told of forks, and nobody read that before the program had grown further: who forked in
/// between waited for ever (`trees::pool`, one run of two).
pub fn growing(context: &mut Context) -> Outcome {
    const STEPS: usize = 80;
    /// Pages that a child looks at are so far apart.
    const APART: usize = 61;
    let memory = &Memory::map(context.options.mib * MIB)?;
    let pages = memory.pages() / STEPS;
    for step in 0..STEPS {
        pattern::fill_pages(memory, step * pages..(step + 1) * pages, SEED);
        let shown: &Context = context;
        child::fork(|| {
            shown.sabotage_status()?;
            let mut seen = (0..(step + 1) * pages).step_by(APART);
            seen.try_for_each(|page| pattern::check_page(memory, page, SEED, page, "in a child"))
        })?
        .succeed("one that was made on the way")?;
    }
    pattern::check_pages(memory, 0..STEPS * pages, SEED, "grown")
}

/// `fork-out-line`: a child of a child of a child, each of which ends before its own child looks at what
/// it inherited, as daemons do; and stores first.
pub fn line(context: &mut Context) -> Outcome {
    const LENGTH: u64 = 4;
    let memory = &context.subject(SEED)?;
    let told = &Memory::map_with(PAGE, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS)?;
    for round in 0..3 {
        context.cool(memory)?;
        told.word(0, 0).store(0, Relaxed);
        let shown: &Context = context;
        child::fork(|| go_down(shown, memory, told, LENGTH))?.succeed("the first of a line")?;
        // The last one has no parent that waits for it.
        let until = context.deadline() + Duration::from_secs(60);
        while told.word(0, 0).load(Relaxed) == 0 {
            ensure!(Instant::now() < until, "the last of line {round} is missing");
            sys::pause_ms(10);
        }
        ensure!(told.word(0, 0).load(Relaxed) == 1, "the last of line {round} has not what it inherited");
        pattern::check_pages(memory, 0..memory.pages(), SEED, "above a line")?;
    }
    Ok(())
}

fn go_down(context: &Context, memory: &Memory, told: &Memory, left: u64) -> Outcome {
    let stored = memory.pages() / 8;
    if left == 0 {
        sys::pause_ms(100);
        context.sabotage(memory);
        let ended = pattern::check_pages(memory, 0..stored, SEED + 1, "stored by the one before")
            .and_then(|()| pattern::check_pages(memory, stored..memory.pages(), SEED, "inherited"));
        told.word(0, 0).store(if ended.is_ok() { 1 } else { 2 }, Relaxed);
        return ended;
    }
    pattern::fill_pages(memory, 0..stored, SEED + left);
    child::fork(|| go_down(context, memory, told, left - 1)).map(drop)
}

/// `fork-out-wiped`: what is marked MADV_WIPEONFORK shows zeroes in a child, though it was out and the fork
/// before left it so. In a process of its own: once one has such memory all comes in.
pub fn wiped(context: &mut Context) -> Outcome {
    let memory = &context.subject(SEED)?;
    context.cool(memory)?;
    child::fork(|| {
        child::fork(|| Ok(()))?.succeed("a child before the mark")?;
        sys::madvise(memory.base(), memory.len(), libc::MADV_WIPEONFORK)?;
        let looks = || pattern::check_zero(memory, 0..memory.pages(), "what was to be wiped");
        child::fork(looks)?.succeed("a child after the mark")?;
        pattern::check_pages(memory, 0..memory.pages(), SEED, "marked")
    })?
    .succeed("who marks memory")?;
    pattern::check_pages(memory, 0..memory.pages(), SEED, "in the parent")
}

/// The process whose handler forks, its children, and how many those are.
static MAKER: AtomicU32 = AtomicU32::new(0);
static KIDS: [AtomicU32; MADE_MAX as usize] = [const { AtomicU32::new(0) }; MADE_MAX as usize];
static MADE: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_alarm(_signal: i32, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let made = MADE.load(Relaxed);
    if MAKER.load(Relaxed) != std::process::id() || made == MADE_MAX {
        return;
    }
    // SAFETY: the child goes on from here to where it ends, see `signal`.
    let kid = unsafe { libc::fork() };
    if kid > 0 {
        KIDS[made as usize].store(kid as u32, Relaxed);
        MADE.store(made + 1, Relaxed);
    }
}

/// A signal comes in so many microseconds; 0: none.
fn set_alarm(us: i64) -> Outcome {
    let (once, wait) = (libc::timeval { tv_sec: 0, tv_usec: 0 }, libc::timeval { tv_sec: 0, tv_usec: us });
    let timer = libc::itimerval { it_interval: once, it_value: wait };
    // SAFETY: `timer` is initialised and only read.
    let result = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    sys::check("setitimer", result as isize).map(drop)
}

/// `fork-out-signal`: a signal comes while a fork is under way. Its handler forks, and the child of that
/// returns from the handler, into the fork.
pub fn signal(context: &mut Context) -> Outcome {
    let memory = &context.subject(SEED)?;
    MADE.store(0, Relaxed);
    MAKER.store(std::process::id(), Relaxed);
    install_handler(libc::SIGALRM, on_alarm)?;
    for round in 0..16 {
        context.cool(memory)?;
        set_alarm(FIRST_US + STEP_US * round)?;
        let forked = child::fork(|| Ok(()));
        let is_off = set_alarm(0);
        if MAKER.load(Relaxed) != std::process::id() {
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) };
        }
        is_off?;
        forked?.succeed("a child that was interrupted")?;
        sys::pause_ms(20);
    }
    let made = MADE.load(Relaxed);
    for kid in &KIDS[..made as usize] {
        let pid = kid.load(Relaxed) as libc::pid_t;
        sys::eventually(|| {
            let mut status = 0;
            // SAFETY: `status` is ours.
            let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
            ensure!(ended == pid && status == 0, "a handler's child: {ended}, status {status:#x}");
            Ok(())
        })?;
    }
    ensure!(made > 0, "no handler ran");
    context.sabotage(memory);
    pattern::check_pages(memory, 0..memory.pages(), SEED, "after forks that were interrupted")
}

/// Bytes that the deleted files of this process take, those of threads with a table of their own, too.
fn deleted_bytes() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut files = std::collections::BTreeMap::new();
    let entries = |path: &std::path::Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    for task in entries("/proc/self/task".as_ref()) {
        for file in entries(&task.path().join("fd")) {
            let is_deleted =
                std::fs::read_link(file.path()).is_ok_and(|to| to.to_string_lossy().ends_with("(deleted)"));
            if let (true, Ok(status)) = (is_deleted, std::fs::metadata(file.path())) {
                files.insert((status.dev(), status.ino()), status.blocks() * 512);
            }
        }
    }
    files.values().sum()
}

/// `fork-out-many`: eighty forks, one after the other. Between two of them each time another quarter of the
/// memory is stored to, so that nothing stays for long where it was at a fork.
///
/// *The story:* what a fork left in its parent were areas, whose numbers were never used again. From the
/// 64th on everything came in for each fork.
pub fn many(context: &mut Context) -> Outcome {
    const ROUNDS: usize = 80;
    let memory = &Memory::map(context.options.mib * MIB / 2)?;
    let quarter = memory.pages() / 4;
    let mut seeds = [SEED; 4];
    pattern::fill_pages(memory, 0..memory.pages(), SEED);
    for round in 0..ROUNDS {
        let shown: &Context = context;
        let looked = round * 7919 % memory.pages();
        child::fork(|| {
            shown.sabotage_status()?;
            let resident = sys::resident_pages(memory.base(), memory.len())?;
            let is_in = resident > memory.pages() / 8 * 7;
            ensure!(!(is_in && shown.options.expect_cold), "fork {round} brought in {resident} pages");
            pattern::check_page(memory, looked, seeds[looked / quarter], looked, "in one of many")
        })?
        .succeed("one of many")?;
        let from = round % 4 * quarter;
        seeds[round % 4] = SEED + 1 + round as u64;
        pattern::fill_pages(memory, from..from + quarter, seeds[round % 4]);
    }
    let check = |part: usize| {
        pattern::check_pages(memory, part * quarter..(part + 1) * quarter, seeds[part], "after many forks")
    };
    (0..4).try_for_each(check)
}

/// `fork-out-thin`: sixty percent of the memory are stored to between two forks, chosen anew each time, so
/// that a few pages stay where they were for long. The files to page to stay small all the same.
///
/// *The story:* each file was kept for its last pages, with all of its blocks.
pub fn thin(context: &mut Context) -> Outcome {
    const ROUNDS: usize = 24;
    let memory = &Memory::map(context.options.mib * MIB / 2)?;
    let mut rng = context.rng(0);
    let mut seeds = vec![SEED; memory.pages()];
    pattern::fill_pages(memory, 0..memory.pages(), SEED);
    for round in 0..ROUNDS as u64 {
        child::fork(|| Ok(()))?.succeed("one of a thin row")?;
        for (page, seed) in seeds.iter_mut().enumerate().filter(|_| rng.below(10) < 6) {
            *seed = SEED + 1 + round;
            pattern::fill_page(memory, page, *seed, page);
        }
    }
    let most = memory.len() as u64 * 4;
    sys::eventually(|| {
        let bytes = deleted_bytes();
        ensure!(bytes < most, "deleted files take {} MiB for {} of memory", bytes >> 20, memory.len() >> 20);
        Ok(())
    })?;
    context.sabotage(memory);
    let mut pages = seeds.iter().enumerate();
    pages.try_for_each(|(page, &seed)| pattern::check_page(memory, page, seed, page, "after a thin row"))
}
