//! One error for all formats: what is wrong, and where.

use thiserror::Error;

/// Where page accesses come from.
const ACCESSES_WANTED: &str = "a simulation wants what a program did to its memory (overspill record, \
     overspill run --trace, lackey, perf script), or calls on files alone (strace, perf trace)";

/// Bytes that a call reads or writes at most (MAX_RW_COUNT).
pub const CALL_MAX: u64 = 0x7fff_f000;

/// `, only 5 calls on files`.
fn only(file_calls: u64) -> String {
    match file_calls {
        0 => String::new(),
        1 => ", only 1 call on files".to_owned(),
        _ => format!(", only {file_calls} calls on files"),
    }
}

/// A trace that cannot be read or written.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The bytes make no sense from here on.
    #[error("offset {offset}: {problem}")]
    Damaged {
        /// Byte offset in the (uncompressed) input.
        offset: u64,
        /// What is wrong.
        problem: String,
    },
    /// The input ends too early.
    #[error("offset {offset}: the file ends here, in the middle of {within}")]
    Truncated {
        /// Byte offset of the end.
        offset: u64,
        /// What is incomplete.
        within: &'static str,
    },
    /// Nothing to simulate.
    #[error("there are no page accesses in it{}: {ACCESSES_WANTED}", only(*file_calls))]
    NoAccesses {
        /// Calls on files that are in it.
        file_calls: u64,
    },
    /// Nothing to replay.
    #[error("none of the calls in it reads or writes a file on a device: strace -f -y records such calls")]
    NoTransfers,
    /// No file is so long.
    #[error("a call at byte {offset} of a file lies beyond 2^52 bytes")]
    FileTooLong {
        /// Where the call begins.
        offset: u64,
    },
    /// No call of the kernel's.
    #[error("a call moves {bytes} bytes, and the kernel no more than {} at a time", CALL_MAX)]
    CallTooLarge {
        /// Bytes that it is said to have moved.
        bytes: u64,
    },
    /// No device is so large.
    #[error("the files in it have more than 2^60 bytes together")]
    FilesTooLong,
    /// No address of 48 bits.
    #[error("page {page:#x} lies beyond 48-bit addresses")]
    Beyond {
        /// The page's number.
        page: u64,
    },
    /// A pipe, a terminal, a device: it cannot be read again from its beginning, and may never end.
    #[error("it is no regular file")]
    NotRegular,
    /// Nothing in it.
    #[error("the file is empty")]
    Empty,
    /// Compressed in a way that is not unpacked here.
    #[error("it is compressed by gzip: unpack it first (gunzip; zstd is unpacked here)")]
    Gzip,
    /// Not one of the known formats.
    #[error("offset 0: not a trace in any known format ({known})")]
    Unknown {
        /// The formats' names.
        known: &'static str,
    },
    /// A newer version of the own format.
    #[error("offset 8: trace format version {version} is not known here (newest: {newest})")]
    Version {
        /// What the file says.
        version: u16,
        /// What this program knows.
        newest: u16,
    },
    /// The format cannot express this.
    #[error("{format} cannot hold {what}")]
    Inexpressible {
        /// The format's name.
        format: &'static str,
        /// What it lacks.
        what: &'static str,
    },
    /// The file cannot be opened or made.
    #[error("{error}")]
    Open {
        /// Why not.
        error: std::io::Error,
    },
    /// The operating system would not take what is written.
    #[error("the output, offset {offset}: {error}")]
    Output {
        /// Where.
        offset: u64,
        /// What it said.
        error: std::io::Error,
    },
    /// The operating system said no.
    #[error("offset {offset}: {error}")]
    Io {
        /// Where.
        offset: u64,
        /// What it said.
        error: std::io::Error,
    },
}

impl TraceError {
    pub(crate) fn damaged(offset: u64, problem: impl Into<String>) -> TraceError {
        TraceError::Damaged { offset, problem: problem.into() }
    }

    /// The same for who reads one trace and writes another.
    pub(super) fn of_output(self) -> TraceError {
        match self {
            TraceError::Io { offset, error } => TraceError::Output { offset, error },
            other => other,
        }
    }

    /// The trace could not be read or written at `offset`.
    #[must_use]
    pub fn io(offset: u64, error: std::io::Error) -> TraceError {
        TraceError::Io { offset, error }
    }
}
