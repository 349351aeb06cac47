//! Making room: from the tail of the inactive list into the swap cache, from there to swap, from
//! there to nowhere.
//!
//! A page's use is learnt by taking it out of the program's view: it waits in the swap cache (newest
//! at the head) and a touch brings it back to the active list. What reaches the tail untouched is
//! written, if it must be, and freed. Units of neighbours travel together, so that unmapping, writing
//! and reading back are few large operations. With a kernel's bits ([`crate::Probe::Kernel`]) the
//! inactive tail is judged by them, as section 5.1 of the specification has it.
//!
//! Who is active, how many wait out of view and who is tested there is the policy's
//! ([`crate::reclaim::policy`]); this file does as it says.

use crate::event::{Action, Actions, Event, Run};
use crate::list::ListId;
use crate::mm::{ANSWERED, IoKind, Mm};
use crate::page::{State, flag};
use crate::part::Part;
use crate::readahead::SwapIn;
use crate::reclaim::BATCH;
use crate::reclaim::policy::{Noted, Place, Scene, Waited};
use crate::stats::Ahead;
use crate::swap::{Backing, WINDOW};
use crate::types::{CHUNK_PAGES, PageId, Slot};

/// Most pages of one [`Action::Unmap`]: its answer has a bit for each.
const UNMAP_MAX: u32 = u64::BITS;
/// After so many pages that could not be unmapped, one after another, reclaim waits until something
/// else has happened: while an address space changes, or after a fork, every one of its pages is
/// refused, and the shell must get to hear of the change.
pub(crate) const REFUSED_MAX: u32 = 128;
/// ... and after this many, where so many were refused beside those that left: where next to nothing
/// can leave (most of it is locked) a fault must not wait for all pages to be looked at.
///
/// *The story:* in locked memory of twice the budget each page took 3 ms to touch. Then this was
/// mended where nothing left at all; while it was being locked, and some still did, each fault looked
/// at 1500 pages: mlock of 96 MiB in 48 took 11 s.
pub(crate) const REFUSED_MIN: u32 = 4;
/// Active pages that were used and are looked past at a time.
const LOOKED_PAST: u32 = 64;
/// For each page that leaves so many others may be refused.
const REFUSED_FOR_ONE: u32 = 16;

impl<P: SwapIn> Mm<P> {
    /// Is there room to be made that nobody waits for yet? Then [`Event::Idle`] makes it.
    ///
    /// *The story:* room was made below the low watermark only, 256 frames at a time. With eight
    /// threads at random that was a millisecond in which the one thread that answers faults
    /// answered none, then a write of 1 to 2 MiB before which their reads had to wait: a tenth of
    /// the time, and 1 ms of the slowest faults, beside as much time in which that thread only
    /// waited for the device.
    #[must_use]
    pub fn has_idle_work(&self) -> bool {
        let batch = self.batch().min((self.high() - self.low()) / 2).max(1);
        !self.config.probe.is_kernel()
            && self.pause.is_none()
            && self.has_patience()
            && !self.areas.is_full()
            && self.lists.len(ListId::Inactive) + self.lists.len(ListId::Tested) > ANSWERED as u32
            && self.frames_free() + self.writing + batch <= self.high()
    }

    /// Whether reclaim goes on, begins or stops with an event. A kernel's goes on until `high`
    /// frames are free. The pager's goes on only with the answers to what it did, since a thread
    /// may wait for what any other event brings.
    pub(crate) fn reclaims_on(&mut self, event: &Event) {
        match event {
            Event::Idle if self.has_idle_work() => {
                self.appetite.fade();
                self.reclaiming = true;
            }
            Event::Unmapped { .. } => {}
            _ => self.reclaiming &= self.config.probe.is_kernel(),
        }
    }

    /// An [`Event::Idle`] was in vain: none again before something else has happened, or the shell
    /// never comes to rest.
    pub(crate) fn rest(&mut self) {
        self.refused = REFUSED_MAX;
    }

    /// May more pages be refused before reclaim waits for something else to happen?
    fn has_patience(&self) -> bool {
        self.refused < REFUSED_MIN || self.refused < REFUSED_MAX && self.trust > 0
    }

    /// So many pages may be on their way out of view: where some were refused, no more than may be.
    fn tried_at_once(&self) -> u32 {
        if self.trust == REFUSED_MAX { u32::MAX } else { self.trust + REFUSED_MIN }
    }

