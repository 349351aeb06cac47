//! Pages that were copied only so that they could leave: others have them, too, as it was before.
//!
//! After a fork parent and child have their pages together, and the kernel moves none of those. Whoever is to
//! take one out has it copied first. The program needs no such copy: with RAM enough there would be none.
//! So such pages count once for those that have them together. Of each page all but the last that has it
//! make a copy, so that what is marked here, of a whole family, is what it has too often.
//!
//! A mark goes when the page is found to be stored to, or is dropped. That is found when it leaves again. So
//! of those in view as many count as unchanged as were so of those that left again so far. It owns the
//! marks; what became of a page is told to it.
//!
//! *The story:* a child that only read what its parent had, in less RAM than that, had a copy of all of it.
//! "X would avoid that" was 1.5 to 3.4 times what was needed. *The other story:* workers that count
//! references in a list of their parent's stored to each page that came back, and X was 0.65 of what was
//! needed.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use overspill_mm::types::{CHUNK_PAGES as CHUNK, Nanos, SpaceId, Vpn};
use overspill_mm::{Event, Unmapped};

use crate::view::{PROGRAM, Place};

/// How often those in view are counted, at most: a hundredth of a processor, too.
const COUNT_NS: Nanos = 50_000_000;
const COUNT_SHARE: Nanos = 100;

const WORDS: usize = CHUNK as usize / u64::BITS as usize;

/// The marks, by page of the program's memory.
#[derive(Default)]
pub(crate) struct Copies {
    chunks: BTreeMap<u64, [u64; WORDS]>,
    pages: u64,
    /// Marked ones that left again, as they were and not.
    same: u64,
    changed: u64,
    /// How many were unchanged, likely, when they were counted; and when that is due again.
    likely: u64,
    due: Nanos,
}

impl Copies {
    /// How many are unchanged, likely, if that has to be counted anew at that time.
    pub fn likely(&self, now: Nanos) -> Option<u64> {
        let is_known = self.pages == 0 || now < self.due;
        is_known.then_some(self.likely.min(self.pages))
    }

    /// Counts them. `is_in_view` is asked of each, and `clock` what time it is.
    pub fn count(&mut self, is_in_view: impl Fn(Vpn) -> bool, clock: impl Fn() -> Nanos) -> u64 {
        let began = clock();
        let pages = self.chunks.iter().flat_map(|(chunk, words)| pages_of(*chunk, words));
        let in_view = pages.filter(|&page| is_in_view(Vpn(page))).count() as u64;
        self.likely = self.pages - in_view + in_view * self.same / (self.same + self.changed + 1);
        let ended = clock();
        self.due = ended + COUNT_NS.max((ended - began) * COUNT_SHARE);
        self.likely
    }

    /// Pages from `place` on were to be taken out of view. Those that were `copied` for it are marked. Of the
    /// others that came out those keep their marks that are what they were in their slots.
    pub fn note(&mut self, (space, first): Place, copied: u64, result: &Unmapped) {
        if space != PROGRAM || copied == 0 && self.pages == 0 {
            return;
        }
        let copied = copied & !result.zero;
        let changed = (result.taken & !result.same | result.gone) & !copied;
        for page in bits_of(changed) {
            self.changed += u64::from(self.set(first.0 + page, false));
        }
        for page in bits_of(result.same & !copied) {
            self.same += u64::from(self.is_marked(first.0 + page));
        }
        for page in bits_of(copied) {
            self.same += u64::from(self.set(first.0 + page, true));
        }
    }

    /// Pages that are dropped, or move, do so with their marks.
    pub fn see(&mut self, event: &Event) {
        if self.pages == 0 {
            return;
        }
        match *event {
            Event::Discarded { space, start, end }
            | Event::Published { space, start, end }
            | Event::RegionRemoved { space, start, end } => self.drop_marks(space, start, end),
            Event::Moved { space, from, to, pages } => {
                let marked = self.marked(space, from, from.offset(pages.cast_signed()));
                self.drop_marks(space, from, from.offset(pages.cast_signed()));
                self.drop_marks(space, to, to.offset(pages.cast_signed()));
                for page in marked {
                    self.set(page - from.0 + to.0, true);
                }
            }
            _ => {}
        }
    }

    fn drop_marks(&mut self, space: SpaceId, start: Vpn, end: Vpn) {
        for page in self.marked(space, start, end) {
            self.set(page, false);
        }
    }

    fn marked(&self, space: SpaceId, start: Vpn, end: Vpn) -> Vec<u64> {
        if space != PROGRAM || start >= end {
            return Vec::new();
        }
        let chunks = self.chunks.range(start.0 / CHUNK..=(end.0 - 1) / CHUNK);
        let pages = chunks.flat_map(|(chunk, words)| pages_of(*chunk, words));
        pages.filter(|page| (start.0..end.0).contains(page)).collect()
    }

