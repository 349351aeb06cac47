//! The loop over the four lists of a domain, in its eras (specification 5.4): how far a round goes,
//! and what is left out.
//!
//! All eras take up to 32 pages of each list in turn. They differ in when they stop, and in what
//! they do with the longer kind when the goal is reached: before 3.11 nothing; from 3.11 on it is
//! brought to the fraction that the other kind was scanned to. The last one, [`Era::Bounded`], is
//! no kernel's: it deals each batch of 32 to both kinds by their targets and stops at the goal,
//! what a batch could not split evenly being remembered for the next call. So a call frees at most
//! its goal and a batch.

use super::lists::{Kind, List, PerList, SCANNED};
use super::{BATCH, PRIORITY_FIRST, Rules};

/// Whose loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Era {
    /// Kernels before 3.11.
    Before311,
    /// 3.11 to 3.15: proportional, but for direct reclaim, which stops after the first pass.
    Until315,
    /// 3.16 to 6.0: proportional for all, and everything that was targeted at the first priority of
    /// direct reclaim.
    Seed,
    /// Since 6.1: as before, adjusting again and again, so that it ends soon.
    Since61,
    /// None of these: proportional over calls.
    Bounded,
}

impl Era {
    /// Every era.
    pub const ALL: [Era; 5] = [Era::Before311, Era::Until315, Era::Seed, Era::Since61, Era::Bounded];

    /// What users call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Era::Before311 => "kernel-3.10",
            Era::Until315 => "kernel-3.15",
            Era::Seed => "kernel-3.16",
            Era::Since61 => "kernel-6.1",
            Era::Bounded => "bounded",
        }
    }

    /// The other rules of its time: 3.16's until then, 6.19's since.
    #[must_use]
    pub const fn rules(self) -> Rules {
        match self {
            Era::Before311 | Era::Until315 | Era::Seed => Rules::Early,
            Era::Since61 | Era::Bounded => Rules::Late,
        }
    }

    /// The era of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Era> {
        Era::ALL.into_iter().find(|era| era.name() == name)
    }
}

/// Whose lists are shrunk.
pub trait Shrink {
    /// Looks at so many pages of the inactive tail; gives how many were freed.
    fn shrink_inactive(&mut self, kind: Kind, pages: u64) -> u64;
    /// Looks at so many pages of the active tail, if the inactive list is low.
    fn shrink_active(&mut self, kind: Kind, pages: u64);
}

/// One round over the lists of one domain, pass by pass.
#[derive(Clone, Debug)]
pub struct Round {
    era: Era,
    goal: u64,
    priority: u32,
    /// Reclaim of all memory, by the side that waits.
    global_direct: bool,
    targets: PerList,
    left: PerList,
    adjusted: bool,
    reclaimed: u64,
    /// What the last batch owes anonymous memory, in [`WHOLE`]ths of a page.
    owed: u64,
}

const WHOLE: u64 = 1 << 16;

impl Round {
    /// A round that is to free `goal` pages; `owed` is what [`Round::owed`] said when the last one
    /// ended.
    #[must_use]
    pub fn new(era: Era, goal: u64, priority: u32, global_direct: bool, targets: PerList, owed: u64) -> Self {
        let all = matches!(era, Era::Seed | Era::Since61) && global_direct && priority == PRIORITY_FIRST;
        Round {
            era,
            goal,
            priority,
            global_direct,
            targets,
            left: targets,
            adjusted: all,
            reclaimed: 0,
            owed,
        }
    }

    /// Pages freed so far.
    #[must_use]
    pub fn reclaimed(&self) -> u64 {
        self.reclaimed
    }

