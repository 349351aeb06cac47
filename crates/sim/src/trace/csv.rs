//! Comma-separated values: what spreadsheets and scripts can make, and what public traces come as.
//!
//! Written as `time_ns,thread,space,page,op`; pager events and file calls have their own ops and
//! use the same columns, with `argument` and `file`, `offset`, `bytes` behind them. Read with a
//! header line that names the columns in any order. Without one only what is in the written order
//! beyond doubt is read: four numbers and the word of an op. What a column means is told by its
//! name alone, as `docs/trace-format.md` has it: a block of a disk is 512 bytes, an object is
//! numbered anew, a time without a unit tells the order and no more. Of notes those are heard that
//! say so.

use super::line::{Lines, number, show};
use super::oracle::OBJECTS_NOTE;
use super::record::{AccessKind, AccessRecord, FileOp, FileRecord, NameRecord, PagerOp, PagerRecord, Record};
use super::{RecordReader, RecordWriter, Sizes, TraceError};
use crate::time::SECOND;
use crate::workload::RegionSpec;
use overspill_mm::types::{PAGE_SHIFT, RegionKind};
use std::collections::VecDeque;
use std::io::{BufRead, Write};

/// The columns, in the order in which they are written.
const COLUMNS: [&str; 9] =
    ["time_ns", "thread", "space", "page", "op", "argument", "file", "offset", "bytes"];

/// The note of a trace whose pages are objects, or blocks that are numbered without gaps of meaning.
pub const NUMBERS_NOTE: &str = "pages are objects by their numbers";
/// The note of a trace whose times have no known unit: they tell the order and no more.
pub const NO_UNIT_NOTE: &str = "times are of no known unit";
/// The note of a trace whose pages are those of a disk, one for each request.
pub const BLOCKS_NOTE: &str = "pages are those of a disk, one a request";
/// Notes that are heard when they are read again.
const HEARD: [&str; 4] = [OBJECTS_NOTE, NUMBERS_NOTE, NO_UNIT_NOTE, BLOCKS_NOTE];

/// A block of a disk (lba) is 512 bytes.
const BLOCK_SHIFT: u32 = 9;
/// Between two accesses whose times have no unit.
const THINK_NS: u64 = 1000;
/// What text files of some systems begin with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const NO_HEADER: &str = "the first line names no columns: put one like time_ns,page,op before it \
     (`overspill help trace` has the names)";
const NO_PAGE: &str = "no column is a page: call one page (of 4096 bytes), address, lba (a block of 512 \
     bytes) or obj_id";
const BLOCK: &str = "a block may have any size: call the column lba (512 bytes) or page (4096 bytes)";
const OPS: &str = "is none of read, write, fetch (nor r, w, get, set)";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    /// So many nanoseconds each.
    Time(u64),
    /// Of no known unit.
    AnyTime,
    Thread,
    Space,
    Page,
    Address,
    Object,
    Lba,
    Block,
    Size,
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
            "time_ns" => Column::Time(1),
            "time_us" => Column::Time(1_000),
            "time_ms" => Column::Time(1_000_000),
            "time_s" => Column::Time(SECOND),
            "time" | "timestamp" => Column::AnyTime,
            "thread" | "tid" | "pid" => Column::Thread,
            "space" => Column::Space,
            "page" | "vpn" => Column::Page,
            "obj_id" | "object" | "object_id" | "key" | "id" => Column::Object,
            "lba" | "lbn" => Column::Lba,
            "block" => Column::Block,
            "address" | "addr" => Column::Address,
            "size" | "obj_size" => Column::Size,
            "op" | "type" | "rw" | "access" | "kind" | "operation" => Column::Op,
            "argument" => Column::Argument,
            "file" => Column::File,
            "offset" => Column::Offset,
            "bytes" => Column::Bytes,
            _ if name.chars().next().is_some_and(char::is_alphabetic) => Column::Other,
            _ => return None,
        })
    }

    fn is_place(self) -> bool {
        matches!(self, Column::Page | Column::Address | Column::Object | Column::Lba | Column::Block)
    }
}

