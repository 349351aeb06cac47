//! Where the bytes of cached pages are: blocks of memory, page by page, used again when a page leaves.
//!
//! Memory that was read into before takes no page faults and need not be zeroed, which is most of
//! what a read costs otherwise. A frame takes RAM from its first use on, until it is dropped: so
//! what is counted for a page is what it takes, and a file can give back as much as it is asked for.
//! All of it goes back to the system when the file is closed.
//!
//! *The story:* pages were boxes of 4 KiB, aligned, for which the allocator took nearly twice that.
//! *The other story:* blocks were huge pages. A file had up to 2 MiB more than was counted for it,
//! and none of it could be given back while a page of the block was in use.

use overspill_sys::mem::Buffer;
use overspill_sys::{Errno, PAGE_SIZE};

/// Pages of a block: 2 MiB.
const BLOCK_PAGES: usize = 512;

/// Refused once, the system is not asked to take frames back for so many times: a file is asked for
/// them at each of its reads.
const PATIENCE: u32 = 1024;

/// A page of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Frame(u32);

/// The blocks of one file.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Buffer>,
    /// Frames that hold no page and take RAM; the one that was in use last is the next.
    free: Vec<Frame>,
    /// Frames that were dropped: they take none.
    dropped: Vec<Frame>,
    /// Frames that were ever taken: those after them are untouched.
    begun: usize,
    /// The system would not take frames back: so many times it is not asked again.
    patience: u32,
}

impl Blocks {
    /// A frame, with any content.
    pub fn take(&mut self) -> Result<Frame, Errno> {
        if let Some(frame) = self.free.pop().or_else(|| self.dropped.pop()) {
            return Ok(frame);
        }
        if self.begun == self.blocks.len() * BLOCK_PAGES {
            self.blocks.push(Buffer::inherited(BLOCK_PAGES * PAGE_SIZE)?);
        }
        self.begun += 1;
        Ok(Frame(u32::try_from(self.begun - 1).expect("fewer frames than a budget has")))
    }

    /// The page has left.
    pub fn give_back(&mut self, frame: Frame) {
        self.free.push(frame);
    }

    /// Frames that take RAM.
    pub fn populated(&self) -> usize {
        self.begun - self.dropped.len()
    }

    /// Drops frames without a page until no more than `kept` take RAM, if there are so many; those not
    /// in use for longest. What the system does not take back is counted as before.
    pub fn drop_down_to(&mut self, kept: usize) {
        self.drop_by(kept, Buffer::discard);
    }

    /// The same; `discard` has the system take pages back, and says whether it did.
    fn drop_by(&mut self, kept: usize, mut discard: impl FnMut(&mut Buffer, usize, usize) -> bool) {
        let count = self.populated().saturating_sub(kept).min(self.free.len());
        if count == 0 || self.patience > 0 {
            self.patience = self.patience.saturating_sub(1);
            return;
        }
        let mut dropped: Vec<Frame> = self.free.drain(..count).collect();
        dropped.sort_unstable();
        let follows =
            |one: &Frame, next: &Frame| next.0 == one.0 + 1 && !(next.0 as usize).is_multiple_of(BLOCK_PAGES);
        let mut gone = 0;
        for run in dropped.chunk_by(follows) {
            let first = run[0].0 as usize;
            let at = first % BLOCK_PAGES * PAGE_SIZE;
            if !discard(&mut self.blocks[first / BLOCK_PAGES], at, run.len() * PAGE_SIZE) {
                self.patience = PATIENCE;
                break;
            }
            gone += run.len();
        }
        self.free.splice(..0, dropped.drain(gone..));
        self.dropped.append(&mut dropped);
    }

    /// The page's bytes.
    pub fn bytes(&self, Frame(index): Frame) -> &[u8] {
        let index = index as usize;
        self.blocks[index / BLOCK_PAGES].bytes(index % BLOCK_PAGES * PAGE_SIZE, PAGE_SIZE)
    }

