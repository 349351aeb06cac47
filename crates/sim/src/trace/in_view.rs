//! Which pages of a live trace are in view, and when each was touched last.
//!
//! *The story:* a page in view makes no record, however often it is used. So what never left RAM was not in
//! the simulated program at all, and what stayed for some laps of a loop was touched in none of them: the
//! simulated loop was smaller than the real one by all that the live pager had kept of it, and the simulated
//! pager kept as much once more of what was left.
//!
//! So its neighbours are asked. A page that comes back after a while was touched once in that
//! while, and pages in view beside it are believed to be touched as often: those that were not
//! touched in the later half of it are touched now, as far as pages are in view without a gap. Nor
//! are they touched before half of the while that they were last untouched for has passed. The
//! while is measured in what was recorded, not in what is believed. In a loop that is exact. At
//! random it makes about as many touches of what stays as of what leaves. What is hot among pages
//! that are not gets too few, and nothing is known where nothing leaves.
//!
//! *A second story:* pages that were taken out of view to see whether they are used had faults one
//! right after the other, and each time thousands of pages beside them were touched again. A page
//! that was read ahead and then waited for had two touches, and so had all beside it: of a loop
//! that was gone through seven times half as many touches again were simulated.

use std::collections::HashMap;

/// Pages that stand together.
const GROUP: u64 = 64;

/// A touch's number, from 1 on; 0 is none.
type Touch = u64;

#[derive(Clone, Copy, Default)]
struct Page {
    /// When it was touched last, in recorded touches; 0: never.
    last: u64,
    /// After what while that was, in recorded touches; 0: it was the first.
    away: u64,
    /// With which it came into view, if it is there.
    entered: Touch,
    /// It was read ahead: its touch was believed then, and its next fault is that one.
    is_ahead: bool,
}

/// Every page that was seen so far.
#[derive(Default)]
pub(super) struct Pages {
    groups: HashMap<(u16, u64), Box<[Page; GROUP as usize]>>,
    touches: Touch,
    /// Of those, touches that were recorded.
    recorded: u64,
}

impl Pages {
    fn page(&self, (space, vpn): (u16, u64)) -> Page {
        let group = self.groups.get(&(space, vpn / GROUP));
        group.map_or_else(Page::default, |group| group[(vpn % GROUP) as usize])
    }

    fn page_mut(&mut self, (space, vpn): (u16, u64)) -> &mut Page {
        let group = self
            .groups
            .entry((space, vpn / GROUP))
            .or_insert_with(|| Box::new([Page::default(); GROUP as usize]));
        &mut group[(vpn % GROUP) as usize]
    }

    /// Was it ever touched?
    pub(super) fn is_known(&self, place: (u16, u64)) -> bool {
        self.page(place).last > 0
    }

    pub(super) fn is_in_view(&self, place: (u16, u64)) -> bool {
        self.page(place).entered > 0
    }

    /// A record says that it is touched, and in view from now on: the number of the touch, and after what
    /// while, if it is not the first.
    pub(super) fn touch(&mut self, place: (u16, u64)) -> (Touch, Option<u64>) {
        self.recorded += 1;
        self.note(place)
    }

    /// Nobody says so, but it is believed.
    pub(super) fn believe(&mut self, place: (u16, u64)) -> (Touch, Option<u64>) {
        self.note(place)
    }

    fn note(&mut self, place: (u16, u64)) -> (Touch, Option<u64>) {
        self.touches += 1;
        let (touch, now) = (self.touches, self.recorded);
        let page = self.page_mut(place);
        let last = std::mem::replace(&mut page.last, now);
        let after = (last > 0).then(|| now - last);
        page.away = after.unwrap_or(0);
        if page.entered == 0 {
            page.entered = touch;
        }
        (touch, after)
    }

    /// Its touch is that of a page that was read ahead.
    pub(super) fn note_ahead(&mut self, place: (u16, u64)) {
        self.page_mut(place).is_ahead = true;
    }

    /// A fault on it is told of. Was it read ahead, and is this the touch that was believed then?
    pub(super) fn was_ahead(&mut self, place: (u16, u64)) -> bool {
        std::mem::take(&mut self.page_mut(place).is_ahead)
    }

    /// It leaves the view; the touch with which it came.
    pub(super) fn leaves(&mut self, place: (u16, u64)) -> Option<Touch> {
        let page = self.page_mut(place);
        page.is_ahead = false;
        Some(std::mem::take(&mut page.entered)).filter(|&entered| entered > 0)
    }

    /// The page beside it came back after a while of so many touches. Is it in view, and was it not
    /// touched in the later half of that, or in as much as half of its own last while?
    pub(super) fn is_due(&self, place: (u16, u64), away: u64) -> bool {
        let page = self.page(place);
        page.entered > 0 && (self.recorded - page.last) * 2 > away.max(page.away)
    }

    /// These pages are no more: whatever comes there is new.
    pub(super) fn forget(&mut self, space: u16, start: u64, end: u64) {
        let is_whole =
            |number: u64| number * GROUP >= start && number.saturating_add(1).saturating_mul(GROUP) <= end;
        let (first, last) = (start / GROUP, end / GROUP);
        if last - first > self.groups.len() as u64 {
            self.groups.retain(|&(of, number), _| of != space || !is_whole(number));
        } else {
            (first..last).filter(|&number| is_whole(number)).for_each(|number| {
                self.groups.remove(&(space, number));
            });
        }
        for number in [first, last] {
            if let Some(group) = self.groups.get_mut(&(space, number)) {
                for (index, page) in group.iter_mut().enumerate() {
                    if (start..end).contains(&(number * GROUP + index as u64)) {
                        *page = Page::default();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_due_when_its_neighbour_was_away_for_long() {
        let mut pages = Pages::default();
        for vpn in 0..5 {
            assert_eq!(pages.touch((0, vpn)), (vpn + 1, None));
        }
        assert_eq!(pages.leaves((0, 2)), Some(3));
        assert_eq!(pages.touch((0, 2)), (6, Some(3)));
        assert!(pages.is_due((0, 3), 3));
        assert!(!pages.is_due((0, 4), 3), "just now");
        assert!(!pages.is_due((0, 5), 3), "nobody knows it");
        assert!(!pages.is_due((1, 3), 3), "another space");
        assert_eq!(pages.believe((0, 3)), (7, Some(2)));
        assert!(!pages.is_due((0, 3), 1), "it has been touched");
        assert_eq!((pages.touch((0, 9)), pages.touch((0, 10))), ((8, None), (9, None)));
        assert!(pages.is_due((0, 3), 1), "what is believed takes no time");
        pages.leaves((0, 3));
        assert!(!pages.is_due((0, 3), 1), "out of view");
        for vpn in 20..29 {
            pages.touch((0, vpn));
        }
        assert_eq!(pages.believe((0, 4)), (19, Some(12)));
        pages.touch((0, 20));
        assert!(!pages.is_due((0, 4), 1), "one after twelve");
    }

    #[test]
    fn ranges_are_forgotten() {
        for end in [130, 1 << 36, u64::MAX] {
            let mut pages = Pages::default();
            for vpn in 0..300 {
                pages.touch((0, vpn));
            }
            pages.touch((1, 100));
            pages.forget(0, 60, end);
            let known = (0..300).filter(|&vpn| pages.is_known((0, vpn))).count() as u64;
            assert_eq!(known, 60 + 300_u64.saturating_sub(end), "{end}");
            assert!(pages.is_known((1, 100)) && pages.is_known((0, 59)) && !pages.is_in_view((0, 60)));
        }
    }
}
