//! What a child of fork still holds as its parent does, so that it counts once: without a walk.
//!
//! All that it held when it was born. A store makes a copy, and that is a fault: so for each fault it
//! has a page less at most, but for faults by which it grew. What its parent does the launcher sees,
//! and lends less then. When the parent has ended the child has everything by itself.

use core::sync::atomic::Ordering;

use overspill_engine::shared::{Loan, Process};
use overspill_sys::{PAGE_SIZE, mem};

/// The books.
#[derive(Default)]
pub(super) struct Borrowing {
    since: Option<Since>,
}

/// When a loan was first seen.
struct Since {
    faults: u32,
    held: u64,
    parent: u32,
    /// The most pages that were copied by any look.
    copies: u64,
}

impl Borrowing {
    /// Of a process that a fork has just made, and that holds `held` bytes.
    pub(super) fn begin(process: &Process, held: u64) -> Borrowing {
        let pages = u32::try_from(held / PAGE_SIZE as u64).unwrap_or(u32::MAX);
        // First, as who has a loan is believed what it says of it.
        process.borrowed_bytes.store(held, Ordering::Release);
        process.loan.store(Loan { pages, faults: 0 }.word(), Ordering::Release);
        Borrowing::default()
    }

    /// What it has of its loan while it holds `held` bytes.
    pub(super) fn look(&mut self, process: &Process, held: u64) -> u64 {
        match Loan::of(process.loan.load(Ordering::Acquire)) {
            Some(loan) => self.borrowed(loan, held, mem::minor_faults(), mem::parent_id()),
            None => 0,
        }
    }

    fn borrowed(&mut self, loan: Loan, held: u64, faults: u32, parent: u32) -> u64 {
        if self.since.as_ref().is_none_or(|since| since.faults != loan.faults) {
            self.since = Some(Since { faults: loan.faults, held, parent, copies: 0 });
        }
        let since = self.since.as_mut().expect("it was just made");
        let growth = held.saturating_sub(since.held) / PAGE_SIZE as u64;
        let copies = u64::from(faults.wrapping_sub(loan.faults)).saturating_sub(growth);
        since.copies = since.copies.max(copies);
        let is_orphan = parent != since.parent;
        let pages = if is_orphan { 0 } else { u64::from(loan.pages).saturating_sub(since.copies) };
        (pages * PAGE_SIZE as u64).min(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_SIZE as u64;

    #[test]
    fn who_reads_has_all_of_it_and_each_copy_is_its_own() {
        let (mut borrowing, loan) = (Borrowing::default(), Loan { pages: 1000, faults: 0 });
        assert_eq!(borrowing.borrowed(loan, 1010 * PAGE, 30, 7), 970 * PAGE, "what it began with");
        assert_eq!(borrowing.borrowed(loan, 1010 * PAGE, 400, 7), 600 * PAGE);
        assert_eq!(borrowing.borrowed(loan, 2010 * PAGE, 1400, 7), 600 * PAGE, "it grew");
        assert_eq!(borrowing.borrowed(loan, 1010 * PAGE, 1500, 7), 0, "and freed that");
        assert_eq!(borrowing.borrowed(loan, 2010 * PAGE, 1500, 7), 0, "what was copied stays so");
    }

    #[test]
    fn it_holds_no_more_than_it_has_and_nothing_of_who_has_ended() {
        let (mut borrowing, loan) = (Borrowing::default(), Loan { pages: 1000, faults: 4_294_967_290 });
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, 4, 7), 990 * PAGE, "the number wraps");
        assert_eq!(borrowing.borrowed(loan, 500 * PAGE, 4, 7), 500 * PAGE);
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, 4, 1), 0);
        let anew = Loan { pages: 300, faults: 4 };
        assert_eq!(borrowing.borrowed(anew, 1000 * PAGE, 14, 1), 290 * PAGE, "the launcher knows better");
    }
}
