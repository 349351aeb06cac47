//! The knee of the curve, in one sentence: how much RAM is enough, and where thrashing begins.
//!
//! Two bisections over the RAM, each a dozen simulations: the least RAM with which the run takes at
//! most 1.10 times as long as with all it wants, and the most with which it takes at least twice as
//! long. Times are taken to fall as RAM grows. They do not always: so what was found is tried with
//! a little more RAM, too, and where that is slow the search goes on above it. What a trace cannot
//! tell is not said: there is a floor below which nothing is tried, and of a trace that has no
//! times of its own it is the misses that count.

use crate::options::show_bytes;
use crate::time::muldiv;
use overspill_mm::types::PAGE_SIZE;
use serde::Serialize;

/// "As fast as with all the RAM", in thousandths of its time.
pub const FINE_PERMILLE: u64 = 1100;
/// "Thrashing."
pub const THRASH_PERMILLE: u64 = 2000;
/// With so much more RAM than was found, in thousandths, it has to be fine, too.
///
/// *The story:* of a loop over 16 MiB it was said that "with 17.8 MiB the run takes 0.92x", the one lucky
/// point of twelve: with 18 to 19 MiB it took 1.4 to 1.6 times as long.
const MORE_PERMILLE: [u64; 3] = [1020, 1050, 1100];
/// The answer's resolution: a share of the workload's pages.
const STEPS: u64 = 200;
/// ... and no less than so many.
const STEP_PAGES_MIN: u64 = 64;

/// What a run is judged by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// How long it takes, in nanoseconds.
    Time,
    /// How often a page was not there: for traces whose times are not those of a program.
    Misses,
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Knee {
    /// What was counted.
    pub cost: Cost,
    /// Bytes of all pages of the workload.
    pub whole_bytes: u64,
    /// The cost with all of it in RAM.
    pub unlimited: u64,
    /// The least RAM that is fine, and the cost with it.
    pub fine: (u64, u64),
    /// The most RAM with which it thrashes, and the cost with it; `None`: not with as little as was
    /// tried.
    pub thrash: Option<(u64, u64)>,
    /// The least RAM that was tried and with which it does not thrash, and the cost with it.
    pub least: (u64, u64),
    /// Nothing was tried below, and this is why there may be more to know.
    pub floor: Option<u64>,
}

/// What to look for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// What counts.
    pub cost: Cost,
    /// Bytes of all pages of the workload.
    pub whole_bytes: u64,
    /// Below this the workload cannot tell anything.
    pub floor: Option<u64>,
}

/// Of a workload of so few pages no threshold can be told.
#[must_use]
pub fn too_small(whole_bytes: u64) -> Option<String> {
    let least = 4 * STEP_PAGES_MIN * PAGE_SIZE;
    (whole_bytes < least).then(|| {
        let whole = show_bytes(whole_bytes);
        format!(
            "a workload of {whole} is too small to tell how much RAM is enough: {} is the least",
            show_bytes(least)
        )
    })
}

