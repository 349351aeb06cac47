//! What bringing pages in costs where something about them is unusual, against a plain load of as
//! many pages in the same process: no more than three times as much. Each tries it some times, and the
//! best one counts, as others use the machine, too.
//!
//! *The stories:* 96 MiB that were made read-only in a budget of 48 took 21 s in place of 0.12, and a
//! mapping that grew down by as much had got 4,400 pages after 10 s, ever slower. Later each of its
//! pages was a region of its own, and so was each mapping where small ones were cut from a large one:
//! all of it came back page by page. So did what was locked while it was out. Beside 1500 robust locks
//! that the program held a load of 48 MiB, four times over, took a minute and not a third of a second.

use std::time::{Duration, Instant};

use crate::context::Context;
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW};
use crate::outcome::Outcome;
use crate::subtests::robust;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0xc057;
const TRIES: usize = 3;
/// Times as long as the plain load.
const WORSE_MAX: u32 = 3;
/// ... and so much, on a machine where all of it is in RAM and takes next to nothing.
const GRACE: Duration = Duration::from_millis(20);

/// Memory of twice the budget that the harness gives.
fn twice(context: &Context) -> usize {
    context.options.mib * MIB / 3 * 2 / PAGE * PAGE
}

fn filled(len: usize) -> Outcome<Memory> {
    let memory = Memory::map(len)?;
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    Ok(memory)
}

fn time(work: impl FnOnce() -> Outcome) -> Outcome<Duration> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}

fn load(memory: &Memory, what: &str) -> Outcome<Duration> {
    time(|| pattern::check_pages(memory, 0..memory.pages(), SEED, what))
}

/// Compares the times of two ways to come by as many pages.
fn compare(
    what: &str,
    mut plain: impl FnMut() -> Outcome<Duration>,
    mut special: impl FnMut() -> Outcome<Duration>,
) -> Outcome {
    let mut best = f64::INFINITY;
    for _ in 0..TRIES {
        let (usual, taken) = (plain()?, special()?);
        let ratio = taken.as_secs_f64() / usual.as_secs_f64();
        best = best.min(ratio);
        eprintln!("{what}: {taken:.3?}, plain {usual:.3?}: {ratio:.2}");
        if taken <= usual * WORSE_MAX + GRACE {
            return Ok(());
        }
    }
    ensure!(false, "{what} took {best:.1} times as long as a plain load of as many pages");
    Ok(())
}

/// `cost-read-only`: twice the budget is made read-only.
pub fn read_only(context: &mut Context) -> Outcome {
    let len = twice(context);
    let [plain, closed] = [filled(len)?, filled(len)?];
    // Anew for each try: after the first it was read-only already, and clean.
    let close = || {
        sys::mprotect(closed.base(), len, RW)?;
        pattern::fill_pages(&closed, 0..closed.pages(), SEED);
        context.cool(&closed)?;
        time(|| {
            sys::mprotect(closed.base(), len, libc::PROT_READ)?;
            pattern::check_pages(&closed, 0..closed.pages(), SEED, "read-only")
        })
    };
    compare("read-only", || load(&plain, "plain"), close)
}

/// `cost-grows-down`: a mapping grows down by twice the budget, page by page.
pub fn grows_down(context: &mut Context) -> Outcome {
    const HOLE: usize = 2048 * MIB;
    let len = twice(context);
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is valid. What grows down is bounded as the stack is.
    sys::check("setrlimit", unsafe { libc::setrlimit(libc::RLIMIT_STACK, &raw const unlimited) } as isize)?;
    let fill = |memory: &Memory| {
        time(|| {
            (0..memory.pages()).rev().for_each(|page| pattern::fill_pages(memory, page..page + 1, SEED));
            Ok(())
        })
    };
    let grow = || {
        let (hole, whole) = Memory::map_with(HOLE, libc::PROT_NONE, PRIVATE)?.forget();
        Memory::adopt(hole, whole).unmap()?;
        let flags = PRIVATE | libc::MAP_GROWSDOWN | libc::MAP_FIXED_NOREPLACE;
        sys::mmap(hole + whole - 16 * PAGE, 16 * PAGE, RW, flags, -1)?;
        let grown = Memory::adopt(hole + whole - len, len);
        let taken = fill(&grown)?;
        pattern::check_pages(&grown, 0..grown.pages(), SEED, "grown down")?;
        Ok(taken)
    };
    let plain = || fill(&Memory::map(len)?);
    let subject = context.subject(SEED)?;
    context.cool(&subject)?;
    pattern::check_pages(&subject, 0..subject.pages(), SEED, "beside what grows")?;
    compare("growing down", plain, grow)
}

