//! The default: two lists, of which the active one holds what came back.
//!
//! A page is taken out of view to learn whether it is used: if it is touched before it leaves, or
//! comes back sooner than the active ones are many, it is active. Touches of pages in view are not
//! seen. Nothing of a page is remembered beyond how long it was away. Good where a set is used that
//! moves; of a loop larger than memory it loses all, like LRU (but for streams, see
//! [`crate::reclaim::streams`]).

use super::BATCH;
use super::policy::{Away, Place, Policy, Scene, Stamp, Waited};

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

/// What is owed to the active list.
#[derive(Debug, Default)]
pub(crate) struct Adaptive {
    /// Pages that were taken since an active one was deactivated for them, times those active.
    aged: u64,
}

impl Policy for Adaptive {
    fn touched(&mut self, _: &Scene, _: Waited, _: Stamp) -> Place {
        Place::ACTIVE
    }

    fn refault(&mut self, scene: &Scene, away: &Away) -> Place {
        if away.evictions <= scene.active { Place::ACTIVE } else { Place::INACTIVE }
    }

    fn deactivates(&mut self, scene: &Scene) -> u32 {
        if ACTIVE_SHARE * scene.inactive < scene.active { BATCH } else { 0 }
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
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
