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

    /// All of it.
    #[must_use]
    pub fn all_bytes(self) -> u64 {
        u64::from(self.pages) * PAGE_SIZE as u64
    }

    /// What of it is believed when the process has had `faults` faults and holds `held` bytes. Below
    /// zero: what others believe still, though this process has made it their own. Of a page that
    /// five have each counts a fifth; who copies it has one more, and what it counted of the old
    /// one counts on until the others are asked. That is no more than what it counted.
    ///
    /// *The story:* four workers copied all that they had of their parent, which believed for a
    /// while that four fifths of it counted elsewhere: 100 MiB in a budget of 80.
    #[must_use]
    pub fn bytes(self, faults: u64, held: u64) -> i64 {
        let all = self.all_bytes().min(held).cast_signed();
        let since = u64::from((faults as u32).wrapping_sub(self.faults)) * PAGE_SIZE as u64;
        let owed = all.min(held.cast_signed() - all);
        (all - since.cast_signed()).max(-owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_may_have_been_a_copy() {
        let told = InCommon::new(100 << 12, u64::from(u32::MAX) - 9);
        assert_eq!(InCommon::of_word(told.word()), told);
        let pages = |faults: u64| told.bytes(u64::from(u32::MAX) - 9 + faults, 125 << 12) >> 12;
        assert_eq!([0, 1, 40, 99, 100, 1 << 30].map(pages), [100, 99, 60, 1, 0, -25]);
        assert_eq!(InCommon::default().bytes(7, 1 << 20), 0);
        assert_eq!(told.bytes(u64::from(u32::MAX) - 9, 70 << 12) >> 12, 70, "no more than it holds");
        assert_eq!(InCommon::new(u64::MAX, 0).pages, u32::MAX);
    }
}
