//! What becomes of a page that reclaim looks at (specification 5.2): it is kept, becomes active, is
//! written or leaves.

use super::{Manner, Node, Order, Orders};
use crate::reclaim::lists::{Kind, List, PageNumber, flag};
use crate::reclaim::marks::{self, Sighting, Verdict};
use crate::reclaim::shadow::Shadow;
use crate::reclaim::{Reclaimer, Rules};

/// What became of a page that reclaim looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Freed,
    Kept,
    Activated,
    Written,
    Unevictable,
}

impl Node {
    /// To the head of the active list, from no list.
    pub(super) fn activate(&mut self, page: PageNumber) {
        let kind = self.pages.kind(page);
        self.counters.pgactivate += 1;
        self.pages.push_head(page, List::active(kind));
    }

    /// What becomes of a page that is on no list now (specification 5.2).
    pub(super) fn decide(&mut self, page: PageNumber, manner: &Manner, out: &mut Orders) -> Fate {
        if self.pages.has(page, flag::WRITEBACK) {
            if manner.who == Reclaimer::Background
                && self.pages.has(page, flag::RECLAIM)
                && self.tail_writeback
            {
                self.counters.nr_vmscan_immediate_reclaim += 1;
                self.met_cycling = true;
            }
            self.pages.set(page, flag::RECLAIM);
            return Fate::Kept;
        }
        let ptes = [flag::ACCESSED, flag::ACCESSED_OTHER].map(|bit| u32::from(self.pages.take(page, bit)));
        let sighting = Sighting {
            locked: self.pages.has(page, flag::LOCKED),
            contended: false,
            ptes: ptes[0] + ptes[1],
            referenced: self.pages.take(page, flag::REFERENCED),
            kind: self.pages.kind(page),
            executable: self.pages.has(page, flag::EXECUTABLE),
        };
        match marks::judge(self.config.rules, &sighting) {
            Verdict::Unevictable => Fate::Unevictable,
            Verdict::Activate { referenced } => {
                self.set_referenced(page, referenced);
                self.give_slot_up(page);
                Fate::Activated
            }
            Verdict::Keep { referenced } => {
                self.set_referenced(page, referenced);
                Fate::Kept
            }
            Verdict::ReclaimIfClean if self.pages.has(page, flag::DIRTY) => Fate::Kept,
            Verdict::Reclaim | Verdict::ReclaimIfClean => self.let_go(page, manner, out),
        }
    }

    fn set_referenced(&mut self, page: PageNumber, referenced: bool) {
        if referenced {
            self.pages.set(page, flag::REFERENCED);
        }
    }

    /// An active page's slot is not worth keeping when swap is more than half full.
    fn give_slot_up(&mut self, page: PageNumber) {
        if self.swap_used * 2 > self.config.swap_slots && self.pages.take(page, flag::SLOT) {
            self.pages.set(page, flag::DIRTY);
            self.release_slot();
        }
    }

    /// Nobody uses it: it is freed if nothing need be written, else written if that may be.
    fn let_go(&mut self, page: PageNumber, manner: &Manner, out: &mut Orders) -> Fate {
        match self.pages.kind(page) {
            Kind::Anon if !self.pages.has(page, flag::SLOT) => {
                if !self.can_swap() {
                    return Fate::Activated;
                }
                self.swap_used += 1;
                self.pages.set(page, flag::SLOT | flag::DIRTY);
            }
            Kind::File if self.pages.has(page, flag::DIRTY) => return self.dirty_file(page, manner, out),
            _ => {}
        }
        if self.pages.has(page, flag::DIRTY) {
            return if manner.may_write { self.write(page, out) } else { Fate::Kept };
        }
        let workingset = self.pages.has(page, flag::WORKINGSET);
        let shadow = Shadow::new(self.clock(self.pages.domain(page)), workingset);
        if self.pages.kind(page) == Kind::File || self.config.rules == Rules::Late {
            self.age(page);
        }
        let has_slot = self.pages.has(page, flag::SLOT);
        self.pages.forget(page);
        self.free += 1;
        out.push(Order::Freed { page, has_slot, shadow });
        Fate::Freed
    }

    /// Dirty pages of files are for the flushers, but for an early kswapd that sees nothing else.
    fn dirty_file(&mut self, page: PageNumber, manner: &Manner, out: &mut Orders) -> Fate {
        let is_early = self.config.rules == Rules::Early;
        if is_early && manner.who == Reclaimer::Background && self.tail_dirty {
            return self.write(page, out);
        }
        self.pages.set(page, flag::RECLAIM);
        self.counters.nr_vmscan_immediate_reclaim += 1;
        self.counters.dirty_files_met += 1;
        if is_early { Fate::Kept } else { Fate::Activated }
    }

    /// It comes back at the tail when it is written: a page needs two visits.
    fn write(&mut self, page: PageNumber, out: &mut Orders) -> Fate {
        self.counters.nr_vmscan_write[self.pages.kind(page) as usize] += 1;
        self.pages.take(page, flag::DIRTY);
        self.pages.set(page, flag::WRITEBACK | flag::RECLAIM);
        out.push(Order::Write { page });
        Fate::Written
    }
}
