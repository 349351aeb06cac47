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

use overspill_mm::pool::{Figures, Held, PoolSize};
use overspill_mm::types::{Nanos, PageId, Slot};
use overspill_mm::{Event, IoId, Run, State, WriteResult};
use overspill_sys::{Errno, clock};

use super::{Engine, Notice};
use crate::memory::BOUNCE;
use crate::pool::{Age, Pool};
use crate::report::{PoolStats, Waits};
use crate::transfers::Pieces;

/// An entry that is being written to the file.
#[derive(Clone, Copy)]
struct Leaving {
    slot: u32,
    /// Its stamp: with another one it was replaced.
    stamp: Option<u64>,
}

/// The pool, and what is known of its use.
pub(super) struct Compressed {
    pub pool: Pool,
    size: PoolSize,
    /// In frames.
    max: u32,
    leaving: Vec<Leaving>,
    /// Requests of that batch that have not ended.
    writes: u32,
    /// The file takes no more: entries stay until their pages are wanted, nothing is added.
    failed: bool,
    /// Frames that are freed hold what their slots hold.
    pub keeps: bool,
    /// Time spent on compressing.
    packing_ns: Nanos,
    /// Reads that the pool answered alone; of them those of old and of young entries.
    whole_reads: u64,
    old_loads: u64,
    young_loads: u64,
    /// Writes that it took, and their pages.
    whole_writes: u64,
    taken: u64,
    written_back: u64,
}

impl Compressed {
    /// A pool of at most `max` frames; of no fewer, too, if it is fixed.
    pub fn new(max: u32, is_fixed: bool) -> Self {
        Compressed {
            pool: Pool::new(max),
            size: if is_fixed { PoolSize::fixed(max) } else { PoolSize::new(max) },
            max,
            leaving: Vec::new(),
            writes: 0,
            failed: false,
            keeps: true,
            packing_ns: 0,
            whole_reads: 0,
            old_loads: 0,
            young_loads: 0,
            whole_writes: 0,
            taken: 0,
            written_back: 0,
        }
    }

    fn is_leaving(&self, slots: core::ops::Range<u32>) -> bool {
        self.leaving.iter().any(|leaving| slots.contains(&leaving.slot))
    }

    /// What the outside sees.
    pub fn stats(&self) -> PoolStats {
        let totals = self.pool.totals();
        PoolStats {
            frames: self.pool.frames(),
            zswpin: totals.loaded,
            zswpout: totals.stored,
            zswpwb: self.written_back,
            taken: self.taken,
            whole_reads: self.whole_reads,
            whole_writes: self.whole_writes,
        }
    }

    fn figures(&self, ahead: u64, waits: Waits) -> Figures {
        let totals = self.pool.totals();
        Figures {
            reads: waits.reads,
            reads_ns: waits.reads_ns,
            ahead,
            loads: waits.loads,
            loads_ns: waits.loads_ns,
            old_loads: self.old_loads,
            young_loads: self.young_loads,
            tried: totals.tried,
            tried_bytes: totals.tried_bytes,
            tried_ns: self.packing_ns,
        }
    }
}

impl Engine {
    /// Fills the frames of pages from the pool where it has them, and orders a read of the rest.
    pub(super) fn read_slots(&mut self, io: IoId, run: Run, slot: u32) {
        let Compressed { pool, whole_reads, .. } = &mut self.compressed;
        let is_absent = |n: &u32| !pool.holds(slot + n);
        let Some(first) = (0..run.count).find(is_absent) else {
            *whole_reads += 1;
            let age = pool.age(slot);
            self.compressed.old_loads += u64::from(age == Some(Age::Old));
            self.compressed.young_loads += u64::from(age == Some(Age::Young));
            run.pages().zip(slot..).for_each(|(page, slot)| self.unpack(page, slot));
            return self.events.push_back(Event::Unpacked { io });
        };
        let last = (first..run.count).rfind(is_absent).expect("the first one, if no other");
        let mut pieces = Pieces::default();
        for (n, page) in (0..).zip(run.pages()) {
            let in_pool = self.compressed.pool.holds(slot + n);
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
        self.sums.read_begins(io, run, slot, |n| pool.holds(slot + n));
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
        let must = self.compressed.is_leaving(slots.clone());
        let pool = &mut self.compressed.pool;
        if !pool.is_on() && !must && pool.entries() == 0 {
            return false;
        }
        let begun = clock::monotonic_ns();
        let mut packed = pool.is_on() || must;
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
        } else if pool.entries() > 0 {
            slots.for_each(|slot| {
                pool.remove(slot);
            });
        }
        packed
    }

    /// Keeps a copy of a page that is about to leave its frame, if its slot stands for it.
    pub(super) fn keep_packed(&mut self, page: PageId) {
        let pool = &mut self.compressed.pool;
        if !pool.is_on() || !self.compressed.keeps || self.mm.state(page) != State::Swapped {
            return;
        }
        if let Some(Slot(slot)) = self.mm.slot(page).filter(|slot| !slot.is_file())
            && !pool.holds(slot)
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
        if pool.entries() > 0
            && let Some(Slot(slot)) = self.mm.slot(page).filter(|slot| !slot.is_file())
            && pool.remove(slot)
        {
            self.fingerprints.forget(slot);
        }
    }

