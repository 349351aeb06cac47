//! Which processor the agent is bound to: the one where lone reads are answered soonest.
//!
//! A device may interrupt one processor only, and whoever waits on another waits longer: with one request under way at a time
//! direct reads took 56 to 67 us on that processor and 91 us on the other of a virtual machine. The kernel's own waiters
//! come there by themselves, since they are woken there; the agent is bound and looks instead of sleeping, and stays where
//! it happened to be. Who interrupts whom cannot be read everywhere, so it is tried.

use overspill_mm::types::Nanos;
use overspill_sys::processors::Processors;

/// So many processors are compared, in turns of so many answers each, so many times: a host and a device have their moods.
const TRIED_MAX: usize = 4;
const ANSWERS: u32 = 64;
const ROUNDS: usize = 12;
/// An answer counts for so many times the usual at most: what waits behind a large write says nothing.
const USUAL_TIMES: Nanos = 2;
/// The usual follows what is seen by this share.
const USUAL_SHARE: Nanos = 32;
/// They are compared again: interrupts can be moved, and a first comparison falls into the time when all is written out. After
/// this time at first, then after twice as long each time, up to the second.
const AGAIN_NS_MIN: Nanos = 1_000_000_000;
const AGAIN_NS_MAX: Nanos = 64_000_000_000;

/// Finds the processor.
pub(crate) struct Trials {
    comparison: Option<Comparison>,
    /// The best one, and until when it is taken for that.
    decided: Option<(u32, Nanos)>,
    again_ns: Nanos,
    usual_ns: Nanos,
}

/// The processors take turns.
struct Comparison {
    processors: [u32; TRIED_MAX],
    count: usize,
    /// What the answers took on each; of earlier comparisons half, a quarter, and so on.
    took_ns: [Nanos; TRIED_MAX],
    /// Turns that are over, and answers in this one.
    turns: usize,
    answers: u32,
}

impl Trials {
    /// Nothing is known.
    pub fn new() -> Self {
        Trials { comparison: None, decided: None, again_ns: AGAIN_NS_MIN, usual_ns: 0 }
    }

    /// Where to be, if `current` is where this thread runs and it may run on `allowed`.
    pub fn place(&self, current: u32, allowed: &Processors) -> u32 {
        let compared = self.comparison.as_ref().map(Comparison::processor);
        let wanted = self.decided.map(|(best, _)| best).or(compared).unwrap_or(current);
        if Processors::one(wanted).is_within(allowed) { wanted } else { current }
    }

    /// A lone read was answered on `processor`, so many nanoseconds after its fault. Where to go next, if it is elsewhere.
    pub fn answered(&mut self, processor: u32, took: Nanos, now: Nanos, allowed: &Processors) -> Option<u32> {
        let took = self.clip(took);
        match (&mut self.comparison, self.decided) {
            (_, Some((_, until))) if now < until => return None,
            (_, Some(_)) => self.decided = None,
            (Some(comparison), None) if comparison.processor() == processor => {
                if comparison.count_answer(took) {
                    self.decided = Some((comparison.best(), now.saturating_add(self.again_ns)));
                    self.again_ns = (self.again_ns * 2).min(AGAIN_NS_MAX);
                }
            }
            // It begins, or this thread was not allowed where it should be.
            (comparison, None) => *comparison = Some(Comparison::new(processor, allowed)),
        }
        Some(self.place(processor, allowed)).filter(|&next| next != processor)
    }

    fn clip(&mut self, took: Nanos) -> Nanos {
        let usual = if self.usual_ns == 0 { took } else { self.usual_ns };
        let took = took.min(usual * USUAL_TIMES);
        self.usual_ns = usual - usual / USUAL_SHARE + took / USUAL_SHARE;
        took
    }
}

