//! Telling formats apart, and opening a trace of any of them.

use super::csv::{self, CsvReader, CsvWriter};
use super::lackey::{self, LackeyReader, LackeyWriter};
use super::numbers::{self, NumbersReader, NumbersWriter};
use super::oracle::{OracleReader, OracleWriter, RECORD_BYTES};
use super::own::layout::MAGIC;
use super::own::{Reader, Writer};
use super::perf::{self, PerfReader, PerfWriter};
use super::strace::{self, StraceReader, StraceWriter};
use super::{RecordReader, RecordWriter, TraceError, read_full};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Cursor, Read};
use std::path::Path;

/// A trace format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The project's own.
    Own,
    /// Valgrind's lackey, `--trace-mem=yes`.
    Lackey,
    /// strace of file calls.
    Strace,
    /// `perf script` of page faults.
    Perf,
    /// Comma-separated values.
    Csv,
    /// libCacheSim's oracleGeneral.
    Oracle,
    /// A page number a line.
    Numbers,
}

/// The names, for an error message.
pub const KNOWN: &str = "overspill, lackey, strace, perf, csv, oracle, numbers";
/// How much is looked at to tell formats apart.
const SNIFF_BYTES: usize = 1 << 16;
/// The first bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// ... and of a gzip file, which is not unpacked.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

impl Format {
    /// All, in the order of [`KNOWN`].
    pub const ALL: [Format; 7] = [
        Format::Own,
        Format::Lackey,
        Format::Strace,
        Format::Perf,
        Format::Csv,
        Format::Oracle,
        Format::Numbers,
    ];

    /// What the command line calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Own => "overspill",
            Format::Lackey => "lackey",
            Format::Strace => "strace",
            Format::Perf => "perf",
            Format::Csv => "csv",
            Format::Oracle => "oracle",
            Format::Numbers => "numbers",
        }
    }

    /// The format of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The format that a file of this name would have.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?;
        let bare = name.strip_suffix(".zst").unwrap_or(name);
        if bare.contains("oracleGeneral") {
            return Some(Format::Oracle);
        }
        match bare.rsplit_once('.')?.1 {
            "ovt" => Some(Format::Own),
            "csv" => Some(Format::Csv),
            "lackey" => Some(Format::Lackey),
            "strace" => Some(Format::Strace),
            "perf" => Some(Format::Perf),
            "numbers" => Some(Format::Numbers),
            _ => None,
        }
    }

    /// Looks at the beginning of an input.
    #[must_use]
    pub fn sniff(head: &[u8]) -> Option<Format> {
        if head.starts_with(&MAGIC) {
            return Some(Format::Own);
        }
        let text = !head.contains(&0) && !head.is_empty();
        if text { sniff_text(head) } else { looks_like_oracle(head).then_some(Format::Oracle) }
    }
}

fn sniff_text(head: &[u8]) -> Option<Format> {
    csv::without_mark(head).split(|&byte| byte == b'\n').take(500).find_map(|line| {
        // As lines are read, so that they are told apart by what they are read as.
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if lackey::parse_line(line).is_some() {
            Some(Format::Lackey)
        } else if perf::looks_like_perf(line) {
            Some(Format::Perf)
        } else if strace::looks_like_strace(line) {
            Some(Format::Strace)
        } else if csv::looks_like_csv(line) {
            Some(Format::Csv)
        } else if numbers::is_number(line) {
            Some(Format::Numbers)
        } else {
            None
        }
    })
}

/// Are all whole records in `head` possible, and likely?
fn looks_like_oracle(head: &[u8]) -> bool {
    let records = head.as_chunks::<RECORD_BYTES>().0;
    let mut reader = OracleReader::new(&head[..records.len() * RECORD_BYTES]);
    let likely = |record: &[u8; RECORD_BYTES]| {
        let has_size = record[12..16] != [0; 4];
        // Next accesses beyond 2^40 records are not meant.
        let next: [u8; 8] = record[16..24].try_into().expect("eight bytes");
        let is_never = [-1, i64::MAX].contains(&i64::from_le_bytes(next));
        has_size && (is_never || next[5..] == [0; 3])
    };
    !records.is_empty()
        && records.iter().all(|record| likely(record) && matches!(reader.next_record(), Ok(Some(_))))
}

/// Opens the file of a trace. What is no regular file is not even opened: a pipe would wait for
/// somebody to write to it.
pub fn open_file(path: &Path) -> Result<File, TraceError> {
    let cannot = |error| TraceError::Open { error };
    let kind = std::fs::metadata(path).map_err(cannot)?.file_type();
    if kind.is_dir() {
        return Err(cannot(std::io::ErrorKind::IsADirectory.into()));
    }
    if !kind.is_file() {
        return Err(TraceError::NotRegular);
    }
    File::open(path).map_err(cannot)
}

/// Opens a trace; `format` when it is known, else what its beginning looks like. `-` is standard
/// input. A zstd-compressed file is unpacked on the way.
pub fn open(
    path: &Path,
    format: Option<Format>,
) -> Result<(Format, Box<dyn RecordReader + Send>), TraceError> {
    let input: Box<dyn Read + Send> =
        if path == Path::new("-") { Box::new(std::io::stdin()) } else { Box::new(open_file(path)?) };
    read_any(input, format.or_else(|| Format::of_path(path).filter(|&format| format == Format::Oracle)))
}

