//! Waiting on a word and waking who waits.
//!
//! It never spins and never loops: a wait may end for no reason, so callers look at the word again.

use crate::Errno;
use crate::raw::{nr, syscall};
use core::sync::atomic::AtomicU32;

/// Who can wait on the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Threads of this process.
    Private,
    /// Also other processes that map the same memory, and the kernel when a thread ends.
    Shared,
}

fn operation(operation: u32, scope: Scope) -> usize {
    (operation | if scope == Scope::Private { nr::FUTEX_PRIVATE_FLAG } else { 0 }) as usize
}

/// Sleeps while `word` holds `expected`, at most `timeout_ns`.
///
/// EAGAIN: it holds something else. ETIMEDOUT, EINTR: look again.
pub fn wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>, scope: Scope) -> Result<(), Errno> {
    let timespec = timeout_ns.map(crate::clock::Timespec::from_ns);
    let timeout = timespec.as_ref().map_or(0, |timespec| core::ptr::from_ref(timespec) as usize);
    let (address, operation) = (word.as_ptr() as usize, operation(nr::FUTEX_WAIT, scope));
    // SAFETY: the word and the timespec outlive the call.
    unsafe { syscall!(nr::__NR_futex, address, operation, expected as usize, timeout).map(drop) }
}

/// Wakes up to `count` who wait on `word`; returns how many there were.
pub fn wake(word: &AtomicU32, count: u32, scope: Scope) -> usize {
    let (address, operation) = (word.as_ptr() as usize, operation(nr::FUTEX_WAKE, scope));
    let count = count.min(i32::MAX as u32) as usize;
    // SAFETY: the word is valid.
    unsafe { syscall!(nr::__NR_futex, address, operation, count).expect("waking a valid word cannot fail") }
}
