//! Standard input, replayed: each run of a command must read the same bytes, so what is no terminal
//! is read once into a file without a name.

use std::fs::File;
use std::io::{self, IsTerminal, Seek};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

/// Where a run's standard input comes from.
pub enum Input {
    /// The terminal, which is passed on.
    Terminal,
    /// A file, from this place on.
    Replayed {
        /// The file; each run opens it anew.
        file: File,
        /// Where its first byte lies.
        offset: u64,
    },
}

impl Input {
    /// Nothing at all.
    pub fn nothing() -> Result<Input> {
        Ok(Input::Replayed { file: File::open("/dev/null")?, offset: 0 })
    }

    /// This process's standard input, made repeatable with a file in `directory` if need be.
    pub fn capture(directory: &Path) -> Result<Input> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Ok(Input::Terminal);
        }
        let mut own = File::from(stdin.as_fd().try_clone_to_owned().context("standard input is closed")?);
        if own.metadata()?.is_file() {
            let offset = own.stream_position()?;
            return Ok(Input::Replayed { file: own, offset });
        }
        let flags = OFlag::O_RDWR | OFlag::O_TMPFILE | OFlag::O_CLOEXEC;
        let file = open(directory, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        let mut file =
            File::from(file.with_context(|| format!("no temporary file in {}", directory.display()))?);
        io::copy(&mut own, &mut file).context("cannot keep the standard input for the next runs")?;
        Ok(Input::Replayed { file, offset: 0 })
    }

    /// The input of one run, from its beginning.
    pub fn open(&self) -> Result<Stdio> {
        match self {
            Input::Terminal => Ok(Stdio::inherit()),
            Input::Replayed { file, offset } => {
                // By its /proc name, for a descriptor with a position of its own.
                let mut fresh = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
                if *offset > 0 {
                    fresh.seek(io::SeekFrom::Start(*offset))?;
                }
                Ok(fresh.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn every_run_reads_from_the_beginning() {
        let input = Input::Replayed { file: File::open("/proc/self/comm").unwrap(), offset: 2 };
        let read = || Command::new("cat").stdin(input.open().unwrap()).output().unwrap().stdout;
        let first = read();
        assert!(!first.is_empty());
        assert_eq!(first, read());
    }
}
