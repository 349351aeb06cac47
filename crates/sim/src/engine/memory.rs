//! What is really where: the program's view, the swap cache, the slots, and (when asked) the bytes.
//!
//! This is the other side of `mm`'s bookkeeping. It is kept from the actions alone, never by asking
//! `mm`, so that the two can disagree and be caught. Bytes are stood for by a version a page: each
//! store makes a new one, transfers copy it, and a page that comes into view must have the version
//! that was stored last.

use overspill_mm::types::{CHUNK_PAGES, PageId, Slot};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const CHUNK: usize = CHUNK_PAGES as usize;

/// Bits of a page in the program's view.
pub mod view {
    /// In view.
    pub const PRESENT: u8 = 1;
    /// Stored to since its bytes were last written to its slot.
    pub const NEWER: u8 = 2;
    /// Stored to since it was last all zero.
    pub const STORED: u8 = 4;
    /// Could not be read back: its next touch fails.
    pub const LOST: u8 = 8;
    /// In view without a frame, as the kernel's zero page: a store to it is a fault.
    pub const ZERO: u8 = 16;
}

/// Bits of a page's frame outside the view.
mod frame {
    /// In the swap cache.
    pub const CACHED: u8 = 1;
    /// A read is under way into it.
    pub const READING: u8 = 2;
    /// A write is under way from it.
    pub const WRITING: u8 = 4;
    /// A read into it failed.
    pub const FAILED: u8 = 8;
    /// Any of these means that there is a frame.
    pub const HELD: u8 = CACHED | READING | FAILED;
}

/// Chunks that are found without the directory.
const LATELY: usize = 1024;

/// The version of a page that was never stored to.
const ZERO: u64 = 0;
/// The version of a slot after a failed write.
const GARBAGE: u64 = u64::MAX;
/// `Chunk::base` before `mm` has named the chunk.
pub const UNNAMED: u32 = u32::MAX;

/// 2 MiB of a program's address space.
pub struct Chunk {
    /// The address space.
    pub space: u16,
    /// Virtual page number / 512.
    pub number: u64,
    /// `mm`'s number of the first page, once known; [`UNNAMED`] before.
    pub base: u32,
    bits: [u8; CHUNK],
    /// The version of each page as the program knows it; empty without shadow.
    truth: Vec<u64>,
}

/// Multiplicative hashing of a chunk's key: deterministic, and never iterated.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }
}

type Directory = HashMap<(u16, u64), u32, BuildHasherDefault<KeyHasher>>;

/// Contents, when they are followed.
struct Shadow {
    version: u64,
    /// By page id: the version in the swap cache.
    cache: Vec<u64>,
    /// By slot.
    slots: Vec<u64>,
    /// By slot: transfers under way; reads count 1 each, a write counts [`SLOT_WRITING`].
    busy: Vec<u16>,
}

const SLOT_WRITING: u16 = 1 << 15;

/// Everything.
pub struct Memory {
    chunks: Vec<Chunk>,
    directory: Directory,
    /// Chunks found lately, by the low bits of their number: (space, number, index).
    lately: Vec<(u16, u64, u32)>,
    /// By page id.
    frames: Vec<u8>,
    /// Frames held, the view included.
    held: u64,
    held_max: u64,
    shadow: Option<Shadow>,
}

/// A page of the program: chunk index and page within the chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Index of the chunk.
    pub chunk: u32,
    /// Page within it.
    pub page: u16,
}

impl Memory {
    /// Nothing anywhere; `slots` are followed if `shadow`.
    pub fn new(slots: u32, shadow: bool) -> Memory {
        let shadow = shadow.then(|| Shadow {
            version: ZERO,
            cache: Vec::new(),
            slots: vec![GARBAGE; slots as usize],
            busy: vec![0; slots as usize],
        });
        Memory {
            chunks: Vec::new(),
            directory: Directory::default(),
            lately: vec![(0, u64::MAX, 0); LATELY],
            frames: Vec::new(),
            held: 0,
            held_max: 0,
            shadow,
        }
    }

    /// Are contents followed?
    pub fn has_shadow(&self) -> bool {
        self.shadow.is_some()
    }

    /// Frames held now and at most.
    pub fn held(&self) -> (u64, u64) {
        (self.held, self.held_max)
    }

    /// The chunk of a page, if it was ever touched.
    pub fn find(&self, space: u16, vpn: u64) -> Option<Place> {
        let chunk = *self.directory.get(&(space, vpn / CHUNK_PAGES))?;
        Some(Place { chunk, page: (vpn % CHUNK_PAGES) as u16 })
    }

