//! How much of a process's memory others of the tree have, too, so that it is counted once.
//!
//! What children of fork have in common with their parents, and they with theirs, nobody tells but a
//! walk of the page tables (Pss in smaps_rollup), which is dear. So there are three figures of each:
//!
//! - The least: what it had by itself when it was walked last, and what it has grown by since; of a copy
//!   that was never walked what it has grown by since it was made. The tree's peak is made of these.
//! - What is likely: what is not on loan, as its agent tells (`super::lending`). The most of that since
//!   the last walk is believed when the next one agrees.
//! - The most: all that it holds. When these pass the peak so far, all that may have something in common
//!   are walked, one after the other. Walks have a bound on what they cost, which is looser while they
//!   find that the peak was passed.
//!
//! *The story:* those were asked that were new, each when it came, and who had ended meanwhile counted in
//! full. A shell of 19 MiB that started shells was told 65 MiB where 28 were held; four workers 198 of 101.
//!
//! It reads nothing itself and has no clock: whoever feeds it does.

use std::collections::{BTreeMap, BTreeSet};

use crate::run::tree::descendants::{Look, of_pid};
use crate::run::tree::kin::{Kin, is_kin};

/// The peak is passed by so much, or this share of it, before anybody is walked.
const STEP_BYTES: u64 = 1 << 20;
const STEP_SHARE: u64 = 32;
/// All walks together take one part in so many of a processor: while they find that the peak was passed,
/// or agents tell so, and when they found several times that it was not.
const WALKS_SHARE_MOST: u64 = 10;
const WALKS_SHARE_LEAST: u64 = 100;
/// ... but they are not put off for longer.
const DEBT_MAX_NS: u64 = 4_000_000_000;
/// A copy may call exec any moment until then; and who does not answer before this is about to.
const YOUNG_NS: u64 = 15_000_000;
const SILENT_NS: u64 = 100_000_000;
/// What an agent tells of its loan is not doubted for so long after a walk.
const FRESH_NS: u64 = 1_000_000_000;
/// A likely peak is as right as the figure that a walk is held against: this share beside it. It is not
/// believed if it is above that by more than a quarter.
const AGREES_SHARE: u64 = 10;
const BELIEVED_SHARE: u64 = 4;

/// What is known beside what a look shows.
pub struct Told<'a> {
    /// Who is whose kin.
    pub kin: &'a Kin,
    /// See there.
    pub loans: &'a Loans,
    /// The peak so far.
    pub peak_bytes: u64,
    /// All are to be walked, if that is paid for.
    pub is_wanted: bool,
}

/// What tells of loans: so much of what a process holds counts with its parent. With those of whom
/// nothing counts elsewhere, as their children tell.
pub type Loans = BTreeMap<u32, u64>;

/// So much was held at a time, and so much of it was shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// All of it.
    pub bytes: u64,
    /// Shared memory.
    pub shmem_bytes: u64,
}

impl Peak {
    /// The one that is larger as a whole.
    pub fn max(self, other: Peak) -> Peak {
        if other.bytes > self.bytes { other } else { self }
    }

    /// With so much more shared memory.
    pub fn beside(self, shmem_bytes: u64) -> Peak {
        Peak { bytes: self.bytes + shmem_bytes, shmem_bytes: self.shmem_bytes + shmem_bytes }
    }
}

/// Bytes of anonymous and of shared memory that others have, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubly {
    /// Anonymous memory.
    pub anon_bytes: u64,
    /// Shared memory.
    pub shmem_bytes: u64,
}

/// What a walk of a process found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// What others have, too.
    pub doubly: Doubly,
    /// Anonymous memory that has left RAM since it was looked at.
    pub left_bytes: u64,
    /// Its faults without a device, before that.
    pub faults: u64,
}

/// Who can look at processes, and at a clock.
pub trait Walker {
    /// Nanoseconds.
    fn now(&self) -> u64;
    /// What this thread has taken of a processor: others may have been let run meanwhile.
    fn spent_ns(&self) -> u64;
    /// The shared memory that a process holds.
    fn shmem_bytes(&self, look: &Look) -> u64;
    /// The machine's.
    fn all_shmem_bytes(&self) -> u64;
    /// `None`: nobody tells.
    fn walk(&mut self, look: &Look) -> Option<Walked>;
    /// Has it memory still, as the program that was seen?
    fn is_still(&mut self, look: &Look) -> bool;
}

