//! What can go wrong, by the action that failed.

use std::path::PathBuf;

use overspill_sys::Errno;

use crate::Builder;

/// Why a pager could not do what it was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The budget is smaller than [`Builder::RAM_MIN`].
    BudgetTooSmall,
    /// The budget is larger than [`Builder::ram_max`], which is this, in bytes.
    BudgetTooLarge(u64),
    /// The swap directory's name contains a NUL byte.
    BadPath(PathBuf),
    /// A step of starting failed: its name, and the kernel's reason.
    Start(&'static str, Errno),
    /// The kernel refused a mapping.
    Map(Errno),
    /// The kernel refused to share a region, or to join one. ENOSYS: it is older than 5.19.
    Share(Errno),
    /// What was to be joined is no [`Handle`](crate::Handle), or one that was used already.
    BadHandle,
    /// A file could not be opened or mapped: its name, and the kernel's reason.
    File(PathBuf, Errno),
    /// A file is in use by this pager in a way that would lose stores: its name, and why.
    InUse(PathBuf, &'static str),
    /// A file's bytes could not be read or written: the device's reason.
    Io(Errno),
    /// The pager has stopped, or the process in which it runs is gone.
    Stopped,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::BudgetTooSmall => write!(f, "a budget below {} bytes runs nothing", Builder::RAM_MIN),
            Error::BudgetTooLarge(most) => write!(f, "the pager was built for {most} bytes at most"),
            Error::BadPath(path) => write!(f, "{}: not a path", path.display()),
            Error::Start(step, errno) => write!(f, "cannot {step}: {}", words(*errno)),
            Error::Map(errno) => write!(f, "cannot map memory: {}", words(*errno)),
            Error::Share(errno) => write!(f, "cannot share memory: {}", words(*errno)),
            Error::File(path, errno) => write!(f, "{}: {}", path.display(), words(*errno)),
            Error::InUse(path, why) => write!(f, "{}: {why}", path.display()),
            Error::Io(errno) => write!(f, "input or output failed: {}", words(*errno)),
            Error::BadHandle => write!(f, "not a handle of a shared region, or a used one"),
            Error::Stopped => write!(f, "the pager has stopped"),
        }
    }
}

impl Error {
    /// The kernel's reason, if it was the kernel that refused.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Start(_, errno)
            | Error::Map(errno)
            | Error::Share(errno)
            | Error::File(_, errno)
            | Error::Io(errno) => Some(*errno),
            _ => None,
        }
    }
}

/// What the system calls it.
fn words(errno: Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno.raw_os_error())
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    /// With the kernel's reason as its kind.
    fn from(error: Error) -> std::io::Error {
        let kind = error.errno().map_or(std::io::ErrorKind::Other, |errno| words(errno).kind());
        std::io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// *The story:* a full device was "os error 28".
    #[test]
    fn errors_are_told_in_words_and_have_their_kind() {
        let error = Error::File("/a/b".into(), Errno::NOSPC);
        assert_eq!(error.to_string(), "/a/b: No space left on device (os error 28)");
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::StorageFull);
        assert_eq!(Error::Stopped.errno(), None);
        assert_eq!(Error::Io(Errno::FBIG).errno(), Some(Errno::FBIG));
    }
}
