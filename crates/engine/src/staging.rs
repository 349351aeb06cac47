//! The frames of the swap cache: which staging frame holds which page, which hold nothing, and
//! which are not there.
//!
//! Staging is one mapping of many frames, handed out in blocks of 64, so that runs of pages stay
//! runs of frames and one UFFDIO_MOVE carries them. A frame is *live* (holds a page of the swap
//! cache, or a read into it is under way), *spare* (populated, holds nothing: the next read or
//! zero-fill uses it, so that no page is allocated, zeroed or freed in the steady state) or a
//! *hole* (the next UFFDIO_MOVE out of the program puts a page there). The last blocks are parts that
//! may be huge pages (see `huge`). This file only keeps the books; `memory` touches the frames.

use alloc::boxed::Box;
use alloc::vec::Vec;

use overspill_mm::types::{CHUNK_PAGES, PageId};

use crate::huge::{self, Huge, PART};

/// Frames in a block.
pub(crate) const BLOCK: u32 = u64::BITS;
/// "In no frame."
const NOWHERE: u32 = u32::MAX;

/// A staging frame, by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame(pub u32);

/// Consecutive frames of one block that hold consecutive pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub first_page: PageId,
    pub first_frame: Frame,
    pub count: u32,
}

#[derive(Clone, Copy, Default)]
struct Block {
    live: u64,
    populated: u64,
    /// When pages were last taken out of view into it, in times that this was done.
    taken: u64,
}

/// A block in use up to `next`.
#[derive(Clone, Copy)]
struct Open {
    block: u32,
    next: u32,
}

/// The books of the staging area.
pub(crate) struct Staging {
    blocks: Vec<Block>,
    /// Free blocks without any populated frame.
    holes: Vec<u32>,
    /// Free blocks with populated frames.
    spare: Vec<u32>,
    /// Populated frames in all, and those of them that are live.
    populated_frames: u32,
    live_frames: u32,
    /// How often holes were handed out to take pages out of view.
    takes: u64,
    /// Blocks of which a part was handed out: small runs share them.
    open_holes: Option<Open>,
    open_reads: Option<Open>,
    huge: Huge,
    /// Where the search for idle frames of blocks in use goes on.
    searched: usize,
    /// Frame of each page that has one, by chunk of the page.
    frame_of: Vec<Option<Box<[u32; CHUNK_PAGES as usize]>>>,
}

impl Staging {
    /// Books for `blocks` blocks, and behind them for so many parts that may be huge pages: all holes.
    pub fn new(blocks: u32, parts: u32) -> Self {
        let all = blocks + huge::blocks(parts);
        Staging {
            blocks: alloc::vec![Block::default(); all as usize],
            holes: (0..blocks).rev().collect(),
            spare: Vec::new(),
            populated_frames: 0,
            live_frames: 0,
            takes: 0,
            open_holes: None,
            open_reads: None,
            huge: Huge::new(blocks, parts),
            searched: 0,
            frame_of: Vec::new(),
        }
    }

    /// Populated frames that hold no page.
    pub fn idle_frames(&self) -> u32 {
        self.populated_frames - self.live_frames
    }

    /// Takes holes to move `count` pages into; they are consecutive.
    pub fn take_holes(&mut self, count: u32) -> Option<Frame> {
        let frame = match carve(self.open_holes, count, || self.holes.pop()) {
            Some((frame, open)) => {
                self.open_holes = open;
                frame
            }
            None => self.take_between(count, |block| !block.populated)?,
        };
        self.takes += 1;
        self.blocks[(frame.0 / BLOCK) as usize].taken = self.takes;
        Some(frame)
    }

    /// How often pages were taken out of view so far.
    pub fn takes(&self) -> u64 {
        self.takes
    }

    /// When pages were last taken out of view into the block that the next `count` frames to fill
    /// come from, or that [`Staging::take_spare`] gives. Where they come from among others in use: just now.
    ///
    /// *The story* (by reading): it was never, there. Such a frame was used again without a look, and
    /// who had been lent its page read another one.
    pub fn next_taken(&self, count: u32) -> u64 {
        let open = self.open_reads.filter(|open| open.next + count <= BLOCK).map(|open| open.block);
        let spare = self.spare.last().copied();
        if open.is_none() && spare.is_none() && self.holes.is_empty() {
            return self.takes;
        }
        let taken = |block: Option<u32>| block.map_or(0, |block| self.blocks[block as usize].taken);
        taken(open).max(taken(spare))
    }

