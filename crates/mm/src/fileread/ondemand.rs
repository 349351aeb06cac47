//! Read-ahead on demand, from its first form (2.6.23, the seed) to 6.8 (specification 4.4).
//!
//! Four cases: the window is pushed forward (sequential-next), a small read far from everything is
//! read as it is (random), a request that follows the last one or is larger than any window gets a
//! new window (sequential-first), and so does a marked page to which no window belongs (marker
//! without state). Later versions added a fifth: the cached run before the request (context).
//! Unfit for: backward and strided reads, which are random here, and streams that come too slowly.

use super::window::{ahead_of_request, init, next};
use super::{Advice, Ask, Cause, Extent, Fault, FileRead, Limits, PageCache, Reads, Window, mapped};
use crate::types::PAGE_SIZE;

/// Versions whose rules differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Era {
    /// The seed.
    V2_6_23,
    /// A marked page without a window: looks where the cached pages end.
    V2_6_24,
    /// The start of the file and the context are cases of their own; never hits its own mark.
    V3_14,
    /// The largest request of the device counts; no window above the limit.
    V4_10,
    /// A read's position counts as the page after it.
    V6_8,
}

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct OnDemand {
    /// Whose rules.
    pub era: Era,
    /// Of the device.
    pub limits: Limits,
}

impl OnDemand {
    /// The largest window for a request.
    fn max(&self, window: &Window, req: u64, cache: &dyn PageCache) -> u64 {
        let io_pages = self.limits.io_pages;
        if self.era <= Era::V3_14 {
            window.limit.min(cache.available() / 2)
        } else if req > window.limit && io_pages > window.limit {
            req.min(io_pages)
        } else {
            window.limit
        }
    }

    fn follows(&self, window: &Window, page: u64) -> bool {
        if self.era < Era::V6_8 { window.follows_last_page(page) } else { window.follows_position(page) }
    }

    /// The decision tables of all five.
    fn decide(
        &self,
        window: &mut Window,
        ask: &Ask,
        is_marked: bool,
        cache: &dyn PageCache,
        reads: &mut Reads,
    ) {
        let max = self.max(window, ask.pages, cache);
        if max == 0 {
            return;
        }
        let found = if self.era <= Era::V2_6_24 {
            self.early(window, ask, is_marked, max, cache)
        } else {
            late(window, ask, is_marked, max, cache, self.follows(window, ask.page))
        };
        match found {
            Found::Window(cause) => {
                if self.era >= Era::V3_14 {
                    self.avoid_own_mark(window, ask.page, max);
                }
                reads.push(window.extent(cause));
            }
            Found::Random if is_marked => {}
            Found::Random => reads.push(exactly(ask, Cause::Random)),
            Found::Nothing => {}
        }
    }

    /// 2.6.23 and 2.6.24.
    fn early(
        &self,
        window: &mut Window,
        ask: &Ask,
        is_marked: bool,
        max: u64,
        cache: &dyn PageCache,
    ) -> Found {
        let Ask { page, pages: req, .. } = *ask;
        if page != 0 && (page == window.marker() || page == window.end()) {
            push_forward(window, max);
            return Found::Window(Cause::Next);
        }
        if !is_marked {
            let oversize = req > max;
            if !oversize && !window.follows_last_page(page) {
                return Found::Random;
            }
            let cause = if page == 0 || oversize { Cause::Initial } else { Cause::Sequential };
            first(window, ask, max);
            return Found::Window(cause);
        }
        if self.era == Era::V2_6_23 {
            // "Bet on the minimum."
            window.start = page + 1;
            window.size = (4 * window.size).clamp(1, max);
        } else {
            let Some(missing) = first_missing(page, page, max, cache) else {
                return Found::Nothing;
            };
            window.start = missing;
            window.size = next((missing - page).max(1), max);
        }
        window.ahead = window.size;
        Found::Window(Cause::Marked)
    }

    /// In 2.6.24 a fault of a mapping, whatever it finds, is a read's end to what comes after it.
    fn note_fault(&self, window: &mut Window, fault: &Fault) {
        if self.era == Era::V2_6_24 {
            window.read_end = Some((fault.ask.page + 1) * PAGE_SIZE);
        }
    }

    /// Pages of a forced read, at most.
    fn forced_max(&self, window: &Window, cache: &dyn PageCache) -> u64 {
        if self.era <= Era::V3_14 { cache.available() / 2 } else { self.limits.io_pages.max(window.limit) }
    }

    /// A window whose own mark the read would hit at once.
    fn avoid_own_mark(&self, window: &mut Window, page: u64, max: u64) {
        if page != window.start || window.size != window.ahead {
            return;
        }
        let added = next(window.size, max);
        if self.era <= Era::V3_14 || window.size + added <= max {
            window.ahead = added;
            window.size += added;
        } else {
            window.size = max;
            window.ahead = max / 2;
        }
    }
}

