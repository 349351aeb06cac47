//! The ends of transfers: reads, writes and unmaps that were ordered and are done, and mapping a page.

use crate::event::{Action, Actions, IoId, Run, Unmapped, Warning, WriteResult};
use crate::list::ListId;
use crate::mm::{ANSWERED, IoKind, Mm};
use crate::page::{State, flag};
use crate::readahead::SwapIn;
use crate::reclaim::policy::Waited;
use crate::swap::{AreaId, Backing};
use crate::types::{PageId, RegionKind, Slot};

impl<P: SwapIn> Mm<P> {
    /// Puts a page that has a frame in the swap cache into the program's view and answers its fault.
    pub(crate) fn map(&mut self, id: PageId, list: ListId, out: &mut Actions) {
        // With hardware bits a page keeps its place in the order of use when it comes into view:
        // its arrival counts.
        let stays =
            self.pages[id].list == ListId::Inactive as u8 || self.pages[id].list == ListId::Active as u8;
        if !stays {
            self.lists.remove(&mut self.pages, id);
        }
        self.pages.set_state(id, State::Mapped);
        self.note_answered(id, self.pages[id].has(flag::WANTED) || list == ListId::Active);
        let page = &mut self.pages[id];
        page.clear(flag::WANTED | flag::WANTED_WRITE | flag::EAGER | flag::RETRIED | flag::ACTIVATE);
        let is_in_file = page.slot().is_some_and(Slot::is_file);
        if !self.config.probe.is_kernel() {
            page.clear(flag::TESTED);
        }
        // The program may store at any time from now on, unseen. Whether it did to a page of a file
        // is told when the page is taken; where it never came into view it did not.
        if !is_in_file && !self.config.probe.tells_stores() {
            page.set(flag::DIRTY);
        }
        let keeps_slot = self.config.compares || self.config.probe.is_kernel() && !self.gives_slot_up(id);
        if !is_in_file && (!keeps_slot || self.areas.is_tight()) {
            self.release_slot(id);
            self.pages[id].set(flag::DIRTY);
        }
        if !stays {
            if list == ListId::Active && !self.config.probe.is_kernel() {
                self.stats.pgactivate += 1;
                self.clock = self.clock.wrapping_add(1);
            }
            self.enlist(list, id);
        }
        self.note_view_change();
        out.push_map(id);
    }

    /// Remembers a page that somebody is about to touch; `surely`: for longer than until the next one.
    pub(crate) fn note_answered(&mut self, id: PageId, surely: bool) {
        self.answered[self.answers % ANSWERED] = id;
        self.answers += usize::from(surely);
    }

    /// A shared page lives in the page cache once it is back; the kernel frees its slot at once.
    fn gives_slot_up(&mut self, id: PageId) -> bool {
        let (space, vpn) = self.pages.place(id);
        self.kind(space, vpn) == RegionKind::Shared
    }

    pub(crate) fn read_done(&mut self, io: IoId, ok: bool, unpacked: bool, out: &mut Actions) {
        let drains = self.ios[io.0 as usize].kind == IoKind::Drain;
        let run = self.take_io(io, if drains { IoKind::Drain } else { IoKind::Read });
        if drains {
            let slot = self.slot_of(run.first);
            self.areas.drain_ends(slot, run.count);
        }
        self.keep_pace(run, out);
        let waits = ok && self.waits_for_mark(run);
        for id in run.pages() {
            assert_eq!(self.pages[id].state, State::Reading, "what was read was being read");
            self.reading -= 1;
            if self.pages[id].has(flag::DISCARDED) {
                self.drop_discarded(id, out);
            } else if ok {
                if self.pages[id].has(flag::WANTED) {
                    self.reclaim.get().paid(unpacked);
                }
                if unpacked && self.pages[id].has(flag::READ_AHEAD) && !self.pages[id].has(flag::MARKER) {
                    self.pages[id].set(flag::EAGER);
                }
                self.arrived(id, waits, out);
            } else {
                self.read_failed(id, out);
            }
        }
    }

    fn arrived(&mut self, id: PageId, waits: bool, out: &mut Actions) {
        self.pages[id].clear(flag::DIRTY | flag::RETRIED);
        self.leave_slot(id);
        self.share_slot(id);
        let list = if self.pages[id].has(flag::ACTIVATE) { ListId::Active } else { ListId::Inactive };
        if self.pages[id].has(flag::WANTED) {
            self.map(id, list, out);
        } else if self.is_filler(id) {
            self.pages.set_state(id, State::Cached);
            self.enlist(ListId::Filler, id);
        } else if !waits && (self.pages[id].has(flag::EAGER) || self.pause.is_some()) {
            let is_foreseen = !self.config.probe.is_kernel() && self.pages[id].has(flag::READ_AHEAD);
            let list = if is_foreseen { self.foreseen(id) } else { list };
            self.count_eager(id);
            self.map(id, list, out);
        } else {
            self.pages.set_state(id, State::Cached);
            // The kernel has one order of use for pages in view and pages of the swap cache.
            self.enlist(if self.config.probe.is_kernel() { list } else { ListId::Cache }, id);
        }
    }

