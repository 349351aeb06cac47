//! How to wait for the next message or completion.
//!
//! A thread that sleeps in poll answers a fault in some 47 us, one that looks again and again in
//! 16. So the reactor looks for a while after it was last busy, as long as that pays: looking that
//! ends in sleep halves the while, looking that ends in work doubles it.
//!
//! *The story:* a thread that comes before all others (`SCHED_FIFO`) looked like that, too. The
//! kernel's own threads, which hand writes to the device and end those that were the first to their
//! blocks, are bound to a processor and come after it. They ran when it slept at last, some
//! milliseconds later, when no frame was left: a program that fills its memory beyond its budget
//! got a page a fault, 300 MB/s.

use overspill_mm::types::Nanos;
use overspill_sys::event::{self, Bell, PollFd};
use overspill_sys::{Errno, clock};

use crate::engine::Engine;
use crate::memory::REST_NS;

/// Bounds of the time spent looking.
const SPIN_NS_MIN: Nanos = 2_000;
const SPIN_NS_MAX: Nanos = 60_000;

/// Waits on behalf of one engine.
pub struct Reactor {
    busy_until: Nanos,
    spin_ns: Nanos,
    spins: bool,
}

impl Default for Reactor {
    fn default() -> Self {
        Reactor { busy_until: 0, spin_ns: SPIN_NS_MAX, spins: true }
    }
}

impl Reactor {
    /// Whether it may look again and again. A thread that comes before all others must not: see the
    /// head of the file.
    pub fn set_spinning(&mut self, spins: bool) {
        self.spins = spins;
    }

    /// Cranks once and then, unless there was something to do, waits until there is, until `bell`
    /// is readable or until `deadline`.
    pub fn turn(&mut self, engine: &mut Engine, deadline: Nanos, bell: Option<&Bell>) {
        let busy = engine.crank() | engine.answer_behind();
        let now = clock::monotonic_ns();
        if busy {
            if now > self.busy_until {
                self.spin_ns = (self.spin_ns * 2).min(SPIN_NS_MAX);
            }
            self.busy_until = now + self.spin_ns;
            return;
        }
        if self.spins && now < self.busy_until {
            // Never sched_yield: see `REST_NS`.
            core::hint::spin_loop();
            return;
        }
        if deadline > now {
            self.spin_ns = (self.spin_ns - self.spin_ns / 4).max(SPIN_NS_MIN);
            sleep(engine, deadline - now, bell);
        }
    }
}

fn sleep(engine: &Engine, timeout_ns: Nanos, bell: Option<&Bell>) {
    let [messages, completions, shared] = engine.descriptors();
    let fds = [messages, completions, shared, bell.map(Bell::fd)];
    let count = fds.iter().flatten().count();
    let mut there = [PollFd::maybe_readable(None); 4];
    there.iter_mut().zip(fds.into_iter().flatten()).for_each(|(at, fd)| *at = PollFd::readable(fd));
    // EINTR and errors are as good as a wake-up: the caller looks again.
    if event::poll(&mut there[..count], Some(timeout_ns)) == Err(Errno::INVAL) {
        // The program's limit of descriptors is that of the list, too.
        clock::sleep_ns(timeout_ns.min(REST_NS));
    }
}
