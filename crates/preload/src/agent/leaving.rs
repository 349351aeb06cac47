//! The end of an agent whose process goes on: everything comes in, and is the kernel's again.

use core::mem;
use core::sync::atomic::Ordering;

use overspill_engine::patience::Patience;
use overspill_engine::report::Left;
use overspill_engine::shared::{Process, events};
use overspill_sys::clock;

use super::{Agent, Manager, give_up};
use crate::{cpu_limit, fork, fresh, message, retire};

/// For so long it is tried to give files back to the kernel, before the program ends: what is left of
/// them would read as zeroes.
const HAND_BACK_NS: u64 = 10_000_000_000;

/// The agent was asked to go. Whether it comes back, or the program is at its end, the launcher is told.
pub(super) fn leave(process: &Process) {
    if let Some(failure) = retire::ban() {
        give_up(process, failure);
    }
}

impl Agent {
    /// Looks whether the process is about to end, and that it does not for this thread's own time.
    pub(super) fn keep_watch(&mut self, now: u64) {
        self.ending.look(now);
        cpu_limit::look(now, self.process);
    }
}

impl Manager<'_> {
    /// All is in, and stays so if the agent was asked to go: what is not there is zeroes, for whoever has the
    /// memory for longer, too.
    ///
    /// *The story:* a process ended before its agent, which had all in, had let go. What shared its memory
    /// touched a new page, and was ended for that (`torture fork-outlive`).
    pub(super) fn end_custody(&mut self, is_out: bool) {
        if !is_out
            && retire::is_asked()
            && let Some(custody) = self.custody.take()
        {
            custody.take_back();
        }
    }

    /// Brings everything in and lets go of it. True when that is done, false while it is not, or a
    /// fork is under way.
    ///
    /// *The story:* nobody looked whether the files had gone back. What was not touched of them as yet
    /// was memory like any other then, and read as zeroes.
    pub(super) fn hand_back(&mut self) -> bool {
        if fork::is_under_way() {
            return false;
        }
        let handed = self.engine.hand_back_range(&(0..usize::MAX), Left::Other);
        if !mem::replace(&mut self.hands_back, true) {
            if retire::is_for_search() {
                self.agent.process.events.fetch_or(events::LEAK_SEARCH, Ordering::Relaxed);
            }
            self.end_halt();
            self.engine.pause();
        }
        if handed {
            self.hands_back_for = Patience::default();
        } else if !self.hands_back_for.lasts(clock::monotonic_ns(), HAND_BACK_NS) {
            self.say("a mapped file cannot be given back to the kernel: the program is ended");
            message::kill();
        }
        if !(handed && self.engine.release_all()) {
            return false;
        }
        // *The story:* only the word that everything is in gave this leave, and where nothing was out
        // nobody waited for it: forks of a program without rights failed from then on.
        self.permit_forks();
        fork::stop_managing();
        fresh::forget();
        leave(self.agent.process);
        true
    }
}