    /// So many pages were refused at once, and so many left.
    pub(crate) fn note_refused(&mut self, refused: u32, left: u32) {
        self.refused = if left > 0 { 0 } else { self.refused + refused };
        self.trust = (self.trust + REFUSED_FOR_ONE * left).saturating_sub(refused).min(REFUSED_MAX);
    }

    /// So many pages come in above the budget: for each of them one may be tried. That is no reason to
    /// try as many at once as where none were refused.
    pub(crate) fn try_more_for(&mut self, pages: u32) {
        self.trust = (self.trust + pages).min(REFUSED_MAX - 1);
    }

    /// Starts when fewer than `low` frames are free, ends when `high` are free or on their way.
    pub(crate) fn reclaim(&mut self, out: &mut Actions) {
        let demand = self.waiting.len();
        let was_reclaiming = self.reclaiming;
        let is_short = self.frames_free() < self.low() || self.held > self.config.budget;
        self.reclaiming |= is_short || demand > 0 || self.postponed.is_some();
        if !self.reclaiming {
            return;
        }
        if self.filler_suffices(demand, out) {
            self.reclaiming = false;
            if was_reclaiming {
                self.reclaim.get().end();
            }
            return;
        }
        if !self.has_patience() {
            return;
        }
        if !was_reclaiming {
            self.appetite.fade();
            self.stats.pageoutrun += u64::from(demand == 0);
        }
        let high = self.high();
        let goal = if demand > 0 { high.max(demand).max(self.config.unit) } else { high };
        // Most pages that are set on their way at once: neighbours that leave, or are written, by one
        // request; or a chunk.
        let batch = self.write_max().max(UNMAP_MAX).max(CHUNK_PAGES as u32);
        // Every page may be looked at three times a call: found in use and moved, deactivated, and
        // found idle. With all of them busy the call still ends.
        let mut looks = 3 * (self.lists.len(ListId::Inactive) + self.lists.len(ListId::Active)) + BATCH;
        let scene = self.scene();
        let count = self.reclaim.get().begin(&scene, !was_reclaiming);
        self.deactivate(count, None, &mut looks);
        self.test(out);
        self.expel_for_window(&mut looks, out);
        let was_short = self.lacking(goal) > 0;
        loop {
            let short = self.lacking(goal);
            if short == 0 {
                break;
            }
            let scene = self.scene();
            let (cached, cache) = (scene.cached, self.kept(&scene));
            let staying = self.unmapping - self.leaving;
            let may_try = looks > 0 && self.unmapping < self.tried_at_once();
            let progress = if may_try && self.has_passed() {
                self.unmap_passed(&mut looks, out)
            } else if self.reclaim.get().fails(&scene) {
                self.fail_test();
                self.shrink_cache(out)
            } else if cached > cache {
                self.shrink_cache(out)
            } else if cached + staying < cache + short && !self.areas.is_full() && may_try {
                self.unmap_unit(&mut looks, out)
            } else {
                break;
            };
            if !progress && !self.shrink_cache_at_last(out) {
                break;
            }
        }
        assert!(
            !was_short || self.is_afloat() || self.coming_free() < goal + self.over() + batch,
            "a call frees what was asked for and less than a batch"
        );
        if self.frames_free() >= high {
            self.reclaiming = false;
            self.reclaim.get().end();
        }
    }

    /// Frames held above what may be.
    fn over(&self) -> u32 {
        // The limit is the budget at least, and takes some working out.
        if self.held <= self.config.budget { 0 } else { self.held.saturating_sub(self.limit()) }
    }

    /// So many frames have yet to be set on their way to have the goal free.
    ///
    /// What is held above a budget that has shrunk is asked anew each time: as clean pages leave at
    /// once, it becomes less meanwhile.
    pub(crate) fn lacking(&self, goal: u32) -> u32 {
        goal.saturating_sub(self.coming_free().saturating_sub(self.over()))
    }

    /// Nothing can be unmapped: what waits in the swap cache has to go, second chance or not, and
    /// then what is tested there.
    fn shrink_cache_at_last(&mut self, out: &mut Actions) -> bool {
        self.unmapping == 0 && (self.shrink_cache(out) || self.fail_test() && self.shrink_cache(out))
    }

