//! Mappings of this process: make, protect, advise, unmap, and copy out of memory that may vanish.
//!
//! Everything is by address, because most of the memory concerned belongs to the program around us. It never
//! keeps a list of what exists; see [`crate::maps`] for that.

use crate::fd::make;
use crate::raw::{nr, syscall};
use crate::reserve::{self, Room};
use crate::{AddressRange, Errno, Fd, PAGE_SIZE, file, usage};
use bitflags::bitflags;
use core::ffi::CStr;
use linux_raw_sys::prctl;

bitflags! {
    /// What a mapping may be used for; empty = nothing (`PROT_NONE`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Prot: u32 {
        /// Loads.
        const READ = nr::PROT_READ;
        /// Stores.
        const WRITE = nr::PROT_WRITE;
        /// Execution.
        const EXEC = nr::PROT_EXEC;
    }
}

impl Prot {
    /// Loads and stores.
    pub const RW: Prot = Prot::READ.union(Prot::WRITE);
    /// The same, and execution.
    pub const RWX: Prot = Prot::RW.union(Prot::EXEC);
}

/// Advice for [`madvise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Advice {
    /// Expect no particular order.
    Normal = nr::MADV_NORMAL,
    /// Expect no order at all: nothing is read ahead.
    Random = nr::MADV_RANDOM,
    /// Expect pages in order.
    Sequential = nr::MADV_SEQUENTIAL,
    /// Drop the pages; the next touch finds zeroes (anonymous) or the file. Raises a REMOVE event where
    /// registered.
    DontNeed = nr::MADV_DONTNEED,
    /// Drop the pages when memory is short, unless stored to before (4.5).
    Free = nr::MADV_FREE,
    /// Drop pages and backing store (shared memory, files).
    Remove = nr::MADV_REMOVE,
    /// A forked child does not get the mapping.
    DontFork = nr::MADV_DONTFORK,
    /// A forked child gets the mapping, as is usual.
    DoFork = nr::MADV_DOFORK,
    /// A forked child sees zeroes (4.14).
    WipeOnFork = nr::MADV_WIPEONFORK,
    /// Leave it out of core dumps.
    DontDump = nr::MADV_DONTDUMP,
    /// Transparent huge pages, where there are any.
    HugePage = nr::MADV_HUGEPAGE,
    /// No transparent huge pages.
    NoHugePage = nr::MADV_NOHUGEPAGE,
    /// Make every page present as a load would (5.14).
    PopulateRead = nr::MADV_POPULATE_READ,
    /// Make every page present, private and writable as a store would; content is kept (5.14).
    PopulateWrite = nr::MADV_POPULATE_WRITE,
    /// Pages are not to be merged with others that are the same (see [`merges`]), and those that are get
    /// their own again.
    Unmergeable = nr::MADV_UNMERGEABLE,
    /// Start reading the file (or swap) behind it.
    WillNeed = nr::MADV_WILLNEED,
    /// Likely to be reclaimed by the kernel first (5.4).
    Cold = nr::MADV_COLD,
    /// Reclaim now, by the kernel's own swap or write-back (5.4).
    PageOut = nr::MADV_PAGEOUT,
}

/// A piece of memory for vectored calls; the kernel's `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IoVec {
    /// First address.
    pub base: usize,
    /// Length in bytes.
    pub len: usize,
}
const _: () = assert!(size_of::<IoVec>() == 16);

impl IoVec {
    /// The piece that covers `range`.
    #[must_use]
    pub fn of(range: AddressRange) -> IoVec {
        IoVec { base: range.start, len: range.len() }
    }
}

const MAP_ANON_PRIVATE: u32 = nr::MAP_PRIVATE | nr::MAP_ANONYMOUS;

