//! Pages into view and out of it: how `Map`, `ZeroFill` and `Unmap` pass frames between staging and
//! the program.

use alloc::vec::Vec;

use overspill_mm::types::{PageId, SpaceId};
use overspill_mm::{Event, Run, Unmapped};
use overspill_sys::{PAGE_SIZE, clock};

use super::Engine;
use crate::memory::{COPIED_MAX, Manner, Taken, bits, is_zero, runs};
use crate::report::Answer;
use crate::staging::{BLOCK, Frame};
use crate::view::{PROGRAM, Place, address, vpns};

impl Engine {
    /// Puts pages of the swap cache into view, but for those that the program has put guards in
    /// place of: their content is gone.
    pub(super) fn map(&mut self, run: Run) {
        let mut done = 0;
        while done < run.count {
            let rest = rest_of(run, done);
            let (open, guarded) = self.view.guards(self.mm.place(rest.first), rest.count);
            if open > 0
                && let Some(run) = self.put(Run { count: open, ..rest }, Self::map_part)
            {
                self.events.push_back(Event::NotMapped { run });
            }
            let guarded = Run { first: PageId(rest.first.0 + open), count: guarded };
            self.give_up(guarded);
            done += open + guarded.count;
        }
    }

    /// The program threw the content of pages away that were about to come into view.
    fn give_up(&mut self, run: Run) {
        for page in run.pages() {
            self.drop_packed(page);
            self.staging.leave(page, true);
        }
        if run.count > 0 {
            self.retry(run);
            let (space, start) = self.mm.place(run.first);
            self.events.push_back(Event::Discarded { space, start, end: start.offset(run.count.into()) });
        }
    }

    /// Gives pages zeroed frames in view, as far as they are accessible.
    pub(super) fn zero_fill(&mut self, run: Run) {
        let (space, first) = self.mm.place(run.first);
        let count = self.accessible(space, address(first), run.count);
        if count < run.count {
            self.not_filled(rest_of(run, count));
        }
        let run = Run { count, ..run };
        if let Some(run) = self.put(run, Self::zero_fill_part) {
            self.not_filled(run);
        }
    }

    /// Pages were given no frames. Those that are there all the same, and were not discarded just
    /// now, are known from here on.
    ///
    /// *A review's story:* they went on unknown, and held what the program stored to them. The next
    /// first touch of the page before one took it for fresh, with a frame; the same step had it leave
    /// view; the refusal of its zeroes said that it had no content, and its content was dropped.
    pub(super) fn not_filled(&mut self, run: Run) {
        self.events.push_back(Event::NotFilled { run });
        self.tell_present(run);
    }

    /// Tells which pages of a run that was refused are there.
    pub(super) fn tell_present(&mut self, run: Run) {
        let (space, first) = self.mm.place(run.first);
        if space != PROGRAM {
            return;
        }
        let start = address(first);
        let mut parts = Vec::new();
        self.view
            .program
            .each_present(start..start + run.count as usize * PAGE_SIZE, |part| parts.push(part));
        if !parts.is_empty() {
            self.view.program.outwait();
        }
        let (events, now) = (&mut self.events, clock::monotonic_ns());
        for part in parts {
            self.discards.each_part(part, now, |part, rested| {
                let (start, end) = vpns(&part);
                events.push_back(if rested {
                    Event::Resident { space, start, end }
                } else {
                    Event::Discarded { space, start, end }
                });
            });
        }
    }

    /// How many of `count` pages at `start`, from the first, the program can touch.
    pub(super) fn accessible(&mut self, space: SpaceId, start: usize, count: u32) -> u32 {
        if space != PROGRAM {
            return count;
        }
        let open = self.view.program.open_before_guards(start, count);
        self.reservations.accessible(start, open)
    }

    /// Has `put_part` put one part of a run after another into view; it says how many pages it put
    /// and how many it wanted to. Fewer: their range is changing. Whoever waits in the rest tries
    /// again, and the rest is returned.
    fn put(&mut self, run: Run, put_part: impl Fn(&mut Self, Run) -> (u32, u32)) -> Option<Run> {
        let mut done = 0;
        let mut refused = false;
        while done < run.count && !refused {
            let (put, wanted) = put_part(self, rest_of(run, done));
            done += put;
            refused = put < wanted;
        }
        let rest = refused.then(|| rest_of(run, done));
        if let Some(rest) = rest {
            self.retry(rest);
        }
        if done > 0 {
            self.answered(Run { first: run.first, count: done }, Answer::Mapped);
        }
        rest
    }

    /// Maps the pages at the head of `run` that lie in consecutive frames.
    fn map_part(&mut self, run: Run) -> (u32, u32) {
        if let Some(put) = self.map_whole(run) {
            return (put, put);
        }
        self.note_small(run.first);
        let (count, manner) = self.manner(run.first, run.count);
        let segment = self.staging.segment(run.first, count);
        let place = self.mm.place(segment.first_page);
        self.give(segment.first_page, segment.count);
        let put = self.view.put_in(place, segment.first_frame, segment.count, manner);
        for index in 0..put.done {
            let page = PageId(segment.first_page.0 + index);
            self.drop_packed(page);
            self.staging.leave(page, put.moved & 1 << index == 0);
        }
        (put.done, segment.count)
    }

