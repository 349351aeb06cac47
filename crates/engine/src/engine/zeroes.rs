//! Pages that were only read: how `ShowZeroes` and `TakeStores` pass the kernel's zero page to the
//! program.

use overspill_mm::{Event, Run};
use overspill_sys::PAGE_SIZE;

use super::Engine;
use super::mapping::rest_of;
use crate::report::Answer;
use crate::view::{PROGRAM, address, vpns};

impl Engine {
    /// Shows the zero page, as far as the pages are accessible. Where the kernel has none for a
    /// mapping the first page gets a frame.
    pub(super) fn show_zeroes(&mut self, run: Run) {
        let (space, first) = self.mm.place(run.first);
        assert_eq!(space, PROGRAM, "shared memory has no zero page");
        let start = address(first);
        let count = self.accessible(space, start, run.count);
        let done = self.view.program.show_zeroes(start, count);
        if done == 0 {
            return self.fill_one(run);
        }
        let range = start..start + done as usize * PAGE_SIZE;
        let events = &mut self.events;
        self.view.program.protect_zeroes(range.clone(), |part| {
            let (start, end) = vpns(&part);
            events.push_back(Event::Resident { space: PROGRAM, start, end });
        });
        self.view.program.wake(range);
        self.answered(Run { count: done, ..run }, Answer::Mapped);
        self.refuse(run, done);
    }

    /// Gives the first page of a run that was to show the zero page a frame.
    fn fill_one(&mut self, run: Run) {
        let (space, first) = self.mm.place(run.first);
        let filled = self.view.fill_fresh((space, first), 1);
        if filled > 0 {
            self.events.push_back(Event::Resident { space, start: first, end: first.offset(1) });
            self.answered(Run::one(run.first), Answer::Mapped);
        }
        self.refuse(run, filled);
    }

    /// Lets threads store to pages that show the zero page.
    pub(super) fn take_stores(&mut self, run: Run) {
        let start = address(self.mm.place(run.first).1);
        if self.view.program.allow_stores(start..start + run.count as usize * PAGE_SIZE) {
            self.answered(run, Answer::Mapped);
        } else {
            self.retry(run);
            self.events.push_back(Event::StillZeroes { run });
            self.tell_present(run);
        }
    }

    /// What is left of a run after the first `done` pages was not done: who waits there tries again.
    fn refuse(&mut self, run: Run, done: u32) {
        if done < run.count {
            let rest = rest_of(run, done);
            self.retry(rest);
            self.not_filled(rest);
        }
    }
}
