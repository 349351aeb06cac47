//! Pages are ranked by the distance between two touches, which are learnt by tests: nearly all
//! frames are given to pages that come back soon, the rest pass through a small part.
//!
//! LIRS does so (S. Jiang and X. Zhang, SIGMETRICS 2002), and knows every touch. Here the touch of a
//! page in view is not seen. So the oldest of the active pages are taken out of view and keep their
//! frames: they are *tested*. One that is touched is in use; it goes back, youngest of the active,
//! for one soft fault. One that is not touched grows old in its test, and its age is what others
//! are measured by: a page that comes back sooner than that takes its place.
//!
//! - A page of which nothing is known passes through: in view, then out of view, then out. Is it
//!   touched out of view, or wanted back, its distance is known (arrivals since it came itself),
//!   and it is active if that is less than the age of the oldest test.
//! - A test that is older than the distance at which pages usually come back has failed: the page
//!   leaves before those that pass through.
//! - Where tests fail (a program has turned to something else) more pages are tested, up to all of
//!   them, and where they succeed fewer, down to next to none. A page that failed and soon comes
//!   back takes its vote back.
//!
//! *A price for every fault.* A fault that waits for the device earns a part of a soft fault, one
//! that waits for the compressed pool next to none, and every touch of a page out of view costs
//! one. Who is in debt tests nothing, and keeps little out of view. So soft faults stay below a
//! fixed share of the time that is spent on the others, whatever a program does; and the share
//! grows where tests are right and shrinks where what they drove out is wanted soon.
//!
//! Read-ahead counts as a fault where it is right. A touched page's unit comes back with it.
//!
//! Unfit for: a set that changes sooner than it has been gone through twice, since a page has to
//! come back once before it is kept.

use super::BATCH;
use super::policy::{Arrival, Away, Noted, Place, Policy, Scene, Stamp, Waited};
use crate::list::ListId;

/// Frames for pages that pass through: at the least one in so many, but not more than the second
/// number unless that is learnt.
const PASSING_SHARE: u32 = 32;
const PASSING_MAX: u32 = 8192;
/// And so many of them.
const PASSING_MIN: u32 = 8;
/// One in so many of those is out of view.
const UNVIEWED_SHARE: u32 = 4;
/// At most so many while there is no credit.
const UNVIEWED_IN_DEBT: u32 = 256;
/// At the least so many pages are tested: one in so many.
const TESTED_SHARE: u32 = 32;
/// So many more for one that fails, and fewer for one that failed and was wanted soon.
const FAILURE_WORTH: u32 = 16;
/// The usual distance is a mean over so many refaults.
const MEMORY: u32 = 16;
/// A page takes the place of one whose test is older than its own distance by this part; reclaim
/// works in batches, so that ages are not exact.
const MARGIN: u32 = 8;
/// A test has failed when it is older than usual by this part: twice as old. (With a quarter more
/// the means over the LIRS suite were 0.888 of LRU in place of 0.882.)
const LATE: u32 = 1;
/// A page's stamp is in steps of this part of the budget, so that it wraps after 64 budgets.
const STEPS: u32 = 1024;

/// The price of a touch out of view, in parts.
const SOFT: i64 = 256;
/// What a fault earns that waits for the device: an eighth of one to a whole, a quarter at first. As
/// measured in the simulator a touch out of view costs an eighth of a read from a fast device.
const EARNED: core::ops::RangeInclusive<i64> = SOFT / 8..=SOFT;
const EARNED_AT_FIRST: i64 = SOFT / 4;
/// What one earns that waits for the compressed pool: so many times less.
const POOL_LESS: i64 = 16;
/// A test that fails makes the next ones worth so much more, one that was wrong so much less.
const RIGHT: i64 = 1;
const WRONG: i64 = 2;

/// What is known of distances, and how much is tested.
#[derive(Debug)]
pub(crate) struct Probing {
    /// Pages that got a frame so far.
    arrivals: u32,
    /// log2 of the arrivals in a step of stamps.
    shift: u32,
    /// The usual distance of a refault, in [`MEMORY`]ths of a step; `None`: there was none.
    usual: Option<u32>,
    /// So many pages are to be tested.
    wanted: u32,
    /// Parts of soft faults that may still be spent.
    credit: i64,
    /// What a fault earns.
    earned: i64,
}

impl Probing {
    pub fn new(budget: u32) -> Probing {
        let shift = (budget / STEPS).max(1).ilog2();
        Probing { arrivals: 0, shift, usual: None, wanted: 0, credit: 0, earned: EARNED_AT_FIRST }
    }