    /// Would a read of the page be answered by the pool?
    pub(super) fn is_packed(&self, page: PageId) -> bool {
        self.compressed.pool.entries() > 0
            && self.mm.slot(page).is_some_and(|slot| !slot.is_file() && self.compressed.pool.holds(slot.0))
    }

    /// Decides how large the pool may be.
    pub(super) fn size_pool(&mut self) {
        let now = clock::monotonic_ns();
        let figures = self.compressed.figures(self.mm.stats().swap_ra_hit, self.report.waits(now));
        let Compressed { pool, size, max, failed, .. } = &mut self.compressed;
        let held = Held { pages: pool.entries(), frames: pool.frames() };
        let frames = size.decide(now, &figures, held);
        // The budget may have become smaller since the start.
        let share = u64::from(*max) * u64::from(self.allowed) / u64::from(self.allowed_at_first.max(1));
        pool.set_limit(if *failed { 0 } else { frames.min(share as u32) });
    }

    /// Sees to it that there is room in the pool, and that the rest of the budget is what `mm` has.
    pub(super) fn keep_pool(&mut self) {
        let Compressed { pool, leaving, failed, .. } = &self.compressed;
        let wants_room = pool.is_too_large() || pool.is_on() && pool.is_nearly_full();
        let may_write = leaving.is_empty() && !failed;
        // Where the file takes no more, entries go one by one as the program wants its pages back,
        // and the gaps are closed.
        if wants_room && pool.entries() > 0 && !self.compressed.pool.compact() && may_write {
            self.write_back();
        }
        self.share_budget();
    }

    /// `mm` may have what the pool does not.
    pub(super) fn share_budget(&mut self) {
        let frames = self.allowed.saturating_sub(self.compressed.pool.frames()).max(1);
        if frames != self.mm.config().budget {
            self.feed(Event::Budget { frames });
        }
    }

    /// Empties the oldest segment: what nobody needs or the file has goes, the rest is written
    /// first, as much as fits.
    fn write_back(&mut self) {
        let mut dirty = Vec::new();
        for (slot, is_dirty) in self.compressed.pool.oldest() {
            if is_dirty && self.mm.owner(Slot(slot)).is_some() {
                dirty.push(slot);
            } else {
                self.compressed.pool.remove(slot);
            }
        }
        dirty.sort_unstable();
        dirty.truncate(BOUNCE as usize);
        let mut at = 0;
        while at < dirty.len() {
            let count = (1..).zip(&dirty[at..]).take_while(|&(n, &slot)| slot + 1 == dirty[at] + n).count();
            if !self.order_write_back(at, &dirty[at..at + count]) {
                return;
            }
            at += count;
        }
    }

    /// Orders the write of neighbours, by way of the bounce pages from `at` on. False: the device
    /// takes no more now.
    fn order_write_back(&mut self, at: usize, slots: &[u32]) -> bool {
        let Compressed { pool, leaving, writes, written_back, .. } = &mut self.compressed;
        assert_eq!(leaving.len(), at, "entries leave in order");
        for (index, &slot) in (at..).zip(slots) {
            let found = self.view.program.fill_bounce(index as u32, |bytes| pool.peek(slot, bytes));
            assert!(found, "only what is in the pool leaves it");
            if self.sums.wants_hashes() {
                let hash = self.fingerprints.hash(self.view.program.bounce_words(index as u32));
                self.sums.written(slot, hash);
            } else if let Some(seals) = self.sums.seals() {
                self.view.program.fill_bounce(index as u32, |page| seals.seal(slot, page));
            }
        }
        let address = self.view.program.bounce_address(at as u32);
        if !self.transfers.write_back(at as u32, slots[0], address, slots.len() as u32) {
            return false;
        }
        leaving.extend(slots.iter().map(|&slot| Leaving { slot, stamp: pool.stamp(slot) }));
        *writes += 1;
        *written_back += slots.len() as u64;
        true
    }

    /// A write of `pages` entries of the batch, from the `at`th on, has ended.
    pub(super) fn written_back(&mut self, at: u32, pages: u32, outcome: Result<(), Errno>) {
        let Compressed { pool, leaving, writes, .. } = &mut self.compressed;
        *writes -= 1;
        match outcome {
            Ok(()) => {
                for &Leaving { slot, stamp } in &leaving[at as usize..(at + pages) as usize] {
                    if pool.stamp(slot) == stamp {
                        pool.remove(slot);
                    }
                }
            }
            Err(errno) => match Self::write_result(errno) {
                WriteResult::NoSpace => self.write_stopped(Notice::SwapFull),
                _ => {
                    self.report.note_error(errno);
                    self.write_failed();
                }
            },
        }
        if self.compressed.writes == 0 {
            self.compressed.leaving.clear();
        }
    }

    /// A write of either kind has failed: that is said once, and the pool takes no more, as what is
    /// in it could not leave.
    pub(super) fn write_failed(&mut self) {
        self.write_stopped(Notice::AreaRetired);
    }

    fn write_stopped(&mut self, notice: Notice) {
        self.compressed.pool.set_limit(0);
        if !core::mem::replace(&mut self.compressed.failed, true) {
            self.notices.push_back(notice);
        }
    }
}
