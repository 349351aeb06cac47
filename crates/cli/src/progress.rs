//! One line on the terminal that says what is going on; nothing when standard error is no terminal.

use std::io::{IsTerminal, Write};

/// The line; it disappears with its owner.
pub struct Progress {
    visible: bool,
    label: String,
}

impl Progress {
    /// A line on standard error.
    pub fn new() -> Progress {
        Progress::about("")
    }

    /// A line that begins with `label`.
    pub fn about(label: &str) -> Progress {
        Progress { visible: std::io::stderr().is_terminal(), label: label.to_string() }
    }

    /// Replaces the line.
    pub fn say(&self, text: &str) {
        if self.visible {
            let _ = write!(std::io::stderr(), "\r\x1b[K{}{text} ...", self.label);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.visible {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
