//! Unpredictable numbers.

use rustix::rand::{GetRandomFlags, getrandom};

/// 64 bits from the kernel's generator; from the clock in the instant after boot when that has none yet.
#[must_use]
pub fn unpredictable() -> u64 {
    let mut bytes = [0u8; 8];
    match getrandom(&mut bytes, GetRandomFlags::NONBLOCK) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => crate::clock::monotonic_ns(),
    }
}
