//! Valgrind's lackey with `--trace-mem=yes`: every instruction fetch, load and store, exact and slow.
//!
//! Lines are `I  ADDRESS,SIZE`, ` L ADDRESS,SIZE`, ` S ...`, ` M ...` (load and store). What does
//! not look like that is the program's or valgrind's own talk and is passed over, but a file
//! without a single access is not such a trace. There is no time and no thread in it: an
//! instruction is taken to last a nanosecond.

use super::line::{LineWriter, Lines, decimal, hex};
use super::record::{AccessKind, AccessRecord, Record};
use super::{RecordReader, RecordWriter, TraceError};
use overspill_mm::types::PAGE_SHIFT;
use std::io::{BufRead, Write};

/// The largest access that is believed: an AVX-512 store is 64, an `fxsave` 512, `xsave` areas a
/// few thousand.
const SIZE_MAX: u64 = 1 << 16;

/// Reads lackey's output.
pub struct LackeyReader<R: BufRead> {
    lines: Lines<R>,
    instructions: u64,
    accesses: u64,
    /// The rest of an access that crosses pages: next page, last page, kind.
    rest: Option<(u64, u64, AccessKind)>,
}

/// One line, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LackeyLine {
    /// What.
    pub kind: AccessKind,
    /// The first byte's address.
    pub address: u64,
    /// Bytes, at least 1.
    pub size: u64,
}

/// Takes a line apart; `None` if it is something else.
#[must_use]
pub fn parse_line(line: &[u8]) -> Option<LackeyLine> {
    let (head, rest) = line.split_at_checked(3)?;
    let kind = match head {
        b"I  " => AccessKind::Fetch,
        b" L " => AccessKind::Read,
        b" S " | b" M " => AccessKind::Write,
        _ => return None,
    };
    let comma = rest.iter().position(|&byte| byte == b',')?;
    let address = hex(&rest[..comma])?;
    let size = decimal(&rest[comma + 1..]).filter(|size| (1..=SIZE_MAX).contains(size))?;
    address.checked_add(size)?;
    Some(LackeyLine { kind, address, size })
}

impl<R: BufRead> LackeyReader<R> {
    /// Begins.
    pub fn new(input: R) -> LackeyReader<R> {
        LackeyReader { lines: Lines::new(input), instructions: 0, accesses: 0, rest: None }
    }

    fn record(&mut self, vpn: u64, last: u64, kind: AccessKind) -> Record {
        self.rest = (vpn < last).then_some((vpn + 1, last, kind));
        self.accesses += 1;
        Record::Access(AccessRecord { time_ns: self.instructions, vpn, thread: 0, space: 0, kind })
    }
}

impl<R: BufRead> RecordReader for LackeyReader<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        if let Some((vpn, last, kind)) = self.rest {
            return Ok(Some(self.record(vpn, last, kind)));
        }
        loop {
            let Some((offset, line)) = self.lines.next_line()? else {
                if self.accesses == 0 {
                    return Err(TraceError::damaged(0, "there is no access in this lackey output"));
                }
                return Ok(None);
            };
            let Some(line) = parse_line(line) else {
                if self.accesses == 0 && offset > 1 << 20 {
                    return Err(TraceError::damaged(offset, "no access so far: this is not lackey output"));
                }
                continue;
            };
            if line.kind == AccessKind::Fetch {
                self.instructions += 1;
            }
            let last = (line.address + line.size - 1) >> PAGE_SHIFT;
            return Ok(Some(self.record(line.address >> PAGE_SHIFT, last, line.kind)));
        }
    }
}

/// Writes accesses in lackey's way: one access of 8 bytes at the page's first address. Times,
/// threads and spaces are lost.
pub struct LackeyWriter<W: Write> {
    lines: LineWriter<W>,
}

impl<W: Write> LackeyWriter<W> {
    /// Begins.
    pub fn new(out: W) -> LackeyWriter<W> {
        LackeyWriter { lines: LineWriter::new(out) }
    }
}

impl<W: Write> RecordWriter for LackeyWriter<W> {
    fn write_record(&mut self, record: &Record) -> Result<bool, TraceError> {
        let Record::Access(access) = record else { return Ok(false) };
        if access.vpn >= 1 << (64 - PAGE_SHIFT) {
            return Err(TraceError::Inexpressible {
                format: "lackey",
                what: "a page beyond 64-bit addresses",
            });
        }
        let address = access.vpn << PAGE_SHIFT;
        let line = match access.kind {
            AccessKind::Fetch => format!("I  {address:08x},8"),
            AccessKind::Read => format!(" L {address:08x},8"),
            AccessKind::Write => format!(" S {address:08x},8"),
        };
        self.lines.write(&line).map(|()| true)
    }

    fn finish(&mut self) -> Result<(), TraceError> {
        self.lines.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<AccessRecord>, TraceError> {
        let mut reader = LackeyReader::new(text.as_bytes());
        let mut list = Vec::new();
        while let Some(Record::Access(access)) = reader.next_record()? {
            list.push(access);
        }
        Ok(list)
    }

    #[test]
    fn real_lines() {
        let text = "==5758== Lackey, an example Valgrind tool\n==5758== \n\
                    I  0401ab70,3\nhello from the program\n S 1fff000ffc,8\n M 04033e06,1\n L 1fff000658,8\n\
                    I  04029ffe,5\n==5758== Counted 1 call to main()\n";
        let list = read(text).expect("a trace");
        let brief: Vec<_> = list.iter().map(|a| (a.time_ns, a.vpn, a.kind)).collect();
        use AccessKind::{Fetch, Read, Write};
        assert_eq!(
            brief,
            [
                (1, 0x401a, Fetch),
                (1, 0x1fff000, Write),
                (1, 0x1fff001, Write),
                (1, 0x4033, Write),
                (1, 0x1fff000, Read),
                (2, 0x4029, Fetch),
                (2, 0x402a, Fetch),
            ]
        );
    }

    #[test]
    fn foreign_text_is_refused() {
        assert!(read("hello\nworld\n").expect_err("refused").to_string().contains("no access"));
        for line in
            ["I  zz,3", "I  10,0", " S 10", " L 10,99999999", "I  ffffffffffffffff,8", "I 0401ab70,3", ""]
        {
            assert_eq!(parse_line(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn written_accesses_come_back() {
        let mut bytes = Vec::new();
        let mut writer = LackeyWriter::new(&mut bytes);
        for (vpn, kind) in [(5, AccessKind::Write), (6, AccessKind::Read), (7, AccessKind::Fetch)] {
            let access = AccessRecord { time_ns: 9, vpn, thread: 1, space: 0, kind };
            assert!(writer.write_record(&Record::Access(access)).expect("no error"));
        }
        writer.finish().expect("no error");
        let list = read(std::str::from_utf8(&bytes).expect("text")).expect("a trace");
        assert_eq!(list.iter().map(|a| a.vpn).collect::<Vec<_>>(), [5, 6, 7]);
    }
}
