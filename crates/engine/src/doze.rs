//! How long an agent may sleep between two looks at a process that fills its budget and does nothing.
//!
//! Memory that a program finds without a fault (its C library grows the heap by itself) is seen by
//! looks alone, so that a process at its budget is looked at each millisecond. *The story:* it was
//! while it idled, too, some 900 times a second, for 3 % of a processor.
//!
//! The bound that stays: the budget, 2 %, 8 MiB, and a MiB for each process. What a thread touches
//! at full speed in a pause has to fit into what lies above the budget, and leave some of that for
//! the time in which the agent answers.

/// So many looks in a row at which nothing has changed make a process quiet.
const QUIET_LOOKS: u32 = 250;
/// The pause then.
const QUIET_NS: u64 = 2_000_000;
/// The longest, if the tree's budget is large enough and nobody else is there to awake as well.
const LONGEST_NS: u64 = 5_000_000;
/// What an awakened program does: touch fresh small pages at the speed of a thread.
const AWAKENED_BYTES_PER_MS: u64 = 3 << 20;
/// What may be held beyond the budget, of which a pause takes three quarters at most.
const BEYOND_BYTES: u64 = 8 << 20;
const BEYOND_SHARE: u64 = 50;

/// What shows that a process does something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// Faults so far.
    pub faults: u64,
    /// What it holds.
    pub resident_bytes: u64,
    /// Somebody waits, or something is under way.
    pub is_busy: bool,
}

/// For how many looks a process has been quiet.
#[derive(Clone, Debug, Default)]
pub struct Doze {
    last: Signs,
    quiet: u32,
}

impl Doze {
    /// A look.
    pub fn observe(&mut self, signs: Signs) {
        let is_quiet = signs == self.last && !signs.is_busy;
        self.quiet = if is_quiet { self.quiet.saturating_add(1) } else { 0 };
        self.last = signs;
    }

    /// For how long nobody need look again, in nanoseconds; 0 while it is not quiet. `ram` is the
    /// tree's budget, and `is_alone` says that nobody else has any of it to speak of.
    #[must_use]
    pub fn pause_ns(&self, ram: u64, is_alone: bool) -> u64 {
        match self.quiet {
            ..QUIET_LOOKS => 0,
            _ if !is_alone => QUIET_NS,
            _ => {
                let beyond = (BEYOND_BYTES + ram / BEYOND_SHARE) / 4 * 3;
                (beyond * 1_000_000 / AWAKENED_BYTES_PER_MS).clamp(QUIET_NS, LONGEST_NS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;
    const SIGNS: Signs = Signs { faults: 7, resident_bytes: 64 * MIB, is_busy: false };

    fn quiet(looks: u32) -> Doze {
        let mut doze = Doze::default();
        (0..=looks).for_each(|_| doze.observe(SIGNS));
        doze
    }

    #[test]
    fn who_does_nothing_is_looked_at_more_seldom() {
        assert_eq!(quiet(QUIET_LOOKS - 1).pause_ns(64 * MIB, true), 0);
        let doze = quiet(QUIET_LOOKS);
        assert_eq!(doze.pause_ns(64 * MIB, false), 2 * MS);
        assert_eq!(doze.pause_ns(64 * MIB, true) / (MS / 10), 23);
        assert_eq!(doze.pause_ns(1024 * MIB, true), 5 * MS);
        assert_eq!(doze.pause_ns(1024 * MIB, false), 2 * MS);
    }

    #[test]
    fn any_sign_of_life_ends_it_at_once() {
        let signs = [
            Signs { faults: 8, ..SIGNS },
            Signs { resident_bytes: SIGNS.resident_bytes + 4096, ..SIGNS },
            Signs { resident_bytes: SIGNS.resident_bytes - 4096, ..SIGNS },
            Signs { is_busy: true, ..SIGNS },
        ];
        for sign in signs {
            let mut doze = quiet(10 * QUIET_LOOKS);
            doze.observe(sign);
            assert_eq!(doze.pause_ns(1024 * MIB, true), 0, "{sign:?}");
            (0..QUIET_LOOKS).for_each(|_| doze.observe(sign));
            assert_eq!(doze.pause_ns(1024 * MIB, true) == 0, sign.is_busy, "{sign:?}");
        }
    }

    /// What comes in a pause at the speed of a thread stays within the bound, and a quarter of what
    /// lies above the budget is left.
    #[test]
    fn what_comes_in_a_pause_fits_beyond_the_budget() {
        let doze = quiet(QUIET_LOOKS);
        for mib in [1, 16, 64, 100, 500, 1 << 20] {
            let ram = mib * MIB;
            let beyond = 8 * MIB + ram / 50;
            for is_alone in [false, true] {
                let comes = doze.pause_ns(ram, is_alone) * 3 * MIB / MS;
                assert!(comes <= beyond / 4 * 3 + 1, "{mib} MiB: {comes}");
            }
        }
    }
}
