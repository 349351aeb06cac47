//! Files: the swap area's own, those others own, and memory files.
//!
//! It never keeps an offset (all I/O is positioned) and never retries: short counts and EINTR are the
//! caller's to see.

use crate::event::{self, PollFd};
use crate::fd::make;
use crate::mem::IoVec;
use crate::raw::{IOC_READ, IOC_WRITE, ioctl_number, nr, syscall};
use crate::{Errno, Fd, proc_place};
use bitflags::bitflags;
use core::ffi::CStr;

bitflags! {
    /// How a file is opened. Close-on-exec always.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Open: u32 {
        /// Writing only.
        const WRITE_ONLY = nr::O_WRONLY;
        /// Reading and writing (neither: reading only).
        const READ_WRITE = nr::O_RDWR;
        /// Make it, mode 0600, if it is not there.
        const CREATE = nr::O_CREAT;
        /// With `CREATE`: EEXIST when it is there.
        const EXCLUSIVE = nr::O_EXCL;
        /// Writes go to the end.
        const APPEND = nr::O_APPEND;
        /// Past the page cache: address, offset and length are multiples of the device's block size.
        const DIRECT = nr::O_DIRECT;
        /// ENOTDIR unless it is a directory.
        const DIRECTORY = nr::O_DIRECTORY;
        /// ELOOP when the last part is a symbolic link.
        const NO_FOLLOW = nr::O_NOFOLLOW;
        /// Never wait.
        const NON_BLOCKING = nr::O_NONBLOCK;
        /// The name alone, for [`status`] and [`open_again`]: nothing of the file is opened.
        const NAME_ONLY = nr::O_PATH;
        /// A terminal does not become the session's.
        const NO_TERMINAL = nr::O_NOCTTY;
    }
}

const MODE_PRIVATE: usize = 0o600;
const HERE: usize = nr::AT_FDCWD as isize as usize;

/// Opens a file by path (relative to the working directory of the process).
pub fn open(path: &CStr, how: Open) -> Result<Fd, Errno> {
    open_flags(path, how.bits())
}

fn open_flags(path: &CStr, flags: u32) -> Result<Fd, Errno> {
    let flags = (flags | nr::O_CLOEXEC) as usize;
    let (from, path) = proc_place::place(path);
    // SAFETY: the path is NUL-terminated.
    make(|| unsafe { syscall!(nr::__NR_openat, from, path.as_ptr() as usize, flags, MODE_PRIVATE) })
}

/// A new file in `directory` that has no name, mode 0600, for reading and writing, past the page cache when
/// `direct`.
///
/// EOPNOTSUPP: the file system has no such files: make one with `CREATE | EXCLUSIVE` and [`unlink`] it.
pub fn open_nameless(directory: &CStr, direct: bool) -> Result<Fd, Errno> {
    let direct = if direct { nr::O_DIRECT } else { 0 };
    // EXCLUSIVE: it cannot be given a name later.
    match open_flags(directory, nr::O_TMPFILE | nr::O_EXCL | nr::O_RDWR | direct) {
        // Kernels that do not know the flag see an attempt to write to a directory.
        Err(Errno::ISDIR) => Err(Errno::OPNOTSUPP),
        other => other,
    }
}

/// Removes a name.
pub fn unlink(path: &CStr) -> Result<(), Errno> {
    // SAFETY: the path is NUL-terminated.
    unsafe { syscall!(nr::__NR_unlinkat, HERE, path.as_ptr() as usize, 0).map(drop) }
}

/// Opens what descriptor `fd` of process `pid` refers to (for example a memory file), for reading and
/// writing.
///
/// EACCES, EPERM: not our process to look into. ENOENT: gone.
pub fn open_of_process(pid: u32, fd: u32) -> Result<Fd, Errno> {
    open_of_other(pid, fd, Open::READ_WRITE)
}

