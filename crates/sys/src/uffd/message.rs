//! Messages of a userfaultfd, raw and decoded.

use crate::Fd;

/// One message as the kernel writes it (`struct uffd_msg`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawMsg {
    event: u8,
    reserved: [u8; 7],
    arguments: [u64; 3],
}
const _: () = assert!(size_of::<RawMsg>() == 32);

/// A decoded message.
#[derive(Debug)]
pub enum Message {
    /// A thread touched a page and waits. The same fault may be told twice.
    Fault {
        /// What it touched: the page's address, or the exact one with `EXACT_ADDRESS`.
        address: usize,
        /// It wanted to store.
        write: bool,
        /// It stored to a write-protected page.
        wp: bool,
        /// The page exists and is only not mapped.
        minor: bool,
        /// The thread, with `THREAD_ID`; otherwise 0.
        thread_id: u32,
    },
    /// The process forked; this descriptor serves the child.
    Fork {
        /// The child's descriptor.
        fd: Fd,
    },
    /// A mapping moved (or shrank or grew in place: `from == to`).
    Remap {
        /// Old start.
        from: usize,
        /// New start.
        to: usize,
        /// Old length in bytes.
        len: usize,
    },
    /// The content of a range is about to be dropped.
    Remove {
        /// First address.
        start: usize,
        /// End.
        end: usize,
    },
    /// A range is no longer mapped.
    Unmap {
        /// First address.
        start: usize,
        /// End.
        end: usize,
    },
    /// A kind this crate does not know.
    Other(u8),
}

const EVENT_PAGEFAULT: u8 = 0x12;
const EVENT_FORK: u8 = 0x13;
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;
const FAULT_WRITE: u64 = 1 << 0;
const FAULT_WP: u64 = 1 << 1;
const FAULT_MINOR: u64 = 1 << 2;

impl RawMsg {
    /// Decodes a message that [`super::Uffd::read_messages`] wrote. Each message is decoded once: a fork's
    /// descriptor is owned by the result.
    #[must_use]
    pub fn decode(&self) -> Message {
        let [a, b, c] = self.arguments;
        let (first, second, third) = (a as usize, b as usize, c as usize);
        match self.event {
            EVENT_PAGEFAULT => Message::Fault {
                address: second,
                write: a & FAULT_WRITE != 0,
                wp: a & FAULT_WP != 0,
                minor: a & FAULT_MINOR != 0,
                thread_id: c as u32,
            },
            // SAFETY: the kernel made the descriptor for the reader of the message.
            EVENT_FORK => Message::Fork { fd: unsafe { Fd::from_raw(a as u32 as i32) } },
            EVENT_REMAP => Message::Remap { from: first, to: second, len: third },
            EVENT_REMOVE => Message::Remove { start: first, end: second },
            EVENT_UNMAP => Message::Unmap { start: first, end: second },
            other => Message::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(event: u8, arguments: [u64; 3]) -> RawMsg {
        RawMsg { event, reserved: [0; 7], arguments }
    }

    #[test]
    fn faults() {
        let Message::Fault { address, write, wp, minor, thread_id } = raw(0x12, [0b011, 0x7000, 42]).decode()
        else {
            panic!("not a fault")
        };
        assert_eq!((address, write, wp, minor, thread_id), (0x7000, true, true, false, 42));
    }

    #[test]
    fn events() {
        assert!(matches!(raw(0x14, [1, 2, 3]).decode(), Message::Remap { from: 1, to: 2, len: 3 }));
        assert!(matches!(raw(0x15, [1, 2, 3]).decode(), Message::Remove { start: 1, end: 2 }));
        assert!(matches!(raw(0x16, [1, 2, 3]).decode(), Message::Unmap { start: 1, end: 2 }));
        assert!(matches!(raw(0x77, [1, 2, 3]).decode(), Message::Other(0x77)));
    }
}
