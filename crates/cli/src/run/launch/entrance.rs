//! Where agents come to the launcher: an abstract socket, which whoever is in the same network namespace sees
//! from any root, and one with a name beside the agent's library, which is seen from any network namespace.
//!
//! *The story:* what `unshare -Urn` and `bwrap --unshare-all` start may look neither into the launcher's
//! /proc nor at its abstract names. It ran without a limit.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit};
use overspill_sys::event::{PollFd, poll};
use overspill_sys::socket::{self, Place};
use overspill_sys::{Errno, Fd};

/// Whoever knows a socket's name may come to it; who is answered is another question.
const EVERYBODY: u32 = 0o666;

/// With fewer descriptors the launcher needs each: there is an abstract name only, and no custody.
const DESCRIPTORS_MIN: u64 = 32;

/// So many may this process have.
pub fn descriptors_max() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
}

/// See [`DESCRIPTORS_MIN`].
pub fn has_few_descriptors() -> bool {
    descriptors_max() < DESCRIPTORS_MIN
}

/// Sockets that somebody listens at, one at least.
pub struct Entrance(Vec<Fd>);

impl Entrance {
    /// An abstract name and a file, or what can be had of both. EADDRINUSE and others: nothing can.
    pub fn open(name: &[u8], path: Option<PathBuf>) -> Result<Entrance, Errno> {
        let by_name = socket::listen(Place::Name(name));
        let path = path.filter(|_| !has_few_descriptors());
        let by_file = path.map_or(Err(Errno::NOENT), |path| listen_at(&path));
        match (by_name, by_file) {
            (Err(errno), Err(_)) => Err(errno),
            (by_name, by_file) => Ok(Entrance(by_name.into_iter().chain(by_file).collect())),
        }
    }

    /// What another process has opened.
    pub fn handed(sockets: Vec<Fd>) -> Entrance {
        Entrance(sockets)
    }

    pub fn sockets(&self) -> &[Fd] {
        &self.0
    }

    /// Waits for somebody, see [`socket::accept`].
    pub fn accept(&self) -> Result<Fd, Errno> {
        loop {
            let mut ready: Vec<PollFd> = self.0.iter().map(PollFd::readable).collect();
            poll(&mut ready, None)?;
            if let Some(at) = ready.iter().position(PollFd::is_ready) {
                return socket::accept(&self.0[at]);
            }
        }
    }

    /// Lets in who has come, if somebody has.
    pub fn accept_waiting(&self) -> Option<Result<Fd, Errno>> {
        let has_come =
            |socket: &&Fd| poll(&mut [PollFd::readable(socket)], Some(0)).is_ok_and(|ready| ready > 0);
        self.0.iter().find(has_come).map(socket::accept)
    }
}

fn listen_at(path: &Path) -> Result<Fd, Errno> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let socket = socket::listen(Place::File(&name))?;
    fs::set_permissions(path, Permissions::from_mode(EVERYBODY)).map_err(|_| Errno::ACCESS)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_by_name_and_who_comes_by_file_are_let_in() {
        let directory = crate::run::launch::agent::new_directory(&std::env::temp_dir()).unwrap();
        let path = directory.join("door");
        let name = format!("overspill-entrance-{}", std::process::id());
        let entrance = Entrance::open(name.as_bytes(), Some(path.clone())).unwrap();
        assert!(entrance.accept_waiting().is_none());
        let file = CString::new(path.as_os_str().as_bytes()).unwrap();
        for place in [Place::Name(name.as_bytes()), Place::File(&file)] {
            let _guest = socket::connect(place, 1).unwrap();
            entrance.accept().unwrap();
            let _guest = socket::connect(place, 1).unwrap();
            assert!(entrance.accept_waiting().is_some_and(|guest| guest.is_ok()));
        }
        // The name is in use: the file does.
        let other = Entrance::open(name.as_bytes(), Some(directory.join("other"))).unwrap();
        assert_eq!(other.sockets().len(), 1);
        assert_eq!(Entrance::open(name.as_bytes(), None).err(), Some(Errno::ADDRINUSE));
        fs::remove_dir_all(directory).unwrap();
    }
}
