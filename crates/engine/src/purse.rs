//! What one process has of a budget that a whole tree shares.
//!
//! What nobody has lies in a pool. A process takes from it what it comes to hold, at once and
//! without asking; what it holds is its share even if the pool goes below zero, and then all that
//! page give back a little at each look until it does not. So the sum is kept whoever grows, and
//! whether the launcher lives or not. Who has to make room for whom is the launcher's word: a limit
//! for each share. A child of fork has in its share what it holds beside its parent's pages, which
//! are in its parent's: each page counts once. The pool's other part is the launcher's alone: the
//! budget, less what nobody manages, and what ended processes had.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::shared::{Process, Tree};

/// Part of its share that a process gives back at a look while more is held than there is.
const GIVEN_SHARE: u64 = 32;
/// What a process is left with beside what cannot be paged, whatever others want.
pub const LEAST_BYTES: u64 = 1 << 20;
/// Where what cannot be paged takes all but this share of the budget (a sixteenth), that much is left
/// to the rest, this at the most: to page it brings the budget no nearer.
const LEFT_SHARE: u64 = 16;
const LEFT_BYTES: u64 = 8 << 20;
/// With so little in the hands of others (a sixteenth of the budget) all that is left is taken at once.
const ALONE_SHARE: u64 = 16;

/// Copies of less than this part of the budget are in nobody's way.
const COPIED_SHARE: u64 = 32;

/// A purse.
#[derive(Clone, Copy)]
pub struct Purse {
    /// `None`: nothing is shared, and all of the budget is this process's.
    tree: Option<&'static Tree>,
    process: &'static Process,
    total: u64,
    /// The process has a place in the table, so that what it has is given back when it ends.
    is_listed: bool,
    /// What others have left with it, which is the first to go.
    left: u64,
}

impl Purse {
    /// Of the process that reports there; `total` is the budget. Without `tree` all of that is its own.
    #[must_use]
    pub fn new(tree: Option<&'static Tree>, process: &'static Process, total: u64) -> Self {
        Purse { tree, process, total, is_listed: true, left: 0 }
    }

    /// Of a process without a place in the table. It looks at the pool and takes nothing out of it: a
    /// launcher that lives charges what it holds as that of one who is not managed.
    ///
    /// *The story:* nobody gave back what it had when it ended. A daemon whose launcher was gone forked
    /// a child for each task, and after two of them all had next to nothing for good.
    #[must_use]
    pub fn unlisted(self) -> Self {
        Purse { is_listed: false, ..self }
    }

    /// What nobody has; below zero: what must be given back.
    fn free(tree: &Tree) -> i64 {
        tree.pool_bytes.load(Acquire).saturating_add(tree.launcher_bytes.load(Acquire))
    }

    fn limit(&self) -> u64 {
        match self.process.limit_bytes.load(Acquire) {
            0 => self.total,
            limit => limit.min(self.total),
        }
    }

    /// May what a process holds be counted with another one?
    #[must_use]
    pub fn lends(&self) -> bool {
        self.tree.is_some() && self.is_listed
    }

    /// What the process holds as its parent does is that one's to count. *The story:* fifty workers
    /// that only read what they had inherited had 2.8 GiB of 400 MiB, though it was 60 MiB, and paged
    /// that out.
    pub fn borrow(&self, bytes: u64) {
        self.process.borrowed_bytes.store(if self.lends() { bytes } else { 0 }, Release);
    }

    /// What children have as the process does, of which it could make copies, so many bytes, is counted
    /// here alone. What it `owes` are copies that it has made of that: what was there before is its
    /// children's by then, and counts here until it does there.
    ///
    /// *The story:* a parent stored to its 90 MiB of 101 right after a fork, at the speed of memory. When
    /// the launcher had seen it both had all of it: 157 to 182 MiB, for 0.15 s.
    pub fn lend(&self, bytes: u64, owes: u64) {
        assert!(owes <= bytes, "it has copied no more than it could");
        let (exposed, owed) = if self.lends() { (bytes, owes) } else { (0, 0) };
        self.process.exposed_bytes.store(exposed, Release);
        self.process.owed_bytes.store(owed, Release);
    }

