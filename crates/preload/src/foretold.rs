//! What a program says of a file by its descriptor, and of memory by POSIX's name: posix_fadvise(2),
//! readahead(2), posix_madvise(3).
//!
//! The kernel would read into its page cache, which nobody looks at where a mapping is managed. So
//! what is asked for ahead is asked of the agent, and of the kernel where no managed mapping shows
//! it. How a file will be used is told to both: the program may read(2) it, too.

use core::ffi::{c_int, c_void};
use core::ops::Range;

use linux_raw_sys::general::{
    __NR_fadvise64, __NR_madvise, __NR_readahead, MADV_DONTNEED, MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL,
    POSIX_FADV_NORMAL, POSIX_FADV_RANDOM, POSIX_FADV_SEQUENTIAL, POSIX_FADV_WILLNEED,
};
use overspill_sys::Errno;

use crate::{file_hints, foreign, libc};

/// Asks the kernel for a part of what a program has asked for ahead.
fn foretell(call: u32, fd: c_int, bytes: Range<u64>, advice: c_int) -> Result<(), Errno> {
    let len = (bytes.end - bytes.start) as usize;
    let arguments = [fd as usize, bytes.start as usize, len, advice as usize, 0, 0];
    // SAFETY: neither of the two calls looks at memory.
    unsafe { overspill_sys::call(call, arguments).map(drop) }
}

/// posix_fadvise(2): it returns what is wrong, and leaves errno alone.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fadvise(fd: c_int, offset: i64, len: i64, advice: c_int) -> c_int {
    foreign::pass!(posix_fadvise(fd, offset, len, advice));
    if let (Ok(from), Ok(bytes)) = (u64::try_from(offset), u64::try_from(len)) {
        match advice as u32 {
            POSIX_FADV_WILLNEED => {
                let kernel = |gap: Range<u64>| foretell(__NR_fadvise64, fd, gap, advice);
                if let Some(asked) = file_hints::will_need(fd, from, bytes, kernel) {
                    return asked.err().map_or(0, Errno::raw_os_error);
                }
            }
            POSIX_FADV_NORMAL => file_hints::advise_file(fd, from, bytes, MADV_NORMAL),
            POSIX_FADV_RANDOM => file_hints::advise_file(fd, from, bytes, MADV_RANDOM),
            POSIX_FADV_SEQUENTIAL => file_hints::advise_file(fd, from, bytes, MADV_SEQUENTIAL),
            _ => {}
        }
    }
    let arguments = [fd as usize, offset as usize, len as usize, advice as usize, 0, 0];
    // SAFETY: passed on to the caller.
    let result = unsafe { overspill_sys::call(__NR_fadvise64, arguments) };
    result.err().map_or(0, Errno::raw_os_error)
}

/// [`posix_fadvise`], by the name that programs with large files use.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fadvise64(fd: c_int, offset: i64, len: i64, advice: c_int) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { posix_fadvise(fd, offset, len, advice) }
}

/// readahead(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readahead(fd: c_int, offset: i64, count: usize) -> isize {
    foreign::pass!(readahead(fd, offset, count));
    let kernel = |gap: Range<u64>| foretell(__NR_readahead, fd, gap, 0);
    if let Ok(from) = u64::try_from(offset)
        && count > 0
        && let Some(asked) = file_hints::will_need(fd, from, count as u64, kernel)
    {
        return asked.map_or_else(libc::fail, |()| 0);
    }
    // SAFETY: passed on to the caller.
    unsafe { libc::call(__NR_readahead, [fd as usize, offset as usize, count, 0, 0, 0]) }
}

/// posix_madvise(3): it returns what is wrong, and discards nothing.
///
/// # Safety
/// As for the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(start: *mut c_void, len: usize, advice: c_int) -> c_int {
    foreign::pass!(posix_madvise(start, len, advice));
    if advice as u32 == MADV_DONTNEED {
        return 0;
    }
    if let Some(advised) = file_hints::advise(start as usize, len, advice) {
        return advised.err().map_or(0, Errno::raw_os_error);
    }
    // SAFETY: passed on to the caller.
    let result =
        unsafe { overspill_sys::call(__NR_madvise, [start as usize, len, advice as usize, 0, 0, 0]) };
    result.err().map_or(0, Errno::raw_os_error)
}
