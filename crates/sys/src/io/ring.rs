//! The engine over io_uring.

use super::{Full, Operation, VECTORS_MAX};
use crate::mem::{IoVec, Mapping, Prot};
use crate::uring::{Cqe, Ring, Sqe};
use crate::{Errno, Fd, PAGE_SIZE};

/// An engine over io_uring.
#[derive(Debug)]
pub struct RingEngine {
    ring: Ring,
    /// A set of vectors for each place on the submission ring. The kernel copies them when it takes the
    /// request, so a place is free again when the ring's is.
    vectors: Mapping,
    depth: u32,
    pushed: u32,
    in_flight: u32,
}

type VectorSet = [IoVec; VECTORS_MAX];

impl RingEngine {
    pub(super) fn new(depth: u32) -> Result<RingEngine, Errno> {
        let depth = depth.next_power_of_two();
        let ring = Ring::best(depth, depth)?;
        if ring.entries() < depth || ring.completion_entries() < depth {
            return Err(Errno::INVAL); // Clamped: more than the kernel allows.
        }
        let bytes = (depth as usize * size_of::<VectorSet>()).next_multiple_of(PAGE_SIZE);
        let vectors = Mapping::anon(bytes, Prot::RW)?;
        crate::mem::name(vectors.range(), c"overspill io");
        Ok(RingEngine { ring, vectors, depth, pushed: 0, in_flight: 0 })
    }

    /// # Safety
    /// As for the engine's `push_read` and `push_write`.
    pub(super) unsafe fn push(
        &mut self,
        operation: Operation,
        fd: i32,
        vectors: &[IoVec],
        offset: u64,
        user_data: u64,
    ) -> Result<(), Full> {
        let request = match (operation, vectors) {
            (Operation::Read, [one]) => Sqe::read(fd, one.base, bytes_of(one), offset, user_data),
            (Operation::Write, [one]) => Sqe::write(fd, one.base, bytes_of(one), offset, user_data),
            (Operation::Read, many) => Sqe::readv(fd, self.keep(many)?, many.len() as u32, offset, user_data),
            (Operation::Write, many) => {
                Sqe::writev(fd, self.keep(many)?, many.len() as u32, offset, user_data)
            }
        };
        // SAFETY: passed on to the caller; kept vectors outlive the submission.
        unsafe { self.push_request(request) }
    }

    /// # Safety
    /// As for [`Ring::push`].
    unsafe fn push_request(&mut self, request: Sqe) -> Result<(), Full> {
        if self.in_flight == self.depth {
            return Err(Full);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.ring.push(request) }.expect("the submission ring holds as many as may be in flight");
        self.in_flight += 1;
        self.pushed = self.pushed.wrapping_add(1);
        Ok(())
    }

    /// Copies vectors to where they last until the next request is submitted.
    fn keep(&mut self, vectors: &[IoVec]) -> Result<*const IoVec, Full> {
        if self.in_flight == self.depth {
            return Err(Full);
        }
        let place = (self.pushed & (self.depth - 1)) as usize;
        // SAFETY: the place is in the mapping, and no request that is not yet submitted uses it: those are
        // fewer than places.
        unsafe {
            let set = self.vectors.as_ptr::<VectorSet>().add(place).cast::<IoVec>();
            set.copy_from_nonoverlapping(vectors.as_ptr(), vectors.len());
            Ok(set)
        }
    }

    pub(super) fn submit(&mut self) -> Result<(), Errno> {
        while self.ring.pending() > 0 {
            self.ring.submit()?;
        }
        Ok(())
    }

    pub(super) fn wait(&mut self, min: u32, timeout_ns: Option<u64>) -> Result<(), Errno> {
        self.ring.submit_and_wait(min, timeout_ns).map(drop)
    }

    pub(super) fn pop(&mut self) -> Option<Cqe> {
        let cqe = self.ring.pop()?;
        assert!(self.in_flight > 0, "the kernel completes only what was pushed");
        self.in_flight -= 1;
        Some(cqe)
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn wait_fd(&self) -> &Fd {
        self.ring.fd()
    }
}

fn bytes_of(vector: &IoVec) -> u32 {
    u32::try_from(vector.len).expect("a request is far below 4 GiB")
}
