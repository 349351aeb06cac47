//! The carrying out of the actions of `mm`: which becomes a transfer, which a call of the kernel,
//! which a notice.

use overspill_mm::types::{Nanos, PageId, Slot};
use overspill_mm::{Action, Event, IoId, Run, State, Warning, WriteResult};
use overspill_sys::{Errno, clock};

use super::{Engine, Notice};
use crate::report::Answer;
use crate::shared::events;
use crate::staging::{BLOCK, Frame};
use crate::transfers::Pieces;

impl Engine {
    /// Does what `mm` asked for.
    pub(super) fn carry_out(&mut self, action: Action) {
        self.tell(&action);
        match action {
            Action::Read { io, run, slot } => self.read(io, run, slot.0),
            Action::Write { io, run, slot } => self.write(io, run, slot.0),
            Action::ZeroFill { run } => self.zero_fill(run),
            Action::ShowZeroes { run } => self.show_zeroes(run),
            Action::TakeStores { run } => self.take_stores(run),
            Action::Map { run } => self.map(run),
            Action::Unmap { run } => self.unmap(run),
            Action::Free { run } => run.pages().for_each(|page| {
                self.keep_packed(page);
                self.staging.leave(page, true);
            }),
            Action::Rename { from, to } => self.staging.rename(from, to),
            Action::Wake { run } => {
                self.retry(run);
            }
            Action::Fail { page } => self.fail(page),
            Action::Discard { slot, count } => self.transfers.discard(slot.0, count),
            Action::Claim { area, slots } => self.claim(area, slots),
            Action::AreaLeft { area, slots } => self.area_left(area, slots),
            Action::Confirm => self.events.push_back(Event::Confirmed),
            Action::Populated => self.notices.push_back(Notice::Populated),
            Action::Warn(warning) => self.warn(warning),
        }
        if let Some(tracer) = &mut self.tracer {
            tracer.carried_out(clock::monotonic_ns);
        }
    }

    /// Tells the tracer what `mm` is about to hear of pages that no fault tells of.
    pub(super) fn tell_event(&mut self, now: Nanos, event: &Event) {
        let Some(tracer) = &mut self.tracer else { return };
        match *event {
            Event::Resident { start, end, .. } => tracer.found(now, start, end),
            Event::Discarded { start, end, .. } | Event::RegionRemoved { start, end, .. } => {
                tracer.gone(now, start, end)
            }
            Event::Moved { space, from, to, pages } => {
                let pages = i64::try_from(pages).expect("pages of an address space");
                tracer.gone(now, to, to.offset(pages));
                tracer.gone(now, from, from.offset(pages));
                let is_in_view = |index: &i64| {
                    let id = self.mm.lookup(space, from.offset(*index));
                    id.is_some_and(|id| self.mm.state(id) == State::Mapped)
                };
                let mut at = 0;
                while at < pages {
                    let count = (at..pages).take_while(is_in_view).count() as i64;
                    tracer.moved(now, to.offset(at), to.offset(at + count));
                    at += count + 1;
                }
            }
            _ => {}
        }
    }

    /// Tells the tracer what is about to be done.
    fn tell(&mut self, action: &Action) {
        let Some(tracer) = &mut self.tracer else { return };
        let now = clock::monotonic_ns();
        match action {
            Action::Read { run, .. } => {
                run.pages().for_each(|id| tracer.reading(now, self.mm.place(id).1, id))
            }
            Action::Write { run, .. } => run.pages().for_each(|id| tracer.writing(id)),
            Action::Map { run } => run.pages().for_each(|id| tracer.mapped(id)),
            Action::ZeroFill { run } | Action::TakeStores { run } => {
                tracer.filling(self.mm.place(run.first).1, run.count)
            }
            Action::Free { run } => run.pages().for_each(|id| {
                if let (State::Swapped, Some(slot)) = (self.mm.state(id), self.mm.slot(id)) {
                    tracer.evicted(now, self.mm.place(id).1, id, slot.0);
                }
            }),
            _ => {}
        }
    }

    /// Brings consecutive slots into frames that hold the pages from now on.
    fn read(&mut self, io: IoId, run: Run, slot: u32) {
        if self.enter_whole(run, slot) {
            return self.read_file(io, run, slot);
        }
        let mut done = 0;
        while done < run.count {
            let (first, count) = self.frames_for(run.count - done);
            for index in 0..count {
                let (page, frame) = (PageId(run.first.0 + done + index), Frame(first.0 + index));
                self.staging.enter(page, frame);
                if Slot(slot).is_file() {
                    self.fingerprints.filled(frame);
                } else {
                    self.fingerprints.read(slot + done + index, frame);
                }
            }
            done += count;
        }
        if Slot(slot).is_file() {
            return self.read_file(io, run, slot);
        }
        self.read_slots(io, run, slot);
    }

