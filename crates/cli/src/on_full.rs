//! `--on-full`: what becomes of the program when swap is full and it wants more memory.

use std::fmt;

use clap::ValueEnum;

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum OnFull {
    /// It goes on above its budget, each tenth of which is said, until the machine has next to nothing left.
    #[default]
    Exceed,
    /// It is stopped, and goes on, above its budget, when it is sent SIGCONT.
    Stop,
    /// It is ended.
    Kill,
}

impl fmt::Display for OnFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}
