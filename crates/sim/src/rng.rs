//! The only source of chance in a simulation: one 64-bit seed, one generator, integers in and integers out.
//!
//! The generator is xoshiro256** (Blackman and Vigna, public domain), its state filled from the
//! seed by splitmix64, as its authors advise. There is no function that takes or returns a float: a
//! probability is a ratio of two integers, so that (seed, commit, options) gives the same bytes on
//! every machine. It is not for cryptography.

/// Advances a splitmix64 state and returns its next number. Also a good hash of one `u64`.
#[must_use]
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A seeded generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        let mut fill = seed;
        let state = std::array::from_fn(|_| splitmix64(&mut fill));
        assert!(state != [0; 4], "splitmix64 gives four different numbers in a row");
        Rng { state }
    }

    /// A generator of its own for one part of a simulation, so that one part's draws do not shift another's.
    #[must_use]
    pub fn fork(&mut self, label: u64) -> Rng {
        Rng::new(self.next_u64() ^ label.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let kept = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= kept;
        *s3 = s3.rotate_left(45);
        result
    }

    /// A number in `0..bound`, every one equally likely. Panics when `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "below(0) has no answer");
        // The high half of a 128-bit product is uniform once the few low halves that would be
        // over-represented are drawn again (Lemire 2018).
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            let low = product as u64;
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// True `numerator` times out of `denominator`.
    #[inline]
    pub fn ratio(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// An index of `items`, or `None` when there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { items.get(self.below(items.len() as u64) as usize) }
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published first outputs for the seed 1234567.
    #[test]
    fn splitmix_reference() {
        let mut state = 1_234_567;
        let got: Vec<u64> = (0..5).map(|_| splitmix64(&mut state)).collect();
        assert_eq!(
            got,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    /// Published first outputs of xoshiro256** from the state 1, 2, 3, 4.
    #[test]
    fn xoshiro_reference() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let got: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(got, [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn bounds_hold_and_every_value_appears() {
        let mut rng = Rng::new(7);
        for bound in [1, 2, 3, 10, 1000, u64::MAX / 2 + 3, u64::MAX] {
            for _ in 0..200 {
                assert!(rng.below(bound) < bound);
            }
        }
        let mut counts = [0_u32; 10];
        for _ in 0..10_000 {
            counts[rng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (900..1100).contains(&count)), "{counts:?}");
        let heads = (0..10_000).filter(|_| rng.ratio(1, 4)).count();
        assert!((2300..2700).contains(&heads), "{heads}");
        assert!(!rng.ratio(0, 5));
        assert!(rng.ratio(5, 5));
    }

    #[test]
    fn shuffle_permutes() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn forks_differ() {
        let mut rng = Rng::new(1);
        let mut one = rng.fork(1);
        let mut two = rng.fork(1);
        assert_ne!(one.next_u64(), two.next_u64());
    }
}