    /// As [`Memory::find`], for threads that run: faster for chunks that were found lately.
    #[inline]
    pub fn find_quickly(&mut self, space: u16, vpn: u64) -> Option<Place> {
        let number = vpn / CHUNK_PAGES;
        let lately = &mut self.lately[number as usize % LATELY];
        if (lately.0, lately.1) != (space, number) {
            *lately = (space, number, *self.directory.get(&(space, number))?);
        }
        Some(Place { chunk: lately.2, page: (vpn % CHUNK_PAGES) as u16 })
    }

    /// The place of a page; makes its chunk. True when it is new.
    pub fn find_or_create(&mut self, space: u16, vpn: u64) -> (Place, bool) {
        if let Some(place) = self.find(space, vpn) {
            return (place, false);
        }
        let number = vpn / CHUNK_PAGES;
        let chunk = u32::try_from(self.chunks.len()).expect("2^32 chunks are 8 PiB");
        let truth = if self.shadow.is_some() { vec![ZERO; CHUNK] } else { Vec::new() };
        self.chunks.push(Chunk { space, number, base: UNNAMED, bits: [0; CHUNK], truth });
        self.directory.insert((space, number), chunk);
        (Place { chunk, page: (vpn % CHUNK_PAGES) as u16 }, true)
    }

    /// A chunk.
    #[inline]
    pub fn chunk(&self, chunk: u32) -> &Chunk {
        &self.chunks[chunk as usize]
    }

