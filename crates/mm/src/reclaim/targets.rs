//! How much of each list one round of reclaim looks at (specification 5.3): the special cases,
//! first match, then fractions.

use super::fractions::{Cost, Recent};
use super::lists::{KINDS, Kind, List, PerList};
use super::{BATCH, Reclaimer, Rules};

/// What the rules ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Situation {
    /// Who reclaims.
    pub who: Reclaimer,
    /// 12 at first, 0 at last.
    pub priority: u32,
    /// 0 to 100, since 5.8 to 200.
    pub swappiness: u64,
    /// Is a slot free, and may the reclaimer swap?
    pub can_swap: bool,
    /// Pages on each list.
    pub pages: PerList,
    /// Of them, how many may be looked at: less where the domain is protected.
    pub open: PerList,
    /// File pages of all domains.
    pub node_files: u64,
    /// Frames free, and how many there should be.
    pub free: u64,
    /// The high watermark.
    pub high: u64,
    /// Is the inactive list low, by kind?
    pub low: [bool; 2],
    /// Background reclaim found nothing to free when it ran last: early rules look at every list
    /// then, however short.
    pub forced: bool,
}

/// Which kinds are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Balance {
    Only(Kind),
    Equal,
    Fractions,
}

impl Situation {
    fn base(&self, list: List) -> u64 {
        self.open[list as usize] >> self.priority
    }

    fn of_kind(&self, kind: Kind) -> u64 {
        self.pages[List::inactive(kind) as usize] + self.pages[List::active(kind) as usize]
    }

    /// The cases that both rules have.
    fn common(&self) -> Option<Balance> {
        if !self.can_swap {
            return Some(Balance::Only(Kind::File));
        }
        if self.who == Reclaimer::Domain && self.swappiness == 0 {
            return Some(Balance::Only(Kind::File));
        }
        (self.priority == 0 && self.swappiness != 0).then_some(Balance::Equal)
    }

    /// With all files gone and all that is free there would still be too little. That is asked of
    /// the whole node, where a domain is not reclaimed for itself.
    fn has_few_files(&self) -> bool {
        self.who != Reclaimer::Domain && self.node_files + self.free <= self.high
    }

    fn balance_early(&self) -> Balance {
        if let Some(balance) = self.common() {
            balance
        } else if self.has_few_files() {
            Balance::Only(Kind::Anon)
        } else if self.pages[List::InactiveFile as usize] >= self.pages[List::ActiveFile as usize] {
            Balance::Only(Kind::File)
        } else {
            Balance::Fractions
        }
    }

    fn balance_late(&self) -> Balance {
        if let Some(balance) = self.common() {
            return balance;
        }
        let file_is_tiny =
            self.has_few_files() && !self.low[Kind::Anon as usize] && self.base(List::InactiveAnon) != 0;
        let trims_cache = self.base(List::InactiveFile) != 0 && !self.low[Kind::File as usize];
        if file_is_tiny {
            Balance::Only(Kind::Anon)
        } else if trims_cache {
            Balance::Only(Kind::File)
        } else {
            Balance::Fractions
        }
    }

    fn targets(&self, balance: Balance, part: impl Fn(u64, Kind) -> u64, force: bool) -> PerList {
        let mut targets = [0; 4];
        for kind in KINDS {
            for list in [List::inactive(kind), List::active(kind)] {
                let mut base = self.base(list);
                if base == 0 && force {
                    base = self.open[list as usize].min(u64::from(BATCH));
                }
                targets[list as usize] = match balance {
                    Balance::Only(only) if only != kind => 0,
                    Balance::Only(_) | Balance::Equal => base,
                    Balance::Fractions => part(base, kind),
                };
            }
        }
        targets
    }
}

/// The rules of 3.16. What was found before fades where it is asked for.
#[must_use]
pub fn early(situation: &Situation, recent: &mut Recent) -> PerList {
    let balance = situation.balance_early();
    let pages = KINDS.map(|kind| situation.of_kind(kind));
    let weights = match balance {
        Balance::Fractions => recent.weights(situation.swappiness, pages),
        Balance::Only(_) | Balance::Equal => [0; 2],
    };
    let part = |base, kind| Recent::part(base, weights, kind);
    let targets = situation.targets(balance, part, false);
    if targets == [0; 4] && (situation.who == Reclaimer::Domain || situation.forced) {
        return situation.targets(balance, part, true);
    }
    targets
}

/// The rules of 6.19.
#[must_use]
pub fn late(situation: &Situation, cost: &Cost) -> PerList {
    let weights = cost.weights(situation.swappiness);
    let part = |base, kind| Cost::part(base, weights, kind);
    situation.targets(situation.balance_late(), part, false)
}

