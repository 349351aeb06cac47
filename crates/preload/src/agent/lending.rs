//! What children of fork have as this process does, for the time until the launcher has counted what was
//! stored to it since: such a copy leaves the page that was there to the children.
//!
//! The launcher tells how much the children have, and up to which of this process's faults it has counted.
//! What has been copied since then is owed: it counts here, so that there is room for it at once.

use core::sync::atomic::Ordering;

use overspill_engine::shared::{Loan, state, told_faults};
use overspill_sys::{PAGE_SIZE, mem};

use super::Agent;
use super::churn::Sight;
use super::copies::Copies;
use crate::{filters, fork};

/// Whoever has just forked lends all it has for so long, whatever the launcher knows of the child.
const NEW_NS: u64 = 300_000_000;

/// The books.
#[derive(Default)]
pub(super) struct Lending {
    /// Forks that had ended at the last look, and what was lent at the last of them, until then.
    forks: u32,
    new: Loan,
    new_until: u64,
    copies: Option<Copies>,
    /// Faults, and what was held, at the last look.
    faults: u32,
    held: u64,
}

/// Pages that children have, too, at most; and how many of them were copied and are not counted with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lent {
    pages: u64,
    owed: u64,
}

/// What a look is made of.
#[derive(Clone, Copy)]
struct Seen {
    now: u64,
    held: u64,
    /// Its memory is managed.
    pages: bool,
    /// Its own: forks that have ended, and faults.
    forks: u32,
    faults: u32,
}

impl Lending {
    /// Of who has so many forks behind it.
    pub(super) fn since(forks: u32) -> Lending {
        Lending { forks, ..Lending::default() }
    }

    /// `told`: the launcher's word.
    fn look(&mut self, told: Option<Loan>, seen: Seen) -> Lent {
        let Seen { now, held, pages, forks, faults } = seen;
        if forks != self.forks {
            // Some was copied since the fork, and what was not counted before that stays so.
            let since = if self.lends(now) { self.new.faults } else { self.faults };
            let all = u32::try_from(held / PAGE_SIZE as u64).unwrap_or(u32::MAX);
            (self.forks, self.new, self.new_until) =
                (forks, Loan { pages: all, faults: since }, now + NEW_NS);
        }
        let new = self.lends(now).then_some(self.new);
        let before = core::mem::replace(&mut self.held, held);
        self.faults = faults;
        let Some(loan) = told.or(new) else {
            self.copies = None;
            return Lent::default();
        };
        let copies = self.copies.take().filter(|copies| copies.is_since(loan.faults));
        // The launcher has seen it since the last look.
        let copies = self.copies.insert(copies.unwrap_or_else(|| Copies::since(loan.faults, before)));
        copies.look(held, pages, faults);
        let most = loan.pages.max(new.map_or(0, |new| new.pages));
        let pages = u64::from(most).min(held / PAGE_SIZE as u64);
        Lent { pages, owed: copies.pages().min(pages) }
    }

    /// Has it just forked?
    fn lends(&self, now: u64) -> bool {
        now < self.new_until
    }
}

impl Agent {
    /// What of `held` bytes is the process's own, and what it could hold of its own now, as far as
    /// others leave it.
    pub(super) fn reach(&mut self, held: u64, now: u64) -> (u64, u64) {
        self.share_with_kin(held, now);
        if now >= self.counts_from {
            self.purse.follow(held, held, 0);
        }
        (self.purse.own(held), self.purse.own_reach())
    }

    /// Finds what of `held` bytes counts with the process's parent, and what counts here besides.
    pub(super) fn share_with_kin(&mut self, held: u64, now: u64) {
        let pages = self.process.state.load(Ordering::Acquire) == state::MANAGING;
        let sight = Sight { now, faults: mem::minor_faults(), held, pages };
        let faults = self.churn.look(sight, now >= self.counts_from && self.purse.shares_much());
        self.process.copying_faults.store(told_faults(faults), Ordering::Release);
        // Behind a filter of the program's no call is made that the program might not make.
        let adopts_nobody = !filters::is_filtered() && !mem::adopts_orphans();
        self.process.adopts_nobody.store(u32::from(adopts_nobody), Ordering::Release);
        // What a child copies is counted by all of its faults: too little of that is an excess.
        self.purse.borrow(self.borrowing.look(self.process, held, pages, sight.faults));
        let told = Loan::of(self.process.lent.load(Ordering::Acquire));
        let seen = Seen { now, held, pages, forks: fork::ended(), faults };
        let Lent { pages, owed } = self.lending.look(told, seen);
        self.purse.lend(pages * PAGE_SIZE as u64, owed * PAGE_SIZE as u64);
    }

    /// Has the process forked just now?
    pub(super) fn has_forked(&self, now: u64) -> bool {
        self.lending.lends(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_SIZE as u64;

    fn seen(now: u64, held: u64, forks: u32, faults: u32) -> Seen {
        Seen { now, held: held * PAGE, pages: false, forks, faults }
    }

    /// See [`overspill_engine::purse::Purse::lend`].
    #[test]
    fn what_is_copied_is_owed_until_the_launcher_has_counted_it() {
        let mut lending = Lending::default();
        let lent = |pages, owed| Lent { pages, owed };
        assert_eq!(lending.look(None, seen(1, 1000, 0, 9000)), lent(0, 0), "it has no children");
        assert_eq!(lending.look(None, seen(2, 1000, 1, 9000)), lent(1000, 0), "it has just forked");
        assert_eq!(lending.look(None, seen(3, 1000, 1, 9100)), lent(1000, 100));
        assert_eq!(lending.look(None, seen(4, 1000, 2, 9200)), lent(1000, 200), "and again");
        let told = Some(Loan { pages: 800, faults: 9200 });
        assert_eq!(lending.look(told, seen(5, 1000, 2, 9250)), lent(1000, 50), "the last one may be unknown");
        assert_eq!(lending.look(told, seen(5 + NEW_NS, 1000, 2, 9250)), lent(800, 50));
        assert_eq!(lending.look(told, seen(6 + NEW_NS, 1400, 2, 9650)), lent(800, 50), "it grew");
        assert_eq!(
            lending.look(told, seen(7 + NEW_NS, 1400, 2, 99_999)),
            lent(800, 800),
            "no more than is lent"
        );
        assert_eq!(lending.look(None, seen(8 + NEW_NS, 1400, 2, 99_999)), lent(0, 0), "they have ended");
    }

    #[test]
    fn what_comes_beside_the_launchers_look_is_growth() {
        let mut lending = Lending::default();
        let loan = |faults| Some(Loan { pages: 800, faults });
        lending.look(loan(100), seen(1, 1000, 0, 100));
        assert_eq!(lending.look(loan(300), seen(2, 1300, 0, 400)).owed, 0);
    }
}
