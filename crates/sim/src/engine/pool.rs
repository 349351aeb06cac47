//! The compressed pool in the simulator: the books are `mm`'s own ([`Tier`]), what packing costs and
//! how small pages become is a model ([`PoolModel`]), and what leaves goes to the simulated device.
//!
//! How much it may have is decided by `mm`'s own [`PoolSize`], from what is waited for here, unless
//! that is fixed.
//!
//! As in the live engine a slot that is written may be in the pool instead, a read that the pool
//! has all pages of is answered at once, a page that comes into view takes its entry out, and what
//! the pool takes of the budget `mm` does not have. A read of which some pages are absent is read
//! as a whole here. The contents that are followed do not know where a slot's bytes are.

use super::Engine;
use super::worker::Transfer;
use crate::time::Nanos;
use overspill_mm::pool::{Figures, PoolSize, Tier, Totals, Waits, make_room};
use overspill_mm::readahead::SwapIn;
use overspill_mm::types::{PAGE_SIZE, PageId, Slot, SpaceId, Vpn};
use overspill_mm::{Event, IoId, Run, State, WriteResult};
use std::collections::BTreeMap;
use std::ops::Range;

/// A pool: how much it may have, how small pages become, and what that costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolModel {
    /// Frames that it may have at most.
    pub frames: u32,
    /// It may have them from the start, whatever that costs (`--fixed-pool`).
    pub is_fixed: bool,
    /// What a page becomes, in thousandths; one page in eight is a quarter larger, one a quarter
    /// smaller.
    pub packed_permille: u32,
    /// Packing a page.
    pub pack_ns: Nanos,
    /// Unpacking one.
    pub unpack_ns: Nanos,
}

impl PoolModel {
    /// LZ4 as the agent has it, in a pool of a fixed size: 4 KiB of JSON, of object files and of a
    /// python heap took 1.4 to 2.7 us to unpack and some 6 to be packed (two processors at 2 to 3
    /// GHz, shared with others).
    #[must_use]
    pub fn lz4(frames: u32, packed_permille: u32) -> PoolModel {
        PoolModel { frames, is_fixed: true, packed_permille, pack_ns: 6_000, unpack_ns: 1_800 }
    }

    fn packed(&self, slot: u32) -> usize {
        let mean = PAGE_SIZE * u64::from(self.packed_permille) / 1000;
        let eighths = match slot.wrapping_mul(0x9e37_79b9) >> 29 {
            0 => 10,
            1 => 6,
            _ => 8,
        };
        ((mean * eighths / 8) as usize).max(16)
    }
}

/// What a program waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// The pool has its page.
    Load,
    /// It has to be read.
    Read,
}

/// Faults on pages that are on swap: who waits since when, and what all of them waited.
#[derive(Default)]
struct Waiting {
    pending: BTreeMap<(u16, u64), (Wait, Nanos)>,
    /// Pending ones that are read for, and since when there is one.
    reading: u32,
    reading_since: Nanos,
    ended: Waits,
}

impl Waiting {
    fn begin(&mut self, place: (u16, u64), wait: Wait, now: Nanos) {
        if self.pending.contains_key(&place) {
            return;
        }
        self.pending.insert(place, (wait, now));
        if wait == Wait::Read {
            self.reading_since = if self.reading == 0 { now } else { self.reading_since };
            self.reading += 1;
        }
    }

    fn end(&mut self, place: (u16, u64), now: Nanos) {
        match self.pending.remove(&place) {
            Some((Wait::Load, since)) => {
                self.ended.loads += 1;
                self.ended.loads_ns += now.saturating_sub(since);
            }
            Some((Wait::Read, _)) => {
                self.ended.reads_ns += self.running(now);
                (self.reading, self.reading_since) = (self.reading - 1, now);
                self.ended.reads += 1;
            }
            None => {}
        }
    }

    /// The time in which at least one read was waited for, and that is not counted yet.
    fn running(&self, now: Nanos) -> Nanos {
        if self.reading == 0 { 0 } else { now.saturating_sub(self.reading_since) }
    }

