//! `--idle`: what the machine's idle processors do while the program waits for pages.

use std::fmt;

use clap::ValueEnum;

/// Above this many processors it is rude to keep all of them awake unasked.
const AUTO_PROCESSORS_MAX: usize = 16;

/// What idle processors do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Idle {
    /// Poll on small machines, sleep on others.
    #[default]
    Auto,
    /// Look for work, if root allows it.
    Poll,
    /// Sleep.
    Sleep,
}

impl Idle {
    /// Do they look for work?
    pub fn polls(self) -> bool {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self == Idle::Poll || self == Idle::Auto && processors() <= AUTO_PROCESSORS_MAX
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}
