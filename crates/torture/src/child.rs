//! Child processes of subtests: forked ones that run a closure, and copies of this program that run
//! a part of it.

use std::process::{Command, ExitStatus};

use crate::ensure;
use crate::outcome::{Failure, Outcome};
use crate::sys::check;

/// A forked child that has not been waited for.
#[derive(Debug)]
pub struct Child(libc::pid_t);

/// One that was made by another way.
#[must_use]
pub fn of(pid: libc::pid_t) -> Child {
    Child(pid)
}

/// Forks; the child runs `body`, says what went wrong on stderr, and ends with 0 or 1 without
/// running exit handlers.
pub fn fork(body: impl FnOnce() -> Outcome) -> Outcome<Child> {
    // SAFETY: the child calls what is safe after a fork of a threaded program as long as `body`
    // does; glibc makes its allocator usable there.
    let pid = check("fork", unsafe { libc::fork() } as isize)?;
    if pid != 0 {
        return Ok(Child(pid as libc::pid_t));
    }
    let status = match body() {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("child: {failure}");
            1
        }
    };
    // SAFETY: ends this process.
    unsafe { libc::_exit(status) }
}

/// A way to make a child with memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `_Fork(3)`, which runs no handlers.
    Quiet,
    /// libc's function `clone`, with a stack.
    Clone,
    /// `fork`, `clone` and `clone3` by way of libc's `syscall`.
    CallFork,
    /// See above.
    CallClone,
    /// See above.
    CallClone3,
    /// The same by the instruction itself.
    BareFork,
    /// See above.
    BareClone,
    /// See above.
    BareClone3,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 8] = [
        Form::Quiet,
        Form::Clone,
        Form::CallFork,
        Form::CallClone,
        Form::CallClone3,
        Form::BareFork,
        Form::BareClone,
        Form::BareClone3,
    ];

    /// May the call fail where nobody hears of it?
    #[must_use]
    pub fn is_bare(self) -> bool {
        matches!(self, Form::BareFork | Form::BareClone | Form::BareClone3)
    }
}

/// As [`fork`], in another form. The child runs without libc's handlers: `body` must not allocate,
/// but for what it complains of.
pub fn fork_by(form: Form, body: impl Fn() -> Outcome) -> Outcome<Child> {
    fork_with(&format!("{form:?}"), |run| crate::sys::fork_by(form, run), body)
}

/// The same by a call that waits for the child's end, as vfork does, though it has memory of its own.
pub fn fork_and_wait(by_call: bool, body: impl Fn() -> Outcome) -> Outcome<Child> {
    fork_with("CLONE_VFORK", |run| crate::sys::fork_and_wait(by_call, run), body)
}

fn fork_with(
    name: &str,
    call: impl FnOnce(&dyn Fn() -> i32) -> isize,
    body: impl Fn() -> Outcome,
) -> Outcome<Child> {
    let run = || match body() {
        Ok(()) => 0,
        Err(failure) => {
            say(2, &format!("child by {name}: {failure}\n"));
            1
        }
    };
    let pid = check(name, call(&run))?;
    if pid != 0 {
        return Ok(Child(pid as libc::pid_t));
    }
    // SAFETY: ends this process.
    unsafe { libc::_exit(run()) }
}

/// Writes to a descriptor without a lock that a thread of the parent may have held.
pub fn say(fd: i32, line: &str) {
    // SAFETY: the bytes are the string's.
    let _ = unsafe { libc::write(fd, line.as_ptr().cast(), line.len()) };
}

impl Child {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> libc::pid_t {
        self.0
    }

    /// Waits; fails unless the child ended with 0.
    pub fn succeed(self, what: &str) -> Outcome {
        let status = self.wait()?;
        ensure!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{what}: {}", describe(status));
        Ok(())
    }

    /// Waits; the raw status.
    pub fn wait(self) -> Outcome<i32> {
        let mut status = 0;
        loop {
            // SAFETY: `status` is ours.
            let result = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
            if result == self.0 {
                return Ok(status);
            }
            if crate::sys::errno() != libc::EINTR {
                return check("waitpid", result as isize).map(|_| status);
            }
        }
    }

    /// Ends it by SIGKILL, wherever it is, and waits.
    pub fn kill(self) -> Outcome {
        // SAFETY: a child that nobody has waited for keeps its number.
        check("kill", unsafe { libc::kill(self.0, libc::SIGKILL) } as isize)?;
        self.wait().map(drop)
    }

    /// Takes charge of a child that was started otherwise.
    #[must_use]
    pub fn adopt(pid: libc::pid_t) -> Self {
        assert!(pid > 0, "{pid} is no process id");
        Self(pid)
    }
}

/// From now on children of children whose parents end are this process's.
pub fn take_orphans() -> Outcome {
    let (set, none) = (libc::PR_SET_CHILD_SUBREAPER, 0_usize);
    // SAFETY: changes nothing else.
    check("prctl", unsafe { libc::prctl(set, 1_usize, none, none, none) } as isize).map(drop)
}

/// Waits for a child, whichever ends first; its status. None: there is none.
pub fn wait_any() -> Option<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is ours.
        let result = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if result > 0 {
            return Some(status);
        }
        if crate::sys::errno() != libc::EINTR {
            return None;
        }
    }
}

/// How it ended, in words.
#[must_use]
pub fn describe(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("killed by signal {}", libc::WTERMSIG(status))
    } else {
        format!("exit status {}", libc::WEXITSTATUS(status))
    }
}

/// This program again, as `overspill-torture part NAME ARGS...`.
pub fn part(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("part").arg(name).args(arguments);
    command
}

/// Runs a command and fails unless it ends with 0.
pub fn expect_success(mut command: Command, what: &str) -> Outcome {
    let status = spawn_and_wait(&mut command)?;
    ensure!(status.success(), "{what}: {status}");
    Ok(())
}

/// Runs a command to its end.
pub fn spawn_and_wait(command: &mut Command) -> Outcome<ExitStatus> {
    command.status().map_err(|error| Failure(format!("cannot run {command:?}: {error}")))
}
