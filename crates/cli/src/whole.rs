//! A file that takes its name when it is whole: until then what has the name stays, and who is
//! interrupted leaves nothing.
//!
//! It has no name at first (O_TMPFILE). Not every file system has such files, and not everybody may
//! make one beside the old one: then there is none, and the caller writes as others do.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::linkat;

/// While a file is not whole it is its owner's alone.
const PRIVATE: u32 = 0o600;

/// The file, and where it is to be.
pub struct Whole {
    file: File,
    path: PathBuf,
}

impl Whole {
    /// A file that is to be at `path`, open for reading and writing. None: there can be no such file
    /// there.
    pub fn begin(path: &Path, mode: u32) -> Option<Whole> {
        let flags = OFlag::O_RDWR | OFlag::O_TMPFILE | OFlag::O_CLOEXEC;
        let file = open(directory(path), flags, Mode::from_bits_truncate(mode)).ok()?;
        Some(Whole { file: File::from(file), path: path.to_path_buf() })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// By which it is opened once more while it has no name.
    pub fn address(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Gives it its name, which nobody may have by now.
    pub fn appear(&self) -> io::Result<()> {
        self.link(&self.path)
    }

    /// Gives it its name, whoever has that.
    pub fn replace(&self) -> io::Result<()> {
        let beside = directory(&self.path).join(format!(".overspill-new-{}", std::process::id()));
        self.link(&beside)?;
        fs::rename(&beside, &self.path).inspect_err(|_| drop(fs::remove_file(&beside)))
    }

    fn link(&self, path: &Path) -> io::Result<()> {
        match linkat(AT_FDCWD, &self.address(), AT_FDCWD, path, AtFlags::AT_SYMLINK_FOLLOW) {
            Err(Errno::EPERM | Errno::EOPNOTSUPP) => self.copy(path),
            linked => Ok(linked?),
        }
    }

    /// Where no file has a second name, and so none a first one later, another file gets the content.
    fn copy(&self, path: &Path) -> io::Result<()> {
        let (mut from, mode) = (File::open(self.address())?, self.file.metadata()?.permissions());
        let mut named = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path)?;
        io::copy(&mut from, &mut named)
            .and_then(|_| named.set_permissions(mode))
            .and_then(|()| named.sync_all())
            .inspect_err(|_| drop(fs::remove_file(path)))
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn it_is_there_when_it_is_whole() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("whole-{}", std::process::id()));
        let whole = Whole::begin(&path, 0o600).expect("the tree lies on a file system that has such files");
        whole.file().write_all(b"new").unwrap();
        assert!(!path.exists() && fs::read(whole.address()).unwrap() == b"new");
        fs::write(&path, "old").unwrap();
        assert_eq!(whole.appear().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        whole.replace().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        fs::remove_file(&path).unwrap();
        assert!(Whole::begin(Path::new("/proc/x"), 0o600).is_none());
    }
}
