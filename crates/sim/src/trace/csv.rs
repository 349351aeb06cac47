//! Comma-separated values: what spreadsheets and scripts can make.
//!
//! Written as `time_ns,thread,space,page,op`; pager events and file calls have their own ops and
//! use the same columns, with `argument` and `file`, `offset`, `bytes` behind them. Read with a
//! header line that names the columns in any order (also `tid`, `address`, `type`, ...), or without
//! one in the written order. A page may be missing if there is an address. Of notes only the one is
//! heard that pages are objects.

use super::line::{Lines, number, show};
use super::oracle::OBJECTS_NOTE;
use super::record::{AccessKind, AccessRecord, FileOp, FileRecord, NameRecord, PagerOp, PagerRecord, Record};
use super::{RecordReader, RecordWriter, TraceError};
use crate::workload::RegionSpec;
use overspill_mm::types::{PAGE_SHIFT, RegionKind};
use std::io::{BufRead, Write};

/// The columns, in the order in which they are written.
const COLUMNS: [&str; 9] =
    ["time_ns", "thread", "space", "page", "op", "argument", "file", "offset", "bytes"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Time,
    Thread,
    Space,
    Page,
    Address,
    Op,
    Argument,
    File,
    Offset,
    Bytes,
    Other,
}

impl Column {
    fn of_name(name: &[u8]) -> Option<Column> {
        let name = String::from_utf8_lossy(name).trim().trim_matches('"').to_ascii_lowercase();
        Some(match name.as_str() {
            "time_ns" | "time" | "timestamp" => Column::Time,
            "thread" | "tid" | "pid" => Column::Thread,
            "space" => Column::Space,
            "page" | "vpn" | "key" | "obj_id" | "block" | "lba" | "lbn" => Column::Page,
            "address" | "addr" => Column::Address,
            "op" | "type" | "rw" | "access" | "kind" => Column::Op,
            "argument" => Column::Argument,
            "file" => Column::File,
            "offset" => Column::Offset,
            "bytes" => Column::Bytes,
            _ if name.chars().next().is_some_and(char::is_alphabetic) => Column::Other,
            _ => return None,
        })
    }
}

/// Reads CSV.
pub struct CsvReader<R: BufRead> {
    lines: Lines<R>,
    columns: Vec<Column>,
}

/// The fields of one line.
#[derive(Default)]
struct Fields<'a> {
    time_ns: u64,
    thread: u64,
    space: u64,
    page: Option<u64>,
    op: &'a [u8],
    argument: u64,
    file: u64,
    offset: u64,
    bytes: u64,
}

impl<R: BufRead> CsvReader<R> {
    /// Begins; the first line decides about the columns.
    pub fn new(input: R) -> CsvReader<R> {
        CsvReader { lines: Lines::new(input), columns: Vec::new() }
    }
}

/// Is this a header line? Then its columns.
fn header(line: &[u8]) -> Option<Vec<Column>> {
    let columns: Option<Vec<Column>> = line.split(|&byte| byte == b',').map(Column::of_name).collect();
    columns.filter(|columns| columns.iter().any(|column| matches!(column, Column::Page | Column::Address)))
}

/// Is this a header line?
#[must_use]
pub fn is_header(line: &[u8]) -> bool {
    header(line).is_some()
}

fn written_order() -> Vec<Column> {
    COLUMNS.iter().filter_map(|name| Column::of_name(name.as_bytes())).collect()
}

fn parse_line<'a>(line: &'a [u8], columns: &[Column]) -> Result<Fields<'a>, &'static str> {
    let mut fields = Fields::default();
    let mut values = line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    for (index, column) in columns.iter().enumerate() {
        let Some(value) = values.next() else {
            // Written lines leave out what they do not need at their end.
            return if index > 3 { Ok(fields) } else { Err("a line has too few columns") };
        };
        let parsed = || number(value).ok_or("a field is not a number");
        match column {
            Column::Op => fields.op = value,
            Column::Other => {}
            _ if value.is_empty() => {}
            Column::Time => fields.time_ns = parsed()?,
            Column::Thread => fields.thread = parsed()?,
            Column::Space => fields.space = parsed()?,
            Column::Page => fields.page = Some(parsed()?),
            Column::Address => fields.page = Some(parsed()? >> PAGE_SHIFT),
            Column::Argument => fields.argument = parsed()?,
            Column::File => fields.file = parsed()?,
            Column::Offset => fields.offset = parsed()?,
            Column::Bytes => fields.bytes = parsed()?,
        }
    }
    if values.next().is_some() { Err("a line has more columns than the header") } else { Ok(fields) }
}

impl Fields<'_> {
    fn record(&self) -> Result<Record, &'static str> {
        const LARGE: &str = "a number is too large for its column";
        let thread = u32::try_from(self.thread).map_err(|_| LARGE)?;
        let space = u16::try_from(self.space).map_err(|_| LARGE)?;
        let op = String::from_utf8_lossy(self.op).to_ascii_lowercase();
        let kind = match op.as_str() {
            // Numbers are SCSI's, as traces of disks have them: READ and WRITE of 6 to 16 bytes.
            "" | "read" | "r" | "load" | "l" | "0" | "08" | "28" | "88" | "a8" => Some(AccessKind::Read),
            "write" | "w" | "store" | "s" | "1" | "0a" | "2a" | "8a" | "aa" => Some(AccessKind::Write),
            "fetch" | "i" => Some(AccessKind::Fetch),
            _ => None,
        };
        if let Some(kind) = kind {
            let vpn = self.page.ok_or("an access has no page")?;
            return Ok(Record::Access(AccessRecord { time_ns: self.time_ns, vpn, thread, space, kind }));
        }
        if let Some(op) =
            op.strip_prefix("file_").and_then(|op| FileOp::ALL.into_iter().find(|file| file.name() == op))
        {
            let file = u32::try_from(self.file).map_err(|_| LARGE)?;
            let (offset, bytes) = (self.offset, self.bytes);
            return Ok(Record::File(FileRecord { time_ns: self.time_ns, thread, file, op, offset, bytes }));
        }
        let vpn = self.page.ok_or("an event has no page")?;
        if op == "region" || op == "region_shared" {
            let kind = if op == "region" { RegionKind::Anon } else { RegionKind::Shared };
            let end =
                vpn.checked_add(self.argument).filter(|&end| end > vpn).ok_or("a region has no pages")?;
            return Ok(Record::Region(RegionSpec { space, start: vpn, end, kind }));
        }
        let op = PagerOp::ALL.into_iter().find(|event| event.name() == op).ok_or("an op is not known")?;
        let (time_ns, argument) = (self.time_ns, self.argument);
        Ok(Record::Pager(PagerRecord { time_ns, vpn, thread, space, op, argument }))
    }
}

