//! File read-ahead on demand: which pages of a file to read beside those that a reader wants.
//!
//! A policy is asked at the moments of the specification's 4.3: a page that a read wants is missing
//! ([`FileRead::missing`]), a page that it finds is marked ([`FileRead::marked`]), and the same two
//! for a mapping ([`FileRead::fault_missing`], [`FileRead::fault_cached`]). Only the rules of 2.6.20
//! want to see every read ([`FileRead::watches`]). It answers with [`Extent`]s and keeps its state
//! in itself (system wide) and in [`FileRead::File`] (one an open file).
//!
//! A policy never does I/O and holds no pages: what is cached it learns from a [`PageCache`]. The
//! caller skips what is cached, puts the mark only on a page that is newly read, and reads the
//! wanted page alone where no extent holds it.
//!
//! All numbers are pages of the file; byte positions say so.

pub mod adaptive;
pub mod mapped;
pub mod modern;
pub mod ondemand;
pub mod policy;
pub mod v2_6_20;
pub mod window;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod testing;

use crate::types::{Nanos, PAGE_SIZE};

/// What a reader wants when a policy is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Virtual time; 0 where the caller has none.
    pub now: Nanos,
    /// The page that is wanted.
    pub page: u64,
    /// Pages still wanted by this call from `page` on, that one included.
    pub pages: u64,
    /// Pages in the file: nothing beyond is read.
    pub file_pages: u64,
    /// Pages in the folio that was found marked; 1 where pages are single.
    pub folio_pages: u64,
    /// Frames that nobody needs, of which the file may have pages that nobody asked for; 0 where the
    /// caller has none, or does not tell.
    pub room: u64,
}

impl Ask {
    /// A request without a clock, without large folios and without room.
    #[must_use]
    pub fn new(page: u64, pages: u64, file_pages: u64) -> Ask {
        assert!(pages > 0, "nobody asks for nothing");
        Ask { now: 0, page, pages, file_pages, folio_pages: 1, room: 0 }
    }
}

/// Which rule an [`Extent`] comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A reader's first window at the file's start, or for a request larger than any window.
    Initial,
    /// A first window, since the request follows the one before.
    Sequential,
    /// The window was pushed forward.
    Next,
    /// A marked page without a window that belongs to it.
    Marked,
    /// The run of cached pages before the request gave it away.
    Context,
    /// What was asked for and nothing else.
    Random,
    /// Around a fault of a mapping, or what was asked for where there is room.
    Around,
    /// Somebody said so (WILLNEED, RANDOM).
    Forced,
    /// The window that a reader descends into.
    Backward,
    /// A piece at a fixed distance from the one before.
    Strided,
}

/// Pages to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first.
    pub start: u64,
    /// How many.
    pub pages: u64,
    /// The page whose touch asks for more.
    pub marker: Option<u64>,
    /// Why.
    pub cause: Cause,
}

impl Extent {
    /// One past the last page.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.pages
    }

    /// Is the page among them?
    #[must_use]
    pub fn holds(&self, page: u64) -> bool {
        (self.start..self.end()).contains(&page)
    }
}

/// Most extents of one answer: the pieces of a strided window.
pub const EXTENTS_MAX: usize = 16;

/// A policy's answer, in the order in which the pages are to be read.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    extents: [Extent; EXTENTS_MAX],
    count: usize,
    file_pages: u64,
    passed: Option<Passed>,
}

/// Pages that a reader has left behind: the one nearest to it, and how many from there away from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    /// The nearest; it may lie before the file's start, or behind its end.
    pub nearest: i64,
    /// How many.
    pub pages: u64,
    /// They lie above it: the reader descends.
    pub above: bool,
}

impl Passed {
    /// The nearest page in a file that lies at `start .. end`. Behind its start is its end, and the
    /// other way: whoever goes round was there last.
    ///
    /// # Panics
    /// An empty file has no nearest page.
    #[must_use]
    pub fn nearest_in(&self, start: u64, end: u64) -> u64 {
        assert!(start < end, "an empty file has no pages to pass");
        let from_start = i128::from(self.nearest) - i128::from(start);
        start + from_start.rem_euclid(i128::from(end - start)) as u64
    }
}

