//! What a parent leaves with its only child: it stores to a page that both have, or takes it out, and what
//! was there is the child's alone by then.
//!
//! The launcher counts that, tens of milliseconds later. Where there is one child that child counts it
//! itself, from a word of its parent's, and says so in another one; and it takes as much out at once, while
//! more is held than there is. Both words are of faults from some number on, which the launcher's word
//! renews.
//!
//! *The story:* a program filled its budget, forked, and stored to all of it. What it took out stayed with
//! its child, of which nobody asked anything for 50 ms.

use core::sync::atomic::Ordering;

use overspill_engine::shared::{Loan, Process};
use overspill_sys::PAGE_SIZE;

/// For so many looks after the last page that was left the next one may be.
const LOOKS: u32 = 8;

/// Of what was left this part may stay at each look that finds room.
const STAYS_SHARE: u64 = 8;

/// The child's books.
#[derive(Default)]
pub(super) struct Left {
    /// What it counts of the parent's word; none before the first look.
    taken: Option<Loan>,
    /// What was left with it, and has not gone since; and what it held at the last look.
    pending: u64,
    held: u64,
    looks: u32,
}

impl Left {
    /// Pages that the parent has left since the last look, while this process holds `held` bytes.
    pub(super) fn look(&mut self, parent: Option<&Process>, held: u64) -> u64 {
        let word = |parent: &Process| Loan::of(parent.left.load(Ordering::Acquire));
        let more = self.take(parent.and_then(word), held);
        if let (Some(parent), Some(taken)) = (parent.filter(|_| more > 0), self.taken) {
            parent.taken.store(taken.word(), Ordering::Release);
        }
        more
    }

    /// What is there at the first look was left with a child before this one.
    ///
    /// *The story* (by reading): a child gave all back that had been left with the one before it.
    fn take(&mut self, left: Option<Loan>, held: u64) -> u64 {
        self.pending = self.pending.saturating_sub(self.held.saturating_sub(held));
        self.held = held;
        self.looks = self.looks.saturating_add(1);
        let none = |faults| Loan { pages: 0, faults };
        let taken = self.taken.get_or_insert(left.unwrap_or(none(0)));
        let Some(left) = left else { return 0 };
        if left.faults != taken.faults {
            *taken = none(left.faults);
        }
        let more = u64::from(left.pages.saturating_sub(taken.pages));
        if more > 0 {
            *taken = left;
            self.pending += more * PAGE_SIZE as u64;
            self.looks = 0;
        }
        more
    }

    /// There is room: what has not gone may stay.
    pub(super) fn may_stay(&mut self) {
        self.pending -= self.pending.div_ceil(STAYS_SHARE);
    }

    /// Bytes that are to go at once while more is held than there is.
    pub(super) fn pending(&self) -> u64 {
        self.pending
    }

    /// Is more likely to be left soon?
    pub(super) fn goes_on(&self) -> bool {
        self.looks < LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_SIZE as u64;

    #[test]
    fn what_was_left_with_another_child_is_not_taken() {
        let word = |pages, faults| Some(Loan { pages, faults });
        let mut left = Left::default();
        assert_eq!((left.take(word(900, 7), 0), left.take(word(900, 7), 0)), (0, 0));
        assert_eq!(left.take(word(20, 9), 0), 20, "since this one was born");
    }

    #[test]
    fn what_was_left_is_taken_once_and_goes() {
        let mut left = Left::default();
        let word = |pages, faults| Some(Loan { pages, faults });
        let mut look = |word, held: u64| (left.take(word, held * PAGE), left.pending() / PAGE);
        assert_eq!(look(None, 1000), (0, 0));
        assert_eq!(look(word(30, 7), 1000), (30, 30));
        assert_eq!(look(word(50, 7), 1000), (20, 50));
        assert_eq!(look(word(50, 7), 960), (0, 10), "40 have gone");
        assert_eq!(look(word(5, 99), 960), (5, 15), "the launcher has counted what was before");
        assert_eq!(look(word(2, 99), 900), (0, 0), "fewer, as some were found to be no copies");
        assert_eq!(look(word(6, 99), 900), (1, 1));
        (0..4).for_each(|_| left.may_stay());
        assert!(left.pending() < PAGE);
        assert!(left.goes_on() && (0..LOOKS).all(|_| left.take(None, 0) == 0) && !left.goes_on());
    }
}
