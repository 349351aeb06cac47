//! Words that the kernel clears when a thread ends (CLONE_CHILD_CLEARTID, set_tid_address), as far
//! as the program told of them: who joins such a thread waits for its word. Nobody else tells the
//! agent where the word of another thread is.
//!
//! The program's threads note them, at any time and in handlers of signals, the agent reads them
//! and forgets those of threads that are gone: so there is no lock. glibc has its own threads' words
//! beside their lists of robust locks, where they are found without being noted.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

/// So many at a time. What does not fit is not known.
const WORDS: usize = 1024;
/// A thread's number before its maker knows it.
const UNBORN: u32 = 0;

/// Where a thread's word is. One without an address is free, and of nobody.
struct Word {
    address: AtomicUsize,
    tid: AtomicU32,
}

/// The words of this process.
pub struct JoinWords {
    words: [Word; WORDS],
    /// Behind these all are free.
    used: AtomicUsize,
    /// Not 0 while pages are being taken out of view, of which a word that is noted now may not be known.
    batch: AtomicU32,
}

impl JoinWords {
    /// None is known.
    #[expect(clippy::new_without_default, reason = "only made as a static")]
    #[must_use]
    pub const fn new() -> Self {
        let words = [const { Word { address: AtomicUsize::new(0), tid: AtomicU32::new(UNBORN) } }; WORDS];
        JoinWords { words, used: AtomicUsize::new(0), batch: AtomicU32::new(0) }
    }

    /// Notes the word of a thread that is about to be made; whoever makes it says what became of it
    /// by this place ([`JoinWords::born`], [`JoinWords::forget`]). Where all places are taken those of
    /// threads are given up of which `is_gone` is true.
    ///
    /// *The story:* only the agent gave places up, once it managed memory. Before that a program that made
    /// threads, one after another, had used all of them, and the next ones were never noted.
    pub fn note(&self, address: usize, is_gone: impl Fn(u32) -> bool) -> Option<usize> {
        self.take(address).or_else(|| {
            self.forget_those(is_gone);
            self.take(address)
        })
    }

    fn take(&self, address: usize) -> Option<usize> {
        let is_taken = |word: &Word| word.address.compare_exchange(0, address, SeqCst, SeqCst).is_ok();
        let place = self.words.iter().position(is_taken)?;
        self.used.fetch_max(place + 1, SeqCst);
        Some(place)
    }

    /// The agent asks what has to stay, and takes pages out of view by the answer.
    pub fn begin_batch(&self) {
        self.batch.store(1, SeqCst);
    }

    /// It has put back what was noted meanwhile.
    pub fn end_batch(&self) {
        if self.batch.load(SeqCst) != 0 {
            self.batch.store(0, SeqCst);
        }
    }

    /// Waits until the agent knows the words that are noted, but not for ever; calls `rest` while it
    /// does.
    ///
    /// *The story:* a page was taken out whose word had been noted after the agent asked. A thread that
    /// was made and ended before it was put back has not cleared the word.
    pub fn wait_for_batch(&self, mut rest: impl FnMut()) {
        const RESTS_MAX: u32 = 1000;
        for _ in 0..RESTS_MAX {
            if self.batch.load(SeqCst) == 0 {
                return;
            }
            rest();
        }
    }

    /// The thread has this number.
    pub fn born(&self, place: usize, tid: u32) {
        self.words[place].tid.store(tid, SeqCst);
    }

    /// There is no such thread.
    pub fn forget(&self, place: usize) {
        let word = &self.words[place];
        // A place is free when it has no address: that comes last.
        word.tid.store(UNBORN, SeqCst);
        word.address.store(0, SeqCst);
    }

    /// Forgets those of threads of which `is_gone` is true.
    pub fn forget_those(&self, is_gone: impl Fn(u32) -> bool) {
        for place in 0..self.used.load(SeqCst) {
            let known = &self.words[place].tid;
            let tid = known.load(SeqCst);
            // Of several that find it gone one gives the place up, which may be another's by then.
            if tid != UNBORN && is_gone(tid) && known.compare_exchange(tid, UNBORN, SeqCst, SeqCst).is_ok() {
                self.forget(place);
            }
        }
    }

    /// In a child of fork, which has none of these threads.
    pub fn clear(&self) {
        self.end_batch();
        let used = self.used.swap(0, SeqCst);
        (0..used).for_each(|place| self.forget(place));
    }

    /// The addresses of all.
    pub fn each(&self) -> impl Iterator<Item = usize> + '_ {
        let used = &self.words[..self.used.load(SeqCst)];
        used.iter().map(|word| word.address.load(SeqCst)).filter(|&address| address != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn all(words: &JoinWords) -> Vec<usize> {
        words.each().collect()
    }

    #[test]
    fn a_word_stays_until_its_thread_is_gone() {
        let words = JoinWords::new();
        let [first, second, third] =
            [0x1000, 0x2000, 0x3000].map(|address| words.note(address, |_| false).unwrap());
        words.born(first, 11);
        words.born(second, 12);
        words.forget_those(|tid| tid == 11);
        assert_eq!(all(&words), [0x2000, 0x3000]);
        // One that is being made is nobody's to forget but its maker's.
        words.forget_those(|_| true);
        assert_eq!(all(&words), [0x3000]);
        words.forget(third);
        assert_eq!(words.note(0x4000, |_| false), Some(first));
        words.clear();
        assert_eq!(all(&words), []);
    }

    #[test]
    fn what_does_not_fit_is_not_known() {
        let words = JoinWords::new();
        let nobody = |_| false;
        assert!((1..=WORDS).all(|address| words.note(address, nobody).is_some()));
        assert_eq!(words.note(1, nobody), None);
        words.forget(7);
        assert_eq!(words.note(1, nobody), Some(7));
    }

    #[test]
    fn who_finds_no_place_has_those_of_the_gone() {
        let words = JoinWords::new();
        for tid in 1..=WORDS as u32 {
            let place = words.note(tid as usize, |_| panic!("there is room"));
            words.born(place.unwrap(), tid);
        }
        assert_eq!(words.note(1, |_| false), None);
        assert_eq!(words.note(1, |tid| tid == 9 || tid == 20), Some(8));
        assert_eq!(words.note(1, |_| panic!("there is room")), Some(19));
    }

    #[test]
    fn who_notes_a_word_waits_for_the_batch() {
        let words = JoinWords::new();
        words.wait_for_batch(|| panic!("there is none"));
        words.begin_batch();
        let mut rests = 0;
        words.wait_for_batch(|| {
            rests += 1;
            if rests == 3 {
                words.end_batch();
            }
        });
        assert_eq!(rests, 3);
        words.begin_batch();
        words.wait_for_batch(|| rests += 1);
        assert!(rests < 10_000, "not for ever");
    }
}