/// The mmap call itself: flags and descriptor as the kernel wants them.
///
/// # Safety
/// With `MAP_FIXED` the range must be the caller's to replace.
unsafe fn mmap(
    address: usize,
    len: usize,
    prot: Prot,
    flags: u32,
    fd: i32,
    offset: u64,
) -> Result<usize, Errno> {
    assert!(len > 0 && len.is_multiple_of(PAGE_SIZE), "a mapping is whole pages");
    let (prot, flags, fd) = (prot.bits() as usize, flags as usize, fd as isize as usize);
    // SAFETY: without MAP_FIXED the kernel picks free addresses; with it the caller vouches.
    unsafe { syscall!(nr::__NR_mmap, address, len, prot, flags, fd, offset as usize) }
}

/// Replaces whatever is mapped in `range` by fresh private anonymous memory without commit charge.
///
/// # Safety
/// The range is page-aligned and the caller's: what was mapped there is gone.
pub unsafe fn map_anon_fixed(range: AddressRange, prot: Prot) -> Result<(), Errno> {
    let flags = MAP_ANON_PRIVATE | nr::MAP_FIXED | nr::MAP_NORESERVE;
    // SAFETY: the caller owns the range.
    unsafe { mmap(range.start, range.len(), prot, flags, -1, 0).map(drop) }
}

/// Private memory for the program, readable and writable, not promised; at `wish` if that is free.
/// It does not lie among the agent's own addresses. EBUSY: what is mapped now is locked (mlockall).
///
/// Nobody may touch it at first, as the kernel fills what is locked before anybody can look.
pub fn map_for_program(wish: usize, len: usize) -> Result<usize, Errno> {
    // SAFETY: nothing is replaced.
    let start = unsafe { mmap(wish, len, Prot::empty(), MAP_ANON_PRIVATE | nr::MAP_NORESERVE, -1, 0)? };
    let range = start..start + len;
    let opened = match is_locked(range.clone()) {
        true => Err(Errno::BUSY),
        // SAFETY: it was just mapped, and nobody knows of it.
        false => unsafe { mprotect(range.clone(), Prot::RW) },
    };
    opened.map(|()| start).inspect_err(|_| {
        // SAFETY: as above.
        let _ = unsafe { munmap(range) };
    })
}

/// Is any of a range locked, or was mapped to be (mlock, mlockall)? What is not mapped is not.
#[must_use]
pub fn is_locked(range: AddressRange) -> bool {
    let flags = nr::MS_INVALIDATE as usize;
    // SAFETY: by itself that flag writes nothing and drops nothing, and asks for locks (msync(2)).
    let answer = unsafe { syscall!(nr::__NR_msync, range.start, range.len(), flags) };
    answer == Err(Errno::BUSY)
}

/// Replaces whatever is mapped in `range` by a part of a file, shared with others or not.
///
/// # Safety
/// The range is page-aligned and the caller's: nobody wants what was there.
pub unsafe fn map_file_fixed(
    range: AddressRange,
    fd: i32,
    offset: u64,
    prot: Prot,
    shared: bool,
) -> Result<(), Errno> {
    // SAFETY: the caller owns the range.
    unsafe { map_file_at(nr::MAP_FIXED, range, fd, offset, prot, shared) }
}

/// Maps a part of a file where nothing is mapped. EEXIST: something is (4.17).
pub fn map_file_if_free(
    range: AddressRange,
    fd: i32,
    offset: u64,
    prot: Prot,
    shared: bool,
) -> Result<(), Errno> {
    // SAFETY: nothing is replaced.
    unsafe { map_file_at(nr::MAP_FIXED_NOREPLACE, range, fd, offset, prot, shared) }
}

/// # Safety
/// With MAP_FIXED as for [`map_file_fixed`].
unsafe fn map_file_at(
    placement: u32,
    range: AddressRange,
    fd: i32,
    offset: u64,
    prot: Prot,
    shared: bool,
) -> Result<(), Errno> {
    let flags = placement | if shared { nr::MAP_SHARED } else { nr::MAP_PRIVATE };
    // SAFETY: passed on to the caller; the kernel says what is wrong with a descriptor.
    unsafe { mmap(range.start, range.len(), prot, flags, fd, offset).map(drop) }
}

/// Does the kernel look for pages of this process that are the same, to have one in place of them
/// (PR_SET_MEMORY_MERGE, 6.4)?
#[must_use]
pub fn merges() -> bool {
    // SAFETY: asks.
    unsafe { syscall!(nr::__NR_prctl, prctl::PR_GET_MEMORY_MERGE as usize, 0, 0, 0, 0) == Ok(1) }
}

