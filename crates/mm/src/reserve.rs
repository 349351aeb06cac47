//! How much of its budget a live pager keeps free for what the program maps and touches between two
//! looks at it: as much as memory that nobody manages grew between two looks lately.
//!
//! Here because the simulated pager keeps it, too: when management starts, all that the program
//! holds has just been found, and for a while the budget is smaller by 16 MiB, 8, 4 and 2. *The
//! story:* the simulation left that out. It evicted 16,000 pages of a program that fills its memory
//! where the pager evicted 21,000, and three laps later other pages were out: in strides 6 to 18 %
//! too many were read ahead.

/// At the least so much, or a twentieth of the budget if that is less.
const LEAST_BYTES: u64 = 1 << 20;
const LEAST_SHARE: u64 = 20;
/// At most so much, and no more than this share of the budget (an eighth).
const MOST_BYTES: u64 = 16 << 20;
const MOST_SHARE: u64 = 8;
/// After this time without another such growth half of it is expected. *The story:* it was half a
/// second, so that a load at random that took 2.3 s had 3 % fewer pages in RAM and as many more
/// faults than it would have had of the kernel.
pub const HALVES_NS: u64 = 100_000_000;

/// The reserve of a budget. A program that has just mapped and touched fresh memory at full speed
/// will do so again, and all processors may be busy with it when the next look is due.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    /// The budget in bytes.
    ram: u64,
    /// The largest recent growth.
    burst: u64,
    /// When it was seen, or halved, in nanoseconds.
    since: u64,
}

impl Reserve {
    /// Of a budget of `ram` bytes, nothing of which has grown yet.
    #[must_use]
    pub fn new(ram: u64) -> Self {
        Reserve { ram, burst: 0, since: 0 }
    }

    /// A look: what nobody manages grew by `growth` bytes; `now` is in nanoseconds.
    pub fn observe(&mut self, growth: u64, now: u64) {
        let growth = growth.min(MOST_BYTES).min(self.ram / MOST_SHARE);
        if growth >= self.burst {
            *self = Reserve { burst: growth, since: now, ..*self };
        } else if now >= self.since + HALVES_NS {
            *self = Reserve { burst: self.burst / 2, since: now, ..*self };
        }
    }

    /// What is kept free, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.least_bytes().max(self.burst)
    }

    /// What is kept free where so much is there for whoever grows.
    ///
    /// *The story:* a program of 60 MiB in 100M that had a neighbour grew by 29 MiB at once. It might have a
    /// 16th above what it held, and an eighth was kept free of that: so pages left, it held less, and might
    /// have less at the next look, a millisecond later. It ended with 2 MiB, beside 76 that nobody had
    /// (`trees::two-that-fit`).
    #[must_use]
    pub fn beside(&self, spare: u64) -> u64 {
        self.bytes().saturating_sub(spare).max(self.least_bytes())
    }

    /// What is kept free of it when nothing has grown for a while.
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        LEAST_BYTES.min(self.ram / LEAST_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn it_follows_the_largest_growth_and_halves() {
        let mut reserve = Reserve::new(512 * MIB);
        assert_eq!(reserve.bytes(), MIB);
        reserve.observe(5 * MIB, 0);
        reserve.observe(3 * MIB, HALVES_NS - 1);
        assert_eq!(reserve.bytes(), 5 * MIB);
        reserve.observe(0, HALVES_NS);
        assert_eq!(reserve.bytes(), 5 * MIB / 2);
        reserve.observe(100 * MIB, HALVES_NS + 1);
        assert_eq!(reserve.bytes(), 16 * MIB);
        for halves in 2..=6 {
            reserve.observe(0, halves * HALVES_NS + 1);
        }
        assert_eq!(reserve.bytes(), MIB);
    }

    #[test]
    fn what_is_free_anyway_need_not_be_kept_free() {
        let mut reserve = Reserve::new(100 * MIB);
        reserve.observe(29 * MIB, 0);
        let kept = [0, 5 * MIB, 50 * MIB].map(|spare| reserve.beside(spare));
        assert_eq!(kept, [25 * MIB / 2, 15 * MIB / 2, MIB]);
    }

    #[test]
    fn small_budgets_keep_a_share() {
        let mut reserve = Reserve::new(10 * MIB);
        assert_eq!(reserve.bytes(), MIB / 2);
        reserve.observe(u64::MAX, 0);
        assert_eq!(reserve.bytes(), 10 * MIB / 8);
        let mut none = Reserve::new(0);
        none.observe(1, 0);
        assert_eq!(none.bytes(), 0);
    }
}
