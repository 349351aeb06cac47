//! Structures and command numbers of userfaultfd, as the kernel lays them out
//! (include/uapi/linux/userfaultfd.h).

use crate::AddressRange;
use crate::raw::{IOC_READ, IOC_WRITE, ioctl_number};

/// The version of the interface; it never changed.
pub(super) const UFFD_API: u64 = 0xAA;
const KIND: u8 = 0xAA;
const READ_WRITE: u32 = IOC_READ | IOC_WRITE;

/// `struct uffdio_api`.
#[repr(C)]
pub(super) struct Api {
    pub(super) api: u64,
    pub(super) features: u64,
    pub(super) ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) len: u64,
}

impl Range {
    pub(super) fn of(range: &AddressRange) -> Range {
        Range { start: range.start as u64, len: range.len() as u64 }
    }
}

/// `struct uffdio_register`.
#[repr(C)]
pub(super) struct Register {
    pub(super) range: Range,
    pub(super) mode: u64,
    pub(super) ioctls: u64,
}

/// `struct uffdio_copy` and `struct uffdio_move`.
#[repr(C)]
pub(super) struct Transfer {
    pub(super) dst: usize,
    pub(super) src: usize,
    pub(super) len: usize,
    pub(super) mode: u64,
    pub(super) done: i64,
}

/// `struct uffdio_zeropage` and `struct uffdio_poison`.
#[repr(C)]
pub(super) struct Ranged {
    pub(super) range: Range,
    pub(super) mode: u64,
    pub(super) done: i64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
pub(super) struct WriteProtect {
    pub(super) range: Range,
    pub(super) mode: u64,
}

const _: () = {
    assert!(size_of::<usize>() == 8);
    assert!(size_of::<Api>() == 24);
    assert!(size_of::<Range>() == 16);
    assert!(size_of::<Register>() == 32);
    assert!(size_of::<Transfer>() == 40);
    assert!(size_of::<Ranged>() == 32);
    assert!(size_of::<WriteProtect>() == 24);
};

pub(super) const UFFDIO_API: u32 = ioctl_number(READ_WRITE, KIND, 0x3F, size_of::<Api>());
pub(super) const UFFDIO_REGISTER: u32 = ioctl_number(READ_WRITE, KIND, 0x00, size_of::<Register>());
pub(super) const UFFDIO_UNREGISTER: u32 = ioctl_number(IOC_READ, KIND, 0x01, size_of::<Range>());
pub(super) const UFFDIO_WAKE: u32 = ioctl_number(IOC_READ, KIND, 0x02, size_of::<Range>());
pub(super) const UFFDIO_COPY: u32 = ioctl_number(READ_WRITE, KIND, 0x03, size_of::<Transfer>());
pub(super) const UFFDIO_ZEROPAGE: u32 = ioctl_number(READ_WRITE, KIND, 0x04, size_of::<Ranged>());
pub(super) const UFFDIO_MOVE: u32 = ioctl_number(READ_WRITE, KIND, 0x05, size_of::<Transfer>());
pub(super) const UFFDIO_WRITEPROTECT: u32 = ioctl_number(READ_WRITE, KIND, 0x06, size_of::<WriteProtect>());
pub(super) const UFFDIO_POISON: u32 = ioctl_number(READ_WRITE, KIND, 0x08, size_of::<Ranged>());
/// Of /dev/userfaultfd; flags by value.
pub(super) const USERFAULTFD_IOC_NEW: u32 = ioctl_number(0, KIND, 0x00, 0);

const _: () = {
    assert!(UFFDIO_API == 0xC018_AA3F);
    assert!(UFFDIO_REGISTER == 0xC020_AA00);
    assert!(UFFDIO_UNREGISTER == 0x8010_AA01);
    assert!(UFFDIO_COPY == 0xC028_AA03);
};

pub(super) const WRITEPROTECT_MODE_WP: u64 = 1 << 0;
pub(super) const WRITEPROTECT_MODE_DONTWAKE: u64 = 1 << 1;
