//! Index-linked lists of pages: the LRU lists and the swap cache. A page is on at most one of them.
//!
//! Links live in the page entries, so a list is twelve bytes, nothing is allocated and the order is
//! deterministic.

use crate::page::{NO_LIST, NONE, PageTable};
use crate::types::PageId;

/// The lists, by index into [`Lists`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ListId {
    /// Mapped pages on probation; reclaim takes from its tail.
    Inactive,
    /// Mapped pages that proved to be in use.
    Active,
    /// Pages out of the program's view, newest at the head.
    Cache,
    /// Pages out of the program's view that are tested: whoever is touched there is in use.
    Tested,
    /// Pages of files that were read as there was room, and that nobody has touched: the first to leave.
    Filler,
}

/// Number of lists.
pub(crate) const LISTS: usize = 5;

impl ListId {
    /// Every list.
    pub const ALL: [ListId; LISTS] =
        [ListId::Inactive, ListId::Active, ListId::Cache, ListId::Tested, ListId::Filler];
}

#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
    len: u32,
}

/// All lists of one `mm`.
pub(crate) struct Lists([Ends; LISTS]);

impl Default for Lists {
    fn default() -> Self {
        Lists([Ends { head: NONE, tail: NONE, len: 0 }; LISTS])
    }
}

impl Lists {
    /// Pages on the list.
    pub fn len(&self, list: ListId) -> u32 {
        self.0[list as usize].len
    }

    /// The oldest page.
    pub fn tail(&self, list: ListId) -> Option<PageId> {
        some(self.0[list as usize].tail)
    }

    /// The newest page.
    #[cfg(test)]
    pub fn head(&self, list: ListId) -> Option<PageId> {
        some(self.0[list as usize].head)
    }

    /// The page after `id`, towards the tail.
    #[cfg(test)]
    pub fn next(&self, pages: &PageTable, id: PageId) -> Option<PageId> {
        some(pages[id].next)
    }

    /// Puts a page, which must be on no list, at the head.
    pub fn push_head(&mut self, pages: &mut PageTable, list: ListId, id: PageId) {
        self.link(pages, list as u8, NONE, id, self.0[list as usize].head);
    }

    /// Puts a page, which must be on no list, at the tail.
    pub fn push_tail(&mut self, pages: &mut PageTable, list: ListId, id: PageId) {
        self.link(pages, list as u8, self.0[list as usize].tail, id, NONE);
    }

    /// Puts a page, which must be on no list, directly before `next`: as if it had come there just after it.
    pub fn insert_before(&mut self, pages: &mut PageTable, next: PageId, id: PageId) {
        let (list, prev) = (pages[next].list, pages[next].prev);
        assert_ne!(list, NO_LIST, "the neighbour is on a list");
        self.link(pages, list, prev, id, next.0);
    }

    /// Puts a page between two neighbours of a list.
    fn link(&mut self, pages: &mut PageTable, list: u8, prev: u32, id: PageId, next: u32) {
        let page = &mut pages[id];
        assert_eq!(page.list, NO_LIST, "a page is on at most one list");
        (page.list, page.prev, page.next) = (list, prev, next);
        let ends = &mut self.0[list as usize];
        match some(prev) {
            Some(before) => pages[before].next = id.0,
            None => ends.head = id.0,
        }
        match some(next) {
            Some(after) => pages[after].prev = id.0,
            None => ends.tail = id.0,
        }
        ends.len += 1;
    }

    /// Takes a page off whichever list it is on; does nothing when it is on none.
    pub fn remove(&mut self, pages: &mut PageTable, id: PageId) {
        let page = &mut pages[id];
        if page.list == NO_LIST {
            return;
        }
        let ends = &mut self.0[page.list as usize];
        let (prev, next) = (page.prev, page.next);
        (page.list, page.prev, page.next) = (NO_LIST, NONE, NONE);
        match some(prev) {
            Some(before) => pages[before].next = next,
            None => ends.head = next,
        }
        match some(next) {
            Some(after) => pages[after].prev = prev,
            None => ends.tail = prev,
        }
        ends.len -= 1;
    }
}

fn some(link: u32) -> Option<PageId> {
    (link != NONE).then_some(PageId(link))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{SpaceId, Vpn};

    #[test]
    fn lists_agree_with_vectors() {
        let mut pages = PageTable::default();
        let first = pages.lookup_or_create(SpaceId(0), Vpn(0));
        let mut lists = Lists::default();
        let mut model: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
        let kinds = [ListId::Inactive, ListId::Active];
        let mut seed = 9u32;
        for _ in 0..5000 {
            seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
            let id = PageId(first.0 + (seed >> 8) % 64);
            let which = (seed >> 20) as usize % 2;
            let was_on = model.iter_mut().any(|list| {
                let before = list.len();
                list.retain(|&page| page != id.0);
                list.len() != before
            });
            lists.remove(&mut pages, id);
            if !was_on || seed & 1 << 24 != 0 {
                match model[which].get((seed >> 14) as usize % 64) {
                    Some(&next) if seed & 1 << 25 != 0 => {
                        lists.insert_before(&mut pages, PageId(next), id);
                        let place = model[which].iter().position(|&page| page == next).unwrap();
                        model[which].insert(place, id.0);
                    }
                    _ => {
                        lists.push_head(&mut pages, kinds[which], id);
                        model[which].insert(0, id.0);
                    }
                }
            }
            for (list, model) in kinds.iter().zip(&model) {
                assert_eq!(lists.len(*list) as usize, model.len());
                assert_eq!(lists.tail(*list).map(|id| id.0), model.last().copied());
                let mut walk = Vec::new();
                let mut at = lists.head(*list);
                while let Some(id) = at {
                    walk.push(id.0);
                    at = lists.next(&pages, id);
                }
                assert_eq!(&walk, model);
            }
        }
    }
}
