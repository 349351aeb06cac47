//! Where a cached file's bytes are on stable storage: a seam, and the real file behind it.
//!
//! Whole pages pass the kernel's page cache by, where the file system allows that; the part of a
//! page at the end of the file is written through it, so that the file never becomes longer than
//! it is.

use std::io::{Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use overspill_sys::file::{self, Open};
use overspill_sys::procfs::{self, Limit};
use overspill_sys::{Errno, Fd, PAGE_SIZE};

use super::inodes::Key;

/// Nobody waits for a pipe's other end.
const NON_BLOCKING: i32 = Open::NON_BLOCKING.bits() as i32;
const NAME_ONLY: i32 = Open::NAME_ONLY.bits() as i32;

/// So many times a file of no length has to have bytes.
const EMPTY_LOOKS: u32 = 3;

/// A page's bytes, where a device can put them.
#[repr(C, align(4096))]
#[derive(Clone)]
pub(crate) struct Page(pub [u8; PAGE_SIZE]);

/// What a file can do.
pub(crate) trait Store: Send + Sync {
    /// Bytes in it.
    fn len(&self) -> Result<u64, Errno>;
    /// May it be so long? EFBIG: its file system, or the process's limit, says no.
    fn may_be_long(&self, _len: u64) -> Result<(), Errno> {
        Ok(())
    }
    /// Fills pages from page `first` on. What lies behind the end is zero; gives how many bytes do not.
    fn read(&self, first: u64, pages: &mut [Page]) -> Result<u64, Errno>;
    /// Writes pages from page `first` on, but nothing behind byte `len`.
    fn write(&self, first: u64, pages: &[Page], len: u64) -> Result<(), Errno>;
    /// Writes bytes of a page.
    fn write_part(&self, bytes: &[u8], at: u64) -> Result<(), Errno>;
    /// The file ends there from now on. What it has more of is gone, what it has less of is zeroes.
    fn set_len(&self, len: u64) -> Result<(), Errno>;
    /// What was written is on stable storage when this returns, and with it what there is to know of
    /// the file (`all`), or what it takes to read it again.
    fn sync(&self, all: bool) -> Result<(), Errno>;
}

/// A file.
pub(crate) struct RealFile {
    /// Past the page cache, if that can be.
    direct: Option<Fd>,
    /// For the rest.
    plain: std::fs::File,
}

impl RealFile {
    /// Opens a file; `create`: makes it where it is missing. EINVAL: to read from it alone. EISDIR: it is
    /// a directory. ENODEV: it is no regular file either, or has bytes and a length of none.
    ///
    /// *The other story:* a file of /proc has a length of none, and was read as if it were empty.
    /// *The story:* for a pipe it waited until somebody wrote into it; a directory was a file of 4096
    /// bytes, and a disk one of none.
    pub fn open(path: &Path, write: bool, create: bool) -> Result<RealFile, Errno> {
        if create && !write {
            return Err(Errno::INVAL);
        }
        let plain = open_regular(path, write, create)?;
        let file = RealFile { direct: None, plain };
        if file.hides_its_length()? { Err(Errno::NODEV) } else { Ok(file) }
    }

    /// Does it have bytes where it says that it has none? Looked at more than once: others may write to it,
    /// and cut it, meanwhile.
    fn hides_its_length(&self) -> Result<bool, Errno> {
        for _ in 0..EMPTY_LOOKS {
            if self.len()? > 0 || self.read_plain(&mut [0], 0)? == 0 {
                return Ok(false);
            }
        }
        Ok(self.len()? == 0)
    }

    /// From now on whole pages pass the page cache by, where that can be. As long as it lives no descriptor
    /// of the file is closed.
    ///
    /// *The story:* a copy was closed as a file was opened. With it the process let go of its locks on that
    /// file (fcntl(2)), and another one got them: two had it for themselves.
    pub fn past_the_page_cache(mut self, write: bool) -> RealFile {
        let how = if write { Open::READ_WRITE } else { Open::empty() };
        // By its descriptor: what has the name by now may be another file.
        self.direct = crate::raw::open_direct(self.plain.as_raw_fd(), how);
        self
    }

    /// The file as it was opened, for whoever keeps it and does nothing with it.
    pub fn into_plain(self) -> std::fs::File {
        self.plain
    }

    /// What its file system calls it: a device and a number, which nobody else has while it is open.
    pub fn key(&self) -> Result<Key, Errno> {
        let metadata = self.plain.metadata().map_err(|error| errno(&error))?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// A descriptor of the same file, for reading.
    pub fn reader(&self) -> Result<Fd, Errno> {
        let copy = self.plain.try_clone().map_err(|error| errno(&error))?;
        Ok(crate::raw::fd_from(copy.into()))
    }

    /// Past the page cache; through it where the file system takes that no more for writes, which it
    /// may say as late as now.
    fn write_direct(&self, fd: &Fd, bytes: &[u8], at: u64) -> Result<usize, Errno> {
        match insist(|| file::pwrite(fd, bytes, at)) {
            Err(Errno::INVAL) => self.write_plain(bytes, at),
            other => other,
        }
    }

    fn write_plain(&self, bytes: &[u8], at: u64) -> Result<usize, Errno> {
        insist(|| self.plain.write_at(bytes, at).map_err(|error| errno(&error)))
    }

    /// The same for reads. An empty file shows at its opening nothing of what it takes.
    fn read_direct(&self, fd: &Fd, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
        match insist(|| file::pread(fd, buffer, at)) {
            Err(Errno::INVAL) => self.read_plain(buffer, at),
            other => other,
        }
    }

    fn read_plain(&self, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
        insist(|| self.plain.read_at(buffer, at).map_err(|error| errno(&error)))
    }
}

/// A handler of the program's may run on this thread (by reading: of files that are not on a network
/// or in FUSE no call is interrupted).
fn insist(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Nobody waits for a pipe's other end, but for who has a lease on a file until he gives it up.
///
/// *The story:* a file that another program had a lease on could not be opened at all.
pub(crate) fn open_regular(path: &Path, write: bool, create: bool) -> Result<std::fs::File, Errno> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(write);
    let opened = options.clone().create(create).custom_flags(NON_BLOCKING).open(path);
    let leased = opened.or_else(|error| {
        if error.kind() != std::io::ErrorKind::WouldBlock {
            return Err(error);
        }
        // What has the name is looked at before it is waited for, and is the same then.
        let named = options.clone().custom_flags(NAME_ONLY).open(path)?;
        if !named.metadata()?.is_file() {
            return Err(error);
        }
        options.open(format!("/proc/thread-self/fd/{}", named.as_raw_fd()))
    });
    let file = leased.map_err(|error| errno(&error))?;
    let kind = file.metadata().map_err(|error| errno(&error))?.file_type();
    match kind {
        kind if kind.is_file() => Ok(file),
        // As the kernel says of one that is to be written.
        kind if kind.is_dir() => Err(Errno::ISDIR),
        _ => Err(Errno::NODEV),
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
    fn len(&self) -> Result<u64, Errno> {
        self.plain.metadata().map(|metadata| metadata.len()).map_err(|error| errno(&error))
    }

    /// A file system tells its bound by the position that it does not take; nothing here uses that.
    fn may_be_long(&self, len: u64) -> Result<(), Errno> {
        let (limit, _) = procfs::limit(Limit::FileSize)?;
        let is_taken = (&self.plain).seek(SeekFrom::Start(len)).is_ok();
        if len <= limit && is_taken { Ok(()) } else { Err(Errno::FBIG) }
    }

    fn read(&self, first: u64, pages: &mut [Page]) -> Result<u64, Errno> {
        let offset = first * PAGE_SIZE as u64;
        let buffer = crate::raw::page_bytes_mut(pages);
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            // A read that ended within a page has met the end of the file, or goes on without DIRECT.
            let count = match &self.direct {
                Some(fd) if done.is_multiple_of(PAGE_SIZE) => {
                    self.read_direct(fd, &mut buffer[done..], at)?
                }
                _ => self.read_plain(&mut buffer[done..], at)?,
            };
            if count == 0 {
                break;
            }
            done += count;
        }
        buffer[done..].fill(0);
        Ok(done as u64)
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
                Some(fd) if done.is_multiple_of(PAGE_SIZE) => {
                    self.write_direct(fd, &bytes[done..whole], at)?
                }
                _ => self.write_plain(&bytes[done..whole], at)?,
            };
            if count == 0 {
                return Err(Errno::IO);
            }
            done += count;
        }
        self.write_part(&bytes[whole..], offset + whole as u64)
    }

    fn write_part(&self, bytes: &[u8], at: u64) -> Result<(), Errno> {
        self.plain.write_all_at(bytes, at).map_err(|error| errno(&error))
    }

    fn set_len(&self, len: u64) -> Result<(), Errno> {
        self.plain.set_len(len).map_err(|error| errno(&error))
    }

    fn sync(&self, all: bool) -> Result<(), Errno> {
        let synced = if all { self.plain.sync_all() } else { self.plain.sync_data() };
        synced.map_err(|error| errno(&error))
    }
}

