//! `futex(2)` on words that may be out of RAM.

use std::sync::atomic::AtomicU32;

use crate::sys::errno;

/// A relative timeout.
#[must_use]
pub fn timeout_ms(milliseconds: i64) -> libc::timespec {
    libc::timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 }
}

/// Sleeps while the word is `expected`; the errno when it does not wake up by a wake.
pub fn wait(word: &AtomicU32, expected: u32, timeout: *const libc::timespec) -> Result<(), i32> {
    call(word, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, expected, timeout as usize, 0, 0).map(drop)
}

/// Wakes up to `count` sleepers; how many there were.
pub fn wake(word: &AtomicU32, count: u32) -> Result<usize, i32> {
    call(word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, count, 0, 0, 0)
}

/// Moves all sleepers from one word to another if the first is `expected`; how many were woken or moved.
pub fn requeue(from: &AtomicU32, to: &AtomicU32, expected: u32) -> Result<usize, i32> {
    let operation = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
    call(from, operation, 0, i32::MAX as usize, to.as_ptr() as usize, expected)
}

/// Adds `operand` to `second` in the kernel and wakes the sleepers on both words.
pub fn wake_add(first: &AtomicU32, second: &AtomicU32, operand: u32) -> Result<usize, i32> {
    // op 1 = FUTEX_OP_ADD in bits 28.., comparison 5 = FUTEX_OP_CMP_GE with 0 in the lower bits: wake both.
    let encoded = (1 << 28) | (5 << 24) | ((operand & 0xfff) << 12);
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    call(first, operation, 1, 1, second.as_ptr() as usize, encoded)
}

/// Takes a priority-inheriting lock in the kernel.
pub fn lock_pi(word: &AtomicU32) -> Result<(), i32> {
    call(word, libc::FUTEX_LOCK_PI | libc::FUTEX_PRIVATE_FLAG, 0, 0, 0, 0).map(drop)
}

/// Gives it back in the kernel.
pub fn unlock_pi(word: &AtomicU32) -> Result<(), i32> {
    call(word, libc::FUTEX_UNLOCK_PI | libc::FUTEX_PRIVATE_FLAG, 0, 0, 0, 0).map(drop)
}

fn call(
    word: &AtomicU32,
    operation: i32,
    value: u32,
    timeout_or_value2: usize,
    second: usize,
    value3: u32,
) -> Result<usize, i32> {
    // SAFETY: the words are borrowed for the call; the kernel checks the other addresses itself.
    let result = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, timeout_or_value2, second, value3)
    };
    usize::try_from(result).map_err(|_| errno())
}
