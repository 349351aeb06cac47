//! The keeper: a process that lives longer than the launcher does, for what goes on then.
//!
//! It removes the agent's library when the last process that has loaded it is gone, and it does of the
//! launcher's work what does not end with the command: it answers at the launcher's [`mod@super::door`]
//! whoever is executed or forked from then on, gives back what ended processes had of the budget, and
//! divides that. For that it is handed what it needs while the launcher lives: nobody knows when that is
//! killed.
//!
//! *The story:* what was executed after the launcher's end had no limit. A shell that killed the launcher
//! and started a program of 300 MiB held 309 in 64M; a server that became a daemon was bounded, but none of
//! what it forked was in the books.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use nix::fcntl::{Flock, FlockArg};
use overspill_engine::shared::{LIBRARY, flags};
use overspill_sys::file::{self as sys_file, Open};
use overspill_sys::socket::{self, Letter};
use overspill_sys::{Errno, Fd, proc_place};

use super::agent::{is_used, remove};
use super::door::{self, Door};
use super::entrance::Entrance;
use crate::os::signals::ENDING;
use crate::os::{descriptor, inherit};
use crate::run::errno_text;
use crate::run::shared_page::{Origin, SharedPage};
use crate::run::tree::descendants::{Descendants, children, exists};
use crate::run::watch::{Options, Watch};

/// How often it looks whether the library is still in use, and how often in a row it must not be.
///
/// *The story:* a process that calls exec has left the library and not loaded it again yet. One
/// look found the last process of a tree in that instant, and the library was gone when the process
/// wanted it.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
const LOOKS_UNUSED: u32 = 4;

/// What the launcher hands over: the kinds of its letters.
mod letters {
    /// The shared page; the value says where it is with the launcher.
    pub const PAGE: u64 = 1;
    /// A socket at which it answers.
    pub const DOOR: u64 = 2;
    /// A directory for files to page to; the value is the index of its place.
    pub const DIRECTORY: u64 = 3;
}

/// A directory with the library, and the process that goes on.
#[derive(Debug)]
pub struct Keeper {
    pub directory: PathBuf,
    /// Closed, it says that this process has ended.
    line: Option<Fd>,
    /// It ends by itself; without one the launcher's own removal is all there is.
    process: Option<Child>,
}