    /// So many pages may wait in the swap cache.
    fn kept(&self, scene: &Scene) -> u32 {
        let kept = self.reclaim.peek().kept(scene);
        if self.copies_to_take { kept.min(scene.second_chance) } else { kept }
    }

    /// What the policy may know. (Inlined, with the next one, it spares a fiftieth of a page's way.)
    #[inline(always)]
    pub(crate) fn scene(&self) -> Scene {
        Scene {
            now: self.now,
            is_direct: !self.waiting.is_empty(),
            budget: self.config.budget,
            inactive: self.lists.len(ListId::Inactive),
            active: self.lists.len(ListId::Active),
            cached: self.lists.len(ListId::Cache),
            tested: self.lists.len(ListId::Tested),
            windows: self.windows(),
            second_chance: self.second_chance(),
            evictions: self.stats.pgsteal_anon + self.stats.pgsteal_file,
            activations: self.stats.workingset_activate_anon + self.stats.workingset_activate_file,
            oldest_test: self.lists.tail(ListId::Tested).map(|id| self.pages.stamp(id)),
            oldest_active: None,
            part: Part::Rest,
            kept_free: if self.asks_what_is_free { self.high() } else { 0 },
        }
    }

    /// The same of one part of memory, which is all where it is not divided.
    #[inline(always)]
    pub(crate) fn part_scene(&self, part: Part) -> Scene {
        let scene = self.scene();
        if self.lists.is_divided() { self.of_part(part, scene) } else { scene }
    }

    fn of_part(&self, part: Part, scene: Scene) -> Scene {
        let of_all = |count: u32| self.lists.part_of(part, u64::from(count)) as u32;
        Scene {
            part,
            budget: of_all(scene.budget),
            inactive: self.lists.part_len(ListId::Inactive, part),
            active: self.lists.part_len(ListId::Active, part),
            cached: of_all(scene.cached),
            windows: of_all(scene.windows),
            second_chance: of_all(scene.second_chance),
            kept_free: of_all(scene.kept_free),
            evictions: self.lists.part_of(part, scene.evictions),
            ..scene
        }
    }

    /// The same where a page was used again.
    pub(crate) fn scene_of_use(&mut self, id: PageId) -> Scene {
        let part = self.lists.part(id);
        let oldest_active = self.oldest_ranked(part).map(|id| self.pages.stamp(id));
        Scene { oldest_active, ..self.part_scene(part) }
    }

    /// The part whose page is the next to leave.
    fn part_of_next(&self) -> Part {
        let fullest = |list| self.lists.fullest(list);
        fullest(ListId::Inactive).or_else(|| fullest(ListId::Active)).unwrap_or_default()
    }

    /// The oldest active page of a part, where they are ranked; where there are bits, if its own is not
    /// set. Those that were used since they were last looked at are the youngest now; not too many at a time.
    fn oldest_ranked(&mut self, part: Part) -> Option<PageId> {
        if !self.reclaim.peek().ranks_active(part) {
            return None;
        }
        if !self.config.probe.tells_uses() {
            return self.lists.part_tail(ListId::Active, part);
        }
        for _ in 0..LOOKED_PAST {
            let id = self.lists.tail(ListId::Active)?;
            if !self.pages[id].take(flag::REFERENCED) {
                return Some(id);
            }
            self.note(id, Noted::Touched);
            self.lists.remove(&mut self.pages, id);
            self.lists.push_head(&mut self.pages, ListId::Active, id);
        }
        None
    }

    /// Something happens to a page: the policy may note it.
    pub(crate) fn note(&mut self, id: PageId, what: Noted) {
        if let Some(stamp) = self.reclaim.peek().stamp(self.lists.part(id), what) {
            self.pages.set_stamp(id, stamp);
        }
    }

    /// A page was touched out of view, with its frame: gives the list on which it belongs.
    pub(crate) fn touched(&mut self, id: PageId, waited: Waited) -> ListId {
        let (scene, stamp) = (self.scene_of_use(id), self.pages.stamp(id));
        let place = self.reclaim.get().touched(&scene, waited, stamp);
        self.note(id, Noted::Touched);
        self.settle(id, place)
    }

