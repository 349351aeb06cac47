//! A test that runs itself again, in a process that may end.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs one test of this program again, in a process of its own.
pub fn again(test: &str, file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("OVERSPILL_TEST_FILE", file);
    command
}

/// This process is one that was started by [`again`].
pub fn file_of_child() -> Option<PathBuf> {
    std::env::var_os("OVERSPILL_TEST_FILE").map(PathBuf::from)
}
