//! A kernel's two lists of anonymous pages under the scan loop of one era ([`super::scan`]), for
//! programs that run live: what is different is the accessed bit, which is learnt by taking a page
//! out of view.
//!
//! A round begins at priority 12 and looks at the lists' lengths shifted right by it, one priority
//! less each time that it did not free enough (specification 5.3). Inactive pages that are looked
//! at go out of view; active ones become inactive if the inactive list is low (5.1). Eras before
//! 6.1 follow the rules of 3.16: new pages begin active, and one touch makes a page active. Later
//! ones follow those of 6.19: new pages begin inactive, the second touch makes a page active, and
//! so does a refault as close as the lists are long (5.7). With anonymous pages alone the eras'
//! loops differ only in how much a call looks at; with file pages they would in more.

use super::lists::{Kind, List, PerList};
use super::policy::{Arrival, Away, Follows, Noted, Place, Policy, Scene, Stamp, Waited};
use super::ratio::{self, Lengths};
use super::scan::{Era, Round, Shrink};
use super::{BATCH, PRIORITY_FIRST, Rules, shadow};
use crate::list::ListId;
use crate::part::Part;
use crate::types::RegionKind;

/// A loop under way, and which rules.
#[derive(Debug)]
pub(crate) struct Eras {
    era: Era,
    rules: Rules,
    /// Pages of the machine that the rules go by.
    pages: u64,
    priority: u32,
    round: Option<Round>,
    /// Inactive pages that the last pass may still look at.
    due: u32,
    /// A refault made a page active since room was last made.
    refaulted: bool,
}

/// What a pass looks at; everything that is looked at counts as freed, since its write is.
#[derive(Default)]
struct Pass {
    inactive: u64,
    active: u64,
}

impl Shrink for Pass {
    fn shrink_inactive(&mut self, _: Kind, pages: u64) -> u64 {
        self.inactive += pages;
        pages
    }
    fn shrink_active(&mut self, _: Kind, pages: u64) {
        self.active += pages;
    }
}

impl Eras {
    pub fn new(era: Era, budget: u32) -> Eras {
        let (rules, pages) = (era.rules(), u64::from(budget));
        Eras { era, rules, pages, priority: PRIORITY_FIRST, round: None, due: 0, refaulted: false }
    }

    fn is_low(&self, scene: &Scene) -> bool {
        let lengths = Lengths {
            inactive: u64::from(scene.inactive),
            active: u64::from(scene.active),
            node: self.pages,
            refaulted: self.refaulted,
        };
        ratio::is_low(self.rules, Kind::Anon, &lengths)
    }

    /// The next round that looks at anything, at the priority reached or a lower one.
    fn open(&mut self, scene: &Scene) -> Round {
        loop {
            let of = |pages: u32| u64::from(pages) >> self.priority;
            let mut targets: PerList = [0; 4];
            targets[List::InactiveAnon as usize] = of(scene.inactive);
            targets[List::ActiveAnon as usize] = of(scene.active);
            // Who waits wants a batch, background reclaim as many as are to be kept free (5.6).
            let goal = if scene.is_direct { BATCH } else { scene.kept_free.max(BATCH) };
            let goal = u64::from(goal);
            let round = Round::new(self.era, goal, self.priority, scene.is_direct, targets, 0);
            if round.goes_on() || self.priority == 0 {
                return round;
            }
            self.priority -= 1;
        }
    }

    /// One pass of the loop: gives how many active pages it looks at.
    fn pass(&mut self, scene: &Scene) -> u32 {
        let mut round = match self.round.take() {
            Some(round) => round,
            None => self.open(scene),
        };
        let mut seen = Pass::default();
        if round.goes_on() && round.pass(&mut seen) {
            self.round = Some(round);
        } else {
            // Not enough was freed, or somebody would not ask again.
            self.priority = self.priority.saturating_sub(1);
            // At the end anonymous pages grow old a little.
            seen.active += u64::from(BATCH);
        }
        self.due = seen.inactive as u32;
        seen.active as u32
    }
}

impl Policy for Eras {
    fn asks_what_is_free(&self) -> bool {
        true
    }

    fn admit(&mut self, _: &Scene, arrival: Arrival) -> ListId {
        let is_active = self.rules == Rules::Early && arrival != Arrival::Touched(RegionKind::Shared);
        if is_active { ListId::Active } else { ListId::Inactive }
    }