    /// Makes room on the list for a page that is about to go there.
    pub(crate) fn settle(&mut self, id: PageId, place: Place) -> ListId {
        let part = self.lists.part(id);
        if place.demotes && self.reclaim.peek().ranks_active(part) {
            self.replace_oldest(part);
        } else if place.demotes {
            let id = self.lists.tail(ListId::Tested).expect("only who is tested makes room");
            self.lists.remove(&mut self.pages, id);
            self.has_failed(id);
            self.lists.push_head(&mut self.pages, ListId::Cache, id);
        }
        place.list
    }

    /// The page that is tested longest has failed: it is the next to leave. False: none is.
    fn fail_test(&mut self) -> bool {
        let Some(id) = self.lists.tail(ListId::Tested) else { return false };
        self.lists.remove(&mut self.pages, id);
        self.has_failed(id);
        self.lists.push_tail(&mut self.pages, ListId::Cache, id);
        true
    }

    /// A page that was tested is one that is to leave now.
    fn has_failed(&mut self, id: PageId) {
        self.pages[id].set(flag::TESTED);
        self.note_deactivated(id);
        self.count_scan(id);
    }

    /// Takes the oldest active pages out of view, as many as the policy asks for: to see whether
    /// they are touched.
    fn test(&mut self, out: &mut Actions) {
        let scene = self.scene();
        for _ in 0..self.reclaim.get().tests(&scene) {
            let Some(id) = self.lists.tail(ListId::Active) else { return };
            if self.answered.contains(&id) {
                return;
            }
            self.note(id, Noted::Tested);
            self.stats.pgrefill += 1;
            if self.config.probe.tells_uses() && self.pages[id].take(flag::REFERENCED) {
                // Nothing need be taken out of view to see that.
                self.lists.remove(&mut self.pages, id);
                let list = self.touched(id, Waited::Nowhere);
                self.lists.push_head(&mut self.pages, list, id);
                continue;
            }
            self.unmap_soon(id);
            self.pages[id].set(flag::TESTED);
            out.push_unmap(id, UNMAP_MAX);
        }
    }

    /// Frees the oldest clean page of the swap cache, or writes the oldest dirty ones. False when
    /// neither is possible.
    fn shrink_cache(&mut self, out: &mut Actions) -> bool {
        let Some(id) = self.lists.tail(ListId::Cache) else { return false };
        self.tell_unused(id);
        if self.may_drop(id) {
            self.stats.clean_dropped += 1;
            self.evict(id, out);
            return true;
        }
        if self.write_around(id, out) {
            return true;
        }
        self.warn_full();
        self.rescue_clean(id, out)
    }

    /// Is what the page holds elsewhere, too, and to stay there? What is to leave its area goes to another
    /// one while it is at hand.
    fn may_drop(&mut self, id: PageId) -> bool {
        let page = &self.pages[id];
        let is_clean = page.slot().is_some() && !page.has(flag::DIRTY);
        is_clean && !self.rescue(id)
    }

    /// The area is full: dirty pages at the tail go round, so that the clean ones behind them can be freed.
    fn rescue_clean(&mut self, mut id: PageId, out: &mut Actions) -> bool {
        for _ in 0..self.lists.len(ListId::Cache) {
            if self.may_drop(id) {
                self.tell_unused(id);
                self.evict(id, out);
                return true;
            }
            self.lists.remove(&mut self.pages, id);
            self.lists.push_head(&mut self.pages, ListId::Cache, id);
            let Some(tail) = self.lists.tail(ListId::Cache) else { break };
            id = tail;
        }
        false
    }

    /// A page that was read ahead leaves untouched: its policy hears of it.
    fn tell_unused(&mut self, id: PageId) {
        if !self.pages[id].take(flag::READ_AHEAD | flag::MARKER) {
            return;
        }
        self.note_ahead(id, Ahead::Unused);
        // It never was in view, where it would have been looked at before.
        self.count_scan(id);
        let (space, vpn) = self.pages.place(id);
        if let Some(region) = self.regions.find(space, vpn) {
            self.policy.unused(&mut region.readahead, vpn);
        }
    }

