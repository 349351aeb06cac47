//! Sleeping until the process has computed for a while: a timer on its processor time.
//!
//! Who waits for something to be done by the process need not look at one that does not run. The
//! timer's signal goes to the one thread that made it, which has it blocked and takes it without a
//! handler. It is the one that C libraries keep for themselves and send to single threads only
//! (`SIGTIMER`), so that nobody else's is taken. The kernel looks at such timers once a tick (1 to
//! 10 ms).

use crate::clock::Timespec;
use crate::raw::{nr, syscall};
use crate::{Errno, thread};

/// The signal; also for [`thread::send_signal`], to who sleeps.
pub const SIGNAL: u32 = 32;
const SIGEV_THREAD_ID: u32 = 4;

/// `struct sigevent` as the kernel has it.
#[repr(C)]
#[derive(Default)]
struct Event {
    value: u64,
    signal: u32,
    notify: u32,
    thread: u32,
    padding: [u32; 11],
}
const _: () = assert!(size_of::<Event>() == 64);

/// A timer, of the thread that made it.
#[derive(Debug)]
pub struct Alarm(u32);

impl Alarm {
    /// Of the calling thread, which has all signals blocked for as long as it lives.
    pub fn new() -> Result<Alarm, Errno> {
        let notify = SIGEV_THREAD_ID;
        let event = Event { signal: SIGNAL, notify, thread: thread::id(), ..Event::default() };
        let mut id = 0_u32;
        let (clock, event) = (nr::CLOCK_PROCESS_CPUTIME_ID as usize, &raw const event as usize);
        // SAFETY: the kernel reads the event and writes the number; the signal meets a thread that
        // has it blocked.
        unsafe { syscall!(nr::__NR_timer_create, clock, event, &raw mut id as usize)? };
        Ok(Alarm(id))
    }

    /// Sleeps until the process has computed for `cpu_ns`, or until the signal comes from elsewhere:
    /// true. For `ns` at most: false. A system call under way counts when it has ended.
    pub fn sleep(&self, cpu_ns: u64, ns: u64) -> bool {
        let once = [Timespec::from_ns(0), Timespec::from_ns(cpu_ns.max(1))];
        let (set, most) = (1_u64 << (SIGNAL - 1), Timespec::from_ns(ns));
        let (set_at, most_at) = (&raw const set as usize, &raw const most as usize);
        // SAFETY: the kernel reads two times, a set of signals and a time.
        unsafe {
            let _ = syscall!(nr::__NR_timer_settime, self.0 as usize, 0, &raw const once as usize, 0);
            syscall!(nr::__NR_rt_sigtimedwait, set_at, 0, most_at, size_of::<u64>()).is_ok()
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: the timer is this one's.
        let _ = unsafe { syscall!(nr::__NR_timer_delete, self.0 as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

    const MS: u64 = 1_000_000;

    /// Tests beside this one compute, too: only who comes first is certain.
    #[test]
    fn it_ends_when_the_process_computes_or_somebody_asks() {
        let mask = thread::block_all_signals().unwrap();
        let alarm = Alarm::new().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
            let began = clock::monotonic_ns();
            alarm.sleep(5 * MS, 60_000 * MS);
            is_over.store(true, SeqCst);
            assert!(clock::monotonic_ns() - began < 30_000 * MS, "it computes");
        });
        let (own, began) = (thread::id(), clock::monotonic_ns());
        std::thread::scope(|scope| {
            scope.spawn(move || thread::send_signal(own, SIGNAL).unwrap());
            alarm.sleep(60_000 * MS, 60_000 * MS);
        });
        assert!(clock::monotonic_ns() - began < 30_000 * MS, "it was asked");
        alarm.sleep(60_000 * MS, MS);
        drop(alarm);
        thread::restore_signals(mask);
    }
}
