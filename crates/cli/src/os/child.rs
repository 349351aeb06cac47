//! Waiting for a child together with what its whole tree used.

use std::io;
use std::time::Duration;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Signaled(i32),
}

/// A child that has ended, with the resources that it and its waited-for descendants used.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// How.
    pub status: Status,
    /// CPU time in the programs.
    pub user: Duration,
    /// CPU time in the kernel on their behalf.
    pub system: Duration,
    /// Faults answered without I/O.
    pub faults_minor: u64,
    /// Faults that had to read.
    pub faults_major: u64,
    /// The most that it, or one of its waited-for descendants, had in RAM: files and shared memory
    /// included.
    pub resident_peak_bytes: u64,
}

/// Waits until the child has ended, however many signals arrive meanwhile.
pub fn wait(pid: i32) -> io::Result<Ended> {
    loop {
        match wait4(pid, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(|ended| ended.expect("it waits until there is one")),
        }
    }
}

/// What a child used that has ended; it is reaped. `None`: it lives, or is no child.
pub fn reap(pid: i32, how: nix::sys::wait::WaitPidFlag) -> Option<Ended> {
    wait4(pid, how.bits()).ok().flatten()
}

/// Waits until the child has ended, however many signals arrive, without reaping it: its number
/// stays its own.
pub fn wait_unreaped(pid: i32) -> io::Result<()> {
    while !wait_unreaped_once(pid)? {}
    Ok(())
}

/// The same, but returns false when a signal arrived first.
pub fn wait_unreaped_once(pid: i32) -> io::Result<bool> {
    Ok(first_ended(libc::P_PID, pid)?.is_some())
}

/// The same where orphans are adopted: those that end meanwhile are waited for, as nobody else does.
pub fn wait_unreaped_among_orphans(pid: i32) -> io::Result<bool> {
    let Some(ended) = first_ended(libc::P_ALL, 0)? else { return Ok(false) };
    if ended != pid {
        reap(ended, nix::sys::wait::WaitPidFlag::WNOHANG);
    }
    Ok(ended == pid)
}

/// Waits for the first of these children that has ended, and leaves it as it is. `None`: a signal
/// arrived first.
///
/// *The story:* nix's waitid knows no signals without a name, and called a program that one had killed
/// an error.
fn first_ended(kind: libc::idtype_t, id: i32) -> io::Result<Option<i32>> {
    // SAFETY: all-zero bytes are a valid siginfo.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is a valid place for the answer.
    let status = unsafe { libc::waitid(kind, id as u32, &mut info, libc::WEXITED | libc::WNOWAIT) };
    match status {
        // SAFETY: waitid has filled in what it tells of a child.
        0 => Ok(Some(unsafe { info.si_pid() })),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(error),
        },
    }
}

fn wait4(pid: i32, options: i32) -> io::Result<Option<Ended>> {
    assert!(pid > 0, "one child, never a group");
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid rusage (a plain C struct of integers).
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid places for the answers.
    let result = unsafe { libc::wait4(pid, &mut status, options, &mut usage) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    if result == 0 {
        return Ok(None);
    }
    assert_eq!(result, pid);
    Ok(Some(Ended {
        status: decode(status),
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        faults_minor: usage.ru_minflt as u64,
        faults_major: usage.ru_majflt as u64,
        resident_peak_bytes: usage.ru_maxrss as u64 * 1024,
    }))
}

fn decode(status: i32) -> Status {
    if libc::WIFSIGNALED(status) {
        return Status::Signaled(libc::WTERMSIG(status));
    }
    assert!(libc::WIFEXITED(status), "wait4 was not asked for stopped children");
    Status::Exited(libc::WEXITSTATUS(status))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
}

impl Status {
    /// `exit 0`, `killed by SIGKILL`.
    pub fn text(self) -> String {
        match self {
            Status::Exited(code) => format!("exit {code}"),
            Status::Signaled(signal) => format!("killed by {}", signal_name(signal)),
        }
    }
}

/// `SIGKILL` for 9.
pub fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |s| s.to_string())
}