    /// The same, to be written.
    pub fn bytes_mut(&mut self, Frame(index): Frame) -> &mut [u8] {
        let index = index as usize;
        self.blocks[index / BLOCK_PAGES].bytes_mut(index % BLOCK_PAGES * PAGE_SIZE, PAGE_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_their_own_and_are_used_again() {
        let mut blocks = Blocks::default();
        let frames: Vec<Frame> = (0..BLOCK_PAGES + 3).map(|_| blocks.take().unwrap()).collect();
        for (value, &frame) in frames.iter().enumerate() {
            blocks.bytes_mut(frame).fill(value as u8);
        }
        for (value, &frame) in frames.iter().enumerate() {
            assert!(blocks.bytes(frame).iter().all(|&byte| byte == value as u8));
        }
        blocks.give_back(frames[7]);
        assert_eq!(blocks.take().unwrap(), frames[7]);
        assert_eq!(blocks.blocks.len(), 2);
    }

    #[test]
    fn what_is_dropped_takes_no_ram_and_the_rest_keeps_its_bytes() {
        let mut blocks = Blocks::default();
        let frames: Vec<Frame> = (0..2 * BLOCK_PAGES).map(|_| blocks.take().unwrap()).collect();
        for &frame in &frames {
            blocks.bytes_mut(frame).fill(7);
        }
        frames.iter().filter(|frame| frame.0 % 3 != 0).for_each(|&frame| blocks.give_back(frame));
        blocks.drop_down_to(400);
        assert_eq!(blocks.populated(), 400);
        let in_ram = |frame: Frame| blocks.bytes(frame)[0] == 7;
        assert_eq!(frames.iter().filter(|&&frame| in_ram(frame)).count(), 400, "the others are zero");
        assert!(frames.iter().step_by(3).all(|&frame| in_ram(frame)), "those in use are as they were");
        blocks.drop_down_to(0);
        assert_eq!(blocks.populated(), frames.len().div_ceil(3), "those in use stay");
        (0..10).for_each(|_| blocks.bytes_mut(frames[0]).fill(1));
        let taken = blocks.take().unwrap();
        assert!(blocks.bytes(taken).iter().all(|&byte| byte == 0), "used again");
        assert_eq!(blocks.blocks.len(), 2);
    }

    /// *The story:* after mlockall the system refused to take frames back, which counted as dropped.
    #[test]
    fn what_is_locked_is_dropped_all_the_same() {
        let mut blocks = Blocks::default();
        let frames: Vec<Frame> = (0..8).map(|_| blocks.take().unwrap()).collect();
        frames.iter().for_each(|&frame| blocks.bytes_mut(frame).fill(7));
        let range = blocks.blocks[0].range();
        // SAFETY: it changes no content. What can be locked differs: eight pages always can.
        assert_eq!(unsafe { libc::mlock(range.start as *const _, 8 * PAGE_SIZE) }, 0);
        frames[2..].iter().for_each(|&frame| blocks.give_back(frame));
        blocks.drop_down_to(3);
        assert_eq!(blocks.populated(), 3);
        let in_ram = frames.iter().filter(|&&frame| blocks.bytes(frame)[0] == 7).count();
        assert_eq!(in_ram, 3, "what counts as dropped takes RAM");
    }

    /// What the system does not take back is counted, used again, and tried again, but not at once.
    #[test]
    fn what_is_not_taken_back_is_counted() {
        let mut blocks = Blocks::default();
        let frames: Vec<Frame> = (0..9).map(|_| blocks.take().unwrap()).collect();
        frames.iter().filter(|frame| frame.0 != 4).for_each(|&frame| blocks.give_back(frame));
        let mut left = 1;
        blocks.drop_by(0, |_, at, len| {
            assert_eq!((at, len), [(5 * PAGE_SIZE, 4 * PAGE_SIZE), (0, 4 * PAGE_SIZE)][left]);
            left -= usize::from(left > 0);
            at == 0
        });
        assert_eq!((blocks.populated(), blocks.free.len()), (5, 4), "the second run stays");
        (0..PATIENCE).for_each(|_| blocks.drop_by(0, |_, _, _| panic!("not at once")));
        blocks.drop_down_to(0);
        assert_eq!((blocks.populated(), blocks.free.len()), (1, 0));
    }
}
