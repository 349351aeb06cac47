//! Large fresh mappings are managed before they are touched.
//!
//! *The story:* once management had started, what a program mapped next was found when it had grown by a MiB. A host that
//! withheld the agent's processor for 15 ms just then let 45 MiB come, in a budget of 64. No reserve is large enough for that.
//! So a thread that maps much by way of libc waits for the agent's next look, which is at most a millisecond away and knows
//! the mapping; if the agent is put off meanwhile, so is the thread. The C library's own malloc does not come this way.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use overspill_sys::clock;
use overspill_sys::futex::{self, Scope};

use crate::fork;

/// Smaller mappings are not worth the wait; nor are those below this share of the budget.
const BYTES_MIN: usize = 1 << 20;
const BUDGET_SHARE: usize = 64;
/// Longer than a processor is withheld, as a rule. For ever it must not wait: a child may have been made that no handler of
/// fork knows of, and it has no agent.
const WAIT_NS: u64 = 50_000_000;

/// Mappings that were waited for, ever.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// How many of them have been looked at.
static SEEN: AtomicU32 = AtomicU32::new(0);
/// Mappings of at least this size are waited for; nothing before management starts.
static LARGE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The agent looks from now on; the budget is `ram` bytes.
pub fn start(ram: u64) {
    LARGE.store((usize::try_from(ram).unwrap_or(usize::MAX) / BUDGET_SHARE).max(BYTES_MIN), SeqCst);
}

/// A child of fork has an agent of its own, which does not look yet.
pub fn forget() {
    LARGE.store(usize::MAX, SeqCst);
}

/// How many mappings have asked; for the agent, before it looks.
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

/// Waits until the agent has looked, if `len` bytes that were just mapped are much.
pub fn wait(len: usize) {
    if len < LARGE.load(SeqCst) || fork::is_paused() {
        return;
    }
    let mine = ASKED.fetch_add(1, SeqCst).wrapping_add(1);
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
