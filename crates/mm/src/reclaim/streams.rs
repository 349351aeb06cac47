//! Scans larger than RAM: what a stream leaves behind goes first.
//!
//! Where a program goes through more than RAM holds, over and over, the order of use always evicts
//! what is needed next: of 1000 MB in 900, all 1000 are read each time. If the pages just passed go
//! instead, the others stay, and 100 are read. (In processor caches: adaptive insertion, Qureshi et
//! al., ISCA 2007.) But pages that just came are the right ones to keep when the program has turned
//! to something new that fits. Which of both it is, those tell that leave in the order of use:
//! where they are soon wanted back, RAM is full of what is in use, and a stream's pages are
//! expelled behind it, all but a few windows, by which it is seen when that changes. And where what
//! was expelled is wanted back much sooner than the rest, it was wrong: a program that goes through
//! one array of many several times before it takes the next.

use crate::list::ListId;
use crate::mm::{Mm, NOBODY};
use crate::page::{NONE, State, flag};
use crate::readahead::{SwapIn, Window};
use crate::types::{PageId, Slot, SpaceId};

/// At most so many windows are expelled for one that is kept, and that one. What is kept pushes out what the
/// scan comes to next: with one in eight, a loop over ten ninths of the RAM read a quarter more than it had
/// to.
const KEPT_ONE_IN_MAX: u32 = 32;
/// Judged anew whenever this part of the budget left in the order of use, or came back expelled, and
/// at least so many pages.
const JUDGED_SHARE: u32 = 64;
const JUDGED_MIN: u32 = 64;
/// A page comes back soon when it was away for so many times as many evictions as there are frames:
/// what the program goes through is at most so many times larger than RAM, and RAM.
const SOON_BUDGETS: u32 = 4;

/// Cohorts that are remembered: as far back as a page can come back soon.
const COHORTS: usize = (SOON_BUDGETS * JUDGED_SHARE) as usize;
/// So many are judged together, if they are so many pages.
const COHORTS_JUDGED: u32 = 4;
const COHORT_PAGES_MIN: u32 = 16;

/// What was expelled is wanted back much sooner when it was away for less than this part of the
/// time of the rest.
const SOONER: u64 = 2;
/// After expelling was wrong all is kept for so many judgements, and twice as many each time, up to
/// the second number.
const KEPT_MIN: u32 = 8;
const KEPT_MAX: u32 = 512;

/// How streams are treated, and what tells it.
pub(crate) struct Scans {
    /// Of so many windows one is kept; 1: all.
    kept_one_in: u32,
    windows: u32,
    /// Pages that left in the order of use since the last judgement.
    left: u32,
    /// Of those that had left so, and of those expelled: which came back soon since the last judgement.
    wanted_back: Returns,
    expelled_back: Returns,
    /// How long the former were away, in evictions, on average of late: where enough of them came
    /// back to tell.
    usual: u64,
    /// Judgements for which all is kept, now and the next time.
    keeping: u32,
    keeping_next: u32,
    /// What left in the order of use, by when, and came back since.
    cohorts: [Cohort; COHORTS],
}

/// Pages that left in the order of use within one [`span`], by its number; and who of them came back.
#[derive(Clone, Copy, Default)]
struct Cohort {
    number: u32,
    left: u32,
    back: u32,
}

/// Pages that came back, and for how many evictions they were away together.
#[derive(Clone, Copy, Default)]
struct Returns {
    count: u32,
    away: u64,
}

impl Returns {
    fn add(&mut self, away: u32) {
        self.count += 1;
        self.away += u64::from(away);
    }

    fn mean(self) -> u64 {
        self.away / u64::from(self.count.max(1))
    }
}

impl Default for Scans {
    fn default() -> Self {
        Scans {
            kept_one_in: 1,
            windows: 0,
            left: 0,
            wanted_back: Returns::default(),
            expelled_back: Returns::default(),
            usual: 0,
            keeping: 0,
            keeping_next: KEPT_MIN,
            cohorts: [Cohort::default(); COHORTS],
        }
    }
}

impl Scans {
    /// Is the next window to be expelled when it has been used?
    pub fn expels(&mut self) -> bool {
        self.windows = self.windows.wrapping_add(1);
        !self.windows.is_multiple_of(self.kept_one_in)
    }

    /// The cohort of what leaves at this time.
    fn cohort(&mut self, clock: u32, budget: u32) -> &mut Cohort {
        let number = clock / span(budget);
        let cohort = &mut self.cohorts[number as usize % COHORTS];
        if cohort.number != number {
            *cohort = Cohort { number, ..Cohort::default() };
        }
        cohort
    }

