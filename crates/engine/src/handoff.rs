//! On which processor a waiting thread wakes up: on the agent's own, when that is about to be free.
//!
//! Left alone, the scheduler wakes a thread on another processor than that of whoever wakes it, if one is idle; and one that
//! is idle must first be woken itself, by an interrupt, which on a virtual machine takes 10 to 20 us. A program that
//! waits for one page after another pays for that twice a page: its fault wakes the agent elsewhere, the answer wakes it
//! elsewhere. Two threads of which always one waits for the other do best on one processor. So the agent binds itself to
//! where it is; and for as long as it takes to answer, the waiting thread may run only there, too. It never sees that, since
//! it does not run: it sleeps at first, and then waits for the agent's processor, which it cannot have as long as the agent
//! comes before ordinary threads. *The story behind it:* an agent with a mere nice value of -10 was sometimes put off in favour
//! of the thread it had just woken, which then saw a set of one processor. To come first takes a privilege; without it nothing
//! of this is done. The agent comes first for these few microseconds only: being so all the time cost a quarter of the speed.
//!
//! That is right only while hardly anybody else wants to run, or the thread would have to wait for its turn beside an idle
//! processor. Whether that is so /proc/loadavg says.

use overspill_mm::types::Nanos;
use overspill_sys::Errno;
use overspill_sys::clock;
use overspill_sys::processors::{self, Processors};
use overspill_sys::procfs::RunnableReader;
use overspill_sys::thread::{self, Scheduling};

use crate::home::Trials;
use crate::report::Waiter;

/// Threads that may want to run besides the agent: they have another processor. One that has just gone to sleep can be among
/// them, since the scheduler takes some off its list only later.
const OTHERS_MAX: u32 = 1;
/// What is known of who else wants to run is so long taken to be true.
const KNOWN_NS: Nanos = 1_000_000;
/// The agent is set free when others wanted to run so many times in a row.
const CROWDED_MAX: u32 = 4;

/// Who waits, and where the agent runs.
pub(crate) struct Handoff {
    /// None: what it takes is missing, and nothing is done.
    runnable: Option<RunnableReader>,
    /// Where the agent is bound, for now.
    home: Option<Home>,
    /// Where it should be.
    trials: Trials,
    /// Woken here last.
    companion: u32,
    /// Others wanted to run, so many times in a row.
    crowded: u32,
    known_until: Nanos,
    /// A thread was woken here since this was last asked for.
    handed_over: bool,
}

/// The processor that the agent is bound to, and what it has by rights.
#[derive(Clone, Copy)]
struct Home {
    processor: u32,
    here: Processors,
    by_rights: Processors,
    /// How it competes for processors.
    usual: Scheduling,
}

/// A thread that can wake up on the agent's processor only.
pub(crate) struct Held {
    waiter: Waiter,
    by_rights: Processors,
}

impl Handoff {
    pub fn open() -> Self {
        Handoff {
            runnable: RunnableReader::open().ok(),
            home: None,
            trials: Trials::new(),
            companion: 0,
            crowded: 0,
            known_until: 0,
            handed_over: false,
        }
    }

    /// To be called right before the answer that wakes the only waiter, if the agent has nothing to do after it.
    pub fn hold(&mut self, waiter: Waiter) -> Option<Held> {
        let Waiter { thread, major, .. } = waiter;
        // A thread that has only just touched its page may still be awake on another processor: it is best left there. One
        // that was on this processor is not awake, since the agent is.
        if !(major || thread == self.companion) || !self.is_alone() {
            return None;
        }
        // A thread that is bound needs no help, or must not be given any.
        let by_rights = Processors::of(thread).ok().filter(|set| set.count() > 1)?;
        let here = self.settle_down().ok()?.here;
        if !here.is_within(&by_rights) {
            return None;
        }
        if Scheduling::first().set().is_err() {
            self.runnable = None;
            self.let_go();
            return None;
        }
        let held = Held { waiter, by_rights };
        if here.bind(thread).is_err() {
            self.restore(&held);
            return None;
        }
        self.handed_over = true;
        self.companion = thread;
        Some(held)
    }

    /// To be called right after the answer.
    pub fn release(&mut self, held: Option<Held>) {
        let Some(held) = held else { return };
        self.restore(&held);
        if held.waiter.major {
            self.note_answer(held.waiter.since);
        }
    }

    /// The thread may run where it might before, and this one competes as usual.
    fn restore(&self, held: &Held) {
        let Some(Home { here, usual, .. }) = self.home else { return };
        let thread = held.waiter.thread;
        // Whatever else the set is now, somebody wanted it so meanwhile.
        if Processors::of(thread) == Ok(here) {
            // It fails only when the thread has ended, or may run nowhere of where it might: then the kernel has decided.
            let _ = held.by_rights.bind(thread);
        }
        // Less than first is always granted.
        let _ = usual.set();
    }

    /// A lone read was answered here: is another processor to be tried?
    fn note_answer(&mut self, since: Nanos) {
        let Some(home) = &mut self.home else { return };
        let now = clock::monotonic_ns();
        let took = now.saturating_sub(since);
        if let Some(processor) = self.trials.answered(home.processor, took, now, &home.by_rights) {
            let here = Processors::one(processor);
            if here.bind(thread::id()).is_ok() {
                *home = Home { processor, here, ..*home };
            }
        }
    }

    /// Was a thread handed over since the last call? It is to run next.
    pub fn take_handed_over(&mut self) -> bool {
        core::mem::take(&mut self.handed_over)
    }

    /// Lets the agent run everywhere again.
    pub fn let_go(&mut self) {
        self.companion = 0;
        if let Some(home) = self.home.take() {
            let _ = home.by_rights.bind(thread::id());
        }
    }

    /// Does hardly anybody but the agent want to run?
    fn is_alone(&mut self) -> bool {
        let now = clock::monotonic_ns();
        if now >= self.known_until {
            self.known_until = now + KNOWN_NS;
            let runnable = self.runnable.as_ref().and_then(|runnable| runnable.count().ok());
            let alone = runnable.is_some_and(|count| count <= 1 + OTHERS_MAX);
            self.crowded = if alone { 0 } else { self.crowded + 1 };
            if self.crowded == CROWDED_MAX {
                self.let_go();
            }
        }
        self.crowded == 0
    }

    /// Binds the agent to where it is, unless it is bound.
    fn settle_down(&mut self) -> Result<Home, Errno> {
        if let Some(home) = self.home {
            return Ok(home);
        }
        let by_rights = Processors::of(thread::id())?;
        let processor = self.trials.place(processors::current(), &by_rights);
        let home =
            Home { processor, here: Processors::one(processor), by_rights, usual: Scheduling::current()? };
        home.here.bind(thread::id())?;
        self.home = Some(home);
        Ok(home)
    }
}
