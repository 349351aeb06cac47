//! The generations of the kernel's multi-gen LRU, by its documentation (admin-guide/mm/multigen_lru,
//! mm/multigen_lru): pages lie in two to four generations. A page that faults in belongs to the
//! youngest; eviction takes from the oldest what was not accessed, and what was goes to the youngest.
//! When only two are left a new one begins before anything leaves, and every page whose accessed
//! bit is set moves there: so a page that is used at all is a generation or two ahead of one that
//! is not, at the price of one walk a generation. Within a generation order is order of arrival.
//!
//! Tiers and their feedback are about pages that are read by calls; here every touch is one of
//! hardware bits, so there is one tier.

use super::Replace;
use super::links::Links;

const GENERATIONS_MIN: u64 = 2;
const GENERATIONS_MAX: usize = 4;

/// Four queues, of which the oldest and the youngest move on.
pub struct Mglru {
    frames: u32,
    pages: Links<GENERATIONS_MAX>,
    accessed: Vec<bool>,
    oldest: u64,
    youngest: u64,
}

impl Mglru {
    /// Nothing is held.
    #[must_use]
    pub fn new(frames: u32, pages: u32) -> Mglru {
        Mglru {
            frames,
            pages: Links::new(pages),
            accessed: vec![false; pages as usize],
            oldest: 0,
            youngest: GENERATIONS_MAX as u64 - 1,
        }
    }

    /// Where a generation's pages are.
    fn queue(generation: u64) -> usize {
        (generation % GENERATIONS_MAX as u64) as usize
    }

    /// A new generation begins, and takes all that was accessed.
    fn age(&mut self) {
        self.youngest += 1;
        assert!(self.youngest - self.oldest < GENERATIONS_MAX as u64, "there are four at most");
        let youngest = Mglru::queue(self.youngest);
        for generation in self.oldest..self.youngest {
            let queue = Mglru::queue(generation);
            let mut next = self.pages.tail(queue);
            while let Some(page) = next {
                next = self.pages.towards_head(page);
                if std::mem::take(&mut self.accessed[page as usize]) {
                    self.pages.refresh(youngest, page);
                }
            }
        }
    }

    /// One page leaves.
    fn evict(&mut self) {
        loop {
            // Two younger ones must be there before one gives pages.
            if self.youngest - self.oldest < GENERATIONS_MIN {
                self.age();
            }
            let Some(page) = self.pages.pop(Mglru::queue(self.oldest)) else {
                self.oldest += 1;
                continue;
            };
            if !std::mem::take(&mut self.accessed[page as usize]) {
                return;
            }
            self.pages.push(Mglru::queue(self.youngest), page);
        }
    }
}

impl Replace for Mglru {
    fn touch(&mut self, page: u32, _: u32) -> bool {
        if self.pages.queue(page).is_some() {
            self.accessed[page as usize] = true;
            return true;
        }
        if self.held() == self.frames {
            self.evict();
        }
        // The access that faulted sets the bit, too.
        self.accessed[page as usize] = true;
        self.pages.push(Mglru::queue(self.youngest), page);
        false
    }

    fn held(&self) -> u32 {
        (0..GENERATIONS_MAX).map(|queue| self.pages.len(queue)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three frames, pages 1, 2 and 3, of which 1 is touched again.
    #[test]
    fn a_trace_by_hand() {
        let mut policy = Mglru::new(3, 10);
        let mut touch = |page| policy.touch(page, 0);
        assert!(!touch(1) && !touch(2) && !touch(3), "all in the youngest generation");
        assert!(touch(1), "1 is accessed");
        assert!(!touch(4), "a new one takes all, as all were accessed, and 1 is the first of it");
        assert!(touch(2), "2 is accessed");
        assert!(!touch(5), "2 joins 4 in the youngest; 3 leaves");
        assert!(!touch(1), "a new one takes 4 and 5; 2, whose bit was taken, leaves");
        assert!(touch(4) && touch(5) && touch(1) && !touch(3));
    }

    /// A set that is used is a generation ahead of pages that pass by.
    #[test]
    fn a_scan_passes_by_what_is_used_meanwhile() {
        let mut policy = Mglru::new(100, 20_050);
        let mut lost = 0;
        for step in 0..20_000u32 {
            policy.touch(50 + step, 0);
            lost += u32::from(!policy.touch(step % 30, 0));
        }
        assert!(lost < 60, "of 30 each missed once, at first, and hardly ever after: {lost}");
    }
}