    /// Fills the head of `run`: what a spare block has frames for, or all of it with fresh frames.
    fn zero_fill_part(&mut self, run: Run) -> (u32, u32) {
        let place = self.mm.place(run.first);
        let moves = self.view.moves(place) && run.count > COPIED_MAX;
        let spare = if moves && self.recycles(BLOCK) { self.staging.take_spare() } else { None };
        match spare {
            Some((first, populated)) => self.fill_from_spare(place, run.count, first, populated),
            None => (self.view.fill_fresh(place, run.count), run.count),
        }
    }

    /// Fills pages from the populated frames of a spare block. Returns how many were filled, up to
    /// the first that was there already (see [`crate::memory::Memory::fill_fresh`]), and how many
    /// could be.
    fn fill_from_spare(&mut self, place: Place, count: u32, first: Frame, populated: u64) -> (u32, u32) {
        let start = populated.trailing_zeros();
        let wanted = (populated >> start).trailing_ones().min(count);
        let frame = Frame(first.0 + start);
        self.view.program.clear_frames(frame, wanted);
        let put = self.view.put_in(place, frame, wanted, Manner::Open);
        self.staging.give_back(first, populated & !(put.moved << start));
        if put.found & 1 != 0 {
            // It may be protected, as a zero page that was found at its adoption.
            let page = address(place.1);
            self.view.program.unprotect(page..page + PAGE_SIZE);
        }
        (put.done.min(put.found.trailing_zeros()), wanted)
    }

    /// Takes pages out of view, into the swap cache.
    pub(super) fn unmap(&mut self, run: Run) {
        // Making room takes a while: who waits for a read need not wait for that too.
        self.transfers.submit();
        let place = self.mm.place(run.first);
        let frames = if self.view.moves(place) {
            self.staging.take_holes(run.count)
        } else {
            // Copied, pages go into frames that are there already, if there are any.
            self.frames_to_fill(run.count)
        };
        if let Some(robust) = &self.robust {
            robust.words().begin_batch();
        }
        self.note_unheard_stores(run);
        let kept = self.kept(run) | self.told_discarded(run);
        let result = frames.map_or_else(Default::default, |first| self.take_out(run, first, !kept, 0));
        self.tell_unmapped(run, result);
    }

    /// Takes the pages `which` of a run out of view, into the frames from `first` on. Those that were
    /// `moved` are there already.
    pub(super) fn take_out(&mut self, run: Run, first: Frame, which: u64, moved: u64) -> Unmapped {
        let mut taken = Taken { taken: moved, ..Taken::default() };
        let watched = self.watched(run);
        for (page, count) in runs(which & bits(0, run.count) & !moved) {
            let place = self.mm.place(PageId(run.first.0 + page));
            let part = self.view.take_out(place, Frame(first.0 + page), count, watched >> page);
            taken.taken |= part.taken << page;
            taken.gone |= part.gone << page;
            taken.copied |= part.copied << page;
        }
        let place = self.mm.place(run.first);
        let counts_stores = place.0 == PROGRAM && self.view.program.may_share();
        let mut result = Unmapped { taken: taken.taken, gone: taken.gone, ..Unmapped::default() };
        for index in (0..run.count).filter(|index| taken.taken & 1 << index != 0) {
            let (page, frame) = (PageId(run.first.0 + index), Frame(first.0 + index));
            self.staging.enter(page, frame);
            self.view.program.keep(frame);
            let content = self.content(page, frame);
            result.zero |= u64::from(content == Content::Zero) << index;
            result.same |= u64::from(content == Content::Same) << index;
            if counts_stores && content != Content::Same && self.mm.slot(page).is_some() {
                self.view.program.note_rewritten();
            }
        }
        self.copies.note(place, taken.copied, &result);
        if taken.taken == 0 && !self.staging.is_in_part(first) {
            self.staging.abandon(first);
        }
        result
    }

    /// What there is to say of a page that was just taken out of view.
    fn content(&mut self, page: PageId, frame: Frame) -> Content {
        if let Some(content) = self.file_content(page, frame) {
            return content;
        }
        let words = self.view.program.frame_words(frame);
        if is_zero(words) {
            // It may be mapped again, changed, and written.
            self.fingerprints.filled(frame);
            return Content::Zero;
        }
        let slot = self.mm.slot(page).map(|slot| slot.0);
        if self.fingerprints.taken(page, frame, slot, words) { Content::Same } else { Content::Other }
    }
}

/// The content of a page, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Zero,
    /// What its slot holds.
    Same,
    Other,
}

/// The run without its first `done` pages.
pub(super) fn rest_of(run: Run, done: u32) -> Run {
    Run { first: PageId(run.first.0 + done), count: run.count - done }
}
