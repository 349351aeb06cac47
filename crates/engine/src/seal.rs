//! Sealed slots (`--encrypt`): pages are encrypted on their way to an area, under a key that is
//! nowhere but in memory, and made by nobody but the kernel's generator.
//!
//! Each page is a message of its own of an authenticated cipher (AES-256 in GCM, which processors
//! have instructions for; where they lack them it is slower, and takes no other time for one key
//! than for another). What tells it apart is how often a
//! page was sealed before and its slot: the two are the nonce, so that none is used twice, and the
//! slot is also what is authenticated beside the bytes. The tag is kept in memory, by slot, in
//! place of a checksum: bytes that changed, that are older, or that are another slot's do not agree
//! with it. (A page's number would not do for an identity: mremap gives pages other numbers, and
//! their bytes stay where they are.)
//!
//! A page that is being written may be wanted again at any time, so it is not encrypted where it
//! is, but in an envelope: a page of a buffer that is taken for the time of the write. Pages that
//! arrive are decrypted where they are, before anybody sees them.

use alloc::vec::Vec;

use aes_gcm::aead::{AeadInOut, KeyInit, Nonce};
use aes_gcm::{Aes256Gcm as Cipher, Tag};

use overspill_mm::IoId;
use overspill_mm::slot_table::SlotTable;
use overspill_mm::types::Slot;
use overspill_sys::mem::Buffer;
use overspill_sys::secret::{Secret, wipe};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, random};

use crate::pool::Page;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// Envelopes: four writes of the largest size.
const ENVELOPES: u32 = 1024;

/// What opens a slot.
#[derive(Clone, Copy, Default, PartialEq)]
struct Seal {
    /// How many pages had been sealed, with this one; 0: nothing in the area stands for a page.
    number: u64,
    tag: [u8; TAG_BYTES],
}

/// The key, and what each slot was sealed with.
pub(crate) struct Seals {
    cipher: Secret<Cipher>,
    sealed: u64,
    of_slot: SlotTable<Seal>,
}

impl Seals {
    /// With a key of its own.
    pub fn new() -> Result<Self, Errno> {
        let mut key = [0; KEY_BYTES];
        random::fill(&mut key)?;
        let cipher = Secret::new(Cipher::new(&key.into()));
        wipe(&mut key);
        Ok(Seals { cipher: cipher?, sealed: 0, of_slot: SlotTable::default() })
    }

    /// Where the key is.
    pub fn range(&self) -> AddressRange {
        self.cipher.range()
    }

    /// Encrypts a page that is on its way to the slot.
    pub fn seal(&mut self, slot: u32, page: &mut Page) {
        self.sealed += 1;
        let number = self.sealed;
        let tag = self.cipher.encrypt_inout_detached(
            &nonce(slot, number),
            &identity(slot),
            page.as_mut_slice().into(),
        );
        let tag = tag.expect("a page is shorter than the cipher's longest message").into();
        self.of_slot.set(Slot(slot), Seal { number, tag });
    }

    /// Decrypts what came from the slot. False: it is not what was written there last, and the page
    /// holds nothing.
    pub fn open(&self, slot: u32, page: &mut Page) -> bool {
        let Seal { number, tag } = self.of_slot.get(Slot(slot));
        let (nonce, tag) = (nonce(slot, number), Tag::from(tag));
        let bytes = page.as_mut_slice().into();
        number != 0 && self.cipher.decrypt_inout_detached(&nonce, &identity(slot), bytes, &tag).is_ok()
    }

    /// What the area has in the slot does not stand for a page any more.
    pub fn forget(&mut self, slot: u32) {
        self.of_slot.set(Slot(slot), Seal::default());
    }
}

fn nonce(slot: u32, number: u64) -> Nonce<Cipher> {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce[8..].copy_from_slice(&slot.to_le_bytes());
    nonce.into()
}

/// What is authenticated beside the page.
fn identity(slot: u32) -> [u8; 4] {
    slot.to_le_bytes()
}

/// Pages for what is on its way to a device, encrypted.
pub(crate) struct Envelopes {
    buffer: Buffer,
    free: Vec<u32>,
    /// By [`IoId`]: those of a write that is under way.
    of_write: Vec<Vec<u32>>,
}

