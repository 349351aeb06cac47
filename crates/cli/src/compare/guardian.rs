//! What `compare` and `bench` set up and must take down again, however they end: a cgroup, a swap
//! file, a kernel setting.
//!
//! Everything is noted with a guardian before it is made: a process of its own session that waits
//! for the end of its standard input. While all goes well the parent undoes its own work; when the
//! parent is gone, even by SIGKILL, the guardian finds the pipe closed and undoes what is still
//! noted. Undoing twice is harmless. When it is the guardian that gets killed, the parent still
//! undoes its own work.
//!
//! The guardian also holds the machine: a lock that lets only one comparison at a time change its
//! settings.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::os::{signals, swap};
use crate::stderr::say;
use crate::{cgroup, exit};

/// Something that must not be left behind.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub enum Resource {
    /// A cgroup, with everything that runs in it.
    Cgroup(PathBuf),
    /// A file that the kernel may be swapping to.
    SwapFile(PathBuf),
    /// A file that it never swaps to.
    File(PathBuf),
    /// A file under /proc/sys or /sys that had this value.
    Setting {
        /// The file.
        path: PathBuf,
        /// What it held.
        value: String,
    },
}

impl Resource {
    fn undo(&self) -> Result<()> {
        match self {
            Resource::Cgroup(path) => cgroup::remove(path),
            // The kernel removes no file that it swaps to: one that is gone it did not.
            Resource::SwapFile(path) => {
                let off = swap_off(path);
                remove(path).or_else(|error| match off {
                    Err(error) => {
                        Err(error).with_context(|| format!("cannot stop swapping to {}", path.display()))
                    }
                    Ok(()) => Err(error),
                })
            }
            Resource::File(path) => remove(path),
            Resource::Setting { path, value } => fs::write(path, value)
                .with_context(|| format!("cannot restore {} to {value}", path.display())),
        }
    }
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.with_context(|| format!("cannot remove {}", path.display())),
    }
}

/// Stops swapping to a file; success if the kernel was not.
pub fn swap_off(path: &Path) -> io::Result<()> {
    loop {
        match swap::off(path) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if [libc::EINVAL, libc::ENOENT].contains(&error.raw_os_error().unwrap_or(0)) => {
                return Ok(());
            }
            result => return result,
        }
    }
}

/// The guardian's answers: it holds the machine; it has understood a note.
const READY: &str = "ready";
const NOTED: &str = "noted";

/// A line to the guardian.
#[derive(Serialize, Deserialize, Debug)]
enum Note {
    /// This is about to be made.
    Hold(Resource),
    /// This is undone.
    Released(Resource),
}

/// The parent's end.
pub struct Guardian {
    child: Child,
    /// `None` once it is closed, which tells the guardian to finish.
    notes: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    held: Vec<Resource>,
}

impl Guardian {
    /// Starts the guardian process.
    pub fn start() -> Result<Guardian> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("guard")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the guardian process")?;
        let notes = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("its standard output is a pipe"));
        let mut guardian = Guardian { child, notes, answers, held: Vec::new() };
        guardian.expect_answer(READY).context("the guardian process did not start")?;
        Ok(guardian)
    }

    /// Notes something that is about to be made. When this returns it will be undone, whatever
    /// happens.
    pub fn hold(&mut self, resource: Resource) -> Result<()> {
        self.held.push(resource.clone());
        self.tell(&Note::Hold(resource)).context("the guardian process is gone")
    }

    /// Undoes something that was noted.
    pub fn release(&mut self, resource: &Resource) -> Result<()> {
        resource.undo()?;
        self.held.retain(|held| held != resource);
        let _ = self.tell(&Note::Released(resource.clone())); // without a guardian there is nobody to tell
        Ok(())
    }

    fn tell(&mut self, note: &Note) -> Result<()> {
        let line = serde_json::to_string(note)?;
        let notes = self.notes.as_mut().expect("open until it is dropped");
        writeln!(notes, "{line}")?;
        self.expect_answer(NOTED)
    }

    fn expect_answer(&mut self, expected: &str) -> Result<()> {
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        anyhow::ensure!(answer.trim_end() == expected, "it answered {answer:?}");
        Ok(())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        while let Some(resource) = first_to_undo(&self.held).map(|index| self.held[index].clone()) {
            if let Err(error) = self.release(&resource) {
                say!("overspill: {error:#}");
                self.held.retain(|held| *held != resource); // the guardian tries once more
            }
        }
        self.notes = None;
        let _ = self.child.wait();
    }
}

