//! The agent's library, which is part of this executable: unpacking it where every descendant of
//! the program can load it, and handing it to the program by way of the environment.
//!
//! LD_PRELOAD carries a path, and the path must lead there for whatever the program starts: other
//! users (su), other pid namespaces, processes that close all descriptors, and those that live
//! longer than the launcher. So it is a file with a name, in a directory of its own that only this
//! user can write and everybody can read. It is removed when the last process that has loaded it is
//! gone, by whoever is left to see that: the launcher, or a [`mod@super::keeper`] if the launcher was
//! killed or ended first. Only where no directory takes executable files it is a sealed memfd of
//! the launcher's, which other users cannot reach. For development $OVERSPILL_PRELOAD names another
//! library.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::statvfs::{FsFlags, statvfs};
use overspill_engine::shared::{CUSTODY_FILE, LIBRARY, SOCKET_FILE};
use overspill_sys::Errno;

use super::door::Door;
use super::entrance::Entrance;
use super::keeper::Keeper;
use crate::os::signals::ENDING;
use crate::os::{inherit, lease};
use crate::run::shared_page::SharedPage;

/// The library, as the build script has built it.
const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/liboverspill_preload.so"));
/// Where to unpack it, if $TMPDIR is no such place.
const PLACES: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// Names to try before a directory for temporary files is given up.
const NAMES_MAX: u32 = 100;
/// A directory whose keeper has not locked it after that has none.
const ABANDONED: Duration = Duration::from_secs(60);

/// The library where the dynamic linker can find it.
#[derive(Debug)]
pub struct Agent {
    path: PathBuf,
    home: Home,
}

/// Whose the file is.
#[derive(Debug)]
enum Home {
    /// The user's.
    Given,
    /// Ours, and so is the directory that it is in.
    Directory(Keeper),
    /// Nobody's: it has no name, and vanishes with this process.
    Memory(File),
}

impl Agent {
    /// $OVERSPILL_PRELOAD, else the library of this executable, unpacked.
    pub fn ready() -> Result<Agent> {
        match std::env::var_os("OVERSPILL_PRELOAD").filter(|path| !path.is_empty()) {
            Some(path) => Agent::given(Path::new(&path)),
            None => Agent::unpacked(),
        }
    }

    fn given(path: &Path) -> Result<Agent> {
        if !path.is_file() {
            bail!("OVERSPILL_PRELOAD names {}, which is no file", path.display());
        }
        let path = std::path::absolute(path)?;
        if !can_be_preloaded(&path) {
            bail!("{} has a blank or a colon in its path, which LD_PRELOAD cannot carry", path.display());
        }
        Ok(Agent { path, home: Home::Given })
    }

    /// In the first place where that can be done, else in memory. What went wrong first is told.
    ///
    /// *The story:* a full /tmp was the end of it, and so was `ulimit -f 100`.
    fn unpacked() -> Result<Agent> {
        let mut first = None;
        for place in places() {
            match Agent::unpacked_in(&place) {
                Ok(agent) => return Ok(agent),
                Err(error) => _ = first.get_or_insert(error),
            }
        }
        Agent::in_memory().map_err(|error| first.unwrap_or(error))
    }

