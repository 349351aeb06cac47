//! `--idle`: what the machine's idle processors do while the program waits for pages.

use std::fmt;

use clap::ValueEnum;
use overspill_sys::idle::WakeLatency;

use crate::machine;

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
        self == Idle::Poll || self == Idle::Auto && machine::processors() <= AUTO_PROCESSORS_MAX
    }

    /// Keeps idle processors awake as long as the result lives; None: they are to sleep, or it is
    /// not allowed.
    pub fn keep_awake(self) -> Option<WakeLatency> {
        let latency = if self.polls() { WakeLatency::open().ok()? } else { return None };
        latency.forbid_sleep().ok()?;
        Some(latency)
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}