/// The same of any thread, by its number, in the way that is asked for.
pub fn open_of_other(tid: u32, fd: u32, how: Open) -> Result<Fd, Errno> {
    let mut path = [0u8; 40];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        path[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(b"/proc/");
    put(crate::text::Decimal::new(u64::from(tid)).as_bytes());
    put(b"/fd/");
    put(crate::text::Decimal::new(u64::from(fd)).as_bytes());
    let path = CStr::from_bytes_until_nul(&path).expect("the buffer is longer than the longest path");
    open(path, how)
}

/// Opens the file of a descriptor of the calling thread's once more: an open file of its own, with a
/// position and flags of its own. EACCES: whoever gave the descriptor may, the caller may not.
pub fn open_again(fd: &Fd, how: Open) -> Result<Fd, Errno> {
    open_number_again(fd.raw(), how)
}

/// The same of a descriptor that has another owner, by its number.
pub fn open_number_again(fd: i32, how: Open) -> Result<Fd, Errno> {
    let mut path = [0u8; 40];
    open(descriptor_path(b"/proc/thread-self/fd/", fd, &mut path), how)
}

/// Puts a path of /proc together: `start`, a descriptor.
fn descriptor_path<'a>(start: &[u8], fd: i32, path: &'a mut [u8]) -> &'a CStr {
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        path[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(start);
    put(crate::text::Decimal::new(u64::from(fd.cast_unsigned())).as_bytes());
    put(&[0]);
    CStr::from_bytes_until_nul(path).expect("a zero was put at the end")
}

/// The name by which the file of a descriptor of the calling thread's was opened, as far as it fits.
pub fn name_of<'a>(fd: &Fd, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0u8; 40];
    let path = descriptor_path(b"/proc/thread-self/fd/", fd.raw(), &mut path);
    read_link(path, text).ok()
}

/// What a symbolic link says, cut to the length of `text`.
pub fn read_link<'a>(path: &CStr, text: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let (at, len) = (text.as_mut_ptr() as usize, text.len());
    let (from, path) = proc_place::place(path);
    // SAFETY: the path is NUL-terminated and the buffer exclusive.
    let len = unsafe { syscall!(nr::__NR_readlinkat, from, path.as_ptr() as usize, at, len)? };
    Ok(&text[..len])
}

/// Makes a directory the working directory of the calling thread, and of those that follow its.
pub fn change_directory(path: &CStr) -> Result<(), Errno> {
    // SAFETY: the path is NUL-terminated.
    unsafe { syscall!(nr::__NR_chdir, path.as_ptr() as usize).map(drop) }
}

/// Descriptor `fd` of this process's first thread, for a thread that has a descriptor table of its
/// own: the same open file, with its position and flags (5.6). EBADF: that descriptor is not open.
pub fn descriptor_of_program(fd: u32) -> Result<Fd, Errno> {
    let process = crate::mem::pidfd_self()?;
    // SAFETY: makes a descriptor.
    make(|| unsafe { syscall!(nr::__NR_pidfd_getfd, process.raw() as usize, fd as usize, 0) })
}

/// The same of a thread's own table, which need not be the first thread's (6.9; before, it is that one's).
pub fn descriptor_of_thread(tid: u32, fd: u32) -> Result<Fd, Errno> {
    let thread = match crate::mem::pidfd_of_thread(tid) {
        Err(Errno::INVAL) => crate::mem::pidfd_self()?,
        thread => thread?,
    };
    // SAFETY: makes a descriptor.
    make(|| unsafe { syscall!(nr::__NR_pidfd_getfd, thread.raw() as usize, fd as usize, 0) })
}

/// Puts a directory's position to its beginning.
pub(crate) fn rewind(directory: &Fd) -> Result<(), Errno> {
    // SAFETY: changes a position.
    unsafe { syscall!(nr::__NR_lseek, directory.raw() as usize, 0, nr::SEEK_SET as usize).map(drop) }
}

/// May the caller, with its effective rights, read (`nr::R_OK`) or write (`nr::W_OK`) what has that path?
/// EROFS: nobody writes there (5.8).
pub fn may(path: &CStr, rights: u32) -> Result<(), Errno> {
    let (path, rights, flags) = (path.as_ptr() as usize, rights as usize, nr::AT_EACCESS as usize);
    // SAFETY: the path is NUL-terminated; looks only.
    unsafe { syscall!(nr::__NR_faccessat2, nr::AT_FDCWD as usize, path, rights, flags).map(drop) }
}

/// A file that lives in memory, empty (3.17).
pub fn memfd(name: &CStr) -> Result<Fd, Errno> {
    // SAFETY: the name is NUL-terminated.
    make(|| unsafe { syscall!(nr::__NR_memfd_create, name.as_ptr() as usize, nr::MFD_CLOEXEC as usize) })
}

