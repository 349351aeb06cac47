//! Which pages of a live trace are in view, and when each was touched last.
//!
//! *The story:* a page in view makes no record, however often it is used. So what never left RAM was not in
//! the simulated program at all, and what stayed for some laps of a loop was touched in none of them: the
//! simulated loop was smaller than the real one by all that the live pager had kept of it, and the simulated
//! pager kept as much once more of what was left.
//!
//! So its neighbours are asked. A page in view is believed to be touched as often as one beside it that leaves
//! and comes back: whenever a page comes back, its neighbours in view that have had fewer touches than it has
//! one more, and theirs, as far as pages are in view without a gap. In a loop that is exact. At random it makes
//! about as many touches of what stays as of what leaves. What is hot among pages that are not gets too few,
//! and nothing is known where nothing leaves.

use std::collections::HashMap;

/// Pages that stand together.
const GROUP: u64 = 64;

/// A touch's number, from 1 on; 0 is none.
type Touch = u64;

#[derive(Clone, Copy, Default)]
struct Page {
    /// How often it was touched.
    count: u32,
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

    /// How often it was touched.
    pub(super) fn count(&self, place: (u16, u64)) -> u32 {
        self.page(place).count
    }

    pub(super) fn is_in_view(&self, place: (u16, u64)) -> bool {
        self.page(place).entered > 0
    }

    /// It is touched, and in view from now on: the number of the touch, and how many it has had.
    pub(super) fn touch(&mut self, place: (u16, u64)) -> (Touch, u32) {
        self.touches += 1;
        let touch = self.touches;
        let page = self.page_mut(place);
        page.count = page.count.saturating_add(1);
        if page.entered == 0 {
            page.entered = touch;
        }
        (touch, page.count)
    }

    /// It leaves the view; the touch with which it came.
    pub(super) fn leaves(&mut self, place: (u16, u64)) -> Option<Touch> {
        Some(std::mem::take(&mut self.page_mut(place).entered)).filter(|&entered| entered > 0)
    }

    /// Is it in view, and had fewer touches than that?
    pub(super) fn is_due(&self, place: (u16, u64), count: u32) -> bool {
        let page = self.page(place);
        page.entered > 0 && page.count < count
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
    fn a_page_is_due_when_its_neighbour_had_more() {
        let mut pages = Pages::default();
        for vpn in 0..5 {
            assert_eq!(pages.touch((0, vpn)), (vpn + 1, 1));
        }
        assert_eq!(pages.leaves((0, 3)), Some(4));
        assert_eq!(pages.touch((0, 3)), (6, 2));
        assert!(pages.is_due((0, 4), 2));
        assert!(!pages.is_due((0, 5), 2), "nobody knows it");
        assert!(!pages.is_due((1, 4), 2), "another space");
        assert_eq!(pages.touch((0, 4)), (7, 2));
        assert!(!pages.is_due((0, 4), 2), "it had as many");
        assert_eq!(pages.leaves((0, 4)), Some(5));
        assert!(!pages.is_due((0, 4), 9), "out of view");
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
            let known = (0..300).filter(|&vpn| pages.count((0, vpn)) > 0).count() as u64;
            assert_eq!(known, 60 + 300_u64.saturating_sub(end), "{end}");
            assert!(pages.count((1, 100)) == 1 && pages.count((0, 59)) == 1 && !pages.is_in_view((0, 60)));
        }
    }
}
