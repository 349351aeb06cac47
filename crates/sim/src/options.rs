//! Sizes, lists and ranges as people type them: `256M,512M,1G`, `10%..100%/10`, `1G..4G/1G`.
//!
//! A bare K, M, G, T is a power of 1024 (as in systemd and the rest of the project), KB and so on a
//! power of 1000. A percentage is of what the caller says: the pages that a workload touches. A
//! range needs a step; with percentages the step is a number of points, otherwise a size, or `xN`
//! for a factor.

use crate::nearest;
use crate::time::muldiv;
use std::collections::HashSet;
use thiserror::Error;

/// Most members of one list: more is a typing error.
const MEMBERS_MAX: usize = 10_000;

/// One amount, absolute or relative.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many thousandths of the whole.
    Permille(u64),
}

/// What is wrong with a list.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ListError {
    /// Not a size or percentage.
    #[error("'{text}' is not a size (512M, 1G, 40%)")]
    Size {
        /// The part that is wrong.
        text: String,
    },
    /// Not `FROM..TO/STEP`.
    #[error("'{text}' is not a range: write FROM..TO/STEP, as in 10%..100%/10, 1G..4G/512M or 64M..4G/x2")]
    Range {
        /// The part that is wrong.
        text: String,
    },
    /// From more to less, or from nothing.
    #[error("'{text}' goes from {from} to {to}: write the smaller one first, and begin above 0")]
    Downwards {
        /// The part that is wrong.
        text: String,
        /// Its beginning.
        from: String,
        /// Its end.
        to: String,
    },
    /// Nothing between the commas.
    #[error("an entry of '{text}' is empty")]
    Empty {
        /// The whole list.
        text: String,
    },
    /// The same once more.
    #[error("'{text}' is in the list twice")]
    Twice {
        /// What.
        text: String,
    },
    /// Too many members.
    #[error("'{text}' has more than {MEMBERS_MAX} members")]
    Long {
        /// The part that is wrong.
        text: String,
    },
    /// Not one of the names.
    #[error("'{text}' is not one of {known}{hint}")]
    Name {
        /// What was typed.
        text: String,
        /// The names.
        known: String,
        /// What was meant, perhaps.
        hint: String,
    },
}

impl Amount {
    /// In bytes, where the whole is `whole_bytes`.
    #[must_use]
    pub fn bytes(self, whole_bytes: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Permille(permille) => muldiv(whole_bytes, permille, 1000),
        }
    }
}

/// A size or percentage.
pub fn amount(text: &str) -> Result<Amount, ListError> {
    let wrong = || ListError::Size { text: text.to_owned() };
    let trimmed = text.trim();
    if let Some(percent) = trimmed.strip_suffix('%') {
        let permille = fixed(percent.trim(), 10).ok_or_else(wrong)?;
        return Ok(Amount::Permille(permille));
    }
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let unit = match trimmed[digits..].trim().to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        "T" | "TIB" => 1 << 40,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    fixed(&trimmed[..digits], unit).map(Amount::Bytes).ok_or_else(wrong)
}

/// `text` (digits, perhaps a point and up to six more) times `unit`, rounded down.
fn fixed(text: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let valid = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 18 || fraction.len() > 6 || !valid(whole) || !valid(fraction) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let millionths: u64 = if fraction.is_empty() { 0 } else { format!("{fraction:0<6}").parse().ok()? };
    whole.checked_mul(unit)?.checked_add(muldiv(millionths, unit, 1_000_000))
}

/// A list of sizes and ranges of sizes, in the order typed, each once.
pub fn amounts(text: &str) -> Result<Vec<Amount>, ListError> {
    let mut list = Vec::new();
    for entry in entries(text)? {
        match entry.split_once("..") {
            None => list.push(amount(entry)?),
            Some((from, rest)) => range(entry, from, rest, &mut list)?,
        }
        if list.len() > MEMBERS_MAX {
            return Err(ListError::Long { text: entry.to_owned() });
        }
    }
    // A range may well come across a size beside it.
    let mut seen = HashSet::new();
    list.retain(|amount| seen.insert(*amount));
    Ok(list)
}

/// The entries between the commas, no two of them the same.
///
/// *The story:* `--device nvme,nvme` gave each row twice.
pub fn distinct(text: &str) -> Result<Vec<&str>, ListError> {
    let entries = entries(text)?;
    let mut seen = HashSet::new();
    match entries.iter().find(|entry| !seen.insert(**entry)) {
        Some(twice) => Err(ListError::Twice { text: (*twice).to_owned() }),
        None => Ok(entries),
    }
}

/// The entries between the commas.
pub fn entries(text: &str) -> Result<Vec<&str>, ListError> {
    let entries: Vec<&str> = text.split(',').map(str::trim).collect();
    if entries.iter().any(|entry| entry.is_empty()) {
        return Err(ListError::Empty { text: text.to_owned() });
    }
    Ok(entries)
}

