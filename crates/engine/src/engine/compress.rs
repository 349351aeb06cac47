//! The compressed pool at work, between the actions of `mm` and the device.
//!
//! To `mm` a slot is written when its pages are in the pool, and read when they were unpacked.
//! Three things keep that true:
//!
//! - What is read is the pool's where it has an entry, else the file's. An entry goes only when the
//!   file has its content, when nobody has the slot, or when the page is in the program's view and
//!   is known to need writing when it leaves: an entry that the file does not have takes the slot's
//!   fingerprint along, so the page cannot be taken for one that is still in its slot. *A review's
//!   story:* a read failed, its frames were freed, and what had been in them before was kept as the
//!   pages' content; so nothing is kept while the end of a failed read is handled.
//! - What is written replaces the slot's entry, or removes it and goes to the file.
//! - One batch of entries at a time is on its way to the file. A slot of that batch that is written
//!   again meanwhile goes into the pool whatever its content, so that no two writes to one slot are
//!   under way.

use alloc::vec::Vec;
use core::ops::Range;

use overspill_mm::pool::{Figures, PoolSize, Waits, make_room};
use overspill_mm::types::{Nanos, PageId, Slot};
use overspill_mm::{AreaId, Event, IoId, Run, State, WriteResult};
use overspill_sys::{Errno, clock};

use super::{Engine, Notice};
use crate::memory::{BOUNCE, words_of};
use crate::pool::Pool;
use crate::report::PoolStats;
use crate::transfers::Pieces;

/// The pool, and what is known of its use.
pub(super) struct Compressed {
    pub pool: Pool,
    size: PoolSize,
    /// In frames.
    max: u32,
    /// Frames that are freed hold what their slots hold.
    pub keeps: bool,
    /// Time spent on compressing.
    packing_ns: Nanos,
    /// Reads that the pool answered alone.
    whole_reads: u64,
    /// Writes that it took, and their pages.
    whole_writes: u64,
    taken: u64,
    /// What would have to go first is in areas that leave: it is read from here, not written.
    is_stuck: bool,
    /// Areas that did not take what the pool had for them: no more is written there.
    refusing: Vec<AreaId>,
    /// Swap is full, and the pool may make up for that by leaving: nobody has been told yet.
    full_is_untold: bool,
}

impl Compressed {
    /// The area is forgotten, and those behind it have other numbers.
    pub fn forget_area(&mut self, area: AreaId) {
        self.refusing.retain(|&other| other != area);
        self.refusing.iter_mut().filter(|other| other.0 > area.0).for_each(|other| other.0 -= 1);
    }

    /// A pool of at most `max` frames; of no fewer, too, if it is fixed.
    pub fn new(max: u32, is_fixed: bool) -> Self {
        Compressed {
            pool: Pool::new(max),
            size: if is_fixed { PoolSize::fixed(max) } else { PoolSize::new(max) },
            max,
            keeps: true,
            packing_ns: 0,
            whole_reads: 0,
            whole_writes: 0,
            taken: 0,
            is_stuck: false,
            refusing: Vec::new(),
            full_is_untold: false,
        }
    }

    /// What the outside sees.
    pub fn stats(&self) -> PoolStats {
        let totals = self.pool.tier.totals();
        PoolStats {
            frames: self.pool.tier.frames(),
            zswpin: totals.loaded,
            zswpout: totals.stored,
            zswpwb: totals.written_back,
            taken: self.taken,
            whole_reads: self.whole_reads,
            whole_writes: self.whole_writes,
        }
    }

    fn figures(&self, ahead: u64, waits: &Waits) -> Figures {
        Figures::of(&self.pool.tier.totals(), waits, ahead, self.packing_ns)
    }
}