    fn is_marked(&self, page: u64) -> bool {
        let word = |words: &[u64; WORDS]| words[(page % CHUNK) as usize / 64] & 1 << (page % 64) != 0;
        self.chunks.get(&(page / CHUNK)).is_some_and(word)
    }

    /// Marks it, or takes its mark. Returns whether it had one.
    fn set(&mut self, page: u64, is_marked: bool) -> bool {
        let (chunk, bit) = (page / CHUNK, page % CHUNK);
        if !is_marked && !self.chunks.contains_key(&chunk) {
            return false;
        }
        let words = self.chunks.entry(chunk).or_default();
        let (word, mask) = (&mut words[bit as usize / 64], 1 << (bit % 64));
        let was_marked = *word & mask != 0;
        *word = if is_marked { *word | mask } else { *word & !mask };
        self.pages = self.pages + u64::from(is_marked) - u64::from(was_marked);
        if words.iter().all(|&word| word == 0) {
            self.chunks.remove(&chunk);
        }
        was_marked
    }
}

fn pages_of(chunk: u64, words: &[u64; WORDS]) -> impl Iterator<Item = u64> {
    let words = words.iter().enumerate().map(move |(at, &word)| (chunk * CHUNK + at as u64 * 64, word));
    words.flat_map(|(first, word)| bits_of(word).map(move |bit| first + bit))
}

fn bits_of(word: u64) -> impl Iterator<Item = u64> {
    (0..u64::BITS.into()).filter(move |bit| word >> bit & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(copies: &mut Copies, first: u64, copied: u64, result: Unmapped) -> u64 {
        copies.note((PROGRAM, Vpn(first)), copied, &result);
        copies.pages
    }

    #[test]
    fn a_mark_stays_while_the_page_is_what_it_was() {
        let mut copies = Copies::default();
        let out = |taken, same| Unmapped { taken, same, ..Unmapped::default() };
        let all = |taken| out(taken, 0);
        assert_eq!(taken(&mut copies, 500, 0xff, Unmapped { zero: 1 << 3, ..all(0xffff) }), 7);
        assert_eq!(taken(&mut copies, 500, 0, out(0xff, 0x0f)), 3, "four were stored to");
        assert_eq!(taken(&mut copies, 500, 0, Unmapped { gone: 1, ..all(0) }), 2);
        assert_eq!(taken(&mut copies, 500, 0b10, out(0b10, 0)), 2, "it is copied once more");
        assert_eq!(taken(&mut copies, 500, 0, all(0xff)), 0);
        assert!(copies.chunks.is_empty());
    }

    #[test]
    fn of_those_in_view_as_many_count_as_were_unchanged_before() {
        let mut copies = Copies::default();
        let out = |same| Unmapped { taken: 0xffff, same, ..Unmapped::default() };
        taken(&mut copies, 0, 0xffff, out(0));
        let count = |copies: &mut Copies, in_view: u64| copies.count(|page| page.0 < in_view, || 7);
        assert_eq!((copies.likely(7), count(&mut copies, 0)), (None, 16));
        assert_eq!((copies.likely(7), count(&mut copies, 10)), (Some(16), 6), "none has left again");
        assert_eq!(taken(&mut copies, 0, 0, out(0xfff0)), 12);
        assert_eq!(count(&mut copies, 12), 4 + 8 * 12 / 17, "four of sixteen were changed");
        taken(&mut copies, 0, 0, out(0));
        assert_eq!(copies.likely(1 << 60), Some(0));
    }

    #[test]
    fn marks_go_with_what_is_dropped_and_move_with_it() {
        let mut copies = Copies::default();
        let all = Unmapped { taken: u64::MAX, ..Unmapped::default() };
        for first in [448, 512, 576] {
            taken(&mut copies, first, u64::MAX, all);
        }
        let (space, start, end) = (PROGRAM, Vpn(500), Vpn(520));
        copies.see(&Event::Discarded { space, start, end });
        assert_eq!(copies.pages, 3 * 64 - 20);
        copies.see(&Event::Moved { space, from: Vpn(490), to: Vpn(600), pages: 40 });
        assert_eq!(copies.pages, 3 * 64 - 20 - 40, "20 were there, and 40 were in their way");
        assert_eq!(
            copies.marked(space, Vpn(600), Vpn(640)),
            [600..610, 630..640].into_iter().flatten().collect::<Vec<_>>()
        );
        copies.see(&Event::RegionRemoved { space, start: Vpn(0), end: Vpn(1 << 30) });
        assert_eq!((copies.pages, copies.chunks.len()), (0, 0));
    }
}
