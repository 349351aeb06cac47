//! Checksums of slots: what comes back from an area must be what was written there last, or nobody
//! sees it.
//!
//! A page's sum is kept in memory, by slot, and mixed with the slot's number; so bytes that
//! changed, that are older, that were written in part only, or that are another slot's do not agree
//! with it. It is the hash of the fingerprints (two contents agree with a probability below 2^-62),
//! and taken from there where a page has one already. A read that does not agree is a read that
//! failed ([`Errno::BADMSG`]): it is repeated once, alone, and then the page is lost, with SIGBUS
//! for whoever touches it. Where pages are encrypted, the tags of [`crate::seal`] do all that.

use alloc::vec::Vec;

use overspill_mm::slot_table::SlotTable;
use overspill_mm::types::{PageId, Slot};
use overspill_mm::{IoId, Run};
use overspill_sys::AddressRange;

use crate::fingerprint::Fingerprints;
use crate::memory::words_of;
use crate::pool::Page;
use crate::seal::Seals;

/// The largest read, in pages.
const READ_MAX: usize = 256;

/// A read that is under way.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    run: Run,
    slot: u32,
    /// Pages that the device is not asked for: they were unpacked.
    unpacked: [u64; READ_MAX / 64],
}

impl Reading {
    /// The pages that come from the device, and their slots.
    pub fn pages(self) -> impl Iterator<Item = (PageId, u32)> {
        let is_read = move |&n: &u32| self.unpacked[n as usize / 64] >> (n % 64) & 1 == 0;
        let place = move |n: u32| (PageId(self.run.first.0 + n), self.slot + n);
        (0..self.run.count).filter(is_read).map(place)
    }
}

/// What tells whether bytes are right.
enum Guard {
    /// Nothing: they are believed.
    Nothing,
    /// By slot; 0: nothing in the area stands for a page.
    Hashes(SlotTable<u64>),
    Seals(Seals),
}

/// The sums of slots.
pub(crate) struct Sums {
    guard: Guard,
    /// By [`IoId`].
    reading: Vec<Option<Reading>>,
}

impl Sums {
    pub fn new() -> Self {
        Sums { guard: Guard::Hashes(SlotTable::default()), reading: Vec::new() }
    }

    /// What comes back is believed.
    pub fn nothing() -> Self {
        Sums { guard: Guard::Nothing, reading: Vec::new() }
    }

    /// Pages are encrypted.
    pub fn sealed(seals: Seals) -> Self {
        Sums { guard: Guard::Seals(seals), reading: Vec::new() }
    }

    /// Is [`Sums::written`] to be told of hashes?
    pub fn wants_hashes(&self) -> bool {
        matches!(self.guard, Guard::Hashes(_))
    }

    /// What encrypts pages, if anything does.
    pub fn seals(&mut self) -> Option<&mut Seals> {
        match &mut self.guard {
            Guard::Seals(seals) => Some(seals),
            Guard::Nothing | Guard::Hashes(_) => None,
        }
    }

    /// Where the key is that encrypts pages.
    pub fn key_range(&self) -> AddressRange {
        match &self.guard {
            Guard::Seals(seals) => seals.range(),
            Guard::Nothing | Guard::Hashes(_) => 0..0,
        }
    }

    /// A page whose content has that hash is on its way to the slot.
    pub fn written(&mut self, slot: u32, hash: u64) {
        if let Guard::Hashes(of_slot) = &mut self.guard {
            of_slot.set(Slot(slot), of(slot, hash));
        }
    }

    /// The sum of a slot, with its identity; 0: there is none.
    pub fn of_slot(&self, slot: u32) -> u64 {
        match &self.guard {
            Guard::Hashes(of_slot) => of_slot.get(Slot(slot)),
            Guard::Nothing | Guard::Seals(_) => 0,
        }
    }

    /// Another process with the same function had this sum of a slot with the same number. Returns the hash
    /// of what is there, if it is known.
    pub fn inherit(&mut self, slot: u32, sum: u64) -> Option<u64> {
        let Guard::Hashes(of_slot) = &mut self.guard else { return None };
        of_slot.set(Slot(slot), sum);
        // A sum of 1 may stand for two hashes, and 0 for none.
        (sum > 1).then(|| sum ^ identity(slot)).filter(|&hash| hash != 0)
    }

