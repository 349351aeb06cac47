//! The budget: what counts against it, and the giving back of idle frames that do not fit.

use super::Engine;
use crate::memory::bits;
use crate::staging::{BLOCK, Frame};

impl Engine {
    /// Frames that count against the budget: held by `mm`, populated and idle, or the compressed pool's.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.mm.frames_held() + self.staging.idle_frames() + self.compressed.pool.frames()
    }

    /// Frames that it may hold.
    #[must_use]
    pub fn budget(&self) -> u32 {
        self.allowed
    }

    /// Changes the budget, in frames.
    pub fn set_budget(&mut self, frames: u32) {
        self.allowed = frames;
        self.share_budget();
    }

    /// From now on a frame that held a page is given back to the kernel, never to another page.
    pub fn stop_recycling(&mut self) {
        self.recycle = false;
        self.trim();
    }

    /// Idle frames count against the budget: those that do not fit are given back to the kernel.
    pub(super) fn trim(&mut self) {
        let spare = self.mm.config().budget.saturating_sub(self.mm.frames_held());
        let allowed = if self.recycle { spare } else { 0 };
        while self.staging.idle_frames() > allowed {
            let (populated, left) = if let Some((first, populated)) = self.staging.take_spare() {
                let left = self.drop_frames(first, populated);
                self.staging.give_back(first, left);
                (populated, left)
            } else if let Some((first, idle)) = self.staging.take_idle() {
                let left = self.drop_frames(first, idle);
                self.staging.return_idle(first, left);
                (idle, left)
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
        let mut frame = 0;
        while frame < BLOCK {
            let count = (populated >> frame).trailing_ones();
            if count > 0 {
                let dropped = self.view.program.drop_frames(Frame(first.0 + frame), count);
                left &= !bits(frame, dropped);
            }
            frame += count + 1;
        }
        left
    }
}
