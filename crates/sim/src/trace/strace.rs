//! `strace` of file I/O: `strace -f -ttt -e trace=openat,read,pread64,lseek,mmap,close,... -o FILE COMMAND`.
//!
//! Follows descriptors and positions per process, through dup, fork and close, so that each read
//! and write gets a file, an offset and a length. Times (-r excepted) and process ids are optional.
//! Lines that are not system calls (signals, exits, the program's own output) are passed over; a
//! file call whose arguments make no sense is an error.

mod writer;

pub use writer::StraceWriter;

use super::line::{Lines, decimal, number, seconds, show};
use super::record::{FileOp, FileRecord, NameRecord, Record};
use super::{RecordReader, TraceError};
use std::collections::{BTreeMap, VecDeque};
use std::io::BufRead;

/// Unfinished calls and processes that are remembered at once.
const PROCESSES_MAX: usize = 1 << 16;

/// An open file description.
#[derive(Clone, Copy, Debug)]
struct OpenFile {
    file: u32,
    position: u64,
}

/// A process's descriptors: places in the list of descriptions, which dup and fork share.
type Descriptors = BTreeMap<u64, usize>;

/// Reads strace's output.
pub struct StraceReader<R: BufRead> {
    lines: Lines<R>,
    queue: VecDeque<Record>,
    /// By process id: index of its table (threads share one).
    processes: BTreeMap<u32, usize>,
    tables: Vec<Descriptors>,
    descriptions: Vec<OpenFile>,
    names: BTreeMap<Vec<u8>, u32>,
    /// By process id: the beginning of a call that was interrupted by another process's line.
    unfinished: BTreeMap<u32, Vec<u8>>,
    /// Unfinished forks: the parent, and the table that its child will have. The child's first lines
    /// may come before the parent's call ends.
    forks: Vec<(u32, usize)>,
    first_ns: Option<u64>,
    calls: u64,
}

/// What stands before a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Prefix {
    pid: u32,
    time_ns: Option<u64>,
}

/// A call, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Call<'a> {
    name: &'a [u8],
    arguments: Vec<&'a [u8]>,
    /// `None`: it failed, or never returned.
    result: Option<u64>,
}

impl Call<'_> {
    fn number(&self, index: usize) -> Result<u64, &'static str> {
        let argument = self.arguments.get(index).ok_or("an argument is missing")?;
        number(bare(argument)).ok_or("an argument is not a number")
    }
}

/// Takes the process id and the time off a line.
fn prefix(line: &[u8]) -> (Prefix, &[u8]) {
    let mut rest = line;
    let mut prefix = Prefix { pid: 0, time_ns: None };
    if let Some(bracketed) = rest.strip_prefix(b"[pid")
        && let Some(end) = bracketed.iter().position(|&byte| byte == b']')
        && let Some(pid) = decimal(bracketed[..end].trim_ascii())
    {
        prefix.pid = pid as u32;
        rest = bracketed[end + 1..].trim_ascii_start();
    } else if let Some((word, after)) = word(rest)
        && let Some(pid) = decimal(word)
    {
        prefix.pid = pid as u32;
        rest = after;
    }
    if let Some((word, after)) = word(rest)
        && let Some(time_ns) = time(word)
    {
        prefix.time_ns = Some(time_ns);
        rest = after;
    }
    (prefix, rest)
}

fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line.iter().position(|&byte| byte == b' ')?;
    Some((&line[..end], line[end..].trim_ascii_start()))
}

/// `SECONDS.FRACTION` (-ttt) or `HH:MM:SS[.FRACTION]` (-t, -tt).
fn time(word: &[u8]) -> Option<u64> {
    let parts: Vec<&[u8]> = word.split(|&byte| byte == b':').collect();
    match parts[..] {
        [whole] => seconds(whole),
        [hours, minutes, rest] => {
            let minutes = decimal(hours)?.checked_mul(60)?.checked_add(decimal(minutes)?)?;
            let last = seconds(rest).or_else(|| decimal(rest)?.checked_mul(1_000_000_000))?;
            minutes.checked_mul(60_000_000_000)?.checked_add(last)
        }
        _ => None,
    }
}