/// May a process that has lost its parent become a child of this one: as it asked for that
/// (PR_SET_CHILD_SUBREAPER), or is the first of its namespace?
#[must_use]
pub fn adopts_orphans() -> bool {
    let mut is_subreaper = 1_i32;
    let to = core::ptr::from_mut(&mut is_subreaper) as usize;
    // SAFETY: writes the number.
    let asked = unsafe { syscall!(nr::__NR_prctl, prctl::PR_GET_CHILD_SUBREAPER as usize, to, 0, 0, 0) };
    asked.is_err() || is_subreaper != 0 || process_id() == 1
}

/// It is to do so no more, and each page is its own again.
pub fn stop_merging() -> Result<(), Errno> {
    // SAFETY: changes no content.
    unsafe { syscall!(nr::__NR_prctl, prctl::PR_SET_MEMORY_MERGE as usize, 0, 0, 0, 0).map(drop) }
}

/// Moves a mapping, or a part of one, over whatever is mapped from `to` on, in one step for whoever
/// looks there.
///
/// # Safety
/// Both ranges are page-aligned and the caller's: nobody wants what was at the target.
pub unsafe fn move_over(range: AddressRange, to: usize) -> Result<(), Errno> {
    let flags = (nr::MREMAP_MAYMOVE | nr::MREMAP_FIXED) as usize;
    // SAFETY: the caller owns both ranges.
    unsafe { syscall!(nr::__NR_mremap, range.start, range.len(), range.len(), flags, to) }.map(drop)
}

/// Moves the pages of a mapping, or of a part of one, to `to`, over whatever is mapped there, in one step.
/// The mapping stays, without them (5.7; private anonymous memory). A lock of it goes with them.
///
/// # Safety
/// As for [`move_over`]; whoever touches the range finds it as it is without its pages.
pub unsafe fn move_pages_over(range: AddressRange, to: usize) -> Result<(), Errno> {
    let flags = (nr::MREMAP_MAYMOVE | nr::MREMAP_FIXED | nr::MREMAP_DONTUNMAP) as usize;
    // SAFETY: the caller owns both ranges.
    unsafe { syscall!(nr::__NR_mremap, range.start, range.len(), range.len(), flags, to) }.map(drop)
}

/// Unmaps a range.
///
/// # Safety
/// Nobody uses the range any more.
pub unsafe fn munmap(range: AddressRange) -> Result<(), Errno> {
    // SAFETY: the caller vouches that the memory is not used any more.
    unsafe { syscall!(nr::__NR_munmap, range.start, range.len()).map(drop) }
}

/// Changes what a range may be used for.
///
/// # Safety
/// Nobody relies on an access that is taken away.
pub unsafe fn mprotect(range: AddressRange, prot: Prot) -> Result<(), Errno> {
    // SAFETY: the caller vouches for the consequences.
    unsafe { syscall!(nr::__NR_mprotect, range.start, range.len(), prot.bits() as usize).map(drop) }
}

/// Advises the kernel about a range. EINTR from the populating kinds is possible when a signal is pending.
///
/// # Safety
/// For advice that changes content (`DontNeed`, `Free`, `Remove`, `WipeOnFork`) the content must be the
/// caller's to lose.
pub unsafe fn madvise(range: AddressRange, advice: Advice) -> Result<(), Errno> {
    // SAFETY: the caller vouches for the content.
    unsafe { syscall!(nr::__NR_madvise, range.start, range.len(), advice as usize).map(drop) }
}

/// One piece of advice for many ranges of this process, with one TLB flush (any advice on oneself: 6.13;
/// EPERM or EINVAL before). `pidfd` refers to this process. Returns the bytes advised, which may be fewer
/// than asked for.
///
/// # Safety
/// As for [`madvise`], for every range.
pub unsafe fn process_madvise(pidfd: &Fd, ranges: &[IoVec], advice: Advice) -> Result<usize, Errno> {
    let (pointer, count) = (ranges.as_ptr() as usize, ranges.len());
    // SAFETY: the vector is valid for reads; the caller vouches for the content.
    unsafe { syscall!(nr::__NR_process_madvise, pidfd.raw() as usize, pointer, count, advice as usize, 0) }
}

