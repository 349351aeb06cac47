//! What the process, or its calling thread, has used so far (getrusage), as words.

use crate::raw::{nr, syscall};

/// All threads of the process, those that have ended too; and the calling one.
pub const PROCESS: usize = 0;
pub const THREAD: usize = 1;

/// Where it is in `struct rusage`: the time in the kernel, in seconds and microseconds, is behind that
/// outside of it; faults that no device was waited for are behind both times and four sizes.
pub const SYSTEM_SECONDS: usize = 2;
pub const SYSTEM_MICROSECONDS: usize = 3;
pub const MINOR_FAULTS: usize = 8;

/// All of it.
pub fn of(whose: usize) -> [u64; 18] {
    let mut usage = [0; 18];
    // SAFETY: the words are as many as the structure has.
    let told = unsafe { syscall!(nr::__NR_getrusage, whose, usage.as_mut_ptr() as usize) };
    told.expect("getrusage of oneself cannot fail");
    usage
}