impl Engine {
    /// Fills the frames of pages from the pool where it has them, and orders a read of the rest.
    pub(super) fn read_slots(&mut self, io: IoId, run: Run, slot: u32) {
        let Compressed { pool, whole_reads, .. } = &mut self.compressed;
        let is_absent = |n: &u32| !pool.tier.holds(slot + n);
        let Some(first) = (0..run.count).find(is_absent) else {
            *whole_reads += 1;
            pool.tier.note_whole_read(slot);
            run.pages().zip(slot..).for_each(|(page, slot)| self.unpack(page, slot));
            return self.events.push_back(Event::Unpacked { io });
        };
        let last = (first..run.count).rfind(is_absent).expect("the first one, if no other");
        let mut pieces = Pieces::default();
        for (n, page) in (0..).zip(run.pages()) {
            let in_pool = self.compressed.pool.tier.holds(slot + n);
            if in_pool {
                self.unpack(page, slot + n);
            }
            if (first..=last).contains(&n) {
                let frame = self.staging.frame(page).expect("a page that is read has a frame");
                let memory = &self.view.program;
                pieces.push(if in_pool { memory.scratch_address() } else { memory.frame_address(frame) }, 1);
            }
        }
        let pool = &self.compressed.pool;
        self.sums.read_begins(io, run, slot, |n| pool.tier.holds(slot + n));
        self.note_moved(slot + first, last + 1 - first, false);
        self.transfers.read(io, slot + first, &pieces);
    }

    fn unpack(&mut self, page: PageId, slot: u32) {
        let frame = self.staging.frame(page).expect("a page that is read has a frame");
        let pool = &mut self.compressed.pool;
        let loaded = self.view.program.fill_frame(frame, |bytes| pool.load(slot, bytes));
        assert!(loaded, "only what is in the pool is unpacked");
    }

    /// Puts pages into the pool in place of writing them to their slots. False: they have to be
    /// written, and no entry is left.
    pub(super) fn pack(&mut self, run: Run, slot: u32) -> bool {
        let slots = slot..slot + run.count;
        let pool = &mut self.compressed.pool;
        let mut packed = pool.tier.admits(slots.clone());
        if !packed && pool.tier.entries() == 0 {
            return false;
        }
        let must = pool.tier.must_take(slots.clone());
        let begun = clock::monotonic_ns();
        for (page, slot) in run.pages().zip(slots.clone()) {
            let frame = self.staging.frame(page).expect("what is written has a frame");
            packed = packed && pool.store(slot, self.view.program.frame_page(frame), true, must).is_ok();
        }
        self.compressed.packing_ns += clock::monotonic_ns() - begun;
        if packed {
            self.compressed.whole_writes += 1;
            // What the area has there is older.
            slots.for_each(|slot| self.sums.forget(slot));
            self.compressed.taken += u64::from(run.count);
        } else if pool.tier.entries() > 0 {
            slots.for_each(|slot| {
                pool.remove(slot);
            });
        }
        packed
    }

    /// Keeps a copy of a page that is about to leave its frame, if its slot stands for it.
    pub(super) fn keep_packed(&mut self, page: PageId) {
        let pool = &mut self.compressed.pool;
        if !pool.tier.is_on() || !self.compressed.keeps || self.mm.state(page) != State::Swapped {
            return;
        }
        if let Some(Slot(slot)) = self.mm.slot(page).filter(|slot| !slot.is_file())
            && pool.tier.is_worth_packing(slot)
            && let Some(frame) = self.staging.frame(page)
        {
            let begun = clock::monotonic_ns();
            // Refused, it is on the device as before.
            let _ = pool.store(slot, self.view.program.frame_page(frame), false, false);
            self.compressed.packing_ns += clock::monotonic_ns() - begun;
        }
    }

    /// A page came into the program's view: its entry goes.
    pub(super) fn drop_packed(&mut self, page: PageId) {
        let pool = &mut self.compressed.pool;
        if pool.tier.entries() > 0
            && let Some(Slot(slot)) = self.mm.slot(page).filter(|slot| !slot.is_file())
            && pool.remove(slot)
        {
            self.fingerprints.forget(slot);
        }
    }

    /// Would a read of the page be answered by the pool?
    pub(super) fn is_packed(&self, page: PageId) -> bool {
        let tier = &self.compressed.pool.tier;
        tier.entries() > 0 && self.mm.slot(page).is_some_and(|slot| !slot.is_file() && tier.holds(slot.0))
    }

    /// Decides how large the pool may be.
    pub(super) fn size_pool(&mut self) {
        let now = clock::monotonic_ns();
        let ahead = self.mm.stats().swap_ra_hit + self.mm.stats().file_ra_hit;
        let figures = self.compressed.figures(ahead, &self.report.waits(now));
        let Compressed { pool, size, max, .. } = &mut self.compressed;
        // The budget may have become smaller since the start.
        let share = u64::from(*max) * u64::from(self.allowed) / u64::from(self.allowed_at_first.max(1));
        // A page in the pool has a slot for itself, whatever it takes there. Where slots run out
        // the pool saves nothing any more: what it takes must be in RAM elsewhere.
        let spared = self.mm.frames_to_spare() + pool.tier.frames();
        let most = spared.min(share as u32);
        pool.set_limit(size.decide(now, &figures, pool.tier.held(), most));
    }

