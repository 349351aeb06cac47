//! SIEVE: as CLOCK, but survivors stay where they are, and the hand moves from old to new past them
//! (Y. Zhang and others, SIEVE is simpler than LRU, NSDI 2024). Made for web caches; new pages that
//! are touched once go soon, which is wrong for loops and for sets that move.

use super::Replace;
use super::links::Links;

/// The hand is at a page, or about to start at the tail.
pub struct Sieve {
    frames: u32,
    pages: Links<1>,
    touched: Vec<bool>,
    hand: Option<u32>,
}

impl Sieve {
    /// Nothing is held.
    #[must_use]
    pub fn new(frames: u32, pages: u32) -> Sieve {
        Sieve { frames, pages: Links::new(pages), touched: vec![false; pages as usize], hand: None }
    }

    fn evict(&mut self) {
        let mut at = self.hand.or_else(|| self.pages.tail(0)).expect("frames are full");
        while std::mem::take(&mut self.touched[at as usize]) {
            at = self.pages.towards_head(at).or_else(|| self.pages.tail(0)).expect("frames are full");
        }
        self.hand = self.pages.towards_head(at);
        self.pages.remove(at);
    }
}

impl Replace for Sieve {
    fn touch(&mut self, page: u32, _: u32) -> bool {
        if self.pages.is_in(page, 0) {
            self.touched[page as usize] = true;
            return true;
        }
        if self.pages.len(0) == self.frames {
            self.evict();
        }
        self.pages.push(0, page);
        false
    }

    fn held(&self) -> u32 {
        self.pages.len(0)
    }
}
