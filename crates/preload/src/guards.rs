//! MADV_GUARD_INSTALL: the kernel takes the pages of a range away and puts marks in their place,
//! and tells nobody.
//!
//! What the engine has of such pages is worthless from then on. So whoever installs guards discards
//! the range as well, of which the engine hears and which leaves guards alone; and installs them
//! once more, since the engine may have put a page in the place of one before it heard. From the
//! first one on the engine looks for guards before it puts pages anywhere.
//!
//! *A reader's story:* over a gap in a range the advice is given, and the answer is ENOMEM: nothing was
//! discarded then, and where a guard was removed the page had its old bytes.
//!
//! *The story:* guards vanished under read-ahead, and what they had covered came back with its old
//! bytes (1674 of 2048 pages).

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use linux_raw_sys::general::{__NR_madvise, __NR_mincore, MADV_DONTNEED};

use overspill_sys::{Errno, PAGE_SIZE};

use crate::{filters, libc};

/// The advice (6.13).
pub const INSTALL: c_int = 102;

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Set before the program first installs a guard.
pub fn installed() -> &'static AtomicBool {
    &INSTALLED
}

/// Advice is given of which no more is known than that it is not refused here.
pub fn note(advice: c_int) {
    if advice == INSTALL {
        INSTALLED.store(true, SeqCst);
    }
}

/// Installs guards; `call` does what the program asked for.
pub fn install(address: usize, len: usize, call: impl Fn() -> isize) -> isize {
    INSTALLED.store(true, SeqCst);
    let result = call();
    let is_done = result == 0 || libc::errno() == Errno::NOMEM && has_gap(address, len);
    if is_done && !filters::is_filtered() {
        discard(address, len);
        return call();
    }
    result
}

/// Is some of a range not mapped? Then the rest has its guards all the same.
fn has_gap(address: usize, len: usize) -> bool {
    let mut residence = [0_u8; 1024];
    let step = residence.len() * PAGE_SIZE;
    (address..address.saturating_add(len)).step_by(step).any(|at| {
        let part = step.min(address + len - at);
        let arguments = [at, part, residence.as_mut_ptr() as usize, 0, 0, 0];
        // SAFETY: the call writes a byte for each page.
        unsafe { overspill_sys::call(__NR_mincore, arguments) == Err(Errno::NOMEM) }
    })
}

fn discard(address: usize, len: usize) {
    // SAFETY: the kernel has taken the content of the range away at the program's wish.
    let _ = unsafe { overspill_sys::call(__NR_madvise, [address, len, MADV_DONTNEED as usize, 0, 0, 0]) };
}
