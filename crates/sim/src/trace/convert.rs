//! From any reader to any writer: copying, thinning, cutting; and what `trace info` counts.

use super::filter::Filter;
use super::record::{AccessKind, NameRecord, PagerOp, Record};
use super::{RecordReader, RecordWriter, TraceError};
use std::collections::HashSet;

/// What is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Records of this time and later.
    pub from_ns: u64,
    /// Records before this time.
    pub until_ns: u64,
    /// Of each kind that has times, leave out so many records first.
    pub skip: u64,
    /// Then take so many.
    pub take: u64,
    /// Only of these threads (all when empty).
    pub threads: Vec<u32>,
    /// Leave out accesses that say nothing new ([`super::filter`]).
    pub thin: bool,
    /// Let times begin at 0.
    pub rebase: bool,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection {
            from_ns: 0,
            until_ns: u64::MAX,
            skip: 0,
            take: u64::MAX,
            threads: Vec::new(),
            thin: false,
            rebase: false,
        }
    }
}

/// What came of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Records read.
    pub read: u64,
    /// Of those, records of the times and threads that were asked for, those to be skipped included.
    pub eligible: u64,
    /// Of those, records that were written.
    pub kept: u64,
    /// Records written, those without a time (names, regions) included.
    pub written: u64,
    /// Records that the output's format does not have.
    pub left_out: u64,
}

/// Time and thread of a record, if it has them.
fn when(record: &Record) -> Option<(u64, u32)> {
    match record {
        Record::Access(access) => Some((access.time_ns, access.thread)),
        Record::Pager(event) => Some((event.time_ns, event.thread)),
        Record::File(call) => Some((call.time_ns, call.thread)),
        Record::Name(_) | Record::Region(_) => None,
    }
}

fn set_time(record: &mut Record, time_ns: u64) {
    match record {
        Record::Access(access) => access.time_ns = time_ns,
        Record::Pager(event) => event.time_ns = time_ns,
        Record::File(call) => call.time_ns = time_ns,
        Record::Name(_) | Record::Region(_) => {}
    }
}

/// Copies what `selection` selects. `progress` hears the number of records read, now and then.
pub fn copy(
    reader: &mut dyn RecordReader,
    writer: &mut dyn RecordWriter,
    selection: &Selection,
    progress: &mut dyn FnMut(u64),
) -> Result<Copied, TraceError> {
    let mut copied = Copied::default();
    let mut filter = Filter::new();
    let mut base_ns = None;
    while let Some(mut record) = reader.next_record()? {
        copied.read += 1;
        if copied.read.is_multiple_of(1 << 20) {
            progress(copied.read);
        }
        let timed = when(&record);
        if let Some((time_ns, thread)) = timed {
            if time_ns >= selection.until_ns {
                break;
            }
            let wanted = time_ns >= selection.from_ns
                && (selection.threads.is_empty() || selection.threads.contains(&thread));
            if !wanted {
                continue;
            }
            copied.eligible += 1;
            if copied.eligible <= selection.skip {
                continue;
            }
            if copied.eligible - selection.skip > selection.take {
                break;
            }
            if selection.thin && matches!(&record, Record::Access(access) if !filter.keeps(access)) {
                continue;
            }
            if selection.rebase {
                let base_ns = *base_ns.get_or_insert(time_ns);
                set_time(&mut record, time_ns.saturating_sub(base_ns));
            }
        }
        if writer.write_record(&record).map_err(TraceError::of_output)? {
            copied.written += 1;
            copied.kept += u64::from(timed.is_some());
        } else {
            copied.left_out += 1;
        }
    }
    writer.finish().map_err(TraceError::of_output)?;
    Ok(copied)
}

/// What is in a trace. Distinct pages are counted exactly, so memory grows with them (not with the length).
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Loads, stores, fetches.
    pub accesses: [u64; 3],
    /// By [`PagerOp`].
    pub pager: [u64; PagerOp::ALL.len()],
    /// Calls on files.
    pub file_calls: u64,
    /// Bytes read from files.
    pub file_bytes_read: u64,
    /// Bytes written to files.
    pub file_bytes_written: u64,
    /// Names of files.
    pub files: u64,
    /// Declared regions.
    pub regions: u64,
    /// Distinct pages.
    pub pages: u64,
    /// Of those, pages that are stored to.
    pub pages_written: u64,
    /// Threads.
    pub threads: u64,
    /// First and last time.
    pub span_ns: Option<(u64, u64)>,
    /// Notes on where the trace comes from.
    pub notes: Vec<String>,
}

impl Summary {
    /// Reads everything.
    pub fn of(reader: &mut dyn RecordReader) -> Result<Summary, TraceError> {
        let mut summary = Summary::default();
        let mut pages = HashSet::new();
        let mut written = HashSet::new();
        let mut threads = HashSet::new();
        while let Some(record) = reader.next_record()? {
            if let Some((time_ns, thread)) = when(&record) {
                let (first, last) = summary.span_ns.unwrap_or((time_ns, time_ns));
                summary.span_ns = Some((first.min(time_ns), last.max(time_ns)));
                threads.insert(thread);
            }
            match record {
                Record::Access(access) => {
                    summary.accesses[access.kind as usize] += 1;
                    pages.insert((access.space, access.vpn));
                    if access.kind == AccessKind::Write {
                        written.insert((access.space, access.vpn));
                    }
                }
                Record::Pager(event) => {
                    summary.pager[event.op as usize] += 1;
                    pages.insert((event.space, event.vpn));
                }
                Record::File(call) => {
                    summary.file_calls += 1;
                    match call.op {
                        super::FileOp::Read => summary.file_bytes_read += call.bytes,
                        super::FileOp::Write => summary.file_bytes_written += call.bytes,
                        _ => {}
                    }
                }
                Record::Name(NameRecord { id: NameRecord::NOTE, text }) => {
                    if summary.notes.len() < 16 {
                        summary.notes.push(text);
                    }
                }
                Record::Name(_) => summary.files += 1,
                Record::Region(_) => summary.regions += 1,
            }
        }
        summary.pages = pages.len() as u64;
        summary.pages_written = written.len() as u64;
        summary.threads = threads.len() as u64;
        Ok(summary)
    }
}