impl Reads {
    /// An empty answer for a file of so many pages.
    #[must_use]
    pub fn new(file_pages: u64) -> Reads {
        let nothing = Extent { start: 0, pages: 0, marker: None, cause: Cause::Random };
        Reads { extents: [nothing; EXTENTS_MAX], count: 0, file_pages, passed: None }
    }

    /// Adds an extent, as far as the file reaches.
    pub fn push(&mut self, mut extent: Extent) {
        if extent.start >= self.file_pages || extent.pages == 0 {
            return;
        }
        assert!(self.count < EXTENTS_MAX, "an answer has at most {EXTENTS_MAX} extents");
        extent.pages = extent.pages.min(self.file_pages - extent.start);
        extent.marker = extent.marker.filter(|&marker| extent.holds(marker));
        self.extents[self.count] = extent;
        self.count += 1;
    }

    /// Says what the reader has left behind.
    pub fn pass(&mut self, passed: Passed) {
        self.passed = (passed.pages > 0).then_some(passed);
    }

    /// What the reader has left behind, where a policy tells.
    #[must_use]
    pub fn passed(&self) -> Option<Passed> {
        self.passed
    }

    /// What to read.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.extents[..self.count]
    }
}

/// What the caller has of the file in RAM, or on its way in.
pub trait PageCache {
    /// Is the page there?
    fn holds(&self, page: u64) -> bool;

    /// Pages that could still be had: free ones and inactive pages of files.
    fn available(&self) -> u64 {
        u64::MAX
    }

    /// The first page from `page` on, `max` of them looked at, that is missing.
    fn next_missing(&self, page: u64, max: u64) -> Option<u64> {
        (page..page.saturating_add(max)).find(|&page| !self.holds(page))
    }

    /// Pages right before `page` that are there, `max` at most.
    fn run_before(&self, page: u64, max: u64) -> u64 {
        (1..=max.min(page)).find(|&back| !self.holds(page - back)).map_or(max.min(page), |n| n - 1)
    }
}

/// What a program says about an open file (posix_fadvise, readahead, madvise).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Nothing special.
    Normal,
    /// In no order.
    Random,
    /// In order, once.
    Sequential,
    /// Some pages are wanted soon.
    WillNeed {
        /// The first, of 4096 bytes each.
        page: u64,
        /// How many.
        pages: u64,
    },
}

/// A fault of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The page; `pages` is 1.
    pub ask: Ask,
    /// MADV_RANDOM or MADV_SEQUENTIAL of the mapping.
    pub advice: MapAdvice,
    /// The page is marked. Always false in [`FileRead::fault_missing`].
    pub marked: bool,
    /// The page is just being read. Always false in [`FileRead::fault_missing`].
    pub arriving: bool,
}

/// Advice of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MapAdvice {
    /// None.
    #[default]
    Normal,
    /// MADV_RANDOM.
    Random,
    /// MADV_SEQUENTIAL.
    Sequential,
}

/// What the file's device allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `read_ahead_kb` in pages; copied into each file that is opened.
    pub ra_pages: u64,
    /// The largest request of the device in pages (4.10 and later).
    pub io_pages: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { ra_pages: 32, io_pages: 32 }
    }
}

/// What is asked of a file read-ahead policy.
///
/// Contract: one [`FileRead::File`] for each open file, made by [`FileRead::open`] and given back to
/// [`FileRead::close`]. `missing` is called once for a wanted page that is not cached, and again
/// only if it is still not cached when the reader comes back to it. `marked` is called when a
/// reader finds the mark, which the caller has cleared. No call allocates, but to
/// remember more of a file than ever before.
pub trait FileRead {
    /// What the policy keeps for an open file.
    type File;

    /// A file is opened.
    fn open(&mut self) -> Self::File;