    /// So many bytes its parent has just left with it: while more is held than there is it gives them back
    /// at once.
    ///
    /// *The story:* a parent took out what it had together with its child, which freed nothing before that
    /// one did so, too; and it gave back a little at a time, as everybody.
    pub fn leave(&mut self, bytes: u64) {
        self.left = bytes;
    }

    /// What of `held` bytes is counted with this process, and what it owes.
    #[must_use]
    pub fn own(&self, held: u64) -> u64 {
        held.saturating_sub(self.borrowed()) + self.owed()
    }

    /// Is some of what it holds counted with another one?
    #[must_use]
    pub fn borrows(&self) -> bool {
        self.borrowed() > 0
    }

    /// Is so much in common with kin that copies of it would matter?
    #[must_use]
    pub fn shares_much(&self) -> bool {
        self.shared() > self.total / COPIED_SHARE
    }

    /// What it has as its parent does, or its children, whichever is more.
    fn shared(&self) -> u64 {
        self.borrowed().max(self.process.exposed_bytes.load(Acquire))
    }

    fn borrowed(&self) -> u64 {
        self.process.borrowed_bytes.load(Acquire)
    }

    fn owed(&self) -> u64 {
        self.process.owed_bytes.load(Acquire)
    }

    /// What the process could hold now if it wanted.
    #[must_use]
    pub fn reach(&self) -> u64 {
        self.held(self.own_reach()).min(self.total)
    }

    /// What a process holds of which so much is its own: see [`Purse::own`].
    fn held(&self, own: u64) -> u64 {
        own.saturating_add(self.borrowed()).saturating_sub(self.owed())
    }

    /// ... of its own.
    #[must_use]
    pub fn own_reach(&self) -> u64 {
        let Some(tree) = self.tree else { return self.total };
        let free = u64::try_from(Purse::free(tree)).unwrap_or(0);
        let share = self.process.share_bytes.load(Acquire);
        (share + free).min(self.limit()).min(self.total)
    }

    /// What there is for it beyond what it is `allowed`, should others who grow take as much.
    #[must_use]
    pub fn spare(&self, allowed: u64) -> u64 {
        self.reach().saturating_sub(allowed) / u64::from(self.sharers())
    }

    /// What is left to what can be paged, beside `fixed` bytes that cannot. Zero: there is no need of it.
    #[must_use]
    pub fn floor(&self, fixed: u64) -> u64 {
        let left = (self.total / LEFT_SHARE).min(LEFT_BYTES);
        if fixed > self.total.saturating_sub(left) { left } else { 0 }
    }

    /// How much more is held than there is, of all that share it. `held` is what this process holds.
    #[must_use]
    pub fn excess(&self, held: u64) -> u64 {
        match self.tree {
            Some(tree) => u64::try_from(-Purse::free(tree)).unwrap_or(0),
            None => held.saturating_sub(self.total),
        }
    }

    /// The same of those who have agents: what nobody can manage is left out, as nobody can make room for it.
    #[must_use]
    pub fn excess_of_managed(&self) -> u64 {
        let taken = |tree: &Tree| u64::try_from(tree.pool_bytes.load(Acquire).saturating_neg()).unwrap_or(0);
        let held = |tree: &Tree| taken(tree).saturating_sub(tree.returned_bytes.load(Acquire));
        self.tree.map_or(0, held).saturating_sub(self.total)
    }

    /// Is it to be told that so many tenths of the budget are held above it? Once for all that share
    /// it, of which `told` is what this process told last.
    pub fn tells(&self, tenths: u32, told: u32) -> bool {
        match self.tree {
            Some(tree) => tree.tenths_told.fetch_max(tenths, AcqRel) < tenths,
            None => tenths > told,
        }
    }

