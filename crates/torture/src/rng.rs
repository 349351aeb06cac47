//! A small reproducible generator: the same seed gives the same run, and no clock or kernel is asked.

use crate::pattern::mix;

/// splitmix64 as a stream.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A stream of its own for every (seed, lane).
    #[must_use]
    pub fn new(seed: u64, lane: usize) -> Self {
        Self(mix(seed ^ mix(lane as u64)))
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "nothing is below zero");
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}
