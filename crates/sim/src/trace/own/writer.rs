//! Writing the own format: appends to any output, holds one block at a time.

use super::columns::Columns;
use super::layout::{
    self, BLOCK_HEADER_BYTES, BlockHeader, BlockKind, Codec, FOOTER_BYTES, Footer, HEADER_BYTES, IndexEntry,
    RAW_BYTES_MAX, RECORDS_MAX,
};
use crate::trace::record::Record;
use crate::trace::{RecordWriter, TraceError};
use std::io::Write;

/// Compression level: fast, since columns of differences are small to begin with.
const LEVEL: i32 = 3;
/// A block is ended when its columns have come to this.
const RAW_BYTES_SOFT: usize = (RAW_BYTES_MAX / 2) as usize;
/// The longest name that is kept; longer ones are cut.
const NAME_BYTES_MAX: usize = 4096;

/// A trace being written. Call [`RecordWriter::finish`] at the end: without it there is no index,
/// and readers say that the file was cut off.
pub struct Writer<W: Write> {
    out: W,
    offset: u64,
    kind: BlockKind,
    columns: Columns,
    records: u32,
    first_ns: u64,
    last_ns: u64,
    index: Vec<IndexEntry>,
    total: u64,
    raw: Vec<u8>,
    finished: bool,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    pub fn new(out: W) -> Result<Writer<W>, TraceError> {
        let mut writer = Writer {
            out,
            offset: 0,
            kind: BlockKind::Access,
            columns: Columns::default(),
            records: 0,
            first_ns: 0,
            last_ns: 0,
            index: Vec::new(),
            total: 0,
            raw: Vec::new(),
            finished: false,
        };
        writer.append(&layout::file_header())?;
        assert_eq!(writer.offset, HEADER_BYTES as u64, "the header is as long as it says");
        Ok(writer)
    }

    /// The output, after [`RecordWriter::finish`].
    pub fn into_inner(self) -> W {
        assert!(self.finished, "a trace without its end is a damaged one");
        self.out
    }

    /// Records so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Ends the block, so that what was written so far can be read, should nothing follow.
    pub fn save(&mut self) -> Result<(), TraceError> {
        self.end_block()?;
        self.out.flush().map_err(|error| TraceError::io(self.offset, error))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.out.write_all(bytes).map_err(|error| TraceError::io(self.offset, error))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Takes one record. A time before the one before it becomes that one.
    pub fn push(&mut self, mut record: Record) -> Result<(), TraceError> {
        assert!(!self.finished, "nothing comes after the end");
        let kind = kind_of(&record);
        if kind != self.kind || self.records == RECORDS_MAX || self.columns.size() >= RAW_BYTES_SOFT {
            self.end_block()?;
            self.kind = kind;
        }
        if let Some(time_ns) = time_of(&mut record) {
            *time_ns = (*time_ns).max(self.last_ns);
            self.last_ns = *time_ns;
        }
        if let Record::Name(name) = &mut record {
            let mut end = name.text.len().min(NAME_BYTES_MAX);
            while !name.text.is_char_boundary(end) {
                end -= 1;
            }
            name.text.truncate(end);
        }
        if self.records == 0 {
            self.first_ns = self.last_ns;
        }
        self.columns.push(&record);
        self.records += 1;
        self.total += 1;
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), TraceError> {
        if self.records == 0 {
            return Ok(());
        }
        self.raw.clear();
        self.columns.take(&mut self.raw);
        let entry = IndexEntry {
            offset: self.offset,
            first_ns: self.first_ns,
            records: self.records,
            kind: self.kind,
        };
        let raw = std::mem::take(&mut self.raw);
        self.write_block(self.kind, self.records, &raw, (self.first_ns, self.last_ns))?;
        self.raw = raw;
        self.index.push(entry);
        self.records = 0;
        Ok(())
    }

    fn write_block(
        &mut self,
        kind: BlockKind,
        records: u32,
        raw: &[u8],
        (first_ns, last_ns): (u64, u64),
    ) -> Result<(), TraceError> {
        let packed = zstd::bulk::compress(raw, LEVEL).map_err(|error| TraceError::io(self.offset, error))?;
        let (codec, stored) =
            if packed.len() < raw.len() { (Codec::Zstd, packed.as_slice()) } else { (Codec::Stored, raw) };
        let size = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a block is far smaller than 4 GiB");
        let header = BlockHeader {
            kind,
            codec,
            number: u32::try_from(self.index.len()).expect("fewer than 2^32 blocks"),
            records,
            raw_bytes: size(raw),
            stored_bytes: size(stored),
            payload_crc: crc32c::crc32c(stored),
            first_ns,
            last_ns,
        };
        let header = header.to_bytes();
        assert_eq!(header.len(), BLOCK_HEADER_BYTES);
        self.append(&header)?;
        self.append(stored)
    }
}

impl<W: Write> RecordWriter for Writer<W> {
    fn write_record(&mut self, record: &Record) -> Result<bool, TraceError> {
        self.push(record.clone())?;
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), TraceError> {
        assert!(!self.finished, "a trace ends once");
        self.end_block()?;
        let index: Vec<u8> = self.index.iter().flat_map(IndexEntry::to_bytes).collect();
        let footer =
            Footer { index_offset: self.offset, blocks: self.index.len() as u32, records: self.total };
        self.write_block(BlockKind::Index, footer.blocks, &index, (0, 0))?;
        let footer = footer.to_bytes();
        assert_eq!(footer.len(), FOOTER_BYTES);
        self.append(&footer)?;
        self.out.flush().map_err(|error| TraceError::io(self.offset, error))?;
        self.finished = true;
        Ok(())
    }
}

fn kind_of(record: &Record) -> BlockKind {
    match record {
        Record::Access(_) => BlockKind::Access,
        Record::Pager(_) => BlockKind::Pager,
        Record::File(_) => BlockKind::File,
        Record::Name(_) => BlockKind::Name,
        Record::Region(_) => BlockKind::Region,
    }
}

fn time_of(record: &mut Record) -> Option<&mut u64> {
    match record {
        Record::Access(access) => Some(&mut access.time_ns),
        Record::Pager(event) => Some(&mut event.time_ns),
        Record::File(call) => Some(&mut call.time_ns),
        Record::Name(_) | Record::Region(_) => None,
    }
}
