//! Families: who of a tree has memory in common by forks, what of it is on loan, and what walks of page tables
//! found, so that each page counts once.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

use overspill_engine::shared::{Loan, state};
use overspill_sys::clock;

use crate::machine;
use crate::run::common::lending::{self, Borrower, Lender, Lending};
use crate::run::common::sharing::{Doubly, Loans, Peak, Sharing, Told, Walked, Walker};
use crate::run::shared_page::{Report, SharedPage};
use crate::run::tree::descendants::{Look, figures, is_program, minor_faults, of_pid};
use crate::run::tree::extras::Extras;
use crate::run::tree::kin::Kin;

/// Loans are asked for anew while less than this share of the budget is free, and as much might be.
const RENEWED_SHARE: u64 = 16;

/// The books.
pub struct Families {
    ram_bytes: u64,
    kin: Kin,
    sharing: Sharing,
    lending: Lending,
    /// What was told of loans last.
    loans: Loans,
    /// Little is free, and more may be had in common than is lent; or a loan has passed to another lender.
    is_tight: bool,
    has_passed: bool,
    began: Instant,
}

impl Families {
    /// Nobody is seen yet of a run with that budget.
    pub fn new(ram_bytes: u64) -> Families {
        Families {
            ram_bytes,
            kin: Kin::default(),
            sharing: Sharing::default(),
            lending: Lending::default(),
            loans: Loans::new(),
            is_tight: false,
            has_passed: false,
            began: Instant::now(),
        }
    }

    /// These are there.
    pub fn note(&mut self, looks: &[Look]) {
        self.kin.note(looks);
    }

    /// What the tree holds, as far as that is believed, where `peak_bytes` were its peak.
    pub fn look(&mut self, looks: &[Look], extras: &Extras, peak_bytes: u64) -> Peak {
        let is_wanted = self.is_tight || self.has_passed;
        let told = Told { kin: &self.kin, loans: &self.loans, peak_bytes, is_wanted };
        let believed = self.sharing.look(looks, &told, &mut Walks { extras, began: self.began });
        self.has_passed &= !self.sharing.has_walked();
        believed
    }

    /// Walks the page tables of all.
    pub fn walk_now(&mut self, looks: &[Look], extras: &Extras) {
        let mut walks = Walks { extras, began: self.began };
        self.sharing.walk_now(looks, (&self.kin, &self.loans), &mut walks);
    }

    /// What was found at walks.
    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// Whose memory it has in common, of those that pass.
    pub fn elder<'a>(
        &self,
        looks: &'a [Look],
        look: &Look,
        passes: impl Fn(&Look) -> bool,
    ) -> Option<&'a Look> {
        self.kin.elder(looks, look, passes)
    }

    /// Children of fork that tell what they have of their parents, and these.
    pub fn tell(&mut self, looks: &[Look], managed: &[Report]) {
        let mut loans = Loans::new();
        let pids = borrowing(looks, managed);
        for (look, report) in borrowers(looks, managed) {
            loans.insert(look.pid, report.borrowed_bytes);
            if let Some(elder) = self.kin.elder(looks, look, |other| !pids.contains(&other.pid)) {
                loans.entry(elder.pid).or_insert(0);
            }
        }
        self.loans = loans;
        let is_its = |report: &&Report| of_pid(looks, report.pid).is_some_and(|look| report.is_of(look));
        let only_makers = managed.iter().filter(|report| report.adopts_nobody).filter(is_its);
        self.kin.tell(only_makers.map(|report| report.pid));
    }

    /// Takes back of loans what their parents have not any more, and gives anew what faults were
    /// taken for copies that were none.
    pub fn lend(&mut self, page: &SharedPage, looks: &[Look], managed: &[Report]) -> io::Result<()> {
        let pids = borrowing(looks, managed);
        let borrower = |(look, report): (&Look, &Report)| {
            let elder = self.kin.elder(looks, look, |other| !pids.contains(&other.pid));
            let (pid, parent, word) = (report.pid, elder.map_or(0, |elder| elder.pid), report.loan);
            let own_bytes = look.anon_bytes.saturating_sub(report.borrowed_bytes);
            Borrower { pid, claim: report.claim(), parent, word, own_bytes }
        };
        let borrowers: Vec<Borrower> = borrowers(looks, managed).map(borrower).collect();
        let (words, lent) = self.lending.look(&borrowers, |pid| lender(looks, managed, pid));
        for (claim, word) in words {
            page.lend(claim, word)?;
        }
        page.note_lent(managed, &lent)?;
        self.has_passed |= self.lending.take_passed();
        self.renew(page, looks, managed, &borrowers)?;
        self.is_tight = self.worth_renewing(looks, managed) && page.free_bytes()? < self.tight_bytes();
        Ok(())
    }

    /// Of families that were walked at this look: what several of one have counts with the eldest, and is
    /// lent to the others.
    ///
    /// *The story:* children of children were walked by nobody. A shell of 19 MiB that started shells, each
    /// of which started some, paged in 30.
    fn renew(
        &mut self,
        page: &SharedPage,
        looks: &[Look],
        managed: &[Report],
        borrowers: &[Borrower],
    ) -> io::Result<()> {
        let pids = borrowing(looks, managed);
        let eldest = |pid: u32| self.kin.eldest(looks, pid, |other| !pids.contains(&other.pid));
        let walked = |pid: u32| Some((self.sharing.walked(pid)?, eldest(pid)?));
        #[derive(Default)]
        struct Family<'a> {
            common: u64,
            /// Each with its faults then.
            children: Vec<(&'a Borrower, Walked, u32)>,
        }
        let mut families: BTreeMap<u32, Family<'_>> = BTreeMap::new();
        for report in managed.iter().filter(|report| report.state != state::UNMANAGED) {
            let Some((walked, eldest)) = walked(report.pid) else { continue };
            let family = families.entry(eldest).or_default();
            family.common += walked.doubly.anon_bytes;
            let child = borrowers.iter().find(|one| one.pid == report.pid && one.pid != eldest);
            let faults = walked.faults as u32;
            family.children.extend(child.map(|child| (child, walked, faults)));
        }
        for Family { common, children } in families.into_values() {
            let each: Vec<u64> = children.iter().map(|(_, walked, _)| walked.doubly.anon_bytes).collect();
            for ((child, _, faults), bytes) in children.iter().zip(lending::parts(common, &each)) {
                let Some(lender) = lender(looks, managed, child.parent) else { continue };
                let loan = Loan { pages: (bytes / 4096) as u32, faults: *faults };
                page.lend(child.claim, loan.word())?;
                self.lending.renew(child, loan, lender);
            }
        }
        Ok(())
    }

    /// While less is free loans are asked for anew, if that can give back as much.
    fn tight_bytes(&self) -> i64 {
        (self.ram_bytes / RENEWED_SHARE).cast_signed()
    }

    fn worth_renewing(&self, looks: &[Look], managed: &[Report]) -> bool {
        let lost = |(look, report): (&Look, &Report)| look.anon_bytes.saturating_sub(report.borrowed_bytes);
        let lost: u64 = borrowers(looks, managed).map(lost).sum();
        lost.cast_signed() > self.tight_bytes()
    }
}