/// Finds the knee. `simulate` says what the workload costs with that much RAM.
pub fn find<E>(question: Question, mut simulate: impl FnMut(u64) -> Result<u64, E>) -> Result<Knee, E> {
    let Question { cost, whole_bytes, floor } = question;
    let step = (whole_bytes / STEPS).max(STEP_PAGES_MIN * PAGE_SIZE);
    // So much that nobody need manage the program.
    let all = whole_bytes + whole_bytes / 2 + 256 * PAGE_SIZE;
    let unlimited = simulate(all)?;
    let slow =
        |cost: u64, permille: u64| u128::from(cost) * 1000 > u128::from(unlimited) * u128::from(permille);
    let bottom = floor.unwrap_or(step).min(all);
    let at_bottom = (bottom, simulate(bottom)?);
    let mut fine = if slow(at_bottom.1, FINE_PERMILLE) { (all, unlimited) } else { at_bottom };
    let mut short = bottom;
    loop {
        while fine.0 - short > step {
            let ram_bytes = short + (fine.0 - short) / 2;
            let cost = simulate(ram_bytes)?;
            if slow(cost, FINE_PERMILLE) { short = ram_bytes } else { fine = (ram_bytes, cost) }
        }
        let mut slow_above = None;
        for permille in MORE_PERMILLE {
            let ram_bytes = muldiv(fine.0, permille, 1000);
            if ram_bytes < all && slow(simulate(ram_bytes)?, FINE_PERMILLE) {
                slow_above = Some(ram_bytes);
            }
        }
        // Each time it is a step higher, or the end.
        let Some(ram_bytes) = slow_above else { break };
        (short, fine) = (ram_bytes, (all, unlimited));
    }
    let (mut thrash, mut least) = (None, at_bottom);
    if slow(at_bottom.1, THRASH_PERMILLE) {
        (thrash, least) = (Some(at_bottom), fine);
        let mut high = fine.0;
        while let Some((low, _)) = thrash.filter(|(low, _)| high - low > step) {
            let ram_bytes = low + (high - low) / 2;
            let cost = simulate(ram_bytes)?;
            if slow(cost, THRASH_PERMILLE) {
                thrash = Some((ram_bytes, cost));
            } else {
                high = ram_bytes;
                least = (ram_bytes, cost);
            }
        }
    }
    Ok(Knee { cost, whole_bytes, unlimited, fine, thrash, least, floor })
}

/// `1.08x`.
fn ratio(cost: u64, of: u64) -> String {
    let hundredths = (u128::from(cost) * 100 + u128::from(of) / 2) / u128::from(of.max(1));
    format!("{}.{:02}x", hundredths / 100, hundredths % 100)
}