    /// What was waited until now, by those that wait still, too.
    fn until(&self, now: Nanos) -> Waits {
        Waits { reads_ns: self.ended.reads_ns + self.running(now), ..self.ended }
    }
}

/// The pool of a run.
pub struct SimulatedPool {
    model: PoolModel,
    tier: Tier,
    size: PoolSize,
    waiting: Waiting,
    /// Frames that it and `mm` may have together.
    allowed: u32,
    packing_ns: Nanos,
    /// Pages that it took in place of the device.
    taken: u64,
}

/// What a pool did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolOutcome {
    /// Its books.
    pub totals: Totals,
    /// Pages that it took in place of the device.
    pub taken: u64,
}

impl SimulatedPool {
    /// An empty one, in a budget of `allowed` frames.
    #[must_use]
    pub fn new(model: PoolModel, allowed: u32) -> SimulatedPool {
        let size = if model.is_fixed { PoolSize::fixed(model.frames) } else { PoolSize::new(model.frames) };
        let mut tier = Tier::new(model.frames);
        tier.set_limit(if model.is_fixed { model.frames } else { 0 });
        SimulatedPool { model, tier, size, waiting: Waiting::default(), allowed, packing_ns: 0, taken: 0 }
    }

    /// Its books.
    #[must_use]
    pub fn tier(&self) -> &Tier {
        &self.tier
    }

    /// What it did.
    #[must_use]
    pub fn outcome(&self) -> PoolOutcome {
        PoolOutcome { totals: self.tier.totals(), taken: self.taken }
    }

    /// So many frames are there for it and `mm` from now on.
    pub(super) fn set_allowed(&mut self, frames: u32) {
        self.allowed = frames;
    }

    /// Whoever waited for a page goes on.
    pub(super) fn wait_ends(&mut self, place: (u16, u64), now: Nanos) {
        self.waiting.end(place, now);
    }

    fn figures(&self, ahead: u64, now: Nanos) -> Figures {
        Figures::of(&self.tier.totals(), &self.waiting.until(now), ahead, self.packing_ns)
    }
}

impl<P: SwapIn> Engine<P> {
    /// Answers a read from the pool. False: the device has to.
    pub(super) fn unpack(&mut self, io: IoId, run: Run, slot: Slot) -> bool {
        let Some(pool) = &mut self.pool else { return false };
        if !(slot.0..slot.0 + run.count).all(|slot| pool.tier.holds(slot)) {
            return false;
        }
        pool.tier.note_whole_read(slot.0);
        (0..run.count).for_each(|_| pool.tier.note_loaded());
        let ns = pool.model.unpack_ns * u64::from(run.count);
        self.spend(ns);
        for (id, slot) in run.pages().zip(slot.0..) {
            self.memory.read_ends(id, Slot(slot), true);
        }
        self.answer_soon(Event::Unpacked { io });
        true
    }

    /// Puts pages into the pool in place of writing them. False: they are to be written, and no
    /// entry is left.
    pub(super) fn pack(&mut self, transfer: &Transfer) -> bool {
        let Some(pool) = &mut self.pool else { return false };
        let slots = transfer.slot.0..transfer.slot.0 + transfer.run.count;
        let must = pool.tier.must_take(slots.clone());
        let (mut packed, mut tried) = (pool.tier.admits(slots.clone()), 0);
        for slot in slots.clone() {
            tried += u64::from(packed);
            packed = packed && pool.tier.put(slot, pool.model.packed(slot), true, must).is_ok();
        }
        if !packed {
            slots.for_each(|slot| _ = pool.tier.remove(slot));
        }
        let ns = pool.model.pack_ns * tried;
        pool.packing_ns += ns;
        pool.taken += if packed { u64::from(transfer.run.count) } else { 0 };
        self.spend(ns);
        if packed {
            self.write_ended(transfer);
            self.answer_soon(Event::WriteDone { io: transfer.io, result: WriteResult::Done });
        }
        packed
    }

