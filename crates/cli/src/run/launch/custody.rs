//! Second descriptors of the memory that agents manage, kept for those that have such memory longer than
//! the process whose agent manages it: a child of vfork or posix_spawn whose maker's process is killed.
//!
//! Such a process finds all that is in RAM, and may go on to exec. If it touches what is out it waits, as
//! nobody can bring that, and is ended: the alternative is zeroes where its data were. Who it is tells a
//! page of the memory that no program fills: it is filled with what nobody can guess, and whoever shows
//! that has the memory.
//!
//! A descriptor is closed when no process has its memory any more, which it does not keep alive, or when
//! its agent has let go of all. The agent's connection ends with its process. Until then nobody reads what it
//! says: the kernel keeps that, the descriptor too, so that one descriptor for each process will do.
//!
//! *The story:* with two each, and 1024 in all, 340 processes had every one, and nobody looked at the rest.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use overspill_engine::shared::{PROCESSES, custody_name, letters};
use overspill_sys::event::{PollFd, poll};
use overspill_sys::uffd::Left;
use overspill_sys::{Errno, Fd, PAGE_SIZE, random, socket};

use super::door::is_descendant;
use super::entrance::{self, Entrance};
use crate::human;
use crate::run::tree::descendants::{children, exists, name, of_memory};
use crate::stderr::say;

/// How often those are looked at whose process has ended: most are nobody's a moment later.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Who has such memory when the run is over may have it for so long.
const GRACE: Duration = Duration::from_secs(1);
/// So long it is waited for that who was ended at the run's end has ended.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// It has half of what this leaves, at most: the others are for who looks at processes.
const DESCRIPTORS_SPARE: u64 = 64;

/// So many connections it has at most, where this process may have so many descriptors.
pub fn connections_max(descriptors: u64) -> usize {
    (descriptors.saturating_sub(DESCRIPTORS_SPARE) / 2).min(PROCESSES as u64) as usize
}

/// Said once.
const TOO_MANY: &str = "overspill: more processes are managed than there are descriptors for (ulimit -Hn): \
                        a child of vfork whose maker is killed may read zeroes";

/// The thread.
pub struct Custodian {
    /// Closed, it says that the run is over.
    stop: Fd,
    thread: JoinHandle<()>,
}

impl Custodian {
    /// Agents may come from now on. An error where there are so few descriptors that the launcher needs them.
    ///
    /// *The story:* with twelve the command could not be started any more.
    pub fn start(token: u64, path: Option<PathBuf>, quiet: bool) -> Result<Custodian, Errno> {
        if entrance::has_few_descriptors() {
            return Err(Errno::MFILE);
        }
        let entrance = Entrance::open(&custody_name(token), path)?;
        let [stop, stopped] = socket::pair()?;
        let most = connections_max(entrance::descriptors_max());
        let mut kept = Custody { quiet, most, is_told: false, living: Vec::new(), left: Vec::new() };
        let keep = move || kept.keep(&entrance, &stopped);
        let thread = std::thread::Builder::new().name("custody".into()).spawn(keep);
        Ok(Custodian { stop, thread: thread.map_err(|_| Errno::AGAIN)? })
    }

