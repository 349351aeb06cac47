//! What a run came to: when each reader was done, and what was counted.

use crate::time::{Nanos, muldiv};
use overspill_mm::reclaim::counters::Counters;

/// Faults of the system, and what they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Touches of pages that were there.
    pub minor: u64,
    /// Touches that had to read.
    pub major: u64,
    /// Pages read from swap.
    pub pswpin: u64,
    /// Pages written to swap.
    pub pswpout: u64,
}

/// A reader's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// After so long.
    pub elapsed_ns: Nanos,
    /// With so many pages.
    pub pages: u32,
}

/// A run. Counters go on from run to run of a world.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Until the last was done.
    pub elapsed_ns: Nanos,
    /// In the order in which they ended.
    pub finishes: Vec<Finish>,
    /// Of reclaim.
    pub counters: Counters,
    /// Of the system.
    pub faults: Faults,
    /// Frames that one direct reclaim freed at most.
    pub largest_call: u64,
    /// Programs that ended as no frame was to be had.
    pub out_of_memory: u64,
}

impl Outcome {
    fn times(&self) -> impl Iterator<Item = Nanos> + '_ {
        self.finishes.iter().map(|finish| finish.elapsed_ns)
    }

    /// Between the first that was done and the last.
    #[must_use]
    pub fn range_ns(&self) -> Nanos {
        self.times().max().unwrap_or(0) - self.times().min().unwrap_or(0)
    }

    /// Standard deviation of the times.
    #[must_use]
    pub fn deviation_ns(&self) -> Nanos {
        let count = self.finishes.len().max(1) as u64;
        let mean = self.times().sum::<u64>() / count;
        let squares: u128 = self.times().map(|time| u128::from(time.abs_diff(mean)).pow(2)).sum();
        u64::try_from((squares / u128::from(count)).isqrt()).unwrap_or(u64::MAX)
    }

    /// Pages a second that all readers got.
    #[must_use]
    pub fn pages_a_second(&self) -> u64 {
        let pages = self.finishes.iter().map(|finish| u64::from(finish.pages)).sum();
        muldiv(pages, crate::time::SECOND, self.elapsed_ns.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_times() {
        let finish = |elapsed_ns| Finish { elapsed_ns, pages: 10 };
        let outcome = Outcome {
            elapsed_ns: 9,
            finishes: [2, 4, 4, 4, 5, 5, 7, 9].map(finish).to_vec(),
            counters: Counters::default(),
            faults: Faults::default(),
            largest_call: 0,
            out_of_memory: 0,
        };
        assert_eq!((outcome.range_ns(), outcome.deviation_ns()), (7, 2));
        assert_eq!(outcome.pages_a_second(), 80 * 1_000_000_000 / 9);
    }
}
