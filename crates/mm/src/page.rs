//! The page table of `mm`: one 16-byte entry a page, in chunks of 512, found through a small hash directory.
//!
//! Owns the entries and the count of pages in use per chunk; knows nothing of budgets or policies.
//! Chunks exist only where something is or was known about a page, so a 47-bit sparse reservation
//! costs nothing.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::ledger::Ledger;
use crate::reclaim::policy::Stamp;
use crate::swap::{Backing, Homes};
use crate::types::{CHUNK_PAGES, PageId, Slot, SpaceId, Vpn};

/// Where a page's bytes are. A page is in exactly one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// Never touched, or discarded: reads as zeroes, holds no frame and no slot.
    Untouched,
    /// Read and never stored to: in view as the kernel's zero page, protected; no frame, no slot.
    Zero,
    /// In a frame, in the program's view.
    Mapped,
    /// In a frame, out of the program's view (the swap cache).
    Cached,
    /// As `Cached`, with a write to its slot under way.
    Writing,
    /// In its slot only.
    Swapped,
    /// A frame is reserved and a read from its slot is under way.
    Reading,
}

/// Bits of an entry.
pub mod flag {
    /// A fault waits for this page; it is answered exactly once.
    pub const WANTED: u16 = 1 << 0;
    /// The waiting fault is a store.
    pub const WANTED_WRITE: u16 = 1 << 1;
    /// The frame may be newer than the slot (or there is no slot).
    pub const DIRTY: u16 = 1 << 2;
    /// Touched since the bit was last cleared: the hardware's accessed bit, or a soft fault.
    pub const REFERENCED: u16 = 1 << 3;
    /// Read ahead and not touched yet.
    pub const READ_AHEAD: u16 = 1 << 4;
    /// Its first touch asks for the next window.
    pub const MARKER: u16 = 1 << 5;
    /// Mapped, and an `Unmap` for it is on its way.
    pub const UNMAPPING: u16 = 1 << 6;
    /// The program dropped it while I/O or an unmap was under way: what arrives is thrown away.
    pub const DISCARDED: u16 = 1 << 7;
    /// Map it when its read completes, without waiting for a touch; what was asked for while it left,
    /// when that is done.
    pub const EAGER: u16 = 1 << 8;
    /// In the queue of faults that wait for a frame.
    pub const QUEUED: u16 = 1 << 9;
    /// Its read failed once and is being repeated alone.
    pub const RETRIED: u16 = 1 << 10;
    /// On swap: it could not be read for who needed it, who was told. Nobody reads it but for a touch.
    pub const LOST: u16 = RETRIED;
    /// In view, on its way out of it: it shows the zero page, as its stores were refused.
    pub const SHOWS_ZERO: u16 = RETRIED;
    /// Its refault was close: it goes to the active list when it arrives.
    pub const ACTIVATE: u16 = 1 << 11;
    /// In view: it makes room for another. It counts as one that failed a test, untested.
    pub const MAKES_ROOM: u16 = ACTIVATE;
    /// The software referenced bit of the kernel's rules (set by the second look, section 5.1).
    /// The pager's: [`TESTED`].
    pub const SECOND_LOOK: u16 = 1 << 12;
    /// On its way to be tested; on swap: it failed its test.
    pub const TESTED: u16 = SECOND_LOOK;
    /// Its mapping was refused while an unmap was on its way: whatever that finds, the frame is in
    /// the swap cache.
    pub const UNVIEWED: u16 = 1 << 13;
    /// In RAM: expelled when its stream has passed it; on swap: it was.
    pub const BEHIND: u16 = 1 << 14;
    /// Of a file, being read or in the swap cache, and never in view: it fills room, and is the first to go.
    pub const FILLER: u16 = BEHIND;
    /// An `Unmap` is on its way, and its frame is free when that is done.
    pub const LEAVING: u16 = 1 << 15;
}

/// One page.
///
/// While the page is on a list, `prev` and `next` are its neighbours there; while it is on swap,
/// `prev` holds the reclaim clock at its eviction (the "shadow" that gives the refault distance);
/// while its fault waits for a frame, `next` holds its ticket in that queue.
#[derive(Clone, Copy, Debug)]
pub struct PageEntry {
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Where its bytes are beside a frame, if it has one.
    pub(crate) backing: Backing,
    pub(crate) flags: u16,
    pub(crate) state: State,
    pub(crate) list: u8,
}

const _: () = assert!(size_of::<PageEntry>() == 16);

