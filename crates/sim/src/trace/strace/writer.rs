//! Writes calls on files as strace would print them, each with an offset of its own.
//!
//! All threads share their descriptors, as the threads of one process do: that of a file is its
//! number and three. A file that is used before the trace opens it is opened first. Accesses to
//! memory are left out.

use crate::trace::line::{LineWriter, show_seconds};
use crate::trace::record::{FileOp, FileRecord, Record};
use crate::trace::{RecordWriter, TraceError};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// Standard input, output and error.
const STANDARD_DESCRIPTORS: u64 = 3;

/// Writes what [`super::StraceReader`] reads.
pub struct StraceWriter<W: Write> {
    lines: LineWriter<W>,
    names: BTreeMap<u32, String>,
    open: BTreeSet<u32>,
    /// The first thread, and those that were cloned from it.
    first: Option<u32>,
    cloned: BTreeSet<u32>,
}

impl<W: Write> StraceWriter<W> {
    /// Begins.
    pub fn new(out: W) -> StraceWriter<W> {
        StraceWriter {
            lines: LineWriter::new(out),
            names: BTreeMap::new(),
            open: BTreeSet::new(),
            first: None,
            cloned: BTreeSet::new(),
        }
    }

    fn line(&mut self, thread: u32, time_ns: u64, call: &str) -> Result<(), TraceError> {
        self.lines.write(&format!("{thread} {} {call}", show_seconds(time_ns)))
    }

    /// Lets a thread share the first one's descriptors.
    fn introduce(&mut self, thread: u32, time_ns: u64) -> Result<(), TraceError> {
        let first = *self.first.get_or_insert(thread);
        if thread == first || !self.cloned.insert(thread) {
            return Ok(());
        }
        if thread == 0 {
            let what = "a thread number 0 after others";
            return Err(TraceError::Inexpressible { format: "strace", what });
        }
        self.line(first, time_ns, &format!("clone(child_stack=NULL, flags=CLONE_VM|CLONE_FILES) = {thread}"))
    }

    fn open(&mut self, call: &FileRecord) -> Result<(), TraceError> {
        let unnamed = || format!("file {}", call.file);
        let path = self.names.get(&call.file).map_or_else(unnamed, |name| quotable(name));
        let fd = descriptor(call.file);
        self.open.insert(call.file);
        self.line(call.thread, call.time_ns, &format!("openat(AT_FDCWD, \"{path}\", O_RDWR) = {fd}"))
    }
}

impl<W: Write> RecordWriter for StraceWriter<W> {
    fn write_record(&mut self, record: &Record) -> Result<bool, TraceError> {
        let call = match record {
            Record::Name(name) => {
                self.names.insert(name.id, name.text.clone());
                return Ok(true);
            }
            Record::File(call) => call,
            Record::Access(_) | Record::Pager(_) | Record::Region(_) => return Ok(false),
        };
        self.introduce(call.thread, call.time_ns)?;
        if call.op == FileOp::Open || !self.open.contains(&call.file) {
            self.open(call)?;
        }
        let (fd, bytes, offset) = (descriptor(call.file), call.bytes, call.offset);
        let text = match call.op {
            FileOp::Read => format!("pread64({fd}, \"\"..., {bytes}, {offset}) = {bytes}"),
            FileOp::Write => format!("pwrite64({fd}, \"\"..., {bytes}, {offset}) = {bytes}"),
            FileOp::Map => format!("mmap(NULL, {bytes}, PROT_READ, MAP_PRIVATE, {fd}, {offset}) = 0x1000"),
            FileOp::Open => return Ok(true),
            FileOp::Close => {
                self.open.remove(&call.file);
                format!("close({fd}) = 0")
            }
        };
        self.line(call.thread, call.time_ns, &text).map(|()| true)
    }

    fn finish(&mut self) -> Result<(), TraceError> {
        self.lines.finish()
    }
}

fn descriptor(file: u32) -> u64 {
    u64::from(file) + STANDARD_DESCRIPTORS
}

/// A name as it stands between quotes. Names that strace printed have their escapes already.
fn quotable(name: &str) -> String {
    let (mut text, mut escaped) = (String::with_capacity(name.len()), false);
    for character in name.chars() {
        match character {
            '\n' => text.push_str("\\n"),
            '"' if !escaped => text.push_str("\\\""),
            other => text.push(other),
        }
        escaped = character == '\\' && !escaped;
    }
    if escaped {
        text.push('\\');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::StraceReader;
    use super::*;
    use crate::trace::record::NameRecord;
    use crate::trace::{AccessKind, AccessRecord, RecordReader};

    fn written(records: &[Record]) -> (Vec<u8>, Vec<bool>) {
        let mut bytes = Vec::new();
        let mut writer = StraceWriter::new(&mut bytes);
        let taken = records.iter().map(|record| writer.write_record(record).expect("no error")).collect();
        writer.finish().expect("no error");
        (bytes, taken)
    }

    fn read(text: &[u8]) -> Vec<Record> {
        let mut reader = StraceReader::new(text);
        std::iter::from_fn(|| reader.next_record().expect("a trace")).collect()
    }

    fn call(time_ns: u64, thread: u32, file: u32, op: FileOp, offset: u64, bytes: u64) -> Record {
        Record::File(FileRecord { time_ns, thread, file, op, offset, bytes })
    }

    #[test]
    fn written_calls_come_back() {
        let name = |id, text: &str| Record::Name(NameRecord { id, text: text.to_owned() });
        let records = [
            name(0, "/var/lib/a \\\"b\\\", c"),
            call(0, 7, 0, FileOp::Open, 0, 0),
            call(1_500, 7, 0, FileOp::Read, 4096, 512),
            name(1, "/tmp/x"),
            call(2_000, 9, 1, FileOp::Open, 0, 0),
            call(2_000_000_001, 7, 1, FileOp::Write, 1 << 40, 1 << 20),
            call(2_000_000_002, 9, 0, FileOp::Map, 8192, 65536),
            call(3_000_000_000, 9, 0, FileOp::Close, 0, 0),
        ];
        let (bytes, taken) = written(&records);
        assert!(taken.iter().all(|taken| *taken));
        assert_eq!(read(&bytes), records);
    }

    #[test]
    fn a_file_that_was_open_is_opened_and_memory_is_left_out() {
        let access = AccessRecord { time_ns: 0, vpn: 1, thread: 1, space: 0, kind: AccessKind::Read };
        let (bytes, taken) = written(&[Record::Access(access), call(5, 1, 4, FileOp::Read, 0, 10)]);
        assert_eq!(taken, [false, true]);
        let back = read(&bytes);
        assert_eq!(back[1..], [call(0, 1, 0, FileOp::Open, 0, 0), call(0, 1, 0, FileOp::Read, 0, 10)]);
        assert!(matches!(&back[0], Record::Name(name) if name.text == "file 4"));
    }

    #[test]
    fn what_a_name_holds_ends_no_string() {
        for (name, quoted) in [("a\"b", "a\\\"b"), ("a\\\"b", "a\\\"b"), ("a\nb", "a\\nb"), ("a\\", "a\\\\")]
        {
            assert_eq!(quotable(name), quoted);
        }
    }
}
