//! Lets the faults of a process through: all of them, or one at a time and seldom.
//!
//! Where several processes need more than there is, the launcher gives them turns, and who has none
//! waits for it at its next fault. It is not shut out for good: whoever has the turn may wait for
//! it (a pipe, a lock in shared memory), so that some faults pass all the same. And only the
//! launcher's word that is fresh counts, so that nobody waits when it is gone.

use overspill_mm::types::Nanos;

/// One fault passes in so long.
const PACE_NS: Nanos = 20_000_000;
/// No word counts for longer than this: clocks may differ, too (time namespaces).
pub const HOLD_NS_MAX: Nanos = 1_000_000_000;

/// The gate before the faults.
#[derive(Debug, Default)]
pub(crate) struct Turnstile {
    /// Shut until then.
    until: Nanos,
    /// But for one fault, from then on.
    next: Nanos,
}

impl Turnstile {
    /// Shuts it until a moment that the launcher told, if that can be; one that has passed opens it.
    pub fn shut(&mut self, until: Nanos, now: Nanos) {
        let is_sane = until > now && until - now <= HOLD_NS_MAX;
        self.until = if is_sane { until } else { 0 };
    }

    /// Is it shut? The clock is read only if it may be.
    pub fn is_shut(&self, now: impl FnOnce() -> Nanos) -> bool {
        self.until > 0 && now() < self.until
    }

    /// May a fault pass?
    pub fn passes(&mut self, now: impl FnOnce() -> Nanos) -> bool {
        if self.until == 0 {
            return true;
        }
        let now = now();
        if now < self.until && now < self.next {
            return false;
        }
        self.next = now + PACE_NS;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn passed(turnstile: &mut Turnstile, looks: core::ops::Range<Nanos>) -> usize {
        looks.filter(|look| turnstile.passes(|| look * MS)).count()
    }

    #[test]
    fn an_open_one_lets_all_pass_and_a_shut_one_a_few() {
        let mut turnstile = Turnstile::default();
        assert_eq!(passed(&mut turnstile, 0..100), 100);
        turnstile.shut(1100 * MS, 100 * MS);
        assert!(turnstile.is_shut(|| 1099 * MS) && !turnstile.is_shut(|| 1100 * MS));
        assert_eq!(passed(&mut turnstile, 100..300), 10);
        turnstile.shut(0, 300 * MS);
        assert_eq!(passed(&mut turnstile, 300..400), 100);
    }

    /// The launcher is gone, or reads another clock.
    #[test]
    fn it_opens_by_itself() {
        let mut turnstile = Turnstile::default();
        turnstile.shut(500 * MS, 0);
        assert_eq!(passed(&mut turnstile, 500..600), 100);
        turnstile.shut(HOLD_NS_MAX + 601 * MS, 600 * MS);
        assert_eq!(passed(&mut turnstile, 600..700), 100);
    }
}