/// The targets by either rules.
#[must_use]
pub fn targets(rules: Rules, situation: &Situation, recent: &mut Recent, cost: &Cost) -> PerList {
    match rules {
        Rules::Early => early(situation, recent),
        Rules::Late => late(situation, cost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: PerList = [40_960, 81_920, 409_600, 819_200];
    const PLAIN: Situation = Situation {
        who: Reclaimer::Direct,
        priority: 12,
        swappiness: 60,
        can_swap: true,
        pages: PAGES,
        open: PAGES,
        node_files: PAGES[2] + PAGES[3],
        free: 100,
        high: 300,
        low: [true; 2],
        forced: false,
    };
    const FILE: PerList = [0, 0, 100, 200];
    const ANON: PerList = [10, 20, 0, 0];

    fn both(situation: &Situation) -> [PerList; 2] {
        [early(situation, &mut Recent::default()), late(situation, &Cost::default())]
    }

    /// Cases 1 to 3, which both columns have.
    #[test]
    fn cases_of_both() {
        assert_eq!(both(&Situation { can_swap: false, ..PLAIN }), [FILE; 2]);
        assert_eq!(both(&Situation { who: Reclaimer::Domain, swappiness: 0, ..PLAIN }), [FILE; 2]);
        let last = Situation { priority: 0, ..PLAIN };
        assert_eq!(both(&last), [PAGES; 2], "everything, whatever the swappiness");
        // Case 1 comes before case 3.
        assert_eq!(both(&Situation { can_swap: false, ..last }), [[0, 0, PAGES[2], PAGES[3]]; 2]);
    }

    #[test]
    fn cases_of_3_16() {
        let early = |situation: Situation| early(&situation, &mut Recent::default());
        let few_files = [40_960, 81_920, 100, 100];
        let tiny = Situation { pages: few_files, open: few_files, node_files: 200, ..PLAIN };
        assert_eq!(early(tiny), ANON, "case 4");
        assert_ne!(early(Situation { node_files: 201, ..tiny }), ANON, "another domain has files");
        assert_eq!(early(Situation { who: Reclaimer::Background, ..tiny }), ANON);
        assert_ne!(early(Situation { who: Reclaimer::Domain, ..tiny }), ANON, "case 4 is for all memory");
        let streaming = [40_960, 81_920, 819_200, 819_200];
        let case_5 = Situation { pages: streaming, open: streaming, ..PLAIN };
        assert_eq!(early(case_5), [0, 0, 200, 200], "case 5");
        // Case 6: 60 and 140 of 201.
        assert_eq!(early(PLAIN), [10 * 60 / 201, 20 * 60 / 201, 100 * 140 / 201, 200 * 140 / 201]);
    }

    #[test]
    fn cases_of_6_19() {
        let late = |situation: Situation| late(&situation, &Cost::default());
        let few_files = [40_960, 81_920, 100, 100];
        let tiny =
            Situation { pages: few_files, open: few_files, node_files: 200, low: [false, true], ..PLAIN };
        assert_eq!(late(tiny), ANON, "case 4");
        assert_ne!(late(Situation { low: [true; 2], ..tiny }), ANON, "not while inactive anon is low");
        assert_ne!(late(Situation { node_files: 201, ..tiny }), ANON, "another domain has files");
        assert_eq!(late(Situation { low: [true, false], ..PLAIN }), FILE, "case 5");
        assert_eq!(late(PLAIN), [10 * 60 / 200, 20 * 60 / 200, 100 * 140 / 200, 200 * 140 / 200]);
    }

    /// *The story:* what was found in use was halved by every round, also by those that did not ask
    /// whose turn it is: after a few of them nothing was remembered.
    #[test]
    fn what_was_found_is_forgotten_by_rounds_that_ask_for_it() {
        let mut found = Recent::default();
        found.note(Kind::File, PAGES[2] + PAGES[3], 1000);
        let before = found;
        for other in [
            Situation { can_swap: false, ..PLAIN },
            Situation { priority: 0, ..PLAIN },
            Situation { free: 0, node_files: 0, ..PLAIN },
            Situation { pages: [10, 10, 900, 10], ..PLAIN },
        ] {
            let _ = early(&other, &mut found);
            assert_eq!(found, before);
        }
        let _ = early(&PLAIN, &mut found);
        assert_ne!(found, before, "case 6");
    }

    #[test]
    fn short_lists_are_looked_at_when_it_matters() {
        let short = [100, 10, 20, 40];
        let situation = Situation { pages: short, open: short, node_files: 60, high: 0, ..PLAIN };
        assert_eq!(early(&situation, &mut Recent::default()), [0; 4]);
        let domain = Situation { who: Reclaimer::Domain, priority: 12, ..situation };
        let part = |pages: u64, weight: u64| pages.min(32) * weight / 201;
        assert_eq!(
            early(&domain, &mut Recent::default()),
            [part(100, 60), part(10, 60), part(20, 140), part(40, 140)]
        );
        let forced = Situation { forced: true, ..situation };
        assert_ne!(early(&forced, &mut Recent::default()), [0; 4]);
        assert_eq!(late(&forced, &Cost::default()), [0; 4], "late rules give up instead");
    }

    #[test]
    fn what_is_protected_is_not_counted() {
        let half = PAGES.map(|pages| pages / 2);
        let situation = Situation { open: half, can_swap: false, ..PLAIN };
        assert_eq!(both(&situation), [FILE.map(|pages| pages / 2); 2]);
        assert!(KINDS.iter().all(|&kind| situation.of_kind(kind) == PLAIN.of_kind(kind)));
    }
}
