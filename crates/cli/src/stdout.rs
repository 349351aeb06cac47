//! Standard output. Who stops reading it (`| head`) ends the command without a word, as it ends
//! other programs.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

use crate::os::signals;

/// Prints all of `text` now.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => signals::die_by(nix::libc::SIGPIPE),
        result => result.context("cannot write to standard output"),
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}
