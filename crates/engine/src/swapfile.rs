//! The swap file: without a name, readable by nobody else, gone with the last descriptor however the program ends.

use alloc::ffi::CString;

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// Largest part of the free space that is taken, in 1/16: the file system stays usable for others.
const SHARE_16THS: u64 = 15;

/// An open swap file and how large it may grow.
pub(crate) struct SwapFile {
    pub file: OwnedFd,
    pub bytes: u64,
}

/// Where the swap file goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapPlace {
    /// A directory in which a file without a name is made.
    Directory(CString),
    /// A file to create; its name is removed at once.
    File(CString),
}

impl SwapFile {
    /// Makes the file, sparse, as large as there is room, at most `bytes_max` (0 = no limit).
    pub fn create(place: &SwapPlace, bytes_max: u64) -> Result<SwapFile, Errno> {
        let file = match place {
            SwapPlace::Directory(directory) => nameless(directory)?,
            SwapPlace::File(path) => {
                let flags = OFlags::CREATE | OFlags::EXCL | DIRECT;
                let file = fs::open(path.as_c_str(), flags, Mode::RUSR | Mode::WUSR)?;
                fs::unlink(path.as_c_str())?;
                file
            }
        };
        let room = fs::fstatvfs(&file)?;
        let free = room.f_bavail.saturating_mul(room.f_frsize) / 16 * SHARE_16THS;
        let bytes = if bytes_max == 0 { free } else { free.min(bytes_max) };
        let bytes = bytes / 4096 * 4096;
        fs::ftruncate(&file, bytes)?;
        Ok(SwapFile { file, bytes })
    }
}

const DIRECT: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::DIRECT);

/// A file without a name in `directory`; where the file system has no O_TMPFILE, one whose name is removed at once.
fn nameless(directory: &CString) -> Result<OwnedFd, Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    match fs::open(directory.as_c_str(), OFlags::TMPFILE | DIRECT, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        other => return other,
    }
    let parent =
        fs::open(directory.as_c_str(), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    for attempt in 0..100u32 {
        let name = alloc::format!(".overspill-{pid}-{attempt}");
        match fs::openat(&parent, name.as_str(), OFlags::CREATE | OFlags::EXCL | DIRECT, mode) {
            Ok(file) => {
                fs::unlinkat(&parent, name.as_str(), AtFlags::empty())?;
                return Ok(file);
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}