/// A list of names out of `known`.
pub fn names(text: &str, known: &[&str]) -> Result<Vec<String>, ListError> {
    distinct(text)?
        .into_iter()
        .map(|entry| {
            if known.contains(&entry) {
                Ok(entry.to_owned())
            } else {
                let hint = nearest::hint(entry, known.iter().copied());
                Err(ListError::Name { text: entry.to_owned(), known: known.join(", "), hint })
            }
        })
        .collect()
}

fn range(entry: &str, from: &str, rest: &str, list: &mut Vec<Amount>) -> Result<(), ListError> {
    let wrong = || ListError::Range { text: entry.to_owned() };
    let (to, step) = rest.split_once('/').ok_or_else(wrong)?;
    let (from_text, to_text) = (from, to);
    let (from, to) = (amount(from)?, amount(to)?);
    let (first, last, make): (u64, u64, fn(u64) -> Amount) = match (from, to) {
        (Amount::Bytes(from), Amount::Bytes(to)) => (from, to, Amount::Bytes),
        (Amount::Permille(from), Amount::Permille(to)) => (from, to, Amount::Permille),
        _ => return Err(wrong()),
    };
    let relative = matches!(from, Amount::Permille(_));
    let next: Box<dyn Fn(u64) -> Option<u64>> = if let Some(factor) = step.strip_prefix('x') {
        let factor: u64 = factor.parse().ok().filter(|&factor| factor >= 2).ok_or_else(wrong)?;
        Box::new(move |at| at.checked_mul(factor))
    } else {
        let bare = if relative { step.trim_end_matches('%') } else { step };
        let step = if relative { fixed(bare, 10) } else { amount(bare).ok().map(|step| step.bytes(0)) };
        let step = step.filter(|&step| step > 0).ok_or_else(wrong)?;
        Box::new(move |at| at.checked_add(step))
    };
    if first > last || first == 0 {
        let (from, to) = (from_text.to_owned(), to_text.to_owned());
        return Err(ListError::Downwards { text: entry.to_owned(), from, to });
    }
    let mut at = first;
    while at <= last {
        if list.len() > MEMBERS_MAX {
            return Err(ListError::Long { text: entry.to_owned() });
        }
        list.push(make(at));
        let Some(later) = next(at) else { break };
        at = later;
    }
    Ok(())
}

/// A count of bytes for people: `512 MiB`, `1.50 GiB`, `900 B`.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    for (unit, name) in [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit {
            return if bytes.is_multiple_of(unit) {
                format!("{} {name}", bytes / unit)
            } else {
                format!("{} {name}", crate::time::decimal(bytes, unit))
            };
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;
    use Amount::{Bytes, Permille};

    #[test]
    fn amounts_as_people_type_them() {
        for (text, expected) in [
            ("0", Bytes(0)),
            ("4096", Bytes(4096)),
            ("1G", Bytes(1 << 30)),
            ("1.5g", Bytes(3 << 29)),
            ("256 MiB", Bytes(256 << 20)),
            ("2KB", Bytes(2000)),
            ("40%", Permille(400)),
            ("12.5%", Permille(125)),
        ] {
            assert_eq!(amount(text), Ok(expected), "{text}");
        }
        for text in ["", "G", "-1G", "1X", "3XB", "1..2", "%", "1e9", "99999999999T", "0.1234567G"] {
            assert!(amount(text).is_err(), "{text}");
        }
        assert_eq!(Permille(250).bytes(1000), 250);
    }

    #[test]
    fn lists_and_ranges() {
        let list = amounts("10%..100%/10").expect("a range");
        assert_eq!(list.len(), 10);
        assert_eq!((list[0], list[9]), (Permille(100), Permille(1000)));
        assert_eq!(
            amounts("256M, 1G..2G/512M,8M..64M/x4").expect("a list"),
            [256 << 20, 1 << 30, 3 << 29, 2 << 30, 8 << 20, 32 << 20].map(Bytes)
        );
        assert_eq!(
            amounts("1M..2M/512K,1M,1536K,1024K").expect("each once"),
            [1 << 20, 3 << 19, 2 << 20].map(Bytes)
        );
        assert_eq!(amounts("20%..21%/0.5%").expect("a range"), [200, 205, 210].map(Permille));
        for text in
            ["", "1G,", "1G..2G", "2G..1G/1G", "1G..50%/1G", "1G..2G/0", "1G..2G/x1", "0..5G/x2", "1..1T/1"]
        {
            let error = amounts(text).expect_err(text).to_string();
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn names_and_sizes() {
        assert_eq!(names("a,b", &["a", "b", "c"]), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(names("a, b,a", &["a", "b"]).expect_err("twice").to_string(), "'a' is in the list twice");
        assert_eq!(names("d", &["a", "b"]).expect_err("unknown").to_string(), "'d' is not one of a, b");
        for (bytes, text) in
            [(900, "900 B"), (512 << 20, "512 MiB"), (3 << 29, "1.50 GiB"), (1025, "1.00 KiB")]
        {
            assert_eq!(show_bytes(bytes), text);
        }
    }
}