impl Comparison {
    fn new(first: u32, allowed: &Processors) -> Self {
        let mut processors = [first; TRIED_MAX];
        let mut count = 1;
        while let Some(next) = allowed.after(processors[count - 1])
            && count < TRIED_MAX
            && next != first
        {
            processors[count] = next;
            count += 1;
        }
        Comparison { processors, count, took_ns: [0; TRIED_MAX], turns: 0, answers: 0 }
    }

    fn processor(&self) -> u32 {
        self.processors[self.turns % self.count]
    }

    /// True when all had all their turns: then the next comparison begins.
    fn count_answer(&mut self, took: Nanos) -> bool {
        self.took_ns[self.turns % self.count] += took;
        self.answers += 1;
        if self.answers == ANSWERS {
            self.answers = 0;
            self.turns += 1;
        }
        let is_over = self.turns == self.count * ROUNDS;
        if is_over {
            self.turns = 0;
            self.took_ns.iter_mut().for_each(|took| *took /= 2);
        }
        is_over
    }

    fn best(&self) -> u32 {
        let best = (0..self.count).min_by_key(|&at| self.took_ns[at]).expect("one at least is compared");
        self.processors[best]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(count: u32) -> Processors {
        (0..count).map(Processors::one).reduce(|all, one| all.with(&one)).unwrap()
    }

    /// Answers on a machine where each processor takes its own time; the places where the agent was.
    fn course(
        trials: &mut Trials,
        start: u32,
        allowed: &Processors,
        now: Nanos,
        took: impl Fn(u32, u32) -> Nanos,
    ) -> Vec<u32> {
        let mut places = vec![start];
        for number in 0..TRIED_MAX as u32 * ANSWERS * ROUNDS as u32 + 2 {
            let here = places[places.len() - 1];
            places.extend(trials.answered(here, took(here, number), now, allowed));
        }
        places
    }

    #[test]
    fn the_processor_of_the_interrupt_is_found() {
        for best in 0..2 {
            // Now and then something waits behind a write; the machine gets slower and slower.
            let took = |processor, number: u32| {
                let stall = if number.is_multiple_of(97) { 1_500_000 } else { 0 };
                Nanos::from(number) * 20 + stall + if processor == best { 60_000 } else { 66_000 }
            };
            let mut trials = Trials::new();
            let places = course(&mut trials, 0, &all(2), 0, took);
            assert_eq!(places.last(), Some(&best), "{places:?}");
            assert_eq!(trials.place(1 - best, &all(2)), best);
            assert_eq!(trials.place(5, &Processors::one(5)), 5, "it may not be there");
            assert_eq!(course(&mut trials, best, &all(2), AGAIN_NS_MIN - 1, |_, _| 1), [best]);
            // The interrupt is moved. At first the earlier comparison still counts.
            let moved = |processor, number| took(1 - processor, number);
            let again = (1..4).fold(best, |here, again| {
                *course(&mut trials, here, &all(2), again * AGAIN_NS_MAX, moved).last().unwrap()
            });
            assert_eq!(again, 1 - best);
        }
    }

    #[test]
    fn no_more_than_a_few_are_tried() {
        let mut trials = Trials::new();
        let places = course(&mut trials, 62, &all(100), 0, |processor, _| 60_000 + Nanos::from(processor));
        assert_eq!(places[..5], [62, 63, 64, 65, 62]);
        assert_eq!(places.iter().max(), Some(&65));
        assert_eq!(places.last(), Some(&62));
    }

    #[test]
    fn one_processor_is_no_choice() {
        assert_eq!(course(&mut Trials::new(), 3, &Processors::one(3), 0, |_, _| 1), [3]);
    }

    /// Whoever binds the agent elsewhere in the middle of a comparison does no harm: it begins again.
    #[test]
    fn a_comparison_can_be_broken_off() {
        let mut trials = Trials::new();
        for turn in 0..20 {
            trials.answered(turn % 3, 55_000, 0, &all(3));
        }
        let places =
            course(&mut trials, 0, &all(3), 0, |processor, _| if processor == 2 { 50_000 } else { 60_000 });
        assert_eq!(places.last(), Some(&2));
    }
}
