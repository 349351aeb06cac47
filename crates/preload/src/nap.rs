//! How the agent sleeps beside a program that does not run.
//!
//! *The story:* 225 programs slept in a budget that was used up. Each of their agents looked two
//! hundred times a second, since nobody could tell when memory would come, and together they took
//! both processors. But who does not run touches no memory. So beside a program that has not run
//! for a while its agent sleeps until it has: a timer on the processor time of the process says so.

use overspill_sys::alarm::Alarm;
use overspill_sys::clock;

use crate::{filters, fresh};

/// So many looks in a row at which nothing was done make a program still.
const STILL_LOOKS: u32 = 10;
/// ... or so many, where it could copy all that is free as soon as it stirs: a second and more.
const STILL_COPY_LOOKS: u32 = 200;
/// It may have computed for so long between two looks: a signal or a timeout of its own.
const STIR_NS: u64 = 50_000;
/// So often it is asked whether the program has run, as often as at a program that has all the room
/// there is: the timer says so only when a system call ends.
///
/// *A review's story:* one read of 200 MiB into fresh memory took 120 ms, and the signal came behind it.
const STEP_NS: u64 = 50_000_000;
/// Steps of a nap: the launcher's words, and threads that end, are seen after it.
const STEPS: u32 = 5;
/// Who could reach what is next sooner is not napped beside: the timer is late by up to a tick.
const NEXT_NS_MIN: u64 = 5_000_000;

/// What is known of the program's stillness.
#[derive(Default)]
pub struct Nap {
    alarm: Option<Alarm>,
    bytes: u64,
    cpu_ns: u64,
    still: u32,
}

impl Nap {
    /// After a look at a program that holds `bytes`, and that could reach what is next in `ns` if it
    /// ran: sleeps until it has run for so long, or until a look is asked for besides the `asked` ones.
    /// `copies`: it could come to hold all that is free by storing to what it shares.
    pub fn sleep(&mut self, asked: u32, bytes: u64, ns: u64, copies: bool) {
        self.observe(bytes, program_cpu_ns());
        let looks = if copies { STILL_COPY_LOOKS } else { STILL_LOOKS };
        // Behind a filter threads wake nobody by a signal.
        if self.still < looks || ns < NEXT_NS_MIN || filters::is_filtered() {
            return fresh::sleep(asked, ns);
        }
        if self.alarm.is_none() {
            self.alarm = Alarm::new().ok();
        }
        match &self.alarm {
            Some(alarm) => fresh::nap(asked, || self.rest(alarm, ns)),
            None => fresh::sleep(asked, ns),
        }
    }

    /// Until the program has run, or somebody asks for a look.
    fn rest(&self, alarm: &Alarm, ns: u64) {
        let is_called = || alarm.sleep(ns, STEP_NS) || program_cpu_ns() >= self.cpu_ns + STIR_NS;
        let _ = (0..STEPS).any(|_| is_called());
    }

    fn observe(&mut self, bytes: u64, cpu_ns: u64) {
        let is_still = bytes == self.bytes && cpu_ns < self.cpu_ns + STIR_NS;
        self.still = if is_still { self.still.saturating_add(1) } else { 0 };
        (self.bytes, self.cpu_ns) = (bytes, cpu_ns);
    }
}

/// Processor time of all threads but this one.
pub fn program_cpu_ns() -> u64 {
    clock::process_cpu_ns().saturating_sub(clock::thread_cpu_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_or_grows_is_not_still() {
        let mut nap = Nap::default();
        let mut still = |bytes, cpu_ns| {
            nap.observe(bytes, cpu_ns);
            nap.still
        };
        assert_eq!([still(9, STIR_NS), still(9, STIR_NS + 1), still(9, 2 * STIR_NS)], [0, 1, 2]);
        assert_eq!(still(9, 3 * STIR_NS), 0, "it has run");
        assert_eq!([still(9, 3 * STIR_NS), still(8, 3 * STIR_NS)], [1, 0]);
    }
}
