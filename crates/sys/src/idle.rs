//! How deep idle processors may sleep: the machine's bound on the time that one takes to wake up.
//! From pm_qos_interface.rst of the kernel's documentation.

use crate::file::{self, Open};
use crate::{Errno, Fd};

/// Microseconds that stand for "no bound".
const ANY: i32 = 2_000_000_000;

/// A bound on behalf of whoever holds this. The strictest one of the machine holds; this one ends
/// with its descriptor, however its owner ends.
#[derive(Debug)]
pub struct WakeLatency {
    fd: Fd,
}

impl WakeLatency {
    /// Without a bound at first. `ACCES`, `PERM`: a privilege. `NOENT`: hidden from this container.
    pub fn open() -> Result<WakeLatency, Errno> {
        let latency = WakeLatency { fd: file::open(c"/dev/cpu_dma_latency", Open::WRITE_ONLY)? };
        // Opened, it has the strictest bound of some kernels until it is told one.
        latency.set(ANY)?;
        Ok(latency)
    }

    /// Idle processors wake up at once: they look for work instead of sleeping.
    pub fn forbid_sleep(&self) -> Result<(), Errno> {
        self.set(0)
    }

    /// They may sleep.
    pub fn allow_sleep(&self) -> Result<(), Errno> {
        self.set(ANY)
    }

    fn set(&self, microseconds: i32) -> Result<(), Errno> {
        file::write(self.fd.raw(), &microseconds.to_ne_bytes()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_forbidden_and_allowed() {
        match WakeLatency::open() {
            Ok(latency) => {
                latency.forbid_sleep().unwrap();
                latency.allow_sleep().unwrap();
            }
            Err(errno) => assert!(matches!(errno, Errno::ACCESS | Errno::PERM | Errno::NOENT), "{errno:?}"),
        }
    }
}
