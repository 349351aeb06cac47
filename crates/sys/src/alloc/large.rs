//! Blocks that are mappings of their own. A page in front of each holds its place on the list and its extent.

use super::map_own;
use crate::mem::{self, Mapping};
use crate::reserve::Room;
use crate::{AddressRange, Errno, PAGE_SIZE};
use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ops::Range;

/// In the page in front of a block.
struct Header {
    next: usize,
    previous: usize,
    /// The whole mapping, this page included.
    start: usize,
    end: usize,
    is_shared: bool,
}

fn header(block: usize) -> *mut Header {
    (block - PAGE_SIZE) as *mut Header
}

/// Maps a block for a layout; returns it with the bytes mapped for it. Not on the list yet.
pub(super) fn map(layout: Layout) -> Result<(usize, usize), Errno> {
    let size = layout.size().max(1).checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::NOMEM)?;
    // An alignment beyond a page needs room to slide in; what is not used of it is never touched.
    let slack = if layout.align() > PAGE_SIZE { layout.align() } else { 0 };
    let bytes = size.checked_add(PAGE_SIZE + slack).ok_or(Errno::NOMEM)?;
    let (mapping, is_shared) = map_own(bytes, Room::ToGrow)?;
    let range = mapping.leak();
    let block = (range.start + PAGE_SIZE).next_multiple_of(layout.align().max(PAGE_SIZE));
    assert!(block + size <= range.end);
    // SAFETY: the page in front of the block is in the mapping.
    unsafe {
        header(block).write(Header { next: 0, previous: 0, start: range.start, end: range.end, is_shared })
    };
    Ok((block, bytes))
}

/// Unmaps a block that is off the list; returns the bytes that were mapped for it.
///
/// # Safety
/// The block came from [`map`] and is not used any more.
pub(super) unsafe fn unmap(block: usize) -> usize {
    // SAFETY: the header is there, and with the block nobody uses the mapping.
    unsafe {
        let Header { start, end, .. } = header(block).read();
        drop(Mapping::from_range(start..end));
        end - start
    }
}

/// Makes a block longer that is off the list, moving it if need be; returns its address and by how
/// much the mapped bytes grew. A shorter one keeps its mapping. On failure it is as before.
///
/// # Safety
/// The block came from [`map`] with an alignment of at most a page, and is only used under its new address.
pub(super) unsafe fn resize(block: usize, new_bytes: usize) -> Result<(usize, isize), Errno> {
    // SAFETY: the header is there.
    let Header { start, end, is_shared, .. } = unsafe { header(block).read() };
    if is_shared {
        // The mapping would grow, and the memory behind it would not.
        return Err(Errno::INVAL);
    }
    let new_size = new_bytes.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::NOMEM)?;
    let (old_len, new_len) = (end - start, new_size.checked_add(PAGE_SIZE).ok_or(Errno::NOMEM)?);
    // SAFETY: the mapping is the block's.
    let mut mapping = ManuallyDrop::new(unsafe { Mapping::from_range(start..end) });
    if new_len > old_len {
        // SAFETY: the caller follows its address.
        unsafe { mapping.grow(new_len)? };
    }
    let Range { start, end } = mapping.range();
    let block = start + PAGE_SIZE;
    // SAFETY: the header moved along.
    unsafe { header(block).write(Header { next: 0, previous: 0, start, end, is_shared }) };
    mem::name(start..end, c"overspill heap");
    Ok((block, (end - start) as isize - old_len as isize))
}

/// All blocks of this kind.
pub(super) struct LargeList {
    first: usize,
}

impl LargeList {
    pub(super) const fn new() -> LargeList {
        LargeList { first: 0 }
    }

    /// Puts a block in front. It came from [`map`] and is on no list.
    pub(super) fn insert(&mut self, block: usize) {
        // SAFETY: blocks have their headers, and the list holds only blocks that are mapped.
        unsafe {
            (*header(block)).next = self.first;
            (*header(block)).previous = 0;
            if self.first != 0 {
                (*header(self.first)).previous = block;
            }
        }
        self.first = block;
    }

    /// Takes a block out. It is on this list.
    pub(super) fn remove(&mut self, block: usize) {
        // SAFETY: blocks have their headers, and the list holds only blocks that are mapped.
        unsafe {
            let Header { next, previous, .. } = header(block).read();
            assert!((previous == 0) == (self.first == block), "the block is on the list");
            match previous {
                0 => self.first = next,
                previous => (*header(previous)).next = next,
            }
            if next != 0 {
                (*header(next)).previous = previous;
            }
        }
    }

    pub(super) fn for_each(&self, mut visit: impl FnMut(AddressRange)) {
        let mut block = self.first;
        while block != 0 {
            // SAFETY: blocks have their headers.
            let header = unsafe { &*header(block) };
            visit(header.start..header.end);
            block = header.next;
        }
    }
}
