//! Zipf-distributed ranks, from an integer table.
//!
//! Rank k (from 1) has the weight 1/k^s with s = `tenths`/10. Weights are made in fixed point by
//! integer roots and divisions, never by floats, so the table is the same on every machine. A draw
//! is a binary search in the cumulative sums.

use crate::rng::Rng;

/// Fixed-point one of a weight.
const ONE: u128 = 1 << 60;

/// The table of one distribution.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Sum of the weights of the ranks up to this one.
    cumulative: Vec<u64>,
    /// Where to look: the first rank whose sum exceeds k x 2^`shift`.
    guide: Vec<u32>,
    shift: u32,
}

/// log2 of the parts into which the total is divided, about, to find ranks quickly.
const GUIDE_BITS: u32 = 15;

impl Zipf {
    /// Ranks `0..count` with exponent `tenths`/10 (0: uniform, 10: the classic law); at most 40.
    #[must_use]
    pub fn new(count: u64, tenths: u32) -> Zipf {
        assert!(count > 0, "somebody must be drawn");
        assert!(tenths <= 40, "exponents beyond 4 leave one rank");
        let mut sum = 0_u128;
        let weights = (1..=count).map(|rank| {
            sum += weight(rank, tenths);
            sum
        });
        let sums: Vec<u128> = weights.collect();
        let total = *sums.last().expect("count > 0");
        // Scale to 63 bits; every rank keeps at least its order.
        let shift = (128 - total.leading_zeros()).saturating_sub(63);
        let cumulative: Vec<u64> = sums.into_iter().map(|sum| (sum >> shift) as u64).collect();
        let total = cumulative[cumulative.len() - 1];
        let shift = (64 - total.leading_zeros()).saturating_sub(GUIDE_BITS);
        let first = |part: u64| {
            u32::try_from(cumulative.partition_point(|&sum| sum <= part << shift))
                .expect("fewer than 2^32 ranks")
        };
        let guide = (0..=(total >> shift) + 1).map(first).collect();
        Zipf { cumulative, guide, shift }
    }

    /// Number of ranks.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cumulative.len() as u64
    }

    /// Draws a rank, the most frequent being 0.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let total = *self.cumulative.last().expect("a table is not empty");
        let at = rng.below(total);
        let part = (at >> self.shift) as usize;
        let (from, to) = (self.guide[part] as usize, self.guide[part + 1] as usize);
        let among = &self.cumulative[from..(to + 1).min(self.cumulative.len())];
        (from + among.partition_point(|&sum| sum <= at)) as u64
    }
}

/// [`ONE`] / rank^(tenths/10): the whole part by divisions, the tenths by the tenth root of rank^tenths.
fn weight(rank: u64, tenths: u32) -> u128 {
    let mut weight = ONE;
    for _ in 0..tenths / 10 {
        weight /= u128::from(rank);
    }
    let fraction = tenths % 10;
    if fraction > 0 {
        weight = weight * u128::from(ROOT_ONE) / u128::from(fractional_power(rank, fraction));
    }
    weight.max(1)
}

/// Fixed-point one of a root.
const ROOT_ONE: u64 = 1 << 20;

/// rank^(fraction/10) in units of 1/[`ROOT_ONE`], by bisection on x^10 <= rank^fraction.
fn fractional_power(rank: u64, fraction: u32) -> u64 {
    let (mut low, mut high) = (ROOT_ONE, ROOT_ONE.saturating_mul(rank).max(ROOT_ONE + 1));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if tenth_power_at_most(middle, rank, fraction) { low = middle } else { high = middle }
    }
    low
}

/// (x / ROOT_ONE)^10 <= rank^fraction, compared in fixed point of growing scale.
fn tenth_power_at_most(x: u64, rank: u64, fraction: u32) -> bool {
    // Mantissa and exponent: x/ROOT_ONE = mantissa x 2^exponent, kept to 62 bits.
    let left = power(x, 10, -20);
    let right = power(rank, fraction, 0);
    left <= right
}

/// (value x 2^scale)^times as (exponent, mantissa of 64 bits), which compares as the number does.
fn power(value: u64, times: u32, scale: i64) -> (i64, u64) {
    let normal = |mantissa: u128, exponent: i64| {
        let shift = i64::from(mantissa.leading_zeros()) - 64;
        let mantissa = if shift >= 0 { mantissa << shift } else { mantissa >> -shift };
        (exponent - shift, mantissa as u64)
    };
    let (base_exponent, base) = normal(u128::from(value), scale);
    let (mut exponent, mut mantissa) = normal(1, 0);
    for _ in 0..times {
        let product = u128::from(mantissa) * u128::from(base);
        (exponent, mantissa) = normal(product, exponent + base_exponent);
    }
    (exponent, mantissa)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_follow_the_law() {
        for tenths in [0, 5, 8, 10, 12, 20] {
            let exponent = f64::from(tenths) / 10.0;
            for rank in [1_u64, 2, 3, 10, 1000, 1_000_000] {
                let expected = (rank as f64).powf(-exponent);
                let got = weight(rank, tenths) as f64 / ONE as f64;
                assert!((got / expected - 1.0).abs() < 1e-4, "{rank}^-{exponent}: {got} {expected}");
            }
        }
    }

    #[test]
    fn the_guide_leads_to_where_the_search_ends() {
        for (count, tenths) in [(1, 10), (2, 0), (1000, 8), (50_000, 20), (100_000, 0)] {
            let zipf = Zipf::new(count, tenths);
            let mut rng = Rng::new(2);
            let mut same = rng.clone();
            for _ in 0..5000 {
                let at = same.below(*zipf.cumulative.last().expect("not empty"));
                let searched = zipf.cumulative.partition_point(|&sum| sum <= at) as u64;
                assert_eq!(zipf.draw(&mut rng), searched, "{count} ranks, exponent {tenths}/10");
            }
        }
    }

    #[test]
    fn draws_follow_the_weights() {
        let zipf = Zipf::new(1000, 10);
        let mut counts = [0_u32; 1000];
        let mut rng = Rng::new(4);
        for _ in 0..200_000 {
            counts[zipf.draw(&mut rng) as usize] += 1;
        }
        // H(1000) = 7.485: the first rank has 13.36 %.
        assert!((26_000..27_500).contains(&counts[0]), "{}", counts[0]);
        assert!((12_900..13_900).contains(&counts[1]), "{}", counts[1]);
        assert!(counts[0] > counts[9] && counts[9] > counts[99] && counts[99] > 0);
    }
}
