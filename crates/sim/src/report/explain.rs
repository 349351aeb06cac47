//! The knee of the curve, in one sentence: how much RAM is enough, and where thrashing begins.
//!
//! Two bisections over the RAM, each a dozen simulations: the least RAM with which the run takes at
//! most 1.10 times as long as with all it wants, and the most with which it takes at least twice as
//! long. Times are taken to fall as RAM grows; where they do not quite, the sentence is about a
//! point near by.

use crate::options::show_bytes;
use crate::time::Nanos;
use overspill_mm::types::PAGE_SIZE;

/// "As fast as with all the RAM", in thousandths of its time.
pub const FINE_PERMILLE: u64 = 1100;
/// "Thrashing."
pub const THRASH_PERMILLE: u64 = 2000;
/// The answer's resolution: a share of the workload's pages.
const STEPS: u64 = 200;

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knee {
    /// Bytes of all pages of the workload.
    pub whole_bytes: u64,
    /// Time with all of it in RAM.
    pub unlimited_ns: Nanos,
    /// The least RAM that is fine, and the time with it.
    pub fine: (u64, Nanos),
    /// The most RAM with which it thrashes, and the time with it; `None` if it never does.
    pub thrash: Option<(u64, Nanos)>,
    /// The least RAM that was tried and with which it does not thrash, and the time with it.
    pub least: (u64, Nanos),
}

/// Finds the knee. `time` simulates the workload with that much RAM.
pub fn find<E>(whole_bytes: u64, mut time: impl FnMut(u64) -> Result<Nanos, E>) -> Result<Knee, E> {
    let step = (whole_bytes / STEPS).max(64 * PAGE_SIZE);
    // So much that nobody need manage the program.
    let all = whole_bytes + whole_bytes / 2 + 256 * PAGE_SIZE;
    let unlimited_ns = time(all)?;
    let slow =
        |ns: Nanos, permille: u64| u128::from(ns) * 1000 > u128::from(unlimited_ns) * u128::from(permille);
    let mut fine = (all, unlimited_ns);
    let mut short = 0;
    while fine.0 - short > step {
        let ram_bytes = short + (fine.0 - short) / 2;
        let ns = time(ram_bytes)?;
        if slow(ns, FINE_PERMILLE) { short = ram_bytes } else { fine = (ram_bytes, ns) }
    }
    let (mut thrash, mut least) = (None, fine);
    let (mut low, mut high) = (0, fine.0);
    while high - low > step {
        let ram_bytes = low + (high - low) / 2;
        let ns = time(ram_bytes)?;
        if slow(ns, THRASH_PERMILLE) {
            thrash = Some((ram_bytes, ns));
            low = ram_bytes;
        } else {
            high = ram_bytes;
            least = (ram_bytes, ns);
        }
    }
    Ok(Knee { whole_bytes, unlimited_ns, fine, thrash, least })
}

/// `1.08x`.
fn ratio(ns: Nanos, of_ns: Nanos) -> String {
    let hundredths = (u128::from(ns) * 100 + u128::from(of_ns) / 2) / u128::from(of_ns.max(1));
    format!("{}.{:02}x", hundredths / 100, hundredths % 100)
}

impl Knee {
    /// The sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let (fine_bytes, fine_ns) = self.fine;
        let fine = format!(
            "with {} the run takes {} of unlimited RAM",
            show_bytes(fine_bytes),
            ratio(fine_ns, self.unlimited_ns)
        );
        match self.thrash {
            Some((bytes, ns)) => {
                format!("{fine}; below {} it thrashes ({})", show_bytes(bytes), ratio(ns, self.unlimited_ns))
            }
            None => {
                let (bytes, ns) = self.least;
                format!(
                    "{fine}; it never thrashes: with {} it takes {}",
                    show_bytes(bytes),
                    ratio(ns, self.unlimited_ns)
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn a_knee_is_found_where_it_is() {
        // 1 s with 600 MiB and more, 1 s more for every 100 MiB less.
        let time = |ram_bytes: u64| -> Result<Nanos, Infallible> {
            let missing = (600_u64 << 20).saturating_sub(ram_bytes);
            Ok(1_000_000_000 + missing * 10_000_000 / (1 << 20))
        };
        let knee = find(1 << 30, time).expect("no error");
        let near = |bytes: u64, expected: u64| bytes.abs_diff(expected << 20) <= 6 << 20;
        assert!(near(knee.fine.0, 590), "{knee:?}");
        assert!(near(knee.thrash.expect("it does").0, 500), "{knee:?}");
        let sentence = knee.sentence();
        assert!(sentence.starts_with("with 59"), "{sentence}");
        assert!(sentence.contains("; below 49") || sentence.contains("; below 50"), "{sentence}");
    }

    #[test]
    fn some_loads_never_thrash() {
        let knee = find(1 << 30, |_| Ok::<_, Infallible>(5_000_000_000)).expect("no error");
        assert!(knee.sentence().contains("1.00x of unlimited RAM; it never thrashes"));
    }

    /// *The story:* of a sort that takes 1.27 times as long in a sixth of its RAM it was said that
    /// it has little use for more.
    #[test]
    fn what_never_thrashes_may_still_be_slower() {
        let time =
            |ram_bytes: u64| Ok::<_, Infallible>(if ram_bytes < 600 << 20 { 1_270_000 } else { 1_000_000 });
        let knee = find(1 << 30, time).expect("no error");
        assert!(knee.thrash.is_none() && knee.fine.0 >= 600 << 20 && knee.least.0 < 64 << 20, "{knee:?}");
        assert!(knee.sentence().ends_with("MiB it takes 1.27x"), "{}", knee.sentence());
    }
}
