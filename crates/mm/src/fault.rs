//! Faults: what happens when the program touches a page that is not in its view.
//!
//! Every fault gets exactly one answer: at once when the page has a frame, when its read or write
//! ends if one is under way, or when a frame is free. Read-ahead is asked here and nowhere else.

use crate::event::{Action, Actions, Run};
use crate::list::ListId;
use crate::mm::{IoKind, Mm};
use crate::overfull::{STUCK_FILL, STUCK_WINDOW};
use crate::pace::Held;
use crate::page::{State, flag};
use crate::readahead::{Mapping, Plan, SAMPLES, SwapIn, Touch, Window};
use crate::reclaim::live::REFUSED_MIN;
use crate::reclaim::policy::{Arrival, Away, Follows, Noted, Waited};
use crate::region::Region;
use crate::stats::Ahead;
use crate::types::{Access, CHUNK_PAGES, PageId, RegionKind, Slot, SpaceId, Vpn};

/// Pages that come back into view together: an aligned group, of a chunk.
const AROUND: u32 = 64;
const _: () = assert!(CHUNK_PAGES.is_multiple_of(AROUND as u64));

impl<P: SwapIn> Mm<P> {
    pub(crate) fn fault(&mut self, space: SpaceId, vpn: Vpn, access: Access, out: &mut Actions) {
        self.stats.pgfault += 1;
        assert!(self.regions.find(space, vpn).is_some(), "faults come from managed pages only");
        let id = self.pages.lookup_or_create(space, vpn);
        self.back_by_file(id);
        let page = &mut self.pages[id];
        if page.has(flag::WANTED) {
            // A second thread, or the same one after a signal: one answer wakes them all.
            page.set(wanted(access) & flag::WANTED_WRITE);
            return;
        }
        match page.state {
            State::Untouched | State::Zero if access == Access::Read => self.first_read(id, out),
            State::Untouched | State::Zero | State::Swapped => self.bring_in(id, access, out),
            State::Cached => self.soft_fault(id, out),
            State::Reading | State::Writing => {
                page.set(wanted(access));
                self.stats.soft_fault += 1;
                self.touched_cached(id, out);
            }
            State::Mapped if page.has(flag::UNMAPPING) => page.set(wanted(access)),
            State::Mapped => out.push(Action::Wake { run: Run::one(id) }),
        }
    }

    /// Gets a frame for a page that has none, or queues the fault until there is one.
    pub(crate) fn bring_in(&mut self, id: PageId, access: Access, out: &mut Actions) {
        if self.frames_suffice(id) || self.pause.is_some() {
            return self.start(id, access, out);
        }
        self.stats.allocstall += 1;
        self.pages[id].set(wanted(access));
        self.waiting.push(&mut self.pages, id);
    }

    /// Fills or reads a page that has no frame; the caller has seen to the budget.
    pub(crate) fn start(&mut self, id: PageId, access: Access, out: &mut Actions) {
        match self.pages[id].state {
            State::Untouched => self.zero_fill(id, out),
            State::Zero => self.take_stores(id, out),
            State::Swapped => self.swap_in(id, access, out),
            state => unreachable!("a page in state {state:?} has a frame"),
        }
    }

    /// First touch: zeroes, for as many following untouched pages as there are used ones before it.
    fn zero_fill(&mut self, id: PageId, out: &mut Actions) {
        let run = self.give_frames(id, State::Untouched);
        out.push(Action::ZeroFill { run });
    }

