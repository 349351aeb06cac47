//! Pages by number, and the lists they are on: four for each domain that reclaim scans, and one
//! that it does not.
//!
//! Owns the links, twelve bytes a page with all else that is known of it, and the lengths. A page
//! is on one list at most. Decides nothing. All memory is taken when it is made.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// A page that has a frame, as an index. Numbers are used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PageNumber(pub u32);

/// A budget domain: a program, a kind of memory, a cgroup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct DomainId(pub u8);

/// What backs a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Swap: anonymous and shared memory.
    Anon,
    /// A file.
    File,
}

/// Both kinds, in the order in which they are scanned.
pub const KINDS: [Kind; 2] = [Kind::Anon, Kind::File];

/// The lists of a domain; the first four in the order in which they are scanned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum List {
    /// Anonymous pages on probation.
    InactiveAnon,
    /// Anonymous pages in use.
    ActiveAnon,
    /// File pages on probation.
    InactiveFile,
    /// File pages in use.
    ActiveFile,
    /// Locked in memory.
    Unevictable,
}

/// The lists that are scanned.
pub const SCANNED: [List; 4] = [List::InactiveAnon, List::ActiveAnon, List::InactiveFile, List::ActiveFile];

/// A value for each list that is scanned.
pub type PerList = [u64; 4];

const LISTS: usize = 5;
const NONE: u32 = u32::MAX;
const NO_LIST: u8 = u8::MAX;

impl List {
    /// The list of a kind on which its pages are on probation.
    #[must_use]
    pub const fn inactive(kind: Kind) -> List {
        match kind {
            Kind::Anon => List::InactiveAnon,
            Kind::File => List::InactiveFile,
        }
    }

    /// The list of a kind on which its pages are in use.
    #[must_use]
    pub const fn active(kind: Kind) -> List {
        match kind {
            Kind::Anon => List::ActiveAnon,
            Kind::File => List::ActiveFile,
        }
    }

    /// Is it one of pages in use?
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, List::ActiveAnon | List::ActiveFile)
    }

    /// The kind of the pages on a list that is scanned.
    #[must_use]
    pub const fn kind(self) -> Option<Kind> {
        match self {
            List::InactiveAnon | List::ActiveAnon => Some(Kind::Anon),
            List::InactiveFile | List::ActiveFile => Some(Kind::File),
            List::Unevictable => None,
        }
    }
}

/// Bits of a page.
pub mod flag {
    /// Backed by a file.
    pub const FILE: u16 = 1 << 0;
    /// The software's referenced bit.
    pub const REFERENCED: u16 = 1 << 1;
    /// A mapping's accessed bit, set by the hardware.
    pub const ACCESSED: u16 = 1 << 2;
    /// The accessed bit of another mapping of the same page.
    pub const ACCESSED_OTHER: u16 = 1 << 3;
    /// In somebody's view.
    pub const MAPPED: u16 = 1 << 4;
    /// Mapped executable.
    pub const EXECUTABLE: u16 = 1 << 5;
    /// Newer than what backs it.
    pub const DIRTY: u16 = 1 << 6;
    /// Being written.
    pub const WRITEBACK: u16 = 1 << 7;
    /// To be freed as soon as it is clean.
    pub const RECLAIM: u16 = 1 << 8;
    /// Has a slot on swap.
    pub const SLOT: u16 = 1 << 9;
    /// Was active once.
    pub const WORKINGSET: u16 = 1 << 10;
    /// Mapped by somebody who locked it.
    pub const LOCKED: u16 = 1 << 11;
}

#[derive(Clone, Copy)]
struct Page {
    prev: u32,
    next: u32,
    flags: u16,
    domain: u8,
    list: u8,
}

const _: () = assert!(size_of::<Page>() == 12);

#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
    len: u32,
}

const EMPTY: Ends = Ends { head: NONE, tail: NONE, len: 0 };

/// All pages and all lists.
pub struct Pages {
    pages: Box<[Page]>,
    /// The first number not in use; they are linked by `next`.
    vacant: u32,
    ends: Vec<[Ends; LISTS]>,
}

