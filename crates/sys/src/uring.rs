//! io_uring for one thread: two shared rings, one system call to submit and to wait.
//!
//! It never allocates after construction, never locks, and makes no system call when there is nothing to
//! submit. The buffers of a request belong to the kernel until its completion was popped; [`Ring::push`] is
//! unsafe for that reason. Needs 5.11 (`IORING_ENTER_EXT_ARG`). Rules from io_uring_setup(2),
//! io_uring_enter(2).

mod abi;

pub use abi::{Opcode, Sqe};

use crate::clock::Timespec;
use crate::fd::make as make_descriptor;
use crate::mem::{Advice, IoVec, Mapping, Prot};
use crate::raw::{nr, syscall};
use crate::{Errno, Fd, PAGE_SIZE, reserve};
use abi::{CqeRaw, GetEventsArgument, Params};
use bitflags::bitflags;
use core::sync::atomic::{AtomicU32, Ordering};

bitflags! {
    /// How a ring is set up.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Setup: u32 {
        /// Completions do not interrupt the thread in user mode; they are run at its next system call (5.19).
        const COOP_TASKRUN = 1 << 8;
        /// The ring says when completions wait to be run (5.19). Added where needed.
        const TASKRUN_FLAG = 1 << 9;
        /// Only the thread that makes the ring submits (6.0).
        const SINGLE_ISSUER = 1 << 12;
        /// Completions are run only when asked for (6.1); needs `SINGLE_ISSUER`. A thread that sleeps in poll
        /// on such a ring's descriptor is not woken (seen on 6.18): wait in [`Ring::submit_and_wait`].
        const DEFER_TASKRUN = 1 << 13;
    }
}

const SETUP_CQSIZE: u32 = 1 << 3;
const SETUP_CLAMP: u32 = 1 << 4;
/// The rings lie in memory of ours (6.5; more than a page of each, 6.14).
const SETUP_NO_MMAP: u32 = 1 << 14;
/// What precedes the completions in their ring, generously: 64 bytes as of 6.18.
const RING_HEAD_BYTES: usize = 1024;
const FEATURES_NEEDED: u32 = 1 << 0 | 1 << 1 | 1 << 8; // SINGLE_MMAP, NODROP, EXT_ARG
const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const SQ_CQ_OVERFLOW: u32 = 1 << 1;
const SQ_TASKRUN: u32 = 1 << 2;
const OFFSET_RINGS: u64 = 0;
const OFFSET_SQES: u64 = 0x1000_0000;
const REGISTER_BUFFERS: usize = 0;

/// A finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// What the request carried.
    pub user_data: u64,
    /// What the system call of the same name would have returned: a count, or a negative errno.
    pub result: i32,
}

impl Cqe {
    /// The count, or the error.
    pub fn outcome(&self) -> Result<u32, Errno> {
        if self.result < 0 { Err(Errno::from_raw_os_error(-self.result)) } else { Ok(self.result as u32) }
    }
}

/// The submission side: `tail` is ours, `head` the kernel's.
struct Submission {
    head: *const AtomicU32,
    tail: *const AtomicU32,
    flags: *const AtomicU32,
    sqes: *mut Sqe,
    mask: u32,
    entries: u32,
    /// Our copy of `tail`.
    next: u32,
}

/// The completion side: `head` is ours, `tail` the kernel's.
struct Completion {
    head: *const AtomicU32,
    tail: *const AtomicU32,
    cqes: *const CqeRaw,
    mask: u32,
    entries: u32,
}

/// An io_uring. Use it from one thread at a time (with `SINGLE_ISSUER`: only from the one that made it).
pub struct Ring {
    fd: Fd,
    submission: Submission,
    completion: Completion,
    _rings: Mapping,
    _sqes: Mapping,
}

// SAFETY: the pointers lead into the mappings the ring owns; `&mut self` on everything that moves an index
// keeps it to one thread at a time.
unsafe impl Send for Ring {}

