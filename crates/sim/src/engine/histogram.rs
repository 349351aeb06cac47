//! Latencies, counted in log-linear buckets: 16 to each power of two, so a quantile is exact within
//! 1/16. Integers only.

use crate::time::Nanos;

/// Buckets to a power of two.
const STEPS: u64 = 16;
/// log2 of [`STEPS`].
const STEP_BITS: u32 = 4;
const BUCKETS: usize = ((64 - STEP_BITS + 1) as usize) << STEP_BITS;

/// Counts of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// None before the first: threads without faults are many.
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
    max_ns: Nanos,
}

fn bucket(ns: Nanos) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let shift = ns.ilog2() - STEP_BITS;
    (((u64::from(shift) + 1) << STEP_BITS) + ((ns >> shift) - STEPS)) as usize
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> Nanos {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let shift = (bucket >> STEP_BITS) - 1;
    let first = (STEPS + bucket % STEPS) << shift;
    first + ((1 << shift) - 1)
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, ns: Nanos) {
        if self.counts.is_empty() {
            self.counts.resize(BUCKETS, 0);
        }
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Histogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(BUCKETS, 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.total += other.total;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Their sum.
    #[must_use]
    pub fn sum_ns(&self) -> Nanos {
        u64::try_from(self.sum_ns).unwrap_or(u64::MAX)
    }

    /// Their mean; 0 of nothing.
    #[must_use]
    pub fn mean_ns(&self) -> Nanos {
        if self.total == 0 {
            0
        } else {
            u64::try_from(self.sum_ns / u128::from(self.total)).unwrap_or(u64::MAX)
        }
    }

    /// The largest.
    #[must_use]
    pub fn max_ns(&self) -> Nanos {
        self.max_ns
    }

    /// The latency that `permille` thousandths do not exceed (within a bucket); 0 of nothing.
    #[must_use]
    pub fn quantile_ns(&self, permille: u64) -> Nanos {
        let rank = (u128::from(self.total) * u128::from(permille)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += u128::from(count);
            if seen >= rank {
                return upper(bucket).min(self.max_ns);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_tight() {
        let mut last = 0;
        for ns in (0..2000).chain((11..63).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1])) {
            let bucket = bucket(ns);
            assert!(bucket >= last, "{ns}");
            assert!(upper(bucket) >= ns && upper(bucket) - ns <= ns / STEPS, "{ns} {}", upper(bucket));
            last = bucket;
        }
        assert_eq!(upper(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles() {
        let mut histogram = Histogram::default();
        histogram.merge(&Histogram::default());
        assert_eq!((histogram.quantile_ns(500), histogram.counts.capacity()), (0, 0));
        (1..=1000).for_each(|ns| histogram.add(ns * 1000));
        assert_eq!(histogram.mean_ns(), 500_500);
        for (permille, exact) in [(500, 500_000), (990, 990_000), (1000, 1_000_000)] {
            let got = histogram.quantile_ns(permille);
            assert!(got >= exact && got - exact <= exact / 16, "{permille}: {got}");
        }
        let mut merged = Histogram::default();
        merged.merge(&histogram);
        assert_eq!(merged, histogram);
    }
}