impl Pages {
    /// Room for `frames` pages in `domains` domains.
    #[must_use]
    pub fn new(frames: u32, domains: u8) -> Self {
        assert!(frames < NONE, "page numbers are 32 bits");
        let page = |next| Page { prev: NONE, next, flags: 0, domain: 0, list: NO_LIST };
        let mut pages: Box<[Page]> = (1..=frames).map(page).collect();
        if let Some(last) = pages.last_mut() {
            last.next = NONE;
        }
        let vacant = if frames == 0 { NONE } else { 0 };
        Pages { pages, vacant, ends: alloc::vec![[EMPTY; LISTS]; usize::from(domains)] }
    }

    /// A number for a page that just got its frame; it is on no list.
    pub fn add(&mut self, domain: DomainId, flags: u16) -> PageNumber {
        assert!(self.vacant != NONE, "there are no more pages than frames");
        let number = self.vacant;
        let page = &mut self.pages[number as usize];
        self.vacant = page.next;
        *page = Page { prev: NONE, next: NONE, flags, domain: domain.0, list: NO_LIST };
        PageNumber(number)
    }

    /// The page has no frame any more.
    pub fn forget(&mut self, id: PageNumber) {
        let page = &mut self.pages[id.0 as usize];
        assert_eq!(page.list, NO_LIST, "a page is taken off its list before it goes");
        page.next = self.vacant;
        self.vacant = id.0;
    }

    /// Is any of these flags set?
    #[inline]
    #[must_use]
    pub fn has(&self, id: PageNumber, flags: u16) -> bool {
        self.pages[id.0 as usize].flags & flags != 0
    }

    /// Sets flags.
    #[inline]
    pub fn set(&mut self, id: PageNumber, flags: u16) {
        self.pages[id.0 as usize].flags |= flags;
    }

    /// Clears flags and says whether any was set.
    #[inline]
    pub fn take(&mut self, id: PageNumber, flags: u16) -> bool {
        let was = self.has(id, flags);
        self.pages[id.0 as usize].flags &= !flags;
        was
    }

    /// What backs it.
    #[inline]
    #[must_use]
    pub fn kind(&self, id: PageNumber) -> Kind {
        if self.has(id, flag::FILE) { Kind::File } else { Kind::Anon }
    }

    /// Whose it is.
    #[inline]
    #[must_use]
    pub fn domain(&self, id: PageNumber) -> DomainId {
        DomainId(self.pages[id.0 as usize].domain)
    }

    /// Where it is.
    #[inline]
    #[must_use]
    pub fn list(&self, id: PageNumber) -> Option<List> {
        let all =
            [List::InactiveAnon, List::ActiveAnon, List::InactiveFile, List::ActiveFile, List::Unevictable];
        all.get(usize::from(self.pages[id.0 as usize].list)).copied()
    }

    /// Pages on a list.
    #[inline]
    #[must_use]
    pub fn len(&self, domain: DomainId, list: List) -> u32 {
        self.ends[usize::from(domain.0)][list as usize].len
    }

    /// The oldest page of a list.
    #[inline]
    #[must_use]
    pub fn tail(&self, domain: DomainId, list: List) -> Option<PageNumber> {
        some(self.ends[usize::from(domain.0)][list as usize].tail)
    }

    /// Puts a page, which must be on no list, at the head of one of its domain.
    pub fn push_head(&mut self, id: PageNumber, list: List) {
        let page = &mut self.pages[id.0 as usize];
        assert_eq!(page.list, NO_LIST, "a page is on at most one list");
        let ends = &mut self.ends[usize::from(page.domain)][list as usize];
        (page.list, page.prev, page.next) = (list as u8, NONE, ends.head);
        let after = core::mem::replace(&mut ends.head, id.0);
        ends.len += 1;
        match some(after) {
            Some(after) => self.pages[after.0 as usize].prev = id.0,
            None => ends.tail = id.0,
        }
    }

