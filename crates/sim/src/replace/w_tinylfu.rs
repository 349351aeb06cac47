//! W-TinyLFU: a window of newcomers (a hundredth) in order of use, and before the main part a door
//! that opens to a page only if it was touched more often lately than the page that would have to go
//! (G. Einziger, R. Friedman, B. Manes, TinyLFU: a highly efficient cache admission policy, ACM TOS
//! 2017). The main part is a segmented LRU: on probation until touched again, then in the four fifths
//! that are protected. What came first stays, so a loop or a scan costs little; a new set of pages has
//! to prove itself against counts that fade by halves.
//!
//! The paper's sketch saves memory and is sometimes wrong; here each page has its counter.

use super::Replace;
use super::links::Links;

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;
/// Touches are counted up to this (four bits).
const COUNT_MAX: u8 = 15;
/// Counts, and the number of touches counted, are halved when that is so many a frame.
const SAMPLE: u64 = 10;

/// A window, a door and a segmented LRU.
pub struct WTinyLfu {
    window: u32,
    protected: u32,
    main: u32,
    pages: Links<3>,
    counts: Vec<u8>,
    /// Touches until counts are halved.
    until_halved: u64,
    sample: u64,
}

impl WTinyLfu {
    /// Nothing is held.
    #[must_use]
    pub fn new(frames: u32, pages: u32) -> WTinyLfu {
        let window = (frames / 100).max(1);
        let (main, sample) = (frames - window, SAMPLE * u64::from(frames));
        WTinyLfu {
            window,
            protected: main / 5 * 4 + main % 5 * 4 / 5,
            main,
            pages: Links::new(pages),
            counts: vec![0; pages as usize],
            until_halved: sample,
            sample,
        }
    }

    fn count(&mut self, page: u32) {
        let count = &mut self.counts[page as usize];
        *count = (*count + 1).min(COUNT_MAX);
        self.until_halved -= 1;
        if self.until_halved == 0 {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            // The sample's own count is halved with them.
            self.until_halved = self.sample.div_ceil(2);
        }
    }

    /// What falls out of the window stands at the door.
    fn shrink_window(&mut self) {
        while self.pages.len(WINDOW) > self.window {
            let candidate = self.pages.pop(WINDOW).expect("it is not empty");
            if self.pages.len(PROBATION) + self.pages.len(PROTECTED) < self.main {
                self.pages.push(PROBATION, candidate);
                continue;
            }
            let victim = self.pages.tail(PROBATION).or(self.pages.tail(PROTECTED));
            if let Some(victim) = victim
                && self.counts[candidate as usize] > self.counts[victim as usize]
            {
                self.pages.remove(victim);
                self.pages.push(PROBATION, candidate);
            }
        }
    }

    fn protect(&mut self, page: u32) {
        self.pages.refresh(PROTECTED, page);
        if self.pages.len(PROTECTED) > self.protected {
            let oldest = self.pages.pop(PROTECTED).expect("one was just put there");
            self.pages.push(PROBATION, oldest);
        }
    }
}

impl Replace for WTinyLfu {
    fn touch(&mut self, page: u32, _: u32) -> bool {
        self.count(page);
        match self.pages.queue(page) {
            Some(WINDOW) => self.pages.refresh(WINDOW, page),
            Some(_) => self.protect(page),
            None => {
                self.pages.push(WINDOW, page);
                self.shrink_window();
                return false;
            }
        }
        true
    }

    fn held(&self) -> u32 {
        self.pages.len(WINDOW) + self.pages.len(PROBATION) + self.pages.len(PROTECTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four frames: one of the window, three of the main part, two of them protected.
    #[test]
    fn a_trace_by_hand() {
        let mut policy = WTinyLfu::new(4, 10);
        let mut touch = |page| policy.touch(page, 0);
        for page in [1, 2, 3, 4] {
            assert!(!touch(page), "4 is in the window, 1, 2 and 3 on probation");
        }
        assert!(!touch(5), "4 falls out of the window and does not get past 1: both were touched once");
        assert!(touch(1), "1 is protected now");
        assert!(!touch(4), "5 falls out of the window, and does not get past 2");
        assert!(!touch(6), "4, touched twice, gets past 2, touched once");
        assert!(!touch(2), "6 falls out; 2 is in the window, and was touched twice");
        assert!(touch(4) && touch(1) && touch(3), "all were in the main part");
    }

    #[test]
    fn counts_fade_by_halves() {
        let mut policy = WTinyLfu::new(2, 4);
        (0..19).for_each(|step| _ = policy.touch(step % 2, 0));
        assert_eq!(policy.counts[..2], [10, 9]);
        policy.touch(1, 0);
        assert_eq!(policy.counts[..2], [5, 5], "after ten touches a frame");
        // *The story:* they faded half as fast, as the number of touches began at nothing again.
        (0..9).for_each(|step| _ = policy.touch(step % 2, 0));
        assert_eq!(policy.counts[..2], [10, 9]);
        policy.touch(1, 0);
        assert_eq!(policy.counts[..2], [5, 5], "and after five more");
    }
}
