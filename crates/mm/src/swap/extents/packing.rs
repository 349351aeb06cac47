//! Which pages of a file can be swap, and where they are: the kernel's two rules (specification 3.3).
//!
//! [`probe`] walks a file block by block, as the generic helper does: a page needs blocks that are there, that follow each other on
//! the device, and that begin at a page's border there; where one of them does not, the walk goes on one block later, so that page
//! numbers are packed. [`Packer`] takes the runs that a file system tells (the way of newer ones), joins those that follow each other
//! on the device and rounds each inwards to whole pages. Neither reads anything.

use super::Extents;
use crate::types::{PAGE_SHIFT, PAGE_SIZE};

/// Why a file cannot be swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// A block is missing, at this offset in bytes.
    Hole(u64),
    /// No whole page lies on the device in one piece.
    NoPages,
    /// There are more pages than page numbers.
    TooLarge,
}

/// The extents of a file of `blocks` blocks of `1 << block_shift` bytes; `device_block` says where a block of the file lies on the
/// device, or nothing for a hole.
///
/// # Errors
/// When the file has a hole, or no page that can be used.
pub fn probe(
    blocks: u64,
    block_shift: u32,
    mut device_block: impl FnMut(u64) -> Option<u64>,
) -> Result<Extents, Unfit> {
    assert!(block_shift <= PAGE_SHIFT, "a block is no larger than a page");
    let a_page = 1 << (PAGE_SHIFT - block_shift);
    let mut extents = Extents::new();
    let mut at = 0;
    'pages: while at + a_page <= blocks {
        let hole = |block: u64| Unfit::Hole(block << block_shift);
        let first = device_block(at).ok_or_else(|| hole(at))?;
        if !first.is_multiple_of(a_page) {
            at += 1;
            continue;
        }
        for block in 1..a_page {
            if device_block(at + block).ok_or_else(|| hole(at + block))? != first + block {
                at += 1;
                continue 'pages;
            }
        }
        if extents.pages() == u32::MAX {
            return Err(Unfit::TooLarge);
        }
        extents.push(1, first / a_page);
        at += a_page;
    }
    if extents.pages() == 0 { Err(Unfit::NoPages) } else { Ok(extents) }
}

/// Joins the runs of a file as its file system tells them, in ascending order of the file.
#[derive(Clone, Debug, Default)]
pub struct Packer {
    extents: Extents,
    /// Bytes of the device of the run that is not closed.
    open: Option<(u64, u64)>,
    /// Bytes of the file so far.
    next: u64,
}

impl Packer {
    /// The next run: `len` bytes at `logical` of the file lie at `physical` of the device.
    ///
    /// # Errors
    /// When something is missing before it.
    pub fn add(&mut self, logical: u64, physical: u64, len: u64) -> Result<(), Unfit> {
        if logical > self.next {
            return Err(Unfit::Hole(self.next));
        }
        self.next = logical + len;
        match &mut self.open {
            Some((_, end)) if *end == physical => *end += len,
            _ => {
                self.close()?;
                self.open = Some((physical, physical + len));
            }
        }
        Ok(())
    }

    /// The extents of a file of so many bytes.
    ///
    /// # Errors
    /// When its end is missing, or it has no page that can be used.
    pub fn finish(mut self, bytes: u64) -> Result<Extents, Unfit> {
        if self.next < bytes {
            return Err(Unfit::Hole(self.next));
        }
        self.close()?;
        if self.extents.pages() == 0 { Err(Unfit::NoPages) } else { Ok(self.extents) }
    }

    /// The open run, rounded inwards to pages of the device.
    fn close(&mut self) -> Result<(), Unfit> {
        let Some((start, end)) = self.open.take() else { return Ok(()) };
        let (first, end) = (start.div_ceil(PAGE_SIZE), end / PAGE_SIZE);
        if first >= end {
            return Ok(());
        }
        let room = u64::from(u32::MAX - self.extents.pages());
        let count = u32::try_from(end - first).ok().filter(|&count| u64::from(count) <= room);
        self.extents.push(count.ok_or(Unfit::TooLarge)?, first);
        Ok(())
    }
}
