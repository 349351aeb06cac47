//! The agent's few words to the user, and its last resort.

use core::fmt::{Display, Write};

use overspill_sys::file;
use rustix::process::{self, Signal};

/// Writes one line to the program's standard error. The agent's own descriptors do not include it.
/// It must be the same open file, not the same name opened again: that would have a position of its
/// own, and what the launcher says at the end would be written over the line. Nothing is allocated:
/// the line may say that there is no memory.
pub fn say(text: impl Display) {
    let Ok(fd) = file::descriptor_of_program(2) else { return };
    let mut line = Line { bytes: [0; 256], len: 0 };
    // A line that is too long is cut.
    let _ = write!(line, "overspill: {text}");
    line.bytes[line.len] = b'\n';
    let _ = file::write(fd.raw(), &line.bytes[..=line.len]);
}

/// As much of a line as there is room for, and one byte more.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, part: &str) -> core::fmt::Result {
        let count = part.len().min(self.bytes.len() - 1 - self.len);
        self.bytes[self.len..self.len + count].copy_from_slice(&part.as_bytes()[..count]);
        self.len += count;
        if count < part.len() { Err(core::fmt::Error) } else { Ok(()) }
    }
}

/// Sends a signal to the whole process.
pub fn kill_self(signal: Signal) {
    let _ = process::kill_process(process::getpid(), signal);
}
