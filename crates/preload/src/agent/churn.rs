//! Which faults of a process that shares memory with kin were neither copies nor growth: those of buffers
//! that are mapped, filled and freed over and over. Page tables tell, where faults alone do not: of what was
//! copied less is in common.
//!
//! To ask them is dear: it is done when as many faults have come as would matter, for a small part of a
//! processor. Of the faults since then as many are taken for churn as of those before.
//!
//! *The story:* 40 MiB that two children read, beside a parent that filled and freed 5 MiB over and over, are
//! 45 MiB. All those faults were taken for copies, and in 101 MiB 5,000 to 24,000 pages left.

use overspill_sys::{PAGE_SIZE, clock, procfs};

/// So many faults are not worth a question; nor are fewer than this part of what is held.
const FAULTS_MIN: u64 = 256;
const FAULTS_SHARE: u64 = 64;
/// Questions take one part in so many of a processor.
const ASKING_SHARE: u64 = 16;
/// Whole, of [`Churn::share`].
const WHOLE: u64 = 256;

/// The books.
#[derive(Default)]
pub(super) struct Churn {
    counted: Option<Counted>,
    /// Faults that were found to be churn; wraps.
    found: u32,
    /// So many parts in 256 of those that came since are taken for it.
    share: u64,
    /// Nobody is asked before then.
    next: u64,
}

/// When page tables were asked last.
#[derive(Clone, Copy)]
struct Counted {
    faults: u32,
    pages: u64,
    common: u64,
}

/// A look at the process.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    pub(super) now: u64,
    pub(super) faults: u32,
    pub(super) held: u64,
    /// Its memory is managed, and comes and goes by more than faults.
    pub(super) pages: bool,
}

impl Churn {
    /// Faults that may have made copies, or have let the process grow; wraps. `matters`: so much is in common
    /// with kin that copies of it would matter.
    pub(super) fn look(&mut self, sight: Sight, matters: bool) -> u32 {
        self.look_by(sight, matters, pages_in_common)
    }

    fn look_by(&mut self, sight: Sight, matters: bool, ask: impl FnOnce() -> Option<u64>) -> u32 {
        if !matters {
            (self.counted, self.share) = (None, 0);
            return sight.faults.wrapping_sub(self.found);
        }
        let since = |counted: &Counted| u64::from(sight.faults.wrapping_sub(counted.faults));
        let is_worth_it = |counted: &Counted| since(counted) >= FAULTS_MIN + counted.pages / FAULTS_SHARE;
        if self.counted.as_ref().is_none_or(is_worth_it) && sight.now >= self.next {
            self.count(sight, ask);
        }
        let taken = self.counted.as_ref().map_or(0, |counted| since(counted) * self.share / WHOLE);
        sight.faults.wrapping_sub(self.found).wrapping_sub(taken as u32)
    }

    fn count(&mut self, sight: Sight, ask: impl FnOnce() -> Option<u64>) {
        let began = clock::thread_cpu_ns();
        let common = ask();
        let took = clock::thread_cpu_ns().saturating_sub(began);
        self.next = sight.now + (took * ASKING_SHARE).max(1);
        let Some(common) = common else {
            // Where nobody tells all are copies.
            (self.counted, self.share) = (None, 0);
            return;
        };
        let pages = sight.held / PAGE_SIZE as u64;
        let now = Counted { faults: sight.faults, pages, common };
        if let Some(before) = self.counted.replace(now) {
            let faults = sight.faults.wrapping_sub(before.faults);
            // Of a page that two have, half is the other one's; of one that more have, more.
            let copies = 2 * before.common.saturating_sub(common);
            let growth = pages.cast_signed() - before.pages.cast_signed();
            let growth = if sight.pages { growth.max(0) } else { growth };
            let churn =
                (i64::from(faults) - copies.cast_signed() - growth).clamp(0, i64::from(faults)) as u32;
            self.found = self.found.wrapping_add(churn);
            self.share = if faults > 0 { u64::from(churn) * WHOLE / u64::from(faults) } else { 0 };
        }
    }
}

/// What of its pages others have, too, by its part of them. None: nobody tells.
fn pages_in_common() -> Option<u64> {
    let fields = procfs::Fields::read(c"/proc/thread-self/smaps_rollup").ok()?;
    let common = fields.number("Anonymous")?.saturating_sub(fields.number("Pss_Anon")?);
    Some(common / PAGE_SIZE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_SIZE as u64;

    fn sight(now: u64, faults: u32, pages: u64) -> Sight {
        Sight { now: now * 1_000_000_000, faults, held: pages * PAGE, pages: false }
    }

    #[test]
    fn what_is_filled_and_freed_is_no_copy() {
        let mut churn = Churn::default();
        let mut look =
            |now, faults, pages, common| churn.look_by(sight(now, faults, pages), true, || Some(common));
        assert_eq!(look(1, 100, 10_000, 5000), 100);
        assert_eq!(look(2, 200, 10_000, 0), 200, "too few to ask");
        assert_eq!(look(3, 5100, 10_000, 5000), 100);
        assert_eq!(look(4, 5200, 10_000, 0), 100, "these will be like those before");
        assert_eq!(look(5, 6100, 10_000, 4500), 1100, "they were copies");
        assert_eq!(look(6, 8100, 12_000, 4500), 3100, "it grew");
        assert_eq!(look(7, 10_100, 12_000, 4000), 4100, "half of it");
        assert_eq!(look(8, 10_300, 12_000, 0), 4200);
    }

    #[test]
    fn what_was_freed_had_come() {
        let mut churn = Churn::default();
        let mut look = |now, faults, pages| churn.look_by(sight(now, faults, pages), true, || Some(5000));
        assert_eq!(look(1, 100, 15_000), 100, "with a buffer");
        assert_eq!(look(2, 10_100, 10_000), 100, "without one");
    }

    #[test]
    fn where_nothing_is_in_common_or_nobody_tells_all_count() {
        let mut churn = Churn::default();
        assert_eq!(churn.look_by(sight(1, 5000, 100), false, || unreachable!()), 5000);
        assert_eq!(churn.look_by(sight(2, 6000, 100), true, || None), 6000);
        assert_eq!(churn.look_by(sight(3, 9000, 100), true, || None), 9000);
    }

    #[test]
    fn the_kernel_tells() {
        assert!(pages_in_common().is_some());
    }
}