/// Sets the length.
pub fn truncate(fd: &Fd, len: u64) -> Result<(), Errno> {
    // SAFETY: changes the file only.
    unsafe { syscall!(nr::__NR_ftruncate, fd.raw() as usize, len as usize).map(drop) }
}

/// Mode of fallocate: gives blocks back, the length stays, the range reads as zeroes.
pub const PUNCH_HOLE: u32 = nr::FALLOC_FL_PUNCH_HOLE | nr::FALLOC_FL_KEEP_SIZE;

/// Gives blocks back: the range reads as zeroes. EOPNOTSUPP: the file system cannot.
pub fn punch_hole(fd: &Fd, offset: u64, len: u64) -> Result<(), Errno> {
    let (fd, mode) = (fd.raw() as usize, PUNCH_HOLE as usize);
    // SAFETY: changes the file only.
    unsafe { syscall!(nr::__NR_fallocate, fd, mode, offset as usize, len as usize).map(drop) }
}

/// Is there anything at `offset`, or is it a hole (or the end)? (Moves the offset of the open file,
/// which nothing here uses.)
pub fn has_data(fd: &Fd, offset: u64) -> Result<bool, Errno> {
    // SAFETY: changes the offset only.
    match unsafe { syscall!(nr::__NR_lseek, fd.raw() as usize, offset as usize, nr::SEEK_DATA as usize) } {
        Ok(found) => Ok(found as u64 == offset),
        Err(Errno::NXIO) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Positioned read into a slice; 0 at the end of the file.
pub fn pread(fd: &Fd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    // SAFETY: the slice is exclusive.
    unsafe { pread_at(fd, buffer.as_mut_ptr() as usize, buffer.len(), offset) }
}

/// Positioned write from a slice.
pub fn pwrite(fd: &Fd, buffer: &[u8], offset: u64) -> Result<usize, Errno> {
    // SAFETY: the slice is valid for reads.
    unsafe { pwrite_at(fd, buffer.as_ptr() as usize, buffer.len(), offset) }
}

/// Positioned read to an address.
///
/// # Safety
/// The memory is the caller's to overwrite (or not mapped: EFAULT).
pub unsafe fn pread_at(fd: &Fd, address: usize, len: usize, offset: u64) -> Result<usize, Errno> {
    // SAFETY: the caller vouches for the memory.
    unsafe { syscall!(nr::__NR_pread64, fd.raw() as usize, address, len, offset as usize) }
}

/// Positioned write from an address.
///
/// # Safety
/// The memory is readable (or not mapped: EFAULT), and a concurrent store only makes the written bytes
/// either.
pub unsafe fn pwrite_at(fd: &Fd, address: usize, len: usize, offset: u64) -> Result<usize, Errno> {
    // SAFETY: the caller vouches for the memory.
    unsafe { syscall!(nr::__NR_pwrite64, fd.raw() as usize, address, len, offset as usize) }
}

/// Positioned vectored read, at most 1024 vectors. The descriptor is a plain number because threads share it.
///
/// # Safety
/// `fd` is open; the memory is the caller's to overwrite.
pub unsafe fn preadv(fd: i32, vectors: &[IoVec], offset: u64) -> Result<usize, Errno> {
    let (pointer, count) = (vectors.as_ptr() as usize, vectors.len());
    // SAFETY: the caller vouches for the memory; the high half of the offset is unused on 64 bits.
    unsafe { syscall!(nr::__NR_preadv, fd as usize, pointer, count, offset as usize, 0) }
}

/// Positioned vectored write, at most 1024 vectors.
///
/// # Safety
/// `fd` is open; the memory is readable.
pub unsafe fn pwritev(fd: i32, vectors: &[IoVec], offset: u64) -> Result<usize, Errno> {
    let (pointer, count) = (vectors.as_ptr() as usize, vectors.len());
    // SAFETY: the caller vouches for the memory; the high half of the offset is unused on 64 bits.
    unsafe { syscall!(nr::__NR_pwritev, fd as usize, pointer, count, offset as usize, 0) }
}

/// Appends to a descriptor at its own offset (a terminal, a pipe): for messages, the one place without a
/// position.
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the slice is valid for reads; a bad number gives EBADF.
    unsafe { syscall!(nr::__NR_write, fd as usize, bytes.as_ptr() as usize, bytes.len()) }
}

/// As [`write()`], but what would wait for a reader is not written: EAGAIN, or a smaller count. A file
/// in a file system may take its time, and each may have a lock that another who writes to it holds.
pub fn write_at_once(fd: &Fd, bytes: &[u8]) -> Result<usize, Errno> {
    if status(fd)?.kind == Kind::Regular {
        return write(fd.raw(), bytes);
    }
    if event::poll(&mut [PollFd::writable(fd)], Some(0))? == 0 {
        return Err(Errno::AGAIN);
    }
    // To have asked is not enough where others write, too. Pipes and sockets can be told not to wait.
    let vector = [IoVec { base: bytes.as_ptr() as usize, len: bytes.len() }];
    let (pointer, here) = (vector.as_ptr() as usize, usize::MAX);
    // SAFETY: the slice is valid for reads.
    let written = unsafe {
        syscall!(nr::__NR_pwritev2, fd.raw() as usize, pointer, 1, here, 0, nr::RWF_NOWAIT as usize)
    };
    if written != Err(Errno::OPNOTSUPP) {
        return written;
    }
    // A terminal cannot, but has another open file for whoever may open it.
    let how = Open::WRITE_ONLY | Open::NON_BLOCKING | Open::NO_TERMINAL;
    let again = open_again(fd, how);
    write(again.as_ref().unwrap_or(fd).raw(), bytes)
}

/// Tells a file from all others: its device, its number there, and when it was made, since numbers
/// are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(pub [u64; 3]);

/// Which file a descriptor has (4.11).
pub fn identity(fd: &Fd) -> Result<Identity, Errno> {
    // SAFETY: all-zero is a valid value of the plain structure.
    let mut told: nr::statx = unsafe { core::mem::zeroed() };
    let (empty, out) = (c"".as_ptr() as usize, &raw mut told as usize);
    let (flags, mask) = (nr::AT_EMPTY_PATH as usize, (nr::STATX_INO | nr::STATX_BTIME) as usize);
    // SAFETY: the path is NUL-terminated, the structure is the call's.
    unsafe { syscall!(nr::__NR_statx, fd.raw() as usize, empty, flags, mask, out)? };
    let device = u64::from(told.stx_dev_major) << 32 | u64::from(told.stx_dev_minor);
    // Where the file system does not know that, it is zero.
    let made = (told.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000);
    Ok(Identity([device, told.stx_ino, made.wrapping_add(u64::from(told.stx_btime.tv_nsec))]))
}

/// Is it open for reading? Not to name a file alone (O_PATH), nor to write to it.
#[must_use]
pub fn is_readable(fd: &Fd) -> bool {
    // SAFETY: asks.
    let flags = unsafe { syscall!(nr::__NR_fcntl, fd.raw() as usize, nr::F_GETFL as usize) };
    flags.is_ok_and(|flags| {
        let flags = flags as u32;
        flags & nr::O_PATH == 0 && flags & nr::O_ACCMODE != nr::O_WRONLY
    })
}

/// From now on it goes through the page cache, if it was opened past that.
pub fn take_off_direct(fd: &Fd) -> Result<(), Errno> {
    // SAFETY: asks, and changes a flag of an open file.
    unsafe {
        let flags = syscall!(nr::__NR_fcntl, fd.raw() as usize, nr::F_GETFL as usize)?;
        let flags = flags & !(nr::O_DIRECT as usize);
        syscall!(nr::__NR_fcntl, fd.raw() as usize, nr::F_SETFL as usize, flags).map(drop)
    }
}

/// What kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes in a file system.
    Regular,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// Anything else.
    Other,
}

