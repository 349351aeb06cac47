//! `perf script` lines of page faults, from `perf record -e page-faults -c 1 -d` (or major-faults,
//! minor-faults, or the `exceptions:page_fault_user` tracepoint); and of file calls, from
//! `perf record -e 'syscalls:sys_enter_read,syscalls:sys_exit_read,...'` (`perf_calls`).
//!
//! A line is `COMM PID[/TID] [CPU]? TIME: PERIOD? EVENT: ADDRESS ...`, where COMM may hold spaces;
//! the tracepoint says `address=0x... error_code=0x...` (bit 1 of the code: a store). Only the
//! faulting pages are in it, not the accesses: each becomes one access, a load unless the line says
//! otherwise. Lines of other events are passed over.

use super::line::{LineWriter, Lines, decimal, hex, number, seconds, show, show_seconds, words};
use super::perf_calls::{Moment, PerfCalls, moment};
use super::record::{AccessKind, AccessRecord, Record};
use super::{RecordReader, RecordWriter, TraceError};
use overspill_mm::types::PAGE_SHIFT;
use std::io::{BufRead, Write};

/// Reads `perf script`'s output.
pub struct PerfReader<R: BufRead> {
    lines: Lines<R>,
    first_ns: Option<u64>,
    calls: PerfCalls,
    /// Faults and calls.
    events: u64,
    /// Call chains follow an indented sample line by line until an empty one.
    in_chain: bool,
}

/// One fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerfFault {
    /// As the line has it.
    pub time_ns: u64,
    /// Thread id (process id when there is no other).
    pub thread: u32,
    /// The address.
    pub address: u64,
    /// A store, as far as the line says.
    pub write: bool,
}

/// Said of a line whose only address is an instruction's: no program faults on the kernel's half of
/// the address space.
const INSTRUCTION: &str =
    "this is an instruction's address, not the fault's (perf script needs -F comm,pid,tid,time,event,addr)";
/// The first address of the kernel's half.
const KERNEL: u64 = 1 << 63;

/// A line, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sample<'a> {
    time_ns: u64,
    thread: u32,
    event: &'a [u8],
    /// What stands behind the event.
    details: &'a [u8],
}

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told<'a> {
    Fault(PerfFault),
    Call { thread: u32, time_ns: u64, moment: Moment<'a>, details: &'a [u8] },
    Other,
}

/// Takes a line apart.
fn parse_line(line: &[u8]) -> Result<Told<'_>, &'static str> {
    let sample = sample(line)?;
    let Sample { thread, time_ns, details, .. } = sample;
    if let Some(moment) = moment(sample.event) {
        return Ok(Told::Call { thread, time_ns, moment, details });
    }
    let is_fault = sample.event.windows(5).any(|part| part == b"fault");
    // The page cache's own faults have no addresses.
    if !is_fault || sample.event.starts_with(b"filemap:") {
        return Ok(Told::Other);
    }
    fault(&sample).map(Told::Fault)
}

/// Takes off what all lines begin with.
fn sample(line: &[u8]) -> Result<Sample<'_>, &'static str> {
    let words: Vec<&[u8]> = words(line).take(64).collect();
    let time_at = words
        .iter()
        .position(|word| word.strip_suffix(b":").and_then(seconds).is_some())
        .ok_or("there is no time in this line")?;
    let time_ns = words[time_at].strip_suffix(b":").and_then(seconds).ok_or("the time is too large")?;
    let before = &words[..time_at];
    let ids = match before.last() {
        Some(word) if word.starts_with(b"[") => before.len().checked_sub(2).map(|at| before[at]),
        other => other.copied(),
    };
    let ids = ids.ok_or("there is no process id before the time")?;
    let thread = ids.rsplit(|&byte| byte == b'/').next().unwrap_or(ids);
    let thread =
        decimal(thread).and_then(|id| u32::try_from(id).ok()).ok_or("the process id is not a number")?;
    let mut after = &words[time_at + 1..];
    if after.first().is_some_and(|word| decimal(word).is_some()) {
        after = &after[1..];
    }
    let word = after.first().ok_or("there is no event behind the time")?;
    let event = word.strip_suffix(b":").ok_or("there is no event behind the time")?;
    // The word is a part of the line.
    let end = word.as_ptr().addr() - line.as_ptr().addr() + word.len();
    Ok(Sample { time_ns, thread, event, details: &line[end..] })
}