    fn unpacked_in(place: &Path) -> Result<Agent> {
        let keeper = kept_directory(place)
            .with_context(|| format!("cannot unpack the agent in {}", place.display()))?;
        let path = keeper.directory.join(LIBRARY);
        let agent = Agent { path: path.clone(), home: Home::Directory(keeper) };
        write_library(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(agent)
    }

    fn in_memory() -> Result<Agent> {
        let make = || -> io::Result<File> {
            let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
            let mut file = File::from(inherit::moved_up(memfd_create(c"liboverspill_preload.so", flags)?));
            file.write_all(BYTES)?;
            let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
            let seals = nix::fcntl::SealFlag::from_bits_retain(seals);
            nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_ADD_SEALS(seals))?;
            Ok(file)
        };
        let file = make().context("cannot unpack the agent into memory")?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Ok(Agent { path: path.into(), home: Home::Memory(file) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where something of this run lies beside it, seen by whoever can load it.
    pub fn beside(&self, name: &str) -> Option<PathBuf> {
        match &self.home {
            Home::Directory(keeper) => Some(keeper.directory.join(name)),
            Home::Given | Home::Memory(_) => None,
        }
    }

    /// The process that goes on when this one has ended, if there is one.
    pub fn keeper(&self) -> Option<u32> {
        match &self.home {
            Home::Directory(keeper) => keeper.pid(),
            Home::Given | Home::Memory(_) => None,
        }
    }

    /// That process gets what it will need.
    pub fn hand_over(&self, page: &SharedPage, entrance: &Entrance, door: &Door) -> Result<(), Errno> {
        match &self.home {
            Home::Directory(keeper) => keeper.hand_over(page, entrance, door),
            Home::Given | Home::Memory(_) => Ok(()),
        }
    }

    /// Where it comes from, for people.
    pub fn describe(&self) -> String {
        match &self.home {
            Home::Given => self.path.display().to_string(),
            Home::Directory(keeper) => format!("built in, unpacked to {}", keeper.directory.display()),
            Home::Memory(file) => format!(
                "built in, kept in memory as descriptor {}: it does not reach programs of other users",
                file.as_raw_fd()
            ),
        }
    }
}

/// Whether LD_PRELOAD can carry the path.
fn can_be_preloaded(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|byte| b" :\n\t".contains(byte))
}

/// Directories for temporary files that take executable ones, the best first: those that everybody can
/// enter.
pub fn places() -> Vec<PathBuf> {
    let own = std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let places = own.into_iter().chain(PLACES.map(PathBuf::from));
    let mut fitting: Vec<PathBuf> =
        places.filter(|path| can_be_preloaded(path) && takes_executables(path)).collect();
    fitting.sort_by_key(|path| !all_may_enter(path));
    fitting
}

fn takes_executables(directory: &Path) -> bool {
    let may_write =
        nix::unistd::access(directory, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK);
    let flags = statvfs(directory).map(|info| info.flags());
    may_write.is_ok() && flags.is_ok_and(|flags| !flags.intersects(FsFlags::ST_NOEXEC | FsFlags::ST_RDONLY))
}

fn all_may_enter(directory: &Path) -> bool {
    let may_enter =
        |path: &Path| fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o001 != 0);
    directory.ancestors().all(may_enter)
}

/// A new directory that everybody may enter and only this user may change. Of those that have its name what
/// killed runs have left goes.
pub fn new_directory(place: &Path) -> io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let path = place.join(format!("overspill-{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => return fs::set_permissions(&path, Permissions::from_mode(0o755)).map(|()| path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && remove_abandoned(&path) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < NAMES_MAX => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Removes a directory that nobody will: a launcher of the same number has made it, which was killed with its
/// whole pid namespace, keeper too. True if that is done.
fn remove_abandoned(directory: &Path) -> bool {
    let Ok(about) = fs::symlink_metadata(directory) else { return false };
    let age = about.modified().ok().and_then(|made| made.elapsed().ok()).unwrap_or_default();
    // A younger one may have a keeper that has not come to lock it yet.
    if !about.is_dir() || about.uid() != nix::unistd::geteuid().as_raw() || age < ABANDONED {
        return false;
    }
    let Ok(file) = File::open(directory) else { return false };
    let Ok(_locked) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return false };
    if is_used(directory).unwrap_or(directory.join(LIBRARY).exists()) {
        return false;
    }
    remove(directory);
    !directory.exists()
}

/// A new directory, and who removes it. Nothing ends this process in between: nobody would know of
/// the directory (found by ending runs within their first milliseconds). A signal of those waits.
fn kept_directory(place: &Path) -> io::Result<Keeper> {
    let mut ending = SigSet::empty();
    ENDING.iter().flat_map(|&signal| Signal::try_from(signal)).for_each(|signal| ending.add(signal));
    let before = ending.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let keeper = new_directory(place).map(Keeper::start);
    before.thread_set_mask()?;
    keeper
}

pub fn write_library(path: &Path) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(BYTES)?;
    file.set_permissions(Permissions::from_mode(0o555))
}

/// Has anybody the library loaded?
pub fn is_used(directory: &Path) -> io::Result<bool> {
    lease::is_open_elsewhere(&directory.join(LIBRARY))
}

/// Only what was put there is removed.
pub fn remove(directory: &Path) {
    for name in [LIBRARY, SOCKET_FILE, CUSTODY_FILE] {
        let _ = fs::remove_file(directory.join(name));
    }
    let _ = fs::remove_dir(directory);
}

/// The value of LD_PRELOAD with the agent before whatever the user preloads, and without another
/// launcher's agent.
pub fn preload_value(agent: &Path, present: Option<&OsStr>) -> OsString {
    let mut value = agent.as_os_str().to_owned();
    let others = present.map_or(&b""[..], OsStr::as_bytes).split(|byte| b" :".contains(byte));
    let others = others.map(|other| Path::new(OsStr::from_bytes(other)));
    for other in others.filter(|other| !other.as_os_str().is_empty() && *other != agent && !is_agent(other)) {
        value.push(":");
        value.push(other);
    }
    value
}

/// Where AddressSanitizer's library looks for its options.
pub const SANITIZER: &str = "ASAN_OPTIONS";

/// Its options, with leave to be loaded behind the agent: malloc and the memory functions stay the
/// sanitizer's; of mmap, mprotect and the like, before which the agent stands, it does not hear.
///
/// *The story:* a program that was linked with the sanitizer's shared library refused to start.
pub fn sanitizer_value(present: Option<&OsStr>) -> OsString {
    const ORDER: &str = "verify_asan_link_order";
    let mut value = present.map_or_else(OsString::new, OsStr::to_owned);
    let is_said = value.as_bytes().windows(ORDER.len()).any(|part| part == ORDER.as_bytes());
    if !is_said {
        if !value.is_empty() {
            value.push(":");
        }
        value.push(ORDER);
        value.push("=0");
    }
    value
}

/// Whether it is another launcher's agent: a program with two of them would be paged by both.
fn is_agent(library: &Path) -> bool {
    let in_memory = library.starts_with("/proc") && library.parent().is_some_and(|path| path.ends_with("fd"));
    in_memory || library.file_name() == Some(OsStr::new(LIBRARY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sanitizers_own_options_stay() {
        let value = |present: Option<&str>| sanitizer_value(present.map(OsStr::new));
        assert_eq!(value(None), "verify_asan_link_order=0");
        assert_eq!(value(Some("detect_leaks=0")), "detect_leaks=0:verify_asan_link_order=0");
        assert_eq!(value(Some("verify_asan_link_order=1")), "verify_asan_link_order=1");
    }

    #[test]
    fn the_agent_comes_first_and_once() {
        let agent = Path::new("/lib/agent.so");
        let value = |present: Option<&str>| preload_value(agent, present.map(OsStr::new));
        assert_eq!(value(None), "/lib/agent.so");
        assert_eq!(value(Some("")), "/lib/agent.so");
        assert_eq!(value(Some("a.so b.so")), "/lib/agent.so:a.so:b.so");
        assert_eq!(value(Some("/lib/agent.so:a.so")), "/lib/agent.so:a.so");
        let nested = "/tmp/overspill-7-0/liboverspill_preload.so:/proc/7/fd/500:a.so";
        assert_eq!(value(Some(nested)), "/lib/agent.so:a.so");
    }

    #[test]
    fn what_is_unpacked_is_for_everybody_and_gone_when_nobody_has_it_open() {
        let directory = new_directory(&places()[0]).unwrap();
        let library = directory.join(LIBRARY);
        write_library(&library).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&library)), (0o755, 0o555));
        assert_eq!(&fs::read(&library).unwrap()[..4], b"\x7fELF");
        let user = File::open(&library).unwrap();
        assert!(is_used(&directory).unwrap());
        drop(user);
        // A child that another test starts has what was open, until its exec.
        let begin = std::time::Instant::now();
        while is_used(&directory).unwrap() {
            assert!(begin.elapsed().as_secs() < 20, "it is still in use");
        }
        remove(&directory);
        assert!(!directory.exists());
    }

