//! Parts of memory: under each another policy may rule, so that they can be compared
//! ([`crate::reclaim`], `dueling`).
//!
//! A part is a memory of its own, only smaller: it has its part of the pages, of every list of pages in
//! view and of the frames. Which one a page belongs to is fixed, by its number, so that neighbours of one
//! unit are together and each part has pages of every kind. (*Set dueling*, M. Qureshi and others,
//! ISCA 2007, compares policies of a processor cache so; C. Waldspurger and others, USENIX 2017, show how
//! well a small sample stands for the whole.)

use crate::types::PageId;

/// Neighbours that are in one part: log2 of the pages.
const UNIT_SHIFT: u32 = 4;
/// log2 of how many units there is one of for each of the two small parts.
const SHARES_SHIFT: u32 = 5;

/// A part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum Part {
    /// Nearly all.
    #[default]
    Rest,
    /// Where the first of two policies rules.
    First,
    /// Where the second does.
    Second,
}

/// Number of parts.
pub(crate) const PARTS: usize = 3;

impl Part {
    /// Every part.
    pub const ALL: [Part; PARTS] = [Part::Rest, Part::First, Part::Second];

    /// Where the page belongs. (Knuth's multiplicative hash.)
    pub fn of(id: PageId) -> Part {
        match (id.0 >> UNIT_SHIFT).wrapping_mul(0x9E37_79B1) >> (u32::BITS - SHARES_SHIFT) {
            0 => Part::First,
            1 => Part::Second,
            _ => Part::Rest,
        }
    }

    /// So many of [`Part::SHARES`] are in it.
    pub const fn share(self) -> u32 {
        match self {
            Part::Rest => Part::SHARES - 2,
            Part::First | Part::Second => 1,
        }
    }

    /// All shares.
    pub const SHARES: u32 = 1 << SHARES_SHIFT;

    /// Its part of so many.
    pub fn of_all(self, count: u64) -> u64 {
        count * u64::from(self.share()) / u64::from(Part::SHARES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_together_and_each_part_has_its_share() {
        let mut units = [0u32; PARTS];
        for unit in 0..32_000 {
            let parts: Vec<Part> = (0..16).map(|page| Part::of(PageId(unit * 16 + page))).collect();
            assert!(parts.iter().all(|&part| part == parts[0]));
            units[parts[0] as usize] += 1;
        }
        for part in Part::ALL {
            let expected = part.of_all(32_000);
            assert!(u64::from(units[part as usize]).abs_diff(expected) < 20, "{part:?} {units:?}");
        }
    }
}