/// "No page" in list links, "no cluster" in chunks.
pub(crate) const NONE: u32 = u32::MAX;
/// "On no list".
pub(crate) const NO_LIST: u8 = u8::MAX;

impl PageEntry {
    const EMPTY: PageEntry = PageEntry {
        prev: NONE,
        next: NONE,
        backing: Backing::NOTHING,
        flags: 0,
        state: State::Untouched,
        list: NO_LIST,
    };

    /// Its slot, if it has one.
    #[inline]
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.backing.slot()
    }

    /// Its slot in a swap area, if it has one: a file's page is in none.
    #[inline]
    pub(crate) fn area_slot(&self) -> Option<Slot> {
        self.slot().filter(|slot| !slot.is_file())
    }

    /// Is any of these flags set?
    #[inline]
    pub(crate) fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flags: u16) {
        self.flags |= flags;
    }

    #[inline]
    pub(crate) fn clear(&mut self, flags: u16) {
        self.flags &= !flags;
    }

    /// Clears the flags and says whether any was set.
    #[inline]
    pub(crate) fn take(&mut self, flags: u16) -> bool {
        let was = self.has(flags);
        self.clear(flags);
        was
    }
}

/// 2 MiB of address space.
pub(crate) struct Chunk {
    pub space: SpaceId,
    /// Virtual page number / 512.
    pub number: u64,
    /// Pages that are not `Untouched`.
    pub used: u32,
    /// Pages whose faults wait for a frame.
    pub queued: u16,
    /// Unmapped by the program, in whole or in part: forgotten as soon as nothing in it is in use.
    leaving: bool,
    /// Pages that left RAM as zeroes, and have had no frame since: a bit for each.
    blank: [u64; CHUNK_PAGES as usize / 64],
    /// Pages of a file that were not in view since they came to be known: a bit for each.
    unseen: [u64; CHUNK_PAGES as usize / 64],
    /// Where this chunk's slots lie, at the same offsets.
    pub homes: Homes,
    pages: [PageEntry; CHUNK_PAGES as usize],
    /// What the reclaim policy notes of each page.
    stamps: [Stamp; CHUNK_PAGES as usize],
    /// What is noted of each page for the counters.
    ledgers: [Ledger; CHUNK_PAGES as usize],
}

impl Chunk {
    /// Nothing is known of any of its pages.
    pub fn is_unused(&self) -> bool {
        self.used == 0 && self.queued == 0 && self.blank_pages() == 0
    }

    /// How many pages are blank.
    pub fn blank_pages(&self) -> u32 {
        self.blank.iter().map(|word| word.count_ones()).sum()
    }
}

/// The word and the bit of a page among the [`Chunk::blank`], or [`Chunk::unseen`], of its chunk.
fn page_bit(id: PageId) -> (usize, u64) {
    let offset = u64::from(id.0) % CHUNK_PAGES;
    ((offset / 64) as usize, 1 << (offset % 64))
}

/// All pages of all spaces.
#[derive(Default)]
pub(crate) struct PageTable {
    #[allow(clippy::vec_box, reason = "a chunk is 8 KiB and must not move when the vector grows")]
    chunks: Vec<Box<Chunk>>,
    vacant: Vec<u32>,
    /// Chunks on their leave that may have become unused.
    emptied: Vec<u32>,
    directory: Directory,
    /// Pages on swap that have no frame.
    swapped: u32,
    /// Pages that left as zeroes and have had no frame since.
    blank: u32,
    /// Pages of files that have not been in view; and those of them that have a frame.
    unseen: u32,
    unseen_held: u32,
}

impl PageTable {
    /// The page at `vpn`, if anything is known about its chunk.
    #[inline]
    pub fn lookup(&self, space: SpaceId, vpn: Vpn) -> Option<PageId> {
        let chunk = self.directory.get(key(space, vpn.0 / CHUNK_PAGES))?;
        Some(page_id(chunk, vpn))
    }

    /// The page at `vpn`; its chunk is made when it does not exist.
    pub fn lookup_or_create(&mut self, space: SpaceId, vpn: Vpn) -> PageId {
        if let Some(id) = self.lookup(space, vpn) {
            return id;
        }
        let number = vpn.0 / CHUNK_PAGES;
        let chunk = self.new_chunk(space, number);
        self.directory.insert(key(space, number), chunk);
        page_id(chunk, vpn)
    }