    /// Takes frames to read `count` pages into: spare ones if there are any, else holes (the kernel
    /// populates what it reads into); they are consecutive.
    pub fn take_for_read(&mut self, count: u32) -> Option<Frame> {
        let fresh = || self.spare.pop().or_else(|| self.holes.pop());
        match carve(self.open_reads, count, fresh) {
            Some((frame, open)) => {
                self.open_reads = open;
                Some(frame)
            }
            None => self.take_between(count, |block| !block.live),
        }
    }

    /// Where no block is free: consecutive frames of a block in use that hold nothing, `usable`.
    ///
    /// *The story:* where pages are tested one by one (`--reclaim probing`) and each stays for long,
    /// every block came to hold one of them, and a read found no frame.
    fn take_between(&mut self, count: u32, usable: impl Fn(&Block) -> u64) -> Option<Frame> {
        let is_open = |index: usize| {
            [self.open_holes, self.open_reads].iter().flatten().any(|open| open.block as usize == index)
        };
        let blocks = self.blocks.len();
        let first_of = |index: usize| {
            let block = &self.blocks[index];
            let fits = (1..count).fold(usable(block), |fits, _| fits & (fits >> 1));
            (block.live != 0 && fits != 0 && !is_open(index)).then(|| (index, fits.trailing_zeros()))
        };
        let (index, at) = (0..blocks).map(|n| (self.searched + n) % blocks).find_map(first_of)?;
        self.searched = index;
        Some(Frame(index as u32 * BLOCK + at))
    }

    /// Takes a spare block; its populated frames are the caller's until [`Staging::give_back`].
    pub fn take_spare(&mut self) -> Option<(Frame, u64)> {
        let block = self.spare.pop()?;
        Some((Frame(block * BLOCK), self.blocks[block as usize].populated))
    }

    /// Returns a block that was taken and holds no page; `populated` says which of its frames are there.
    pub fn give_back(&mut self, first: Frame, populated: u64) {
        let block = first.0 / BLOCK;
        assert_eq!(self.blocks[block as usize].live, 0, "a free block holds no page");
        let before = core::mem::replace(&mut self.blocks[block as usize].populated, populated);
        self.populated_frames = self.populated_frames + populated.count_ones() - before.count_ones();
        self.file_away(block);
    }

    /// Takes idle frames of some block in which others are live: its first frame, and which. They
    /// count as holes from now on.
    pub fn take_idle(&mut self) -> Option<(Frame, u64)> {
        let count = self.blocks.len();
        let has_idle = |block: &Block| block.live != 0 && block.populated != block.live;
        let found = (0..count).map(|n| (self.searched + n) % count).find(|&n| has_idle(&self.blocks[n]))?;
        self.searched = found;
        let block = &mut self.blocks[found];
        let idle = block.populated & !block.live;
        block.populated = block.live;
        self.populated_frames -= idle.count_ones();
        self.huge.note_broken(found as u32);
        Some((Frame(found as u32 * BLOCK), idle))
    }

    /// Idle frames of a block in use are there after all.
    pub fn return_idle(&mut self, first: Frame, idle: u64) {
        self.blocks[(first.0 / BLOCK) as usize].populated |= idle;
        self.populated_frames += idle.count_ones();
    }

    /// Frames that were taken stay unused: their block is free again if nothing else is in it.
    pub fn abandon(&mut self, first: Frame) {
        let block = first.0 / BLOCK;
        if self.blocks[block as usize].live == 0 {
            self.close_and_file_away(block);
        }
    }

    /// From now on `frame`, populated, holds `page`.
    pub fn enter(&mut self, page: PageId, frame: Frame) {
        let entry = self.entry(page);
        assert_eq!(*entry, NOWHERE, "a page is in one frame");
        *entry = frame.0;
        let block = &mut self.blocks[(frame.0 / BLOCK) as usize];
        let bit = 1u64 << (frame.0 % BLOCK);
        assert_eq!(block.live & bit, 0, "a frame holds one page");
        self.live_frames += 1;
        self.populated_frames += u32::from(block.populated & bit == 0);
        block.live |= bit;
        block.populated |= bit;
    }

