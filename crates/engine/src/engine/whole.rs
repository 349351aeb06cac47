//! Chunks of files that are read, shown and taken out of view as a whole, where that is to be had: in
//! frames that are one huge page.
//!
//! One read, one move, one frame that the kernel makes: some 0.1 us a page where small frames take 1 to
//! 3. Whatever is in the way, all goes on page by page: a mapping that changes, pages that are there
//! for themselves, no huge page to be had, or only after a long search. Of pages that may be stored to
//! each is copied into view, and so they are left out.

use alloc::vec::Vec;

use overspill_mm::types::{CHUNK_PAGES, PageId, Slot};
use overspill_mm::{Action, Event, Run};
use overspill_sys::clock;

use super::Engine;
use crate::huge::PART;
use crate::memory::{Manner, Tries, bits};
use crate::staging::Frame;
use crate::view::{PROGRAM, address};

/// A huge page that takes longer to be had is dearer than small ones: the kernel has to look for one,
/// or the memory was not in RAM itself, of a virtual machine.
const DEAR_NS: u64 = 2_000_000;

/// What is remembered of whole chunks.
#[derive(Default)]
pub(super) struct Whole {
    /// How it goes with huge pages that the kernel has to make, and with chunks that come into view.
    fresh: Tries,
    arrivals: Tries,
    /// By chunk: pages of it came into view for themselves, so that there is a page table.
    tables: Vec<u64>,
}

impl Whole {
    fn has_table(&self, page: PageId) -> bool {
        let chunk = page.index() / CHUNK_PAGES as usize;
        self.tables.get(chunk / 64).is_some_and(|word| word >> (chunk % 64) & 1 != 0)
    }

    fn set_table(&mut self, page: PageId, is_there: bool) {
        let chunk = page.index() / CHUNK_PAGES as usize;
        if self.tables.len() <= chunk / 64 {
            self.tables.resize(chunk / 64 + 1, 0);
        }
        let (word, bit) = (&mut self.tables[chunk / 64], 1 << (chunk % 64));
        *word = if is_there { *word | bit } else { *word & !bit };
    }
}

impl Engine {
    /// Has the pages of a whole chunk of a file held by the frames of a part of staging, for a read into
    /// them. False: they are in no frames.
    pub(super) fn enter_whole(&mut self, run: Run, slot: u32) -> bool {
        let (space, _) = self.mm.place(run.first);
        let may = run.count == PART
            && Slot(slot).is_file()
            && space == PROGRAM
            && self.view.program.can_move()
            && matches!(self.manner(run.first, PART), (PART, Manner::Open | Manner::Sealed))
            && self.whole.arrivals.may_help();
        if !may || self.whole.has_table(run.first) && !self.free_table(run.first) {
            return false;
        }
        let Some(part) = self.part_to_fill() else { return false };
        for (page, frame) in run.pages().zip((part.0..).map(Frame)) {
            self.staging.enter(page, frame);
            self.fingerprints.filled(frame);
        }
        true
    }

    /// Frees the page table of a chunk of which no page is there. False where that cannot be now.
    fn free_table(&mut self, first: PageId) -> bool {
        let start = self.mm.place(first).1;
        let is_free = self.view.program.discard(address(start)..address(start.offset(CHUNK_PAGES as i64)));
        self.whole.set_table(first, !is_free);
        is_free
    }

    /// A part of staging that is there, and may hold other pages than it held.
    fn part_to_fill(&mut self) -> Option<Frame> {
        let part = match self.staging.take_part() {
            Some((part, taken)) if self.lending.clears(taken, self.staging.takes()) => return Some(part),
            Some((part, _)) => {
                // What was lent stays the borrower's.
                self.staging.note_broken(part);
                part
            }
            None if self.whole.fresh.may_help() => self.staging.take_part_hole()?,
            None => return None,
        };
        let began = clock::monotonic_ns();
        if self.staging.is_broken(part) && !self.renew(part) || !self.view.program.populate(part) {
            // Some of it may be there. Where it cannot be given back it is used no more.
            if self.renew(part) {
                self.staging.return_part(part);
            }
            self.whole.fresh.note(false);
            return None;
        }
        let is_huge = self.view.program.is_huge(self.view.program.frame_address(part));
        if !is_huge {
            self.staging.note_broken(part);
        }
        self.whole.fresh.note(is_huge && clock::monotonic_ns() - began < DEAR_NS);
        Some(part)
    }

    /// Gives a part that holds no page back to the kernel.
    fn renew(&mut self, part: Frame) -> bool {
        let is_renewed = self.view.program.renew(part);
        if is_renewed {
            self.staging.renewed(part);
        }
        is_renewed
    }