    /// A page's stamp counts the touches that were seen since it arrived.
    fn stamp(&self, _: Part, noted: Noted) -> Option<Stamp> {
        Some(Stamp::from(noted == Noted::Touched))
    }

    fn touched(&mut self, _: &Scene, _: Waited, seen_before: Stamp) -> Place {
        if self.rules == Rules::Early || seen_before > 0 { Place::ACTIVE } else { Place::INACTIVE }
    }

    fn refault(&mut self, scene: &Scene, away: &Away) -> Place {
        let pages = [u64::from(scene.inactive), u64::from(scene.active), 0, 0];
        if self.rules == Rules::Early
            || !shadow::is_close(self.rules, Kind::Anon, away.evictions, &pages, true)
        {
            return Place::INACTIVE;
        }
        self.refaulted = true;
        Place::ACTIVE
    }

    fn begin(&mut self, _: &Scene, anew: bool) -> u32 {
        if anew {
            (self.priority, self.round, self.due) = (PRIORITY_FIRST, None, 0);
        }
        0
    }

    fn end(&mut self) {
        self.refaulted = false;
    }

    fn deactivates(&mut self, scene: &Scene) -> u32 {
        let active = if self.due == 0 { self.pass(scene) } else { 0 };
        // With nothing else left the active list is looked at, whatever its part.
        if scene.inactive == 0 {
            return BATCH;
        }
        if self.is_low(scene) { active } else { 0 }
    }

    fn follow(&mut self, _: &Scene, going: u32) -> u32 {
        self.due = self.due.saturating_sub(going);
        0
    }

    fn follows(&self) -> Follows {
        Follows::Nobody
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(inactive: u32, active: u32) -> Scene {
        Scene { inactive, active, budget: 1 << 20, ..Scene::default() }
    }

    #[test]
    fn early_pages_begin_active_and_late_ones_inactive() {
        for (era, list) in [(Era::Seed, ListId::Active), (Era::Since61, ListId::Inactive)] {
            let mut policy = Eras::new(era, 1000);
            assert_eq!(policy.admit(&scene(0, 0), Arrival::Touched(RegionKind::Anon)), list);
        }
    }

    #[test]
    fn late_rules_want_two_touches_early_ones_one() {
        for (era, first) in [(Era::Until315, Place::ACTIVE), (Era::Since61, Place::INACTIVE)] {
            let mut policy = Eras::new(era, 1000);
            assert_eq!(policy.touched(&scene(9, 9), Waited::ToLeave, 0), first);
            assert_eq!(policy.touched(&scene(9, 9), Waited::ToLeave, 1), Place::ACTIVE);
        }
    }

    /// 2^20 pages at priority 12 are 256 of each list; a call of before 3.11 looks at all of them
    /// in passes of 32, one of 3.15 stops after the first.
    ///
    /// *The story:* background reclaim had the columns of those who wait, and later their goal.
    #[test]
    fn a_call_looks_at_what_its_era_does() {
        let looks = |era, is_direct, kept_free| {
            let mut policy = Eras::new(era, 1 << 20);
            let lists = Scene { is_direct, kept_free, ..scene(1 << 20, 1 << 20) };
            policy.begin(&lists, true);
            let mut looked_at = 0;
            while policy.priority == PRIORITY_FIRST {
                policy.deactivates(&lists);
                looked_at += policy.due;
                policy.follow(&lists, policy.due);
            }
            looked_at
        };
        let waits = Era::ALL.map(|era| looks(era, true, 3072));
        assert_eq!(waits, [256, 32, 256, 256, 32], "since 3.16 all, at the first priority");
        let background = Era::ALL.map(|era| looks(era, false, 0));
        assert_eq!(background, [256, 256, 32, 32, 32], "since 3.16 it stops where there are no files");
        let background = Era::ALL.map(|era| looks(era, false, 3072));
        assert_eq!(background[..4], [256; 4], "its goal is the high watermark");
    }

    #[test]
    fn the_active_list_gives_when_the_inactive_one_is_low() {
        let mut policy = Eras::new(Era::Since61, 1 << 18);
        assert!(policy.deactivates(&scene(1000, 90_000)) > 0);
        let mut policy = Eras::new(Era::Since61, 1 << 18);
        assert_eq!(policy.deactivates(&scene(90_000, 90_000)), 0);
    }
}
