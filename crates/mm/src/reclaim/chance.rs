//! How many pages wait out of view for a second chance: more where a touch there tells of use.
//!
//! Each page that waits and is touched costs a soft fault, so that waiting must be worth something.
//! It is nothing where all pages are alike, as with touches at random: whoever leaves comes back with
//! a probability that does not fall with the time that he was away. Where it falls, pages in use
//! leave beside others that are not, and come back at once. So those are counted that come back soon
//! ([`NEAR_SHARE`]), and as long after that: more of the first than pages all alike would bring are
//! waits that a longer look would have spared.
//!
//! *The story:* the second chance was 256 pages, in any budget. Of programs with many small objects
//! the pages in use left by their turn: clamscan in 80 % of its memory waited for 36,500 of its
//! 45,000 pages 1.5 times each, and six of ten were back before one in nineteen had left.

use super::policy::{Away, Follows, Scene};

/// Near is a page that comes back while one in so many of the budget leaves; far one that takes up to
/// twice as long.
const NEAR_SHARE: u32 = 8;
/// What happened is weighed whenever one page in so many of the budget has left, not before the second
/// time.
const WEIGHED_SHARE: u32 = 8;
/// One page in so many of the budget may wait. (With an eighth soft faults cost more than is saved.)
const MOST_SHARE: u32 = 16;
/// A wait that is spared is worth so many soft faults. (Measured live, with what taking a page out of
/// view costs: 30 us and 75 to 100.)
const SOFT_FOR_ONE: u64 = 3;
/// ... if more than one in so many of the near ones is: the rest is noise.
const NOISE: u64 = 8;
/// ... and more than one in so many of those that leave is near: of a stream the few that come back by a
/// fault were read ahead too soon.
const FEW: u64 = 16;
/// It grows and shrinks by so much at a time.
const GROWTH: u32 = 4;
/// Where it begins: below this nothing is gained, so that it is not for budgets below 16 MiB.
const LEAST: u32 = 256;

/// How long pages are away, lately, and what follows from it.
#[derive(Debug, Default)]
pub(super) struct Chance {
    /// Pages that left, of those the ones that came back soon, and a little later.
    left: u32,
    near: u32,
    far: u32,
    /// Pages that were touched while they waited.
    soft: u32,
    /// Pages that had left when that was weighed.
    weighed: u64,
    /// So many pages may wait, beyond what is fixed.
    pages: u32,
}

impl Chance {
    /// So many pages may wait.
    pub fn pages(&self, scene: &Scene) -> u32 {
        scene.second_chance.max(self.pages.min(scene.budget / MOST_SHARE))
    }

    /// Does a touch tell of use, so that more pages wait?
    pub fn tells(&self) -> bool {
        self.pages > 0
    }

    /// Who comes back with a page that was touched.
    pub fn follows(&self) -> Follows {
        if self.tells() { Follows::Around } else { Follows::Unit }
    }

    /// A page was touched that waited.
    pub fn touched(&mut self) {
        self.soft += 1;
    }

    /// A fault brings a page back.
    pub fn back(&mut self, scene: &Scene, away: &Away) {
        let near = scene.budget / NEAR_SHARE;
        if away.evictions <= near {
            self.near += 1;
        } else if away.evictions <= 2 * near {
            self.far += 1;
        }
        let left = scene.evictions - self.weighed;
        if left < u64::from(scene.budget / WEIGHED_SHARE) {
            return;
        }
        let is_first = self.weighed == 0;
        self.weighed = scene.evictions;
        if is_first {
            // Those that left lately have not had the time to be back.
            (self.near, self.far, self.soft) = (0, 0, 0);
        } else {
            self.left = self.left.saturating_add(u32::try_from(left).unwrap_or(u32::MAX));
            self.weigh(scene);
        }
    }

    fn weigh(&mut self, scene: &Scene) {
        let most = scene.budget / MOST_SHARE;
        self.pages =
            if self.pays() { (GROWTH * self.pages).max(LEAST).min(most) } else { self.pages / GROWTH };
        if self.pages < LEAST {
            self.pages = 0;
        }
        for count in [&mut self.left, &mut self.near, &mut self.far, &mut self.soft] {
            *count /= 2;
        }
    }

    /// Are more back soon than if all were alike, by more than soft faults cost?
    fn pays(&self) -> bool {
        let [left, near, far, soft] = [self.left, self.near, self.far, self.soft].map(u64::from);
        // Of those not yet back after the first time as large a part would be after the second.
        let alike = far * left / left.saturating_sub(near).max(1);
        let spared = near.saturating_sub(alike);
        SOFT_FOR_ONE * spared > soft && NOISE * spared > near && FEW * near > left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(evictions: u64) -> Scene {
        Scene { budget: 16_000, second_chance: 100, evictions, ..Scene::default() }
    }

    /// Two thousand pages leave, of which these come back soon or later; so many others are touched.
    fn after(chance: &mut Chance, near: u32, far: u32, soft: u32) -> u32 {
        (0..soft).for_each(|_| chance.touched());
        let scene = scene(chance.weighed + 2000);
        for (count, evictions) in [(far, 3000), (near, 10)] {
            let earlier = Scene { evictions: chance.weighed, ..scene };
            let away = Away { evictions, stamp: 0, failed: false };
            (1..count).for_each(|_| chance.back(&earlier, &away));
        }
        chance.back(&scene, &Away { evictions: 10, stamp: 0, failed: false });
        chance.pages(&scene)
    }

    #[test]
    fn more_wait_where_those_in_use_come_back_at_once() {
        let mut chance = Chance::default();
        let grown = [0; 5].map(|_| after(&mut chance, 1200, 300, 0));
        assert_eq!(grown, [100, 256, 1000, 1000, 1000], "at first nothing is known, at last a sixteenth");
        assert_eq!(chance.pages(&Scene { budget: 1600, ..scene(0) }), 100, "of the budget as it is now");
    }

    /// Half of them are back within the first time, half of the others within the second.
    #[test]
    fn none_wait_for_it_where_all_pages_are_alike() {
        let mut chance = Chance { pages: 1000, weighed: 2000, ..Chance::default() };
        let last = [0; 4].map(|_| after(&mut chance, 1000, 500, 0))[3];
        assert_eq!((last, chance.pages), (100, 0));
    }

    #[test]
    fn not_more_wait_than_soft_faults_cost() {
        let mut chance = Chance::default();
        let saved = 1200 - 300 * 2000 / 800;
        let pages = [0, 0, 0, 2 * saved].map(|soft| after(&mut chance, 1200, 300, soft))[3];
        assert_eq!(pages, 1000);
        (0..8).for_each(|_| {
            after(&mut chance, 1200, 300, 4 * saved);
        });
        assert_eq!(chance.pages, 0);
    }
}
