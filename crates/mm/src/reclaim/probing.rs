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
//!   them, and where they succeed fewer, down to next to none. A page that failed and comes back
//!   takes its vote back.
//! - *Who comes first* is active, up to three quarters of the budget: nobody knows better, and who
//!   goes round and round keeps that much.
//! - Where there is no credit for tests, a page that comes back soon enough takes the place of the
//!   oldest active one all the same, untested, by way of the swap cache.
//! - *Nobody is driven out in vain for long.* Of the pages that made room those are counted that
//!   come back. Where most do, only one in [`TRIED_ONE_IN`] is tried: who goes up and down in memory,
//!   or touches all of it alike, keeps what he has, and loses nothing by it.
//! - Pages that come back at once were in use while they passed through, which nobody saw. Where
//!   that happens more frames are given to those that pass through, down from what is proven.
//!
//! *A price for every fault.* A fault that waits for the device earns a part of a soft fault, one
//! that waits for the compressed pool next to none, a first touch nothing, a test that fails a half,
//! and every touch of a page that is tested costs one. (A touch of a page that is about to leave saves
//! a fault that waits.)
//! Who is in debt tests nothing, and keeps little out of view. So soft faults stay below a fixed share
//! of the time that is spent on the others, whatever a program does; and the share grows where tests
//! are right and shrinks where what they drove out comes back.
//!
//! Read-ahead that is right counts as a fault, but takes only the places of tests that failed: it
//! is cheap to repeat. A touched page's unit comes back with it.
//!
//! Unfit for: sets that move on, since a page has to come back once before it is kept; programs that
//! fit but for a little and are done with what came first, since that holds three quarters.

use super::BATCH;
use super::arrivals::Arrivals;
use super::policy::{Arrival, Away, Noted, Place, Policy, Scene, Stamp, Waited};
use super::regret::Regret;
use crate::list::ListId;
use crate::part::Part;

/// Frames for pages that pass through: at the least one in so many, but not more than the second
/// number unless that is learnt.
const PASSING_SHARE: u32 = 32;
const PASSING_MAX: u32 = 8192;
/// And so many of them.
const PASSING_MIN: u32 = 8;
/// They may grow to this part of the budget. Who comes back later than in so many arrivals would be
/// out all the same, so that he is no reason to grow. (Where he was, a loop of a third more than
/// memory grew them: 0.861 of LRU on the public traces, with read-ahead 0.905, in place of 0.847 and
/// 0.900.)
const PASSING_GROWN: u32 = 3;
/// ... by so much for each page that comes back within the time in which so many times as many pass
/// through. (By one at a time a window of 32 MiB that moves over 128 MiB in 96 took 2.25 times as
/// long as under `adaptive`, with four 1.20.)
const GROWTH: u32 = 4;
const AT_ONCE: u32 = 4;
/// One in so many of those is out of view, and at the most one in so many where windows are large.
/// (Without the second a program that had read in order had all that passed through out of view
/// when it turned to random touches: five times the soft faults, 1.24 times the time.)
const UNVIEWED_SHARE: u32 = 8;
const UNVIEWED_MOST: u32 = 2;
/// At most so many while there is no credit.
const UNVIEWED_IN_DEBT: u32 = 256;
/// At the least so many pages are tested: one in so many.
const TESTED_SHARE: u32 = 32;
/// So many more for one that fails, and fewer for one that failed and comes back.
const FAILURE_WORTH: u32 = 16;
/// The usual distance is a mean over so many refaults.
const MEMORY: u32 = 16;
/// A page takes the place of one whose test is older than its own distance by this part; reclaim
/// works in batches, so that ages are not exact.
const MARGIN: u32 = 8;
/// Quarters of the budget for what comes first. (With half of it 0.96 of LRU is read on the public
/// traces in place of 0.90, with read-ahead.)
const FIRST_QUARTERS: u32 = 3;

