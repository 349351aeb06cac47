//! Regions that stand for files: read-only, with stores that stay in this process, or with stores
//! that are the file's.

use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};

use overspill_engine::{Engine, Place, Source};
use overspill_mm::fileread::MapAdvice;
use overspill_mm::readahead::policy::Overrides;
use overspill_sys::file::{self, Open};
use overspill_sys::mem::Mapping;
use overspill_sys::{AddressRange, Errno, Fd, PAGE_SIZE};

use crate::file::{Claim, Inodes, RealFile, Store, open_regular};
use crate::link::{Link, say};
use crate::pager::whole_pages;
use crate::publish::Publisher;
use crate::region::{self, RegionStats};
use crate::{Error, raw};

/// What stores to a region are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stores {
    #[default]
    Forbidden,
    Private,
    Shared,
}

/// How a file is mapped.
#[derive(Debug, Clone, Copy, Default)]
pub struct MapOptions {
    stores: Stores,
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
        self.stores = Stores::Private;
        self
    }

    /// Stores are allowed, and are the file's from the next [`FileRegion::sync`] on. It takes
    /// UFFDIO_MOVE (kernel 6.8).
    ///
    /// What a device writes into it without the processor (direct I/O, registered buffers of io_uring)
    /// must have arrived before anybody syncs: what arrives during a sync may never get to the file.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.stores = Stores::Shared;
        self
    }

    /// The bytes of the file that are asked for.
    fn bytes(&self) -> Range<u64> {
        let len = self.len.map_or(u64::MAX, |len| len as u64);
        self.offset..self.offset.saturating_add(len)
    }

    /// Only `len` bytes from `offset` on. Neither need be a multiple of a page. They may reach behind the
    /// file's end: there the rest of its last page is zero, and what lies behind that raises SIGBUS. What is
    /// stored behind the end is in no file.
    #[must_use]
    pub fn part(mut self, offset: u64, len: usize) -> Self {
        (self.offset, self.len) = (offset, Some(len));
        self
    }
}

/// The bytes of a file, of which those in use are in RAM.
///
/// What others write to the file while it is mapped may be seen or not: others are this pager's own
/// [`File`](crate::File)s, too. A region that is for reading may not be stored to by other ways, either: a
/// store through a pointer raises no signal, and is kept or not. When it is cut, what lay
/// behind its new end raises SIGBUS, as it does in a mapping of the kernel's, once the pager has
/// noticed (within 40 ms), and shows what is there when it has grown again; a page that the device
/// cannot read raises SIGBUS for good.
///
/// What is stored to a shared one ([`MapOptions::shared`]) is in the file once [`FileRegion::sync`]
/// has returned, and on stable storage. Until then it is this process's own, in RAM or on swap, and
/// nobody else sees it; a process that is killed, or ends without dropping it, loses it. Dropping it syncs,
/// and tells nobody what could not be written (but for a line on standard error): [`FileRegion::close`]
/// does. The file never becomes longer than it is, and
/// what lay behind its end when it was mapped is not written, even if it has grown since.
///
/// As with any descriptor, dropping it lets go of the record locks that the process has on the file
/// (fcntl(2), F_SETLK); mapping does not. In a child of fork it is not there: see [`Region`](crate::Region).
#[derive(Debug)]
pub struct FileRegion {
    /// Taken when dropped: the pager forgets the region first.
    mapping: Option<Mapping>,
    /// Where its first byte lies in the first page.
    skip: usize,
    len: usize,
    stores: Stores,
    /// Of a shared one.
    publisher: Option<Publisher>,
    /// Its bytes are no other's, until all else is done.
    claim: Option<Claim>,
    link: Arc<Link>,
    /// The file as it was opened, beside the one that is read by: whoever closes it lets go of the process's
    /// locks.
    #[expect(dead_code, reason = "it is there to be open")]
    kept: Option<Fd>,
}

impl FileRegion {
    pub(crate) fn new(
        path: &Path,
        options: &MapOptions,
        link: &Arc<Link>,
        inodes: &Inodes,
    ) -> Result<FileRegion, Error> {
        let failed = |errno| Error::File(path.to_owned(), errno);
        if options.stores == Stores::Shared {
            if !link.wire().is_ours() {
                return Err(Error::Stopped);
            }
            let store = RealFile::open(path, true, false).map_err(failed)?.past_the_page_cache(true);
            let plain = store.reader().map_err(failed)?;
            let inode = inodes.of(store.key().map_err(failed)?);
            let claim = inode.claim(options.bytes()).map_err(|why| Error::InUse(path.to_owned(), why))?;
            let mut region = FileRegion::of(plain, Some(Box::new(store)), options, link, failed)?;
            region.claim = Some(claim);
            return Ok(region);
        }
        FileRegion::of(open(path).map_err(failed)?, None, options, link, failed)
    }

