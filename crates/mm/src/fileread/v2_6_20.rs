//! The rules that read-ahead on demand replaced: 2.6.20 (specification 4.9).
//!
//! It wants to see every read. A current window, in which the reader is, and an ahead window, which
//! is fetched meanwhile; new windows are only ever placed after the ahead window. Unfit for: slow
//! streams beside each other. Pages that were evicted before use are read again one by one, while
//! the next windows are fetched and evicted in their turn.

use super::window::{init, next};
use super::{
    Advice, Ask, Cause, Extent, Fault, FileRead, Limits, MapAdvice, PageCache, Reads, Window, mapped,
};

/// Windows shrink to no less (16 KiB).
const SIZE_MIN: u64 = 4;
/// What a miss takes off the next window.
const MISS_SHRINKS: u64 = 2;
/// So many pages in a row found cached: off, until one is missing.
const CACHED_MAX: u64 = 256;
/// "No page yet."
const NONE: u64 = u64::MAX;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct TwoWindows {
    /// Of the device.
    pub limits: Limits,
}

/// What it keeps for an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File {
    start: u64,
    size: u64,
    ahead_start: u64,
    ahead_size: u64,
    /// Where the last ahead window ended, if it is there or not.
    ahead_end: u64,
    /// The last page that was accounted for.
    prev: u64,
    missed: bool,
    in_cache: bool,
    cached_pages: u64,
    /// Misses and hits of mappings: two counters, which never stop.
    mapped_misses: u64,
    mapped_hits: u64,
    /// For mappings: the limit.
    window: Window,
}

/// Two extents of an answer are kept free for these: current and ahead.
impl File {
    fn next_size(&mut self, max: u64) -> u64 {
        let size = if core::mem::take(&mut self.missed) {
            self.size.saturating_sub(MISS_SHRINKS).max(SIZE_MIN)
        } else {
            next(self.size, max)
        };
        size.min(max)
    }

    fn off(&mut self) {
        (self.start, self.size, self.ahead_start, self.ahead_size) = (0, 0, 0, 0);
        (self.missed, self.in_cache) = (false, false);
    }

    /// Reads what is missing of the extent; false where it is all cached, and has been for long.
    fn submit(&mut self, extent: Extent, cache: &dyn PageCache, reads: &mut Reads) -> bool {
        // Every page is looked up, as it was then.
        let end = extent.end().min(reads.file_pages);
        let missing = (extent.start..end).filter(|&page| !cache.holds(page)).count();
        if missing > 0 {
            self.cached_pages = 0;
            reads.push(extent);
            return true;
        }
        self.cached_pages += extent.pages;
        if self.cached_pages < CACHED_MAX {
            return true;
        }
        self.off();
        self.in_cache = true;
        false
    }

    fn make_ahead(&mut self, max: u64, cache: &dyn PageCache, reads: &mut Reads) -> bool {
        self.ahead_start = self.start + self.size;
        self.ahead_size = self.next_size(max);
        self.ahead_end = self.ahead_start + self.ahead_size;
        let extent =
            Extent { start: self.ahead_start, pages: self.ahead_size, marker: None, cause: Cause::Next };
        self.submit(extent, cache, reads)
    }

    /// The algorithm; gives the page at which it wants to be called again.
    fn advance(&mut self, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) -> u64 {
        let max = self.window.limit;
        let (mut page, mut req) = (ask.page, ask.pages);
        if page == self.prev {
            req -= 1;
            page += u64::from(req > 0);
        }
        let is_sequential = page == self.prev.wrapping_add(1);
        self.prev = page;
        let count = req.min(max);
        if count == 0 || self.in_cache {
            return self.prev + 1;
        }
        self.prev += count - 1;
        if is_sequential && self.size == 0 {
            (self.start, self.size) = (page, init(count, max));
            let extent = Extent { start: page, pages: self.size, marker: None, cause: Cause::Initial };
            if self.submit(extent, cache, reads) && req >= max {
                self.make_ahead(max, cache, reads);
            }
            return self.prev + 1;
        }
        if !is_sequential {
            self.off();
            let extent = Extent { start: page, pages: count, marker: None, cause: Cause::Random };
            self.submit(extent, cache, reads);
            return self.prev + 1;
        }
        if self.ahead_start == 0 && !self.make_ahead(max, cache, reads) {
            return self.accounted();
        }
        if self.prev < self.ahead_start {
            return self.prev + 1;
        }
        (self.start, self.size) = (self.ahead_start, self.ahead_size);
        self.make_ahead(max, cache, reads);
        self.accounted()
    }