impl Keeper {
    /// Starts it, if there can be one.
    pub fn start(directory: PathBuf) -> Keeper {
        let started = socket::pair().ok().and_then(|[line, theirs]| {
            let mut command = Command::new("/proc/self/exe");
            command.arg("keep").arg(&directory).env_remove("LD_PRELOAD");
            // It keeps nothing in use that its caller's caller was in.
            command.current_dir("/");
            command.stdin(descriptor::owned(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
            Some((line, command.spawn().ok()?))
        });
        let (line, process) = started.unzip();
        Keeper { directory, line, process }
    }

    /// Its number.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// It gets what it will need.
    pub fn hand_over(&self, page: &SharedPage, entrance: &Entrance, door: &Door) -> Result<(), Errno> {
        let Some(line) = &self.line else { return Ok(()) };
        let letter = |kind, value| Letter { kind, value };
        socket::send(line, letter(letters::PAGE, page.origin().word()), Some(&page.descriptor()?))?;
        for socket in entrance.sockets() {
            socket::send(line, letter(letters::DOOR, 0), Some(socket))?;
        }
        for (index, directory) in &door.directories {
            let directory = sys_file::open(directory, Open::DIRECTORY)?;
            socket::send(line, letter(letters::DIRECTORY, *index as u64), Some(&directory))?;
        }
        Ok(())
    }
}

impl Drop for Keeper {
    /// Removes the directory, unless somebody else may still need it, whom the keeper then waits for.
    ///
    /// *The story:* the library was in use or not at a single look. A job in the background was just
    /// being started, with LD_PRELOAD and nothing loaded yet: it ran without a limit.
    fn drop(&mut self) {
        let is_needed = |keeper: &Child| leaves_somebody(keeper) || is_used(&self.directory).unwrap_or(true);
        let is_kept = !ends_all() && self.process.as_ref().is_some_and(is_needed);
        if !is_kept {
            remove(&self.directory);
        }
        let Some(mut process) = self.process.take() else { return };
        drop(self.line.take()); // which tells it that this process is done
        if !is_kept {
            let _ = process.wait();
        }
    }
}

/// The hidden command `keep DIRECTORY`. It waits until the launcher has ended or was killed, and from then
/// on until nobody has the library loaded.
///
/// *The story:* it kept what its caller's caller had open. A lock (`flock 9`) that a daemon had let go was
/// held until the last of its children had ended.
pub fn keep(directory: &Path) -> Result<u8> {
    inherit::close_others();
    let _ = nix::unistd::setsid(); // a Ctrl-C in the launcher's terminal is not for us
    crate::os::signals::survive(&ENDING);
    // Of the question whether somebody has the library open.
    crate::os::signals::survive(&[libc::SIGIO]);
    // Who tidies directories for temporary files (tmpfiles.d) leaves a locked one alone.
    let locked = File::open(directory).map(|file| Flock::lock(file, FlockArg::LockSharedNonblock));
    let line = descriptor::raw(io::stdin().as_fd().try_clone_to_owned()?);
    let text = |errno: Errno| errno_text(errno.raw_os_error() as u32);
    let handed = Handed::receive(&line).map_err(|errno| anyhow!("standard input: {}", text(errno)))?;
    if !directory.exists() {
        return Ok(0); // the launcher has removed it
    }
    let watch = handed.take_over(&directory.join(LIBRARY));
    let mut unused = 0;
    while unused < LOOKS_UNUSED {
        std::thread::sleep(LOOK_AGAIN);
        unused = if is_used(directory).unwrap_or(false) { 0 } else { unused + 1 };
    }
    remove(directory);
    drop((watch, locked));
    Ok(0)
}

/// What the launcher has handed over by its end.
#[derive(Default)]
struct Handed {
    page: Option<SharedPage>,
    sockets: Vec<Fd>,
    directories: Vec<(usize, Fd)>,
}

impl Handed {
    /// All that comes, until the launcher has ended. What did not arrive (there is no descriptor for it, say)
    /// is done without.
    fn receive(line: &Fd) -> Result<Handed, Errno> {
        let mut handed = Handed::default();
        while let Some((letter, given)) = socket::receive(line)? {
            let Some(given) = given else { continue };
            match letter.kind {
                letters::PAGE => {
                    let file = File::from(descriptor::owned(given));
                    handed.page = SharedPage::handed(file, Origin::of(letter.value));
                }
                letters::DOOR => handed.sockets.push(given),
                letters::DIRECTORY => handed.directories.push((letter.value as usize, given)),
                _ => {}
            }
        }
        Ok(handed)
    }

    /// From now on this process does what the launcher did. `None`: nothing was handed over, or it cannot.
    fn take_over(self, agent: &Path) -> Option<Watch> {
        let page = Arc::new(self.page?);
        let settings = page.settings().ok()?;
        let options = Options {
            ram_bytes: settings.ram_bytes,
            divides: settings.flags & flags::PER_PROCESS == 0,
            strict: false, // there is nobody to be told why
            manages_files: settings.files_min_bytes > 0,
        };
        let watch = Watch::start(page.clone(), agent.into(), options).ok()?;
        watch.begin(Descendants::of_nobody());
        let directory = |(index, directory): &(usize, Fd)| {
            let path = format!("/proc/self/fd/{}", directory.raw());
            (*index, CString::new(path).expect("no NUL in it"))
        };
        let directories = self.directories.iter().map(directory).collect();
        let door = Door { page: page.descriptor().ok()?, directories, proc: proc_place::detached().ok() };
        // They stay open: the paths lead by way of them.
        std::mem::forget(self.directories);
        let is_guest = move |pid, user| door::is_of_run(&page, pid, user);
        if !self.sockets.is_empty() {
            let _ = door.answer_at(Entrance::handed(self.sockets), is_guest);
        }
        Some(watch)
    }
}

/// Whether a process is a keeper, by the words that it was started with.
pub fn is_keeper(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.starts_with(b"/proc/self/exe\0keep\0"))
}

/// Does nobody live longer than this process, the first of its pid namespace?
///
/// *The story:* where anybody was left the directory was the keeper's to remove, and the keeper ended with
/// the namespace. The number is always 1 there: after 101 runs there was no name left.
fn ends_all() -> bool {
    std::process::id() == 1
}

/// Has this process living children but the keeper? Orphans are its children, too.
fn leaves_somebody(keeper: &Child) -> bool {
    children(std::process::id()).into_iter().any(|pid| pid != keeper.id() && exists(pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::launch::agent::{new_directory, places, write_library};
    use crate::run::shared_page::Settings;

    /// See [`Handed::receive`].
    #[test]
    fn what_does_not_arrive_is_not_the_launchers_end() {
        let [ours, theirs] = socket::pair().unwrap();
        let page = SharedPage::new(&Settings::default()).unwrap();
        let letter = |kind, value| Letter { kind, value };
        socket::send(&ours, letter(letters::DIRECTORY, 0), None).unwrap();
        socket::send(&ours, letter(99, 0), Some(&page.descriptor().unwrap())).unwrap();
        let word = page.origin().word();
        socket::send(&ours, letter(letters::PAGE, word), Some(&page.descriptor().unwrap())).unwrap();
        drop(ours);
        let handed = Handed::receive(&theirs).unwrap();
        assert!(handed.sockets.is_empty() && handed.directories.is_empty());
        assert_eq!(handed.page.unwrap().mark(), page.mark());
    }

    /// See [`Keeper::drop`]. The stand-ins for a keeper and a job have nothing loaded.
    #[test]
    fn what_a_living_process_may_load_is_left_to_the_keeper() {
        let directory = new_directory(&places()[0]).unwrap();
        write_library(&directory.join(LIBRARY)).unwrap();
        let start = |name: &str| {
            let [line, theirs] = socket::pair().unwrap();
            let process =
                Command::new(name).stdin(descriptor::owned(theirs)).stdout(Stdio::null()).spawn().unwrap();
            Keeper { directory: directory.clone(), line: Some(line), process: Some(process) }
        };
        let (keeper, mut job) = (start("cat"), Command::new("sleep").arg("600").spawn().unwrap());
        let keeper_pid = keeper.pid().unwrap();
        drop(keeper);
        assert!(directory.exists());
        job.kill().unwrap();
        job.wait().unwrap();
        crate::os::child::wait(keeper_pid as i32).unwrap();
        remove(&directory);
        drop(start("cat"));
        assert!(!directory.exists());
    }
}
