//! The limit on processor time (RLIMIT_CPU) is the program's: what the agent's thread takes comes on top.
//!
//! The kernel counts all threads of a process. So when its time comes near the limit the kernel is told
//! more: what the agent has taken until then, in whole seconds; and again when that is near. The program is
//! told what it asked for. Not before: a child has its own time, and its parent's limit. Where the largest
//! value may not be raised it bounds the other one.
//!
//! In another program of the same process the time of the agent before counts, too: that one's place in the
//! launcher's page tells what was asked for.
//!
//! A child has no agent's time to its account, but its parent's limit. One of fork gives back what is too
//! much by itself, one of vfork before it calls exec; who was started in another way (posix_spawn, system)
//! finds in its parent's place in the launcher's page what that had asked for.
//!
//! *The story:* a program with `ulimit -t 6`, four seconds of work and most of its memory out was ended by
//! SIGXCPU (`limits::processor`). *The other story:* what that started by vfork had so many seconds more
//! than it was to have (`limits::processor-of-children`).

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use overspill_engine::shared::{Process, Shared};
use overspill_sys::procfs::{self, Limit};
use overspill_sys::{Errno, clock, mem};

use crate::{filters, fork};

/// Current and largest value (`struct rlimit`), in seconds.
pub type Pair = [u64; 2];

const SECOND_NS: u64 = 1_000_000_000;
const NO_LIMIT: u64 = u64::MAX;
/// How often it is looked at, and for how long at most nobody looks, as is hoped.
const LOOK_NS: u64 = 100_000_000;
const MARGIN_S: u64 = 1;
const PROCESSORS_MAX: u32 = 64;
/// The kernel raises the current value by a second with each signal. So many may have come since the last
/// look.
const SIGNALS_MAX: u64 = 4;

/// What the program asked for, and what the kernel was told for that; 0: as it was asked for.
static ASKED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static TOLD: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
/// What the agent's thread has taken, of those before it all, and when to look next.
static TAKEN_NS: AtomicU64 = AtomicU64::new(0);
static BEFORE_NS: AtomicU64 = AtomicU64::new(0);
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
/// The process takes so many seconds in one at most, and some.
static MARGIN: AtomicU64 = AtomicU64::new(0);

fn pair(of: &[AtomicU64; 2]) -> Pair {
    [of[0].load(SeqCst), of[1].load(SeqCst)]
}

/// For the agent, at each look.
pub fn look(now: u64, process: &Process) {
    keep(now, process);
    publish(process, pair(&ASKED), pair(&TOLD));
}

fn keep(now: u64, process: &Process) {
    if now < NEXT_NS.load(SeqCst) {
        return;
    }
    NEXT_NS.store(now + LOOK_NS, SeqCst);
    let Ok(mut limits) = procfs::limit(Limit::Processor).map(<[u64; 2]>::from) else { return };
    if limits == [NO_LIMIT; 2] {
        return;
    }
    if MARGIN.load(SeqCst) == 0 {
        let processors = procfs::processors().unwrap_or(PROCESSORS_MAX).min(PROCESSORS_MAX);
        MARGIN.store(MARGIN_S * u64::from(processors) + 1, SeqCst);
    }
    let (own, taken, before) = (clock::thread_cpu_ns(), TAKEN_NS.load(SeqCst), BEFORE_NS.load(SeqCst));
    if own < taken - before {
        // It is another thread, in the same process.
        BEFORE_NS.store(taken, SeqCst);
    }
    TAKEN_NS.store(BEFORE_NS.load(SeqCst) + own, SeqCst);
    // The program may set it meanwhile.
    while let Some(was) = raise(limits, process) {
        if was == limits {
            return;
        }
        limits = was;
    }
}

/// Tells the kernel what is to be told in place of these. What it had been told before; `None`: no more.
fn raise(limits: Pair, process: &Process) -> Option<Pair> {
    let asked = asked(limits);
    let raised = raised(asked, total_s());
    let set = |limits: Pair| {
        publish(process, asked, limits);
        let was = procfs::set_limit(Limit::Processor, limits.into()).ok()?;
        note(asked, limits);
        Some(was.into())
    };
    if raised == limits {
        return Some(limits);
    }
    set(raised).or_else(|| {
        let less = [raised[0].min(limits[1]), limits[1]];
        if less == limits { None } else { set(less) }
    })
}

fn note(asked: Pair, told: Pair) {
    for (place, value) in ASKED.iter().zip(asked).chain(TOLD.iter().zip(told)) {
        place.store(value, SeqCst);
    }
}

fn total_s() -> u64 {
    clock::process_cpu_ns() / SECOND_NS
}

/// What the kernel is to be told when the process has taken so much in all.
fn raised(asked: Pair, total_s: u64) -> Pair {
    let (taken, margin) = (TAKEN_NS.load(SeqCst).div_ceil(SECOND_NS), MARGIN.load(SeqCst));
    asked.map(|limit| if total_s + margin < limit { limit } else { limit.saturating_add(taken) })
}

/// What the program asked for, where the kernel has this.
fn asked(limits: Pair) -> Pair {
    asked_for(limits, pair(&ASKED), pair(&TOLD))
}

fn asked_for(limits: Pair, asked: Pair, told: Pair) -> Pair {
    let signals = limits[0].wrapping_sub(told[0]);
    if limits[1] == told[1] && signals <= SIGNALS_MAX { [asked[0] + signals, asked[1]] } else { limits }
}

/// Is there an agent that takes time, and is it this limit?
pub fn is_kept(resource: u32) -> bool {
    resource == Limit::Processor as u32 && TAKEN_NS.load(SeqCst) > 0 && !filters::is_filtered()
}

