//! `strace` of file I/O: `strace -f -ttt -e trace=openat,read,pread64,lseek,mmap,close,... -o FILE COMMAND`;
//! and `perf trace`, which prints much the same.
//!
//! Follows descriptors and positions per process, through dup, fork and close, so that each read
//! and write gets a file, an offset and a length. Times (-r excepted) and process ids are optional.
//! Lines that are not system calls (signals, exits, the program's own output) are passed over; a
//! file call whose arguments make no sense is an error.

mod perf_trace;
mod writer;

pub use writer::StraceWriter;

use super::calls::{At, Call, Follower, PROCESSES_MAX, bare, name_behind};
use super::line::{Lines, decimal, number, seconds, show};
use super::record::Record;
use super::{RecordReader, TraceError};
use std::collections::BTreeMap;
use std::io::BufRead;

/// Reads strace's output.
pub struct StraceReader<R: BufRead> {
    lines: Lines<R>,
    follower: Follower,
    /// By process id: the beginning of a call that was interrupted by another process's line, and when.
    unfinished: BTreeMap<u32, (u64, Vec<u8>)>,
    clock: Clock,
    calls: u64,
}

/// When lines are, from the first call on.
///
/// *The story:* what a program printed before the first call looked like one without a time, and the
/// times of all others were counted from 1970.
#[derive(Default)]
struct Clock {
    now_ns: u64,
    /// The number of the first line, if none has had a time.
    first_line: Option<u64>,
    /// The first time that a line told, and when that was.
    first_told: Option<(u64, u64)>,
}

impl Clock {
    /// A line; without times each takes a microsecond, among others that have one no time.
    fn at(&mut self, told_ns: Option<u64>, line: u64) -> u64 {
        if let Some(told_ns) = told_ns {
            let (first_ns, at_ns) = *self.first_told.get_or_insert((told_ns, self.now_ns));
            self.now_ns = at_ns.saturating_add(told_ns.saturating_sub(first_ns));
        } else if self.first_told.is_none() {
            self.now_ns = (line - *self.first_line.get_or_insert(line)) * 1000;
        }
        self.now_ns
    }
}

/// What stands before a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Prefix {
    pid: u32,
    time_ns: Option<u64>,
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
    let returned = text[equals + 3..].trim_ascii();
    let result = returned.split(|&byte| byte == b' ').next().and_then(|result| number(bare(result)));
    // What follows the number; `-T` puts the time that it took in the same brackets.
    let is_named = returned.iter().find(|byte| !byte.is_ascii_digit()) == Some(&b'<');
    let result_name = if is_named { named(returned) } else { None };
    Some(Call { name, arguments: arguments(inner), result, result_name })
}

