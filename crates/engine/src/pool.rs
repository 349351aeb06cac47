//! The compressed pool: pages that left their frames, by the slot that stands for them, in a part
//! of the budget.
//!
//! A page that compresses to a third takes a third of a frame here, and comes back in microseconds
//! instead of a trip to the device. To `mm` the pool is part of the device: what was written to a
//! slot is read from it, wherever it is meanwhile. An entry is *dirty* if the swap file does not
//! hold what it holds.
//!
//! Entries are appended to segments, like a log. What is removed or replaced leaves a gap, and a
//! segment without entries is given back; a segment with few is emptied by moving them on, the
//! oldest one by writing to the file what only it has. This file keeps entries and books;
//! `engine/compress` decides what goes in and out, [`overspill_mm::pool`] how much room there is.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use overspill_sys::mem::Buffer;
use overspill_sys::{AddressRange, PAGE_SIZE};

use crate::memory::BOUNCE;

/// A page's bytes.
pub(crate) type Page = [u8; PAGE_SIZE];

/// Frames of a segment.
pub(crate) const SEGMENT_FRAMES: u32 = 64;
const SEGMENT_BYTES: usize = SEGMENT_FRAMES as usize * PAGE_SIZE;
/// Entries begin at multiples of this.
const UNIT: usize = 8;
/// A page that does not get smaller than this is not worth its place.
const PACKED_MAX: usize = PAGE_SIZE * 3 / 4;
/// A segment with fewer bytes in use is emptied by moving its entries on rather than by writing.
const SPARSE_BYTES: usize = SEGMENT_BYTES / 2;

/// Where an entry is: its number among all units, plus 1; 0 = nowhere.
type Place = u32;

/// What stands before an entry's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    slot: u32,
    /// Of the bytes that follow; a whole page is not compressed.
    len: u16,
    dirty: bool,
}

const HEADER_BYTES: usize = 8;
/// Segments beyond the limit: for what must be taken (a write of 256 pages for each entry that is
/// on its way to the file, none of which compresses), and for what is moved on.
const SPARE_SEGMENTS: u32 = BOUNCE * 256 / (SEGMENT_FRAMES - 1) + 8;
/// Places are 32 bits: so many segments have one for each of their units.
const SEGMENTS_MAX: u32 = u32::MAX / (SEGMENT_BYTES / UNIT) as u32 - SPARE_SEGMENTS - 1;

struct Segment {
    /// How many were allocated before it.
    number: u64,
    /// Bytes from the start on that were given to entries, and those of entries that are still there.
    used: usize,
    live: usize,
}

/// Why a page was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// It does not compress well.
    Stiff,
    /// There is no room.
    Full,
}

/// How long ago an entry was stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Age {
    /// It is among the youngest, of which there are as many as the pool has frames.
    Young,
    Middle,
    /// It is in the oldest quarter of the pool.
    Old,
}

/// Totals since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    /// Pages that were compressed, to be stored or in vain, and the bytes they became.
    pub tried: u64,
    pub tried_bytes: u64,
    /// Pages stored.
    pub stored: u64,
    /// Pages loaded.
    pub loaded: u64,
}

/// The pool.
pub(crate) struct Pool {
    /// Room for all segments there may be; mapped when first needed.
    buffer: Option<Buffer>,
    segments_max: u32,
    segments: Vec<Option<Segment>>,
    /// Full segments, the oldest first.
    full: VecDeque<u32>,
    /// The one that is being filled.
    open: Option<u32>,
    allocated: u32,
    allocations: u64,
    /// Numbers of segments that are not there.
    vacant: Vec<u32>,
    /// Most segments it may have.
    limit: u32,
    entries: u32,
    place_of: Vec<Place>,
    /// A bit for each slot whose last content did not compress when it was tried: as a copy of what
    /// the file has it is not tried again.
    stiff: Vec<u64>,
    table: CompressTable,
    packed: Box<[u8]>,
    totals: Totals,
}