/// Makes a call of prlimit(2) for this process, which is given what to tell the kernel and returns what was
/// before. A child of vfork has no agent's time to its account, and what is noted here is its parent's.
///
/// *The story:* such a child set its own limit before it called exec. Its parent was told that one from then
/// on, and was given another than it had asked for (`limits::processor-beside-children`).
pub fn call(new: Option<Pair>, set: impl Fn(Option<Pair>) -> Result<Pair, Errno>) -> Result<Pair, Errno> {
    let before = asked;
    let Some(new) = new.filter(|_| !fork::is_borrowing()) else { return set(new).map(before) };
    let told = raised(new, total_s());
    let was = match set(Some(told)) {
        Err(Errno::PERM) if told != new => {
            let was = set(Some(new))?;
            let shown = before(was);
            note(new, new);
            return Ok(shown);
        }
        was => was?,
    };
    let shown = before(was);
    note(new, told);
    Ok(shown)
}

/// Tells the children of this process what they inherit, before they can.
fn publish(process: &Process, asked: Pair, told: Pair) {
    let store = |places: &[AtomicU64; 2], values: Pair| {
        places.iter().zip(values).for_each(|(place, value)| place.store(value, SeqCst));
    };
    if pair(&process.processor_asked) != asked {
        store(&process.processor_asked, asked);
    }
    let before = pair(&process.processor_told);
    if before != told {
        store(&process.processor_told_before, before);
        store(&process.processor_told, told);
    }
}

/// At the begin of a program, in the process that the launcher knows by this number: what its parent was
/// given for an agent's time is not the program's. What was given for one in this process stays.
pub fn inherit(shared: &Shared, pid: u32) {
    let Ok(limits) = procfs::limit(Limit::Processor).map(<[u64; 2]>::from) else { return };
    // In another pid namespace the parent's number says nothing.
    if limits == [NO_LIMIT; 2] || pid != mem::process_id() {
        return;
    }
    let parent = mem::parent_id();
    let used = (shared.tree.places_used.load(SeqCst) as usize).min(shared.processes.len());
    let giver = |of: u32| {
        let giver = |process: &&Process| process.pid.load(SeqCst) == of && given(process, limits) != limits;
        shared.processes[..used].iter().find(giver)
    };
    if let Some(before) = giver(pid) {
        let taken = before.counters.agent_cpu_ns.load(SeqCst).max(1);
        [&TAKEN_NS, &BEFORE_NS].into_iter().for_each(|place| place.store(taken, SeqCst));
        note(given(before, limits), limits);
    } else if let Some(parent) = giver(parent) {
        let _ = procfs::set_limit(Limit::Processor, given(parent, limits).into());
    }
}

/// What a child of this process was to have where the kernel gave it this.
///
/// *The story:* between the child's start and its first look its parent was given another second. Nobody
/// knew what it had started with, and it kept that.
fn given(parent: &Process, limits: Pair) -> Pair {
    let told = [&parent.processor_told, &parent.processor_told_before].map(pair);
    if told.contains(&limits) { pair(&parent.processor_asked) } else { limits }
}

/// Before exec: a child of vfork gives back what is not its own. Nothing is noted, as its parent has the
/// same memory.
pub fn before_exec() {
    let (asked, told) = (pair(&ASKED), pair(&TOLD));
    let is_raised = asked != told && !filters::may_be_filtered();
    if is_raised && fork::is_borrowing() && procfs::limit(Limit::Processor) == Ok(told.into()) {
        let _ = procfs::set_limit(Limit::Processor, asked.into());
    }
}

/// In a child of fork, which has taken no time yet.
pub fn in_child() {
    let (asked, told) = (pair(&ASKED), pair(&TOLD));
    let is_raised = asked != told;
    for place in ASKED.iter().chain(&TOLD).chain([&TAKEN_NS, &BEFORE_NS, &NEXT_NS]) {
        place.store(0, SeqCst);
    }
    if is_raised && !filters::is_filtered() && procfs::limit(Limit::Processor) == Ok(told.into()) {
        let _ = procfs::set_limit(Limit::Processor, asked.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_seconds_are_the_programs() {
        let (asked, told) = ([6, 7], [9, 10]);
        assert_eq!(asked_for([9, 10], asked, told), [6, 7]);
        assert_eq!(asked_for([10, 10], asked, told), [7, 7], "a signal came");
        assert_eq!(asked_for([20, 10], asked, told), [20, 10], "the program set it");
        assert_eq!(asked_for([9, 11], asked, told), [9, 11]);
        assert_eq!(asked_for([6, 7], [0, 0], [0, 0]), [6, 7], "nothing was told yet");
    }

    #[test]
    fn a_child_is_given_what_its_parent_asked_for() {
        let parent = Process::new();
        assert_eq!(given(&parent, [6, 7]), [6, 7], "nothing was told");
        publish(&parent, [6, 7], [9, 10]);
        assert_eq!(given(&parent, [9, 10]), [6, 7]);
        assert_eq!(given(&parent, [9, 9]), [9, 9], "it was set since");
        publish(&parent, [6, 7], [10, 11]);
        assert_eq!(given(&parent, [9, 10]), [6, 7], "it was started before");
        publish(&parent, [6, 7], [10, 11]);
        assert_eq!(given(&parent, [9, 10]), [6, 7], "nothing else was told");
    }

    #[test]
    fn it_is_raised_when_it_is_near() {
        TAKEN_NS.store(2 * SECOND_NS + 1, SeqCst);
        MARGIN.store(3, SeqCst);
        assert_eq!(raised([6, NO_LIMIT], 2), [6, NO_LIMIT]);
        assert_eq!(raised([6, NO_LIMIT], 3), [9, NO_LIMIT]);
        assert_eq!(raised([6, 7], 4), [9, 10]);
    }
}
