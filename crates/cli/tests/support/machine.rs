//! What comparisons change on the machine, looked at from outside.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::Scratch;

/// One test at a time may change the machine's settings, over all test processes.
pub fn machine() -> Flock<File> {
    assert!(nix::unistd::geteuid().is_root(), "this test needs root");
    let path = std::env::temp_dir().join("overspill-compare-tests.lock");
    let file = File::options().create(true).truncate(false).write(true).open(path).unwrap();
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error).unwrap()
}

/// Everything a comparison could leave behind.
#[derive(Debug, PartialEq)]
pub struct Traces {
    pub page_cluster: String,
    /// `vma_ra_enabled` and the disk's `rotational`.
    pub rules: [String; 2],
    pub swaps: String,
    pub groups: Vec<PathBuf>,
    pub files: Vec<PathBuf>,
}

pub fn traces(scratch: &Scratch) -> Traces {
    let named = |directory: &str| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        entries
            .filter(|path| path.file_name().unwrap().to_string_lossy().contains("overspill-"))
            .collect::<Vec<_>>()
    };
    let groups = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(named).concat();
    Traces {
        page_cluster: fs::read_to_string("/proc/sys/vm/page-cluster").unwrap(),
        rules: [
            fs::read_to_string("/sys/kernel/mm/swap/vma_ra_enabled").unwrap(),
            rotational(&scratch.0).map(|path| fs::read_to_string(path).unwrap()).unwrap_or_default(),
        ],
        swaps: fs::read_to_string("/proc/swaps").unwrap(),
        groups,
        files: fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().path()).collect(),
    }
}

/// The file that says whether the disk under `directory` rotates; found by the disk's number alone.
pub fn rotational(directory: &Path) -> Option<PathBuf> {
    let device = fs::metadata(directory).unwrap().dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let node = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    [node.join("queue/rotational"), node.join("../queue/rotational")].into_iter().find(|path| path.exists())
}