    /// Writes the dirty cached pages around `id`, as one request where their slots allow it.
    fn write_around(&mut self, id: PageId, out: &mut Actions) -> bool {
        let most = self.write_max();
        let is_dirty = |mm: &Self, id: PageId| {
            let page = &mm.pages[id];
            page.state == State::Cached
                && page.list != ListId::Tested as u8
                && page.has(flag::DIRTY)
                && !page.has(flag::READ_AHEAD)
        };
        let (first, count) = self.extend(id, most, is_dirty);
        let mut open: Option<(Run, Slot)> = None;
        let mut written = false;
        self.allocate_around(Run { first, count });
        for page in (Run { first, count }).pages() {
            // The next one may have a slot already, and must not keep it unwritten: whoever had it
            // before may have had the same content there.
            let Some(slot) = self.slot_for(page) else { continue };
            self.lists.remove(&mut self.pages, page);
            self.pages.set_state(page, State::Writing);
            self.writing += 1;
            written = true;
            match &mut open {
                Some((run, start)) if start.0 + run.count == slot.0 && run.first.0 + run.count == page.0 => {
                    run.count += 1;
                }
                _ => {
                    self.write(open.replace((Run::one(page), slot)), out);
                }
            }
        }
        self.write(open, out);
        written
    }

    /// Slots for the pages of a run that have none, side by side as far as that can be: a slot costs
    /// a third of what it costs by itself. What gets none here is seen to one by one.
    fn allocate_around(&mut self, run: Run) {
        let lacks = |mm: &Self, id: u32| mm.pages[PageId(id)].slot().is_none();
        let end = run.first.0 + run.count;
        let mut next = run.first.0;
        while next < end {
            if !lacks(self, next) {
                next += 1;
                continue;
            }
            let window_end = (next / WINDOW + 1) * WINDOW;
            let behind = (next + 1..end.min(window_end)).find(|&id| !lacks(self, id));
            let count = behind.unwrap_or(end.min(window_end)) - next;
            let chunk = self.pages.chunk_mut(PageId(next));
            let Some((slot, got)) = self.areas.allocate_run(PageId(next), count, &mut chunk.homes) else {
                return;
            };
            for n in 0..got {
                self.pages[PageId(next + n)].backing = Backing::in_slot(Slot(slot.0 + n));
            }
            next += got;
        }
    }

    /// The page's slot; a new one if it has none.
    fn slot_for(&mut self, id: PageId) -> Option<Slot> {
        if let Some(slot) = self.pages[id].area_slot() {
            if self.areas.is_open(slot) {
                return Some(slot);
            }
            // The old place is as good as any, but an area that takes nothing takes nothing, old
            // places included.
            if self.areas.is_full() {
                return None;
            }
            self.release_slot(id);
        }
        let chunk = self.pages.chunk_mut(id);
        let slot = self.areas.allocate(id, &mut chunk.homes)?;
        self.pages[id].backing = Backing::in_slot(slot);
        Some(slot)
    }

    fn write(&mut self, open: Option<(Run, Slot)>, out: &mut Actions) {
        if let Some((run, slot)) = open {
            let (space, vpn) = self.pages.place(run.first);
            if let Some(region) = self.regions.find(space, vpn) {
                self.policy.swapped_out(&mut region.readahead, run.count);
            }
            self.stats.write_ops += 1;
            self.stats.pswpout += u64::from(run.count);
            self.stats.nr_vmscan_write += u64::from(run.count);
            self.areas.write_begins(slot, run.count);
            let io = self.new_io(IoKind::Write, run);
            out.push(Action::Write { io, run, slot });
        }
    }

    /// The longest run around `id`, within its chunk and `most`, in which every page satisfies `fits`.
    fn extend(&self, id: PageId, most: u32, fits: impl Fn(&Self, PageId) -> bool) -> (PageId, u32) {
        let chunk_first = id.0 / CHUNK_PAGES as u32 * CHUNK_PAGES as u32;
        let mut first = id.0;
        while first > chunk_first && id.0 - first + 1 < most && fits(self, PageId(first - 1)) {
            first -= 1;
        }
        let mut end = id.0 + 1;
        while end < chunk_first + CHUNK_PAGES as u32 && end - first < most && fits(self, PageId(end)) {
            end += 1;
        }
        (PageId(first), end - first)
    }

