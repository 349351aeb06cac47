//! Following a program's file calls: descriptors and positions by process, through dup, fork and
//! close, so that each read and write gets a file, an offset and a length.
//!
//! Where calls come from is the readers' business (`strace`, `perf`): each hands them over taken
//! apart, in the order in which they ended. What a descriptor is called (`strace -y`) is believed
//! where it was open before the trace began; pipes, sockets and the like are no files.

use super::line::number;
use super::record::{FileOp, FileRecord, NameRecord, Record};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Processes that are remembered at once.
pub(super) const PROCESSES_MAX: usize = 1 << 16;

/// O_APPEND as a number.
const APPEND: u64 = 0o2000;

/// CLONE_FILES as a number.
const CLONE_FILES: u64 = 0x400;

/// F_DUPFD and F_DUPFD_CLOEXEC as numbers.
const DUPFD: u64 = 0;
const DUPFD_CLOEXEC: u64 = 1030;

/// Whose call, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub pid: u32,
    pub time_ns: u64,
}

/// An open file description.
#[derive(Clone, Copy, Debug)]
struct OpenFile {
    file: u32,
    position: u64,
    /// Each write goes to the file's end.
    appends: bool,
    /// Descriptors that stand for it, of all processes.
    references: u32,
}

/// A process's descriptors: places in the list of descriptions, which dup and fork share; `None`:
/// it is no file.
type Descriptors = BTreeMap<u64, Option<usize>>;

/// A table of descriptors, which threads share.
#[derive(Default)]
struct Table {
    descriptors: Descriptors,
    /// Threads that have it, one that is just being made among them.
    users: u32,
}

/// A call, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Call<'a> {
    pub name: &'a [u8],
    pub arguments: Vec<&'a [u8]>,
    /// `None`: it failed, or never returned.
    pub result: Option<u64>,
    /// What the file of a descriptor that it returned is called, if that is said.
    pub result_name: Option<&'a [u8]>,
}

impl Call<'_> {
    fn argument(&self, index: usize) -> Result<&[u8], &'static str> {
        self.arguments.get(index).copied().ok_or("an argument is missing")
    }

    fn number(&self, index: usize) -> Result<u64, &'static str> {
        number(bare(self.argument(index)?)).ok_or("an argument is not a number")
    }

    /// The offset that a pointer leads to, before the call: `[4096]`, `[4096] => [8192]`; `None` for
    /// NULL. Where only the pointer is told (perf) the file's position is the best guess.
    fn pointed(&self, index: usize) -> Result<Option<u64>, &'static str> {
        let argument = self.argument(index)?;
        if argument == b"NULL" || number(argument).is_some() {
            return Ok(None);
        }
        let inner = argument.strip_prefix(b"[").and_then(|inner| inner.split(|&byte| byte == b']').next());
        inner.and_then(number).map(Some).ok_or("an offset is not told")
    }

    /// Is a flag among those of an argument, with its prefix (strace) or without (perf trace)?
    fn has_flag(&self, index: usize, prefix: &[u8], flag: &[u8]) -> bool {
        self.arguments.get(index).is_some_and(|flags| has_flag(flags, prefix, flag))
    }
}

fn has_flag(flags: &[u8], prefix: &[u8], flag: &[u8]) -> bool {
    let mut words = flags.split(|&byte| !(byte.is_ascii_alphanumeric() || byte == b'_'));
    words.any(|word| word.strip_prefix(prefix).unwrap_or(word) == flag)
}

/// A descriptor without its file, which `strace -y` writes behind it: `3</tmp/file>`.
pub(super) fn bare(argument: &[u8]) -> &[u8] {
    argument.split(|&byte| byte == b'<').next().unwrap_or(argument)
}

/// What `strace -y` writes behind a descriptor.
pub(super) fn name_behind(argument: &[u8]) -> Option<&[u8]> {
    let at = argument.iter().position(|&byte| byte == b'<')?;
    let end = argument.iter().rposition(|&byte| byte == b'>')?;
    argument.get(at + 1..end)
}

