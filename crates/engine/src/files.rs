//! The files that regions stand for: which slots are which pages of which file.
//!
//! To `mm` a page of a file is a slot that it never allocates and never writes
//! ([`Slot::is_file`]). Here is what such a slot means: a descriptor, an offset, and how many of
//! its bytes there are. Pages behind the file's end are not read at all, its last page in part.

use alloc::vec::Vec;

use overspill_mm::types::{Slot, Vpn};
use overspill_sys::{Errno, Fd, PAGE_SIZE};

const PAGE: u64 = PAGE_SIZE as u64;

/// A file to map.
#[derive(Debug)]
pub struct Source {
    /// The file, open for reading; past the page cache where that can be.
    pub file: Fd,
    /// The mapping's first byte in it; a multiple of the page size.
    pub offset: u64,
    /// The file's length.
    pub len: u64,
    /// The program may store to its pages, which are its own then.
    pub writable: bool,
}

/// A mapped part of a file.
pub(crate) struct Mapped {
    pub source: Source,
    pub start: Vpn,
    pub pages: u32,
    first_slot: u32,
    /// Of writable ones: the fingerprints of what was read, 0 = not known.
    prints: Vec<u64>,
}

/// Where bytes are to be read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    /// The descriptor.
    pub fd: i32,
    /// The first byte.
    pub offset: u64,
    /// Bytes from there to the end of the file.
    pub available: u64,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Files {
    mapped: Vec<Mapped>,
    next_slot: u32,
}

impl Files {
    /// Gives the pages of a mapping slots. ENOSPC: there were too many since the last time there were none.
    pub fn add(&mut self, source: Source, start: Vpn, pages: u64) -> Result<Slot, Errno> {
        assert!(source.offset.is_multiple_of(PAGE), "mappings begin at pages of the file");
        if self.mapped.is_empty() {
            self.next_slot = Slot::FILES;
        }
        let pages = u32::try_from(pages).map_err(|_| Errno::NOSPC)?;
        // A slot is left out between two, so that no request spans them.
        let next = pages.checked_add(1).and_then(|count| self.next_slot.checked_add(count));
        let first_slot = core::mem::replace(&mut self.next_slot, next.ok_or(Errno::NOSPC)?);
        self.mapped.push(Mapped { source, start, pages, first_slot, prints: Vec::new() });
        Ok(Slot(first_slot))
    }

    /// Forgets the mapping that begins at a page, and closes its file.
    pub fn remove(&mut self, start: Vpn) {
        self.mapped.retain(|mapped| mapped.start != start);
    }

    /// The mapping in which a page lies.
    pub fn at(&mut self, vpn: Vpn) -> Option<&mut Mapped> {
        self.mapped
            .iter_mut()
            .find(|mapped| (mapped.start.0..mapped.start.0 + u64::from(mapped.pages)).contains(&vpn.0))
    }

    /// The mapping to which a slot belongs.
    pub fn of_slot(&mut self, slot: Slot) -> &mut Mapped {
        self.mapped
            .iter_mut()
            .find(|mapped| (mapped.first_slot..mapped.first_slot + mapped.pages).contains(&slot.0))
            .expect("a file's slot is known as long as a page has it")
    }

    /// Where a slot's bytes are.
    pub fn spot(&mut self, slot: Slot) -> Spot {
        let mapped = self.of_slot(slot);
        let offset = mapped.source.offset + u64::from(slot.0 - mapped.first_slot) * PAGE;
        let available = mapped.source.len.saturating_sub(offset);
        Spot { fd: mapped.source.file.raw(), offset, available }
    }

    /// All of them.
    pub fn each(&mut self) -> impl Iterator<Item = &mut Mapped> {
        self.mapped.iter_mut()
    }
}

impl Mapped {
    /// The first page that lies behind the file's end wholly, if one does.
    pub fn first_beyond(&self) -> Option<Vpn> {
        let inside = self.source.len.saturating_sub(self.source.offset).div_ceil(PAGE);
        (inside < u64::from(self.pages)).then(|| Vpn(self.start.0 + inside))
    }

    /// The page behind the last.
    pub fn end(&self) -> Vpn {
        Vpn(self.start.0 + u64::from(self.pages))
    }

    /// Notes what was read for a slot.
    pub fn note(&mut self, slot: Slot, print: u64) {
        let index = (slot.0 - self.first_slot) as usize;
        if self.prints.len() <= index {
            self.prints.resize(index + 1, 0);
        }
        self.prints[index] = print;
    }

    /// Is that what was read for the slot?
    pub fn is(&self, slot: Slot, print: u64) -> bool {
        self.prints.get((slot.0 - self.first_slot) as usize) == Some(&print)
    }
}
