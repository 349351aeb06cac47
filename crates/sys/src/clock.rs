//! Time: a clock for durations, processor time of the calling thread, and sleeping.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use crate::raw::{nr, syscall};
use crate::usage;
use rustix::time::{ClockId, clock_gettime};

/// `struct __kernel_timespec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}
const _: () = assert!(size_of::<Timespec>() == 16);

impl Timespec {
    pub(crate) fn from_ns(ns: u64) -> Timespec {
        Timespec { seconds: (ns / 1_000_000_000) as i64, nanoseconds: (ns % 1_000_000_000) as i64 }
    }
}

/// Threads may not read the processor's counter: the kernel is asked.
static IS_BARE: AtomicBool = AtomicBool::new(false);

/// From now on the kernel is asked for the time: user-mode code that reads the processor's counter may be
/// ended for that (PR_SET_TSC).
pub fn ask_the_kernel() {
    IS_BARE.store(true, Relaxed);
}

fn read(clock: ClockId) -> u64 {
    if IS_BARE.load(Relaxed) {
        let mut time = Timespec { seconds: 0, nanoseconds: 0 };
        // SAFETY: the kernel fills the structure, which is its own.
        let result = unsafe { syscall!(nr::__NR_clock_gettime, clock as usize, &raw mut time as usize) };
        assert!(result.is_ok(), "a clock that there is can be read");
        return time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64;
    }
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds since some moment; never goes back. No system call where the kernel's user-mode code can tell.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds since the machine began: what /proc tells moments by.
#[must_use]
pub fn boottime_ns() -> u64 {
    read(ClockId::Boottime)
}

/// Nanoseconds since 1970, as files have it.
#[must_use]
pub fn realtime_ns() -> i128 {
    i128::from(read(ClockId::Realtime))
}

/// Processor time the calling thread has used, in nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// What of that was in the kernel.
#[must_use]
pub fn thread_system_ns() -> u64 {
    let usage = usage::of(usage::THREAD);
    usage[usage::SYSTEM_SECONDS] * 1_000_000_000 + usage[usage::SYSTEM_MICROSECONDS] * 1000
}

/// Processor time that all threads of the process have used, in nanoseconds.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// Sleeps, perhaps less long when a signal comes.
pub fn sleep_ns(ns: u64) {
    let request = Timespec::from_ns(ns);
    // SAFETY: the timespec outlives the call.
    let _ = unsafe { syscall!(nr::__NR_nanosleep, &raw const request as usize, 0) };
}
