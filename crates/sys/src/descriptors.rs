//! What a thread that has a descriptor table of its own can see of the program's: which descriptors
//! there are, and a few of their properties.
//!
//! It sees links under /proc, and borrows a descriptor for the length of one question where a link
//! does not say enough. Whoever closes that descriptor meanwhile has closed it some microseconds
//! later, or milliseconds where another thread comes in between: [`ASKED`] says which it is, for who can
//! wait, and [`Looks`] whether a name or port may have been taken for that. It never keeps one, and never
//! asks what takes a lock: a thread of the program that waits for a page may hold that of the pipe or
//! socket that it reads into. *The story:* FIONREAD of a pipe waited for a vmsplice that waited for the
//! page that only the asking thread could bring.

use crate::event::{self, PollFd};
use crate::fd::make;
use crate::file::{self, Open};
use crate::procfs::{TASK_PATH_BYTES, ThreadId};
use crate::raw::{nr, syscall};
use crate::text::{Decimal, joined, take_number};
use crate::{Errno, Fd, mem, procfs, thread};
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering::SeqCst};

/// The number of the descriptor that is borrowed, or about to be; [`NONE_ASKED`]: none.
pub static ASKED: AtomicI32 = AtomicI32::new(NONE_ASKED);
/// No descriptor's number, and nobody's who closes any.
pub const NONE_ASKED: i32 = i32::MIN;

/// Looks at descriptors that are under way, and that have ended.
static LOOKING: AtomicU32 = AtomicU32::new(0);
static LOOKED: AtomicU32 = AtomicU32::new(0);

/// A moment. *The story:* a port was bound right after it had been closed: "address already in use", since
/// the agent had a copy of the socket for a question.
#[derive(Clone, Copy, Debug)]
pub struct Looks(u32);

impl Looks {
    /// This one.
    #[must_use]
    pub fn now() -> Looks {
        Looks(LOOKED.load(SeqCst))
    }

    /// Was anything of the program's looked at then, or since? What is closed is closed if not.
    #[must_use]
    pub fn were_any(self) -> bool {
        Looks::are_any() || LOOKED.load(SeqCst) != self.0
    }

    /// Is anything of the program's looked at?
    #[must_use]
    pub fn are_any() -> bool {
        LOOKING.load(SeqCst) > 0
    }

    /// In a child of fork, where nobody looks as yet.
    pub fn forget() {
        LOOKING.store(0, SeqCst);
        ASKED.store(NONE_ASKED, SeqCst);
    }
}

/// As long as it is there, something is looked at.
struct Looking;

impl Looking {
    fn begin() -> Looking {
        LOOKING.fetch_add(1, SeqCst);
        Looking
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        LOOKED.fetch_add(1, SeqCst);
        let before = LOOKING.fetch_sub(1, SeqCst);
        assert!(before > 0, "each ends once");
    }
}

/// One descriptor of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its number.
    pub number: u32,
    /// What it is.
    pub kind: Kind,
}

/// What a descriptor is, as far as anybody asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An instance of io_uring.
    Uring,
    /// A userfaultfd.
    Userfaultfd,
    /// The end of this pipe, with a name or without, from which is read.
    PipeReader(Pipe),
    /// The end of this pipe to which is written, or one for both.
    PipeWriter(Pipe),
    /// A socket.
    Socket,
    /// Anything else.
    Other,
    /// That cannot be known.
    Unknown,
}

/// Which pipe: its inode, and if it has a name its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipe(u64);

/// The descriptor table of the program's first thread, or of another one that lives, if that has
/// ended. Threads that have unshared theirs are not seen.
#[derive(Debug)]
pub struct Table {
    directory: Fd,
    /// To borrow by: of the thread whose table it is.
    pidfd: Result<Fd, Errno>,
}

const PATH_BYTES: usize = 40;
/// Longest link that is told apart: "anon_inode:[userfaultfd]".
const LINK_BYTES: usize = 32;
const SOL_SOCKET: usize = 1;
const SO_ZEROCOPY: usize = 60;
const AF_UNIX: usize = 1;
const AF_NETLINK: usize = 16;
const SOCK_DGRAM: usize = 2;
const SOCK_CLOEXEC: usize = 0o2_000_000;
/// Kinds of sockets that most programs have and that are never asked, if this kernel refuses SO_ZEROCOPY to
/// them: what their protocols' names begin with, their address family, and what the kernel said.
static UNABLE: [(&[u8], usize, AtomicU8); 2] =
    [(b"UNIX", AF_UNIX, AtomicU8::new(UNTRIED)), (b"NETLINK", AF_NETLINK, AtomicU8::new(UNTRIED))];