/// What a decision came to.
enum Found {
    Window(Cause),
    Random,
    Nothing,
}

/// 3.14 to 6.8.
fn late(
    window: &mut Window,
    ask: &Ask,
    is_marked: bool,
    max: u64,
    cache: &dyn PageCache,
    follows: bool,
) -> Found {
    let Ask { page, pages: req, folio_pages, .. } = *ask;
    assert!(folio_pages.is_power_of_two(), "a folio is a power of two pages");
    if page == 0 {
        first(window, ask, max);
        return Found::Window(Cause::Initial);
    }
    if page == window.marker() / folio_pages * folio_pages || page == window.end() {
        push_forward(window, max);
        return Found::Window(Cause::Next);
    }
    if is_marked {
        let Some(missing) = first_missing(page, page + 1, max, cache) else {
            return Found::Nothing;
        };
        window.start = missing;
        window.size = next((missing - page) + req, max);
        window.ahead = window.size;
        return Found::Window(Cause::Marked);
    }
    if req > max || follows {
        first(window, ask, max);
        return Found::Window(if req > max { Cause::Initial } else { Cause::Sequential });
    }
    match context(page, req, max, cache) {
        Some(size) => {
            (window.start, window.size, window.ahead) = (page, size, 1);
            Found::Window(Cause::Context)
        }
        None => Found::Random,
    }
}

/// A new window for a request.
fn first(window: &mut Window, ask: &Ask, max: u64) {
    window.start = ask.page;
    window.size = init(ask.pages, max);
    window.ahead = ahead_of_request(window.size, ask.pages);
}

fn push_forward(window: &mut Window, max: u64) {
    window.start = window.end();
    window.size = next(window.size, max);
    window.ahead = window.size;
}

/// The first page from `from` on that is missing, not further than `max` from `page`.
pub(super) fn first_missing(page: u64, from: u64, max: u64, cache: &dyn PageCache) -> Option<u64> {
    cache.next_missing(from, max + 1).filter(|missing| missing - page <= max)
}

/// The size of a window that goes on a cached run before the request, if that is longer than the
/// request; a run from the file's start counts twice.
pub(super) fn context(page: u64, req: u64, max: u64, cache: &dyn PageCache) -> Option<u64> {
    let run = cache.run_before(page, max);
    let counted = if run >= page { 2 * run } else { run };
    (run > req).then(|| (counted + req).min(max))
}

/// What was asked for.
pub(super) fn exactly(ask: &Ask, cause: Cause) -> Extent {
    Extent { start: ask.page, pages: ask.pages, marker: None, cause }
}

impl FileRead for OnDemand {
    type File = Window;

    fn open(&mut self) -> Window {
        Window::new(self.limits)
    }

    fn missing(&mut self, window: &mut Window, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) {
        if window.limit == 0 {
            return;
        }
        if window.random && self.era >= Era::V3_14 {
            let pages = ask.pages.min(self.forced_max(window, cache));
            return reads.push(Extent { pages, ..exactly(ask, Cause::Forced) });
        }
        self.decide(window, ask, false, cache, reads);
    }

    fn marked(&mut self, window: &mut Window, ask: &Ask, cache: &dyn PageCache, reads: &mut Reads) {
        if window.limit > 0 {
            self.decide(window, ask, true, cache, reads);
        }
    }

    fn finished(&mut self, window: &mut Window, end: u64) {
        window.read_end = Some(end);
    }

    fn advise(&mut self, window: &mut Window, advice: Advice, cache: &dyn PageCache, reads: &mut Reads) {
        window.set_mode(advice, self.limits);
        if window.random && self.era < Era::V3_14 {
            // These switched read-ahead off altogether: pages come one by one.
            (window.limit, window.random) = (0, false);
        }
        mapped::will_need(advice, self.forced_max(window, cache), reads);
    }

    fn fault_missing(
        &mut self,
        window: &mut Window,
        fault: &Fault,
        cache: &dyn PageCache,
        reads: &mut Reads,
    ) {
        let request = if self.era <= Era::V2_6_24 { 1 } else { window.limit };
        match mapped::missing(window, fault, self.era >= Era::V3_14, reads) {
            mapped::Next::Done => {}
            mapped::Next::AsRead => {
                let ask = Ask { pages: request.max(1), ..fault.ask };
                self.decide(window, &ask, false, cache, reads);
            }
        }
        self.note_fault(window, fault);
    }

    fn fault_cached(&mut self, window: &mut Window, fault: &Fault, cache: &dyn PageCache, reads: &mut Reads) {
        let busy_counts = self.era < Era::V6_8;
        if mapped::cached(window, fault, busy_counts) {
            let request = if self.era <= Era::V2_6_24 { 1 } else { window.limit };
            let ask = Ask { pages: request.max(1), ..fault.ask };
            self.decide(window, &ask, true, cache, reads);
        }
        self.note_fault(window, fault);
    }
}