/// Who made room comes back: within so many budgets of arrivals.
const BACK_BUDGETS: u32 = 4;
/// Where more than so many of four come back one in so many is tried.
const BACK_MOST_OF_FOUR: u32 = 3;
const TRIED_ONE_IN: u32 = 16;

/// The price of a touch of a page that is tested, in parts.
const SOFT: i64 = 256;
/// What a fault earns that waits for the device: a thirty-second of one to an eighth, the least at
/// first. As measured in the simulator a touch out of view costs an eighth of a read from a fast
/// device, so that soft faults take one part in 64 of that time at the most. (With an eighth to a
/// whole random touches were 30 % slower, with a half at the most 7 %.)
const EARNED: core::ops::RangeInclusive<i64> = SOFT / 32..=SOFT / 8;
/// The price of a page that was to be tested and is dropped, since it holds zeroes: its frame is
/// free, but its next touch is a fault.
const EMPTIED: i64 = SOFT / 4;
/// What one earns that waits for the compressed pool: so many times less.
const POOL_LESS: i64 = 16;
/// What a test that fails earns.
const FAILURE_EARNS: i64 = SOFT / 2;
/// A test that fails makes the next ones worth so much more, one that was wrong so much less.
const RIGHT: i64 = 1;
const WRONG: i64 = 2;

/// What is known of distances, and how much is tested.
#[derive(Debug)]
pub(crate) struct Probing {
    /// Pages that got a frame so far.
    arrivals: Arrivals,
    /// The usual distance of a refault, in [`MEMORY`]ths of a step; `None`: there was none.
    usual: Option<u32>,
    /// So many pages are to be tested.
    wanted: u32,
    /// Parts of soft faults that may still be spent.
    credit: i64,
    /// What a fault earns.
    earned: i64,
    /// Is it right that pages make room for others?
    regret: Regret,
    /// So many of the oldest active pages make room untested.
    due: u32,
    /// Frames for pages that pass through, beyond the least.
    grown: u32,
}

impl Probing {
    pub fn new(budget: u32) -> Probing {
        Probing {
            arrivals: Arrivals::new(budget),
            usual: None,
            wanted: 0,
            credit: 0,
            earned: *EARNED.start(),
            regret: Regret::new(BACK_MOST_OF_FOUR, TRIED_ONE_IN),
            due: 0,
            grown: 0,
        }
    }

    /// The age of the oldest test.
    fn oldest(&self, scene: &Scene) -> Option<u32> {
        scene.oldest_test.map(|stamp| self.arrivals.age(stamp))
    }

    /// Takes the place of the one tested longest, if its test is older than this.
    fn takes_place(&mut self, scene: &Scene, distance: u32) -> Option<Place> {
        let least = u64::from(MARGIN + 1) * u64::from(distance);
        let is_older = self.oldest(scene).is_some_and(|age| u64::from(MARGIN) * u64::from(age) > least);
        (is_older && !self.regret.spares()).then(|| {
            self.failed();
            Place { list: ListId::Active, demotes: true }
        })
    }

    /// Where a page belongs that was used again after so long.
    fn place(&mut self, scene: &Scene, distance: u32) -> Place {
        if let Some(place) = self.takes_place(scene, distance) {
            return place;
        }
        if self.has_room(scene, distance) {
            return Place::ACTIVE;
        }
        let proven = scene.active + scene.tested;
        let is_soon = self.arrivals.pages_in(distance) <= u64::from(proven);
        if self.credit <= 0 && is_soon && scene.active > self.due && !self.regret.spares() {
            self.due += 1;
            self.regret.count_out();
            return Place::ACTIVE;
        }
        Place::INACTIVE
    }

    /// Have those that pass through more than their part, while the page comes back within the
    /// others' time?
    fn has_room(&self, scene: &Scene, distance: u32) -> bool {
        let proven = scene.active + scene.tested;
        passing(scene) > 2 * Self::passing_least(scene) + self.grown
            && distance <= proven >> self.arrivals.shift()
    }