/// The text of a string argument, its escapes as they stand.
fn string(argument: &[u8]) -> Option<&[u8]> {
    let inner = argument.strip_prefix(b"\"")?;
    let inner = inner.strip_suffix(b"...").unwrap_or(inner);
    inner.strip_suffix(b"\"")
}

/// Does this call make a process or a thread?
pub(super) fn is_fork(name: &[u8]) -> bool {
    matches!(name, b"clone" | b"clone3" | b"fork" | b"vfork")
}

/// Does a new process share the descriptors of its parent, by the arguments of the call? Where perf shows
/// the address of clone3's it is taken for a thread.
fn shares_files(name: &[u8], arguments: &[&[u8]]) -> bool {
    let flags = arguments.first().and_then(|flags| number(flags)).filter(|_| name == b"clone");
    flags.is_some_and(|flags| flags & CLONE_FILES != 0)
        || arguments.iter().any(|argument| has_flag(argument, b"CLONE_", b"FILES"))
        || name == b"clone3" && arguments.first().is_some_and(|argument| number(argument).is_some())
}

/// Does fcntl make a descriptor?
fn duplicates(call: &Call<'_>) -> bool {
    let by_name = |flag| call.has_flag(1, b"F_", flag);
    by_name(b"DUPFD") || by_name(b"DUPFD_CLOEXEC") || matches!(call.number(1), Ok(DUPFD | DUPFD_CLOEXEC))
}

/// Does this call make descriptors that are no files? Where it tells of them: `None` in its result.
fn makes_no_files(name: &[u8]) -> Option<Option<usize>> {
    match name {
        b"pipe" | b"pipe2" => Some(Some(0)),
        b"socketpair" => Some(Some(3)),
        b"socket" | b"accept" | b"accept4" | b"epoll_create" | b"epoll_create1" | b"eventfd"
        | b"eventfd2" | b"timerfd_create" | b"signalfd" | b"signalfd4" | b"inotify_init"
        | b"inotify_init1" | b"pidfd_open" | b"userfaultfd" | b"memfd_create" => Some(None),
        _ => None,
    }
}

/// The processes of a trace and what they have open; makes records of their calls.
#[derive(Default)]
pub(super) struct Follower {
    queue: VecDeque<Record>,
    /// By process id: index of its table (threads share one).
    processes: BTreeMap<u32, usize>,
    tables: Vec<Table>,
    descriptions: Vec<OpenFile>,
    names: BTreeMap<Vec<u8>, u32>,
    /// By file: the end of what is known of it, where appended writes go.
    ends: Vec<u64>,
    /// Unfinished forks: the parent, and the table that its child will have. The child's first lines
    /// may come before the parent's call ends.
    forks: Vec<(u32, usize)>,
    /// Children that have turned up and whose parents' calls have not ended.
    early: BTreeSet<u32>,
    /// Files that were opened without a word on their names.
    nameless: u64,
}

impl Follower {
    /// The next record that calls have given rise to.
    pub fn take(&mut self) -> Option<Record> {
        self.queue.pop_front()
    }

