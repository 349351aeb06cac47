//! Jumping in a trace: the index at its end, and reading on from any block.

use super::layout::{
    BLOCK_HEADER_BYTES, BlockHeader, BlockKind, Codec, FOOTER_BYTES, Footer, HEADER_BYTES, INDEX_ENTRY_BYTES,
    IndexEntry, check_file_header,
};
use super::reader::Reader;
use crate::trace::{Record, RecordReader, TraceError, read_full};
use std::io::{Read, Seek, SeekFrom};

/// A trace whose index has been read.
pub struct Seeker<R: Read + Seek> {
    input: R,
    entries: Vec<IndexEntry>,
    footer: Footer,
}

impl<R: Read + Seek> Seeker<R> {
    /// Reads header, footer and index.
    pub fn new(mut input: R) -> Result<Seeker<R>, TraceError> {
        let mut header = [0; HEADER_BYTES];
        fill(&mut input, 0, &mut header, "the file's header")?;
        check_file_header(&header)?;
        let end = input.seek(SeekFrom::End(0)).map_err(|error| TraceError::io(0, error))?;
        let footer_at = end
            .checked_sub(FOOTER_BYTES as u64)
            .filter(|&at| at >= HEADER_BYTES as u64)
            .ok_or(TraceError::Truncated { offset: end, within: "the trace: its index is missing" })?;
        let mut bytes = [0; FOOTER_BYTES];
        fill(&mut input, footer_at, &mut bytes, "the footer")?;
        let footer = Footer::from_bytes(&bytes, footer_at)?;
        let entries = read_index(&mut input, &footer, footer_at)?;
        Ok(Seeker { input, entries, footer })
    }

    /// The blocks.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Records in all.
    pub fn records(&self) -> u64 {
        self.footer.records
    }

    /// A reader that begins with the last block whose first record is before `time_ns` (or the first
    /// block), after the names, notes and regions of all blocks before that: they hold for what
    /// follows, too.
    pub fn from_time(mut self, time_ns: u64) -> Result<Reader<R>, TraceError> {
        let number = self.entries.partition_point(|entry| entry.first_ns < time_ns).saturating_sub(1);
        let lasting = self.lasting(number)?;
        let offset = self.entries.get(number).map_or(self.footer.index_offset, |entry| entry.offset);
        seek(&mut self.input, offset)?;
        Ok(Reader::resume(self.input, offset, number as u32, lasting))
    }

    /// The records without a time in the first `count` blocks.
    fn lasting(&mut self, count: usize) -> Result<Vec<Record>, TraceError> {
        let mut records = Vec::new();
        for (number, entry) in self.entries[..count].iter().enumerate() {
            if matches!(entry.kind, BlockKind::Name | BlockKind::Region) {
                seek(&mut self.input, entry.offset)?;
                let mut block = Reader::resume(&mut self.input, entry.offset, number as u32, Vec::new());
                for _ in 0..entry.records {
                    records.extend(block.next_record()?);
                }
            }
        }
        Ok(records)
    }
}

fn seek(input: &mut impl Seek, offset: u64) -> Result<(), TraceError> {
    input.seek(SeekFrom::Start(offset)).map(drop).map_err(|error| TraceError::io(offset, error))
}

fn fill(
    input: &mut (impl Read + Seek),
    offset: u64,
    bytes: &mut [u8],
    within: &'static str,
) -> Result<(), TraceError> {
    seek(input, offset)?;
    let got = read_full(input, bytes, offset)?;
    if got < bytes.len() {
        Err(TraceError::Truncated { offset: offset + got as u64, within })
    } else {
        Ok(())
    }
}

fn read_index(
    input: &mut (impl Read + Seek),
    footer: &Footer,
    footer_at: u64,
) -> Result<Vec<IndexEntry>, TraceError> {
    let at = footer.index_offset;
    let payload_at = at.saturating_add(BLOCK_HEADER_BYTES as u64);
    if payload_at > footer_at {
        return Err(TraceError::damaged(footer_at + 8, "the footer names an index behind itself"));
    }
    let mut bytes = [0; BLOCK_HEADER_BYTES];
    fill(input, at, &mut bytes, "the index")?;
    let header = BlockHeader::from_bytes(&bytes, at)?;
    let size = header.stored_bytes as u64;
    let raw_bytes = footer.blocks as usize * INDEX_ENTRY_BYTES;
    let fits = header.kind == BlockKind::Index
        && payload_at + size == footer_at
        && header.records == footer.blocks
        && header.raw_bytes as usize == raw_bytes;
    if !fits {
        return Err(TraceError::damaged(at, "the index does not agree with the footer"));
    }
    let mut stored = vec![0; size as usize];
    fill(input, payload_at, &mut stored, "the index")?;
    if crc32c::crc32c(&stored) != header.payload_crc {
        return Err(TraceError::damaged(at, "the checksum of the index does not match"));
    }
    let raw = match header.codec {
        Codec::Stored => stored,
        Codec::Zstd => zstd::bulk::decompress(&stored, raw_bytes)
            .map_err(|error| TraceError::damaged(at, format!("the index cannot be unpacked: {error}")))?,
    };
    let entries =
        raw.as_chunks::<INDEX_ENTRY_BYTES>().0.iter().map(|entry| IndexEntry::from_bytes(entry, at));
    entries.collect()
}
