//! Which pages are worth a fingerprint when they leave the program's view, and what is known of slots.
//!
//! A shell that compares ([`crate::Config::compares`]) takes a page's fingerprint when the page is
//! taken out of view, and keeps it with the slot to which the page is written; a page that still
//! has its slot's fingerprint need not be written again. Where pages come back changed as a rule,
//! that is given up but for a sample, chunk by chunk. The rule is here, so that the simulator
//! leaves out the same writes as the pager; what a fingerprint is, the shell knows.

use alloc::vec::Vec;

use crate::slot_table::SlotTable;
use crate::types::{CHUNK_PAGES, PageId, Slot};

/// Where a chunk's score begins, and its largest value. At 0 only samples are fingerprinted.
const SCORE_START: u8 = 8;
const SCORE_MAX: u8 = 32;
/// What an unchanged page adds to the score; a changed one takes 1 away. So it goes on where one
/// page in five is unchanged: a fingerprint costs about a fifth of a write.
const SCORE_SAME: u8 = 4;
/// In a chunk without score, this unit of 16 in so many is fingerprinted all the same.
const SAMPLE_UNITS: u32 = 8;

/// The fingerprints of slots, and of pages on their way to one. `F::default()` stands for "not known".
#[derive(Debug)]
pub struct Fingerprints<F> {
    of_slot: SlotTable<F>,
    /// By the shell's number of a frame: its page's, when it was taken out of view.
    of_frame: Vec<F>,
    /// By chunk of pages: does it pay?
    score: Vec<u8>,
}

impl<F: Copy + Eq + Default> Default for Fingerprints<F> {
    fn default() -> Self {
        Fingerprints { of_slot: SlotTable::default(), of_frame: Vec::new(), score: Vec::new() }
    }
}

impl<F: Copy + Eq + Default> Fingerprints<F> {
    /// Notes that `frame` holds the content of `page`, just taken out of view, and says whether
    /// that is what `slot` holds. `of` makes the fingerprint, given that of the slot; it is asked
    /// only where it pays.
    pub fn taken(&mut self, page: PageId, frame: u32, slot: Option<Slot>, of: impl FnOnce(F) -> F) -> bool {
        let unknown = F::default();
        if !self.pays(page) {
            *at(&mut self.of_frame, frame) = unknown;
            return false;
        }
        let before = slot.map_or(unknown, |slot| self.of_slot.get(slot));
        let now = of(before);
        assert!(now != unknown, "a fingerprint is told from none");
        *at(&mut self.of_frame, frame) = now;
        if before == unknown {
            return false;
        }
        let score = &mut self.score[chunk(page)];
        *score = if before == now { (*score + SCORE_SAME).min(SCORE_MAX) } else { score.saturating_sub(1) };
        before == now
    }

    /// `frame` is being written to `slot`. (Should that fail, the slot is never used again.)
    pub fn written(&mut self, slot: Slot, frame: u32) {
        self.of_slot.set(slot, self.of_frame(frame));
    }

    /// Another process has written that there.
    pub fn inherited(&mut self, slot: Slot, print: F) {
        self.of_slot.set(slot, print);
    }

    /// What the slot holds is not the page's any more, whatever it was.
    pub fn forget(&mut self, slot: Slot) {
        self.of_slot.set(slot, F::default());
    }

    /// `frame` is being filled from `slot`: it will hold what that holds.
    pub fn read(&mut self, slot: Slot, frame: u32) {
        *at(&mut self.of_frame, frame) = self.of_slot.get(slot);
    }

    /// `frame` is being filled with something else: nothing is known of it.
    pub fn filled(&mut self, frame: u32) {
        *at(&mut self.of_frame, frame) = F::default();
    }

    /// What is known of the content of `frame`.
    #[must_use]
    pub fn of_frame(&self, frame: u32) -> F {
        self.of_frame.get(frame as usize).copied().unwrap_or_default()
    }

    /// Is the page worth a fingerprint?
    pub fn pays(&mut self, page: PageId) -> bool {
        let chunk = chunk(page);
        if chunk >= self.score.len() {
            self.score.resize(chunk + 1, SCORE_START);
        }
        self.score[chunk] > 0 || (page.0 / 16).is_multiple_of(SAMPLE_UNITS)
    }
}

/// The entry of that number; the table grows with use, a chunk at a time.
fn at<F: Copy + Default>(table: &mut Vec<F>, index: u32) -> &mut F {
    let index = index as usize;
    if index >= table.len() {
        table.resize((index + 1).next_multiple_of(CHUNK_PAGES as usize), F::default());
    }
    &mut table[index]
}

fn chunk(page: PageId) -> usize {
    page.index() / CHUNK_PAGES as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_recognised_and_nothing_else() {
        let mut prints = Fingerprints::default();
        let slot = |number| Some(Slot(number));
        assert!(!prints.taken(PageId(5), 0, None, |_| 1), "no slot yet");
        prints.written(Slot(9), 0);
        assert!(prints.taken(PageId(5), 1, slot(9), |before| before));
        assert!(!prints.taken(PageId(5), 2, slot(9), |_| 2));
        assert!(!prints.taken(PageId(5), 2, slot(8), |_| 2), "nothing is known of slot 8");
        prints.written(Slot(9), 2);
        assert!(!prints.taken(PageId(5), 3, slot(9), |_| 1), "slot 9 holds another page");
        prints.read(Slot(8), 3);
        prints.written(Slot(9), 3);
        assert!(!prints.taken(PageId(5), 1, slot(9), |_| 1), "the frame was read into since");
    }

    #[test]
    fn it_stops_where_everything_changes_and_comes_back() {
        let mut prints = Fingerprints::default();
        for round in 1..100 {
            prints.taken(PageId(3), 0, Some(Slot(1)), |_| round);
            prints.written(Slot(1), 0);
        }
        let (unsampled, sampled) = (PageId(16), PageId(0));
        assert!(!prints.pays(unsampled) && prints.pays(sampled));
        for _ in 0..2 {
            prints.taken(sampled, 0, Some(Slot(1)), |_| 1);
            prints.written(Slot(1), 0);
        }
        assert!(prints.pays(unsampled), "one page that comes back unchanged is a sign");
    }
}
