//! Reads of many pages give way to faults that wait for a few.
//!
//! A device and a pager serve whoever asks first. A thread that reads in sequence asks for a window
//! at a time, one that jumps about for a page, and in turns the first gets sixteen pages for each
//! of the second's. The more a stream is given the sooner it is back, so that random threads beside
//! sequential ones ran at less than half of what the kernel's single pages leave them.
//!
//! So a large read pays for its place: it starts when as many small reads have started since the
//! last one as it is worth, or when no small read is under way. Alone, or among its like, a stream
//! is never held up.

use alloc::collections::VecDeque;

use crate::event::{IoId, Run};
use crate::types::Slot;

/// A read of more pages is large.
const SMALL_MAX: u32 = 8;
/// Pages of a large read that are worth a small one.
const PAGES_PER_SMALL: u32 = 5;
/// What a large read is worth at the most, in small ones: a long one must not wait for long.
const WORTH_MAX: u32 = 16;

/// A read that has not been ordered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub io: IoId,
    pub run: Run,
    pub slot: Slot,
}

/// Which reads wait, and why.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Small reads under way.
    small: u32,
    /// Small reads that must start before the next large one does.
    debt: u32,
    held: VecDeque<Held>,
}

impl Pace {
    /// May the read start now? If not it is kept until [`Pace::release`] gives it.
    pub fn admit(&mut self, read: Held) -> bool {
        if read.run.count <= SMALL_MAX {
            self.small += 1;
            self.debt = self.debt.saturating_sub(1);
            return true;
        }
        if !self.held.is_empty() || !self.is_clear() {
            self.held.push_back(read);
            return false;
        }
        self.charge(read.run);
        true
    }

    /// A read that had started ended.
    pub fn ended(&mut self, run: Run) {
        if run.count <= SMALL_MAX {
            self.small -= 1;
        }
    }

    /// A read that may start by now, the one that waits longest. To be called until there is none.
    pub fn release(&mut self) -> Option<Held> {
        if !self.is_clear() {
            return None;
        }
        let read = self.held.pop_front()?;
        self.charge(read.run);
        Some(read)
    }

    fn is_clear(&self) -> bool {
        self.small == 0 || self.debt == 0
    }

    fn charge(&mut self, run: Run) {
        self.debt += (run.count / PAGES_PER_SMALL).min(WORTH_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::PageId;

    fn read(io: u32, count: u32) -> Held {
        Held { io: IoId(io), run: Run { first: PageId(io * 1000 + 1), count }, slot: Slot(io * 1000 + 1) }
    }

    #[test]
    fn streams_among_themselves_never_wait() {
        let mut pace = Pace::default();
        assert!((0..100).all(|io| pace.admit(read(io, 256))));
    }

    #[test]
    fn a_large_read_waits_until_small_ones_were_served_for_the_last() {
        let mut pace = Pace::default();
        assert!(pace.admit(read(0, 1)) && pace.admit(read(1, 16)));
        assert!(!pace.admit(read(2, 16)) && !pace.admit(read(3, 16)));
        for io in 10..12 {
            assert!(pace.admit(read(io, 1)));
            assert_eq!(pace.release(), None);
        }
        assert!(pace.admit(read(13, 2)));
        assert_eq!(pace.release(), Some(read(2, 16)));
        assert_eq!(pace.release(), None);
    }

    #[test]
    fn with_the_last_small_read_all_start_in_their_order() {
        let mut pace = Pace::default();
        assert!(pace.admit(read(0, 4)) && pace.admit(read(1, 1)) && pace.admit(read(2, 64)));
        assert!(!pace.admit(read(3, 64)) && !pace.admit(read(4, 64)));
        pace.ended(read(0, 4).run);
        assert_eq!(pace.release(), None);
        pace.ended(read(1, 1).run);
        assert_eq!(pace.release(), Some(read(3, 64)));
        assert_eq!(pace.release(), Some(read(4, 64)));
        assert_eq!(pace.release(), None);
        assert!(pace.admit(read(5, 64)));
    }
}
