//! The invariants, checked whole: for the simulator after every step, and for tests.

use crate::list::ListId;
use crate::mm::{IoKind, Mm};
use crate::page::{NO_LIST, State, flag};
use crate::readahead::SwapIn;
use crate::types::{CHUNK_PAGES, PageId, Slot};

impl<P: SwapIn> Mm<P> {
    /// Walks everything and panics at the first thing that does not fit. Costs time in proportion
    /// to the pages.
    ///
    /// # Panics
    /// When an invariant is broken: a page on a list that does not suit its state, a frame not
    /// counted, a slot without owner, a transfer without page.
    pub fn check(&self) {
        self.stats.check();
        let mut seen = Seen::default();
        for index in 0..self.pages.chunk_count() {
            let (mut used, queued) = (0, seen.queued);
            let first = index as u32 * CHUNK_PAGES as u32;
            for id in (first..first + CHUNK_PAGES as u32).map(PageId) {
                used += u32::from(self.pages[id].state != State::Untouched);
                self.check_page(id, &mut seen);
            }
            let chunk = self.pages.chunk_at(index);
            assert_eq!(used, chunk.used, "a chunk counts its pages");
            seen.blank += chunk.blank_pages();
            assert_eq!(seen.queued - queued, u32::from(chunk.queued), "and those that wait");
        }
        assert_eq!(seen.held, self.held, "frames are counted");
        assert_eq!(seen.swapped, self.pages.swapped(), "pages without a frame are counted");
        assert_eq!(seen.blank, self.pages.blank(), "pages that left as zeroes are counted");
        assert_eq!((seen.unseen, seen.unseen_held), self.pages.unseen(), "pages never in view are counted");
        assert_eq!((seen.reading, seen.writing), (self.reading, self.writing), "transfers are counted");
        assert_eq!(seen.unmapping, self.unmapping, "unmaps are counted");
        assert_eq!(seen.leaving, self.leaving, "and what leaves with them");
        assert_eq!(seen.queued, self.waiting.len(), "waiting faults are queued once");
        for list in ListId::ALL {
            assert_eq!(seen.listed[list as usize], self.lists.len(list), "{list:?} counts its pages");
        }
        let io_pages =
            |kind| self.ios.iter().filter(|io| io.kind == kind).map(|io| io.run.count).sum::<u32>();
        let drained = io_pages(IoKind::Drain);
        assert_eq!(io_pages(IoKind::Read) + drained, self.reading, "every page being read has a request");
        assert_eq!(
            drained,
            self.areas.draining_all(),
            "and those are counted that are read for areas that leave"
        );
        assert_eq!(io_pages(IoKind::Write), self.writing, "every page being written has a request");
    }

    fn check_page(&self, id: PageId, seen: &mut Seen) {
        let page = &self.pages[id];
        let unmapping = page.has(flag::UNMAPPING);
        let list = match page.state {
            State::Mapped if !unmapping => {
                assert!(page.list == ListId::Inactive as u8 || page.list == ListId::Active as u8);
                Some(page.list)
            }
            State::Cached => {
                let in_order_of_use = self.config.probe.is_kernel() && page.list != NO_LIST;
                let is_filler = page.list == ListId::Filler as u8;
                let is_unviewed =
                    page.list == ListId::Cache as u8 || page.list == ListId::Tested as u8 || is_filler;
                assert!(!is_filler || self.is_filler(id), "what fills room is of a file, and nobody has it");
                assert!(is_unviewed || in_order_of_use, "a cached page is on a list");
                assert!(
                    page.has(flag::DIRTY) || page.slot().is_some(),
                    "a cached page is dirty or has a valid slot"
                );
                assert!(!page.has(flag::WANTED), "a cached page is mapped as soon as it is wanted");
                Some(page.list)
            }
            _ => {
                assert_eq!(page.list, NO_LIST, "{id:?} {:?} is on a list", page.state);
                None
            }
        };
        if let Some(list) = list {
            seen.listed[list as usize] += 1;
        }
        match page.state {
            State::Untouched | State::Zero => {
                assert_eq!(page.slot(), None, "a page without content has no slot");
            }
            State::Mapped => {
                seen.held += 1;
                seen.unmapping += u32::from(unmapping);
                let knows_stores = self.config.probe.tells_stores() || page.slot().is_some_and(Slot::is_file);
                assert!(knows_stores || page.has(flag::DIRTY), "what is stored unseen is taken for dirty");
                assert!(unmapping || !page.has(flag::LEAVING), "who leaves is on its way out of view");
                seen.leaving += u32::from(page.has(flag::LEAVING));
            }
            State::Cached => seen.held += 1,
            State::Writing => {
                seen.held += 1;
                seen.writing += 1;
                assert!(page.slot().is_some(), "a page is written to a slot");
            }
            State::Reading => {
                seen.held += 1;
                seen.reading += 1;
                assert!(page.slot().is_some(), "a page is read from a slot");
            }
            State::Swapped => {
                seen.swapped += 1;
                assert!(page.slot().is_some(), "a page on swap has a slot");
            }
        }
        let is_unseen = self.pages.is_unseen(id);
        let may_be_unseen = matches!(page.state, State::Swapped | State::Reading | State::Cached);
        assert!(!is_unseen || may_be_unseen && self.is_in_file(id), "what was in view was seen");
        seen.unseen += u32::from(is_unseen);
        seen.unseen_held += u32::from(is_unseen && page.state != State::Swapped);
        let may_be_blank = matches!(page.state, State::Untouched | State::Zero);
        assert!(may_be_blank || !self.pages.is_blank(id), "a page that has content has not left as zeroes");
        if let Some(slot) = page.area_slot() {
            assert_eq!(self.areas.owner(slot), Some(id), "a slot knows its page");
        }
        if page.has(flag::QUEUED) {
            seen.queued += 1;
            assert!(
                matches!(page.state, State::Untouched | State::Zero | State::Swapped),
                "a page with a frame does not wait"
            );
            assert!(self.waiting.has(&self.pages, id), "who waits is in the queue");
            let (space, vpn) = self.pages.place(id);
            assert_eq!(self.pages.lookup(space, vpn), Some(id), "who waits is not forgotten");
        }
        if page.has(flag::WANTED) && !page.has(flag::QUEUED) {
            let coming = matches!(page.state, State::Reading | State::Writing) || unmapping;
            assert!(coming, "a wanted page {id:?} is on its way");
        }
    }
}

#[derive(Default)]
struct Seen {
    held: u32,
    swapped: u32,
    blank: u32,
    unseen: u32,
    unseen_held: u32,
    reading: u32,
    writing: u32,
    unmapping: u32,
    leaving: u32,
    queued: u32,
    listed: [u32; crate::list::LISTS],
}
