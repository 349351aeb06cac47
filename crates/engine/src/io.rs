//! The way to the device: io_uring, or threads with preadv/pwritev where io_uring is refused.

use overspill_sys::file;
use overspill_sys::io::IoEngine;
use overspill_sys::mem::IoVec;
use overspill_sys::uring::{Cqe, Ring, Sqe};
use overspill_sys::{AddressRange, Errno, Fd};

/// Requests that fit between two submissions to the ring.
const ENTRIES: u32 = 256;
/// Completions that the ring holds; more wait in the kernel.
const COMPLETIONS: u32 = 2048;
/// Requests that the threads take at once, and their number.
const DEPTH: u32 = 256;
const WORKERS: u32 = 8;

/// What became of [`Io::punch`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Punched {
    Ordered,
    Done,
    Refused,
}

/// The requests of one reactor.
#[expect(clippy::large_enum_variant, reason = "there is one an engine")]
pub(crate) enum Io {
    Ring(Ring),
    Threads(IoEngine),
}

impl Io {
    /// Opens io_uring, or threads where it is refused or not wanted.
    pub fn new(use_uring: bool) -> Result<Self, Errno> {
        if use_uring && let Ok(ring) = Ring::best(ENTRIES, COMPLETIONS) {
            return Ok(Io::Ring(ring));
        }
        IoEngine::threads(DEPTH, WORKERS).map(Io::Threads)
    }

    /// The descriptor that is readable when a request ended.
    pub fn descriptor(&self) -> &Fd {
        match self {
            Io::Ring(ring) => ring.fd(),
            Io::Threads(threads) => threads.wait_fd(),
        }
    }

    /// Ordinary memory of its own.
    pub fn range(&self) -> AddressRange {
        match self {
            Io::Ring(_) => 0..0,
            Io::Threads(threads) => threads.range(),
        }
    }

    /// Is it io_uring?
    pub fn is_uring(&self) -> bool {
        matches!(self, Io::Ring(_))
    }

    /// Requests that one of several areas may have under way: whatever becomes of it, there is room for
    /// those of the others.
    ///
    /// *The story:* without io_uring an area that did not answer had all threads.
    pub fn share(&self) -> u32 {
        match self {
            Io::Ring(_) => ENTRIES,
            Io::Threads(_) => WORKERS / 2,
        }
    }

    /// Orders a transfer between `pieces` and the file at `offset`. The pieces stay as they are
    /// until it ended. False when too much is under way: once something has ended it will be taken.
    pub fn order(&mut self, write: bool, fd: i32, pieces: &[IoVec], offset: u64, tag: u64) -> bool {
        match self {
            Io::Ring(ring) => {
                let request = request(write, fd, pieces, offset, tag);
                if ring.pending() == ring.entries() && ring.submit().is_err() {
                    return false;
                }
                // SAFETY: the pieces and the staging frames they name stay put until the completion
                // was popped: the transfer table keeps the first, mm keeps the pages out of
                // everybody's reach meanwhile.
                unsafe { ring.push(request) }.is_ok()
            }
            // SAFETY: as above.
            Io::Threads(threads) => unsafe {
                if write {
                    threads.push_write(fd, pieces, offset, tag).is_ok()
                } else {
                    threads.push_read(fd, pieces, offset, tag).is_ok()
                }
            },
        }
    }

    /// Orders that the file's blocks from `offset` on are given back. False when too much is under
    /// way, and where there is no ring: then it is done when this returns, and nothing ends later.
    pub fn punch(&mut self, fd: &Fd, offset: u64, bytes: u64, tag: u64) -> Punched {
        let Io::Ring(ring) = self else {
            // A file system that cannot keeps its blocks.
            let punched = file::punch_hole(fd, offset, bytes);
            return if punched.is_ok() { Punched::Done } else { Punched::Refused };
        };
        if ring.pending() == ring.entries() && ring.submit().is_err() {
            return Punched::Refused;
        }
        let request = Sqe::fallocate(fd.raw(), file::PUNCH_HOLE, offset, bytes, tag);
        // SAFETY: the request names no memory.
        if unsafe { ring.push(request) }.is_ok() { Punched::Ordered } else { Punched::Refused }
    }

    /// Orders that a device is told that nobody needs these bytes. False: it was not ordered.
    pub fn discard(&mut self, fd: &Fd, offset: u64, bytes: u64, tag: u64) -> bool {
        let Io::Ring(ring) = self else { return false };
        if ring.pending() == ring.entries() && ring.submit().is_err() {
            return false;
        }
        let request = Sqe::discard_blocks(fd.raw(), offset, bytes, tag);
        // SAFETY: the request names no memory.
        unsafe { ring.push(request) }.is_ok()
    }

    /// Hands over what was ordered. EAGAIN and EBUSY leave requests on the ring: they go with the next call.
    pub fn submit(&mut self) {
        let _ = match self {
            Io::Ring(ring) => ring.submit().map(drop),
            Io::Threads(threads) => threads.submit(),
        };
    }

    /// Waits until a request ended or the time is over.
    pub fn wait(&mut self, timeout_ns: u64) {
        let _ = match self {
            Io::Ring(ring) => ring.submit_and_wait(1, Some(timeout_ns)).map(drop),
            Io::Threads(threads) => threads.wait(1, Some(timeout_ns)),
        };
    }

    /// The next request that ended.
    pub fn pop(&mut self) -> Option<Cqe> {
        match self {
            Io::Ring(ring) => ring.pop(),
            Io::Threads(threads) => threads.pop(),
        }
    }
}

fn request(write: bool, fd: i32, pieces: &[IoVec], offset: u64, tag: u64) -> Sqe {
    match (write, pieces) {
        (true, [one]) => Sqe::write(fd, one.base, one.len as u32, offset, tag),
        (false, [one]) => Sqe::read(fd, one.base, one.len as u32, offset, tag),
        (true, many) => Sqe::writev(fd, many.as_ptr(), many.len() as u32, offset, tag),
        (false, many) => Sqe::readv(fd, many.as_ptr(), many.len() as u32, offset, tag),
    }
}
