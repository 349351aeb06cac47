//! Unpredictable numbers.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::Errno;

/// 64 bits from the kernel's generator; from the clock in the instant after boot when that has none yet.
#[must_use]
pub fn unpredictable() -> u64 {
    let mut bytes = [0u8; 8];
    match getrandom(&mut bytes, GetRandomFlags::NONBLOCK) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => crate::clock::monotonic_ns(),
    }
}

/// Fills all of `bytes` from the kernel's generator, for keys; waits for it in the instant after
/// boot.
pub fn fill(bytes: &mut [u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match getrandom(&mut bytes[done..], GetRandomFlags::empty()) {
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_filled_and_no_two_times_alike() {
        let (mut one, mut other) = ([0; 512], [0; 512]);
        fill(&mut one).unwrap();
        fill(&mut other).unwrap();
        assert!(one != other && one[480..].iter().any(|&byte| byte != 0));
    }
}
