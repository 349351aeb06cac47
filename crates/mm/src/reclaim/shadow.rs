//! How long a page was away: the refault distance, and what is kept of pages that left
//! (specification 5.7).
//!
//! A domain's clock counts pages that left and pages that became active. A page that leaves takes
//! the clock's time along (its shadow, four bytes); when it comes back the difference says how many
//! frames more would have kept it. [`Shadows`] keeps shadows for whoever has no place of its own
//! for them: bounded, twelve bytes each, the oldest of four making room.

use alloc::boxed::Box;

use super::Rules;
use super::lists::{Kind, List, PerList};

/// What a page that left has left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shadow(u32);

const WORKINGSET: u32 = 1 << 31;
const CLOCK: u32 = WORKINGSET - 1;

impl Shadow {
    /// Of a page that leaves now.
    #[must_use]
    pub fn new(clock: u32, workingset: bool) -> Shadow {
        Shadow(clock & CLOCK | if workingset { WORKINGSET } else { 0 })
    }

    /// Had it been active?
    #[must_use]
    pub fn was_workingset(self) -> bool {
        self.0 & WORKINGSET != 0
    }

    /// Time since, in pages.
    #[must_use]
    pub fn distance(self, clock: u32) -> u32 {
        clock.wrapping_sub(self.0) & CLOCK
    }
}

/// Is a page that comes back after `distance` active at once? `pages` are the lengths of its
/// domain's lists.
#[must_use]
pub fn is_close(rules: Rules, kind: Kind, distance: u32, pages: &PerList, has_swap: bool) -> bool {
    let len = |list: List| pages[list as usize];
    let mut workingset = len(List::ActiveFile);
    match rules {
        Rules::Early if kind == Kind::Anon => return false,
        Rules::Early => {}
        Rules::Late => {
            if kind == Kind::Anon {
                workingset += len(List::InactiveFile);
            }
            if has_swap {
                workingset += len(List::ActiveAnon);
                if kind == Kind::File {
                    workingset += len(List::InactiveAnon);
                }
            }
        }
    }
    u64::from(distance) <= workingset
}

const WAYS: usize = 4;
const VACANT: u64 = u64::MAX;

/// Shadows by a key of the owner's.
pub struct Shadows {
    keys: Box<[[u64; WAYS]]>,
    shadows: Box<[[u32; WAYS]]>,
}

impl Shadows {
    /// Room for `most` shadows, rounded up to a power of two.
    #[must_use]
    pub fn new(most: u32) -> Shadows {
        let sets = (most as usize).div_ceil(WAYS).next_power_of_two();
        Shadows {
            keys: alloc::vec![[VACANT; WAYS]; sets].into_boxed_slice(),
            shadows: alloc::vec![[0; WAYS]; sets].into_boxed_slice(),
        }
    }

    fn set(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (self.keys.len() - 1)
    }

    /// Keeps the shadow of `key`, in place of the one that is oldest by `clock` where there is no
    /// room.
    pub fn put(&mut self, key: u64, shadow: Shadow, clock: u32) {
        assert_ne!(key, VACANT, "that key stands for none");
        let set = self.set(key);
        let age = |way: usize| match self.keys[set][way] {
            VACANT => u32::MAX,
            found if found == key => u32::MAX,
            _ => Shadow(self.shadows[set][way]).distance(clock),
        };
        let same = (0..WAYS).find(|&way| self.keys[set][way] == key);
        let way = same.or_else(|| (0..WAYS).max_by_key(|&way| age(way))).expect("there are ways");
        self.keys[set][way] = key;
        self.shadows[set][way] = shadow.0;
    }

    /// Gives the shadow of `key`, once.
    pub fn take(&mut self, key: u64) -> Option<Shadow> {
        let set = self.set(key);
        let way = self.keys[set].iter().position(|&found| found == key)?;
        self.keys[set][way] = VACANT;
        Some(Shadow(self.shadows[set][way]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_pass_the_end_of_the_clock() {
        let shadow = Shadow::new(CLOCK - 5, true);
        assert!(shadow.was_workingset());
        assert_eq!(shadow.distance((CLOCK - 5).wrapping_add(100)), 100);
        assert!(!Shadow::new(7, false).was_workingset());
    }

    /// Section 5.7, both columns.
    #[test]
    fn close_is_what_would_have_fitted() {
        let pages = [1, 10, 100, 1000];
        let close = |rules, kind, distance, swap| is_close(rules, kind, distance, &pages, swap);
        assert!(close(Rules::Early, Kind::File, 1000, true) && !close(Rules::Early, Kind::File, 1001, true));
        assert!(!close(Rules::Early, Kind::Anon, 0, true), "file pages only");
        assert!(close(Rules::Late, Kind::File, 1011, true) && !close(Rules::Late, Kind::File, 1012, true));
        assert!(close(Rules::Late, Kind::File, 1000, false) && !close(Rules::Late, Kind::File, 1001, false));
        assert!(close(Rules::Late, Kind::Anon, 1110, true) && !close(Rules::Late, Kind::Anon, 1111, true));
        assert!(close(Rules::Late, Kind::Anon, 1100, false));
    }

    #[test]
    fn shadows_are_bounded_and_the_oldest_goes() {
        let mut shadows = Shadows::new(1000);
        for key in 0..100_000u64 {
            shadows.put(key, Shadow::new(key as u32, key % 2 == 0), key as u32);
        }
        let kept = (0..100_000).filter(|&key| {
            let found = shadows.take(key);
            found.inspect(|shadow| assert_eq!(*shadow, Shadow::new(key as u32, key % 2 == 0))).is_some()
        });
        let kept: Vec<u64> = kept.collect();
        assert!(kept.len() <= 1024 && kept.len() > 900, "{}", kept.len());
        let young = kept.iter().filter(|&&key| key >= 98_000).count();
        assert!(young * 10 > kept.len() * 9, "{young} of {} are young", kept.len());
        assert_eq!(shadows.take(99_999), None, "a shadow is given once");
    }

    #[test]
    fn a_key_has_one_shadow() {
        let mut shadows = Shadows::new(4);
        (0..10).for_each(|clock| shadows.put(5, Shadow::new(clock, false), clock));
        assert_eq!(shadows.take(5), Some(Shadow::new(9, false)));
        assert_eq!(shadows.take(5), None);
    }
}
