//! Headers, as bytes. Every number is little endian; every header ends with the CRC32C of the bytes
//! before it.

use crate::trace::TraceError;

/// First bytes of a file. The high bit and the line ends catch transfers as text.
pub const MAGIC: [u8; 8] = *b"\x89OVTR\r\n\x1a";
/// The version that is written; those before it are read, too. The second has two more events.
pub const VERSION: u16 = 2;
/// Bytes of the file's header.
pub const HEADER_BYTES: usize = 32;
/// First bytes of a block.
pub const BLOCK_MAGIC: [u8; 4] = *b"OVBK";
/// Bytes of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 48;
/// First bytes of the footer.
pub const FOOTER_MAGIC: [u8; 4] = *b"OVEN";
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 32;
/// Records of a block, at most.
pub const RECORDS_MAX: u32 = 1 << 16;
/// Bytes of a block before compression, at most: 40 bytes a record, and slack for names.
pub const RAW_BYTES_MAX: u32 = 4 << 20;
/// Page size of all page numbers, as a power of two.
pub const PAGE_SHIFT: u32 = 12;

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BlockKind {
    /// Accesses.
    Access = 1,
    /// Events of a pager.
    Pager = 2,
    /// Calls on files.
    File = 3,
    /// Names and notes.
    Name = 4,
    /// Regions.
    Region = 5,
    /// The index.
    Index = 6,
}

impl BlockKind {
    fn from_byte(byte: u8) -> Option<BlockKind> {
        [
            BlockKind::Access,
            BlockKind::Pager,
            BlockKind::File,
            BlockKind::Name,
            BlockKind::Region,
            BlockKind::Index,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == byte)
    }
}

/// How a block's payload is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Codec {
    /// As it is.
    Stored = 0,
    /// One zstd frame.
    Zstd = 1,
}

/// A block's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// What it holds.
    pub kind: BlockKind,
    /// How.
    pub codec: Codec,
    /// Which block of the file, from 0 on.
    pub number: u32,
    /// Records in it.
    pub records: u32,
    /// Bytes of the payload before compression.
    pub raw_bytes: u32,
    /// Bytes of the payload in the file.
    pub stored_bytes: u32,
    /// CRC32C of those.
    pub payload_crc: u32,
    /// Time of its first record (0 where records have none).
    pub first_ns: u64,
    /// Time of its last record.
    pub last_ns: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The file's header.
