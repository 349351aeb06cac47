//! userfaultfd: one descriptor, its ioctls and its messages.
//!
//! It never decides what a fault means and never retries: partial results are reported as they are
//! ([`Partial`]), because the reason for one (an unread event, see `mmap_changing` in the kernel's documents)
//! can only be cleared by the caller. Rules from Documentation/admin-guide/mm/userfaultfd.rst and
//! ioctl_userfaultfd(2).

mod abi;
mod left;
mod message;

pub use left::Left;
pub use message::{Message, RawMsg};

use crate::fd::{make, with_room};
use crate::raw::{nr, syscall};
use crate::{AddressRange, Errno, Fd, PAGE_SIZE};
use abi::{Range, Transfer};
use bitflags::bitflags;
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering};

bitflags! {
    /// Features of the descriptor, asked for when it is opened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Features: u64 {
        /// Write-protect faults are told apart (anonymous memory: 5.7).
        const PAGEFAULT_FLAG_WP = 1 << 0;
        /// fork() tells; needs CAP_SYS_PTRACE. The child of a fork comes with a descriptor of its own.
        const EVENT_FORK = 1 << 1;
        /// mremap() tells.
        const EVENT_REMAP = 1 << 2;
        /// madvise DONTNEED, FREE and REMOVE tell.
        const EVENT_REMOVE = 1 << 3;
        /// Huge pages of hugetlbfs may be registered.
        const MISSING_HUGETLBFS = 1 << 4;
        /// Shared memory may be registered.
        const MISSING_SHMEM = 1 << 5;
        /// munmap() and mappings on top of others tell.
        const EVENT_UNMAP = 1 << 6;
        /// A fault raises SIGBUS in the faulting thread instead of a message (4.14).
        const SIGBUS = 1 << 7;
        /// Messages name the faulting thread (4.14).
        const THREAD_ID = 1 << 8;
        /// Minor faults on hugetlbfs (5.13).
        const MINOR_HUGETLBFS = 1 << 9;
        /// Minor faults on shared memory (5.14).
        const MINOR_SHMEM = 1 << 10;
        /// Messages carry the exact address, not that of its page (5.18).
        const EXACT_ADDRESS = 1 << 11;
        /// Write protection of hugetlbfs and shared memory (5.19).
        const WP_HUGETLBFS_SHMEM = 1 << 12;
        /// Write protection also of pages that do not exist yet (6.4).
        const WP_UNPOPULATED = 1 << 13;
        /// [`Uffd::poison`] (6.6).
        const POISON = 1 << 14;
        /// Write-protect faults are resolved by the kernel; PAGEMAP_SCAN tells what was written (6.7).
        const WP_ASYNC = 1 << 15;
        /// [`Uffd::move_pages`] (6.8).
        const MOVE = 1 << 16;
    }

    /// Which faults of a range are reported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Mode: u64 {
        /// Touches of pages that do not exist.
        const MISSING = 1 << 0;
        /// Stores to write-protected pages.
        const WP = 1 << 1;
        /// Touches of pages that exist but are not mapped (shared memory).
        const MINOR = 1 << 2;
    }

    /// How [`Uffd::copy`] maps.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CopyMode: u64 {
        /// Leave the waiting threads asleep.
        const DONTWAKE = 1 << 0;
        /// Map write-protected; the range is registered with [`Mode::WP`].
        const WP = 1 << 1;
    }

    /// How [`Uffd::move_pages`] moves.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MoveMode: u64 {
        /// Leave the waiting threads asleep.
        const DONTWAKE = 1 << 0;
        /// Pages missing in the source stay missing in the destination, and count as done.
        const ALLOW_SRC_HOLES = 1 << 1;
    }
}

/// How the descriptor was obtained, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The system call, kernel-mode faults included: CAP_SYS_PTRACE or vm.unprivileged_userfaultfd=1.
    Syscall,
    /// /dev/userfaultfd, kernel-mode faults included (6.1).
    Device,
    /// User-mode faults only (5.11): a system call that touches a missing page fails with EFAULT.
    UserMode,
    /// Another process opened it and sent it.
    Received,
}

/// A transfer that did not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Bytes done before it stopped; whole pages.
    pub done: usize,
    /// Why. After a partial transfer the kernel says EAGAIN; the true reason shows when the rest is tried.
    pub errno: Errno,
}

/// A userfaultfd. Closing the last one of a range while faults wait lets them continue with zero pages:
/// unregister first.
#[derive(Debug)]
pub struct Uffd {
    fd: Fd,
    source: Source,
}

const DEVICE: &CStr = c"/dev/userfaultfd";
const USER_MODE_ONLY: u32 = 1;

