//! libCacheSim's oracleGeneral: 24-byte records of time (u32, seconds), object (u64), size (u32)
//! and the index of the object's next access (i64, -1 for none), little endian.
//!
//! An object becomes one page; its size counts for nothing but for its mean, which is told. Object
//! numbers are often hashes: [`super::workload`] numbers them anew. Writing needs to know the
//! future, so records are kept back until their object's next access is known, or patched in the
//! file when that comes late: memory grows with the number of pages, not with the length.

use super::record::{AccessKind, AccessRecord, Record};
use super::{RecordReader, RecordWriter, Sizes, TraceError, read_full};
use crate::time::SECOND;
use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom, Write};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 24;
/// Records that the writer keeps back.
const WINDOW: usize = 1 << 18;
/// The note of a trace that was made from oracleGeneral: what must be known of it in any format.
pub const OBJECTS_NOTE: &str = "pages are objects by their numbers, times are whole seconds";
/// "There is no next access."
const NEVER: i64 = -1;

/// Reads oracleGeneral.
pub struct OracleReader<R: Read> {
    input: R,
    offset: u64,
    last_seconds: u32,
    sizes: Sizes,
}

impl<R: Read> OracleReader<R> {
    /// Begins.
    pub fn new(input: R) -> OracleReader<R> {
        OracleReader { input, offset: 0, last_seconds: 0, sizes: Sizes::default() }
    }
}

impl<R: Read> RecordReader for OracleReader<R> {
    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        let mut bytes = [0; RECORD_BYTES];
        let got = read_full(&mut self.input, &mut bytes, self.offset)?;
        if got == 0 {
            return Ok(None);
        }
        if got < RECORD_BYTES {
            let offset = self.offset + got as u64;
            return Err(TraceError::Truncated { offset, within: "a record of 24 bytes" });
        }
        let index = self.offset / RECORD_BYTES as u64;
        let seconds = u32::from_le_bytes(bytes[0..4].try_into().expect("four bytes"));
        let object = u64::from_le_bytes(bytes[4..12].try_into().expect("eight bytes"));
        let size = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes"));
        let next = i64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
        if next < NEVER || (next >= 0 && next as u64 <= index) {
            let problem = format!("record {index} says that its next access is number {next}");
            return Err(TraceError::damaged(self.offset + 16, problem));
        }
        if seconds < self.last_seconds {
            let problem =
                format!("record {index} is {} s earlier than the one before it", self.last_seconds - seconds);
            return Err(TraceError::damaged(self.offset, problem));
        }
        self.last_seconds = seconds;
        self.offset += RECORD_BYTES as u64;
        self.sizes.add(Some(u64::from(size)));
        Ok(Some(Record::Access(AccessRecord {
            time_ns: u64::from(seconds) * SECOND,
            vpn: object,
            thread: 0,
            space: 0,
            kind: AccessKind::Read,
        })))
    }

    fn sizes(&self) -> Option<Sizes> {
        Some(self.sizes)
    }
}

/// Writes oracleGeneral.
pub struct OracleWriter<W: Write + Seek> {
    out: W,
    /// Index of the first record that is kept back.
    first: u64,
    /// Those records.
    window: Vec<[u8; RECORD_BYTES]>,
    /// By object: index of its last access.
    last: HashMap<(u16, u64), u64>,
    /// Of the last record: none may be earlier.
    seconds: u32,
}

impl<W: Write + Seek> OracleWriter<W> {
    /// Begins.
    pub fn new(out: W) -> OracleWriter<W> {
        let (window, last) = (Vec::with_capacity(WINDOW), HashMap::new());
        OracleWriter { out, first: 0, window, last, seconds: 0 }
    }

    fn offset_of(index: u64) -> u64 {
        index * RECORD_BYTES as u64
    }

    /// Writes out the older half of what is kept back.
    fn shed(&mut self, count: usize) -> Result<(), TraceError> {
        let offset = Self::offset_of(self.first);
        let bytes: Vec<u8> = self.window.drain(..count).flatten().collect();
        self.out
            .seek(SeekFrom::Start(offset))
            .and_then(|_| self.out.write_all(&bytes))
            .map_err(|error| TraceError::io(offset, error))?;
        self.first += count as u64;
        Ok(())
    }