    /// Frames for as many of `count` pages as there are such frames side by side.
    fn frames_for(&mut self, count: u32) -> (Frame, u32) {
        let mut count = count.min(BLOCK);
        loop {
            match self.frames_to_fill(count) {
                Some(first) => return (first, count),
                None => {
                    assert!(count > 1, "staging has room for all that may be read");
                    count /= 2;
                }
            }
        }
    }

    /// The frames that hold pages, as pieces of a request.
    pub(super) fn pieces_of(&self, run: Run) -> Pieces {
        let mut pieces = Pieces::default();
        let mut done = 0;
        while done < run.count {
            let segment = self.staging.segment(PageId(run.first.0 + done), run.count - done);
            pieces.push(self.view.program.frame_address(segment.first_frame), segment.count);
            done += segment.count;
        }
        pieces
    }

    /// Brings the frames of pages to consecutive slots.
    fn write(&mut self, io: IoId, run: Run, slot: u32) {
        assert!(!Slot(slot).is_file(), "files are never written to");
        let mut pieces = Pieces::default();
        let mut done = 0;
        while done < run.count {
            let segment = self.staging.segment(PageId(run.first.0 + done), run.count - done);
            pieces.push(self.view.program.frame_address(segment.first_frame), segment.count);
            for index in 0..segment.count {
                self.fingerprints.written(slot + done + index, Frame(segment.first_frame.0 + index));
            }
            done += segment.count;
        }
        if self.pack(run, slot) {
            return self.events.push_back(Event::WriteDone { io, result: WriteResult::Done });
        }
        self.note_moved(slot, run.count, true);
        if self.sealing.is_some() {
            return self.seal(io, run, slot);
        }
        self.note_sums(run, slot);
        self.transfers.write(io, slot, &pieces);
    }

    /// Notes the checksums of pages that are about to be written.
    fn note_sums(&mut self, run: Run, slot: u32) {
        if !self.sums.wants_hashes() {
            return;
        }
        for (page, slot) in run.pages().zip(slot..) {
            let frame = self.staging.frame(page).expect("what is written has a frame");
            let hash = self.fingerprints.hash_of(frame, self.view.program.frame_words(frame));
            self.sums.written(slot, hash);
        }
    }

    /// Pages could not be put where their range is changing: whoever waits there touches again,
    /// after the change.
    pub(super) fn retry(&mut self, run: Run) {
        self.view.wake(self.mm.place(run.first), run.count);
        self.answered(run, Answer::Retry);
    }

    /// The page is lost, and whoever waits for it hears of it.
    ///
    /// *The story:* the reason was noted after the page had been poisoned, and the program's end by
    /// SIGBUS was sometimes sooner: nobody learnt that the device had given back something else.
    fn fail(&mut self, page: PageId) {
        let place = self.mm.place(page);
        let of_file = self.is_in_file(page);
        let is_first = self.report.note_event(match (of_file, self.report.last_error()) {
            (true, _) => events::FILE_READ_ERROR,
            (false, Errno::BADMSG) => events::READ_ERROR | events::WRONG_BYTES,
            (false, _) => events::READ_ERROR,
        });
        self.has_lost = true;
        let poisoned = self.view.poison(place);
        self.notices.push_back(Notice::PageLost { place, poisoned, of_file, is_first });
        self.answered(Run::one(page), Answer::Retry);
    }

    fn warn(&mut self, warning: Warning) {
        match warning {
            Warning::SwapFull => self.swap_is_full(),
            Warning::AreaRetired => self.area_retired(),
            // `Fail` follows and says which page.
            Warning::PageLost => {}
        }
    }

    /// Tells the statistics and the tracer that whoever waited in the run waits no more.
    pub(super) fn answered(&mut self, run: Run, answer: Answer) {
        let (_, first) = self.mm.place(run.first);
        self.report.fault_ends(first, run.count, answer);
        if let Some(tracer) = &mut self.tracer {
            tracer.answered(clock::monotonic_ns(), first, run.count, answer == Answer::Retry);
        }
    }
}