    /// First frames for a page in this state, which has none, and for as many like it behind it as
    /// there are used ones before it, as far as frames are free, or nothing can leave anyway.
    ///
    /// *The story:* of memory that was locked where it is touched (MLOCK_ONFAULT) each page by itself was
    /// waited for, once it had used up the budget: 192 MiB in 64 took ten times as long as bare.
    pub(crate) fn give_frames(&mut self, id: PageId, state: State) -> Run {
        let (space, vpn) = self.pages.place(id);
        let wished = self.batch_for(id, |state| !matches!(state, State::Untouched | State::Zero));
        // The wish counts: by what was granted a filler that found few frames free got ever fewer
        // (see `reclaim::appetite`).
        self.appetite.observe(wished);
        let is_stuck = self.is_stuck(Some(id));
        let least = if is_stuck { STUCK_FILL } else { 1 };
        let batch = wished.min(self.spare_frames().max(least)).max(1);
        let arrival = Arrival::Touched(self.kind(space, vpn));
        let mut count = 0;
        while count < batch {
            let next = PageId(id.0 + count);
            if self.pages[next].state != state || self.pages[next].has(flag::QUEUED) {
                break;
            }
            self.pages.set_state(next, State::Mapped);
            let page = &mut self.pages[next];
            page.clear(flag::WANTED | flag::WANTED_WRITE | flag::BEHIND);
            page.set(flag::DIRTY);
            self.admit(next, arrival);
            count += 1;
        }
        assert!(count > 0, "the faulting page itself is in this state");
        self.note_answered(id, true);
        self.take_frames(count);
        if is_stuck {
            self.try_more_for(REFUSED_MIN * (count - 1));
        }
        self.stats.zero_fill += u64::from(count);
        self.note_view_change();
        Run { first: id, count }
    }

    /// Puts a page with its first frame where the policy wants it.
    pub(crate) fn admit(&mut self, id: PageId, arrival: Arrival) {
        let scene = self.part_scene(self.lists.part(id));
        let policy = self.reclaim.get();
        let list = policy.admit(&scene, arrival);
        policy.arrived(scene.part, 1);
        self.note(id, Noted::Arrived);
        self.enlist(list, id);
    }

    /// What backs the page.
    pub(crate) fn kind(&mut self, space: SpaceId, vpn: Vpn) -> RegionKind {
        self.regions.find(space, vpn).map_or(RegionKind::Anon, |region| region.kind)
    }

    /// Frames that read-ahead and batches may take: not the ones kept for faults.
    ///
    /// A kernel keeps nothing back: the pages of a window are allocated as the fault's own is.
    /// *The story:* those of 2012 and 2017 have a low watermark, a quarter of which was kept back, so
    /// their first windows in full memory were one page.
    pub(crate) fn spare_frames(&self) -> u32 {
        let free = self.frames_free();
        if self.config.probe.is_kernel() {
            return free;
        }
        // Of the float no more than half waits for faults, however few it is.
        let kept = if self.held > self.config.budget { free / 2 } else { u32::MAX };
        free.saturating_sub(kept.min(self.low() / 4))
    }

    fn soft_fault(&mut self, id: PageId, out: &mut Actions) {
        self.stats.soft_fault += 1;
        let (is_whole, is_filler) = (self.is_of_waiting_chunk(id), self.is_filler(id));
        self.touched_cached(id, out);
        // The plan may have read ahead, never touched this page: it is still in the swap cache.
        let list = if self.pages[id].has(flag::REFERENCED) {
            let is_tested = self.pages[id].list == ListId::Tested as u8;
            self.touched(id, if is_tested { Waited::Tested } else { Waited::ToLeave })
        } else {
            self.foreseen(id)
        };
        if is_whole {
            return self.map_chunk(id, list, out);
        }
        self.map(id, list, out);
        if is_filler {
            return self.follow_filler(id, out);
        }
        if list == ListId::Active {
            self.follow(id, out);
        }
    }