    fn now(&self) -> Stamp {
        (self.arrivals >> self.shift) as Stamp
    }

    /// Steps since `stamp`.
    fn age(&self, stamp: Stamp) -> u32 {
        u32::from(self.now().wrapping_sub(stamp))
    }

    /// The age of the oldest test.
    fn oldest(&self, scene: &Scene) -> Option<u32> {
        scene.oldest_test.map(|stamp| self.age(stamp))
    }

    /// Is a page that comes back after so long to take the place of the one tested longest?
    fn place(&mut self, scene: &Scene, distance: u32) -> Place {
        if self.oldest(scene).is_some_and(|age| age > distance + distance / MARGIN) {
            self.failed();
            Place { list: ListId::Active, demotes: true }
        } else if self.has_room(scene, distance) {
            Place::ACTIVE
        } else {
            Place::INACTIVE
        }
    }

    /// Have those that pass through more than their part, while the page comes back within the
    /// others' time?
    fn has_room(&self, scene: &Scene, distance: u32) -> bool {
        let passing = scene.inactive + scene.cached;
        let proven = scene.active + scene.tested;
        passing > 2 * Self::passing_least(scene) && distance <= proven >> self.shift
    }

    fn failed(&mut self) {
        self.wanted = self.wanted.saturating_add(FAILURE_WORTH);
        self.earns(RIGHT);
    }

    fn earns(&mut self, more: i64) {
        self.earned = (self.earned + more).clamp(*EARNED.start(), *EARNED.end());
    }

    fn note_distance(&mut self, distance: u32) {
        let usual = self.usual.unwrap_or(distance * MEMORY);
        self.usual = Some(usual - usual / MEMORY + distance);
    }

    fn is_usual(&self, distance: u32) -> bool {
        self.usual.is_some_and(|usual| distance <= usual / MEMORY)
    }

    /// Frames that pages passing through have at the least.
    fn passing_least(scene: &Scene) -> u32 {
        let share = (scene.budget / PASSING_SHARE).clamp(PASSING_MIN, PASSING_MAX);
        share.max((scene.windows / 4).min(scene.budget / 16))
    }

    fn most_tested(scene: &Scene) -> u32 {
        scene.active + scene.tested
    }
}

impl Policy for Probing {
    /// Memory that is filled before anything came back is active, as far as it goes: nobody knows
    /// better, and who goes round and round keeps that much.
    fn admit(&mut self, scene: &Scene, _: Arrival) -> ListId {
        let proven = scene.active + scene.tested;
        let is_new = self.usual.is_none() && proven + Self::passing_least(scene) < scene.budget;
        if is_new { ListId::Active } else { ListId::Inactive }
    }

    fn touched(&mut self, scene: &Scene, waited: Waited, stamp: Stamp) -> Place {
        self.credit -= SOFT;
        if waited == Waited::Tested {
            self.wanted = self.wanted.saturating_sub(1);
            return Place::ACTIVE;
        }
        self.place(scene, self.age(stamp))
    }

    fn refault(&mut self, scene: &Scene, away: &Away) -> Place {
        let distance = self.age(away.stamp);
        if away.failed && self.is_usual(distance) {
            self.wanted = self.wanted.saturating_sub(FAILURE_WORTH);
            self.earns(-WRONG);
        }
        self.note_distance(distance);
        self.place(scene, distance)
    }

    /// Read-ahead that is right says as much as a fault.
    fn foreseen(&mut self, scene: &Scene, away: &Away) -> Place {
        self.refault(scene, away)
    }

    /// Only where there is nothing else.
    fn deactivates(&mut self, scene: &Scene) -> u32 {
        if scene.inactive + scene.cached + scene.tested == 0 { BATCH } else { 0 }
    }

    fn kept(&self, scene: &Scene) -> u32 {
        let passing = (scene.inactive + scene.cached) / UNVIEWED_SHARE;
        let passing = if self.credit > 0 { passing } else { passing.min(UNVIEWED_IN_DEBT) };
        passing + scene.windows.min(scene.second_chance)
    }

    fn tests(&mut self, scene: &Scene) -> u32 {
        let most = Self::most_tested(scene);
        self.wanted = self.wanted.clamp((most / TESTED_SHARE).min(most), most);
        if self.credit <= 0 || self.wanted < scene.tested {
            return 0;
        }
        (self.wanted + 1 - scene.tested).min(scene.active).min(BATCH)
    }

