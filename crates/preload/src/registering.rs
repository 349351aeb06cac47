//! The program's own userfaultfd comes before the agent's.
//!
//! The kernel gives a mapping to one userfaultfd at a time, and refuses others (EBUSY). Where it
//! refuses the program, the agent brings everything in, gives up its registrations and goes, for as
//! long as the call takes; afterwards it manages what is left. That is long for a large program,
//! and rare: who registers memory does so once.
//!
//! Who moves pages with it (UFFDIO_MOVE) takes them from where they lie, and passes over what is not
//! there: a page that was out would be lost. Such a program is not managed from its first move on.
//!
//! *The story:* programs that serve their own faults got EBUSY, which bare they cannot get.
//!
//! *The other story:* the kernel's own tests of userfaultfd moved memory of which half was out: a
//! move ended in the middle (EAGAIN), or moved nothing where it should have, and the test waited.

use core::ffi::{c_int, c_ulong};

use linux_raw_sys::general::__NR_ioctl;
use overspill_sys::Errno;

use crate::{foreign, libc, retire};

/// UFFDIO_REGISTER, for a structure of 32 bytes.
const REGISTER: u32 = 0xc020_aa00;
/// UFFDIO_MOVE, for a structure of 40 bytes.
const MOVE: u32 = 0xc028_aa05;

/// ioctl(2). The argument is whatever the command takes.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, command: c_ulong, argument: usize) -> c_int {
    foreign::pass!(ioctl(fd, command, argument));
    let arguments = [fd as usize, command as usize, argument, 0, 0, 0];
    // SAFETY: passed on to the caller.
    let call = || unsafe { overspill_sys::call(__NR_ioctl, arguments) };
    // The kernel looks at 32 bits, whatever the program's type has made of the others.
    let command = command as u32;
    if command == MOVE {
        retire::before_moves();
    }
    let mut result = call();
    if command == REGISTER && result == Err(Errno::BUSY) {
        retire::without(|| {
            result = call();
            0
        });
    }
    result.map_or_else(|errno| libc::fail(errno) as c_int, |value| value as c_int)
}
