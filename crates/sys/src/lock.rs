//! A lock for threads that libc does not know.
//!
//! Who waits for it sleeps on a futex. *A review's story:* it was a loop of sched_yield. The agent
//! can be in a real-time class, and there yielding gives the processor to nobody else: a thread
//! that was put off while it held the lock would never have run again beside an agent that wanted
//! it, on a machine with one processor.

use crate::futex::{self, Scope};
use core::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may be asleep for it.
const AWAITED: u32 = 2;

/// A lock; what it guards lies beside it.
#[derive(Debug)]
pub struct Lock(AtomicU32);

impl Lock {
    /// A free one.
    #[must_use]
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    /// Calls `action` while no other thread is inside of such a call. Not to be called inside of `action`.
    pub fn with<R>(&self, action: impl FnOnce() -> R) -> R {
        if self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // Whoever gets it this way leaves it awaited: there may be others.
            while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
                let _ = futex::wait(&self.0, AWAITED, None, Scope::Private);
            }
        }
        self.releasing(action)
    }

    /// Calls `action` if no other thread is inside of such a call, and does not wait: whoever is may wait
    /// for the caller.
    pub fn try_with<R>(&self, action: impl FnOnce() -> R) -> Option<R> {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(self.releasing(action))
    }

    fn releasing<R>(&self, action: impl FnOnce() -> R) -> R {
        let result = action();
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            futex::wake(&self.0, 1, Scope::Private);
        }
        result
    }

    /// Makes it free in a child of fork: a thread that the child does not have may have held it.
    /// False when one did: what it guards may be half changed.
    pub fn forget(&self) -> bool {
        self.0.swap(FREE, Ordering::Relaxed) == FREE
    }
}

impl Default for Lock {
    fn default() -> Lock {
        Lock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{nr, syscall};
    use crate::thread::Scheduling;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::time::{Duration, Instant};

    #[test]
    fn one_at_a_time() {
        static LOCK: Lock = Lock::new();
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        LOCK.with(|| count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 80_000);
    }

    #[test]
    fn who_does_not_wait_gets_it_when_it_is_free() {
        static LOCK: Lock = Lock::new();
        assert_eq!(LOCK.try_with(|| LOCK.try_with(|| ())), Some(None));
        let (held, waited) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            LOCK.try_with(|| {
                scope.spawn(|| {
                    held.store(true, Ordering::Release);
                    LOCK.with(|| waited.store(true, Ordering::Release));
                });
                while !held.load(Ordering::Acquire) {
                    core::hint::spin_loop();
                }
                std::thread::sleep(Duration::from_millis(5));
                assert!(!waited.load(Ordering::Acquire), "two were inside");
            })
        });
        assert!(waited.into_inner() && LOCK.try_with(|| ()).is_some());
    }

    fn run_on_the_first_processor() {
        let set = 1u64;
        // SAFETY: the call only reads the set.
        let _ = unsafe { syscall!(nr::__NR_sched_setaffinity, 0, size_of::<u64>(), &raw const set as usize) };
    }

    /// See the head of this file. With yields the ordinary thread ran after a second, when the
    /// kernel's guard against real-time threads that hog a processor let it (where it has one).
    /// Without the privilege this says nothing, and holds.
    #[test]
    fn an_ordinary_holder_gets_the_processor_of_a_realtime_thread_that_waits() {
        static LOCK: Lock = Lock::new();
        let held = AtomicBool::new(false);
        let waited = std::thread::scope(|scope| {
            scope.spawn(|| {
                run_on_the_first_processor();
                LOCK.with(|| {
                    held.store(true, Ordering::Release);
                    let busy = Instant::now();
                    while busy.elapsed() < Duration::from_millis(30) {
                        core::hint::spin_loop();
                    }
                });
            });
            let waiter = scope.spawn(|| {
                run_on_the_first_processor();
                let _ = Scheduling::first(1).set();
                while !held.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let start = Instant::now();
                LOCK.with(|| start.elapsed())
            });
            waiter.join().expect("it does not panic")
        });
        assert!(waited < Duration::from_millis(700), "{waited:?}");
    }
}
