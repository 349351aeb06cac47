//! What a trace says: accesses to pages, events of a pager, calls on files, names, regions.

use crate::workload::RegionSpec;

/// How a page was accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Fetch,
}

/// One access to one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessRecord {
    /// Nanoseconds since the beginning; never less than the record before it.
    pub time_ns: u64,
    /// Virtual page number.
    pub vpn: u64,
    /// The thread.
    pub thread: u32,
    /// The address space.
    pub space: u16,
    /// How.
    pub kind: AccessKind,
}

/// What a pager did, or was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PagerOp {
    /// A fault that had to read; the argument is its latency in ns.
    MajorFault,
    /// A fault answered from the swap cache; the argument is its latency in ns.
    SoftFault,
    /// A first touch; the argument is its latency in ns.
    FirstTouch,
    /// A dirty page left RAM (it was written); the argument is its slot.
    EvictDirty,
    /// A clean page left RAM.
    EvictClean,
    /// A touch of an evicted page; the argument is the refault distance in pages.
    Refault,
    /// A page was read ahead.
    ReadAhead,
    /// A read-ahead page was touched for the first time.
    ReadAheadHit,
    /// A read-ahead page left RAM untouched.
    ReadAheadUnused,
    /// Pages are in view of which nothing was told before; the argument is how many, from the page on:
    /// 1 to [`IN_VIEW_MAX`].
    InView,
    /// Pages are no more: unmapped, or discarded; the argument is how many, from the page on.
    Gone,
}

/// Pages that one [`PagerOp::InView`] tells of, at most: each is gone through.
pub const IN_VIEW_MAX: u64 = 4096;

impl PagerOp {
    /// All, in the order of their numbers in a file.
    pub const ALL: [PagerOp; 11] = [
        PagerOp::MajorFault,
        PagerOp::SoftFault,
        PagerOp::FirstTouch,
        PagerOp::EvictDirty,
        PagerOp::EvictClean,
        PagerOp::Refault,
        PagerOp::ReadAhead,
        PagerOp::ReadAheadHit,
        PagerOp::ReadAheadUnused,
        PagerOp::InView,
        PagerOp::Gone,
    ];

    /// The name in text formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PagerOp::MajorFault => "major_fault",
            PagerOp::SoftFault => "soft_fault",
            PagerOp::FirstTouch => "first_touch",
            PagerOp::EvictDirty => "evict_dirty",
            PagerOp::EvictClean => "evict_clean",
            PagerOp::Refault => "refault",
            PagerOp::ReadAhead => "read_ahead",
            PagerOp::ReadAheadHit => "read_ahead_hit",
            PagerOp::ReadAheadUnused => "read_ahead_unused",
            PagerOp::InView => "in_view",
            PagerOp::Gone => "gone",
        }
    }

    /// May it have this argument?
    #[must_use]
    pub fn takes(self, argument: u64) -> bool {
        self != PagerOp::InView || (1..=IN_VIEW_MAX).contains(&argument)
    }
}

/// One event of a pager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagerRecord {
    /// Nanoseconds since the beginning.
    pub time_ns: u64,
    /// Virtual page number.
    pub vpn: u64,
    /// The thread that faulted; 0 where there is none.
    pub thread: u32,
    /// The address space.
    pub space: u16,
    /// What.
    pub op: PagerOp,
    /// See [`PagerOp`]; 0 where it has none.
    pub argument: u64,
}

/// What was done to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FileOp {
    /// Opened.
    Open,
    /// Read `bytes` at `offset`.
    Read,
    /// Wrote `bytes` at `offset`.
    Write,
    /// Mapped `bytes` at `offset`.
    Map,
    /// Closed.
    Close,
}

impl FileOp {
    /// All, in the order of their numbers in a file.
    pub const ALL: [FileOp; 5] = [FileOp::Open, FileOp::Read, FileOp::Write, FileOp::Map, FileOp::Close];

    /// The name in text formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FileOp::Open => "open",
            FileOp::Read => "read",
            FileOp::Write => "write",
            FileOp::Map => "map",
            FileOp::Close => "close",
        }
    }
}

/// One call on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRecord {
    /// Nanoseconds since the beginning.
    pub time_ns: u64,
    /// The thread that called.
    pub thread: u32,
    /// The file, as named by a [`NameRecord`].
    pub file: u32,
    /// What.
    pub op: FileOp,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// A name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameRecord {
    /// A file's number (its name follows), or [`NameRecord::NOTE`].
    pub id: u32,
    /// The name, or a note on where the trace comes from.
    pub text: String,
}

impl NameRecord {
    /// Not a file: a note on the trace as a whole (the command, the tool, the machine).
    pub const NOTE: u32 = u32::MAX;
}

/// Any record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// An access.
    Access(AccessRecord),
    /// An event of a pager.
    Pager(PagerRecord),
    /// A call on a file.
    File(FileRecord),
    /// A name.
    Name(NameRecord),
    /// A range of pages and what backs it.
    Region(RegionSpec),
}