/// What is known of a process.
#[derive(Default)]
struct Known {
    program_pages: u32,
    first_ns: u64,
    anon_bytes: u64,
    shmem_bytes: u64,
    /// The least that it was seen to hold since it was made as a copy, of what its parent did.
    born: Doubly,
    /// Nobody saw what it was born with: see [`is_foundling`].
    is_foundling: bool,
    walked: Option<Walked>,
    walked_ns: u64,
    /// Its part of shared memory when it was walked.
    own_shmem_bytes: u64,
    /// What had left RAM when it was walked at this look.
    ///
    /// *The story:* four workers that freed all they had were walked one after the other, and what the
    /// last ones had held before that was added to what the first ones held then.
    left_bytes: u64,
    /// There was no answer when it was last walked.
    is_silent: bool,
    /// It ended while others were walked, or became another program: what it had counts with them.
    is_gone: bool,
    lent_bytes: Option<u64>,
    /// What is taken to be had by others, too.
    doubly: Doubly,
}

/// The books.
#[derive(Default)]
pub struct Sharing {
    known: BTreeMap<u32, Known>,
    /// When the last walks were over, and what they took of a processor.
    walked_ns: u64,
    spent_ns: u64,
    /// Which part of a processor they may take; 0: there was none.
    share: u64,
    /// The most that was likely since the last walk; and whether that agreed.
    likely_peak: Peak,
    is_trusted: bool,
    /// Who was walked at this look.
    fresh: BTreeSet<u32>,
    /// The least of the machine's shared memory since the last walk, and what it has grown by since then.
    least_shmem_bytes: Option<u64>,
    more_shmem_bytes: u64,
}

impl Sharing {
    /// All that live, in the order of their numbers. All are walked if that is paid for and the peak may be
    /// passed, or it is wanted. Returns a peak that is believed, beside what the figures of each add up to.
    pub fn look(&mut self, looks: &[Look], told: &Told<'_>, walker: &mut impl Walker) -> Peak {
        let &Told { peak_bytes, is_wanted, .. } = told;
        self.note(looks, (told.kin, told.loans), walker);
        self.settle(looks);
        // Nobody was seen or walked later than this.
        let now = walker.now();
        let likely = self.likely();
        let shmem_bytes = self.known.values().map(Known::own_shmem).sum();
        self.likely_peak = self.likely_peak.max(Peak { bytes: likely, shmem_bytes });
        let told = peak_bytes.max(self.least());
        let step = told + (told / STEP_SHARE).max(STEP_BYTES);
        let share = if likely > step { (self.share / 4).max(WALKS_SHARE_MOST) } else { self.share };
        let is_paid = now >= self.walked_ns + (self.spent_ns * share).min(DEBT_MAX_NS);
        if !is_paid || !(self.most(now) > step || is_wanted) {
            return Peak::default();
        }
        let seen = self.seen(shmem_bytes, walker.all_shmem_bytes());
        let before = walker.spent_ns();
        self.walked_ns = self.walk_all(looks, walker);
        self.spent_ns = walker.spent_ns() - before;
        let found = self.least();
        let finds = found > peak_bytes + peak_bytes / STEP_SHARE / 2;
        let share = if finds { WALKS_SHARE_MOST } else { self.share * 2 };
        self.share = share.clamp(WALKS_SHARE_MOST, WALKS_SHARE_LEAST);
        self.is_trusted = likely.abs_diff(found) <= found / AGREES_SHARE;
        let believed = self.believed(found);
        self.likely_peak = Peak::default();
        believed.max(seen)
    }

    /// What they held when they were looked at, as it is told where nobody is walked.
    ///
    /// *The story:* 160 copies were walked, and a third had ended by then. 138 MiB were told of that moment,
    /// and what had been seen before the walks, 218, was forgotten. Once all 201 had ended: none of 275.
    fn seen(&self, own_shmem_bytes: u64, all_shmem_bytes: u64) -> Peak {
        let shmem_bytes = own_shmem_bytes.min(all_shmem_bytes);
        Peak { bytes: self.least() - own_shmem_bytes + shmem_bytes, shmem_bytes }
    }

    /// Walks all, whatever it costs: something hangs on it. What has left RAM meanwhile does not count
    /// as had by others.
    pub fn walk_now(&mut self, looks: &[Look], (kin, loans): (&Kin, &Loans), walker: &mut impl Walker) {
        self.note(looks, (kin, loans), walker);
        self.walk_all(looks, walker);
        self.known.values_mut().for_each(|known| known.left_bytes = 0);
        self.settle(looks);
    }

    /// The most that was likely since the last walk, if that agreed: for want of another one.
    pub fn believed(&self, found_bytes: u64) -> Peak {
        let is_near = self.likely_peak.bytes <= found_bytes + found_bytes / BELIEVED_SHARE;
        if self.is_trusted && is_near { self.likely_peak } else { Peak::default() }
    }

