//! Sizes as people write them: `100M`, `1.5GiB`, `2GB`, `50%`. Bare K M G T are powers of 1024, as
//! in systemd and in the kernel's own files; only KB, MB, GB, TB are powers of 1000. Integers
//! throughout, no float ever holds a size.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, or a share of the machine's RAM that becomes one with [`Size::bytes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// So many thousandths of a percent of the machine's RAM.
    Share(u64),
}

/// What a share is counted in: a thousandth of a percent.
const SHARE_WHOLE: u64 = 100_000;
/// No address has more bits: what is longer is a mistake, and what is reckoned with sizes has room.
///
/// *The story:* `bench extents --size 9999999T` wanted twice that, which was little, and did nothing.
const BYTES_MAX: u64 = 1 << 56;
/// The smallest budget a program can be run in: below it the pager would manage little but itself.
pub const BUDGET_BYTES_MIN: u64 = 1 << 20;

impl Size {
    /// The size in bytes, on a machine with `ram_bytes` of RAM.
    pub fn bytes(self, ram_bytes: u64) -> u64 {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::Share(share) => {
                let bytes = u128::from(ram_bytes) * u128::from(share) / u128::from(SHARE_WHOLE);
                u64::try_from(bytes).unwrap_or(u64::MAX).min(BYTES_MAX)
            }
        }
    }
}

/// For `--ram`: a size of at least 1 MiB.
///
/// *The story:* whoever wrote `--ram 64` was told that no program runs in less than 1M, and nothing of bytes.
pub fn parse_budget(text: &str) -> Result<Size, String> {
    let size = Size::from_str(text)?;
    if let Size::Bytes(bytes) = size {
        enough(bytes).map_err(|reason| without_unit(text).unwrap_or(reason))?;
    }
    Ok(size)
}

/// What to say of a number that is too small, if it has no unit.
fn without_unit(text: &str) -> Option<String> {
    let number = text.trim();
    let is_bare = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_bare.then(|| {
        format!("that is {number} bytes, as there is no unit: write {number}M for MiB, {number}G for GiB")
    })
}

/// What mkswap makes at least: ten pages.
const SWAP_BYTES_MIN: u64 = 40 << 10;

/// For `--swap-max`: as much as a place to spill to has at least.
///
/// *The story:* `--swap-max 2` was taken for two bytes, and the program exceeded its budget at once.
pub fn parse_swap_max(text: &str) -> Result<Size, String> {
    let size = Size::from_str(text)?;
    enough_to_spill(size)?;
    Ok(size)
}

/// Is that enough to spill to?
pub fn enough_to_spill(size: Size) -> Result<(), String> {
    match size {
        Size::Bytes(few @ 0..SWAP_BYTES_MIN) => {
            Err(format!("{few} bytes are no place to spill to: write 2G for two GiB, and 40K at least"))
        }
        _ => Ok(()),
    }
}

/// Is that enough for a budget? What a share comes to is only known on its machine.
///
/// *The story:* `--ram 0.001%` was taken, and a program ran in 250 KiB.
pub fn enough(budget_bytes: u64) -> Result<(), String> {
    if budget_bytes < BUDGET_BYTES_MIN {
        return Err("a program cannot be run in less than 1M (1 MiB)".into());
    }
    Ok(())
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let text = text.trim();
        let unknown = || {
            format!(
                "`{text}` is not a size: write a number and K, M, G or T (of 1024), KB, MB.. (of 1000), \
                 or a share of the machine's RAM such as 50%"
            )
        };
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim();
        let scale = if unit == "%" { SHARE_WHOLE / 100 } else { unit_bytes(unit).ok_or_else(unknown)? };
        let value = scaled(number, scale).ok_or_else(unknown)?;
        match u64::try_from(value) {
            Ok(0) => Err(format!("`{text}` is nothing: the size must be above zero")),
            Ok(share) if unit == "%" => Ok(Size::Share(share)),
            Ok(bytes @ ..=BYTES_MAX) => Ok(Size::Bytes(bytes)),
            _ => Err(format!("`{text}` is more than any machine holds")),
        }
    }
}

/// Bytes in a unit, upper or lower case.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_uppercase();
    let letters = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let power = match letters {
        "" if !unit.starts_with('I') => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    let thousands = unit.ends_with('B') && !unit.ends_with("IB");
    Some(if thousands { 1000u64.pow(power) } else { 1024u64.pow(power) })
}