    /// The page left its frame; `stays` tells whether the frame is still populated.
    pub fn leave(&mut self, page: PageId, stays: bool) {
        let frame = core::mem::replace(self.entry(page), NOWHERE);
        assert_ne!(frame, NOWHERE, "only a page in a frame leaves it");
        let block = &mut self.blocks[(frame / BLOCK) as usize];
        let bit = 1u64 << (frame % BLOCK);
        block.live &= !bit;
        self.live_frames -= 1;
        if !stays {
            block.populated &= !bit;
            self.populated_frames -= 1;
            self.huge.note_broken(frame / BLOCK);
        }
        if self.blocks[(frame / BLOCK) as usize].live == 0 {
            self.close_and_file_away(frame / BLOCK);
        }
    }

    // Whole chunks, in parts that may be huge pages.

    /// The blocks of a part.
    fn blocks_of(&self, part: Frame) -> core::ops::Range<usize> {
        self.huge.blocks_beside(part.0 / BLOCK).expect("it is a part")
    }

    /// The part that holds all pages of the chunk whose first page this is, in order.
    pub fn part(&self, first: PageId) -> Option<Frame> {
        let frame = self.frame(first).filter(|&frame| self.huge.begins_at(frame))?;
        let chunk = self.frame_of[first.index() / CHUNK_PAGES as usize].as_ref()?;
        let is_whole = first.0.is_multiple_of(PART) && chunk.iter().zip(frame.0..).all(|(&at, n)| at == n);
        is_whole.then_some(frame)
    }

    /// All pages of a chunk left their part at once.
    pub fn leave_whole(&mut self, first: PageId) {
        let frame = self.part(first).expect("the chunk is in one part");
        self.frame_of[first.index() / CHUNK_PAGES as usize] = None;
        for block in self.blocks_of(frame) {
            (self.blocks[block].live, self.blocks[block].populated) = (0, 0);
        }
        self.live_frames -= PART;
        self.populated_frames -= PART;
        self.huge.file_away(frame, false);
    }

    /// Takes a part to read a chunk into, one that is there and whole if there is one, and when pages
    /// were last taken out of view into it.
    pub fn take_part(&mut self) -> Option<(Frame, u64)> {
        let blocks = &self.blocks;
        let is_whole = |frame: Frame| {
            let first = (frame.0 / BLOCK) as usize;
            blocks[first..first + huge::blocks(1) as usize].iter().all(|block| block.populated == u64::MAX)
        };
        let frame = self.huge.take_spare(is_whole)?;
        let blocks = self.blocks_of(frame);
        let taken = self.blocks[blocks].iter().map(|block| block.taken).max();
        Some((frame, taken.unwrap_or(0)))
    }

    /// Takes a part of which nothing is there.
    pub fn take_part_hole(&mut self) -> Option<Frame> {
        self.huge.take_hole()
    }

    /// The pages of a chunk are about to be taken out of view into a part.
    pub fn note_take(&mut self, part: Frame) {
        self.takes += 1;
        for block in self.blocks_of(part) {
            self.blocks[block].taken = self.takes;
        }
    }

    /// Takes a part that is there, whole or not, and holds no page.
    pub fn take_spare_part(&mut self) -> Option<Frame> {
        self.huge.take_spare(|_| true)
    }

    /// A part that was taken is free again, if it holds no page.
    pub fn return_part(&mut self, part: Frame) {
        self.file_away(part.0 / BLOCK);
    }

    /// Nothing of a part is there, and it can be a huge page again.
    pub fn renewed(&mut self, part: Frame) {
        for block in self.blocks_of(part) {
            let block = &mut self.blocks[block];
            assert_eq!(block.live, 0, "what is given back holds no page");
            self.populated_frames -= block.populated.count_ones();
            block.populated = 0;
        }
        self.huge.note_renewed(part);
    }

    /// The part is no huge page, or must not be used again as it is.
    pub fn note_broken(&mut self, part: Frame) {
        self.huge.note_broken(part.0 / BLOCK);
    }

    /// Must the part be given back before it can be a huge page?
    pub fn is_broken(&self, part: Frame) -> bool {
        self.huge.is_broken(part)
    }

    /// Is the frame in a part?
    pub fn is_in_part(&self, frame: Frame) -> bool {
        self.huge.holds(frame)
    }

