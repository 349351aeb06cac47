//! The swap file: without a name, readable by nobody else, gone with the last descriptor however the program ends.

use alloc::ffi::CString;

use overspill_sys::file::{self, Open};
use overspill_sys::{Errno, Fd, PAGE_SIZE};

/// Largest part of the free space that is taken, in 1/16: the file system stays usable for others.
const SHARE_16THS: u64 = 15;

/// An open swap file and how large it may grow.
pub(crate) struct SwapFile {
    pub file: Fd,
    pub bytes: u64,
}

/// Where the swap file goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapPlace {
    /// A directory in which a file without a name is made.
    Directory(CString),
    /// A file to create; its name is removed at once.
    File(CString),
    /// A file without a name that somebody else has made: its descriptor, which becomes the engine's.
    Given(i32),
}

impl SwapFile {
    /// Makes the file, sparse, as large as there is room, at most `bytes_max` (0 = no limit).
    pub fn create(place: &SwapPlace, bytes_max: u64) -> Result<SwapFile, Errno> {
        let file = match place {
            SwapPlace::Directory(directory) => file::open_nameless(directory, true)?,
            SwapPlace::File(path) => {
                let how = Open::READ_WRITE | Open::CREATE | Open::EXCLUSIVE | Open::NO_FOLLOW | Open::DIRECT;
                let file = file::open(path, how)?;
                file::unlink(path)?;
                file
            }
            // SAFETY: the descriptor was handed over with the settings.
            SwapPlace::Given(descriptor) => unsafe { Fd::from_raw(*descriptor) },
        };
        let free = file::space(&file)?.available_bytes / 16 * SHARE_16THS;
        let bytes = if bytes_max == 0 { free } else { free.min(bytes_max) };
        let bytes = bytes / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        file::truncate(&file, bytes)?;
        Ok(SwapFile { file, bytes })
    }
}
