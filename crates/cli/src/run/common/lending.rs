//! What children of fork have as loans of their parents' memory, so that each page counts once: the
//! parent counts it, as long as it has it.
//!
//! A child's agent sees what the child copies (`overspill_engine::shared::Loan`). What the parent
//! copies, or drops, is the children's from then on, and their loans become less: each by its part of
//! what its parent had of faults without a device, but for those by which it grew, or has less now,
//! whichever is more. Both are estimates that only go up; a walk of all page tables of a family says
//! how it is, and loans begin anew from there.
//!
//! It reads nothing itself and has no clock: whoever feeds it does.

use std::collections::{BTreeMap, BTreeSet};

use overspill_engine::shared::Loan;

const PAGE_BYTES: u64 = 4096;

/// A child that has a loan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Borrower {
    /// The process.
    pub pid: u32,
    /// Which claim of which place it has.
    pub claim: (usize, u32),
    /// Who lends: who has made it, or an ancestor of that one which has ended; 0: nobody.
    pub parent: u32,
    /// The loan as it stands there.
    pub word: u64,
    /// What it holds beside the loan.
    pub own_bytes: u64,
}

/// What is known of a parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lender {
    /// Tells its program from others that the process runs later.
    pub program_pages: u32,
    /// Faults without a device, since it began, that may have made copies.
    pub faults: u64,
    /// What it holds.
    pub anon_bytes: u64,
}

/// A word that is to be put into the place of a claim.
pub type Word = ((usize, u32), u64);

/// What each parent lends.
pub type Lent = BTreeMap<u32, Lends>;

/// The most that a parent lends to any child, and the faults of its own up to which its copies are counted
/// with its children; and how many of these there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lends {
    /// The most.
    pub most: Loan,
    /// Children.
    pub heirs: u64,
}

/// The books, by process.
#[derive(Default)]
pub struct Lending {
    given: BTreeMap<u32, Given>,
    /// What borrowers had beside their loans, those that have ended, too, while somebody borrows of them.
    own_bytes: BTreeMap<u32, u64>,
    /// A loan passed to another lender.
    has_passed: bool,
}

struct Given {
    claim: (usize, u32),
    parent: u32,
    /// The loan as it was given, and its parent then.
    loan: Loan,
    lender: Lender,
    /// Pages that the parent has not in common with it any more, and its faults when that was seen.
    gone: u64,
    seen: u64,
}

impl Lending {
    /// All that have loans, with a way to look at a parent. Returns the loans that are to be changed, and
    /// what each parent lends.
    pub fn look(
        &mut self,
        borrowers: &[Borrower],
        mut lender: impl FnMut(u32) -> Option<Lender>,
    ) -> (Vec<Word>, Lent) {
        let there: BTreeSet<_> = borrowers.iter().map(|borrower| (borrower.pid, borrower.claim)).collect();
        self.given.retain(|&pid, given| there.contains(&(pid, given.claim)));
        self.own_bytes.retain(|pid, _| self.given.values().any(|given| given.parent == *pid));
        let mut families: BTreeMap<u32, (Option<Lender>, u64)> = BTreeMap::new();
        for borrower in borrowers {
            families.entry(borrower.parent).or_insert_with(|| (lender(borrower.parent), 0)).1 += 1;
        }
        let mut lent = Lent::new();
        let word = |borrower: &Borrower| {
            let (lender, children) = families[&borrower.parent];
            let loan = self.loan(borrower, lender, children)?;
            if let Some(lender) = lender {
                let faults = lender.faults as u32;
                let first = Lends { most: Loan { pages: 0, faults }, heirs: children };
                let Lends { most, .. } = lent.entry(borrower.parent).or_insert(first);
                most.pages = most.pages.max(loan.pages);
            }
            (loan.word() != borrower.word).then_some((borrower.claim, loan.word()))
        };
        let words = borrowers.iter().filter_map(word).collect();
        self.own_bytes.extend(borrowers.iter().map(|borrower| (borrower.pid, borrower.own_bytes)));
        (words, lent)
    }

    /// Has a loan passed to another lender since this was asked last? How much is in common with that one is
    /// known roughly.
    pub fn take_passed(&mut self) -> bool {
        std::mem::take(&mut self.has_passed)
    }

