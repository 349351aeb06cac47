//! Robust locks: a thread ends while it holds some, and whoever asks for them next must be told.
//!
//! *The story:* the kernel marks such a lock when its owner ends, and does not wait for a page that
//! is out: nobody was told, and who asked for the lock waited for ever.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::context::Context;
use crate::memory::PAGE;
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0x0b57;
/// Locks that each owner holds when it ends, and owners at a time.
const LOCKS: usize = 24;
const OWNERS: usize = 4;
/// Pages from one lock to the next.
const APART: usize = 53;
/// Longer than a lock that its owner left takes to be had.
const PATIENCE_S: i64 = 10;

/// `robust`: owners hold locks far apart in memory that goes cold around them, then end.
pub fn run(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let place = |owner: usize, lock: usize| memory.place(((owner * LOCKS + lock) * APART + 1) * PAGE);
    for owner in 0..OWNERS {
        (0..LOCKS).try_for_each(|lock| make(place(owner, lock)))?;
    }
    for round in 0..2 {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for owner in 0..OWNERS {
                let (word, place) = (&word, &place);
                scope.spawn(move || hold(word, (0..LOCKS).map(|lock| place(owner, lock) as usize)));
            }
            while word.load(SeqCst) < OWNERS as u32 {
                sys::pause_ms(1);
            }
            let cold = context.cool(&memory).and_then(|()| context.press());
            word.store(u32::MAX, SeqCst);
            cold
        })?;
        for owner in 0..OWNERS {
            (0..LOCKS).try_for_each(|lock| inherit(place(owner, lock), round))?;
        }
    }
    let is_lock = |page: usize| page % APART == 1 && page / APART < OWNERS * LOCKS;
    (0..memory.pages())
        .filter(|&page| !is_lock(page))
        .try_for_each(|page| pattern::check_page(&memory, page, SEED, page, "around locks"))
}

/// Makes a robust lock.
pub fn make(lock: *mut libc::pthread_mutex_t) -> Outcome {
    // SAFETY: the lock lies in memory of ours; the attributes are made before they are used.
    let made = unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attributes);
        libc::pthread_mutexattr_setrobust(&raw mut attributes, libc::PTHREAD_MUTEX_ROBUST);
        libc::pthread_mutex_init(lock, &raw const attributes)
    };
    ensure!(made == 0, "a robust lock cannot be made: error {made}");
    Ok(())
}

/// Takes locks, waits, and ends with them.
fn hold(word: &AtomicU32, locks: impl Iterator<Item = usize>) {
    for lock in locks {
        // SAFETY: the lock was made.
        unsafe { libc::pthread_mutex_lock(lock as *mut _) };
    }
    word.fetch_add(1, SeqCst);
    while word.load(SeqCst) != u32::MAX {
        sys::pause_ms(5);
    }
}

/// Takes a lock whose owner has ended, and leaves it as it should be.
fn inherit(lock: *mut libc::pthread_mutex_t, round: usize) -> Outcome {
    let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the lock was made, the time is ours.
    let result = unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
        until.tv_sec += PATIENCE_S;
        libc::pthread_mutex_timedlock(lock, &raw const until)
    };
    ensure!(result == libc::EOWNERDEAD, "round {round}: the lock of an ended owner gives {result}");
    // SAFETY: as above.
    unsafe {
        libc::pthread_mutex_consistent(lock);
        libc::pthread_mutex_unlock(lock);
    }
    Ok(())
}