/// Reads CSV.
pub struct CsvReader<R: BufRead> {
    lines: Lines<R>,
    /// With the names that they have in the header.
    columns: Vec<(Column, String)>,
    /// Records that the header stands for.
    notes: VecDeque<&'static str>,
    accesses: u64,
    sizes: Sizes,
}

/// The fields of one line.
#[derive(Default)]
struct Fields<'a> {
    time_ns: Option<u64>,
    thread: u64,
    space: u64,
    page: Option<u64>,
    op: &'a [u8],
    argument: u64,
    file: u64,
    offset: u64,
    bytes: u64,
    size: Option<u64>,
}

impl<R: BufRead> CsvReader<R> {
    /// Begins; the first line decides about the columns.
    pub fn new(input: R) -> CsvReader<R> {
        CsvReader {
            lines: Lines::new(input),
            columns: Vec::new(),
            notes: VecDeque::new(),
            accesses: 0,
            sizes: Sizes::default(),
        }
    }
}

/// Without what text files of some systems begin with.
pub(super) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

fn fields_of(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Is this a header line? Then its columns.
fn header(line: &[u8]) -> Option<Vec<(Column, String)>> {
    let name = |field: &[u8]| String::from_utf8_lossy(field).trim_matches('"').to_owned();
    let columns: Option<Vec<(Column, String)>> =
        fields_of(line).map(|field| Some((Column::of_name(field)?, name(field)))).collect();
    let mut columns = columns.filter(|columns| columns.iter().any(|(column, _)| *column != Column::Other))?;
    // An object's number beside the page is a number.
    if columns.iter().any(|(column, _)| column.is_place() && *column != Column::Object) {
        let objects = columns.iter_mut().filter(|(column, _)| *column == Column::Object);
        objects.for_each(|(column, _)| *column = Column::Other);
    }
    Some(columns)
}

/// Is this a line of CSV, for all that one line tells?
pub(super) fn looks_like_csv(line: &[u8]) -> bool {
    let line = without_mark(line);
    let is_number = |field: &[u8]| number(field).is_some() || scaled(field, 1).is_some();
    let fields: Vec<&[u8]> = fields_of(line).collect();
    let is_table = fields.len() >= 2 && (fields.iter().take(4).all(|field| is_number(field)));
    is_table || is_in_written_order(line) || header(line).is_some()
}

/// Four numbers, which may be left out, and the word of an op.
fn is_in_written_order(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = fields_of(line).take(5).collect();
    let is_number = |field: &&[u8]| field.is_empty() || number(field).is_some();
    let is_word = |field: &[u8]| {
        field.first().is_some_and(u8::is_ascii_alphabetic)
            && (Fields { page: Some(0), argument: 1, op: field, ..Fields::default() }).record().is_ok()
    };
    fields.len() == 5 && fields.iter().take(4).all(is_number) && is_word(fields[4])
}

fn written_order() -> Vec<(Column, String)> {
    let column = |name: &&str| Some((Column::of_name(name.as_bytes())?, (*name).to_owned()));
    COLUMNS.iter().filter_map(column).collect()
}

/// A decimal number with or without a fraction, times `scale`.
fn scaled(bytes: &[u8], scale: u64) -> Option<u64> {
    let dot = bytes.iter().position(|&byte| byte == b'.').unwrap_or(bytes.len());
    let (whole, fraction) = (&bytes[..dot], bytes.get(dot + 1..).unwrap_or_default());
    let is_decimal = |digits: &[u8]| digits.iter().all(u8::is_ascii_digit);
    if !is_decimal(whole) || whole.is_empty() || !is_decimal(fraction) {
        return None;
    }
    let (mut part, mut unit) = (0, scale);
    for &digit in fraction {
        unit /= 10;
        part += u64::from(digit - b'0') * unit;
    }
    number(whole)?.checked_mul(scale)?.checked_add(part)
}

/// An object's number; of a name, one that no other name is likely to have (FNV-1a, 64 bits).
fn object(name: &[u8]) -> u64 {
    number(name).unwrap_or_else(|| {
        name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    })
}

fn parse_line<'a>(line: &'a [u8], columns: &[(Column, String)]) -> Result<Fields<'a>, String> {
    let mut fields = Fields::default();
    let mut values = fields_of(line);
    for (index, (column, name)) in columns.iter().enumerate() {
        let Some(value) = values.next() else {
            // Written lines leave out what they do not need at their end.
            return if index > 3 { Ok(fields) } else { Err("too few columns".to_owned()) };
        };
        let wrong = |why: &str| format!("column {} ({name}): {} {why}", index + 1, show(value));
        let parsed = || number(value).ok_or_else(|| wrong("is no number"));
        let time = |scale| scaled(value, scale).or(number(value)).ok_or_else(|| wrong("is no number"));
        match column {
            Column::Op => fields.op = value,
            Column::Other | Column::Block => {}
            _ if value.is_empty() => {}
            Column::Time(scale) => fields.time_ns = Some(time(*scale)?),
            Column::AnyTime => drop(time(1)?),
            Column::Thread => fields.thread = parsed()?,
            Column::Space => fields.space = parsed()?,
            Column::Page => fields.page = Some(parsed()?),
            Column::Address => fields.page = Some(parsed()? >> PAGE_SHIFT),
            Column::Lba => fields.page = Some(parsed()? >> (PAGE_SHIFT - BLOCK_SHIFT)),
            Column::Object => fields.page = Some(object(value)),
            Column::Size => fields.size = number(value),
            Column::Argument => fields.argument = parsed()?,
            Column::File => fields.file = parsed()?,
            Column::Offset => fields.offset = parsed()?,
            Column::Bytes => fields.bytes = parsed()?,
        }
    }
    match values.next() {
        Some(_) => Err(format!("more columns than the {} that are named", columns.len())),
        None => Ok(fields),
    }
}

