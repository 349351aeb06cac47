//! Pages that the kernel needs when a thread ends (see [`crate::robust`]) go back into view.
//!
//! The lists of locks are read once for a few runs of pages that were taken out one after another.
//!
//! *The story:* they were read for each run, a call of the kernel for each thread. At random a run is
//! a page or two, and that came to two calls beside the one that takes it out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use overspill_mm::types::{Access, PageId, Vpn};
use overspill_mm::{Event, Run, State, Unmapped};
use overspill_sys::{AddressRange, PAGE_SIZE};

use super::Engine;
use crate::memory::bits;
use crate::view::{PROGRAM, Place, address, vpn};

/// So many runs at most, and so many pages. Whoever ends before the lists were read leaves a lock that
/// nobody is told of, so that must be soon: some 100 us.
const RUNS_MAX: usize = 16;
const PAGES_MAX: u32 = 32;

impl Engine {
    /// Which pages of a run have to stay in view, as far as is known.
    pub(super) fn kept(&self, run: Run) -> u64 {
        let (space, first) = self.mm.place(run.first);
        let robust = self.robust.as_ref().filter(|_| space == PROGRAM);
        robust.map_or(0, |robust| robust.kept(&range(address(first), run)))
    }

    /// Which pages of a run are told as discarded, and are not to be taken for that.
    pub(super) fn told_discarded(&self, run: Run) -> u64 {
        told_discarded(&self.events, self.mm.place(run.first), run.count)
    }

    /// May a lock that somebody holds lie in a page of those that were taken? Who takes one stores to
    /// it: in pages as their file has them there is none.
    pub(super) fn may_hold_locks(&self, run: Run, result: &Unmapped) -> bool {
        let taken = || (0..run.count).filter(|index| result.taken & 1 << index != 0);
        let is_clean =
            |index: u32| result.same & 1 << index != 0 && self.is_in_file(PageId(run.first.0 + index));
        self.mm.place(run.first).0 == PROGRAM && !taken().all(is_clean)
    }

    /// Pages were taken out in which locks may be; the answer that says so is among the events.
    pub(super) fn suspect(&mut self, run: Run) {
        self.suspects.push(run);
        let pages: u32 = self.suspects.iter().map(|run| run.count).sum();
        if self.suspects.len() == RUNS_MAX || pages >= PAGES_MAX {
            self.put_back_kept();
        }
    }

    /// Puts pages back that have to stay in view: they were busy, for whoever asks. Brings in those
    /// that have to be and are out.
    pub(super) fn put_back_kept(&mut self) {
        self.put_back_suspects();
        if let Some(robust) = &self.robust {
            robust.words().end_batch();
        }
    }

    fn put_back_suspects(&mut self) {
        let runs = core::mem::take(&mut self.suspects);
        if runs.is_empty() {
            return;
        }
        let mut again = false;
        // With what is back the lists may be read further.
        loop {
            let Some(robust) = &mut self.robust else { return };
            robust.look(again);
            again = true;
            let mut is_any_back = false;
            for &run in &runs {
                is_any_back |= self.put_back(run);
            }
            if !is_any_back {
                break;
            }
        }
        // Only a fault has a frame whatever else wants one, and it comes when `mm` knows that they are out.
        //
        // *The story:* they were asked for ahead: before it was known, and where nothing was spare.
        for (space, vpn) in self.missing_beside(&runs) {
            self.events.push_back(Event::Fault { space, vpn, access: Access::Read });
        }
    }

    /// Asks for pages that could not be put back, as their range was changing, once nothing changes, until
    /// they are in view or on their way.
    ///
    /// *The story:* they were asked for at once, which was refused for the same reason, and then never.
    pub(super) fn bring_back_owed(&mut self) {
        for (space, vpn) in core::mem::take(&mut self.owed) {
            if !self.mm.manages(space, vpn, vpn.offset(1)) {
                continue;
            }
            if !self.view.program.is_changed() {
                self.feed(Event::Fault { space, vpn, access: Access::Read });
            }
            // It may have met the next change.
            let id = self.mm.lookup(space, vpn);
            if id.is_some_and(|id| matches!(self.mm.state(id), State::Cached | State::Writing)) {
                self.owed.push((space, vpn));
            }
        }
    }

