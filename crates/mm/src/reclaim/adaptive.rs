//! The default: two lists, of which the active one holds what came back.
//!
//! A page is taken out of view to learn whether it is used: if it is touched before it leaves, or
//! comes back sooner than the active ones are many, it is active. Touches of pages in view are not
//! seen. Nothing of a page is remembered beyond how long it was away.
//!
//! What is filled first is active too, unproven, up to half of the budget: whoever goes round and
//! round over more than memory keeps that much, where the order of arrival (or of use) keeps
//! nothing, and a hot set that came first is not pushed out by what passes. It holds its place
//! until others prove to be in use: for each that does the oldest unproven one is the next to
//! leave, by way of the swap cache, where a touch proves it. Unless those come back themselves: the
//! more of them do, the sooner a page has to be back to take the place of one. Who goes round, or
//! touches all of it alike, gains nothing by exchanging pages, and loses one read for each.
//!
//! Unfit for: memory that is filled once and of which the part that came first is never used again.
//! That part goes as others come back, not before: one more read for each of them.

use super::BATCH;
use super::chance::Chance;
use super::policy::{Arrival, Away, Follows, Place, Policy, Scene, Stamp, Waited};
use crate::list::ListId;

/// Without access bits the active list may be this many times as long as the inactive one, which is
/// the kernel's ratio in 1 GiB (section 5.1): what came back soon after it had left is the better
/// part of what is used, and leaves as others come back sooner.
const ACTIVE_SHARE: u32 = 3;
/// The active list goes round once while the inactive one does so many times: who is no longer used
/// leaves, even where nothing else becomes active; who is comes back by a soft fault.
const ACTIVE_TURNS: u32 = 16;
/// ... but not while the inactive list is so many times as long: to look at a page takes it out of
/// view for an instant, which is more than so few are worth.
const ACTIVE_FEW: u32 = 8;

/// Of the budget one page in so many may be active because it came first. (A third keeps less of
/// loops; with more than half a set that came second reads more before it is kept.)
const FIRST_SHARE: u32 = 2;

/// So many pages that are read ahead prove as much as one that a fault brings back. (With one a
/// loop pushes out its own pages that came first: 1.034 of LRU on the public traces, with two 1.003,
/// with three 0.994, with four 0.988; but the more, the longer what is dead stays.)
const FORETOLD_FOR_ONE: u32 = 3;

/// Doubt begins here, and ends there: a page has to come back within a sixteenth of the time.
const DOUBT_FROM: u32 = 8;
const DOUBT_MOST: u32 = 128;
/// Doubt grows by so much for each page that made room in vain, and shrinks by one for each that
/// makes room. (With two, and half as much doubt, 0.977 of LRU without read-ahead in place of 0.970;
/// with four, and twice as much, 0.974.)
const DOUBTED_FOR_ONE: u32 = 3;
/// ... and by one for so many others that come back soon, but not as soon as doubt wants it: what
/// was wrong may be right by now.
const FADE: u32 = 256;
/// It was in vain if the page came back within so many budgets of evictions.
const BACK_BUDGETS: u32 = 4;

/// What is owed to the active list, and who is there unproven.
#[derive(Debug, Default)]
pub(crate) struct Adaptive {
    /// Pages that were taken since an active one was deactivated for them, times those active.
    aged: u64,
    /// The oldest active pages, at most so many: they came first, and nothing else is known.
    unproven: u32,
    /// Of those so many are to make room for pages that proved to be in use.
    due: u32,
    /// Pages that were read ahead as soon as one that counts, since they last counted as one.
    foretold: u32,
    /// How wrong it was of late that pages made room. Beyond [`DOUBT_FROM`] a page must come back
    /// sooner than within the length of the active list to take the place of another.
    doubt: u32,
    /// Pages that doubt has turned down since it last faded.
    turned_down: u32,
    /// A page has come back: what comes new from now on does not come first.
    came_back: bool,
    /// How many wait out of view for a second chance.
    chance: Chance,
}

impl Adaptive {
    /// So many pages are active, of which nothing is known.
    pub fn take_over(&mut self, active: u32) {
        (self.unproven, self.due, self.doubt, self.came_back) = (active, 0, 0, true);
    }

    /// Does the page come back so soon that it is to take the place of another?
    fn is_surely_soon(&self, scene: &Scene, evictions: u32) -> bool {
        u64::from(self.doubt) * u64::from(evictions) <= u64::from(DOUBT_FROM) * u64::from(scene.active)
    }

