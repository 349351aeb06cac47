//! Limits that the kernel holds higher than the program set them, by what the agent takes.
//!
//! A limit outlives the program that set it: it goes on to what that executes and starts. Whoever
//! comes then, and whoever asks, finds here what was asked for. The values of a run are few.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

const LIMITS: usize = 32;
/// Values that are tried for a limit, so many bytes beside the first: one of them is free, if any
/// place is. The kernel counts whole pages.
const STEPS: core::ops::Range<u64> = 0..LIMITS as u64 + 1;

/// Values that stand for others. It lies in the launcher's page.
#[repr(C)]
#[derive(Default)]
pub struct Raised {
    limits: [Limit; LIMITS],
}

/// Zero: not used as yet.
#[repr(C)]
#[derive(Default)]
struct Limit {
    raised: AtomicU64,
    /// One more than was asked for.
    asked: AtomicU64,
}

impl Raised {
    /// What was asked for where the kernel has this value.
    #[must_use]
    pub fn asked(&self, limit: u64) -> Option<u64> {
        let found = self.limits.iter().find(|known| limit != 0 && known.raised.load(Acquire) == limit)?;
        found.asked.load(Acquire).checked_sub(1)
    }

    /// The value to give to the kernel for `limit`, higher by `bytes` or few more: one that
    /// stands for nothing else. No limit stays none. `None`: there are too many.
    #[must_use]
    pub fn raise(&self, limit: u64, bytes: u64) -> Option<u64> {
        let Some(raised) = limit.checked_add(bytes).filter(|_| bytes != 0) else { return Some(limit) };
        self.stand_for(limit, STEPS.map_while(|step| raised.checked_add(step)))
    }

    /// The same where the kernel takes no value as high as `bound`: as much higher as that leaves, or
    /// `limit` itself.
    #[must_use]
    pub fn raise_below(&self, limit: u64, bytes: u64, bound: u64) -> u64 {
        let highest = limit.saturating_add(bytes).min(bound.saturating_sub(1));
        let values = STEPS.map_while(|step| highest.checked_sub(step));
        self.stand_for(limit, values.take_while(|&value| value > limit)).unwrap_or(limit)
    }

    /// The first of some values that stands for `asked`, or for nothing else until now.
    fn stand_for(&self, asked: u64, mut values: impl Iterator<Item = u64>) -> Option<u64> {
        values.find(|&value| self.note(value, asked))
    }

    /// Notes what a value stands for. False where that is something else, or there are too many.
    /// Places are filled in order and stay so: all who look for a value meet at the same one.
    fn note(&self, value: u64, asked: u64) -> bool {
        for known in &self.limits {
            match known.raised.compare_exchange(0, value, AcqRel, Acquire) {
                Ok(_) => {
                    known.asked.store(asked + 1, Release);
                    return true;
                }
                // Perhaps nobody knows for which as yet.
                Err(there) if there == value => return known.asked.load(Acquire) == asked + 1,
                Err(_) => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn a_raised_limit_stands_for_one_that_was_asked_for() {
        let raised = Raised::default();
        assert_eq!(raised.raise(1000, 8 * PAGE), Some(1000 + 8 * PAGE));
        assert_eq!(raised.raise(1000, 8 * PAGE), Some(1000 + 8 * PAGE), "the same again takes no room");
        assert_eq!(raised.raise(1000 + PAGE, 7 * PAGE), Some(1001 + 8 * PAGE), "another one");
        assert_eq!(raised.asked(1000 + 8 * PAGE), Some(1000));
        assert_eq!(raised.asked(1001 + 8 * PAGE), Some(1000 + PAGE));
        assert_eq!((raised.asked(1000), raised.asked(0)), (None, None));
    }

    /// *The story:* a value that had to step aside came upon one that was noted before, further ahead
    /// in the table, and stood for both.
    #[test]
    fn what_steps_aside_meets_nothing_else() {
        let raised = Raised::default();
        assert_eq!(raised.raise(1001, PAGE), Some(1001 + PAGE));
        assert_eq!(raised.raise(1000, PAGE), Some(1000 + PAGE));
        assert_eq!(raised.raise(999, PAGE + 1), Some(1002 + PAGE), "both are taken");
        let told = [1000, 1001, 1002].map(|limit| raised.asked(limit + PAGE));
        assert_eq!(told, [Some(1000), Some(1001), Some(999)]);
    }

    #[test]
    fn below_a_bound_each_has_a_value_of_its_own() {
        let raised = Raised::default();
        let most = 100 * PAGE;
        assert_eq!(raised.raise_below(50 * PAGE, 8 * PAGE, most), 58 * PAGE);
        assert_eq!(raised.raise_below(95 * PAGE, 8 * PAGE, most), most - 1);
        assert_eq!(raised.raise_below(94 * PAGE, 8 * PAGE, most), most - 2);
        assert_eq!(raised.raise_below(most - 2, 8 * PAGE, most), most - 2, "no room but its own");
        assert_eq!((raised.asked(most - 1), raised.asked(most)), (Some(95 * PAGE), None));
    }

    #[test]
    fn no_limit_stays_none_and_room_ends() {
        let raised = Raised::default();
        assert_eq!(raised.raise(u64::MAX, PAGE), Some(u64::MAX));
        let given = (0..100).filter_map(|n| raised.raise(n * 1000, 100 * PAGE)).count();
        assert_eq!(given, LIMITS);
    }
}
