//! The bytes of the compressed pool: pages that left their frames, packed, where [`Tier`] says.
//!
//! A page that compresses to a third takes a third of a frame here, and comes back in microseconds
//! instead of a trip to the device. What goes in, where it stands and what leaves is decided in
//! [`overspill_mm::pool`], what becomes of a page's bytes in [`crate::packing`].

use overspill_mm::pool::{Moved, Refused, SEGMENT_BYTES, Spot, Tier, segments_max};
use overspill_sys::mem::Buffer;
use overspill_sys::{AddressRange, PAGE_SIZE};

use crate::packing::{Packer, unpack};

/// A page's bytes.
pub(crate) type Page = [u8; PAGE_SIZE];

/// The pool.
pub(crate) struct Pool {
    pub tier: Tier,
    /// Room for all segments there may be; mapped when first needed.
    buffer: Option<Buffer>,
    bytes_max: usize,
    packer: Packer,
}

impl Pool {
    /// A pool that will never have more than so many frames.
    pub fn new(frames_max: u32) -> Self {
        Pool {
            tier: Tier::new(frames_max),
            buffer: None,
            bytes_max: segments_max(frames_max) as usize * SEGMENT_BYTES,
            packer: Packer::new(PAGE_SIZE),
        }
    }

    /// Most frames that it may take from now on. What it has beyond that goes when somebody takes it out.
    pub fn set_limit(&mut self, frames: u32) {
        self.tier.set_limit(frames);
        if self.tier.is_on() && self.buffer.is_none() {
            self.buffer = Buffer::new(self.bytes_max).ok();
            if self.buffer.is_none() {
                self.tier.set_limit(0);
            }
        }
    }

    /// Its own mapping.
    pub fn range(&self) -> AddressRange {
        self.buffer.as_ref().map_or(0..0, Buffer::range)
    }

    /// Stores what the slot stands for from now on, in place of what was there; see [`Tier::put`].
    pub fn store(&mut self, slot: u32, page: &Page, dirty: bool, must: bool) -> Result<(), Refused> {
        let packed = self.packer.pack(page);
        let put = self.tier.put(slot, packed, dirty, must);
        self.give_back();
        let spot = put?;
        let buffer = self.buffer.as_mut().expect("what has room is mapped");
        let bytes = buffer.bytes_mut(at_of(spot), spot.len);
        bytes.copy_from_slice(if spot.len == PAGE_SIZE { page } else { self.packer.packed() });
        Ok(())
    }

    /// Fills a page from the slot's entry, which stays. False: there is none.
    pub fn load(&mut self, slot: u32, page: &mut Page) -> bool {
        let loaded = self.peek(slot, page);
        if loaded {
            self.tier.note_loaded();
        }
        loaded
    }

    /// As [`Pool::load`], uncounted: for those who are not the program.
    pub fn peek(&self, slot: u32, page: &mut Page) -> bool {
        let Some(spot) = self.tier.spot(slot) else { return false };
        let bytes = self.buffer.as_ref().expect("what has entries is mapped").bytes(at_of(spot), spot.len);
        match spot.len {
            PAGE_SIZE => page.copy_from_slice(bytes),
            _ => unpack(bytes, page),
        }
        true
    }

    /// Removes the slot's entry. True: it was dirty.
    pub fn remove(&mut self, slot: u32) -> bool {
        let dirty = self.tier.remove(slot);
        self.give_back();
        dirty
    }

    /// Entries were moved on: their bytes follow.
    pub fn follow(&mut self, moved: &[Moved]) {
        let buffer = self.buffer.as_mut().expect("what has entries is mapped");
        moved.iter().for_each(|moved| buffer.copy(at_of(moved.from), at_of(moved.to), moved.from.len));
        self.give_back();
    }

    /// Gives the memory of segments back that nothing is in.
    pub fn give_back(&mut self) {
        while let Some(segment) = self.tier.next_freed() {
            let at = segment as usize * SEGMENT_BYTES;
            if !self.buffer.as_mut().expect("it was mapped").discard(at, SEGMENT_BYTES) {
                return self.tier.could_not_free(segment);
            }
        }
    }
}

impl AsMut<Tier> for Pool {
    fn as_mut(&mut self) -> &mut Tier {
        &mut self.tier
    }
}

/// Where an entry's bytes are in the buffer.
fn at_of(spot: Spot) -> usize {
    spot.segment as usize * SEGMENT_BYTES + spot.offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use overspill_mm::pool::{Chore, FILLED_BYTES, SEGMENT_FRAMES};

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
        for round in 0..20_000 {
            let slot = next(2000) as u32;
            match next(10) {
                0..5 => {
                    let (noise, dirty, must) = (next(4096) as usize, next(2) == 0, next(50) == 0);
                    let content = if next(8) == 0 { [round as u8; PAGE_SIZE] } else { page(round, noise) };
                    match pool.store(slot, &content, dirty, must) {
                        Ok(()) => _ = model.insert(slot, content),
                        Err(Refused::Stiff) => {}
                        Err(Refused::Full) => _ = model.remove(&slot),
                    }
                }
                5..8 => assert_eq!(loaded(&mut pool, slot), model.get(&slot).copied()),
                8 => {
                    pool.remove(slot);
                    model.remove(&slot);
                }
                _ => match pool.tier.chore(|_| false) {
                    Chore::Move(moved) => pool.follow(&moved),
                    Chore::Nothing => {}
                    Chore::Write(runs) => panic!("nobody wants {runs:?}"),
                },
            }
            model.retain(|&slot, _| pool.tier.holds(slot));
            assert_eq!(pool.tier.entries() as usize, model.len());
        }
        for slot in 0..2000 {
            assert_eq!(loaded(&mut pool, slot), model.get(&slot).copied());
            pool.remove(slot);
        }
        assert_eq!(pool.tier.frames(), 0, "an empty pool takes no memory");
    }

    #[test]
    fn a_page_of_one_word_takes_a_word() {
        let mut pool = Pool::new(SEGMENT_FRAMES);
        pool.set_limit(SEGMENT_FRAMES);
        let filled = core::array::from_fn(|at| b"overspil"[at % 8]);
        let mut nearly = filled;
        nearly[PAGE_SIZE - 1] = 0;
        assert_eq!(pool.store(1, &filled, true, false), Ok(()));
        assert_eq!(pool.store(2, &nearly, true, false), Ok(()));
        let spot = |slot| pool.tier.spot(slot).unwrap().len;
        assert!(spot(1) == FILLED_BYTES && spot(2) > FILLED_BYTES);
        assert_eq!((loaded(&mut pool, 1), loaded(&mut pool, 2)), (Some(filled), Some(nearly)));
    }
}