    /// A page comes back soon, but not soon enough for doubt.
    fn turn_down(&mut self, away: &Away) {
        self.turned_down += u32::from(!away.failed);
        self.doubt = self.doubt.saturating_sub(self.turned_down / FADE);
        self.turned_down %= FADE;
    }

    /// A page comes back: if it had made room for another, was that wrong?
    fn judge(&mut self, scene: &Scene, away: &Away) {
        if away.failed && away.evictions <= BACK_BUDGETS.saturating_mul(scene.budget) {
            self.doubt = (self.doubt + DOUBTED_FOR_ONE).min(DOUBT_MOST);
        }
    }

    /// So many of the oldest active pages lose their place, of which the unproven ones are the
    /// first.
    fn lose(&mut self, count: u32) -> u32 {
        self.unproven = self.unproven.saturating_sub(count);
        count
    }
}

impl Policy for Adaptive {
    /// Found pages count: a program is left alone until it has used most of its budget.
    fn admit(&mut self, scene: &Scene, _: Arrival) -> ListId {
        if self.came_back || scene.active >= scene.budget / FIRST_SHARE {
            return ListId::Inactive;
        }
        self.unproven += 1;
        ListId::Active
    }

    fn touched(&mut self, _: &Scene, _: Waited, _: Stamp) -> Place {
        self.chance.touched();
        Place::ACTIVE
    }

    fn refault(&mut self, scene: &Scene, away: &Away) -> Place {
        self.came_back = true;
        self.chance.back(scene, away);
        self.judge(scene, away);
        if away.evictions > scene.active {
            return Place::INACTIVE;
        }
        if self.is_surely_soon(scene, away.evictions) {
            self.due = (self.due + 1).min(self.unproven);
        } else {
            self.turn_down(away);
        }
        Place::ACTIVE
    }

    /// Three of them count as a refault. (*The story:* of a loop that is read ahead one page in some
    /// hundred is a refault. Beside memory that came first and was never used again it read 2.7
    /// times what LRU reads, though it fitted into the rest.)
    fn read_ahead(&mut self, scene: &Scene, away: &Away) {
        self.judge(scene, away);
        if away.evictions > scene.active {
            return;
        }
        if self.is_surely_soon(scene, away.evictions) {
            self.foretold += 1;
            self.due = (self.due + self.foretold / FORETOLD_FOR_ONE).min(self.unproven);
            self.foretold %= FORETOLD_FOR_ONE;
        } else {
            self.turn_down(away);
        }
    }

    fn kept(&self, scene: &Scene) -> u32 {
        self.chance.pages(scene)
    }

    fn follows(&self) -> Follows {
        self.chance.follows()
    }

    fn replaced(&mut self, scene: &Scene) -> u32 {
        // Unproven pages may have gone by themselves.
        self.unproven = self.unproven.min(scene.active);
        let due = core::mem::take(&mut self.due).min(self.unproven);
        self.doubt = self.doubt.saturating_sub(due);
        self.lose(due)
    }

    fn deactivates(&mut self, scene: &Scene) -> u32 {
        if ACTIVE_SHARE * scene.inactive < scene.active { self.lose(BATCH) } else { 0 }
    }

