//! What a child of fork still holds as its parent does, so that it counts once: without a walk.
//!
//! All that it held when it was born, but for what it has copied. What its parent does the launcher sees,
//! and lends less then. When the parent has ended, what it had of its own parent's the
//! child has in common with that one. When no ancestor is left the child has everything by itself.

use core::sync::atomic::Ordering;

use overspill_engine::shared::{Loan, Process};
use overspill_sys::{PAGE_SIZE, mem};

use super::copies::Copies;
use super::left::Left;
use super::{has_elder, parents_place};

/// The books.
#[derive(Default)]
pub(super) struct Borrowing {
    since: Option<Since>,
    left: Left,
}

/// What is known of ancestors.
#[derive(Clone, Copy)]
struct Kin {
    /// The number of the parent.
    parent: u32,
    /// One that lent lives: the parent or who made that, if forks alone lie between.
    ///
    /// *The story:* a daemon's parent ended, as they do. What it had in common with its parent's parent,
    /// 225 MiB of 250, was told as 451, and pages left in vain.
    has_elder: bool,
}

/// When a loan was first seen.
struct Since {
    copies: Copies,
    parent: u32,
    /// What is freed is borrowed no more, whatever comes in its place: no more pages than were left.
    left: u64,
    /// The most pages that were lent, or that it had untouched of what was lent before.
    lent: u64,
    /// Pages that were lent first, less those that the parent has left with this process since.
    shared: u64,
}

impl Since {
    /// What of `held` bytes it came to have by what it did, whoever else has let go of the rest, or has
    /// ended: others may have that still.
    ///
    /// *The story:* children discarded what they had inherited, and filled 30 MiB. At the end nothing was
    /// lent to them, and the most that each had held was told as if it had been its own by then.
    fn made(&self, held: u64) -> u64 {
        held.saturating_sub(self.untouched() * PAGE_SIZE as u64)
    }

    /// Pages that it has as they were lent, if others do.
    fn untouched(&self) -> u64 {
        self.left.min(self.lent.saturating_sub(self.copies.pages()))
    }
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

    /// What it has of its loan while it holds `held` bytes. `pages`: its memory is managed, and comes back
    /// by more than faults, of which it had so many that may have made copies.
    pub(super) fn look(&mut self, process: &Process, held: u64, pages: bool, faults: u32) -> u64 {
        let borrowed = match Loan::of(process.loan.load(Ordering::Acquire)) {
            Some(loan) => {
                let left = self.left.look(parents_place(), held);
                if let Some(since) = &mut self.since {
                    since.shared = since.shared.saturating_sub(left);
                }
                let kin = Kin { parent: mem::parent_id(), has_elder: has_elder() };
                self.borrowed(loan, held, pages, faults, kin)
            }
            None => 0,
        };
        let own = self.since.as_ref().map_or(held, |since| since.made(held));
        process.counters.own_peak_bytes.fetch_max(own, Ordering::Relaxed);
        borrowed
    }

    /// What its parent has left with it: see [`Left`].
    pub(super) fn left(&mut self) -> &mut Left {
        &mut self.left
    }