/// A descriptor of this process for [`process_madvise`] (5.3).
pub fn pidfd_self() -> Result<Fd, Errno> {
    pidfd(process_id())
}

/// A descriptor of a process, readable once that is dead (5.3). ESRCH: it is gone.
pub fn pidfd(process: u32) -> Result<Fd, Errno> {
    // SAFETY: makes a descriptor.
    make(|| unsafe { syscall!(nr::__NR_pidfd_open, process as usize, 0) })
}

/// The same of a thread that need not be the first (6.9; before EINVAL for any other).
pub fn pidfd_of_thread(tid: u32) -> Result<Fd, Errno> {
    const PIDFD_THREAD: usize = nr::O_EXCL as usize;
    // SAFETY: makes a descriptor.
    make(|| unsafe { syscall!(nr::__NR_pidfd_open, tid as usize, PIDFD_THREAD) })
}

/// The process id.
#[must_use]
pub fn process_id() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { syscall!(nr::__NR_getpid).expect("getpid cannot fail") as u32 }
}

/// The process that made this one; another one once that has ended.
#[must_use]
pub fn parent_id() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { syscall!(nr::__NR_getppid).expect("getppid cannot fail") as u32 }
}

/// Faults of all threads of the process that no device was waited for, since it was made; wraps.
#[must_use]
pub fn minor_faults() -> u32 {
    usage::of(usage::PROCESS)[usage::MINOR_FAULTS] as u32
}

/// The same of the calling thread.
#[must_use]
pub fn minor_faults_here() -> u32 {
    usage::of(usage::THREAD)[usage::MINOR_FAULTS] as u32
}

/// Do two processes run in the same memory (vfork)? False where that cannot be asked.
#[must_use]
pub fn shares_memory(one: u32, other: u32) -> bool {
    const KCMP_VM: usize = 1;
    // SAFETY: kcmp takes numbers only; it compares two processes and changes nothing.
    unsafe { syscall!(nr::__NR_kcmp, one as usize, other as usize, KCMP_VM, 0, 0) == Ok(0) }
}

/// Locks a range into memory, faulting it in.
///
/// # Safety
/// The range is mapped and not managed by a pager that would have to answer those faults from the calling
/// thread.
pub unsafe fn mlock(range: AddressRange) -> Result<(), Errno> {
    // SAFETY: does not change content; the caller vouches for faults.
    unsafe { syscall!(nr::__NR_mlock, range.start, range.len()).map(drop) }
}

/// Takes the lock off a range, of whichever of its mappings are locked.
pub fn munlock(range: AddressRange) -> Result<(), Errno> {
    // SAFETY: changes no content.
    unsafe { syscall!(nr::__NR_munlock, range.start, range.len()).map(drop) }
}

/// Copies from any address of this process; memory that is not mapped or not readable gives EFAULT instead of
/// a signal. Returns the bytes copied, which may be fewer than asked for when the source ends early.
///
/// A page that is missing in a userfaultfd range makes the call wait for its answer, so the thread that
/// answers must only ask for pages it knows to be present and cannot disappear; [`OwnMemory`] never waits.
pub fn copy_from_self(destination: &mut [u8], source: usize) -> Result<usize, Errno> {
    let local = IoVec { base: destination.as_mut_ptr() as usize, len: destination.len() };
    let remote = IoVec { base: source, len: destination.len() };
    let (local, remote) = (&raw const local as usize, &raw const remote as usize);
    // By this thread's number: once the first thread has ended, the process's own answers ESRCH,
    // and then nothing could be paged out without UFFDIO_MOVE: `torture exit` took 38 to 60 s in
    // place of 18 to 20, and once did not end in 94.
    let this = crate::thread::id() as usize;
    // SAFETY: the local vector is the exclusive slice; the remote one is checked by the kernel.
    unsafe { syscall!(nr::__NR_process_vm_readv, this, local, 1, remote, 1, 0) }
}

