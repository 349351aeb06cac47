//! Positioned I/O that completes later: by io_uring, or by threads where io_uring is refused. One shape for
//! both.
//!
//! It bounds what is in flight (the depth given at the start), and it never retries: short counts and errors
//! come back as they are. Used from one thread.

mod ring;
mod threads;

use crate::mem::IoVec;
use crate::uring::Cqe;
use crate::{AddressRange, Errno, Fd};
pub use ring::RingEngine;
pub use threads::ThreadEngine;

/// Most vectors of one request.
pub const VECTORS_MAX: usize = 256;

/// As many requests are in flight as the engine was made for: pop some first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What a request does. Not public: the engines share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
}

/// An engine.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one a pager, and nothing to allocate it with")]
pub enum IoEngine {
    /// io_uring.
    Ring(RingEngine),
    /// Threads with preadv and pwritev.
    Threads(ThreadEngine),
}

impl IoEngine {
    /// io_uring, for `depth` requests in flight (rounded up to a power of two). Errors as for
    /// [`crate::uring::Ring::new`].
    pub fn ring(depth: u32) -> Result<IoEngine, Errno> {
        RingEngine::new(depth).map(IoEngine::Ring)
    }

    /// `workers` threads, for `depth` requests in flight. They share the descriptor table of the calling
    /// thread.
    pub fn threads(depth: u32, workers: u32) -> Result<IoEngine, Errno> {
        ThreadEngine::new(depth, workers).map(IoEngine::Threads)
    }

    /// io_uring where it works, otherwise `workers` threads.
    pub fn best(depth: u32, workers: u32) -> Result<IoEngine, Errno> {
        IoEngine::ring(depth).or_else(|_| IoEngine::threads(depth, workers))
    }

    /// Ordinary memory of its own, beside the stacks: a pager must keep its hands off it.
    #[must_use]
    pub fn range(&self) -> AddressRange {
        match self {
            IoEngine::Ring(_) => 0..0,
            IoEngine::Threads(threads) => threads.range(),
        }
    }

    /// Notes a read of `vectors` (1 to [`VECTORS_MAX`]; copied) from `fd` at `offset`. Nothing happens before
    /// [`IoEngine::submit`].
    ///
    /// # Safety
    /// The memory is the engine's to overwrite until the completion was popped; `fd` stays open until then.
    pub unsafe fn push_read(
        &mut self,
        fd: i32,
        vectors: &[IoVec],
        offset: u64,
        user_data: u64,
    ) -> Result<(), Full> {
        // SAFETY: passed on to the caller.
        unsafe { self.push(Operation::Read, fd, vectors, offset, user_data) }
    }

    /// Notes a write of `vectors` to `fd` at `offset`.
    ///
    /// # Safety
    /// The memory stays readable until the completion was popped, and `fd` open. A store meanwhile may or may
    /// not be written.
    pub unsafe fn push_write(
        &mut self,
        fd: i32,
        vectors: &[IoVec],
        offset: u64,
        user_data: u64,
    ) -> Result<(), Full> {
        // SAFETY: passed on to the caller.
        unsafe { self.push(Operation::Write, fd, vectors, offset, user_data) }
    }

    unsafe fn push(
        &mut self,
        operation: Operation,
        fd: i32,
        vectors: &[IoVec],
        offset: u64,
        user_data: u64,
    ) -> Result<(), Full> {
        assert!((1..=VECTORS_MAX).contains(&vectors.len()));
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                IoEngine::Ring(engine) => engine.push(operation, fd, vectors, offset, user_data),
                IoEngine::Threads(engine) => engine.push(operation, fd, vectors, offset, user_data),
            }
        }
    }

    /// Starts what was noted; no system call when there is nothing. EAGAIN, EBUSY: the kernel is short of
    /// something; the rest stays noted, try again after popping.
    pub fn submit(&mut self) -> Result<(), Errno> {
        match self {
            IoEngine::Ring(engine) => engine.submit(),
            IoEngine::Threads(engine) => {
                engine.submit();
                Ok(())
            }
        }
    }

    /// Starts what was noted and waits until `min` completions can be popped or the time is up. `min` is at
    /// most what is in flight.
    pub fn wait(&mut self, min: u32, timeout_ns: Option<u64>) -> Result<(), Errno> {
        assert!(min <= self.in_flight(), "waiting for more than is in flight never ends");
        match self {
            IoEngine::Ring(engine) => engine.wait(min, timeout_ns),
            IoEngine::Threads(engine) => engine.wait(min, timeout_ns),
        }
    }

    /// A finished request, in no particular order.
    pub fn pop(&mut self) -> Option<Cqe> {
        match self {
            IoEngine::Ring(engine) => engine.pop(),
            IoEngine::Threads(engine) => engine.pop(),
        }
    }

    /// Requests pushed and not popped.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        match self {
            IoEngine::Ring(engine) => engine.in_flight(),
            IoEngine::Threads(engine) => engine.in_flight(),
        }
    }

    /// Most requests in flight.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match self {
            IoEngine::Ring(engine) => engine.depth(),
            IoEngine::Threads(engine) => engine.depth(),
        }
    }

    /// A descriptor that is readable when completions wait; pop until there are none before sleeping on it.
    #[must_use]
    pub fn wait_fd(&self) -> &Fd {
        match self {
            IoEngine::Ring(engine) => engine.wait_fd(),
            IoEngine::Threads(engine) => engine.wait_fd(),
        }
    }
}

impl Drop for IoEngine {
    /// Waits for everything in flight: memory and descriptors of requests are the caller's again afterwards.
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            if self.pop().is_none() && self.wait(1, None).is_err() {
                crate::thread::yield_now();
            }
        }
    }
}