    fn borrowed(&mut self, loan: Loan, held: u64, pages: bool, faults: u32, kin: Kin) -> u64 {
        let Kin { parent, has_elder } = kin;
        if self.since.as_ref().is_none_or(|since| !since.copies.is_since(loan.faults)) {
            let lent = self.since.as_ref().map_or(0, Since::untouched);
            let copies = Copies::since(loan.faults, held);
            self.since = Some(Since { copies, parent, left: u64::MAX, lent, shared: loan.pages.into() });
        }
        let since = self.since.as_mut().expect("it was just made");
        since.lent = since.lent.max(u64::from(loan.pages));
        if since.copies.look(held, pages, faults) {
            since.left = since.left.min(held / PAGE_SIZE as u64);
        }
        let is_orphan = parent != since.parent && !has_elder;
        let shared = since.shared.min(loan.pages.into());
        let pages = if is_orphan { 0 } else { shared.saturating_sub(since.copies.pages()) };
        (pages.min(since.left) * PAGE_SIZE as u64).min(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_SIZE as u64;

    /// Of that parent, and nobody else.
    fn of(parent: u32) -> Kin {
        Kin { parent, has_elder: false }
    }

    /// See [`Kin::has_elder`].
    #[test]
    fn what_a_parent_had_of_its_parents_is_that_ones() {
        let (mut borrowing, loan) = (Borrowing::default(), Loan { pages: 1000, faults: 0 });
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, true, 0, of(7)), 1000 * PAGE);
        let elder = Kin { parent: 1, has_elder: true };
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, true, 100, elder), 900 * PAGE);
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, true, 100, of(1)), 0, "that one has ended, too");
    }

    #[test]
    fn who_reads_has_all_of_it_and_each_copy_is_its_own() {
        let (mut borrowing, loan) = (Borrowing::default(), Loan { pages: 1000, faults: 0 });
        assert_eq!(borrowing.borrowed(loan, 1010 * PAGE, true, 30, of(7)), 970 * PAGE, "what it began with");
        assert_eq!(borrowing.borrowed(loan, 1010 * PAGE, true, 400, of(7)), 600 * PAGE);
        assert_eq!(borrowing.borrowed(loan, 2010 * PAGE, true, 1400, of(7)), 600 * PAGE, "it grew");
        assert_eq!(borrowing.borrowed(loan, 1010 * PAGE, true, 1500, of(7)), 0, "and freed that");
        assert_eq!(borrowing.borrowed(loan, 2010 * PAGE, true, 1500, of(7)), 0, "what was copied stays so");
    }

    #[test]
    fn it_holds_no_more_than_it_has_and_nothing_of_who_has_ended() {
        let (mut borrowing, loan) = (Borrowing::default(), Loan { pages: 1000, faults: 4_294_967_290 });
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, true, 4, of(7)), 990 * PAGE, "the number wraps");
        assert_eq!(borrowing.borrowed(loan, 500 * PAGE, true, 4, of(7)), 500 * PAGE);
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, true, 4, of(1)), 0);
        let anew = Loan { pages: 300, faults: 4 };
        assert_eq!(
            borrowing.borrowed(anew, 1000 * PAGE, true, 14, of(1)),
            290 * PAGE,
            "the launcher knows better"
        );
    }

    /// *The story:* who filled a buffer and freed it was said to have copied as much. Children of children
    /// that held 139 MiB of 200 paged 37,000 pages.
    #[test]
    fn what_is_freed_again_was_no_copy() {
        let (mut borrowing, loan) = (Borrowing::default(), Loan { pages: 1000, faults: 0 });
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, false, 0, of(7)), 1000 * PAGE);
        assert_eq!(borrowing.borrowed(loan, 3000 * PAGE, false, 2000, of(7)), 1000 * PAGE);
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, false, 2000, of(7)), 1000 * PAGE);
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, false, 2100, of(7)), 900 * PAGE);
        // The kernel's figure wavers.
        for _ in 0..100 {
            borrowing.borrowed(loan, 1100 * PAGE, false, 2100, of(7));
            assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, false, 2100, of(7)), 900 * PAGE);
        }
        // What was out comes back by a fault for many.
        assert_eq!(borrowing.borrowed(loan, 400 * PAGE, true, 2100, of(7)), 400 * PAGE);
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, true, 2110, of(7)), 890 * PAGE);
    }

    /// *A review's story:* a child freed what it had inherited, and filled as much. That was its parent's.
    #[test]
    fn what_comes_in_place_of_what_was_freed_is_its_own() {
        let (mut borrowing, loan) = (Borrowing::default(), Loan { pages: 1000, faults: 0 });
        assert_eq!(borrowing.borrowed(loan, 1000 * PAGE, false, 0, of(7)), 1000 * PAGE);
        assert_eq!(borrowing.borrowed(loan, 10 * PAGE, false, 0, of(7)), 10 * PAGE);
        assert_eq!(borrowing.borrowed(loan, 1010 * PAGE, false, 1000, of(7)), 10 * PAGE);
    }

    /// See [`Since::made`].
    #[test]
    fn what_others_let_go_of_it_has_not_made() {
        let (mut borrowing, loan) = (Borrowing::default(), Loan { pages: 1000, faults: 0 });
        let mut made = |loan, held: u64, faults, kin| {
            borrowing.borrowed(loan, held * PAGE, false, faults, kin);
            borrowing.since.as_ref().unwrap().made(held * PAGE) / PAGE
        };
        assert_eq!(made(loan, 1000, 0, of(7)), 0);
        assert_eq!(made(loan, 1000, 100, of(7)), 100, "it stored to these");
        assert_eq!(made(Loan { pages: 300, faults: 0 }, 1000, 100, of(7)), 100, "its parent let go of some");
        assert_eq!(made(loan, 1000, 100, of(1)), 100, "and has ended");
        assert_eq!(made(loan, 10, 100, of(1)), 0, "it discarded them");
        assert_eq!(made(loan, 310, 400, of(1)), 300);
        assert_eq!(made(Loan { pages: 0, faults: 400 }, 310, 400, of(1)), 300, "nothing is known to be lent");
    }
}
