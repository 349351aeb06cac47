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

    fn is_indifferent(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NEVER, Touches, by_name};
    use super::*;
    use crate::rng::Rng;

    /// The fewest misses that any choice of pages leads to: all of them are tried.
    fn fewest(order: &[u32], held: &mut Vec<u32>, frames: usize) -> u64 {
        let Some((page, rest)) = order.split_first() else { return 0 };
        if held.contains(page) {
            return fewest(rest, held, frames);
        }
        if held.len() < frames {
            held.push(*page);
            let misses = 1 + fewest(rest, held, frames);
            held.pop();
            return misses;
        }
        let through = |victim: usize| {
            let old = std::mem::replace(&mut held[victim], *page);
            let misses = 1 + fewest(rest, held, frames);
            held[victim] = old;
            misses
        };
        (0..frames).map(through).min().expect("there are frames")
    }

    #[test]
    fn no_choice_of_pages_is_better() {
        let mut rng = Rng::new(5);
        for round in 0..60 {
            let frames = 1 + round % 3;
            let mut order: Vec<u32> = (0..14).map(|_| rng.below(5) as u32).collect();
            order.dedup();
            let touches = Touches::new(order.clone(), 5);
            let found = touches.misses(&mut *by_name("opt", frames, 5).expect("known"));
            assert_eq!(found, fewest(&order, &mut Vec::new(), frames as usize), "{frames} frames: {order:?}");
        }
    }

    /// Of both the pages that fit in less are among those that fit in more: more is never worse.
    #[test]
    fn more_frames_are_never_worse() {
        let mut rng = Rng::new(6);
        let mut order: Vec<u32> = (0..5000).map(|_| (rng.below(80) * rng.below(80) / 80) as u32).collect();
        order.dedup();
        let touches = Touches::new(order, 80);
        for name in ["opt", "lru"] {
            let misses = |frames| touches.misses(&mut *by_name(name, frames, 80).expect("known"));
            let curve: Vec<u64> = (1..=80).map(misses).collect();
            assert!(curve.windows(2).all(|pair| pair[0] >= pair[1]), "{name}: {curve:?}");
        }
    }

    #[test]
    fn what_is_never_touched_again_goes_first() {
        let mut policy = Opt::new(2, 3);
        let held = [(0, 3), (1, NEVER), (2, NEVER), (0, NEVER)].map(|(page, next)| policy.touch(page, next));
        assert_eq!(held, [false, false, false, true]);
    }
}