    /// Of the cohorts that had just left so many evictions ago: how many pages, and how many of them
    /// came back. `None` where they are too few to tell.
    fn cohorts_back(&self, clock: u32, away: u64, budget: u32) -> Option<(u32, u32)> {
        let end = clock.wrapping_sub(away as u32) / span(budget);
        let judged = (end.saturating_sub(COHORTS_JUDGED)..end)
            .map(|number| &self.cohorts[number as usize % COHORTS])
            .zip(end.saturating_sub(COHORTS_JUDGED)..end)
            .filter(|(cohort, number)| cohort.number == *number);
        let sums = judged.fold((0, 0), |(left, back), (cohort, _)| (left + cohort.left, back + cohort.back));
        (sums.0 >= COHORT_PAGES_MIN).then_some(sums)
    }

    fn judge(&mut self, clock: u32, budget: u32) {
        let (left, back, expelled) = (self.left, self.wanted_back, self.expelled_back);
        if left.max(expelled.count) < span(budget) {
            return;
        }
        let cohorts = (expelled.count >= JUDGED_MIN)
            .then(|| self.cohorts_back(clock, expelled.mean(), budget))
            .flatten();
        let (judged, returned) = cohorts.unwrap_or((left, back.count));
        if back.count >= JUDGED_MIN {
            self.usual = (self.usual + back.mean()) / 2;
        }
        self.keeping = self.keeping.saturating_sub(1);
        if expelled.count >= JUDGED_MIN && expelled.mean() * SOONER < self.usual {
            self.kept_one_in = 1;
            self.keeping = self.keeping_next;
            self.keeping_next = (self.keeping_next * 2).min(KEPT_MAX);
        } else if returned >= judged / 2 && self.keeping == 0 {
            self.kept_one_in = (self.kept_one_in * 2).min(KEPT_ONE_IN_MAX);
        } else if returned < judged / 4 {
            self.kept_one_in = (self.kept_one_in / 2).max(1);
        }
        (self.left, self.wanted_back, self.expelled_back) = (0, Returns::default(), Returns::default());
    }
}

/// Evictions, or returns, from one judgement to the next.
fn span(budget: u32) -> u32 {
    JUDGED_MIN.max(budget / JUDGED_SHARE)
}

impl<P: SwapIn> Mm<P> {
    /// A page leaves.
    pub(crate) fn note_eviction(&mut self, id: PageId) {
        let is_behind = self.pages[id].has(flag::BEHIND);
        if self.is_in_file(id) {
            return self.file_scans.note_left(is_behind, self.config.budget);
        }
        if !is_behind {
            self.scans.left += 1;
            self.scans.cohort(self.clock, self.config.budget).left += 1;
        }
        self.scans.judge(self.clock, self.config.budget);
    }

    /// A page comes back from swap, in a window that is to be `expelled` or not. Expelled is only
    /// what was away for a short time, in evictions: what comes from longer ago is new to RAM.
    pub(crate) fn note_return(&mut self, id: PageId, expelled: bool) {
        let left = self.pages[id].prev;
        let away = self.clock.wrapping_sub(left);
        let is_soon = left != NONE && away <= SOON_BUDGETS.saturating_mul(self.config.budget);
        let in_file = self.is_in_file(id);
        let page = &mut self.pages[id];
        let was_expelled = page.take(flag::BEHIND);
        if in_file {
            // What a stream passes is expelled then, whatever it was when it came.
            if is_soon {
                self.file_scans.note_back(was_expelled);
            }
            return;
        }
        match was_expelled {
            true if is_soon => self.scans.expelled_back.add(away),
            false if is_soon => {
                self.scans.wanted_back.add(away);
                let cohort = self.scans.cohort(left, self.config.budget);
                cohort.back += u32::from(cohort.left > cohort.back);
            }
            _ => {}
        }
        if expelled && is_soon {
            page.set(flag::BEHIND);
        }
    }

    /// The reader has passed a window: those of its pages that are to be expelled are the next to
    /// go, the last of them first; of a file no more than `enough`, the nearest. True: it is a reader
    /// of a file, and most windows are expelled.
    pub(crate) fn leave_behind(&mut self, space: SpaceId, window: Window, enough: u32) -> bool {
        let Window::Pages { start, stride, count } = window else { return false };
        // Of a file this is the moment at which it is decided.
        let in_file = self.pages.lookup(space, start).is_some_and(|id| self.is_in_file(id));
        let expels_files = in_file && self.file_scans.expels();
        let round = self.regions.at(space, start).map(|region| (region.start.0, region.end.0));
        let mut left = if in_file { enough } else { u32::MAX };
        for index in 0..count {
            if left == 0 || in_file && !expels_files {
                break;
            }
            let vpn = start.offset(stride * i64::from(index));
            let vpn = match round {
                Some((first, end)) if in_file && vpn.0 < first => vpn.offset((end - first) as i64),
                Some((first, end)) if in_file && vpn.0 >= end => vpn.offset(first as i64 - end as i64),
                _ => vpn,
            };
            let Some(id) = self.pages.lookup(space, vpn) else { continue };
            let expels = if self.is_in_file(id) { expels_files } else { self.pages[id].has(flag::BEHIND) };
            let page = &mut self.pages[id];
            let is_idle = page.state == State::Mapped && page.list == ListId::Inactive as u8;
            if is_idle && expels {
                left -= 1;
                page.set(flag::BEHIND);
                self.lists.remove(&mut self.pages, id);
                self.lists.push_tail(&mut self.pages, ListId::Inactive, id);
                if in_file {
                    // Its reader had it, and went on.
                    self.answered.iter_mut().filter(|page| **page == id).for_each(|page| *page = NOBODY);
                }
            }
        }
        in_file && self.file_scans.expels_most()
    }

