//! Regions that stand for files: read-only, or with stores that stay in this process.

use std::ffi::CString;
use std::ops::{Deref, Range};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use overspill_engine::{Engine, Place, Source};
use overspill_mm::fileread::MapAdvice;
use overspill_mm::readahead::policy::Overrides;
use overspill_sys::file::{self, Kind, Open};
use overspill_sys::mem::Mapping;
use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use crate::link::Link;
use crate::pager::whole_pages;
use crate::region::{self, RegionStats};
use crate::{Error, raw};

/// How a file is mapped.
#[derive(Debug, Clone, Copy, Default)]
pub struct MapOptions {
    private: bool,
    offset: u64,
    len: Option<usize>,
}

impl MapOptions {
    /// All of the file, for reading.
    #[must_use]
    pub fn new() -> Self {
        MapOptions::default()
    }

    /// Stores are allowed, and stay in this process: a page that was stored to is the region's own.
    #[must_use]
    pub fn private(mut self) -> Self {
        self.private = true;
        self
    }

    /// Only `len` bytes from `offset` on, which is rounded down to whole pages.
    #[must_use]
    pub fn part(mut self, offset: u64, len: usize) -> Self {
        (self.offset, self.len) = (offset, Some(len));
        self
    }
}

/// The bytes of a file, of which those in use are in RAM.
///
/// What others write to the file while it is mapped may be seen or not. When it is cut, what lay
/// behind its new end raises SIGBUS, as it does in a mapping of the kernel's, once the pager has
/// noticed (within 40 ms), and shows what is there when it has grown again; a page that the device
/// cannot read raises SIGBUS for good.
#[derive(Debug)]
pub struct FileRegion {
    /// Taken when dropped: the pager forgets the region first.
    mapping: Option<Mapping>,
    /// Where its first byte lies in the first page.
    skip: usize,
    len: usize,
    private: bool,
    link: Arc<Link>,
}

impl FileRegion {
    pub(crate) fn new(path: &Path, options: &MapOptions, link: &Arc<Link>) -> Result<FileRegion, Error> {
        let failed = |errno| Error::File(path.to_owned(), errno);
        let (file, file_len) = open(path).map_err(failed)?;
        let skip = (options.offset % PAGE_SIZE as u64) as usize;
        let offset = options.offset - skip as u64;
        let rest = usize::try_from(file_len.saturating_sub(options.offset)).unwrap_or(usize::MAX);
        let len = options.len.unwrap_or(rest);
        if len == 0 || rest == 0 {
            return Err(failed(Errno::INVAL));
        }
        let mapping = raw::map_private(whole_pages(skip.saturating_add(len))).map_err(Error::Map)?;
        let private = options.private;
        let region = FileRegion { mapping: Some(mapping), skip, len, private, link: Arc::clone(link) };
        let range = region.range();
        let source = Source { file, offset, len: file_len, writable: private, program: None };
        let added = link.wire().ask(move |engine| {
            engine.register(range.clone())?;
            engine.add_file(range, source)
        })?;
        added.map_err(Error::Map)?;
        Ok(region)
    }

    fn mapping(&self) -> &Mapping {
        self.mapping.as_ref().expect("a region has its mapping until it is dropped")
    }

    fn range(&self) -> AddressRange {
        let start = self.mapping().start();
        start..start + whole_pages(self.skip + self.len)
    }

    fn place(&self) -> Place {
        Engine::place(self.mapping().start())
    }

    /// The bytes, to be stored to; `None` of a region that is for reading.
    pub fn as_mut(&mut self) -> Option<&mut [u8]> {
        let (skip, len) = (self.skip, self.skip + self.len);
        let mapping = self.mapping.as_mut().expect("a region has its mapping until it is dropped");
        self.private.then(|| &mut raw::bytes_mut(mapping, len)[skip..])
    }

    /// The pages of bytes `range`.
    fn pages(&self, range: &Range<usize>) -> AddressRange {
        assert!(range.start <= range.end && range.end <= self.len, "the range lies in the region");
        let start = self.mapping().start();
        let first = (start + self.skip + range.start) / PAGE_SIZE * PAGE_SIZE;
        first..start + whole_pages(self.skip + range.end)
    }

    /// Starts reading bytes `range`, no more of them than a quarter of the budget holds, and does not
    /// wait for it. Returns how many bytes are beyond that; a touch reads them.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    ///
    /// # Panics
    /// When the range does not lie in the region.
    pub fn prefetch(&self, range: Range<usize>) -> Result<usize, Error> {
        let pages = self.pages(&range);
        let left = self.link.wire().ask(move |engine| engine.foresee(&pages))?;
        Ok((left as usize * PAGE_SIZE).min(range.len()))
    }

    /// Says how bytes `range` will be used. Nothing is forgotten for it.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    ///
    /// # Panics
    /// When the range does not lie in the region.
    pub fn advise(&self, range: Range<usize>, advice: MapAdvice) -> Result<(), Error> {
        let pages = self.pages(&range);
        self.link.wire().ask(move |engine| engine.advise_files(&pages, advice))
    }

    /// The counters of this region.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn stats(&self) -> Result<RegionStats, Error> {
        region::stats(self.link.wire(), self.place())
    }

    /// Read-ahead knobs of this region alone, in place of the pager's.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn set_readahead(&self, knobs: Overrides) -> Result<(), Error> {
        region::set_readahead(self.link.wire(), self.place(), knobs)
    }
}

/// Opens a file for reading, past the page cache where that can be; gives its length, too.
fn open(path: &Path) -> Result<(overspill_sys::Fd, u64), Errno> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    // Of a pipe nobody waits for another end.
    let plain = file::open(&name, Open::NON_BLOCKING)?;
    let status = file::status(&plain)?;
    if status.kind != Kind::Regular {
        return Err(Errno::NODEV);
    }
    let direct = raw::open_direct(&plain, Open::empty());
    Ok((direct.unwrap_or(plain), status.len))
}

impl Deref for FileRegion {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &raw::bytes(self.mapping(), self.skip + self.len)[self.skip..]
    }
}

impl Drop for FileRegion {
    fn drop(&mut self) {
        if !self.link.wire().is_ours() {
            // In a child of fork it is not there, and something else may be.
            std::mem::forget(self.mapping.take());
            return;
        }
        let range = self.range();
        let _ = self.link.wire().ask(|engine| engine.remove_file(range));
        // The unmapping raises an event, which the pager's thread reads while we wait here.
        drop(self.mapping.take());
    }
}
