//! 2Q: newcomers in order of arrival (a quarter), those who come back soon after in order of use
//! (T. Johnson and D. Shasha, 2Q: a low overhead high performance buffer management replacement
//! algorithm, VLDB 1994). What comes back later than half of the frames' worth of newcomers is
//! taken for new again.

use super::Replace;
use super::links::Links;

const IN: usize = 0;
const MAIN: usize = 1;
const OUT: usize = 2;

/// Three queues, the third of pages that are gone.
pub struct TwoQ {
    frames: u32,
    newcomers: u32,
    remembered: u32,
    pages: Links<3>,
}

impl TwoQ {
    /// Nothing is held.
    #[must_use]
    pub fn new(frames: u32, pages: u32) -> TwoQ {
        TwoQ {
            frames,
            newcomers: (frames / 4).max(1),
            remembered: (frames / 2).max(1),
            pages: Links::new(pages),
        }
    }

    fn make_room(&mut self) {
        if self.held() < self.frames {
            return;
        }
        if self.pages.len(IN) > self.newcomers || self.pages.len(MAIN) == 0 {
            let page = self.pages.pop(IN).expect("frames are full");
            if self.pages.len(OUT) == self.remembered {
                self.pages.pop(OUT);
            }
            self.pages.push(OUT, page);
        } else {
            self.pages.pop(MAIN);
        }
    }
}

impl Replace for TwoQ {
    fn touch(&mut self, page: u32, _: u32) -> bool {
        match self.pages.queue(page) {
            Some(IN) => true,
            Some(MAIN) => {
                self.pages.refresh(MAIN, page);
                true
            }
            Some(_) => {
                self.pages.remove(page);
                self.make_room();
                self.pages.push(MAIN, page);
                false
            }
            None => {
                self.make_room();
                self.pages.push(IN, page);
                false
            }
        }
    }

    fn held(&self) -> u32 {
        self.pages.len(IN) + self.pages.len(MAIN)
    }
}
