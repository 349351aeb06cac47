//! ARC: pages touched once and pages touched again, each in order of use, with ghosts of both that
//! say which part should be larger (N. Megiddo and D. Modha, ARC: a self-tuning, low overhead
//! replacement cache, FAST 2003). Never much worse than LRU; on loops not much better.

use super::Replace;
use super::links::Links;

const ONCE: usize = 0;
const AGAIN: usize = 1;
const ONCE_GONE: usize = 2;
const AGAIN_GONE: usize = 3;

/// Two parts and their ghosts.
pub struct Arc {
    frames: u32,
    /// How many frames those touched once should have.
    target: u32,
    pages: Links<4>,
}

impl Arc {
    /// Nothing is held.
    #[must_use]
    pub fn new(frames: u32, pages: u32) -> Arc {
        Arc { frames, target: 0, pages: Links::new(pages) }
    }

    fn replace(&mut self, was_again: bool) {
        if self.held() < self.frames {
            return;
        }
        let once = self.pages.len(ONCE);
        let from_once = once > 0 && (once > self.target || was_again && once == self.target);
        let (from, to) =
            if from_once || self.pages.len(AGAIN) == 0 { (ONCE, ONCE_GONE) } else { (AGAIN, AGAIN_GONE) };
        let page = self.pages.pop(from).expect("frames are full");
        self.pages.push(to, page);
    }

    /// A page that nobody remembers: ghosts are kept within bounds.
    fn forget_some(&mut self) {
        let once = self.pages.len(ONCE) + self.pages.len(ONCE_GONE);
        let all = once + self.pages.len(AGAIN) + self.pages.len(AGAIN_GONE);
        if once == self.frames {
            if self.pages.len(ONCE) < self.frames {
                self.pages.pop(ONCE_GONE);
                self.replace(false);
            } else {
                self.pages.pop(ONCE);
            }
        } else if all >= self.frames {
            if all == 2 * self.frames {
                self.pages.pop(AGAIN_GONE);
            }
            self.replace(false);
        }
    }
}

impl Replace for Arc {
    fn touch(&mut self, page: u32, _: u32) -> bool {
        let (once_gone, again_gone) = (self.pages.len(ONCE_GONE), self.pages.len(AGAIN_GONE));
        match self.pages.queue(page) {
            Some(ONCE | AGAIN) => {
                self.pages.refresh(AGAIN, page);
                return true;
            }
            Some(ONCE_GONE) => {
                self.target = (self.target + (again_gone / once_gone).max(1)).min(self.frames);
                self.replace(false);
                self.pages.refresh(AGAIN, page);
            }
            Some(_) => {
                self.target = self.target.saturating_sub((once_gone / again_gone).max(1));
                self.replace(true);
                self.pages.refresh(AGAIN, page);
            }
            None => {
                self.forget_some();
                self.pages.push(ONCE, page);
            }
        }
        false
    }

    fn held(&self) -> u32 {
        self.pages.len(ONCE) + self.pages.len(AGAIN)
    }
}
