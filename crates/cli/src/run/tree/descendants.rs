//! The descendants of this process and how much memory each holds, as /proc tells.
//!
//! The launcher is a subreaper: whoever loses its parent becomes its child, so that nobody leaves
//! the tree. A look costs a read for each process; the tree is walked only when the machine has
//! made a process since the look before, which the last field of /proc/loadavg tells. Nothing here
//! knows of agents or budgets.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::kill;
use nix::sys::wait::WaitPidFlag;
use nix::unistd::Pid;
use overspill_sys::mem::shares_memory;
use overspill_sys::procfs::program_stamp;

use super::strangers::{Circle, Strangers};
use crate::run::launch::custody::connections_max;

const PAGE_BYTES: u64 = 4096;
/// Descriptors that are left for everything else.
const DESCRIPTORS_SPARE: u64 = 32;
/// In what /proc counts processor time.
const TICK_US: u64 = 10_000;
/// A process has a number some microseconds before its parent shows it: it is looked for twice.
const WALKS: u32 = 2;

/// What /proc says of one process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Its id, in the launcher's pid namespace.
    pub pid: u32,
    /// Its parent's, when it was found.
    pub parent: u32,
    /// Pages of the program's code: another program after an exec has others.
    pub program_pages: u32,
    /// ... or lies elsewhere, see `procfs::program_stamp`; 0: that is not known.
    pub program_stamp: u64,
    /// Anonymous memory in RAM.
    pub anon_bytes: u64,
    /// Files and shared memory in RAM.
    pub shared_bytes: u64,
    /// It runs in its parent's memory (vfork): what it holds is counted there.
    pub is_guest: bool,
    /// It is stopped: by Ctrl-Z, say.
    pub is_stopped: bool,
    /// For how long its first thread has run, or waited for a processor; 0: the kernel does not tell.
    pub busy_ns: u64,
}

impl Look {
    /// Is that the program that it runs, as far as is known?
    pub fn runs(&self, program_pages: u32, program_stamp: u64) -> bool {
        let are_known = program_stamp != 0 && self.program_stamp != 0;
        self.program_pages == program_pages && (!are_known || self.program_stamp == program_stamp)
    }
}

/// The one with that number, of looks in the order of their numbers, or of what has a look each.
pub fn of_pid<T: Borrow<Look>>(looks: &[T], pid: u32) -> Option<&T> {
    looks.binary_search_by_key(&pid, |look| look.borrow().pid).ok().map(|at| &looks[at])
}

/// The living descendants.
pub struct Descendants {
    root: u32,
    /// Nobody descends from the root: who reports is taken for the run's, and is followed from there.
    is_keepers: bool,
    /// The command: whoever started it waits for it.
    command: u32,
    /// Children of the root that are no part of the run.
    strangers: Strangers,
    loadavg: Option<File>,
    last_pid: Option<u64>,
    /// So many looks walk the tree.
    walks: u32,
    processes: BTreeMap<u32, Process>,
    /// So many of their files may stay open.
    open_max: usize,
    /// Orphans that have ended and were not reaped yet.
    ended: Vec<u32>,
    /// Of those, who had no memory any more and had not quite ended when they were to be reaped.
    ending: Vec<u32>,
    /// Children of the root that are no part of the run and may have ended, as nobody else waits for them.
    others: Vec<u32>,
    orphans: Orphans,
    overlooks: bool,
    /// Sessions and process groups of the run at the last look, and at the one before; and this process's.
    circles: [BTreeSet<Circle>; 2],
    own_circle: Option<Circle>,
}

/// What orphans used that were waited for here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Orphans {
    /// Processor time in programs and in the kernel, in microseconds.
    pub user_us: u64,
    /// See `user_us`.
    pub system_us: u64,
    /// The most that one of them had in RAM, files included.
    pub resident_peak_bytes: u64,
}