/// What [`status`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// What kind of file.
    pub kind: Kind,
    /// Length in bytes (0 for a device: see [`device_bytes`]).
    pub len: u64,
    /// Bytes allocated on the file system.
    pub allocated_bytes: u64,
    /// Device that holds it: major and minor number.
    pub device: (u32, u32),
    /// Device that it is.
    pub is_device: (u32, u32),
    /// Its number there.
    pub inode: u64,
    /// When its content changed last, in nanoseconds since 1970.
    pub changed_ns: i128,
    /// When that or what is known of the file changed last; nobody can set it.
    pub touched_ns: i128,
    /// Its names; for a directory these are two, and one for each directory in it.
    pub links: u64,
    /// What it is, and who may do what with it.
    pub mode: u32,
}

/// Kind, length and place of an open file.
pub fn status(fd: &Fd) -> Result<Status, Errno> {
    // SAFETY: all-zero is a valid value of the plain structure.
    let mut stat: nr::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is the call's.
    unsafe { syscall!(nr::__NR_fstat, fd.raw() as usize, &raw mut stat as usize)? };
    Ok(told(&stat))
}

/// The same of the file of this name, without a descriptor.
pub fn status_of(path: &CStr) -> Result<Status, Errno> {
    // SAFETY: all-zero is a valid value of the plain structure.
    let mut stat: nr::stat = unsafe { core::mem::zeroed() };
    let (from, path) = proc_place::place(path);
    let (path, out) = (path.as_ptr() as usize, &raw mut stat as usize);
    // SAFETY: the path is NUL-terminated, the structure is the calls'.
    unsafe {
        if from == HERE {
            // What libc of old calls, too: the thread may be behind a filter.
            syscall!(nr::__NR_stat, path, out)?;
        } else {
            syscall!(nr::__NR_newfstatat, from, path, out, 0)?;
        }
    }
    Ok(told(&stat))
}