/// The call itself. Returns what the kernel made of the parameters.
fn make(entries: u32, mut params: Params) -> Result<(Fd, Params), Errno> {
    let at = &raw mut params as usize;
    // SAFETY: the structure is the call's, and memory that it names is the ring's from now on.
    let fd = make_descriptor(|| unsafe { syscall!(nr::__NR_io_uring_setup, entries as usize, at) })?;
    if params.features & FEATURES_NEEDED != FEATURES_NEEDED {
        return Err(Errno::NOSYS);
    }
    Ok((fd, params))
}

/// What the rings take from their start on: for submission, for completion.
fn ring_bytes(params: &Params) -> (usize, usize) {
    let sq_bytes = params.sq_off.array as usize + params.sq_entries as usize * size_of::<u32>();
    let cq_bytes = params.cq_off.cqes as usize + params.cq_entries as usize * size_of::<CqeRaw>();
    (sq_bytes, cq_bytes)
}

/// Rings are useless to a child, which must not share them.
fn keep_from_children(mappings: [&Mapping; 2]) -> Result<(), Errno> {
    // SAFETY: content does not change here; a child never uses them.
    mappings.into_iter().try_for_each(|mapping| unsafe { mapping.advise(Advice::DontFork) })
}

fn sqes_bytes(entries: u32) -> usize {
    whole_pages(entries as usize * size_of::<Sqe>())
}

fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_SIZE)
}

impl Ring {
    /// Makes a ring for `entries` requests between two submissions and `completions` finished ones (both
    /// rounded up to a power of two). EINVAL: a flag this kernel does not know. ENOSYS: no io_uring, or one
    /// older than 5.11. EPERM: `kernel.io_uring_disabled`.
    pub fn new(entries: u32, completions: u32, setup: Setup) -> Result<Ring, Errno> {
        assert!(entries > 0 && completions >= entries);
        let mut setup = setup;
        if setup.contains(Setup::DEFER_TASKRUN) {
            setup |= Setup::TASKRUN_FLAG;
        }
        let params = Params {
            flags: setup.bits() | SETUP_CQSIZE | SETUP_CLAMP,
            cq_entries: completions,
            ..Params::default()
        };
        if reserve::is_set_up()
            && let Ok(ring) = Ring::in_reserve(entries, params)
        {
            return Ok(ring);
        }
        let (fd, params) = make(entries, params)?;
        let (sq_bytes, cq_bytes) = ring_bytes(&params);
        let rings = Mapping::rings(&fd, whole_pages(sq_bytes.max(cq_bytes)), OFFSET_RINGS)?;
        let sqes = Mapping::rings(&fd, sqes_bytes(params.sq_entries), OFFSET_SQES)?;
        keep_from_children([&rings, &sqes])?;
        Ok(Ring::over(fd, &params, rings, sqes))
    }

    /// As [`Ring::new`], with the rings among the agent's own addresses.
    ///
    /// *The story:* where the kernel maps them it alone chooses the place, and takes the highest gap.
    /// A program made a gap and let a stack grow down into it, and met the rings: SIGSEGV (LTP's
    /// mmap18, one run in four where the machine was busy).
    fn in_reserve(entries: u32, params: Params) -> Result<Ring, Errno> {
        let (entries, completions) = (entries.next_power_of_two(), params.cq_entries.next_power_of_two());
        let bytes = RING_HEAD_BYTES
            + completions as usize * size_of::<CqeRaw>()
            + entries as usize * size_of::<u32>();
        let rings = Mapping::anon(whole_pages(bytes), Prot::RW)?;
        let sqes = Mapping::anon(sqes_bytes(entries), Prot::RW)?;
        if ![&rings, &sqes].into_iter().all(|mapping| reserve::holds(&mapping.range())) {
            return Err(Errno::NOMEM); // Elsewhere nobody would know whose memory it is.
        }
        keep_from_children([&rings, &sqes])?;
        let mut wanted = Params { flags: params.flags | SETUP_NO_MMAP, ..params };
        wanted.cq_off.user_address = rings.start() as u64;
        wanted.sq_off.user_address = sqes.start() as u64;
        let (fd, made) = make(entries, wanted)?;
        let (sq_bytes, cq_bytes) = ring_bytes(&made);
        assert!(sq_bytes.max(cq_bytes) <= rings.len(), "the kernel's rings fit into what it was given");
        Ok(Ring::over(fd, &made, rings, sqes))
    }

