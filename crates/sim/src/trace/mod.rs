//! Traces: what programs did to their memory and files, and what a pager did about it.
//!
//! The project's own format ([`own`], drawn in `docs/trace-format.md`) is streamed, compressed,
//! checksummed and seekable; six foreign formats are read and written. Nothing here holds a
//! trace in memory, and nothing panics on foreign bytes: a damaged file gets one [`TraceError`]
//! with the offset at which it stops making sense.

mod calls;
pub mod convert;
pub mod csv;
pub mod error;
pub mod filter;
mod in_view;
mod labels;
pub mod lackey;
mod line;
pub mod numbers;
pub mod open;
pub mod oracle;
pub mod own;
pub mod perf;
mod perf_calls;
pub mod record;
pub mod sightings;
pub mod strace;
pub mod workload;

pub use error::TraceError;
pub use open::{Format, open};
pub use record::{AccessKind, AccessRecord, FileOp, FileRecord, NameRecord, PagerOp, PagerRecord, Record};

use std::io::Read;

/// Sizes that count for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    count: u64,
    bytes: u64,
}

impl Sizes {
    /// One more, if it is known.
    fn add(&mut self, bytes: Option<u64>) {
        self.count += u64::from(bytes.is_some());
        self.bytes = self.bytes.saturating_add(bytes.unwrap_or(0));
    }

    /// Their mean, if there are any.
    #[must_use]
    pub fn mean(self) -> Option<u64> {
        self.bytes.checked_div(self.count)
    }
}

/// Something that gives the records of a trace, one after another.
pub trait RecordReader {
    /// The next record; `None` at the end. After an error the reader is of no more use.
    fn next_record(&mut self) -> Result<Option<Record>, TraceError>;

    /// Of objects or requests that count as one page each, whatever their size: the sizes that were read.
    fn sizes(&self) -> Option<Sizes> {
        None
    }

    /// Does the format keep to it that no record is earlier than one before it?
    fn is_in_order(&self) -> bool {
        false
    }
}

/// Something that takes records.
pub trait RecordWriter {
    /// Takes one. Kinds that the format does not have are left out; gives false for those.
    fn write_record(&mut self, record: &Record) -> Result<bool, TraceError>;

    /// Writes whatever belongs at the end. Without it the file is incomplete.
    fn finish(&mut self) -> Result<(), TraceError>;
}

impl<R: RecordReader + ?Sized> RecordReader for Box<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        (**self).next_record()
    }

    fn sizes(&self) -> Option<Sizes> {
        (**self).sizes()
    }

    fn is_in_order(&self) -> bool {
        (**self).is_in_order()
    }
}

/// Reads until `bytes` is full or the input ends; gives how much there was.
fn read_full(input: &mut impl Read, bytes: &mut [u8], offset: u64) -> Result<usize, TraceError> {
    let mut done = 0;
    while done < bytes.len() {
        match input.read(&mut bytes[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(TraceError::io(offset + done as u64, error)),
        }
    }
    Ok(done)
}