    /// What it is to have, whose parent has so many children with loans.
    fn loan(&mut self, borrower: &Borrower, lender: Option<Lender>, children: u64) -> Option<Loan> {
        let loan = Loan::of(borrower.word)?;
        let now = lender.unwrap_or_default();
        let first = Given::new(borrower, loan, now);
        let given = self.given.entry(borrower.pid).or_insert(first);
        let runs_same = now.program_pages == given.lender.program_pages;
        if borrower.parent != given.parent && lender.is_some() && runs_same {
            // What its lender had by itself, nobody has now but those that borrowed that.
            let own = self.own_bytes.get(&given.parent).map_or(u64::MAX, |own| own / PAGE_BYTES);
            let pages = u64::from(loan.pages).saturating_sub(own) as u32;
            // One of nothing is a loan still, and may be more after a walk.
            let faults = given.loan.faults.max(u32::from(pages == 0));
            let loan = Loan { pages, faults };
            *given = Given::new(borrower, loan, now);
            self.has_passed = true;
            return Some(loan);
        }
        let is_same = borrower.parent == given.parent && runs_same;
        let gone = if lender.is_some() && is_same { given.gone_by(&now) } else { u64::MAX };
        given.forgive(lender.map_or(given.seen, |lender| lender.faults));
        given.gone = given.gone.max(gone);
        let pages = u64::from(given.loan.pages).saturating_sub(given.gone / children);
        Some(Loan { pages: pages as u32, faults: given.loan.faults })
    }

    /// A family was walked, and a child has so much in common with others that another one counts.
    pub fn renew(&mut self, borrower: &Borrower, loan: Loan, lender: Lender) {
        self.given.insert(borrower.pid, Given::new(borrower, loan, lender));
    }
}

impl Given {
    fn new(borrower: &Borrower, loan: Loan, lender: Lender) -> Given {
        Given { claim: borrower.claim, parent: borrower.parent, loan, gone: 0, seen: lender.faults, lender }
    }

    /// Faults that were told are less again when they are found to have made no copies.
    fn forgive(&mut self, faults: u64) {
        self.gone = self.gone.saturating_sub(self.seen.saturating_sub(faults));
        self.seen = faults;
    }

    fn gone_by(&self, now: &Lender) -> u64 {
        let pages = |more: u64, less: u64| more.saturating_sub(less) / PAGE_BYTES;
        let growth = pages(now.anon_bytes, self.lender.anon_bytes);
        let copies = now.faults.saturating_sub(self.lender.faults).saturating_sub(growth);
        copies.max(pages(self.lender.anon_bytes, now.anon_bytes))
    }
}