#[cfg(test)]
mod tests {
    use overspill_sys::lease;

    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("overspill-store-{name}-{}", std::process::id()))
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let pipe = scratch("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: the name is NUL-terminated.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for path in [&*pipe, Path::new("/dev/null")] {
            assert_eq!(RealFile::open(path, false, false).err(), Some(Errno::NODEV), "{path:?}");
        }
        // *The story:* to read it alone it was ENODEV.
        for write in [false, true] {
            assert_eq!(RealFile::open(Path::new("/"), write, false).err(), Some(Errno::ISDIR));
        }
        assert_eq!(RealFile::open(&pipe, true, true).err(), Some(Errno::NODEV));
        std::fs::remove_file(&pipe).unwrap();
        assert_eq!(RealFile::open(&pipe, false, true).err(), Some(Errno::INVAL));
        assert!(!pipe.exists());
    }

    /// *The story:* /proc/cpuinfo was empty, and no error.
    #[test]
    fn what_has_bytes_and_no_length_is_refused() {
        for path in ["/proc/cpuinfo", "/proc/self/status"] {
            assert!(!std::fs::read(path).unwrap().is_empty());
            assert_eq!(RealFile::open(Path::new(path), false, false).err(), Some(Errno::NODEV), "{path}");
        }
        let empty = scratch("empty");
        std::fs::write(&empty, []).unwrap();
        assert_eq!(RealFile::open(&empty, true, false).map(|file| file.len()).ok(), Some(Ok(0)));
        std::fs::remove_file(&empty).unwrap();
    }

    /// *The story:* a file system that takes O_DIRECT for reads, and not for this write, failed it.
    #[test]
    fn what_is_not_written_directly_is_written_all_the_same() {
        let path = scratch("refuses");
        let mut file = RealFile::open(&path, true, true).unwrap();
        // A descriptor that refuses such a write with EINVAL: these bytes are no number.
        file.direct = Some(file::open(c"/proc/self/oom_score_adj", Open::READ_WRITE).unwrap());
        file.write(0, &[Page([7; PAGE_SIZE]), Page([8; PAGE_SIZE])], 5000).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(bytes.len() == 5000 && bytes[..PAGE_SIZE] == [7; PAGE_SIZE]);
        assert!(bytes[PAGE_SIZE..].iter().all(|&byte| byte == 8));
    }

    /// *The story:* a file that was empty at its opening was read directly ever after, whatever its device
    /// said to that.
    #[test]
    fn what_is_not_read_directly_is_read_all_the_same() {
        let path = scratch("refuses-reads");
        std::fs::write(&path, [7; 5000]).unwrap();
        let mut file = RealFile::open(&path, false, false).unwrap();
        // A descriptor that refuses reads with EINVAL.
        file.direct = Some(file::open(c"/proc/self/clear_refs", Open::READ_WRITE).unwrap());
        let mut pages = [Page([1; PAGE_SIZE]), Page([1; PAGE_SIZE])];
        let count = file.read(0, &mut pages);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(count, Ok(5000));
        assert!(bytes(&pages)[..5000].iter().all(|&byte| byte == 7));
        assert!(bytes(&pages)[5000..].iter().all(|&byte| byte == 0));
    }

    /// *The story:* see [`open_regular`].
    #[test]
    fn who_has_a_lease_on_a_file_is_waited_for() {
        let path = scratch("leased");
        std::fs::write(&path, b"content").unwrap();
        let held =
            file::open(&std::ffi::CString::new(path.to_str().unwrap()).unwrap(), Open::empty()).unwrap();
        let opened = std::thread::scope(|scope| {
            let (taken, is_taken) = std::sync::mpsc::channel();
            scope.spawn(move || {
                // The signal of a break goes to this thread.
                let _ = overspill_sys::thread::block_all_signals();
                taken.send(lease::take(&held)).unwrap();
                while !lease::is_breaking(&held) {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                lease::give_up(&held).unwrap();
            });
            is_taken.recv().unwrap().unwrap();
            RealFile::open(&path, true, false)
        });
        std::fs::remove_file(&path).unwrap();
        assert_eq!(opened.map(|file| file.len()).err(), None);
    }
}