    /// Puts those pages of a run back that have to stay. True: at least one is back.
    fn put_back(&mut self, run: Run) -> bool {
        let kept = self.kept(run);
        // Next to never.
        if kept == 0 {
            return false;
        }
        let told = self
            .events
            .iter()
            .rposition(|event| matches!(event, Event::Unmapped { run: of, .. } if *of == run));
        let told = told.expect("what was taken out is answered behind this");
        let Event::Unmapped { mut result, .. } = self.events[told] else {
            unreachable!("it is such an answer")
        };
        let kept = kept & result.taken;
        let mut is_any_back = false;
        for index in (0..run.count).filter(|index| kept & 1 << index != 0) {
            let page = PageId(run.first.0 + index);
            let frame = self.staging.frame(page).expect("a page that was taken has a frame");
            let (_, manner) = self.manner(page, 1);
            let put = self.view.put_in(self.mm.place(page), frame, 1, manner);
            if put.done == 0 {
                // Its range is changing: what becomes of the page is not known yet. If it is still
                // there then, it comes in.
                let place = self.mm.place(page);
                if !self.owed.contains(&place) {
                    self.owed.push(place);
                }
                continue;
            }
            is_any_back = true;
            self.staging.leave(page, put.moved == 0);
            result.taken &= !(1 << index);
            result.zero &= result.taken;
            result.same &= result.taken;
        }
        self.events[told] = Event::Unmapped { run, result };
        is_any_back
    }

    /// Pages that have to be in view and are out; what was just taken stays out.
    fn missing_beside(&mut self, taken: &[Run]) -> Vec<Place> {
        let mut wanted = Vec::new();
        let taken: Vec<_> =
            taken.iter().map(|run| range(address(self.mm.place(run.first).1), *run)).collect();
        let Some(robust) = &mut self.robust else { return wanted };
        while let Some(page) = robust.missing() {
            let (start, end) = (vpn(page), vpn(page).offset(1));
            let is_taken = taken.iter().any(|range| range.contains(&page));
            if !is_taken && self.mm.manages(PROGRAM, start, end) {
                wanted.push((PROGRAM, start));
            }
        }
        wanted
    }
}

/// Which of `count` pages are told as discarded by an event that `mm` has not had yet.
///
/// *The story* (by reading): pages that MADV_FREE had released, and the program had stored to since, were
/// given frames with the page before them, and left view in the same step. The refusal told that they
/// are there, and not known; the answer brought their content, which was dropped for that.
fn told_discarded(events: &VecDeque<Event>, (space, first): Place, count: u32) -> u64 {
    let page = |vpn: Vpn| vpn.0.saturating_sub(first.0).min(count.into()) as u32;
    let told = events.iter().map(|event| match *event {
        Event::Discarded { space: at, start, end } if at == space => {
            bits(page(start), page(end) - page(start))
        }
        _ => 0,
    });
    told.fold(0, |all, told| all | told)
}

fn range(start: usize, run: Run) -> AddressRange {
    start..start + run.count as usize * PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::SHARED;

    #[test]
    fn pages_that_are_told_as_discarded_are_found() {
        let of = |space, start, end| Event::Discarded { space, start: Vpn(start), end: Vpn(end) };
        let told =
            |events: &[Event]| told_discarded(&events.iter().copied().collect(), (PROGRAM, Vpn(100)), 8);
        assert_eq!(told(&[of(PROGRAM, 90, 102), of(PROGRAM, 105, 106)]), 0b10_0011);
        assert_eq!(told(&[of(PROGRAM, 0, 100), of(PROGRAM, 108, 120), of(SHARED, 100, 108), Event::Idle]), 0);
        assert_eq!(told(&[of(PROGRAM, 0, 1000)]), 0xff);
    }
}