impl Pool {
    /// A pool that will never have more than so many frames.
    pub fn new(frames_max: u32) -> Self {
        let segments_max = (frames_max / SEGMENT_FRAMES).min(SEGMENTS_MAX);
        Pool {
            buffer: None,
            segments_max,
            segments: Vec::new(),
            full: VecDeque::new(),
            open: None,
            allocated: 0,
            allocations: 0,
            vacant: Vec::new(),
            limit: 0,
            entries: 0,
            place_of: Vec::new(),
            stiff: Vec::new(),
            table: CompressTable::default(),
            packed: alloc::vec![0; get_maximum_output_size(PAGE_SIZE)].into_boxed_slice(),
            totals: Totals::default(),
        }
    }

    /// Most frames that it may take from now on. What it has beyond that goes when somebody takes it out.
    pub fn set_limit(&mut self, frames: u32) {
        let limit = (frames / SEGMENT_FRAMES).min(self.segments_max);
        if limit > 0 && self.buffer.is_none() {
            let bytes = (self.segments_max + SPARE_SEGMENTS) as usize * SEGMENT_BYTES;
            self.buffer = Buffer::new(bytes).ok();
        }
        self.limit = if self.buffer.is_some() { limit } else { 0 };
    }

    /// Its own mapping.
    pub fn range(&self) -> AddressRange {
        self.buffer.as_ref().map_or(0..0, Buffer::range)
    }

    /// May anything be stored?
    pub fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Frames that it takes of the budget.
    pub fn frames(&self) -> u32 {
        self.allocated * SEGMENT_FRAMES
    }

    /// Entries.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Is there an entry for the slot?
    pub fn holds(&self, slot: u32) -> bool {
        self.place(slot) != 0
    }

    /// A number that no other entry ever has; none if the slot has no entry.
    pub fn stamp(&self, slot: u32) -> Option<u64> {
        let place = Some(self.place(slot)).filter(|&place| place != 0)?;
        Some(self.segment(segment_of(place)).number * SEGMENT_BYTES as u64 + offset_of(place) as u64)
    }

    #[cfg(test)]
    /// Is there an entry whose content the file does not have?
    pub fn is_dirty(&self, slot: u32) -> bool {
        let place = self.place(slot);
        place != 0 && self.header(place).dirty
    }

    /// Stores what the slot stands for from now on, in place of what was there. What must be taken
    /// is taken even if it does not compress and there is no room. Refused as stiff, what was there
    /// stays; for want of room, it is gone.
    pub fn store(&mut self, slot: u32, page: &Page, dirty: bool, must: bool) -> Result<(), Refused> {
        if !dirty && !must && self.is_stiff(slot) {
            return Err(Refused::Stiff);
        }
        let packed = compress_into_with_table(page, &mut self.packed, &mut self.table);
        let packed = packed.expect("there is room for the largest output");
        self.totals.tried += 1;
        self.totals.tried_bytes += packed.min(PAGE_SIZE) as u64;
        let whole = packed > PACKED_MAX;
        self.note_stiff(slot, whole);
        if whole && !must {
            return Err(Refused::Stiff);
        }
        self.remove(slot);
        let len = if whole { PAGE_SIZE } else { packed };
        let (segment, at) = self.room(HEADER_BYTES + len, must).ok_or(Refused::Full)?;
        let buffer = self.buffer.as_mut().expect("what has room is mapped");
        let body = buffer.bytes_mut(at_of(segment, at + HEADER_BYTES), len);
        body.copy_from_slice(if whole { page } else { &self.packed[..len] });
        self.enter(segment, at, Header { slot, len: len as u16, dirty });
        self.totals.stored += 1;
        Ok(())
    }

    /// How old the slot's entry is.
    pub fn age(&self, slot: u32) -> Option<Age> {
        let place = Some(self.place(slot)).filter(|&place| place != 0)?;
        let number = self.segment(segment_of(place)).number;
        let oldest = self.full.front().map_or(number, |&oldest| self.segment(oldest).number);
        let (age, range) = (self.allocations - number, self.allocations - oldest);
        Some(if age * 4 > range * 3 {
            Age::Old
        } else if age * u64::from(self.entries) <= range * u64::from(self.frames()) {
            Age::Young
        } else {
            Age::Middle
        })
    }

    /// Fills a page from the slot's entry, which stays. False: there is none.
    pub fn load(&mut self, slot: u32, page: &mut Page) -> bool {
        let loaded = self.peek(slot, page);
        self.totals.loaded += u64::from(loaded);
        loaded
    }