/// The device, opened by somebody who may; -1: nobody gave it.
static GIVEN_DEVICE: AtomicI32 = AtomicI32::new(-1);

/// From now on descriptors are made by this one of /dev/userfaultfd, where the system call is
/// refused: what they manage is the memory of whoever asks, not of who opened the device.
pub fn use_device(device: Fd) {
    GIVEN_DEVICE.store(device.into_raw(), Ordering::Release);
}

/// In a child of fork, which has a table of its own: the number means nothing there.
pub fn forget_device() {
    GIVEN_DEVICE.store(-1, Ordering::Release);
}

impl Uffd {
    /// Opens a descriptor with those of `wanted` that the kernel has, and says which. Non-blocking,
    /// close-on-exec.
    ///
    /// With `user_mode_only` faults from system calls are not delivered (5.11); otherwise the system call is
    /// tried first, then the device. EPERM: no way to get one; also for EVENT_FORK without CAP_SYS_PTRACE.
    /// ENOSYS: no such kernel.
    pub fn open(wanted: Features, user_mode_only: bool) -> Result<(Uffd, Features), Errno> {
        let uffd = Uffd::open_bare(user_mode_only)?;
        match uffd.handshake(wanted) {
            Ok(_) => return Ok((uffd, wanted)),
            Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
        // EINVAL: something wanted is unknown here. Ask a second descriptor what is known.
        let granted = Uffd::open_bare(user_mode_only)?.handshake(Features::empty())? & wanted;
        uffd.handshake(granted)?;
        Ok((uffd, granted))
    }

    /// The features of this kernel, whatever permissions they take.
    pub fn available(user_mode_only: bool) -> Result<Features, Errno> {
        Uffd::open_bare(user_mode_only)?.handshake(Features::empty())
    }

    fn open_bare(user_mode_only: bool) -> Result<Uffd, Errno> {
        let flags = nr::O_CLOEXEC | nr::O_NONBLOCK;
        if user_mode_only {
            let fd = Uffd::by_syscall(flags | USER_MODE_ONLY)?;
            return Ok(Uffd { fd, source: Source::UserMode });
        }
        match Uffd::by_syscall(flags) {
            Ok(fd) => Ok(Uffd { fd, source: Source::Syscall }),
            Err(errno) => match Uffd::by_device(flags) {
                Ok(fd) => Ok(Uffd { fd, source: Source::Device }),
                Err(_) => Err(errno),
            },
        }
    }

    fn by_syscall(flags: u32) -> Result<Fd, Errno> {
        // SAFETY: makes a descriptor.
        make(|| unsafe { syscall!(nr::__NR_userfaultfd, flags as usize) })
    }

    fn by_device(flags: u32) -> Result<Fd, Errno> {
        let given = GIVEN_DEVICE.load(Ordering::Acquire);
        if given >= 0 {
            let command = abi::USERFAULTFD_IOC_NEW as usize;
            // SAFETY: as below; whoever gave the number keeps it open.
            return make(|| unsafe { syscall!(nr::__NR_ioctl, given as usize, command, flags as usize) });
        }
        let (path, open_flags) = (DEVICE.as_ptr() as usize, (nr::O_RDWR | nr::O_CLOEXEC) as usize);
        let here = nr::AT_FDCWD as isize as usize;
        // SAFETY: the path is NUL-terminated.
        let device = make(|| unsafe { syscall!(nr::__NR_openat, here, path, open_flags, 0) })?;
        // SAFETY: the command takes the flags by value and makes a descriptor.
        make(|| unsafe { device.ioctl(abi::USERFAULTFD_IOC_NEW, flags as usize as *mut u8) })
    }

    /// Agrees on the version and `features`; returns all that the kernel has.
    fn handshake(&self, features: Features) -> Result<Features, Errno> {
        let mut api = abi::Api { api: abi::UFFD_API, features: features.bits(), ioctls: 0 };
        // SAFETY: the structure is the command's.
        unsafe { self.fd.ioctl(abi::UFFDIO_API, &raw mut api)? };
        Ok(Features::from_bits_truncate(api.features))
    }

    /// How it was obtained.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// The descriptor, to poll for messages.
    #[must_use]
    pub fn fd(&self) -> &Fd {
        &self.fd
    }

    /// Takes over a descriptor that another process opened and sent. What is done with it is done
    /// to that process's memory; ESRCH once that process is gone.
    #[must_use]
    pub fn received(fd: Fd) -> Uffd {
        Uffd { fd, source: Source::Received }
    }

    /// Registers a page-aligned range of anonymous or shared memory. ENOMEM: the kernel's limit on mappings,
    /// or a hole in the range. EBUSY: part of it belongs to another descriptor. EINVAL: part of it cannot be
    /// registered.
    ///
    /// From now on touches of its missing pages wait for somebody to answer them.
    pub fn register(&self, range: AddressRange, mode: Mode) -> Result<(), Errno> {
        let mut argument = abi::Register { range: Range::of(&range), mode: mode.bits(), ioctls: 0 };
        // SAFETY: the structure is the command's; content of memory does not change.
        unsafe { self.fd.ioctl(abi::UFFDIO_REGISTER, &raw mut argument).map(drop) }
    }

    /// Takes a range back and wakes whoever waits in it: they see zero pages where nothing was filled in.
    /// Write protection goes too. Mappings in the range that are not registered are skipped; EINVAL where
    /// some cannot be registered at all.
    ///
    /// # Safety
    /// Every page of the range has its content, or zeroes are right for it.
    pub unsafe fn unregister(&self, range: AddressRange) -> Result<(), Errno> {
        let mut argument = Range::of(&range);
        // SAFETY: the structure is the command's; the caller vouches for the content.
        unsafe { self.fd.ioctl(abi::UFFDIO_UNREGISTER, &raw mut argument).map(drop) }
    }

    /// Fills missing pages of a range registered here with a copy of `src`.
    ///
    /// EEXIST: a page is there already. EAGAIN: an event waits to be read, or partial. ENOENT: the range is
    /// not (wholly) registered. ENOMEM, EFAULT: no memory; `src` not readable. ESRCH: the process is gone.
    ///
    /// # Safety
    /// `src..src + len` is readable and does not change meanwhile; `dst` is page-aligned, `len` whole pages,
    /// and those bytes are what the missing pages of `dst` are meant to show.
    pub unsafe fn copy(&self, dst: usize, src: usize, len: usize, mode: CopyMode) -> Result<(), Partial> {
        let mut argument = Transfer { dst, src, len, mode: mode.bits(), done: 0 };
        // SAFETY: the structure is the command's; the caller vouches for the ranges.
        let result = unsafe { self.fd.ioctl(abi::UFFDIO_COPY, &raw mut argument) };
        outcome(result, argument.done, len)
    }

    /// Fills missing pages of a range registered here with the shared zero page. Errors as for
    /// [`Uffd::copy`].
    ///
    /// # Safety
    /// The missing pages of the range are meant to show zeroes.
    pub unsafe fn zeropage(&self, range: AddressRange, dontwake: bool) -> Result<(), Partial> {
        // SAFETY: passed on to the caller.
        unsafe { self.ranged(abi::UFFDIO_ZEROPAGE, range, u64::from(dontwake)) }
    }

    /// Moves pages: they leave `src` and appear at `dst`, which is registered here and empty (6.8).
    ///
    /// Each side lies in one mapping of private anonymous memory; both are writable, of the same protection
    /// and the same lock state. The destination may be registered for any kind of fault; whether the source
    /// is registered at all, and where, the kernel does not ask. Pages arrive writable and without write
    /// protection; zero pages move as such. Holes of the source with [`MoveMode::ALLOW_SRC_HOLES`] are holes
    /// in the destination and count as done.
    ///
    /// EINVAL: the mappings do not fit the rules above (nothing done). EBUSY: a page is pinned (direct I/O
    /// into it just finished: try again soon) or was shared by a fork (a store to it, or MADV_POPULATE_WRITE,
    /// helps). ENOENT: a hole, without the mode. EEXIST: `dst` has a page, and it may be the one that was to
    /// be moved: 6.18 says so of some that it has moved, beside stores to what a fork shared. EAGAIN: an
    /// event waits to be read, or was just read and its thread did not run yet; or a page was locked; or
    /// partial.
    ///
    /// The check for waiting events is made for this descriptor only. To take pages out of a program, issue
    /// the command on the descriptor its memory is registered on: otherwise nothing stops it from robbing a
    /// new mapping that took the place of the old one.
    ///
    /// # Safety
    /// The pages of `src` are meant to vanish and their bytes to show at `dst`; page-aligned, whole pages, no
    /// overlap.
    pub unsafe fn move_pages(
        &self,
        dst: usize,
        src: usize,
        len: usize,
        mode: MoveMode,
    ) -> Result<(), Partial> {
        let mut argument = Transfer { dst, src, len, mode: mode.bits(), done: 0 };
        // SAFETY: the structure is the command's; the caller vouches for the ranges.
        let result = unsafe { self.fd.ioctl(abi::UFFDIO_MOVE, &raw mut argument) };
        outcome(result, argument.done, len)
    }

    /// Makes touches of the missing pages raise SIGBUS (6.6). Errors as for [`Uffd::copy`].
    ///
    /// # Safety
    /// The content of those pages is lost.
    pub unsafe fn poison(&self, range: AddressRange, dontwake: bool) -> Result<(), Partial> {
        // SAFETY: passed on to the caller.
        unsafe { self.ranged(abi::UFFDIO_POISON, range, u64::from(dontwake)) }
    }

    /// Wakes the threads that wait for faults in the range; they touch again.
    pub fn wake(&self, range: AddressRange) -> Result<(), Errno> {
        let mut argument = Range::of(&range);
        // SAFETY: the structure is the command's; a thread woken early faults again.
        unsafe { self.fd.ioctl(abi::UFFDIO_WAKE, &raw mut argument).map(drop) }
    }

    /// Write-protects the pages of a range registered with [`Mode::WP`] (5.7), or takes that off and wakes
    /// the waiting threads unless `dontwake` (only meaningful when `on` is false). Missing pages are skipped
    /// without WP_UNPOPULATED. EAGAIN: an event waits to be read; nothing or part was done, repeating is
    /// harmless. ENOENT: not registered.
    pub fn write_protect(&self, range: AddressRange, on: bool, dontwake: bool) -> Result<(), Errno> {
        let mode = match (on, dontwake) {
            (true, _) => abi::WRITEPROTECT_MODE_WP,
            (false, true) => abi::WRITEPROTECT_MODE_DONTWAKE,
            (false, false) => 0,
        };
        let mut argument = abi::WriteProtect { range: Range::of(&range), mode };
        // SAFETY: the structure is the command's; content of memory does not change.
        unsafe { self.fd.ioctl(abi::UFFDIO_WRITEPROTECT, &raw mut argument).map(drop) }
    }

    /// Reads as many messages as there are, up to the length of `buffer`; 0 when there is none.
    pub fn read_messages(&self, buffer: &mut [RawMsg]) -> Result<usize, Errno> {
        let (pointer, bytes) = (buffer.as_mut_ptr() as usize, size_of_val(buffer));
        // SAFETY: the slice is exclusive and a message may hold any bytes.
        let read = || unsafe { syscall!(nr::__NR_read, self.fd.raw() as usize, pointer, bytes) };
        let outcome = match read() {
            // The message of a fork comes with a descriptor.
            Err(Errno::MFILE) => with_room(read),
            outcome => outcome,
        };
        match outcome {
            Ok(read) => {
                assert!(read.is_multiple_of(size_of::<RawMsg>()), "the kernel writes whole messages");
                Ok(read / size_of::<RawMsg>())
            }
            Err(Errno::AGAIN) => Ok(0),
            Err(errno) => Err(errno),
        }
    }

    /// One of the commands whose argument is a range, a mode and a count.
    ///
    /// # Safety
    /// As for the command.
    unsafe fn ranged(&self, command: u32, range: AddressRange, mode: u64) -> Result<(), Partial> {
        let len = range.len();
        let mut argument = abi::Ranged { range: Range::of(&range), mode, done: 0 };
        // SAFETY: the structure is the command's; the caller vouches for the range.
        let result = unsafe { self.fd.ioctl(command, &raw mut argument) };
        outcome(result, argument.done, len)
    }
}

/// Result of a transfer of `len` bytes from the ioctl's result and the count it left: a negative count is an
/// errno, and one that was not touched is zero.
fn outcome(result: Result<usize, Errno>, done: i64, len: usize) -> Result<(), Partial> {
    let errno = match result {
        Ok(_) if done == len as i64 => return Ok(()),
        Ok(_) => Errno::AGAIN,
        Err(errno) => errno,
    };
    if done < 0 {
        let errno = i32::try_from(-done).map_or(errno, Errno::from_raw_os_error);
        return Err(Partial { done: 0, errno });
    }
    let done = done as usize;
    assert!(done.is_multiple_of(PAGE_SIZE) && done <= len, "the kernel counts whole pages");
    Err(Partial { done, errno })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_errors() {
        assert_eq!(outcome(Ok(0), 8192, 8192), Ok(()));
        let partial = |done, errno| Err(Partial { done, errno });
        assert_eq!(outcome(Err(Errno::AGAIN), 4096, 8192), partial(4096, Errno::AGAIN));
        assert_eq!(outcome(Err(Errno::EXIST), -17, 8192), partial(0, Errno::EXIST));
        assert_eq!(outcome(Err(Errno::AGAIN), 0, 8192), partial(0, Errno::AGAIN));
        assert_eq!(outcome(Err(Errno::AGAIN), -16, 8192), partial(0, Errno::BUSY));
    }
}
