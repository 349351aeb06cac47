//! What the program, or the shell, does to whole ranges: discard, unmap, move, adopt, and the pause
//! before a fork.

use crate::event::{Action, Actions};
use crate::fault::Reads;
use crate::list::ListId;
use crate::mm::{Mm, View};
use crate::page::{NO_LIST, State, flag};
use crate::readahead::SwapIn;
use crate::reclaim::policy::Arrival;
use crate::swap::Backing;
use crate::types::{CHUNK_PAGES, PageId, RegionKind, Slot, SpaceId, Vpn};

/// Pages that may be on their way in at once while everything is brought in.
const PAUSE_IN_FLIGHT: u32 = 4096;

impl<P: SwapIn> Mm<P> {
    /// Calls `visit` for every page of `[start, end)` that has an entry, in ascending order within a chunk.
    pub(crate) fn each_page(
        &mut self,
        space: SpaceId,
        start: Vpn,
        end: Vpn,
        mut visit: impl FnMut(&mut Self, PageId),
    ) {
        let (first, last) = (start.0 / CHUNK_PAGES, end.0.div_ceil(CHUNK_PAGES));
        if last - first > self.pages.chunk_count() as u64 {
            // A sparse giant: fewer chunks exist than the range could hold.
            for index in 0..self.pages.chunk_count() {
                let chunk = self.pages.chunk_at(index);
                if !chunk.is_unused() && chunk.space == space && (first..last).contains(&chunk.number) {
                    let base = chunk.number * CHUNK_PAGES;
                    let id = index as u32 * CHUNK_PAGES as u32;
                    self.each_of_chunk(id, base, start, end, &mut visit);
                }
            }
            return;
        }
        for number in first..last {
            let base = number * CHUNK_PAGES;
            if let Some(id) = self.pages.lookup(space, Vpn(base)) {
                self.each_of_chunk(id.0, base, start, end, &mut visit);
            }
        }
    }

    fn each_of_chunk(
        &mut self,
        id: u32,
        base: u64,
        start: Vpn,
        end: Vpn,
        visit: &mut impl FnMut(&mut Self, PageId),
    ) {
        let from = start.0.saturating_sub(base).min(CHUNK_PAGES);
        let to = end.0.saturating_sub(base).min(CHUNK_PAGES);
        for offset in from..to {
            visit(self, PageId(id + offset as u32));
        }
    }

    /// The content of `[start, end)` is gone: next touches read zeroes.
    pub(crate) fn discard(&mut self, space: SpaceId, start: Vpn, end: Vpn, out: &mut Actions) {
        self.each_page(space, start, end, |mm, id| mm.discard_page(id, out));
    }

    /// The program discarded `[start, end)`: zeroes, or what the file has.
    pub(crate) fn discarded(&mut self, space: SpaceId, start: Vpn, end: Vpn, out: &mut Actions) {
        self.discard(space, start, end, out);
        self.each_page(space, start, end, |mm, id| mm.back_by_file(id));
    }

    fn discard_page(&mut self, id: PageId, out: &mut Actions) {
        self.pages.take_blank(id);
        match self.pages[id].state {
            State::Untouched => {
                if self.pages[id].has(flag::QUEUED) {
                    self.forget_and_answer(id, out);
                }
            }
            State::Mapped if self.pages[id].has(flag::UNMAPPING) => self.pages[id].set(flag::DISCARDED),
            State::Mapped => {
                // The kernel frees the frame itself.
                self.held -= 1;
                self.forget_and_answer(id, out);
            }
            State::Cached => {
                self.held -= 1;
                out.push_free(id);
                self.forget_and_answer(id, out);
            }
            State::Reading | State::Writing => self.pages[id].set(flag::DISCARDED),
            State::Zero | State::Swapped => self.forget_and_answer(id, out),
        }
    }

    /// `[start, end)` is managed from now on. Pages of a file are in their file; entries are made
    /// for them when they are first looked at, so that a large file costs nothing.
    pub(crate) fn region_added(&mut self, space: SpaceId, start: Vpn, end: Vpn, kind: RegionKind) {
        self.regions.add(space, start, end, kind);
        if let RegionKind::File { .. } = kind {
            self.each_page(space, start, end, |mm, id| mm.back_by_file(id));
        }
    }

    /// Makes entries for the pages of `[start, end)` that are of a file.
    pub(crate) fn know_file_pages(&mut self, space: SpaceId, start: Vpn, end: Vpn) {
        let mut from = start;
        while from < end {
            let is_of_file = !self.kind(space, from).is_zero_at_first();
            let Some((_, until)) = self.regions.bounds(space, from).filter(|_| is_of_file) else { return };
            let until = until.min(end);
            for vpn in (from.0..until.0).map(Vpn) {
                let id = self.pages.lookup_or_create(space, vpn);
                self.back_by_file(id);
            }
            from = until;
        }
    }

