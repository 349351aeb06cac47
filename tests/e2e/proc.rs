//! What /proc says about processes: their tree, their memory, and where they hang.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// All descendants of a process, itself first.
pub fn tree(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut tree = vec![root];
    let mut next = 0;
    while next < tree.len() {
        let parent = tree[next];
        tree.extend(parents.iter().filter(|&(_, &of)| of == parent).map(|(&pid, _)| pid));
        next += 1;
    }
    tree
}

/// The parent of every process.
fn parents() -> BTreeMap<u32, u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may hold anything; state and parent follow the last one.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent))
    })
    .collect()
}

/// A field of /proc/PID/status, in bytes where the kernel says kB.
pub fn status_bytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The descriptors of all threads of a process, as links to what they lead to: the agent's are its
/// own thread's.
pub fn descriptors(pid: u32) -> impl Iterator<Item = PathBuf> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let links = threads.filter_map(|thread| fs::read_dir(thread.path().join("fd")).ok());
    links.flatten().flatten().map(|link| link.path())
}

/// The name of a process.
pub fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}

/// The words that a process was started with; none for one that has ended.
pub fn command_line(pid: u32) -> Vec<String> {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split_terminator('\0').map(str::to_owned).collect()
}

/// Files without a name in a directory that a thread of the process has open.
pub fn nameless_files(pid: u32, directory: &Path) -> Vec<PathBuf> {
    let is_nameless = |path: &PathBuf| {
        let target = fs::read_link(path).unwrap_or_default();
        target.starts_with(directory) && target.to_string_lossy().contains("(deleted)")
    };
    descriptors(pid).filter(is_nameless).collect()
}

/// Whether a process exists and is no zombie.
pub fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
    })
}

/// Every thread below a process: what it waits for. For the report of a test that hangs.
pub fn where_it_hangs(root: u32) -> String {
    let mut report = String::new();
    for pid in tree(root) {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let state =
                read("status").lines().find(|line| line.starts_with("State")).unwrap_or("?").to_owned();
            let stack: Vec<String> =
                read("stack").lines().take(6).map(|line| line.trim().to_owned()).collect();
            let _ = writeln!(
                report,
                "  {pid}/{} {} {} syscall {} stack {}",
                thread.file_name().to_string_lossy(),
                read("comm").trim(),
                state.split_whitespace().collect::<Vec<_>>().join(" "),
                read("syscall").trim(),
                stack.join(" < ")
            );
        }
    }
    report
}

/// Kills a process and all its descendants, children of dead parents included as long as they are in `also`.
pub fn kill_tree(root: u32, also: &[u32]) {
    let mut pids = tree(root);
    pids.extend(also);
    for pid in pids {
        kill(pid, libc::SIGKILL);
    }
}

/// Sends a signal.
pub fn kill(pid: u32, signal: i32) {
    // SAFETY: sends a signal to a process that this program has started.
    unsafe { libc::kill(pid as i32, signal) };
}