    /// Is the page's content that of its file?
    pub(crate) fn is_in_file(&self, id: PageId) -> bool {
        self.pages[id].slot().is_some_and(Slot::is_file)
    }

    /// Was the page left behind by a reader of its file, and is it as it is there? Then it need not
    /// wait for a second chance: that would hold up those that are to stay.
    pub(crate) fn is_passed(&self, id: PageId) -> bool {
        self.is_in_file(id) && self.pages[id].has(flag::BEHIND) && !self.pages[id].has(flag::DIRTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u32 = 64 * JUDGED_MIN;

    #[test]
    fn those_are_judged_that_left_with_what_comes_back() {
        let mut scans = Scans { kept_one_in: KEPT_ONE_IN_MAX, ..Scans::default() };
        let span = span(BUDGET);
        for clock in (0..8).map(|number| number * span) {
            *scans.cohort(clock, BUDGET) = Cohort { number: clock / span, left: 10, back: 10 };
        }
        let judge = |scans: &mut Scans, clock: u32| {
            let away = 2 * span;
            scans.expelled_back = Returns { count: span, away: u64::from(span * away) };
            (scans.left, scans.wanted_back) = (10, Returns::default());
            scans.judge(clock, BUDGET);
            scans.kept_one_in
        };
        assert_eq!(judge(&mut scans, 8 * span), 32, "all of those are back: a loop");
        for clock in (8..12).map(|number| number * span) {
            *scans.cohort(clock, BUDGET) = Cohort { number: clock / span, left: 10, back: 0 };
        }
        assert_eq!(judge(&mut scans, 14 * span), 16, "none is: it was another set that is wanted");
        assert_eq!(scans.cohorts_back(14 * span, u64::from(200 * span), BUDGET), None, "before all time");
        assert_eq!(scans.cohort((8 + COHORTS as u32) * span, BUDGET).left, 0, "a place is used again");
    }

    fn after(scans: &mut Scans, left: u32, wanted_back: u32) -> u32 {
        (scans.left, scans.wanted_back) =
            (left, Returns { count: wanted_back, away: u64::from(wanted_back) * 1000 });
        scans.judge(0, BUDGET);
        scans.kept_one_in
    }

    #[test]
    fn windows_are_expelled_while_what_left_before_them_is_wanted_back() {
        let mut scans = Scans::default();
        assert!(!scans.expels(), "nothing is known yet");
        assert_eq!(after(&mut scans, 63, 63), 1, "too few");
        for kept in [2, 4, 8, 16, 32, 32] {
            assert_eq!(after(&mut scans, 64, 32), kept);
        }
        assert_eq!((0..64).filter(|_| !scans.expels()).count(), 2, "one in 32 is kept");
        assert_eq!(after(&mut scans, 64, 20), 32, "neither");
        for kept in [16, 8, 4, 2, 1, 1] {
            assert_eq!(after(&mut scans, 64, 15), kept);
        }
    }

    #[test]
    fn what_was_expelled_and_comes_back_much_sooner_was_wrong() {
        let mut scans = Scans::default();
        let expelled_came_back_after = |scans: &mut Scans, away: u64| {
            scans.expelled_back = Returns { count: 100, away: 100 * away };
            after(scans, 64, 64)
        };
        for kept in [2, 4, 8] {
            assert_eq!(expelled_came_back_after(&mut scans, 1000), kept, "like the rest");
        }
        for judgements in [8, 16] {
            assert_eq!(expelled_came_back_after(&mut scans, 100), 1);
            let until_again = (1..).find(|_| after(&mut scans, 64, 64) > 1);
            assert_eq!(until_again, Some(judgements), "twice as long each time");
        }
    }

    /// *The story:* one live run in six of three laps over 256 MiB in 196 read 170,000 pages, the
    /// others 128,000 to 133,000. A log of the judgements showed why: four pages that had been away
    /// for 91,000 evictions, nearly two budgets, took the usual time from 30,000 to 60,600, and the
    /// scan's own, back after 17,400 as always, were found to be much too soon, nine times in a
    /// row.
    #[test]
    fn a_few_pages_do_not_tell_what_is_usual() {
        let mut scans = Scans { usual: 30_000, kept_one_in: 8, ..Scans::default() };
        scans.expelled_back = Returns { count: 250, away: 250 * 17_400 };
        scans.left = 767;
        scans.wanted_back = Returns { count: 4, away: 4 * 91_000 };
        scans.judge(0, BUDGET);
        assert_eq!((scans.usual, scans.keeping), (30_000, 0));
    }
}