fn told(stat: &nr::stat) -> Status {
    let kind = match stat.st_mode & nr::S_IFMT {
        nr::S_IFREG => Kind::Regular,
        nr::S_IFDIR => Kind::Directory,
        nr::S_IFBLK => Kind::BlockDevice,
        _ => Kind::Other,
    };
    Status {
        kind,
        len: stat.st_size as u64,
        allocated_bytes: stat.st_blocks as u64 * 512,
        device: device_numbers(stat.st_dev),
        is_device: device_numbers(stat.st_rdev),
        inode: stat.st_ino,
        links: stat.st_nlink,
        mode: stat.st_mode,
        changed_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
        touched_ns: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
    }
}

/// Major and minor number from the kernel's packing.
fn device_numbers(packed: u64) -> (u32, u32) {
    let major = (packed >> 8 & 0xfff) | (packed >> 32 & !0xfff);
    let minor = (packed & 0xff) | (packed >> 12 & !0xff);
    (major as u32, minor as u32)
}

impl Status {
    /// When its content changed last, as it says, and as the kernel has it.
    #[must_use]
    pub fn times(&self) -> [i128; 2] {
        [self.changed_ns, self.touched_ns]
    }

    /// May its content be another than when this was `known` of it? A new name, one less, or another
    /// mode sets one of the times, too.
    #[must_use]
    pub fn may_be_written_since(&self, known: &Status) -> bool {
        let is_its_own = self.links != known.links || self.mode != known.mode;
        let is_same = self.changed_ns == known.changed_ns && self.len == known.len;
        self.times() != known.times() && !(is_same && is_its_own)
    }
}

/// Space of the file system that holds an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it, in bytes.
    pub total_bytes: u64,
    /// What a user without privileges can still have.
    pub available_bytes: u64,
    /// The kernel's number for the kind of file system ([`TMPFS_MAGIC`], ...).
    pub magic: u64,
}

/// [`Space::magic`] of tmpfs: such files are memory themselves.
pub const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The same of Btrfs.
pub const BTRFS_MAGIC: u64 = 0x9123_683e;

/// The same of file systems whose files change by this kernel alone: ext2 to ext4, XFS, Btrfs, F2FS.
const LOCAL_MAGICS: [u64; 4] = [0xef53, 0x5846_5342, BTRFS_MAGIC, 0xf2f5_2010];

impl Space {
    /// Does nobody change its files but through this kernel and this file system? False: not known.
    #[must_use]
    pub fn is_local(&self) -> bool {
        LOCAL_MAGICS.contains(&self.magic)
    }
}

/// Space of the file system that holds an open file.
pub fn space(fd: &Fd) -> Result<Space, Errno> {
    // SAFETY: all-zero is a valid value of the plain structure.
    let mut stat: nr::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is the call's.
    unsafe { syscall!(nr::__NR_fstatfs, fd.raw() as usize, &raw mut stat as usize)? };
    let unit = stat.f_frsize as u64;
    Ok(Space {
        total_bytes: stat.f_blocks as u64 * unit,
        available_bytes: stat.f_bavail as u64 * unit,
        magic: stat.f_type as u64,
    })
}

