//! Time, and giving the processor away. Neither touches libc.

use overspill_mm::types::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some fixed moment; does not jump.
pub fn monotonic_ns() -> Nanos {
    to_ns(ClockId::Monotonic)
}

/// CPU time of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> Nanos {
    to_ns(ClockId::ThreadCPUTime)
}

fn to_ns(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Lets another thread run.
pub(crate) fn yield_now() {
    rustix::thread::sched_yield();
}
