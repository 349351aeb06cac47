//! One step of each kind of program: a page read or written, a page touched.

use super::programs::{Place, Resident, Walker};
use super::{Did, Owner, Way, World, flusher, key};
use crate::time::Nanos;
use overspill_mm::reclaim::lists::{DomainId, PageNumber};
use overspill_mm::reclaim::node::{Admission, Arrival};
use overspill_mm::reclaim::shadow::Shadow;
use overspill_mm::types::Access;

/// Of the touches of anonymous memory, one in so many stores.
const STORES_ONE_IN: u64 = 4;

impl World {
    /// A page that takes a frame; `None` where none is to be had.
    pub(super) fn admit(
        &mut self,
        domain: DomainId,
        arrival: &Arrival,
        back: Option<Shadow>,
    ) -> Option<PageNumber> {
        let is_granted = self.node.allocate() != Admission::Refused;
        is_granted.then(|| self.node.admit(domain, arrival, back))
    }

    /// The next page of a reader or a writer.
    pub(super) fn walk(&mut self, walker: &mut Walker, at: Nanos) -> Did {
        match walker.stream.way {
            Way::Read => self.read(walker),
            Way::Write => self.write(walker, at),
        }
    }

    /// The next page of a reader: handed over, or brought into the cache with those after it.
    fn read(&mut self, walker: &mut Walker) -> Did {
        let Some(spot) = walker.next_fill(&self.files) else {
            let Some(spot) = walker.here() else { return Did::Done };
            // Gone before it was used: once more.
            let Some(page) = self.files.frame(spot) else { return Did::Worked(0) };
            walker.advance();
            self.node.mark_accessed(page);
            return Did::Worked(self.vary(self.setup.costs.copy_ns));
        };
        let domain = walker.stream.domain;
        let shadow = self.shadows.take(key(spot, domain));
        let Some(page) = self.admit(domain, &Arrival::FILE, shadow) else {
            if let Some(shadow) = shadow {
                self.shadows.put(key(spot, domain), shadow, self.node.clock(domain));
            }
            return Did::Short;
        };
        self.place(spot, page, domain);
        walker.filled();
        let ns = self.vary(self.setup.costs.fill_ns);
        if self.files.is_hole(spot) { Did::Worked(ns) } else { Did::Slept(self.setup.costs.device_ns) }
    }

    /// The next page of a writer, all of it new.
    fn write(&mut self, walker: &mut Walker, at: Nanos) -> Did {
        let Some(spot) = walker.here() else { return Did::Done };
        if self.must_pause(at) {
            return Did::Slept(flusher::PAUSE);
        }
        let page = match self.files.frame(spot) {
            Some(page) => {
                self.node.store(page);
                page
            }
            None => {
                let domain = walker.stream.domain;
                let arrival = Arrival { dirty: true, ..Arrival::FILE };
                let Some(page) = self.admit(domain, &arrival, None) else { return Did::Short };
                self.place(spot, page, domain);
                page
            }
        };
        self.files.store(spot, at);
        self.node.mark_accessed(page);
        walker.advance();
        Did::Worked(self.vary(self.setup.costs.fill_ns + self.setup.costs.copy_ns))
    }

    /// A resident goes on with what it woke for, until it has to wait.
    pub(super) fn live(&mut self, id: u32, resident: &mut Resident) -> Did {
        let habit = resident.habit;
        if resident.is_at_rest() {
            let from = if habit.burst < habit.hot { self.rng.below(u64::from(habit.hot)) } else { 0 };
            resident.wake(from as u32);
        }
        while let Some(index) = resident.wants() {
            match resident.places[index] {
                Place::In(page) => self.touch(resident, page),
                Place::New => return self.grow(id, resident, index),
                Place::Out(shadow) => return self.swap_in(id, resident, index, shadow),
            }
        }
        if resident.child_left > 0 {
            return self.child_grows(id, resident);
        }
        self.child_ends(resident);
        resident.rest();
        Did::Slept(self.vary(habit.period_ns))
    }

    fn touch(&mut self, resident: &mut Resident, page: PageNumber) {
        let access = if self.rng.ratio(1, STORES_ONE_IN) { Access::Write } else { Access::Read };
        self.node.touch(page, access, false);
        self.shares[usize::from(resident.domain().0)].touches += 1;
        resident.touched();
    }

    /// A page is touched for the first time.
    fn grow(&mut self, task: u32, resident: &mut Resident, index: usize) -> Did {
        let domain = resident.domain();
        let Some(page) = self.admit(domain, &Arrival::ANON, None) else { return Did::Short };
        self.owners[page.0 as usize] = Owner::Own { task, index: index as u32 };
        resident.places[index] = Place::In(page);
        self.touch(resident, page);
        self.shares[usize::from(domain.0)].faults.minor += 1;
        Did::Worked(self.vary(self.setup.costs.fill_ns))
    }

    /// A page comes back, and is touched when it is there.
    fn swap_in(&mut self, task: u32, resident: &mut Resident, index: usize, shadow: Shadow) -> Did {
        let domain = resident.domain();
        let Some(page) = self.admit(domain, &Arrival::SWAPPED, Some(shadow)) else { return Did::Short };
        self.owners[page.0 as usize] = Owner::Own { task, index: index as u32 };
        resident.places[index] = Place::In(page);
        self.touch(resident, page);
        let faults = &mut self.shares[usize::from(domain.0)].faults;
        faults.major += 1;
        faults.pswpin += 1;
        Did::Slept(self.setup.costs.device_ns)
    }

    /// The child touches a page for the first time.
    fn child_grows(&mut self, task: u32, resident: &mut Resident) -> Did {
        let domain = resident.domain();
        let Some(page) = self.admit(domain, &Arrival::ANON, None) else { return Did::Short };
        self.owners[page.0 as usize] = Owner::Child { task };
        self.node.touch(page, Access::Write, false);
        self.shares[usize::from(domain.0)].faults.minor += 1;
        resident.child.push(page);
        resident.child_left -= 1;
        Did::Worked(self.vary(self.setup.costs.fill_ns))
    }

    /// It ends, and what it had is free, but for what is on its way to swap just now.
    fn child_ends(&mut self, resident: &mut Resident) {
        for page in resident.child.drain(..) {
            self.give_back(page);
        }
    }

    /// A program with memory of its own is gone, and its pages and slots with it.
    pub(super) fn leaves(&mut self, resident: &mut Resident) {
        self.child_ends(resident);
        for place in resident.places.drain(..) {
            match place {
                Place::New => {}
                Place::In(page) => self.give_back(page),
                Place::Out(_) => self.node.release_slot(),
            }
        }
    }

    fn give_back(&mut self, page: PageNumber) {
        if self.is_sent[page.0 as usize] {
            self.owners[page.0 as usize] = Owner::Leaving;
        } else {
            self.forget(page);
        }
    }
}
