//! What is known against a program's being managed, asked while it lives.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use overspill_sys::procfs::Fields;

use super::descendants::{name, read_of_memory, stat};
use super::others::variable;
use crate::run::launch::program::{self, Starter};

/// Is a process behind a filter of system calls that the launcher is not behind? No agent begins there.
///
/// *The story:* of children behind one it was said that they were made by a bare system call.
fn filter(pid: u32) -> Option<&'static str> {
    let status = CString::new(format!("/proc/{pid}/status")).expect("no NUL in a path of digits");
    let filters = |status: Fields| status.number("Seccomp_filters");
    (filters(Fields::read(&status).ok()?)? > filters(Fields::of_process().ok()?)?)
        .then_some("it is behind a filter of system calls (seccomp), where no agent is begun")
}

/// Is the agent's library there since before, whatever is to be found now?
///
/// *The story:* of a child of fork in another root it was said that it is not to be found, where something
/// else had failed.
fn has_loaded(pid: u32, agent: &Path) -> bool {
    let maps = read_of_memory(pid, "maps").unwrap_or_default();
    let path = agent.as_os_str().as_bytes();
    maps.windows(path.len()).any(|part| part == path)
}

/// What is known against a program's being managed, by the run with such a `mark`. To be asked while it
/// lives.
pub fn objection(pid: u32, agent: &Path, mark: &[u8]) -> Option<String> {
    let executable = format!("/proc/{pid}/exe");
    let unmanageable = match starter(pid) {
        Some(starter) => program::unmanageable_by(Path::new(&executable), starter),
        None => program::unmanageable(Path::new(&executable)),
    };
    if let Some(reason) = unmanageable {
        let path = std::fs::read_link(&executable).ok();
        if path.iter().flat_map(|path| path.components()).any(|part| part.as_os_str() == "valgrind") {
            return Some("it runs in valgrind, where the agent can have no thread".into());
        }
        let shown = path.map_or_else(|| name(pid), |path| path.display().to_string());
        return Some(reason.replace(&executable, &shown));
    }
    // What is there is seen from the process's own root and mounts.
    let library = format!("/proc/{pid}/root{}", agent.display());
    if std::fs::metadata(&library).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        && !has_loaded(pid, agent)
        && Path::new(&format!("/proc/{pid}/root/")).exists()
    {
        let text = "the agent's library is not to be found from its root (chroot, or a mount over it): \
                    TMPDIR=DIR overspill run .. puts it into a directory, say /var/tmp, which must be DIR \
                    there, too";
        return Some(text.into());
    }
    if let Some(reason) = filter(pid) {
        return Some(reason.into());
    }
    let environment = read_of_memory(pid, "environ").ok()?;
    match variable(&environment) {
        Some(entry) if entry.starts_with(mark) => names(&environment, agent),
        Some(_) => Some("it was started by another run of overspill, which does not manage it".into()),
        // In the middle of an exec there is none as yet.
        None if environment.is_empty() && stat(pid).is_none_or(|stat| !stat.has_nothing) => None,
        None => Some("its environment was cleaned before it was started".into()),
    }
}

/// Who has started it: set-user-ID changes the other numbers only.
fn starter(pid: u32) -> Option<Starter> {
    let status = Fields::read(&CString::new(format!("/proc/{pid}/status")).ok()?).ok()?;
    let id = |name| u32::try_from(status.number(name)?).ok();
    Some(Starter { user: id("Uid")?, group: id("Gid")? })
}

/// Is the library among those that the loader was told to load?
fn names(environment: &[u8], agent: &Path) -> Option<String> {
    let path = agent.as_os_str().as_bytes();
    let mut entries = environment.split(|&byte| byte == 0);
    let libraries = entries.find_map(|entry| entry.strip_prefix(b"LD_PRELOAD=")).unwrap_or_default();
    let is_named = libraries.windows(path.len()).any(|part| part == path);
    (!is_named).then(|| "LD_PRELOAD was taken out of its environment before it was started".into())
}