const BLKGETSIZE64: u32 = ioctl_number(IOC_READ, 0x12, 114, size_of::<usize>());

/// Length of a block device in bytes. ENOTTY: it is none.
pub fn device_bytes(fd: &Fd) -> Result<u64, Errno> {
    let mut bytes = 0u64;
    // SAFETY: the command writes one integer.
    unsafe { fd.ioctl(BLKGETSIZE64, &raw mut bytes)? };
    Ok(bytes)
}

const BLKROGET: u32 = ioctl_number(0, 0x12, 94, 0);

/// May nothing be written to a block device? ENOTTY: it is none.
pub fn device_is_read_only(fd: &Fd) -> Result<bool, Errno> {
    let mut is_read_only = 0u32;
    // SAFETY: the command writes one integer.
    unsafe { fd.ioctl(BLKROGET, &raw mut is_read_only)? };
    Ok(is_read_only != 0)
}

// The kernel reads and writes 32 bits, whatever the numbers say.
const FS_IOC_GETFLAGS: u32 = ioctl_number(IOC_READ, b'f', 1, size_of::<usize>());
const FS_IOC_SETFLAGS: u32 = ioctl_number(IOC_WRITE, b'f', 2, size_of::<usize>());
const FS_NOCOW: u32 = 0x0080_0000;
const FS_COMPRESSED: u32 = 0x4;

/// Is a file written where it lies, as chattr(1) has it by `C`? Of Btrfs: others always are.
pub fn is_in_place(fd: &Fd) -> Result<bool, Errno> {
    inode_flags(fd).map(|flags| flags & FS_NOCOW != 0)
}

/// From now on it is, and not compressed; only a file without content can be changed in that way.
pub fn set_in_place(fd: &Fd) -> Result<(), Errno> {
    let mut flags = inode_flags(fd)? & !FS_COMPRESSED | FS_NOCOW;
    // SAFETY: the command reads one integer.
    unsafe { fd.ioctl(FS_IOC_SETFLAGS, &raw mut flags).map(drop) }
}

fn inode_flags(fd: &Fd) -> Result<u32, Errno> {
    let mut flags = 0u32;
    // SAFETY: the command writes one integer.
    unsafe { fd.ioctl(FS_IOC_GETFLAGS, &raw mut flags)? };
    Ok(flags)
}

const BLKDISCARD: u32 = ioctl_number(0, 0x12, 119, 0);

/// Tells a block device that nobody needs these bytes any more, and waits until it has heard.
/// EOPNOTSUPP: it does not want to know.
pub fn discard_blocks(fd: &Fd, offset: u64, len: u64) -> Result<(), Errno> {
    let mut range = [offset, len];
    // SAFETY: the command reads two integers; the content is the caller's to lose.
    unsafe { fd.ioctl(BLKDISCARD, &raw mut range).map(drop) }
}

/// Locks the open file for this descriptor alone, until it is closed or its process ends. EAGAIN:
/// somebody else has the lock.
pub fn lock(fd: &Fd) -> Result<(), Errno> {
    let how = (nr::LOCK_EX | nr::LOCK_NB) as usize;
    // SAFETY: takes no memory.
    unsafe { syscall!(nr::__NR_flock, fd.raw() as usize, how).map(drop) }
}

/// A run of a file that is contiguous on its device (`struct fiemap_extent`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Where it starts in the file.
    pub logical: u64,
    /// Where it starts on the device.
    pub physical: u64,
    /// Its length in bytes.
    pub len: u64,
    reserved: [u64; 2],
    /// The kernel's FIEMAP_EXTENT_ flags ([`Extent::LAST`], ...).
    pub flags: u32,
    reserved_after: [u32; 3],
}

