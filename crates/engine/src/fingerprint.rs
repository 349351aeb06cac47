//! Is a page still what its slot holds? Fingerprints answer that, so that what was only read is not written again.
//!
//! Write-protecting what comes in would tell too, but UFFDIO_MOVE cannot protect, and the copy that can costs several
//! times as much. So a page's content is hashed when it leaves the program's view, and the hash of what was written is
//! kept by slot. The hash is NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, 1999) over 64-bit words under a random
//! key, folded to 64 bits by multiply-shift (Dietzfelbinger): whatever the contents, two different ones agree with a
//! probability below 2^-62. A disk that promises one unreadable bit in 10^17 loses a page a million times as often.
//!
//! Where pages come back changed as a rule, hashing is given up but for a sample, chunk by chunk.

use alloc::boxed::Box;
use alloc::vec::Vec;

use overspill_mm::types::{CHUNK_PAGES, PageId};

use crate::staging::Frame;

/// 64-bit words of a page.
pub(crate) const WORDS: usize = 512;
/// "Not known."
const UNKNOWN: u64 = 0;
/// Where a chunk's score begins, and its largest value. At 0 only samples are hashed.
const SCORE_START: u8 = 8;
const SCORE_MAX: u8 = 32;
/// What an unchanged page adds to the score; a changed one takes 1 away. So hashing goes on where one page in five is
/// unchanged: a hash costs about a fifth of a write.
const SCORE_SAME: u8 = 4;
/// In a chunk without score, this unit of 16 in so many is hashed all the same.
const SAMPLE_UNITS: u32 = 8;

/// Fingerprints of what is in slots and in staging frames.
pub(crate) struct Fingerprints {
    key: Box<[u64; WORDS]>,
    fold: [u64; 4],
    /// By slot; grows with use.
    of_slot: Vec<u64>,
    /// By staging frame: its page's, when it was taken out of view.
    of_frame: Vec<u64>,
    /// By chunk of pages: does hashing pay?
    score: Vec<u8>,
}

impl Fingerprints {
    /// `seed` should be unpredictable.
    pub fn new(mut seed: u64, frames: u32) -> Self {
        let mut next = || {
            // SplitMix64 (Steele, Lea, Flood 2014).
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = seed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let mut key = Box::new([0; WORDS]);
        key.fill_with(&mut next);
        let fold = core::array::from_fn(|_| next());
        Fingerprints { key, fold, of_slot: Vec::new(), of_frame: alloc::vec![UNKNOWN; frames as usize], score: Vec::new() }
    }

    /// Notes that `frame` holds the content of `page`, just taken out of view, and says whether that is what `slot` holds.
    pub fn taken(&mut self, page: PageId, frame: Frame, slot: Option<u32>, words: &[u64; WORDS]) -> bool {
        if !self.pays(page) {
            self.of_frame[frame.0 as usize] = UNKNOWN;
            return false;
        }
        let now = self.of(words);
        self.of_frame[frame.0 as usize] = now;
        let before = slot.and_then(|slot| self.of_slot.get(slot as usize)).copied().unwrap_or(UNKNOWN);
        if before == UNKNOWN {
            return false;
        }
        let score = &mut self.score[chunk(page)];
        *score = if before == now { (*score + SCORE_SAME).min(SCORE_MAX) } else { score.saturating_sub(1) };
        before == now
    }

    /// `frame` is being written to `slot`. (Should that fail, the slot is never used again.)
    pub fn written(&mut self, slot: u32, frame: Frame) {
        let slot = slot as usize;
        if slot >= self.of_slot.len() {
            self.of_slot.resize((slot + 1).next_multiple_of(CHUNK_PAGES as usize), UNKNOWN);
        }
        self.of_slot[slot] = self.of_frame[frame.0 as usize];
    }

    fn pays(&mut self, page: PageId) -> bool {
        let chunk = chunk(page);
        if chunk >= self.score.len() {
            self.score.resize(chunk + 1, SCORE_START);
        }
        self.score[chunk] > 0 || (page.0 / 16).is_multiple_of(SAMPLE_UNITS)
    }

    fn of(&self, words: &[u64; WORDS]) -> u64 {
        let mut sum = 0u128;
        for (word, key) in words.chunks_exact(2).zip(self.key.chunks_exact(2)) {
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

fn chunk(page: PageId) -> usize {
    page.index() / CHUNK_PAGES as usize
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
        let prints = Fingerprints::new(7, 1);
        let words = page(12345);
        let whole = prints.of(&words);
        for bit in 0..WORDS * 64 {
            let mut other = words.clone();
            other[bit / 64] ^= 1 << (bit % 64);
            assert_ne!(prints.of(&other), whole, "bit {bit}");
        }
        let mut swapped = words.clone();
        swapped.swap(0, 1);
        assert_ne!(prints.of(&swapped), whole, "words in another order");
    }

    #[test]
    fn what_was_written_is_recognised_and_nothing_else() {
        let mut prints = Fingerprints::new(1, 4);
        let (first, second) = (page(1), page(2));
        assert!(!prints.taken(PageId(5), Frame(0), None, &first), "no slot yet");
        prints.written(9, Frame(0));
        assert!(prints.taken(PageId(5), Frame(1), Some(9), &first));
        assert!(!prints.taken(PageId(5), Frame(2), Some(9), &second));
        assert!(!prints.taken(PageId(5), Frame(2), Some(8), &first), "nothing is known of slot 8");
        prints.written(9, Frame(2));
        assert!(!prints.taken(PageId(5), Frame(3), Some(9), &second), "frame 2 holds the first page again");
    }

    #[test]
    fn hashing_stops_where_everything_changes_and_comes_back() {
        let mut prints = Fingerprints::new(1, 1);
        for round in 0..100 {
            prints.taken(PageId(3), Frame(0), Some(1), &page(2 * round));
            prints.written(1, Frame(0));
        }
        let (unsampled, sampled) = (PageId(16), PageId(0));
        assert!(!prints.pays(unsampled) && prints.pays(sampled));
        for _ in 0..2 {
            prints.taken(sampled, Frame(0), Some(1), &page(1));
            prints.written(1, Frame(0));
        }
        assert!(prints.pays(unsampled), "one page that comes back unchanged is a sign");
    }
}