    fn fails(&mut self, scene: &Scene) -> bool {
        let Some(age) = self.oldest(scene) else { return false };
        let is_late = self.usual.is_some_and(|usual| age > (usual + usual / LATE) / MEMORY);
        let fails = is_late || 4 * (scene.inactive + scene.cached) < Self::passing_least(scene);
        if fails {
            self.failed();
        }
        fails
    }

    fn arrived(&mut self, pages: u32) {
        self.arrivals = self.arrivals.wrapping_add(pages);
    }

    fn paid(&mut self, cheap: bool) {
        // So much is saved up at the most: a test of everything, once.
        let most = i64::from(STEPS << self.shift) * SOFT;
        let earned = if cheap { self.earned / POOL_LESS } else { self.earned };
        self.credit = (self.credit + earned).min(most);
    }

    fn stamp(&self, _: Noted) -> Option<Stamp> {
        Some(self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        Scene { budget: 1000, inactive: 40, active: 900, tested: 20, ..Scene::default() }
    }

    #[test]
    fn who_comes_back_sooner_than_the_oldest_test_takes_its_place() {
        let mut policy = Probing::new(1000);
        policy.arrived(500);
        let stamp = policy.now();
        policy.arrived(100);
        let away = Away { evictions: 0, stamp, failed: false };
        let tested = |ago: u16| Scene { oldest_test: Some(600 - ago), ..scene() };
        assert_eq!(policy.refault(&tested(112), &away), Place::INACTIVE);
        assert_eq!(policy.refault(&tested(113), &away), Place { list: ListId::Active, demotes: true });
    }

    #[test]
    fn tests_fail_when_they_last_longer_than_pages_are_away() {
        let mut policy = Probing::new(1000);
        policy.arrived(500);
        for _ in 0..100 {
            policy.refault(&scene(), &Away { evictions: 0, stamp: 300, failed: false });
        }
        let since = |stamp| Scene { oldest_test: Some(stamp), ..scene() };
        assert!(!policy.fails(&since(100)) && policy.fails(&since(99)), "twice as long");
        let few = Scene { inactive: 7, ..since(499) };
        assert!(policy.fails(&few), "those that pass through get their part");
    }

    #[test]
    fn soft_faults_are_paid_for() {
        let mut policy = Probing::new(1000);
        let none = Scene { tested: 0, ..scene() };
        assert_eq!(policy.tests(&none), 0, "nothing is earned yet");
        (0..8).for_each(|_| policy.paid(false));
        assert!(policy.tests(&none) > 0);
        for _ in 0..2 {
            assert_eq!(policy.touched(&scene(), Waited::Tested, 0), Place::ACTIVE);
        }
        assert_eq!((policy.credit, policy.tests(&none)), (0, 0), "four faults for a touch");
        (0..60).for_each(|_| policy.paid(true));
        policy.touched(&scene(), Waited::Tested, 0);
        assert!(policy.credit < 0, "sixty of the pool earn less than one");
    }

    #[test]
    fn tests_that_fail_are_followed_by_more_and_those_that_do_not_by_fewer() {
        let mut policy = Probing::new(1000);
        (0..1000).for_each(|_| policy.paid(false));
        (0..20).for_each(|_| policy.failed());
        assert_eq!(policy.tests(&Scene { tested: 315, ..scene() }), 20 * FAILURE_WORTH + 1 - 315);
        (0..250).for_each(|_| _ = policy.touched(&scene(), Waited::Tested, 0));
        (0..1000).for_each(|_| policy.paid(false));
        assert_eq!(policy.tests(&Scene { tested: 65, ..scene() }), 20 * FAILURE_WORTH - 250 + 1 - 65);
    }

    /// Where those that failed are wanted soon, tests are not worth their price.
    #[test]
    fn tests_that_were_wrong_earn_less() {
        let mut policy = Probing::new(1000);
        policy.arrived(500);
        let soon = Away { evictions: 0, stamp: 400, failed: true };
        (0..500).for_each(|_| _ = policy.refault(&scene(), &soon));
        assert_eq!(policy.earned, *EARNED.start());
        (0..1000).for_each(|_| policy.failed());
        assert_eq!(policy.earned, *EARNED.end());
    }

    #[test]
    fn stamps_wrap() {
        let mut policy = Probing::new(1 << 20);
        policy.arrivals = u32::MAX - 100;
        let stamp = policy.now();
        policy.arrived(1024 * 50 + 101);
        assert_eq!(policy.age(stamp), 51);
    }
}