    /// A page that waited out of view is in use. Those around it that wait, too, come back with one
    /// action in place of one fault each, as far as the policy says so.
    ///
    /// *The story:* only a unit of 16 pages came back, and only with its second page. In programs with
    /// many small objects neighbours are used together, and more of them than that: of clamscan in 80 % of
    /// its memory a third of the soft faults and waits went with this and a second chance for one page in
    /// 64 (33,600 and 24,200 to 19,900 and 15,900). At random it costs 50,000 pages that come back for
    /// nothing, beside 5,000 soft faults.
    fn follow(&mut self, id: PageId, out: &mut Actions) {
        let (group, is_sure) = match self.reclaim.peek().follows() {
            Follows::Nobody => return,
            Follows::Unit => (self.config.unit, false),
            Follows::Around => (AROUND, true),
        };
        let first = id.0 / group * group;
        let pages = (first..first + group).map(PageId);
        let is_wanted = |page| {
            page != id && self.pages[page].state == State::Mapped && self.pages[page].has(flag::REFERENCED)
        };
        if !is_sure && !pages.clone().any(is_wanted) {
            return;
        }
        for page in pages {
            let is_told_of = self.pages[page].has(flag::READ_AHEAD | flag::MARKER);
            if self.pages[page].state == State::Cached && !is_told_of {
                let is_tested = self.pages[page].list == ListId::Tested as u8;
                self.map(page, if is_tested { ListId::Active } else { ListId::Inactive }, out);
            }
        }
    }

    /// Tells the policy that a fault found its page in the swap cache, and reads what it asks for.
    fn touched_cached(&mut self, id: PageId, out: &mut Actions) {
        let (space, vpn) = self.pages.place(id);
        let page = &mut self.pages[id];
        // The kernel marks pages on their way out with the same bit as pages read ahead (specification 1.4).
        let on_its_way_out = self.config.probe.is_kernel() && page.state == State::Writing;
        let read_ahead = page.take(flag::READ_AHEAD) || on_its_way_out;
        let marker = page.take(flag::MARKER);
        let arriving = page.state == State::Reading;
        let is_file = page.slot().is_some_and(Slot::is_file);
        if !read_ahead {
            page.set(flag::REFERENCED);
            page.clear(flag::BEHIND);
        } else if is_file {
            page.clear(flag::FILLER);
        }
        let touch = self.touch(id);
        let Some(region) = self.regions.find(space, vpn) else { return };
        let mut hits = if marker { core::mem::take(&mut region.eager_pending) } else { [0; 2] };
        hits[usize::from(is_file)] += u32::from(read_ahead);
        for (is_file, hits) in [false, true].into_iter().zip(hits) {
            region.stats.note_ahead(Ahead::Used, is_file, hits.into());
            self.stats.note_ahead(Ahead::Used, is_file, hits.into());
        }
        let touch = Touch { read_ahead, marker, arriving, ..touch(region) };
        if let Some(plan) = self.policy.cached(&mut region.readahead, &touch) {
            self.issue((space, vpn), &plan, out);
        }
    }

    fn swap_in(&mut self, id: PageId, access: Access, out: &mut Actions) {
        let (space, vpn) = self.pages.place(id);
        self.stats.pgmajfault += 1;
        self.note_return(id, false);
        let left_at = self.pages[id].prev;
        self.refault(id);
        let slot = self.slot_of(id);
        let touch = self.touch(id);
        let plan = self.regions.find(space, vpn).and_then(|region| {
            region.stats.pgmajfault += 1;
            let touch = Touch { left_at, ..touch(region) };
            self.policy.miss(&mut region.readahead, &touch)
        });
        self.start_reading(id);
        self.pages[id].set(wanted(access));
        match plan {
            Some(plan) => self.issue_around((space, vpn), &plan, id, out),
            None => self.read(IoKind::Read, Run::one(id), slot, out),
        }
    }

    /// What the policy is told about a fault, once the region is at hand too.
    fn touch(&self, id: PageId) -> impl FnOnce(&Region<P::Region>) -> Touch + use<P> {
        let (now, clock, area_slots) = (self.now, self.clock, self.areas.len());
        let room = if self.config.fills_room && self.pause.is_none() { self.frames_unused() } else { 0 };
        let vpn = self.pages.place(id).1;
        // Detectors that go by slot have nothing to say of files.
        let slot = self.pages[id].area_slot();
        move |region| Touch {
            now,
            vpn,
            slot,
            area_slots,
            region_start: region.start,
            region_end: region.end,
            kind: region.kind,
            clock,
            left_at: clock,
            room,
            read_ahead: false,
            marker: false,
            arriving: false,
        }
    }

