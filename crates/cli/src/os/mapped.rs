//! A file's mapping, for reading: the load of `bench files` touches one word a page. Others may
//! change the file, so its words are read as volatile ones.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};

use super::memory::PAGE_BYTES;

/// A shared mapping of whole pages of a file.
pub struct Mapped {
    base: NonNull<u8>,
    pages: NonZeroUsize,
}

// SAFETY: the memory is only read, and unmapped when the last reference is gone.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the first `pages` pages of a file, which has them.
    pub fn new(file: &File, pages: usize) -> io::Result<Mapped> {
        let pages = NonZeroUsize::new(pages).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let bytes = pages.checked_mul(PAGE).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: no address is asked for, so no mapping of anybody else can be replaced.
        let base = unsafe { mmap(None, bytes, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, file, 0)? };
        Ok(Mapped { base: base.cast(), pages })
    }

    /// Says that it will be read in no order.
    pub fn advise_random(&self) -> io::Result<()> {
        let bytes = self.pages.get() * PAGE_BYTES;
        // SAFETY: the range is the mapping's; the advice changes no content.
        unsafe { madvise(self.base.cast(), bytes, MmapAdvise::MADV_RANDOM) }?;
        Ok(())
    }

    /// The first word of a page.
    pub fn word(&self, page: usize) -> u64 {
        assert!(page < self.pages.get());
        // SAFETY: in bounds, as was just seen, and aligned; any bits are a word.
        unsafe { self.base.as_ptr().add(page * PAGE_BYTES).cast::<u64>().read_volatile() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nobody has a reference into it.
        let _ = unsafe { munmap(self.base.cast(), self.pages.get() * PAGE_BYTES) };
    }
}

const PAGE: NonZeroUsize = NonZeroUsize::new(PAGE_BYTES).expect("a page has bytes");
