//! Belady's optimum: the page goes whose next touch is furthest away (L. A. Belady, A study of
//! replacement algorithms for a virtual-storage computer, IBM Systems Journal 1966). Nobody can do
//! better, and nobody knows the future.

use super::Replace;
use std::collections::BTreeSet;

/// Pages held, by their next touch.
pub struct Opt {
    frames: u32,
    by_next: BTreeSet<(u32, u32)>,
    /// By page: its next touch, while it is held.
    held: Vec<Option<u32>>,
}

impl Opt {
    /// Nothing is held.
    #[must_use]
    pub fn new(frames: u32, pages: u32) -> Opt {
        Opt { frames, by_next: BTreeSet::new(), held: vec![None; pages as usize] }
    }
}

impl Replace for Opt {
    fn touch(&mut self, page: u32, next: u32) -> bool {
        let was = self.held[page as usize].replace(next);
        if let Some(was) = was {
            self.by_next.remove(&(was, page));
        } else if self.by_next.len() as u32 == self.frames {
            let (_, victim) = self.by_next.pop_last().expect("a page is held");
            self.held[victim as usize] = None;
        }
        self.by_next.insert((next, page));
        was.is_some()
    }

    fn held(&self) -> u32 {
        self.by_next.len() as u32
    }
}
