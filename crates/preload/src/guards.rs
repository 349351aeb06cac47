//! MADV_GUARD_INSTALL: the kernel takes the pages of a range away and puts marks in their place,
//! and tells nobody.
//!
//! What the engine has of such pages is worthless from then on. So whoever installs guards discards
//! the range as well, of which the engine hears and which leaves guards alone; and installs them
//! once more, since the engine may have put a page in the place of one before it heard. From the
//! first one on the engine looks for guards before it puts pages anywhere.
//!
//! *The story:* guards vanished under read-ahead, and what they had covered came back with its old
//! bytes (1674 of 2048 pages).

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use linux_raw_sys::general::{__NR_madvise, __NR_process_madvise, MADV_DONTNEED};

use crate::{filters, libc};

/// The advice (6.13).
pub const INSTALL: c_int = 102;

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Set before the program first installs a guard.
pub fn installed() -> &'static AtomicBool {
    &INSTALLED
}

/// Installs guards; `call` does what the program asked for.
pub fn install(address: usize, len: usize, call: impl Fn() -> isize) -> isize {
    INSTALLED.store(true, SeqCst);
    let result = call();
    if result == 0 && !filters::is_filtered() {
        discard(address, len);
        return call();
    }
    result
}

fn discard(address: usize, len: usize) {
    // SAFETY: the kernel has taken the content of the range away at the program's wish.
    let _ = unsafe { overspill_sys::call(__NR_madvise, [address, len, MADV_DONTNEED as usize, 0, 0, 0]) };
}

/// A part of a vector.
#[repr(C)]
struct Piece {
    base: usize,
    len: usize,
}

/// process_madvise(2). Guards are only installed in the caller's own process.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_madvise(
    process: c_int,
    pieces: *const c_void,
    count: usize,
    advice: c_int,
    flags: c_uint,
) -> isize {
    let call = || {
        let arguments = [process as usize, pieces as usize, count, advice as usize, flags as usize, 0];
        // SAFETY: passed on to the caller.
        unsafe { libc::call(__NR_process_madvise, arguments) }
    };
    if advice != INSTALL {
        return call();
    }
    INSTALLED.store(true, SeqCst);
    let done = call();
    if done <= 0 || filters::is_filtered() {
        return done;
    }
    // SAFETY: the kernel has read as many pieces as it took for so many bytes.
    let pieces = (0..count).map(|index| unsafe { &*pieces.cast::<Piece>().add(index) });
    let mut left = done.unsigned_abs();
    for piece in pieces {
        let len = piece.len.min(left);
        left -= len;
        if len > 0 {
            discard(piece.base, len);
        }
    }
    call()
}
