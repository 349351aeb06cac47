//! Standard output. Who stops reading it (`| head`) ends the command without a word, as it ends
//! other programs.

use std::io::{Error, ErrorKind, Write};

use anyhow::{Context, Result};

use crate::os::{inherit, signals};

/// Prints all of `text` now.
pub fn print(text: &str) -> Result<()> {
    match write(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => signals::die_by(nix::libc::SIGPIPE),
        result => result.context("cannot write to standard output"),
    }
}

/// *The story:* with `>&-` what was to be printed was lost, and the status was 0: the start-up code opens
/// /dev/null there.
fn write(text: &[u8]) -> std::io::Result<()> {
    if inherit::was_closed(1) {
        return Err(Error::from_raw_os_error(nix::libc::EBADF));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush())
}

/// Prints a value as JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}