    /// Counts a refault and decides, by its distance, on which list the page goes when it arrives
    /// (section 5.7).
    fn refault(&mut self, id: PageId) {
        let evictions = self.evictions_away(id);
        self.pages[id].prev = crate::page::NONE;
        let (scene, stamp) = (self.scene_of_use(id), self.pages.stamp(id));
        let away = Away { evictions, stamp, failed: self.pages[id].take(flag::TESTED) };
        let place = self.reclaim.get().refault(&scene, &away);
        self.note(id, Noted::Arrived);
        let is_close = self.settle(id, place) == ListId::Active;
        self.count_refault(id, is_close);
        if is_close {
            self.pages[id].set(flag::ACTIVATE);
            // The kernel activates a page when it comes back, the pager when it is used.
            self.clock = self.clock.wrapping_add(u32::from(self.config.probe.is_kernel()));
        } else {
            self.pages[id].clear(flag::ACTIVATE);
        }
    }

    /// Evictions and activations in its part of memory since the page left.
    fn evictions_away(&self, id: PageId) -> u32 {
        let all = self.clock.wrapping_sub(self.pages[id].prev);
        self.lists.part_of(self.lists.part(id), u64::from(all)) as u32
    }

    /// Reads a plan that nobody waits for, at once or as soon as what its reader has passed is out.
    /// The page that was `asked` about need not be one of it.
    fn issue(&mut self, asked: (SpaceId, Vpn), plan: &Plan, out: &mut Actions) {
        self.pass(asked.0, plan, out);
        if !self.waits_for_passed(asked, plan) {
            self.issue_now(asked, plan, out);
        }
    }

    pub(crate) fn issue_now(&mut self, asked: (SpaceId, Vpn), plan: &Plan, out: &mut Actions) {
        let mut reads = Reads::default();
        self.issue_into(asked, plan, &mut reads, None, out);
        self.flush(&mut reads, out);
    }

    /// Reads a plan around the faulting page, which is already `Reading`.
    fn issue_around(&mut self, asked: (SpaceId, Vpn), plan: &Plan, wanted: PageId, out: &mut Actions) {
        self.pass(asked.0, plan, out);
        if plan.wanted_first {
            self.read(IoKind::Read, Run::one(wanted), self.slot_of(wanted), out);
            return self.issue_now(asked, plan, out);
        }
        let mut reads = Reads::default();
        let joined = self.issue_into(asked, plan, &mut reads, Some(wanted), out);
        self.flush(&mut reads, out);
        if !joined {
            self.read(IoKind::Read, Run::one(wanted), self.slot_of(wanted), out);
        }
    }

    /// Starts reading every page of the plan that is on swap, in ascending order. True when
    /// `wanted` was among them.
    fn issue_into(
        &mut self,
        asked: (SpaceId, Vpn),
        plan: &Plan,
        reads: &mut Reads,
        wanted: Option<PageId>,
        out: &mut Actions,
    ) -> bool {
        let space = asked.0;
        self.know_plan(space, plan);
        let is_stuck = self.is_stuck(wanted);
        let count = self.affordable(space, plan, wanted, is_stuck);
        let expelled = self.scans.expels();
        let mut joined = false;
        let mut ahead = 0;
        for index in 0..count {
            let Some(id) = self.plan_page(space, plan, ascending(plan, index, count)) else { continue };
            if Some(id) == wanted {
                joined = true;
            } else if self.is_on_swap(id) {
                self.read_ahead(id, plan.mapping, expelled);
                ahead += 1;
            } else {
                if self.policy.marks_cached() && self.pages[id].state == State::Cached {
                    self.pages[id].set(flag::READ_AHEAD);
                }
                continue;
            }
            self.add(reads, id, out);
        }
        if is_stuck {
            self.try_more_for(ahead as u32);
        }
        self.place_marker(space, plan, count);
        self.tell_issued(asked, plan, count, ahead as u32);
        joined
    }

