//! Lines of text with their offsets, of bounded length, and small parsers over bytes.

use super::TraceError;
use std::io::BufRead;

/// The longest line that is taken.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Lines of an input.
pub(super) struct Lines<R> {
    input: R,
    /// Offset of the next line.
    offset: u64,
    /// Lines so far.
    pub count: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Lines<R> {
        Lines { input, offset: 0, count: 0, line: Vec::new() }
    }

    /// The next line without its end, and its offset; `None` at the end.
    pub fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, TraceError> {
        self.line.clear();
        let offset = self.offset;
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(TraceError::io(self.offset, error)),
            };
            if available.is_empty() {
                break;
            }
            let end = memchr(b'\n', available);
            let taken = end.map_or(available.len(), |end| end + 1);
            self.line.extend_from_slice(&available[..end.unwrap_or(taken)]);
            self.input.consume(taken);
            self.offset += taken as u64;
            if self.line.len() > LINE_BYTES_MAX {
                return Err(TraceError::damaged(
                    offset,
                    "a line of more than 1 MiB: this is not a text trace",
                ));
            }
            if end.is_some() {
                break;
            }
        }
        if self.offset == offset {
            return Ok(None);
        }
        self.count += 1;
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(Some((offset, &self.line)))
    }
}

fn memchr(needle: u8, haystack: &[u8]) -> Option<usize> {
    haystack.iter().position(|&byte| byte == needle)
}

/// Bytes as text for an error message, at most 60 of them.
pub(super) fn show(bytes: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
    let shown: String = shown.chars().map(|c| if c.is_control() { '.' } else { c }).collect();
    if bytes.len() > 60 { format!("'{shown}'...") } else { format!("'{shown}'") }
}

/// A hexadecimal number without prefix, 1 to 16 digits.
pub(super) fn hex(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 16 {
        return None;
    }
    bytes.iter().try_fold(0_u64, |value, &byte| Some(value << 4 | u64::from((byte as char).to_digit(16)?)))
}

/// A decimal number.
pub(super) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Decimal, or hexadecimal behind `0x`.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    match bytes.strip_prefix(b"0x") {
        Some(digits) => hex(digits),
        None => decimal(bytes),
    }
}

/// `SECONDS.FRACTION` in nanoseconds.
pub(super) fn seconds(bytes: &[u8]) -> Option<u64> {
    let dot = memchr(b'.', bytes)?;
    let (whole, fraction) = (&bytes[..dot], &bytes[dot + 1..]);
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    decimal(whole)?.checked_mul(1_000_000_000)?.checked_add(decimal(fraction)? * scale)
}

/// Nanoseconds as [`seconds`] reads them.
pub(super) fn show_seconds(time_ns: u64) -> String {
    format!("{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}

/// Writes a text line by line, and knows the offset for its errors.
pub(super) struct LineWriter<W: std::io::Write> {
    out: W,
    offset: u64,
}

impl<W: std::io::Write> LineWriter<W> {
    pub(super) fn new(out: W) -> LineWriter<W> {
        LineWriter { out, offset: 0 }
    }

    /// `line` without its end.
    pub(super) fn write(&mut self, line: &str) -> Result<(), TraceError> {
        writeln!(self.out, "{line}").map_err(|error| TraceError::io(self.offset, error))?;
        self.offset += line.len() as u64 + 1;
        Ok(())
    }

    pub(super) fn finish(&mut self) -> Result<(), TraceError> {
        self.out.flush().map_err(|error| TraceError::io(self.offset, error))
    }
}

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_offsets_and_a_limit() {
        let mut lines = Lines::new(&b"ab\r\n\nc"[..]);
        let mut seen = Vec::new();
        while let Some((offset, line)) = lines.next_line().expect("no error") {
            seen.push((offset, line.to_vec()));
        }
        assert_eq!(seen, [(0, b"ab".to_vec()), (4, Vec::new()), (5, b"c".to_vec())]);
        let long = vec![b'x'; LINE_BYTES_MAX + 2];
        assert!(Lines::new(&long[..]).next_line().is_err());
    }

    #[test]
    fn numbers() {
        assert_eq!(number(b"0xff"), Some(255));
        assert_eq!(number(b"12"), Some(12));
        assert_eq!(number(b"12x"), None);
        assert_eq!(number(b""), None);
        assert_eq!(hex(b"0123456789abcdef0"), None);
        assert_eq!(decimal(b"99999999999999999999"), None);
        assert_eq!(seconds(b"5740.199401"), Some(5_740_199_401_000));
        assert_eq!(seconds(b"5740"), None);
        assert_eq!(seconds(b"5.1234567890"), None);
    }
}