fn fault(sample: &Sample<'_>) -> Result<PerfFault, &'static str> {
    let details: Vec<&[u8]> = words(sample.details).take(64).collect();
    let field = |name: &[u8]| details.iter().find_map(|word| word.strip_prefix(name)).and_then(number);
    let plain = details.first().and_then(|word| hex(word));
    let address = field(b"address=").or(plain).ok_or("the fault has no address (perf record needs -d)")?;
    if address >= KERNEL {
        return Err(INSTRUCTION);
    }
    let write = field(b"error_code=").is_some_and(|code| code & 2 != 0);
    Ok(PerfFault { time_ns: sample.time_ns, thread: sample.thread, address, write })
}

/// Is this the line of a page fault or a system call?
#[must_use]
pub fn looks_like_perf(line: &[u8]) -> bool {
    matches!(parse_line(line), Ok(Told::Fault(_) | Told::Call { .. }) | Err(INSTRUCTION))
}

impl<R: BufRead> PerfReader<R> {
    /// Begins.
    pub fn new(input: R) -> PerfReader<R> {
        PerfReader {
            lines: Lines::new(input),
            first_ns: None,
            calls: PerfCalls::default(),
            events: 0,
            in_chain: false,
        }
    }
}

impl<R: BufRead> RecordReader for PerfReader<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(record) = self.calls.take() {
                return Ok(Some(record));
            }
            let Some((offset, line)) = self.lines.next_line()? else {
                if self.events == 0 {
                    const NOTHING: &str =
                        "there is neither a page fault nor a system call in this perf script output";
                    return Err(TraceError::damaged(0, NOTHING));
                }
                return Ok(None);
            };
            if line.iter().all(u8::is_ascii_whitespace) {
                self.in_chain = false;
                continue;
            }
            if line.starts_with(b"#") {
                continue;
            }
            match parse_line(line) {
                Ok(Told::Call { thread, time_ns, moment, details }) => {
                    let first_ns = *self.first_ns.get_or_insert(time_ns);
                    self.events += 1;
                    self.in_chain = true;
                    let told = self.calls.event(thread, time_ns.saturating_sub(first_ns), moment, details);
                    told.map_err(|problem| {
                        TraceError::damaged(offset, format!("{problem}: {}", show(line)))
                    })?;
                }
                Ok(Told::Fault(fault)) => {
                    let first_ns = *self.first_ns.get_or_insert(fault.time_ns);
                    self.events += 1;
                    self.in_chain = true;
                    return Ok(Some(Record::Access(AccessRecord {
                        time_ns: fault.time_ns.saturating_sub(first_ns),
                        vpn: fault.address >> PAGE_SHIFT,
                        thread: fault.thread,
                        space: 0,
                        kind: if fault.write { AccessKind::Write } else { AccessKind::Read },
                    })));
                }
                Ok(Told::Other) => self.in_chain = true,
                // A frame of the call chain of the sample above.
                Err(_) if self.in_chain && line[0].is_ascii_whitespace() => {}
                Err(problem) => {
                    return Err(TraceError::damaged(offset, format!("{problem}: {}", show(line))));
                }
            }
        }
    }
}

/// Writes each access as a fault, as the tracepoint prints it. Spaces are lost, and that something
/// was a fetch.
pub struct PerfWriter<W: Write> {
    lines: LineWriter<W>,
}

impl<W: Write> PerfWriter<W> {
    /// Begins.
    pub fn new(out: W) -> PerfWriter<W> {
        PerfWriter { lines: LineWriter::new(out) }
    }
}

