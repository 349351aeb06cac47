//! CLOCK, or second chance: order of arrival, but a page touched since the hand last passed goes
//! round once more (F. J. Corbató, 1968). A bit a page and no work at a touch; like LRU it gets
//! nothing from a loop that does not fit.

use super::Replace;
use super::links::Links;

/// The hand is at the tail.
pub struct Clock {
    frames: u32,
    pages: Links<1>,
    touched: Vec<bool>,
}

impl Clock {
    /// Nothing is held.
    #[must_use]
    pub fn new(frames: u32, pages: u32) -> Clock {
        Clock { frames, pages: Links::new(pages), touched: vec![false; pages as usize] }
    }
}

impl Replace for Clock {
    fn touch(&mut self, page: u32, _: u32) -> bool {
        if self.pages.is_in(page, 0) {
            self.touched[page as usize] = true;
            return true;
        }
        while self.pages.len(0) == self.frames {
            let oldest = self.pages.pop(0).expect("frames are full");
            if std::mem::take(&mut self.touched[oldest as usize]) {
                self.pages.push(0, oldest);
            }
        }
        self.pages.push(0, page);
        false
    }

    fn held(&self) -> u32 {
        self.pages.len(0)
    }
}
