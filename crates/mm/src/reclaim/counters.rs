//! What reclaim counts, with the kernel's names (specification 5.8), split by who reclaimed and by
//! kind; and what is derived.

use super::Reclaimer;
use super::lists::Kind;

/// By who (background, direct; a domain's own counts nowhere), then by kind (anonymous, file).
pub type Split = [[u64; 2]; 2];

/// All values only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Pages of inactive lists that were looked at.
    pub pgscan: Split,
    /// Pages freed.
    pub pgsteal: Split,
    /// Pages of active lists that were looked at.
    pub pgrefill: u64,
    /// Pages that became active.
    pub pgactivate: u64,
    /// Pages that became inactive.
    pub pgdeactivate: u64,
    /// Times that somebody reclaimed for a frame of its own.
    pub allocstall: u64,
    /// Times that somebody waited for background reclaim first.
    pub pgscan_direct_throttle: u64,
    /// Pages that came back, by kind.
    pub workingset_refault: [u64; 2],
    /// Of these, those that became active at once.
    pub workingset_activate: [u64; 2],
    /// Of these, those that had been active before.
    pub workingset_restore: [u64; 2],
    /// Pages whose write reclaim began, by kind.
    pub nr_vmscan_write: [u64; 2],
    /// Pages that are freed as soon as they are clean.
    pub nr_vmscan_immediate_reclaim: u64,
    /// Dirty pages of files that reclaim met and did not write: the flushers are to.
    pub dirty_files_met: u64,
    /// Runs of background reclaim.
    pub pageoutrun: u64,
    /// ... that was woken while it only dozed.
    pub kswapd_low_wmark_hit_quickly: u64,
    /// ... whose frames were gone when it had dozed.
    pub kswapd_high_wmark_hit_quickly: u64,
}

/// Background and direct, as indices of a [`Split`]: reclaim of the whole machine.
fn side(who: Reclaimer) -> Option<usize> {
    match who {
        Reclaimer::Background => Some(0),
        Reclaimer::Direct => Some(1),
        Reclaimer::Domain => None,
    }
}

fn sum(split: &Split, who: Reclaimer) -> u64 {
    side(who).map_or(0, |side| split[side].iter().sum())
}

fn sum_kind(split: &Split, kind: Kind) -> u64 {
    split.iter().map(|kinds| kinds[kind as usize]).sum()
}

impl Counters {
    pub(super) fn scanned(&mut self, who: Reclaimer, kind: Kind, pages: u64) {
        if let Some(side) = side(who) {
            self.pgscan[side][kind as usize] += pages;
        }
    }

    pub(super) fn stolen(&mut self, who: Reclaimer, kind: Kind, pages: u64) {
        if let Some(side) = side(who) {
            self.pgsteal[side][kind as usize] += pages;
        }
    }

    /// What holds of them at any time.
    pub(super) fn check(&self) {
        let pairs = self.pgsteal.iter().flatten().zip(self.pgscan.iter().flatten());
        let activated = self.workingset_activate.iter().zip(&self.workingset_refault);
        let restored = self.workingset_restore.iter().zip(&self.workingset_activate);
        let all = pairs.chain(activated).chain(restored);
        assert!(all.into_iter().all(|(part, all)| part <= all), "a part of it is not more than it: {self:?}");
    }

    /// `pgscan_kswapd`, `pgscan_direct`.
    #[must_use]
    pub fn pgscan_by(&self, who: Reclaimer) -> u64 {
        sum(&self.pgscan, who)
    }

    /// `pgsteal_kswapd`, `pgsteal_direct`.
    #[must_use]
    pub fn pgsteal_by(&self, who: Reclaimer) -> u64 {
        sum(&self.pgsteal, who)
    }

    /// `pgscan_anon`, `pgscan_file`.
    #[must_use]
    pub fn pgscan_of(&self, kind: Kind) -> u64 {
        sum_kind(&self.pgscan, kind)
    }

    /// `pgsteal_anon`, `pgsteal_file`.
    #[must_use]
    pub fn pgsteal_of(&self, kind: Kind) -> u64 {
        sum_kind(&self.pgsteal, kind)
    }

    /// Percent of the pages looked at that were freed.
    #[must_use]
    pub fn efficiency(&self, who: Reclaimer) -> u64 {
        self.pgsteal_by(who) * 100 / self.pgscan_by(who).max(1)
    }

    /// Pages looked at in a second, times 1000.
    #[must_use]
    pub fn velocity_milli(&self, who: Reclaimer, elapsed_ns: u64) -> u64 {
        let scanned = u128::from(self.pgscan_by(who)) * 1_000_000_000_000;
        u64::try_from(scanned / u128::from(elapsed_ns.max(1))).unwrap_or(u64::MAX)
    }

    /// Percent of the pages looked at that were looked at by those who waited.
    #[must_use]
    pub fn direct_share(&self) -> u64 {
        let direct = self.pgscan_by(Reclaimer::Direct);
        direct * 100 / (direct + self.pgscan_by(Reclaimer::Background)).max(1)
    }

    /// Pages written by reclaim: all, of files, of swap.
    #[must_use]
    pub fn page_writes(&self) -> [u64; 3] {
        let [anon, file] = self.nr_vmscan_write;
        [anon + file, file, anon]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The announcement's own derived values, from its own counters.
    #[test]
    fn derived_values_of_the_announcement() {
        let before = Counters {
            pgscan: [[0, 15_921_292], [0, 4_935_171]],
            pgsteal: [[0, 15_913_301], [0, 4_933_368]],
            ..Counters::default()
        };
        assert_eq!([Reclaimer::Background, Reclaimer::Direct].map(|who| before.efficiency(who)), [99, 99]);
        assert_eq!(before.direct_share(), 23);
        // 23.76 s.
        let elapsed_ns = 23_760_000_000;
        assert_eq!(before.velocity_milli(Reclaimer::Background, elapsed_ns) / 1000, 670_088);
        let after = Counters { pgscan: [[0, 16_258_483], [0, 4_602_313]], ..Counters::default() };
        assert_eq!(after.direct_share(), 22);
    }

    #[test]
    fn both_splits_add_up() {
        let mut counters = Counters::default();
        counters.scanned(Reclaimer::Background, Kind::Anon, 1);
        counters.scanned(Reclaimer::Background, Kind::File, 10);
        counters.scanned(Reclaimer::Direct, Kind::Anon, 100);
        counters.scanned(Reclaimer::Domain, Kind::File, 1000);
        assert_eq!(counters.pgscan_by(Reclaimer::Background), 11);
        assert_eq!(counters.pgscan_by(Reclaimer::Direct), 100);
        assert_eq!([Kind::Anon, Kind::File].map(|kind| counters.pgscan_of(kind)), [101, 10]);
    }
}