impl<R: BufRead> RecordReader for CsvReader<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            let Some((offset, line)) = self.lines.next_line()? else { return Ok(None) };
            if line.strip_prefix(b"# ") == Some(OBJECTS_NOTE.as_bytes()) {
                let text = OBJECTS_NOTE.to_owned();
                return Ok(Some(Record::Name(NameRecord { id: NameRecord::NOTE, text })));
            }
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if self.columns.is_empty() {
                if let Some(columns) = header(line) {
                    self.columns = columns;
                    continue;
                }
                self.columns = written_order();
            }
            let record = parse_line(line, &self.columns).and_then(|fields| fields.record());
            return record
                .map(Some)
                .map_err(|problem| TraceError::damaged(offset, format!("{problem}: {}", show(line))));
        }
    }
}

/// Writes CSV.
pub struct CsvWriter<W: Write> {
    out: W,
    offset: u64,
    begun: bool,
}

impl<W: Write> CsvWriter<W> {
    /// Begins.
    pub fn new(out: W) -> CsvWriter<W> {
        CsvWriter { out, offset: 0, begun: false }
    }

    fn line(&mut self, line: &str) -> Result<(), TraceError> {
        self.out.write_all(line.as_bytes()).map_err(|error| TraceError::io(self.offset, error))?;
        self.offset += line.len() as u64;
        Ok(())
    }

    fn begin(&mut self) -> Result<(), TraceError> {
        if !std::mem::replace(&mut self.begun, true) {
            self.line(&format!("{}\n", COLUMNS.join(",")))?;
        }
        Ok(())
    }
}

impl<W: Write> RecordWriter for CsvWriter<W> {
    fn write_record(&mut self, record: &Record) -> Result<bool, TraceError> {
        self.begin()?;
        let line = match record {
            Record::Access(access) => {
                let op = match access.kind {
                    AccessKind::Read => "read",
                    AccessKind::Write => "write",
                    AccessKind::Fetch => "fetch",
                };
                format!("{},{},{},{},{op}\n", access.time_ns, access.thread, access.space, access.vpn)
            }
            Record::Pager(event) => {
                let PagerRecord { time_ns, thread, space, vpn, op, argument } = *event;
                format!("{time_ns},{thread},{space},{vpn},{},{argument}\n", op.name())
            }
            Record::File(call) => {
                let FileRecord { time_ns, thread, file, op, offset, bytes } = *call;
                format!("{time_ns},{thread},,,file_{},,{file},{offset},{bytes}\n", op.name())
            }
            Record::Region(region) => {
                let op = if region.kind == RegionKind::Anon { "region" } else { "region_shared" };
                format!(",,{},{},{op},{}\n", region.space, region.start, region.end - region.start)
            }
            Record::Name(NameRecord { id, text }) => {
                let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                if *id == NameRecord::NOTE { format!("# {text}\n") } else { format!("# file {id}: {text}\n") }
            }
        };
        self.line(&line)?;
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), TraceError> {
        self.begin()?;
        self.out.flush().map_err(|error| TraceError::io(self.offset, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Record>, TraceError> {
        let mut reader = CsvReader::new(text.as_bytes());
        let mut list = Vec::new();
        while let Some(record) = reader.next_record()? {
            list.push(record);
        }
        Ok(list)
    }

    #[test]
    fn headers_in_any_order() {
        let records = read("address,pid,type,colour\n0x5000,3,W,red\n\n# a note\n4096,4,r,\n").expect("csv");
        let access =
            |vpn, thread, kind| Record::Access(AccessRecord { time_ns: 0, vpn, thread, space: 0, kind });
        assert_eq!(records, [access(5, 3, AccessKind::Write), access(1, 4, AccessKind::Read)]);
        assert_eq!(read("5,0,0,7\n").expect("csv").len(), 1);
        let disk = read("version,time,op,size,lbn\n1,0,2a,512,7\n1,0,28,512,9\n").expect("csv");
        assert_eq!(disk, [access(7, 0, AccessKind::Write), access(9, 0, AccessKind::Read)]);
    }

    #[test]
    fn errors_say_where_and_what() {
        for (text, error) in [
            ("page,op\n1,read\nx,read\n", "offset 15: a field is not a number: 'x,read'"),
            ("page,op\n1,eat\n", "offset 8: an op is not known: '1,eat'"),
            ("page,op\n1,read,5\n", "offset 8: a line has more columns than the header: '1,read,5'"),
            ("1,2\n", "offset 0: a line has too few columns: '1,2'"),
            (
                "page,thread\n1,5000000000\n",
                "offset 12: a number is too large for its column: '1,5000000000'",
            ),
        ] {
            assert_eq!(read(text).expect_err("refused").to_string(), error);
        }
    }
}