    /// A read-ahead page goes into the program's view unseen; it counts as a hit when the next
    /// marker is touched.
    pub(crate) fn count_eager(&mut self, id: PageId) {
        let is_file = self.is_in_file(id);
        if self.pages[id].take(flag::READ_AHEAD)
            && let Some(region) = self.region_of(id)
        {
            region.eager_pending[usize::from(is_file)] += 1;
        }
    }

    /// A window whose read failed is given up; a page that a fault waits for, or a fork, is read
    /// once more, alone.
    fn read_failed(&mut self, id: PageId, out: &mut Actions) {
        out.push_free(id);
        let needed = self.pause.is_some() || self.pages[id].has(flag::WANTED);
        if self.is_filler(id) {
            self.pages[id].clear(flag::FILLER);
        }
        let page = &mut self.pages[id];
        page.clear(flag::READ_AHEAD | flag::MARKER | flag::EAGER | flag::ACTIVATE);
        if needed && !page.has(flag::RETRIED) {
            page.set(flag::RETRIED);
            let slot = self.slot_of(id);
            self.reading += 1;
            self.read(IoKind::Read, Run::one(id), slot, out);
            return;
        }
        page.clear(flag::WANTED | flag::WANTED_WRITE | flag::RETRIED);
        self.pages.set_state(id, State::Swapped);
        self.held -= 1;
        if needed {
            self.pages[id].set(flag::LOST);
            if let Some(slot) = self.pages[id].area_slot() {
                self.areas.told(slot);
            }
            out.push(Action::Warn(Warning::PageLost));
            out.push(Action::Fail { page: id });
        }
    }

    pub(crate) fn write_done(&mut self, io: IoId, result: WriteResult, out: &mut Actions) {
        let run = self.take_io(io, IoKind::Write);
        let first = self.slot_of(run.first);
        self.areas.write_ended(first, run.count);
        match result {
            WriteResult::Done => {}
            WriteResult::NoSpace => self.close(first),
            WriteResult::Failed => self.area_failed(self.areas.area_of(first), out),
        }
        for id in run.pages() {
            assert_eq!(self.pages[id].state, State::Writing, "what was written was being written");
            self.writing -= 1;
            match result {
                WriteResult::Done => self.pages[id].clear(flag::DIRTY),
                WriteResult::NoSpace => self.release_slot(id),
                WriteResult::Failed => {
                    let slot = self.slot_of(id);
                    self.pages[id].backing = Backing::NOTHING;
                    self.areas.condemn(slot);
                }
            }
            if self.pages[id].has(flag::DISCARDED) {
                self.drop_discarded(id, out);
            } else if self.pages[id].has(flag::WANTED) || self.pause.is_some() {
                // A refault in mid-write proves use to the pager; the kernel waits for the access bits.
                let list = self.touched(id, Waited::Written);
                self.map(id, list, out);
            } else if self.pages[id].has(flag::EAGER) {
                self.asked_on_its_way_out(id, out);
            } else if result == WriteResult::Done && !self.rescue(id) {
                self.evict(id, out);
            } else {
                self.pages.set_state(id, State::Cached);
                self.lists.push_head(&mut self.pages, ListId::Cache, id);
            }
        }
    }

    /// The backing has no room: its area takes no more.
    fn close(&mut self, slot: Slot) {
        self.areas.close(slot);
        self.warn_full();
    }

    /// The backing has failed: its area takes no more, and what is in it is brought elsewhere if
    /// that can be.
    pub(crate) fn area_failed(&mut self, area: AreaId, out: &mut Actions) {
        if self.areas.fail(area) {
            out.push(Action::Warn(Warning::AreaRetired));
        }
        self.warn_full();
    }

    /// A cached page whose slot is valid leaves RAM.
    pub(crate) fn evict(&mut self, id: PageId, out: &mut Actions) {
        assert!(
            self.pages[id].slot().is_some() && !self.pages[id].has(flag::DIRTY),
            "only a clean page leaves RAM"
        );
        self.note_eviction(id);
        self.lists.remove(&mut self.pages, id);
        self.pages.set_state(id, State::Swapped);
        self.held -= 1;
        self.clock = self.clock.wrapping_add(1);
        self.pages[id].prev = self.clock;
        // The pager's means something else: that it failed its test.
        let forgotten = if self.config.probe.is_kernel() { flag::SECOND_LOOK } else { 0 };
        self.pages[id].clear(flag::REFERENCED | flag::EAGER | forgotten);
        self.count_steal(id);
        self.note_evicted(id);
        out.push_free(id);
    }

