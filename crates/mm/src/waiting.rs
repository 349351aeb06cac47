//! The faults that wait for a frame, oldest first.
//!
//! A page that waits has no frame, so it is on no list and its link `next` is idle: it holds the
//! page's ticket here. So a fault is taken back (its page was unmapped, or moved) without a search,
//! however many wait; the hole that it leaves is passed over later. How many wait in a chunk is
//! counted there, so that the chunk stays.

use alloc::collections::VecDeque;

use crate::page::{NONE, PageTable, flag};
use crate::types::PageId;

/// Holes that are not worth closing up.
const HOLES_FEW: usize = 64;

/// The queue.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Page numbers, [`NONE`] where a fault was taken back; the first is never a hole.
    queue: VecDeque<u32>,
    /// The ticket of the first.
    ticket: u32,
    len: u32,
}

impl Waiting {
    /// Faults that wait.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Does none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The one that has waited longest.
    pub fn front(&self) -> Option<PageId> {
        self.queue.front().map(|&id| PageId(id))
    }

    /// A fault joins.
    pub fn push(&mut self, pages: &mut PageTable, id: PageId) {
        assert!(!pages[id].has(flag::QUEUED), "a page waits once");
        pages[id].set(flag::QUEUED);
        pages[id].next = self.ticket.wrapping_add(self.queue.len() as u32);
        pages.chunk_mut(id).queued += 1;
        self.queue.push_back(id.0);
        self.len += 1;
    }

    /// The one that has waited longest leaves.
    pub fn pop(&mut self, pages: &mut PageTable) -> Option<PageId> {
        let id = self.front()?;
        self.remove(pages, id);
        Some(id)
    }

    /// A fault leaves, wherever it stands.
    pub fn remove(&mut self, pages: &mut PageTable, id: PageId) {
        assert!(pages[id].take(flag::QUEUED), "only queued pages wait");
        let ticket = core::mem::replace(&mut pages[id].next, NONE);
        let place = &mut self.queue[ticket.wrapping_sub(self.ticket) as usize];
        assert_eq!(*place, id.0, "a page has the ticket of its place");
        *place = NONE;
        self.len -= 1;
        pages.dequeued(id);
        while self.queue.front() == Some(&NONE) {
            self.queue.pop_front();
            self.ticket = self.ticket.wrapping_add(1);
        }
        if self.queue.len() > 2 * self.len as usize + HOLES_FEW {
            self.close_up(pages);
        }
    }

    /// Does the page stand where its ticket says?
    pub fn has(&self, pages: &PageTable, id: PageId) -> bool {
        let place = pages[id].next.wrapping_sub(self.ticket) as usize;
        self.queue.get(place) == Some(&id.0)
    }

    /// Removes the holes: as many steps as pages left since it was last done, and those that wait.
    fn close_up(&mut self, pages: &mut PageTable) {
        self.queue.retain(|&id| id != NONE);
        for (place, &id) in self.queue.iter().enumerate() {
            pages[PageId(id)].next = self.ticket.wrapping_add(place as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{SpaceId, Vpn};

    #[test]
    fn it_agrees_with_a_vector() {
        let mut pages = PageTable::default();
        let first = pages.lookup_or_create(SpaceId(0), Vpn(0));
        let mut waiting = Waiting { ticket: u32::MAX - 500, ..Waiting::default() };
        let mut model: Vec<PageId> = Vec::new();
        let mut seed = 9u32;
        for round in 0..20_000u32 {
            seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
            let id = PageId(first.0 + (seed >> 8) % 400);
            match model.iter().position(|&page| page == id) {
                // The first one stands for long stretches, as when nothing can be freed: holes
                // gather behind it.
                Some(0) if round % 2000 != 0 => {}
                Some(place) => {
                    model.remove(place);
                    waiting.remove(&mut pages, id);
                }
                None => {
                    model.push(id);
                    waiting.push(&mut pages, id);
                }
            }
            assert_eq!(waiting.front(), model.first().copied());
            assert_eq!(waiting.len() as usize, model.len());
            assert_eq!(pages.chunk(first).queued as usize, model.len());
            assert!(model.iter().all(|&id| waiting.has(&pages, id)));
            assert!(waiting.queue.len() <= 2 * model.len() + HOLES_FEW, "holes are bounded");
        }
        while let Some(id) = waiting.pop(&mut pages) {
            assert_eq!(id, model.remove(0));
        }
        assert!(model.is_empty());
    }
}