/// `number` (digits, at most one point) times `scale`, rounded down.
fn scaled(number: &str, scale: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || whole.len() > 20 || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let whole: u128 = whole.parse().ok()?;
    let parts: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let scale = u128::from(scale);
    Some(whole * scale + parts * scale / 10u128.pow(fraction.len() as u32))
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Size::Bytes(bytes) => write!(f, "{}", shortest(bytes)),
            Size::Share(share) => write!(f, "{}.{:03}%", share / 1000, share % 1000),
        }
    }
}

/// The shortest exact spelling that the parser reads back: `100M`, `1G`, `123456`.
pub fn shortest(bytes: u64) -> String {
    for (shift, letter) in [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{letter}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> u64 {
        text.parse::<Size>().unwrap().bytes(1000)
    }

    #[test]
    fn bare_letters_are_powers_of_1024() {
        assert_eq!(bytes("1"), 1);
        assert_eq!(bytes("4096B"), 4096);
        assert_eq!(bytes("1K"), 1024);
        assert_eq!(bytes("100M"), 100 << 20);
        assert_eq!(bytes("1g"), 1 << 30);
        assert_eq!(bytes("2T"), 2 << 40);
        assert_eq!(bytes("1KiB"), 1024);
        assert_eq!(bytes("3 GiB"), 3 << 30);
    }

    #[test]
    fn a_final_b_makes_it_1000() {
        assert_eq!(bytes("1KB"), 1000);
        assert_eq!(bytes("2MB"), 2_000_000);
        assert_eq!(bytes("1gb"), 1_000_000_000);
    }

    #[test]
    fn fractions_and_shares() {
        assert_eq!(bytes("1.5K"), 1536);
        assert_eq!(bytes("0.5G"), 512 << 20);
        assert_eq!(bytes("50%"), 500);
        assert_eq!(bytes("12.5%"), 125);
        assert_eq!(bytes("150%"), 1500);
    }

    /// See [`enough`].
    #[test]
    fn a_budget_is_large_enough_or_refused() {
        assert!(parse_budget("1023K").unwrap_err().contains("less than 1M"));
        let share = parse_budget("0.001%").unwrap().bytes(24 << 30);
        assert!(enough(share).is_err() && enough(1 << 20).is_ok());
    }

    /// See [`parse_budget`].
    #[test]
    fn a_budget_without_a_unit_is_told_of_units() {
        for text in ["64", "4096", "1.5"] {
            let reason = parse_budget(text).unwrap_err();
            assert!(
                reason.contains(&format!("{text} bytes")) && reason.contains(&format!("{text}M")),
                "{reason}"
            );
        }
        assert!(!parse_budget("64K").unwrap_err().contains("no unit"));
        assert_eq!(parse_budget("67108864"), Ok(Size::Bytes(64 << 20)));
    }

    #[test]
    fn what_is_no_size_says_so() {
        for text in ["", "X", "3X", "-1", "1.2.3M", ".5G", "1e9", "10iB", "M", "1MM", "5 percent", "%"] {
            let message = text.parse::<Size>().unwrap_err();
            assert!(message.contains("is not a size"), "{text}: {message}");
            assert!(!message.contains('\n'));
        }
        assert!("0".parse::<Size>().unwrap_err().contains("above zero"));
        assert!("0.0001%".parse::<Size>().unwrap_err().contains("above zero"));
        assert!("99999999999T".parse::<Size>().unwrap_err().contains("more than any machine"));
        assert!("99999999999999999999999".parse::<Size>().is_err());
        assert_eq!(bytes("65536T"), 1 << 56);
        assert!("65537T".parse::<Size>().unwrap_err().contains("more than any machine"));
        assert_eq!("9999999999%".parse::<Size>().unwrap().bytes(1 << 40), 1 << 56);
    }

    #[test]
    fn a_budget_has_a_floor() {
        assert_eq!(parse_budget("1M"), Ok(Size::Bytes(1 << 20)));
        assert!(parse_budget("1023K").is_err());
        assert!(parse_budget("0").unwrap_err().contains("above zero"));
    }

    #[test]
    fn the_shortest_spelling_reads_back() {
        for n in [1, 1023, 1024, 1536 << 10, 100 << 20, 1 << 30, 3 << 40, 123_456_789] {
            assert_eq!(bytes(&shortest(n)), n);
        }
        assert_eq!(shortest(100 << 20), "100M");
    }
}