    pub(crate) fn unmapped(&mut self, run: Run, result: Unmapped, out: &mut Actions) {
        let content = result.zero | result.same;
        assert!(run.count <= 64 && content & !result.taken == 0 && result.taken & result.gone == 0);
        let mut refused = 0;
        for (index, id) in run.pages().enumerate() {
            assert!(self.pages[id].take(flag::UNMAPPING), "only what was to be unmapped is reported");
            self.unmapping -= 1;
            self.leaving -= u32::from(self.pages[id].take(flag::LEAVING));
            let bit = 1u64 << index;
            // Cleared whatever the answer: left behind, it would make the next answer about this
            // page a wrong one.
            let unviewed = self.pages[id].take(flag::UNVIEWED);
            let shows_zero = self.pages[id].take(flag::SHOWS_ZERO);
            if result.taken & bit != 0 && result.same & bit == 0 && self.is_in_file(id) {
                self.pages[id].set(flag::DIRTY);
                self.count_as_stored_to(id);
            }
            if result.taken & bit != 0 || unviewed {
                self.taken(id, result.zero & bit != 0, result.same & bit != 0, out);
            } else if result.gone & bit != 0 || self.pages[id].has(flag::DISCARDED) {
                self.held -= 1;
                self.forget_and_answer(id, out);
            } else {
                refused += 1;
                self.still_busy(id, out);
                if shows_zero {
                    self.shows_zeroes_again(id);
                }
            }
        }
        self.note_refused(refused, run.count - refused);
    }

    fn taken(&mut self, id: PageId, zero: bool, same: bool, out: &mut Actions) {
        self.pages.set_state(id, State::Cached);
        self.pages[id].clear(flag::REFERENCED);
        if same {
            assert!(self.pages[id].slot().is_some(), "only what has a slot is like it");
            self.pages[id].clear(flag::DIRTY);
        }
        self.leave_slot(id);
        let is_tested = self.was_tested(id);
        if self.pages[id].has(flag::DISCARDED) {
            self.drop_discarded(id, out);
        } else if self.pages[id].has(flag::WANTED) || self.pause.is_some() {
            let list = self.touched(id, if is_tested { Waited::Tested } else { Waited::ToLeave });
            self.map(id, list, out);
        } else if zero && self.region_of(id).is_none_or(|region| region.kind.is_zero_at_first()) {
            if is_tested {
                self.count_scan(id);
                self.reclaim.get().emptied();
            }
            self.stats.zero_dropped += 1;
            self.zeroes.note_shown(1);
            self.count_steal(id);
            self.held -= 1;
            self.forget(id);
            self.pages.set_blank(id);
            out.push_free(id);
        } else if self.pages[id].has(flag::EAGER) {
            self.asked_on_its_way_out(id, out);
        } else if self.is_passed(id) {
            if is_tested {
                self.count_scan(id);
            }
            self.stats.clean_dropped += 1;
            self.evict(id, out);
        } else {
            let list = if is_tested { ListId::Tested } else { ListId::Cache };
            self.lists.push_head(&mut self.pages, list, id);
        }
    }

    /// Was the page taken out of view to be tested? Of one that makes room it is not known yet.
    fn was_tested(&mut self, id: PageId) -> bool {
        if self.config.probe.is_kernel() || self.pages[id].take(flag::MAKES_ROOM) {
            return false;
        }
        self.pages[id].take(flag::TESTED)
    }

    /// Pinned, shared after a fork, or in a range that is changing: look again after a full round
    /// of the list.
    fn still_busy(&mut self, id: PageId, out: &mut Actions) {
        if !self.config.probe.is_kernel() && self.pages[id].has(flag::MAKES_ROOM) {
            // It has not made room, so it has not failed a test either.
            self.pages[id].clear(flag::TESTED);
        }
        let is_tested = self.was_tested(id);
        let list = if is_tested { ListId::Active } else { ListId::Inactive };
        self.lists.push_head(&mut self.pages, list, id);
        let page = &mut self.pages[id];
        page.clear(flag::EAGER);
        if page.take(flag::WANTED) {
            page.clear(flag::WANTED_WRITE);
            out.push(Action::Wake { run: Run::one(id) });
        }
    }

    /// The program dropped the page while it was on its way; what arrived is thrown away.
    fn drop_discarded(&mut self, id: PageId, out: &mut Actions) {
        self.held -= 1;
        out.push_free(id);
        self.forget_and_answer(id, out);
    }

    /// The page is untouched again; a fault that waited tries again and finds it so.
    pub(crate) fn forget_and_answer(&mut self, id: PageId, out: &mut Actions) {
        self.forget(id);
        if self.pages[id].has(flag::QUEUED) {
            self.waiting.remove(&mut self.pages, id);
        }
        let page = &mut self.pages[id];
        if page.take(flag::WANTED) {
            out.push(Action::Wake { run: Run::one(id) });
        }
        self.pages[id].flags = 0;
    }