struct Process {
    parent: u32,
    /// When it began, in ticks of the machine: tells it from another one that has its number by now.
    began: Option<u64>,
    /// Stays open if there are descriptors enough.
    statm: Option<File>,
    /// The last look.
    last: Option<Look>,
    circle: Option<Circle>,
}

/// From now on orphans of the tree become children of this process.
pub fn adopt_orphans() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true).map_err(io::Error::from)
}

impl Descendants {
    /// Of this process, which has started `command`, and has such children besides.
    pub fn new(command: u32, strangers: Strangers) -> Descendants {
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Descendants {
            root: std::process::id(),
            is_keepers: false,
            command,
            strangers,
            loadavg: File::open("/proc/loadavg").ok(),
            last_pid: None,
            walks: WALKS,
            processes: BTreeMap::new(),
            open_max: (descriptors.saturating_sub(DESCRIPTORS_SPARE) as usize)
                .saturating_sub(connections_max(descriptors)),
            ended: Vec::new(),
            ending: Vec::new(),
            others: Vec::new(),
            orphans: Orphans::default(),
            overlooks: false,
            circles: Default::default(),
            own_circle: stat(std::process::id()).map(|stat| stat.circle),
        }
    }

    /// Of whoever is [claimed](Descendants::claim), as this process is nobody's ancestor.
    pub fn of_nobody() -> Descendants {
        Descendants { is_keepers: true, ..Descendants::new(0, Strangers::default()) }
    }

    /// All that live, in the order of their numbers.
    pub fn look(&mut self) -> Vec<Look> {
        let last_pid = self.loadavg.as_ref().and_then(last_pid);
        if last_pid.is_none() || last_pid != self.last_pid {
            self.walks = WALKS;
            self.last_pid = last_pid;
        }
        if self.walks > 0 {
            self.walks -= 1;
            self.walk();
        }
        let mut looks = Vec::with_capacity(self.processes.len());
        let (root, command) = (self.root, self.command);
        let (mut open, open_max) = (0, self.open_max);
        self.circles.rotate_left(1);
        let circles = &mut self.circles[1];
        circles.clear();
        self.processes.retain(|&pid, process| {
            let look = process.look(pid, open < open_max);
            circles.extend(process.circle);
            open += usize::from(process.statm.is_some());
            match look {
                Ok(Some(look)) => looks.push(look),
                Ok(None) => {
                    self.ended.extend((process.parent == root && pid != command).then_some(pid));
                    if process.last.is_some() {
                        // Who was a child of theirs is one of this process's now.
                        self.walks = self.walks.max(1);
                    }
                    return false;
                }
                Err(_) => self.overlooks = true,
            }
            true
        });
        looks
    }

    /// Has anybody not ended but the command, which has?
    pub fn is_anybody_left(&mut self) -> bool {
        !self.look().is_empty()
    }

    /// Is the process still that which was looked at?
    pub fn is_still(&mut self, pid: u32) -> bool {
        self.processes.get_mut(&pid).is_some_and(|process| process.is_still(pid).unwrap_or(false))
    }

    /// May there have been processes that could not be looked at?
    pub fn overlooks(&self) -> bool {
        self.overlooks
    }

    /// What the orphans used that have ended, and all by now that have not but the command.
    ///
    /// *The story:* of a build of 100 s that was ended 38 ms were told: its compilers went on.
    pub fn used_at_end(&mut self) -> Orphans {
        // Who had ended by the last look may have been somebody else's child then.
        self.look();
        self.reap();
        let mut used = self.orphans;
        for &pid in self.processes.keys().filter(|&&pid| pid != self.command).chain(&self.ending) {
            let [user, system, childrens_user, childrens_system] = processor_ticks(pid);
            used.user_us += (user + childrens_user) * TICK_US;
            used.system_us += (system + childrens_system) * TICK_US;
        }
        used
    }