    /// What the area has in the slot does not stand for a page any more.
    pub fn forget(&mut self, slot: u32) {
        match &mut self.guard {
            Guard::Nothing => {}
            Guard::Hashes(of_slot) => of_slot.set(Slot(slot), 0),
            Guard::Seals(seals) => seals.forget(slot),
        }
    }

    /// Are these bytes what was written to the slot? They are what the page holds then; else it
    /// holds nothing.
    pub fn is_as_written(&self, slot: u32, page: &mut Page, prints: &Fingerprints) -> bool {
        match &self.guard {
            Guard::Nothing => true,
            Guard::Hashes(of_slot) => of_slot.get(Slot(slot)) == of(slot, prints.hash(words_of(page))),
            Guard::Seals(seals) => seals.open(slot, page),
        }
    }

    /// A read of `run` from `slot` on begins; `unpacked` says which pages are there already.
    pub fn read_begins(&mut self, io: IoId, run: Run, slot: u32, unpacked: impl Fn(u32) -> bool) {
        if matches!(self.guard, Guard::Nothing) {
            return;
        }
        assert!(run.count as usize <= READ_MAX, "no read is larger");
        let mut reading = Reading { run, slot, unpacked: [0; READ_MAX / 64] };
        for n in (0..run.count).filter(|&n| unpacked(n)) {
            reading.unpacked[n as usize / 64] |= 1 << (n % 64);
        }
        let index = io.0 as usize;
        if index >= self.reading.len() {
            self.reading.resize(index + 1, None);
        }
        assert!(self.reading[index].is_none(), "a request ends before its number begins another");
        self.reading[index] = Some(reading);
    }

    /// It has ended: what is to be looked at, if anything is.
    pub fn read_ends(&mut self, io: IoId) -> Option<Reading> {
        self.reading.get_mut(io.0 as usize).and_then(Option::take)
    }
}

/// The hash with the slot's identity; never 0.
fn of(slot: u32, hash: u64) -> u64 {
    (hash ^ identity(slot)).max(1)
}

fn identity(slot: u32) -> u64 {
    u64::from(slot).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(count: u32) -> Run {
        Run { first: PageId(512), count }
    }

    #[repr(align(8))]
    struct Aligned(Page);

    fn page(seed: u8) -> Aligned {
        Aligned(core::array::from_fn(|at| seed ^ (at as u8)))
    }

    #[test]
    fn what_was_written_last_there_is_right_and_nothing_else() {
        let prints = Fingerprints::new(5);
        let hash = |seed: u8| prints.hash(words_of(&page(seed).0));
        let mut sums = Sums::new();
        let is_right = |sums: &Sums, slot, seed| sums.is_as_written(slot, &mut page(seed).0, &prints);
        assert!(!is_right(&sums, 7, 70), "nothing was written there");
        sums.written(7, hash(70));
        sums.written(8, hash(80));
        assert!(is_right(&sums, 7, 70) && is_right(&sums, 8, 80));
        assert!(!is_right(&sums, 8, 81), "wrong bytes");
        assert!(!is_right(&sums, 7, 80), "another slot's bytes");
        sums.written(7, hash(71));
        assert!(!is_right(&sums, 7, 70), "old bytes");
        assert!(is_right(&sums, 7, 71));
        sums.forget(7);
        assert!(!is_right(&sums, 7, 71), "the page is elsewhere");
        // What is inherited tells the hash.
        let sum = sums.of_slot(8);
        let mut heir = Sums::new();
        assert_eq!(heir.inherit(8, sum), Some(hash(80)));
        assert!(is_right(&heir, 8, 80) && !is_right(&heir, 8, 81));
        assert_eq!([heir.inherit(9, 0), heir.inherit(9, 1), Sums::nothing().inherit(8, sum)], [None; 3]);
        // Two slots with the same content have not the same sum.
        assert_ne!(of(8, 80), of(9, 80));
        assert!(is_right(&Sums::nothing(), 1, 1));
    }

    #[test]
    fn what_was_unpacked_is_not_looked_at() {
        let mut sums = Sums::new();
        sums.read_begins(IoId(0), run(100), 2, |n| n != 99);
        let looked_at: Vec<_> = sums.read_ends(IoId(0)).unwrap().pages().collect();
        assert_eq!(looked_at, [(PageId(611), 101)]);
        assert!(sums.read_ends(IoId(0)).is_none(), "once");
        let mut off = Sums::nothing();
        off.read_begins(IoId(0), run(1), 1, |_| false);
        assert!(off.read_ends(IoId(0)).is_none());
    }
}
