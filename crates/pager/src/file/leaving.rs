//! In which order the pages of a cached file leave.
//!
//! First in, first out, with a second chance for those used again; but what a stream has just passed
//! leaves before all others, the farthest first, as with mapped files: see [`FileScans`], which also
//! says when that is wrong. What a page holds, and whether it may leave, is the caller's to say.

use std::collections::VecDeque;

use overspill_mm::fileread::Passed;
use overspill_mm::filescan::FileScans;

use super::numbers::ByNumber;

/// A page that was away for more departures than there are pages, times this, is new.
const SOON: u64 = 4;
/// Departures, and places in line that are no more, that are kept whatever the cache's size.
const KEPT: usize = 1024;

/// May a page leave?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// It may.
    Free,
    /// It was used again: not yet.
    Used,
    /// It may, but not for this: it stays where it is in line, about.
    Spared,
    /// It must not, until it is [`Leaving::freed`].
    Busy,
}

/// A place in line; of no worth once the page has left, whatever became of it.
type Place = (u64, u64);

/// The lines.
#[derive(Default)]
pub(super) struct Leaving {
    turns: ByNumber<u64>,
    order: VecDeque<Place>,
    passed: Vec<Place>,
    /// Those that must not leave, when they were met: out of the line.
    ///
    /// *The story:* they went round in it, and each request looked at all of them twice.
    aside: ByNumber<()>,
    scans: FileScans,
    /// When a page left, in departures, and whether it had been passed.
    left: ByNumber<(u64, bool)>,
    departures: u64,
    arrivals: u64,
}

impl Leaving {
    /// A page has come.
    ///
    /// *The story:* whoever waited at the end of a file that grew had its last page come again and again,
    /// and each time another place in line stayed for good.
    pub fn arrived(&mut self, page: u64) {
        if let Some((when, expelled)) = self.left.remove(&page)
            && self.departures - when <= SOON * self.turns.len() as u64
        {
            self.scans.note_back(expelled);
        }
        self.arrivals += 1;
        self.turns.insert(page, self.arrivals);
        self.order.push_back((page, self.arrivals));
        if self.order.len() > 2 * self.turns.len() + KEPT {
            let turns = &self.turns;
            self.order.retain(|(page, turn)| turns.get(page) == Some(turn));
        }
    }

    /// A page may leave that must not until now: it lines up again.
    pub fn freed(&mut self, page: u64) {
        if self.aside.remove(&page).is_some() {
            self.order.push_back((page, self.turns[&page]));
        }
    }

    /// A stream has passed pages of a file that has so many: those of them that are here are the next to
    /// leave, no more than `enough`, the nearest.
    pub fn passed(&mut self, passed: Passed, file_pages: u64, enough: u64) {
        // An empty file has no page, not even for a reader that is about to write its first.
        if file_pages == 0 || !self.scans.expels() {
            return;
        }
        let mut page = passed.nearest_in(0, file_pages);
        let mut left = enough;
        for _ in 0..passed.pages.min(file_pages) {
            if left == 0 {
                break;
            }
            if let Some(&turn) = self.turns.get(&page) {
                self.passed.push((page, turn));
                left -= 1;
            }
            // Behind the start of a file lies its end: whoever goes round was there last.
            page = match (passed.above, page) {
                (true, _) => (page + 1) % file_pages,
                (false, 0) => file_pages - 1,
                (false, _) => page - 1,
            };
        }
        if self.passed.len() > 4 * self.turns.len() + KEPT {
            let turns = &self.turns;
            self.passed.retain(|(page, turn)| turns.get(page) == Some(turn));
            // Those that were passed more than once are in it more than once; the oldest go.
            let surplus = self.passed.len().saturating_sub(2 * turns.len());
            self.passed.drain(..surplus);
        }
    }

    /// The next page that leaves; `None`: there is none that may.
    pub fn next(&mut self, mut look: impl FnMut(u64) -> Look) -> Option<u64> {
        while let Some(place) = self.passed.pop() {
            if self.is_in_line(place) && matches!(look(place.0), Look::Free | Look::Used) {
                return Some(self.leave(place.0, true));
            }
        }
        // Once more round only for those that have had their second chance in the first.
        let (round, mut again) = (self.order.len(), false);
        for looked in 0..2 * round {
            if looked == round && !again {
                break;
            }
            let place = self.order.pop_front()?;
            if !self.is_in_line(place) {
                continue;
            }
            match look(place.0) {
                Look::Free => return Some(self.leave(place.0, false)),
                Look::Spared => self.order.push_back(place),
                Look::Used => {
                    again = true;
                    self.order.push_back(place);
                }
                Look::Busy => _ = self.aside.insert(place.0, ()),
            }
        }
        None
    }