/// Children of fork that have loans.
fn borrowers<'a>(looks: &'a [Look], managed: &'a [Report]) -> impl Iterator<Item = (&'a Look, &'a Report)> {
    let has_loan = |report: &&Report| report.loan != 0 && report.state != state::UNMANAGED;
    let look =
        |report: &'a Report| Some((of_pid(looks, report.pid).filter(|look| report.is_of(look))?, report));
    managed.iter().filter(has_loan).filter_map(look)
}

/// Their numbers.
fn borrowing(looks: &[Look], managed: &[Report]) -> BTreeSet<u32> {
    borrowers(looks, managed).map(|(look, _)| look.pid).collect()
}

/// What a parent of the tree has now.
fn lender(looks: &[Look], managed: &[Report], pid: u32) -> Option<Lender> {
    let look = of_pid(looks, pid).filter(|look| !look.is_guest)?;
    let told = managed.iter().find(|report| report.is_of(look)).and_then(|report| report.copying_faults);
    let faults = told.map(u64::from).or_else(|| minor_faults(pid))?;
    Some(Lender { program_pages: look.program_pages, anon_bytes: look.anon_bytes, faults })
}

struct Walks<'a> {
    extras: &'a Extras,
    began: Instant,
}

impl Walker for Walks<'_> {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn spent_ns(&self) -> u64 {
        clock::thread_cpu_ns()
    }

    fn shmem_bytes(&self, look: &Look) -> u64 {
        self.extras.shmem_bytes(look)
    }

    fn all_shmem_bytes(&self) -> u64 {
        machine::shmem_bytes().unwrap_or(0)
    }

    /// What others have, too, of what a process holds: all but its own part, which is what it has with
    /// others divided by their number.
    ///
    /// *The story* (by reading): it was subtracted from what was read before, at the start of a look. What
    /// had left RAM in between counted as shared, which hid an excess.
    fn walk(&mut self, look: &Look) -> Option<Walked> {
        let faults = minor_faults(look.pid)?;
        let names = ["Anonymous", "Pss_Anon", "Pss_Shmem"];
        let [anon, own_anon, own_shmem] = figures(look.pid, "smaps_rollup", names)?;
        let doubly = Doubly {
            anon_bytes: anon.saturating_sub(own_anon).min(look.anon_bytes),
            shmem_bytes: self.shmem_bytes(look).saturating_sub(own_shmem),
        };
        Some(Walked { doubly, left_bytes: look.anon_bytes.saturating_sub(anon), faults })
    }

    fn is_still(&mut self, look: &Look) -> bool {
        is_program(look.pid, look.program_pages)
    }
}
