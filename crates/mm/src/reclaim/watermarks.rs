//! How many frames are kept free: the three watermarks (specification 5.6).
//!
//! Below `low` background reclaim starts, at `high` it ends; at `min` whoever wants a frame has to
//! free some first.

use super::Rules;

/// Frames free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// Kept for those who cannot wait.
    pub min: u64,
    /// Background reclaim starts.
    pub low: u64,
    /// Background reclaim ends.
    pub high: u64,
}

/// Since 4.6: between two watermarks lie so many ten-thousandths of memory.
const SCALE_FACTOR: u64 = 10;
const KIB_PAGE: u64 = 4;

/// `min_free_kbytes` by the memory that counts, in KiB.
#[must_use]
pub fn min_free_kib(rules: Rules, memory_kib: u64) -> u64 {
    let most = match rules {
        Rules::Early => 65_536,
        Rules::Late => 262_144,
    };
    (memory_kib * 16).isqrt().clamp(128, most)
}

impl Watermarks {
    /// Of a node of so many pages, which is all there is.
    #[must_use]
    pub fn of(rules: Rules, pages: u64) -> Watermarks {
        Watermarks::with(rules, pages, min_free_kib(rules, pages * KIB_PAGE))
    }

    /// With so much kept free.
    #[must_use]
    pub fn with(rules: Rules, pages: u64, min_free_kib: u64) -> Watermarks {
        let min = min_free_kib / KIB_PAGE;
        let (low, high) = match rules {
            Rules::Early => (min + min / 4, min + min / 2),
            Rules::Late => {
                let step = (min / 4).max(pages * SCALE_FACTOR / 10_000);
                (min + step, min + 2 * step)
            }
        };
        Watermarks { min, low, high }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table, line by line. Its first line counts 128 MB in thousands of bytes, the others in
    /// KiB.
    #[test]
    fn the_kernels_watermarks() {
        let gib = |gib: u64| gib << 20;
        let table = [
            (134_217, 1465, [366, 457, 549], [366, 457, 548]),
            (gib(1), 4096, [1024, 1280, 1536], [1024, 1286, 1548]),
            (gib(4), 8192, [2048, 2560, 3072], [2048, 3096, 4144]),
            (gib(16), 16_384, [4096, 5120, 6144], [4096, 8290, 12_484]),
            (gib(64), 32_768, [8192, 10_240, 12_288], [8192, 24_969, 41_746]),
            (gib(256), 65_536, [16_384, 20_480, 24_576], [16_384, 83_492, 150_600]),
        ];
        for (kib, min_free, early, late) in table {
            for (rules, [min, low, high]) in [(Rules::Early, early), (Rules::Late, late)] {
                assert_eq!(min_free_kib(rules, kib), min_free, "{kib} KiB");
                let found = Watermarks::with(rules, kib / KIB_PAGE, min_free);
                assert_eq!(found, Watermarks { min, low, high }, "{kib} KiB, {rules:?}");
            }
        }
    }

    #[test]
    fn the_bounds() {
        assert_eq!(min_free_kib(Rules::Early, 10), 128);
        assert_eq!(min_free_kib(Rules::Early, 1 << 40), 65_536);
        assert_eq!(min_free_kib(Rules::Late, 1 << 40), 262_144);
        assert_eq!(Watermarks::of(Rules::Early, 1 << 18), Watermarks { min: 1024, low: 1280, high: 1536 });
    }
}
