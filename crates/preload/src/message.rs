//! The agent's few words to the user, and its last resort.

use overspill_sys::file;
use rustix::process::{self, Signal};

/// Writes one line to the program's standard error. The agent's own descriptors do not include it. It must be the same open
/// file, not the same name opened again: that would have a position of its own, and what the launcher says at the end would
/// be written over the line.
pub fn say(text: &str) {
    let Ok(fd) = file::descriptor_of_program(2) else { return };
    let mut line = [0u8; 256];
    let mut len = 0;
    for part in ["overspill: ", text, "\n"] {
        let count = part.len().min(line.len() - len);
        line[len..len + count].copy_from_slice(&part.as_bytes()[..count]);
        len += count;
    }
    let _ = file::write(fd.raw(), &line[..len]);
}

/// Sends a signal to the whole process.
pub fn kill_self(signal: Signal) {
    let _ = process::kill_process(process::getpid(), signal);
}
