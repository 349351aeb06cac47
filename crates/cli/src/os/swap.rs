//! Switching the kernel's swap on and off (root only): two system calls without a safe wrapper.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `SWAP_FLAG_PREFER` with the highest priority: the temporary area is filled before any the
/// machine already has.
const HIGHEST_PRIORITY: i32 = 0x8000 | 0x7fff;

/// Starts swapping to the file, which must carry a swap header.
pub fn on(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a NUL-terminated path that lives through the call.
    check(unsafe { libc::swapon(path.as_ptr(), HIGHEST_PRIORITY) })
}

/// Brings everything back from the file and stops swapping to it.
pub fn off(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a NUL-terminated path that lives through the call.
    check(unsafe { libc::swapoff(path.as_ptr()) })
}

fn check(status: i32) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