/// Gives anonymous memory a name in /proc/self/maps, which also keeps it apart from its neighbours (5.17, and
/// only where the kernel was built for it: failure is harmless and not reported). The name is printable ASCII
/// without brackets.
pub fn name(range: AddressRange, name: &'static CStr) {
    let (set, what) = (prctl::PR_SET_VMA as usize, prctl::PR_SET_VMA_ANON_NAME as usize);
    // SAFETY: the name is NUL-terminated; content does not change.
    let _ = unsafe { syscall!(nr::__NR_prctl, set, what, range.start, range.len(), name.as_ptr() as usize) };
}

/// /proc/self/mem: access to this process's memory that never waits for a pager. What is not mapped, and what
/// is missing in a userfaultfd range, gives EIO (seen on 6.18), without any message. Protection is ignored:
/// pages that may not be read or written can be.
#[derive(Debug)]
pub struct OwnMemory {
    fd: Fd,
}

impl OwnMemory {
    /// Opens it. EACCES, EPERM: a process that may not be traced (setuid, PR_SET_DUMPABLE).
    pub fn open() -> Result<OwnMemory, Errno> {
        Ok(OwnMemory { fd: file::open(c"/proc/thread-self/mem", file::Open::READ_WRITE)? })
    }

    /// Copies out; fewer bytes than asked for when the source ends early.
    pub fn read(&self, destination: &mut [u8], source: usize) -> Result<usize, Errno> {
        file::pread(&self.fd, destination, source as u64)
    }

    /// Copies in; fewer bytes than asked for when the destination ends early.
    ///
    /// # Safety
    /// The bytes at `destination` are the caller's to change.
    pub unsafe fn write(&self, destination: usize, source: &[u8]) -> Result<usize, Errno> {
        file::pwrite(&self.fd, source, destination as u64)
    }
}

/// A mapping that is unmapped when dropped. It lies in the [`reserve`] where there is one with
/// room, else where the kernel likes.
#[derive(Debug)]
pub struct Mapping {
    start: usize,
    len: usize,
}

impl Mapping {
    /// Private anonymous memory, zeroed, without commit charge. `len` is a multiple of the page size.
    pub fn anon(len: usize, prot: Prot) -> Result<Mapping, Errno> {
        Mapping::anon_in(len, prot, Room::None)
    }

    /// The same, at a certain kind of place in the reserve; with [`Room::ToGrow`] [`Mapping::grow`]
    /// has a chance.
    pub(crate) fn anon_in(len: usize, prot: Prot, room: Room) -> Result<Mapping, Errno> {
        if let Some(start) = reserve::take_anon(len, prot, room)? {
            return Ok(Mapping { start, len });
        }
        Mapping::new(len, prot, MAP_ANON_PRIVATE | nr::MAP_NORESERVE, -1, 0)
    }

    /// As [`Mapping::anon`], at this address. EXIST: something is there.
    pub fn anon_at(start: usize, len: usize, prot: Prot) -> Result<Mapping, Errno> {
        let flags = MAP_ANON_PRIVATE | nr::MAP_NORESERVE | nr::MAP_FIXED_NOREPLACE;
        // SAFETY: nothing is replaced.
        let start = unsafe { mmap(start, len, prot, flags, -1, 0)? };
        Ok(Mapping { start, len })
    }

    /// As [`Mapping::anon`], readable and writable, but shared with children of fork, and thereby
    /// outside of the limit on private data (`RLIMIT_DATA`).
    pub fn anon_shared(len: usize) -> Result<Mapping, Errno> {
        Mapping::new(len, Prot::RW, nr::MAP_SHARED | nr::MAP_ANONYMOUS | nr::MAP_NORESERVE, -1, 0)
    }

