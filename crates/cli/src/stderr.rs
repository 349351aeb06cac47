//! Standard error: what the command says beside its results. Where that cannot be written, nothing is
//! said, and the work goes on: what a program's exit status is does not depend on who listens.
//!
//! *The story:* `eprintln!` panics there, and with `2>/dev/full` the summary's note ended the command
//! in the middle of a run, with a status that was not the program's.

use std::io::Write;

/// Writes all of `text`, as far as anybody takes it.
pub fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Says a line, in the form of `println!`.
macro_rules! say {
    ($($words:tt)*) => { $crate::stderr::write(&(format!($($words)*) + "\n")) };
}
pub(crate) use say;