/// What to undo next: groups, whose programs use the rest, then files, then settings; of each
/// the latest.
///
/// *The story:* the kernel counts the rotating disks it swaps to, and asks a disk for its flag when
/// swap is switched on and again when it is switched off. With the flag restored in between, the
/// count went below zero, and until the next boot the kernel never read ahead by regions again.
fn first_to_undo(held: &[Resource]) -> Option<usize> {
    let order = |resource: &Resource| match resource {
        Resource::Cgroup(_) => 0,
        Resource::SwapFile(_) | Resource::File(_) => 1,
        Resource::Setting { .. } => 2,
    };
    (0..held.len()).rev().min_by_key(|&index| order(&held[index]))
}

/// Waits until no other comparison runs. The lock is on a setting that every comparison changes, so
/// no file is made for it.
fn lock_machine() -> Result<Flock<File>> {
    let file = File::open(super::lab::PAGE_CLUSTER)?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .context("cannot lock the machine's settings")
}

/// The guardian process: the hidden command `guard`.
pub fn main() -> Result<u8> {
    let _ = nix::unistd::setsid(); // a Ctrl-C in the parent's terminal is not for us
    signals::survive(&signals::ENDING);
    let _machine = lock_machine()?;
    let _ = writeln!(io::stdout(), "{READY}");
    let mut held: Vec<Resource> = Vec::new();
    for line in io::stdin().lines() {
        match serde_json::from_str(&line?)? {
            Note::Hold(resource) => held.push(resource),
            Note::Released(resource) => held.retain(|other| *other != resource),
        }
        // A parent that died meanwhile is no reason to stop: its end of the other pipe says so
        // next.
        let _ = writeln!(io::stdout(), "{NOTED}");
    }
    let mut code = 0;
    while let Some(index) = first_to_undo(&held) {
        if let Err(error) = held.remove(index).undo() {
            say!("overspill: {error:#}");
            code = exit::OWN_FAILURE;
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_single_lines_that_read_back() {
        let resources = [
            Resource::Cgroup("/sys/fs/cgroup/a b".into()),
            Resource::SwapFile("/var/tmp/x\ny".into()),
            Resource::File("/var/tmp/y".into()),
            Resource::Setting { path: "/proc/sys/vm/page-cluster".into(), value: "3".into() },
        ];
        for resource in resources {
            let line = serde_json::to_string(&Note::Hold(resource.clone())).unwrap();
            assert!(!line.contains('\n'));
            match serde_json::from_str(&line).unwrap() {
                Note::Hold(back) => assert_eq!(back, resource),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn swap_ends_before_its_disk_is_told_what_it_is() {
        let setting = |value: &str| Resource::Setting { path: "/sys/x".into(), value: value.into() };
        let swap = Resource::SwapFile("/var/tmp/x".into());
        let mut held =
            vec![swap.clone(), setting("1"), Resource::Cgroup("/sys/fs/cgroup/a".into()), setting("2")];
        let mut undone = Vec::new();
        while let Some(index) = first_to_undo(&held) {
            undone.push(held.remove(index));
        }
        let group = Resource::Cgroup("/sys/fs/cgroup/a".into());
        assert_eq!(undone, [group, swap, setting("2"), setting("1")]);
    }

    #[test]
    fn undoing_is_idempotent() {
        let path = std::env::temp_dir().join(format!("overspill-guardian-{}", std::process::id()));
        for resource in [Resource::SwapFile(path.clone()), Resource::File(path.clone())] {
            fs::write(&path, "0").unwrap();
            resource.undo().unwrap();
            assert!(!path.exists());
            resource.undo().unwrap();
        }
    }
}