/// A descriptor without its file, which `strace -y` writes behind it: `3</tmp/file>`.
fn bare(argument: &[u8]) -> &[u8] {
    argument.split(|&byte| byte == b'<').next().unwrap_or(argument)
}

/// Does this call make a process or a thread?
fn is_fork(name: &[u8]) -> bool {
    matches!(name, b"clone" | b"clone3" | b"fork" | b"vfork")
}

/// Does a new process share the descriptors of its parent, by the text of the call?
fn shares_files(text: &[u8]) -> bool {
    text.windows(11).any(|part| part == b"CLONE_FILES")
}

/// Takes a whole call apart; `None` if the text is something else.
fn call(text: &[u8]) -> Option<Call<'_>> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let name = &text[..open];
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if name.is_empty() || !name.iter().all(is_name) {
        return None;
    }
    let equals = text.windows(3).rposition(|window| window == b" = ")?;
    let inner = text[..equals].trim_ascii_end().strip_suffix(b")")?;
    let inner = inner.get(open + 1..)?;
    let result = text[equals + 3..].trim_ascii();
    let result = result.split(|&byte| byte == b' ').next().and_then(|result| number(bare(result)));
    Some(Call { name, arguments: arguments(inner), result })
}

/// Splits at the commas that are outside of strings, brackets and the names of descriptors' files.
fn arguments(text: &[u8]) -> Vec<&[u8]> {
    let (mut list, mut begin, mut depth, mut quoted, mut escaped) = (Vec::new(), 0, 0_u32, false, false);
    let (mut name_ends, mut may_have_names) = (0, true);
    for (at, &byte) in text.iter().enumerate() {
        if at < name_ends {
            continue;
        }
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'<' if may_have_names && begins_name(text, at) => match end_of_name(text, at) {
                Some(end) => name_ends = end,
                None => may_have_names = false,
            },
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                list.push(text[begin..at].trim_ascii());
                begin = at + 1;
            }
            _ => {}
        }
    }
    if begin > 0 || !text.trim_ascii().is_empty() {
        list.push(text[begin..].trim_ascii());
    }
    list
}

/// Where the file's name ends that begins with the `<` behind a descriptor: `3</tmp/file>`. It may
/// have a `->` in it: `<TCP:[10.0.0.1:99->10.0.0.2:80]>`.
fn end_of_name(text: &[u8], at: usize) -> Option<usize> {
    let is_end = |pair: &[u8]| pair[0] == b'>' && matches!(pair[1], b',' | b')' | b' ' | b']' | b'}');
    let end = text[at..].windows(2).position(is_end).map(|end| at + end + 1);
    end.or(text.ends_with(b">").then_some(text.len()))
}

/// Is the `<` at this place behind a descriptor, and no shift?
fn begins_name(text: &[u8], at: usize) -> bool {
    let before = &text[..at];
    text.get(at + 1) != Some(&b'<')
        && (before.last().is_some_and(u8::is_ascii_digit) || before.ends_with(b"AT_FDCWD"))
}

/// The text of a string argument, its escapes as they stand.
fn string(argument: &[u8]) -> Option<&[u8]> {
    let inner = argument.strip_prefix(b"\"")?;
    let inner = inner.strip_suffix(b"...").unwrap_or(inner);
    inner.strip_suffix(b"\"")
}

/// Does this line look like strace's?
#[must_use]
pub fn looks_like_strace(line: &[u8]) -> bool {
    let (_, rest) = prefix(line);
    call(rest).is_some_and(|call| !call.arguments.is_empty() || call.result.is_some())
}

impl<R: BufRead> StraceReader<R> {
    /// Begins.
    pub fn new(input: R) -> StraceReader<R> {
        StraceReader {
            lines: Lines::new(input),
            queue: VecDeque::new(),
            processes: BTreeMap::new(),
            tables: Vec::new(),
            descriptions: Vec::new(),
            names: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            forks: Vec::new(),
            first_ns: None,
            calls: 0,
        }
    }