    /// As [`Pool::load`], uncounted: for those who are not the program.
    pub fn peek(&self, slot: u32, page: &mut Page) -> bool {
        let place = self.place(slot);
        if place == 0 {
            return false;
        }
        let header = self.header(place);
        assert_eq!(header.slot, slot, "an entry knows its slot");
        let len = header.len as usize;
        let body = self.bytes(place, HEADER_BYTES + len);
        let body = &body[HEADER_BYTES..];
        if len == PAGE_SIZE {
            page.copy_from_slice(body);
        } else {
            let unpacked = decompress_into(body, page);
            assert_eq!(unpacked.ok(), Some(PAGE_SIZE), "an entry is a page");
        }
        true
    }

    /// Removes the slot's entry. True: it was dirty.
    pub fn remove(&mut self, slot: u32) -> bool {
        let place = self.place(slot);
        if place == 0 {
            return false;
        }
        let header = self.header(place);
        assert_eq!(header.slot, slot, "an entry knows its slot");
        self.place_of[slot as usize] = 0;
        self.entries -= 1;
        let number = segment_of(place);
        let segment = self.segments[number as usize].as_mut().expect("an entry is in a segment");
        segment.live -= footprint(header.len);
        if segment.live == 0 {
            self.free(number);
        }
        header.dirty
    }

    /// Does it take all it may, or nearly?
    pub fn is_nearly_full(&self) -> bool {
        self.allocated + 2 > self.limit
    }

    /// Does it take more than it may?
    pub fn is_too_large(&self) -> bool {
        self.allocated > self.limit
    }

    /// Empties the sparsest segment by moving its entries on. False: none is sparse enough for that to pay.
    pub fn compact(&mut self) -> bool {
        let live = |number: &u32| self.segment(*number).live;
        let Some(sparsest) = self.full.iter().copied().min_by_key(live) else { return false };
        if live(&sparsest) > SPARSE_BYTES {
            return false;
        }
        for (slot, _) in self.listed(sparsest) {
            self.move_on(slot);
        }
        true
    }

    /// The slots with an entry in the oldest segment, and whether the entry is dirty.
    pub fn oldest(&self) -> Vec<(u32, bool)> {
        self.full.front().or(self.open.as_ref()).map_or_else(Vec::new, |&number| self.listed(number))
    }

    /// Appends a copy of the slot's entry, and removes the old one.
    fn move_on(&mut self, slot: u32) {
        let place = self.place(slot);
        let header = self.header(place);
        let bytes = HEADER_BYTES + header.len as usize;
        // The segment that is emptied makes up for the one that this may open.
        let (to, at) = self.room(bytes, true).expect("there is always room for what must be");
        let buffer = self.buffer.as_mut().expect("what has entries is mapped");
        buffer.copy(at_of(segment_of(place), offset_of(place)), at_of(to, at), bytes);
        self.remove(slot);
        self.enter(to, at, header);
    }

    /// The entries of a segment.
    fn listed(&self, number: u32) -> Vec<(u32, bool)> {
        let segment = self.segment(number);
        let mut listed = Vec::new();
        let mut at = 0;
        while at < segment.used {
            let place = place(number, at);
            let header = self.header(place);
            if self.place(header.slot) == place {
                listed.push((header.slot, header.dirty));
            }
            at += footprint(header.len);
        }
        listed
    }

    /// Room for so many bytes in the open segment, or in a new one.
    fn room(&mut self, bytes: usize, must: bool) -> Option<(u32, usize)> {
        let fits = |segment: &Segment| segment.used + bytes <= SEGMENT_BYTES;
        if let Some(open) = self.open
            && !fits(self.segment(open))
        {
            self.full.push_back(open);
            self.open = None;
        }
        if self.open.is_none() {
            if self.allocated >= self.limit && !must {
                return None;
            }
            self.open = Some(self.allocate());
        }
        let open = self.open?;
        Some((open, self.segment(open).used))
    }

    fn allocate(&mut self) -> u32 {
        let segment = Segment { number: self.allocations, used: 0, live: 0 };
        self.allocated += 1;
        self.allocations += 1;
        let index = self.vacant.pop().unwrap_or(self.segments.len() as u32);
        if index as usize == self.segments.len() {
            assert!(index < self.segments_max + SPARE_SEGMENTS, "what must be taken is little");
            self.segments.push(None);
        }
        self.segments[index as usize] = Some(segment);
        index
    }

