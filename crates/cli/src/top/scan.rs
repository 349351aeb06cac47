//! Finding the launchers of this machine, as far as this user may look into them, and reading what
//! their agents report.
//!
//! A launcher holds its shared memory as an open memfd named `overspill`; nothing else of it is
//! needed, and it need not answer.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use overspill_engine::shared::state;

use crate::run::launch::keeper::is_keeper;
use crate::run::places::Place;
use crate::run::shared_page::{Report, SharedPage};
use crate::usage;

/// What the memory is called in /proc/PID/fd.
const MEMORY: &str = "/memfd:overspill (deleted)";
/// What this command is called, whatever link it is started by.
const NAME: &str = "overspill";

/// All runs at one time.
pub struct Look {
    /// When.
    pub at: Instant,
    /// By launcher.
    pub runs: Vec<Run>,
    /// There are processes that may be launchers and that this user may not look into.
    pub has_closed: bool,
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
    /// What went where.
    pub places: Vec<Place>,
}

impl Look {
    /// Looks at the runs of these launchers, or at all.
    pub fn now(pids: &[u32]) -> Look {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let wanted = |pid: &u32| pids.is_empty() || pids.contains(pid);
        let own = executable(Path::new("/proc/self")).unwrap_or_default();
        let (mut runs, mut has_closed) = (Vec::new(), false);
        for pid in numbers.filter(wanted) {
            let process = process(pid);
            // Far fewer processes are launchers than have descriptors to go through.
            match executable(&process) {
                Ok(name) if name == NAME || name == own => runs.extend(run(pid)),
                Ok(_) => {}
                Err(error) => has_closed |= is_closed(&error) && is_called_so(&process),
            }
        }
        runs.sort_by_key(|run| run.pid);
        Look { at: Instant::now(), runs, has_closed }
    }

    /// That there is no run, in a line; whether there may be one that is not this user's.
    pub fn nothing(&self) -> &'static str {
        match self.has_closed {
            true => "no run of overspill that this user may look into",
            false => "no run of overspill",
        }
    }

    /// The same run in this look.
    pub fn same(&self, run: &Run) -> Option<&Run> {
        self.runs.iter().find(|other| other.pid == run.pid)
    }
}

fn process(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// The name of the file that a process executes, also where that was replaced since.
///
/// *The story:* the name of the process was asked. By a link that has another name the launcher had that
/// one, and its run was not found.
fn executable(process: &Path) -> io::Result<OsString> {
    let path = fs::read_link(process.join("exe"))?;
    let name = path.file_name().unwrap_or_default();
    let name = name.as_bytes().strip_suffix(b" (deleted)").unwrap_or(name.as_bytes());
    Ok(OsStr::from_bytes(name).to_owned())
}

/// Who may look into a process is told anything of it.
fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// The name of a process everybody may read.
fn is_called_so(process: &Path) -> bool {
    fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim_end() == NAME)
}

/// Why a process is of no run that was found in this look.
pub fn no_run_of(pid: u32, look: &Look) -> String {
    match fs::read_link(process(pid).join("exe")) {
        _ if !process(pid).exists() => format!("there is no process {pid}"),
        exe if look.has_closed || exe.as_ref().is_err_and(is_closed) => {
            format!("process {pid} is of no run that this user may look into")
        }
        _ => format!("process {pid} is of no run of overspill"),
    }
}

/// The run whose launcher this is.
fn run(pid: u32) -> Option<Run> {
    let process = process(pid);
    let words = words(&process);
    if is_keeper(pid) {
        return None; // it holds the memory, too, and is no launcher
    }
    let page = memory(&process)?;
    let ram_bytes = page.settings().ok()?.ram_bytes;
    let processes: Vec<Report> = page.reports().ok()?.into_iter().filter(Report::lives).collect();
    let places = page.places(&processes).unwrap_or_default();
    Some(Run { pid, command: command(words), ram_bytes, processes, places })
}

/// The memory of a run, to give it orders.
pub fn memory_of(launcher: u32) -> Option<SharedPage> {
    let path = memory_path(&process(launcher))?;
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

/// The command line of a process.
fn words(process: &Path) -> Vec<OsString> {
    let bytes = fs::read(process.join("cmdline")).unwrap_or_default();
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    bytes.split(|&byte| byte == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

/// What follows the launcher's options.
fn command(words: Vec<OsString>) -> Vec<String> {
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