    fn failed(&mut self) {
        self.wanted = self.wanted.saturating_add(FAILURE_WORTH);
        self.credit += FAILURE_EARNS;
        self.earns(RIGHT);
        self.regret.count_out();
    }

    /// A page has come back: was it wrong to drive it out?
    fn judge(&mut self, scene: &Scene, away: &Away, distance: u32) {
        if away.failed {
            self.wanted = self.wanted.saturating_sub(FAILURE_WORTH);
            self.earns(-WRONG);
            if self.arrivals.is_within(distance, BACK_BUDGETS, scene) {
                self.regret.count_back();
            }
        }
        self.note_distance(distance);
    }

    /// A fault brings a page back: do those that pass through have too few frames, or too many?
    fn resize(&mut self, scene: &Scene, away: &Away, distance: u32) {
        let passing = passing(scene).max(Self::passing_least(scene));
        let most = scene.budget / PASSING_GROWN;
        let at_once = passing.saturating_mul(AT_ONCE).min(most);
        if away.failed {
            self.grown = self.grown.saturating_sub(1);
        } else if self.arrivals.pages_in(distance) <= u64::from(at_once) {
            self.grown = (self.grown + GROWTH).min(most);
        }
    }

    fn earns(&mut self, more: i64) {
        self.earned = (self.earned + more).clamp(*EARNED.start(), *EARNED.end());
    }

