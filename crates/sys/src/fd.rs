//! An owned file descriptor, closed on drop by the raw system call.
//!
//! It is not `std`'s: dropping that one goes through libc and its errno, which an agent thread does not have.
//! It never retries or reports a failed close (the descriptor is gone either way).

use crate::Errno;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

use crate::event::Bell;
use crate::procfs;
use crate::raw::{nr, syscall};
use rustix::fd::{AsFd, BorrowedFd};

/// An owned file descriptor.
#[derive(Debug)]
pub struct Fd(i32);

impl Fd {
    /// Takes ownership of `raw`.
    ///
    /// # Safety
    /// `raw` is open in the calling thread's descriptor table and nobody else will close it.
    #[must_use]
    pub unsafe fn from_raw(raw: i32) -> Fd {
        assert!(raw >= 0, "a descriptor is not negative");
        Fd(raw)
    }

    /// The number, still owned by `self`.
    #[must_use]
    pub fn raw(&self) -> i32 {
        self.0
    }

    /// Gives the number away without closing it.
    #[must_use]
    pub fn into_raw(self) -> i32 {
        let raw = self.0;
        core::mem::forget(self);
        raw
    }

    /// A second descriptor of the same open file, close-on-exec.
    pub fn duplicate(&self) -> Result<Fd, Errno> {
        // SAFETY: F_DUPFD_CLOEXEC only makes a descriptor.
        let raw = unsafe { syscall!(nr::__NR_fcntl, self.0 as usize, nr::F_DUPFD_CLOEXEC as usize, 0)? };
        Ok(Fd(raw as i32))
    }

    /// An ioctl with a pointer argument.
    ///
    /// # Safety
    /// `argument` is what `command` expects, and its effect is sound.
    pub(crate) unsafe fn ioctl<T>(&self, command: u32, argument: *mut T) -> Result<usize, Errno> {
        // SAFETY: passed on to the caller.
        unsafe { syscall!(nr::__NR_ioctl, self.0 as usize, command as usize, argument as usize) }
    }

    /// Wraps the result of a system call that makes a descriptor.
    fn made(result: usize) -> Fd {
        Fd(i32::try_from(result).expect("the kernel makes descriptors within i32"))
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `self` keeps the descriptor open for the lifetime of the borrow.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is owned, and nobody uses it after this.
        let _ = unsafe { syscall!(nr::__NR_close, self.0 as usize) };
    }
}

/// See [`insist`].
static INSISTS: AtomicBool = AtomicBool::new(false);

/// From now on descriptors are made beyond the process's limit, where it may have that: for an agent, whose
/// descriptors are not the program's, but whose limit is.
///
/// *The story:* a program lowered its limit to ten, as sandboxes and daemons do. The list of its threads
/// could not be opened any more: nothing new was managed, and a robust lock's word went out with its page.
pub fn insist() {
    INSISTS.store(true, Relaxed);
}

/// Makes a descriptor by a system call.
pub(crate) fn make(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<Fd, Errno> {
    let made = if INSISTS.load(Relaxed) { procfs::with_more_descriptors(call) } else { call() };
    made.map(Fd::made)
}

/// Closes every descriptor of the calling thread's table (5.9).
///
/// # Safety
/// The table is private to the caller (a thread made without `CLONE_FILES`), and no [`Fd`] of it is used or
/// dropped later.
pub unsafe fn close_all_descriptors() -> Result<(), Errno> {
    // SAFETY: the caller owns the whole table.
    unsafe { syscall!(nr::__NR_close_range, 0, u32::MAX as usize, 0).map(drop) }
}

/// A low number that nothing is under, for [`with_room`]; -1: there is none.
static SPARE: AtomicI32 = AtomicI32::new(-1);

/// Keeps the lowest free number of the calling thread's table for [`with_room`]. To be called before
/// the table has much, and after each use.
pub fn keep_spare() {
    if SPARE.load(Relaxed) < 0
        && let Ok(bell) = Bell::new()
    {
        SPARE.store(bell.into_fd().into_raw(), Relaxed);
    }
}

/// The table is empty: what was kept in it is not there.
pub fn forget_spare() {
    SPARE.store(-1, Relaxed);
}

/// Does again what failed for want of a descriptor: with the number that was kept, or with a limit
/// that is higher for as long as it takes.
///
/// *The story:* a program lowered its limit to three descriptors and forked. The event of a fork
/// comes with a descriptor, which could not be made: it was never read, and everything waited for
/// ever.
pub fn with_room<T>(act: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let spare = SPARE.swap(-1, Relaxed);
    if spare >= 0 {
        // SAFETY: it was kept for this, and nobody else knows of it.
        drop(unsafe { Fd::from_raw(spare) });
    }
    procfs::with_more_descriptors(act)
}
