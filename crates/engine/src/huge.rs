//! The parts of staging that may be huge pages, 2 MiB each: which hold pages, which are there and hold
//! nothing, which are not there.
//!
//! A chunk of a file that is read as a whole gets the frames of such a part, and comes back into it as
//! a whole. Its eight blocks are kept in the books of `staging` like any others, so that all that may
//! be done to the pages of a block may be done to these: singly they leave, and are read into. Whether
//! a part really is one huge page is the kernel's to know, and changes what calls cost, no more. After
//! pages have left it singly it is not, and cannot become one before it was given back.

use alloc::vec::Vec;

use overspill_mm::types::CHUNK_PAGES;

use crate::staging::{BLOCK, Frame};

/// Frames in a part.
pub(crate) const PART: u32 = CHUNK_PAGES as u32;
/// Blocks in a part.
const BLOCKS: u32 = PART / BLOCK;
/// Of so many frames one may be in such a part.
const SHARE: u32 = 8;
/// And so many parts at most.
const PARTS_MAX: u32 = 64;
/// In smaller budgets no window is as large as a part.
const FRAMES_MIN: u32 = 48 * PART;

/// Parts of staging for so many frames.
pub(crate) const fn parts(frames_max: u32) -> u32 {
    if frames_max < FRAMES_MIN {
        return 0;
    }
    let parts = frames_max / SHARE / PART;
    if parts < PARTS_MAX { parts } else { PARTS_MAX }
}

/// Blocks of so many parts.
pub(crate) const fn blocks(parts: u32) -> u32 {
    parts * BLOCKS
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not there.
    Hole,
    /// There, at least in part, and without a page.
    Spare,
    InUse,
}

#[derive(Clone, Copy)]
struct Part {
    state: State,
    /// It has to be given back before it can be a huge page.
    is_broken: bool,
}

/// The books of the parts.
pub(crate) struct Huge {
    /// The first block of all parts: they are behind the others.
    first: u32,
    parts: Vec<Part>,
}

impl Huge {
    /// So many parts, all holes, from a block on.
    pub fn new(first: u32, parts: u32) -> Self {
        let part = Part { state: State::Hole, is_broken: false };
        Huge { first, parts: alloc::vec![part; parts as usize] }
    }

    /// The part in which a block lies.
    fn of_block(&self, block: u32) -> Option<usize> {
        block.checked_sub(self.first).map(|block| (block / BLOCKS) as usize)
    }

    /// Is the frame in a part?
    pub fn holds(&self, frame: Frame) -> bool {
        self.of_block(frame.0 / BLOCK).is_some()
    }

    /// Is it the first frame of a part?
    pub fn begins_at(&self, frame: Frame) -> bool {
        self.of_block(frame.0 / BLOCK).is_some_and(|part| self.frame(part) == frame)
    }

    /// The blocks of the part in which a block lies.
    pub fn blocks_beside(&self, block: u32) -> Option<core::ops::Range<usize>> {
        let first = self.first + self.of_block(block)? as u32 * BLOCKS;
        Some(first as usize..(first + BLOCKS) as usize)
    }

    fn frame(&self, part: usize) -> Frame {
        Frame((self.first + part as u32 * BLOCKS) * BLOCK)
    }

    /// From here on it is in use; the first frame of one for which `fits` says yes.
    fn take(&mut self, state: State, fits: impl Fn(Frame) -> bool) -> Option<Frame> {
        let found = |part: &usize| self.parts[*part].state == state && fits(self.frame(*part));
        let part = (0..self.parts.len()).find(found)?;
        self.parts[part].state = State::InUse;
        Some(self.frame(part))
    }

    /// Takes one that is not there.
    pub fn take_hole(&mut self) -> Option<Frame> {
        self.take(State::Hole, |_| true)
    }

    /// Takes one without a page.
    pub fn take_spare(&mut self, fits: impl Fn(Frame) -> bool) -> Option<Frame> {
        self.take(State::Spare, fits)
    }

    /// It holds no page.
    pub fn file_away(&mut self, first: Frame, is_there: bool) {
        let part = self.of_block(first.0 / BLOCK).expect("the frame of a part");
        self.parts[part].state = if is_there { State::Spare } else { State::Hole };
    }

    /// A frame of this block has left for itself.
    pub fn note_broken(&mut self, block: u32) {
        if let Some(part) = self.of_block(block) {
            self.parts[part].is_broken = true;
        }
    }

    /// Must it be given back before it can be a huge page?
    pub fn is_broken(&self, first: Frame) -> bool {
        self.of_block(first.0 / BLOCK).is_some_and(|part| self.parts[part].is_broken)
    }

    /// It was given back.
    pub fn note_renewed(&mut self, first: Frame) {
        let part = self.of_block(first.0 / BLOCK).expect("the frame of a part");
        self.parts[part].is_broken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_budgets_have_no_parts_and_large_ones_not_too_many() {
        assert_eq!([1 << 14, 1 << 16, 1 << 24].map(parts), [0, 16, PARTS_MAX]);
    }

    #[test]
    fn a_part_is_in_one_state() {
        let mut huge = Huge::new(10, 2);
        assert!(!huge.holds(Frame(10 * BLOCK - 1)) && huge.holds(Frame(10 * BLOCK)));
        let (one, other) = (huge.take_hole().expect("a hole"), huge.take_hole().expect("another"));
        assert_eq!((one, other), (Frame(10 * BLOCK), Frame(18 * BLOCK)));
        assert_eq!((huge.take_hole(), huge.take_spare(|_| true)), (None, None));
        huge.file_away(other, true);
        huge.note_broken(other.0 / BLOCK + 7);
        assert_eq!(huge.take_spare(|frame| frame == one), None);
        assert_eq!(huge.take_spare(|_| true), Some(other));
        assert!(huge.is_broken(other) && !huge.is_broken(one));
        huge.note_renewed(other);
        huge.file_away(other, false);
        assert!(!huge.is_broken(other));
        assert_eq!(huge.take_hole(), Some(other));
    }
}