#[must_use]
pub fn file_header() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
    bytes[12..16].copy_from_slice(&PAGE_SHIFT.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Checks the file's header.
pub fn check_file_header(bytes: &[u8; HEADER_BYTES]) -> Result<(), TraceError> {
    if bytes[0..8] != MAGIC {
        return Err(TraceError::damaged(0, "these are not the first bytes of a trace"));
    }
    let version = u16_at(bytes, 8);
    if version == 0 || version > VERSION {
        return Err(TraceError::Version { version, newest: VERSION });
    }
    if crc32c::crc32c(&bytes[..28]) != u32_at(bytes, 28) {
        return Err(TraceError::damaged(28, "the checksum of the file's header does not match"));
    }
    if u16_at(bytes, 10) as usize != HEADER_BYTES || u32_at(bytes, 12) != PAGE_SHIFT {
        return Err(TraceError::damaged(10, "header size or page size is not what traces have"));
    }
    Ok(())
}

impl BlockHeader {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&BLOCK_MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = self.codec as u8;
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.records.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.raw_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.first_ns.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.last_ns.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..44]);
        bytes[44..48].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// From the bytes at `offset`, checked.
    pub fn from_bytes(bytes: &[u8; BLOCK_HEADER_BYTES], offset: u64) -> Result<BlockHeader, TraceError> {
        if bytes[0..4] != BLOCK_MAGIC {
            return Err(TraceError::damaged(offset, "a block or the footer should begin here"));
        }
        if crc32c::crc32c(&bytes[..44]) != u32_at(bytes, 44) {
            return Err(TraceError::damaged(offset + 44, "the checksum of a block's header does not match"));
        }
        let kind = BlockKind::from_byte(bytes[4]).ok_or_else(|| {
            TraceError::damaged(offset + 4, format!("blocks of kind {} are not known", bytes[4]))
        })?;
        let codec = match bytes[5] {
            0 => Codec::Stored,
            1 => Codec::Zstd,
            other => return Err(TraceError::damaged(offset + 5, format!("codec {other} is not known"))),
        };
        let header = BlockHeader {
            kind,
            codec,
            number: u32_at(bytes, 8),
            records: u32_at(bytes, 12),
            raw_bytes: u32_at(bytes, 16),
            stored_bytes: u32_at(bytes, 20),
            payload_crc: u32_at(bytes, 24),
            first_ns: u64_at(bytes, 28),
            last_ns: u64_at(bytes, 36),
        };
        header.check_sizes(offset)?;
        Ok(header)
    }

    fn check_sizes(&self, offset: u64) -> Result<(), TraceError> {
        // The index alone may be larger: it has an entry for each block.
        let index = self.kind == BlockKind::Index;
        let raw_max = if index { u32::MAX / 4 } else { RAW_BYTES_MAX };
        if self.raw_bytes > raw_max || self.stored_bytes > self.raw_bytes.max(64) {
            return Err(TraceError::damaged(offset + 16, "a block is larger than blocks may be"));
        }
        if !index && self.records > RECORDS_MAX {
            return Err(TraceError::damaged(offset + 12, "a block has more records than blocks may have"));
        }
        if self.codec == Codec::Stored && self.stored_bytes != self.raw_bytes {
            return Err(TraceError::damaged(offset + 20, "a stored block has two sizes"));
        }
        Ok(())
    }
}

/// The footer: where the index is, and how much there is in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footer {
    /// Offset of the index block.
    pub index_offset: u64,
    /// Blocks before it.
    pub blocks: u32,
    /// Records in them.
    pub records: u64,
}

impl Footer {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        bytes[0..4].copy_from_slice(&FOOTER_MAGIC);
        bytes[4..8].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.index_offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.records.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// From the bytes at `offset`, checked.
    pub fn from_bytes(bytes: &[u8; FOOTER_BYTES], offset: u64) -> Result<Footer, TraceError> {
        if bytes[0..4] != FOOTER_MAGIC {
            return Err(TraceError::damaged(offset, "the footer should be here: the file was cut off"));
        }
        if crc32c::crc32c(&bytes[..28]) != u32_at(bytes, 28) {
            return Err(TraceError::damaged(offset + 28, "the checksum of the footer does not match"));
        }
        Ok(Footer { blocks: u32_at(bytes, 4), index_offset: u64_at(bytes, 8), records: u64_at(bytes, 16) })
    }
}

/// One block, as the index knows it: 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// Offset of its header.
    pub offset: u64,
    /// Time of its first record.
    pub first_ns: u64,
    /// Records in it.
    pub records: u32,
    /// What it holds.
    pub kind: BlockKind,
}

/// Bytes of an index entry.
pub const INDEX_ENTRY_BYTES: usize = 24;

impl IndexEntry {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; INDEX_ENTRY_BYTES] {
        let mut bytes = [0; INDEX_ENTRY_BYTES];
        bytes[0..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first_ns.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.records.to_le_bytes());
        bytes[20] = self.kind as u8;
        bytes
    }

    /// From bytes of an index at `offset`.
    pub fn from_bytes(bytes: &[u8; INDEX_ENTRY_BYTES], offset: u64) -> Result<IndexEntry, TraceError> {
        let kind = BlockKind::from_byte(bytes[20])
            .ok_or_else(|| TraceError::damaged(offset, "the index names a kind that is not known"))?;
        Ok(IndexEntry {
            offset: u64_at(bytes, 0),
            first_ns: u64_at(bytes, 8),
            records: u32_at(bytes, 16),
            kind,
        })
    }
}
