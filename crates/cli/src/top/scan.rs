//! Finding the launchers of this machine, as far as this user may look into them, and reading what
//! their agents report.
//!
//! A launcher holds its shared memory as an open memfd named `overspill`; nothing else of it is
//! needed, and it need not answer.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use overspill_engine::shared::state;

use crate::run::shared_page::{Report, SharedPage};
use crate::usage;

/// What the memory is called in /proc/PID/fd.
const MEMORY: &str = "/memfd:overspill (deleted)";

/// All runs at one time.
pub struct Look {
    /// When.
    pub at: Instant,
    /// By launcher.
    pub runs: Vec<Run>,
}

/// One `overspill run`.
#[derive(Clone, Debug)]
pub struct Run {
    /// The launcher.
    pub pid: u32,
    /// The program's command line.
    pub command: Vec<String>,
    /// The budget.
    pub ram_bytes: u64,
    /// What each living process reports.
    pub processes: Vec<Report>,
}

impl Look {
    /// Looks at the runs of these launchers, or at all.
    pub fn now(pids: &[u32]) -> Look {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let wanted = |pid: &u32| pids.is_empty() || pids.contains(pid);
        let mut runs: Vec<Run> = numbers.filter(wanted).filter_map(run).collect();
        runs.sort_by_key(|run| run.pid);
        Look { at: Instant::now(), runs }
    }

    /// The same run in this look.
    pub fn same(&self, run: &Run) -> Option<&Run> {
        self.runs.iter().find(|other| other.pid == run.pid)
    }
}

/// The run whose launcher this is.
fn run(pid: u32) -> Option<Run> {
    let process = Path::new("/proc").join(pid.to_string());
    // Far fewer processes are called so than have descriptors to go through.
    if fs::read_to_string(process.join("comm")).ok()?.trim_end() != "overspill" {
        return None;
    }
    let page = memory(&process)?;
    let ram_bytes = page.settings().ok()?.ram_bytes;
    let lives = |report: &Report| !report.is_over && Path::new("/proc").join(report.pid.to_string()).exists();
    let processes = page.reports().ok()?.into_iter().filter(lives).collect();
    Some(Run { pid, command: command(&process), ram_bytes, processes })
}

/// The memory of a run, to give it orders.
pub fn memory_of(launcher: u32) -> Option<SharedPage> {
    let path = memory_path(&Path::new("/proc").join(launcher.to_string()))?;
    SharedPage::of(File::options().read(true).write(true).open(path).ok()?)
}

fn memory(process: &Path) -> Option<SharedPage> {
    SharedPage::of(File::open(memory_path(process)?).ok()?)
}

fn memory_path(process: &Path) -> Option<PathBuf> {
    let descriptors = fs::read_dir(process.join("fd")).ok()?.flatten().map(|entry| entry.path());
    let is_memory = |path: &Path| fs::read_link(path).is_ok_and(|target| target == Path::new(MEMORY));
    descriptors.into_iter().find(|path| is_memory(path))
}

/// What follows the launcher's options.
fn command(process: &Path) -> Vec<String> {
    let bytes = fs::read(process.join("cmdline")).unwrap_or_default();
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    let words = bytes.split(|&byte| byte == 0).map(|word| OsStr::from_bytes(word).to_owned());
    let words: Vec<OsString> = words.collect();
    let words = usage::program_of(&words).unwrap_or(words);
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A word for a value of [`state`].
pub fn state_word(value: u32) -> &'static str {
    match value {
        state::WATCHING => "fits",
        state::MANAGING => "paged",
        state::UNMANAGED => "gave up",
        state::STRICT_FULL => "ended",
        _ => "-",
    }
}
