//! Where a cached file's bytes are on stable storage: a seam, and the real file behind it.
//!
//! Whole pages pass the kernel's page cache by, where the file system allows that; the part of a
//! page at the end of the file is written through it, so that the file never becomes longer than
//! it is.

use std::os::unix::fs::FileExt;
use std::path::Path;

use overspill_sys::file::{self, Open};
use overspill_sys::{Errno, Fd, PAGE_SIZE};

/// A page's bytes, where a device can put them.
#[repr(C, align(4096))]
#[derive(Clone)]
pub(crate) struct Page(pub [u8; PAGE_SIZE]);

/// What a file can do.
pub(crate) trait Store: Send + Sync {
    /// May it be written to?
    fn is_writable(&self) -> bool;
    /// Bytes in it.
    fn len(&self) -> Result<u64, Errno>;
    /// Fills pages from page `first` on. What lies behind the end is zero.
    fn read(&self, first: u64, pages: &mut [Page]) -> Result<(), Errno>;
    /// Writes pages from page `first` on, but nothing behind byte `len`.
    fn write(&self, first: u64, pages: &[Page], len: u64) -> Result<(), Errno>;
    /// What was written is on stable storage when this returns.
    fn sync(&self) -> Result<(), Errno>;
}

/// A file.
pub(crate) struct RealFile {
    /// Past the page cache, if that can be.
    direct: Option<Fd>,
    /// For the rest.
    plain: std::fs::File,
    is_writable: bool,
}

impl RealFile {
    /// Opens a file; `create`: makes it where it is missing.
    pub fn open(path: &Path, write: bool, create: bool) -> Result<RealFile, Errno> {
        let plain = std::fs::OpenOptions::new().read(true).write(write).create(create).open(path);
        let plain = plain.map_err(|error| errno(&error))?;
        // By its descriptor: what has the name by now may be another file.
        let copy = plain.try_clone().map_err(|error| errno(&error))?;
        let how = if write { Open::READ_WRITE } else { Open::empty() };
        let direct = crate::raw::open_direct(&crate::raw::fd_from(copy.into()), how);
        Ok(RealFile { direct, plain, is_writable: write })
    }
}

fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// The pages as bytes.
fn bytes(pages: &[Page]) -> &[u8] {
    crate::raw::page_bytes(pages)
}

impl Store for RealFile {
    fn is_writable(&self) -> bool {
        self.is_writable
    }

    fn len(&self) -> Result<u64, Errno> {
        self.plain.metadata().map(|metadata| metadata.len()).map_err(|error| errno(&error))
    }

    fn read(&self, first: u64, pages: &mut [Page]) -> Result<(), Errno> {
        let offset = first * PAGE_SIZE as u64;
        let buffer = crate::raw::page_bytes_mut(pages);
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            // A read that ended within a page has met the end of the file, or goes on without DIRECT.
            let count = match &self.direct {
                Some(fd) if done.is_multiple_of(PAGE_SIZE) => file::pread(fd, &mut buffer[done..], at)?,
                _ => self.plain.read_at(&mut buffer[done..], at).map_err(|error| errno(&error))?,
            };
            if count == 0 {
                break;
            }
            done += count;
        }
        buffer[done..].fill(0);
        Ok(())
    }

    fn write(&self, first: u64, pages: &[Page], len: u64) -> Result<(), Errno> {
        let offset = first * PAGE_SIZE as u64;
        let inside = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = &bytes(pages)[..inside.min(pages.len() * PAGE_SIZE)];
        let whole = bytes.len() / PAGE_SIZE * PAGE_SIZE;
        let mut done = 0;
        while done < whole {
            let at = offset + done as u64;
            let count = match &self.direct {
                Some(fd) if done.is_multiple_of(PAGE_SIZE) => file::pwrite(fd, &bytes[done..whole], at)?,
                _ => self.plain.write_at(&bytes[done..whole], at).map_err(|error| errno(&error))?,
            };
            if count == 0 {
                return Err(Errno::IO);
            }
            done += count;
        }
        let rest = self.plain.write_all_at(&bytes[whole..], offset + whole as u64);
        rest.map_err(|error| errno(&error))
    }

    fn sync(&self) -> Result<(), Errno> {
        self.plain.sync_all().map_err(|error| errno(&error))
    }
}