    /// Takes the oldest inactive page and its inactive neighbours out of the program's view. False
    /// when there is none.
    pub(crate) fn unmap_unit(&mut self, looks: &mut u32, out: &mut Actions) -> bool {
        let part = self.part_of_next();
        let mut scene = self.part_scene(part);
        let count = self.reclaim.get().handed_back(&scene);
        if count > 0 {
            self.hand_back(part, count);
            scene = self.part_scene(part);
        }
        let count = self.reclaim.get().deactivates(&scene);
        if count > 0 {
            self.deactivate(count, Some(part), looks);
            scene = self.part_scene(part);
        }
        self.replace(&scene, looks);
        let Some(id) = self.oldest(looks) else { return false };
        *looks = looks.saturating_sub(1);
        if self.config.probe.tells_uses() {
            self.count_scan(id);
            if self.pages[id].state == State::Cached {
                self.tell_unused(id);
                self.evict(id, out);
                return true;
            }
            if self.gets_second_look(id) {
                return true;
            }
        }
        let unit = self.config.unit;
        let aligned = id.0 / unit * unit;
        let is_passed = self.is_passed(id);
        let tells_uses = self.config.probe.tells_uses();
        // One that is known to be used stays in view, or what was told of it would be lost.
        let fits = |mm: &Self, page: PageId| {
            page.0 / unit == aligned / unit
                && mm.is_passed(page) == is_passed
                && mm.pages[page].state == State::Mapped
                && mm.pages[page].list == ListId::Inactive as u8
                && !(tells_uses && mm.pages[page].has(flag::REFERENCED))
                && !mm.answered.contains(&page)
        };
        let (first, count) = self.extend(id, unit, fits);
        let mut run = Run { first, count };
        for page in run.pages() {
            self.unmap_soon(page);
        }
        while let Some(next) = self.follower(run) {
            self.unmap_soon(next);
            run.count += 1;
        }
        // Where uses are told of, the first one is counted already.
        let counted = self.config.probe.tells_uses().then_some(id);
        for page in run.pages().filter(|&page| Some(page) != counted) {
            self.count_scan(page);
        }
        let part = self.lists.part(run.first);
        let scene = self.part_scene(part);
        let count = self.reclaim.get().follow(&scene, run.count);
        self.deactivate(count, Some(part), looks);
        out.push(Action::Unmap { run });
        true
    }

    /// The oldest inactive page. Pages whose faults were answered last go round instead: whoever
    /// waited may not have touched them yet. Where there is nothing else one of them is taken all
    /// the same, but the latest, if a fault waits for a frame.
    ///
    /// *The story* (simulator, seed 96): of 64 frames nearly all were being written, and whoever
    /// waited for the end of a write got his page and lost it in the same step, to keep frames free
    /// that nobody waited for. Four threads went round like that for ever.
    ///
    /// *The other story* (seed 73, `probing`): all but two pages were active and nothing was to be
    /// spent on tests. Three threads took those two from one another, before any had used one.
    fn oldest(&mut self, looks: &mut u32) -> Option<PageId> {
        let id = self.lists.tail(ListId::Inactive)?;
        if self.config.probe.is_kernel() {
            return Some(id);
        }
        if let Some(id) = self.oldest_unanswered() {
            return Some(id);
        }
        if self.waiting.is_empty() && self.held <= self.config.budget {
            return None;
        }
        // Of the active ones somebody may be used no more; the policy did not say so.
        self.deactivate(BATCH, None, looks);
        if let Some(id) = self.oldest_unanswered() {
            return Some(id);
        }
        let id = self.lists.tail(ListId::Inactive)?;
        let latest = self.answered[(self.answers + ANSWERED - 1) % ANSWERED];
        Some(if id == latest { self.send_round(id) } else { id })
    }

    /// The oldest inactive page whose fault was not answered lately. Those before it go round; where
    /// there is none the list is as it was.
    fn oldest_unanswered(&mut self) -> Option<PageId> {
        let mut id = self.lists.tail(ListId::Inactive)?;
        for _ in 0..self.lists.len(ListId::Inactive).min(ANSWERED as u32 + 1) {
            if !self.answered.contains(&id) {
                return Some(id);
            }
            id = self.send_round(id);
        }
        None
    }

    /// Moves the oldest inactive page to the head of its list; gives the one that is the oldest then.
    fn send_round(&mut self, id: PageId) -> PageId {
        self.lists.remove(&mut self.pages, id);
        self.lists.push_head(&mut self.pages, ListId::Inactive, id);
        self.lists.tail(ListId::Inactive).expect("a page was put there")
    }

