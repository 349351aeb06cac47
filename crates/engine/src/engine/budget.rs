//! The budget: what counts against it, and the giving back of idle frames that do not fit.

use core::sync::atomic::AtomicBool;

use overspill_sys::PAGE_SIZE;

use super::Engine;
use crate::memory::{bits, runs};
use crate::pipes::Pipes;
use crate::staging::Frame;

impl Engine {
    /// Frames that count against the budget: held by `mm`, populated and idle, or the compressed pool's.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.mm.frames_held() + self.staging.idle_frames() + self.compressed.pool.tier.frames()
    }

    /// Bytes of the pages that the program has here, whether they have a frame or not. What of a file was
    /// not in view nobody has asked for.
    #[must_use]
    pub fn pages_bytes(&self) -> u64 {
        let pages = self.mm.frames_held() + self.mm.pages_swapped() - self.mm.pages_unseen();
        u64::from(pages) * PAGE_SIZE as u64
    }

    /// Bytes of the frames that nobody has asked for: with pages of files that were not in view; and once
    /// there were any, those that hold nothing, as those pages may have left them.
    ///
    /// *The story:* a mapping went, and what had filled room left 480 MiB of frames. So much was said to be
    /// needed, of 54.
    #[must_use]
    pub fn unseen_bytes(&self) -> u64 {
        let unseen = self.mm.frames_unseen();
        let idle = if unseen > 0 || self.report.has_filled() { self.staging.idle_frames() } else { 0 };
        u64::from(unseen + idle) * PAGE_SIZE as u64
    }

    /// Bytes of the pages that left as zeroes, and were neither touched nor dropped since.
    #[must_use]
    pub fn blank_bytes(&self) -> u64 {
        u64::from(self.mm.pages_blank()) * PAGE_SIZE as u64
    }

    /// Frames that it may hold.
    #[must_use]
    pub fn budget(&self) -> u32 {
        self.allowed
    }

    /// Changes the budget, in frames; to no more than it was at first.
    pub fn set_budget(&mut self, frames: u32) {
        self.allowed = frames;
        self.share_budget();
    }

    /// Once `lent` is set a frame that held a page is given back to the kernel, never to another
    /// page: what the borrower of a page still reads must not change. What the program does by
    /// calls that nobody sees is looked for: see `lending`. `pipes` are those that it began with.
    pub fn watch_lending(&mut self, lent: &'static AtomicBool, pipes: Pipes) {
        self.lending.watch(lent, pipes);
    }

    /// May the frames that come next, `count` of them, hold another page than they held? To be
    /// asked when that is about to be done: what was lent was lent before its page was taken out of
    /// view.
    pub(super) fn recycles(&mut self, count: u32) -> bool {
        self.lending.clears(self.staging.next_taken(count), self.staging.takes())
    }

    /// Consecutive frames to bring `count` pages into.
    ///
    /// *The story:* idle frames were given back to the kernel at the end of each turn only. One
    /// that became idle and was used again within a turn still was a page that a pipe held: what
    /// came out of the pipe was another page (`torture splice`, one run in ten).
    pub(super) fn frames_to_fill(&mut self, count: u32) -> Option<Frame> {
        if self.recycles(count) {
            return self.staging.take_for_read(count);
        }
        self.holes(count)
    }

    /// Consecutive holes to move `count` pages into. Where there are none idle frames become holes.
    pub(super) fn holes(&mut self, count: u32) -> Option<Frame> {
        self.staging.take_holes(count).or_else(|| {
            self.trim();
            self.staging.take_holes(count)
        })
    }

    /// Idle frames count against the budget: those that do not fit are given back to the kernel.
    pub(super) fn trim(&mut self) {
        let spare = self.mm.config().budget.saturating_sub(self.mm.frames_held());
        let allowed = if self.lending.allows() { spare } else { 0 };
        while self.staging.idle_frames() > allowed {
            let (populated, left) = if let Some((first, populated)) = self.staging.take_spare() {
                let left = self.drop_frames(first, populated);
                self.staging.give_back(first, left);
                (populated, left)
            } else if let Some((first, idle)) = self.staging.take_idle() {
                let left = self.drop_frames(first, idle);
                self.staging.return_idle(first, left);
                (idle, left)
            } else if self.drop_part() {
                continue;
            } else {
                return;
            };
            if left == populated {
                return;
            }
        }
    }

    /// Gives frames of a block back to the kernel, and says which are there still.
    fn drop_frames(&mut self, first: Frame, populated: u64) -> u64 {
        let mut left = populated;
        for (frame, count) in runs(populated) {
            let dropped = self.view.program.drop_frames(Frame(first.0 + frame), count);
            left &= !bits(frame, dropped);
        }
        left
    }
}
