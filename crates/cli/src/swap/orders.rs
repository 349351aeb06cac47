//! `overspill swap add` and `overspill swap drain`: the places of a run that goes on.
//!
//! The order is written into the run's shared memory, and its processes follow it by themselves.
//! Nothing is asked of the launcher. What is waited for here is what they tell; whoever stops
//! waiting changes nothing.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use overspill_engine::SwapPlace;
use overspill_engine::orders::Order;
use overspill_engine::shared::state;

use super::arg::SwapArg;
use crate::checks::{Status, swap_place};
use crate::human;
use crate::run::shared_page::{Report, SharedPage};
use crate::run::tree::descendants;
use crate::stderr::say;
use crate::stdout::print;
use crate::top::scan;

/// Between two looks at how far the processes are.
const LOOK: Duration = Duration::from_millis(20);
/// A process that has not followed by then has no agent that looks.
const PATIENCE: Duration = Duration::from_secs(10);
/// When the other places have had no room for so long, that is said.
const NO_ROOM: Duration = Duration::from_secs(1);
/// What is shown of a command.
const COMMAND_CHARS: usize = 60;

/// `overspill swap add`.
pub fn add(pid: Option<u32>, asked: &SwapArg) -> Result<u8> {
    let place = match swap_place::resolve(Some(asked)) {
        Ok(place) => place,
        Err(check) => bail!("{}", check.line()),
    };
    let check = swap_place::usable(&place);
    if check.status == Status::Fail {
        bail!("{}", check.line());
    }
    if let Some(note) = place.note() {
        say!("overspill: note: {note}");
    }
    let shown = place.path.display().to_string();
    let path = CString::new(place.path.as_os_str().as_bytes()).context("a path has no NUL")?;
    let (kind, bytes_max, priority) = (place.kind, place.bytes_max, place.priority);
    let given = Given::new(pid, &Order::Add(SwapPlace { kind, path, bytes_max, priority, limit: None }))?;
    let Followed { processes, stopped } = given.followed(false)?;
    let refused = given.refused_by(&processes);
    ensure!(refused == 0 || refused < processes.len(), "no process of the run can use {shown}");
    if refused > 0 {
        say!("overspill: note: {refused} of {} processes cannot use {shown}", processes.len());
    }
    let when = if stopped > 0 && stopped == processes.len() { "once it goes on" } else { "from now on" };
    print(&format!("{shown}: pages of {} go there, too, {when}\n", given.run))?;
    Ok(0)
}

/// `overspill swap drain`.
///
/// *The story:* pages of an area that could not be read stayed there, and it was said that nothing
/// was left.
pub fn drain(pid: Option<u32>, path: &Path) -> Result<u8> {
    let path = name_of(path);
    let shown = path.display();
    let name = CString::new(path.as_os_str().as_bytes()).context("a path has no NUL")?;
    let given = Given::new(pid, &Order::Drain(name))?;
    // Nothing has left where nobody could follow: that is waited for.
    let Followed { processes, .. } = given.followed(true)?;
    let refused = given.refused_by(&processes);
    ensure!(
        refused == 0 || refused < processes.len(),
        "{shown} is no place of the run, or the only one that takes pages"
    );
    let waits = |pages| {
        say!(
            "overspill: note: {} pages wait in {shown}: the other places have no room for them",
            human::count(pages)
        );
    };
    let stuck = given.done(waits)?;
    if stuck > 0 {
        bail!("{shown}: {} pages cannot be read and stay there", human::count(stuck));
    }
    // *The story:* where it was the only place of some process it was said that nothing is left there.
    ensure!(
        refused == 0,
        "{shown}: {refused} of {} processes did not leave it: no other place takes their pages, or it is \
         none of theirs",
        processes.len()
    );
    print(&format!("{shown}: nothing of {} is left there\n", given.run))?;
    Ok(0)
}

/// The name that a place has with the run: absolute, and without links. What is gone already, or has had no
/// name since it was made (`--swap NEWFILE`), has that of its directory and its own.
///
/// *The story:* `swap drain ./new` was "no place of the run" where `--swap ./new` had made it.
fn name_of(path: &Path) -> PathBuf {
    let in_directory = |_| -> io::Result<PathBuf> {
        let path = std::path::absolute(path)?;
        let directory = path.parent().map(fs::canonicalize).and_then(Result::ok);
        Ok(directory.zip(path.file_name()).map_or(path.clone(), |(directory, name)| directory.join(name)))
    };
    fs::canonicalize(path).or_else(in_directory).unwrap_or_else(|_| path.to_owned())
}

/// Who has heard of an order.
struct Followed {
    processes: Vec<Report>,
    /// So many of them have not, as they are stopped.
    stopped: usize,
}

/// By a signal.
fn is_stopped(process: &Report) -> bool {
    descendants::state(process.pid) == Some('T')
}

fn told_of_stopped(first: &Report, count: usize) -> String {
    let (pid, name) = (first.pid, human::one_line(&first.name));
    match count {
        1 => format!("process {pid} ({name}) is stopped: it follows when it goes on (kill -CONT {pid})"),
        _ => format!("{count} processes, as {pid} ({name}), are stopped: they follow when they go on"),
    }
}