    /// A page of a file region of which nothing is known is in its file.
    pub(crate) fn back_by_file(&mut self, id: PageId) {
        let (space, vpn) = self.pages.place(id);
        let Some(slot) = self.kind(space, vpn).file_slot(vpn) else { return };
        if self.pages[id].state != State::Untouched || self.pages[id].has(flag::QUEUED) {
            return;
        }
        self.pages.set_state(id, State::Swapped);
        self.pages[id].backing = Backing::in_slot(slot);
        self.pages[id].prev = self.never_left();
        self.pages.set_unseen(id);
    }

    /// What a page keeps in place of the reclaim clock at its eviction that never left: it is as far away as
    /// can be.
    pub(crate) fn never_left(&self) -> u32 {
        self.clock.wrapping_sub(1 << 31)
    }

    /// `[start, end)` is what the file has: its slots are free. What is on its way keeps its slot until
    /// it is stored to.
    ///
    /// *The story:* a page of a shared mapping that had left once kept its slot for ever: swap had to
    /// have room for all that was ever stored to.
    pub(crate) fn published(&mut self, space: SpaceId, start: Vpn, end: Vpn) {
        self.each_page(space, start, end, |mm, id| {
            let (space, vpn) = mm.pages.place(id);
            let Some(slot) = mm.kind(space, vpn).file_slot(vpn) else { return };
            let page = &mm.pages[id];
            let rests = matches!(page.state, State::Mapped | State::Cached | State::Swapped);
            if !rests || page.has(flag::UNMAPPING) {
                return;
            }
            mm.release_slot(id);
            let page = &mut mm.pages[id];
            page.backing = Backing::in_slot(slot);
            if page.state == State::Cached {
                page.clear(flag::DIRTY);
            }
        });
    }

    /// The program unmapped `[start, end)`.
    pub(crate) fn region_removed(&mut self, space: SpaceId, start: Vpn, end: Vpn, out: &mut Actions) {
        self.discard(space, start, end, out);
        self.unmanage(space, start, end);
        self.leave_chunks(space, start, end);
    }

    /// The policy may have been exchanged since the last time.
    fn unmanage(&mut self, space: SpaceId, start: Vpn, end: Vpn) {
        self.regions.remove(space, start, end, self.policy.spans_holes());
    }

    /// Forgets the chunks of a range: at the end of the step those in which nothing is in use any
    /// more, the others when what keeps them (a transfer, a fault that waits for a frame) has
    /// ended.
    fn leave_chunks(&mut self, space: SpaceId, start: Vpn, end: Vpn) {
        let (first, last) = (start.0 / CHUNK_PAGES, end.0.div_ceil(CHUNK_PAGES));
        let existing = self.pages.chunk_count();
        if last - first <= existing as u64 {
            (first..last).for_each(|number| self.pages.leave(space, Vpn(number * CHUNK_PAGES)));
            return;
        }
        for index in 0..existing {
            let (owner, number) = (self.pages.chunk_at(index).space, self.pages.chunk_at(index).number);
            if owner == space && (first..last).contains(&number) {
                self.pages.leave(space, Vpn(number * CHUNK_PAGES));
            }
        }
    }

    /// Lets go of chunks that are on their leave and unused, and of their homes among the slots.
    pub(crate) fn forget_chunks(&mut self) {
        self.pages.forget_unused(|mut homes| self.areas.disown(&mut homes));
    }

    /// These pages are in the program's view and `mm` did not know: they are charged, and can be reclaimed.
    pub(crate) fn resident(&mut self, space: SpaceId, start: Vpn, end: Vpn) {
        let mut vpn = start;
        while vpn < end {
            let id = self.pages.lookup_or_create(space, vpn);
            let has_no_frame = matches!(self.pages[id].state, State::Untouched | State::Zero);
            if has_no_frame && !self.pages[id].has(flag::QUEUED) {
                self.pages.set_state(id, State::Mapped);
                self.pages[id].set(flag::DIRTY);
                self.admit(id, Arrival::Found);
                self.held += 1;
            }
            vpn = vpn.offset(1);
        }
    }

    /// These pages are where another process had them, in slots that it does not write to any more.
    pub(crate) fn inherited(&mut self, space: SpaceId, vpn: Vpn, slot: Slot, count: u32) {
        for n in 0..count {
            let id = self.pages.lookup_or_create(space, vpn.offset(i64::from(n)));
            if self.pages[id].state != State::Untouched || self.pages[id].has(flag::QUEUED) {
                continue;
            }
            let slot = Slot(slot.0 + n);
            self.areas.take_inherited(slot, id);
            self.pages.set_state(id, State::Swapped);
            self.pages[id].backing = Backing::in_slot(slot);
            // Nobody knows when it left.
            self.pages[id].prev = self.never_left();
            self.note_evicted(id);
        }
    }

