//! Private regions, and what all regions have: knobs and counters of their own.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use overspill_engine::{Engine, Place};
use overspill_mm::readahead::policy::{Overrides, WINDOW_BUCKETS};
use overspill_mm::types::RegionKind;
use overspill_sys::mem::Mapping;
use overspill_sys::{AddressRange, PAGE_SIZE};

use crate::link::{Link, Wire};
use crate::pager::whole_pages;
use crate::{Error, raw};

/// Bytes that live partly in RAM and partly on swap.
///
/// Where the pager does not use UFFDIO_MOVE ([`Pager::uses_move`](crate::Pager::uses_move)) read into it by
/// the processor only: what direct I/O, a registered buffer of io_uring or process_vm_writev writes is
/// lost if the page leaves meanwhile.
///
/// It is of the process that made it. In a child of fork its memory is not there: a touch raises SIGSEGV,
/// or, once the child has mapped something else there, shows that; the child may only drop it. A daemon
/// makes its pager after it has forked.
///
/// A page that swap gives back wrong, or not at all, raises SIGBUS in whoever touches it (before kernel 6.6
/// the process is aborted). A failed assertion of the pager's thread aborts the process.
#[derive(Debug)]
pub struct Region {
    /// The bytes, and a page without access behind them: regions that touch would be one to the policy.
    mapping: Option<Mapping>,
    len: usize,
    link: Arc<Link>,
}

/// What was counted for one region since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionStats {
    /// Faults that had to read: from swap, or from the file that the region stands for.
    pub pgmajfault: u64,
    /// Pages read ahead from swap (without the faulting one).
    pub swap_ra: u64,
    /// Of these, pages that were touched.
    pub swap_ra_hit: u64,
    /// Of these, pages that were evicted before their first touch.
    pub swap_ra_unused: u64,
    /// Pages read ahead from the file that the region stands for (without the faulting one).
    pub file_ra: u64,
    /// Of these, pages that were touched.
    pub file_ra_hit: u64,
    /// Of these, pages that were evicted before their first touch.
    pub file_ra_unused: u64,
    /// Windows by log2 of their pages, the faulting one included: 1, 2 to 3, 4 to 7, ..., 512 and more.
    pub windows: [u32; WINDOW_BUCKETS],
}

impl RegionStats {
    /// Share of the read-ahead pages that were touched, in percent; `None` while none was read.
    #[must_use]
    pub fn hit_percent(&self) -> Option<f64> {
        let (hits, read) = (self.swap_ra_hit + self.file_ra_hit, self.swap_ra + self.file_ra);
        (read > 0).then(|| 100.0 * hits as f64 / read as f64)
    }
}

impl Region {
    pub(crate) fn new(len: usize, link: &Arc<Link>) -> Result<Region, Error> {
        let mapping = raw::map_private(whole_pages(len)).map_err(Error::Map)?;
        let region = Region { mapping: Some(mapping), len, link: Arc::clone(link) };
        let range = region.range();
        link.register_empty(&range)?;
        link.wire().ask(move |engine| engine.add_region(range, RegionKind::Anon))?;
        Ok(region)
    }

    fn mapping(&self) -> &Mapping {
        self.mapping.as_ref().expect("a region has its mapping until it is dropped")
    }

    fn range(&self) -> AddressRange {
        let start = self.mapping().start();
        start..start + whole_pages(self.len)
    }

    /// The way to the thread that serves it.
    #[cfg(test)]
    pub(crate) fn wire(&self) -> &Wire {
        self.link.wire()
    }

    fn place(&self) -> Place {
        Engine::place(self.mapping().start())
    }

    /// Starts reading bytes `range`, as far as the budget has room.
    ///
    /// # Panics
    /// When the range does not lie in the region.
    pub fn prefetch(&self, range: Range<usize>) {
        prefetch(self.link.wire(), self.place(), self.len, &range);
    }

    /// Forgets the content of the whole pages in bytes `range`: they show zeroes when they are touched
    /// next, and take neither RAM nor swap until then. (madvise with MADV_DONTNEED does the same.)
    ///
    /// # Errors
    /// [`Error::Map`]: the kernel's reason; EINVAL, the pages are locked (mlock).
    ///
    /// # Panics
    /// When the range does not lie in the region.
    pub fn discard(&mut self, range: Range<usize>) -> Result<(), Error> {
        assert!(range.start <= range.end && range.end <= self.len, "the range lies in the region");
        let (start, end) = (range.start.next_multiple_of(PAGE_SIZE), range.end / PAGE_SIZE * PAGE_SIZE);
        let mapping = self.mapping.as_mut().expect("a region has its mapping until it is dropped");
        if start < end { raw::discard(mapping, start..end).map_err(Error::Map) } else { Ok(()) }
    }

    /// The counters of this region.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn stats(&self) -> Result<RegionStats, Error> {
        stats(self.link.wire(), self.place())
    }

    /// Read-ahead knobs of this region alone, in place of the pager's; `None` in a knob: the
    /// pager's holds. From the next fault on.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn set_readahead(&self, knobs: Overrides) -> Result<(), Error> {
        set_readahead(self.link.wire(), self.place(), knobs)
    }
}

/// The page in which a byte of a region lies.
pub(crate) fn page_of((space, first): Place, byte: usize) -> Place {
    (space, first.offset((byte / PAGE_SIZE) as i64))
}

pub(crate) fn prefetch(wire: &Wire, start: Place, len: usize, range: &Range<usize>) {
    assert!(range.start <= range.end && range.end <= len, "the range lies in the region");
    let first = page_of(start, range.start);
    let pages = range.end.div_ceil(PAGE_SIZE) - range.start / PAGE_SIZE;
    // A pager that has stopped reads nothing ahead, and says so at the next call that can say anything.
    let _ = wire.tell(move |engine| engine.will_need(first, pages as u64));
}

pub(crate) fn stats(wire: &Wire, place: Place) -> Result<RegionStats, Error> {
    let counted = wire.ask(move |engine| {
        engine.region(place).map(|(stats, policy)| RegionStats {
            pgmajfault: stats.pgmajfault,
            swap_ra: stats.swap_ra,
            swap_ra_hit: stats.swap_ra_hit,
            swap_ra_unused: stats.swap_ra_unused,
            file_ra: stats.file_ra,
            file_ra_hit: stats.file_ra_hit,
            file_ra_unused: stats.file_ra_unused,
            windows: policy.windows,
        })
    })?;
    counted.ok_or(Error::Stopped)
}

pub(crate) fn set_readahead(wire: &Wire, place: Place, knobs: Overrides) -> Result<(), Error> {
    wire.ask(move |engine| engine.set_overrides(place, knobs))
}

impl Deref for Region {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        raw::bytes(self.mapping(), self.len)
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        raw::bytes_mut(self.mapping.as_mut().expect("a region has its mapping until it is dropped"), len)
    }
}

impl Drop for Region {
    /// In a child of fork the mapping is not there: what has taken its place is the child's.
    ///
    /// *The story:* the child unmapped that.
    fn drop(&mut self) {
        if !self.link.wire().is_ours() {
            std::mem::forget(self.mapping.take());
            return;
        }
        let range = self.range();
        let _ = self.link.wire().ask(|engine| engine.remove_region(range));
        // The unmapping itself raises an event, which the pager's thread reads while we wait here.
        drop(self.mapping.take());
    }
}
