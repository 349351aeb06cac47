//! MADV_POPULATE in pieces.
//!
//! The kernel holds the lock of the address space for the whole of such a call. Fresh memory is registered under the same
//! lock, so one call for more than the budget would fill it all before the agent could manage any of it. In pieces, the
//! agent gets its turn in between, and from then on the call waits for pages as any touch does.

use core::ffi::{c_int, c_long, c_void};

use linux_raw_sys::general::{__NR_madvise, MADV_POPULATE_READ, MADV_POPULATE_WRITE};

use crate::syscall;

/// A piece: about a millisecond of fresh pages.
const PIECE_BYTES: usize = 2 << 20;

/// madvise(2), which populates in pieces.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, len: usize, advice: c_int) -> c_int {
    // SAFETY: passed on to the caller.
    let call =
        |at: *mut c_void, len: usize| unsafe { syscall(__NR_madvise as c_long, at, len, advice) as c_int };
    let populates = [MADV_POPULATE_READ, MADV_POPULATE_WRITE].contains(&(advice as u32));
    if !populates || (address as usize).checked_add(len).is_none() {
        return call(address, len);
    }
    let mut done = 0;
    loop {
        let piece = (len - done).min(PIECE_BYTES);
        let result = call(address.wrapping_byte_add(done), piece);
        done += piece;
        if result != 0 || done == len {
            return result;
        }
        // The agent may be waiting for this very processor.
        overspill_sys::thread::yield_now();
    }
}
