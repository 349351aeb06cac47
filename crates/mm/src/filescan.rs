//! Files read in order: what a reader leaves behind goes first, from the start.
//!
//! A loop over a file that is larger than RAM is the rule among programs that map such files, and
//! the order of use is the worst that can be done to it: all of it is read each time. So pages that
//! a stream has just passed are the next to go (`leave_behind`), but for one window in 64, which
//! stays in the order of use and so makes an older page leave. Those pages are the sample by which
//! it is seen whether that is right: where what leaves in the order of use is not wanted back while
//! what was expelled is, RAM is full of what nobody uses (a file that was read once), and more
//! windows are kept, in the end all.
//!
//! It differs from `reclaim::streams`, which does the same for anonymous memory, in where it begins:
//! there nothing is expelled until it is known to be right.

/// Of so many windows one is kept at the start, and at the most.
const KEPT_ONE_IN_MAX: u32 = 64;
/// With so many or more most of what is passed is expelled.
const EXPELLED_MOST: u32 = 8;
/// Judged when this part of the budget came back, or left, and at least so many pages.
const JUDGED_SHARE: u32 = 64;
const JUDGED_MIN: u32 = 64;
/// Fewer pages that left in the order of use tell nothing.
const LEFT_MIN: u32 = 16;

/// How streams of files are treated.
#[derive(Debug)]
pub struct FileScans {
    kept_one_in: u32,
    windows: u32,
    /// Since the last judgement: pages that left in the order of use, those of them that were
    /// wanted back soon, and those that were expelled and were wanted back soon.
    left: u32,
    back: u32,
    expelled_back: u32,
}

impl Default for FileScans {
    fn default() -> Self {
        FileScans { kept_one_in: KEPT_ONE_IN_MAX, windows: 0, left: 0, back: 0, expelled_back: 0 }
    }
}

impl FileScans {
    /// Is what a reader passes now to be expelled?
    #[must_use]
    pub fn expels(&mut self) -> bool {
        self.windows = self.windows.wrapping_add(1);
        !self.windows.is_multiple_of(self.kept_one_in)
    }

    /// Is most of what readers pass expelled?
    #[must_use]
    pub fn expels_most(&self) -> bool {
        self.kept_one_in >= EXPELLED_MOST
    }

    /// A page left.
    pub fn note_left(&mut self, expelled: bool, budget: u32) {
        self.left += u32::from(!expelled);
        self.judge(budget);
    }

    /// A page came back soon.
    pub fn note_back(&mut self, was_expelled: bool) {
        if was_expelled {
            self.expelled_back += 1;
        } else {
            self.back += 1;
        }
    }

    fn judge(&mut self, budget: u32) {
        let enough = JUDGED_MIN.max(budget / JUDGED_SHARE);
        // What was expelled and does not come back asks for no judgement: either way is right.
        let is_due = self.expelled_back >= enough || self.kept_one_in == 1 && self.left >= enough;
        if !is_due {
            return;
        }
        if self.back >= self.left / 2 {
            self.kept_one_in = (self.kept_one_in * 2).min(KEPT_ONE_IN_MAX);
        } else if self.left >= LEFT_MIN && self.back < self.left / 4 {
            self.kept_one_in = (self.kept_one_in / 2).max(1);
        }
        (self.left, self.back, self.expelled_back) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u32 = 64 * JUDGED_MIN;

    fn after(scans: &mut FileScans, left: u32, back: u32, expelled_back: u32) -> u32 {
        (0..back).for_each(|_| scans.note_back(false));
        (0..expelled_back).for_each(|_| scans.note_back(true));
        (0..left).for_each(|_| scans.note_left(false, BUDGET));
        scans.note_left(true, BUDGET);
        scans.kept_one_in
    }

    #[test]
    fn a_loop_is_expelled_from_the_start_and_a_file_read_once_gives_way() {
        let mut scans = FileScans::default();
        assert_eq!((0..128).filter(|_| !scans.expels()).count(), 2, "one in 64 is kept");
        assert_eq!(after(&mut scans, 1000, 0, 0), 64, "nothing came back: no reason for a change");
        let mut scans = FileScans::default();
        for kept in [64, 64] {
            assert_eq!(after(&mut scans, 20, 20, 64), kept, "all of it is in use");
        }
        for kept in [32, 16, 8, 4, 2, 1] {
            assert_eq!(after(&mut scans, 20, 0, 64), kept, "what leaves is not wanted back");
        }
        assert_eq!(after(&mut scans, 64, 0, 0), 1);
        assert_eq!(after(&mut scans, 64, 60, 0), 2, "it is, now");
    }
}
