//! What may be held above the budget where swap has no room for the rest.
//!
//! A program that has more pages than budget and swap together hold has some of them in RAM
//! whatever is done. With not a frame free beyond those, every fault was a lone one: a page was read,
//! its slot was free, and one page could be written there. So some frames float: they are free
//! though the budget is passed, a window is read into them, the slots of its pages are given up as
//! they are mapped, and as many others go out into these. Each page on its way in or out, and each
//! free slot, is one of the float, so that what is held never passes what must be by more than it.

use crate::event::{Action, Actions, Warning};
use crate::mm::Mm;
use crate::page::flag;
use crate::readahead::SwapIn;
use crate::reclaim::live::{REFUSED_MAX, REFUSED_MIN};
use crate::types::PageId;

/// Part of the budget, and of swap, that floats, and its bound in frames.
const SHARE: u32 = 8;
const MOST: u32 = 1024;

/// Where next to nothing can leave, a window has so many pages.
pub(crate) const STUCK_WINDOW: u32 = 64;
/// ... and so many fresh ones come at once: for each of them so many others may be tried as for one that
/// comes alone.
///
/// *The story:* one was tried for each, of 64. Beside 192 MiB that were locked other memory came to hold 97
/// MiB before what could leave was found, and 40 where each came alone.
pub(crate) const STUCK_FILL: u32 = REFUSED_MAX / REFUSED_MIN;

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

    /// So many frames are taken. Those of the float are above the budget, which is said before anybody
    /// can see it.
    ///
    /// *The story:* where budget and slots just held the program it held some frames more, and nobody
    /// was told: `sim --swap` ended by an assertion.
    pub(crate) fn take_frames(&mut self, count: u32) {
        self.held += count;
        let passes = self.held > self.config.budget && self.pause.is_none();
        if passes && self.is_nearly_full() {
            self.say_full();
        }
    }

    /// Swap is full, and the program is to hold more than its budget: said once.
    fn say_full(&mut self) {
        self.says_full |= !core::mem::replace(&mut self.warned_full, true);
    }

    /// The same, where that is so.
    pub(crate) fn warn_full(&mut self) {
        if self.areas.is_full() || self.lacks_room() {
            self.say_full();
        }
    }

    /// Before anything that was done in this step, whose actions begin there; but what it comes of is said
    /// first.
    pub(crate) fn tell_full(&mut self, begin: usize, out: &mut Actions) {
        if core::mem::take(&mut self.says_full) {
            let has_failed = out.as_slice().get(begin) == Some(&Action::Warn(Warning::AreaRetired));
            out.insert(begin + usize::from(has_failed), Action::Warn(Warning::SwapFull));
        }
    }

    /// A page has arrived whose slot another one needs more: what does not fit has to have one.
    ///
    /// *The story:* pages that were read ahead kept their slots until they were touched. Where swap was
    /// full they were the only clean ones, so that each fault threw out what the last one had read:
    /// 96 MiB in 32 with 16 of swap took 88 s in place of 13.
    ///
    /// Not in an area that takes nothing any more: what is there is as good as in RAM, and nobody else
    /// can have the place. Nor where pages of files are all that does not fit: those need no slot.
    pub(crate) fn share_slot(&mut self, id: PageId) {
        let Some(slot) = self.pages[id].area_slot() else { return };
        let is_short = self.is_nearly_full() && self.frames_short() > 0;
        if is_short && self.areas.is_open(slot) {
            self.release_slot(id);
            self.pages[id].set(flag::DIRTY);
        }
    }

    /// Is the budget used up by what cannot leave (most of it is locked)? Then what is wanted comes in
    /// above it page by page, and windows may as well: those pages would come next.
    ///
    /// *The story:* mlock of 107 MiB in 64M, of which half was out, read that page by page: 1.1 s
    /// where a plain load takes 0.1 to 0.3.
    ///
    /// While a fault waits only for who is served, whose `wanted` page it is: who waits is served when
    /// nothing is under way, and the windows of one who does not wait would always be. Nor where swap is
    /// nearly full: what floats is there for windows.
    pub(crate) fn is_stuck(&self, wanted: Option<PageId>) -> bool {
        let is_used_up = self.held >= self.config.budget && self.trust == 0;
        let is_ours = self.pause.is_none() && !self.config.probe.is_kernel();
        let has_turn = wanted.is_some() || self.waiting.is_empty();
        is_used_up && is_ours && has_turn && !self.is_nearly_full()
    }

    /// Is any of it free?
    pub(crate) fn is_afloat(&self) -> bool {
        self.afloat() > 0
    }

    /// Frames of the float that are free.
    fn afloat(&self) -> u32 {
        let room = self.areas.room();
        if room >= MOST { 0 } else { self.float().saturating_sub(room + self.reading + self.writing) }
    }

    /// Are fewer slots free than frames float?
    fn is_nearly_full(&self) -> bool {
        let room = self.areas.room();
        room < MOST && room < self.float()
    }

    /// All frames of the float. A kernel's rules know none.
    fn float(&self) -> u32 {
        if self.config.probe.is_kernel() || !self.config.floats {
            return 0;
        }
        (self.config.budget.min(self.areas.could_take()) / SHARE).min(MOST)
    }
}