    /// Number of chunks.
    pub fn chunk_count(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// The bits of a page in view.
    #[inline]
    pub fn bits(&self, place: Place) -> u8 {
        self.chunks[place.chunk as usize].bits[place.page as usize]
    }

    /// `mm` calls the chunk of `place` by the page ids from `base` on.
    pub fn name(&mut self, place: Place, base: u32) {
        self.chunks[place.chunk as usize].base = base;
    }

    /// `mm` may have forgotten these chunks and use their ids for others.
    pub fn unname(&mut self, space: u16, start: u64, end: u64) {
        for number in start / CHUNK_PAGES..end.div_ceil(CHUNK_PAGES) {
            if let Some(&chunk) = self.directory.get(&(space, number)) {
                self.chunks[chunk as usize].base = UNNAMED;
            }
        }
    }

    /// The program stores to a page in view.
    #[inline]
    pub fn store(&mut self, place: Place) {
        let chunk = &mut self.chunks[place.chunk as usize];
        debug_assert!(chunk.bits[place.page as usize] & view::PRESENT != 0, "stores need a page");
        chunk.bits[place.page as usize] |= view::STORED | view::NEWER;
        if let Some(shadow) = &mut self.shadow {
            shadow.version += 1;
            chunk.truth[place.page as usize] = shadow.version;
        }
    }

    fn bits_mut(&mut self, place: Place) -> &mut u8 {
        &mut self.chunks[place.chunk as usize].bits[place.page as usize]
    }

    fn frame_mut(&mut self, id: PageId) -> &mut u8 {
        let index = id.index();
        if index >= self.frames.len() {
            let size = (index / CHUNK + 1) * CHUNK;
            self.frames.resize(size, 0);
            if let Some(shadow) = &mut self.shadow {
                shadow.cache.resize(size, GARBAGE);
            }
        }
        &mut self.frames[index]
    }

    fn take_frames(&mut self, count: u64) {
        self.held += count;
        self.held_max = self.held_max.max(self.held);
    }

    fn give_frame(&mut self) {
        assert!(self.held > 0, "a frame is given back once");
        self.held -= 1;
    }

    /// A zeroed frame comes into view.
    pub fn zero_fill(&mut self, place: Place) {
        let shadowed = self.shadow.is_some();
        let chunk = &mut self.chunks[place.chunk as usize];
        let bits = &mut chunk.bits[place.page as usize];
        assert!(*bits & view::PRESENT == 0, "a page is filled where there is none");
        *bits = view::PRESENT;
        if shadowed {
            let truth = chunk.truth[place.page as usize];
            assert_eq!(truth, ZERO, "{place:?}: zeroes take the place of version {truth}");
        }
        self.take_frames(1);
    }

    /// The kernel's zero page comes into view, protected.
    pub fn show_zeroes(&mut self, place: Place) {
        let chunk = &mut self.chunks[place.chunk as usize];
        let bits = &mut chunk.bits[place.page as usize];
        assert!(*bits & view::PRESENT == 0, "zeroes are shown where there is nothing");
        *bits = view::PRESENT | view::ZERO;
        if let Some(&truth) = chunk.truth.get(place.page as usize) {
            assert_eq!(truth, ZERO, "{place:?}: zeroes take the place of version {truth}");
        }
    }

    /// What shows the zero page gets a frame.
    pub fn take_stores(&mut self, place: Place) {
        let bits = self.bits_mut(place);
        assert!(*bits & view::ZERO != 0, "stores are taken where the zero page is");
        *bits = view::PRESENT;
        self.take_frames(1);
    }

    /// A page of the swap cache comes into view.
    pub fn map(&mut self, id: PageId, place: Place) {
        let frame = self.frame_mut(id);
        assert_eq!(*frame, frame::CACHED, "{id:?}: only an idle page of the swap cache is mapped");
        *frame = 0;
        let bits = self.bits_mut(place);
        assert!(*bits & view::PRESENT == 0, "a page is mapped where there is none");
        *bits = (*bits & (view::STORED | view::NEWER)) | view::PRESENT;
        if let Some(shadow) = &self.shadow {
            let (has, truth) =
                (shadow.cache[id.index()], self.chunks[place.chunk as usize].truth[place.page as usize]);
            assert_eq!(
                has, truth,
                "{id:?} {place:?}: the page shows version {has}, not what was stored last"
            );
        }
    }

    /// A page leaves the view for the swap cache. `None`: there was none; else whether it is all zero.
    pub fn unmap(&mut self, id: PageId, place: Place) -> Option<bool> {
        let bits = self.bits_mut(place);
        if *bits & view::PRESENT == 0 {
            return None;
        }
        let shows_zero = *bits & view::ZERO != 0;
        *bits &= view::STORED | view::NEWER;
        let stored = *bits & view::STORED != 0;
        if shows_zero {
            // What is taken of the zero page is a copy.
            self.take_frames(1);
        }
        let frame = self.frame_mut(id);
        assert_eq!(*frame, 0, "{id:?}: a page has one frame");
        *frame = frame::CACHED;
        match &mut self.shadow {
            None => Some(!stored),
            Some(shadow) => {
                let truth = self.chunks[place.chunk as usize].truth[place.page as usize];
                shadow.cache[id.index()] = truth;
                Some(truth == ZERO)
            }
        }
    }

    /// Does the swap cache hold for a page what its slot holds?
    pub fn is_same(&self, id: PageId, place: Place, slot: Slot) -> bool {
        match &self.shadow {
            None => self.bits(place) & view::NEWER == 0,
            Some(shadow) => shadow.cache[id.index()] == shadow.slots[slot.0 as usize],
        }
    }

    /// The frame of a page outside the view is free.
    pub fn free(&mut self, id: PageId) {
        let frame = self.frame_mut(id);
        assert!(*frame == frame::CACHED || *frame == frame::FAILED, "{id:?}: freed as {frame:#x}");
        *frame = 0;
        self.give_frame();
        if let Some(shadow) = &mut self.shadow {
            shadow.cache[id.index()] = GARBAGE;
        }
    }

    /// What the swap cache holds for `from` belongs to `to`.
    pub fn rename(&mut self, from: PageId, to: PageId) {
        let moved = std::mem::take(self.frame_mut(from));
        assert_eq!(moved, frame::CACHED, "{from:?}: only an idle page of the swap cache is renamed");
        let there = self.frame_mut(to);
        assert_eq!(*there, 0, "{to:?}: nothing is in the way");
        *there = moved;
        if let Some(shadow) = &mut self.shadow {
            shadow.cache[to.index()] = std::mem::replace(&mut shadow.cache[from.index()], GARBAGE);
        }
    }

    /// A read into a new frame begins.
    pub fn read_begins(&mut self, id: PageId, slot: Slot) {
        let frame = self.frame_mut(id);
        assert_eq!(*frame, 0, "{id:?}: read where there is a frame");
        *frame = frame::READING;
        self.take_frames(1);
        if let Some(shadow) = &mut self.shadow {
            let busy = &mut shadow.busy[slot.0 as usize];
            assert!(*busy < SLOT_WRITING, "{slot:?} is read while it is written");
            *busy += 1;
        }
    }

    /// It ends.
    pub fn read_ends(&mut self, id: PageId, slot: Slot, ok: bool) {
        let frame = self.frame_mut(id);
        assert_eq!(*frame, frame::READING, "{id:?}: what is read was being read");
        *frame = if ok { frame::CACHED } else { frame::FAILED };
        if let Some(shadow) = &mut self.shadow {
            shadow.busy[slot.0 as usize] -= 1;
            shadow.cache[id.index()] = if ok { shadow.slots[slot.0 as usize] } else { GARBAGE };
        }
    }

    /// A write from the swap cache begins. Gives what is written, for the end.
    pub fn write_begins(&mut self, id: PageId, place: Place, slot: Slot) -> u64 {
        assert!(slot.0 != 0, "the header is never written");
        let frame = self.frame_mut(id);
        assert_eq!(*frame, frame::CACHED, "{id:?}: only an idle page of the swap cache is written");
        *frame |= frame::WRITING;
        *self.bits_mut(place) &= !view::NEWER;
        let Some(shadow) = &mut self.shadow else { return ZERO };
        let busy = &mut shadow.busy[slot.0 as usize];
        assert_eq!(*busy, 0, "{slot:?} is written while a transfer of it is under way");
        *busy = SLOT_WRITING;
        shadow.cache[id.index()]
    }

    /// It ends; `version` is what it began with.
    pub fn write_ends(&mut self, id: PageId, slot: Slot, version: u64, ok: bool) {
        let frame = self.frame_mut(id);
        assert_eq!(*frame, frame::CACHED | frame::WRITING, "{id:?}: what is written was being written");
        *frame = frame::CACHED;
        if let Some(shadow) = &mut self.shadow {
            assert_eq!(shadow.cache[id.index()], version, "{id:?}: changed while it was written");
            shadow.busy[slot.0 as usize] = 0;
            shadow.slots[slot.0 as usize] = if ok { version } else { GARBAGE };
        }
    }

    /// The page could not be read back; the program gets a signal.
    pub fn lose(&mut self, place: Place) {
        *self.bits_mut(place) |= view::LOST;
    }

    /// The program drops a page: it is zero again, and out of view.
    pub fn discard(&mut self, place: Place) {
        let chunk = &mut self.chunks[place.chunk as usize];
        let bits = std::mem::take(&mut chunk.bits[place.page as usize]);
        if let Some(truth) = chunk.truth.get_mut(place.page as usize) {
            *truth = ZERO;
        }
        if bits & (view::PRESENT | view::ZERO) == view::PRESENT {
            self.give_frame();
        }
    }

    /// The same of all pages of a range that were ever touched.
    pub fn discard_range(&mut self, space: u16, start: u64, end: u64) {
        let (first, last) = (start / CHUNK_PAGES, end.div_ceil(CHUNK_PAGES));
        let is_within = |chunk: &Chunk| chunk.space == space && (first..last).contains(&chunk.number);
        let chunks: Vec<u32> = if last - first > self.chunks.len() as u64 {
            (0..self.chunk_count()).filter(|&index| is_within(self.chunk(index))).collect()
        } else {
            (first..last).filter_map(|number| self.directory.get(&(space, number)).copied()).collect()
        };
        for chunk in chunks {
            let base = self.chunk(chunk).number * CHUNK_PAGES;
            let pages = (0..CHUNK_PAGES).filter(|page| (start..end).contains(&(base + page)));
            pages.for_each(|page| self.discard(Place { chunk, page: page as u16 }));
        }
    }

    /// mremap: what the program has at `from` is at `to` (which was discarded).
    pub fn relocate(&mut self, from: Place, to: Place) {
        let bits = std::mem::take(self.bits_mut(from));
        *self.bits_mut(to) = bits;
        if self.shadow.is_some() {
            let truth =
                std::mem::replace(&mut self.chunks[from.chunk as usize].truth[from.page as usize], ZERO);
            self.chunks[to.chunk as usize].truth[to.page as usize] = truth;
        }
    }

    /// Was anything ever stored there, as far as the program is concerned?
    pub fn has_content(&self, place: Place) -> bool {
        let chunk = self.chunk(place.chunk);
        let stored = chunk.bits[place.page as usize] & view::STORED != 0;
        chunk.truth.get(place.page as usize).map_or(stored, |&truth| truth != ZERO)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let present = self
            .chunks
            .iter()
            .flat_map(|chunk| chunk.bits)
            .filter(|bits| bits & (view::PRESENT | view::ZERO) == view::PRESENT);
        let cached = self.frames.iter().filter(|&&frame| frame & frame::HELD != 0);
        assert_eq!(present.count() + cached.count(), self.held as usize, "frames are counted");
    }
}