/// An order that was given.
struct Given {
    /// Which run: `sort -S 2G (pid 7)`.
    ///
    /// *The story:* without `--pid` the only run there was was changed, and not named.
    run: String,
    page: SharedPage,
    index: u32,
}

impl Given {
    fn new(pid: Option<u32>, order: &Order) -> Result<Given> {
        let (run, page) = page_of(pid)?;
        let text = order.encode().context("its path is too long")?;
        let index = page.give_order(&text).context("cannot give the order")?;
        Ok(Given { run, page, index })
    }

    /// Processes that have their places open, whether they page yet or not: others follow when they
    /// open theirs.
    fn processes(&self) -> Result<Vec<Report>> {
        let mut reports = self.page.reports()?;
        let lives = |pid: u32| Path::new("/proc").join(pid.to_string()).exists();
        let has_places = |report: &Report| match report.state {
            state::MANAGING => true,
            state::WATCHING => report.counter("swap_area_bytes") > 0,
            _ => false,
        };
        reports.retain(|report| has_places(report) && !report.is_over && lives(report.pid));
        Ok(reports)
    }

    /// Waits until all have followed. Those that are stopped, as by `--on-full stop` or Ctrl-Z, follow when
    /// they go on: that is said, and not waited for but if it `waits`.
    ///
    /// *The story:* swap was full and the program stopped. Whoever gave it another place was told after 10 s
    /// that it does not answer, and it followed as soon as it went on.
    fn followed(&self, waits: bool) -> Result<Followed> {
        let (mut until, mut is_told) = (Instant::now() + PATIENCE, false);
        loop {
            let processes = self.processes()?;
            let late: Vec<&Report> =
                processes.iter().filter(|process| process.orders_followed <= self.index).collect();
            let stopped = late.len();
            match (late.first(), late.iter().find(|process| !is_stopped(process))) {
                (_, Some(awake)) if Instant::now() >= until => {
                    bail!("process {} ({}) does not answer", awake.pid, awake.name)
                }
                (_, Some(_)) => {}
                (None, None) => return Ok(Followed { processes, stopped }),
                (Some(first), None) => {
                    if !is_told {
                        say!("overspill: note: {}", told_of_stopped(first, stopped));
                        is_told = true;
                    }
                    if !waits {
                        return Ok(Followed { processes, stopped });
                    }
                    until = Instant::now() + PATIENCE;
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until nothing more can be brought elsewhere: pages that stay. `waits` hears once of how many
    /// there are when the other places have had no room for them for a while.
    fn done(&self, waits: impl Fn(u64)) -> Result<u64> {
        let (mut since, mut is_told) = (Instant::now(), false);
        loop {
            let processes = self.processes()?;
            let has = |bits: u32| bits >> self.index & 1 != 0;
            let left =
                processes.iter().map(|process| u64::from(process.pages_left[self.index as usize])).sum();
            if !processes.iter().any(|process| has(process.orders_open)) {
                return Ok(left);
            }
            if !processes.iter().any(|process| has(process.orders_waiting)) {
                since = Instant::now();
            }
            if since.elapsed() >= NO_ROOM && !std::mem::replace(&mut is_told, true) {
                waits(left);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// How many of them do not follow it.
    fn refused_by(&self, processes: &[Report]) -> usize {
        processes.iter().filter(|process| process.orders_refused >> self.index & 1 != 0).count()
    }
}

/// The run that is meant, and its memory: by its launcher, or by a process of it; the only one.
fn page_of(pid: Option<u32>) -> Result<(String, SharedPage)> {
    let look = scan::Look::now(&[]);
    let runs = &look.runs;
    let is_meant = |run: &&scan::Run| {
        pid.is_none_or(|pid| run.pid == pid || run.processes.iter().any(|process| process.pid == pid))
    };
    let mut meant = runs.iter().filter(is_meant);
    match (meant.next(), meant.next(), pid) {
        (Some(run), None, _) => {
            let page = scan::memory_of(run.pid).context("cannot write to the run's memory")?;
            let command = human::clipped(&human::command(&run.command), COMMAND_CHARS);
            Ok((format!("{command} (pid {})", run.pid), page))
        }
        (None, _, Some(pid)) => bail!("{}", scan::no_run_of(pid, &look)),
        (None, _, None) => bail!("there is {}", look.nothing()),
        (Some(_), Some(_), _) => {
            let pids: Vec<String> = runs.iter().map(|run| run.pid.to_string()).collect();
            bail!("{} runs go on: --pid says which ({})", human::count(runs.len() as u64), pids.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See [`name_of`].
    #[test]
    fn what_has_no_name_any_more_has_that_of_its_directory() {
        let own = std::env::current_dir().and_then(fs::canonicalize).unwrap();
        assert_eq!(name_of(Path::new("./no-such-file")), own.join("no-such-file"));
        assert_eq!(name_of(Path::new("no-such-file")), own.join("no-such-file"));
        assert_eq!(name_of(Path::new("src/../no-such-file")), own.join("no-such-file"));
        assert_eq!(name_of(Path::new("src")), own.join("src"));
        assert_eq!(name_of(Path::new("/no/such/./file")), Path::new("/no/such/file"));
    }
}
