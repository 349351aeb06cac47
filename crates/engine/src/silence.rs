//! A child that is attended to and says nothing: for how long that is waited for.
//!
//! Whoever else touches what is out waits meanwhile. On a busy machine a child needs long for a step, and
//! who gives it copies then makes the machine busier. So it is looked what it is about. One that is stopped
//! says nothing before somebody lets it go on. And one that nobody announced never does: before the first
//! question a child has one thread that waits for nothing but the processor, and needs that for little.
//! Such a look may take another child for this one, which costs copies, and nothing else.

use overspill_sys::children::{self, Look};
use overspill_sys::clock;

/// Whatever it is about, this is too long.
const MOST_NS: u64 = 5_000_000_000;
/// When it is looked first and how often from then on, and so many looks in a row tell enough.
const FIRST_NS: u64 = 15_000_000;
const AGAIN_NS: u64 = 5_000_000;
const LOOKS: u32 = 3;
/// With thousands of children a look takes long: a fifth of the time at most, as who waits for a page waits.
const LOOKS_SHARE: u64 = 4;
/// Between the reading and the taking of the time the agent may have been put off for so long.
const PUT_OFF_NS: u64 = 100_000_000;
/// More than this no child computes before its first question.
const COMPUTES_NS: u64 = 25_000_000;

/// A silence.
pub(crate) struct Silence {
    /// When the child was made at the earliest, as /proc has moments.
    born: u64,
    since: u64,
    next: u64,
    /// Looks in a row at which somebody stood still, and for how long all had run by then.
    still: u32,
    ran_ns: u64,
}

/// What a look says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    is_stopped: bool,
    /// A child sleeps where one that asks would not, or has computed for long.
    is_idle: bool,
    is_strange: bool,
    ran_ns: u64,
}

impl Seen {
    /// `has_asked`: this one has.
    fn add(&mut self, look: Look, has_asked: bool) {
        let is_alone = !has_asked && look.threads == 1;
        self.is_stopped |= look.is_stopped;
        self.is_idle |= is_alone && look.is_asleep;
        self.is_strange |= is_alone && look.ran_ns > COMPUTES_NS;
        self.ran_ns += look.ran_ns;
    }
}

impl Silence {
    /// Of a child whose fork was read of at `told` or a little before, as /proc has moments.
    ///
    /// *The story:* that was when the child was attended to. Beside another thread's fork it had been made
    /// some 20 ms before, was found nowhere, and was waited for all the same.
    pub fn begin(now: u64, told: u64) -> Silence {
        Silence {
            born: told.saturating_sub(PUT_OFF_NS),
            since: now,
            next: now + FIRST_NS,
            still: 0,
            ran_ns: 0,
        }
    }

    /// It said something.
    pub fn is_broken(&mut self, now: u64) {
        (self.since, self.next, self.still) = (now, now + FIRST_NS, 0);
    }

    /// It touched something, and got that: it did not stand still.
    pub fn is_served(&mut self) {
        self.still = 0;
    }

    /// Is it over with waiting? `has_asked`: the child has said something before.
    pub fn lasts_too_long(&mut self, now: u64, has_asked: bool) -> bool {
        if now < self.next {
            return false;
        }
        let mut seen = Seen::default();
        let _ = children::for_each_young(self.born, |look| seen.add(look, has_asked));
        let took = clock::monotonic_ns().saturating_sub(now);
        self.next = now + took + AGAIN_NS.max(took * LOOKS_SHARE);
        self.tells(now, seen)
    }

    /// One that is traced is stopped at each of its calls: it runs in between.
    fn tells(&mut self, now: u64, seen: Seen) -> bool {
        let has_run = seen.ran_ns != self.ran_ns && self.ran_ns > 0;
        let stands_still = seen.is_idle || seen.is_stopped && !has_run;
        self.still = if stands_still || seen.is_strange { self.still + 1 } else { 0 };
        self.ran_ns = seen.ran_ns;
        self.still >= LOOKS || now - self.since >= MOST_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const RUNS: Look = Look { is_stopped: false, is_asleep: false, threads: 2, ran_ns: 5 * MS };

    /// When it is over with waiting for who looks so at each moment, at most within so many ms.
    fn over(has_asked: bool, look: impl Fn(u64) -> Look) -> Option<u64> {
        let mut silence = Silence::begin(0, 0);
        let mut moments = (FIRST_NS / MS..6000).step_by((AGAIN_NS / MS) as usize);
        moments.find(|ms| {
            let mut seen = Seen::default();
            seen.add(look(*ms), has_asked);
            silence.tells(ms * MS, seen)
        })
    }

    #[test]
    fn who_is_stopped_is_waited_for_three_looks() {
        let stopped = Look { is_stopped: true, ..RUNS };
        assert_eq!((over(false, |_| stopped), over(true, |_| stopped)), (Some(25), Some(25)));
    }

    #[test]
    fn who_is_traced_goes_on_in_between() {
        let traced = |ms| Look { is_stopped: true, ran_ns: ms * MS / 100, ..RUNS };
        assert_eq!(over(true, traced), Some(5000));
    }

    #[test]
    fn who_sleeps_alone_or_computes_does_not_ask() {
        let sleeps = Look { is_asleep: true, threads: 1, ..RUNS };
        assert_eq!((over(false, |_| sleeps), over(true, |_| sleeps)), (Some(25), Some(5000)));
        let computes = |ms| Look { threads: 1, ran_ns: ms * MS, ..RUNS };
        assert_eq!((over(false, computes), over(true, computes)), (Some(40), Some(5000)));
    }

    #[test]
    fn who_waits_for_the_processor_is_waited_for() {
        assert_eq!(over(false, |_| Look { threads: 1, ..RUNS }), Some(5000));
        assert_eq!(over(false, |_| Look { is_asleep: true, ..RUNS }), Some(5000), "its agent begins");
    }

    #[test]
    fn a_word_begins_it_anew() {
        let mut silence = Silence::begin(0, 0);
        let seen = Seen { is_stopped: true, ..Seen::default() };
        assert!(!silence.tells(20 * MS, seen) && !silence.tells(30 * MS, seen));
        silence.is_broken(35 * MS);
        assert!(!silence.tells(60 * MS, seen) && !silence.tells(65 * MS, seen));
        silence.is_served();
        assert!(!silence.tells(70 * MS, seen) && !silence.tells(75 * MS, seen));
        assert!(silence.tells(80 * MS, seen));
    }
}
