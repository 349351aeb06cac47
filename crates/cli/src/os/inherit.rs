//! What the caller handed down, given on to the program as it was.
//!
//! Rust's start-up ignores SIGPIPE and opens /dev/null on closed standard descriptors, and
//! `Command` sets SIGPIPE to its default in the child. A program run under this tool must see none
//! of that, so the state is recorded before `main` (by a constructor, which runs before the
//! start-up code) and put back between fork and exec. The signal mask is never changed by anybody
//! and needs no care.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Signals whose dispositions the start-up code or this file changes, and those that glibc keeps for
/// itself: it takes them with the first thread, and its own functions refuse to set them.
///
/// *The story:* the launcher got a thread before it started the program, and a program that was to
/// ignore signal 33 did so no more.
const SIGNALS: [i32; 4] = [libc::SIGPIPE, libc::SIGCHLD, 32, 33];
/// Bit i: signal i of [`SIGNALS`] was ignored.
static IGNORED: AtomicU32 = AtomicU32::new(0);
/// Bit i: descriptor i of the standard three was closed.
static CLOSED: AtomicU32 = AtomicU32::new(0);

// SAFETY: the section holds function pointers that the dynamic loader calls once, before `main`, on
// the only thread; `capture` uses nothing that the runtime would have to set up first.
#[used]
#[unsafe(link_section = ".init_array")]
static CAPTURE: extern "C" fn() = capture;

extern "C" fn capture() {
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        if handler_of(signal) == Some(libc::SIG_IGN) {
            IGNORED.fetch_or(1 << index, Relaxed);
        }
    }
    for fd in 0..3 {
        // SAFETY: F_GETFD takes no pointer and changes nothing.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << fd, Relaxed);
        }
    }
    // With SIGCHLD ignored the kernel reaps children by itself and there is no status left to wait
    // for. SAFETY: SIG_DFL is a valid disposition and nobody else has installed one yet.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Limits of descriptors and of the length of files, soft and hard, as they were before [`raise_limits`].
static LIMITS: [OnceLock<(u64, u64)>; 2] = [OnceLock::new(), OnceLock::new()];
const LIMITED: [Resource; 2] = [Resource::RLIMIT_NOFILE, Resource::RLIMIT_FSIZE];

/// This process has as many descriptors as its hard limit allows, and files as long, or longer if it may have
/// them; what [`spawn`] starts has not.
///
/// *The story:* the launcher keeps one for each process that it watches. Within the usual 1024 it did
/// not see the thousandth, and what it did not see "fitted".
///
/// *The other story:* the agent's library and the memory that is shared with it are files. With `ulimit -f
/// 100` nothing was run.
pub fn raise_limits() {
    for (resource, before) in LIMITED.into_iter().zip(&LIMITS) {
        let Ok((soft, hard)) = getrlimit(resource) else { continue };
        // More descriptors than that are not to be had for nothing.
        let most = if resource == Resource::RLIMIT_NOFILE { hard } else { libc::RLIM_INFINITY };
        let is_raised = || [most, hard].iter().any(|&limit| setrlimit(resource, limit, limit).is_ok());
        if soft < most && is_raised() {
            before.get_or_init(|| (soft, hard));
        }
    }
}

/// How long files may be that the program writes.
pub fn longest_file() -> u64 {
    let now = || getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(soft, _)| soft);
    LIMITS[1].get().map_or_else(now, |&(soft, _)| soft)
}

/// What the caller had open besides the standard three, in a process that has opened nothing itself.
#[derive(Debug, Default)]
pub struct Inherited(Vec<i32>);

impl Inherited {
    /// What is open now.
    pub fn note() -> Inherited {
        let Ok(directory) = std::fs::read_dir("/proc/self/fd") else { return Inherited::default() };
        let numbers = directory.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let open: Vec<i32> = numbers.filter(|&number| number >= 3).collect();
        // That of the directory is closed by now.
        // SAFETY: F_GETFD takes no pointer and changes nothing.
        let is_open = |&number: &i32| unsafe { libc::fcntl(number, libc::F_GETFD) } != -1;
        Inherited(open.into_iter().filter(is_open).collect())
    }

    /// Closes it, and puts /dev/null in place of standard input and output: they are the program's now,
    /// which may close them for somebody to hear of it. Standard error stays, for what is to be said.
    ///
    /// *The story:* who waited for the end of a pipe that the program had closed waited for the end of the
    /// run; `yes` went on writing to a standard input that nobody read, and a lock that was let go was held.
    pub fn let_go(self) {
        for number in self.0 {
            // SAFETY: nobody here has opened it, and nobody here uses it.
            unsafe { libc::close(number) };
        }
        let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") else { return };
        for number in 0..2 {
            // SAFETY: no pointer. Both are open: the start-up code has seen to that.
            unsafe { libc::dup2(null.as_raw_fd(), number) };
        }
    }
}

