//! Which pages of a live trace are in view, and when each was touched last.
//!
//! *The story:* a page in view makes no record, however often it is used. So what never left RAM was not in
//! the simulated program at all, and what stayed for some laps of a loop was touched in none of them: the
//! simulated loop was smaller than the real one by all that the live pager had kept of it, and the simulated
//! pager kept as much once more of what was left.
//!
//! A page that comes back after a while was touched once in that while. Its neighbours in view are believed to
//! be touched as often: when it comes back and they were not touched in the later half of that while, they are
//! touched now, one after the other, as far as pages are in view without a gap. In a loop that is exact. Of
//! pages at random it makes about as many touches of what stays as of what leaves. What is hot among pages
//! that are not gets too few, and none of it is known where nothing leaves.

use std::collections::HashMap;

/// Pages that stand together.
const GROUP: u64 = 64;

/// A touch's number, from 1 on; 0 is none.
type Touch = u64;

#[derive(Clone, Copy, Default)]
struct Page {
    /// Its last touch.
    last: Touch,
    /// With which it came into view, if it is there.
    entered: Touch,
}

/// Every page that was seen so far.
#[derive(Default)]
pub(super) struct Pages {
    groups: HashMap<(u16, u64), Box<[Page; GROUP as usize]>>,
    touches: Touch,
}

impl Pages {
    fn page(&self, (space, vpn): (u16, u64)) -> Page {
        let group = self.groups.get(&(space, vpn / GROUP));
        group.map_or_else(Page::default, |group| group[(vpn % GROUP) as usize])
    }

    fn page_mut(&mut self, (space, vpn): (u16, u64)) -> &mut Page {
        let group = self.groups.entry((space, vpn / GROUP)).or_default();
        &mut group[(vpn % GROUP) as usize]
    }

    /// Was it ever touched?
    pub(super) fn is_known(&self, place: (u16, u64)) -> bool {
        self.page(place).last > 0
    }

    pub(super) fn is_in_view(&self, place: (u16, u64)) -> bool {
        self.page(place).entered > 0
    }

    /// Its last touch, if there is one.
    pub(super) fn last_touch(&self, place: (u16, u64)) -> Option<Touch> {
        Some(self.page(place).last).filter(|&last| last > 0)
    }

    /// It is touched, and in view: the number of the touch, and whether it is the page's first.
    pub(super) fn touch(&mut self, place: (u16, u64)) -> (Touch, bool) {
        self.touches += 1;
        let touch = self.touches;
        let page = self.page_mut(place);
        let is_first = page.last == 0;
        page.last = touch;
        if page.entered == 0 {
            page.entered = touch;
        }
        (touch, is_first)
    }

    /// It leaves the view; the touch with which it came.
    pub(super) fn leaves(&mut self, place: (u16, u64)) -> Option<Touch> {
        Some(std::mem::take(&mut self.page_mut(place).entered)).filter(|&entered| entered > 0)
    }

    /// How many touches, of any page, lie between `before` and the last one of this page.
    pub(super) fn interval(&self, place: (u16, u64), before: Touch) -> u64 {
        self.page(place).last - before
    }

    /// The neighbour of a page was touched after `interval` touches. If this one is in view, and its last
    /// touch lies not in their later half: how many lie between that and now.
    pub(super) fn is_due(&self, place: (u16, u64), interval: u64) -> Option<u64> {
        let page = self.page(place);
        let since = self.touches - page.last;
        (page.entered > 0 && since >= interval / 2).then_some(since)
    }

    /// These pages are no more: whatever comes there is new.
    pub(super) fn forget(&mut self, space: u16, start: u64, end: u64) {
        let is_whole = |number: u64| number * GROUP >= start && (number + 1) * GROUP <= end;
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
                let pages = group.iter_mut().zip(number * GROUP..);
                pages.filter(|(_, vpn)| (start..end).contains(vpn)).for_each(|(page, _)| *page = Page::default());
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
        for vpn in 0..10 {
            assert_eq!(pages.touch((0, vpn)), (vpn + 1, true));
        }
        assert_eq!(pages.leaves((0, 3)), Some(4));
        let before = pages.last_touch((0, 3)).expect("it was touched");
        pages.touch((0, 3));
        let interval = pages.interval((0, 3), before);
        assert_eq!(interval, 7);
        assert_eq!(pages.is_due((0, 4), interval), Some(6));
        assert_eq!(pages.is_due((0, 9), interval), None, "just now");
        assert_eq!(pages.is_due((0, 10), interval), None, "nobody knows it");
        assert_eq!(pages.is_due((1, 4), interval), None, "another space");
        pages.leaves((0, 4));
        assert_eq!(pages.is_due((0, 4), interval), None, "out of view");
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