    fn unmap_soon(&mut self, page: PageId) {
        self.lists.remove(&mut self.pages, page);
        self.pages[page].set(flag::UNMAPPING);
        self.unmapping += 1;
        if !self.config.probe.is_kernel() && self.is_passed(page) {
            self.pages[page].set(flag::LEAVING);
            self.leaving += 1;
        }
    }

    /// The page after the run, if it is now the oldest inactive one: what came together leaves
    /// together. (Where uses are told of, every page is looked at for itself.)
    fn follower(&self, run: Run) -> Option<PageId> {
        let next = PageId(run.first.0 + run.count);
        let together = run.count < UNMAP_MAX.min(self.tried_at_once())
            && !self.config.probe.tells_uses()
            && !next.0.is_multiple_of(CHUNK_PAGES as u32)
            && self.lists.is_tail(ListId::Inactive, next)
            && !self.answered.contains(&next);
        together.then_some(next)
    }

    /// The kernel's rule for anonymous pages since 5.9: the first time a page is found accessed it
    /// goes round once more, the second time it is activated (section 5.1, right column). Before,
    /// the first time was enough.
    fn gets_second_look(&mut self, id: PageId) -> bool {
        let page = &mut self.pages[id];
        if !page.take(flag::REFERENCED) {
            return false;
        }
        let list = if !self.config.probe.is_kernel() {
            // The bit stands for the touch that would have been seen out of view. It was to make
            // room, perhaps, and has not.
            page.clear(flag::TESTED | flag::MAKES_ROOM);
            let ranks = self.reclaim.peek().ranks_active(Part::Rest);
            let list = self.touched(id, if ranks { Waited::Nowhere } else { Waited::ToLeave });
            self.stats.pgactivate += u64::from(list == ListId::Active);
            list
        } else if self.config.early || page.has(flag::SECOND_LOOK) {
            self.stats.pgactivate += 1;
            self.clock = self.clock.wrapping_add(1);
            ListId::Active
        } else {
            page.set(flag::SECOND_LOOK);
            ListId::Inactive
        };
        self.lists.remove(&mut self.pages, id);
        self.lists.push_head(&mut self.pages, list, id);
        true
    }

    /// Moves pages, of one part or of whichever has most, from the active to the inactive list.
    fn deactivate(&mut self, count: u32, part: Option<Part>, looks: &mut u32) {
        for _ in 0..count.min(self.lists.len(ListId::Active)) {
            let Some(part) = part.or_else(|| self.lists.fullest(ListId::Active)) else { return };
            let oldest = |mm: &Self| mm.lists.part_tail(ListId::Active, part);
            let Some(id) = self.oldest_ranked(part).or_else(|| oldest(self)) else { return };
            *looks = looks.saturating_sub(1);
            self.stats.pgrefill += 1;
            self.note_deactivated(id);
            // The hardware's bit is cleared; the software bit stays, so that one more use is enough
            // to come back.
            self.pages[id].clear(flag::REFERENCED);
            self.lists.remove(&mut self.pages, id);
            self.lists.push_head(&mut self.pages, ListId::Inactive, id);
        }
    }

    /// Moves the youngest active pages of a part to the tail of its inactive list: the older, the sooner
    /// they leave.
    fn hand_back(&mut self, part: Part, count: u32) {
        for _ in 0..count {
            let Some(id) = self.lists.part_head(ListId::Active, part) else { return };
            self.stats.pgrefill += 1;
            self.note_deactivated(id);
            self.lists.remove(&mut self.pages, id);
            self.lists.push_tail(&mut self.pages, ListId::Inactive, id);
        }
    }

    /// Moves active pages that make room for others to the tail of the inactive list.
    fn replace(&mut self, scene: &Scene, looks: &mut u32) {
        for _ in 0..self.reclaim.get().replaced(scene) {
            if !self.replace_oldest(scene.part) {
                return;
            }
            *looks = looks.saturating_sub(1);
        }
    }

    /// The oldest active page makes room for another. False: there is none.
    fn replace_oldest(&mut self, part: Part) -> bool {
        let Some(id) = self.lists.part_tail(ListId::Active, part) else { return false };
        self.stats.pgrefill += 1;
        self.note_deactivated(id);
        self.pages[id].set(flag::TESTED | flag::MAKES_ROOM);
        self.lists.remove(&mut self.pages, id);
        self.lists.push_tail(&mut self.pages, ListId::Inactive, id);
        true
    }
}
