//! How long an agent may sleep between two looks at a process that fills its budget and does nothing.
//!
//! Memory that a program finds without a fault (its C library grows the heap by itself) is seen by
//! looks alone, so that a process at its budget is looked at each millisecond. *The story:* it was
//! while it idled, too, some 900 times a second, for 7 to 9 % of a processor (all threads
//! of the process counted).
//!
//! The bound that stays: the budget, 2 %, 8 MiB, and a MiB for each process. What all threads that
//! may awake touch at full speed in a pause has to fit into what lies above the budget, and leave
//! some of that for the time in which the agent answers. Where it does not, nobody dozes.
//!
//! *The story:* a pause was as long as one thread takes. Two that awoke in 600 MiB came to hold 30
//! MiB more, of 20 that are allowed; a look a millisecond had kept them below.

use crate::growth::{AWAKENED_BYTES_PER_MS, FASTEST_BYTES_PER_MS};

/// So many looks in a row at which nothing has changed make a process quiet.
const QUIET_LOOKS: u32 = 250;
/// The longest pause then, if nobody else is there to awake as well, and beside others.
const LONGEST_NS: u64 = 5_000_000;
const BESIDE_OTHERS_NS: u64 = 2_000_000;
/// Shorter ones are not worth the name: so often it is looked at anyway.
const SHORTEST_NS: u64 = 1_000_000;
/// What may be held beyond the budget, of which a pause takes three quarters at most.
const BEYOND_BYTES: u64 = 8 << 20;
const BEYOND_SHARE: u64 = 50;

/// Who may awake, and how fast memory can come then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleepers {
    /// Threads of the program.
    pub threads: u32,
    /// Processors of the machine: no more threads run at a time.
    pub processors: u32,
    /// Nobody else has any of the tree's budget to speak of.
    pub is_alone: bool,
    /// Fresh memory may come in huge pages.
    pub has_huge_pages: bool,
}

impl Sleepers {
    fn bytes_per_ms(&self) -> u64 {
        let runs = if self.is_alone { self.threads.min(self.processors) } else { self.processors };
        let small = u64::from(runs.max(1)) * AWAKENED_BYTES_PER_MS;
        if self.has_huge_pages { small.max(FASTEST_BYTES_PER_MS) } else { small }
    }
}

/// What shows that a process does something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// Faults so far.
    pub faults: u64,
    /// What it holds.
    pub resident_bytes: u64,
    /// Its threads.
    pub threads: u32,
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

    /// Has nothing happened for long?
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.quiet >= QUIET_LOOKS
    }

    /// For how long nobody need look again, in nanoseconds; 0 while it is not quiet, or could hold
    /// too much by then. `ram` is the tree's budget.
    #[must_use]
    pub fn pause_ns(&self, ram: u64, sleepers: &Sleepers) -> u64 {
        if !self.is_quiet() {
            return 0;
        }
        let allowance = (BEYOND_BYTES + ram / BEYOND_SHARE) / 4 * 3;
        let longest = if sleepers.is_alone { LONGEST_NS } else { BESIDE_OTHERS_NS };
        let pause = (allowance * 1_000_000 / sleepers.bytes_per_ms()).min(longest);
        if pause > SHORTEST_NS { pause } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;
    const SIGNS: Signs = Signs { faults: 7, resident_bytes: 64 * MIB, threads: 1, is_busy: false };
    const ONE: Sleepers = Sleepers { threads: 1, processors: 2, is_alone: true, has_huge_pages: false };

    fn quiet(looks: u32) -> Doze {
        let mut doze = Doze::default();
        (0..=looks).for_each(|_| doze.observe(SIGNS));
        doze
    }

    #[test]
    fn who_does_nothing_is_looked_at_more_seldom() {
        assert_eq!(quiet(QUIET_LOOKS - 1).pause_ns(64 * MIB, &ONE), 0);
        let tenths = |mib, sleepers| quiet(QUIET_LOOKS).pause_ns(mib * MIB, &sleepers) / (MS / 10);
        let two = Sleepers { threads: 2, ..ONE };
        let huge = Sleepers { has_huge_pages: true, ..ONE };
        let beside = Sleepers { is_alone: false, ..ONE };
        let many = Sleepers { threads: 40, processors: 16, ..ONE };
        assert_eq!([64, 100, 600, 1024].map(|mib| tenths(mib, ONE)), [23, 25, 50, 50]);
        assert_eq!([64, 100, 600, 4096].map(|mib| tenths(mib, two)), [11, 12, 25, 50]);
        assert_eq!([64, 100, 600, 4096].map(|mib| tenths(mib, huge)), [0, 0, 15, 50]);
        assert_eq!([64, 100, 600, 4096].map(|mib| tenths(mib, beside)), [11, 12, 20, 20]);
        assert_eq!([64, 600, 1024, 4096].map(|mib| tenths(mib, many)), [0, 0, 0, 14]);
    }

    #[test]
    fn any_sign_of_life_ends_it_at_once() {
        let signs = [
            Signs { faults: 8, ..SIGNS },
            Signs { resident_bytes: SIGNS.resident_bytes + 4096, ..SIGNS },
            Signs { resident_bytes: SIGNS.resident_bytes - 4096, ..SIGNS },
            Signs { threads: 2, ..SIGNS },
            Signs { is_busy: true, ..SIGNS },
        ];
        for sign in signs {
            let mut doze = quiet(10 * QUIET_LOOKS);
            doze.observe(sign);
            assert_eq!(doze.pause_ns(1024 * MIB, &ONE), 0, "{sign:?}");
            (0..QUIET_LOOKS).for_each(|_| doze.observe(sign));
            assert_eq!(doze.pause_ns(1024 * MIB, &ONE) == 0, sign.is_busy, "{sign:?}");
        }
    }

    /// What comes in a pause at the speed of all that may run stays within the bound, and a quarter
    /// of what lies above the budget is left.
    #[test]
    fn what_comes_in_a_pause_fits_beyond_the_budget() {
        let doze = quiet(QUIET_LOOKS);
        for mib in [1, 16, 64, 100, 500, 600, 4096, 1 << 20] {
            let ram = mib * MIB;
            let beyond = 8 * MIB + ram / 50;
            for bits in 0..4 * 20 {
                let (threads, is_alone, has_huge_pages) = (bits / 4, bits & 1 != 0, bits & 2 != 0);
                let sleepers = Sleepers { threads, processors: 8, is_alone, has_huge_pages };
                let runs = if is_alone { u64::from(threads.min(8)) } else { 8 };
                let speed = (runs * 3).max(if has_huge_pages { 10 } else { 0 });
                let comes = doze.pause_ns(ram, &sleepers) * speed * MIB / MS;
                assert!(comes <= beyond / 4 * 3 + 1, "{mib} MiB, {sleepers:?}: {comes}");
            }
        }
    }
}