    /// Makes private anonymous memory, readable and writable, longer; it may be somewhere else
    /// then. On failure it is as before.
    ///
    /// # Safety
    /// It is only used at its new place.
    pub(crate) unsafe fn grow(&mut self, len: usize) -> Result<(), Errno> {
        let (range, flags) = (self.range(), nr::MREMAP_MAYMOVE as usize);
        if reserve::holds(&range) {
            reserve::extend(range, len)?;
        } else {
            // SAFETY: the mapping is ours, and the caller follows its address.
            self.start = unsafe { syscall!(nr::__NR_mremap, range.start, range.len(), len, flags)? };
        }
        self.len = len;
        Ok(())
    }

    /// Addresses without access rights, for use with [`mprotect`] or [`map_anon_fixed`].
    pub fn reserve(len: usize) -> Result<Mapping, Errno> {
        Mapping::anon(len, Prot::empty())
    }

    /// Private memory of twice `half` bytes that the kernel counts as promised, and that nobody may
    /// touch. Each half is promised for itself; the kernel, which joins them, may not promise the
    /// whole at once, as to a child of fork.
    pub fn promised_twice(half: usize) -> Result<Mapping, Errno> {
        let mapping = Mapping::new(2 * half, Prot::empty(), MAP_ANON_PRIVATE | nr::MAP_NORESERVE, -1, 0)?;
        for start in [mapping.start, mapping.start + half] {
            // SAFETY: the place is ours, and nothing is in it.
            unsafe { mmap(start, half, Prot::RW, MAP_ANON_PRIVATE | nr::MAP_FIXED, -1, 0)? };
        }
        // SAFETY: as above. What is promised stays so.
        unsafe { mprotect(mapping.range(), Prot::empty())? };
        Ok(mapping)
    }

    /// A file, shared with everybody who maps it.
    pub fn shared(fd: &Fd, len: usize, prot: Prot, offset: u64) -> Result<Mapping, Errno> {
        Mapping::new(len, prot, nr::MAP_SHARED, fd.raw(), offset)
    }

    /// A file, stores stay private.
    pub fn private(fd: &Fd, len: usize, prot: Prot, offset: u64) -> Result<Mapping, Errno> {
        Mapping::new(len, prot, nr::MAP_PRIVATE, fd.raw(), offset)
    }

    /// The rings of io_uring where the kernel makes them: only it may choose an address since 6.6, and
    /// they cannot be moved. So they lie outside of the reserve.
    pub(crate) fn rings(fd: &Fd, len: usize, offset: u64) -> Result<Mapping, Errno> {
        // SAFETY: nothing is replaced.
        let start = unsafe { mmap(0, len, Prot::RW, nr::MAP_SHARED | nr::MAP_POPULATE, fd.raw(), offset)? };
        Ok(Mapping { start, len })
    }

    /// Addresses of a file that nobody may touch, outside of the reserve: what they become when they
    /// are opened up is shared with others, or not.
    pub fn aside(fd: &Fd, len: usize, offset: u64, shared: bool) -> Result<Mapping, Errno> {
        let flags = if shared { nr::MAP_SHARED } else { nr::MAP_PRIVATE };
        // SAFETY: nothing is replaced.
        let start = unsafe { mmap(0, len, Prot::empty(), flags, fd.raw(), offset)? };
        Ok(Mapping { start, len })
    }

    fn new(len: usize, prot: Prot, flags: u32, fd: i32, offset: u64) -> Result<Mapping, Errno> {
        let (wish, fixed) = reserve::take(len).map_or((0, 0), |start| (start, nr::MAP_FIXED));
        // SAFETY: a part of the reserve that was taken is nobody else's; elsewhere nothing is
        // replaced. What is refused in the reserve may be a hole now, and is not given back.
        let start = unsafe { mmap(wish, len, prot, flags | fixed, fd, offset)? };
        Ok(Mapping { start, len })
    }

    /// Takes over a range that somebody else mapped.
    ///
    /// # Safety
    /// The range is mapped, page-aligned and nobody else unmaps it.
    #[must_use]
    pub unsafe fn from_range(range: AddressRange) -> Mapping {
        assert!(range.start.is_multiple_of(PAGE_SIZE) && !range.is_empty());
        Mapping { start: range.start, len: range.len() }
    }

