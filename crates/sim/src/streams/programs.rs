//! What the programs are up to: a reader in its file, the system in its memory.

use super::{NONE, Setup, Stream, WINDOW};
use crate::time::Nanos;
use overspill_mm::reclaim::lists::PageNumber;
use overspill_mm::reclaim::shadow::Shadow;

impl super::Program {
    /// Stands in while a task is being stepped.
    pub const IDLE: super::Program = super::Program::Reader(Reader {
        stream: Stream { file: 0, pages: 0 },
        position: 0,
        is_ended: false,
        fill: 0,
        fill_end: 0,
    });
}

/// A program that reads a file from its start.
pub struct Reader {
    pub stream: Stream,
    /// The next page to be handed over.
    position: u32,
    /// It was ended before it had read all.
    is_ended: bool,
    /// The window that is being brought in.
    fill: u32,
    fill_end: u32,
}

impl Reader {
    pub fn new(stream: Stream) -> Reader {
        Reader { stream, position: 0, is_ended: false, fill: 0, fill_end: 0 }
    }

    pub fn is_done(&self) -> bool {
        self.is_ended || self.position >= self.stream.pages
    }

    /// It reads no further.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    pub fn pages_read(&self) -> u32 {
        self.position
    }

    /// The page that has to be brought in now. A window is opened where the next page is not in the
    /// cache.
    pub fn next_fill(&mut self, file: &[u32]) -> Option<u32> {
        let is_missing = |index: u32| file[index as usize] == NONE;
        if self.fill == self.fill_end && !self.is_done() && is_missing(self.position) {
            self.fill = self.position;
            self.fill_end = (self.position + WINDOW).min(self.stream.pages);
        }
        while self.fill < self.fill_end && !is_missing(self.fill) {
            self.fill += 1;
        }
        (self.fill < self.fill_end).then_some(self.fill)
    }

    /// It is brought in.
    pub fn filled(&mut self) {
        self.fill += 1;
    }

    /// The page to be handed over, if there is another.
    pub fn next_page(&mut self) -> Option<u32> {
        let index = self.position;
        (index < self.stream.pages).then(|| {
            self.position += 1;
            index
        })
    }

    /// It was gone again.
    pub fn miss(&mut self, index: u32) {
        self.position = index;
    }
}

/// Where a page of the system is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    In(PageNumber),
    Out(Shadow),
}

/// Everything else that runs: memory of which a part is touched now and then.
pub struct System {
    pub pages: Vec<Place>,
    /// The first so many are touched.
    pub hot: usize,
    pub period_ns: Nanos,
    /// The page whose frame was refused.
    pub waiting: Option<usize>,
}

impl System {
    pub fn new(setup: &Setup, pages: Vec<PageNumber>) -> System {
        System {
            hot: pages.len() * setup.system_hot_permille as usize / 1000,
            pages: pages.into_iter().map(Place::In).collect(),
            period_ns: setup.system_period_ns,
            waiting: None,
        }
    }
}
