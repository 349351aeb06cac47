//! The programs of the on-demand read-ahead announcement: iozone's patterns, aio-stress, sysbench
//! fileio and OLTP, and slow streams (specification 6.2 to 6.5).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::{Program, Step};
use crate::rng::Rng;
use crate::time::{MICROSECOND, Nanos, SECOND, muldiv};
use overspill_mm::types::PAGE_SIZE;

/// A list of reads of one file, one after another.
pub struct Records<I> {
    /// First pages.
    pub starts: I,
    /// Pages in each.
    pub pages: u64,
}

impl<I: Iterator<Item = u64>> Program for Records<I> {
    fn next(&mut self, _: Nanos) -> Step {
        match self.starts.next() {
            Some(page) => Step::read_pages(0, page, self.pages),
            None => Step::End,
        }
    }
}

/// All numbers below `count`, in an order drawn from `seed`.
#[must_use]
pub fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    let mut all: Vec<u64> = (0..count).collect();
    for at in (1..all.len()).rev() {
        all.swap(at, rng.below(at as u64 + 1) as usize);
    }
    all
}

/// iozone's stride: every 17th record, then from the next one on, until all were read.
#[must_use]
pub fn strided(count: u64, stride: u64) -> Vec<u64> {
    (0..stride).flat_map(|offset| (offset..count).step_by(stride as usize)).collect()
}

/// sysbench fileio, rndrw: three reads for two writes, a sync after every 100 requests.
pub struct FileIo {
    /// Of this thread.
    pub rng: Rng,
    /// Requests left, of all threads.
    pub left: Rc<Cell<u64>>,
    /// Files, and the blocks in each.
    pub files: u64,
    /// Blocks of 64 KiB in a file.
    pub blocks: u64,
}

const FILEIO_PAGES: u64 = 16;

impl Program for FileIo {
    fn next(&mut self, _: Nanos) -> Step {
        let left = self.left.get();
        if left == 0 {
            return Step::End;
        }
        self.left.set(left - 1);
        if left.is_multiple_of(101) {
            return Step::Sync;
        }
        let file = self.rng.below(self.files) as usize;
        let page = self.rng.below(self.blocks) * FILEIO_PAGES;
        if self.rng.below(5) < 3 {
            Step::read_pages(file, page, FILEIO_PAGES)
        } else {
            Step::Write { file, page, pages: FILEIO_PAGES }
        }
    }
}

/// The database's own cache of blocks: those used last.
pub struct Blocks {
    used: HashMap<u64, u64>,
    order: std::collections::BTreeMap<u64, u64>,
    clock: u64,
    capacity: usize,
}

impl Blocks {
    /// An empty one.
    #[must_use]
    pub fn new(capacity: usize) -> Rc<RefCell<Blocks>> {
        let (used, order) = (HashMap::new(), std::collections::BTreeMap::new());
        Rc::new(RefCell::new(Blocks { used, order, clock: 0, capacity }))
    }

    /// Uses a block; false where it has to be read.
    fn uses(&mut self, block: u64) -> bool {
        self.clock += 1;
        let before = self.used.insert(block, self.clock);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, block);
        if self.order.len() > self.capacity {
            let (_, oldest) = self.order.pop_first().expect("more than none");
            self.used.remove(&oldest);
        }
        before.is_some()
    }
}

/// sysbench OLTP, read only: ten rows one by one and four ranges of a hundred a transaction.
pub struct Oltp {
    /// Of this thread.
    pub rng: Rng,
    /// Transactions left, of all threads.
    pub left: Rc<Cell<u64>>,
    /// The database's cache.
    pub blocks: Rc<RefCell<Blocks>>,
    /// Rows of the table.
    pub rows: u64,
    /// Queries left of this transaction, and blocks left of this query.
    pub queries: u64,
    /// `first .. end`.
    pub range: (u64, u64),
}

/// Rows in a block of 16 KiB.
pub const ROWS_A_BLOCK: u64 = 64;
const BLOCK_PAGES: u64 = 4;
const QUERIES: u64 = 14;
const POINT_QUERIES: u64 = 10;
const RANGE_ROWS: u64 = 100;
/// What a query takes of the processor.
const QUERY_NS: Nanos = 60 * MICROSECOND;

impl Oltp {
    /// sysbench's "special" distribution: three of four among the middle hundredth, the rest bell-shaped.
    fn row(&mut self) -> u64 {
        if self.rng.below(4) < 3 {
            return self.rows / 2 - self.rows / 200 + self.rng.below(self.rows / 100);
        }
        (0..12).map(|_| self.rng.below(self.rows)).sum::<u64>() / 12
    }

    fn query(&mut self) {
        let rows = if self.queries > QUERIES - POINT_QUERIES { 1 } else { RANGE_ROWS };
        let first = self.row().min(self.rows - rows);
        self.range = (first / ROWS_A_BLOCK, (first + rows - 1) / ROWS_A_BLOCK + 1);
        self.queries -= 1;
    }
}

impl Program for Oltp {
    fn next(&mut self, _: Nanos) -> Step {
        while self.range.0 < self.range.1 {
            let block = self.range.0;
            self.range.0 += 1;
            if !self.blocks.borrow_mut().uses(block) {
                return Step::read_pages(0, block * BLOCK_PAGES, BLOCK_PAGES);
            }
        }
        if self.queries == 0 {
            let left = self.left.get();
            if left == 0 {
                return Step::End;
            }
            self.left.set(left - 1);
            self.queries = QUERIES;
        }
        self.query();
        Step::Think(QUERY_NS)
    }
}

/// A stream at a fixed rate.
pub struct SlowStream {
    /// Its file.
    pub file: usize,
    /// Pages of the file; it starts again at the end.
    pub pages: u64,
    /// Bytes a second.
    pub rate: u64,
    /// Pages a read.
    pub read_pages: u64,
    /// When it began.
    pub since: Nanos,
    /// When it ends.
    pub until: Nanos,
    /// Reads so far.
    pub reads: u64,
    /// It has slept for the next read.
    pub slept: bool,
}

impl Program for SlowStream {
    fn next(&mut self, now: Nanos) -> Step {
        if now >= self.until {
            return Step::End;
        }
        let due = self.since + muldiv(self.reads * self.read_pages * PAGE_SIZE, SECOND, self.rate);
        if !std::mem::replace(&mut self.slept, true) && due > now {
            return Step::Until(due);
        }
        self.slept = false;
        // Who is late does not catch up: a stream is watched as it comes.
        if now > due {
            self.since += now - due;
        }
        let page = self.reads * self.read_pages % (self.pages - self.pages % self.read_pages);
        self.reads += 1;
        Step::read_pages(self.file, page, self.read_pages)
    }
}
