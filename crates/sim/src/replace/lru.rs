//! Order of use (LRU) and order of arrival (FIFO). LRU keeps what was touched last; a loop over a
//! little more than fits gets nothing from either.

use super::Replace;
use super::links::Links;

/// Either of them.
pub struct Lru {
    frames: u32,
    pages: Links<1>,
    by_use: bool,
}

impl Lru {
    /// `by_use`, else by arrival.
    #[must_use]
    pub fn new(frames: u32, pages: u32, by_use: bool) -> Lru {
        Lru { frames, pages: Links::new(pages), by_use }
    }
}

impl Replace for Lru {
    fn touch(&mut self, page: u32, _: u32) -> bool {
        if self.pages.is_in(page, 0) {
            if self.by_use {
                self.pages.refresh(0, page);
            }
            return true;
        }
        if self.pages.len(0) == self.frames {
            self.pages.pop(0);
        }
        self.pages.push(0, page);
        false
    }

    fn held(&self) -> u32 {
        self.pages.len(0)
    }

    fn is_indifferent(&self) -> bool {
        true
    }
}
