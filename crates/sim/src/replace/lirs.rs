//! LIRS: pages are ranked by the distance between their last two touches, not by the last one (S.
//! Jiang and X. Zhang, LIRS: an efficient low inter-reference recency set replacement policy,
//! SIGMETRICS 2002). Pages of short distance hold almost all frames, the rest pass through a
//! hundredth. Best of all on loops; a set that moves takes it longer than LRU.

use super::Replace;
use super::links::Links;

/// Ghosts are kept for so many times the frames.
const GHOSTS: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Unknown, or forgotten.
    New,
    /// Of short distance; held.
    Low,
    /// Of long distance; held, in the queue.
    High,
    /// Of long distance; gone, remembered by the stack.
    Ghost,
}

/// A stack of recency and a queue of those who go first.
pub struct Lirs {
    frames: u32,
    low_most: u32,
    stack: Links<1>,
    queue: Links<1>,
    /// Ghosts, oldest first.
    ghosts: Links<1>,
    states: Vec<State>,
    low: u32,
}

impl Lirs {
    /// Nothing is held.
    #[must_use]
    pub fn new(frames: u32, pages: u32) -> Lirs {
        let high = (frames / 100).max(1);
        Lirs {
            frames,
            low_most: frames.saturating_sub(high),
            stack: Links::new(pages),
            queue: Links::new(pages),
            ghosts: Links::new(pages),
            states: vec![State::New; pages as usize],
            low: 0,
        }
    }

    /// The bottom of the stack is a page of short distance.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.tail(0) {
            match self.states[bottom as usize] {
                State::Low => return,
                State::Ghost => self.forget(bottom),
                State::High | State::New => self.stack.remove(bottom),
            }
        }
    }

    fn forget(&mut self, ghost: u32) {
        self.ghosts.remove(ghost);
        self.stack.remove(ghost);
        self.states[ghost as usize] = State::New;
    }

    /// The oldest of the queue leaves; the stack may remember it.
    fn make_room(&mut self) {
        if self.held() < self.frames {
            return;
        }
        let Some(page) = self.queue.pop(0) else {
            // All frames are of short distance: one frame, or two.
            self.demote();
            return self.make_room();
        };
        if !self.stack.is_in(page, 0) {
            self.states[page as usize] = State::New;
            return;
        }
        self.states[page as usize] = State::Ghost;
        self.ghosts.push(0, page);
        if self.ghosts.len(0) > GHOSTS * self.frames {
            let oldest = self.ghosts.tail(0).expect("there are ghosts");
            self.forget(oldest);
        }
    }

    /// The page of short distance at the bottom becomes one of long distance.
    fn demote(&mut self) {
        self.prune();
        let Some(bottom) = self.stack.pop(0) else { return };
        self.states[bottom as usize] = State::High;
        self.low -= 1;
        self.queue.push(0, bottom);
        self.prune();
    }

    fn promote(&mut self, page: u32) {
        self.states[page as usize] = State::Low;
        self.low += 1;
        self.stack.refresh(0, page);
        if self.low > self.low_most.max(1) {
            self.demote();
        }
    }
}

impl Replace for Lirs {
    fn touch(&mut self, page: u32, _: u32) -> bool {
        match self.states[page as usize] {
            State::Low => {
                self.stack.refresh(0, page);
                self.prune();
                true
            }
            State::High => {
                if self.stack.is_in(page, 0) {
                    self.queue.remove(page);
                    self.promote(page);
                } else {
                    self.stack.push(0, page);
                    self.queue.refresh(0, page);
                }
                true
            }
            State::Ghost => {
                self.ghosts.remove(page);
                self.states[page as usize] = State::New;
                self.make_room();
                self.promote(page);
                false
            }
            State::New => {
                self.make_room();
                if self.low < self.low_most {
                    self.promote(page);
                } else {
                    self.states[page as usize] = State::High;
                    self.stack.refresh(0, page);
                    self.queue.push(0, page);
                }
                false
            }
        }
    }

    fn held(&self) -> u32 {
        self.low + self.queue.len(0)
    }
}