impl Fields<'_> {
    /// `None`: of a line that says nothing about pages.
    fn record(&self) -> Result<Option<Record>, String> {
        const LARGE: &str = "a number is too large for its column";
        let (time_ns, thread) = (self.time_ns.unwrap_or(0), u32::try_from(self.thread).map_err(|_| LARGE)?);
        let space = u16::try_from(self.space).map_err(|_| LARGE)?;
        let op = String::from_utf8_lossy(self.op).trim_matches('"').to_ascii_lowercase();
        let kind = match op.as_str() {
            // Numbers are SCSI's, as traces of disks have them: READ and WRITE of 6 to 16 bytes.
            "" | "read" | "r" | "load" | "l" | "get" | "gets" | "0" | "08" | "28" | "88" | "a8" => {
                Some(AccessKind::Read)
            }
            "write" | "w" | "store" | "s" | "set" | "add" | "replace" | "cas" | "append" | "prepend"
            | "incr" | "decr" | "put" | "1" | "0a" | "2a" | "8a" | "aa" => Some(AccessKind::Write),
            "fetch" | "i" => Some(AccessKind::Fetch),
            "delete" => return Ok(None),
            _ => None,
        };
        if let Some(kind) = kind {
            let vpn = self.page.ok_or("an access has no page")?;
            return Ok(Some(Record::Access(AccessRecord { time_ns, vpn, thread, space, kind })));
        }
        if let Some(op) =
            op.strip_prefix("file_").and_then(|op| FileOp::ALL.into_iter().find(|file| file.name() == op))
        {
            let file = u32::try_from(self.file).map_err(|_| LARGE)?;
            let (offset, bytes) = (self.offset, self.bytes);
            return Ok(Some(Record::File(FileRecord { time_ns, thread, file, op, offset, bytes })));
        }
        let is_region = op == "region" || op == "region_shared";
        let event = PagerOp::ALL.into_iter().find(|event| event.name() == op);
        if event.is_none() && !is_region {
            return Err(format!("the op {} {OPS}", show(self.op)));
        }
        let vpn = self.page.ok_or("an event has no page")?;
        let argument = self.argument;
        Ok(Some(match event {
            Some(op) if op.takes(argument) => {
                Record::Pager(PagerRecord { time_ns, vpn, thread, space, op, argument })
            }
            Some(_) => return Err("an event tells of more pages than it may, or of none".to_owned()),
            None => {
                let kind = if op == "region" { RegionKind::Anon } else { RegionKind::Shared };
                let end =
                    vpn.checked_add(argument).filter(|&end| end > vpn).ok_or("a region has no pages")?;
                Record::Region(RegionSpec { space, start: vpn, end, kind })
            }
        }))
    }
}

