//! The project's trace format: blocks of columns, each block compressed and checksummed, an index at the end.
//!
//! `docs/trace-format.md` draws it byte by byte; [`layout`] is the same as code. A writer needs
//! nothing but an output to append to, a reader nothing but an input to go through; only [`Seeker`]
//! wants to jump. What grows with the length of a trace is the index: 24 bytes for every 65,536
//! records.

mod columns;
pub mod layout;
mod reader;
mod seek;
mod writer;

pub use reader::Reader;
pub use seek::Seeker;
pub use writer::Writer;

/// CRC32C, as headers and payloads have it.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests;
