//! What may be held above the budget where swap has no room for the rest.
//!
//! A program that has more pages than budget and swap together hold has some of them in RAM
//! whatever is done. With not a frame free beyond those, every fault was a lone one: a page was read,
//! its slot was free, and one page could be written there. So some frames float: they are free
//! though the budget is passed, a window is read into them, the slots of its pages are given up as
//! they are mapped, and as many others go out into these. Each page on its way in or out, and each
//! free slot, is one of the float, so that what is held never passes what must be by more than it.

use crate::mm::Mm;
use crate::readahead::SwapIn;

/// Part of the budget, and of swap, that floats, and its bound in frames.
const SHARE: u32 = 16;
const MOST: u32 = 1024;

impl<P: SwapIn> Mm<P> {
    /// Frames that may still be taken.
    #[inline]
    pub(crate) fn frames_free(&self) -> u32 {
        let free = self.config.budget.saturating_sub(self.held);
        if free >= self.config.budget / SHARE { free } else { free.max(self.afloat()) }
    }

    /// Frames that may be held.
    pub(crate) fn limit(&self) -> u32 {
        match self.afloat() {
            0 => self.config.budget,
            afloat => self.config.budget.max(self.held + afloat),
        }
    }

    /// Do budget and areas together not hold what the program has? What floats keeps slots free, so
    /// that nobody may ever find the areas full. (Clean pages of files need neither, so it must also
    /// be that what is above the budget has no slot to go to.)
    ///
    /// *The story:* where all that is written is in the compressed pool at once, slots came and went
    /// between two looks: a run of 64 MiB held 132, and never said that swap was full.
    pub(crate) fn lacks_room(&self) -> bool {
        self.pause.is_none() && self.frames_short() > 0 && self.held > self.config.budget + self.areas.room()
    }

    /// Frames of the budget that are left over if all slots are used, or 0.
    #[must_use]
    pub fn frames_to_spare(&self) -> u32 {
        (self.config.budget + self.areas.could_hold()).saturating_sub(self.held + self.pages.swapped())
    }

    /// Frames beyond the budget that the program needs though all slots are used, or 0.
    #[must_use]
    pub fn frames_short(&self) -> u32 {
        (self.held + self.pages.swapped()).saturating_sub(self.config.budget + self.areas.could_hold())
    }

    /// Is any of it free?
    pub(crate) fn is_afloat(&self) -> bool {
        self.afloat() > 0
    }

    /// Frames of the float that are free. A kernel's rules know none.
    fn afloat(&self) -> u32 {
        if self.config.probe.is_kernel() {
            return 0;
        }
        let float = (self.config.budget.min(self.areas.could_hold()) / SHARE).min(MOST);
        float.saturating_sub(self.areas.room() + self.reading + self.writing)
    }
}