    /// See [`remove_abandoned`].
    #[test]
    fn what_nobody_will_remove_goes_and_nothing_else() {
        let directory = new_directory(&places()[0]).unwrap();
        let library = directory.join(LIBRARY);
        fs::write(&library, "").unwrap();
        let file = File::open(&directory).unwrap();
        assert!(!remove_abandoned(&directory), "its keeper may be about to come");
        file.set_modified(std::time::SystemTime::now() - 2 * ABANDONED).unwrap();
        let user = File::open(&library).unwrap();
        assert!(!remove_abandoned(&directory), "it is used");
        drop(user);
        let locked = Flock::lock(file, FlockArg::LockSharedNonblock).unwrap();
        assert!(!remove_abandoned(&directory), "it has a keeper");
        drop(locked);
        assert!(!remove_abandoned(Path::new("/no/such/directory")));
        assert!(remove_abandoned(&directory) && !directory.exists());
    }

    #[test]
    fn where_nothing_can_be_unpacked_the_agent_is_in_memory() {
        let agent = Agent::in_memory().unwrap();
        assert_eq!(fs::read(agent.path()).unwrap(), BYTES);
        let Home::Memory(file) = &agent.home else { panic!("{agent:?}") };
        let mut file = file;
        assert!(file.write_all(b"x").is_err(), "it is sealed");
        assert!(!takes_executables(Path::new("/no/such/directory")));
    }
}