    /// Over what the kernel made.
    fn over(fd: Fd, params: &Params, rings: Mapping, sqes: Mapping) -> Ring {
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        let at = |offset: u32| (rings.start() + offset as usize) as *const AtomicU32;
        // SAFETY: the kernel's offsets lie in the mapping; the array is ours to fill once, entry i = request
        // i.
        unsafe {
            for index in 0..params.sq_entries {
                (at(sq.array) as *mut u32).add(index as usize).write(index);
            }
        }
        // SAFETY: as above; nobody else moves the tail.
        let next = unsafe { (*at(sq.tail)).load(Ordering::Relaxed) };
        let submission = Submission {
            head: at(sq.head),
            tail: at(sq.tail),
            flags: at(sq.flags),
            sqes: sqes.as_ptr(),
            mask: params.sq_entries - 1,
            entries: params.sq_entries,
            next,
        };
        let completion = Completion {
            head: at(cq.head),
            tail: at(cq.tail),
            cqes: at(cq.cqes).cast(),
            mask: params.cq_entries - 1,
            entries: params.cq_entries,
        };
        Ring { fd, submission, completion, _rings: rings, _sqes: sqes }
    }

    /// Makes a ring with the best flags this kernel has whose descriptor can be polled: completions do not
    /// interrupt the thread in user mode.
    pub fn best(entries: u32, completions: u32) -> Result<Ring, Errno> {
        let coop = Setup::COOP_TASKRUN | Setup::TASKRUN_FLAG;
        for setup in [coop | Setup::SINGLE_ISSUER, coop] {
            match Ring::new(entries, completions, setup) {
                Err(Errno::INVAL) => {}
                other => return other,
            }
        }
        Ring::new(entries, completions, Setup::empty())
    }

    /// The descriptor: readable when completions wait (not with `DEFER_TASKRUN`).
    #[must_use]
    pub fn fd(&self) -> &Fd {
        &self.fd
    }