    /// First address.
    #[must_use]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// All of it.
    #[must_use]
    pub fn range(&self) -> AddressRange {
        self.start..self.start + self.len
    }

    /// Page `index` of it.
    #[must_use]
    pub fn page(&self, index: usize) -> usize {
        assert!(index < self.len / PAGE_SIZE, "page outside the mapping");
        self.start + index * PAGE_SIZE
    }

    /// The first byte as a pointer.
    #[must_use]
    pub fn as_ptr<T>(&self) -> *mut T {
        self.start as *mut T
    }

    /// Advice for all of it. See [`madvise`].
    ///
    /// # Safety
    /// As for [`madvise`].
    pub unsafe fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: passed on to the caller.
        unsafe { madvise(self.range(), advice) }
    }

    /// Keeps the memory mapped for ever.
    #[must_use]
    pub fn leak(self) -> AddressRange {
        let range = self.range();
        core::mem::forget(self);
        range
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let range = self.range();
        // SAFETY: the mapping is owned; whoever holds its addresses was told so by the borrow of `self`.
        let result =
            unsafe { if reserve::holds(&range) { reserve::give_back(range) } else { munmap(range) } };
        debug_assert!(result.is_ok(), "unmapping an owned mapping cannot fail");
    }
}

/// Private memory as bytes, zero at first; it takes RAM where it was written, page by page.
#[derive(Debug)]
pub struct Buffer {
    mapping: Mapping,
}

impl Buffer {
    /// `len` bytes, a multiple of the page size, that no child of fork gets.
    pub fn new(len: usize) -> Result<Buffer, Errno> {
        let buffer = Buffer::inherited(len)?;
        // SAFETY: it changes no content, and the mapping is the buffer's.
        unsafe { buffer.mapping.advise(Advice::DontFork) }?;
        Ok(buffer)
    }

    /// The same, of which a child of fork has a copy: not for what a device reads into.
    pub fn inherited(len: usize) -> Result<Buffer, Errno> {
        let mapping = Mapping::anon(len, Prot::RW)?;
        for advice in [Advice::NoHugePage, Advice::DontDump] {
            // SAFETY: neither changes content, and the mapping is ours.
            unsafe { mapping.advise(advice) }?;
        }
        name(mapping.range(), c"overspill buffer");
        Ok(Buffer { mapping })
    }

    /// Where it is.
    #[must_use]
    pub fn range(&self) -> AddressRange {
        self.mapping.range()
    }

    /// `len` bytes from `at` on.
    #[must_use]
    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at <= self.mapping.len() && len <= self.mapping.len() - at);
        // SAFETY: the bytes lie in the mapping, which lives as long as `self` and is written only
        // through `&mut self`.
        unsafe { core::slice::from_raw_parts((self.mapping.start() + at) as *const u8, len) }
    }

    /// The same, to be written.
    pub fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at <= self.mapping.len() && len <= self.mapping.len() - at);
        // SAFETY: as above; nobody else has a reference.
        unsafe { core::slice::from_raw_parts_mut((self.mapping.start() + at) as *mut u8, len) }
    }

    /// Copies `len` bytes within the buffer.
    pub fn copy(&mut self, from: usize, to: usize, len: usize) {
        let all = self.mapping.len();
        self.bytes_mut(0, all).copy_within(from..from + len, to);
    }

    /// Gives the memory of whole pages back: they are zero again. False: they take RAM still.
    ///
    /// *The story:* a program that had called mlockall was refused, and the pages counted as given back.
    /// Memory of ours need not stay locked.
    #[must_use]
    pub fn discard(&mut self, at: usize, len: usize) -> bool {
        assert!(
            at.is_multiple_of(PAGE_SIZE) && len.is_multiple_of(PAGE_SIZE) && at + len <= self.mapping.len()
        );
        let start = self.mapping.start() + at;
        // SAFETY: the pages are in the mapping, and nobody has a reference to their bytes. A
        // refusal leaves old bytes there.
        let drop_pages = || unsafe { madvise(start..start + len, Advice::DontNeed) }.is_ok();
        drop_pages() || munlock(self.mapping.range()).is_ok() && drop_pages()
    }
}