    /// Record `index` learns that its object comes again at `next`.
    fn patch(&mut self, index: u64, next: u64) -> Result<(), TraceError> {
        let bytes = (next as i64).to_le_bytes();
        if let Some(at) = index.checked_sub(self.first) {
            self.window[at as usize][16..24].copy_from_slice(&bytes);
            return Ok(());
        }
        let offset = Self::offset_of(index) + 16;
        self.out
            .seek(SeekFrom::Start(offset))
            .and_then(|_| self.out.write_all(&bytes))
            .map_err(|error| TraceError::io(offset, error))
    }
}

impl<W: Write + Seek> RecordWriter for OracleWriter<W> {
    fn write_record(&mut self, record: &Record) -> Result<bool, TraceError> {
        let Record::Access(access) = record else { return Ok(false) };
        if access.space != 0 {
            return Err(TraceError::Inexpressible {
                format: "oracleGeneral",
                what: "more than one address space",
            });
        }
        let index = self.first + self.window.len() as u64;
        if let Some(last) = self.last.insert((access.space, access.vpn), index) {
            self.patch(last, index)?;
        }
        let mut bytes = [0; RECORD_BYTES];
        let seconds = u32::try_from(access.time_ns / SECOND).unwrap_or(u32::MAX);
        self.seconds = self.seconds.max(seconds);
        bytes[0..4].copy_from_slice(&self.seconds.to_le_bytes());
        bytes[4..12].copy_from_slice(&access.vpn.to_le_bytes());
        bytes[12..16].copy_from_slice(&4096_u32.to_le_bytes());
        bytes[16..24].copy_from_slice(&NEVER.to_le_bytes());
        self.window.push(bytes);
        if self.window.len() == WINDOW {
            self.shed(WINDOW / 2)?;
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), TraceError> {
        self.shed(self.window.len())?;
        self.out.flush().map_err(|error| TraceError::io(Self::offset_of(self.first), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn the_future_is_written_correctly() {
        let mut bytes = Cursor::new(Vec::new());
        let mut writer = OracleWriter::new(&mut bytes);
        let count = WINDOW as u64 * 2;
        // Page 0 comes at both ends, far beyond the window; the others every 7 records.
        let page = |index: u64| if index == 0 || index == count - 1 { 0 } else { 1 + index % 7 };
        for index in 0..count {
            let vpn = page(index);
            let access =
                AccessRecord { time_ns: index * 1_000_000, vpn, thread: 0, space: 0, kind: AccessKind::Read };
            writer.write_record(&Record::Access(access)).expect("no error");
        }
        writer.finish().expect("no error");
        let bytes = bytes.into_inner();
        assert_eq!(bytes.len(), count as usize * RECORD_BYTES);
        let next = |index: u64| {
            let at = index as usize * RECORD_BYTES + 16;
            i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"))
        };
        assert_eq!(next(0), count as i64 - 1);
        assert_eq!(next(count - 1), -1);
        assert_eq!((next(1), next(100)), (8, 107));
        let mut reader = OracleReader::new(&bytes[..]);
        let mut pages = 0;
        while let Some(Record::Access(access)) = reader.next_record().expect("what was written") {
            assert_eq!(access.vpn, page(pages));
            pages += 1;
        }
        assert_eq!(pages, count);
    }

    /// *The story:* what was made of a trace whose times fall was refused as damaged.
    #[test]
    fn times_that_fall_are_raised() {
        let mut bytes = Cursor::new(Vec::new());
        let mut writer = OracleWriter::new(&mut bytes);
        for seconds in [5, 3, 9] {
            let time_ns = seconds * SECOND;
            let access = AccessRecord { time_ns, vpn: 1, thread: 0, space: 0, kind: AccessKind::Read };
            writer.write_record(&Record::Access(access)).expect("no error");
        }
        writer.finish().expect("no error");
        let bytes = bytes.into_inner();
        let mut reader = OracleReader::new(&bytes[..]);
        let mut times = Vec::new();
        while let Some(Record::Access(access)) = reader.next_record().expect("what was written") {
            times.push(access.time_ns / SECOND);
        }
        assert_eq!(times, [5, 5, 9]);
    }

    #[test]
    fn nonsense_is_refused() {
        let error = OracleReader::new(&[0; 30][..]);
        let mut reader = error;
        assert_eq!(
            reader.next_record().expect_err("refused").to_string(),
            "offset 16: record 0 says that its next access is number 0"
        );
        let mut reader = OracleReader::new(&[0; 10][..]);
        assert!(matches!(reader.next_record(), Err(TraceError::Truncated { offset: 10, .. })));
    }
}
