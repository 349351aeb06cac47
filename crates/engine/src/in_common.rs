//! What a process has in common with others of its tree, so that it counts once.
//!
//! The launcher tells by a walk of the page tables (`Pss`); a child of fork begins with all that it
//! was born with. What the launcher tells is old at once: a store to such a page makes it the
//! process's own. But each such store is a fault, and faults are counted. So the word says how many
//! pages there were when the process had had how many faults, and a page less is believed for each
//! fault since. It is one word of 64 bits: nobody reads half of it.

use overspill_sys::PAGE_SIZE;

/// Pages that count elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InCommon {
    /// So many.
    pub pages: u32,
    /// The process's faults when that was so; they start again at 2^32.
    pub faults: u32,
}

impl InCommon {
    /// So many bytes, at that number of faults.
    #[must_use]
    pub fn new(bytes: u64, faults: u64) -> InCommon {
        let pages = u32::try_from(bytes / PAGE_SIZE as u64).unwrap_or(u32::MAX);
        InCommon { pages, faults: faults as u32 }
    }

    /// As it stands in the shared page.
    #[must_use]
    pub fn word(self) -> u64 {
        u64::from(self.pages) << 32 | u64::from(self.faults)
    }

    /// From there.
    #[must_use]
    pub fn of_word(word: u64) -> InCommon {
        InCommon { pages: (word >> 32) as u32, faults: word as u32 }
    }

    /// What of it is believed when the process has had `faults` faults.
    #[must_use]
    pub fn bytes(self, faults: u64) -> u64 {
        let since = (faults as u32).wrapping_sub(self.faults);
        u64::from(self.pages.saturating_sub(since)) * PAGE_SIZE as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_may_have_been_a_copy() {
        let told = InCommon::new(100 << 12, u64::from(u32::MAX) - 9);
        assert_eq!(InCommon::of_word(told.word()), told);
        let pages = |faults: u64| told.bytes(u64::from(u32::MAX) - 9 + faults) >> 12;
        assert_eq!([0, 1, 40, 99, 100, 1 << 30].map(pages), [100, 99, 60, 1, 0, 0]);
        assert_eq!(InCommon::default().bytes(7), 0);
        assert_eq!(InCommon::new(u64::MAX, 0).pages, u32::MAX);
    }
}