/// As [`open`], from any input.
pub fn read_any(
    mut input: Box<dyn Read + Send>,
    format: Option<Format>,
) -> Result<(Format, Box<dyn RecordReader + Send>), TraceError> {
    let mut head = vec![0; SNIFF_BYTES];
    let got = read_full(&mut input, &mut head, 0)?;
    head.truncate(got);
    if head.starts_with(&ZSTD_MAGIC) {
        let packed = Cursor::new(head).chain(input);
        let unpacked = zstd::stream::read::Decoder::new(packed).map_err(|error| TraceError::io(0, error))?;
        return read_plain(Box::new(unpacked), format);
    }
    if head.starts_with(&GZIP_MAGIC) {
        return Err(TraceError::Gzip);
    }
    read_headed(head, input, format)
}

fn read_plain(
    mut input: Box<dyn Read + Send>,
    format: Option<Format>,
) -> Result<(Format, Box<dyn RecordReader + Send>), TraceError> {
    let mut head = vec![0; SNIFF_BYTES];
    let got = read_full(&mut input, &mut head, 0)?;
    head.truncate(got);
    read_headed(head, input, format)
}

fn read_headed(
    head: Vec<u8>,
    input: Box<dyn Read + Send>,
    format: Option<Format>,
) -> Result<(Format, Box<dyn RecordReader + Send>), TraceError> {
    if head.is_empty() {
        return Err(TraceError::Empty);
    }
    let format = format.or_else(|| Format::sniff(&head)).ok_or(TraceError::Unknown { known: KNOWN })?;
    let whole = BufReader::with_capacity(1 << 18, Cursor::new(head).chain(input));
    Ok((format, reader(format, whole)?))
}

fn reader(
    format: Format,
    input: impl BufRead + Send + 'static,
) -> Result<Box<dyn RecordReader + Send>, TraceError> {
    Ok(match format {
        Format::Own => Box::new(Reader::new(input)?),
        Format::Lackey => Box::new(LackeyReader::new(input)),
        Format::Strace => Box::new(StraceReader::new(input)),
        Format::Perf => Box::new(PerfReader::new(input)),
        Format::Csv => Box::new(CsvReader::new(input)),
        Format::Oracle => Box::new(OracleReader::new(input)),
        Format::Numbers => Box::new(NumbersReader::new(input)),
    })
}

/// Writes a trace of `format` to a file.
pub fn writer(file: File, format: Format) -> Result<Box<dyn RecordWriter + Send>, TraceError> {
    let out = BufWriter::with_capacity(1 << 18, file);
    Ok(match format {
        Format::Own => Box::new(Writer::new(out)?),
        Format::Lackey => Box::new(LackeyWriter::new(out)),
        Format::Csv => Box::new(CsvWriter::new(out)),
        Format::Strace => Box::new(StraceWriter::new(out)),
        Format::Perf => Box::new(PerfWriter::new(out)),
        Format::Oracle => Box::new(OracleWriter::new(out)),
        Format::Numbers => Box::new(NumbersWriter::new(out)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_apart() {
        for (head, format) in [
            (&b"==1== Lackey\nI  0401ab70,3\n"[..], Some(Format::Lackey)),
            // *The story:* with these line ends it was no trace at all.
            (b"==1== Lackey\r\nI  0401ab70,3\r\n", Some(Format::Lackey)),
            (b"time_ns,thread,space,page,op\r\n", Some(Format::Csv)),
            (b" ls 1 2.000001:  1 page-faults:  1000 f\n", Some(Format::Perf)),
            (b"openat(AT_FDCWD, \"/x\", O_RDONLY) = 3\n", Some(Format::Strace)),
            (b"time_ns,thread,space,page,op\n", Some(Format::Csv)),
            (b"1,2,3,4\n", Some(Format::Csv)),
            (b"\xef\xbb\xbf# by hand\n\npage,op\n", Some(Format::Csv)),
            // Their columns are not what is wanted, which is better said than that they are no trace.
            (b"time,object,size,next\n", Some(Format::Csv)),
            (b"1.5,37\n", Some(Format::Csv)),
            (b"# by hand\n42\n", Some(Format::Numbers)),
            (b"version,time,op,size,lbn\n1,2,28,512,7\n", Some(Format::Csv)),
            (b"42\n43\n", Some(Format::Numbers)),
            (b"*\n42\n", Some(Format::Numbers)),
            (b"hello world\n", None),
            (b"", None),
            (b"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00>\x00\x01\x00\x00\x00", None),
        ] {
            assert_eq!(Format::sniff(head), format, "{}", String::from_utf8_lossy(head));
        }
        let mut record = [0; 24];
        record[12] = 1;
        for never in [-1, i64::MAX] {
            record[16..24].copy_from_slice(&never.to_le_bytes());
            assert_eq!(Format::sniff(&record), Some(Format::Oracle), "{never}");
        }
        let own = super::super::own::layout::file_header();
        assert_eq!(Format::sniff(&own), Some(Format::Own));
    }

    #[test]
    fn gzip_is_named() {
        let error = read_any(Box::new(Cursor::new(b"\x1f\x8b\x08")), None).err().expect("it is refused");
        assert!(error.to_string().contains("gunzip"), "{error}");
    }

    #[test]
    fn compressed_input_is_unpacked() {
        let packed = zstd::bulk::compress(b"1,0,0,7,write\n", 1).expect("no error");
        let (format, mut reader) = read_any(Box::new(Cursor::new(packed)), None).expect("a trace");
        assert_eq!(format, Format::Csv);
        assert!(
            matches!(reader.next_record(), Ok(Some(super::super::Record::Access(access))) if access.vpn == 7)
        );
    }
}
