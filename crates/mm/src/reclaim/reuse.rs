//! Pages are ranked by the time between two uses. The default where accessed bits are told
//! ([`crate::Probe::Accessed`]), so that whoever is used in view is seen there; by faults alone one of the
//! two that `dueling` lets contend.
//!
//! LIRS ranks so (S. Jiang and X. Zhang, SIGMETRICS 2002), and CLOCK-Pro with bits in place of an
//! order (S. Jiang, F. Chen and X. Zhang, USENIX 2005). The active pages hold nearly all frames, the
//! rest pass through a small part. A page's stamp is the time at which it was last known to be used:
//! when it came, or was found with its bit set. The oldest active page is looked at whenever a page is
//! used again, and goes to the head of its list if its bit is set: so its stamp bounds how long no one
//! of the active ones was used. A page that was used again after less takes its place.
//!
//! With bits the rules that guess from faults are not needed: nothing is taken out of view to be tested,
//! nobody waits there for a second chance, and what comes first is active as it is for LIRS: as far as it
//! goes. By faults alone the oldest active page is who was not out of view for longest, used or not; an
//! eighth passes through, of which an eighth is out of view. What is read ahead takes no place there: what
//! is missing would lie in pieces.
//!
//! Two guards keep the worst case near that of an order of use, which LIRS alone does not (1.92 of
//! LRU for a walk up and down, 1.36 for a set that moves on):
//! - *Nobody is driven out in vain for long* ([`super::regret`]). By faults alone only those count as back
//!   that are not away much longer than who took their places had been. (*The story:* of clamscan in 80 %
//!   of its memory most of those that made room were back within some budgets of arrivals, and nearly nobody
//!   was driven out any more. But who came in their places came back much sooner than that.)
//! - Where pages come back soon after they passed through, more frames are given to those that pass,
//!   up to a third of the budget: a set that moves on is used there. Where those come back that made
//!   room, fewer.
//!
//! Unfit for: an order of use that bits do not tell. If all pages were used between two looks the
//! oldest is who came first. By faults alone: a set that moves on before anybody has come back.

use super::BATCH;
use super::arrivals::Arrivals;
use super::chance::Chance;
use super::policy::{Arrival, Away, Follows, Noted, Place, Policy, Scene, Stamp, Waited};
use super::regret::Regret;
use crate::list::ListId;
use crate::part::Part;

/// Frames for pages that pass through: at the least one in so many, and by faults alone.
const PASSING_SHARE: u32 = 64;
const PASSING_SHARE_BY_FAULTS: u32 = 8;
/// And so many of them.
const PASSING_MIN: u32 = 8;
/// They may grow to this part of the budget.
const PASSING_GROWN: u32 = 3;
/// ... by so much for each page that comes back within the time in which so many times as many pass.
const GROWTH: u32 = 8;
const AT_ONCE: u32 = 4;
/// A page takes a place if the oldest active one was used longer ago by this part: ages are not exact.
const MARGIN: u32 = 8;
/// Who made room is back if that is within so many budgets of arrivals.
const BACK_BUDGETS: u32 = 8;
/// Where more than so many of four come back, one in so many is tried.
const BACK_MOST_OF_FOUR: u32 = 2;
const TRIED_ONE_IN: u32 = 64;

/// By faults alone: who is away for more than so many times as long as who took his place was is not back
/// too soon. (With two times 0.887 of LRU on the public traces, with four 0.874, with eight 0.855; without
/// such a bound 0.857, and clamscan reads half as much again.)
const BACK_TIMES: u32 = 8;
/// ... which is a mean over so many.
const MEMORY: u32 = 16;
/// ... and of those that pass one in so many is out of view, and at the most one in so many where windows
/// are large.
const UNVIEWED_SHARE: u32 = 8;
const UNVIEWED_MOST: u32 = 2;

/// What is known of distances.
#[derive(Debug)]
pub(crate) struct Reuse {
    arrivals: Arrivals,
    regret: Regret,
    /// Frames for pages that pass through, beyond the least.
    grown: u32,
    /// What faults alone tell; `None`: there are bits.
    faults: Option<ByFaults>,
}

/// See there.
#[derive(Debug, Default)]
struct ByFaults {
    /// How many wait out of view for a second chance.
    chance: Chance,
    /// How long those had been away that took the places of others, in [`MEMORY`]ths of a step.
    exchanged: u32,
}

impl Reuse {
    /// Where accessed bits are told.
    pub fn by_bits(budget: u32) -> Reuse {
        let regret = Regret::new(BACK_MOST_OF_FOUR, TRIED_ONE_IN);
        Reuse { arrivals: Arrivals::new(budget), regret, grown: 0, faults: None }
    }

    /// Where they are not.
    pub fn by_faults(budget: u32) -> Reuse {
        Reuse { faults: Some(ByFaults::default()), ..Reuse::by_bits(budget) }
    }

