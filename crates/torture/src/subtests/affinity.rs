//! The processors that a thread may run on are its own affair: waiting for pages must not change them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::memory::{MIB, Memory};
use crate::outcome::Outcome;
use crate::{ensure, fail, pattern};

const SEED: u64 = 0xaff1;
/// Touches between two looks at the clock.
const TOUCHES: usize = 256;

/// `affinity`: one thread touches single pages at random, most of them cold, and looks at its set of processors after each;
/// then bound to one processor; then beside a thread that changes the set all the time.
pub fn affinity(context: &mut Context) -> Outcome {
    let memory = Memory::map(context.options.mib * MIB)?;
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    let all = processors(0)?;
    walk(context, &memory, "free", || expect(all, "the whole set"))?;
    let one = first_of(&all)?;
    bind(0, &one)?;
    walk(context, &memory, "bound", || expect(one, "one processor"))?;
    bind(0, &all)?;
    changed_by_another(context, &memory, all, one)?;
    context.sabotage(&memory);
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after all")
}

/// What another thread set last holds in the end, whenever it was set: in a fault, in its answer, between two.
fn changed_by_another(
    context: &Context,
    memory: &Memory,
    all: libc::cpu_set_t,
    one: libc::cpu_set_t,
) -> Outcome {
    // SAFETY: no arguments.
    let thread = unsafe { libc::gettid() };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut last = all;
            for set in [one, all].into_iter().cycle().take_while(|_| !stop.load(Relaxed)) {
                bind(thread, &set)?;
                last = set;
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(last)
        });
        let walked = walk(context, memory, "beside a thread that binds it", || Ok(()));
        stop.store(true, Relaxed);
        let last: Outcome<_> = other.join().expect("a panic ends the process");
        walked.and(expect(last?, "what was set last"))
    })?;
    bind(0, &all)
}

/// Touches random pages, checks their content, and calls `check` after each.
fn walk(context: &Context, memory: &Memory, what: &str, check: impl Fn() -> Outcome) -> Outcome {
    let mut rng = context.rng(0);
    let deadline = context.deadline();
    while Instant::now() < deadline {
        for _ in 0..TOUCHES {
            let page = rng.below(memory.pages());
            pattern::check_page(memory, page, SEED, page, what)?;
            check()?;
        }
    }
    Ok(())
}

fn expect(wanted: libc::cpu_set_t, what: &str) -> Outcome {
    // SAFETY: both are sets.
    let same = unsafe { libc::CPU_EQUAL(&processors(0)?, &wanted) };
    ensure!(same, "the thread may not run on {what} any more");
    Ok(())
}

fn first_of(set: &libc::cpu_set_t) -> Outcome<libc::cpu_set_t> {
    // SAFETY: a set is an array of words; zero is the empty one.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number is below the size of a set.
    let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| unsafe { libc::CPU_ISSET(cpu, set) });
    let Some(first) = first else { fail!("a thread without processors") };
    // SAFETY: as above.
    unsafe { libc::CPU_SET(first, &mut one) };
    Ok(one)
}

fn processors(thread: libc::pid_t) -> Outcome<libc::cpu_set_t> {
    // SAFETY: a set is an array of words; the call fills it.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is as long as is said.
    let status = unsafe { libc::sched_getaffinity(thread, size_of::<libc::cpu_set_t>(), &mut set) };
    ensure!(status == 0, "sched_getaffinity: {}", std::io::Error::last_os_error());
    Ok(set)
}

fn bind(thread: libc::pid_t, set: &libc::cpu_set_t) -> Outcome {
    // SAFETY: the set is as long as is said.
    let status = unsafe { libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), set) };
    ensure!(status == 0, "sched_setaffinity: {}", std::io::Error::last_os_error());
    Ok(())
}