const UNTRIED: u8 = 0;
const REFUSED: u8 = 1;
const TAKEN: u8 = 2;
/// Longest name of a protocol that is told apart.
const PROTOCOL_BYTES: usize = 32;
const KCMP_FILES: usize = 2;

impl Table {
    /// Opens it, whatever the limit on descriptors. The calling thread has a table of its own, which
    /// is not meant. ENOENT: no other thread has any descriptor.
    ///
    /// *The story:* the first thread's was opened by the number that it has in its own pid
    /// namespace. With a /proc of the namespace outside that is another process: who runs first in
    /// a new one was taken for the machine's init (`citizens::proc-of-outside`).
    pub fn open() -> Result<Table, Errno> {
        match directory_at(c"/proc/self/fd") {
            Ok(directory) => Ok(Table { directory, pidfd: mem::pidfd_self() }),
            Err(Errno::NOENT) => {
                let thread = other_thread()?;
                let directory = directory_of(thread)?;
                Ok(Table { directory, pidfd: mem::pidfd_of_thread(thread.tid) })
            }
            Err(errno) => Err(errno),
        }
    }

    /// Calls `visit` with every descriptor, until it says that it has seen enough. ENOENT: there
    /// are none, or the thread has ended.
    pub fn for_each(&self, mut visit: impl FnMut(Descriptor) -> bool) -> Result<(), Errno> {
        let _looking = Looking::begin();
        file::rewind(&self.directory)?;
        let mut seen = 0;
        procfs::for_entries_until(&self.directory, |name| {
            let Some((number, [])) = take_number(name, 10) else { return false };
            seen += 1;
            visit(Descriptor { number: number as u32, kind: self.kind(number as u32) })
        })?;
        // A dead thread's directory is empty.
        if seen == 0 { Err(Errno::NOENT) } else { Ok(()) }
    }

    fn kind(&self, number: u32) -> Kind {
        let name: [u8; PATH_BYTES] = joined([Decimal::new(u64::from(number)).as_bytes()]);
        let mut link = [0u8; LINK_BYTES];
        let (directory, at) = (self.directory.raw() as usize, name.as_ptr() as usize);
        // SAFETY: the name is NUL-terminated, the buffer exclusive.
        let read =
            unsafe { syscall!(nr::__NR_readlinkat, directory, at, link.as_mut_ptr() as usize, LINK_BYTES) };
        let len = match read {
            Ok(len) => len,
            Err(Errno::NOENT) => return Kind::Other, // it was closed meanwhile
            Err(_) => return Kind::Unknown,
        };
        match &link[..len] {
            b"anon_inode:[io_uring]" => Kind::Uring,
            b"anon_inode:[userfaultfd]" => Kind::Userfaultfd,
            text if text.starts_with(b"socket:[") => Kind::Socket,
            text => match text.strip_prefix(b"pipe:[").and_then(|text| take_number(text, 10)) {
                Some((inode, _)) => self.end_of(Pipe(inode), &name),
                // A pipe with a name has that as its link.
                None if text.starts_with(b"/") => match self.named_pipe(&name) {
                    Some(pipe) => self.end_of(pipe, &name),
                    None => Kind::Other,
                },
                None => Kind::Other,
            },
        }
    }

    fn end_of(&self, pipe: Pipe, name: &[u8; PATH_BYTES]) -> Kind {
        if self.is_writer(name) { Kind::PipeWriter(pipe) } else { Kind::PipeReader(pipe) }
    }