    /// A file is closed.
    fn close(&mut self, _file: &mut Self::File) {}

    /// Does the policy see every read, by [`FileRead::watch`]?
    fn watches(&self) -> bool {
        false
    }

    /// A read comes to `ask.page`: asked at its first page and at each page that the last answer named.
    fn watch(&mut self, _: &mut Self::File, _: &Ask, _: &dyn PageCache, _: &mut Reads) -> u64 {
        u64::MAX
    }

    /// A page that a read wants is missing.
    fn missing(&mut self, file: &mut Self::File, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads);

    /// A read found a mark.
    fn marked(&mut self, file: &mut Self::File, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads);

    /// A read call is over; its last byte was right before byte `end`.
    fn finished(&mut self, file: &mut Self::File, end: u64);

    /// The program said something.
    fn advise(&mut self, file: &mut Self::File, advice: Advice, cache: &dyn PageCache, reads: &mut Reads);

    /// A mapping's page is missing.
    fn fault_missing(
        &mut self,
        file: &mut Self::File,
        fault: &Fault,
        cache: &dyn PageCache,
        reads: &mut Reads,
    );

    /// A mapping's page was found.
    fn fault_cached(
        &mut self,
        file: &mut Self::File,
        fault: &Fault,
        cache: &dyn PageCache,
        reads: &mut Reads,
    );

    /// A page that was read ahead for this file went before anybody used it.
    fn unused(&mut self, _file: &mut Self::File, _page: u64) {}
}

/// What the kernel keeps for an open file, in every version from 2.6.23 on (specification 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// First page of the last window.
    pub start: u64,
    /// Its pages.
    pub size: u64,
    /// Its last pages, those that are ahead of the reader; the mark is on the first of them.
    pub ahead: u64,
    /// The limit of this file.
    pub limit: u64,
    /// FADV_RANDOM is in force.
    pub random: bool,
    /// Misses of mappings less their hits.
    pub mmap_miss: u32,
    /// One past the last byte that was read, if any was.
    pub read_end: Option<u64>,
    /// log2 of the folios of the last window (6.16 and later).
    pub order: u32,
}

impl Window {
    /// Of a file just opened.
    #[must_use]
    pub fn new(limits: Limits) -> Window {
        Window {
            start: 0,
            size: 0,
            ahead: 0,
            limit: limits.ra_pages,
            random: false,
            mmap_miss: 0,
            read_end: None,
            order: 0,
        }
    }

    /// One past the last page.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.size
    }

    /// The page that bears the mark.
    #[must_use]
    pub fn marker(&self) -> u64 {
        assert!(self.ahead <= self.size, "what is ahead is a part of the window");
        self.start + self.size - self.ahead
    }

    /// Does `page` follow the last read, where a position counts as the page of the last byte read?
    #[must_use]
    pub fn follows_last_page(&self, page: u64) -> bool {
        match self.read_end {
            None => page == 0,
            Some(end) => page.wrapping_sub(end.saturating_sub(1) / PAGE_SIZE) <= 1,
        }
    }

    /// The same where the position counts as the page after the last byte (6.x): of page-aligned
    /// reads the next page follows, and the one after that, too.
    #[must_use]
    pub fn follows_position(&self, page: u64) -> bool {
        self.read_end.is_some_and(|end| page.wrapping_sub(end / PAGE_SIZE) <= 1)
    }

    /// The window as an extent.
    #[must_use]
    pub fn extent(&self, cause: Cause) -> Extent {
        let marker = (self.ahead > 0).then(|| self.marker());
        Extent { start: self.start, pages: self.size, marker, cause }
    }

    /// Takes a mode from the program's advice.
    pub fn set_mode(&mut self, advice: Advice, limits: Limits) {
        match advice {
            Advice::Normal => (self.limit, self.random) = (limits.ra_pages, false),
            Advice::Random => self.random = true,
            Advice::Sequential => (self.limit, self.random) = (2 * limits.ra_pages, false),
            Advice::WillNeed { .. } => {}
        }
    }
}