impl<R: BufRead> CsvReader<R> {
    /// Takes the first line for what it is; false: it is a record.
    fn begin(&mut self, columns: Option<Vec<(Column, String)>>) -> Result<bool, &'static str> {
        let Some(columns) = columns else {
            self.columns = written_order();
            return Ok(false);
        };
        let has = |column| columns.iter().any(|(is, _)| *is == column);
        if has(Column::Block) {
            return Err(BLOCK);
        }
        if !columns.iter().any(|(column, _)| column.is_place()) {
            return Err(NO_PAGE);
        }
        let said =
            [(Column::Object, NUMBERS_NOTE), (Column::Lba, BLOCKS_NOTE), (Column::AnyTime, NO_UNIT_NOTE)];
        let has_unit = columns.iter().any(|(column, _)| matches!(column, Column::Time(_)));
        let is_said = |column| has(column) && !(has_unit && column == Column::AnyTime);
        self.notes.extend(said.into_iter().filter(|(column, _)| is_said(*column)).map(|(_, note)| note));
        self.columns = columns;
        Ok(true)
    }
}

impl<R: BufRead> RecordReader for CsvReader<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(text) = self.notes.pop_front() {
                return Ok(Some(Record::Name(NameRecord { id: NameRecord::NOTE, text: text.to_owned() })));
            }
            let is_first = self.lines.count == 0;
            let Some((offset, line)) = self.lines.next_line()? else { return Ok(None) };
            let line = if is_first { without_mark(line) } else { line };
            if let Some(note) = line.strip_prefix(b"# ") {
                self.notes.extend(HEARD.into_iter().find(|heard| heard.as_bytes() == note));
            }
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let line = line.to_vec();
            let damaged = |number: u64, problem: &str| {
                TraceError::damaged(offset, format!("line {number}: {problem}: {}", show(&line)))
            };
            if self.columns.is_empty() {
                let columns = header(&line);
                if columns.is_none() && !is_in_written_order(&line) {
                    return Err(damaged(self.lines.count, NO_HEADER));
                }
                if self.begin(columns).map_err(|problem| damaged(self.lines.count, problem))? {
                    continue;
                }
            }
            let fields = parse_line(&line, &self.columns);
            let record = fields.and_then(|fields| Ok((fields.record()?, fields.time_ns, fields.size)));
            let (record, time_ns, size) = record.map_err(|problem| damaged(self.lines.count, &problem))?;
            let Some(mut record) = record else { continue };
            if let Record::Access(access) = &mut record {
                self.accesses += 1;
                if time_ns.is_none() && self.columns.iter().any(|(column, _)| *column == Column::AnyTime) {
                    access.time_ns = self.accesses * THINK_NS;
                }
                self.sizes.add(size);
            }
            return Ok(Some(record));
        }
    }

    fn sizes(&self) -> Option<Sizes> {
        let is_sized = |column| matches!(column, Column::Object | Column::Lba);
        self.columns.iter().any(|&(column, _)| is_sized(column)).then_some(self.sizes)
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

    fn access(time_ns: u64, vpn: u64, thread: u32, kind: AccessKind) -> Record {
        Record::Access(AccessRecord { time_ns, vpn, thread, space: 0, kind })
    }

    #[test]
    fn headers_in_any_order() {
        use AccessKind::{Read, Write};
        let records = read("address,pid,type,colour\n0x5000,3,W,red\n\n# a note\n4096,4,r,\n").expect("csv");
        assert_eq!(records, [access(0, 5, 3, Write), access(0, 1, 4, Read)]);
        assert_eq!(read("5,0,0,7,read\n").expect("csv"), [access(5, 7, 0, Read)]);
        let times = read("time_us,page\n1,7\n2.5,8\n").expect("csv");
        assert_eq!(times, [access(1_000, 7, 0, Read), access(2_500, 8, 0, Read)]);
        // A file as some systems write them.
        let marked = read("\u{feff}# made by hand\r\n\"page\",op\r\n7,R\r\n").expect("csv");
        assert_eq!(marked, [access(0, 7, 0, Read)]);
    }

    fn note(text: &str) -> Record {
        Record::Name(NameRecord { id: NameRecord::NOTE, text: text.to_owned() })
    }

    /// *The story:* of four public traces as CSV all were misread: seconds were nanoseconds, a block of 512
    /// bytes was a page, and hashes were no addresses.
    #[test]
    fn public_traces_are_what_their_columns_say() {
        use AccessKind::{Read, Write};
        let disk = read("version,time,op,size,lbn\n1,0.5,2a,512,16\n1,0,28,512,25\n").expect("csv");
        let expected =
            [note(BLOCKS_NOTE), note(NO_UNIT_NOTE), access(1_000, 2, 0, Write), access(2_000, 3, 0, Read)];
        assert_eq!(disk, expected);
        let text = "timestamp,key,operation\n1,k37,get\n1,k37,delete\n2,0xf7f7f7f7f7f7f7f7,set\n";
        let cache = read(text).expect("csv");
        let hash = object(b"k37");
        let expected = [
            note(NUMBERS_NOTE),
            note(NO_UNIT_NOTE),
            access(1_000, hash, 0, Read),
            access(2_000, 0xf7f7_f7f7_f7f7_f7f7, 0, Write),
        ];
        assert_eq!(cache, expected);
        let mut reader = CsvReader::new(&b"obj_id,size\n1,100\n2,200\n1,\n"[..]);
        while reader.next_record().expect("csv").is_some() {}
        assert_eq!(reader.sizes().and_then(Sizes::mean), Some(150));
        let mut reader = CsvReader::new(&b"page,size\n1,100\n"[..]);
        while reader.next_record().expect("csv").is_some() {}
        assert_eq!(reader.sizes(), None, "a page has the size of a page");
    }

    /// *The story:* `1,37,4096,7`, libCacheSim's own order, was thread 37 touching page 7.
    #[test]
    fn what_has_no_header_is_refused_unless_it_was_written_here() {
        for text in ["1,37,4096,7\n", "1,2\n", "1,37,4096,7,1\n", "0.5,1,2,3,read\n"] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.starts_with("offset 0: line 1: the first line names no columns"), "{error}");
        }
        for text in ["5,1,,,file_read,,0,0,4096\n", ",,0,9000,region_shared,7\n", "5,0,0,7,first_touch,9\n"] {
            assert_eq!(read(text).expect(text).len(), 1);
        }
    }

    #[test]
    fn errors_say_where_and_what() {
        for (text, error) in [
            ("page,op\n1,read\nx,read\n", "offset 15: line 3: column 1 (page): 'x' is no number: 'x,read'"),
            (
                "page,op\n1,eat\n",
                "offset 8: line 2: the op 'eat' is none of read, write, fetch (nor r, w, get, set): '1,eat'",
            ),
            ("page,op\n1,read,5\n", "offset 8: line 2: more columns than the 2 that are named: '1,read,5'"),
            ("page,op,space,thread\n1,2\n", "offset 21: line 2: too few columns: '1,2'"),
            ("time_ns,page\n1e3,1\n", "offset 13: line 2: column 1 (time_ns): '1e3' is no number: '1e3,1'"),
            (
                "page,thread\n1,5000000000\n",
                "offset 12: line 2: a number is too large for its column: '1,5000000000'",
            ),
            (
                "page,op,argument\n1,in_view,9999\n",
                "offset 17: line 2: an event tells of more pages than it may, or of none: '1,in_view,9999'",
            ),
        ] {
            assert_eq!(read(text).expect_err("refused").to_string(), error);
        }
        for (text, part) in
            [("time,offset,size,op\n", "no column is a page"), ("time,block\n", "call the column lba")]
        {
            let error = read(text).expect_err(text).to_string();
            assert!(error.starts_with("offset 0: line 1: ") && error.contains(part), "{error}");
        }
    }
}