    /// So many pages are going: some active ones become inactive, however short that list is for
    /// its part.
    fn follow(&mut self, scene: &Scene, going: u32) -> u32 {
        if ACTIVE_FEW * scene.active <= scene.inactive {
            return 0;
        }
        self.aged += u64::from(going) * u64::from(scene.active);
        let turn = u64::from(ACTIVE_TURNS) * u64::from(scene.inactive.max(1));
        let due = (self.aged / turn) as u32;
        self.aged %= turn;
        self.lose(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::RegionKind;

    #[test]
    fn the_active_list_goes_round_once_in_sixteen() {
        let mut policy = Adaptive::default();
        let scene = Scene { inactive: 100, active: 300, ..Scene::default() };
        assert_eq!(policy.deactivates(&scene), 0);
        assert_eq!(policy.deactivates(&Scene { active: 301, ..scene }), BATCH);
        let due: u32 = (0..1600).map(|_| policy.follow(&scene, 1)).sum();
        assert_eq!(due, 300, "once, while 1600 inactive pages went");
        assert_eq!(policy.follow(&Scene { active: 12, ..scene }, 1600), 0, "so few are left alone");
    }

    #[test]
    fn what_was_away_for_less_than_the_active_list_is_active() {
        let mut policy = Adaptive::default();
        let scene = Scene { active: 10, ..Scene::default() };
        let away = |evictions| Away { evictions, stamp: 0, failed: false };
        assert_eq!(policy.refault(&scene, &away(10)), Place::ACTIVE);
        assert_eq!(policy.refault(&scene, &away(11)), Place::INACTIVE);
    }

    /// *The story:* all went by order of arrival, so that of a loop over a third more than memory
    /// nothing stayed; on the public traces the default read more than LRU (1.12).
    #[test]
    fn half_of_the_budget_is_kept_for_what_comes_first() {
        let mut policy = Adaptive::default();
        let scene = |active| Scene { budget: 100, active, ..Scene::default() };
        let touched = Arrival::Touched(RegionKind::Anon);
        assert_eq!(policy.admit(&scene(0), Arrival::Found), ListId::Active, "it was left alone till now");
        for active in 1..50 {
            assert_eq!(policy.admit(&scene(active), touched), ListId::Active);
        }
        assert_eq!(policy.admit(&scene(50), touched), ListId::Inactive);
        policy.refault(&scene(50), &Away { evictions: 51, stamp: 0, failed: false });
        assert_eq!(policy.admit(&scene(40), touched), ListId::Inactive, "that is no longer the first");
    }

    /// What came first and is never used again must not hold half of memory for ever.
    #[test]
    fn whoever_proves_to_be_in_use_takes_the_place_of_one_that_came_first() {
        let mut policy = Adaptive::default();
        let scene = Scene { budget: 100, active: 9, ..Scene::default() };
        for active in 0..10 {
            policy.admit(&Scene { active, ..scene }, Arrival::Touched(RegionKind::Anon));
        }
        let mut refault = |evictions| {
            policy.refault(&scene, &Away { evictions, stamp: 0, failed: false });
            policy.replaced(&scene)
        };
        assert_eq!((refault(10), refault(9), refault(9)), (0, 1, 1));
        let replaced: u32 = (0..100).map(|_| refault(9)).sum();
        assert_eq!(replaced, 7, "nine were left in all, and two had gone");
        assert_eq!(refault(9), 0, "who proved to be in use stays");
    }

    /// *The story:* see `read_ahead`.
    #[test]
    fn whoever_is_read_ahead_soon_enough_proves_it_too() {
        let mut policy = Adaptive { unproven: 2, ..Adaptive::default() };
        let scene = Scene { active: 9, ..Scene::default() };
        let mut after = |evictions| {
            policy.read_ahead(&scene, &Away { evictions, stamp: 0, failed: false });
            policy.replaced(&scene)
        };
        assert_eq!([10, 9, 9, 9, 9, 9, 9].map(&mut after), [0, 0, 0, 1, 0, 0, 1]);
        assert_eq!([9; 3].map(after), [0; 3], "none is left");
    }

    /// *The story:* of a loop over a third more than memory 0.93 of what LRU reads was read: whoever
    /// came back first took the place of one that came first, which was back a lap later. It reads
    /// 0.59 since.
    #[test]
    fn where_those_come_back_that_made_room_fewer_make_room() {
        let scene = Scene { budget: 100, active: 50, ..Scene::default() };
        let mut policy = Adaptive { unproven: 50, ..Adaptive::default() };
        let mut refault = |evictions, failed| {
            policy.refault(&scene, &Away { evictions, stamp: 0, failed });
            policy.replaced(&scene)
        };
        assert_eq!(
            (refault(50, false), refault(401, true), refault(50, false)),
            (1, 0, 1),
            "none is back yet"
        );
        assert_eq!([399; 4].map(|evictions| refault(evictions, true)), [0; 4], "four were back");
        assert_eq!(refault(50, false), 0, "that is not soon enough any more");
        let replaced: u32 = (0..4).map(|_| refault(30, false)).sum();
        assert_eq!(replaced, 4, "and that is; nobody came back meanwhile");
        assert_eq!(refault(50, false), 1);
    }

    /// *The story:* once doubt was large, only pages that were back at once took a place, and only
    /// they made doubt smaller. After a change of phase what came first and is dead kept its place.
    #[test]
    fn doubt_fades_while_others_come_back() {
        let scene = Scene { budget: 100, active: 50, ..Scene::default() };
        let mut policy = Adaptive { unproven: 50, doubt: DOUBT_MOST, ..Adaptive::default() };
        let mut turned_down = 0;
        loop {
            policy.refault(&scene, &Away { evictions: 40, stamp: 0, failed: false });
            if policy.replaced(&scene) > 0 {
                break;
            }
            turned_down += 1;
        }
        assert_eq!(turned_down, FADE * (DOUBT_MOST - 10), "forty of fifty is soon enough for a doubt of ten");
    }
}
