//! Pages that the program lends to the kernel by reference: vmsplice, and sockets with SO_ZEROCOPY.
//!
//! Direct I/O and io_uring pin the pages they use, and UFFDIO_MOVE leaves pinned pages alone. These two only count a
//! reference, which nothing in user space can see: the page would be moved out, and its frame, still read by the
//! borrower, would be filled with something else. So the agent watches for the calls; from the first one on it gives
//! every frame back to the kernel instead of using it again, and the borrower keeps what it was lent.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use linux_raw_sys::general::{__NR_setsockopt, __NR_vmsplice};

use crate::libc;

const SOL_SOCKET: c_int = 1;
const SO_ZEROCOPY: c_int = 60;

static LENT: AtomicBool = AtomicBool::new(false);

/// Set before the program first lends a page, or when it prepares to.
pub fn lent() -> &'static AtomicBool {
    &LENT
}

/// vmsplice(2), watched.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmsplice(fd: c_int, pieces: *const c_void, count: usize, flags: c_uint) -> isize {
    LENT.store(true, SeqCst);
    // SAFETY: passed on to the caller.
    unsafe { libc::call(__NR_vmsplice, [fd as usize, pieces as usize, count, flags as usize, 0, 0]) }
}

/// setsockopt(2), watched.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: c_uint,
) -> c_int {
    if level == SOL_SOCKET && option == SO_ZEROCOPY {
        LENT.store(true, SeqCst);
    }
    let arguments = [socket as usize, level as usize, option as usize, value as usize, len as usize, 0];
    // SAFETY: passed on to the caller.
    unsafe { libc::call(__NR_setsockopt, arguments) as c_int }
}