    /// Puts a page, which must be on no list, at the tail of one of its domain.
    pub fn push_tail(&mut self, id: PageNumber, list: List) {
        let page = &mut self.pages[id.0 as usize];
        assert_eq!(page.list, NO_LIST, "a page is on at most one list");
        let ends = &mut self.ends[usize::from(page.domain)][list as usize];
        (page.list, page.prev, page.next) = (list as u8, ends.tail, NONE);
        let before = core::mem::replace(&mut ends.tail, id.0);
        ends.len += 1;
        match some(before) {
            Some(before) => self.pages[before.0 as usize].next = id.0,
            None => ends.head = id.0,
        }
    }

    /// Takes a page off the list that it is on.
    pub fn remove(&mut self, id: PageNumber) {
        let page = &mut self.pages[id.0 as usize];
        assert_ne!(page.list, NO_LIST, "the page is on a list");
        let ends = &mut self.ends[usize::from(page.domain)][usize::from(page.list)];
        let (prev, next) = (page.prev, page.next);
        (page.list, page.prev, page.next) = (NO_LIST, NONE, NONE);
        ends.len -= 1;
        match some(prev) {
            Some(before) => self.pages[before.0 as usize].next = next,
            None => ends.head = next,
        }
        match some(next) {
            Some(after) => self.pages[after.0 as usize].prev = prev,
            None => ends.tail = prev,
        }
    }

    /// Walks a list both ways and gives its length.
    ///
    /// # Panics
    /// When links, lengths and pages do not agree.
    #[must_use]
    pub fn check(&self, domain: DomainId, list: List) -> u32 {
        let ends = self.ends[usize::from(domain.0)][list as usize];
        let (mut at, mut before, mut count) = (ends.head, NONE, 0);
        while let Some(id) = some(at) {
            let page = &self.pages[id.0 as usize];
            assert_eq!((page.list, page.domain), (list as u8, domain.0), "{id:?} is where its list is");
            assert_eq!(page.prev, before, "{id:?} is linked both ways");
            (before, at, count) = (at, page.next, count + 1);
            assert!(count <= ends.len, "a list ends");
        }
        assert_eq!((ends.tail, ends.len), (before, count), "a list knows its end and its length");
        count
    }
}

fn some(link: u32) -> Option<PageNumber> {
    (link != NONE).then_some(PageNumber(link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_agree_with_vectors() {
        let mut pages = Pages::new(64, 2);
        let ids: Vec<PageNumber> =
            (0..64).map(|n| pages.add(DomainId(n % 2), if n % 3 == 0 { flag::FILE } else { 0 })).collect();
        let mut model: Vec<Vec<Vec<PageNumber>>> = vec![vec![Vec::new(); 4]; 2];
        let mut seed = 7u32;
        for _ in 0..5000 {
            seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
            let id = ids[(seed >> 8) as usize % 64];
            let domain = pages.domain(id);
            let lists = &mut model[usize::from(domain.0)];
            if pages.list(id).is_some() {
                pages.remove(id);
                lists.iter_mut().for_each(|list| list.retain(|&page| page != id));
                continue;
            }
            let list = SCANNED[(seed >> 20) as usize % 4];
            if seed & 1 << 30 != 0 {
                pages.push_head(id, list);
                lists[list as usize].insert(0, id);
            } else {
                pages.push_tail(id, list);
                lists[list as usize].push(id);
            }
            for domain in [DomainId(0), DomainId(1)] {
                for list in SCANNED {
                    let model = &model[usize::from(domain.0)][list as usize];
                    assert_eq!(pages.check(domain, list) as usize, model.len());
                    assert_eq!(pages.tail(domain, list), model.last().copied());
                }
            }
        }
    }

    #[test]
    fn numbers_are_used_again() {
        let mut pages = Pages::new(2, 1);
        let (first, second) = (pages.add(DomainId(0), 0), pages.add(DomainId(0), flag::FILE));
        assert_eq!((pages.kind(first), pages.kind(second)), (Kind::Anon, Kind::File));
        pages.forget(first);
        assert_eq!(pages.add(DomainId(0), 0), first);
    }
}