    /// The frame of `page` belongs to `to` now.
    pub fn rename(&mut self, page: PageId, to: PageId) {
        let frame = core::mem::replace(self.entry(page), NOWHERE);
        assert_ne!(frame, NOWHERE, "only a page in a frame is renamed");
        let entry = self.entry(to);
        assert_eq!(*entry, NOWHERE);
        *entry = frame;
    }

    /// The frame that holds `page`.
    pub fn frame(&self, page: PageId) -> Option<Frame> {
        let chunk = self.frame_of.get(page.index() / CHUNK_PAGES as usize)?.as_ref()?;
        let frame = chunk[page.index() % CHUNK_PAGES as usize];
        (frame != NOWHERE).then_some(Frame(frame))
    }

    /// The longest segment that starts at `first` and has at most `most` pages.
    pub fn segment(&self, first: PageId, most: u32) -> Segment {
        let first_frame = self.frame(first).expect("the pages of a transfer are in the swap cache");
        let room = (BLOCK - first_frame.0 % BLOCK).min(most);
        let follows = |&n: &u32| self.frame(PageId(first.0 + n)) == Some(Frame(first_frame.0 + n));
        let count = 1 + (1..room).take_while(follows).count() as u32;
        Segment { first_page: first, first_frame, count }
    }

    fn entry(&mut self, page: PageId) -> &mut u32 {
        let chunk = page.index() / CHUNK_PAGES as usize;
        if chunk >= self.frame_of.len() {
            self.frame_of.resize_with(chunk + 1, || None);
        }
        let frames = self.frame_of[chunk].get_or_insert_with(|| Box::new([NOWHERE; CHUNK_PAGES as usize]));
        &mut frames[page.index() % CHUNK_PAGES as usize]
    }

    fn close_and_file_away(&mut self, block: u32) {
        self.open_holes.take_if(|open| open.block == block);
        self.open_reads.take_if(|open| open.block == block);
        self.file_away(block);
    }

    fn file_away(&mut self, block: u32) {
        if let Some(beside) = self.huge.blocks_beside(block) {
            let first = Frame(beside.start as u32 * BLOCK);
            let blocks = &self.blocks[beside];
            if blocks.iter().all(|block| block.live == 0) {
                self.huge.file_away(first, blocks.iter().any(|block| block.populated != 0));
            }
            return;
        }
        let is_hole = self.blocks[block as usize].populated == 0;
        let pool = if is_hole { &mut self.holes } else { &mut self.spare };
        pool.push(block);
    }
}