    fn note(&mut self, looks: &[Look], (kin, loans): (&Kin, &Loans), walker: &impl Walker) {
        let as_before = |(&pid, known): (&u32, &Known)| (pid, (known.program_pages, known.anon_bytes));
        let before: BTreeMap<_, _> = self.known.iter().map(as_before).collect();
        self.known.retain(|pid, _| of_pid(looks, *pid).is_some());
        self.fresh.clear();
        let now = walker.now();
        for look in looks.iter().filter(|look| !look.is_guest) {
            let held = Doubly { anon_bytes: look.anon_bytes, shmem_bytes: walker.shmem_bytes(look) };
            let (program_pages, first_ns) = (look.program_pages, now);
            let first = || {
                let elder = kin.elder(looks, look, |other| before.contains_key(&other.pid));
                let as_elder =
                    |elder: &Look| born(look, elder, held.shmem_bytes.min(walker.shmem_bytes(elder)));
                let mut born = elder.map_or_else(Doubly::default, as_elder);
                let has_more = born.anon_bytes + STEP_BYTES < held.anon_bytes;
                let is_foundling = has_more && is_foundling(look, looks, &before, kin);
                if is_foundling {
                    born.anon_bytes = held.anon_bytes;
                }
                Known { born, is_foundling, program_pages, first_ns, ..Known::default() }
            };
            let known = self.known.entry(look.pid).or_insert_with(first);
            if known.program_pages != program_pages {
                *known = Known { program_pages, first_ns, ..Known::default() };
            }
            (known.anon_bytes, known.shmem_bytes) = (held.anon_bytes, held.shmem_bytes);
            (known.is_gone, known.left_bytes) = (false, 0);
            // What a process let go of it does not have in common with others when it has it again.
            known.born = known.born.within(held);
            if let Some(walked) = &mut known.walked {
                walked.doubly = walked.doubly.within(held);
            }
            known.lent_bytes = loans.get(&look.pid).map(|&bytes| bytes.min(look.anon_bytes));
        }
        if self.several_share() {
            let now = walker.all_shmem_bytes();
            let least = now.min(self.least_shmem_bytes.unwrap_or(now));
            (self.least_shmem_bytes, self.more_shmem_bytes) = (Some(least), now - least);
        }
    }

    /// What of each is taken to be had by others, too: as much as may be, but what all of a program hold
    /// is as much as the largest of them does. What shared memory has grown by since a walk the others may
    /// have, too; as much of it counts as the machine's has grown by.
    ///
    /// *The story:* all of what it had grown by counted for each. Twenty programs that looked at the same
    /// 60 MiB were walked while they did, and held 669 where the machine had other shared memory as well.
    fn settle(&mut self, looks: &[Look]) {
        let share = self.several_share();
        for known in self.known.values_mut() {
            let shmem_bytes = if share { known.shmem_bytes } else { 0 };
            known.doubly = match known.walked {
                _ if known.is_gone => known.held(),
                Some(Walked { doubly: Doubly { anon_bytes, .. }, .. }) => {
                    let shmem_bytes = known.shmem_bytes.saturating_sub(known.own_shmem_bytes);
                    Doubly { anon_bytes: anon_bytes + known.left_bytes, shmem_bytes }.within(known.held())
                }
                None if known.is_silent => Doubly::default(),
                None => Doubly { shmem_bytes, ..known.born },
            };
        }
        let programs: BTreeSet<u32> = looks.iter().map(|look| look.program_pages).collect();
        for program in programs {
            let members = self.known.values_mut().filter(|known| known.program_pages == program);
            raise(members, 0, |known| known.anon_bytes, |known| &mut known.doubly.anon_bytes);
        }
        let (members, more) = (self.known.values_mut(), self.more_shmem_bytes);
        raise(members, more, |known| known.shmem_bytes, |known| &mut known.doubly.shmem_bytes);
    }

    /// Walks those that may have something in common with others. Returns when that was done.
    fn walk_all(&mut self, looks: &[Look], walker: &mut impl Walker) -> u64 {
        let share = self.several_share();
        let mut programs: BTreeMap<u32, u32> = BTreeMap::new();
        self.known.values().for_each(|known| *programs.entry(known.program_pages).or_default() += 1);
        let mut walked = Vec::new();
        for look in looks.iter().filter(|look| !look.is_guest) {
            let known = self.known.get_mut(&look.pid).expect("all that live are known");
            known.walked_ns = walker.now();
            if programs[&known.program_pages] == 1 && !(share && known.shmem_bytes > 0) {
                continue;
            }
            let answer = walker.walk(look);
            known.is_silent = answer.is_none() && known.walked_ns - known.first_ns >= SILENT_NS;
            let held = known.held();
            known.left_bytes = answer.map_or(0, |walked| walked.left_bytes);
            known.walked = answer.map(|walked| Walked { doubly: walked.doubly.within(held), ..walked });
            let doubly = known.walked.map_or_else(Doubly::default, |walked| walked.doubly);
            known.own_shmem_bytes = held.shmem_bytes - doubly.shmem_bytes;
            walked.push(look);
        }
        for look in walked {
            let pid = look.pid;
            let known = self.known.get_mut(&pid).expect("it was walked");
            known.is_gone = !walker.is_still(look);
            known.is_silent &= !known.is_gone;
            if !known.is_gone && !known.is_silent {
                self.fresh.insert(pid);
            }
        }
        (self.least_shmem_bytes, self.more_shmem_bytes) = (share.then(|| walker.all_shmem_bytes()), 0);
        self.settle(looks);
        walker.now()
    }

