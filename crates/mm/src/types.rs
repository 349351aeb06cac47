//! The words of the memory manager: pages, slots, time. Newtypes, so that a page number can never be taken for a slot.
//!
//! Everything here is plain data. A `Vpn` is a place in a program's address space, a `PageId` is the same place as an
//! index into `mm`'s own page table (dense, 32 bits), and a `Slot` is a page-sized place in a swap area.

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

/// A region's index in its space's table; stable while the region lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RegionId(pub u32);

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
