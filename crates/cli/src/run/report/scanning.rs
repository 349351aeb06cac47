//! What reclaim's looks at pages came to, as mmtests derives it from the kernel's counters.

use serde::Serialize;

/// The derived values. Efficiency is of both sides together.
#[derive(Serialize, Debug, Default, Clone, Copy, PartialEq)]
pub struct Scanning {
    /// Pages freed, of 100 looked at; the others were wanted again, or could not be taken.
    pub efficiency_percent: u64,
    /// Pages that background reclaim looked at in a second.
    pub kswapd_velocity: f64,
    /// Pages that were looked at in a second while a fault waited for a frame.
    pub direct_velocity: f64,
    /// Of 100 looks, those while a fault waited.
    pub direct_percent: u64,
}

impl Scanning {
    /// From sums of the counters; `sum` finds them by name.
    pub fn new(sum: impl Fn(&str) -> u64, wall_seconds: f64) -> Scanning {
        let [kswapd, direct] = ["pgscan_kswapd", "pgscan_direct"].map(&sum);
        let freed = sum("pgsteal_kswapd") + sum("pgsteal_direct");
        let scanned = (kswapd + direct).max(1);
        let velocity = |pages: u64| pages as f64 / wall_seconds.max(1e-9);
        Scanning {
            efficiency_percent: freed * 100 / scanned,
            kswapd_velocity: velocity(kswapd),
            direct_velocity: velocity(direct),
            direct_percent: direct * 100 / scanned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The announcement's own derived values, from its own counters.
    #[test]
    fn derived_values_of_the_announcement() {
        let sum = |name: &str| match name {
            "pgscan_kswapd" => 15_921_292,
            "pgscan_direct" => 4_935_171,
            "pgsteal_kswapd" => 15_913_301,
            "pgsteal_direct" => 4_933_368,
            name => unreachable!("{name} is not asked for"),
        };
        let scanning = Scanning::new(sum, 23.76);
        assert_eq!((scanning.efficiency_percent, scanning.direct_percent), (99, 23));
        assert_eq!(
            [scanning.kswapd_velocity, scanning.direct_velocity].map(|v| v as u64),
            [670_088, 207_709]
        );
    }

    #[test]
    fn without_reclaim_nothing_is_derived() {
        assert_eq!(Scanning::new(|_| 0, 0.0), Scanning::default());
    }
}