/// `cost-locked`: twice the budget is locked, half of it out.
pub fn locked(context: &mut Context) -> Outcome {
    let len = twice(context);
    let [plain, memory] = [filled(len)?, filled(len)?];
    let lock = || {
        load(&memory, "to be locked")?;
        let taken = time(|| sys::mlock(memory.base(), len))?;
        let resident = sys::resident_pages(memory.base(), len)?;
        ensure!(resident == memory.pages(), "{resident} of {} locked pages are in RAM", memory.pages());
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "locked")?;
        sys::munlock(memory.base(), len)?;
        Ok(taken)
    };
    context.sabotage(&memory);
    compare("locking", || load(&plain, "plain"), lock)
}

/// `cost-locked-on-fault`: three times the budget is locked as it is touched.
///
/// *The story:* with the budget used up by what cannot leave, each page was waited for by itself. Filling
/// took ten times as long as bare.
pub fn locked_on_fault(context: &mut Context) -> Outcome {
    const MLOCK_ONFAULT: i32 = 1;
    let len = context.options.mib * MIB;
    let fill = |memory: &Memory| {
        let taken = time(|| {
            pattern::fill_pages(memory, 0..memory.pages(), SEED);
            Ok(())
        })?;
        context.sabotage(memory);
        pattern::check_pages(memory, 0..memory.pages(), SEED, "filled")?;
        Ok(taken)
    };
    let locked = || {
        let memory = Memory::map(len)?;
        // SAFETY: the range is the test's.
        let locked = unsafe { libc::syscall(libc::SYS_mlock2, memory.base(), len, MLOCK_ONFAULT) };
        sys::check("mlock2", locked as isize)?;
        fill(&memory)
    };
    // The first one takes longer: its pages are not managed yet.
    fill(&Memory::map(len)?)?;
    compare("locked as it is touched", || fill(&Memory::map(len)?), locked)
}

/// `cost-many-mappings`: 51,200 mappings of two pages each, which were one: the pages between them are
/// unmapped.
pub fn many_mappings(context: &mut Context) -> Outcome {
    const MAPPINGS: usize = 51_200;
    const KEPT: usize = 2;
    const STEP: usize = KEPT + 1;
    let parts = || (0..MAPPINGS).map(|index| index * STEP..index * STEP + KEPT);
    let plain = filled(MAPPINGS * KEPT * PAGE)?;
    let memory = Memory::map(MAPPINGS * STEP * PAGE)?;
    parts().for_each(|part| pattern::fill_pages(&memory, part, SEED));
    // The page in the middle is the first of a part.
    context.sabotage(&memory);
    parts().try_for_each(|part| sys::munmap(memory.base() + part.end * PAGE, PAGE))?;
    let load_parts =
        || time(|| parts().try_for_each(|part| pattern::check_pages(&memory, part, SEED, "of many")));
    compare("many mappings", || load(&plain, "plain"), load_parts)
}

/// `cost-robust`: a load while many robust locks are held, each in a page of its own.
pub fn robust(context: &mut Context) -> Outcome {
    const LOCKS: usize = 1500;
    const APART: usize = 8;
    let [plain, locked] = [filled(twice(context))?, Memory::map(LOCKS * APART * PAGE)?];
    let lock = |index: usize| locked.place(index * APART * PAGE);
    (0..LOCKS).try_for_each(|index| robust::make(lock(index)))?;
    context.sabotage(&plain);
    let beside_locks = || {
        for index in 0..LOCKS {
            // SAFETY: the lock was made; this thread takes it, and leaves it below.
            let taken = unsafe { libc::pthread_mutex_lock(lock(index)) };
            ensure!(taken == 0, "a lock that nobody holds gives {taken}");
        }
        let taken = load(&plain, "beside locks");
        for index in 0..LOCKS {
            // SAFETY: as above.
            unsafe { libc::pthread_mutex_unlock(lock(index)) };
        }
        taken
    };
    compare("beside locks", || load(&plain, "plain"), beside_locks)
}
