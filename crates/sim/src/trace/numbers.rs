//! A page number a line, nothing else: how public collections of traces for cache policies come.
//!
//! Lines that begin with `#` are passed over. A line with `*` alone stands between the parts of
//! one. There are no times, so that a microsecond lies between two touches. Nobody knows what was
//! stored to: each touch counts as a store, so that whatever leaves has to be written.

use super::csv::without_mark;
use super::line::{Lines, number, show};
use super::record::{AccessKind, AccessRecord, Record};
use super::{RecordReader, RecordWriter, TraceError};
use std::io::{BufRead, Write};

/// Between two touches.
const THINK_NS: u64 = 1000;
/// Pages are numbered from here on: the first one of an address space is nobody's.
const FIRST_PAGE: u64 = 1 << 20;
/// What stands between two parts.
const BETWEEN: &[u8] = b"*";

/// Reads one.
pub struct NumbersReader<R: BufRead> {
    lines: Lines<R>,
    time_ns: u64,
}

impl<R: BufRead> NumbersReader<R> {
    /// Begins.
    pub fn new(input: R) -> NumbersReader<R> {
        NumbersReader { lines: Lines::new(input), time_ns: 0 }
    }
}

/// Is this a line of such a trace?
#[must_use]
pub fn is_number(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line == BETWEEN || !line.is_empty() && line.iter().all(u8::is_ascii_digit)
}

impl<R: BufRead> RecordReader for NumbersReader<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            let is_first = self.lines.count == 0;
            let Some((offset, line)) = self.lines.next_line()? else { return Ok(None) };
            let line = if is_first { without_mark(line) } else { line }.trim_ascii();
            if line.is_empty() || line == BETWEEN || line.starts_with(b"#") {
                continue;
            }
            let page = number(line).filter(|_| is_number(line)).and_then(|page| page.checked_add(FIRST_PAGE));
            let vpn = page.ok_or_else(|| {
                TraceError::damaged(offset, format!("a line is no page number: {}", show(line)))
            })?;
            self.time_ns += THINK_NS;
            let (time_ns, kind) = (self.time_ns, AccessKind::Write);
            return Ok(Some(Record::Access(AccessRecord { time_ns, vpn, thread: 0, space: 0, kind })));
        }
    }
}

/// Writes one.
pub struct NumbersWriter<W: Write> {
    out: W,
    offset: u64,
}

impl<W: Write> NumbersWriter<W> {
    /// Begins.
    pub fn new(out: W) -> NumbersWriter<W> {
        NumbersWriter { out, offset: 0 }
    }
}

impl<W: Write> RecordWriter for NumbersWriter<W> {
    fn write_record(&mut self, record: &Record) -> Result<bool, TraceError> {
        let Record::Access(access) = record else { return Ok(false) };
        if access.space != 0 {
            let what = "more than one address space";
            return Err(TraceError::Inexpressible { format: "numbers", what });
        }
        let line = format!("{}\n", access.vpn);
        self.out.write_all(line.as_bytes()).map_err(|error| TraceError::io(self.offset, error))?;
        self.offset += line.len() as u64;
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), TraceError> {
        self.out.flush().map_err(|error| TraceError::io(self.offset, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<u64>, TraceError> {
        let mut reader = NumbersReader::new(text.as_bytes());
        let mut pages = Vec::new();
        while let Some(record) = reader.next_record()? {
            let Record::Access(access) = record else { panic!("{record:?}") };
            pages.push(access.vpn - FIRST_PAGE);
        }
        Ok(pages)
    }

    #[test]
    fn a_number_a_line() {
        assert_eq!(read("\u{feff}7\n\n*\n# nine\n 9 \r\n7").expect("numbers"), [7, 9, 7]);
        for (text, error) in [
            ("1\n2 3\n", "offset 2: a line is no page number: '2 3'"),
            ("1\n0x7\n", "offset 2: a line is no page number: '0x7'"),
            ("99999999999999999999\n", "offset 0: a line is no page number: '99999999999999999999'"),
        ] {
            assert_eq!(read(text).expect_err(text).to_string(), error);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut text = Vec::new();
        let mut writer = NumbersWriter::new(&mut text);
        for vpn in [5, 6] {
            let access = AccessRecord { time_ns: 0, vpn, thread: 0, space: 0, kind: AccessKind::Write };
            assert!(writer.write_record(&Record::Access(access)).expect("room"));
        }
        writer.finish().expect("room");
        assert_eq!(text, b"5\n6\n");
    }
}
