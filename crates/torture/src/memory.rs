//! A mapping of the program, addressed by page and word. Every access is a relaxed atomic, because
//! another thread, a system call or a pager may change the bytes at any time: such memory is never
//! a `&[u8]`.

use std::sync::atomic::AtomicU64;

use crate::outcome::Outcome;
use crate::sys;

/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Words in a page.
pub const WORDS: usize = PAGE / 8;
/// Bytes in a MiB.
pub const MIB: usize = 1 << 20;
/// Protection of ordinary memory.
pub const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
/// Flags of ordinary memory.
pub const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// A range of page-aligned addresses that this value unmaps when it is dropped.
#[derive(Debug)]
pub struct Memory {
    base: usize,
    len: usize,
}

impl Memory {
    /// Fresh private anonymous memory.
    pub fn map(len: usize) -> Outcome<Self> {
        Self::map_with(len, RW, PRIVATE)
    }

    /// Fresh memory with other protection or flags; the kernel picks the place.
    pub fn map_with(len: usize, protection: i32, flags: i32) -> Outcome<Self> {
        let base = sys::mmap(0, len, protection, flags, -1)?;
        Ok(Self { base, len })
    }

    /// Fresh memory by a bare system call: nothing that stands before libc's functions hears of it.
    pub fn map_unheard(len: usize) -> Outcome<Self> {
        let base = sys::mmap_unheard(len, RW, PRIVATE)?;
        Ok(Self { base, len })
    }

    /// Fresh memory whose address is a multiple of `alignment`.
    pub fn map_aligned(len: usize, alignment: usize) -> Outcome<Self> {
        let wide = Self::map(len + alignment)?;
        let base = wide.base.next_multiple_of(alignment);
        let (head, tail) = (base - wide.base, wide.base + wide.len - (base + len));
        if head > 0 {
            sys::munmap(wide.base, head)?;
        }
        if tail > 0 {
            sys::munmap(base + len, tail)?;
        }
        wide.forget();
        Ok(Self { base, len })
    }

    /// Takes charge of a range that is mapped already.
    #[must_use]
    pub fn adopt(base: usize, len: usize) -> Self {
        assert!(
            base.is_multiple_of(PAGE) && len.is_multiple_of(PAGE),
            "{base:#x}+{len:#x} is not whole pages"
        );
        Self { base, len }
    }

    /// Leaves the range mapped and returns it.
    pub fn forget(self) -> (usize, usize) {
        let range = (self.base, self.len);
        std::mem::forget(self);
        range
    }

    /// Unmaps, and says so when that fails.
    pub fn unmap(self) -> Outcome {
        let (base, len) = self.forget();
        sys::munmap(base, len)
    }

    /// First address.
    #[must_use]
    pub fn base(&self) -> usize {
        self.base
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Length in pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.len / PAGE
    }

    /// The address of a page.
    #[must_use]
    pub fn page(&self, page: usize) -> usize {
        assert!(page < self.pages(), "page {page} of {}", self.pages());
        self.base + page * PAGE
    }

    /// The address of a byte, for system calls.
    #[must_use]
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len, "offset {offset} of {}", self.len);
        (self.base + offset) as *mut u8
    }

    /// A word, to load from or store to.
    #[must_use]
    pub fn word(&self, page: usize, index: usize) -> &AtomicU64 {
        assert!(index < WORDS && page < self.pages(), "word {index} of page {page} of {}", self.pages());
        // SAFETY: in bounds and aligned (asserted, and the base is page aligned); mapped as long as
        // `self` is borrowed, unless a subtest took the page away on purpose, which then is the
        // fault it wants; any bits are a valid u64.
        unsafe { AtomicU64::from_ptr((self.base + page * PAGE + index * 8) as *mut u64) }
    }

    /// A `T` inside the memory, for structures that a system call reads or writes.
    #[must_use]
    pub fn place<T>(&self, offset: usize) -> *mut T {
        assert!(offset + size_of::<T>() <= self.len, "offset {offset} of {}", self.len);
        let address = self.base + offset;
        assert!(address.is_multiple_of(align_of::<T>()), "{address:#x} is not aligned");
        address as *mut T
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A subtest that unmapped the range itself has called `forget`; failing here would hide the
        // first failure.
        let _ = sys::munmap(self.base, self.len);
    }
}