impl Extent {
    /// Nothing follows.
    pub const LAST: u32 = 1 << 0;
    /// The place is not known.
    pub const UNKNOWN: u32 = 1 << 1;
    /// Not on the device yet.
    pub const DELAYED: u32 = 1 << 2;
    /// Compressed or otherwise unlike what is read.
    pub const ENCODED: u32 = 1 << 3;
    /// Encrypted by the file system.
    pub const ENCRYPTED: u32 = 1 << 7;
    /// Begins or ends within a block.
    pub const UNALIGNED: u32 = 1 << 8;
    /// Lies among the file system's own data.
    pub const INLINE: u32 = 1 << 9;
    /// Shares its block with other files' ends.
    pub const TAIL: u32 = 1 << 10;
    /// Other files have it, too (a reflink).
    pub const SHARED: u32 = 1 << 13;
    /// Reserved and never written: reads as zeroes.
    pub const UNWRITTEN: u32 = 1 << 11;
}

/// Extents a call of [`extents`] can tell.
pub const EXTENTS_MAX: usize = 64;

#[repr(C)]
struct Fiemap {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS_MAX],
}
const FIEMAP_HEADER: usize = 32;
const _: () = assert!(size_of::<Extent>() == 56);
const _: () = assert!(size_of::<Fiemap>() == FIEMAP_HEADER + 56 * EXTENTS_MAX);
const FS_IOC_FIEMAP: u32 = ioctl_number(IOC_READ | IOC_WRITE, b'f', 11, FIEMAP_HEADER);
const FIEMAP_FLAG_SYNC: u32 = 1;

/// The extents of a file from `offset` on, as many as fit; returns how many. Go on behind the last one until
/// one carries [`Extent::LAST`] or none come. EOPNOTSUPP: the file system cannot tell.
pub fn extents(fd: &Fd, offset: u64, out: &mut [Extent; EXTENTS_MAX]) -> Result<usize, Errno> {
    let mut map = Fiemap {
        start: offset,
        len: u64::MAX - offset,
        flags: FIEMAP_FLAG_SYNC,
        mapped: 0,
        count: EXTENTS_MAX as u32,
        reserved: 0,
        extents: [Extent::default(); EXTENTS_MAX],
    };
    // SAFETY: the structure is the command's, with room for `count` extents behind the header.
    unsafe { fd.ioctl(FS_IOC_FIEMAP, &raw mut map)? };
    *out = map.extents;
    Ok((map.mapped as usize).min(EXTENTS_MAX))
}

const FIBMAP: u32 = ioctl_number(0, 0, 1, 0);
const FIGETBSZ: u32 = ioctl_number(0, 0, 2, 0);

/// Bytes of a block as [`device_block`] counts them.
pub fn block_bytes(fd: &Fd) -> Result<u32, Errno> {
    let mut bytes = 0u32;
    // SAFETY: the command writes one integer.
    unsafe { fd.ioctl(FIGETBSZ, &raw mut bytes)? };
    Ok(bytes)
}

/// The block of its device at which a block of a file lies; `None`: it lies nowhere. EPERM: only who
/// has CAP_SYS_RAWIO may ask. EINVAL, ENOTTY: the file system cannot tell, or there is no such number.
pub fn device_block(fd: &Fd, block: u32) -> Result<Option<u32>, Errno> {
    let mut block = block;
    // SAFETY: the command reads one integer and writes another in its place.
    unsafe { fd.ioctl(FIBMAP, &raw mut block)? };
    Ok(Some(block).filter(|&block| block != 0))
}

/// Waits until what was written to a file is on its device, and has its place there.
pub fn sync(fd: &Fd) -> Result<(), Errno> {
    // SAFETY: takes no memory.
    unsafe { syscall!(nr::__NR_fsync, fd.raw() as usize).map(drop) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_split_like_makedev() {
        for (major, minor) in [(8, 1), (259, 3), (0, 0x12345), (4095, 0xfffff)] {
            assert_eq!(device_numbers(libc::makedev(major, minor)), (major, minor));
        }
    }

    /// *The story:* a lease was believed of files that a server's other clients write to.
    #[test]
    fn only_what_is_known_to_be_local_is() {
        let is_local = |magic| Space { total_bytes: 0, available_bytes: 0, magic }.is_local();
        assert!([0xef53, 0x5846_5342].into_iter().all(is_local), "ext4 and XFS");
        let others = [0x6969, 0x6573_5546, 0x794c_7630, 0x7461_636f, 0xff53_4d42, TMPFS_MAGIC, 0];
        assert!(!others.into_iter().any(is_local), "NFS, FUSE, overlay, OCFS2, CIFS, tmpfs");
    }
}
