//! What a run came to: when each program was done, what each domain kept, and what was counted.

use super::{Way, Writeback};
use crate::time::{Nanos, muldiv};
use overspill_mm::reclaim::counters::Counters;
use overspill_mm::reclaim::lists::DomainId;

/// Faults of programs with memory of their own, and what they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// First touches of new memory.
    pub minor: u64,
    /// Touches that had to read.
    pub major: u64,
    /// Pages read from swap.
    pub pswpin: u64,
    /// Pages written to swap.
    pub pswpout: u64,
}

/// A domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Frames that it holds at the end, and the least since the beginning of the run.
    pub held: u64,
    /// The least.
    pub least_held: u64,
    /// Touches of its programs' own memory, and its faults, from run to run.
    pub touches: u64,
    /// The faults.
    pub faults: Faults,
}

/// The end of a program that went through a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// After so long.
    pub elapsed_ns: Nanos,
    /// With so many pages.
    pub pages: u32,
    /// Whose it was.
    pub domain: DomainId,
    /// What it did.
    pub way: Way,
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
    /// By domain.
    pub shares: Vec<Share>,
    /// Of files.
    pub writeback: Writeback,
    /// Frames that one direct reclaim freed at most.
    pub largest_call: u64,
    /// Programs that ended as no frame was to be had.
    pub out_of_memory: u64,
}

impl Outcome {
    fn times(&self) -> impl Iterator<Item = Nanos> + '_ {
        self.finishes.iter().map(|finish| finish.elapsed_ns)
    }

    /// Faults of all domains.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.shares.iter().fold(Faults::default(), |sum, share| Faults {
            minor: sum.minor + share.faults.minor,
            major: sum.major + share.faults.major,
            pswpin: sum.pswpin + share.faults.pswpin,
            pswpout: sum.pswpout + share.faults.pswpout,
        })
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

    /// Pages a second that all programs got.
    #[must_use]
    pub fn pages_a_second(&self) -> u64 {
        self.rate(|_| true)
    }

    /// Pages a second that those of a domain read, or wrote, until the last of them was done.
    #[must_use]
    pub fn pages_a_second_of(&self, domain: DomainId, way: Way) -> u64 {
        self.rate(|finish| finish.domain == domain && finish.way == way)
    }

    fn rate(&self, counts: impl Fn(&Finish) -> bool) -> u64 {
        let all = || self.finishes.iter().filter(|&finish| counts(finish));
        let pages = all().map(|finish| u64::from(finish.pages)).sum();
        let elapsed_ns = all().map(|finish| finish.elapsed_ns).max().unwrap_or(0);
        muldiv(pages, crate::time::SECOND, elapsed_ns.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_times() {
        let finish = |elapsed_ns| Finish { elapsed_ns, pages: 10, domain: DomainId(0), way: Way::Read };
        let outcome = Outcome {
            // Another domain's program went on.
            elapsed_ns: 18,
            finishes: [2, 4, 4, 4, 5, 5, 7, 9].map(finish).to_vec(),
            counters: Counters::default(),
            shares: Vec::new(),
            writeback: Writeback::default(),
            largest_call: 0,
            out_of_memory: 0,
        };
        assert_eq!((outcome.range_ns(), outcome.deviation_ns()), (7, 2));
        assert_eq!(outcome.pages_a_second(), 80 * 1_000_000_000 / 9);
        assert_eq!(outcome.pages_a_second_of(DomainId(0), Way::Write), 0);
    }
}
