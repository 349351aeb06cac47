//! The agent's few words to the user, and its last resort.

use core::fmt::{Display, Write};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use overspill_sys::file::{self, Identity};
use overspill_sys::{Fd, thread};
use rustix::process::{self, Signal};

use crate::speaker;

/// The program's standard error.
const NUMBER: u32 = 2;
/// What it was when the program began; no file is all zeroes.
static STANDARD_ERROR: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Remembers what the program has for its standard error, in a thread of the program's.
pub fn set_up() {
    // SAFETY: the descriptor is the program's, and is not closed by this; it may not be open.
    let fd = ManuallyDrop::new(unsafe { Fd::from_raw(NUMBER as i32) });
    if let Ok(Identity(words)) = file::identity(&fd) {
        STANDARD_ERROR.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
    }
}

/// Says one line on the program's standard error, and does not wait until it is written. For the
/// agent's thread alone.
pub fn say(text: impl Display) {
    speaker::say(Line::new(text));
}

/// As much of a line as there is room for, and one byte more. Nothing is allocated: the line may say
/// that there is no memory.
pub struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Line {
    /// Nothing.
    pub const EMPTY: Line = Line { bytes: [0; 256], len: 0 };

    /// One that is too long is cut.
    pub fn new(text: impl Display) -> Line {
        let mut line = Line::EMPTY;
        let _ = write!(line, "overspill: {text}");
        line.bytes[line.len] = b'\n';
        line
    }

    /// Writes it to the program's standard error. The agent's own descriptors do not include it. It
    /// must be the same open file, not the same name opened again: that would have a position of its
    /// own, and what the launcher says at the end would be written over the line.
    ///
    /// It is not written where it would wait for a reader, who may wait for the program. Nor to what
    /// was not there when the program began.
    ///
    /// *The stories:* a daemon closed its descriptors and opened its data, which became number 2; the
    /// line went there. And a program whose standard error was a full pipe waited for the agent, that
    /// for whoever read the pipe, and that for the program.
    pub fn write(&self) {
        let Ok(fd) = file::descriptor_of_program(NUMBER) else { return };
        let known = Identity(STANDARD_ERROR.each_ref().map(|word| word.load(Relaxed)));
        if file::identity(&fd) == Ok(known) {
            let _ = file::write_at_once(&fd, &self.bytes[..=self.len]);
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, part: &str) -> core::fmt::Result {
        let count = part.len().min(self.bytes.len() - 1 - self.len);
        self.bytes[self.len..self.len + count].copy_from_slice(&part.as_bytes()[..count]);
        self.len += count;
        if count < part.len() { Err(core::fmt::Error) } else { Ok(()) }
    }
}

/// Stops the program, once what was said is written, or could not be for a while. For the agent's
/// thread alone.
pub fn stop() {
    speaker::wait();
    send(Signal::STOP);
}

/// Can it be stopped from within? The first process of a pid namespace cannot.
pub fn can_stop() -> bool {
    !process::getpid().is_init()
}

/// Ends the program, as [`stop`].
pub fn kill() -> ! {
    speaker::wait();
    end()
}

/// Says why, and ends the program, in any thread.
pub fn end_with(text: impl Display) -> ! {
    speaker::say_last(&Line::new(text));
    end()
}

/// By SIGKILL; who goes on after that ends with the status that stands for it.
///
/// *The story:* the first process of a pid namespace gets no such signal from itself. `--strict` let it go
/// on above its budget, and an assertion that had failed was said and waited for ever.
fn end() -> ! {
    send(Signal::KILL);
    thread::exit_process(128 + Signal::KILL.as_raw())
}

fn send(signal: Signal) {
    let _ = process::kill_process(process::getpid(), signal);
}
