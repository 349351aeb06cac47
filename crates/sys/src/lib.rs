//! The only crate that talks to the kernel raw.
//!
//! Every function states its preconditions and the kernel version it needs (no version = older than 5.11, the
//! oldest kernel the pager starts on). Nothing here uses libc, errno, thread-locals, the standard library or
//! the program's `malloc`: the code runs in a thread that libc does not know, inside programs that were not
//! made for it. Errors are the kernel's own numbers ([`Errno`]); judging them is the caller's business.
//!
//! What it never does: decide anything about pages. Policy lives in `mm`, control flow in `pager`.
#![cfg_attr(not(test), no_std)]

pub mod alarm;
pub mod alloc;
pub mod children;
pub mod clock;
pub mod deep_sleep;
pub mod descriptors;
pub mod event;
pub mod fd;
pub mod file;
pub mod futex;
pub mod idle;
pub mod io;
pub mod lease;
pub mod lock;
pub mod maps;
pub mod mem;
pub mod pagemap;
pub mod probe;
pub mod proc_place;
pub mod procfs;
pub mod random;
mod raw;
pub mod reserve;
pub mod secret;
pub mod socket;
pub mod text;
pub mod thread;
pub mod thread_call;
pub mod through;
pub mod uffd;
pub mod uring;
mod usage;

pub use fd::Fd;
pub use raw::call;
pub use rustix::io::Errno;

/// Size of a page in bytes; the crate supports no other.
pub const PAGE_SIZE: usize = 4096;

/// A half-open range of addresses, `start..end`.
pub type AddressRange = core::ops::Range<usize>;

/// Have the two ranges an address in common?
#[must_use]
pub fn overlap(one: &AddressRange, other: &AddressRange) -> bool {
    one.start < other.end && other.start < one.end
}