    /// Keeps a copy of a page that is about to leave its frame, if its slot stands for it.
    pub(super) fn keep_packed(&mut self, id: PageId) {
        if self.pool.is_none() || self.mm.state(id) != State::Swapped {
            return;
        }
        let Some(slot) = self.mm.slot(id).filter(|slot| !slot.is_file()) else { return };
        let pool = self.pool.as_mut().expect("it was seen");
        if pool.tier.is_worth_packing(slot.0) {
            // Refused, it is on the device as before.
            let _ = pool.tier.put(slot.0, pool.model.packed(slot.0), false, false);
            let ns = pool.model.pack_ns;
            pool.packing_ns += ns;
            self.spend(ns);
        }
    }

    /// A page came into the program's view: its entry goes.
    pub(super) fn drop_packed(&mut self, id: PageId) {
        let Some(slot) = self.mm.slot(id).filter(|slot| !slot.is_file()) else { return };
        if self.pool.as_mut().is_some_and(|pool| pool.tier.remove(slot.0)) {
            self.forget_fingerprint(slot);
        }
    }

    /// A thread waits for a page.
    pub(super) fn wait_begins(&mut self, space: SpaceId, vpn: Vpn) {
        let Some(pool) = &mut self.pool else { return };
        let Some(id) = self.mm.lookup(space, vpn) else { return };
        if self.mm.state(id) != State::Swapped {
            return;
        }
        let slot = self.mm.slot(id).filter(|slot| !slot.is_file());
        let is_packed = slot.is_some_and(|slot| pool.tier.holds(slot.0));
        let wait = if is_packed { Wait::Load } else { Wait::Read };
        pool.waiting.begin((space.0, vpn.0), wait, self.worker.clock());
    }

    /// Decides how large the pool may be. Where slots run out it saves nothing.
    fn size_pool(&mut self) {
        let Some(pool) = &mut self.pool else { return };
        let now = self.worker.clock();
        let figures = pool.figures(self.mm.stats().swap_ra_hit, now);
        let most = self.mm.frames_to_spare() + pool.tier.frames();
        pool.tier.set_limit(pool.size.decide(now, &figures, pool.tier.held(), most));
    }

    /// What `mm` may have beside the pool.
    fn frames_beside_pool(&self) -> Option<u32> {
        let pool = self.pool.as_ref()?;
        Some(pool.allowed.saturating_sub(pool.tier.frames()).max(1))
    }

    /// Sees to it that there is room in the pool, and that the rest of the budget is what `mm` has.
    /// True: `mm` is to hear of that.
    pub(super) fn keep_pool(&mut self) -> bool {
        self.size_pool();
        let Some(pool) = &mut self.pool else { return false };
        let mm = &self.mm;
        let is_wanted = |slot| mm.owner(Slot(slot)).is_some();
        // Bytes are nowhere: what is moved on costs nothing.
        let runs = make_room(&mut pool.tier, mm.slots_used(), is_wanted, |_, _| {});
        runs.into_iter().for_each(|run| self.write_back(run));
        let pool = self.pool.as_mut().expect("it was seen");
        while pool.tier.next_freed().is_some() {}
        let frames = self.frames_beside_pool().expect("it was seen");
        let changed = frames != self.mm.config().budget;
        if changed {
            self.answer_soon(Event::Budget { frames });
        }
        changed
    }

    fn write_back(&mut self, slots: Range<u32>) {
        let pool = self.pool.as_mut().expect("something leaves it");
        let (at, count) = (pool.tier.leaving(), slots.end - slots.start);
        let ns = pool.model.unpack_ns * u64::from(count);
        pool.tier.leaves(slots.clone());
        self.spend(ns);
        self.start(Transfer::of_pool(at, Slot(slots.start), count));
    }

    /// A write of `count` entries, from number `at` on, has ended.
    pub(super) fn written_back(&mut self, at: u32, count: u32) {
        let pool = self.pool.as_mut().expect("something left it");
        pool.tier.left(at, count, true);
    }
}