    fn free(&mut self, index: u32) {
        self.segments[index as usize] = None;
        self.vacant.push(index);
        self.buffer.as_mut().expect("it was mapped").discard(at_of(index, 0), SEGMENT_BYTES);
        self.allocated -= 1;
        if self.open == Some(index) {
            self.open = None;
        } else {
            self.full.retain(|&full| full != index);
        }
    }

    /// Writes the header of an entry whose bytes stand in the open segment, and notes where it is.
    fn enter(&mut self, number: u32, at: usize, header: Header) {
        let segment = self.segments[number as usize].as_mut().expect("it has room");
        assert_eq!(segment.used, at, "entries are appended");
        segment.used += footprint(header.len);
        segment.live += footprint(header.len);
        let buffer = self.buffer.as_mut().expect("what has room is mapped");
        let bytes = buffer.bytes_mut(at_of(number, at), HEADER_BYTES);
        bytes[..4].copy_from_slice(&header.slot.to_ne_bytes());
        bytes[4..6].copy_from_slice(&header.len.to_ne_bytes());
        bytes[6..].copy_from_slice(&u16::from(header.dirty).to_ne_bytes());
        let slot = header.slot as usize;
        if slot >= self.place_of.len() {
            self.place_of.resize((slot + 1).next_multiple_of(512), 0);
        }
        assert_eq!(self.place_of[slot], 0, "a slot has one entry");
        self.place_of[slot] = place(number, at);
        self.entries += 1;
    }

    fn is_stiff(&self, slot: u32) -> bool {
        self.stiff.get(slot as usize / 64).is_some_and(|bits| bits >> (slot % 64) & 1 != 0)
    }

    fn note_stiff(&mut self, slot: u32, stiff: bool) {
        let word = slot as usize / 64;
        if stiff && word >= self.stiff.len() {
            self.stiff.resize(word + 1, 0);
        }
        if let Some(bits) = self.stiff.get_mut(word) {
            *bits = *bits & !(1 << (slot % 64)) | u64::from(stiff) << (slot % 64);
        }
    }

    fn header(&self, place: Place) -> Header {
        let bytes = self.bytes(place, HEADER_BYTES);
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let slot = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Header { slot, len: half(4), dirty: half(6) != 0 }
    }

    /// The first bytes of an entry, from its header on.
    fn bytes(&self, place: Place, len: usize) -> &[u8] {
        let buffer = self.buffer.as_ref().expect("what has entries is mapped");
        buffer.bytes(at_of(segment_of(place), offset_of(place)), len)
    }

    fn place(&self, slot: u32) -> Place {
        self.place_of.get(slot as usize).copied().unwrap_or(0)
    }

    fn segment(&self, number: u32) -> &Segment {
        self.segments[number as usize].as_ref().expect("an entry is in a segment")
    }
}

/// Where an offset in a segment is in the buffer.
fn at_of(segment: u32, offset: usize) -> usize {
    segment as usize * SEGMENT_BYTES + offset
}

/// Bytes that an entry takes.
fn footprint(len: u16) -> usize {
    (HEADER_BYTES + len as usize).next_multiple_of(UNIT)
}

fn place(segment: u32, at: usize) -> Place {
    segment * (SEGMENT_BYTES / UNIT) as u32 + (at / UNIT) as u32 + 1
}

fn segment_of(place: Place) -> u32 {
    (place - 1) / (SEGMENT_BYTES / UNIT) as u32
}

