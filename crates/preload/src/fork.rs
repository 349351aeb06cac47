//! fork(): before it everything comes in, during it nothing is taken out, the child gets an agent of its own.
//!
//! The handlers run in the program's thread that forks. It rings a doorbell (touches a page whose absence the agent is
//! told of) and sleeps in that touch until everything is in; so no lock, no signal and no descriptor is needed, and the
//! agent wakes up as for any fault. Only libc's fork runs handlers; vfork and posix_spawn share the address space until
//! they exec, and need none.
//!
//! Why no page can be out during a fork: the forking thread counts itself in `FORKS`, then waits for `PAUSED`. The agent
//! clears `PAUSED` first and looks at `FORKS` second. Whichever comes first, one of them sees the other.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};

use overspill_sys::{AddressRange, PAGE_SIZE};

use crate::{fresh, remap, start};

/// Threads between the start of a fork and its end.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Everything is in, and stays in.
static PAUSED: AtomicBool = AtomicBool::new(false);
/// The agent manages memory (so the doorbell works).
static MANAGING: AtomicBool = AtomicBool::new(false);
/// Address of the doorbell page.
static DOORBELL: AtomicUsize = AtomicUsize::new(0);

/// Where the doorbell is.
pub fn set_doorbell(address: usize) {
    DOORBELL.store(address, SeqCst);
}

/// The doorbell page.
pub fn doorbells() -> AddressRange {
    let start = DOORBELL.load(SeqCst);
    start..start + PAGE_SIZE
}

/// Runs before a fork, in the thread that forks.
pub extern "C" fn prepare() {
    FORKS.fetch_add(1, SeqCst);
    while MANAGING.load(SeqCst) && !PAUSED.load(SeqCst) {
        // SAFETY: the page is mapped readable for ever; the read may wait for the agent, which is what it is for.
        unsafe { core::ptr::read_volatile(DOORBELL.load(SeqCst) as *const u8) };
    }
}

/// Runs after a fork in the parent.
pub extern "C" fn parent() {
    FORKS.fetch_sub(1, SeqCst);
}

/// Runs after a fork in the child: it has all its memory and no agent yet. What it shares with its parent cannot be taken
/// from it until it is stored to; what it maps and changes can.
pub extern "C" fn child() {
    MANAGING.store(false, SeqCst);
    PAUSED.store(false, SeqCst);
    FORKS.store(0, SeqCst);
    remap::forget();
    fresh::forget();
    start::start_again();
}

/// From now on forks ring. True when one is under way that did not.
pub fn start_managing() -> bool {
    MANAGING.store(true, SeqCst);
    FORKS.load(SeqCst) > 0
}

/// Everything is in: forks may go on.
pub fn set_paused() {
    PAUSED.store(true, SeqCst);
}

/// Is any thread between the start of a fork and its end?
pub fn is_under_way() -> bool {
    FORKS.load(SeqCst) > 0
}

/// Is the agent between [`set_paused`] and a successful [`may_resume`]?
pub fn is_paused() -> bool {
    PAUSED.load(SeqCst)
}

/// Ends the pause unless a fork is under way.
pub fn may_resume() -> bool {
    PAUSED.store(false, SeqCst);
    if FORKS.load(SeqCst) == 0 {
        return true;
    }
    PAUSED.store(true, SeqCst);
    false
}
