//! Areas that leave: what is in them is brought elsewhere, a little at a time, while frames are
//! spare.
//!
//! A page that is in RAM gives its slot up and is dirty. A page on swap is read, gives its slot up
//! when it arrives, and leaves RAM as any other does, for another area. So after one round over all
//! slots, once nothing is under way, only pages whose read failed are left; a second round reads
//! them one by one, since a read of many fails as a whole, and what the third finds stays where it
//! is, until its owner has gone or has been told. Also here: freed clusters are handed to the shell.
//!
//! One that was ordered to go begins when the others have room for all that the program has, but for
//! a part of what is in RAM. Before that it goes on taking what nobody else does.

use crate::event::{Action, Actions};
use crate::fault::Reads;
use crate::mm::Mm;
use crate::page::{State, flag};
use crate::readahead::SwapIn;
use crate::swap::AreaId;
use crate::types::PageId;

/// Slots looked at in a step, and pages under way, for each area that leaves.
const LOOKS: u32 = 256;
const READS_MAX: u32 = 64;

impl<P: SwapIn> Mm<P> {
    /// Ends every step.
    pub(crate) fn keep_areas(&mut self, out: &mut Actions) {
        if self.areas.are_asked() {
            let (pages, budget) = (self.held + self.pages.swapped(), self.config.budget);
            self.areas.leave_if_room(pages.saturating_sub(budget / 2), self.frames_to_spare() < budget / 4);
        }
        while let Some((slot, count)) = self.areas.next_discard() {
            out.push(Action::Discard { slot, count });
        }
        let mut next = AreaId(0);
        while let Some(area) = self.areas.leaving(next)
            && self.pause.is_none()
            && !self.is_settling
        {
            self.drain(area, out);
            next = AreaId(area.0 + 1);
        }
        let pages = &self.pages;
        let is_told = |id: PageId| pages[id].state == State::Swapped && pages[id].has(flag::LOST);
        while let Some(area) = self.areas.next_freed(is_told) {
            out.push(Action::AreaLeft { area, slots: 0 });
        }
        if self.areas.share_limits() {
            for (area, slots) in self.areas.claims() {
                out.push(Action::Claim { area, slots });
            }
        }
    }

    /// Nothing is ordered for areas that leave as long as the shell waits for all that is under way.
    ///
    /// *The story* (by reading): each read that ended while a mremap waited for that ordered the next
    /// ones. The program stood still until the area was empty.
    pub fn settle_transfers(&mut self, is_settling: bool) {
        self.is_settling = is_settling;
    }

    /// A page of an area that leaves has arrived in RAM: it has no slot any more.
    pub(crate) fn leave_slot(&mut self, id: PageId) {
        if let Some(slot) = self.pages[id].area_slot()
            && self.areas.is_leaving(slot)
        {
            self.release_slot(id);
            self.pages[id].set(flag::DIRTY);
        }
    }

    /// A page with a frame gives its slot in an area that leaves up, if another one takes it. False: it has
    /// none there, or keeps it.
    ///
    /// *The story* (by reading): clean pages went out of RAM, and those whose writes had just ended, to a
    /// device that was known to have failed. They had to be read there, to be rescued.
    pub(crate) fn rescue(&mut self, id: PageId) -> bool {
        let is_leaving = self.pages[id].area_slot().is_some_and(|slot| self.areas.is_leaving(slot));
        let goes_elsewhere = is_leaving && !self.areas.is_full();
        if goes_elsewhere {
            self.leave_slot(id);
        }
        goes_elsewhere
    }

    /// Does an area that is to go wait until there is room for what is in it?
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.areas.waits_to_leave()
    }

    /// *The story:* an area of which nothing was left to bring went on leaving while other threads read
    /// without pause, or while the others were full.
    ///
    /// *The other story* (by reading): the program's own reads counted as those for areas that leave. Beside
    /// a stream nothing was brought out of a device that failed, and an area that waited for one read kept
    /// all others waiting.
    fn drain(&mut self, area: AreaId, out: &mut Actions) {
        if self.areas.is_emptied(area) {
            out.push(Action::AreaLeft { area, slots: 0 });
            return;
        }
        if self.areas.is_full() || !self.waiting.is_empty() {
            return;
        }
        let mut reads = Reads::draining();
        let mut room = self.spare_frames().min(READS_MAX.saturating_sub(self.areas.draining(area)));
        let mut looks = LOOKS;
        while room > 0 && looks > 0 {
            looks -= 1;
            match self.areas.next_leaving(area) {
                Some((_, id)) => room -= u32::from(self.drain_page(area, id, &mut reads, out)),
                None => {
                    self.end_round(area, out);
                    break;
                }
            }
        }
        self.flush(&mut reads, out);
    }

    /// The round is over once nothing that it ordered is under way; then there is another one, or the area
    /// has been left.
    fn end_round(&mut self, area: AreaId, out: &mut Actions) {
        if self.areas.is_busy(area) {
            return;
        }
        if let Some(slots) = self.areas.round_ends(area) {
            out.push(Action::AreaLeft { area, slots });
        }
    }

    /// True: it is being read.
    fn drain_page(&mut self, area: AreaId, id: PageId, reads: &mut Reads, out: &mut Actions) -> bool {
        let page = &self.pages[id];
        let is_busy = page.has(flag::UNMAPPING | flag::QUEUED | flag::WANTED);
        let round = self.areas.round(area);
        match page.state {
            _ if is_busy => self.areas.look_again(area),
            State::Mapped | State::Cached => self.leave_slot(id),
            State::Swapped if round < 2 && !page.has(flag::LOST) => {
                self.read_for_draining(id, reads, out);
                if round == 1 {
                    self.flush(reads, out);
                }
                return true;
            }
            State::Swapped => {}
            State::Untouched | State::Zero | State::Reading | State::Writing => self.areas.look_again(area),
        }
        false
    }
}
