//! When the inactive list is too short for its part, so that the active one gives pages up
//! (specification 5.1).

use super::Rules;
use super::lists::Kind;

const GIB_PAGES: u64 = 1 << 18;

/// How many times as long as the inactive list the active one may be, by the memory concerned in
/// pages.
#[must_use]
pub fn inactive_ratio(pages: u64) -> u64 {
    (10 * (pages / GIB_PAGES)).isqrt().max(1)
}

/// Two lists, and what is known beside their lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// Pages on the inactive list.
    pub inactive: u64,
    /// Pages on the active list.
    pub active: u64,
    /// Pages of the whole node.
    pub node: u64,
    /// Has a page of this kind been activated by its refault since the last reclaim?
    pub refaulted: bool,
}

/// Is the inactive list low?
#[must_use]
pub fn is_low(rules: Rules, kind: Kind, lengths: &Lengths) -> bool {
    let &Lengths { inactive, active, node, refaulted } = lengths;
    match (rules, kind) {
        (Rules::Early, Kind::Anon) => inactive * inactive_ratio(node) < active,
        (Rules::Early, Kind::File) => active > inactive,
        (Rules::Late, _) => refaulted || inactive * inactive_ratio(inactive + active) < active,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line "Ratio", value by value.
    #[test]
    fn ratios() {
        let table = [(1, 3), (2, 4), (4, 6), (8, 8), (16, 12), (32, 17), (64, 25), (256, 50), (1024, 101)];
        for (gib, ratio) in table {
            assert_eq!(inactive_ratio(gib * GIB_PAGES), ratio, "{gib} GiB");
        }
        assert_eq!(inactive_ratio(GIB_PAGES - 1), 1);
    }

    #[test]
    fn low_is_what_the_table_says() {
        let lengths = |inactive, active| Lengths { inactive, active, node: 4 * GIB_PAGES, refaulted: false };
        assert!(is_low(Rules::Early, Kind::Anon, &lengths(100, 601)));
        assert!(!is_low(Rules::Early, Kind::Anon, &lengths(100, 600)));
        assert!(is_low(Rules::Early, Kind::File, &lengths(100, 101)));
        assert!(!is_low(Rules::Early, Kind::File, &lengths(100, 100)));
        for kind in [Kind::Anon, Kind::File] {
            // Less than a GiB on both lists: one to one.
            assert!(is_low(Rules::Late, kind, &lengths(100, 101)));
            assert!(!is_low(Rules::Late, kind, &lengths(100, 100)));
            assert!(is_low(Rules::Late, kind, &Lengths { refaulted: true, ..lengths(100, 1) }));
            // One GiB: three to one.
            assert!(!is_low(Rules::Late, kind, &lengths(GIB_PAGES / 4, GIB_PAGES * 3 / 4)));
            assert!(is_low(Rules::Late, kind, &lengths(GIB_PAGES / 4 - 1, GIB_PAGES * 3 / 4 + 1)));
        }
    }
}
