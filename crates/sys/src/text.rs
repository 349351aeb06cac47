//! Numbers and paths in text, without allocation: what the kernel prints and what its paths want.

/// A number written in decimal.
pub struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    /// Writes `value`.
    #[must_use]
    pub fn new(mut value: u64) -> Decimal {
        let mut digits = [0; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                return Decimal { digits, start };
            }
        }
    }

    /// The digits.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// The parts one behind the other, with a NUL.
pub(crate) fn joined<const N: usize, const BYTES: usize>(parts: [&[u8]; N]) -> [u8; BYTES] {
    let mut text = [0; BYTES];
    let mut at = 0;
    for part in parts {
        text[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    assert!(at < BYTES, "there is room for a NUL");
    text
}

/// Takes a number in `radix` (10, or 16 in lower case) off the front of `text`; `None` when there is no digit
/// or the number does not fit.
#[must_use]
pub fn take_number(text: &[u8], radix: u32) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut used = 0;
    for &byte in text {
        let Some(digit) = (byte as char).to_digit(radix) else { break };
        value = value.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))?;
        used += 1;
    }
    (used > 0).then(|| (value, &text[used..]))
}

/// Skips spaces and tabs.
#[must_use]
pub fn skip_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|&&byte| byte == b' ' || byte == b'\t').count();
    &text[blanks..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_there_and_back() {
        for value in [0, 7, 10, 4096, u64::MAX] {
            assert_eq!(Decimal::new(value).as_bytes(), value.to_string().as_bytes());
            assert_eq!(take_number(Decimal::new(value).as_bytes(), 10), Some((value, &b""[..])));
        }
        assert_eq!(take_number(b"7ffe-8000", 16), Some((0x7ffe, &b"-8000"[..])));
        assert_eq!(take_number(b"-1", 10), None);
        assert_eq!(take_number(b"", 10), None);
        assert_eq!(take_number(b"99999999999999999999", 10), None);
        assert_eq!(skip_blanks(b" \t x "), b"x ");
    }
}