    /// Swap is full. That is said at once, but where the program fits as soon as the pool has left.
    pub(super) fn swap_is_full(&mut self) {
        let tier = &self.compressed.pool.tier;
        if tier.frames() > 0 && !tier.is_stopped() && self.mm.frames_short() <= tier.frames() {
            self.compressed.full_is_untold = true;
        } else {
            self.notices.push_back(Notice::SwapFull);
        }
    }

    /// Says it if the pool does not help after all.
    fn tell_full(&mut self) {
        let (mm, tier) = (&self.mm, &self.compressed.pool.tier);
        let stays = tier.frames() == 0 || tier.is_stopped() || self.compressed.is_stuck;
        let is_above = mm.is_swap_full() && mm.frames_held() > mm.config().budget;
        if mm.frames_short() > tier.frames() || stays && is_above {
            self.compressed.full_is_untold = false;
            self.notices.push_back(Notice::SwapFull);
        }
    }

    /// Sees to it that there is room in the pool, and that the rest of the budget is what `mm` has.
    pub(super) fn keep_pool(&mut self) {
        let (pool, mm) = (&mut self.compressed.pool, &self.mm);
        let is_wanted = |slot| mm.owner(Slot(slot)).is_some();
        let runs = make_room(pool, mm.slots_used(), is_wanted, Pool::follow);
        self.order_write_backs(runs);
        self.compressed.pool.give_back();
        self.share_budget();
        if self.compressed.full_is_untold {
            self.tell_full();
        }
    }

    /// `mm` may have what the pool does not.
    ///
    /// *The story:* this looked once. What left for the smaller budget went into the pool, which
    /// grew by a segment, and the pager was above its budget until its next turn (the test
    /// `eight_threads_in_two_processes`: 4,150 frames of 4,096).
    pub(super) fn share_budget(&mut self) {
        loop {
            let frames = self.allowed.saturating_sub(self.compressed.pool.tier.frames()).max(1);
            if frames == self.mm.config().budget {
                return;
            }
            self.feed(Event::Budget { frames });
        }
    }

    /// Orders writes until the device takes no more. What is in an area that leaves is not written
    /// there: it is read, from here, for the others. Nor is it where a write was refused.
    ///
    /// *The story* (by reading): an area that was full, and whose pages the others had no room for as
    /// yet, was written to again at once, for ever, and each time that was said.
    fn order_write_backs(&mut self, runs: Vec<Range<u32>>) {
        let refuses = |slot| self.compressed.refusing.contains(&self.mm.area_of(slot));
        let stays = |run: &Range<u32>| {
            let slot = Slot(run.start);
            !self.mm.is_leaving(slot) && !refuses(slot)
        };
        let (to_write, to_leave): (Vec<_>, Vec<_>) = runs.into_iter().partition(stays);
        self.compressed.is_stuck = to_write.is_empty() && !to_leave.is_empty();
        to_write.into_iter().all(|run| self.order_write_back(run));
    }

    /// Orders the write of neighbours, by way of bounce pages. False: the device takes no more now.
    fn order_write_back(&mut self, slots: Range<u32>) -> bool {
        let pool = &self.compressed.pool;
        let at = pool.tier.leaving();
        for (index, slot) in (at..).zip(slots.clone()) {
            let found = self.view.program.fill_bounce(index, |bytes| pool.peek(slot, bytes));
            assert!(found, "only what is in the pool leaves it");
            if self.sums.wants_hashes() {
                let prints = &self.fingerprints;
                let hash = self.view.program.fill_bounce(index, |page| prints.hash(words_of(page)));
                self.sums.written(slot, hash);
            } else if let Some(seals) = self.sums.seals() {
                self.view.program.fill_bounce(index, |page| seals.seal(slot, page));
            }
        }
        let address = self.view.program.bounce_address(at);
        let ordered = self.transfers.write_back(at, slots.start, address, slots.end - slots.start);
        if ordered {
            self.note_moved(slots.start, slots.end - slots.start, true);
            self.compressed.pool.tier.leaves(slots);
        }
        ordered
    }