    /// How many requests fit between two submissions.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.submission.entries
    }

    /// How many completions fit; keep no more requests in flight.
    #[must_use]
    pub fn completion_entries(&self) -> u32 {
        self.completion.entries
    }

    /// Requests pushed and not yet taken by the kernel.
    #[must_use]
    pub fn pending(&self) -> u32 {
        // SAFETY: the pointer leads into our mapping.
        let head = unsafe { (*self.submission.head).load(Ordering::Acquire) };
        let pending = self.submission.next.wrapping_sub(head);
        assert!(pending <= self.submission.entries, "the kernel takes only what was pushed");
        pending
    }

    /// Puts a request on the submission ring, without a system call. `Err` gives it back when the ring is
    /// full: submit first.
    ///
    /// # Safety
    /// Buffers and vectors of the request stay valid, and unused otherwise, until its completion is popped;
    /// its descriptor is open until it is submitted.
    pub unsafe fn push(&mut self, request: Sqe) -> Result<(), Sqe> {
        if self.pending() == self.submission.entries {
            return Err(request);
        }
        let submission = &mut self.submission;
        let slot = (submission.next & submission.mask) as usize;
        // SAFETY: the slot is free (checked above) and in the mapping; the release store hands it to the
        // kernel.
        unsafe {
            submission.sqes.add(slot).write(request);
            submission.next = submission.next.wrapping_add(1);
            (*submission.tail).store(submission.next, Ordering::Release);
        }
        Ok(())
    }

    /// Hands pushed requests to the kernel; returns how many it took. No system call when there are none.
    ///
    /// EAGAIN, EBUSY: the kernel is short of memory or the completion ring overflowed: pop, then try again.
    pub fn submit(&mut self) -> Result<u32, Errno> {
        match self.pending() {
            0 => Ok(0),
            pending => self.enter(pending, 0, 0, None),
        }
    }

    /// Hands over pushed requests and waits until `min` completions can be popped, or `timeout_ns` passed, or
    /// a signal came; returns how many requests were taken. Returns at once, without a system call, when
    /// there is nothing to submit and enough wait already.
    pub fn submit_and_wait(&mut self, min: u32, timeout_ns: Option<u64>) -> Result<u32, Errno> {
        let pending = self.pending();
        if pending == 0 && !self.must_enter() && self.ready() >= min {
            return Ok(0);
        }
        match self.enter(pending, min, ENTER_GETEVENTS, timeout_ns) {
            Err(Errno::TIME | Errno::INTR) => Ok(0),
            other => other,
        }
    }

    /// Completions that can be popped without a system call.
    #[must_use]
    pub fn ready(&self) -> u32 {
        // SAFETY: the pointers lead into our mapping.
        unsafe {
            let tail = (*self.completion.tail).load(Ordering::Acquire);
            tail.wrapping_sub((*self.completion.head).load(Ordering::Relaxed))
        }
    }

    /// The oldest completion. When the ring is empty but the kernel holds completions back (to be run, or
    /// overflowed), it is asked for them once.
    pub fn pop(&mut self) -> Option<Cqe> {
        if self.ready() == 0 && !(self.must_enter() && self.enter(0, 0, ENTER_GETEVENTS, None).is_ok()) {
            return None;
        }
        if self.ready() == 0 {
            return None;
        }
        let completion = &self.completion;
        // SAFETY: there is an entry at `head`, in the mapping, which the kernel leaves alone until `head`
        // moves on.
        unsafe {
            let head = (*completion.head).load(Ordering::Relaxed);
            let raw = completion.cqes.add((head & completion.mask) as usize).read();
            (*completion.head).store(head.wrapping_add(1), Ordering::Release);
            Some(Cqe { user_data: raw.user_data, result: raw.result })
        }
    }

    /// Pops until there is nothing left.
    pub fn completions(&mut self) -> impl Iterator<Item = Cqe> + '_ {
        core::iter::from_fn(|| self.pop())
    }

    /// Registers buffers for requests with fixed buffers. ENOMEM: RLIMIT_MEMLOCK. Pages of
    /// the buffers are pinned, so userfaultfd cannot move them.
    ///
    /// # Safety
    /// The buffers stay mapped until unregistered; requests write to them as if each had been passed a
    /// pointer.
    pub unsafe fn register_buffers(&self, buffers: &[IoVec]) -> Result<(), Errno> {
        let (pointer, count) = (buffers.as_ptr() as usize, buffers.len());
        // SAFETY: the vector is valid; the caller vouches for the buffers.
        unsafe { self.register(REGISTER_BUFFERS, pointer, count) }
    }

    /// # Safety
    /// As for the operation.
    unsafe fn register(&self, operation: usize, argument: usize, count: usize) -> Result<(), Errno> {
        // SAFETY: the caller vouches for the argument.
        unsafe {
            syscall!(nr::__NR_io_uring_register, self.fd.raw() as usize, operation, argument, count).map(drop)
        }
    }

    /// The kernel holds completions back until it is entered.
    fn must_enter(&self) -> bool {
        // SAFETY: the pointer leads into our mapping.
        let flags = unsafe { (*self.submission.flags).load(Ordering::Relaxed) };
        flags & (SQ_CQ_OVERFLOW | SQ_TASKRUN) != 0
    }

    fn enter(&self, submit: u32, min: u32, flags: u32, timeout_ns: Option<u64>) -> Result<u32, Errno> {
        let timespec = timeout_ns.map(Timespec::from_ns);
        let argument = GetEventsArgument {
            timeout: timespec.as_ref().map_or(0, |timespec| core::ptr::from_ref(timespec) as u64),
            ..GetEventsArgument::default()
        };
        let (flags, pointer, size) = match timeout_ns {
            Some(_) => (flags | ENTER_EXT_ARG, &raw const argument as usize, size_of::<GetEventsArgument>()),
            None => (flags, 0, 0),
        };
        let (submit, min, flags) = (submit as usize, min as usize, flags as usize);
        // SAFETY: argument and timespec outlive the call; whoever pushed the requests vouched for them.
        let taken = unsafe {
            syscall!(nr::__NR_io_uring_enter, self.fd.raw() as usize, submit, min, flags, pointer, size)?
        };
        Ok(taken as u32)
    }
}

impl core::fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Ring").field("fd", &self.fd).field("pending", &self.pending()).finish()
    }
}