    fn table(&mut self, pid: u32) -> Result<usize, &'static str> {
        if let Some(&table) = self.processes.get(&pid) {
            return Ok(table);
        }
        if self.processes.len() >= PROCESSES_MAX {
            return Err("too many processes");
        }
        let table = if self.forks.is_empty() {
            self.tables.push(Table { users: 1, ..Table::default() });
            self.tables.len() - 1
        } else {
            // Who turns up now is the child of whoever is about to have one.
            self.early.insert(pid);
            self.forks.remove(0).1
        };
        self.processes.insert(pid, table);
        Ok(table)
    }

    /// A call of a process was begun; another process's line may be next.
    pub fn call_begins(&mut self, pid: u32, name: &[u8], arguments: &[&[u8]]) -> Result<(), &'static str> {
        let parent = self.table(pid)?;
        if is_fork(name) && !self.forks.iter().any(|&(parent, _)| parent == pid) {
            let table = self.table_of_child(parent, shares_files(name, arguments));
            self.forks.push((pid, table));
        }
        Ok(())
    }

    /// A thread has ended. What nobody else has open is closed.
    ///
    /// *The story:* a trace of more than 65536 processes was refused, and a number that was used again
    /// had the descriptors of whoever had it first.
    pub fn ends(&mut self, at: At) {
        self.early.remove(&at.pid);
        if let Some(table) = self.processes.remove(&at.pid) {
            self.leave_table(at, table);
        }
    }

    fn leave_table(&mut self, at: At, table: usize) {
        self.tables[table].users -= 1;
        if self.tables[table].users == 0 {
            let descriptors = std::mem::take(&mut self.tables[table].descriptors);
            descriptors.into_values().for_each(|description| self.release(at, description));
        }
    }

    /// A descriptor stands for a description from now on, and no longer for what it did.
    fn put(&mut self, at: At, table: usize, fd: u64, description: Option<usize>) {
        if let Some(description) = description {
            self.descriptions[description].references += 1;
        }
        let before = self.tables[table].descriptors.insert(fd, description);
        self.release(at, before.flatten());
    }

    /// A descriptor stands for this no more: with its last one the file is closed.
    ///
    /// *The story:* a shell that moved what it had opened to descriptor 0 was said to have closed it.
    fn release(&mut self, at: At, description: Option<usize>) {
        let Some(description) = description else { return };
        let open = &mut self.descriptions[description];
        open.references -= 1;
        if open.references == 0 {
            let file = open.file;
            self.record(at, file, FileOp::Close, 0, 0);
        }
    }

    fn table_of_child(&mut self, parent: usize, shares: bool) -> usize {
        if shares {
            self.tables[parent].users += 1;
            return parent;
        }
        let descriptors = self.tables[parent].descriptors.clone();
        for description in descriptors.values().flatten() {
            self.descriptions[*description].references += 1;
        }
        self.tables.push(Table { descriptors, users: 1 });
        self.tables.len() - 1
    }

    /// The description behind a descriptor, whose name may stand in the argument; one that was open
    /// before the trace began gets a name of its own otherwise. `None`: it is no file.
    fn description(&mut self, at: At, argument: &[u8]) -> Result<Option<usize>, &'static str> {
        let fd = number(bare(argument)).ok_or("an argument is not a number")?;
        let pid = at.pid;
        let table = self.table(pid)?;
        if let Some(&description) = self.tables[table].descriptors.get(&fd) {
            return Ok(description);
        }
        match name_behind(argument) {
            Some(name) if !name.starts_with(b"/") => {
                self.put(at, table, fd, None);
                Ok(None)
            }
            Some(name) => self.open(at, fd, name).map(Some),
            None => self.open(at, fd, format!("descriptor {fd} of process {pid}").as_bytes()).map(Some),
        }
    }

    fn open(&mut self, at: At, fd: u64, name: &[u8]) -> Result<usize, &'static str> {
        let table = self.table(at.pid)?;
        let next = u32::try_from(self.names.len()).map_err(|_| "too many files")?;
        let file = *self.names.entry(name.to_vec()).or_insert(next);
        if file == next {
            let text = String::from_utf8_lossy(name).into_owned();
            self.queue.push_back(Record::Name(NameRecord { id: file, text }));
            self.ends.push(0);
        }
        self.descriptions.push(OpenFile { file, position: 0, appends: false, references: 0 });
        let description = self.descriptions.len() - 1;
        self.put(at, table, fd, Some(description));
        Ok(description)
    }

    fn record(&mut self, at: At, file: u32, op: FileOp, offset: u64, bytes: u64) {
        let At { pid: thread, time_ns } = at;
        self.queue.push_back(Record::File(FileRecord { time_ns, thread, file, op, offset, bytes }));
    }

    /// A call has ended.
    pub fn call(&mut self, at: At, call: &Call<'_>) -> Result<(), &'static str> {
        let pid = at.pid;
        self.table(pid)?;
        if is_fork(call.name) {
            return self.call_fork(at, call);
        }
        if call.name == b"exit_group" {
            self.ends(at);
            return Ok(());
        }
        let Some(result) = call.result else { return Ok(()) };
        if let Some(told_in) = makes_no_files(call.name) {
            return self.call_no_file(at, call, told_in, result);
        }
        match call.name {
            b"open" | b"creat" => self.call_open(at, call, 0, result),
            b"openat" | b"openat2" => self.call_open(at, call, 1, result),
            b"close" => self.call_close(at, call.number(0)?),
            b"dup" | b"dup2" | b"dup3" => self.call_dup(at, call.argument(0)?, result),
            b"fcntl" if duplicates(call) => self.call_dup(at, call.argument(0)?, result),
            b"read" | b"readv" => self.transfer(at, call.argument(0)?, FileOp::Read, None, result),
            b"write" | b"writev" => self.transfer(at, call.argument(0)?, FileOp::Write, None, result),
            b"pread64" | b"pread" | b"preadv" | b"preadv2" => self.call_at(at, call, FileOp::Read, result),
            b"pwrite64" | b"pwrite" | b"pwritev" | b"pwritev2" => {
                self.call_at(at, call, FileOp::Write, result)
            }
            b"sendfile" | b"sendfile64" => {
                let offset = call.pointed(2)?;
                self.transfer(at, call.argument(1)?, FileOp::Read, offset, result)
            }
            b"copy_file_range" => {
                let (from, to) = (call.pointed(1)?, call.pointed(3)?);
                self.transfer(at, call.argument(0)?, FileOp::Read, from, result)?;
                self.transfer(at, call.argument(2)?, FileOp::Write, to, result)
            }
            b"lseek" => self.call_seek(at, call, result),
            b"_llseek" => {
                let place = call.pointed(2).ok().flatten().ok_or("the position is missing")?;
                self.call_seek(at, call, place)
            }
            b"mmap" | b"mmap2" => self.call_map(at, call),
            _ => Ok(()),
        }
    }

    fn call_open(&mut self, at: At, call: &Call<'_>, path_at: usize, fd: u64) -> Result<(), &'static str> {
        let path = call.argument(path_at).map_err(|_| "the path is missing")?;
        // perf shows an address: then nobody knows which file it is.
        let is_address = number(path).is_some();
        let path = match call.result_name.or_else(|| string(path)) {
            Some(path) => path.to_vec(),
            None if is_address => {
                self.nameless += 1;
                format!("file {} of the trace, which does not tell names", self.nameless).into_bytes()
            }
            None => return Err("the path is missing"),
        };
        let flags_at = path_at + 1;
        let flags = call.arguments.get(flags_at).and_then(|flags| number(flags)).unwrap_or(0);
        let description = self.open(at, fd, &path)?;
        self.descriptions[description].appends =
            call.has_flag(flags_at, b"O_", b"APPEND") || flags & APPEND != 0;
        self.record(at, self.descriptions[description].file, FileOp::Open, 0, 0);
        Ok(())
    }

    /// Pipes and the like: what has their numbers is no file any more.
    fn call_no_file(
        &mut self,
        at: At,
        call: &Call<'_>,
        told_in: Option<usize>,
        result: u64,
    ) -> Result<(), &'static str> {
        let table = self.table(at.pid)?;
        let Some(index) = told_in else {
            self.put(at, table, result, None);
            return Ok(());
        };
        // An address, as perf has it, does not tell which.
        let Some(list) = call.argument(index)?.strip_prefix(b"[") else { return Ok(()) };
        for fd in
            list.split(|&byte| byte == b',' || byte == b']').filter_map(|fd| number(bare(fd.trim_ascii())))
        {
            self.put(at, table, fd, None);
        }
        Ok(())
    }

    fn call_close(&mut self, at: At, fd: u64) -> Result<(), &'static str> {
        let table = self.table(at.pid)?;
        let closed = self.tables[table].descriptors.remove(&fd);
        self.release(at, closed.flatten());
        Ok(())
    }

    fn call_seek(&mut self, at: At, call: &Call<'_>, position: u64) -> Result<(), &'static str> {
        if let Some(description) = self.description(at, call.argument(0)?)? {
            self.descriptions[description].position = position;
        }
        Ok(())
    }

    fn call_dup(&mut self, at: At, from: &[u8], to: u64) -> Result<(), &'static str> {
        let description = self.description(at, from)?;
        let table = self.table(at.pid)?;
        self.put(at, table, to, description);
        Ok(())
    }

    /// At an offset of its own; -1 stands for the file's position.
    fn call_at(&mut self, at: At, call: &Call<'_>, op: FileOp, bytes: u64) -> Result<(), &'static str> {
        let offset = match call.argument(3)? {
            b"-1" | b"18446744073709551615" | b"0xffffffffffffffff" => None,
            _ => Some(call.number(3)?),
        };
        self.transfer(at, call.argument(0)?, op, offset, bytes)
    }

    /// Reads or writes: at an offset, or at the file's position, which moves on.
    fn transfer(
        &mut self,
        at: At,
        fd: &[u8],
        op: FileOp,
        offset: Option<u64>,
        bytes: u64,
    ) -> Result<(), &'static str> {
        let Some(description) = self.description(at, fd)? else { return Ok(()) };
        let OpenFile { file, position, appends, .. } = self.descriptions[description];
        let written_end = &mut self.ends[file as usize];
        let appended = (appends && op == FileOp::Write).then_some(*written_end);
        let begin = appended.or(offset).unwrap_or(position);
        let end = begin.checked_add(bytes).ok_or("the position overflows")?;
        *written_end = end.max(*written_end);
        if offset.is_none() {
            self.descriptions[description].position = end;
        }
        self.record(at, file, op, begin, bytes);
        Ok(())
    }

    fn call_map(&mut self, at: At, call: &Call<'_>) -> Result<(), &'static str> {
        let fd = call.argument(4)?;
        let is_none = fd == b"-1" || number(fd).is_some_and(|fd| fd as i32 == -1);
        if is_none || call.has_flag(3, b"MAP_", b"ANONYMOUS") {
            return Ok(());
        }
        let (bytes, offset) = (call.number(1)?, call.number(5)?);
        if let Some(description) = self.description(at, fd)? {
            self.record(at, self.descriptions[description].file, FileOp::Map, offset, bytes);
        }
        Ok(())
    }

    fn call_fork(&mut self, at: At, call: &Call<'_>) -> Result<(), &'static str> {
        let begun = self.forks.iter().position(|&(parent, _)| parent == at.pid);
        let begun = begun.map(|at| self.forks.remove(at).1);
        let child = call.result.map(u32::try_from).transpose();
        let child = child.map_err(|_| "the child's process id is too large")?;
        // There is none, or it has its table already.
        let Some(child) = child.filter(|child| *child != 0 && !self.early.remove(child)) else {
            begun.into_iter().for_each(|table| self.leave_table(at, table));
            return Ok(());
        };
        // A number that was used before: nobody said that its first owner has ended.
        self.ends(At { pid: child, ..at });
        if self.processes.len() >= PROCESSES_MAX {
            return Err("too many processes");
        }
        let parent = self.table(at.pid)?;
        let shares = shares_files(call.name, &call.arguments);
        let table = begun.unwrap_or_else(|| self.table_of_child(parent, shares));
        self.processes.insert(child, table);
        Ok(())
    }
}
