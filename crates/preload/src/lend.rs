//! Notices that the program is about to lend pages to the kernel by reference: vmsplice, sockets
//! with SO_ZEROCOPY, io_uring.
//!
//! From then on the engine gives every frame back to the kernel instead of using it again: see
//! `engine/lending.rs`, which also finds what these functions do not hear of.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use linux_raw_sys::general::{__NR_setsockopt, __NR_vmsplice};

use crate::libc;

const SOL_SOCKET: c_int = 1;
const SO_ZEROCOPY: c_int = 60;

static LENT: AtomicBool = AtomicBool::new(false);

/// A call by number that is about to be made: vmsplice, io_uring_setup, or setsockopt with these arguments.
pub fn announce(number: u32, level: usize, option: usize) {
    if number != __NR_setsockopt || is_zerocopy(level as c_int, option as c_int) {
        LENT.store(true, SeqCst);
    }
}

fn is_zerocopy(level: c_int, option: c_int) -> bool {
    level == SOL_SOCKET && option == SO_ZEROCOPY
}

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
    if is_zerocopy(level, option) {
        LENT.store(true, SeqCst);
    }
    let arguments = [socket as usize, level as usize, option as usize, value as usize, len as usize, 0];
    // SAFETY: passed on to the caller.
    unsafe { libc::call(__NR_setsockopt, arguments) as c_int }
}