/// The name behind a descriptor that was returned, without what `-T` adds.
fn named(returned: &[u8]) -> Option<&[u8]> {
    let took = returned.windows(2).rposition(|pair| pair == b" <").filter(|_| returned.ends_with(b">"));
    let is_time = |from: usize| seconds(returned[from + 2..].strip_suffix(b">").unwrap_or(b"")).is_some();
    let end = took.filter(|&from| is_time(from)).unwrap_or(returned.len());
    name_behind(&returned[..end])
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

/// Does this line look like strace's?
#[must_use]
pub fn looks_like_strace(line: &[u8]) -> bool {
    let of_perf = perf_trace::as_strace(line);
    let (_, rest) = prefix(of_perf.as_deref().unwrap_or(line));
    call(rest).is_some_and(|call| !call.arguments.is_empty() || call.result.is_some())
}

impl<R: BufRead> StraceReader<R> {
    /// Begins.
    pub fn new(input: R) -> StraceReader<R> {
        StraceReader {
            lines: Lines::new(input),
            follower: Follower::default(),
            unfinished: BTreeMap::new(),
            clock: Clock::default(),
            calls: 0,
        }
    }

    /// One line; fills the queue.
    fn line(&mut self, offset: u64, line: &[u8], number: u64) -> Result<(), TraceError> {
        let of_perf = perf_trace::as_strace(line);
        let line = of_perf.as_deref().unwrap_or(line);
        let (prefix, rest) = prefix(line);
        let damaged = |problem| TraceError::damaged(offset, format!("{problem}: {}", show(line)));
        if let Some(begin) = rest.strip_suffix(b"<unfinished ...>") {
            return self.begins(&prefix, begin.trim_ascii_end(), number).map_err(damaged);
        }
        if rest.starts_with(b"+++ exited") || rest.starts_with(b"+++ killed") {
            let time_ns = self.clock.at(prefix.time_ns, number);
            self.follower.ends(At { pid: prefix.pid, time_ns });
            return Ok(());
        }
        let (joined, mut text, mut began_ns) = (&mut Vec::new(), rest, None);
        if let Some(resumed) = rest.strip_prefix(b"<... ")
            && let Some(end) = resumed.windows(8).position(|window| window == b"resumed>")
        {
            let Some((time_ns, begin)) = self.unfinished.remove(&prefix.pid) else { return Ok(()) };
            *joined = [&begin, &resumed[end + 8..]].concat();
            (text, began_ns) = (joined, Some(time_ns));
        }
        let Some(call) = call(text) else { return Ok(()) };
        let time_ns = self.clock.at(prefix.time_ns, number);
        self.calls += 1;
        let at = At { pid: prefix.pid, time_ns: began_ns.unwrap_or(time_ns) };
        self.follower.call(at, &call).map_err(damaged)
    }

    /// A call that another process's line interrupts.
    fn begins(&mut self, prefix: &Prefix, begin: &[u8], number: u64) -> Result<(), &'static str> {
        if self.unfinished.len() >= PROCESSES_MAX {
            return Err("too many unfinished calls");
        }
        let time_ns = self.clock.at(prefix.time_ns, number);
        self.unfinished.insert(prefix.pid, (time_ns, begin.to_vec()));
        let (name, inner) =
            begin.split_at(begin.iter().position(|&byte| byte == b'(').unwrap_or(begin.len()));
        self.follower.call_begins(prefix.pid, name, &arguments(inner.get(1..).unwrap_or(&[])))
    }
}

impl<R: BufRead> RecordReader for StraceReader<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(record) = self.follower.take() {
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
    use super::super::record::{FileOp, FileRecord};
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
                (10328, Read, 0, 3),
                (10328, Close, 0, 0),
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

    /// *The story:* a shell moves what it opened to descriptor 0 and closes the other; the replay closed
    /// the file then, and its reader read by somebody else's opening.
    #[test]
    fn the_last_descriptor_closes() {
        let text = "7 open(\"/a\", O_RDONLY) = 3\n7 dup2(3, 0) = 0\n7 close(3) = 0\n\
                    7 fork() = 8\n8 read(0, \"\", 4) = 4\n8 exit_group(0) = ?\n8 +++ exited with 0 +++\n\
                    7 read(0, \"\", 4) = 4\n7 open(\"/b\", O_RDONLY) = 3\n7 dup2(3, 0) = 0\n\
                    7 +++ killed by SIGKILL +++\n";
        use FileOp::{Close, Open, Read};
        let expected = [
            (0, Open, 0, 0),
            (0, Read, 0, 4),
            (0, Read, 4, 4),
            (1, Open, 0, 0),
            (0, Close, 0, 0),
            (1, Close, 0, 0),
        ];
        assert_eq!(brief(text), expected);
    }

    #[test]
    fn processes_end_and_their_numbers_are_used_again() {
        let mut text = "7 open(\"/a\", O_RDONLY) = 3\n".to_owned();
        for child in 0..70_000 {
            let id = 1000 + child;
            text += &format!("7 vfork() = {id}\n{id} close(3) = 0\n{id} +++ exited with 0 +++\n");
        }
        // This one's end is not told.
        text += "7 fork() = 8\n8 close(3) = 0\n7 fork() = 8\n8 read(3, \"\", 4) = 4\n";
        assert_eq!(read(&text).expect("a trace").0, ["/a"]);
    }

