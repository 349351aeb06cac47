//! When management starts: before a program that grows fast could pass its budget while the agent is put off.
//!
//! *The story:* management started at 73 % of the budget, however fast memory grew. In 64 MiB, at 3
//! MB a millisecond, that leaves 9 ms until the bound is passed, and on a busy host a virtual
//! processor is withheld for longer than that.

/// Management starts at this share of the budget at the latest, in percent.
const LATEST_PERCENT: u64 = overspill_mm::Config::MANAGED_FROM_PERCENT;
/// And at this share at the earliest, however fast memory grows.
const EARLIEST_PERCENT: u64 = 33;
/// For so long the agent may be put off without the budget being passed.
const LEAD_NS: u64 = 20_000_000;
/// But no more memory than this is taken to come meanwhile: in a budget of hundreds of MiB it is
/// less than what lies above the latest start anyway, so that there a program that stays below that
/// is never managed, even if it came there fast.
const LEAD_BYTES_MAX: u64 = 48 << 20;
/// So many looks are remembered.
const LOOKS: usize = 4;

/// Fastest growth that a look must not miss, in bytes a millisecond: fresh huge pages.
pub(crate) const FASTEST_BYTES_PER_MS: u64 = 10 << 20;
/// A program that did not grow by as much in [`LEAD_NS`] for [`QUIET_NS`] is quiet: it computes.
const QUIET_LEAD_BYTES: u64 = 10 << 20;
const QUIET_NS: u64 = 50_000_000;
/// One that has been quiet for so long has settled.
const SETTLED_NS: u64 = 250_000_000;
/// What a quiet program is taken to do from now on: touch fresh small pages at the speed of a thread.
pub(crate) const AWAKENED_BYTES_PER_MS: u64 = 3 << 20;
/// Until the next look it may come as near to its budget as this, though management starts sooner
/// if it is seen: 11 ms at that speed.
const AWAKENED_LEAD_BYTES: u64 = 32 << 20;

/// How fast anonymous memory grew, from look to look.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    /// The last look, if there was one: bytes, and when in nanoseconds.
    last: Option<(u64, u64)>,
    /// What would have come in [`LEAD_NS`] at the rate between two looks, for the last few looks;
    /// the oldest is at `oldest`.
    leads: [u64; LOOKS],
    oldest: usize,
    /// When it last grew fast, or was first looked at.
    fast: u64,
}

impl Growth {
    /// A look: `bytes` at `now`, in nanoseconds.
    pub fn observe(&mut self, bytes: u64, now: u64) {
        let Some((before, then)) = self.last.replace((bytes, now)) else {
            self.fast = now;
            return;
        };
        let growth = u128::from(bytes.saturating_sub(before));
        let lead = growth * u128::from(LEAD_NS) / u128::from(now.saturating_sub(then).max(1));
        let lead = u64::try_from(lead).unwrap_or(u64::MAX);
        self.leads[self.oldest] = lead;
        self.oldest = (self.oldest + 1) % LOOKS;
        if lead >= QUIET_LEAD_BYTES {
            self.fast = now;
        }
    }

    /// For how long after the last look, in nanoseconds, nobody need look again: until the program,
    /// at its fastest, could hold `next` bytes. *The story:* each look wakes a sleeping processor
    /// or interrupts the program, 16 to 100 us on a virtual machine, and a look a millisecond in
    /// budgets of 64 and 170 MiB cost python3 and gcc 4 to 6 %. So a program that has been quiet
    /// for a while may get half of the way to its budget less 32 MiB, or to the latest start where
    /// that is more (what is left to the bound of 64 MiB takes it 9 ms then), until the next look,
    /// however near `next` is; and one that has settled all of it.
    #[must_use]
    pub fn pause_ns(&self, next: u64, ram: u64) -> u64 {
        let (bytes, now) = self.last.unwrap_or_default();
        let fastest = next.saturating_sub(bytes) * 1_000_000 / FASTEST_BYTES_PER_MS;
        let until = (ram / 100 * LATEST_PERCENT).max(ram.saturating_sub(AWAKENED_LEAD_BYTES));
        let way = until.saturating_sub(bytes);
        let allowed = match now - self.fast {
            ..QUIET_NS => 0,
            QUIET_NS..SETTLED_NS => way / 2,
            SETTLED_NS.. => way,
        };
        fastest.max(allowed * 1_000_000 / AWAKENED_BYTES_PER_MS)
    }

    /// What would come in 20 ms at the fastest rate of the last few looks.
    #[must_use]
    pub fn lead_bytes(&self) -> u64 {
        self.leads.into_iter().max().unwrap_or(0)
    }

    /// From so many bytes on a program with a budget of `ram` bytes is to be managed.
    #[must_use]
    pub fn start_bytes(&self, ram: u64) -> u64 {
        let lead = self.lead_bytes().min(LEAD_BYTES_MAX);
        ram.saturating_sub(lead).clamp(Self::earliest_bytes(ram), Self::latest_bytes(ram))
    }

    /// The most that it can be.
    #[must_use]
    pub fn latest_bytes(ram: u64) -> u64 {
        ram / 100 * LATEST_PERCENT
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

    /// See the head of the file: at 73 % of 64 MiB there were 17 MiB left, and 3 MiB came in each
    /// millisecond.
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

    #[test]
    fn a_quiet_program_is_seldom_looked_at() {
        let mut growth = grown(&[MIB; 10]);
        let pause = |growth: &Growth, next| growth.pause_ns(next, 64 * MIB);
        assert_eq!(pause(&growth, 20 * MIB), MS, "10 MiB at 10 MiB a millisecond");
        for now in 11..60 {
            growth.observe(10 * MIB, now * MS);
            assert_eq!(pause(&growth, 20 * MIB), MS, "after {now} ms");
        }
        growth.observe(10 * MIB + MIB / 4, 60 * MS);
        assert_eq!(
            pause(&growth, 20 * MIB) / (MS / 10),
            60,
            "half of the way to 46.7 MiB at 3 MiB a millisecond, to 0.1 ms"
        );
        assert!(pause(&growth, 200 * MIB) >= 18 * MS, "never sooner than at its fastest");
        growth.observe(10 * MIB + MIB / 4, 260 * MS);
        assert_eq!(pause(&growth, 20 * MIB) / (MS / 10), 121, "all of that way once it has settled");
        assert_eq!(growth.pause_ns(20 * MIB, 170 * MIB) / MS, 42, "10 to 138 MiB");
        growth.observe(12 * MIB, 261 * MS);
        assert_eq!(pause(&growth, 22 * MIB), MS, "it grows again");
        growth.observe(60 * MIB, 262 * MS);
        assert_eq!(pause(&growth, 20 * MIB), 0);
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
