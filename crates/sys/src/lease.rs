//! Read leases: who holds one on a file hears of it before somebody else writes to the file.
//!
//! The kernel lets whoever opens the file for writing, or cuts it, wait until the lease is given up
//! or `fs.lease-break-time` is over. A lease is refused while anybody has the file open for writing
//! or mapped shared and writable, and to who does not own it (fcntl(2)).

use crate::raw::{nr, syscall};
use crate::{Errno, Fd, thread};

const F_SETOWN_EX: usize = 15;
const F_OWNER_TID: i32 = 0;

/// fcntl's `f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: i32,
    id: i32,
}

/// Takes a lease on a file that is open for reading only. The signal of its break goes to the
/// calling thread, which has it blocked and asks [`is_breaking`].
///
/// EAGAIN: somebody writes to it. EACCES: it is somebody else's.
pub fn take(fd: &Fd) -> Result<(), Errno> {
    let owner = Owner { kind: F_OWNER_TID, id: thread::id() as i32 };
    // SAFETY: the structure is the call's. First, or the signal would go to the whole process.
    unsafe { syscall!(nr::__NR_fcntl, fd.raw() as usize, F_SETOWN_EX, &raw const owner as usize)? };
    set(fd, nr::F_RDLCK)
}

/// Gives it up: whoever waited for that goes on.
pub fn give_up(fd: &Fd) -> Result<(), Errno> {
    set(fd, nr::F_UNLCK)
}

/// Is the lease to be given up?
#[must_use]
pub fn is_breaking(fd: &Fd) -> bool {
    // SAFETY: asks.
    let kind = unsafe { syscall!(nr::__NR_fcntl, fd.raw() as usize, nr::F_GETLEASE as usize) };
    kind != Ok(nr::F_RDLCK as usize)
}

fn set(fd: &Fd, kind: u32) -> Result<(), Errno> {
    // SAFETY: changes what the kernel keeps for the open file.
    unsafe { syscall!(nr::__NR_fcntl, fd.raw() as usize, nr::F_SETLEASE as usize, kind as usize).map(drop) }
}