    fn new_chunk(&mut self, space: SpaceId, number: u64) -> u32 {
        if let Some(index) = self.vacant.pop() {
            let chunk = &mut self.chunks[index as usize];
            assert!(chunk.is_unused(), "a vacant chunk holds no page");
            (chunk.space, chunk.number, chunk.homes) = (space, number, Homes::NONE);
            return index;
        }
        let index = u32::try_from(self.chunks.len()).expect("2^23 chunks are 16 TiB in use");
        assert!(index < u32::MAX / CHUNK_PAGES as u32, "page ids are 32 bits");
        let pages = [PageEntry::EMPTY; CHUNK_PAGES as usize];
        self.chunks.push(Box::new(Chunk {
            space,
            number,
            used: 0,
            queued: 0,
            leaving: false,
            blank: [0; CHUNK_PAGES as usize / 64],
            unseen: [0; CHUNK_PAGES as usize / 64],
            homes: Homes::NONE,
            pages,
            stamps: [0; CHUNK_PAGES as usize],
            ledgers: [Ledger::default(); CHUNK_PAGES as usize],
        }));
        index
    }

    /// The program unmapped the chunk of `vpn`, or a part of it: it is forgotten once nothing in it
    /// is in use, which [`PageTable::forget_unused`] does.
    pub fn leave(&mut self, space: SpaceId, vpn: Vpn) {
        let Some(index) = self.directory.get(key(space, vpn.0 / CHUNK_PAGES)) else { return };
        self.chunks[index as usize].leaving = true;
        self.emptied.push(index);
    }

    /// Forgets all chunks that are on their leave and unused; `visit` is called with the homes of each.
    pub fn forget_unused(&mut self, mut visit: impl FnMut(Homes)) {
        for index in self.emptied.drain(..) {
            let chunk = &mut self.chunks[index as usize];
            if chunk.leaving && chunk.is_unused() {
                chunk.leaving = false;
                visit(core::mem::replace(&mut chunk.homes, Homes::NONE));
                self.directory.remove(key(chunk.space, chunk.number));
                self.vacant.push(index);
            }
        }
    }

    /// The homes of all chunks, to be changed.
    pub fn homes(&mut self) -> impl Iterator<Item = &mut Homes> {
        self.chunks.iter_mut().map(|chunk| &mut chunk.homes)
    }

    /// A fault of the chunk waits no longer.
    pub fn dequeued(&mut self, id: PageId) {
        let chunk = self.chunk_mut(id);
        chunk.queued = chunk.queued.checked_sub(1).expect("a page waits once");
        self.note_unused(id);
    }

    fn note_unused(&mut self, id: PageId) {
        let chunk = self.chunk(id);
        if chunk.leaving && chunk.is_unused() {
            self.emptied.push(id.0 / CHUNK_PAGES as u32);
        }
    }

    /// Where the page is.
    #[inline]
    pub fn place(&self, id: PageId) -> (SpaceId, Vpn) {
        let chunk = self.chunk(id);
        (chunk.space, Vpn(chunk.number * CHUNK_PAGES + u64::from(id.0) % CHUNK_PAGES))
    }

    /// The chunk of a page.
    #[inline]
    pub fn chunk(&self, id: PageId) -> &Chunk {
        &self.chunks[(u64::from(id.0) / CHUNK_PAGES) as usize]
    }

    /// The chunk of a page.
    #[inline]
    pub fn chunk_mut(&mut self, id: PageId) -> &mut Chunk {
        &mut self.chunks[(u64::from(id.0) / CHUNK_PAGES) as usize]
    }

    /// What the reclaim policy noted of the page.
    pub fn stamp(&self, id: PageId) -> Stamp {
        self.chunk(id).stamps[(u64::from(id.0) % CHUNK_PAGES) as usize]
    }

    /// The reclaim policy notes something.
    pub fn set_stamp(&mut self, id: PageId, stamp: Stamp) {
        self.chunk_mut(id).stamps[(u64::from(id.0) % CHUNK_PAGES) as usize] = stamp;
    }

    /// What is noted of the page for the counters.
    pub fn ledger(&self, id: PageId) -> Ledger {
        self.chunk(id).ledgers[(u64::from(id.0) % CHUNK_PAGES) as usize]
    }

    /// The same, to be changed.
    pub fn ledger_mut(&mut self, id: PageId) -> &mut Ledger {
        &mut self.chunk_mut(id).ledgers[(u64::from(id.0) % CHUNK_PAGES) as usize]
    }