    /// A clock begins with the first call, whatever a program printed before that.
    #[test]
    fn lines_without_a_time_among_others_take_none() {
        let text = "read(9, \"\", 4) = 4\n1795296288.5 read(3, \"\", 4) = 4\nread(9, \"\", 4) = 4\n\
                    1795296289.5 read(3, \"\", 4) = 4\n";
        let times: Vec<u64> = read(text).expect("a trace").1.iter().map(|call| call.time_ns).collect();
        assert_eq!(times, [0, 0, 0, 1_000_000_000]);
        let resumed = "7 1.0 close(9) = 0\n7 1.5 read(3,  <unfinished ...>\n8 1.6 close(9) = 0\n\
                       7 2.0 <... read resumed>\"\", 4) = 4\n";
        assert_eq!(read(resumed).expect("a trace").1[0].time_ns, 500_000_000, "when it began");
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
                    close(3</data/a, b>) = 0\nclose(5</data/a, b>) = 0\n";
        let (names, calls) = read(text).expect("a trace");
        assert_eq!(names, ["/data/a, b"]);
        let brief: Vec<_> = calls.iter().map(|call| (call.op, call.offset, call.bytes)).collect();
        use FileOp::{Close, Map, Open, Read};
        assert_eq!(brief, [(Open, 0, 0), (Read, 0, 8), (Map, 0x1000, 4096), (Close, 0, 0)]);
        assert_eq!(arguments(b"1<<3, {a, 2}, 4</x>").len(), 3);
    }

    fn brief(text: &str) -> Vec<(u32, FileOp, u64, u64)> {
        let (_, calls) = read(text).expect("a trace");
        calls.iter().map(|call| (call.file, call.op, call.offset, call.bytes)).collect()
    }

    /// *The story:* the same file was two, by its name and by the way to it; and a name that came with
    /// a descriptor which was open before was not looked at.
    #[test]
    fn the_name_behind_a_descriptor_is_the_files() {
        let text = "7 openat(AT_FDCWD</w>, \"a\", O_RDONLY) = 3</w/a> <0.000049>\n\
                    7 read(3</w/a>, \"x\"..., 8) = 8 <0.000131>\n\
                    8 read(4</w/a>, \"x\"..., 8) = 8 <0.000131>\n\
                    8 read(0<pipe:[3966628]>, \"x\"..., 8) = 8\n\
                    8 openat(AT_FDCWD, \"b\", O_RDONLY) = 5 <0.000049>\n";
        assert_eq!(read(text).expect("a trace").0, ["/w/a", "b"]);
        use FileOp::{Open, Read};
        assert_eq!(brief(text), [(0, Open, 0, 0), (0, Read, 0, 8), (0, Read, 0, 8), (1, Open, 0, 0)]);
    }

    /// *The story:* what came through a pipe was taken for a file, read from its beginning.
    #[test]
    fn pipes_and_sockets_are_no_files() {
        let text = "pipe2([3, 4], O_CLOEXEC) = 0\nread(3, \"x\", 8) = 8\nwrite(4, \"x\", 8) = 8\n\
                    socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 5\ndup2(5, 6) = 6\nread(6, \"x\", 8) = 8\n\
                    close(5) = 0\nopen(\"/a\", O_RDONLY) = 5\nread(5, \"x\", 8) = 8\n";
        use FileOp::{Open, Read};
        assert_eq!(brief(text), [(0, Open, 0, 0), (0, Read, 0, 8)]);
    }

    #[test]
    fn positions_are_those_of_the_description() {
        let text = "open(\"/a\", O_RDONLY) = 3\ndup(3) = 4\nread(3, \"x\", 8) = 8\nread(4, \"x\", 8) = 8\n\
                    preadv2(4, [{iov_base=\"x\", iov_len=8}], 1, -1, 0) = 8\n\
                    preadv(3, [{iov_base=\"x\", iov_len=8}], 1, 4096) = 8\n\
                    fcntl(3, F_DUPFD_CLOEXEC, 10) = 10\nreadv(10, [{iov_base=\"x\", iov_len=8}], 1) = 8\n\
                    open(\"/a\", O_RDONLY) = 5\nread(5, \"x\", 8) = 8\n";
        let reads: Vec<u64> =
            brief(text).iter().filter(|call| call.1 == FileOp::Read).map(|call| call.2).collect();
        assert_eq!(reads, [0, 8, 16, 4096, 24, 0], "the second opening begins at the start");
    }

