//! What happens to pages, as the machine's driver tells it: a frame is taken, a page is touched,
//! stored to, written, dropped. Nothing is reclaimed here.

use super::{Admission, Arrival, Node};
use crate::reclaim::Rules;
use crate::reclaim::lists::{DomainId, Kind, List, PageNumber, flag};
use crate::reclaim::marks::{self, Mark};
use crate::reclaim::shadow::{self, Shadow};
use crate::types::Access;

impl Node {
    /// May a frame be taken? Asks for background reclaim where few are left.
    pub fn allocate(&mut self) -> Admission {
        if self.free > self.config.watermarks.low {
            return Admission::Granted;
        }
        self.wanted = true;
        if self.free > self.config.watermarks.min { Admission::GrantedWake } else { Admission::Refused }
    }

    /// A page takes a frame; `back` is the shadow that it left when it had one before.
    ///
    /// # Panics
    /// When no frame is free: whoever may not fail keeps to `min`.
    pub fn admit(&mut self, domain: DomainId, arrival: &Arrival, back: Option<Shadow>) -> PageNumber {
        self.free = self.free.checked_sub(1).expect("a frame is free");
        let bits = [
            (arrival.kind == Kind::File, flag::FILE),
            (arrival.mapped, flag::MAPPED),
            (arrival.executable, flag::EXECUTABLE),
            (arrival.dirty, flag::DIRTY),
            (arrival.has_slot, flag::SLOT),
            (arrival.locked, flag::LOCKED),
        ];
        let flags = bits.into_iter().fold(0, |all, (is, bit)| if is { all | bit } else { all });
        let page = self.pages.add(domain, flags);
        let list = match arrival.kind {
            _ if arrival.locked => List::Unevictable,
            _ if back.is_some_and(|shadow| self.refault(page, shadow)) => List::active(arrival.kind),
            // What comes back from swap has to show once more that it is used (specification 1.7).
            Kind::Anon if self.config.rules == Rules::Early && !arrival.has_slot => List::ActiveAnon,
            kind => List::inactive(kind),
        };
        if list.is_active() {
            // Use that shows otherwise weighs like use that reclaim finds when it looks.
            self.domains[usize::from(domain.0)].recent.note(arrival.kind, 1, 1);
        }
        self.pages.push_head(page, list);
        page
    }

    /// A page came back. True when it is active at once.
    fn refault(&mut self, page: PageNumber, shadow: Shadow) -> bool {
        let (id, kind) = (self.pages.domain(page), self.pages.kind(page));
        if self.config.rules == Rules::Early && kind == Kind::Anon {
            return false;
        }
        self.counters.workingset_refault[kind as usize] += 1;
        let (pages, all) = (self.lengths(id), self.listed());
        let rules = self.config.rules;
        let domain = &mut self.domains[usize::from(id.0)];
        let distance = shadow.distance(domain.clock);
        if !shadow::is_close(rules, kind, distance, &pages, self.config.swap_slots > 0) {
            return false;
        }
        self.counters.workingset_activate[kind as usize] += 1;
        domain.activations[kind as usize] += 1;
        domain.clock = domain.clock.wrapping_add(1);
        if rules == Rules::Late && shadow.was_workingset() {
            self.counters.workingset_restore[kind as usize] += 1;
            self.pages.set(page, flag::WORKINGSET);
            domain.cost.refaulted(kind, 1, all);
        }
        true
    }

    /// A system call read or wrote the page.
    pub fn mark_accessed(&mut self, page: PageNumber) {
        let list = self.pages.list(page).expect("a page with a frame is on a list");
        match marks::mark_accessed(list, self.pages.has(page, flag::REFERENCED)) {
            Mark::SetBit => self.pages.set(page, flag::REFERENCED),
            Mark::Nothing => {}
            Mark::Activate => {
                self.pages.take(page, flag::REFERENCED);
                self.pages.remove(page);
                self.activate(page);
                let kind = self.pages.kind(page);
                if kind == Kind::File {
                    self.age(page);
                }
                // As in `admit`: this, too, is use.
                self.domains[usize::from(self.pages.domain(page).0)].recent.note(kind, 1, 1);
            }
        }
    }

    /// Somebody in whose view the page is touched it; `others`: through another mapping than the
    /// first.
    pub fn touch(&mut self, page: PageNumber, access: Access, others: bool) {
        self.pages.set(page, flag::MAPPED | if others { flag::ACCESSED_OTHER } else { flag::ACCESSED });
        if access == Access::Write {
            self.store(page);
        }
    }

    /// The page is newer than what backs it. A slot is worth nothing then.
    pub fn store(&mut self, page: PageNumber) {
        self.pages.set(page, flag::DIRTY);
        if !self.pages.has(page, flag::WRITEBACK) && self.pages.take(page, flag::SLOT) {
            self.release_slot();
        }
    }

    /// A write that was ordered, or that a flusher began, has ended.
    pub fn written(&mut self, page: PageNumber, is_ok: bool) {
        assert!(self.pages.take(page, flag::WRITEBACK), "only what is being written ends so");
        if !is_ok {
            self.pages.set(page, flag::DIRTY);
        }
        if self.pages.take(page, flag::RECLAIM)
            && let Some(list) = self.pages.list(page)
            && !list.is_active()
            && list != List::Unevictable
        {
            self.pages.remove(page);
            self.pages.push_tail(page, list);
        }
    }

    /// A flusher begins to write a dirty file page. False when there is nothing to write.
    pub fn flush(&mut self, page: PageNumber) -> bool {
        let begins = !self.pages.has(page, flag::WRITEBACK) && self.pages.take(page, flag::DIRTY);
        if begins {
            self.pages.set(page, flag::WRITEBACK);
        }
        begins
    }

    /// The owner drops the page, whatever it holds: its file was cut, its program ended.
    pub fn forget(&mut self, page: PageNumber) {
        assert!(!self.pages.has(page, flag::WRITEBACK), "a page is not dropped while it is written");
        if self.pages.take(page, flag::SLOT) {
            self.release_slot();
        }
        self.pages.remove(page);
        self.pages.forget(page);
        self.free += 1;
    }

    /// A slot of a page that has no frame is free.
    pub fn release_slot(&mut self) {
        self.swap_used = self.swap_used.checked_sub(1).expect("a slot is released once");
    }
}
