//! Waiting for descriptors, and a descriptor that threads can ring.

use crate::clock::Timespec;
use crate::fd::make;
use crate::raw::{nr, syscall};
use crate::{Errno, Fd};

/// A descriptor to wait for (`struct pollfd`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollFd {
    fd: i32,
    events: u16,
    revents: u16,
}
const _: () = assert!(size_of::<PollFd>() == 8);
const POLLIN: u16 = 1;
const POLLOUT: u16 = 4;

impl PollFd {
    /// Waits until `fd` is readable.
    #[must_use]
    pub fn readable(fd: &Fd) -> PollFd {
        PollFd { fd: fd.raw(), events: POLLIN, revents: 0 }
    }

    /// Waits until `fd` is writable.
    #[must_use]
    pub fn writable(fd: &Fd) -> PollFd {
        PollFd { fd: fd.raw(), events: POLLOUT, revents: 0 }
    }

    /// Waits until `fd` is readable; without one, for nothing.
    #[must_use]
    pub fn maybe_readable(fd: Option<&Fd>) -> PollFd {
        // The kernel passes over negative numbers.
        PollFd { fd: fd.map_or(-1, Fd::raw), events: POLLIN, revents: 0 }
    }

    /// Waits until the other side of a socket has gone, whatever it has said before.
    #[must_use]
    pub fn closed(fd: &Fd) -> PollFd {
        PollFd { fd: fd.raw(), events: 0, revents: 0 }
    }

    /// After [`poll`]: it is readable, closed, or in error; in any case reading will tell.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.revents != 0
    }

    /// After [`poll`]: in error or closed (a userfaultfd opened blocking says this always).
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.revents & !POLLIN != 0
    }
}

/// Sleeps until one of `fds` is ready or the time is up; returns how many are. A signal ends it with 0.
pub fn poll(fds: &mut [PollFd], timeout_ns: Option<u64>) -> Result<usize, Errno> {
    let timespec = timeout_ns.map(Timespec::from_ns);
    let timeout = timespec.as_ref().map_or(0, |timespec| core::ptr::from_ref(timespec) as usize);
    let (pointer, count) = (fds.as_mut_ptr() as usize, fds.len());
    // SAFETY: the slice is exclusive; a null signal mask changes none.
    match unsafe { syscall!(nr::__NR_ppoll, pointer, count, timeout, 0, 0) } {
        Err(Errno::INTR) => {
            fds.iter_mut().for_each(|fd| fd.revents = 0);
            Ok(0)
        }
        other => other,
    }
}

/// Descriptors to wait for by one of its own, each under a number.
#[derive(Debug)]
pub struct Watch {
    fd: Fd,
}

impl Watch {
    /// Watches nothing yet.
    pub fn new() -> Result<Watch, Errno> {
        // SAFETY: makes a descriptor.
        let made = make(|| unsafe { syscall!(nr::__NR_epoll_create1, nr::EPOLL_CLOEXEC as usize) });
        made.map(|fd| Watch { fd })
    }

    /// Readable while a watched descriptor is.
    #[must_use]
    pub fn fd(&self) -> &Fd {
        &self.fd
    }

    /// Watches `fd`, readable, as `number`.
    pub fn add(&self, fd: &Fd, number: u64) -> Result<(), Errno> {
        let mut event = nr::epoll_event { events: nr::EPOLLIN, data: number };
        self.control(nr::EPOLL_CTL_ADD, fd, &raw mut event)
    }

    /// Watches `fd` no more. Closing it is not enough where another process has a descriptor of the
    /// same file.
    pub fn remove(&self, fd: &Fd) -> Result<(), Errno> {
        self.control(nr::EPOLL_CTL_DEL, fd, core::ptr::null_mut())
    }

    fn control(&self, what: u32, fd: &Fd, event: *mut nr::epoll_event) -> Result<(), Errno> {
        let (own, other) = (self.fd.raw() as usize, fd.raw() as usize);
        // SAFETY: the event is valid or, where none is needed, null.
        unsafe { syscall!(nr::__NR_epoll_ctl, own, what as usize, other, event as usize).map(drop) }
    }

    /// The numbers of readable descriptors, as many as fit, without waiting; returns how many.
    pub fn ready(&self, numbers: &mut [u64; WATCH_MAX]) -> Result<usize, Errno> {
        let mut events = [nr::epoll_event { events: 0, data: 0 }; WATCH_MAX];
        let (fd, pointer) = (self.fd.raw() as usize, events.as_mut_ptr() as usize);
        // SAFETY: the array is exclusive and as long as told; a null signal mask changes none.
        let count = unsafe { syscall!(nr::__NR_epoll_pwait, fd, pointer, WATCH_MAX, 0, 0, 0)? };
        numbers.iter_mut().zip(&events[..count]).for_each(|(number, event)| *number = event.data);
        Ok(count)
    }
}

/// Numbers that [`Watch::ready`] tells at once.
pub const WATCH_MAX: usize = 32;

/// A counter behind a descriptor: readable while it is not zero.
#[derive(Debug)]
pub struct Bell {
    fd: Fd,
}

impl Bell {
    /// Makes one, silent, non-blocking.
    pub fn new() -> Result<Bell, Errno> {
        let flags = (nr::O_CLOEXEC | nr::O_NONBLOCK) as usize;
        // SAFETY: makes a descriptor.
        make(|| unsafe { syscall!(nr::__NR_eventfd2, 0, flags) }).map(|fd| Bell { fd })
    }

    /// To poll.
    #[must_use]
    pub fn fd(&self) -> &Fd {
        &self.fd
    }

    /// What it is made of.
    #[must_use]
    pub fn into_fd(self) -> Fd {
        self.fd
    }

    /// Makes it readable.
    pub fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight valid bytes. EAGAIN means that it is as loud as can be.
        let _ = unsafe { syscall!(nr::__NR_write, self.fd.raw() as usize, &raw const one as usize, 8) };
    }

    /// Makes it silent; says whether it rang.
    pub fn hush(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: eight valid bytes.
        unsafe { syscall!(nr::__NR_read, self.fd.raw() as usize, &raw mut count as usize, 8).is_ok() }
    }
}
