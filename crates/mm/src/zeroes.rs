//! Pages that are read before they are stored to: they show the kernel's one zero page and take no
//! frame.
//!
//! A kernel does the same. The page is protected, so that its first store is a fault, and with that
//! it gets a frame, as an untouched one would. It is on no list and leaves nothing behind: reclaim
//! never sees it. Needs a shell that can protect ([`crate::Config::maps_zeroes`]).
//!
//! A program that reads each new page and stores to it at once has two faults in place of one. So
//! what becomes of such pages is counted, and where most are stored to soon, new pages get frames
//! when they are read, but for a few that are tried.

use crate::event::{Action, Actions, Run};
use crate::mm::Mm;
use crate::page::{State, flag};
use crate::readahead::SwapIn;
use crate::types::{Access, CHUNK_PAGES, PageId, RegionKind, SpaceId, Vpn};

/// So many pages say something.
const SAID_MIN: u32 = 64;
/// What was counted is halved here: what a program did long ago says little.
const SAID_MAX: u32 = 1024;
/// Where most are stored to, one first read in so many is tried all the same.
const TRIED_ONE_IN: u32 = 4;

/// What becomes of pages that were read first.
#[derive(Debug, Default)]
pub(crate) struct Zeroes {
    shown: u32,
    stored: u32,
    turn: u32,
}

impl Zeroes {
    /// Is a page that is read first to show the zero page?
    fn pays(&mut self) -> bool {
        if self.shown < SAID_MIN || 2 * self.stored < self.shown {
            return true;
        }
        self.turn = (self.turn + 1) % TRIED_ONE_IN;
        self.turn == 0
    }

    /// So many pages are only read, as far as is known.
    pub fn note_shown(&mut self, pages: u32) {
        self.shown += pages;
        if self.shown > SAID_MAX {
            (self.shown, self.stored) = (self.shown / 2, self.stored / 2);
        }
    }

    /// One of them was stored to.
    fn note_stored(&mut self) {
        self.stored = (self.stored + 1).min(self.shown);
    }
}

impl<P: SwapIn> Mm<P> {
    /// A page without content is read.
    pub(crate) fn first_read(&mut self, id: PageId, out: &mut Actions) {
        let (space, vpn) = self.pages.place(id);
        if self.pages[id].state == State::Zero {
            // It is in view by now.
            out.push(Action::Wake { run: Run::one(id) });
        } else if self.config.maps_zeroes && self.kind(space, vpn) == RegionKind::Anon && self.zeroes.pays() {
            self.show_zeroes(id, out);
        } else {
            self.bring_in(id, Access::Read, out);
        }
    }

    /// The zero page, for as many following untouched pages as there are such pages before it.
    fn show_zeroes(&mut self, id: PageId, out: &mut Actions) {
        let most = self.batch_for(id, |state| state == State::Zero);
        let mut count = 0;
        while count < most {
            let next = PageId(id.0 + count);
            if self.pages[next].state != State::Untouched || self.pages[next].has(flag::QUEUED) {
                break;
            }
            self.pages.set_state(next, State::Zero);
            self.pages[next].clear(flag::WANTED | flag::WANTED_WRITE | flag::BEHIND);
            count += 1;
        }
        assert!(count > 0, "the faulting page itself is untouched");
        self.zeroes.note_shown(count);
        self.stats.zero_shown += u64::from(count);
        self.note_view_change();
        out.push(Action::ShowZeroes { run: Run { first: id, count } });
    }

    /// First store to a page that shows the zero page: the frame comes with it.
    pub(crate) fn take_stores(&mut self, id: PageId, out: &mut Actions) {
        self.zeroes.note_stored();
        let run = self.give_frames(id, State::Zero);
        out.push(Action::TakeStores { run });
    }

    /// Stores were refused, as the range is changing: no frames were taken. That the pages show the zero
    /// page goes with them, wherever the change takes them.
    ///
    /// *The story* (simulator, seed 11235): such a page was forgotten. Its range was being moved, and
    /// at the new place the zero page was in view of which nobody knew; a store there got a zeroed
    /// frame for what was no empty place.
    pub(crate) fn still_zeroes(&mut self, run: Run) {
        self.note_view_change();
        for id in run.pages() {
            if self.pages[id].state != State::Mapped {
                continue; // what was told in between has settled it
            }
            if self.pages[id].has(flag::UNMAPPING) {
                // The answer to that settles what is there.
                self.pages[id].set(flag::SHOWS_ZERO);
            } else {
                self.shows_zeroes_again(id);
            }
        }
    }

    /// A page in view has no frame after all.
    pub(crate) fn shows_zeroes_again(&mut self, id: PageId) {
        self.lists.remove(&mut self.pages, id);
        self.pages.set_state(id, State::Zero);
        self.pages[id].flags = 0;
        self.held -= 1;
    }

    /// How many pages from `id` on may get what it gets: as many as there are directly before it
    /// whose state `counts`, at least one, within its chunk and region. (A sequential first touch
    /// doubles its batch, any number of streams do so independently, a scattered one fills one
    /// page.)
    pub(crate) fn batch_for(&mut self, id: PageId, counts: impl Fn(State) -> bool) -> u32 {
        let (space, vpn) = self.pages.place(id);
        let in_chunk = CHUNK_PAGES - vpn.0 % CHUNK_PAGES;
        let end = self.regions.bounds(space, vpn).map_or(vpn.offset(1), |(_, end)| end);
        let before = u64::from(self.pages_before(space, vpn, counts));
        before.min(in_chunk).min(end.0 - vpn.0).max(1) as u32
    }

    /// How many pages directly before `vpn` are in such a state, at most the largest batch.
    fn pages_before(&self, space: SpaceId, vpn: Vpn, counts: impl Fn(State) -> bool) -> u32 {
        let mut found = 0;
        while found < self.config.fill_max && vpn.0 > u64::from(found) {
            let before = Vpn(vpn.0 - 1 - u64::from(found));
            match self.pages.lookup(space, before) {
                Some(id) if counts(self.pages[id].state) => found += 1,
                _ => break,
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stores_to_what_it_reads_gets_frames_at_once_but_for_tries() {
        let mut zeroes = Zeroes::default();
        for _ in 0..SAID_MIN {
            assert!(zeroes.pays(), "too few to tell");
            zeroes.note_shown(1);
            zeroes.note_stored();
        }
        let tried = (0..100).filter(|_| zeroes.pays()).count();
        assert_eq!(tried, 25);
        zeroes.note_shown(SAID_MIN + 1);
        assert!((0..10).all(|_| zeroes.pays()), "most were only read");
    }

    #[test]
    fn the_past_is_forgotten() {
        let mut zeroes = Zeroes::default();
        for _ in 0..100_000 {
            zeroes.note_shown(1);
            zeroes.note_stored();
        }
        zeroes.note_shown(SAID_MAX);
        assert!((0..10).all(|_| zeroes.pays()));
    }
}