    /// Makes entries for the pages of the plan that are of a file.
    pub(crate) fn know_plan(&mut self, space: SpaceId, plan: &Plan) {
        if let Window::Pages { start, stride, count } = plan.window {
            let last = start.offset(stride * i64::from(count.saturating_sub(1)));
            self.know_file_pages(space, start.min(last), start.max(last).offset(1));
        }
    }

    /// How many pages of the plan, in the order of use, the spare frames suffice for.
    fn affordable(&self, space: SpaceId, plan: &Plan, wanted: Option<PageId>, is_stuck: bool) -> u32 {
        let mut spare = self.spare_frames();
        if is_stuck {
            spare = spare.max(STUCK_WINDOW);
        }
        let count = plan_len(plan);
        for index in 0..count {
            let Some(id) = self.plan_page(space, plan, index) else { continue };
            if Some(id) != wanted && self.is_on_swap(id) {
                if spare == 0 {
                    return index;
                }
                spare -= 1;
            }
        }
        count
    }

    /// On swap, can be read as far as is known, and no fault waits for a frame for it.
    pub(crate) fn is_on_swap(&self, id: PageId) -> bool {
        self.pages[id].state == State::Swapped && !self.pages[id].has(flag::QUEUED | flag::LOST)
    }

    fn read_ahead(&mut self, id: PageId, mapping: Mapping, expelled: bool) {
        self.foretell(id);
        self.note_return(id, expelled);
        self.refault_quietly(id);
        self.start_reading(id);
        let waits = match mapping {
            Mapping::OnTouch => 0,
            Mapping::Filling => flag::FILLER,
            Mapping::Together | Mapping::Sampled => flag::EAGER,
        };
        self.pages[id].set(flag::READ_AHEAD | waits);
        self.note_ahead(id, Ahead::Read);
    }

    /// Counts what becomes of a page that is read ahead.
    pub(crate) fn note_ahead(&mut self, id: PageId, what: Ahead) {
        let is_file = self.is_in_file(id);
        self.stats.note_ahead(what, is_file, 1);
        if let Some(region) = self.region_of(id) {
            region.stats.note_ahead(what, is_file, 1);
        }
    }

    /// The policy hears of a page that is read ahead. Pages of files that a reader has passed leave
    /// out of turn: for how long they were away says nothing of those that leave in turn.
    fn foretell(&mut self, id: PageId) {
        if !self.config.probe.is_kernel() && !self.is_in_file(id) {
            let (scene, stamp) = (self.part_scene(self.lists.part(id)), self.pages.stamp(id));
            let evictions = self.evictions_away(id);
            let away = Away { evictions, stamp, failed: self.pages[id].has(flag::TESTED) };
            self.reclaim.get().read_ahead(&scene, &away);
        }
    }

    /// Tells the policy what its plan came to. The region is that of the page it was asked about: a
    /// plan may begin in a hole.
    fn tell_issued(&mut self, (space, vpn): (SpaceId, Vpn), plan: &Plan, covered: u32, read: u32) {
        let Some(region) = self.regions.find(space, vpn) else { return };
        if covered < plan_len(plan) {
            self.policy.cut_short(&mut region.readahead, plan, covered);
        }
        self.policy.issued(&mut region.readahead, plan, read);
    }

    /// A page is read that nobody asked for: the kernel looks at its distance all the same, the
    /// pager waits for its use.
    fn refault_quietly(&mut self, id: PageId) {
        if self.config.probe.is_kernel() {
            return self.refault(id);
        }
        self.count_refault(id, false);
        self.pages[id].prev = crate::page::NONE;
        self.pages[id].clear(flag::ACTIVATE);
    }