    /// Of an open file, whose stores go to `store`.
    pub(crate) fn of(
        plain: Fd,
        store: Option<Box<dyn Store>>,
        options: &MapOptions,
        link: &Arc<Link>,
        failed: impl Fn(Errno) -> Error,
    ) -> Result<FileRegion, Error> {
        let file_len = file::status(&plain).map_err(&failed)?.len;
        // A length may be a lie: a page of /sys says 4096, whatever it holds.
        if file_len > 0 && file::pread(&plain, &mut [0], file_len - 1) == Ok(0) {
            return Err(failed(Errno::NODEV));
        }
        let (file, kept) = match raw::open_direct(plain.raw(), Open::empty()) {
            Some(direct) => (direct, Some(plain)),
            None => (plain, None),
        };
        let skip = (options.offset % PAGE_SIZE as u64) as usize;
        let offset = options.offset - skip as u64;
        let rest = usize::try_from(file_len.saturating_sub(options.offset)).unwrap_or(usize::MAX);
        let len = options.len.unwrap_or(rest);
        if len == 0 || rest == 0 {
            return Err(failed(Errno::INVAL));
        }
        let mapping = raw::map_private(whole_pages(skip.saturating_add(len))).map_err(Error::Map)?;
        let stores = options.stores;
        // What is behind the end is nobody's: who appends later finds his own there.
        let published = options.offset..file_len.min(options.offset.saturating_add(len as u64));
        let publisher = store.map(|store| Publisher::new(store, published));
        let mapping = Some(mapping);
        let link = Arc::clone(link);
        let mut region = FileRegion { mapping, skip, len, stores, publisher: None, claim: None, link, kept };
        let range = region.range();
        let (writable, shared) = (stores != Stores::Forbidden, stores == Stores::Shared);
        let source = Source { file, offset, len: file_len, writable, shared, program: None };
        let tells = region.link.wire().ask(move |engine| !shared || engine.tells_stores())?;
        if !tells {
            return Err(Error::Map(Errno::OPNOTSUPP));
        }
        region.link.register_empty(&range)?;
        let added = region.link.wire().ask(move |engine| engine.add_file(range, source))?;
        added.map_err(Error::Map)?;
        // From now on there is something to sync.
        region.publisher = publisher;
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
        let is_allowed = self.stores != Stores::Forbidden;
        is_allowed.then(|| &mut raw::bytes_mut(mapping, len)[skip..])
    }

    /// The bytes of a shared region, for threads that store while others sync; `None` of another.
    pub fn as_shared(&mut self) -> Option<SharedStores<'_>> {
        (self.stores == Stores::Shared).then_some(SharedStores { region: self })
    }

    /// Writes what was stored to a shared region, and returns when it is on stable storage. Of another
    /// region there is nothing to write.
    ///
    /// # Errors
    /// [`Error::Io`]: the device's reason, told to the one whose sync it was; EAGAIN, where the process has
    /// changed its mappings for a second without a pause. What was stored is here still, and the next sync
    /// writes it once more. [`Error::Stopped`].
    pub fn sync(&self) -> Result<(), Error> {
        match &self.publisher {
            Some(publisher) => publisher.sync(self.mapping(), self.link.wire()),
            None => Ok(()),
        }
    }

    /// Syncs, tells what came of that, and unmaps. Whoever drops it is told nothing.
    ///
    /// # Errors
    /// Those of [`FileRegion::sync`]. What could not be written is tried once more, and is lost if that
    /// fails, too.
    pub fn close(self) -> Result<(), Error> {
        self.sync()
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

    /// Says how bytes `range` will be used. No page is forgotten for it. Of the parts that were spoken of the
    /// last 16 are remembered.
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

    /// Read-ahead knobs of this region alone, in place of the pager's. By the adaptive policy files are read
    /// by rules of their own, whose windows `max_window` bounds; 0: nothing is read ahead.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn set_readahead(&self, knobs: Overrides) -> Result<(), Error> {
        region::set_readahead(self.link.wire(), self.place(), knobs)
    }
}

/// A shared region while several threads store to it. Read into it by direct I/O only while nobody
/// syncs: see [`MapOptions::shared`].
#[derive(Debug, Clone, Copy)]
pub struct SharedStores<'a> {
    region: &'a FileRegion,
}

impl<'a> SharedStores<'a> {
    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [AtomicU8] {
        let FileRegion { skip, len, .. } = *self.region;
        &raw::atomic_bytes(self.region.mapping(), skip + len)[skip..]
    }

    /// All whole words of 8 bytes, in the processor's byte order, from the first that begins at a
    /// multiple of 8 bytes of the file.
    ///
    /// *The story:* of a region without a whole word it panicked.
    #[must_use]
    pub fn words(&self) -> &'a [AtomicU64] {
        let FileRegion { skip, len, .. } = *self.region;
        raw::atomic_words(self.region.mapping(), skip + len).get(skip.div_ceil(8)..).unwrap_or(&[])
    }

    /// As [`FileRegion::sync`]. What is stored meanwhile is in the file or not, or a part of it; it is the
    /// next sync's in any case.
    ///
    /// # Errors
    /// Those of [`FileRegion::sync`].
    pub fn sync(&self) -> Result<(), Error> {
        self.region.sync()
    }
}

/// Opens a file for reading.
fn open(path: &Path) -> Result<Fd, Errno> {
    Ok(raw::fd_from(open_regular(path, false, false)?.into()))
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
        // Whoever wants to know whether that goes well has synced.
        if let Err(error) = self.sync() {
            say(&format!("what was stored to a shared mapping of a file is lost: {error}"));
        }
        let range = self.range();
        let _ = self.link.wire().ask(|engine| engine.remove_file(range));
        // The unmapping raises an event, which the pager's thread reads while we wait here.
        drop(self.mapping.take());
    }
}