    /// Frames for pages that pass through.
    fn passing(&self, scene: &Scene) -> u32 {
        let share = if self.faults.is_some() { PASSING_SHARE_BY_FAULTS } else { PASSING_SHARE };
        // The budget may have shrunk since.
        (scene.budget / share).max(PASSING_MIN) + self.grown.min(scene.budget / PASSING_GROWN)
    }

    /// So many pages may be active.
    fn active_most(&self, scene: &Scene) -> u32 {
        scene.budget.saturating_sub(scene.kept_free + self.passing(scene)).max(1)
    }

    /// A page was used again after it had left, or nearly: more frames for those that pass through, if
    /// they would have kept it.
    fn resize(&mut self, scene: &Scene, distance: u32) {
        let most = scene.budget / PASSING_GROWN;
        let soon = self.passing(scene).saturating_mul(AT_ONCE).min(most);
        if self.arrivals.pages_in(distance) <= u64::from(soon) {
            self.grown = (self.grown + GROWTH).min(most);
        }
    }

    /// Where a page belongs that was used again after so long.
    fn place(&mut self, scene: &Scene, distance: u32) -> Place {
        if self.has_room(scene) {
            return Place::ACTIVE;
        }
        let is_older = |stamp| {
            let age = self.arrivals.age(stamp);
            u64::from(MARGIN) * u64::from(age) > u64::from(MARGIN + 1) * u64::from(distance)
        };
        if !scene.oldest_active.is_some_and(is_older) || self.regret.spares() {
            return Place::INACTIVE;
        }
        self.regret.count_out();
        if let Some(faults) = &mut self.faults {
            faults.exchanged = faults.exchanged - faults.exchanged / MEMORY + distance;
        }
        Place { list: ListId::Active, demotes: true }
    }

    fn has_room(&self, scene: &Scene) -> bool {
        scene.active < self.active_most(scene)
    }

    /// Is a page that made room back too soon?
    fn is_early(&self, scene: &Scene, distance: u32) -> bool {
        let exchanged = |faults: &ByFaults| u64::from(BACK_TIMES) * u64::from(faults.exchanged / MEMORY);
        self.arrivals.is_within(distance, BACK_BUDGETS, scene)
            && self.faults.as_ref().is_none_or(|faults| u64::from(distance) <= exchanged(faults))
    }

    /// A page has come back: was it wrong to drive it out?
    fn judge(&mut self, scene: &Scene, away: &Away, distance: u32) {
        if !away.failed {
            return;
        }
        self.grown = self.grown.saturating_sub(1);
        if self.is_early(scene, distance) {
            self.regret.count_back();
        }
    }
}

impl Policy for Reuse {
    fn asks_what_is_free(&self) -> bool {
        true
    }

    fn admit(&mut self, scene: &Scene, _: Arrival) -> ListId {
        if self.has_room(scene) { ListId::Active } else { ListId::Inactive }
    }

    fn ranks_active(&self, _: Part) -> bool {
        true
    }

    fn touched(&mut self, scene: &Scene, waited: Waited, stamp: Stamp) -> Place {
        let distance = self.arrivals.age(stamp);
        if let Some(faults) = &mut self.faults {
            faults.chance.touched();
        }
        if waited != Waited::Nowhere {
            self.resize(scene, distance);
        }
        self.place(scene, distance)
    }

    fn refault(&mut self, scene: &Scene, away: &Away) -> Place {
        if let Some(faults) = &mut self.faults {
            faults.chance.back(scene, away);
        }
        let distance = self.arrivals.age(away.stamp);
        self.judge(scene, away, distance);
        if !away.failed {
            self.resize(scene, distance);
        }
        self.place(scene, distance)
    }

    /// Read-ahead that is right says as much as a fault, but that the page passed too soon.
    fn foreseen(&mut self, scene: &Scene, away: &Away) -> Place {
        let distance = self.arrivals.age(away.stamp);
        self.judge(scene, away, distance);
        if self.faults.is_some() && !self.has_room(scene) {
            return Place::INACTIVE;
        }
        self.place(scene, distance)
    }

    fn deactivates(&mut self, scene: &Scene) -> u32 {
        let least = if scene.inactive + scene.cached == 0 { BATCH } else { 0 };
        scene.active.saturating_sub(self.active_most(scene)).max(least).min(scene.active)
    }

    /// Bits say more than a touch out of view would: only windows wait there.
    fn kept(&self, scene: &Scene) -> u32 {
        let windows = scene.windows.min(scene.second_chance);
        let Some(faults) = &self.faults else { return windows };
        let passing = scene.inactive + scene.cached;
        let kept = (passing / UNVIEWED_SHARE + windows).min(passing / UNVIEWED_MOST);
        if faults.chance.tells() { kept.max(faults.chance.pages(scene)) } else { kept }
    }

    fn arrived(&mut self, _: Part, pages: u32) {
        self.arrivals.add(pages);
    }

    fn stamp(&self, _: Part, _: Noted) -> Option<Stamp> {
        Some(self.arrivals.now())
    }