    /// Finds who is new.
    fn walk(&mut self) {
        let mut parents = vec![self.root];
        if self.is_keepers {
            parents.extend(self.processes.keys());
        }
        self.others.clear();
        let circles = self.circles.iter().flatten().chain(&self.own_circle).copied().collect();
        let mut is_whole = true;
        let mut next = 0;
        while let Some(&parent) = parents.get(next) {
            next += 1;
            let children = listed_children(parent);
            self.overlooks |= children.is_err();
            is_whole &= children.is_ok() || parent != self.root;
            for child in children.unwrap_or_default() {
                if parent == self.root {
                    let told = self.is_of_run(child, &circles);
                    if told.is_none() {
                        self.walks = self.walks.max(1); // it may be told at the next look
                    }
                    if told != Some(true) {
                        self.others.push(child);
                        continue;
                    }
                }
                let is_new = !self.processes.contains_key(&child);
                if is_new || !self.is_keepers {
                    parents.push(child);
                }
                self.processes.entry(child).or_insert(Process::new(parent)).parent = parent;
            }
        }
        if is_whole {
            self.strangers.note_walk(&self.others);
        }
        self.overlooks |= self.strangers.has_doubts();
    }

    /// Is a child of the root the command, or was it seen below that, or must it have been there? `None`:
    /// that is not known.
    fn is_of_run(&mut self, child: u32, circles: &BTreeSet<Circle>) -> Option<bool> {
        let is_known = child == self.command || self.processes.contains_key(&child);
        if is_known { Some(true) } else { self.strangers.is_runs(child, circles) }
    }

    /// An agent of the run reports from there: that is a part of it.
    pub fn claim(&mut self, pid: u32) {
        let is_others = self.others.contains(&pid) && !self.strangers.is_keeper(pid);
        if is_others || self.is_keepers && !self.processes.contains_key(&pid) {
            self.processes.entry(pid).or_insert(Process::new(self.root)).parent = self.root;
            self.walks = self.walks.max(1);
        }
    }

    /// Reaps orphans that were seen to have ended: nobody else waits for them.
    ///
    /// *The story:* each look did so, and a test lost the child that it was to wait for to another
    /// test's look.
    ///
    /// *The other story:* then those were reaped that were still listed as living. Whoever was first
    /// seen dead, or died together with its parent, stayed until the run was over. A program that left
    /// many behind came to its limit of processes.
    pub fn reap(&mut self) {
        for &pid in self.others.iter().filter(|&&pid| !self.strangers.is_keeper(pid)) {
            if crate::os::child::reap(pid as i32, WaitPidFlag::WNOHANG).is_some() {
                self.walks = WALKS; // that may have been the last one
            }
        }
        self.ending.clear();
        for pid in std::mem::take(&mut self.ended) {
            let Some(used) = crate::os::child::reap(pid as i32, WaitPidFlag::WNOHANG) else {
                self.walks = self.walks.max(1);
                self.ending.push(pid);
                continue;
            };
            self.orphans.user_us += used.user.as_micros() as u64;
            self.orphans.system_us += used.system.as_micros() as u64;
            self.orphans.resident_peak_bytes = self.orphans.resident_peak_bytes.max(used.resident_peak_bytes);
        }
    }
}

impl Process {
    fn new(parent: u32) -> Process {
        Process { parent, began: None, statm: None, last: None, circle: None }
    }

    /// `None`: it has ended. An error: it could not be looked at. Its file `stays_open` or does not.
    fn look(&mut self, pid: u32, stays_open: bool) -> io::Result<Option<Look>> {
        let statm = match self.statm.take() {
            Some(statm) => statm,
            None => match of_living(pid, File::open(format!("/proc/{pid}/statm")))? {
                Some(statm) if self.is_still(pid)? => statm,
                _ => return Ok(None),
            },
        };
        let look = match parse(&statm) {
            Some(look) => Some(look),
            // A file that is open is of the process of which it was opened; the threads are not.
            None if self.is_still(pid)? => look_at_threads(pid)?,
            None => None,
        };
        let look = look.map(|look| self.stamped(pid, look, &statm));
        self.statm = Some(statm).filter(|_| stays_open);
        Ok(look.map(|look| self.complete(pid, look)))
    }