/// Closes whatever the caller had open besides the standard three. For a process that has opened nothing
/// itself.
pub fn close_others() {
    // SAFETY: no pointer; nobody here has a descriptor from 3 on.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// The kernel's own form of a disposition.
#[repr(C)]
#[derive(Default)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// rt_sigaction(2) itself.
fn sigaction(signal: i32, new: Option<&Action>, old: Option<&mut Action>) -> bool {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    let old = old.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: both are null or such a structure, of the size that is told; the handlers that are set
    // are no code.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, size_of::<u64>()) == 0 }
}

/// The present disposition of a signal.
fn handler_of(signal: i32) -> Option<libc::sighandler_t> {
    let mut old = Action::default();
    sigaction(signal, None, Some(&mut old)).then_some(old.handler)
}

/// Did the caller have a signal ignored? That the start-up code ignores one says nothing.
pub(super) fn was_ignored(signal: i32) -> bool {
    match SIGNALS.iter().position(|&own| own == signal) {
        Some(index) => IGNORED.load(Relaxed) & 1 << index != 0,
        None => handler_of(signal) == Some(libc::SIG_IGN),
    }
}

/// Between fork and exec, in the only thread.
fn set_handler(signal: i32, handler: libc::sighandler_t) {
    assert!([libc::SIG_IGN, libc::SIG_DFL].contains(&handler));
    sigaction(signal, Some(&Action { handler, ..Action::default() }), None);
}

/// Starts `command` with signal dispositions and closed descriptors as this process found them.
/// With `join`, the child first enters the cgroup whose `cgroup.procs` that descriptor is.
pub fn spawn(command: &mut Command, join: Option<OwnedFd>) -> io::Result<Child> {
    let (parent, last_word) = (std::process::id(), parents_death());
    let before_exec = move || {
        if last_word != 0 {
            die_with(parent, last_word)?;
        }
        if let Some(procs) = &join {
            nix::unistd::write(procs, b"0")?;
        }
        restore();
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls (write, signal, close, prctl,
    // getppid, setrlimit) and reads atomics: no allocation, no locks.
    unsafe { command.pre_exec(before_exec) };
    command.spawn()
}

/// What [`spawn`] starts writes its own number to this place of a file, before anything else: four bytes.
pub fn tell_number(command: &mut Command, file: impl AsFd + Send + Sync + 'static, place: i64) {
    let tell = move || {
        let number = std::process::id().to_ne_bytes();
        // SAFETY: so many bytes are read there.
        let told =
            unsafe { libc::pwrite(file.as_fd().as_raw_fd(), number.as_ptr().cast(), number.len(), place) };
        if told == number.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec the closure only makes system calls (getpid, pwrite).
    unsafe { command.pre_exec(tell) };
}

/// The signal that this process gets when its parent ends; 0: none.
fn parents_death() -> i32 {
    let mut signal = 0;
    // SAFETY: the kernel stores an int there.
    unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal) };
    signal
}

/// The child gets it, too, when `parent` ends: of SIGKILL nobody could tell it.
///
/// *The story:* a supervisor had its command killed should it end itself, and what was killed was the
/// launcher. The program stayed.
fn die_with(parent: u32, signal: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    let is_set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) } == 0;
    if is_set && std::os::unix::process::parent_id() == parent {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Was this one of the standard three closed when the process began?
pub fn was_closed(fd: i32) -> bool {
    CLOSED.load(Relaxed) & 1 << fd != 0
}

fn restore() {
    for (resource, before) in LIMITED.into_iter().zip(&LIMITS) {
        if let Some(&(soft, hard)) = before.get() {
            let _ = setrlimit(resource, soft, hard);
        }
    }
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        let ignored = IGNORED.load(Relaxed) & 1 << index != 0;
        set_handler(signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL });
    }
    for fd in 0..3 {
        if was_closed(fd) && is_dev_null(fd) {
            // SAFETY: the descriptor is the /dev/null of Rust's start-up code; nobody uses it after
            // this.
            unsafe { libc::close(fd) };
        }
    }
}

/// Whether a descriptor is what the start-up code puts in place of a closed one, rather than a
/// redirection by the caller of [`spawn`].
fn is_dev_null(fd: i32) -> bool {
    // SAFETY: all-zero bytes are a valid stat (a plain C struct of integers).
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is a valid place for the answer.
    let status = unsafe { libc::fstat(fd, &mut stat) };
    status == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFCHR && stat.st_rdev == libc::makedev(1, 3)
}

/// The lowest descriptor that launcher files use, so that they are out of the way even to somebody
/// who looks into /proc/PID/fd.
const LAUNCHER_FD_MIN: i32 = 500;

/// Moves a descriptor far up (close-on-exec), or leaves it where the descriptor limit forbids that.
pub fn moved_up(fd: OwnedFd) -> OwnedFd {
    use nix::fcntl::{FcntlArg, fcntl};
    use std::os::fd::FromRawFd;
    match fcntl(&fd, FcntlArg::F_DUPFD_CLOEXEC(LAUNCHER_FD_MIN)) {
        // SAFETY: fcntl has just made this descriptor for us and nobody else knows it.
        Ok(high) => unsafe { OwnedFd::from_raw_fd(high) },
        Err(_) => {
            assert!(fd.as_raw_fd() >= 0);
            fd
        }
    }
}