impl<W: Write> RecordWriter for PerfWriter<W> {
    fn write_record(&mut self, record: &Record) -> Result<bool, TraceError> {
        /// The fault came from user mode; it was a store.
        const USER: u32 = 4;
        const STORE: u32 = 2;
        let Record::Access(access) = record else { return Ok(false) };
        if access.vpn >= KERNEL >> PAGE_SHIFT {
            let what = "a page in the kernel's half of the address space";
            return Err(TraceError::Inexpressible { format: "perf", what });
        }
        let (time, thread, address) = (show_seconds(access.time_ns), access.thread, access.vpn << PAGE_SHIFT);
        let code = if access.kind == AccessKind::Write { USER | STORE } else { USER };
        let line = format!(
            "program {thread} {time}: exceptions:page_fault_user: address={address:#x} ip=0x0 error_code={code:#x}"
        );
        self.lines.write(&line).map(|()| true)
    }

    fn finish(&mut self) -> Result<(), TraceError> {
        self.lines.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ways_perf_prints_a_fault() {
        let fault =
            |time_ns, thread, address, write| Ok(Told::Fault(PerfFault { time_ns, thread, address, write }));
        for (line, expected) in [
            (
                "              ls 10307  5740.199401:          1 page-faults:      7f766f61bb70 _start+0x0 (/usr/lib/ld)",
                fault(5_740_199_401_000, 10307, 0x7f76_6f61_bb70, false),
            ),
            (
                "  Web Content 10307/10309  5740.199401: page-faults:     55d7cbd135c0 ffffffff8175336a",
                fault(5_740_199_401_000, 10309, 0x55d7_cbd1_35c0, false),
            ),
            (
                "sort 77 [001]  1.000000001: exceptions:page_fault_user: address=0x7f00 ip=0x1 error_code=0x6",
                fault(1_000_000_001, 77, 0x7f00, true),
            ),
            ("sort 77  1.000000001:  cycles:  7f00", Ok(Told::Other)),
            ("sort 77 1.000000001: filemap:mm_filemap_fault: dev=254:0 ino=4d46d ofs=4096", Ok(Told::Other)),
        ] {
            assert_eq!(parse_line(line.as_bytes()), expected, "{line}");
        }
        for line in [
            "",
            "ls",
            "1.5:",
            "ls 1 2.000001:",
            "ls x 2.000001: 1 page-faults: 7f",
            "ls 1 2.000001: page-faults: zz",
        ] {
            assert!(parse_line(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn written_faults_come_back() {
        let access = |time_ns, thread, vpn, kind| {
            Record::Access(AccessRecord { time_ns, vpn, thread, space: 0, kind })
        };
        let records = [
            access(0, 7, 0, AccessKind::Read),
            access(1_000_000_001, 9, 0x7f76_6f61, AccessKind::Write),
            access(1_000_000_002, 0, (1 << 51) - 1, AccessKind::Read),
        ];
        let mut bytes = Vec::new();
        let mut writer = PerfWriter::new(&mut bytes);
        assert!(records.iter().all(|record| writer.write_record(record).expect("no error")));
        assert!(writer.write_record(&access(0, 1, 1 << 51, AccessKind::Read)).is_err());
        writer.finish().expect("no error");
        let mut reader = PerfReader::new(&bytes[..]);
        let back: Vec<Record> = std::iter::from_fn(|| reader.next_record().expect("a trace")).collect();
        assert_eq!(back, records);
    }

    /// What perf prints when it is not asked for addresses was taken for a trace of the program's code.
    #[test]
    fn an_instruction_pointer_is_no_fault_address() {
        let line =
            b"python3 14272 39244.558042: 1 page-faults: ffffffff8175336a elf_load+0x28a ([kernel.kallsyms])";
        assert_eq!(parse_line(line), Err(INSTRUCTION));
        assert!(looks_like_perf(line), "so that it is this that is said");
    }

    /// Lines of perf 6.1, with fewer spaces.
    #[test]
    fn calls_on_files() {
        let text = "\
            cat 7 48507.825400: syscalls:sys_exit_read: 0x10\n\
            cat 7 48507.825485: syscalls:sys_enter_openat: dfd: 0xffffff9c, filename: 0x7f, flags: 0x0\n\
            cat 7 48507.825540: syscalls:sys_exit_openat: 0x3\n\
            cat 7 48507.825551: syscalls:sys_enter_read: fd: 0x00000003, buf: 0x7f4e, count: 0x00020000\n\
            cat 7 48507.825559: filemap:mm_filemap_get_pages: dev=254:0 ino=9ae454 ofs=0-131071\n\
            cat 8 48507.825560: syscalls:sys_enter_pread64: fd: 0x5, buf: 0x7f, count: 0x200, pos: 0x1000\n\
            cat 7 48507.825638: syscalls:sys_exit_read: 0x20000\n\
            cat 8 48507.825640: syscalls:sys_exit_pread64: 0x200\n\
            cat 7 48507.825721: syscalls:sys_enter_read: fd: 0x00000003, buf: 0x7f4e, count: 0x00020000\n\
            cat 7 48507.825746: syscalls:sys_exit_read: 0xfffffffffffffffb\n\
            cat 7 48507.825834: syscalls:sys_enter_close: fd: 0x00000003\n";
        let mut reader = PerfReader::new(text.as_bytes());
        let mut seen = Vec::new();
        while let Some(record) = reader.next_record().expect("a trace") {
            match record {
                Record::Name(name) => seen.push(name.text),
                Record::File(call) => {
                    seen.push(format!("{} {} {}+{}", call.thread, call.op.name(), call.offset, call.bytes));
                }
                other => panic!("{other:?}"),
            }
        }
        let names = ["file 1 of the trace, which does not tell names", "descriptor 5 of process 8"];
        assert_eq!(seen, [names[0], "7 open 0+0", "7 read 0+131072", names[1], "8 read 4096+512"]);
    }

    /// *The story:* the child of vfork runs before its parent's call returns, and had no descriptors.
    #[test]
    fn a_child_that_runs_before_its_parent_has_its_descriptors() {
        let mut text = String::new();
        for event in [
            "7 1.1: syscalls:sys_enter_openat: dfd: 0xffffff9c, filename: 0x7f, flags: 0x0",
            "7 1.2: syscalls:sys_exit_openat: 0x3",
            "7 1.3: syscalls:sys_enter_vfork: ",
            "8 1.4: syscalls:sys_enter_read: fd: 0x3, buf: 0x7f, count: 0x10",
            "8 1.5: syscalls:sys_exit_read: 0x10",
            "8 1.6: syscalls:sys_enter_exit_group: error_code: 0x0",
            "7 1.7: syscalls:sys_exit_vfork: 0x8",
        ] {
            text += &format!("sh {event}\n");
        }
        let mut reader = PerfReader::new(text.as_bytes());
        let mut names = 0;
        while let Some(record) = reader.next_record().expect("a trace") {
            names += usize::from(matches!(record, Record::Name(_)));
        }
        assert_eq!(names, 1, "the file is its parent's");
    }

    #[test]
    fn chains_are_passed_over_and_nonsense_is_not() {
        let text = "# comment\nls 1  2.000001:  1 page-faults:  1000\n\t7f01 main+0x1 (ls)\n\n\
                    ls 1  2.000002:  1 page-faults:  3000 f (g)\n";
        let mut reader = PerfReader::new(text.as_bytes());
        let mut pages = Vec::new();
        while let Some(Record::Access(access)) = reader.next_record().expect("a trace") {
            pages.push((access.time_ns, access.vpn));
        }
        assert_eq!(pages, [(0, 1), (1000, 3)]);
        let mut reader = PerfReader::new(&b"hello world\n"[..]);
        assert_eq!(
            reader.next_record().expect_err("refused").to_string(),
            "offset 0: there is no time in this line: 'hello world'"
        );
    }
}