    /// The pipe that a link with a path leads to, if it is one. No file system is asked anew.
    fn named_pipe(&self, name: &[u8; PATH_BYTES]) -> Option<Pipe> {
        const WANTED: usize = (nr::STATX_TYPE | nr::STATX_INO) as usize;
        // SAFETY: all-zero is a valid value of the plain structure.
        let mut stat: nr::statx = unsafe { core::mem::zeroed() };
        let (directory, at, out) =
            (self.directory.raw() as usize, name.as_ptr() as usize, &raw mut stat as usize);
        let flags = nr::AT_STATX_DONT_SYNC as usize;
        // SAFETY: the name is NUL-terminated, the structure the call's.
        unsafe { syscall!(nr::__NR_statx, directory, at, flags, WANTED, out) }.ok()?;
        let is_pipe = u32::from(stat.stx_mode) & nr::S_IFMT == nr::S_IFIFO;
        // Pipes without a name are on a device of their own, with inodes of 32 bits.
        let device = u64::from(stat.stx_dev_major) << 52 | u64::from(stat.stx_dev_minor) << 32;
        is_pipe.then_some(Pipe(stat.stx_ino ^ device))
    }

    /// The permissions of a link say how the descriptor was opened. Where they cannot be read it
    /// may be for writing.
    fn is_writer(&self, name: &[u8; PATH_BYTES]) -> bool {
        // SAFETY: all-zero is a valid value of the plain structure.
        let mut stat: nr::stat = unsafe { core::mem::zeroed() };
        let (directory, at) = (self.directory.raw() as usize, name.as_ptr() as usize);
        let (out, flags) = (&raw mut stat as usize, nr::AT_SYMLINK_NOFOLLOW as usize);
        // SAFETY: the name is NUL-terminated, the structure the call's.
        let done = unsafe { syscall!(nr::__NR_newfstatat, directory, at, out, flags) };
        done.is_err() || stat.st_mode & nr::S_IWUSR != 0
    }

    /// Is a socket allowed to send from the sender's own pages (SO_ZEROCOPY)? EBADF: it is not open.
    /// ESRCH: the thread has ended. Anything else: that cannot be known.
    pub fn lends(&self, socket: u32) -> Result<bool, Errno> {
        let _looking = Looking::begin();
        if self.cannot_lend(socket) {
            return Ok(false);
        }
        ASKED.store(socket as i32, SeqCst);
        let lends = self.ask(socket);
        ASKED.store(NONE_ASKED, SeqCst);
        lends
    }

    /// Is it not, and that is known by its protocol alone? For that nothing is borrowed.
    pub fn cannot_lend(&self, socket: u32) -> bool {
        let mut protocol = [0u8; PROTOCOL_BYTES];
        let path = self.path_of(socket);
        let (path, name) = (path.as_ptr() as usize, c"system.sockprotoname".as_ptr() as usize);
        let out = protocol.as_mut_ptr() as usize;
        // SAFETY: path and name are NUL-terminated, the buffer exclusive.
        let Ok(len) = (unsafe { syscall!(nr::__NR_getxattr, path, name, out, PROTOCOL_BYTES) }) else {
            return false;
        };
        let known = UNABLE.iter().find(|(begin, ..)| protocol[..len].starts_with(begin));
        known.is_some_and(|(_, family, said)| refuses(*family, said))
    }