    /// Have several shared memory?
    fn several_share(&self) -> bool {
        self.known.values().filter(|known| known.shmem_bytes > 0).count() > 1
    }

    fn least(&self) -> u64 {
        self.known.values().map(Known::least).sum()
    }

    fn likely(&self) -> u64 {
        self.known.values().map(Known::likely).sum()
    }

    fn most(&self, now: u64) -> u64 {
        self.known.values().map(|known| known.most(now)).sum()
    }

    /// Was anybody walked at this look?
    pub fn has_walked(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// What a walk at this look has found of a process.
    pub fn walked(&self, pid: u32) -> Option<Walked> {
        self.known.get(&pid).filter(|_| self.fresh.contains(&pid))?.walked
    }

    /// Was it asked in vain what others have, too, of what this process holds?
    pub fn is_silent(&self, pid: u32) -> bool {
        self.known.get(&pid).is_some_and(|known| known.is_silent)
    }

    /// What others have, too, of what this process holds.
    pub fn doubly(&self, pid: u32) -> Doubly {
        self.known.get(&pid).map_or_else(Doubly::default, |known| known.doubly)
    }

    /// The same, if it was walked: a budget is not given away for what is taken to be so, and what is
    /// lent was given already.
    pub fn walked_anon_bytes(&self, pid: u32) -> u64 {
        let known = self.known.get(&pid).filter(|known| known.lent_bytes.is_none());
        known.and_then(|known| known.walked).map_or(0, |walked| walked.doubly.anon_bytes)
    }
}

impl Doubly {
    fn within(self, held: Doubly) -> Doubly {
        Doubly {
            anon_bytes: self.anon_bytes.min(held.anon_bytes),
            shmem_bytes: self.shmem_bytes.min(held.shmem_bytes),
        }
    }
}

impl Known {
    fn held(&self) -> Doubly {
        Doubly { anon_bytes: self.anon_bytes, shmem_bytes: self.shmem_bytes }
    }

    fn own_shmem(&self) -> u64 {
        self.shmem_bytes - self.doubly.shmem_bytes
    }

    fn least(&self) -> u64 {
        self.anon_bytes - self.doubly.anon_bytes + self.own_shmem()
    }

    fn likely(&self) -> u64 {
        let doubly = self.lent_bytes.filter(|_| !self.is_gone).unwrap_or(self.doubly.anon_bytes);
        self.anon_bytes - doubly + self.own_shmem()
    }

    fn needs_walk(&self) -> bool {
        self.is_foundling && self.walked.is_none()
    }