    /// One line; fills the queue.
    fn line(&mut self, offset: u64, line: &[u8], number: u64) -> Result<(), TraceError> {
        let (prefix, rest) = prefix(line);
        let joined;
        let mut text = rest;
        if let Some(begin) = rest.strip_suffix(b"<unfinished ...>") {
            if self.unfinished.len() >= PROCESSES_MAX {
                return Err(TraceError::damaged(offset, "too many unfinished calls"));
            }
            self.unfinished.insert(prefix.pid, begin.trim_ascii_end().to_vec());
            return self
                .call_begins(prefix.pid, begin)
                .map_err(|problem| TraceError::damaged(offset, format!("{problem}: {}", show(line))));
        }
        if let Some(resumed) = rest.strip_prefix(b"<... ")
            && let Some(end) = resumed.windows(8).position(|window| window == b"resumed>")
        {
            let Some(mut begin) = self.unfinished.remove(&prefix.pid) else { return Ok(()) };
            begin.extend_from_slice(&resumed[end + 8..]);
            joined = begin;
            text = &joined;
        }
        let Some(call) = call(text) else { return Ok(()) };
        let time_ns = prefix.time_ns.unwrap_or(number * 1000);
        let first_ns = *self.first_ns.get_or_insert(time_ns);
        self.calls += 1;
        self.call(prefix.pid, time_ns.saturating_sub(first_ns), &call)
            .map_err(|problem| TraceError::damaged(offset, format!("{problem}: {}", show(line))))
    }

