//! Virtual time and integer arithmetic: nanoseconds as `u64`, text for people, roots and rates
//! without floats.
//!
//! Nothing here asks the real clock.

pub use overspill_mm::types::Nanos;

/// Nanoseconds in a microsecond.
pub const MICROSECOND: Nanos = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;

/// No thread computes or sleeps beyond this time (292 years): there is room behind it for what its last
/// calls take.
pub const LAST: Nanos = Nanos::MAX / 2;

/// Nanoseconds that `bytes` take at `bytes_per_us` (a microsecond's worth = the rate in MB/s),
/// rounded up; no time at all at rate 0, which means "not limited".
#[must_use]
pub fn transfer_ns(bytes: u64, bytes_per_us: u64) -> Nanos {
    if bytes_per_us == 0 { 0 } else { muldiv_up(bytes, MICROSECOND, bytes_per_us) }
}

/// `a * b / c` rounded down, through 128 bits; saturates.
#[must_use]
pub fn muldiv(a: u64, b: u64, c: u64) -> u64 {
    assert!(c > 0, "division by zero");
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
}

/// `a * b / c` rounded up, through 128 bits; saturates.
#[must_use]
pub fn muldiv_up(a: u64, b: u64, c: u64) -> u64 {
    assert!(c > 0, "division by zero");
    u64::try_from((u128::from(a) * u128::from(b)).div_ceil(u128::from(c))).unwrap_or(u64::MAX)
}

/// `numerator / denominator` in thousandths, rounded to the nearest; 0 when there is nothing to divide by.
#[must_use]
pub fn permille(numerator: u64, denominator: u64) -> u64 {
    if denominator == 0 {
        return 0;
    }
    let rounded = (u128::from(numerator) * 1000 + u128::from(denominator) / 2) / u128::from(denominator);
    u64::try_from(rounded).unwrap_or(u64::MAX)
}

/// A duration for people, three or four figures: `950 ns`, `47.1 us`, `12.3 ms`, `1.08 s`, `95.2
/// s`, `1234 s`.
#[must_use]
pub fn show(ns: Nanos) -> String {
    match ns {
        0..MICROSECOND => format!("{ns} ns"),
        MICROSECOND..MILLISECOND => format!("{} us", decimal(ns, MICROSECOND)),
        MILLISECOND..SECOND => format!("{} ms", decimal(ns, MILLISECOND)),
        _ => format!("{} s", decimal(ns, SECOND)),
    }
}

/// `value / unit` with at least three significant figures, rounded to the nearest.
#[must_use]
pub fn decimal(value: u64, unit: u64) -> String {
    assert!(unit > 0, "division by zero");
    let whole = value / unit;
    let digits = match whole {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let scale = 10_u64.pow(digits);
    let scaled = (u128::from(value) * u128::from(scale) + u128::from(unit) / 2) / u128::from(unit);
    let (whole, fraction) = (scaled / u128::from(scale), scaled % u128::from(scale));
    if digits == 0 {
        format!("{whole}")
    } else {
        format!("{whole}.{fraction:0width$}", width = digits as usize)
    }
}

/// `permille` thousandths as a percentage with one decimal: 527 is `52.7 %`.
#[must_use]
pub fn percent(permille: u64) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (47_120, "47.1 us"),
            (999_999, "1000 us"),
            (12_340_000, "12.3 ms"),
            (1_084_000_000, "1.08 s"),
            (95_240_000_000, "95.2 s"),
            (1_234_400_000_000, "1234 s"),
        ] {
            assert_eq!(show(ns), text);
        }
    }

    #[test]
    fn rates_round_up() {
        assert_eq!(transfer_ns(4096, 0), 0);
        assert_eq!(transfer_ns(4096, 4096), 1000);
        assert_eq!(transfer_ns(1, 3), 334);
        assert_eq!(muldiv(u64::MAX, u64::MAX, 1), u64::MAX);
        assert_eq!(permille(1, 3), 333);
        assert_eq!(permille(1, 0), 0);
        assert_eq!(percent(permille(2, 3)), "66.7 %");
    }
}
