//! From any reader to any writer: copying, thinning, cutting; and what `trace info` counts.

use super::filter::Filter;
use super::oracle::OBJECTS_NOTE;
use super::record::{AccessKind, NameRecord, PagerOp, Record};
use super::{Format, RecordReader, RecordWriter, TraceError};
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

/// As far as there are numbers: a line may say anything.
fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
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

/// Before all others: what a trace in another format must say of one of `format` that it was made from.
pub fn write_origin(format: Format, writer: &mut dyn RecordWriter) -> Result<(), TraceError> {
    if format == Format::Oracle {
        let note = NameRecord { id: NameRecord::NOTE, text: OBJECTS_NOTE.to_owned() };
        writer.write_record(&Record::Name(note)).map_err(TraceError::of_output)?;
    }
    Ok(())
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
            if time_ns >= selection.until_ns && reader.is_in_order() {
                break;
            }
            let wanted = (selection.from_ns..selection.until_ns).contains(&time_ns)
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
    /// The mean size of what counts as a page each, whatever its size.
    pub size_mean: Option<u64>,
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
                    let count = match event.op {
                        PagerOp::InView => event.argument,
                        PagerOp::Gone => 0,
                        _ => 1,
                    };
                    pages.extend((event.vpn..event.vpn.saturating_add(count)).map(|vpn| (event.space, vpn)));
                }
                Record::File(call) => {
                    summary.file_calls += 1;
                    match call.op {
                        super::FileOp::Read => add(&mut summary.file_bytes_read, call.bytes),
                        super::FileOp::Write => add(&mut summary.file_bytes_written, call.bytes),
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
        summary.size_mean = reader.sizes().and_then(super::Sizes::mean);
        Ok(summary)
    }
}

#[cfg(test)]
mod tests {
    use super::super::csv::{CsvReader, CsvWriter};
    use super::super::oracle::{OracleReader, RECORD_BYTES};
    use super::super::workload::TraceWorkload;
    use super::*;
    use crate::workload::Workload;

    fn csv_of(reader: &mut dyn RecordReader, from: Format, selection: &Selection) -> (Copied, String) {
        let mut bytes = Vec::new();
        let mut writer = CsvWriter::new(&mut bytes);
        write_origin(from, &mut writer).expect("no error");
        let copied = copy(reader, &mut writer, selection, &mut |_| {}).expect("no error");
        (copied, String::from_utf8(bytes).expect("text"))
    }

    /// *The story:* the first record after the end of the part was taken for the end of the trace.
    #[test]
    fn what_comes_late_in_a_file_and_early_in_time_is_in_the_part() {
        let mut reader = CsvReader::new(&b"time_ns,thread,space,page\n5,0,0,1\n100,0,0,2\n6,0,0,3\n"[..]);
        let selection = Selection { until_ns: 50, ..Selection::default() };
        let (copied, text) = csv_of(&mut reader, Format::Csv, &selection);
        assert_eq!((copied.read, copied.kept), (3, 2));
        assert!(text.ends_with("5,0,0,1,read\n6,0,0,3,read\n"), "{text}");
    }

    /// *The story:* what was made of a public trace, as the help says how, was refused: objects are
    /// hashes, and that they are no addresses was lost.
    #[test]
    fn what_is_made_from_objects_is_still_of_objects() {
        let mut record = [0; RECORD_BYTES];
        record[4..12].fill(0xab);
        record[16..24].copy_from_slice(&i64::MAX.to_le_bytes());
        let mut reader = OracleReader::new(&record[..]);
        let (_, text) = csv_of(&mut reader, Format::Oracle, &Selection::default());
        let (mut reader, mut own) = (CsvReader::new(text.as_bytes()), Vec::new());
        let mut writer = super::super::own::Writer::new(&mut own).expect("no error");
        copy(&mut reader, &mut writer, &Selection::default(), &mut |_| {}).expect("no error");
        let reader = super::super::own::Reader::new(std::io::Cursor::new(own)).expect("a trace");
        let mut trace = TraceWorkload::new(Box::new(reader), "test".to_owned(), false).expect("a trace");
        assert!(trace.counts_seconds());
        assert!(trace.next().expect("no error").is_some_and(|access| access.vpn < 1 << 36));
    }
}
