//! S3-FIFO: a small queue for newcomers (a tenth), a main one, and ghosts of those who left the
//! small one (J. Yang and others, FIFO queues are all you need for cache eviction, SOSP 2023).
//! Quick to drop what is touched once; a set whose pages come back after more than the small queue
//! and the ghosts remember starts anew.

use super::Replace;
use super::links::Links;

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;
/// Touches are counted up to this.
const COUNT_MAX: u8 = 3;

/// Three queues.
pub struct S3Fifo {
    frames: u32,
    small: u32,
    pages: Links<3>,
    counts: Vec<u8>,
}

impl S3Fifo {
    /// Nothing is held.
    #[must_use]
    pub fn new(frames: u32, pages: u32) -> S3Fifo {
        S3Fifo {
            frames,
            small: (frames / 10).max(1),
            pages: Links::new(pages),
            counts: vec![0; pages as usize],
        }
    }

    fn evict(&mut self) {
        while self.held() >= self.frames {
            if self.pages.len(SMALL) >= self.small || self.pages.len(MAIN) == 0 {
                self.evict_small();
            } else {
                self.evict_main();
            }
        }
    }

    fn evict_small(&mut self) {
        let Some(page) = self.pages.pop(SMALL) else { return };
        if self.counts[page as usize] > 1 {
            self.counts[page as usize] = 0;
            self.pages.push(MAIN, page);
            return;
        }
        if self.pages.len(GHOST) >= (self.frames - self.small).max(1) {
            self.pages.pop(GHOST);
        }
        self.pages.push(GHOST, page);
    }

    fn evict_main(&mut self) {
        let page = self.pages.pop(MAIN).expect("it is not empty");
        let count = &mut self.counts[page as usize];
        if *count > 0 {
            *count -= 1;
            self.pages.push(MAIN, page);
        }
    }
}

impl Replace for S3Fifo {
    fn touch(&mut self, page: u32, _: u32) -> bool {
        match self.pages.queue(page) {
            Some(SMALL | MAIN) => {
                let count = &mut self.counts[page as usize];
                *count = (*count + 1).min(COUNT_MAX);
                return true;
            }
            Some(_) => {
                self.pages.remove(page);
                self.evict();
                self.pages.push(MAIN, page);
            }
            None => {
                self.evict();
                self.pages.push(SMALL, page);
            }
        }
        self.counts[page as usize] = 0;
        false
    }

    fn held(&self) -> u32 {
        self.pages.len(SMALL) + self.pages.len(MAIN)
    }
}
