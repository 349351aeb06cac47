//! What children of fork have as this process does, for the time until the launcher has counted what was
//! stored to it since: such a copy leaves the page that was there to the children.
//!
//! The launcher tells how much the children have, and up to which of this process's faults it has counted.
//! What has been copied since then is owed: it counts here, so that there is room for it at once.

use core::sync::atomic::{AtomicU64, Ordering};

use overspill_engine::shared::{Loan, state, told_faults};
use overspill_sys::{PAGE_SIZE, mem};

use super::Agent;
use super::churn::Sight;
use super::copies::Copies;
use crate::{filters, fork};

/// Whoever has just forked lends all it has for so long, whatever the launcher knows of the child.
const NEW_NS: u64 = 300_000_000;

/// A copy that may call exec at once has no more of its own.
const YOUNG_OWN_BYTES: u64 = 2 << 20;

/// The books.
#[derive(Default)]
pub(super) struct Lending {
    /// Forks that had ended at the last look, and what was lent at the last of them, until then.
    forks: u32,
    new: Loan,
    new_until: u64,
    copies: Option<Copies>,
    /// The last fork made its only child, as far as is known.
    has_one_child: bool,
    /// Faults, and what was held, at the last look.
    faults: u32,
    held: u64,
}

/// Pages that children have, too, at most; and how many of them were copied and are not counted with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lent {
    pages: u64,
    owed: u64,
    /// What is left with the only child, for that one to count: see [`super::left`].
    left: Option<Loan>,
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
    /// Children that the launcher knows of; and what the only one counts of what was left with it.
    heirs: u64,
    taken: Option<Loan>,
}

impl Lending {
    /// Of who has so many forks behind it.
    pub(super) fn since(forks: u32) -> Lending {
        Lending { forks, ..Lending::default() }
    }

    /// `told`: the launcher's word.
    fn look(&mut self, told: Option<Loan>, seen: Seen) -> Lent {
        let Seen { now, held, pages, forks, faults, heirs, taken } = seen;
        if forks != self.forks {
            self.has_one_child = forks == self.forks.wrapping_add(1) && heirs == 0 && !self.lends(now);
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
        let copied = copies.pages().min(pages);
        let is_only = if new.is_some() { self.has_one_child && heirs <= 1 } else { heirs == 1 };
        let left = is_only.then_some(Loan { pages: copied as u32, faults: loan.faults });
        let taken = taken.filter(|taken| taken.faults == loan.faults).map_or(0, |taken| taken.pages.into());
        Lent { pages, owed: copied.saturating_sub(taken), left }
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
        let told = |word: &AtomicU64| Loan::of(word.load(Ordering::Acquire));
        let (heirs, taken) = (self.process.heirs.load(Ordering::Acquire), told(&self.process.taken));
        let seen = Seen { now, held, pages, forks: fork::ended(), faults, heirs, taken };
        let Lent { pages, owed, left } = self.lending.look(told(&self.process.lent), seen);
        self.process.left.store(left.filter(|_| self.purse.lends()).map_or(0, Loan::word), Ordering::Release);
        self.purse.lend(pages * PAGE_SIZE as u64, owed * PAGE_SIZE as u64);
        if self.purse.excess(0) == 0 {
            self.borrowing.left().may_stay();
        }
        self.purse.leave(self.borrowing.left().pending());
        self.grow_up(held, now);
    }

    /// A copy counts from now on that has so much of its own: it is not about to call exec.
    ///
    /// *The story:* a child stored to all that it had inherited, at the speed of memory. Nobody looked at
    /// that for 20 ms.
    ///
    /// Not where files may be managed: what it has of those that fit is not known to be its parent's yet.
    /// *The story:* a child's budget was so tight at its first look that they were managed (`torture
    /// file-kept-fork`).
    fn grow_up(&mut self, held: u64, now: u64) {
        let has_loan = self.process.loan.load(Ordering::Acquire) != 0;
        let keeps_files = self.shared.config.files_min_bytes > 0;
        if now < self.counts_from && has_loan && !keeps_files && self.purse.own(held) > YOUNG_OWN_BYTES {
            self.counts_from = now;
        }
    }

    /// Has it forked just now, and could store to more than is free?
    ///
    /// *The story:* this thread was put off right after a fork, while the program filled fresh memory, of
    /// which nobody hears before the pause of the fork is over: 84 to 88 MiB in 64.
    pub(super) fn may_copy_all(&self, now: u64) -> bool {
        self.has_forked(now) && self.purse.could_copy_all()
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
        Seen { now, held: held * PAGE, pages: false, forks, faults, heirs: 2, taken: None }
    }

    /// See [`overspill_engine::purse::Purse::lend`].
    #[test]
    fn what_is_copied_is_owed_until_the_launcher_has_counted_it() {
        let mut lending = Lending::default();
        let lent = |pages, owed| Lent { pages, owed, left: None };
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

    /// See [`super::super::left`].
    #[test]
    fn an_only_child_counts_what_is_left() {
        let mut lending = Lending::default();
        let loan = |pages, faults| Some(Loan { pages, faults });
        let seen = |now, forks, faults, heirs, taken| Seen { heirs, taken, ..seen(now, 1000, forks, faults) };
        lending.look(None, seen(1, 0, 9000, 0, None));
        let Lent { owed, left, .. } = lending.look(None, seen(2, 1, 9030, 0, None));
        assert_eq!((owed, left), (30, loan(30, 9000)), "it is not known yet");
        let told = loan(990, 9010);
        let Lent { owed, left, .. } = lending.look(told, seen(3, 1, 9050, 1, loan(20, 9000)));
        assert_eq!((owed, left), (40, loan(40, 9010)), "what was taken is of another word");
        let Lent { owed, left, .. } = lending.look(told, seen(4, 1, 9050, 1, loan(35, 9010)));
        assert_eq!((owed, left), (5, loan(40, 9010)));
        assert_eq!(lending.look(told, seen(5, 2, 9050, 1, None)).left, None, "there is another one");
        assert_eq!(lending.look(told, seen(5 + NEW_NS, 2, 9050, 2, None)).left, None);
        assert_eq!(lending.look(told, seen(6 + NEW_NS, 2, 9050, 1, None)).left, loan(40, 9010));
    }

    #[test]
    fn what_comes_beside_the_launchers_look_is_growth() {
        let mut lending = Lending::default();
        let loan = |faults| Some(Loan { pages: 800, faults });
        lending.look(loan(100), seen(1, 1000, 0, 100));
        assert_eq!(lending.look(loan(300), seen(2, 1300, 0, 400)).owed, 0);
    }
}
