//! The way to the device: io_uring, or threads with preadv/pwritev where io_uring is refused.

use overspill_sys::mem::IoVec;
use overspill_sys::uring::{Ring, Sqe};
use overspill_sys::{Errno, Fd};

/// Requests that fit between two submissions.
const ENTRIES: u32 = 256;
/// Requests that may be under way.
const COMPLETIONS: u32 = 4096;

/// The requests of one reactor.
pub(crate) struct Io {
    ring: Ring,
}

impl Io {
    /// Opens the best way there is.
    pub fn new(_use_uring: bool) -> Result<Self, Errno> {
        Ok(Io { ring: Ring::best(ENTRIES, COMPLETIONS)? })
    }

    /// The descriptor that is readable when a request ended.
    pub fn descriptor(&self) -> &Fd {
        self.ring.fd()
    }

    /// Orders a transfer between `pieces` and the file at `offset`. The pieces stay as they are until it ended.
    pub fn order(&mut self, write: bool, fd: i32, pieces: &[IoVec], offset: u64, tag: u64) {
        let count = pieces.len() as u32;
        let request = if write {
            Sqe::writev(fd, pieces.as_ptr(), count, offset, tag)
        } else {
            Sqe::readv(fd, pieces.as_ptr(), count, offset, tag)
        };
        let mut request = Some(request);
        while let Some(next) = request.take() {
            // SAFETY: the pieces and the staging frames they name stay put until the completion was popped: the
            // transfer table keeps the first, mm keeps the pages out of everybody's reach meanwhile.
            if let Err(refused) = unsafe { self.ring.push(next) } {
                self.submit();
                request = Some(refused);
            }
        }
    }

    pub fn submit(&mut self) {
        // EAGAIN and EBUSY leave the requests on the ring: they go with the next call.
        let _ = self.ring.submit();
    }

    pub fn wait(&mut self, timeout_ns: u64) {
        let _ = self.ring.submit_and_wait(1, Some(timeout_ns));
    }

    /// The next request that ended: its tag, and bytes or error.
    pub fn pop(&mut self) -> Option<(u64, Result<u32, Errno>)> {
        self.ring.pop().map(|entry| (entry.user_data, entry.outcome()))
    }
}