impl Envelopes {
    pub fn new() -> Result<Self, Errno> {
        let buffer = Buffer::new(ENVELOPES as usize * PAGE_SIZE)?;
        Ok(Envelopes { buffer, free: (0..ENVELOPES).rev().collect(), of_write: Vec::new() })
    }

    /// Where they are.
    pub fn range(&self) -> AddressRange {
        self.buffer.range()
    }

    /// Are there so many?
    pub fn suffice(&self, count: u32) -> bool {
        count as usize <= self.free.len()
    }

    /// Takes one more for a write, and says where it is.
    pub fn take(&mut self, io: IoId) -> (usize, &mut Page) {
        let index = io.0 as usize;
        if index >= self.of_write.len() {
            self.of_write.resize_with(index + 1, Vec::new);
        }
        let envelope = self.free.pop().expect("it was asked whether they suffice");
        self.of_write[index].push(envelope);
        let at = envelope as usize * PAGE_SIZE;
        let bytes = self.buffer.bytes_mut(at, PAGE_SIZE);
        (bytes.as_ptr() as usize, bytes.try_into().expect("it is a page"))
    }

    /// The write has ended.
    pub fn give_back(&mut self, io: IoId) {
        if let Some(taken) = self.of_write.get_mut(io.0 as usize) {
            // Popped in reverse: the next ones are neighbours again.
            self.free.extend(taken.drain(..).rev());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(seed: u8) -> Page {
        core::array::from_fn(|at| (at as u8).wrapping_mul(3) ^ seed)
    }

    fn sealed(seals: &mut Seals, slot: u32, seed: u8) -> Page {
        let mut page = page(seed);
        seals.seal(slot, &mut page);
        page
    }

    fn opens(seals: &Seals, slot: u32, from: &Page) -> Option<Page> {
        let mut page = *from;
        seals.open(slot, &mut page).then_some(page)
    }

    #[test]
    fn what_was_sealed_last_for_a_slot_opens_there_and_nothing_else_does() {
        let mut seals = Seals::new().unwrap();
        let first = sealed(&mut seals, 7, 1);
        assert_ne!(first, page(1));
        assert_eq!(opens(&seals, 7, &first), Some(page(1)));
        assert_eq!(opens(&seals, 8, &first), None, "another slot's");
        let eighth = sealed(&mut seals, 8, 1);
        assert_ne!(eighth, first, "equal pages do not look alike");
        assert_eq!(opens(&seals, 7, &eighth), None, "misplaced");
        let second = sealed(&mut seals, 7, 1);
        assert_ne!(second, first, "not even in one slot");
        assert_eq!(opens(&seals, 7, &first), None, "older");
        assert_eq!(opens(&seals, 7, &second), Some(page(1)));
        let mut torn = second;
        torn[2048..].copy_from_slice(&first[2048..]);
        assert_eq!(opens(&seals, 7, &torn), None, "torn");
        seals.forget(7);
        assert_eq!(opens(&seals, 7, &second), None, "it stands for no page");
        assert_eq!(opens(&seals, 5000, &second), None);
    }

    #[test]
    fn every_bit_counts() {
        let mut seals = Seals::new().unwrap();
        let whole = sealed(&mut seals, 3, 9);
        for bit in (0..PAGE_SIZE * 8).step_by(61) {
            let mut other = whole;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(opens(&seals, 3, &other), None, "bit {bit}");
        }
        let other = Seals::new().unwrap();
        assert_eq!(opens(&other, 3, &whole), None, "another key");
    }

    #[test]
    fn envelopes_are_taken_for_the_time_of_a_write() {
        let mut envelopes = Envelopes::new().unwrap();
        let mut taken: Vec<usize> = (0..ENVELOPES).map(|_| envelopes.take(IoId(3)).0).collect();
        assert!(!envelopes.suffice(1));
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), ENVELOPES as usize, "each is taken once");
        envelopes.give_back(IoId(9));
        assert!(!envelopes.suffice(1), "that write has none");
        envelopes.give_back(IoId(3));
        envelopes.give_back(IoId(3));
        assert!(envelopes.suffice(ENVELOPES) && !envelopes.suffice(ENVELOPES + 1));
    }
}
