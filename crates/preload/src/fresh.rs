//! Large fresh mappings are managed before they are touched.
//!
//! *The story:* once management had started, what a program mapped next was found when it had grown
//! by a MiB. A host that withheld the agent's processor for 15 ms just then let 45 MiB come, in a
//! budget of 64. No reserve is large enough for that. So a thread that maps much by way of libc
//! waits for the agent's next look, which knows the mapping; if the agent is put off meanwhile, so
//! is the thread. The look is a millisecond away, and five at most if the process has dozed: once
//! memory is managed the agent sleeps where nothing here wakes it. Whoever waits ends the doze, so
//! that the next one waits for a millisecond. The C library's own malloc does not come this way.
//!
//! What is populated by a call is told before management starts, too, so that it starts in time.
//! *The story:* the kernel holds the lock of the address space while it populates, and an agent
//! that wakes up meanwhile waits for it with each mapping that it makes for itself. A child of fork
//! that populated 192 MiB at once, in a budget of 96, was through before anything was managed.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use overspill_sys::futex::{self, Scope};
use overspill_sys::{alarm, clock, thread};

use crate::undisturbed::without_handlers;
use crate::{filters, fork};

/// Smaller mappings are not worth the wait; nor are those below this share of the budget.
const BYTES_MIN: usize = 1 << 20;
const BUDGET_SHARE: usize = 64;
/// Longer than a processor is withheld, as a rule. For ever it must not wait: a child may have been
/// made that no handler of fork knows of, and it has no agent.
const WAIT_NS: u64 = 50_000_000;

/// Looks that were waited for, ever.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// How many of them have been had.
static SEEN: AtomicU32 = AtomicU32::new(0);
/// Mappings of at least this size wait for a look; none before management starts.
static LARGE_MAPPED: AtomicUsize = AtomicUsize::new(usize::MAX);
/// What populates at least so much waits for a look; nothing while there is no agent.
static LARGE_POPULATED: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Bytes that calls under way will have populated when they end.
static COMING: AtomicUsize = AtomicUsize::new(0);

/// The agent's thread while it naps, which no futex ends; 0: it does not.
static NAPPER: AtomicU32 = AtomicU32::new(0);

/// The agent watches from now on, and answers those that populate; the budget is `ram` bytes.
pub fn watch(ram: u64) {
    LARGE_POPULATED.store(large(ram), SeqCst);
}

/// The agent manages from now on, and answers those that map, too.
pub fn manage(ram: u64) {
    LARGE_MAPPED.store(large(ram), SeqCst);
}

fn large(ram: u64) -> usize {
    (usize::try_from(ram).unwrap_or(usize::MAX) / BUDGET_SHARE).max(BYTES_MIN)
}

/// Nobody looks: a child of fork has an agent of its own, which does not yet; or the agent goes.
pub fn forget() {
    LARGE_MAPPED.store(usize::MAX, SeqCst);
    LARGE_POPULATED.store(usize::MAX, SeqCst);
    COMING.store(0, SeqCst);
    NAPPER.store(0, SeqCst);
    seen(asked());
}

/// As [`forget`], in a child that makes no calls of its own: nobody waits there.
pub fn leave() {
    LARGE_MAPPED.store(usize::MAX, SeqCst);
    LARGE_POPULATED.store(usize::MAX, SeqCst);
    COMING.store(0, SeqCst);
    NAPPER.store(0, SeqCst);
    SEEN.store(asked(), SeqCst);
}

/// Wakes the agent if it does not manage memory yet: there is something to be seen, but nobody
/// waits for that.
pub fn knock() {
    seen(ASKED.fetch_add(1, SeqCst).wrapping_add(1));
    wake();
}

/// Whoever has added to the word wakes the agent, however it sleeps.
fn wake() {
    futex::wake(&ASKED, 1, Scope::Private);
    let napper = NAPPER.load(SeqCst);
    if napper != 0 {
        let _ = thread::send_signal(napper, alarm::SIGNAL);
    }
}

/// How many looks have been asked for; for the agent, before it looks.
pub fn asked() -> u32 {
    ASKED.load(SeqCst)
}

/// Is anybody waiting for a look?
pub fn is_awaited(asked: u32) -> bool {
    asked != SEEN.load(SeqCst)
}

/// What had asked before the look may be touched.
pub fn seen(asked: u32) {
    if SEEN.swap(asked, SeqCst) != asked {
        futex::wake(&SEEN, u32::MAX, Scope::Private);
    }
}

/// Sleeps for `ns`, or until a look is asked for besides the `asked` ones.
pub fn sleep(asked: u32, ns: u64) {
    let _ = futex::wait(&ASKED, asked, Some(ns), Scope::Private);
}

/// Calls `sleep`, which [`alarm::SIGNAL`] ends, unless a look is asked for besides the `asked` ones.
/// Whoever asks adds to the word first and looks for a napper second: one of the two sees the other.
pub fn nap(asked: u32, sleep: impl FnOnce()) {
    NAPPER.store(thread::id(), SeqCst);
    if self::asked() == asked {
        sleep();
    }
    NAPPER.store(0, SeqCst);
}

/// Bytes that will have come when the calls that populate now have ended.
pub fn coming() -> u64 {
    COMING.load(SeqCst) as u64
}

/// Waits until the agent has looked, if `len` bytes that were just mapped are much.
pub fn wait(len: usize) {
    if len >= LARGE_MAPPED.load(SeqCst) {
        ask();
    }
}

/// Populates `len` bytes by `call`. If they are many the agent knows before it that they come, and manages
/// memory if they are too many. As with the kernel's calls no handler of a signal runs meanwhile.
///
/// *The story:* a handler left a call that populates by siglongjmp. Its bytes were expected for ever
/// (`citizens::jumps-that-fit`).
pub fn populating<R>(len: usize, call: impl FnOnce() -> R) -> R {
    if len < LARGE_POPULATED.load(SeqCst) {
        return call();
    }
    without_handlers(|| {
        COMING.fetch_add(len, SeqCst);
        ask();
        let result = call();
        // None are left of those of a parent's other threads (see `forget`).
        let _ = COMING.fetch_update(SeqCst, SeqCst, |coming| Some(coming.saturating_sub(len)));
        result
    })
}

/// Asks for a look and waits for it.
fn ask() {
    // Behind a filter no call is made that libc does not make, and an unseen child has nobody to ask.
    if fork::is_paused() || filters::is_filtered() || !fork::is_ours() {
        return;
    }
    let mine = ASKED.fetch_add(1, SeqCst).wrapping_add(1);
    wake();
    let patience = clock::monotonic_ns() + WAIT_NS;
    loop {
        let seen = SEEN.load(SeqCst);
        let left = patience.saturating_sub(clock::monotonic_ns());
        if mine.wrapping_sub(seen).cast_signed() <= 0 || left == 0 {
            return;
        }
        let _ = futex::wait(&SEEN, seen, Some(left), Scope::Private);
    }
}
