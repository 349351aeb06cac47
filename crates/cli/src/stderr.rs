//! Standard error: what the command says beside its results. Where that cannot be written, nothing is
//! said, and the work goes on: what a program's exit status is does not depend on who listens.
//!
//! *The story:* `eprintln!` panics there, and with `2>/dev/full` the summary's note ended the command
//! in the middle of a run, with a status that was not the program's.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Writes all of `text`, as far as anybody takes it.
pub fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The same beside everything else, unless an earlier text still waits for its reader.
///
/// *The story:* the thread that divides the budget said a line where nobody read on (a full pipe, a
/// terminal stopped by Ctrl-S). Nothing was divided any more, and the command did not end.
pub fn write_beside(text: String) {
    static WAITS: AtomicBool = AtomicBool::new(false);
    if WAITS.swap(true, SeqCst) {
        return;
    }
    let say = move || {
        write(&text);
        WAITS.store(false, SeqCst);
    };
    if std::thread::Builder::new().name("says".into()).spawn(say).is_err() {
        WAITS.store(false, SeqCst);
    }
}

/// Says a line, in the form of `println!`.
macro_rules! say {
    ($($words:tt)*) => { $crate::stderr::write(&(format!($($words)*) + "\n")) };
}
pub(crate) use say;