    /// Gives a part that is there and holds no page back to the kernel. False: there is none.
    pub(super) fn drop_part(&mut self) -> bool {
        let Some(part) = self.staging.take_spare_part() else { return false };
        let is_renewed = self.renew(part);
        self.staging.return_part(part);
        is_renewed
    }

    /// Maps all pages of a chunk from a part of staging, or some, from the first. Returns how many, and
    /// none if none.
    pub(super) fn map_whole(&mut self, run: Run) -> Option<u32> {
        let part = if run.count == PART { self.staging.part(run.first)? } else { return None };
        let (count, manner) = self.manner(run.first, PART);
        let (space, first) = self.mm.place(run.first);
        if space != PROGRAM || count < PART || manner == Manner::Watched {
            return None;
        }
        self.give(run.first, PART);
        let put = self.view.program.put_whole(address(first), part, manner);
        if put < PART {
            self.staging.note_broken(part);
            run.pages().take(put as usize).for_each(|page| self.staging.leave(page, false));
            return Some(put).filter(|&put| put > 0);
        }
        self.staging.leave_whole(run.first);
        let is_huge = self.view.program.is_huge(address(first));
        if !is_huge {
            self.staging.note_broken(part);
            self.whole.set_table(run.first, true);
        }
        self.whole.arrivals.note(is_huge);
        Some(PART)
    }

    /// Pages come into view for themselves.
    pub(super) fn note_small(&mut self, first: PageId) {
        if !self.transfers.files().is_empty() {
            self.whole.set_table(first, true);
        }
    }

    /// Takes a chunk out of view as a whole, if these actions order all of it out and it is one huge
    /// page. Returns how many of them are done then.
    pub(super) fn unmap_whole(&mut self, actions: &[Action]) -> usize {
        let Some(runs) = self.whole_to_unmap(actions) else { return 0 };
        let Some(part) = self.part_to_take() else { return 0 };
        // As in `unmap`.
        self.transfers.submit();
        if let Some(robust) = &self.robust {
            robust.words().begin_batch();
        }
        let first = runs[0].first;
        self.staging.note_take(part);
        let taken = self.view.program.take_whole(address(self.mm.place(first).1), part);
        if taken < PART {
            self.staging.note_broken(part);
        }
        for &run in &runs {
            let at = run.first.0 - first.0;
            let moved = bits(0, taken.saturating_sub(at).min(run.count));
            let result = self.take_out(run, Frame(part.0 + at), u64::MAX, moved);
            self.tell_unmapped(run, result);
        }
        // If it holds none.
        self.staging.return_part(part);
        runs.len()
    }

    /// The runs of a whole chunk that the actions begin with, if it is one huge page of a file.
    fn whole_to_unmap(&mut self, actions: &[Action]) -> Option<Vec<Run>> {
        let unmapped = |action: &Action| if let Action::Unmap { run } = *action { Some(run) } else { None };
        let first = actions.first().and_then(unmapped)?.first;
        let (space, vpn) = self.mm.place(first);
        if !first.0.is_multiple_of(PART) || space != PROGRAM || !self.is_in_file(first) {
            return None;
        }
        let mut runs = Vec::new();
        let mut next = first.0;
        for run in actions.iter().map_while(unmapped).take_while(|run| run.first.0 < first.0 + PART) {
            if run.first.0 != next || self.kept(run) | self.told_discarded(run) != 0 {
                return None;
            }
            next += run.count;
            runs.push(run);
        }
        let is_whole = next == first.0 + PART && self.view.program.is_huge(address(vpn));
        is_whole.then_some(runs)
    }

    /// A part of staging that is not there, to move a chunk into.
    fn part_to_take(&mut self) -> Option<Frame> {
        let part = self.staging.take_part_hole()?;
        if self.staging.is_broken(part) && !self.renew(part) {
            self.staging.return_part(part);
            return None;
        }
        Some(part)
    }

    /// Tells what became of pages that were to be taken out of view.
    pub(super) fn tell_unmapped(&mut self, run: Run, result: overspill_mm::Unmapped) {
        self.events.push_back(Event::Unmapped { run, result });
        if self.robust.is_some() && self.may_hold_locks(run, &result) {
            self.suspect(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_with_page_tables_are_remembered() {
        let mut whole = Whole::default();
        let page = |chunk: u32| PageId(chunk * PART + 17);
        [3, 64, 200].into_iter().for_each(|chunk| whole.set_table(page(chunk), true));
        whole.set_table(page(64), false);
        let has = |chunk: u32| whole.has_table(PageId(chunk * PART));
        assert_eq!([2, 3, 64, 200, 900].map(has), [false, true, false, true, false]);
    }
}
