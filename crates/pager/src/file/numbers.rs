//! Maps by the number of a page: the hash is a multiplication.
//!
//! Numbers of pages come from the program that has the file, which need not be feared; the standard
//! hash, which fears everybody, took as long for the lookups of a cached read as its copy did.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by page numbers.
pub(super) type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<OneNumber>>;

/// 2^64 by the golden ratio: neighbours are spread far.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes one number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OneNumber(u64);

impl Hasher for OneNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 ^ u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let product = number.wrapping_mul(SPREAD);
        // A map looks at both ends of it.
        self.0 = product ^ product >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_and_multiples_are_spread_at_both_ends() {
        for step in [1, 16, 512, 1 << 20] {
            let hash = |index: u64| {
                let mut hasher = OneNumber::default();
                hasher.write_u64(index * step);
                hasher.finish()
            };
            for (part, name) in [(0u32, "low"), (57, "high")] {
                let seen: std::collections::HashSet<u64> =
                    (0..128).map(|index| hash(index) >> part & 127).collect();
                assert!(seen.len() > 48, "{} of 128 at the {name} end, step {step}", seen.len());
            }
        }
    }
}