    /// No page behind the ahead window is accounted for, even where that has failed.
    ///
    /// *The story:* where it had, all of the request was.
    fn accounted(&mut self) -> u64 {
        self.prev = self.prev.min(self.ahead_end - 1);
        self.prev + 1
    }
}

impl FileRead for TwoWindows {
    type File = File;

    fn open(&mut self) -> File {
        File {
            start: 0,
            size: 0,
            ahead_start: 0,
            ahead_size: 0,
            ahead_end: 0,
            prev: NONE,
            missed: false,
            in_cache: false,
            cached_pages: 0,
            mapped_misses: 0,
            mapped_hits: 0,
            window: Window::new(self.limits),
        }
    }

    fn watches(&self) -> bool {
        true
    }

    fn watch(&mut self, file: &mut File, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) -> u64 {
        if file.window.limit == 0 {
            return u64::MAX;
        }
        file.advance(ask, cache, reads)
    }

    /// The reader fetches the page alone.
    fn missing(&mut self, file: &mut File, _: &Ask, _: &dyn PageCache, _: &mut Reads) {
        (file.missed, file.in_cache, file.cached_pages) = (true, false, 0);
    }

    /// It leaves no marks.
    fn marked(&mut self, _: &mut File, _: &Ask, _: &dyn PageCache, _: &mut Reads) {}

    fn finished(&mut self, _: &mut File, _: u64) {}

    fn advise(&mut self, file: &mut File, advice: Advice, cache: &dyn PageCache, reads: &mut Reads) {
        file.window.set_mode(advice, self.limits);
        if core::mem::take(&mut file.window.random) {
            file.window.limit = 0;
        }
        mapped::will_need(advice, cache.available() / 2, reads);
    }

    fn fault_missing(&mut self, file: &mut File, fault: &Fault, cache: &dyn PageCache, reads: &mut Reads) {
        match mapped::by_advice(&file.window, fault) {
            Some(mapped::Next::Done) => {}
            Some(mapped::Next::AsRead) => _ = file.advance(&fault.ask, cache, reads),
            None => {
                file.mapped_misses += 1;
                if file.mapped_misses <= file.mapped_hits + u64::from(mapped::MISS_MAX) {
                    mapped::around(&mut file.window, fault, false, reads);
                }
            }
        }
    }

    fn fault_cached(&mut self, file: &mut File, fault: &Fault, _: &dyn PageCache, _: &mut Reads) {
        let counts = fault.advice != MapAdvice::Random && file.window.limit > 0;
        file.mapped_hits += u64::from(counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full;

    impl PageCache for Full {
        fn holds(&self, _: u64) -> bool {
            true
        }
    }

    /// Step 5 of the specification's 4.9: where the ahead window cannot be made, step 7 holds all the same.
    #[test]
    fn what_lies_behind_a_failed_ahead_window_is_not_accounted_for() {
        let mut policy = TwoWindows { limits: Limits { ra_pages: 256, io_pages: 256 } };
        let mut file = policy.open();
        let mut reads = Reads::new(1 << 20);
        let mut watch =
            |page, pages| policy.watch(&mut file, &Ask::new(page, pages, 1 << 20), &Full, &mut reads);
        // 200 pages are found cached, then a window of 32; the ahead window [1082, +64) is too much.
        for page in [4000, 3000, 2000, 1000] {
            watch(page, 50);
        }
        assert_eq!(watch(1050, 5), 1055);
        assert_eq!(watch(1055, 256), 1146);
        assert!(file.in_cache);
    }
}
