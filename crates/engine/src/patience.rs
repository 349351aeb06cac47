//! How long something was waited for, as far as the process ran meanwhile.
//!
//! *The story* (by reading): the time was that of the clock. A program that was stopped (SIGSTOP) while a
//! fork waited for its files was ended when it went on.

use overspill_mm::types::Nanos;

/// Who looks less often than this did not run: no more of it counts.
const STEP_NS: Nanos = 50_000_000;

/// Time that was waited, told by who looks again and again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    looked: Option<Nanos>,
    waited: Nanos,
}

impl Patience {
    /// It is waited on at `now`. True while that has not been for so long, all told.
    #[must_use]
    pub fn lasts(&mut self, now: Nanos, most: Nanos) -> bool {
        let looked = self.looked.replace(now).unwrap_or(now);
        self.waited += now.saturating_sub(looked).min(STEP_NS);
        self.waited < most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See the head of this file.
    #[test]
    fn time_in_which_nobody_looks_does_not_count() {
        const MS: Nanos = 1_000_000;
        let mut patience = Patience::default();
        assert!(patience.lasts(7_000 * MS, 5_000 * MS));
        assert!(patience.lasts(7_010 * MS, 5_000 * MS));
        assert!(patience.lasts(90_000 * MS, 5_000 * MS), "it was stopped");
        let looks = (1..1_000).take_while(|&look| patience.lasts((90_000 + 20 * look) * MS, 5_000 * MS));
        assert_eq!(looks.count(), 246, "60 ms had passed before");
    }
}
