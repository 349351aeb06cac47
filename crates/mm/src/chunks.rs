//! Whole chunks of files: 2 MiB that are read by one request, come into view at once and leave at once.
//!
//! Nothing is known here of huge pages. But the shell can have the frames of a chunk be one of those,
//! and what is done to all of it is cheap then: a read, a mapping, an unmapping. So a chunk of a file
//! that is read as a whole stays one. The page that bears a window's mark must be out of view; the
//! rest of its chunk waits with it, and comes along when one of them is touched. And of what a reader
//! has passed a chunk that has begun to leave leaves.
//!
//! The pages that wait are `Cached` and still `EAGER`.

use crate::event::{Action, Actions, Run};
use crate::list::ListId;
use crate::mm::Mm;
use crate::page::{State, flag};
use crate::readahead::SwapIn;
use crate::types::{CHUNK_PAGES, PageId};

/// One chunk more that leaves is much where the budget is smaller than so many.
const CHUNKS_MIN: u32 = 64;

impl<P: SwapIn> Mm<P> {
    /// Does what has just been read wait for the mark of a window, which is one of its pages?
    pub(crate) fn waits_for_mark(&self, run: Run) -> bool {
        if u64::from(run.count) != CHUNK_PAGES || self.pause.is_some() || self.config.probe.is_kernel() {
            return false;
        }
        let mut marks = 0;
        run.pages().all(|id| {
            let page = &self.pages[id];
            let is_mark = page.has(flag::MARKER);
            marks += u32::from(is_mark);
            is_mark != page.has(flag::EAGER) && !page.has(flag::WANTED | flag::DISCARDED)
        }) && marks == 1
    }

    /// Does the page, of the swap cache, wait with others of its chunk, or do they for it?
    pub(crate) fn is_of_waiting_chunk(&self, id: PageId) -> bool {
        let neighbour = if u64::from(id.0).is_multiple_of(CHUNK_PAGES) { id.0 + 1 } else { id.0 - 1 };
        self.waits(id) || self.pages[id].has(flag::MARKER) && self.waits(PageId(neighbour))
    }

    fn waits(&self, id: PageId) -> bool {
        self.pages[id].state == State::Cached && self.pages[id].has(flag::EAGER)
    }

    /// Puts a page into view that was touched, and what waits with it of its chunk, in ascending order.
    pub(crate) fn map_chunk(&mut self, touched: PageId, list: ListId, out: &mut Actions) {
        let pages = CHUNK_PAGES as u32;
        let first = touched.0 / pages * pages;
        for id in (first..first + pages).map(PageId) {
            if id == touched {
                self.map(id, list, out);
            } else if self.waits(id) {
                let list = self.foreseen(id);
                self.count_eager(id);
                self.map(id, list, out);
            }
        }
    }

    /// Takes the oldest of what readers have passed out of view: some of it, or its chunk. False where
    /// there is none.
    pub(crate) fn unmap_passed(&mut self, looks: &mut u32, out: &mut Actions) -> bool {
        let begun = self.unmap_unit(looks, out);
        if u64::from(self.config.budget) >= u64::from(CHUNKS_MIN) * CHUNK_PAGES {
            while *looks > 0 && self.is_chunk_leaving(out) && self.unmap_unit(looks, out) {}
        }
        begun
    }

    /// Is the next page to leave the one behind what was just ordered out, of the same chunk?
    fn is_chunk_leaving(&self, out: &Actions) -> bool {
        let Some(Action::Unmap { run }) = out.as_slice().last() else { return false };
        let next = PageId(run.first.0 + run.count);
        !u64::from(next.0).is_multiple_of(CHUNK_PAGES)
            && self.has_passed()
            && self.lists.is_tail(ListId::Inactive, next)
    }
}