    /// Has nobody else the number since it was first looked at?
    ///
    /// *The story:* numbers start again. Another program of the machine was taken for one that had
    /// ended, and `--strict` killed it.
    fn is_still(&mut self, pid: u32) -> io::Result<bool> {
        let Some(began) = began(pid)? else { return Ok(false) };
        Ok(*self.began.get_or_insert(began) == began)
    }

    /// Which program it runs. One that has just taken over is looked at anew: what is told of both is of one.
    fn stamped(&mut self, pid: u32, look: Look, statm: &File) -> Look {
        let stat = read(pid, "stat").unwrap_or_default();
        self.circle = Stat::of(&stat).map_or(self.circle, |stat| Some(stat.circle));
        let (program_stamp, is_stopped) =
            (program_stamp(stat.as_bytes()), words_of(&stat).next() == Some("T"));
        let is_new = self.last.is_some_and(|last| last.program_stamp != program_stamp);
        let look = if is_new { parse(statm).unwrap_or(look) } else { look };
        Look { program_stamp, is_stopped, ..look }
    }

    fn complete(&mut self, pid: u32, mut look: Look) -> Look {
        (look.pid, look.parent) = (pid, self.parent);
        look.busy_ns = busy_ns(pid);
        // A guest stays one until it calls exec; whoever is none never becomes one.
        look.is_guest = match self.last {
            Some(last) if last.runs(look.program_pages, look.program_stamp) => {
                last.is_guest && shares_memory(pid, self.parent)
            }
            Some(_) => false,
            None => shares_memory(pid, self.parent),
        };
        self.last = Some(look);
        look
    }
}

/// Does that say of a file of /proc that its process has ended?
fn is_gone(error: &io::Error) -> bool {
    [Some(libc::ENOENT), Some(libc::ESRCH)].contains(&error.raw_os_error())
}

/// `None`: nobody has that memory any more.
fn parse(statm: &File) -> Option<Look> {
    let mut bytes = [0; 128];
    let length = statm.read_at(&mut bytes, 0).ok()?;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
    let [_, resident, shared, program] = std::array::from_fn(|_| numbers.next().unwrap_or(0));
    (resident > 0).then(|| Look {
        program_pages: u32::try_from(program).unwrap_or(u32::MAX),
        anon_bytes: resident.saturating_sub(shared) * PAGE_BYTES,
        shared_bytes: shared * PAGE_BYTES,
        ..Look::default()
    })
}

/// A process whose first thread has ended says nothing; its other threads do.
fn look_at_threads(pid: u32) -> io::Result<Option<Look>> {
    of_other_threads(pid, |path| File::open(path.join("statm")).map(|statm| parse(&statm)))
}

