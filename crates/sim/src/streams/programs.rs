//! What the programs are up to: a reader or writer in its file, others in memory of their own.

use super::files::{Files, Spot};
use super::{Habit, Stream, WINDOW};
use overspill_mm::reclaim::lists::{DomainId, PageNumber};
use overspill_mm::reclaim::shadow::Shadow;

impl super::Program {
    /// Stands in while a task is being stepped.
    pub const IDLE: super::Program = super::Program::Flusher;
}

/// A program that goes through a file from its start, reading or writing.
pub struct Walker {
    pub stream: Stream,
    /// The next page to be handed over, or written.
    position: u32,
    /// It was ended before it had seen all.
    is_ended: bool,
    /// The window that is being brought in.
    fill: u32,
    fill_end: u32,
}

impl Walker {
    pub fn new(stream: Stream) -> Walker {
        Walker { stream, position: 0, is_ended: false, fill: 0, fill_end: 0 }
    }

    pub fn is_done(&self) -> bool {
        self.is_ended || self.position >= self.stream.pages
    }

    /// It goes no further.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    pub fn pages_done(&self) -> u32 {
        self.position
    }

    fn spot(&self, index: u32) -> Spot {
        Spot { file: self.stream.file, index }
    }

    /// The page that has to be brought in now. A window is opened where the next page is not in the
    /// cache.
    pub fn next_fill(&mut self, files: &Files) -> Option<Spot> {
        let (file, stream) = (self.stream.file, self.stream);
        let is_missing = |index: u32| files.frame(Spot { file, index }).is_none();
        if self.fill == self.fill_end && !self.is_done() && is_missing(self.position) {
            self.fill = self.position;
            self.fill_end = (self.position + WINDOW).min(stream.pages);
        }
        while self.fill < self.fill_end && !is_missing(self.fill) {
            self.fill += 1;
        }
        (self.fill < self.fill_end).then(|| self.spot(self.fill))
    }

    /// It is brought in.
    pub fn filled(&mut self) {
        self.fill += 1;
    }

    /// The page where it is, if there is another.
    pub fn here(&self) -> Option<Spot> {
        (!self.is_done()).then(|| self.spot(self.position))
    }

    /// On to the next page.
    pub fn advance(&mut self) {
        self.position += 1;
    }
}

/// Where a page of a program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Never touched.
    New,
    In(PageNumber),
    Out(Shadow),
}

/// A program with memory of its own, of which a part is touched now and then.
pub struct Resident {
    pub habit: Habit,
    pub places: Vec<Place>,
    is_awake: bool,
    /// Where it touches next, how many more pages before it sleeps.
    next: u32,
    left: u32,
    /// New pages that its child will still touch, and those that it has.
    pub child_left: u32,
    pub child: Vec<PageNumber>,
}

impl Resident {
    pub fn new(habit: Habit, places: Vec<Place>) -> Resident {
        Resident { habit, places, is_awake: false, next: 0, left: 0, child_left: 0, child: Vec::new() }
    }

    pub fn domain(&self) -> DomainId {
        self.habit.domain
    }

    /// It sleeps, or begins now.
    pub fn is_at_rest(&self) -> bool {
        !self.is_awake
    }

    /// It wakes and begins at this page.
    pub fn wake(&mut self, at: u32) {
        (self.next, self.left, self.child_left) = (at, self.habit.burst, self.habit.child);
        self.is_awake = true;
    }

    /// It has done what it woke for.
    pub fn rest(&mut self) {
        self.is_awake = false;
    }

    /// The page that it touches now.
    pub fn wants(&self) -> Option<usize> {
        (self.left > 0).then_some(self.next as usize)
    }

    /// It has.
    pub fn touched(&mut self) {
        self.left -= 1;
        self.next = (self.next + 1) % self.habit.hot;
    }
}
