//! How the agent's thread competes for processors: when it must be in time it comes before the
//! program's threads, whatever class they have; else it is an ordinary thread, if they are, too.
//!
//! *The story:* a program with real-time priority 50 on one processor (`taskset 1 chrt -f 50`) had no
//! limit at all: the agent took priority 1 and never ran.

use overspill_sys::procfs;
use overspill_sys::thread::{self, Scheduling};

/// Threads of a program that has more are not asked each for its priority.
const THREADS_MAX: u32 = 256;

/// What the agent knows of the program's threads.
pub struct Urgency {
    /// The highest real-time priority among them; 0: all are ordinary.
    highest: u32,
}

impl Urgency {
    /// The calling thread has what the program has that started it.
    pub fn inherited() -> Urgency {
        Urgency { highest: Scheduling::current().map_or(0, |own| own.real_time_priority()) }
    }

    /// The calling thread comes before the program's. That is a privilege: true if it has it.
    pub fn hurry(&mut self) -> bool {
        self.highest = highest().unwrap_or(self.highest);
        thread::come_before(self.highest).is_ok()
    }

    /// It competes with the program's threads (see [`thread::compete`]). Beside real-time threads an
    /// ordinary one may never run. True: it comes first.
    pub fn compete(&mut self) -> bool {
        if self.highest > 0 {
            let comes_first = self.hurry();
            // They may be gone by now.
            if comes_first && self.highest > 0 {
                return true;
            }
        }
        if self.highest == 0 || !thread::may_come_before() {
            let _ = thread::compete();
        }
        false
    }
}

/// Of the program's threads; `None` where they are too many to ask, or cannot be listed.
fn highest() -> Option<u32> {
    if procfs::thread_count().unwrap_or(u32::MAX) > THREADS_MAX {
        return None;
    }
    let mut highest = 0;
    let listed = procfs::for_each_thread(|tid| {
        if !thread::is_own(tid) {
            highest = highest.max(Scheduling::of(tid).map_or(0, |of| of.real_time_priority()));
        }
    });
    listed.ok().map(|()| highest)
}