    /// With bits each page is looked at for itself.
    fn follows(&self) -> Follows {
        match &self.faults {
            None => Follows::Nobody,
            Some(faults) => faults.chance.follows(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that may be active is, and the oldest of it was last used at `used`.
    fn full(used: Stamp) -> Scene {
        let scene = Scene { budget: 1000, inactive: 15, kept_free: 30, ..Scene::default() };
        Scene { active: 1000 - 30 - 15, oldest_active: Some(used), ..scene }
    }

    fn away(stamp: Stamp, failed: bool) -> Away {
        Away { evictions: 0, stamp, failed }
    }

    fn at(now: u32) -> Reuse {
        let mut policy = Reuse::by_bits(1000);
        policy.arrived(Part::Rest, now);
        policy
    }

    #[test]
    fn what_comes_first_is_active_as_far_as_it_goes() {
        let mut policy = at(0);
        let scene = full(0);
        assert_eq!(policy.admit(&scene, Arrival::Found), ListId::Inactive);
        let less = Scene { active: scene.active - 1, ..scene };
        assert_eq!(policy.admit(&less, Arrival::Found), ListId::Active);
        assert_eq!(policy.deactivates(&Scene { active: scene.active + 9, ..scene }), 9);
    }

    #[test]
    fn who_is_used_again_sooner_than_the_oldest_active_page_takes_its_place() {
        let mut policy = at(3000);
        let taken = Place { list: ListId::Active, demotes: true };
        // After 800 arrivals, while the oldest was not used for 900, and for 901.
        assert_eq!(policy.refault(&full(2100), &away(2200, false)), Place::INACTIVE);
        assert_eq!(policy.refault(&full(2099), &away(2200, false)), taken);
        assert_eq!(policy.touched(&full(2099), Waited::Nowhere, 2200), taken, "its bit was found set");
        let all_used = Scene { oldest_active: None, ..full(0) };
        assert_eq!(policy.refault(&all_used, &away(2999, false)), Place::INACTIVE);
    }

    /// *The story:* of a walk up and down LIRS reads 1.9 times what LRU reads: whoever comes back at
    /// a turn takes the place of one that is wanted on the way back.
    #[test]
    fn where_those_come_back_that_made_room_few_are_driven_out() {
        let mut policy = at(9000);
        let driven_out = |policy: &mut Reuse, failed: bool| {
            (0..640).filter(|_| policy.refault(&full(1), &away(2000, failed)).demotes).count()
        };
        assert_eq!(driven_out(&mut policy, false), 640);
        driven_out(&mut policy, true);
        let tried = driven_out(&mut policy, false);
        assert!((5..=20).contains(&tried), "one in sixty-four: {tried}");
    }

    /// *The story:* a set that moves on was used while it passed through, and a sixty-fourth of memory
    /// was too little for it: 1.36 of LRU.
    #[test]
    fn those_that_pass_through_grow_for_what_growth_would_have_kept() {
        let mut policy = at(5000);
        let least = policy.passing(&full(0));
        policy.refault(&full(4999), &away(5000 - 4 * least as Stamp - 1, false));
        policy.touched(&full(4999), Waited::Nowhere, 4999);
        assert_eq!(policy.grown, 0, "that is too long ago, and a bit shows who was kept");
        policy.refault(&full(4999), &away(5000 - 4 * least as Stamp, false));
        policy.touched(&full(4999), Waited::ToLeave, 4999);
        assert_eq!(policy.grown, 2 * GROWTH);
        policy.refault(&full(4999), &away(4999, true));
        assert_eq!(policy.grown, 2 * GROWTH - 1, "who made room is back");
        (0..1000).for_each(|_| _ = policy.refault(&full(4999), &away(4999, false)));
        assert_eq!(policy.grown, 1000 / PASSING_GROWN);
        policy.grown = 200;
        policy.refault(&full(4999), &away(5000 - 334, false));
        assert_eq!(policy.grown, 200, "a third would not have kept it");
    }

    /// *The story:* see above, "in vain".
    #[test]
    fn by_faults_alone_who_is_away_much_longer_than_his_successor_was_is_not_back_too_soon() {
        let mut policy = Reuse::by_faults(1000);
        policy.arrived(Part::Rest, 5000);
        let scene = |active| Scene {
            budget: 1000,
            kept_free: 30,
            active,
            oldest_active: Some(0),
            ..Scene::default()
        };
        let full = scene(1000 - 30 - 125);
        for _ in 0..160 {
            assert!(policy.refault(&full, &away(5000 - 20, false)).demotes, "who comes back after 20");
        }
        let backs = |policy: &mut Reuse, distance: u16| {
            // Nobody makes room for them.
            let scene = Scene { oldest_active: None, ..full };
            (0..200).for_each(|_| _ = policy.refault(&scene, &away(5000 - distance, true)));
            policy.regret.back()
        };
        assert_eq!(backs(&mut policy, 20 * 8 + 1), 0);
        assert!(backs(&mut policy, 20 * 8) > 0);
    }
}
