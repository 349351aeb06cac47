//! Index-linked lists of pages: the LRU lists and the swap cache. A page is on at most one of them.
//!
//! Links live in the page entries, so a list is twelve bytes, nothing is allocated and the order is
//! deterministic.

use crate::page::{NO_LIST, NONE, PageTable};
use crate::part::{PARTS, Part};
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

/// All lists of one `mm`, the first two of them by part where memory is divided.
pub(crate) struct Lists {
    ends: [[Ends; PARTS]; LISTS],
    is_divided: bool,
}

impl Lists {
    /// Empty lists, of parts or not.
    pub fn new(is_divided: bool) -> Lists {
        Lists { ends: [[Ends { head: NONE, tail: NONE, len: 0 }; PARTS]; LISTS], is_divided }
    }

    /// Are there parts?
    pub fn is_divided(&self) -> bool {
        self.is_divided
    }

    /// The part that the page belongs to.
    pub fn part(&self, id: PageId) -> Part {
        if self.is_divided { Part::of(id) } else { Part::Rest }
    }

    /// `count` for one of the parts.
    pub fn part_of(&self, part: Part, count: u64) -> u64 {
        if self.is_divided { part.of_all(count) } else { count }
    }

    /// Where it is linked.
    fn place(&self, list: u8, id: PageId) -> (usize, usize) {
        let has_parts = list == ListId::Inactive as u8 || list == ListId::Active as u8;
        (usize::from(list), if has_parts { self.part(id) as usize } else { 0 })
    }

    /// Pages on the list.
    pub fn len(&self, list: ListId) -> u32 {
        let [rest, first, second] = &self.ends[list as usize];
        rest.len + first.len + second.len
    }

    /// ... of one part, of a list that has parts.
    pub fn part_len(&self, list: ListId, part: Part) -> u32 {
        self.ends[list as usize][part as usize].len
    }

    /// The oldest page, of the part that has most for its share: active pages, or frames.
    pub fn tail(&self, list: ListId) -> Option<PageId> {
        self.part_tail(list, self.fullest(list)?)
    }

    /// The part that has most for its share; `None`: the list is empty.
    pub fn fullest(&self, list: ListId) -> Option<Part> {
        if !self.is_divided {
            return (self.part_len(list, Part::Rest) > 0).then_some(Part::Rest);
        }
        let held = |part: Part| match list {
            ListId::Inactive => self.part_len(ListId::Inactive, part) + self.part_len(ListId::Active, part),
            _ => self.part_len(list, part),
        };
        let has_any = |part: &Part| self.part_len(list, *part) > 0;
        let for_its_share = |&part: &Part| held(part) * (Part::Rest.share() / part.share());
        Part::ALL.into_iter().filter(has_any).max_by_key(for_its_share)
    }

    /// The oldest page of one part.
    pub fn part_tail(&self, list: ListId, part: Part) -> Option<PageId> {
        some(self.ends[list as usize][part as usize].tail)
    }

    /// Is it the oldest page of its part?
    pub fn is_tail(&self, list: ListId, id: PageId) -> bool {
        self.part_tail(list, self.part(id)) == Some(id)
    }

    /// The newest page of one part.
    pub fn part_head(&self, list: ListId, part: Part) -> Option<PageId> {
        some(self.ends[list as usize][part as usize].head)
    }

    /// The page after `id`, towards the tail.
    #[cfg(test)]
    pub fn next(&self, pages: &PageTable, id: PageId) -> Option<PageId> {
        some(pages[id].next)
    }

    /// Puts a page, which must be on no list, at the head.
    pub fn push_head(&mut self, pages: &mut PageTable, list: ListId, id: PageId) {
        let (index, part) = self.place(list as u8, id);
        self.link(pages, list as u8, NONE, id, self.ends[index][part].head);
    }

    /// Puts a page, which must be on no list, at the tail.
    pub fn push_tail(&mut self, pages: &mut PageTable, list: ListId, id: PageId) {
        let (index, part) = self.place(list as u8, id);
        self.link(pages, list as u8, self.ends[index][part].tail, id, NONE);
    }

    /// Puts a page, which must be on no list, directly before `next`: as if it had come there just after it.
    pub fn insert_before(&mut self, pages: &mut PageTable, next: PageId, id: PageId) {
        let (list, prev) = (pages[next].list, pages[next].prev);
        assert_ne!(list, NO_LIST, "the neighbour is on a list");
        assert_eq!(self.part(next), self.part(id), "neighbours are of one part");
        self.link(pages, list, prev, id, next.0);
    }

    /// Puts a page between two neighbours of a list.
    fn link(&mut self, pages: &mut PageTable, list: u8, prev: u32, id: PageId, next: u32) {
        let page = &mut pages[id];
        assert_eq!(page.list, NO_LIST, "a page is on at most one list");
        (page.list, page.prev, page.next) = (list, prev, next);
        let (index, part) = self.place(list, id);
        let ends = &mut self.ends[index][part];
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
        let (index, part) = self.place(page.list, id);
        let ends = &mut self.ends[index][part];
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
        let mut lists = Lists::new(false);
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
                let mut at = lists.part_head(*list, Part::Rest);
                while let Some(id) = at {
                    walk.push(id.0);
                    at = lists.next(&pages, id);
                }
                assert_eq!(&walk, model);
            }
        }
    }

    /// Each part is a list of its own, and the one that has most for its share gives the next page.
    #[test]
    fn the_fullest_part_gives_the_next_page() {
        let mut pages = PageTable::default();
        let first = (0..64).map(|chunk| pages.lookup_or_create(SpaceId(0), Vpn(chunk * 512))).min().unwrap();
        let mut of = [const { Vec::new() }; PARTS];
        (0..64 * 512).map(|index| PageId(first.0 + index)).for_each(|id| of[Part::of(id) as usize].push(id));
        let [rest, small, other] = of;
        let mut lists = Lists::new(true);
        for &id in rest.iter().take(300).chain(&small[..11]).chain(&other[..10]) {
            lists.push_head(&mut pages, ListId::Inactive, id);
        }
        assert_eq!(lists.len(ListId::Inactive), 321);
        assert_eq!(lists.tail(ListId::Inactive), Some(small[0]), "eleven are more than a thirtieth of 300");
        lists.remove(&mut pages, small[0]);
        // What is active counts, too.
        lists.push_head(&mut pages, ListId::Active, rest[300]);
        assert_eq!(lists.tail(ListId::Inactive), Some(rest[0]));
        lists.push_head(&mut pages, ListId::Active, other[10]);
        assert_eq!(lists.tail(ListId::Inactive), Some(other[0]));
        assert_eq!(lists.tail(ListId::Active), Some(other[10]), "of the active ones that part has most");
        assert!(lists.is_tail(ListId::Inactive, small[1]) && !lists.is_tail(ListId::Inactive, small[2]));
    }
}