    /// A page that was read ahead is used, or comes into view in the belief that it will be: gives
    /// the list on which it belongs.
    pub(crate) fn foreseen(&mut self, id: PageId) -> ListId {
        let (scene, stamp) = (self.scene_of_use(id), self.pages.stamp(id));
        let failed = !self.config.probe.is_kernel() && self.pages[id].take(flag::TESTED);
        let place = self.reclaim.get().foreseen(&scene, &Away { evictions: u32::MAX, stamp, failed });
        self.note(id, Noted::Arrived);
        self.settle(id, place)
    }

    /// Marks the first page, from the wished one on in the order of use, that is being read ahead, or
    /// else the last before it; it and, under `Sampled`, the next ones stay out of the program's view
    /// until they are touched.
    ///
    /// *The story:* of a bet the last page is marked. Where that was in a hole nobody had the mark, and
    /// what was used to the last page was judged as read in vain.
    fn place_marker(&mut self, space: SpaceId, plan: &Plan, count: u32) {
        let Some(marker) = plan.marker else { return };
        let mut left = if plan.mapping == Mapping::Sampled { SAMPLES } else { 1 };
        let (mut reached, mut marked, mut before) = (false, false, None);
        for index in 0..count {
            let Some(id) = self.plan_page(space, plan, index) else { continue };
            reached |= self.pages.place(id).1 == marker;
            let page = &mut self.pages[id];
            if page.state != State::Reading || !page.has(flag::READ_AHEAD) {
                continue;
            }
            if !reached {
                before = Some(id);
                continue;
            }
            page.clear(flag::EAGER);
            if !marked {
                page.set(flag::MARKER);
                marked = true;
            }
            left -= 1;
            if left == 0 {
                return;
            }
        }
        // Of a window that was cut short the rest is asked for with the next miss.
        let is_whole = count == plan_len(plan) && holds(plan, marker);
        if let Some(last) = before.filter(|_| !marked && is_whole) {
            self.pages[last].clear(flag::EAGER);
            self.pages[last].set(flag::MARKER);
        }
    }

    pub(crate) fn plan_page(&self, space: SpaceId, plan: &Plan, index: u32) -> Option<PageId> {
        match plan.window {
            Window::Pages { start, stride, .. } => {
                let vpn = start.0.checked_add_signed(stride * i64::from(index))?;
                self.pages.lookup(space, Vpn(vpn))
            }
            Window::Slots { start, .. } => {
                let slot = Slot(start.0 + index);
                self.areas.owner(slot).filter(|&id| self.pages[id].slot() == Some(slot))
            }
        }
    }

    fn start_reading(&mut self, id: PageId) {
        assert_eq!(self.pages[id].state, State::Swapped, "only a page on swap is read");
        self.pages.set_state(id, State::Reading);
        self.pages[id].clear(flag::LOST);
        self.reclaim.get().arrived(self.lists.part(id), 1);
        self.take_frames(1);
        self.reading += 1;
    }

    /// A whole chunk of a file is one read: its frames may be one huge page.
    pub(crate) fn flush(&mut self, reads: &mut Reads, out: &mut Actions) {
        let Some((run, slot)) = reads.run.take() else { return };
        let is_whole = u64::from(run.count) == CHUNK_PAGES;
        let most = if is_whole { run.count } else { self.config.read_max };
        for done in (0..run.count).step_by(most as usize) {
            let part = Run { first: PageId(run.first.0 + done), count: most.min(run.count - done) };
            self.read(reads.kind(), part, Slot(slot.0 + done), out);
        }
    }