    /// mremap: everything known about the pages moves with them.
    pub(crate) fn moved(&mut self, space: SpaceId, from: Vpn, to: Vpn, pages: u64, out: &mut Actions) {
        let from_end = Vpn(from.0 + pages);
        let to_end = Vpn(to.0 + pages);
        self.discard(space, to, to_end, out);
        let kind = match self.kind(space, from) {
            RegionKind::File { bias } => {
                RegionKind::File { bias: bias.wrapping_add(to.0).wrapping_sub(from.0) }
            }
            kind => kind,
        };
        self.unmanage(space, to, to_end);
        self.regions.add(space, to, to_end, kind);
        self.each_page(space, from, from_end, |mm, id| {
            let (_, vpn) = mm.pages.place(id);
            mm.move_page(space, id, Vpn(vpn.0 - from.0 + to.0), out);
        });
        self.unmanage(space, from, from_end);
        self.leave_chunks(space, from, from_end);
    }

    fn move_page(&mut self, space: SpaceId, id: PageId, to: Vpn, out: &mut Actions) {
        if self.pages.take_blank(id) {
            let new = self.pages.lookup_or_create(space, to);
            self.pages.set_blank(new);
        }
        let state = self.pages[id].state;
        if state == State::Untouched {
            if self.pages[id].has(flag::QUEUED) {
                self.forget_and_answer(id, out);
            }
            return;
        }
        let in_flight =
            matches!(state, State::Reading | State::Writing) || self.pages[id].has(flag::UNMAPPING);
        assert!(!in_flight, "the shell finishes transfers before it reports a move");
        let new = self.pages.lookup_or_create(space, to);
        assert_eq!(self.pages[new].state, State::Untouched, "the destination was discarded");
        if self.pages[id].has(flag::QUEUED) {
            self.waiting.remove(&mut self.pages, id);
            self.pages[id].clear(flag::WANTED | flag::WANTED_WRITE);
            out.push(Action::Wake { run: crate::event::Run::one(id) });
        }
        let (list, shadow) = (self.pages[id].list, self.pages[id].prev);
        let (is_unseen, ledger) = (self.pages.is_unseen(id), self.pages.ledger(id));
        self.lists.remove(&mut self.pages, id);
        let (backing, flags) = (self.pages[id].backing, self.pages[id].flags);
        self.pages.set_state(id, State::Untouched);
        (self.pages[id].backing, self.pages[id].flags) = (Backing::NOTHING, 0);
        self.pages.set_state(new, state);
        if is_unseen {
            self.pages.set_unseen(new);
        }
        (self.pages[new].backing, self.pages[new].flags) = (backing, flags);
        if let Some(slot) = backing.slot().filter(|slot| !slot.is_file()) {
            self.areas.set_owner(slot, new);
        }
        let stamp = self.pages.stamp(id);
        self.pages.set_stamp(new, stamp);
        *self.pages.ledger_mut(new) = ledger;
        if list == NO_LIST {
            self.pages[new].prev = shadow;
        } else {
            let list = ListId::ALL[list as usize];
            self.lists.push_head(&mut self.pages, list, new);
        }
        if state == State::Cached {
            out.push(Action::Rename { from: id, to: new });
        }
    }

    /// The program's view is being changed.
    pub(crate) fn note_view_change(&mut self) {
        if let Some(pause) = &mut self.pause {
            pause.view = View::Changed;
        }
    }

    /// The shell has answered for all orders. True when one of them was refused: it is repeated
    /// when something else happens, as what is changing there must be heard of first.
    pub(crate) fn was_refused(&mut self) -> bool {
        let Some(pause) = &mut self.pause else { return true };
        let refused = pause.view == View::Changed;
        if !refused {
            pause.view = View::Whole;
        }
        refused
    }

    /// Goes on bringing everything in; answers when nothing is left out, which it takes the shell's word for.
    pub(crate) fn populate(&mut self, out: &mut Actions) {
        // A child of the fork finds its files by itself.
        while self.drop_filler(out) {}
        for (list, back) in [(ListId::Cache, ListId::Inactive), (ListId::Tested, ListId::Active)] {
            while let Some(id) = self.lists.tail(list) {
                self.pages[id].clear(flag::READ_AHEAD | flag::MARKER);
                self.map(id, back, out);
            }
        }
        let Some(mut pause) = self.pause else { return };
        let mut reads = Reads::default();
        if pause.keeps_out {
            pause.next_chunk = self.pages.chunk_count();
        }
        while self.reading < PAUSE_IN_FLIGHT && pause.next_chunk < self.pages.chunk_count() {
            let first = pause.next_chunk as u32 * CHUNK_PAGES as u32;
            if self.pages.chunk_at(pause.next_chunk).used > 0 {
                for id in (first..first + CHUNK_PAGES as u32).map(PageId) {
                    // A child of the fork finds its files by itself.
                    if self.is_on_swap(id) && self.pages[id].area_slot().is_some() {
                        self.read_unasked(id, &mut reads, out);
                    }
                }
            }
            pause.next_chunk += 1;
        }
        self.flush(&mut reads, out);
        let done = pause.next_chunk == self.pages.chunk_count() && self.in_flight() == 0;
        if done && !pause.answered && self.waiting.is_empty() {
            match pause.view {
                View::Changed => {
                    pause.view = View::Asked;
                    out.push(Action::Confirm);
                }
                View::Asked => {}
                View::Whole => {
                    pause.answered = true;
                    out.push(Action::Populated);
                }
            }
        }
        self.pause = Some(pause);
    }
}