    /// Changes a page's state and keeps the chunk's count.
    pub fn set_state(&mut self, id: PageId, state: State) {
        let chunk = self.chunk_mut(id);
        let page = &mut chunk.pages[(u64::from(id.0) % CHUNK_PAGES) as usize];
        let was = core::mem::replace(&mut page.state, state);
        match (was == State::Untouched, state == State::Untouched) {
            (true, false) => chunk.used += 1,
            (false, true) => {
                chunk.used -= 1;
                chunk.ledgers[(u64::from(id.0) % CHUNK_PAGES) as usize] = Ledger::default();
                self.note_unused(id);
            }
            _ => {}
        }
        self.swapped += u32::from(state == State::Swapped);
        self.swapped -= u32::from(was == State::Swapped);
        if self.blank > 0 && !matches!(state, State::Untouched | State::Zero) {
            self.take_blank(id);
        }
        if self.unseen > 0 && self.is_unseen(id) {
            self.note_unseen(id, was, state);
        }
    }

    /// A page that has not been in view changes its state.
    fn note_unseen(&mut self, id: PageId, was: State, state: State) {
        self.unseen_held -= u32::from(has_frame(was));
        if state == State::Swapped || has_frame(state) && state != State::Mapped {
            self.unseen_held += u32::from(has_frame(state));
            return;
        }
        let (word, bit) = page_bit(id);
        self.chunk_mut(id).unseen[word] &= !bit;
        self.unseen -= 1;
    }

    /// A page of a file is known from now on, or is at another place: it has not been in view.
    pub fn set_unseen(&mut self, id: PageId) {
        let (word, bit) = page_bit(id);
        let state = self[id].state;
        let chunk = self.chunk_mut(id);
        assert!(matches!(state, State::Swapped | State::Cached), "it is in its file, or was read from there");
        assert!(chunk.unseen[word] & bit == 0, "a page is unseen once");
        chunk.unseen[word] |= bit;
        self.unseen += 1;
        self.unseen_held += u32::from(has_frame(state));
    }

    /// Is it of a file, and was not in view since it came to be known?
    pub fn is_unseen(&self, id: PageId) -> bool {
        let (word, bit) = page_bit(id);
        self.chunk(id).unseen[word] & bit != 0
    }

    /// Pages of files that have not been in view, and those of them that have a frame.
    pub fn unseen(&self) -> (u32, u32) {
        (self.unseen, self.unseen_held)
    }

    /// Pages on swap that have no frame: a slot may also belong to a page that has one.
    pub fn swapped(&self) -> u32 {
        self.swapped
    }

    /// A page left RAM as zeroes: with RAM enough it would have its frame still, until the program
    /// drops it.
    pub fn set_blank(&mut self, id: PageId) {
        let (word, bit) = page_bit(id);
        let chunk = self.chunk_mut(id);
        assert!(
            matches!(chunk.pages[id.index() % CHUNK_PAGES as usize].state, State::Untouched | State::Zero),
            "what has a frame, or content elsewhere, has not left as zeroes"
        );
        let is_new = chunk.blank[word] & bit == 0;
        chunk.blank[word] |= bit;
        self.blank += u32::from(is_new);
    }

    /// It has a frame again, or the program has dropped it. True: it was blank.
    pub fn take_blank(&mut self, id: PageId) -> bool {
        let (word, bit) = page_bit(id);
        let chunk = self.chunk_mut(id);
        if chunk.blank[word] & bit == 0 {
            return false;
        }
        chunk.blank[word] &= !bit;
        self.blank -= 1;
        self.note_unused(id);
        true
    }

    /// Did it leave as zeroes, and has it had no frame since?
    pub fn is_blank(&self, id: PageId) -> bool {
        let (word, bit) = page_bit(id);
        self.chunk(id).blank[word] & bit != 0
    }

    /// Pages that left as zeroes and have had no frame since.
    pub fn blank(&self) -> u32 {
        self.blank
    }

    /// Number of chunks ever made; their indices are below it.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// A chunk by index, and whether it is in use.
    pub fn chunk_at(&self, index: usize) -> &Chunk {
        &self.chunks[index]
    }
}

impl core::ops::Index<PageId> for PageTable {
    type Output = PageEntry;
    #[inline]
    fn index(&self, id: PageId) -> &PageEntry {
        &self.chunk(id).pages[(u64::from(id.0) % CHUNK_PAGES) as usize]
    }
}

impl core::ops::IndexMut<PageId> for PageTable {
    #[inline]
    fn index_mut(&mut self, id: PageId) -> &mut PageEntry {
        &mut self.chunk_mut(id).pages[(u64::from(id.0) % CHUNK_PAGES) as usize]
    }
}