    /// Orders a read of pages that are `Reading` already, or keeps the order until it may start.
    pub(crate) fn read(&mut self, kind: IoKind, run: Run, slot: Slot, out: &mut Actions) {
        self.stats.read_ops += 1;
        let came_in = if slot.is_file() { &mut self.stats.file_in } else { &mut self.stats.pswpin };
        *came_in += u64::from(run.count);
        let io = self.new_io(kind, run);
        // A kernel's rules know no such thing.
        if self.config.probe.is_kernel() || self.pace.admit(Held { io, run, slot }) {
            out.push(Action::Read { io, run, slot });
        }
    }

    /// A read ended, so that another may start.
    pub(crate) fn keep_pace(&mut self, ended: Run, out: &mut Actions) {
        if self.config.probe.is_kernel() {
            return;
        }
        self.pace.ended(ended);
        while let Some(Held { io, run, slot }) = self.pace.release() {
            out.push(Action::Read { io, run, slot });
        }
    }

    /// Adds a page that no fault waits for to `reads`; it is mapped when it arrives.
    pub(crate) fn read_unasked(&mut self, id: PageId, reads: &mut Reads, out: &mut Actions) {
        self.refault_quietly(id);
        self.start_reading(id);
        self.pages[id].set(flag::EAGER);
        self.add(reads, id, out);
    }

    /// Adds a page to `reads` that leaves its area; it stays in the swap cache when it arrives.
    pub(crate) fn read_for_draining(&mut self, id: PageId, reads: &mut Reads, out: &mut Actions) {
        self.refault_quietly(id);
        self.start_reading(id);
        let slot = self.slot_of(id);
        self.areas.drain_begins(slot);
        self.add(reads, id, out);
    }

    /// Joins a page that is `Reading` to the read under construction, or begins another.
    fn add(&mut self, reads: &mut Reads, id: PageId, out: &mut Actions) {
        let slot = self.slot_of(id);
        let is_file = slot.is_file() && !self.config.probe.is_kernel();
        let most = if is_file { CHUNK_PAGES as u32 } else { self.config.read_max };
        if !reads.join(id, slot, most) {
            self.flush(reads, out);
            reads.run = Some((Run::one(id), slot));
        }
    }
}

/// A read that is being put together.
#[derive(Default)]
pub(crate) struct Reads {
    run: Option<(Run, Slot)>,
    /// For an area that leaves.
    drains: bool,
}

impl Reads {
    /// Of what an area that leaves is to give up.
    pub fn draining() -> Reads {
        Reads { run: None, drains: true }
    }

    fn kind(&self) -> IoKind {
        if self.drains { IoKind::Drain } else { IoKind::Read }
    }

    /// Adds a page whose place and slot follow the last ones. False when it does not fit.
    fn join(&mut self, id: PageId, slot: Slot, most: u32) -> bool {
        let Some((run, first)) = &mut self.run else { return false };
        let follows = run.first.0 + run.count == id.0 && first.0 + run.count == slot.0;
        if !follows || run.count >= most || id.0.is_multiple_of(CHUNK_PAGES as u32) {
            return false;
        }
        run.count += 1;
        true
    }
}

fn wanted(access: Access) -> u16 {
    match access {
        Access::Read => flag::WANTED,
        Access::Write => flag::WANTED | flag::WANTED_WRITE,
    }
}

pub(crate) fn plan_len(plan: &Plan) -> u32 {
    match plan.window {
        Window::Pages { count, .. } | Window::Slots { count, .. } => count,
    }
}

/// Is this one of the plan's places, whatever is there?
fn holds(plan: &Plan, vpn: Vpn) -> bool {
    match plan.window {
        Window::Pages { start, stride, count } => {
            (0..count).any(|index| start.offset(stride * i64::from(index)) == vpn)
        }
        Window::Slots { .. } => true,
    }
}

/// The `index`-th page of the plan by ascending address.
fn ascending(plan: &Plan, index: u32, count: u32) -> u32 {
    match plan.window {
        Window::Pages { stride, .. } if stride < 0 => count - 1 - index,
        _ => index,
    }
}