    /// A page is dropped that is no part of the file any more.
    pub fn dropped(&mut self, page: u64) {
        self.turns.remove(&page);
        self.aside.remove(&page);
    }

    fn is_in_line(&self, (page, turn): Place) -> bool {
        self.turns.get(&page) == Some(&turn)
    }

    fn leave(&mut self, page: u64, expelled: bool) -> u64 {
        self.scans.note_left(expelled, u32::try_from(self.turns.len()).unwrap_or(u32::MAX));
        self.turns.remove(&page).expect("it is in line");
        self.aside.remove(&page);
        self.departures += 1;
        self.left.insert(page, (self.departures, expelled));
        let soon = SOON * self.turns.len() as u64;
        if self.left.len() as u64 > 2 * soon + KEPT as u64 {
            let departures = self.departures;
            self.left.retain(|_, (when, _)| departures - *when <= soon);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_passed_leaves_first_and_the_farthest_of_it() {
        let mut leaving = Leaving::default();
        (0..10).for_each(|page| leaving.arrived(page));
        leaving.passed(Passed { nearest: 6, pages: 5, above: false }, 10, 3);
        let busy = |page| if page == 5 { Look::Busy } else { Look::Free };
        let left: Vec<u64> = std::iter::from_fn(|| leaving.next(busy)).collect();
        assert_eq!(left, [4, 6, 0, 1, 2, 3, 7, 8, 9], "5 must not");
        assert_eq!(leaving.next(|_| panic!("nobody is looked at")), None);
        leaving.freed(5);
        leaving.arrived(4);
        assert_eq!(leaving.next(|_| Look::Free), Some(5), "its place in line from before counts no more");
    }

    #[test]
    fn behind_the_start_of_a_file_lies_its_end() {
        for (nearest, above, last) in [(1, false, [8, 9, 0, 1]), (8, true, [1, 0, 9, 8])] {
            let mut leaving = Leaving::default();
            (0..10).for_each(|page| leaving.arrived(page));
            leaving.passed(Passed { nearest, pages: 4, above }, 10, 100);
            let left: Vec<u64> = (0..4).filter_map(|_| leaving.next(|_| Look::Free)).collect();
            assert_eq!(left, last);
        }
    }

    /// *The story:* see [`Leaving::arrived`].
    #[test]
    fn a_page_that_comes_again_and_again_has_few_places() {
        let mut leaving = Leaving::default();
        leaving.arrived(1);
        for _ in 0..10 * KEPT {
            leaving.arrived(2);
            leaving.dropped(2);
        }
        leaving.arrived(3);
        assert!(leaving.order.len() <= KEPT + 4, "{} places for two pages", leaving.order.len());
        assert_eq!((leaving.next(|_| Look::Free), leaving.next(|_| Look::Free)), (Some(1), Some(3)));
    }

    /// *The story:* a hint that found nothing but what is in use looked at all of it twice.
    #[test]
    fn what_is_spared_is_looked_at_once() {
        let mut leaving = Leaving::default();
        (0..10).for_each(|page| leaving.arrived(page));
        let mut looked = 0;
        let spare = |_| {
            looked += 1;
            Look::Spared
        };
        assert_eq!(leaving.next(spare), None);
        assert_eq!(looked, 10);
        assert_eq!(leaving.next(|_| Look::Free), Some(0), "all have kept their turns");
    }

    #[test]
    fn a_page_that_is_used_again_goes_round_once() {
        let mut leaving = Leaving::default();
        (0..3).for_each(|page| leaving.arrived(page));
        let mut used = true;
        let mut look = |page| match page {
            0 if std::mem::take(&mut used) => Look::Used,
            _ => Look::Free,
        };
        assert_eq!([leaving.next(&mut look), leaving.next(&mut look)], [Some(1), Some(2)]);
        assert_eq!((leaving.next(&mut look), leaving.next(look)), (Some(0), None));
    }
}
