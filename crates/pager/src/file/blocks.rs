//! Where the bytes of cached pages are: blocks of memory, page by page, used again when a page leaves.
//!
//! Memory that was read into before takes no page faults and need not be zeroed, which is most of
//! what a read costs otherwise; and a block in one huge page is copied from without a miss of the
//! TLB a page. The first block is of small pages: a small file does not take 2 MiB. Blocks go back to
//! the system when the file is closed.
//!
//! *The story:* pages were boxes of 4 KiB, aligned, for which the allocator took nearly twice that.

use overspill_sys::mem::Buffer;
use overspill_sys::{Errno, PAGE_SIZE};

/// Pages of a block: 2 MiB.
const BLOCK_PAGES: usize = 512;

/// A page of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame(u32);

/// The blocks of one file.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Buffer>,
    /// Frames that hold no page; the one that was in use last is the next.
    free: Vec<Frame>,
    /// Frames that were ever taken: those after them are untouched.
    begun: usize,
}

impl Blocks {
    /// A frame, with any content.
    pub fn take(&mut self) -> Result<Frame, Errno> {
        if let Some(frame) = self.free.pop() {
            return Ok(frame);
        }
        if self.begun == self.blocks.len() * BLOCK_PAGES {
            let bytes = BLOCK_PAGES * PAGE_SIZE;
            let block = if self.blocks.is_empty() { Buffer::new(bytes) } else { Buffer::huge(bytes) };
            self.blocks.push(block?);
        }
        self.begun += 1;
        Ok(Frame(u32::try_from(self.begun - 1).expect("fewer frames than a budget has")))
    }

    /// The page has left.
    pub fn give_back(&mut self, frame: Frame) {
        self.free.push(frame);
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
}