    fn most(&self, now: u64) -> u64 {
        let is_fresh = self.walked.is_some() && now - self.walked_ns < FRESH_NS;
        match () {
            () if self.is_gone => 0,
            () if now - self.first_ns < YOUNG_NS && !self.needs_walk() => self.least(),
            () if is_fresh && self.lent_bytes.is_some() => self.least().max(self.likely()),
            () => self.anon_bytes + self.shmem_bytes,
        }
    }
}

/// What a child has of its parent's memory that is seen for the first time. A program that has been
/// started since, the same one perhaps, holds little as yet.
fn born(child: &Look, parent: &Look, shmem_bytes: u64) -> Doubly {
    let is_copy = child.program_pages == parent.program_pages && child.anon_bytes >= parent.anon_bytes / 2;
    if !is_copy {
        return Doubly::default();
    }
    Doubly { anon_bytes: child.anon_bytes.min(parent.anon_bytes), shmem_bytes }
}

/// Has one of the program that was there at the look before ended since, or let go of something? Then what
/// the others hold says nothing of what a copy was born with that is seen for the first time: all of it they
/// may have, too. So it is where no parent is left. Of a parent that is known to have made it nothing counts
/// but what that one let go of: others have ended without anything of its.
///
/// *The story:* workers that only read were seen first when their parent had ended, or had unmapped what they
/// shared. Each counted in full: 301 MiB, "above the budget", of 101. *The other story:* 450 copies, 200 at a
/// time, filled 3 MiB each. Some had ended at each look, so that all that were new were taken to have
/// everything in common, and ended before they were walked: 130 MiB were told where 308 were held.
fn is_foundling(look: &Look, looks: &[Look], before: &BTreeMap<u32, (u32, u64)>, kin: &Kin) -> bool {
    let keeps = |pid: u32, bytes: u64| {
        of_pid(looks, pid)
            .is_some_and(|now| now.program_pages == look.program_pages && now.anon_bytes >= bytes)
    };
    let let_go = |(&pid, &(program_pages, bytes)): (&u32, &(u32, u64))| {
        program_pages == look.program_pages && !keeps(pid, bytes)
    };
    let may_have_all = match of_pid(looks, look.parent).filter(|parent| is_kin(parent, look)) {
        None => true,
        Some(Look { pid, .. }) => match before.get(pid).filter(|_| kin.has_made_its_children(*pid)) {
            // The kernel's figure wavers.
            Some(&(_, bytes)) => !keeps(*pid, bytes.saturating_sub(STEP_BYTES / 2)),
            None => before.iter().any(let_go),
        },
    };
    may_have_all && looks.iter().any(|other| is_kin(other, look))
}

/// What they have by themselves is together `more` than they are told to have, and as much as the largest
/// of them holds.
fn raise<'a>(
    members: impl Iterator<Item = &'a mut Known>,
    more: u64,
    held: fn(&Known) -> u64,
    doubly: fn(&mut Known) -> &mut u64,
) {
    let mut members: Vec<&mut Known> = members.filter(|known| !known.is_gone).collect();
    let own = |known: &mut &mut Known| held(known) - *doubly(known);
    let sum: u64 = members.iter_mut().map(own).sum();
    members.sort_by_key(|known| std::cmp::Reverse(held(known)));
    let most = members.first().map_or(0, |known| held(known));
    let mut lacks = most.saturating_sub(sum).max(more);
    for known in members {
        let part = lacks.min(*doubly(known));
        *doubly(known) -= part;
        lacks -= part;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;
    const PYTHON: u32 = 30;
    const SHELL: u32 = 7;

    fn process(pid: u32, parent: u32, program_pages: u32, mib: u64) -> Look {
        Look { pid, parent, program_pages, anon_bytes: mib * MIB, ..Look::default() }
    }

    /// The books, and a tree of which each has so much by itself.
    #[derive(Default)]
    struct Tree {
        sharing: Sharing,
        kin: Kin,
        loans: Loans,
        peak_bytes: u64,
        clock: Cell<u64>,
        walk_ns: u64,
        own_mib: BTreeMap<u32, u64>,
        shmem: BTreeMap<u32, (u64, u64)>,
        all_shmem_mib: u64,
        ends: BTreeSet<u32>,
        walked: Vec<u32>,
    }

    impl Walker for Tree {
        fn spent_ns(&self) -> u64 {
            self.clock.get()
        }

        fn now(&self) -> u64 {
            self.clock.get()
        }

        fn shmem_bytes(&self, look: &Look) -> u64 {
            self.shmem.get(&look.pid).map_or(0, |(held, _)| held * MIB)
        }

        fn all_shmem_bytes(&self) -> u64 {
            self.all_shmem_mib * MIB
        }

        fn walk(&mut self, look: &Look) -> Option<Walked> {
            self.clock.set(self.clock.get() + self.walk_ns);
            self.walked.push(look.pid);
            let own_bytes = self.own_mib.get(&look.pid)? * MIB;
            let shmem_bytes = self.shmem.get(&look.pid).map_or(0, |(held, own)| (held - own) * MIB);
            let doubly = Doubly { anon_bytes: look.anon_bytes - own_bytes, shmem_bytes };
            Some(Walked { doubly, left_bytes: 0, faults: 0 })
        }

        fn is_still(&mut self, look: &Look) -> bool {
            !self.ends.contains(&look.pid)
        }
    }

    impl Tree {
        fn of(own_mib: &[(u32, u64)]) -> Tree {
            Tree { own_mib: own_mib.iter().copied().collect(), ..Tree::default() }
        }

        /// A look at `now`, in milliseconds: the peak by then, in MiB.
        fn look(&mut self, now: u64, looks: &[Look]) -> u64 {
            self.clock.set(self.clock.get().max(now * MS));
            let (mut sharing, loans) = (std::mem::take(&mut self.sharing), self.loans.clone());
            self.kin.note(looks);
            let kin = std::mem::take(&mut self.kin);
            let told = Told { kin: &kin, loans: &loans, peak_bytes: self.peak_bytes, is_wanted: false };
            let believed = sharing.look(looks, &told, self);
            self.kin = kin;
            self.sharing = sharing;
            self.peak_bytes = self.peak_bytes.max(believed.bytes).max(self.sharing.least());
            self.peak_bytes / MIB
        }

        fn own(&self, looks: &[Look]) -> Vec<u64> {
            let own = |look: &Look| (look.anon_bytes - self.sharing.doubly(look.pid).anon_bytes) / MIB;
            looks.iter().map(own).collect()
        }
    }

    /// *The story:* a shell of 19 MiB that starts shells, one after the other: whoever had ended when it
    /// was asked counted in full, and its parent as if it had been alone. 65 MiB were told.
    #[test]
    fn who_ends_while_others_are_walked_holds_nothing_any_more() {
        let mut tree = Tree::of(&[(5, 6), (6, 7), (7, 6)]);
        let shells = [process(5, 1, SHELL, 19), process(6, 5, SHELL, 19), process(7, 6, SHELL, 19)];
        assert_eq!(tree.look(0, &shells[..1]), 19);
        assert_eq!(tree.look(10, &shells), 19, "they are young");
        tree.ends = [6, 7].into();
        (tree.own_mib, tree.walk_ns) = ([(5, 19)].into(), MS);
        assert_eq!(tree.look(150, &shells), 19);
        assert_eq!(tree.walked, [5, 6, 7]);
        assert_eq!(tree.own(&shells), [19, 0, 0]);
        assert!(!tree.sharing.is_silent(6), "it is not there to be asked");
    }

    /// *The story:* whoever ran the same program as its parent was a copy. Eight workers of 40 MiB that a
    /// shell had started, `sh -c 'exec python3 worker'` of a python3, were taken to have all of it from
    /// their parent for as long as they lived, and the run "never needed more" than one.
    #[test]
    fn who_comes_to_run_its_parents_program_by_exec_counts_in_full() {
        let mut tree = Tree::default();
        let workers = |program, mib| (10..18).map(move |pid| process(pid, 5, program, mib));
        let all = |program, mib| [process(5, 1, PYTHON, 40)].into_iter().chain(workers(program, mib));
        tree.look(0, &all(SHELL, 1).collect::<Vec<_>>());
        assert_eq!(tree.look(10, &all(PYTHON, 40).collect::<Vec<_>>()), 9 * 40);
        // Seen for the first time when they hold as much, nobody knows but a walk.
        let mut tree = Tree::of(&(5..18).map(|pid| (pid, 40)).collect::<Vec<_>>());
        tree.look(0, &[process(5, 1, PYTHON, 40)]);
        assert_eq!(tree.look(10, &all(PYTHON, 40).collect::<Vec<_>>()), 40);
        assert_eq!(tree.look(120, &all(PYTHON, 40).collect::<Vec<_>>()), 9 * 40);
    }

    /// *The story:* see `kin`. Nobody stored anything.
    #[test]
    fn a_daemon_has_what_its_parents_parent_has() {
        let stamped = |pid, parent| Look { program_stamp: 9, ..process(pid, parent, PYTHON, 40) };
        let (first, daemon) = (stamped(5, 1), stamped(7, 1));
        let mut tree = Tree::of(&[(5, 20), (7, 20)]);
        assert_eq!(tree.look(0, &[first]), 40);
        assert_eq!(tree.look(10, &[first, daemon]), 40, "its parent was not seen");
        assert_eq!(tree.look(120, &[first, daemon]), 40);
        assert_eq!(tree.walked, [5, 7]);
        let mut tree = Tree::of(&[(5, 20), (7, 20)]);
        tree.look(0, &[first, stamped(6, 5), stamped(7, 6)]);
        assert_eq!(tree.look(10, &[first, daemon]), 40, "it was");
    }

    /// See [`is_foundling`].
    #[test]
    fn who_is_seen_after_its_parent_let_go_may_have_all_in_common() {
        let stamped = |pid, parent, mib| Look { program_stamp: 9, ..process(pid, parent, PYTHON, mib) };
        let workers = |parent| [6, 7, 8].map(|pid| stamped(pid, parent, 100));
        let run = |before: &[Look], first: &[Look], own: &[(u32, u64)]| {
            let mut tree = Tree { walk_ns: MS, ..Tree::of(own) };
            tree.look(0, before);
            (tree.look(10, first), tree.walked.len())
        };
        let shared = [(1, 1), (5, 1), (6, 33), (7, 33), (8, 34)];
        let all = |first: Look, parent| [vec![first], workers(parent).to_vec()].concat();
        let (shell, maker) = (stamped(1, 0, 1), stamped(5, 1, 60));
        assert_eq!(run(&[shell, maker], &all(shell, 1), &shared), (101, 4), "it has ended");
        assert_eq!(run(&[], &workers(1), &shared), (100, 3), "it was never seen");
        assert_eq!(run(&[maker], &all(stamped(5, 1, 1), 5), &shared), (101, 4), "it has unmapped that");
        let apart = [(1, 1), (6, 100), (7, 100), (8, 100)];
        assert_eq!(run(&[shell, maker], &all(shell, 1), &apart), (301, 4), "they hold as much");
        let grown = all(stamped(5, 1, 60), 5);
        assert_eq!(run(&[maker], &grown, &[]), (60 + 3 * 40, 0), "they have grown");
    }

    /// See [`is_foundling`].
    #[test]
    fn who_was_made_by_a_parent_that_lives_has_nothing_of_those_that_ended() {
        let stamped = |pid, parent, mib| Look { program_stamp: 9, ..process(pid, parent, PYTHON, mib) };
        let copies = |pids: std::ops::Range<u32>| pids.map(|pid| stamped(pid, 5, 4));
        let run = |only_makers: &[u32], parent_mib: u64| {
            let mut tree = Tree { walk_ns: 100 * MS, ..Tree::default() };
            tree.kin.tell(only_makers.iter().copied());
            let first: Vec<Look> = std::iter::once(stamped(5, 1, 2)).chain(copies(6..16)).collect();
            tree.look(0, &first[..1]);
            tree.look(5, &first);
            let parent = Look { anon_bytes: parent_mib << 19, ..first[0] };
            let next: Vec<Look> = std::iter::once(parent).chain(copies(10..40)).collect();
            (tree.look(10, &next), tree.walked.len())
        };
        assert_eq!(run(&[5], 4), (2 + 30 * 2, 0), "four of its children ended");
        assert_eq!(run(&[5], 3), (73, 0), "its figure wavered: 1.5 + 24 * 2.5 + 6 * 2");
    }

    /// See [`Sharing::seen`].
    #[test]
    fn what_was_seen_before_a_walk_is_not_forgotten() {
        let stamped = |pid, parent, mib| Look { program_stamp: 9, ..process(pid, parent, PYTHON, mib) };
        let copies: Vec<Look> =
            std::iter::once(stamped(5, 1, 2)).chain((6..26).map(|pid| stamped(pid, 5, 2))).collect();
        let filled: Vec<Look> = copies.iter().map(|look| Look { anon_bytes: 5 * MIB, ..*look }).collect();
        let mut tree = Tree { walk_ns: MS, ends: (6..26).collect(), ..Tree::default() };
        tree.look(0, &copies[..1]);
        tree.look(5, &copies);
        assert_eq!(tree.look(110, &filled), 5 + 20 * 3);
        assert_eq!(tree.walked.len(), 21, "and they had ended by then");
    }

    /// What cannot be asked is not known.
    #[test]
    fn what_nobody_tells_counts_in_full() {
        let looks = [process(5, 1, PYTHON, 40), process(6, 5, PYTHON, 40)];
        let mut tree = Tree::default();
        assert_eq!([0, 50, 120].map(|now| tree.look(now, &looks)), [40, 40, 80]);
        assert_eq!(tree.sharing.walked_anon_bytes(6), 0, "no budget is given away for it");
        assert!(tree.sharing.is_silent(6));
    }

    /// *The story:* `--strict` ended databases for what was known of them half a second before.
    #[test]
    fn all_are_walked_where_something_hangs_on_it() {
        let looks = [process(5, 1, PYTHON, 40), process(6, 5, PYTHON, 40), process(7, 5, SHELL, 40)];
        let mut tree = Tree::of(&[(5, 20), (6, 20), (7, 40)]);
        tree.shmem = [(5, (18, 9)), (6, (18, 9)), (7, (0, 0))].into();
        assert_eq!(tree.look(0, &looks), 40 + 40 + 18);
        let mut sharing = std::mem::take(&mut tree.sharing);
        sharing.walk_now(&looks, (&Kin::default(), &Loans::new()), &mut tree);
        assert_eq!([5, 6, 7].map(|pid| sharing.doubly(pid).shmem_bytes / MIB), [9, 9, 0]);
        assert_eq!([5, 6, 7].map(|pid| sharing.walked(pid).is_some()), [true, true, false], "it is alone");
    }

    /// See [`Sharing::settle`].
    #[test]
    fn what_shared_memory_grows_by_may_be_had_by_all() {
        let looks: Vec<Look> = (5..9).map(|pid| process(pid, 1, SHELL + pid, 1)).collect();
        let mut tree = Tree::of(&(5..9).map(|pid| (pid, 1)).collect::<Vec<_>>());
        (tree.all_shmem_mib, tree.walk_ns) = (500, 40 * MS);
        let all = |held, own| (5..9).map(|pid| (pid, (held, own))).collect();
        tree.shmem = all(4, 1);
        assert_eq!(tree.look(0, &looks), 4 + 4);
        assert_eq!(tree.look(150, &looks), 4 + 4);
        assert_eq!(tree.walked.len(), 4, "they are old enough");
        // They look at more of what they have in common, and then each makes some of its own.
        (tree.shmem, tree.all_shmem_mib) = (all(60, 15), 556);
        assert_eq!(tree.look(160, &looks), 60 + 4);
        (tree.shmem, tree.all_shmem_mib) = (all(90, 30), 616);
        assert_eq!(tree.look(170, &looks), 4 * 31);
        assert_eq!(tree.walked.len(), 4, "nobody was asked");
        // Others of the machine have made no more than all of them hold.
        tree.all_shmem_mib = 5000;
        assert_eq!(tree.look(180, &looks), 4 * 91);
    }

    /// A copy that calls exec any moment has its parent's memory, but nothing that came since.
    #[test]
    fn a_new_copy_has_what_it_was_born_with() {
        let mut tree = Tree::of(&[(5, 40), (6, 50)]);
        let looks = |mib| [process(5, 1, PYTHON, 80), process(6, 5, PYTHON, mib)];
        tree.look(0, &looks(80)[..1]);
        for (now, mib, own) in [(10, 80, 0), (14, 95, 15), (18, 20, 0), (22, 95, 75)] {
            tree.look(now, &looks(mib));
            assert_eq!(tree.own(&looks(mib)), [80, own], "after {now} ms");
        }
        assert!(tree.walked.is_empty());
        tree.look(120, &looks(90));
        assert_eq!((tree.own(&looks(90)), tree.walked.clone()), (vec![40, 50], vec![5, 6]), "it lasts");
        tree.look(140, &looks(90)[..1]);
        assert_eq!(tree.own(&looks(90)[..1]), [80], "the copy is gone");
    }

    /// The same program, started anew, holds little when it is first seen.
    #[test]
    fn who_is_seen_after_its_exec_has_nothing_of_its_parents() {
        let mut tree = Tree::default();
        for (now, mib) in [(10, 3), (20, 40), (30, 80)] {
            assert_eq!(tree.look(now, &[process(5, 1, PYTHON, 80), process(6, 5, PYTHON, mib)]), 80 + mib);
        }
    }

    /// Numbers start again: the child comes before its parent. And its own children before it.
    #[test]
    fn a_copy_may_have_a_smaller_number_than_its_parent() {
        let mut tree = Tree::default();
        let looks = [process(7, 301, PYTHON, 80), process(301, 32000, PYTHON, 80)];
        let looks = [looks[0], looks[1], process(32000, 1, PYTHON, 80)];
        assert_eq!((tree.look(0, &looks), tree.own(&looks)), (80, vec![0, 0, 80]));
    }

    /// *The story:* each of twenty workers was asked when it was new, when fewer had what it had: of 60
    /// MiB that all had, 160 were counted. Agents tell of their loans, and are not believed for long: what
    /// they tell was 193 MiB where 95 were held, as a loan says nothing of what was paged out.
    #[test]
    fn what_agents_tell_is_believed_when_a_walk_agrees() {
        let looks: Vec<Look> = (5..26).map(|pid| process(pid, 5.min(pid - 1), PYTHON, 62)).collect();
        let lent = |mib| (5..26).map(|pid| (pid, if pid == 5 { 0 } else { mib * MIB })).collect();
        let run = |lent_mib: u64| {
            let mut tree = Tree::of(&(5..26).map(|pid| (pid, 5)).collect::<Vec<_>>());
            (tree.loans, tree.walk_ns) = (lent(60), MS);
            assert_eq!([0, 110].map(|now| tree.look(now, &looks)), [62, 21 * 5]);
            // It is not paid for yet when they store.
            tree.loans = lent(lent_mib);
            assert_eq!(tree.look(200, &looks), 21 * 5);
            tree.loans = lent(60);
            let walked = tree.walked.len();
            let later = tree.look(9000, &looks);
            assert_eq!(tree.walked.len(), walked + 21);
            later
        };
        assert_eq!(run(59), 62 + 20 * 3, "all agree");
        assert_eq!(run(50), 21 * 5, "that is too much more");
    }

    /// What a process said does not hold for the program that it has become.
    #[test]
    fn an_answer_is_that_programs() {
        let mut tree = Tree::of(&[(5, 40), (6, 40)]);
        let looks = [process(5, 1, PYTHON, 80), process(6, 5, PYTHON, 80)];
        tree.look(0, &looks);
        tree.look(120, &looks);
        assert_eq!(tree.own(&looks), [40, 40]);
        let looks = [looks[0], process(6, 5, SHELL, 60)];
        tree.look(130, &looks);
        assert_eq!(tree.own(&looks), [80, 60]);
    }

    /// *The story:* one copy that lasted had every process of the tree asked, each for 2 % of a
    /// processor, all run long: fifty workers took all of one.
    #[test]
    fn walks_take_a_hundredth_of_a_processor_in_all() {
        let mut tree = Tree::of(&(5..60).map(|pid| (pid, 1)).collect::<Vec<_>>());
        tree.walk_ns = 2 * MS;
        let workers = (10..60).map(|pid| process(pid, 5, PYTHON, 40));
        let bystanders = (100..130).map(|pid| process(pid, 1, SHELL + pid, 40));
        let looks: Vec<Look> =
            [process(5, 1, PYTHON, 40)].into_iter().chain(workers).chain(bystanders).collect();
        for now in (0..60_140).step_by(20) {
            tree.look(now, &looks);
        }
        assert!(tree.walked.iter().all(|&pid| pid == 5 || (10..60).contains(&pid)));
        let share = tree.walked.len() as u64 * tree.walk_ns * 1000 / (60_000 * MS);
        // What all would take at once is put off for 4 s at the most.
        assert!((8..=27).contains(&share), "{share} thousandths: {}", tree.walked.len());
    }
}
