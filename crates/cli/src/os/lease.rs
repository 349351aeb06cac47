//! Whether anybody else has a file open or mapped: the kernel grants a write lease only if nobody
//! has (fcntl(2)).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Whether another open file or mapping of the file exists, in whatever process. The file must be
/// this user's.
pub fn is_open_elsewhere(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    // SAFETY: F_SETLEASE takes an integer, no pointer; the lease ends with the descriptor.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
    match status {
        -1 => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EAGAIN) => Ok(true),
            error => Err(error),
        },
        _ => Ok(false),
    }
}