/// How what a family has in common is to be lent to its children, of which each has `doubly` bytes of
/// the `common` ones: all of it, since one counts each page.
pub fn parts(common: u64, doubly: &[u64]) -> Vec<u64> {
    let sum: u64 = doubly.iter().sum();
    let part = |&bytes: &u64| (u128::from(common) * u128::from(bytes) / u128::from(sum.max(1))) as u64;
    doubly.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const FAULTS_A_MIB: u64 = 256;

    fn child(pid: u32, pages: u32) -> Borrower {
        let word = Loan { pages, faults: 0 }.word();
        Borrower { pid, claim: (pid as usize, 2), parent: 5, word, own_bytes: 0 }
    }

    fn parent(faults: u64, mib: u64) -> Lender {
        Lender { program_pages: 30, faults, anon_bytes: mib * MIB }
    }

    /// Pages that are lent to each after a look, in MiB.
    fn lent(lending: &mut Lending, children: &mut [Borrower], now: Option<Lender>) -> Vec<u64> {
        for (claim, word) in lending.look(children, |_| now).0 {
            children.iter_mut().find(|child| child.claim == claim).unwrap().word = word;
        }
        let pages = |child: &Borrower| Loan::of(child.word).map_or(0, |loan| loan.pages);
        children.iter().map(|child| u64::from(pages(child)) / FAULTS_A_MIB).collect()
    }

    #[test]
    fn what_a_parent_copies_is_its_childrens_in_parts() {
        let (mut lending, mut children) = (Lending::default(), [6, 7].map(|pid| child(pid, 60 * 256)));
        assert_eq!(lent(&mut lending, &mut children, Some(parent(9000, 60))), [60, 60]);
        let copied = |mib: u64| 9000 + mib * FAULTS_A_MIB;
        assert_eq!(lent(&mut lending, &mut children, Some(parent(copied(20), 60))), [50, 50]);
        assert_eq!(lent(&mut lending, &mut children, Some(parent(copied(40), 80))), [50, 50], "it grew");
        assert_eq!(lent(&mut lending, &mut children, Some(parent(copied(40), 30))), [40, 40]);
        assert_eq!(lent(&mut lending, &mut children[..1], Some(parent(copied(40), 30))), [20]);
        lending.renew(&children[0], Loan { pages: 30 * 256, faults: 77 }, parent(copied(40), 30));
        children[0].word = Loan { pages: 30 * 256, faults: 77 }.word();
        assert_eq!(lent(&mut lending, &mut children[..1], Some(parent(copied(45), 30))), [25]);
        assert_eq!(Loan::of(children[0].word).unwrap().faults, 77);
    }

    /// See [`overspill_engine::purse::Purse::lend`].
    #[test]
    fn a_parent_is_told_the_most_that_it_lends() {
        let (mut lending, children) = (Lending::default(), [child(6, 60 * 256), child(7, 20 * 256)]);
        let (_, lent) = lending.look(&children, |_| Some(parent(9000, 60)));
        let lends = |pages, faults| Lends { most: Loan { pages, faults }, heirs: 2 };
        assert_eq!(lent, Lent::from([(5, lends(60 * 256, 9000))]));
        let (_, lent) = lending.look(&children, |_| Some(parent(9000 + 20 * FAULTS_A_MIB, 60)));
        assert_eq!(lent[&5], lends(50 * 256, 9000 + 20 * 256), "these are counted by now");
        assert!(lending.look(&children, |_| None).1.is_empty());
    }

    #[test]
    fn what_is_found_to_be_no_copy_is_lent_again() {
        let (mut lending, mut children) = (Lending::default(), [child(6, 60 * 256)]);
        assert_eq!(lent(&mut lending, &mut children, Some(parent(9000, 60))), [60]);
        let copied = |mib: u64| Some(parent(9000 + mib * FAULTS_A_MIB, 60));
        assert_eq!(lent(&mut lending, &mut children, copied(25)), [35]);
        assert_eq!(lent(&mut lending, &mut children, copied(5)), [55]);
    }

    #[test]
    fn who_has_ended_or_runs_another_program_lends_nothing() {
        for now in [None, Some(Lender { program_pages: 31, ..parent(9000, 60) })] {
            let (mut lending, mut children) = (Lending::default(), [child(6, 60 * 256)]);
            assert_eq!(lent(&mut lending, &mut children, Some(parent(9000, 60))), [60]);
            assert_eq!(lent(&mut lending, &mut children, now), [0]);
        }
        let (mut lending, mut children) = (Lending::default(), [child(6, 60 * 256)]);
        assert_eq!(lent(&mut lending, &mut children, None), [0], "it had ended before");
    }

    /// A process with the number of one that has ended has a loan of its own.
    #[test]
    fn a_place_that_is_used_again_is_anothers() {
        let (mut lending, mut children) = (Lending::default(), [child(6, 60 * 256)]);
        lent(&mut lending, &mut children, Some(parent(9000, 60)));
        let mut next = [Borrower { claim: (3, 4), ..child(6, 40 * 256) }];
        assert_eq!(lent(&mut lending, &mut next, Some(parent(99_000, 60))), [40]);
    }

    /// *The story:* see `kin`. What the one between had stored to since is not its parent's.
    #[test]
    fn a_loan_passes_to_the_lenders_lender() {
        let run = |own_mib: u64, is_seen: bool| {
            let mut lending = Lending::default();
            let mut both = [
                Borrower { own_bytes: own_mib * MIB, ..child(6, 50 * 256) },
                Borrower { parent: 6, ..child(7, 60 * 256) },
            ];
            if !is_seen {
                both[0].pid = 9;
            }
            assert_eq!(lent(&mut lending, &mut both, Some(parent(9000, 60))), [50, 60]);
            assert!(!lending.take_passed());
            let mut left = [Borrower { parent: 5, ..both[1] }];
            let passed = lent(&mut lending, &mut left, Some(parent(9000, 60)));
            assert!(lending.take_passed() && !lending.take_passed());
            assert_ne!(left[0].word, 0, "it has a loan still, if of nothing");
            let copied = Some(parent(9000 + 5 * FAULTS_A_MIB, 60));
            assert_eq!(lent(&mut lending, &mut left, copied), [passed[0].saturating_sub(5)]);
            assert!(!lending.take_passed());
            passed[0]
        };
        assert_eq!([run(0, true), run(10, true), run(10, false)], [60, 50, 0]);
    }

    #[test]
    fn all_that_is_common_is_lent() {
        assert_eq!(parts(1200, &[570; 20]), [60; 20]);
        assert_eq!(parts(0, &[0, 0]), [0, 0]);
    }
}
