//! Whoever counts its threads by the links of /proc/self/task finds none of the agent's.
//!
//! Chromium's zygote looks that way whether it has one thread before it forks its first child, and
//! ends where it has two. For the call the agent goes, as for those of `retire`. Other files are
//! not delayed: the call is made, and the path looked at. What is opened and read in pieces shows
//! the thread.
//!
//! Programs that were linked with a glibc before 2.33 call `__xstat` and its kin.
//!
//! *The story:* those names, statx, calls by way of `syscall` and /proc/PID/task were not known here.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

#[cfg(target_arch = "x86_64")]
use linux_raw_sys::general::{__NR_lstat, __NR_stat};
use linux_raw_sys::general::{__NR_newfstatat, __NR_statx, AT_FDCWD, AT_SYMLINK_NOFOLLOW};

use overspill_sys::text::take_number;
use overspill_sys::{Errno, mem};

use crate::{libc, retire};

/// Makes a call that looks at the file of this name; once more, without the agent, if that showed it.
/// A path that the kernel has not read is not looked at: EFAULT is its answer to what is none.
///
/// *The story:* `syscall(SYS_stat, (char *)1, ...)` ended the program.
///
/// # Safety
/// The path is null, or the call looks at it and fails where it is no string.
pub unsafe fn looking(path: *const c_char, mut call: impl FnMut() -> isize) -> isize {
    let result = call();
    // SAFETY: the kernel has read it as a string.
    let is_own = || unsafe { may_be_tasks(path) && names_own_tasks(CStr::from_ptr(path)) };
    if result == libc::FAILED || path.is_null() || !is_own() { result } else { retire::without(call) }
}

/// Most paths are told by how they begin.
///
/// # Safety
/// It is a string.
unsafe fn may_be_tasks(path: *const c_char) -> bool {
    // SAFETY: a string has a first character.
    match unsafe { *path } as u8 {
        // SAFETY: this one is not its end, so there is another one.
        b'/' => unsafe { *path.add(1) == b'p' as c_char },
        first => first == b's' || first.is_ascii_digit(),
    }
}

fn names_own_tasks(path: &CStr) -> bool {
    let path = path.to_bytes();
    let path = path.strip_prefix(b"/proc/").unwrap_or(path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let Some(process) = path.strip_suffix(b"/task") else { return false };
    let is_own = |number| number == u64::from(mem::process_id());
    process == b"self" || matches!(take_number(process, 10), Some((number, [])) if is_own(number))
}

/// # Safety
/// As for newfstatat(2).
unsafe fn status(directory: c_int, path: *const c_char, status: *mut c_void, flags: u32) -> c_int {
    let arguments = [directory as usize, path as usize, status as usize, flags as usize, 0, 0];
    // SAFETY: passed on to the caller; the call looks at the path.
    unsafe { looking(path, || libc::call(__NR_newfstatat, arguments)) as c_int }
}

/// The call that `__xstat` and `__lxstat` make in any libc, where there is such a one: sandboxes of
/// their time may allow no other.
///
/// # Safety
/// As for stat(2).
unsafe fn status_of_old(path: *const c_char, to: *mut c_void, flags: u32) -> c_int {
    #[cfg(target_arch = "x86_64")]
    {
        let number = if flags == 0 { __NR_stat } else { __NR_lstat };
        let arguments = [path as usize, to as usize, 0, 0, 0, 0];
        // SAFETY: as above.
        unsafe { looking(path, || libc::call(number, arguments)) as c_int }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: passed on to the caller.
    unsafe {
        status(AT_FDCWD, path, to, flags)
    }
}

/// Functions that programs call by two names: the second is for large files, which all are here.
macro_rules! by_two_names {
    ($($about:literal, $name:ident $large:ident ($($argument:ident: $kind:ty),*) $body:expr;)*) => {$(
        #[doc = $about]
        ///
        /// # Safety
        /// As for the function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            // SAFETY: passed on to the caller.
            unsafe { $body }
        }

        #[doc = $about]
        ///
        /// # Safety
        /// As for the function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $large($($argument: $kind),*) -> c_int {
            // SAFETY: passed on to the caller.
            unsafe { $body }
        }
    )*};
}

by_two_names! {
    "stat(3).",
    stat stat64 (path: *const c_char, to: *mut c_void) status(AT_FDCWD, path, to, 0);
    "lstat(3).",
    lstat lstat64 (path: *const c_char, to: *mut c_void) status(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
    "fstatat(3).",
    fstatat fstatat64 (at: c_int, path: *const c_char, to: *mut c_void, flags: c_int)
        status(at, path, to, flags as u32);
    "stat(3) of old programs.",
    __xstat __xstat64 (version: c_int, path: *const c_char, to: *mut c_void)
        of_version(version, || status_of_old(path, to, 0));
    "lstat(3) of old programs.",
    __lxstat __lxstat64 (version: c_int, path: *const c_char, to: *mut c_void)
        of_version(version, || status_of_old(path, to, AT_SYMLINK_NOFOLLOW));
    "fstatat(3) of old programs.",
    __fxstatat __fxstatat64 (version: c_int, at: c_int, path: *const c_char, to: *mut c_void, flags: c_int)
        of_version(version, || status(at, path, to, flags as u32));
}

/// There is one layout of the status on this processor, which has two numbers.
fn of_version(version: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if matches!(version, 0 | 1) { call() } else { libc::fail(Errno::INVAL) as c_int }
}

/// statx(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut c_void,
) -> c_int {
    let arguments = [at as usize, path as usize, flags as usize, mask as usize, to as usize, 0];
    // SAFETY: passed on to the caller; the call looks at the path.
    unsafe { looking(path, || libc::call(__NR_statx, arguments)) as c_int }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::format;

    #[test]
    fn own_threads_are_looked_at_by_several_names() {
        let own = std::process::id();
        let by_number = [format!("/proc/{own}/task"), format!("{own}/task/")];
        let names = by_number.iter().map(String::as_str).chain(["self/task", "/proc/self/task/"]);
        for name in names {
            let name = CString::new(name).unwrap();
            // SAFETY: it is a string.
            assert!(unsafe { may_be_tasks(name.as_ptr()) } && names_own_tasks(&name), "{name:?}");
        }
    }

    /// See [`looking`].
    #[test]
    fn what_is_no_path_is_the_kernels_to_refuse() {
        let mut to = [0u64; 32];
        let to = to.as_mut_ptr().cast();
        let wrong = core::ptr::dangling::<c_char>();
        // SAFETY: passed on to the caller.
        let new = |path, to, flags| unsafe { status(AT_FDCWD, path, to, flags) };
        for call in [status_of_old, new] {
            // SAFETY: there is room for the status; the kernel looks at the path.
            unsafe {
                assert_eq!((call(wrong, to, 0), libc::errno()), (-1, Errno::FAULT));
                assert_eq!(call(c"/".as_ptr(), to, AT_SYMLINK_NOFOLLOW), 0);
            }
        }
    }

    #[test]
    fn other_paths_are_let_through() {
        let others = ["", "/", "s", "/proc/1/task", "/proc/self", "/proc/self/task/1", "/tmp/task", "7/task"];
        for name in others {
            let name = CString::new(name).unwrap();
            // SAFETY: it is a string.
            assert!(!unsafe { may_be_tasks(name.as_ptr()) } || !names_own_tasks(&name), "{name:?}");
        }
    }
}
