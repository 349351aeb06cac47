//! What fills room: pages of files that were read as there was room, and that nobody asked for.
//!
//! They wait out of view, in a list of their own, so that a touch tells that one is needed. Who has any
//! other use for a frame has it at once: they leave before all else, and it costs nothing, as nobody sees
//! them and the file has them. They are none of the pages that a policy weighs: that they leave is no
//! eviction, and that they are read again is no return.
//!
//! *The story:* they came into view as they arrived, and counted as needed. A program that looked up 3000
//! records "never needed more than 25.9 MiB"; in the same budget, filled, "287.0 MiB would avoid that".

use crate::event::Actions;
use crate::list::ListId;
use crate::mm::{Mm, NOBODY};
use crate::page::{State, flag};
use crate::readahead::SwapIn;
use crate::stats::Ahead;
use crate::types::{CHUNK_PAGES, PageId};

/// Who goes through what fills room: the page that would be the next, and how many came the last time.
#[derive(Debug)]
pub(crate) struct Follower {
    next: PageId,
    run: u32,
}

impl Default for Follower {
    fn default() -> Self {
        Follower { next: NOBODY, run: 1 }
    }
}

impl<P: SwapIn> Mm<P> {
    /// Does the page, which is being read or in the swap cache, only fill room?
    pub(crate) fn is_filler(&self, id: PageId) -> bool {
        let page = &self.pages[id];
        page.has(flag::READ_AHEAD) && page.has(flag::FILLER) && self.pages.is_unseen(id)
    }

    /// Room is made for so many pages that are to be read, as far as it is filled with what nobody needs.
    pub(crate) fn yield_filler(&mut self, frames: u32, out: &mut Actions) {
        while self.spare_frames() < frames && self.drop_filler(out) {}
    }

    /// Is there room enough again, as what nobody needs has left? For `demand` faults, and what is kept free.
    pub(crate) fn filler_suffices(&mut self, demand: u32, out: &mut Actions) -> bool {
        if self.lists.len(ListId::Filler) == 0 {
            return false;
        }
        let goal = self.high().max(demand);
        while self.lacking(goal) > 0 && self.drop_filler(out) {}
        self.lacking(goal) == 0 && self.postponed.is_none()
    }

    /// A page was touched that only filled room, and comes into view. Where it is the next one after those
    /// that came in that way, its reader goes on: twice as many come at once.
    ///
    /// *The story* (by measurement): a reader that goes through what fills room has a fault a page, 1.3 GB/s.
    pub(crate) fn follow_filler(&mut self, touched: PageId, out: &mut Actions) {
        let Follower { next, run } = self.follower_of_filler;
        let run = if touched == next { (2 * run).min(self.config.unit) } else { 1 };
        let chunk_end = (touched.0 / CHUNK_PAGES as u32 + 1) * CHUNK_PAGES as u32;
        let mut next = touched.0 + 1;
        while next < chunk_end.min(touched.0 + run) && self.pages[PageId(next)].list == ListId::Filler as u8 {
            let id = PageId(next);
            self.pages[id].clear(flag::FILLER);
            let list = self.foreseen(id);
            self.count_eager(id);
            self.map(id, list, out);
            next += 1;
        }
        self.follower_of_filler = Follower { next: PageId(next), run };
    }

    /// The oldest page that only fills room leaves. False: there is none.
    pub(crate) fn drop_filler(&mut self, out: &mut Actions) -> bool {
        let Some(id) = self.lists.tail(ListId::Filler) else { return false };
        assert!(
            self.is_filler(id) && self.is_in_file(id) && !self.pages[id].has(flag::DIRTY),
            "nobody has seen it, and its file has it"
        );
        self.lists.remove(&mut self.pages, id);
        self.pages.set_state(id, State::Swapped);
        self.held -= 1;
        self.pages[id].prev = self.never_left();
        self.pages[id].clear(flag::READ_AHEAD | flag::FILLER);
        self.note_ahead(id, Ahead::Unused);
        out.push_free(id);
        true
    }
}