    fn ask(&self, socket: u32) -> Result<bool, Errno> {
        let socket = self.borrow(socket)?;
        let (mut value, mut len) = (0i32, size_of::<i32>() as u32);
        let (out, out_len) = (&raw mut value as usize, &raw mut len as usize);
        let raw = socket.raw() as usize;
        // SAFETY: the call writes an integer and its length.
        let asked = unsafe { syscall!(nr::__NR_getsockopt, raw, SOL_SOCKET, SO_ZEROCOPY, out, out_len) };
        match asked {
            Ok(_) => Ok(value != 0),
            // It knows no such thing, or its number is no socket's any more.
            Err(Errno::NOPROTOOPT | Errno::OPNOTSUPP | Errno::NOTSOCK) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// From now on `watch` hears when something is put into a pipe, whatever does it, the first time: who
    /// writes there later does not pay for it. EACCES: it is somebody else's.
    pub fn watch(&self, watch: &Watch, number: u32) -> Result<(), Errno> {
        let path = self.path_of(number);
        let (watch, at) = (watch.0.raw() as usize, path.as_ptr() as usize);
        let mask = (nr::IN_MODIFY | nr::IN_ONESHOT) as usize;
        // SAFETY: the path is NUL-terminated.
        unsafe { syscall!(nr::__NR_inotify_add_watch, watch, at, mask) }.map(drop)
    }

    /// Where its link is, NUL-terminated.
    fn path_of(&self, number: u32) -> [u8; PATH_BYTES] {
        let directory = Decimal::new(self.directory.raw() as u64);
        let number = Decimal::new(u64::from(number));
        joined([b"/proc/thread-self/fd/", directory.as_bytes(), b"/", number.as_bytes()])
    }

    fn borrow(&self, number: u32) -> Result<Fd, Errno> {
        let pidfd = self.pidfd.as_ref().map_err(|&errno| errno)?.raw() as usize;
        // SAFETY: makes a descriptor.
        make(|| unsafe { syscall!(nr::__NR_pidfd_getfd, pidfd, number as usize, 0) })
    }
}

/// Does the kernel refuse SO_ZEROCOPY to a socket of this family? It is asked by one of the calling thread's
/// own, once.
fn refuses(family: usize, said: &AtomicU8) -> bool {
    if said.load(SeqCst) == UNTRIED {
        let kind = SOCK_DGRAM | SOCK_CLOEXEC;
        // SAFETY: makes a descriptor.
        let Ok(socket) = make(|| unsafe { syscall!(nr::__NR_socket, family, kind, 0) }) else { return false };
        let (on, len) = (1i32, size_of::<i32>());
        let (raw, value) = (socket.raw() as usize, &raw const on as usize);
        // SAFETY: the call reads an integer.
        let set = unsafe { syscall!(nr::__NR_setsockopt, raw, SOL_SOCKET, SO_ZEROCOPY, value, len) };
        said.store(if set.is_ok() { TAKEN } else { REFUSED }, SeqCst);
    }
    said.load(SeqCst) == REFUSED
}

/// Hears when something is put into pipes (inotify): by write, splice, tee or vmsplice.
#[derive(Debug)]
pub struct Watch(Fd);

impl Watch {
    /// Without a pipe as yet. EMFILE: a user may have 128 of these.
    pub fn new() -> Result<Watch, Errno> {
        let flags = (nr::IN_CLOEXEC | nr::IN_NONBLOCK) as usize;
        // SAFETY: makes a descriptor.
        make(|| unsafe { syscall!(nr::__NR_inotify_init1, flags) }).map(Watch)
    }

    /// Was anything put in? Takes no lock of a pipe. Where it cannot be known: yes.
    #[must_use]
    pub fn has_heard(&self) -> bool {
        event::poll(&mut [PollFd::readable(&self.0)], Some(0)) != Ok(0)
    }
}

/// The directory of a thread's descriptors. ENOENT: there are none, or it has ended.
fn directory_of(thread: ThreadId) -> Result<Fd, Errno> {
    directory_at(procfs::task_path(thread.in_proc, b"/fd", &mut [0; TASK_PATH_BYTES]))
}

fn directory_at(path: &CStr) -> Result<Fd, Errno> {
    let directory = file::open(path, Open::DIRECTORY)?;
    let mut has_any = false;
    procfs::for_entries_until(&directory, |name| {
        has_any |= name[0].is_ascii_digit();
        has_any
    })?;
    if has_any { Ok(directory) } else { Err(Errno::NOENT) }
}

/// A thread of the program's whose descriptors are not those of the calling one. ENOENT: there is
/// none. Anything else: that cannot be told.
///
/// *The story:* where nobody may compare (a filter of system calls) another of the agent's own
/// threads was taken for one, and a program whose first thread had ended seemed to have no
/// descriptor of any kind.
fn other_thread() -> Result<ThreadId, Errno> {
    let own = thread::id();
    let (mut found, mut refused) = (None, Errno::NOENT);
    procfs::for_each_thread_id(|thread| {
        if thread.tid == own || thread::is_own(thread.tid) || found.is_some() {
            return;
        }
        let seen = match have_same_table(own, thread.tid) {
            Ok(true) => Err(Errno::NOENT),
            Ok(false) => directory_of(thread).map(drop),
            Err(errno) => Err(errno),
        };
        match seen {
            Ok(()) => found = Some(thread),
            Err(Errno::NOENT | Errno::SRCH) => {}
            Err(errno) => refused = errno,
        }
    })?;
    found.ok_or(refused)
}

/// Have two threads the same descriptors?
fn have_same_table(one: u32, other: u32) -> Result<bool, Errno> {
    // SAFETY: compares, changes nothing.
    unsafe { syscall!(nr::__NR_kcmp, one as usize, other as usize, KCMP_FILES, 0, 0) }.map(|order| order == 0)
}
