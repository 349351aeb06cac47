//! Stores of a copy of its parent, or of who has made one, wait while there is no room for what they would
//! copy.
//!
//! *The story:* four workers stored to all that they had inherited, at the speed of memory. Each store
//! made a copy, of which nobody was told, while their agents had all of it to page out.

use overspill_sys::clock;

use super::Manager;
use crate::{fork, nap};

/// They begin to wait within so long, and for so long at most the first time.
const WANTED_NS: u64 = 1_000_000_000;
const FIRST_NS_MAX: u64 = 5_000_000_000;
/// ... and so long whenever there is too much again, all together at most so long.
const AGAIN_NS: u64 = 50_000_000;
const ALL_NS: u64 = 5_000_000_000;
/// Too much is so much of the budget then.
const AGAIN_SHARE: u64 = 128;
/// Who forks again has as much again, but no more than this part of the time between.
const FORKS_SHARE: u64 = 4;
/// In between the program has run for so long, or so much time has passed: who got a page can use it.
const RUN_NS: u64 = 50_000;
const OPEN_NS: u64 = 10_000_000;
/// To hold stores takes less than one part in so many of the time for which they are held.
const WORTH: u64 = 10;

/// Whether stores wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not yet; not for the first time any more from then on.
    Wanted(u64),
    /// Since then, at most until then.
    Held { since: u64, until: u64 },
    /// Not since then, when the program had run for so long.
    Open { since: u64, ran_ns: u64 },
}

/// The books.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Halt {
    state: State,
    /// For so long they may still be held again.
    left_ns: u64,
    /// So much processor time it took to hold them last.
    took_ns: u64,
    /// When it was seen last that it had forked, if it had.
    forked: Option<u64>,
}

impl Halt {
    /// Of a process that a fork has made, or of another one.
    pub(super) fn of(inherits: bool) -> Halt {
        let state = match inherits {
            true => State::Wanted(clock::monotonic_ns() + WANTED_NS),
            false => State::Open { since: 0, ran_ns: 0 },
        };
        Halt { state, left_ns: if inherits { ALL_NS } else { 0 }, took_ns: 0, forked: None }
    }

    /// It has forked: what it stores to makes copies now.
    fn note_fork(&mut self, now: u64) {
        let more = self.forked.map_or(ALL_NS, |before| (now - before) / FORKS_SHARE);
        self.left_ns = self.left_ns.saturating_add(more).min(ALL_NS);
        self.forked = Some(now);
    }

    /// May they be held again, of a program that has run for so long by now?
    ///
    /// *A review's story:* they were let go, and held again at the next look. Where other programs kept the
    /// processors nobody who waited had one in between.
    fn may_again(&self, now: u64, ran_ns: u64) -> bool {
        let State::Open { since, ran_ns: before } = self.state else { return false };
        let has_got_on = ran_ns >= before + RUN_NS || now >= since + OPEN_NS;
        has_got_on && self.left_ns > 0 && self.took_ns <= AGAIN_NS / WORTH
    }

    fn begin(&mut self, now: u64, until: u64, took_ns: u64) {
        if let State::Open { .. } = self.state {
            self.left_ns = self.left_ns.saturating_sub(until - now);
        }
        (self.state, self.took_ns) = (State::Held { since: now, until }, took_ns);
    }

    /// Faults are held with them until then; 0: they are not.
    fn faults_until(&self) -> u64 {
        match self.state {
            State::Held { since, until } => until.min(since + AGAIN_NS),
            _ => 0,
        }
    }

    /// They are let go. False: they were not held.
    fn end(&mut self, now: u64, ran_ns: u64) -> bool {
        let State::Held { since, until } = self.state else { return false };
        if until - since <= AGAIN_NS {
            self.left_ns += until.saturating_sub(now);
        }
        self.state = State::Open { since: now, ran_ns };
        true
    }
}

