//! Read-ahead on demand as rewritten in 6.11, up to 6.19 (specification 4.4).
//!
//! Missing and marked pages have tables of their own. A reader that overruns its window starts
//! again small, and one that takes every second page reads four at a time for ever. Windows end at
//! multiples of the folios that they are made of. Unfit for: what the older ones are unfit for.

use super::ondemand::{context, exactly, first_missing};
use super::window::{init, next};
use super::{Advice, Ask, Cause, Extent, Fault, FileRead, Limits, PageCache, Reads, Window, mapped};

/// Each window may be made of folios four times as large as the one before.
const ORDER_STEP: u32 = 2;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Modern {
    /// Of the device.
    pub limits: Limits,
    /// Does the file system have large folios?
    pub large_folios: bool,
}

impl Modern {
    fn max(&self, window: &Window, req: u64) -> u64 {
        if req > window.limit && self.limits.io_pages > window.limit {
            req.min(self.limits.io_pages)
        } else {
            window.limit
        }
    }

    /// Pages of a forced read, at most.
    fn forced_max(&self, window: &Window) -> u64 {
        self.limits.io_pages.max(window.limit)
    }

    fn missed(&self, window: &mut Window, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) {
        let Ask { page, pages: req, .. } = *ask;
        let max = self.max(window, req);
        let is_start = page == 0 || req > max;
        if is_start || window.follows_position(page) {
            window.start = page;
            window.size = init(req, max);
            window.ahead = if window.size > req { window.size - req } else { window.size / 2 };
            window.order = 0;
            let cause = if is_start { Cause::Initial } else { Cause::Sequential };
            return reads.push(window.extent(cause));
        }
        match context(page, req, max, cache) {
            Some(size) => {
                (window.start, window.size, window.ahead, window.order) = (page, size, 1, 0);
                reads.push(window.extent(Cause::Context));
            }
            // The state is left as it is.
            None => reads.push(exactly(ask, Cause::Random)),
        }
    }

    fn hit(&self, window: &mut Window, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) {
        let Ask { page, pages: req, folio_pages, .. } = *ask;
        assert!(folio_pages.is_power_of_two(), "a folio is a power of two pages");
        let max = self.max(window, req);
        // The mark of a file just opened was left by somebody else.
        let is_own = window.size > 0 && page == window.marker() / folio_pages * folio_pages;
        let cause = if is_own {
            window.start = window.end();
            window.size = window.size.max(next(window.size, max));
            Cause::Next
        } else {
            let Some(missing) = first_missing(page, page + 1, max, cache) else {
                return;
            };
            window.start = missing;
            window.size = next((missing - page) + req, max);
            Cause::Marked
        };
        self.align(window, max);
        window.ahead = window.size;
        reads.push(window.extent(cause));
    }

    /// Ends the window at a multiple of the next folio's size, if that leaves anything of it.
    fn align(&self, window: &mut Window, max: u64) {
        window.order += ORDER_STEP;
        let unit = 1 << window.order.min(max.max(1).ilog2());
        let end = window.end() / unit * unit;
        if end > window.start {
            window.size = end - window.start;
        }
        window.order =
            if self.large_folios { window.order.min(max.max(1).ilog2()).min(window.size.ilog2()) } else { 0 };
    }
}

impl FileRead for Modern {
    type File = Window;

    fn open(&mut self) -> Window {
        Window::new(self.limits)
    }

    fn missing(&mut self, window: &mut Window, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) {
        if window.limit == 0 {
            reads.push(Extent { pages: 1, ..exactly(ask, Cause::Forced) });
        } else if window.random {
            let pages = ask.pages.min(self.forced_max(window));
            reads.push(Extent { pages, ..exactly(ask, Cause::Forced) });
        } else {
            self.missed(window, ask, cache, reads);
        }
    }

    fn marked(&mut self, window: &mut Window, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) {
        if window.limit > 0 {
            self.hit(window, ask, cache, reads);
        }
    }

    fn finished(&mut self, window: &mut Window, end: u64) {
        window.read_end = Some(end);
    }

    fn advise(&mut self, window: &mut Window, advice: Advice, _: &dyn PageCache, reads: &mut Reads) {
        window.set_mode(advice, self.limits);
        mapped::will_need(advice, self.forced_max(window), reads);
    }

    fn fault_missing(
        &mut self,
        window: &mut Window,
        fault: &Fault,
        cache: &dyn PageCache,
        reads: &mut Reads,
    ) {
        if mapped::missing(window, fault, true, reads) == mapped::Next::AsRead {
            let ask = Ask { pages: window.limit, ..fault.ask };
            self.missed(window, &ask, cache, reads);
        }
    }

    fn fault_cached(&mut self, window: &mut Window, fault: &Fault, cache: &dyn PageCache, reads: &mut Reads) {
        if mapped::cached(window, fault, false) {
            let ask = Ask { pages: window.limit, ..fault.ask };
            self.hit(window, &ask, cache, reads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Empty;

    impl PageCache for Empty {
        fn holds(&self, _: u64) -> bool {
            false
        }
    }

    /// *The story:* a file just opened, whose first page bore another reader's mark, had its window
    /// of no pages continued: a panic where folios are large, a read of nothing elsewhere.
    #[test]
    fn a_mark_of_somebody_else_is_followed_in_a_file_just_opened() {
        for (large_folios, folio_pages) in [(false, 1), (true, 1), (true, 4)] {
            let limits = Limits { ra_pages: 32, io_pages: 32 };
            let mut policy = Modern { limits, large_folios };
            let mut window = policy.open();
            let mut reads = Reads::new(1 << 20);
            let ask = Ask { folio_pages, ..Ask::new(0, 1, 1 << 20) };
            policy.marked(&mut window, &ask, &Empty, &mut reads);
            let read = reads.extents().first().expect("a read");
            assert_eq!((read.start, read.cause), (1, Cause::Marked));
            assert!(read.pages > 0 && window.size == read.pages);
        }
    }
}