    fn note_distance(&mut self, distance: u32) {
        let usual = self.usual.unwrap_or(distance * MEMORY);
        self.usual = Some(usual - usual / MEMORY + distance);
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

/// Pages that pass through.
fn passing(scene: &Scene) -> u32 {
    scene.inactive + scene.cached
}

impl Policy for Probing {
    /// Memory that is filled before anything came back is active, as far as it goes.
    fn admit(&mut self, scene: &Scene, _: Arrival) -> ListId {
        let proven = u64::from(scene.active + scene.tested);
        let is_new = self.usual.is_none() && 4 * proven < u64::from(FIRST_QUARTERS) * u64::from(scene.budget);
        if is_new { ListId::Active } else { ListId::Inactive }
    }

    fn touched(&mut self, scene: &Scene, waited: Waited, stamp: Stamp) -> Place {
        if matches!(waited, Waited::Tested | Waited::Nowhere) {
            // What a bit tells costs no fault.
            self.credit -= if waited == Waited::Tested { SOFT } else { 0 };
            self.wanted = self.wanted.saturating_sub(1);
            return Place::ACTIVE;
        }
        self.place(scene, self.arrivals.age(stamp))
    }

    fn refault(&mut self, scene: &Scene, away: &Away) -> Place {
        let distance = self.arrivals.age(away.stamp);
        self.resize(scene, away, distance);
        self.judge(scene, away, distance);
        self.place(scene, distance)
    }

    /// Read-ahead that is right says as much as a fault of whether tests were right.
    fn foreseen(&mut self, scene: &Scene, away: &Away) -> Place {
        let distance = self.arrivals.age(away.stamp);
        self.judge(scene, away, distance);
        self.takes_place(scene, distance).unwrap_or(Place::INACTIVE)
    }

    /// Only where there is nothing else.
    fn deactivates(&mut self, scene: &Scene) -> u32 {
        if scene.inactive + scene.cached + scene.tested == 0 { BATCH } else { 0 }
    }

    /// Without tests those that pass through can grow in this way only.
    fn replaced(&mut self, scene: &Scene) -> u32 {
        if self.credit <= 0
            && scene.tested == 0
            && passing(scene) + self.due < self.grown
            && !self.regret.spares()
        {
            self.due += 1;
            self.regret.count_out();
        }
        core::mem::take(&mut self.due).min(scene.active)
    }

    fn kept(&self, scene: &Scene) -> u32 {
        let unviewed = passing(scene) / UNVIEWED_SHARE;
        let unviewed = if self.credit > 0 { unviewed } else { unviewed.min(UNVIEWED_IN_DEBT) };
        (unviewed + scene.windows.min(scene.second_chance)).min(passing(scene) / UNVIEWED_MOST)
    }

    fn tests(&mut self, scene: &Scene) -> u32 {
        let most = Self::most_tested(scene);
        self.wanted = self.wanted.clamp((most / TESTED_SHARE).min(most), most);
        if self.credit <= 0 || self.wanted < scene.tested {
            return 0;
        }
        (self.wanted + 1 - scene.tested).min(scene.active).min(BATCH)
    }

    /// It has when it is twice as old as pages usually are when they come back, or when those that
    /// pass through need its frame.
    fn fails(&mut self, scene: &Scene) -> bool {
        let Some(age) = self.oldest(scene) else { return false };
        let is_late = !self.regret.spares() && self.usual.is_some_and(|usual| age > 2 * usual / MEMORY);
        let passing = passing(scene);
        let fails = is_late || 4 * passing < Self::passing_least(scene) || passing < self.grown;
        if fails {
            self.failed();
        }
        fails
    }

    fn emptied(&mut self) {
        self.credit -= EMPTIED;
    }

    fn arrived(&mut self, _: Part, pages: u32) {
        self.arrivals.add(pages);
    }

    fn paid(&mut self, cheap: bool) {
        // So much is saved up at the most: a test of everything, once.
        let most = i64::from(self.arrivals.budget()) * SOFT;
        let earned = if cheap { self.earned / POOL_LESS } else { self.earned };
        self.credit = (self.credit + earned).min(most);
    }

    fn stamp(&self, _: Part, _: Noted) -> Option<Stamp> {
        Some(self.arrivals.now())
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
        policy.arrived(Part::Rest, 500);
        let stamp = policy.arrivals.now();
        policy.arrived(Part::Rest, 100);
        policy.credit = SOFT;
        let away = Away { evictions: 0, stamp, failed: false };
        let tested = |ago: u16| Scene { oldest_test: Some(600 - ago), ..scene() };
        assert_eq!(policy.refault(&tested(112), &away), Place::INACTIVE);
        assert_eq!(policy.refault(&tested(113), &away), Place { list: ListId::Active, demotes: true });
    }

    #[test]
    fn tests_fail_when_they_last_longer_than_pages_are_away() {
        let mut policy = Probing::new(1000);
        policy.arrived(Part::Rest, 500);
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
        (0..64).for_each(|_| policy.paid(false));
        assert!(policy.tests(&none) > 0);
        for _ in 0..2 {
            assert_eq!(policy.touched(&scene(), Waited::Tested, 0), Place::ACTIVE);
        }
        assert_eq!((policy.credit, policy.tests(&none)), (0, 0), "thirty-two faults for a touch");
        policy.touched(&scene(), Waited::ToLeave, 0);
        assert_eq!(policy.credit, 0, "that saved a fault");
        (0..600).for_each(|_| policy.paid(true));
        policy.touched(&scene(), Waited::Tested, 0);
        assert!(policy.credit < 0, "six hundred of the pool earn less than one");
    }

    #[test]
    fn tests_that_fail_are_followed_by_more_and_those_that_do_not_by_fewer() {
        let mut policy = Probing::new(1000);
        (0..20_000).for_each(|_| policy.paid(false));
        (0..20).for_each(|_| policy.failed());
        assert_eq!(policy.tests(&Scene { tested: 315, ..scene() }), 20 * FAILURE_WORTH + 1 - 315);
        (0..250).for_each(|_| _ = policy.touched(&scene(), Waited::Tested, 0));
        (0..20_000).for_each(|_| policy.paid(false));
        assert_eq!(policy.tests(&Scene { tested: 65, ..scene() }), 20 * FAILURE_WORTH - 250 + 1 - 65);
    }

    /// Where those that failed are wanted soon, tests are not worth their price.
    #[test]
    fn tests_that_were_wrong_earn_less() {
        let mut policy = Probing::new(1000);
        policy.arrived(Part::Rest, 500);
        let soon = Away { evictions: 0, stamp: 400, failed: true };
        (0..500).for_each(|_| _ = policy.refault(&scene(), &soon));
        assert_eq!(policy.earned, *EARNED.start());
        (0..1000).for_each(|_| policy.failed());
        assert_eq!(policy.earned, *EARNED.end());
    }

    /// *The story:* of a walk up and down over twice the memory 1.5 times as much was read as LRU
    /// reads: each page that came back drove one out that was wanted on the way back.
    #[test]
    fn where_those_come_back_that_made_room_one_in_sixteen_is_tried() {
        let mut policy = Probing::new(1000);
        policy.arrived(Part::Rest, 2000);
        let old = Scene { oldest_test: Some(0), ..scene() };
        let driven_out = |policy: &mut Probing, failed: bool| {
            let back = Away { evictions: 0, stamp: 1000, failed };
            (0..160).filter(|_| policy.refault(&old, &back).demotes).count()
        };
        assert_eq!(driven_out(&mut policy, false), 160);
        (0..4).for_each(|_| _ = driven_out(&mut policy, true));
        let tried = driven_out(&mut policy, false);
        assert!((5..=40).contains(&tried), "{tried}");
        policy.arrived(Part::Rest, 3000);
        let late = Away { evictions: 0, stamp: 500, failed: true };
        let before = policy.regret.back();
        policy.refault(&old, &late);
        assert!(policy.regret.back() <= before, "after four budgets nobody counts as back");
    }

    /// *The story:* tests were out of credit, so that a set which moved on held its old pages: twice
    /// the time.
    #[test]
    fn without_credit_the_oldest_active_page_makes_room_untested() {
        let mut policy = Probing::new(1000);
        policy.arrived(Part::Rest, 1000);
        let none = Scene { tested: 0, oldest_test: None, ..scene() };
        let soon = Away { evictions: 0, stamp: 100, failed: false };
        assert_eq!(policy.refault(&none, &soon), Place::ACTIVE);
        assert_eq!((policy.replaced(&none), policy.replaced(&none)), (1, 0));
        policy.credit = 1;
        assert_eq!(policy.refault(&none, &soon), Place::INACTIVE, "it can be tested");
    }

    #[test]
    fn those_that_pass_through_grow_where_pages_come_back_at_once() {
        let mut policy = Probing::new(1000);
        policy.arrived(Part::Rest, 500);
        let scene = Scene { oldest_test: Some(499), ..scene() };
        assert!(!policy.fails(&scene), "forty pass through, as they may");
        let at_once = Away { evictions: 0, stamp: 400, failed: false };
        (0..11).for_each(|_| _ = policy.refault(&scene, &at_once));
        assert!(policy.fails(&scene), "forty-four may");
        let failed = Away { failed: true, ..at_once };
        (0..4).for_each(|_| _ = policy.refault(&scene, &failed));
        assert!(!policy.fails(&scene));
    }

    /// *The story:* of a loop over a third more than memory each page came back within four times
    /// what passed through while that was a quarter, so that it grew to a third; but nothing less
    /// than the whole loop would have kept the page.
    #[test]
    fn those_that_pass_through_do_not_grow_for_what_would_be_out_all_the_same() {
        let mut policy = Probing::new(1000);
        policy.arrived(Part::Rest, 2000);
        let scene = Scene { inactive: 250, active: 750, ..scene() };
        let ago = |arrivals: u16| Away { evictions: 0, stamp: 2000 - arrivals, failed: false };
        policy.refault(&scene, &ago(334));
        assert_eq!(policy.grown, 0, "a third is the most");
        policy.refault(&scene, &ago(332));
        assert_eq!(policy.grown, GROWTH);
    }
}