impl Knee {
    /// The sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let (verb, thing) = match self.cost {
            Cost::Time => ("takes", "the run"),
            Cost::Misses => ("has", "it"),
        };
        let times = |cost| ratio(cost, self.unlimited);
        let of = match self.cost {
            Cost::Time => "of unlimited RAM",
            Cost::Misses => "of the misses with unlimited RAM",
        };
        let (fine_bytes, fine_cost) = self.fine;
        // Less RAM is no gain: what is below is chance.
        let fine_times = times(fine_cost.max(self.unlimited));
        let fine = format!("with {} {thing} {verb} {fine_times} {of}", show_bytes(fine_bytes));
        let rest = match self.thrash {
            Some((bytes, cost)) => format!("below {} it thrashes ({})", show_bytes(bytes), times(cost)),
            None if self.least.0 == fine_bytes => "it does not thrash there".to_owned(),
            None => {
                let (bytes, cost) = self.least;
                format!("it does not thrash with as little as {}: {}", show_bytes(bytes), times(cost))
            }
        };
        match self.floor {
            Some(floor) if self.thrash.is_none_or(|(bytes, _)| bytes == floor) || fine_bytes == floor => {
                format!(
                    "{fine}; {rest}; about less than {}, the RAM of its run, the trace says nothing",
                    show_bytes(floor)
                )
            }
            _ => format!("{fine}; {rest}"),
        }
    }

    /// The command that follows from it.
    #[must_use]
    pub fn command(&self) -> String {
        let mebibytes = self.fine.0.div_ceil(1 << 20);
        format!("overspill run --ram {mebibytes}M -- CMD")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const TIME: Question = Question { cost: Cost::Time, whole_bytes: 1 << 30, floor: None };

    #[test]
    fn a_knee_is_found_where_it_is() {
        // 1 s with 600 MiB and more, 1 s more for every 100 MiB less.
        let time = |ram_bytes: u64| -> Result<u64, Infallible> {
            let missing = (600_u64 << 20).saturating_sub(ram_bytes);
            Ok(1_000_000_000 + missing * 10_000_000 / (1 << 20))
        };
        let knee = find(TIME, time).expect("no error");
        let near = |bytes: u64, expected: u64| bytes.abs_diff(expected << 20) <= 6 << 20;
        assert!(near(knee.fine.0, 590), "{knee:?}");
        assert!(near(knee.thrash.expect("it does").0, 500), "{knee:?}");
        let sentence = knee.sentence();
        assert!(sentence.starts_with("with 59"), "{sentence}");
        assert!(sentence.contains("; below 49") || sentence.contains("; below 50"), "{sentence}");
    }

    /// See [`MORE_PERMILLE`].
    #[test]
    fn one_lucky_point_is_not_believed() {
        let slow = [(0..1780, 2100), (1790..1815, 1630), (1830..1850, 1580), (1880..1905, 1400)];
        let cost = |ram_bytes: u64| {
            let hundredths = (ram_bytes * 100) >> 20;
            let permille = slow.iter().find(|(range, _)| range.contains(&hundredths)).map(|(_, cost)| *cost);
            let lucky = if hundredths < 2400 { 920 } else { 1000 };
            Ok::<_, Infallible>(permille.unwrap_or(lucky) * 8600)
        };
        let knee = find(Question { whole_bytes: 16 << 20, ..TIME }, cost).expect("no error");
        assert!((knee.fine.0 * 100) >> 20 >= 1905, "{knee:?}");
        assert!(knee.sentence().contains(" takes 1.00x of unlimited RAM"), "{}", knee.sentence());
    }

    #[test]
    fn some_loads_never_thrash() {
        let knee = find(TIME, |_| Ok::<_, Infallible>(5_000_000_000)).expect("no error");
        assert!(
            knee.sentence().contains("1.00x of unlimited RAM; it does not thrash there"),
            "{}",
            knee.sentence()
        );
    }

    /// *The story:* of a sort that takes 1.27 times as long in a sixth of its RAM it was said that
    /// it has little use for more.
    #[test]
    fn what_never_thrashes_may_still_be_slower() {
        let time =
            |ram_bytes: u64| Ok::<_, Infallible>(if ram_bytes < 600 << 20 { 1_270_000 } else { 1_000_000 });
        let knee = find(TIME, time).expect("no error");
        assert!(knee.thrash.is_none() && knee.fine.0 >= 600 << 20 && knee.least.0 < 64 << 20, "{knee:?}");
        assert!(knee.sentence().ends_with("MiB: 1.27x"), "{}", knee.sentence());
    }

    /// *The story:* of a trace that was made in 700 MiB it was said that below 40 MiB it thrashes.
    /// It cannot know.
    #[test]
    fn what_the_trace_cannot_tell_is_neither_tried_nor_said() {
        let floor = 700 << 20;
        let time = |ram_bytes: u64| {
            assert!(ram_bytes >= floor, "{ram_bytes} is below the RAM of the run");
            let missing = (600_u64 << 20).saturating_sub(ram_bytes);
            Ok::<_, Infallible>(1_000_000_000 + missing * 10_000_000 / (1 << 20))
        };
        let knee = find(Question { floor: Some(floor), ..TIME }, time).expect("no error");
        assert_eq!((knee.fine.0, knee.thrash), (floor, None));
        let sentence = knee.sentence();
        assert!(sentence.contains("about less than 700 MiB") && !sentence.contains("below"), "{sentence}");
        // Where the knee is above it the floor is no matter.
        let above = Question { floor: Some(100 << 20), ..TIME };
        let slow_below_600 =
            |ram_bytes: u64| Ok::<_, Infallible>(if ram_bytes < 600 << 20 { 5_000_000 } else { 1_000_000 });
        let sentence = find(above, slow_below_600).expect("no error").sentence();
        assert!(sentence.contains("it thrashes (5.00x)") && !sentence.contains("says nothing"), "{sentence}");
        assert!(too_small(1 << 19).is_some() && too_small(1 << 20).is_none());
        let misses = find(Question { cost: Cost::Misses, ..TIME }, slow_below_600).expect("no error");
        assert!(
            misses.sentence().contains("it has 1.00x of the misses with unlimited RAM"),
            "{}",
            misses.sentence()
        );
        assert!(misses.command().starts_with("overspill run --ram 60"), "{}", misses.command());
    }
}