/// `count` frames from the open block, or from a fresh one, and what is open then.
fn carve(
    open: Option<Open>,
    count: u32,
    fresh: impl FnOnce() -> Option<u32>,
) -> Option<(Frame, Option<Open>)> {
    assert!((1..=BLOCK).contains(&count), "runs are cut to blocks");
    let Open { block, next } = match open.filter(|open| open.next + count <= BLOCK) {
        Some(open) => open,
        None => Open { block: fresh()?, next: 0 },
    };
    let rest = Open { block, next: next + count };
    Some((Frame(block * BLOCK + next), (rest.next < BLOCK).then_some(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_recycled_and_counted() {
        let mut staging = Staging::new(4, 0);
        let holes = staging.take_holes(16).unwrap();
        (0..16).for_each(|n| staging.enter(PageId(100 + n), Frame(holes.0 + n)));
        assert_eq!(staging.segment(PageId(104), 100).count, 12);
        (0..16).for_each(|n| staging.leave(PageId(100 + n), n % 2 == 0));
        assert_eq!(staging.idle_frames(), 8);
        assert_eq!(staging.take_for_read(1), Some(holes), "populated frames are used first");
        staging.enter(PageId(7), holes);
        assert_eq!(staging.idle_frames(), 7);
        assert_eq!(staging.take_for_read(3), Some(Frame(holes.0 + 1)), "small reads share a block");
        (1..4).for_each(|n| staging.enter(PageId(7 + n), Frame(holes.0 + n)));
        assert_eq!(staging.idle_frames(), 6);
        let (first, idle) = staging.take_idle().unwrap();
        assert_eq!((first, idle.count_ones(), staging.idle_frames()), (holes, 6, 0));
        staging.return_idle(first, idle);
        staging.rename(PageId(7), PageId(4000));
        assert_eq!((staging.frame(PageId(7)), staging.frame(PageId(4000))), (None, Some(holes)));
        staging.leave(PageId(4000), false);
        (1..4).for_each(|n| staging.leave(PageId(7 + n), false));
        assert_eq!(staging.idle_frames(), 6);
        assert!(staging.take_idle().is_none(), "no block is in use");
        let (spare, populated) = staging.take_spare().unwrap();
        assert_eq!((spare, populated.count_ones()), (holes, 6));
        staging.give_back(spare, 0);
        assert_eq!(staging.idle_frames(), 0);
    }

    /// See [`Staging::next_taken`]: blocks in use, from which a page was taken out a moment ago.
    #[test]
    fn frames_between_others_were_taken_just_now() {
        let mut staging = Staging::new(2, 0);
        for block in 0..2 {
            let first = staging.take_holes(BLOCK).expect("a block is free");
            (0..BLOCK).for_each(|n| staging.enter(PageId(block * BLOCK + n), Frame(first.0 + n)));
            (1..BLOCK).for_each(|n| staging.leave(PageId(block * BLOCK + n), true));
        }
        assert_eq!(staging.next_taken(1), staging.takes());
        let frame = staging.take_for_read(1).expect("a populated frame");
        assert!(staging.blocks[(frame.0 / BLOCK) as usize].taken <= staging.takes());
    }

    /// Two blocks, in each of which one page stays for long.
    #[test]
    fn frames_are_found_beside_pages_that_stay() {
        let mut staging = Staging::new(2, 0);
        for block in 0..2 {
            let first = staging.take_holes(BLOCK).expect("a block is free");
            (0..BLOCK).for_each(|n| staging.enter(PageId(block * BLOCK + n), Frame(first.0 + n)));
            let leaves = (0..BLOCK).filter(|&n| n != 20);
            leaves.for_each(|n| staging.leave(PageId(block * BLOCK + n), block == 0));
        }
        assert_eq!(staging.take_holes(44), None, "no such run");
        let holes = staging.take_holes(43).expect("a run of holes");
        (0..43).for_each(|n| staging.enter(PageId(1000 + n), Frame(holes.0 + n)));
        let read = staging.take_for_read(43).expect("a run of populated frames");
        assert_ne!(read.0 / BLOCK, holes.0 / BLOCK);
        (0..43).for_each(|n| staging.enter(PageId(2000 + n), Frame(read.0 + n)));
        assert_eq!(staging.segment(PageId(2000), BLOCK).count, 43);
    }

    /// Also: a part in which pages stay is none, however many others have left it.
    #[test]
    fn a_chunk_leaves_its_part_whole_or_page_by_page() {
        let mut staging = Staging::new(2, 2);
        let part = staging.take_part_hole().expect("a part");
        assert_eq!(part, Frame(2 * BLOCK));
        let enter = |staging: &mut Staging, first| {
            (0..PART).for_each(|n| staging.enter(PageId(first + n), Frame(part.0 + n)))
        };
        enter(&mut staging, PART);
        assert_eq!((staging.part(PageId(PART)), staging.part(PageId(PART + 1))), (Some(part), None));
        staging.leave_whole(PageId(PART));
        assert_eq!((staging.frame(PageId(PART)), staging.idle_frames()), (None, 0));
        assert_eq!(staging.take_part_hole(), Some(part), "it is a hole, and as good as before");
        assert!(!staging.is_broken(part));
        staging.note_take(part);
        enter(&mut staging, PART);
        (0..PART - 1).for_each(|n| staging.leave(PageId(PART + n), true));
        assert_eq!((staging.take_part(), staging.part(PageId(PART))), (None, None), "a page is in it");
        staging.leave(PageId(2 * PART - 1), true);
        assert_eq!((staging.take_part(), staging.idle_frames()), (Some((part, 1)), PART));
        enter(&mut staging, 0);
        staging.leave(PageId(7), false);
        assert!(staging.is_broken(part));
        (0..PART).filter(|&n| n != 7).for_each(|n| staging.leave(PageId(n), true));
        assert_eq!(staging.take_part(), None, "a frame is missing");
        assert_eq!(staging.take_spare_part(), Some(part));
        staging.renewed(part);
        staging.return_part(part);
        assert_eq!((staging.idle_frames(), staging.take_spare_part()), (0, None));
        assert_eq!(staging.take_part_hole(), Some(part));
    }
}