    /// *The story:* cp and cat of today copy within the kernel, and none of it was seen.
    #[test]
    fn copies_within_the_kernel_read_and_write() {
        let text = "open(\"/a\", O_RDONLY) = 3\nopen(\"/b\", O_WRONLY) = 4\n\
                    copy_file_range(3, NULL, 4, NULL, 9223372035781033984, 0) = 5000\n\
                    copy_file_range(3, [100] => [200], 4, NULL, 100, 0) = 100\n\
                    sendfile(4, 3, NULL, 65536) = 700\nsendfile(4, 3, [4096] => [4106], 10) = 10\n";
        use FileOp::{Open, Read, Write};
        let expected = [
            (0, Open, 0, 0),
            (1, Open, 0, 0),
            (0, Read, 0, 5000),
            (1, Write, 0, 5000),
            (0, Read, 100, 100),
            (1, Write, 5000, 100),
            (0, Read, 5000, 700),
            (0, Read, 4096, 10),
        ];
        assert_eq!(brief(text), expected);
    }

    #[test]
    fn who_appends_writes_at_the_end() {
        let text = "open(\"/a\", O_RDWR) = 3\npwrite64(3, \"x\", 8, 100) = 8\n\
                    open(\"/a\", O_WRONLY|O_APPEND) = 4\nwrite(4, \"x\", 8) = 8\nwrite(4, \"x\", 8) = 8\n";
        let writes: Vec<u64> =
            brief(text).iter().filter(|call| call.1 == FileOp::Write).map(|call| call.2).collect();
        assert_eq!(writes, [100, 108, 116]);
    }

    /// perf trace leaves out arguments that are 0, and calls a descriptor by the first file it stood for.
    #[test]
    fn perf_trace_is_read_too() {
        let text = "     0.000 ( 0.042 ms): sh/7 openat(dfd: CWD, filename: 0xeb01d0b1, flags: RDONLY) = 4\n\
                    \u{20}    0.110 (         ): sh/7 read(fd: 4</x>, buf: 0x7f, count: 832) ...\n\
                    \u{20}    0.120 ( 0.016 ms): sh/8 read(buf: 0x7f, count: 16)    = 16\n\
                    \u{20}    0.110 ( 0.021 ms): sh/7  ... [continued]: read())          = 832\n\
                    \u{20}    0.181 ( 0.016 ms): sh/7 pread64(fd: 4</x>, buf: 0x7f, count: 9, pos: 64) = 9\n\
                    \u{20}    0.190 ( 0.016 ms): sh/7 read(fd: 4</lib/x>, buf: 0x7ffc, count: 784) = 10\n";
        let (names, calls) = read(text).expect("a trace");
        assert_eq!(names, ["file 1 of the trace, which does not tell names", "descriptor 0 of process 8"]);
        let told: Vec<_> =
            calls.iter().map(|call| (call.thread, call.time_ns, call.offset, call.bytes)).collect();
        assert_eq!(
            told,
            [
                (7, 0, 0, 0),
                (8, 120_000, 0, 16),
                (7, 110_000, 0, 832),
                (7, 181_000, 64, 9),
                (7, 190_000, 832, 10)
            ]
        );
        let line = text.lines().next().expect("a line").as_bytes();
        assert!(looks_like_strace(line));
        let flags = "1.0 ( 0.1 ms): a/7 openat(dfd: CWD, filename: 0x7, flags: WRONLY|APPEND) = 3\n\
                     1.1 ( 0.1 ms): a/7 write(fd: 3, buf: 0x7f, count: 8) = 8\n\
                     1.2 ( 0.1 ms): a/7 clone(clone_flags: VM|FILES, newsp: 0x7f) = 8\n\
                     1.3 ( 0.1 ms): a/8 fcntl(fd: 3, cmd: DUPFD_CLOEXEC, arg: 10) = 10\n\
                     1.4 ( 0.1 ms): a/8 lseek(fd: 3) = 0\n\
                     1.5 ( 0.1 ms): a/7 write(fd: 10, buf: 0x7f, count: 8) = 8\n";
        use FileOp::{Open, Write};
        assert_eq!(brief(flags), [(0, Open, 0, 0), (0, Write, 0, 8), (0, Write, 8, 8)]);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(read("hello\n").expect_err("refused").to_string().contains("no system call"));
        let error = read("read(x, \"\", 4) = 4\n").expect_err("refused").to_string();
        assert_eq!(error, r#"offset 0: an argument is not a number: 'read(x, "", 4) = 4'"#);
        assert!(read("pread64(3, \"\") = 4\n").expect_err("refused").to_string().contains("missing"));
    }
}