fn offset_of(place: Place) -> usize {
    (place - 1) as usize % (SEGMENT_BYTES / UNIT) * UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that compresses to about `noise` bytes.
    fn page(seed: u64, noise: usize) -> Page {
        let mut page = [0; PAGE_SIZE];
        let mut state = seed | 1;
        for byte in &mut page[..noise] {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8;
        }
        page[PAGE_SIZE - 8..].copy_from_slice(&seed.to_ne_bytes());
        page
    }

    fn loaded(pool: &mut Pool, slot: u32) -> Option<Page> {
        let mut page = [1; PAGE_SIZE];
        pool.load(slot, &mut page).then_some(page)
    }

    #[test]
    fn what_was_stored_last_is_loaded_whatever_happens_between() {
        let mut pool = Pool::new(8 * SEGMENT_FRAMES);
        pool.set_limit(8 * SEGMENT_FRAMES);
        let mut model = std::collections::HashMap::new();
        let mut random = 12345u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for round in 0..60_000 {
            let slot = next(2000) as u32;
            match next(10) {
                0..5 => {
                    let (noise, dirty, must) = (next(4096) as usize, next(2) == 0, next(50) == 0);
                    let content = page(round, noise);
                    match pool.store(slot, &content, dirty, must) {
                        Ok(()) => drop(model.insert(slot, (content, dirty))),
                        Err(Refused::Stiff) => {
                            assert_eq!(pool.is_dirty(slot), model.get(&slot).is_some_and(|x| x.1))
                        }
                        Err(Refused::Full) => drop(model.remove(&slot)),
                    }
                }
                5..8 => assert_eq!(loaded(&mut pool, slot), model.get(&slot).map(|x| x.0)),
                8 => assert_eq!(pool.remove(slot), model.remove(&slot).is_some_and(|x| x.1)),
                _ if pool.is_nearly_full() && !pool.compact() => {
                    for (slot, dirty) in pool.oldest() {
                        assert_eq!(model.remove(&slot).map(|x| x.1), Some(dirty));
                        pool.remove(slot);
                    }
                }
                _ => {}
            }
            assert_eq!(pool.entries() as usize, model.len());
        }
        for slot in 0..2000 {
            assert_eq!(loaded(&mut pool, slot), model.get(&slot).map(|x| x.0));
            pool.remove(slot);
        }
        assert_eq!((pool.frames(), pool.entries()), (0, 0), "an empty pool takes no memory");
    }

    #[test]
    fn what_does_not_compress_is_refused_unless_it_must_be_taken() {
        let mut pool = Pool::new(8 * SEGMENT_FRAMES);
        let noise = page(1, PAGE_SIZE);
        assert_eq!(pool.store(3, &page(2, 100), true, false), Err(Refused::Full));
        pool.set_limit(SEGMENT_FRAMES);
        assert_eq!(pool.store(3, &noise, true, false), Err(Refused::Stiff));
        assert_eq!(pool.store(3, &noise, true, true), Ok(()));
        assert_eq!(loaded(&mut pool, 3), Some(noise));
        assert!(pool.remove(3));
    }

    /// What was refused on its way out is in the file, and was tried a second time when it left its frame.
    #[test]
    fn what_does_not_compress_is_tried_once_for_each_content() {
        let mut pool = Pool::new(8 * SEGMENT_FRAMES);
        pool.set_limit(SEGMENT_FRAMES);
        let noise = page(1, PAGE_SIZE);
        for content in 1..=2 {
            assert_eq!(pool.store(70, &noise, true, false), Err(Refused::Stiff));
            assert_eq!(pool.store(70, &noise, false, false), Err(Refused::Stiff));
            assert_eq!(pool.totals().tried, content);
        }
        assert_eq!(pool.store(70, &page(2, 100), true, false), Ok(()), "new content is tried");
        pool.remove(70);
        assert_eq!(pool.store(70, &page(2, 100), false, false), Ok(()), "and known");
        assert_eq!(pool.store(6, &page(2, 100), false, false), Ok(()), "no other slot is");
    }

    #[test]
    fn gaps_are_used_again() {
        let mut pool = Pool::new(8 * SEGMENT_FRAMES);
        pool.set_limit(4 * SEGMENT_FRAMES);
        let many = 4 * SEGMENT_BYTES as u32 / 1100;
        for slot in 0..many {
            pool.store(slot, &page(slot.into(), 1000), true, false).unwrap();
        }
        (0..many).filter(|slot| slot % 4 != 0).for_each(|slot| assert!(pool.remove(slot)));
        assert!(pool.is_nearly_full());
        while pool.compact() {}
        assert!(pool.frames() <= 2 * SEGMENT_FRAMES, "a quarter of the entries is left");
        for slot in (0..many).step_by(4) {
            assert_eq!(loaded(&mut pool, slot), Some(page(slot.into(), 1000)));
        }
    }
}