    pub(crate) fn not_mapped(&mut self, run: Run) {
        self.note_view_change();
        for id in run.pages() {
            assert_eq!(self.pages[id].state, State::Mapped, "only what was to be mapped is reported");
            if self.pages[id].has(flag::UNMAPPING) {
                // Reclaim chose it in the very step that mapped it: the answer to its unmap settles
                // where it is.
                self.pages[id].set(flag::UNVIEWED);
                continue;
            }
            self.lists.remove(&mut self.pages, id);
            self.pages.set_state(id, State::Cached);
            // From there it leaves without a further look.
            self.count_scan(id);
            self.lists.push_head(&mut self.pages, ListId::Cache, id);
        }
    }

    pub(crate) fn not_filled(&mut self, run: Run) {
        self.note_view_change();
        for id in run.pages() {
            if self.pages[id].state == State::Zero {
                self.forget(id);
                continue;
            }
            assert_eq!(self.pages[id].state, State::Mapped, "only what was to be filled is reported");
            if self.pages[id].has(flag::UNMAPPING) {
                // The answer to that settles what is there, if anything is.
                continue;
            }
            self.held -= 1;
            self.forget(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readahead::none::NoReadAhead;
    use crate::reclaim::policy::Choice;
    use crate::types::{RegionKind, SpaceId, Vpn};
    use alloc::vec::Vec;

    use crate::{Config, Event, Probe, Unmapped};

    /// *The story:* a page that was to make room and was busy kept the mark of a failed test. When it
    /// left at last it was taken for one that is being tested, and kept its frame for good.
    #[test]
    fn a_busy_page_that_was_to_make_room_has_failed_no_test() {
        let (start, end, space) = (Vpn(0), Vpn(4096), SpaceId(0));
        let mut mm = Mm::new(Config { cache: 300, ..Config::live(1000, 8192) }, NoReadAhead);
        let mut out = Actions::new();
        mm.step(0, Event::RegionAdded { space, start, end, kind: RegionKind::Anon }, &mut out);
        mm.step(0, Event::Resident { space, start, end: Vpn(900) }, &mut out);
        mm.step(0, Event::Budget { frames: 800 }, &mut out);
        let order = |action| if let Action::Unmap { run } = action { Some(run) } else { None };
        let runs: Vec<Run> = out.drain().filter_map(order).collect();
        assert!(!runs.is_empty(), "some have to leave");
        for run in runs {
            run.pages().for_each(|id| mm.pages[id].set(flag::TESTED | flag::MAKES_ROOM));
            mm.step(0, Event::Unmapped { run, result: Unmapped::default() }, &mut out);
            assert!(run.pages().all(|id| !mm.pages[id].has(flag::TESTED | flag::MAKES_ROOM)));
        }
    }

    /// *The story:* when one page was found idle its neighbours left the view with it, and their
    /// accessed bits were dropped; one that was to make room and was found in use stayed marked.
    #[test]
    fn a_page_that_is_known_to_be_used_stays_in_view_and_has_failed_no_test() {
        let (start, end, space) = (Vpn(0), Vpn(4096), SpaceId(0));
        let probe = Probe::Accessed;
        // So that all are inactive.
        let reclaim = Choice::Fifo;
        let mut mm = Mm::new(Config { cache: 300, probe, reclaim, ..Config::live(1000, 8192) }, NoReadAhead);
        let mut out = Actions::new();
        mm.step(0, Event::RegionAdded { space, start, end, kind: RegionKind::Anon }, &mut out);
        mm.step(0, Event::Resident { space, start, end: Vpn(900) }, &mut out);
        let is_inactive = |mm: &Mm<NoReadAhead>, id: PageId| mm.pages[id].list == ListId::Inactive as u8;
        let used: Vec<PageId> =
            (0..512).map(PageId).filter(|&id| id.0 % 2 == 1 && is_inactive(&mm, id)).collect();
        for &id in &used {
            mm.pages[id].set(flag::REFERENCED | flag::TESTED | flag::MAKES_ROOM);
        }
        mm.step(0, Event::Budget { frames: 800 }, &mut out);
        let order = |action| if let Action::Unmap { run } = action { Some(run) } else { None };
        let mut leaving = out.drain().filter_map(order).flat_map(Run::pages).peekable();
        assert!(leaving.peek().is_some(), "some have to leave");
        assert!(leaving.all(|id| !mm.pages[id].has(flag::REFERENCED)));
        let seen: Vec<_> = used.iter().filter(|&&id| !mm.pages[id].has(flag::REFERENCED)).collect();
        assert!(!seen.is_empty() && seen.iter().all(|&&id| !mm.pages[id].has(flag::TESTED)));
    }
}