    fn table(&mut self, pid: u32) -> Result<usize, &'static str> {
        if let Some(&table) = self.processes.get(&pid) {
            return Ok(table);
        }
        if self.processes.len() >= PROCESSES_MAX {
            return Err("too many processes");
        }
        let table = if self.forks.is_empty() {
            self.tables.push(Descriptors::new());
            self.tables.len() - 1
        } else {
            // Who turns up now is the child of whoever is about to have one.
            self.forks.remove(0).1
        };
        self.processes.insert(pid, table);
        Ok(table)
    }

    /// A call of a process was begun, and another process's line is next.
    fn call_begins(&mut self, pid: u32, text: &[u8]) -> Result<(), &'static str> {
        let parent = self.table(pid)?;
        let name = text.split(|&byte| byte == b'(').next().unwrap_or(text);
        if is_fork(name) && !self.forks.iter().any(|&(parent, _)| parent == pid) {
            let table = self.table_of_child(parent, shares_files(text));
            self.forks.push((pid, table));
        }
        Ok(())
    }

    fn table_of_child(&mut self, parent: usize, shares: bool) -> usize {
        if shares {
            return parent;
        }
        let copy = self.tables[parent].clone();
        self.tables.push(copy);
        self.tables.len() - 1
    }

    /// The description behind a descriptor; one that was open before the trace began gets a name of its own.
    fn description(&mut self, pid: u32, fd: u64) -> Result<usize, &'static str> {
        let table = self.table(pid)?;
        if let Some(&description) = self.tables[table].get(&fd) {
            return Ok(description);
        }
        let name = format!("descriptor {fd} of process {pid}");
        self.open(pid, fd, name.as_bytes())
    }

    fn open(&mut self, pid: u32, fd: u64, name: &[u8]) -> Result<usize, &'static str> {
        let table = self.table(pid)?;
        let next = u32::try_from(self.names.len()).map_err(|_| "too many files")?;
        let file = *self.names.entry(name.to_vec()).or_insert(next);
        if file == next {
            let text = String::from_utf8_lossy(name).into_owned();
            self.queue.push_back(Record::Name(NameRecord { id: file, text }));
        }
        self.descriptions.push(OpenFile { file, position: 0 });
        let description = self.descriptions.len() - 1;
        self.tables[table].insert(fd, description);
        Ok(description)
    }

    fn record(&mut self, pid: u32, time_ns: u64, file: u32, op: FileOp, offset: u64, bytes: u64) {
        self.queue.push_back(Record::File(FileRecord { time_ns, thread: pid, file, op, offset, bytes }));
    }

    fn call(&mut self, pid: u32, time_ns: u64, call: &Call<'_>) -> Result<(), &'static str> {
        self.table(pid)?;
        if is_fork(call.name) {
            return self.call_fork(pid, call);
        }
        let Some(result) = call.result else { return Ok(()) };
        match call.name {
            b"open" | b"creat" => self.call_open(pid, time_ns, call, 0, result),
            b"openat" | b"openat2" => self.call_open(pid, time_ns, call, 1, result),
            b"close" => self.call_close(pid, time_ns, call.number(0)?),
            b"dup" | b"dup2" | b"dup3" => self.call_dup(pid, call.number(0)?, result),
            b"fcntl" if call.arguments.get(1).is_some_and(|argument| argument.starts_with(b"F_DUPFD")) => {
                self.call_dup(pid, call.number(0)?, result)
            }
            b"read" | b"readv" => self.call_stream(pid, time_ns, call, FileOp::Read, result),
            b"write" | b"writev" => self.call_stream(pid, time_ns, call, FileOp::Write, result),
            b"pread64" | b"pread" => self.call_at(pid, time_ns, call, FileOp::Read, result),
            b"pwrite64" | b"pwrite" => self.call_at(pid, time_ns, call, FileOp::Write, result),
            b"preadv" | b"preadv2" => self.call_at(pid, time_ns, call, FileOp::Read, result),
            b"pwritev" | b"pwritev2" => self.call_at(pid, time_ns, call, FileOp::Write, result),
            b"lseek" => self.call_seek(pid, call, result),
            b"_llseek" => {
                let place = call.arguments.get(2).and_then(|place| place.strip_prefix(b"["));
                let place = place.and_then(|place| number(place.strip_suffix(b"]")?));
                self.call_seek(pid, call, place.ok_or("the position is missing")?)
            }
            b"mmap" | b"mmap2" => self.call_map(pid, time_ns, call),
            _ => Ok(()),
        }
    }

    fn call_open(
        &mut self,
        pid: u32,
        time_ns: u64,
        call: &Call<'_>,
        path_at: usize,
        fd: u64,
    ) -> Result<(), &'static str> {
        let path = call.arguments.get(path_at).copied().and_then(string).ok_or("the path is missing")?;
        let description = self.open(pid, fd, path)?;
        self.record(pid, time_ns, self.descriptions[description].file, FileOp::Open, 0, 0);
        Ok(())
    }

    fn call_close(&mut self, pid: u32, time_ns: u64, fd: u64) -> Result<(), &'static str> {
        let table = self.table(pid)?;
        if let Some(description) = self.tables[table].remove(&fd) {
            self.record(pid, time_ns, self.descriptions[description].file, FileOp::Close, 0, 0);
        }
        Ok(())
    }

    fn call_seek(&mut self, pid: u32, call: &Call<'_>, position: u64) -> Result<(), &'static str> {
        let description = self.description(pid, call.number(0)?)?;
        self.descriptions[description].position = position;
        Ok(())
    }

    fn call_dup(&mut self, pid: u32, from: u64, to: u64) -> Result<(), &'static str> {
        let description = self.description(pid, from)?;
        let table = self.table(pid)?;
        self.tables[table].insert(to, description);
        Ok(())
    }

    /// At the file's position, which moves on.
    fn call_stream(
        &mut self,
        pid: u32,
        time_ns: u64,
        call: &Call<'_>,
        op: FileOp,
        bytes: u64,
    ) -> Result<(), &'static str> {
        let description = self.description(pid, call.number(0)?)?;
        let OpenFile { file, position } = self.descriptions[description];
        self.descriptions[description].position =
            position.checked_add(bytes).ok_or("the position overflows")?;
        self.record(pid, time_ns, file, op, position, bytes);
        Ok(())
    }

    /// At an offset of its own.
    fn call_at(
        &mut self,
        pid: u32,
        time_ns: u64,
        call: &Call<'_>,
        op: FileOp,
        bytes: u64,
    ) -> Result<(), &'static str> {
        let offset = call.number(3)?;
        let description = self.description(pid, call.number(0)?)?;
        self.record(pid, time_ns, self.descriptions[description].file, op, offset, bytes);
        Ok(())
    }

    fn call_map(&mut self, pid: u32, time_ns: u64, call: &Call<'_>) -> Result<(), &'static str> {
        let anonymous = |flags: &&[u8]| flags.windows(9).any(|part| part == b"ANONYMOUS");
        if call.arguments.get(3).is_some_and(anonymous) || call.arguments.get(4).is_some_and(|fd| fd == b"-1")
        {
            return Ok(());
        }
        let (bytes, offset) = (call.number(1)?, call.number(5)?);
        let description = self.description(pid, call.number(4)?)?;
        self.record(pid, time_ns, self.descriptions[description].file, FileOp::Map, offset, bytes);
        Ok(())
    }

    fn call_fork(&mut self, pid: u32, call: &Call<'_>) -> Result<(), &'static str> {
        let begun = self.forks.iter().position(|&(parent, _)| parent == pid);
        let begun = begun.map(|at| self.forks.remove(at).1);
        let Some(child) = call.result else { return Ok(()) };
        let child = u32::try_from(child).map_err(|_| "the child's process id is too large")?;
        if child == 0 || self.processes.contains_key(&child) {
            return Ok(());
        }
        let parent = self.table(pid)?;
        if self.processes.len() >= PROCESSES_MAX {
            return Err("too many processes");
        }
        let shares = call.arguments.iter().any(|argument| shares_files(argument));
        let table = begun.unwrap_or_else(|| self.table_of_child(parent, shares));
        self.processes.insert(child, table);
        Ok(())
    }
}

impl<R: BufRead> RecordReader for StraceReader<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(record) = self.queue.pop_front() {
                return Ok(Some(record));
            }
            let number = self.lines.count;
            let Some((offset, line)) = self.lines.next_line()? else {
                if self.calls == 0 {
                    return Err(TraceError::damaged(0, "there is no system call in this strace output"));
                }
                return Ok(None);
            };
            let line = line.to_vec();
            self.line(offset, &line, number)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Vec<String>, Vec<FileRecord>), TraceError> {
        let mut reader = StraceReader::new(text.as_bytes());
        let (mut names, mut calls) = (Vec::new(), Vec::new());
        while let Some(record) = reader.next_record()? {
            match record {
                Record::Name(name) => {
                    assert_eq!(name.id as usize, names.len());
                    names.push(name.text);
                }
                Record::File(call) => calls.push(call),
                other => panic!("{other:?}"),
            }
        }
        Ok((names, calls))
    }

    const REAL: &str = r#"1795296288.178523 execve("/usr/bin/sh", ["sh", "-c"], 0x7ffe3a5cf290 /* 39 vars */) = 0
