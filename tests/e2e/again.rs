//! Tests whose data were right, and which only held too much for an instant, are run again.
//!
//! How much a program holds at its peak depends on the host: a virtual processor that is withheld
//! from the agent for 15 ms, while the program touches fresh memory, is 45 MiB. So such a run is
//! repeated, twice at most; every repetition is told and counted. Wrong data, hangs and wrong
//! statuses are errors, and never repeated.

use std::fmt::Write as _;

use crate::Outcome;

/// Runs of a test at most.
const RUNS_MAX: usize = 3;

/// What a run whose data were right has held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The most anonymous memory of a process.
    pub bytes: u64,
    /// What its budget allows.
    pub bound_bytes: u64,
    /// What to say if that is less.
    pub complaint: String,
}

impl Held {
    fn is_excess(&self) -> bool {
        self.bytes > self.bound_bytes
    }
}

/// How a run ended whose data were right: with what it held, if that has a bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Verdict(pub Option<Held>);

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self(None)
    }
}

impl Verdict {
    /// Whether the bound was passed.
    pub fn is_excess(&self) -> bool {
        self.0.as_ref().is_some_and(Held::is_excess)
    }
}

/// Runs a test, and again as long as it does nothing worse than to pass its bound; and what there
/// is to say of repetitions.
pub fn repeat(mut run: impl FnMut() -> Outcome<Verdict>) -> (Outcome, Option<String>) {
    let mut history = String::new();
    for left in (0..RUNS_MAX).rev() {
        let verdict = match run() {
            Ok(verdict) => verdict,
            Err(complaint) => return (Err(complaint), told(history)),
        };
        let excess = verdict.is_excess();
        let Some(held) = verdict.0 else { return (Ok(()), told(history)) };
        if history.is_empty() && !excess {
            return (Ok(()), None);
        }
        let _ = match history.is_empty() {
            true => write!(history, "{} of {} MiB", mib(held.bytes), mib(held.bound_bytes)),
            false => write!(history, ", again: {}", mib(held.bytes)),
        };
        if !excess {
            return (Ok(()), told(history));
        }
        if left == 0 {
            return (Err(held.complaint), told(history));
        }
    }
    unreachable!("the last run is judged");
}

fn told(history: String) -> Option<String> {
    (!history.is_empty()).then_some(history)
}

/// MiB with one digit.
pub fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / crate::launch::MIB as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::MIB;

    /// The runs end one after another in `ends`: MiB held of 73, or an error. What comes out, and
    /// how many runs there were.
    fn runs(ends: &[Result<u64, &str>]) -> (Outcome, Option<String>, usize) {
        let mut count = 0;
        let (outcome, told) = repeat(|| {
            count += 1;
            let held = |mib| {
                Verdict(Some(Held {
                    bytes: mib * MIB,
                    bound_bytes: 73 * MIB,
                    complaint: format!("held {mib}"),
                }))
            };
            ends[count - 1].map(held).map_err(str::to_owned)
        });
        (outcome, told, count)
    }

    #[test]
    fn what_stays_within_its_bound_is_run_once() {
        assert_eq!(runs(&[Ok(73)]), (Ok(()), None, 1));
        let mut count = 0;
        let unbounded = || {
            count += 1;
            Ok(().into())
        };
        assert_eq!(repeat(unbounded), (Ok(()), None));
        assert_eq!(count, 1);
    }

    #[test]
    fn what_passes_its_bound_is_run_again_and_told() {
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(runs(&[Ok(75), Ok(61)]), (Ok(()), told("75.0 of 73.0 MiB, again: 61.0"), 2));
        let twice = told("75.0 of 73.0 MiB, again: 74.0, again: 61.0");
        assert_eq!(runs(&[Ok(75), Ok(74), Ok(61)]), (Ok(()), twice, 3));
        let thrice = told("75.0 of 73.0 MiB, again: 74.0, again: 90.0");
        assert_eq!(runs(&[Ok(75), Ok(74), Ok(90), Ok(61)]), (Err("held 90".to_owned()), thrice, 3));
    }

    /// Neither the first time nor after an excess.
    #[test]
    fn errors_are_never_run_again() {
        assert_eq!(runs(&[Err("wrong data"), Ok(61)]), (Err("wrong data".to_owned()), None, 1));
        let (outcome, told, count) = runs(&[Ok(75), Err("wrong data"), Ok(61)]);
        assert_eq!((outcome, count), (Err("wrong data".to_owned()), 2));
        assert_eq!(told.as_deref(), Some("75.0 of 73.0 MiB"));
    }
}