/// What the first of them says that says anything; `None`: nobody does.
fn of_other_threads<T>(pid: u32, read: impl Fn(&Path) -> io::Result<Option<T>>) -> io::Result<Option<T>> {
    for thread in threads(pid)?.into_iter().filter(|&thread| thread != pid) {
        match of_thread(pid, thread, &read) {
            Ok(Some(Some(said))) => return Ok(Some(said)),
            Ok(_) => {}
            Err(error) if is_gone(&error) => {} // it ends
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// What is read of a process's memory, in its directory of /proc or, where its first thread has ended, in
/// another thread's. `None` of `read`, and of this: nothing is said there.
///
/// *The story:* each figure that the first thread did not tell any more counted as none. 200 MiB of shared
/// memory "fitted" in 260 KiB, and `--strict` let them be.
pub fn of_memory<T>(pid: u32, read: impl Fn(&Path) -> io::Result<Option<T>>) -> io::Result<Option<T>> {
    match read(Path::new(&format!("/proc/{pid}"))) {
        Ok(None) => of_other_threads(pid, read),
        Err(error) if is_gone(&error) => of_other_threads(pid, read),
        said => said,
    }
}

/// A file about a process's memory, see [`of_memory`]; empty where it says nothing of that.
pub fn read_of_memory(pid: u32, file: &str) -> io::Result<Vec<u8>> {
    // Of a thread that has ended this one still tells everything else.
    let is_told = |bytes: &[u8]| match file {
        "status" => bytes.windows(3).any(|part| part == b" kB"),
        _ => !bytes.is_empty(),
    };
    let read =
        |path: &Path| fs::read(path.join(file)).map(|bytes| Some(bytes).filter(|bytes| is_told(bytes)));
    of_memory(pid, read).map(Option::unwrap_or_default)
}

/// The same as text, see [`read`].
pub fn text_of_memory(pid: u32, file: &str) -> io::Result<String> {
    read_of_memory(pid, file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The children of all threads of a process; nobody where that cannot be read.
pub fn children(pid: u32) -> Vec<u32> {
    listed_children(pid).unwrap_or_default()
}

/// An error: there may be others.
fn listed_children(pid: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in threads(pid)? {
        let list = of_thread(pid, thread, |path| fs::read_to_string(path.join("children")))?;
        children.extend(list.unwrap_or_default().split_ascii_whitespace().flat_map(str::parse::<u32>));
    }
    Ok(children)
}

fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let entries = of_living(pid, fs::read_dir(format!("/proc/{pid}/task")))?;
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    Ok(entries.into_iter().flatten().flatten().filter_map(number).collect())
}

/// What was read of a process; `None`: it has ended. One that cannot be seen may live (hidepid of /proc).
fn of_living<T>(pid: u32, read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) && !is_taken(pid) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Has any process that number, seen or unseen?
fn is_taken(pid: u32) -> bool {
    let asked = i32::try_from(pid).map_or(Err(Errno::ESRCH), |pid| kill(Pid::from_raw(pid), None));
    asked != Err(Errno::ESRCH)
}

/// What was read of a thread; `None`: it has ended.
fn of_thread<T>(pid: u32, thread: u32, read: impl Fn(&Path) -> io::Result<T>) -> io::Result<Option<T>> {
    of_directory(Path::new(&format!("/proc/{pid}/task/{thread}")), read)
}

/// The same of its directory. Not every kernel has all files (CONFIG_PROC_CHILDREN).
fn of_directory<T>(directory: &Path, read: impl Fn(&Path) -> io::Result<T>) -> io::Result<Option<T>> {
    match read(directory) {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) && !directory.exists() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The number that the newest process of the machine was given.
fn last_pid(loadavg: &File) -> Option<u64> {
    let mut bytes = [0; 128];
    let length = loadavg.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..length]).ok()?.split_ascii_whitespace().last()?.parse().ok()
}

/// A figure of /proc/PID/status or smaps_rollup, in bytes; `None` where it cannot be read.
pub fn figure(pid: u32, file: &str, name: &str) -> Option<u64> {
    figures(pid, file, [name]).map(|[figure]| figure)
}

/// Several of one file, which is read once: a walk of page tables is dear.
pub fn figures<const N: usize>(pid: u32, file: &str, names: [&str; N]) -> Option<[u64; N]> {
    let text = text_of_memory(pid, file).ok()?;
    let mut figures = [0; N];
    for (figure, name) in figures.iter_mut().zip(names) {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        *figure = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024;
    }
    Some(figures)
}

/// Processor time of all threads of a process, in microseconds; 0 where it cannot be read.
pub fn processor_us(pid: u32) -> u64 {
    let [user, system, ..] = processor_ticks(pid);
    (user + system) * TICK_US
}

/// Processor time in the program and in the kernel, and the same of children that it has waited for.
fn processor_ticks(pid: u32) -> [u64; 4] {
    let stat = read(pid, "stat").unwrap_or_default();
    let mut words = words_of(&stat).skip(11);
    std::array::from_fn(|_| words.next().and_then(|word| word.parse().ok()).unwrap_or(0))
}

/// See [`Look::busy_ns`].
fn busy_ns(pid: u32) -> u64 {
    let text = read(pid, "schedstat").unwrap_or_default();
    text.split_ascii_whitespace().take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// Faults of a process that no device was waited for; `None`: it has ended.
pub fn minor_faults(pid: u32) -> Option<u64> {
    words_of(&read(pid, "stat").ok()?).nth(7)?.parse().ok()
}

/// Has a process any memory, and still a program of that size? Who ends has none before it has ended.
pub fn is_program(pid: u32, program_pages: u32) -> bool {
    let statm = File::open(format!("/proc/{pid}/statm")).ok();
    let look = statm.as_ref().and_then(parse).or_else(|| look_at_threads(pid).ok().flatten());
    look.is_some_and(|look| look.program_pages == program_pages)
}

/// Is it stopped, traced, or waiting for a disk, so that it does not get on for now?
pub fn is_put_off(pid: u32) -> bool {
    matches!(state(pid), Some('T' | 't' | 'D'))
}

/// The letter of its state (R, S, T, ...); `None`: it has ended.
pub fn state(pid: u32) -> Option<char> {
    words_of(&read(pid, "stat").ok()?).next()?.chars().next()
}

/// When a process began, in ticks of the machine; `None`: it has ended.
pub fn began(pid: u32) -> io::Result<Option<u64>> {
    let stat = of_living(pid, read(pid, "stat"))?;
    Ok(stat.and_then(|stat| words_of(&stat).nth(19)?.parse().ok()))
}

/// Of /proc/PID/stat.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub has_ended: bool,
    pub circle: Circle,
    /// In ticks of the machine.
    pub began: u64,
    /// It was started with nothing in its environment. (In the midst of an exec it has none as yet.)
    ///
    /// *The story:* that was told by an environment that was read as empty, and by its end, which was asked
    /// for when the exec was done: one run in sixty of a shell that execs python.
    pub has_nothing: bool,
}

impl Stat {
    fn of(stat: &str) -> Option<Stat> {
        let mut words = words_of(stat);
        let has_ended = ["Z", "X"].contains(&words.next()?);
        let mut number = |skipped| words.nth(skipped)?.parse::<u64>().ok();
        let (group, session) = (number(1)?, number(0)?);
        let began = number(15)?;
        // Both are 0 where they may not be known.
        let (start, end) = (number(27).unwrap_or(0), number(0).unwrap_or(0));
        let has_nothing = end != 0 && start == end;
        Some(Stat { has_ended, circle: (session as u32, group as u32), began, has_nothing })
    }
}

/// `None`: it has ended, or cannot be looked at.
pub fn stat(pid: u32) -> Option<Stat> {
    Stat::of(&read(pid, "stat").ok()?)
}

/// The parent of a process.
pub fn parent(pid: u32) -> Option<u32> {
    words_of(&read(pid, "stat").ok()?).nth(1)?.parse().ok()
}

/// Does a process live? *The story:* the launcher had no descriptor left, took that for an answer, and
/// gave the places of living agents to others. *The other story* (by reading): so would it have where
/// /proc hides other users' processes (hidepid). One whose first thread has ended lives by the others.
pub fn exists(pid: u32) -> bool {
    let lives = |stat: String| words_of(&stat).next().is_some_and(|state| !["Z", "X"].contains(&state));
    match of_living(pid, read(pid, "stat")) {
        Ok(None) => false,
        Ok(Some(stat)) => {
            lives(stat) || threads(pid).map_or(true, |threads| threads.iter().any(|&thread| thread != pid))
        }
        Err(_) => true, // it cannot be looked at
    }
}

/// What /proc says of a process. Its name may hold any bytes, and is cut after 15 of them.
///
/// *The story* (by reading): a name in Cyrillic was cut within a letter. What was read was no UTF-8, and
/// the process's shared and locked memory counted as none.
pub fn read(pid: u32, file: &str) -> io::Result<String> {
    fs::read(format!("/proc/{pid}/{file}")).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// What follows the name in /proc/PID/stat. The name is in parentheses and may hold anything.
fn words_of(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace()
}

/// The name of a process.
pub fn name(pid: u32) -> String {
    read(pid, "comm").map_or_else(|_| "?".into(), |name| name.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::Signal;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// Nothing here takes so long: a test that waits for it in vain fails, and does not hang.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// *The story:* any error was taken for a process's end, "too many open files", too.
    #[test]
    fn only_what_has_ended_is_gone() {
        let number = std::process::id();
        let open = |pid: u32| of_living(pid, File::open(format!("/proc/{pid}/statm")));
        assert_eq!(open(number).unwrap().map(drop), Some(()));
        assert!(open(u32::MAX).unwrap().is_none());
        assert!(listed_children(u32::MAX).unwrap().is_empty());
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EACCES] {
            assert!(of_living::<()>(u32::MAX, Err(io::Error::from_raw_os_error(errno))).is_err());
        }
        assert!(of_living::<()>(u32::MAX, Err(io::Error::from_raw_os_error(libc::ESRCH))).unwrap().is_none());
    }

    /// *The story* (by reading): where /proc hides other users' processes, or lists no children, nobody
    /// was seen, and all was managed.
    #[test]
    fn what_is_not_shown_may_live() {
        let hidden = || io::Error::from_raw_os_error(libc::ENOENT);
        assert!(of_living::<()>(std::process::id(), Err(hidden())).is_err());
        let open = |path: &Path| File::open(path.join("children"));
        assert!(of_directory(&std::env::temp_dir(), open).is_err(), "it is there, and has no such file");
        assert!(of_directory(Path::new("/no/such/directory"), open).unwrap().is_none());
    }

    /// See [`Process::is_still`].
    #[test]
    fn a_number_that_another_process_has_by_now_is_not_the_same() {
        let own = std::process::id();
        let new = |began| Process { began, ..Process::new(1) };
        let now = began(own).unwrap().unwrap();
        assert!(new(Some(now)).look(own, false).unwrap().is_some());
        assert_eq!(new(Some(now - 1)).look(own, false).unwrap(), None);
        let mut first = new(None);
        assert!(first.look(own, false).unwrap().is_some() && first.began == Some(now));
        let (mut descendants, mut child) =
            (Descendants::new(0, Strangers::default()), Command::new("sleep").arg("60").spawn().unwrap());
        let at = |descendants: &mut Descendants| of_pid(&descendants.look(), child.id()).is_some();
        assert!(at(&mut descendants) && descendants.is_still(child.id()));
        descendants.processes.get_mut(&child.id()).unwrap().began = Some(now - 1);
        assert!(!descendants.is_still(child.id()), "that is not to be killed");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants.is_still(child.id()));
    }

    /// See [`read`].
    #[test]
    fn a_name_that_is_cut_within_a_letter_hides_nothing() {
        let program = std::env::temp_dir().join(format!("переменные-{}", std::process::id()));
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg("60").spawn().unwrap();
        fs::remove_file(&program).unwrap();
        let pid = child.id();
        // Whoever made it goes on as soon as it has memory of its own; its name comes an instant later.
        let made = Instant::now();
        while std::str::from_utf8(&fs::read(format!("/proc/{pid}/comm")).unwrap()).is_ok() {
            assert!(made.elapsed() < PATIENCE, "the name is cut within a letter");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(figure(pid, "status", "VmRSS").unwrap() > 0);
        assert!(parent(pid) == Some(std::process::id()) && exists(pid));
        child.kill().unwrap();
        let began = Instant::now();
        while exists(pid) {
            assert!(began.elapsed() < PATIENCE, "a zombie is taken for living");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
    }

    #[test]
    fn who_is_stopped_is_put_off() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::SIGSTOP).unwrap();
        let began = Instant::now();
        while !is_put_off(child.id()) {
            assert!(began.elapsed() < PATIENCE, "it was not seen to be stopped");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_put_off(std::process::id()));
    }

    #[test]
    fn what_is_told_of_a_process_is_read_where_it_stands() {
        let text = "7 (a) b) S 1 22 33 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 1 2 3 4 5 6 7 8 9 10 11 \
                    12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 5001 5002 0";
        let told = Stat::of(text).unwrap();
        assert_eq!((told.circle, told.began, told.has_nothing), ((33, 22), 4711, false));
        assert!(Stat::of(&text.replace("5001", "5002")).unwrap().has_nothing);
        assert!(!Stat::of(&text.replace("5001 5002", "0 0")).unwrap().has_nothing);
        let own = stat(std::process::id()).unwrap();
        assert!(!own.has_ended && !own.has_nothing);
        assert_eq!(began(std::process::id()).unwrap(), Some(own.began));
    }

    /// Nobody here is an ancestor of theirs, as far as this knows.
    #[test]
    fn who_is_claimed_is_followed_from_there() {
        let mut shell = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let mut keepers = Descendants::of_nobody();
        keepers.root = u32::MAX;
        assert!(keepers.look().is_empty());
        keepers.claim(shell.id());
        let began = Instant::now();
        let sleeper = loop {
            assert!(began.elapsed() < PATIENCE, "the shell's child was not seen");
            let looks = keepers.look();
            assert!(
                looks.iter().all(|look| look.pid == shell.id() || look.parent == shell.id()),
                "{looks:?}"
            );
            if let Some(look) = looks.iter().find(|look| look.parent == shell.id()) {
                break look.pid;
            }
            keepers.claim(shell.id());
            std::thread::sleep(Duration::from_millis(2));
        };
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(keepers.look().iter().any(|look| look.pid == sleeper), "it has lost its parent");
        kill(Pid::from_raw(sleeper as i32), Signal::SIGKILL).unwrap();
    }

    /// *The story:* only processes with an agent were known, and what a static program held that a
    /// shell had started was not.
    #[test]
    fn grandchildren_are_seen_and_the_ended_are_not() {
        let mut shell = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let mut descendants = Descendants::new(shell.id(), Strangers::default());
        let began = Instant::now();
        let sleeper = loop {
            assert!(began.elapsed() < PATIENCE, "the shell's child was not seen");
            let looks = descendants.look();
            let child = looks.iter().find(|look| look.parent == shell.id());
            // A look at a process that becomes another meanwhile finds it without memory.
            // The kernel's two counts of its memory need not be there at the same moment.
            let is_whole = |look: &&Look| {
                let told = figure(look.pid, "status", "RssAnon").unwrap_or(0);
                name(look.pid) == "sleep" && look.anon_bytes > 0 && look.program_pages > 0 && told > 0
            };
            if let Some(look) = child.filter(is_whole) {
                break *look;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        assert!(!sleeper.is_guest);
        let before = processor_us(std::process::id());
        let mut spins = 0_u64;
        while processor_us(std::process::id()) < before + 2 * TICK_US {
            assert!(began.elapsed() < PATIENCE, "no processor time was counted");
            spins = std::hint::black_box(spins + 1);
        }
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(sleeper.pid as i32), nix::sys::signal::SIGKILL)
            .unwrap();
        shell.wait().unwrap();
        assert!(descendants.look().iter().all(|look| look.pid != sleeper.pid && look.pid != shell.id()));
    }
}
