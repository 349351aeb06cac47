//! What a measured command leaves running when it ends: processes that nobody waits for, in the
//! background or as daemons. What counts is the command's own end, and the next run must not share the
//! machine with them: they are killed.
//!
//! They are this process's children by then, as it adopts orphans. So are those of whoever started it
//! with children of its own: what is killed carries the run's mark in its environment.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitPidFlag;
use nix::unistd::Pid;

use crate::os::child::reap;
use crate::run::launch::keeper::is_keeper;
use crate::run::tree::descendants::{adopt_orphans, children};

/// So long it may take until they are gone. A keeper looks around for a second before it goes.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How often an environment that is empty is read again.
const LOOKS_AT_EMPTY: u32 = 10;
/// The variable by which a run's processes are known.
const MARK: &str = "COMPARED_BY";

/// Knows a run's processes from others that this process has started.
pub struct Leftovers {
    others: Vec<u32>,
}

impl Leftovers {
    /// Before the run.
    pub fn expected() -> io::Result<Leftovers> {
        adopt_orphans()?;
        Ok(Leftovers { others: children(std::process::id()) })
    }

    /// Marks the command of the run.
    pub fn mark(command: &mut Command) {
        command.env(MARK, std::process::id().to_string());
    }

    /// After it: kills and buries whatever is there. True if anything was. The keeper of the agent's
    /// library has that to remove, and ends by itself.
    ///
    /// *The story:* a launcher that was killed had no environment any more, and what it had started was
    /// not this process's child yet: nobody was there, it seemed.
    pub fn end(&self) -> bool {
        let (begun, mut killed) = (Instant::now(), Vec::new());
        loop {
            // Who is not one any more has left its own children here.
            let own = children(std::process::id());
            let are_going = killed.iter().any(|pid| own.contains(pid));
            let living = self.living();
            if living.is_empty() && !are_going || begun.elapsed() > PATIENCE {
                return !killed.is_empty();
            }
            for pid in living.into_iter().filter(|&pid| !is_keeper(pid)) {
                if kill(Pid::from_raw(pid as i32), Signal::SIGKILL).is_ok() {
                    killed.push(pid);
                }
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Who has ended is waited for on the way.
    fn living(&self) -> Vec<u32> {
        let of_run = children(std::process::id()).into_iter().filter(|pid| !self.others.contains(pid));
        let lives = |&pid: &u32| reap(pid as i32, WaitPidFlag::WNOHANG).is_none();
        of_run.filter(lives).filter(|&pid| is_marked(pid)).collect()
    }
}

/// Was the process started with the mark? Whose environment cannot be read is left alone.
///
/// *The story:* the command had ended while its background processes were in the midst of exec, where
/// nobody has an environment. They were taken for strangers, and lived on.
fn is_marked(pid: u32) -> bool {
    let mark = format!("{MARK}={}", std::process::id());
    for _ in 0..LOOKS_AT_EMPTY {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if !environment.is_empty() {
            return environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    false
}