    /// Brings to their slots what the pool alone has of pages that are out, as far as that can be, and
    /// waits for it. Nothing is under way.
    pub(super) fn empty_pool_to_areas(&mut self) {
        if self.compressed.pool.tier.entries() == 0 {
            return;
        }
        let tier = &self.compressed.pool.tier;
        let slots = self.mm.known_pages().filter(|&id| self.mm.state(id) == State::Swapped);
        let slots = slots.filter_map(|id| self.mm.slot(id)).filter(|slot| !slot.is_file());
        let mut dirty: Vec<u32> =
            slots.map(|slot| slot.0).filter(|&slot| tier.holds(slot) && tier.is_dirty(slot)).collect();
        dirty.sort_unstable();
        let mut rest = dirty.as_slice();
        while let Some(&first) = rest.first() {
            let count = (0..BOUNCE).zip(rest).take_while(|&(n, &slot)| slot == first + n).count() as u32;
            self.write_now(first..first + count);
            rest = &rest[count as usize..];
        }
        self.compressed.pool.give_back();
        self.share_budget();
    }

    /// Writes neighbours to their slots, which the pool has; it lets go of those that arrive.
    fn write_now(&mut self, slots: Range<u32>) {
        let area = self.mm.area_of(Slot(slots.start));
        if self.mm.is_leaving(Slot(slots.start)) || self.compressed.refusing.contains(&area) {
            return;
        }
        let mut sums = Vec::with_capacity(slots.len());
        for (index, slot) in (0..).zip(slots.clone()) {
            let (pool, prints) = (&self.compressed.pool, &self.fingerprints);
            let hash = self.view.program.fill_bounce(index, |page| {
                assert!(pool.peek(slot, page), "only what is in the pool leaves it");
                prints.hash(words_of(page))
            });
            sums.push(hash);
        }
        let count = slots.end - slots.start;
        if self.transfers.write_now(slots.start, self.view.program.bounce_address(0), count) {
            for (slot, hash) in slots.zip(sums) {
                self.sums.written(slot, hash);
                self.compressed.pool.remove(slot);
            }
        }
    }

    /// A write of `pages` entries of the batch, from the `at`th on, has ended.
    pub(super) fn written_back(&mut self, at: u32, pages: u32, outcome: Result<(), Errno>) {
        let tier = &mut self.compressed.pool.tier;
        let slot = Slot(tier.leaving_slot(at));
        tier.left(at, pages, outcome.is_ok());
        self.compressed.pool.give_back();
        if let Err(errno) = outcome {
            self.write_back_failed(slot, errno);
        }
    }

    /// The slot's area does not take what the pool has for it. Where others have room for all that is in
    /// it, that goes there; from a device that has failed, as much as fits.
    ///
    /// *The story:* the pool took no more whatever else there was: with a disk that was full and an
    /// empty one beside it swap was called full, and the program went on above its budget.
    fn write_back_failed(&mut self, slot: Slot, errno: Errno) {
        let area = self.mm.area_of(slot);
        if Self::write_result(errno) == WriteResult::Failed {
            self.report.note_error(errno);
            return self.feed(Event::AreaFailed { area });
        }
        let (pages, room) = self.mm.areas_beside(area);
        if room < pages.max(1) {
            if self.compressed.pool.tier.stop() {
                self.notices.push_back(Notice::SwapFull);
            }
        } else if !self.mm.is_leaving(slot) && !self.compressed.refusing.contains(&area) {
            self.compressed.refusing.push(area);
            self.feed(Event::AreaLeaves { area });
        }
    }

    /// A write has failed, which is said once for each area. Where no other is left the pool takes no
    /// more, as what is in it could not leave.
    ///
    /// *The stories* (by reading): of a write of the pool's `mm` did not hear. The only area was not known
    /// to have failed, and of another one next to nothing was brought elsewhere. And that it had failed was
    /// said once for all: where the pool's write was the first, `--strict` did nothing any more.
    pub(super) fn area_retired(&mut self) {
        if self.mm.is_swap_full() {
            self.compressed.pool.tier.stop();
        }
        self.notices.push_back(Notice::AreaRetired);
    }
}
