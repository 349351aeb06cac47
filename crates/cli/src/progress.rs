//! One line on the terminal that says what is going on; nothing when standard error is no terminal.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::human;

/// Characters of the bar.
const BAR: usize = 10;

/// The line; it disappears with its owner.
pub struct Progress {
    visible: bool,
    /// It stands there; a program beside it may have written what is on the line otherwise.
    is_shown: AtomicBool,
    label: String,
    began: Instant,
}

impl Progress {
    /// A line on standard error.
    pub fn new() -> Progress {
        Progress::about("")
    }

    /// A line that begins with `label`.
    pub fn about(label: &str) -> Progress {
        let visible = std::io::stderr().is_terminal();
        Progress {
            visible,
            is_shown: AtomicBool::new(false),
            label: label.to_string(),
            began: Instant::now(),
        }
    }

    /// Replaces the line.
    pub fn say(&self, text: &str) {
        if self.visible {
            self.is_shown.store(true, Relaxed);
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", line(&self.label, text));
        }
    }

    /// Replaces the line by a bar: how many of all are done, since when, and how much longer it
    /// will take at this rate.
    pub fn share(&self, done: usize, total: usize, what: &str) {
        self.say(&bar(done, total, what, self.began.elapsed()));
    }
}

/// What is said, in a line that no terminal breaks: half of a broken one would stay.
fn line(label: &str, text: &str) -> String {
    human::clipped(&format!("{label}{text} ..."), human::WIDTH - 1)
}

fn bar(done: usize, total: usize, what: &str, elapsed: Duration) -> String {
    let total = total.max(1);
    let filled = BAR * done.min(total) / total;
    let bar = format!("[{}{}]", "#".repeat(filled), ".".repeat(BAR - filled));
    let rest = match done {
        0 => String::new(),
        _ => {
            format!(", about {} left", clock(elapsed.mul_f64((total - done.min(total)) as f64 / done as f64)))
        }
    };
    format!("{bar} {} %, {done} of {total} {what}, {} so far{rest}", 100 * done / total, clock(elapsed))
}

/// Minutes and seconds.
fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown.load(Relaxed) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_tells_share_time_and_rest() {
        let at = |done, seconds| bar(done, 8, "machines", Duration::from_secs(seconds));
        assert_eq!(at(0, 3), "[..........] 0 %, 0 of 8 machines, 0:03 so far");
        assert_eq!(at(2, 40), "[##........] 25 %, 2 of 8 machines, 0:40 so far, about 2:00 left");
        assert_eq!(at(8, 70), "[##########] 100 %, 8 of 8 machines, 1:10 so far, about 0:00 left");
    }

    /// *The story:* with ten machines or more the line was one column too wide, and each look at it
    /// left one behind.
    #[test]
    fn the_line_is_never_broken() {
        let long = bar(999, 1000, "machines", Duration::from_secs(5999));
        assert!(line("", &long).ends_with("left ..."));
        assert_eq!(line("seq, run 1 of 3: ", &"x".repeat(200)).chars().count(), human::WIDTH - 1);
    }
}
