//! Latencies in the buckets of the shared memory ([`latency_bucket`]): what the agents report and what the load measures
//! have the same resolution, four buckets an octave.

use overspill_engine::shared::{LATENCY_BUCKETS, latency_bucket, latency_bucket_max_ns};
use serde::{Deserialize, Serialize};

/// Counts by latency.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: [u64; LATENCY_BUCKETS],
}

/// The figures of a histogram; each is the upper end of its bucket, at most 25 % above the truth.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Half of them took at most this.
    pub p50_ns: u64,
    /// 90 % took at most this.
    pub p90_ns: u64,
    /// 99 % took at most this.
    pub p99_ns: u64,
    /// All took at most this.
    pub max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: [0; LATENCY_BUCKETS] }
    }
}

impl Histogram {
    /// A histogram with these counts.
    pub fn from_counts(counts: [u64; LATENCY_BUCKETS]) -> Histogram {
        Histogram { counts }
    }

    /// One more.
    pub fn record(&mut self, ns: u64) {
        self.counts[latency_bucket(ns)] += 1;
    }

    /// All of another histogram.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// The figures.
    pub fn latency(&self) -> Latency {
        Latency {
            count: self.counts.iter().sum(),
            p50_ns: self.at_permille(500),
            p90_ns: self.at_permille(900),
            p99_ns: self.at_permille(990),
            max_ns: self.at_permille(1000),
        }
    }

    /// The latency that so many of a thousand do not exceed; 0 when there are none at all.
    fn at_permille(&self, permille: u64) -> u64 {
        let total: u128 = self.counts.iter().map(|&count| u128::from(count)).sum();
        let wanted = (total * u128::from(permille)).div_ceil(1000);
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += u128::from(count);
            if count > 0 && seen >= wanted {
                return latency_bucket_max_ns(bucket);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_histogram_is_all_zero() {
        let latency = Histogram::default().latency();
        assert_eq!(latency, Latency { count: 0, p50_ns: 0, p90_ns: 0, p99_ns: 0, max_ns: 0 });
    }

    #[test]
    fn percentiles_lie_within_a_bucket_of_the_truth() {
        let mut histogram = Histogram::default();
        (1..=1000u64).for_each(|us| histogram.record(us * 1000));
        let latency = histogram.latency();
        assert_eq!(latency.count, 1000);
        for (figure, truth) in [
            (latency.p50_ns, 500_000),
            (latency.p90_ns, 900_000),
            (latency.p99_ns, 990_000),
            (latency.max_ns, 1_000_000),
        ] {
            assert!(figure >= truth && figure <= truth * 5 / 4, "{figure} for {truth}");
        }
    }
}