fn has_frame(state: State) -> bool {
    matches!(state, State::Mapped | State::Cached | State::Writing | State::Reading)
}

fn key(space: SpaceId, chunk_number: u64) -> u64 {
    debug_assert!(chunk_number < 1 << 47);
    (u64::from(space.0) << 47) | chunk_number
}

fn page_id(chunk: u32, vpn: Vpn) -> PageId {
    PageId(chunk * CHUNK_PAGES as u32 + (vpn.0 % CHUNK_PAGES) as u32)
}

/// Open-addressing map from chunk key to chunk index. Linear probing, backward-shift deletion,
/// never iterated.
#[derive(Default)]
struct Directory {
    /// `(key, index)`; index [`NONE`] = empty. Length is zero or a power of two.
    cells: Vec<(u64, u32)>,
    used: usize,
}

impl Directory {
    #[inline]
    fn home(&self, key: u64) -> usize {
        // Fibonacci hashing: the high bits of key x 2^64/phi are well mixed.
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (self.cells.len() - 1)
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u32> {
        if self.cells.is_empty() {
            return None;
        }
        let mut at = self.home(key);
        loop {
            let (found, index) = self.cells[at];
            if index == NONE {
                return None;
            }
            if found == key {
                return Some(index);
            }
            at = (at + 1) & (self.cells.len() - 1);
        }
    }

    fn insert(&mut self, key: u64, index: u32) {
        if (self.used + 1) * 2 > self.cells.len() {
            self.grow();
        }
        self.used += 1;
        let mut at = self.home(key);
        while self.cells[at].1 != NONE {
            assert_ne!(self.cells[at].0, key, "a chunk is entered once");
            at = (at + 1) & (self.cells.len() - 1);
        }
        self.cells[at] = (key, index);
    }

    fn grow(&mut self) {
        let size = (self.cells.len() * 2).max(64);
        let old = core::mem::replace(&mut self.cells, alloc::vec![(0, NONE); size]);
        self.used = 0;
        for (key, index) in old {
            if index != NONE {
                self.insert(key, index);
            }
        }
    }

    fn remove(&mut self, key: u64) {
        let mask = self.cells.len() - 1;
        let mut hole = self.home(key);
        while self.cells[hole].0 != key || self.cells[hole].1 == NONE {
            assert_ne!(self.cells[hole].1, NONE, "only a present chunk is removed");
            hole = (hole + 1) & mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            if self.cells[at].1 == NONE {
                break;
            }
            let home = self.home(self.cells[at].0);
            // Move the cell into the hole unless its home lies cyclically in (hole, at].
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.cells[hole] = self.cells[at];
                hole = at;
            }
        }
        self.cells[hole] = (0, NONE);
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_agrees_with_a_map() {
        let mut directory = Directory::default();
        let mut model = std::collections::BTreeMap::new();
        let mut seed = 1u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = (seed >> 40) % 500 * 4096;
            if seed & 1 << 20 != 0 {
                if let std::collections::btree_map::Entry::Vacant(cell) = model.entry(key) {
                    cell.insert(seed as u32 >> 1);
                    directory.insert(key, seed as u32 >> 1);
                }
            } else if model.remove(&key).is_some() {
                directory.remove(key);
            }
            for probe in [key, key + 4096] {
                assert_eq!(directory.get(probe), model.get(&probe).copied());
            }
        }
    }

    #[test]
    fn places_round_trip_and_chunks_are_recycled() {
        let mut table = PageTable::default();
        let (space, vpn) = (SpaceId(3), Vpn(0x7_fff1_2345));
        let id = table.lookup_or_create(space, vpn);
        assert_eq!(table.place(id), (space, vpn));
        table.set_state(id, State::Mapped);
        let forget = |table: &mut PageTable| {
            let mut clusters = Vec::new();
            table.forget_unused(|cluster| clusters.push(cluster));
            clusters
        };
        assert_eq!(forget(&mut table), []);
        table.leave(space, vpn);
        assert_eq!(forget(&mut table), [], "a page is in use");
        table.set_state(id, State::Untouched);
        assert_eq!(forget(&mut table), [Homes::NONE]);
        assert_eq!(forget(&mut table), [], "it is forgotten once");
        assert_eq!(table.lookup(space, vpn), None);
        assert_eq!(table.lookup_or_create(SpaceId(0), Vpn(7)).0 / 512, id.0 / 512);
    }
}