impl Manager<'_> {
    /// Holds stores that make copies, or lets them go.
    pub(super) fn halt_stores(&mut self, now: u64) {
        if self.agent.has_forked(now) {
            self.halt.note_fork(now);
        }
        let is_over = self.goes_down || self.engine.frames() > self.engine.budget();
        let may_help = !self.engine.mm().is_swap_full() && !fork::is_paused();
        let is_far = self.copies_far_too_much();
        let is_too_much = may_help && self.agent.purse.excess(0) > 0 && (is_over || is_far);
        match self.halt.state {
            State::Wanted(until) if now >= until => {
                self.halt.state = State::Open { since: now, ran_ns: 0 };
            }
            State::Wanted(_) if is_too_much => self.begin_halt(now, now + FIRST_NS_MAX),
            State::Open { .. } if is_too_much && is_far && self.may_halt_again(now) => {
                self.begin_halt(now, now + AGAIN_NS);
            }
            State::Held { until, .. } if !is_too_much || now >= until => self.end_halt(),
            _ => {}
        }
        self.engine.hold_faults(self.halt.faults_until());
    }

    /// Is there so much too much that stores are better held, of one who can copy more than there is? Whether
    /// it has pages to give or has room left that it was given: others have too little for that.
    pub(super) fn copies_far_too_much(&self) -> bool {
        let purse = &self.agent.purse;
        purse.could_copy_all() && purse.excess(0) > self.agent.ram() / AGAIN_SHARE
    }

    /// *The story:* stores were held once, for all that was shared. When the room was there twenty
    /// copies went on at the same moment, and held 191 MiB in 120.
    fn may_halt_again(&self, now: u64) -> bool {
        !self.engine.evicts_slowly() && self.halt.may_again(now, nap::program_cpu_ns())
    }

    fn begin_halt(&mut self, now: u64, until: u64) {
        let began = clock::thread_cpu_ns();
        self.engine.guard_copies();
        self.halt.begin(now, until, clock::thread_cpu_ns().saturating_sub(began));
    }

    pub(super) fn end_halt(&mut self) {
        self.engine.hold_faults(0);
        if self.halt.end(clock::monotonic_ns(), nap::program_cpu_ns()) {
            self.engine.allow_copies();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn open() -> Halt {
        Halt { state: State::Open { since: 0, ran_ns: 7 * MS }, ..Halt::of(true) }
    }

    /// See [`Halt::may_again`].
    #[test]
    fn in_between_the_program_has_run() {
        let halt = open();
        assert!(!halt.may_again(MS, 7 * MS) && !halt.may_again(9 * MS, 7 * MS + RUN_NS - 1));
        assert!(halt.may_again(MS, 7 * MS + RUN_NS) && halt.may_again(OPEN_NS, 7 * MS));
        assert!(!Halt::of(false).may_again(OPEN_NS, MS), "who has nothing of a parent's");
    }

    /// What others hold too much of is not for one program to wait for, for ever.
    #[test]
    fn all_together_it_is_bounded() {
        let (mut halt, mut now, mut held) = (open(), OPEN_NS, 0);
        while halt.may_again(now, now) {
            halt.begin(now, now + AGAIN_NS, MS);
            (now, held) = (now + AGAIN_NS, held + AGAIN_NS);
            assert!(halt.end(now, now) && !halt.end(now, now));
            now += OPEN_NS;
        }
        assert_eq!(held, ALL_NS);
        let mut halt = open();
        halt.begin(OPEN_NS, OPEN_NS + AGAIN_NS, MS);
        halt.end(OPEN_NS + MS, 0);
        assert_eq!(halt.left_ns, ALL_NS - MS, "what was not taken is left");
    }

    #[test]
    fn who_forks_over_and_over_is_held_for_a_part_of_the_time() {
        let mut halt = Halt::of(false);
        halt.note_fork(OPEN_NS);
        assert!(halt.may_again(OPEN_NS, OPEN_NS) && halt.left_ns == ALL_NS);
        halt.left_ns = 0;
        for now in (OPEN_NS..OPEN_NS + 400 * MS).step_by(MS as usize) {
            halt.note_fork(now);
        }
        assert!(halt.left_ns <= 100 * MS, "{}", halt.left_ns);
    }

    #[test]
    fn what_takes_long_is_not_done_again() {
        let mut halt = open();
        halt.begin(OPEN_NS, OPEN_NS + AGAIN_NS, AGAIN_NS / WORTH + 1);
        halt.end(OPEN_NS + AGAIN_NS, 0);
        assert!(!halt.may_again(u64::MAX, u64::MAX));
    }
}
