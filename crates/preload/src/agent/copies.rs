//! How many pages a process that shares some with others has made copies of, by what the kernel counts.
//!
//! A store to a shared page makes a copy, and that is a fault: so there are as many at most, but for faults
//! by which the process grew, were that freed again.

use overspill_sys::PAGE_SIZE;

/// Who holds so much less has freed some. The kernel's own figure goes up and down by less.
const FREED_BYTES: u64 = 1 << 20;

/// The books, from some number of faults on.
pub(super) struct Copies {
    faults: u32,
    /// What was held then, or after much was freed; the most since; and by how much it had grown before
    /// that was freed.
    held: u64,
    high: u64,
    grown: u64,
    /// The most pages that any look found, and the faults that it was told.
    most: u64,
    last: u32,
}

impl Copies {
    /// From there on, of who held so many bytes.
    pub(super) fn since(faults: u32, held: u64) -> Copies {
        Copies { faults, held, high: held, grown: 0, most: 0, last: faults }
    }

    /// Are they counted from there on?
    pub(super) fn is_since(&self, faults: u32) -> bool {
        self.faults == faults
    }

    /// It has had so many faults by now, and holds so much. True if much was freed since the last look.
    /// `pages`: its memory is managed, and comes back by more than faults.
    ///
    /// Faults that were told are less again when they are found to be [`Churn`](super::churn::Churn).
    pub(super) fn look(&mut self, held: u64, pages: bool, faults: u32) -> bool {
        let found = self.last.wrapping_sub(faults).cast_signed().max(0);
        self.most = self.most.saturating_sub(u64::from(found.unsigned_abs()));
        self.last = faults;
        self.high = self.high.max(held);
        let has_freed = !pages && held + FREED_BYTES < self.high;
        if has_freed {
            self.grown += self.high - self.held;
            (self.held, self.high) = (held, held);
        }
        let growth = (self.grown + held.saturating_sub(self.held)) / PAGE_SIZE as u64;
        // Less than there were then, where those have been found to be churn.
        let more = faults.wrapping_sub(self.faults).cast_signed().max(0).unsigned_abs();
        self.most = self.most.max(u64::from(more).saturating_sub(growth));
        has_freed
    }

    /// So many pages were copied.
    pub(super) fn pages(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_to_be_churn_was_no_copy() {
        const PAGE: u64 = PAGE_SIZE as u64;
        let mut copies = Copies::since(100, 1000 * PAGE);
        let mut look = |held: u64, faults| {
            copies.look(held * PAGE, true, faults);
            copies.pages()
        };
        assert_eq!([look(1000, 700), look(2000, 750)], [600, 600], "what has come back is no growth");
        assert_eq!([look(2000, 650), look(1000, 400), look(1000, 450)], [500, 300, 350]);
        assert_eq!([look(1000, 50), look(1000, 120)], [0, 20]);
    }
}
