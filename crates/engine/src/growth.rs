//! When management starts: before a program that grows fast could pass its budget while the agent is put off.
//!
//! *The story:* management started at 73 % of the budget, however fast memory grew. In 64 MiB, at 3 MB a millisecond, that
//! leaves 9 ms until the bound is passed, and on a busy host a virtual processor is withheld for longer than that.

/// Management starts at this share of the budget at the latest, in percent.
const LATEST_PERCENT: u64 = 73;
/// And at this share at the earliest, however fast memory grows.
const EARLIEST_PERCENT: u64 = 33;
/// For so long the agent may be put off without the budget being passed.
const LEAD_NS: u64 = 20_000_000;
/// But no more memory than this is taken to come meanwhile: in a budget of hundreds of MiB it is less than what lies above the
/// latest start anyway, so that there a program that stays below that is never managed, even if it came there fast.
const LEAD_BYTES_MAX: u64 = 48 << 20;
/// So many looks are remembered.
const LOOKS: usize = 4;

/// How fast anonymous memory grew, from look to look.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    /// The last look, if there was one: bytes, and when in nanoseconds.
    last: Option<(u64, u64)>,
    /// What would have come in [`LEAD_NS`] at the rate between two looks, for the last few looks; the oldest is at `oldest`.
    leads: [u64; LOOKS],
    oldest: usize,
}

impl Growth {
    /// A look: `bytes` at `now`, in nanoseconds.
    pub fn observe(&mut self, bytes: u64, now: u64) {
        if let Some((before, then)) = self.last.replace((bytes, now)) {
            let growth = u128::from(bytes.saturating_sub(before));
            let lead = growth * u128::from(LEAD_NS) / u128::from(now.saturating_sub(then).max(1));
            self.leads[self.oldest] = u64::try_from(lead).unwrap_or(u64::MAX);
            self.oldest = (self.oldest + 1) % LOOKS;
        }
    }

    /// From so many bytes on a program with a budget of `ram` bytes is to be managed.
    #[must_use]
    pub fn start_bytes(&self, ram: u64) -> u64 {
        let lead = self.leads.into_iter().max().unwrap_or(0).min(LEAD_BYTES_MAX);
        ram.saturating_sub(lead).clamp(Self::earliest_bytes(ram), ram / 100 * LATEST_PERCENT)
    }

    /// The least that [`Self::start_bytes`] can ever be.
    #[must_use]
    pub fn earliest_bytes(ram: u64) -> u64 {
        ram.saturating_sub(LEAD_BYTES_MAX).clamp(ram / 100 * EARLIEST_PERCENT, ram / 100 * LATEST_PERCENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;

    /// A program that grew by `steps` bytes, a millisecond apart.
    fn grown(steps: &[u64]) -> Growth {
        let mut growth = Growth::default();
        let mut bytes = 0;
        growth.observe(bytes, 0);
        for (step, now) in steps.iter().zip(1..) {
            bytes += step;
            growth.observe(bytes, now * MS);
        }
        growth
    }

    /// See the head of the file: at 73 % of 64 MiB there were 17 MiB left, and 3 MiB came in each millisecond.
    #[test]
    fn in_a_small_budget_fast_growth_starts_early() {
        let start = |steps: &[u64]| grown(steps).start_bytes(64 * MIB);
        assert_eq!(start(&[]), 64 * MIB / 100 * LATEST_PERCENT, "nothing is known yet");
        assert_eq!(start(&[MIB / 2]), 64 * MIB / 100 * LATEST_PERCENT, "10 MiB in 20 ms");
        assert_eq!(start(&[3 * MIB / 2]), 34 * MIB, "30 MiB in 20 ms");
        assert_eq!(start(&[3 * MIB]), 64 * MIB / 100 * EARLIEST_PERCENT, "60 MiB in 20 ms");
    }

    #[test]
    fn the_fastest_of_the_last_few_looks_counts() {
        let start = |steps: &[u64]| grown(steps).start_bytes(64 * MIB);
        assert_eq!(start(&[MIB, 3 * MIB / 2, MIB, 0]), 34 * MIB);
        assert_eq!(start(&[3 * MIB / 2, MIB, 0, 0, 0]), 44 * MIB, "the fastest is forgotten");
        assert_eq!(start(&[3 * MIB / 2, 0, 0, 0, 0]), 64 * MIB / 100 * LATEST_PERCENT);
    }

    /// Less memory is no growth, and a look that comes late sees as much as many that come in time.
    #[test]
    fn rates_count_not_steps() {
        let mut growth = Growth::default();
        for (bytes, now) in [(40 * MIB, 0), (10 * MIB, MS), (25 * MIB, 11 * MS)] {
            growth.observe(bytes, now);
        }
        assert_eq!(growth.start_bytes(64 * MIB), 34 * MIB);
        growth.observe(26 * MIB, 11 * MS);
        assert_eq!(growth.start_bytes(64 * MIB), 64 * MIB / 100 * EARLIEST_PERCENT, "in no time");
    }

    /// In hundreds of MiB a program is left alone below 73 %, however fast it came there.
    #[test]
    fn large_budgets_start_late() {
        for mib in [180, 256, 1000, 1 << 20] {
            let ram = mib * MIB;
            assert_eq!(grown(&[ram / 2]).start_bytes(ram), ram / 100 * LATEST_PERCENT, "{mib} MiB");
            assert_eq!(Growth::earliest_bytes(ram), ram / 100 * LATEST_PERCENT, "{mib} MiB");
        }
    }

    #[test]
    fn any_budget_will_do() {
        for ram in [0, 1, 4096, u64::MAX] {
            let start = grown(&[u64::MAX / 2, 7]).start_bytes(ram);
            assert!(Growth::earliest_bytes(ram) <= start && start <= ram / 100 * LATEST_PERCENT);
        }
    }
}
