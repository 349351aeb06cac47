//! Limits that the kernel holds higher than the program set them, by what the agent takes.
//!
//! A limit outlives the program that set it: it goes on to what that executes and starts. Whoever
//! comes then, and whoever asks, finds here what was asked for. The values of a run are few.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

const LIMITS: usize = 32;
const PAGE: u64 = 4096;

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

    /// The value to give to the kernel for `limit`, higher by `bytes` or some pages more: one that
    /// stands for nothing else. No limit stays none. `None`: there are too many.
    #[must_use]
    pub fn raise(&self, limit: u64, bytes: u64) -> Option<u64> {
        let Some(mut raised) = limit.checked_add(bytes).filter(|_| bytes != 0) else { return Some(limit) };
        for known in &self.limits {
            match known.raised.compare_exchange(0, raised, AcqRel, Acquire) {
                Ok(_) => {
                    known.asked.store(limit + 1, Release);
                    return Some(raised);
                }
                Err(there) if there != raised => {}
                Err(_) if known.asked.load(Acquire) == limit + 1 => return Some(raised),
                // For another one, or nobody knows for which as yet.
                Err(_) => raised = raised.checked_add(PAGE)?,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_limit_stands_for_one_that_was_asked_for() {
        let raised = Raised::default();
        assert_eq!(raised.raise(1000, 8 * PAGE), Some(1000 + 8 * PAGE));
        assert_eq!(raised.raise(1000, 8 * PAGE), Some(1000 + 8 * PAGE), "the same again takes no room");
        assert_eq!(raised.raise(1000 + PAGE, 7 * PAGE), Some(1000 + 9 * PAGE), "another one");
        assert_eq!(raised.asked(1000 + 8 * PAGE), Some(1000));
        assert_eq!(raised.asked(1000 + 9 * PAGE), Some(1000 + PAGE));
        assert_eq!((raised.asked(1000), raised.asked(0)), (None, None));
    }

    #[test]
    fn no_limit_stays_none_and_room_ends() {
        let raised = Raised::default();
        assert_eq!(raised.raise(u64::MAX, PAGE), Some(u64::MAX));
        let given = (0..100).filter_map(|n| raised.raise(n * 1000, 100 * PAGE)).count();
        assert_eq!(given, LIMITS);
    }
}