    /// Has nobody else anything to speak of?
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.total - self.own_reach() <= self.total / ALONE_SHARE
    }

    /// How many processes of some size share the budget, this one among them.
    #[must_use]
    pub fn sharers(&self) -> u32 {
        self.tree.map_or(1, |tree| tree.crowded.load(Acquire).max(1))
    }

    /// Could the process, by storing to what it has as its parent or a child does, make copies of more than
    /// is free, and more than a little?
    #[must_use]
    pub fn could_copy_all(&self) -> bool {
        let little = (self.total / COPIED_SHARE).cast_signed();
        self.tree.is_some_and(|tree| self.shared().cast_signed() > Purse::free(tree).max(little))
    }

    /// The process holds `held` bytes and wants `wanted`; `fixed` bytes of what it holds cannot be
    /// paged. Returns what it may hold: that is less than it holds if it has to give back.
    ///
    /// *The story:* each process of Chromium has 14 MiB of relocated data, private pages of a file
    /// that nobody can manage. One that gave back what it had kept no page of what is managed.
    ///
    /// *The other story:* that least was charged to who wanted less. 66 programs that slept, of 300
    /// KiB, had all of 64 MiB, and the one that started them paged at 5.
    pub fn follow(&self, held: u64, wanted: u64, fixed: u64) -> u64 {
        let allowed = self.follow_own(self.own(held), self.own(wanted), self.own(fixed));
        self.held(allowed).min(self.total.max(fixed + LEAST_BYTES))
    }

    fn follow_own(&self, held: u64, wanted: u64, fixed: u64) -> u64 {
        let Some(tree) = self.tree else { return self.total };
        let share = if self.is_listed { self.process.share_bytes.load(Acquire) } else { held };
        let free = Purse::free(tree);
        let most = match u64::try_from(free) {
            Ok(free) => share.saturating_add(free),
            Err(_) => share - free.unsigned_abs().min(self.left.min(share).max(share / GIVEN_SHARE)),
        };
        let allowed = wanted.min(self.limit()).min(most).max(fixed + LEAST_BYTES);
        if !self.is_listed {
            self.process.share_bytes.store(held, Release);
            return allowed;
        }
        // What is held is had, until it is held no more. What nobody wants is not.
        let had = held.max(allowed.min(wanted));
        self.process.share_bytes.store(had, Release);
        tree.pool_bytes.fetch_add(share.cast_signed() - had.cast_signed(), AcqRel);
        allowed
    }

    /// Gives everything back: the process is not managed, or has become another program.
    pub fn close(tree: &Tree, process: &Process) {
        let share = process.share_bytes.swap(0, AcqRel);
        tree.pool_bytes.fetch_add(share.cast_signed(), AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use core::sync::atomic::Ordering::Relaxed;

    const MIB: u64 = 1 << 20;
    const TOTAL: u64 = 100 * MIB;

    fn tree() -> &'static Tree {
        let tree = Box::leak(Box::new(Tree::default()));
        tree.launcher_bytes.store(TOTAL.cast_signed(), Relaxed);
        tree
    }

    fn purse(tree: &'static Tree) -> Purse {
        Purse::new(Some(tree), Box::leak(Box::new(Process::new())), TOTAL)
    }

    #[test]
    fn who_is_alone_has_all_of_it() {
        let own = Purse::new(None, Box::leak(Box::new(Process::new())), TOTAL);
        assert!(own.is_alone());
        assert_eq!((own.reach(), own.follow(120 * MIB, 5 * MIB, 0)), (TOTAL, TOTAL));
        let tree = tree();
        let (shell, sort) = (purse(tree), purse(tree));
        assert_eq!(shell.follow(2 * MIB, 2 * MIB, 0), 2 * MIB);
        assert!(sort.is_alone());
        assert_eq!(sort.follow(60 * MIB, TOTAL, 0), 98 * MIB);
        assert!(!shell.is_alone());
        assert_eq!((sort.spare(60 * MIB), shell.spare(2 * MIB)), (38 * MIB, 0), "it has taken all there is");
    }

    /// *The story:* each process had the whole budget: make -j4 held 607 MiB of 150.
    #[test]
    fn two_never_have_more_than_there_is() {
        let tree = tree();
        let (one, other) = (purse(tree), purse(tree));
        for held in (0..50).map(|mib| mib * MIB) {
            assert!(one.follow(held, held + 8 * MIB, 0) >= held);
            assert!(other.follow(held, held + 8 * MIB, 0) >= held || held > 42 * MIB);
            let sum = one.process.share_bytes.load(Relaxed) + other.process.share_bytes.load(Relaxed);
            assert!(sum <= TOTAL, "{held}: {sum}");
        }
    }

    /// What is held counts, and is paid back by all that can, a little at a time.
    #[test]
    fn a_debt_is_paid_back() {
        let tree = tree();
        let (large, newcomer) = (purse(tree), purse(tree));
        let mut held = large.follow(100 * MIB, TOTAL, 0);
        assert_eq!(newcomer.follow(6 * MIB, 6 * MIB, 0), LEAST_BYTES, "it may hold no more than it must");
        assert_eq!(Purse::free(tree), -6 * MIB.cast_signed());
        let mut looks = 0;
        while Purse::free(tree) < 0 {
            let allowed = large.follow(held, TOTAL, 0);
            assert!(held - allowed <= held / 32 + 1);
            held = allowed;
            looks += 1;
            assert!(looks < 10);
        }
        assert_eq!(newcomer.follow(6 * MIB, 6 * MIB, 0), 6 * MIB);
    }

    /// See [`Purse::leave`].
    #[test]
    fn what_was_left_with_a_child_goes_at_once() {
        let tree = tree();
        let (parent, mut child) = (purse(tree), purse(tree));
        parent.follow(98 * MIB, 98 * MIB, 0);
        child.follow(32 * MIB, 32 * MIB, 0);
        assert_eq!(child.follow(32 * MIB, TOTAL, 0), 31 * MIB);
        child.leave(8 * MIB);
        assert_eq!(child.follow(32 * MIB, TOTAL, 0), 24 * MIB);
        child.leave(TOTAL);
        assert_eq!(child.follow(32 * MIB, TOTAL, 0), 2 * MIB, "no more than is too much");
    }

    /// *The story:* what one process held was compared with the budget of all. Four of 60 MiB went above
    /// 100 without a word.
    #[test]
    fn an_excess_is_that_of_all() {
        let tree = tree();
        let workers: Vec<Purse> = (0..4).map(|_| purse(tree)).collect();
        for worker in &workers {
            worker.follow(60 * MIB, 60 * MIB, 0);
        }
        assert_eq!(workers[0].excess(60 * MIB), 140 * MIB);
        assert!(workers[0].tells(3, 0) && !workers[1].tells(3, 0) && workers[2].tells(4, 0));
        let own = Purse::new(None, Box::leak(Box::new(Process::new())), TOTAL);
        assert_eq!((own.excess(60 * MIB), own.excess(160 * MIB)), (0, 60 * MIB));
        assert!(own.tells(1, 0) && !own.tells(1, 1));
    }

    /// See [`Tree::takes_end`].
    #[test]
    fn one_ends_at_a_time() {
        const MS: u64 = 1_000_000;
        let tree = tree();
        assert!(tree.takes_end(1000 * MS) && !tree.takes_end(1000 * MS) && !tree.takes_end(1099 * MS));
        assert!(tree.takes_end(1100 * MS) && !tree.takes_end(1101 * MS));
        assert!(tree.takes_end(5 * MS), "in a namespace of times of its own it is another time");
    }

    /// See [`Purse::unlisted`].
    #[test]
    fn who_has_no_place_takes_nothing_out_of_the_pool() {
        let tree = tree();
        let daemon = purse(tree);
        daemon.follow(60 * MIB, 60 * MIB, 0);
        for _ in 0..3 {
            let child = purse(tree).unlisted();
            assert_eq!(child.follow(30 * MIB, 30 * MIB, 0), 30 * MIB);
            assert_eq!((child.follow(30 * MIB, TOTAL, 0), child.reach()), (70 * MIB, 70 * MIB));
            assert_eq!(Purse::free(tree), 40 * MIB.cast_signed(), "nobody will give it back");
        }
        tree.launcher_bytes.fetch_sub(50 * MIB.cast_signed(), Relaxed);
        let child = purse(tree).unlisted();
        assert!((28 * MIB..30 * MIB).contains(&child.follow(30 * MIB, TOTAL, 0)), "it pays back, too");
    }

    /// See [`Purse::lend`].
    #[test]
    fn what_a_parent_copies_counts_with_it_until_it_does_with_its_children() {
        let tree = tree();
        let (parent, child) = (purse(tree), purse(tree));
        parent.follow(90 * MIB, 90 * MIB, 0);
        child.borrow(90 * MIB);
        assert!(!parent.could_copy_all());
        parent.lend(90 * MIB, 0);
        assert!(parent.could_copy_all(), "90 MiB where 10 are free");
        assert_eq!((parent.own_reach(), parent.reach()), (TOTAL, TOTAL));
        parent.lend(90 * MIB, 30 * MIB);
        assert_eq!(parent.follow(90 * MIB, TOTAL, 0), 70 * MIB, "30 of it are the child's as well");
        assert_eq!(Purse::free(tree), -20 * MIB.cast_signed());
        assert_eq!(parent.follow(70 * MIB, TOTAL, 0), 70 * MIB);
        assert_eq!(Purse::free(tree), 0);
        parent.lend(60 * MIB, 0);
        child.borrow(60 * MIB);
        assert_eq!(parent.follow(70 * MIB, 70 * MIB, 0), 70 * MIB);
        assert_eq!(child.follow(90 * MIB, 90 * MIB, 0), 90 * MIB, "30 of it are its own");
        assert_eq!(Purse::free(tree), 0);
    }

    /// See [`Purse::borrow`].
    #[test]
    fn what_children_have_of_their_parent_counts_once() {
        let tree = tree();
        let parent = purse(tree);
        parent.follow(60 * MIB, 60 * MIB, 0);
        let children: Vec<Purse> = (0..50).map(|_| purse(tree)).collect();
        for child in &children {
            child.borrow(60 * MIB);
            assert_eq!(child.follow(60 * MIB, 60 * MIB, 8 * MIB), 61 * MIB, "it may come to hold more");
        }
        assert_eq!((Purse::free(tree), parent.excess(0)), (40 * MIB.cast_signed(), 0));
        assert!(parent.is_alone() && !children[0].is_alone());
        assert!(children[0].could_copy_all() && !parent.could_copy_all(), "60 MiB where 40 are free");
        assert_eq!((children[0].reach(), children[0].own_reach()), (100 * MIB, 40 * MIB));
        // One stores to what it has, which makes copies.
        children[0].borrow(10 * MIB);
        assert_eq!(children[0].own(60 * MIB), 50 * MIB);
        assert!(!children[0].could_copy_all());
        assert_eq!(children[0].follow(60 * MIB, 60 * MIB, 0), 50 * MIB, "what there is");
        assert_eq!(children[1].excess(0), 10 * MIB, "so much is there too much, each page once");
        Purse::close(tree, children[0].process);
        assert_eq!(Purse::free(tree), 40 * MIB.cast_signed());
    }

    #[test]
    fn what_cannot_be_paged_is_left_alone() {
        let tree = tree();
        let (zygote, busy) = (purse(tree), purse(tree));
        zygote.follow(16 * MIB, 16 * MIB, 14 * MIB);
        busy.follow(90 * MIB, TOTAL, 0);
        assert!(Purse::free(tree) < 0);
        let held = (0..100).fold(16 * MIB, |held, _| zygote.follow(held, held, 14 * MIB));
        assert_eq!(held, 15 * MIB);
        zygote.process.limit_bytes.store(4 * MIB, Relaxed);
        assert_eq!(zygote.follow(held, held, 14 * MIB), 15 * MIB);
    }

    #[test]
    fn who_wants_little_has_little() {
        let tree = tree();
        let sleepers: Vec<Purse> = (0..225).map(|_| purse(tree)).collect();
        for sleeper in &sleepers {
            assert_eq!(sleeper.follow(MIB / 4, MIB / 4, 0), LEAST_BYTES, "it may come to hold more");
        }
        assert_eq!(Purse::free(tree), TOTAL.cast_signed() - 225 * (MIB / 4).cast_signed());
    }

    #[test]
    fn a_limit_is_followed_down_and_gives_to_others() {
        let tree = tree();
        let (idle, busy) = (purse(tree), purse(tree));
        idle.follow(90 * MIB, TOTAL, 0);
        idle.process.limit_bytes.store(40 * MIB, Relaxed);
        assert_eq!(idle.follow(90 * MIB, TOTAL, 0), 40 * MIB);
        assert_eq!(busy.follow(5 * MIB, TOTAL, 0), 10 * MIB, "not before it is given back");
        assert_eq!(idle.follow(40 * MIB, TOTAL, 0), 40 * MIB);
        assert_eq!(busy.follow(9 * MIB, TOTAL, 0), 60 * MIB);
        Purse::close(tree, idle.process);
        assert_eq!(busy.reach(), TOTAL);
    }
}
