//! Descriptors as the standard library has them, and as the raw calls take them.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use overspill_sys::Fd;

/// For raw calls.
pub fn raw(fd: impl Into<OwnedFd>) -> Fd {
    // SAFETY: the number was owned by what was just taken apart.
    unsafe { Fd::from_raw(fd.into().into_raw_fd()) }
}

/// For everything else.
pub fn owned(fd: Fd) -> OwnedFd {
    // SAFETY: as above.
    unsafe { OwnedFd::from_raw_fd(fd.into_raw()) }
}
