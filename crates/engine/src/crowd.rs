//! Who waits for single pages while others of the run read ahead.
//!
//! A device serves whoever asked first, so that the large windows of one process make all others
//! wait. Within a process the policy keeps windows short while others than streams wait
//! ([`overspill_mm::readahead::adaptive`]); of other processes it hears here, by one word that all
//! of a run share: who met single misses last, and when.
//!
//! *The story:* beside three processes that went through 128 MiB each, in order, one that touched 77
//! MiB at random got 300 pages a second, each behind 6 MiB of what was read ahead.

use core::sync::atomic::Ordering::{Acquire, Release};

use overspill_mm::readahead::policy::Policy;
use overspill_mm::types::Nanos;

use crate::shared::Tree;

/// What is new is exchanged so often, and holds for so long.
const EXCHANGE_NS: Nanos = 2_000_000;
const HOLDS_NS: Nanos = 20_000_000;
/// So many misses in so long are worth it that others keep their windows short. *The story:* a
/// program that misses a page now and then held up everybody who reads in order.
const MISSES: u32 = 4;
const SPAN_NS: Nanos = 20_000_000;
/// The word has the process in its low bits, then the time in units of 2^20 ns (1.05 ms).
const PROCESS_BITS: u32 = 24;
const UNIT_BITS: u32 = 20;

/// One process's side.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Who it is to the others: not 0.
    process: u32,
    due_ns: Nanos,
    /// The policy's count at the beginning of a span, and when that was.
    crowding: u32,
    since_ns: Nanos,
}

impl Crowd {
    /// Of the process with that number, which differs from those of all others that live.
    #[must_use]
    pub fn new(process: u32) -> Crowd {
        Crowd { process: process.max(1) & ((1 << PROCESS_BITS) - 1), due_ns: 0, crowding: 0, since_ns: 0 }
    }

    /// Tells the others of single misses, and the policy of those of others. It may be called as
    /// often as there is time. Who is held, as others have their turn, is in nobody's way.
    pub fn exchange(&mut self, tree: &Tree, policy: &mut Policy, now: Nanos, is_held: bool) {
        if now < self.due_ns {
            return;
        }
        self.due_ns = now + EXCHANGE_NS;
        let word = tree.crowd.load(Acquire);
        let process = (word & ((1 << PROCESS_BITS) - 1)) as u32;
        let is_new = now.saturating_sub((word >> PROCESS_BITS) << UNIT_BITS) < HOLDS_NS;
        policy.set_others_wait(process != 0 && process != self.process && is_new);
        let misses = policy.crowding().wrapping_sub(self.crowding);
        if misses < MISSES && now < self.since_ns + SPAN_NS {
            return;
        }
        (self.crowding, self.since_ns) = (policy.crowding(), now);
        if misses >= MISSES && !is_held {
            let word = (now >> UNIT_BITS) << PROCESS_BITS | u64::from(self.process);
            tree.crowd.store(word, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overspill_mm::readahead::policy::{Config, RegionState};
    use overspill_mm::readahead::{Plan, SwapIn, Touch, Window};
    use overspill_mm::types::{RegionKind, Vpn};

    const MS: Nanos = 1_000_000;

    struct Side {
        policy: Policy,
        region: RegionState,
        crowd: Crowd,
    }

    impl Side {
        fn new(process: u32) -> Side {
            let config = Config { frames: 1 << 20, ..Config::default() };
            let policy = Policy::by_name("adaptive", config).expect("it is the default");
            Side { policy, region: RegionState::default(), crowd: Crowd::new(process) }
        }

        /// Touches a page, which was read ahead or not, and tells what is read for it.
        fn touch(&mut self, vpn: u64, read_ahead: bool, marker: bool) -> Option<Plan> {
            let touch = Touch {
                now: 0,
                vpn: Vpn(vpn),
                slot: None,
                area_slots: 1 << 20,
                region_start: Vpn(0),
                region_end: Vpn(1 << 20),
                kind: RegionKind::Anon,
                clock: 0,
                left_at: 0,
                room: 0,
                read_ahead,
                marker,
                arriving: false,
            };
            match read_ahead {
                true => self.policy.cached(&mut self.region, &touch),
                false => self.policy.miss(&mut self.region, &touch),
            }
        }

        fn exchange(&mut self, tree: &Tree, now: Nanos, is_held: bool) {
            self.crowd.exchange(tree, &mut self.policy, now, is_held);
        }

        fn miss_one(&mut self, turn: u64) {
            self.touch(turn * 7919 % (1 << 20), false, false);
        }

        /// Misses pages that have nothing to do with one another, and says so.
        fn miss_singles(&mut self, tree: &Tree, now: Nanos, is_held: bool) {
            (0..64).for_each(|turn| self.miss_one(turn));
            self.exchange(tree, now, is_held);
        }

        /// The largest window in which a thousand pages are read that are touched in order from there on.
        fn reads_in_order(&mut self, start: u64) -> u32 {
            let (mut read_to, mut marker, mut largest) = (start, None, 0);
            for vpn in start..start + 1000 {
                let plan = self.touch(vpn, vpn < read_to, marker == Some(Vpn(vpn)));
                let Some(plan) = plan else { continue };
                let Window::Pages { start, stride: 1, count } = plan.window else { panic!("{plan:?}") };
                (read_to, marker, largest) = (start.0 + u64::from(count), plan.marker, largest.max(count));
                self.policy.issued(&mut self.region, &plan, count);
            }
            largest
        }
    }

    #[test]
    fn windows_are_short_while_another_process_waits_for_single_pages() {
        let (tree, mut reader, mut hot) = (Tree::default(), Side::new(7), Side::new(8));
        reader.exchange(&tree, MS, false);
        assert!(reader.reads_in_order(100_000) > 64);
        hot.miss_singles(&tree, 10 * MS, false);
        reader.exchange(&tree, 12 * MS, false);
        assert!(reader.reads_in_order(200_000) <= 17);
        reader.exchange(&tree, 45 * MS, false);
        assert!(reader.reads_in_order(300_000) > 64, "that is over");
        hot.miss_singles(&tree, 50 * MS, true);
        reader.exchange(&tree, 52 * MS, false);
        assert!(reader.reads_in_order(400_000) > 64, "who is held is in nobody's way");
    }

    #[test]
    fn a_miss_now_and_then_holds_nobody_up() {
        let (tree, mut rare) = (Tree::default(), Side::new(8));
        (0..64).for_each(|turn| rare.miss_one(turn));
        rare.exchange(&tree, MS, false);
        tree.crowd.store(0, Release);
        for turn in 0..50 {
            rare.miss_one(100 + turn);
            rare.exchange(&tree, (30 + 10 * turn) * MS, false);
        }
        assert_eq!(tree.crowd.load(Acquire), 0);
    }

    #[test]
    fn nobody_hears_itself_and_what_is_told_is_told_once() {
        let (tree, mut hot) = (Tree::default(), Side::new(8));
        hot.miss_singles(&tree, 10 * MS, false);
        let word = tree.crowd.load(Acquire);
        assert_ne!(word, 0);
        hot.exchange(&tree, 20 * MS, false);
        assert_eq!(tree.crowd.load(Acquire), word, "nothing new");
        let mut again = Side { crowd: Crowd::new(8), ..Side::new(8) };
        again.exchange(&tree, 11 * MS, false);
        assert!(again.reads_in_order(100_000) > 64);
    }
}
