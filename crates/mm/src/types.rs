//! The words of the memory manager: pages, slots, time. Newtypes, so that a page number can never
//! be taken for a slot.
//!
//! Everything here is plain data. A `Vpn` is a place in a program's address space, a `PageId` is
//! the same place as an index into `mm`'s own page table (dense, 32 bits), and a `Slot` is a
//! page-sized place in a swap area.

/// Bytes in a page. The only page size that is managed.
pub const PAGE_SIZE: u64 = 4096;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Pages in a chunk: one page-table page of the hardware (2 MiB of address space).
pub const CHUNK_PAGES: u64 = 512;

/// Virtual time in nanoseconds since an arbitrary start. `mm` never asks for it, it is told.
pub type Nanos = u64;

/// Virtual page number: address / 4096.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Vpn(pub u64);

/// An address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct SpaceId(pub u16);

/// A page of some space, as an index into the page table of `mm`: chunk index x 512 + page within the chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PageId(pub u32);

/// A page-sized place in a swap area. Slot 0 is the area's header and never allocated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Slot(pub u32);

/// How a page was touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The program loads.
    Read,
    /// The program stores.
    Write,
}

/// What backs a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// Private anonymous memory.
    Anon,
    /// Shared memory (a memfd, tmpfs): the kernel never gives it per-region read-ahead.
    Shared,
    /// A file, privately: what has no frame and was never stored to is in the file. Page `vpn` of
    /// the region is in slot `vpn - bias`, which [`Slot::is_file`] tells from those of swap.
    File {
        /// Page number less slot number: the same for all pages of a file's mapping.
        bias: u64,
    },
}

impl RegionKind {
    /// Does a page of which nothing is known read as zeroes?
    #[must_use]
    pub fn is_zero_at_first(self) -> bool {
        !matches!(self, RegionKind::File { .. })
    }

    /// The place of a page of a file region in its file.
    #[must_use]
    pub fn file_slot(self, vpn: Vpn) -> Option<Slot> {
        let RegionKind::File { bias } = self else { return None };
        let slot = u32::try_from(vpn.0.wrapping_sub(bias)).map(Slot).ok();
        assert!(slot.is_some_and(Slot::is_file), "a file's pages have slots of files");
        slot
    }
}

impl Slot {
    /// From here on slots are pages of files: never allocated, never written.
    pub const FILES: u32 = 1 << 31;

    /// Is it a page of a file?
    #[must_use]
    pub fn is_file(self) -> bool {
        self.0 >= Slot::FILES
    }
}

impl Vpn {
    /// The page `n` pages on; saturates at the ends of the number range.
    #[must_use]
    pub fn offset(self, n: i64) -> Vpn {
        Vpn(self.0.saturating_add_signed(n))
    }
}

impl PageId {
    /// Index into per-page arrays.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
