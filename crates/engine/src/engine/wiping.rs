//! What the program has marked MADV_WIPEONFORK shows zeroes in every child.
//!
//! Before a fork that is announced everything comes in, once anything is marked: the kernel leaves it out.
//! A child that nobody announced is given what was out, but for what is marked at that moment. Nobody says
//! that but a list that looks at every page, so it is read for such a fork only, and where marks were heard
//! of. Who marks memory by way of libc, or takes marks off, waits while a fork is handled that was read of
//! (`memory/forks.rs`).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use overspill_sys::AddressRange;
use overspill_sys::maps::{BUFFER_BYTES, Inherited, Share};
use overspill_sys::uffd::Message;

use super::Engine;
use crate::ranges::cut_out;

/// What is known of marks.
#[derive(Default)]
pub(super) struct Wiping {
    /// Set before the program first marks memory.
    announced: Option<&'static AtomicBool>,
    /// The list, which is opened early: later there may be no descriptor left, or no /proc.
    list: Option<Inherited>,
}

impl Wiping {
    /// May anything be marked? Then the list is open, if it can be.
    pub fn may_be(&mut self) -> bool {
        let may_be = self.announced.is_some_and(|flag| flag.load(SeqCst));
        if may_be && self.list.is_none() {
            self.list = Inherited::open().ok();
        }
        may_be
    }
}

impl Engine {
    /// `announced` is set before the program first marks memory MADV_WIPEONFORK by way of libc. `forks`
    /// is odd while a fork may be read of and not handled.
    pub fn watch_wiping(&mut self, announced: &'static AtomicBool, forks: &'static AtomicU32) {
        self.wiping.announced = Some(announced);
        self.view.program.watch_forks(forks);
    }

    /// What is marked, where the books have it, in order. To be asked for a fork that was just read of.
    ///
    /// *The story:* such a child was given all that was out: 10,868 of 15,360 pages that were to be zeroes
    /// (`torture fork-wiped`).
    pub(super) fn wiped(&mut self) -> Vec<AddressRange> {
        let mut wiped = Vec::new();
        if !self.wiping.may_be() {
            return wiped;
        }
        self.hears_all();
        if let Some(list) = &self.wiping.list {
            let _ = list.for_each_in(&(0..usize::MAX), &mut [0; BUFFER_BYTES], |range, share| {
                if share == Share::Zeroes {
                    wiped.push(range);
                }
            });
        }
        // What is moved, and not handled yet, is where it was to the books, and to the child.
        for change in self.view.program.changes().iter().rev() {
            if let &Message::Remap { from, to, len } = change
                && from != to
            {
                move_back(&mut wiped, &(to..to + len), from);
            }
        }
        wiped.sort_unstable_by_key(|range| range.start);
        wiped
    }
}

/// What is in the range `to` was at `from`.
fn move_back(ranges: &mut Vec<AddressRange>, to: &AddressRange, from: usize) {
    let mut were = Vec::new();
    for range in ranges.iter() {
        let moved = range.start.max(to.start)..range.end.min(to.end);
        if !moved.is_empty() {
            were.push(moved.start - to.start + from..moved.end - to.start + from);
        }
    }
    cut_out(ranges, to);
    cut_out(ranges, &(from..from + to.len()));
    ranges.append(&mut were);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_moved_was_elsewhere() {
        let mut ranges = vec![0x1000..0x4000, 0x8000..0x9000];
        move_back(&mut ranges, &(0x2000..0x3000), 0x7000);
        ranges.sort_by_key(|range| range.start);
        assert_eq!(ranges, [0x1000..0x2000, 0x3000..0x4000, 0x7000..0x8000, 0x8000..0x9000]);
        // What is marked there by now is not what was.
        move_back(&mut ranges, &(0xf000..0x1_0000), 0x3000);
        ranges.sort_by_key(|range| range.start);
        assert_eq!(ranges, [0x1000..0x2000, 0x7000..0x8000, 0x8000..0x9000]);
    }
}