    /// What the next round starts with.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.owed
    }

    /// Is anything of the kind's inactive list left to look at?
    #[must_use]
    pub fn is_due(&self, kind: Kind) -> bool {
        self.left[List::inactive(kind) as usize] > 0
    }

    /// Is anything left to look at? Active anonymous pages alone do not keep a round going.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        let left = |list: List| self.left[list as usize];
        left(List::InactiveAnon) + left(List::ActiveFile) + left(List::InactiveFile) > 0
    }

    /// One pass over the lists. False when the round ends with it.
    pub fn pass(&mut self, shrink: &mut impl Shrink) -> bool {
        let batch = self.batch();
        for list in SCANNED {
            let pages = batch[list as usize].min(self.left[list as usize]);
            if pages == 0 {
                continue;
            }
            self.left[list as usize] -= pages;
            let kind = list.kind().expect("a list that is scanned has a kind");
            if list.is_active() {
                shrink.shrink_active(kind, pages);
            } else {
                self.reclaimed += shrink.shrink_inactive(kind, pages);
            }
        }
        !self.stops() && self.goes_on()
    }

    /// How many pages of each list the next pass takes.
    fn batch(&mut self) -> PerList {
        let most = u64::from(BATCH);
        if self.era != Era::Bounded {
            return [most; 4];
        }
        let [anon, _, file, _] = self.left;
        if anon + file == 0 {
            return [most; 4];
        }
        let share = most * WHOLE * anon / (anon + file) + self.owed;
        let inactive_anon = (share / WHOLE).min(most);
        self.owed = share - inactive_anon * WHOLE;
        let inactive_file = most - inactive_anon;
        // As much of the active list, for its length, as of the inactive one.
        let along = |list: List, taken: u64, inactive: u64| {
            (taken * self.left[list as usize]).div_ceil(inactive.max(1)).min(most)
        };
        [
            inactive_anon,
            along(List::ActiveAnon, inactive_anon, anon),
            inactive_file,
            along(List::ActiveFile, inactive_file, file),
        ]
    }

    /// After a pass: is it enough? Adjusts what is left.
    fn stops(&mut self) -> bool {
        let reached = self.reclaimed >= self.goal;
        match self.era {
            Era::Bounded => reached,
            Era::Before311 => reached && self.priority < PRIORITY_FIRST,
            Era::Until315 => {
                if !reached || self.adjusted {
                    return false;
                }
                if self.global_direct {
                    return true;
                }
                self.adjust();
                self.adjusted = true;
                false
            }
            Era::Seed | Era::Since61 => {
                if !reached || self.adjusted {
                    return false;
                }
                if self.left_of(Kind::Anon) == 0 || self.left_of(Kind::File) == 0 {
                    return true;
                }
                self.adjust();
                self.adjusted = self.era == Era::Seed;
                false
            }
        }
    }

    fn left_of(&self, kind: Kind) -> u64 {
        self.left[List::inactive(kind) as usize] + self.left[List::active(kind) as usize]
    }

    /// The larger kind is brought to the fraction that the smaller one has reached, the smaller one
    /// is done.
    fn adjust(&mut self) {
        let (smaller, larger) = if self.left_of(Kind::File) > self.left_of(Kind::Anon) {
            (Kind::Anon, Kind::File)
        } else {
            (Kind::File, Kind::Anon)
        };
        let lists = |kind| [List::inactive(kind) as usize, List::active(kind) as usize];
        let target: u64 = lists(smaller).iter().map(|&list| self.targets[list]).sum();
        let left_percent = self.left_of(smaller) * 100 / (target + 1);
        for list in lists(smaller) {
            self.left[list] = 0;
        }
        for list in lists(larger) {
            let done = self.targets[list] - self.left[list];
            self.left[list] = (self.targets[list] * (100 - left_percent) / 100).saturating_sub(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every inactive page can be freed; counts what is looked at.
    #[derive(Default)]
    struct Willing(PerList);

    impl Shrink for Willing {
        fn shrink_inactive(&mut self, kind: Kind, pages: u64) -> u64 {
            self.0[List::inactive(kind) as usize] += pages;
            pages
        }
        fn shrink_active(&mut self, kind: Kind, pages: u64) {
            self.0[List::active(kind) as usize] += pages;
        }
    }

    struct Who {
        era: Era,
        goal: u64,
        priority: u32,
        direct: bool,
    }

    const GOAL: u64 = 32;
    const DIRECT_315: Who = Who { era: Era::Until315, goal: GOAL, priority: 12, direct: true };
    const DIRECT_SEED: Who = Who { era: Era::Seed, ..DIRECT_315 };
    const LATER_SEED: Who = Who { priority: 11, ..DIRECT_SEED };
    const KSWAPD_315: Who = Who { direct: false, ..DIRECT_315 };
    const KSWAPD_SEED: Who = Who { direct: false, ..DIRECT_SEED };
    const LATER_61: Who = Who { era: Era::Since61, ..LATER_SEED };
    const DIRECT_61: Who = Who { era: Era::Since61, ..DIRECT_SEED };
    const KSWAPD_61: Who = Who { era: Era::Since61, ..KSWAPD_SEED };

    fn scan(who: &Who, targets: PerList) -> (PerList, u64) {
        let mut round = Round::new(who.era, who.goal, who.priority, who.direct, targets, 0);
        let mut seen = Willing::default();
        let mut goes_on = round.goes_on();
        while goes_on {
            goes_on = round.pass(&mut seen);
        }
        (seen.0, round.reclaimed())
    }

    fn all(targets: PerList) -> (PerList, u64) {
        (targets, targets[0] + targets[2])
    }

    struct Line {
        targets: PerList,
        direct_315: (PerList, u64),
        /// Seed, direct at priority 11, and kswapd.
        seed: (PerList, u64),
        kswapd_315: (PerList, u64),
        since_61: (PerList, u64),
    }

    /// The table, line by line.
    #[test]
    fn numeric_check() {
        let lines = [
            Line {
                targets: [100, 50, 800, 400],
                direct_315: ([32, 32, 32, 32], 64),
                seed: ([32, 32, 352, 176], 384),
                kswapd_315: ([32, 32, 352, 176], 384),
                since_61: ([32, 32, 64, 64], 96),
            },
            Line {
                targets: [40, 20, 3000, 1500],
                direct_315: ([32, 20, 32, 32], 64),
                seed: ([32, 20, 2610, 1305], 2642),
                kswapd_315: ([32, 20, 2610, 1305], 2642),
                since_61: ([32, 20, 64, 64], 96),
            },
            Line {
                targets: [0, 0, 2000, 500],
                direct_315: ([0, 0, 32, 32], 32),
                seed: ([0, 0, 32, 32], 32),
                kswapd_315: ([0, 0, 2000, 500], 2000),
                since_61: ([0, 0, 32, 32], 32),
            },
            Line {
                targets: [200, 100, 20, 10],
                direct_315: ([32, 32, 20, 10], 52),
                seed: ([32, 32, 20, 10], 52),
                kswapd_315: ([200, 100, 20, 10], 220),
                since_61: ([32, 32, 20, 10], 52),
            },
            Line {
                targets: [500, 250, 500, 250],
                direct_315: ([32; 4], 64),
                seed: ([45, 32, 32, 32], 77),
                kswapd_315: ([45, 32, 32, 32], 77),
                since_61: ([45, 32, 32, 32], 77),
            },
        ];
        for line in lines {
            let targets = line.targets;
            assert_eq!(scan(&DIRECT_315, targets), line.direct_315, "3.15 direct, {targets:?}");
            assert_eq!(scan(&DIRECT_SEED, targets), all(targets), "seed direct at 12, {targets:?}");
            assert_eq!(scan(&LATER_SEED, targets), line.seed, "seed direct at 11, {targets:?}");
            assert_eq!(scan(&KSWAPD_SEED, targets), line.seed, "seed kswapd, {targets:?}");
            assert_eq!(scan(&KSWAPD_315, targets), line.kswapd_315, "3.15 kswapd, {targets:?}");
            assert_eq!(scan(&DIRECT_61, targets), all(targets), "6.1 direct at 12, {targets:?}");
            assert_eq!(scan(&LATER_61, targets), line.since_61, "6.1 direct at 11, {targets:?}");
            assert_eq!(scan(&KSWAPD_61, targets), line.since_61, "6.1 kswapd, {targets:?}");
        }
    }

    /// The lines below the table: kswapd with a goal of 1000.
    #[test]
    fn numeric_check_with_a_larger_goal() {
        let with = |who: Who, targets| scan(&Who { goal: 1000, ..who }, targets);
        let first = [100, 50, 800, 400];
        assert_eq!(with(KSWAPD_SEED, first), all(first));
        assert_eq!(with(KSWAPD_315, first), all(first));
        let second = [40, 20, 3000, 1500];
        assert_eq!(with(KSWAPD_315, second), all(second));
        assert_eq!(with(KSWAPD_SEED, second), ([40, 20, 960, 960], 1000));
    }

    /// 6.1 still scans all at the first priority of direct reclaim; before 3.11 so did everyone, at
    /// lower ones nobody.
    #[test]
    fn the_first_priority() {
        let targets = [100, 50, 800, 400];
        assert_eq!(scan(&Who { era: Era::Since61, ..DIRECT_SEED }, targets), all(targets));
        let before = Who { era: Era::Before311, ..DIRECT_315 };
        assert_eq!(scan(&before, targets), all(targets));
        assert_eq!(scan(&Who { priority: 11, ..before }, targets), ([32; 4], 64));
    }

    /// Active anonymous pages alone do not keep a round going.
    #[test]
    fn active_anonymous_pages_alone_are_nothing_to_do() {
        assert!(!Round::new(Era::Seed, 32, 11, true, [0, 500, 0, 0], 0).goes_on());
        assert!(Round::new(Era::Seed, 32, 11, true, [0, 0, 0, 500], 0).goes_on());
    }

    /// No call frees more than its goal and a batch, and over many calls both kinds get their
    /// parts.
    #[test]
    fn bounded_calls_are_proportional_over_time() {
        let targets = [70, 35, 7000, 3500];
        let (mut sum, mut owed) = ([0; 4], 0);
        for _ in 0..1000 {
            let mut round = Round::new(Era::Bounded, GOAL, 12, true, targets, owed);
            let mut seen = Willing::default();
            while round.pass(&mut seen) {}
            assert!((GOAL..GOAL + u64::from(BATCH)).contains(&round.reclaimed()));
            owed = round.owed();
            (0..4).for_each(|list| sum[list] += seen.0[list]);
        }
        let (anon, file) = (sum[0], sum[2]);
        assert_eq!(anon + file, 32_000);
        assert!((316..=317).contains(&anon), "{sum:?}: one in 101");
    }

    #[test]
    fn names_are_found_again() {
        assert!(Era::ALL.iter().all(|&era| Era::by_name(era.name()) == Some(era)));
        assert_eq!(Era::by_name("kernel"), None);
    }
}
