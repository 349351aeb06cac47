//! Thinning an exact trace: accesses to pages that were accessed a moment ago say nothing new.
//!
//! A small LRU stack of recent pages stands before the writer. An access to one of its pages is
//! left out, unless it is the first store since the page came in, or the page has not been written
//! down for [`AGE_MAX_NS`]. This is Smith's stack deletion (1977): a cache several times larger
//! than the stack misses as often on the thinned trace as on the full one, within a fraction of a
//! percent; the refresh keeps policies that forget (second chance, aging) informed. Exact traces
//! shrink by one to two orders of magnitude.

use super::record::{AccessKind, AccessRecord};
use std::collections::HashMap;

/// Pages in the stack.
pub const STACK: usize = 16;
/// A page in use is written down again after this time.
pub const AGE_MAX_NS: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
struct Recent {
    vpn: u64,
    space: u16,
    stored: bool,
    written_ns: u64,
}

/// The stack of each thread.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Each with the most recent first.
    stacks: Vec<Vec<Recent>>,
    /// By thread: the place of its stack.
    places: HashMap<u32, usize>,
    /// Accesses seen and kept.
    seen: u64,
    kept: u64,
}

impl Filter {
    /// Empty stacks.
    #[must_use]
    pub fn new() -> Filter {
        Filter::default()
    }

    /// Accesses seen and kept so far.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.seen, self.kept)
    }

    /// Does this access have to be written down?
    pub fn keeps(&mut self, access: &AccessRecord) -> bool {
        self.seen += 1;
        let keeps = self.decide(access);
        self.kept += u64::from(keeps);
        keeps
    }

    fn decide(&mut self, access: &AccessRecord) -> bool {
        let at = *self.places.entry(access.thread).or_insert(self.stacks.len());
        if at == self.stacks.len() {
            self.stacks.push(Vec::with_capacity(STACK));
        }
        let stack = &mut self.stacks[at];
        let stores = access.kind == AccessKind::Write;
        let found = stack.iter().position(|recent| (recent.vpn, recent.space) == (access.vpn, access.space));
        let Some(depth) = found else {
            if stack.len() == STACK {
                stack.pop();
            }
            let (vpn, space) = (access.vpn, access.space);
            stack.insert(0, Recent { vpn, space, stored: stores, written_ns: access.time_ns });
            return true;
        };
        stack[..=depth].rotate_right(1);
        let recent = &mut stack[0];
        let old = access.time_ns.saturating_sub(recent.written_ns) >= AGE_MAX_NS;
        let first_store = stores && !recent.stored;
        if old || first_store {
            recent.written_ns = access.time_ns;
            recent.stored = if old { stores } else { true };
        }
        old || first_store
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn access(time_ns: u64, vpn: u64, kind: AccessKind) -> AccessRecord {
        AccessRecord { time_ns, vpn, thread: 0, space: 0, kind }
    }

    /// Misses of an LRU cache of `size` pages.
    fn misses(pages: impl Iterator<Item = u64>, size: usize) -> u32 {
        let mut stack: Vec<u64> = Vec::new();
        let mut misses = 0;
        for page in pages {
            match stack.iter().position(|&other| other == page) {
                Some(depth) => {
                    stack.remove(depth);
                }
                None => {
                    misses += 1;
                    stack.truncate(size - 1);
                }
            }
            stack.insert(0, page);
        }
        misses
    }

    #[test]
    fn lru_misses_are_nearly_the_same() {
        let mut rng = Rng::new(5);
        // Mostly near the last page, now and then somewhere else.
        let mut page = 0;
        let full: Vec<AccessRecord> = (0..60_000)
            .map(|time| {
                page = if rng.ratio(1, 20) { rng.below(300) } else { (page + rng.below(10) / 9) % 300 };
                access(time, page, AccessKind::Read)
            })
            .collect();
        let mut filter = Filter::new();
        let thin: Vec<u64> = full.iter().filter(|&a| filter.keeps(a)).map(|a| a.vpn).collect();
        assert!(thin.len() * 2 < full.len(), "{} of {}", thin.len(), full.len());
        for size in [4 * STACK, 100, 250] {
            let exact = misses(full.iter().map(|a| a.vpn), size);
            let thinned = misses(thin.iter().copied(), size);
            assert!(
                exact.abs_diff(thinned) * 200 <= exact,
                "cache of {size} pages: {exact} became {thinned}"
            );
        }
    }

    /// *The story:* each access looked for its thread among all of them.
    #[test]
    fn many_threads_cost_what_one_does() {
        let of = |thread, vpn| AccessRecord { thread, ..access(0, vpn, AccessKind::Read) };
        let mut filter = Filter::new();
        for vpn in 0..20 {
            (0..60_000).for_each(|thread| {
                assert!(filter.keeps(&of(thread, vpn)) && !filter.keeps(&of(thread, vpn)))
            });
        }
        assert_eq!(filter.counts(), (2_400_000, 1_200_000));
    }

    #[test]
    fn first_stores_and_old_pages_are_kept() {
        use AccessKind::{Read, Write};
        let mut filter = Filter::new();
        let list =
            [(0, Read), (1, Read), (2, Write), (3, Write), (4, Read), (200_000, Read), (200_001, Write)];
        let kept: Vec<u64> = list
            .iter()
            .filter(|(time, kind)| filter.keeps(&access(*time, 7, *kind)))
            .map(|(time, _)| *time)
            .collect();
        assert_eq!(kept, [0, 2, 200_000, 200_001]);
        assert_eq!(filter.counts(), (7, 4));
    }
}