    /// The run is over, and nobody keeps anything from now on: who still has memory of a process that has
    /// ended is ended, too.
    pub fn finish(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

/// Of a process that lives.
struct Living {
    connection: Fd,
    pid: u32,
}

/// Of one that has ended.
struct Ended {
    descriptor: Left,
    /// Where its mark is, and what it says.
    page: usize,
    mark: u64,
    is_marked: bool,
    /// The process that has ended.
    pid: u32,
    /// Somebody waits for a page.
    is_wanted: bool,
    /// Those of whose end was told.
    told: BTreeSet<u32>,
}

struct Custody {
    quiet: bool,
    /// So many processes have a place here, and it was told that some have none.
    most: usize,
    is_told: bool,
    living: Vec<Living>,
    left: Vec<Ended>,
}

impl Custody {
    fn keep(&mut self, entrance: &Entrance, stopped: &Fd) {
        let mut pause = PAUSE_MIN;
        loop {
            let fds = [stopped].into_iter().chain(entrance.sockets());
            let fds = fds.chain(self.left.iter().map(|left| left.descriptor.fd())).map(PollFd::readable);
            let living = self.living.iter().map(|living| PollFd::closed(&living.connection));
            let first = 1 + entrance.sockets().len() + self.left.len();
            let mut fds: Vec<PollFd> = fds.chain(living).collect();
            let rest = (!self.left.is_empty()).then_some(pause.as_nanos() as u64);
            // A look in vain where that fails.
            if poll(&mut fds, rest).is_err() {
                std::thread::sleep(PAUSE_MIN);
            }
            let is_over = fds[0].is_ready();
            let ended = self.left.len();
            // From the last to the first: the last one takes the place of one that has ended.
            for at in (0..self.living.len()).rev().filter(|at| fds[first + at].is_ready()) {
                let ended = self.living.swap_remove(at);
                self.left.extend(ended.leaves());
            }
            if fds[1..=entrance.sockets().len()].iter().any(PollFd::is_ready) {
                self.let_in(entrance);
            }
            pause = if self.left.len() > ended { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            if is_over {
                // Who has come and gone, and was not let in as yet.
                while self.let_in(entrance) {}
                self.left.extend(std::mem::take(&mut self.living).into_iter().filter_map(Living::left));
                return self.end();
            }
            self.look_after_left(false);
        }
    }

    /// Nobody keeps anything from now on. Who is on its way to exec has a moment. A descriptor is closed when
    /// who was ended has gone: until then it could read zeroes.
    fn end(&mut self) {
        for (is_over, patience) in [(false, GRACE), (true, END_PATIENCE)] {
            let began = Instant::now();
            while !self.left.is_empty() && began.elapsed() < patience {
                self.look_after_left(is_over);
                std::thread::sleep(PAUSE_MIN);
            }
        }
    }

    /// False: nobody has come, or nobody can be let in.
    fn let_in(&mut self, entrance: &Entrance) -> bool {
        let Some(guest) = entrance.accept_waiting() else { return false };
        let guest = guest.and_then(|guest| Ok((socket::peer(&guest)?.0, guest)));
        match guest {
            // Who has ended since is asked for no parents. It gave what it had before.
            // Who is outside of this pid namespace has no number here.
            Ok((pid, connection)) if pid != 0 && (is_descendant(pid) || !exists(pid)) => {
                if self.living.len() + self.left.len() < self.most {
                    self.living.push(Living { connection, pid });
                } else if !std::mem::replace(&mut self.is_told, true) && !self.quiet {
                    say!("{TOO_MANY}");
                }
            }
            Ok(_) => {}
            // No descriptor, say.
            Err(_) => {
                std::thread::sleep(PAUSE_MIN);
                return false;
            }
        }
        true
    }

    fn look_after_left(&mut self, is_over: bool) {
        let mut children = Vec::new();
        let quiet = self.quiet;
        self.left.retain_mut(|left| left.is_to_be_kept(is_over, quiet, &mut children));
        self.left.append(&mut children);
    }
}

impl Living {
    /// The same, if it has ended.
    fn left(self) -> Option<Ended> {
        let has_ended = poll(&mut [PollFd::closed(&self.connection)], Some(0)).is_ok_and(|ready| ready > 0);
        has_ended.then(|| self.leaves()).flatten()
    }

    /// The process has ended, or its agent has: what is to be kept of it.
    fn leaves(self) -> Option<Ended> {
        let mut kept = None;
        while let Ok(Some((letter, descriptor))) = socket::receive(&self.connection) {
            match letter.kind {
                letters::ENTRUSTED => kept = descriptor.and_then(Left::of).map(|left| (left, letter.value)),
                letters::TAKEN_BACK => kept = None,
                _ => {}
            }
        }
        kept.map(|(left, page)| Ended::new(left, page as usize, random::unpredictable(), self.pid))
    }
}

impl Ended {
    fn new(descriptor: Left, page: usize, mark: u64, pid: u32) -> Ended {
        Ended { descriptor, page, mark, is_marked: false, pid, is_wanted: false, told: BTreeSet::new() }
    }

    /// False: nobody has the memory. Who has it, and waits for what is out, is ended; when all is over
    /// whoever has it.
    fn is_to_be_kept(&mut self, is_over: bool, quiet: bool, children: &mut Vec<Ended>) -> bool {
        if !self.descriptor.is_anybodys() {
            return false;
        }
        let (page, mark, pid) = (self.page, self.mark, self.pid);
        // A child of such a process has the mark, too, if that was there.
        let forked = |left| children.push(Ended::new(left, page, mark, pid));
        self.is_wanted |= self.descriptor.hear(forked).unwrap_or(false);
        if !(self.is_wanted || is_over) {
            return true;
        }
        if !self.is_marked {
            match self.descriptor.mark(page, &marked(mark)) {
                Ok(()) | Err(Errno::EXIST) => self.is_marked = true,
                Err(_) => return true, // a change is under way: again at the next look
            }
        }
        let mut is_sure = true;
        for holder in everybody().into_iter().filter(|&other| other != pid) {
            match shows(holder, page, mark) {
                Ok(false) => {}
                // It may have it. So it waits, as long as this process lives.
                Err(_) => is_sure = false,
                Ok(true) => {
                    is_sure = false;
                    self.end_holder(holder, quiet);
                }
            }
        }
        // Nobody has it but who ends, or somebody who reads it from elsewhere (process_vm_readv): that one
        // must not wait for ever.
        !is_sure || exists(pid)
    }

    /// Ends a process, and says so once.
    fn end_holder(&mut self, holder: u32, quiet: bool) {
        let name = human::one_line(&name(holder));
        let is_ended = kill(Pid::from_raw(holder as i32), Signal::SIGKILL).is_ok();
        if self.told.insert(holder) && !quiet {
            say!("{}", told(&name, holder, is_ended));
        }
    }
}

fn told(name: &str, pid: u32, ended: bool) -> String {
    let fate = if ended { "it is ended" } else { "it waits for ever, as it may not be ended" };
    format!("overspill: {name} ({pid}) had the memory of a process that has ended, with pages out: {fate}")
}

/// The page that says so.
fn marked(mark: u64) -> Box<[u8; PAGE_SIZE]> {
    let mut bytes = Box::new([0; PAGE_SIZE]);
    bytes[..8].copy_from_slice(&mark.to_ne_bytes());
    bytes
}

/// All descendants of this process.
fn everybody() -> Vec<u32> {
    let (mut found, mut at) = (children(std::process::id()), 0);
    while let Some(&pid) = found.get(at) {
        found.extend(children(pid));
        at += 1;
    }
    found
}

/// Does a process have the page of that mark? What is out there is not waited for. An error: it may not be
/// looked into.
fn shows(pid: u32, page: usize, mark: u64) -> io::Result<bool> {
    let read = |path: &Path| -> io::Result<Option<bool>> {
        let (file, mut bytes) = (File::open(path.join("mem"))?, [0; 8]);
        // Where the thread has ended there is nothing to be read; elsewhere what is not there is an error.
        Ok(match file.read_at(&mut bytes, page as u64) {
            Ok(0) => None,
            got => Some(got.is_ok_and(|length| length == bytes.len()) && bytes == mark.to_ne_bytes()),
        })
    };
    match of_memory(pid, read) {
        Ok(shows) => Ok(shows.unwrap_or(false)),
        Err(_) if !exists(pid) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overspill_sys::socket::Letter;
    use overspill_sys::uffd::{Features, Uffd};

    /// *The story:* each process took two descriptors of the launcher's for as long as it lived.
    #[test]
    fn what_was_given_is_kept_by_one_descriptor_until_the_process_ends() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let (uffd, _) = Uffd::open(Features::empty(), true).expect("anybody may have one for its own faults");
        let letter = |kind| Letter { kind, value: 0x1000 };
        let [agent, connection] = socket::pair().unwrap();
        let before = open();
        socket::send(&agent, letter(letters::ENTRUSTED), Some(uffd.fd())).unwrap();
        drop(uffd);
        assert!(!has_closed(&connection), "it lives, and has said something");
        assert_eq!(open(), before - 1);
        drop(agent);
        // A child that another test starts has what was open, until its exec.
        let begin = std::time::Instant::now();
        while !has_closed(&connection) {
            assert!(begin.elapsed().as_secs() < 20, "it is still open");
        }
        let kept = Living { connection, pid: 7 }.leaves().expect("it was given");
        assert_eq!((kept.page, kept.pid), (0x1000, 7));

        let [agent, connection] = socket::pair().unwrap();
        socket::send(&agent, letter(letters::ENTRUSTED), Some(kept.descriptor.fd())).unwrap();
        socket::send(&agent, letter(letters::TAKEN_BACK), None).unwrap();
        drop(agent);
        assert!(Living { connection, pid: 7 }.leaves().is_none(), "it was taken back");
    }

    fn has_closed(connection: &Fd) -> bool {
        let mut fds = [PollFd::closed(connection)];
        poll(&mut fds, Some(0)).unwrap() > 0
    }

    #[test]
    fn who_looks_at_processes_has_descriptors_left() {
        assert_eq!([0, 64, 1024, 1 << 20].map(connections_max), [0, 0, 480, PROCESSES]);
    }

    #[test]
    fn who_has_the_mark_is_known() {
        let (page, own) = (marked(0x1234_5678_9abc_def0), std::process::id());
        let at = page.as_ptr().addr();
        assert!(shows(own, at, 0x1234_5678_9abc_def0).unwrap() && !shows(own, at, 1).unwrap());
        assert!(!shows(own, PAGE_SIZE, 0).unwrap(), "nothing is there");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(everybody().contains(&child.id()) && !everybody().contains(&own));
        assert!(!shows(child.id(), at, 0x1234_5678_9abc_def0).unwrap());
        child.kill().and_then(|()| child.wait()).unwrap();
        assert!(!shows(child.id(), at, 0).unwrap());
    }
}
