//! Whose turn it is, anonymous or file: the share of each by what reclaim found when it looked
//! (specification 5.3).
//!
//! Until 5.7 by how many of the pages looked at were in use, since 5.8 by what reclaim cost:
//! writes, pages looked at in vain, and pages that came back.

use super::lists::Kind;

/// Weights of anonymous and file pages; a share is a weight by the sum of both.
pub type Weights = [u64; 2];

/// What a page that is written, or comes back after it had been active, costs.
const IO_COST: u64 = 32;
/// Swappiness at which both kinds count the same since 5.8; before, the most.
const SWAPPINESS_SUM: u64 = 200;

/// Looked at and found in use, lately, by kind (3.16).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recent {
    scanned: [u64; 2],
    rotated: [u64; 2],
}

impl Recent {
    /// So many pages were looked at, so many of them were in use.
    pub fn note(&mut self, kind: Kind, scanned: u64, rotated: u64) {
        self.scanned[kind as usize] += scanned;
        self.rotated[kind as usize] += rotated;
    }

    /// The weights, with `pages` of each kind on the lists. Old looks are forgotten by halves.
    pub fn weights(&mut self, swappiness: u64, pages: [u64; 2]) -> Weights {
        for (kind, pages) in pages.into_iter().enumerate() {
            if self.scanned[kind] > pages / 4 {
                self.scanned[kind] /= 2;
                self.rotated[kind] /= 2;
            }
        }
        let weight = |kind: usize, part: u64| part * (self.scanned[kind] + 1) / (self.rotated[kind] + 1);
        [weight(0, swappiness), weight(1, SWAPPINESS_SUM.saturating_sub(swappiness))]
    }

    /// Pages of a list whose base is `base`: its kind's part, by weights.
    #[must_use]
    pub fn part(base: u64, weights: Weights, kind: Kind) -> u64 {
        base * weights[kind as usize] / (weights[0] + weights[1] + 1)
    }
}

/// What reclaim of each kind has cost lately (since 5.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    cost: [u64; 2],
}

impl Cost {
    /// Pages that had been active came back.
    pub fn refaulted(&mut self, kind: Kind, pages: u64, all: u64) {
        self.add(kind, IO_COST * pages, all);
    }

    /// A batch of the inactive list was looked at.
    pub fn scanned(&mut self, kind: Kind, scanned: u64, reclaimed: u64, written: u64, all: u64) {
        self.add(kind, IO_COST * written + (scanned - reclaimed), all);
    }

    /// A batch of the active list was looked at, and these pages stay on it.
    pub fn rotated(&mut self, kind: Kind, rotated: u64, all: u64) {
        self.add(kind, rotated, all);
    }

    /// Old costs are forgotten by halves, `all` being the pages on all lists.
    fn add(&mut self, kind: Kind, cost: u64, all: u64) {
        self.cost[kind as usize] += cost;
        while self.cost[0] + self.cost[1] > all / 4 {
            if self.cost == [0, 0] {
                return;
            }
            self.cost = self.cost.map(|cost| cost / 2);
        }
    }

    /// The weights.
    #[must_use]
    pub fn weights(&self, swappiness: u64) -> Weights {
        let [anon, file] = self.cost;
        let total = anon + file;
        let (anon, file) = (total + anon, total + file);
        let sum = anon + file;
        let weight = |part: u64, cost: u64| part * (sum + 1) / (cost + 1);
        [weight(swappiness, anon), weight(SWAPPINESS_SUM.saturating_sub(swappiness), file)]
    }

    /// Pages of a list whose base is `base`: its kind's part, by weights.
    #[must_use]
    pub fn part(base: u64, weights: Weights, kind: Kind) -> u64 {
        base * weights[kind as usize] / (weights[0] + weights[1]).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of anonymous memory, in thousandths, rounded.
    fn share(weights: Weights) -> u64 {
        let sum = weights[0] + weights[1];
        (weights[0] * 1000 + sum / 2) / sum
    }

    /// The table "share of anon", line by line: swappiness, then no cost, only anon, only file, a =
    /// 3f, f = 3a.
    #[test]
    fn shares_by_cost() {
        let table = [
            (1, [5, 2, 7, 2, 6]),
            (10, [50, 24, 93, 36, 66]),
            (60, [300, 175, 461, 233, 374]),
            (100, [500, 333, 667, 417, 583]),
            (133, [665, 499, 799, 587, 737]),
            (180, [900, 820, 949, 868, 927]),
            (200, [1000; 5]),
        ];
        let costs = [[0, 0], [1000, 0], [0, 1000], [3000, 1000], [1000, 3000]];
        for (swappiness, shares) in table {
            let found = costs.map(|cost| share(Cost { cost }.weights(swappiness)));
            assert_eq!(found, shares, "swappiness {swappiness}");
        }
    }

    /// The last three lines of the table are printed in whole percents: 82, 95, 87, 93.
    #[test]
    fn shares_of_180_in_percents() {
        let costs = [[1000, 0], [0, 1000], [3000, 1000], [1000, 3000]];
        let percents = costs.map(|cost| (share(Cost { cost }.weights(180)) + 5) / 10);
        assert_eq!(percents, [82, 95, 87, 93]);
    }

    /// The line below the table: 3.16, swappiness 60; equal, anon all in use, file nearly all in
    /// use.
    #[test]
    fn shares_by_use() {
        let share_of = |scanned: [u64; 2], rotated: [u64; 2]| {
            share(Recent { scanned, rotated }.weights(60, [1 << 30; 2]))
        };
        let percent = |share: u64| (share + 5) / 10;
        assert_eq!(percent(share_of([0; 2], [0; 2])), 30);
        assert_eq!(percent(share_of([1000; 2], [500; 2])), 30);
        assert_eq!(share_of([1000; 2], [1000, 0]), 0);
        assert_eq!(share_of([1000; 2], [0, 900]), 997);
    }

    #[test]
    fn old_looks_and_costs_fade() {
        let mut recent = Recent::default();
        recent.note(Kind::File, 300, 100);
        recent.weights(60, [0, 1000]);
        assert_eq!(recent, Recent { scanned: [0, 150], rotated: [0, 50] });
        recent.weights(60, [0, 1000]);
        assert_eq!(recent.scanned[1], 150, "a quarter is not passed");

        let mut cost = Cost::default();
        cost.scanned(Kind::Anon, 32, 12, 2, 1 << 20);
        assert_eq!(cost.cost, [84, 0]);
        cost.refaulted(Kind::File, 1, 1 << 20);
        cost.rotated(Kind::File, 3, 1 << 20);
        assert_eq!(cost.cost, [84, 35]);
        cost.rotated(Kind::Anon, 0, 400);
        assert_eq!(cost.cost, [42, 17]);
        cost.rotated(Kind::Anon, 5, 0);
        assert_eq!(cost.cost, [0, 0], "with nothing on the lists nothing is remembered");
    }
}
