//! Is a page still what its slot holds? Fingerprints answer that, so that what was only read is not
//! written again.
//!
//! Write-protecting what comes in would tell too, but UFFDIO_MOVE cannot protect, and the copy that
//! can costs several times as much. So a page's content is hashed when it leaves the program's
//! view, and the hash of what was written is kept by slot. The hash is NH (Black, Halevi, Krawczyk,
//! Krovetz, Rogaway: UMAC, 1999) over 64-bit words under a random key, folded to 64 bits by
//! multiply-shift (Dietzfelbinger): whatever the contents, two different ones agree with a
//! probability below 2^-62. A disk that promises one unreadable bit in 10^17 loses a page a million
//! times as often.
//!
//! Which pages are worth it, and what was written where, is `mm`'s part ([`overspill_mm::fingerprint`]).

use alloc::boxed::Box;

use overspill_mm::fingerprint;
use overspill_mm::types::{PageId, Slot};

use crate::staging::Frame;

/// 64-bit words of a page.
pub(crate) const WORDS: usize = 512;

/// Fingerprints of what is in slots and in staging frames.
pub(crate) struct Fingerprints {
    seed: u64,
    key: Key,
    /// 0 = not known.
    known: fingerprint::Fingerprints<u64>,
}

/// The random numbers that make the function.
struct Key {
    words: Box<[u64; WORDS]>,
    fold: [u64; 4],
}

impl Fingerprints {
    /// `seed` should be unpredictable.
    pub fn new(seed: u64) -> Self {
        Fingerprints { seed, key: Key::new(seed), known: fingerprint::Fingerprints::default() }
    }

    /// What the function was made from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Notes that `frame` holds the content of `page`, just taken out of view, and says whether
    /// that is what `slot` holds.
    pub fn taken(&mut self, page: PageId, frame: Frame, slot: Option<u32>, words: &[u64; WORDS]) -> bool {
        self.known.taken(page, frame.0, slot.map(Slot), |_| self.key.of(words))
    }

    /// The fingerprint of some words; never 0.
    pub fn of(&self, words: &[u64; WORDS]) -> u64 {
        self.key.of(words)
    }

    /// Another process with the same function has written what has that hash to `slot`: what is only read of
    /// it is not written again.
    ///
    /// *The story:* a child of fork wrote all that it had only read. Of 200 MiB that lay out, 367 went out.
    pub fn inherit(&mut self, slot: u32, hash: u64) {
        self.known.inherited(Slot(slot), hash);
    }

    /// `frame` is being filled from `slot`.
    pub fn read(&mut self, slot: u32, frame: Frame) {
        self.known.read(Slot(slot), frame.0);
    }

    /// `frame` is being filled from elsewhere.
    pub fn filled(&mut self, frame: Frame) {
        self.known.filled(frame.0);
    }

    /// The hash of what `frame` holds: the one that was taken when its page left the view, else
    /// that of `words`.
    pub fn hash_of(&self, frame: Frame, words: &[u64; WORDS]) -> u64 {
        match self.known.of_frame(frame.0) {
            0 => self.key.of(words),
            known => known,
        }
    }

    /// The hash of a content.
    pub fn hash(&self, words: &[u64; WORDS]) -> u64 {
        self.key.of(words)
    }

    /// What `slot` holds does not matter any more: no page is like it.
    pub fn forget(&mut self, slot: u32) {
        self.known.forget(Slot(slot));
    }

    /// `frame` is being written to `slot`. (Should that fail, the slot is never used again.)
    pub fn written(&mut self, slot: u32, frame: Frame) {
        self.known.written(Slot(slot), frame.0);
    }
}

impl Key {
    fn new(mut seed: u64) -> Self {
        let mut next = || {
            // SplitMix64 (Steele, Lea, Flood 2014).
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = seed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let mut words = Box::new([0; WORDS]);
        words.fill_with(&mut next);
        Key { words, fold: core::array::from_fn(|_| next()) }
    }

    fn of(&self, words: &[u64; WORDS]) -> u64 {
        let mut sum = 0u128;
        for (word, key) in words.chunks_exact(2).zip(self.words.chunks_exact(2)) {
            let factor = |n: usize| u128::from(word[n].wrapping_add(key[n]));
            sum = sum.wrapping_add(factor(0) * factor(1));
        }
        let [a, b, c, d] = self.fold.map(u128::from);
        let (low, high) = (sum & u128::from(u64::MAX), sum >> 64);
        // Both halves times 128-bit odd keys, of which the upper 64 bits are kept.
        let folded = (a << 64 | b | 1).wrapping_mul(low).wrapping_add((c << 64 | d | 1).wrapping_mul(high));
        ((folded >> 64) as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(seed: u64) -> Box<[u64; WORDS]> {
        let mut words = Box::new([0; WORDS]);
        words.iter_mut().enumerate().for_each(|(n, word)| *word = (n as u64 + 1).wrapping_mul(seed | 1));
        words
    }

    #[test]
    fn every_single_bit_counts() {
        let key = Key::new(7);
        let words = page(12345);
        let whole = key.of(&words);
        for bit in 0..WORDS * 64 {
            let mut other = words.clone();
            other[bit / 64] ^= 1 << (bit % 64);
            assert_ne!(key.of(&other), whole, "bit {bit}");
        }
        let mut swapped = words.clone();
        swapped.swap(0, 1);
        assert_ne!(key.of(&swapped), whole, "words in another order");
    }
}
