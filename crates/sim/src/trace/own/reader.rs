//! Reading the own format from beginning to end, one block in memory.

use super::columns::decode;
use super::layout::{
    self, BLOCK_HEADER_BYTES, BlockHeader, BlockKind, Codec, FOOTER_BYTES, Footer, HEADER_BYTES,
};
use crate::trace::record::Record;
use crate::trace::{RecordReader, TraceError, read_full};
use std::io::Read;

/// A trace being read.
pub struct Reader<R: Read> {
    input: R,
    offset: u64,
    records: std::vec::IntoIter<Record>,
    blocks: u32,
    total: u64,
    ended: bool,
    stored: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Checks the header.
    pub fn new(mut input: R) -> Result<Reader<R>, TraceError> {
        let mut header = [0; HEADER_BYTES];
        let got = read_full(&mut input, &mut header, 0)?;
        if got < HEADER_BYTES {
            return Err(TraceError::Truncated { offset: got as u64, within: "the file's header" });
        }
        layout::check_file_header(&header)?;
        Ok(Reader::resume(input, HEADER_BYTES as u64, 0, Vec::new()))
    }

    /// Gives `records`, and goes on at a block's header at `offset`, which is block `number` of the
    /// file.
    pub(super) fn resume(input: R, offset: u64, number: u32, records: Vec<Record>) -> Reader<R> {
        Reader {
            input,
            offset,
            records: records.into_iter(),
            blocks: number,
            total: 0,
            ended: false,
            stored: Vec::new(),
        }
    }

    /// Records whose blocks were intact so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Blocks that were intact so far.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Reads the next block. False at the end of the trace.
    fn next_block(&mut self) -> Result<bool, TraceError> {
        let begin = self.offset;
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        let got = read_full(&mut self.input, &mut bytes, begin)?;
        if got == 0 {
            return Err(TraceError::Truncated { offset: begin, within: "the trace: its index is missing" });
        }
        if got < BLOCK_HEADER_BYTES {
            return Err(TraceError::Truncated { offset: begin + got as u64, within: "a block's header" });
        }
        let header = BlockHeader::from_bytes(&bytes, begin)?;
        self.offset += BLOCK_HEADER_BYTES as u64;
        let raw = self.payload(&header)?;
        if header.number != self.blocks {
            let problem = format!("this is block {}, but {} should come here", header.number, self.blocks);
            return Err(TraceError::damaged(begin + 8, problem));
        }
        if header.kind == BlockKind::Index {
            self.footer(begin, &header)?;
            return Ok(false);
        }
        let mut records = Vec::with_capacity(header.records as usize);
        decode(header.kind, header.records, &raw, |record| records.push(record)).map_err(|problem| {
            TraceError::damaged(begin, format!("in the block that begins here, {problem}"))
        })?;
        self.blocks += 1;
        self.total += u64::from(header.records);
        self.records = records.into_iter();
        Ok(true)
    }

    /// The payload behind a header, checked and unpacked.
    fn payload(&mut self, header: &BlockHeader) -> Result<Vec<u8>, TraceError> {
        let offset = self.offset;
        self.stored.resize(header.stored_bytes as usize, 0);
        let got = read_full(&mut self.input, &mut self.stored, offset)?;
        if got < self.stored.len() {
            return Err(TraceError::Truncated { offset: offset + got as u64, within: "a block" });
        }
        self.offset += got as u64;
        if crc32c::crc32c(&self.stored) != header.payload_crc {
            return Err(TraceError::damaged(
                offset,
                "the checksum of the block that begins here does not match",
            ));
        }
        match header.codec {
            Codec::Stored => Ok(std::mem::take(&mut self.stored)),
            Codec::Zstd => {
                let raw =
                    zstd::bulk::decompress(&self.stored, header.raw_bytes as usize).map_err(|error| {
                        TraceError::damaged(offset, format!("the block cannot be unpacked: {error}"))
                    })?;
                if raw.len() != header.raw_bytes as usize {
                    return Err(TraceError::damaged(
                        offset,
                        "the block unpacks to another size than it says",
                    ));
                }
                Ok(raw)
            }
        }
    }

    /// What comes behind the index: nothing but the footer, and it agrees with what was read.
    fn footer(&mut self, index_offset: u64, header: &BlockHeader) -> Result<(), TraceError> {
        let offset = self.offset;
        let mut bytes = [0; FOOTER_BYTES];
        let got = read_full(&mut self.input, &mut bytes, offset)?;
        if got < FOOTER_BYTES {
            return Err(TraceError::Truncated { offset: offset + got as u64, within: "the footer" });
        }
        let footer = Footer::from_bytes(&bytes, offset)?;
        if footer.index_offset != index_offset
            || footer.blocks != self.blocks
            || header.records != self.blocks
        {
            return Err(TraceError::damaged(offset, "the footer does not agree with the blocks before it"));
        }
        self.offset += FOOTER_BYTES as u64;
        if read_full(&mut self.input, &mut [0], self.offset)? > 0 {
            return Err(TraceError::damaged(self.offset, "there are bytes behind the footer"));
        }
        self.ended = true;
        Ok(())
    }
}

impl<R: Read> RecordReader for Reader<R> {
    #[inline]
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(record) = self.records.next() {
                return Ok(Some(record));
            }
            if self.ended || !self.next_block()? {
                return Ok(None);
            }
        }
    }

    fn is_in_order(&self) -> bool {
        true
    }
}
