//! Errors that pass: the kernel could not do something just then, which says nothing of the device.
//!
//! Such a request is made again after a pause that grows, for as long as a device may take for one that
//! it does (30 s is the kernel's own time-out of disks). An error that stays for that long is believed.
//! Nobody waits for it but who waits for its pages.
//!
//! *The story:* ten tries within ten milliseconds, and the area was given up: the program had lost its
//! only place, or went on above its budget, for a moment in which the machine had no memory.

use overspill_mm::types::Nanos;
use overspill_sys::Errno;

const PAUSE_NS_MIN: Nanos = 1_000_000;
const PAUSE_NS_MAX: Nanos = 256_000_000;

/// For so long an error of a swap area passes.
pub(crate) const AREA_NS: Nanos = 30_000_000_000;
/// ... and one of a file of the program's, where a fault that the kernel answers would not wait at all.
pub(crate) const FILE_NS: Nanos = 1_000_000_000;

/// Says an error only that the kernel could not do it just then, and nothing of the device?
pub(crate) fn passes(errno: Errno) -> bool {
    matches!(errno, Errno::INTR | Errno::AGAIN | Errno::NOMEM | Errno::CANCELED)
}

/// How long a request has been refused, and when it is made again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    since: Nanos,
    pause: Nanos,
}

impl Refused {
    /// It was, for the first time.
    pub fn first(now: Nanos) -> Self {
        Refused { since: now, pause: PAUSE_NS_MIN }
    }

    /// The pause until the next try, which is longer each time. None: it was refused for `patience` and
    /// more.
    pub fn pause(&mut self, now: Nanos, patience: Nanos) -> Option<Nanos> {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_NS_MAX);
        (now < self.since + patience).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See the head of the file.
    #[test]
    fn pauses_grow_and_come_to_an_end() {
        let (mut now, mut tries) = (7, 0);
        let mut refused = Refused::first(now);
        let mut last = 0;
        while let Some(pause) = refused.pause(now, AREA_NS) {
            assert!((last..=PAUSE_NS_MAX).contains(&pause));
            (now, last, tries) = (now + pause, pause, tries + 1);
        }
        assert!((AREA_NS..AREA_NS + 2 * PAUSE_NS_MAX).contains(&now), "for {now} ns");
        assert!((100..200).contains(&tries), "{tries} tries");
    }

    #[test]
    fn what_a_device_says_does_not_pass() {
        let said = [Errno::IO, Errno::NOSPC, Errno::NODEV, Errno::NXIO, Errno::DQUOT, Errno::TIMEDOUT];
        assert!(!said.into_iter().any(passes));
    }
}
