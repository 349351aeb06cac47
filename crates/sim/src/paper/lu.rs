//! What Linpack does to memory: the blocked factorization of a matrix that lies column by column in
//! one region.
//!
//! For each block of columns: one thread goes through the block from the diagonal down; then every
//! block to its right is updated, column by column from the diagonal's row down, the blocks dealt
//! out to threads. The arithmetic of a page's update is its 512 numbers times the block's columns;
//! what that takes is given.

use crate::workload::{Access, RegionSpec, Workload, WorkloadError};
use overspill_mm::types::{PAGE_SIZE, RegionKind};

/// Numbers of eight bytes to a page.
const PAGE_NUMBERS: u64 = PAGE_SIZE / 8;
/// Columns in a block.
const BLOCK: u64 = 256;
/// Threads.
const THREADS: u64 = 16;
/// Order of the matrix.
const ORDER: u64 = 8192;
/// A page's update: 512 x 256 multiplications and additions by a core of 10 to 20 thousand millions a second.
const UPDATE_NS: u64 = 20_000;
const START: u64 = 1 << 20;

/// The workload.
#[derive(Clone, Debug)]
pub struct Lu {
    order: u64,
    filled: u64,
    /// The block that is being eliminated.
    step: u64,
    walks: Vec<Walk>,
    turn: usize,
}

/// One thread's way through its part of a step.
#[derive(Clone, Debug)]
struct Walk {
    /// Blocks to go through, the next one first, and their distance.
    block: u64,
    stride: u64,
    end: u64,
    column: u64,
    row_page: u64,
}

impl Lu {
    /// A matrix with `shorten` times fewer numbers, roughly.
    #[must_use]
    pub fn new(shorten: u64) -> Lu {
        let order = (ORDER / shorten.isqrt()).max(2 * BLOCK) / BLOCK * BLOCK;
        Lu { order, filled: 0, step: 0, walks: Vec::new(), turn: 0 }
    }

    /// Its pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.order * self.column_pages()
    }

    /// In a line.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "a matrix of order {}, {} columns a block, {} threads, {} us of arithmetic a page; RAM for 80 % of it",
            self.order,
            BLOCK,
            THREADS,
            UPDATE_NS / 1000
        )
    }

    fn column_pages(&self) -> u64 {
        self.order.div_ceil(PAGE_NUMBERS)
    }

    fn blocks(&self) -> u64 {
        self.order / BLOCK
    }

    /// Page of the diagonal within a column, in this step.
    fn first_row_page(&self) -> u64 {
        self.step * BLOCK / PAGE_NUMBERS
    }

    /// Deals the blocks of this step: its own to thread 0, which then takes part in the rest.
    fn deal(&mut self) {
        let (step, blocks, row_page) = (self.step, self.blocks(), self.first_row_page());
        let walk = |thread: u64| Walk {
            block: if thread == 0 { step } else { step + thread },
            stride: THREADS,
            end: blocks,
            column: 0,
            row_page,
        };
        self.walks = (0..THREADS).map(walk).collect();
    }

    /// The next page of a thread in this step.
    fn advance(&mut self, thread: usize) -> Option<u64> {
        let (column_pages, first) = (self.column_pages(), self.first_row_page());
        let walk = &mut self.walks[thread];
        if walk.block >= walk.end {
            return None;
        }
        let page = (walk.block * BLOCK + walk.column) * column_pages + walk.row_page;
        walk.row_page += 1;
        if walk.row_page == column_pages {
            (walk.row_page, walk.column) = (first, walk.column + 1);
        }
        if walk.column == BLOCK {
            (walk.column, walk.block) = (0, walk.block + walk.stride);
        }
        Some(page)
    }

    /// The next page of whichever thread's turn it is.
    fn next_page(&mut self) -> Option<(usize, u64)> {
        loop {
            for _ in 0..self.walks.len() {
                let thread = self.turn;
                self.turn = (self.turn + 1) % THREADS as usize;
                if let Some(page) = self.advance(thread) {
                    return Some((thread, page));
                }
            }
            if !self.walks.is_empty() {
                self.step += 1;
            }
            if self.step == self.blocks() {
                return None;
            }
            self.deal();
        }
    }
}

impl Workload for Lu {
    fn next(&mut self) -> Result<Option<Access>, WorkloadError> {
        let access = |page: u64, thread: usize, think_ns| Access {
            vpn: START + page,
            think_ns,
            thread: thread as u16,
            space: 0,
            write: true,
        };
        if self.filled < self.pages() {
            self.filled += 1;
            return Ok(Some(access(self.filled - 1, 0, PAGE_NUMBERS)));
        }
        Ok(self.next_page().map(|(thread, page)| access(page, thread, UPDATE_NS)))
    }

    fn regions(&self) -> Vec<RegionSpec> {
        vec![RegionSpec { space: 0, start: START, end: START + self.pages(), kind: RegionKind::Anon }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every page on or below the diagonal's block row is touched once in each step, by block.
    #[test]
    fn steps_shrink_to_the_corner() {
        let mut lu = Lu::new(256);
        let (pages, blocks) = (lu.pages(), lu.blocks());
        let mut touches = 0;
        while lu.next().expect("no error").is_some() {
            touches += 1;
        }
        let column_pages = lu.column_pages();
        let step = |step: u64| (blocks - step) * BLOCK * (column_pages - step * BLOCK / PAGE_NUMBERS);
        assert_eq!(touches, pages + (0..blocks).map(step).sum::<u64>());
    }
}