1795296288.179646 mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7fe144ee4000
1795296288.179840 openat(AT_FDCWD, "/lib/libc.so.6", O_RDONLY|O_CLOEXEC) = 3
1795296288.179869 read(3, "\177ELF\2\1, \"quoted\" = 5) = 7"..., 832) = 832
1795296288.179897 pread64(3, "\6\0\0\0\4"..., 784, 64) = 784
1795296288.179900 read(3, "x", 10) = 10
1795296288.179996 mmap(0x7fe144d1f000, 1400832, PROT_READ|PROT_EXEC, MAP_PRIVATE|MAP_FIXED, 3, 0x26000) = 0x7fe144d1f000
1795296288.180000 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, child_tidptr=0x7f) = 10328
strace: Process 10328 attached
[pid 10328] 1795296288.192953 lseek(3, 0, SEEK_SET) = 0
[pid 10328] 1795296288.193270 read(3,  <unfinished ...>
1795296288.193300 close(3)              = 0
[pid 10328] 1795296288.193427 <... read resumed>"abc", 3) = 3
[pid 10328] 1795296288.193428 openat(AT_FDCWD, "/nonexistent", O_RDONLY) = -1 ENOENT (No such file or directory)
[pid 10328] 1795296288.193429 +++ exited with 0 +++
hello from the program
"#;

    #[test]
    fn a_real_trace() {
        let (names, calls) = read(REAL).expect("a trace");
        assert_eq!(names, ["/lib/libc.so.6"]);
        let brief: Vec<_> = calls.iter().map(|c| (c.thread, c.op, c.offset, c.bytes)).collect();
        use FileOp::{Close, Map, Open, Read};
        assert_eq!(
            brief,
            [
                (0, Open, 0, 0),
                (0, Read, 0, 832),
                (0, Read, 64, 784),
                (0, Read, 832, 10),
                (0, Map, 0x26000, 1_400_832),
                (0, Close, 0, 0),
                (10328, Read, 0, 3),
            ]
        );
        assert_eq!(calls[0].time_ns, 1_317_000);
    }

    #[test]
    fn other_prefixes() {
        let text = "77 12:00:01.5 read(5, \"\", 4) = 4\n77 12:00:02.5 read(5, \"\", 4) = 4\n";
        let (names, calls) = read(text).expect("a trace");
        assert_eq!(names, ["descriptor 5 of process 77"]);
        assert_eq!(
            calls.iter().map(|c| (c.time_ns, c.offset)).collect::<Vec<_>>(),
            [(0, 0), (1_000_000_000, 4)]
        );
        let (_, calls) = read("read(5, \"\", 4) = 4\n").expect("a trace");
        assert_eq!(calls.len(), 1);
    }

    /// *The story:* a thread that ran before its parent's call had returned read "descriptor 3 of
    /// process 78".
    #[test]
    fn a_child_has_its_descriptors_before_the_call_that_made_it_ends() {
        for (flags, names) in [("CLONE_VM|CLONE_FILES", vec!["/a", "/b"]), ("SIGCHLD", vec!["/a", "/b"])] {
            let text = format!(
                "77 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\n\
                 77 clone3({{flags={flags}}} <unfinished ...>\n\
                 78 rseq(0x7f, 0x20, 0, 0x53053053) = 0\n\
                 78 openat(AT_FDCWD, \"/b\", O_RDONLY) = 4\n\
                 78 read(3, \"\", 4) = 4\n\
                 77 <... clone3 resumed>) = 78\n\
                 77 read(3, \"\", 4) = 4\n"
            );
            let (found, calls) = read(&text).expect("a trace");
            assert_eq!(found, names, "{flags}");
            assert_eq!(calls.iter().map(|call| call.offset).collect::<Vec<_>>(), [0, 0, 0, 4]);
            let shared = read(&format!("{text}77 read(4, \"\", 4) = 4\n")).expect("a trace").0.len() == 2;
            assert_eq!(shared, flags.contains("FILES"), "/b is the child's own, or both have it");
        }
        let failed =
            "77 fork( <unfinished ...>\n77 <... fork resumed>) = -1 EAGAIN (No)\n78 read(3, \"\", 1) = 1\n";
        assert_eq!(read(failed).expect("a trace").0, ["descriptor 3 of process 78"]);
    }

    #[test]
    fn seeks_of_32_bits_say_where_in_an_argument() {
        let (_, calls) =
            read("_llseek(3, 40960, [40960], SEEK_SET) = 0\nread(3, \"\", 8) = 8\n").expect("a trace");
        assert_eq!(calls[0].offset, 40960);
        assert!(
            read("_llseek(3, 0, 7, SEEK_SET) = 0\n").expect_err("refused").to_string().contains("position")
        );
    }

    /// What `strace -y` and `-yy` write behind descriptors.
    #[test]
    fn descriptors_with_the_names_of_their_files() {
        let text = "openat(AT_FDCWD</root>, \"/data/a, b\", O_RDONLY) = 3</data/a, b>\n\
                    dup2(3</data/a, b>, 5<TCP:[10.0.0.1:99->10.0.0.2:80]>) = 5</data/a, b>\n\
                    read(5</data/a, b>, \"x\", 8) = 8\n\
                    mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3</data/a, b>, 0x1000) = 0x7f\n\
                    close(3</data/a, b>) = 0\n";
        let (names, calls) = read(text).expect("a trace");
        assert_eq!(names, ["/data/a, b"]);
        let brief: Vec<_> = calls.iter().map(|call| (call.op, call.offset, call.bytes)).collect();
        use FileOp::{Close, Map, Open, Read};
        assert_eq!(brief, [(Open, 0, 0), (Read, 0, 8), (Map, 0x1000, 4096), (Close, 0, 0)]);
        assert_eq!(arguments(b"1<<3, {a, 2}, 4</x>").len(), 3);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(read("hello\n").expect_err("refused").to_string().contains("no system call"));
        let error = read("read(x, \"\", 4) = 4\n").expect_err("refused").to_string();
        assert_eq!(error, r#"offset 0: an argument is not a number: 'read(x, "", 4) = 4'"#);
        assert!(read("pread64(3, \"\") = 4\n").expect_err("refused").to_string().contains("missing"));
    }
}
