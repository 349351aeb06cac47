//! Where things are, and how programs are to be run.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, ensure};

/// How programs are run; see the head of `main.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Under `overspill run`.
    Overspill,
    /// Without it.
    Bare,
    /// Without it, damaged on purpose.
    Broken,
}

impl Mode {
    fn from_environment() -> Outcome<Self> {
        match std::env::var("OVERSPILL_E2E").as_deref() {
            Err(_) | Ok("" | "overspill") => Ok(Self::Overspill),
            Ok("bare") => Ok(Self::Bare),
            Ok("broken") => Ok(Self::Broken),
            Ok(other) => Err(format!("OVERSPILL_E2E={other}: it is overspill, bare or broken")),
        }
    }

    /// Turns the outcome of a test into that of its trial: broken runs must fail.
    pub fn judge(self, outcome: Outcome) -> Outcome {
        match (self, outcome) {
            (Self::Broken, Ok(())) => Err("the run was damaged on purpose, and nothing noticed".to_owned()),
            (Self::Broken, Err(reason)) => {
                eprintln!("e2e: noticed: {}", reason.lines().next().unwrap_or_default());
                Ok(())
            }
            (_, outcome) => outcome,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Overspill => "under overspill",
            Self::Bare => "bare",
            Self::Broken => "bare and damaged on purpose",
        })
    }
}

/// The first two numbers of the kernel's release.
fn kernel_version() -> Outcome<(u32, u32)> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").map_err(|error| error.to_string())?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|digits| digits.parse().ok());
    numbers.next().zip(numbers.next()).ok_or_else(|| format!("`{release}` is no version"))
}

/// Paths of programs and scratch files.
#[derive(Debug)]
pub struct Context {
    /// How programs are run.
    pub mode: Mode,
    /// `OVERSPILL_E2E_SLOW` is set: an emulated machine, whose times say nothing. Programs may take
    /// ten times as long, and what they held at their peak is not judged.
    pub slow: bool,
    /// The kernel has UFFDIO_MOVE (6.8), without which some things are not promised.
    pub moves_pages: bool,
    /// The command under test.
    pub overspill: PathBuf,
    /// The torture program.
    pub torture: PathBuf,
    /// The file system that fails.
    pub faultyfs: PathBuf,
    /// Generated inputs, outputs of runs: on a file system that takes O_DIRECT.
    pub scratch: PathBuf,
    /// An empty directory that `--swap` names: nothing may ever have a name in it.
    pub swap: PathBuf,
}

impl Context {
    /// Finds the programs beside this one, in target/release, and makes the directories in target/e2e.
    pub fn new() -> Outcome<Self> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let built = own.parent().ok_or("this program has no directory")?;
        let scratch = built.parent().unwrap_or(built).join("e2e");
        let context = Self {
            mode: Mode::from_environment()?,
            moves_pages: kernel_version()? >= (6, 8),
            slow: std::env::var_os("OVERSPILL_E2E_SLOW").is_some(),
            overspill: built.join("overspill"),
            torture: built.join("overspill-torture"),
            faultyfs: built.join("overspill-faultyfs"),
            swap: scratch.join("swap"),
            scratch,
        };
        std::fs::create_dir_all(&context.swap)
            .map_err(|error| format!("cannot make {}: {error}", context.swap.display()))?;
        for program in [&context.overspill, &context.torture, &context.faultyfs] {
            if context.mode == Mode::Overspill || program != &context.overspill {
                ensure!(
                    program.exists(),
                    "{} is missing: cargo build --release --workspace",
                    program.display()
                );
            }
        }
        Ok(context)
    }

    /// A path in the scratch directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.scratch.join(name)
    }

    /// `overspill` with no options from the environment or a configuration file of the user.
    pub fn overspill_command(&self) -> Command {
        let mut command = Command::new(&self.overspill);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OVERSPILL_"))
        {
            command.env_remove(name);
        }
        command.env("XDG_CONFIG_HOME", self.path("no-configuration"));
        command
    }
}
