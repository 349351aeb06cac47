//! How many frames the pager keeps free ahead of demand, and how many in the swap cache: as many as
//! are taken at a time. Where pages come singly, at random, little is enough, and every frame more
//! that holds a page in view is a fault less. A kernel's watermarks are fixed.
//!
//! *The story:* first touches were counted by the batch that they got, not by the one that they
//! wished for. A program that fills memory at full speed beyond its budget found few frames free,
//! got small batches, whereupon fewer frames were kept free: down to a fault a page (12 us each,
//! 300 MB/s) beside a device that was idle for most of the time.

use crate::list::ListId;
use crate::mm::{Config, Mm};
use crate::readahead::SwapIn;

/// Kept free are so many of the largest batches taken lately.
const BATCHES_FREE: u32 = 3;
/// The low watermark where pages come singly: eight threads take some 30 frames a millisecond, and
/// a write takes a few.
const LOW_LEAST: u32 = 128;
/// The same where the next page to leave is one of a file that its reader has passed: it leaves at once,
/// and each frame that is kept free instead is a page that a loop reads again.
const LOW_PASSED: u32 = 32;
/// The same, and pages that wait, where each page that is taken out of view is copied for it first.
const SHARED: u32 = 32;
/// Frames that are kept where there is no region.
const FREE_UNUSED: u32 = 64;
/// Frames made free at a time where they are taken singly: the kernel's batch (section 8).
const BATCH_LEAST: u32 = 32;
/// Pages that wait in the swap cache for their second chance at the least. Where all pages are alike
/// more are no better judged (where they are not the policy has more wait: `chance`), and each that is
/// touched there costs two switches of threads: of random touches of 1000M in 900M by eight threads
/// 176,000 a second were answered with 4096 (and 36,000 soft faults of 800,000 touches), 255,000 with
/// 1024, 290,000 with 256 and 295,000 with 64.
const SECOND_CHANCE: u32 = 256;
/// Besides them wait pages that were read ahead: so many of the largest windows, two for each of a
/// few streams.
const BATCHES_CACHED: u32 = 8;
/// Of the appetite this part (one in so many) is forgotten whenever reclaim begins anew.
const FORGOTTEN: u32 = 8;

/// The largest batch of frames that was taken lately: a window of read-ahead, or a sequential first touch.
#[derive(Default)]
pub(crate) struct Appetite(u32);

impl Appetite {
    /// So many frames are wished for at once.
    pub fn observe(&mut self, frames: u32) {
        self.0 = self.0.max(frames);
    }

    /// Reclaim begins anew.
    pub fn fade(&mut self) {
        self.0 -= self.0.div_ceil(FORGOTTEN);
    }

    /// Below this many free frames reclaim starts.
    fn low(&self, config: &Config) -> u32 {
        config.low.min(LOW_LEAST.max(BATCHES_FREE * self.0))
    }
}

impl<P: SwapIn> Mm<P> {
    /// Whether each page that is taken out of view is copied for it, as others share it, and so holds more
    /// RAM until it has left. Little is kept free then, and little waits.
    ///
    /// *The story:* each of twenty copies of a program that began to page copied 700 pages at once, so
    /// that 256 frames were free and as many waited: 54 MiB, in a budget of 120.
    pub fn copies_to_take(&mut self, is_so: bool) {
        self.copies_to_take = is_so;
    }

    /// Below this many free frames reclaim starts.
    pub(crate) fn low(&self) -> u32 {
        if self.config.probe.is_kernel() {
            return self.config.low;
        }
        let low = self.appetite.low(&self.config);
        if self.copies_to_take {
            low.min(SHARED)
        } else if self.has_passed() {
            low.min(LOW_PASSED)
        } else {
            low
        }
    }

    /// At this many free frames it stops.
    pub(crate) fn high(&self) -> u32 {
        if self.config.probe.is_kernel() { self.config.high } else { self.config.high.min(2 * self.low()) }
    }

    /// Frames that are kept free: with so few more than are held nothing leaves.
    #[must_use]
    pub fn frames_kept(&self) -> u32 {
        self.high()
    }

    /// Frames that nobody needs: what is free beyond what is kept free. Where nothing is managed that is
    /// all but a few, with which something can begin.
    #[must_use]
    pub fn frames_left_over(&self) -> u32 {
        self.left_over(self.held - self.lists.len(ListId::Filler))
    }

    /// The same without those that are filled with what nobody asked for.
    pub(crate) fn frames_unused(&self) -> u32 {
        self.left_over(self.held)
    }

    fn left_over(&self, held: u32) -> u32 {
        let is_in_use = self.regions.each().next().is_some();
        let kept = if is_in_use { self.high() } else { FREE_UNUSED };
        self.config.budget.saturating_sub(held).saturating_sub(kept)
    }

    /// So many frames are made free at a time where nobody waits for them: as many as are taken at a time.
    pub(crate) fn batch(&self) -> u32 {
        BATCH_LEAST.max(self.appetite.0)
    }

    /// So many pages are written at once at the most: reads wait for a large write.
    pub(crate) fn write_max(&self) -> u32 {
        let most = self.config.write_max;
        if self.config.probe.is_kernel() { most } else { most.min(self.batch()) }
    }

    /// So many pages wait in the swap cache where that is fixed.
    pub(crate) fn second_chance(&self) -> u32 {
        let chance = if self.copies_to_take { SHARED } else { SECOND_CHANCE };
        self.config.cache.min(chance + self.windows())
    }

    /// So many pages that were read ahead may wait.
    pub(crate) fn windows(&self) -> u32 {
        BATCHES_CACHED * self.appetite.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readahead::none::NoReadAhead;

    #[test]
    fn frames_are_kept_free_for_what_is_taken_at_a_time() {
        let config = Config::live(1 << 18, 1 << 19);
        let mut appetite = Appetite::default();
        assert_eq!(appetite.low(&config), LOW_LEAST);
        appetite.observe(256);
        appetite.observe(1);
        assert_eq!(appetite.low(&config), config.low, "three windows of 1 MiB");
        let mut begun = 0;
        while appetite.low(&config) > LOW_LEAST {
            appetite.fade();
            begun += 1;
        }
        assert!((5..20).contains(&begun), "forgotten after reclaim began {begun} times");
        for _ in 0..100 {
            appetite.fade();
        }
        assert_eq!(appetite.0, 0);
    }

    #[test]
    fn a_small_budget_keeps_its_small_watermarks() {
        let config = Config::live(1024, 1 << 14);
        let mut appetite = Appetite::default();
        assert_eq!(appetite.low(&config), config.low);
        appetite.observe(1 << 16);
        assert_eq!(appetite.low(&config), config.low);
    }

    /// See [`Mm::copies_to_take`].
    #[test]
    fn where_each_page_is_copied_to_leave_little_is_kept_free_and_little_waits() {
        let mut mm = Mm::new(Config::live(1 << 14, 1 << 16), NoReadAhead);
        mm.appetite.observe(256);
        assert_eq!((mm.low(), mm.second_chance()), (mm.config.low, mm.config.cache));
        mm.copies_to_take(true);
        assert_eq!((mm.low(), mm.high()), (SHARED, 2 * SHARED));
        mm.copies_to_take(false);
        assert_eq!(mm.low(), mm.config.low);
    }
}
