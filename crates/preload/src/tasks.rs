//! Whoever counts its threads by the links of /proc/self/task finds none of the agent's.
//!
//! Chromium's zygote looks that way whether it has one thread before it forks its first child, and
//! ends where it has two. For the call the agent goes, as for those of `retire`. Other files are
//! not delayed: the path is looked at, and the call made. What is opened and read in pieces shows
//! the thread.

use core::ffi::{CStr, c_char, c_int, c_void};

use linux_raw_sys::general::{__NR_newfstatat, AT_FDCWD};

use crate::{libc, retire};

/// The calls that name a file by a path.
///
/// # Safety
/// As for newfstatat(2).
unsafe fn status(directory: c_int, path: *const c_char, status: *mut c_void, flags: c_int) -> c_int {
    let arguments = [directory as usize, path as usize, status as usize, flags as usize, 0, 0];
    // SAFETY: passed on to the caller.
    let call = || unsafe { libc::call(__NR_newfstatat, arguments) };
    // SAFETY: the path is what the caller gives to libc, which wants a string.
    let is_own = !path.is_null() && unsafe { names_own_tasks(path) };
    (if is_own { retire::without(call) } else { call() }) as c_int
}

/// # Safety
/// It is a string.
unsafe fn names_own_tasks(path: *const c_char) -> bool {
    // SAFETY: it has a first character, and it is a string.
    unsafe {
        if *path != b'/' as c_char && *path != b's' as c_char {
            return false;
        }
        let path = CStr::from_ptr(path).to_bytes();
        let path = path.strip_suffix(b"/").unwrap_or(path);
        path == b"self/task" || path == b"/proc/self/task"
    }
}

/// fstatat(3).
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatat(at: c_int, path: *const c_char, to: *mut c_void, flags: c_int) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { status(at, path, to, flags) }
}

/// [`fstatat`], by the name that programs with large files use.
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatat64(at: c_int, path: *const c_char, to: *mut c_void, flags: c_int) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { status(at, path, to, flags) }
}

/// stat(3).
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat(path: *const c_char, to: *mut c_void) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { status(AT_FDCWD, path, to, 0) }
}

/// [`stat`], by the name that programs with large files use.
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat64(path: *const c_char, to: *mut c_void) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { status(AT_FDCWD, path, to, 0) }
}
