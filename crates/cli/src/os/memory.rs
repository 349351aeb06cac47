//! The bench load's memory: pages as words, all atomic, so that any number of threads may touch any
//! page.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use overspill_pager::SharedRegion;

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;

/// Anonymous memory, zero at first and mapped page by page as it is touched.
pub struct Pages {
    base: NonNull<u8>,
    count: usize,
    /// Whose memory it is, if it is a region of the pager library.
    region: Option<SharedRegion>,
}

// SAFETY: the memory is reached only through shared references to atomics, and unmapped only when
// the last reference to `Pages` is gone.
unsafe impl Sync for Pages {}
// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps `count` pages; `shared` as an anonymous shared mapping, otherwise private.
    pub fn new(count: usize, shared: bool) -> io::Result<Pages> {
        let bytes = count.checked_mul(PAGE_BYTES).and_then(NonZeroUsize::new);
        let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let sharing = if shared { MapFlags::MAP_SHARED } else { MapFlags::MAP_PRIVATE };
        let flags = sharing | MapFlags::MAP_NORESERVE;
        // SAFETY: no address is asked for, so no mapping of anybody else can be replaced.
        let base =
            unsafe { mmap_anonymous(None, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)? };
        Ok(Pages { base: base.cast(), count, region: None })
    }

    /// The pages of a shared region.
    pub fn of(region: SharedRegion) -> Pages {
        let base = NonNull::new(region.as_ptr()).expect("nothing is mapped at address 0");
        Pages { base, count: region.len() / PAGE_BYTES, region: Some(region) }
    }

    /// How many pages.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Asks the kernel to bring these pages in, all at once; where nobody can, nothing happens.
    pub fn will_need(&self, pages: Range<usize>) {
        assert!(pages.start <= pages.end && pages.end <= self.count);
        let (start, bytes) = (pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES);
        if let Some(region) = &self.region {
            return region.prefetch(start..start + bytes);
        }
        // SAFETY: the range lies inside the mapping; the advice changes no content. A refusal costs
        // only time.
        let _ = unsafe { madvise(self.base.add(start).cast(), bytes, MmapAdvise::MADV_WILLNEED) };
    }

    /// The words of a page.
    pub fn words(&self, page: usize) -> &[AtomicU64; PAGE_BYTES / 8] {
        assert!(page < self.count);
        // SAFETY: the page lies inside the mapping, which lives as long as `self`; it is aligned to
        // 4096, zero is a valid word, and nobody ever makes another kind of reference to it.
        unsafe { self.base.add(page * PAGE_BYTES).cast::<[AtomicU64; PAGE_BYTES / 8]>().as_ref() }
    }

    /// The first word of a page.
    pub fn word(&self, page: usize) -> &AtomicU64 {
        &self.words(page)[0]
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.region.is_some() {
            return;
        }
        // SAFETY: exactly the mapping made in `new`; `drop` proves that no reference into it is
        // left.
        let unmapped = unsafe { munmap(self.base.cast(), self.count * PAGE_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn pages_are_zero_and_distinct() {
        for shared in [false, true] {
            let pages = Pages::new(3, shared).unwrap();
            pages.word(1).store(7, Relaxed);
            pages.will_need(0..3);
            assert_eq!([0, 1, 2].map(|page| pages.word(page).load(Relaxed)), [0, 7, 0]);
        }
        assert!(Pages::new(0, false).is_err());
    }
}
