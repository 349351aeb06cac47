//! A round over the lists of a domain: how much is looked at, by [`super::super::targets`], in which
//! steps, by [`super::super::scan`], and what is counted on the way.

use super::judge::Fate;
use super::{Manner, Node, Orders, Protection};
use crate::reclaim::lists::{DomainId, KINDS, Kind, List, PerList, flag};
use crate::reclaim::ratio::{self, Lengths};
use crate::reclaim::scan::{self, Shrink};
use crate::reclaim::targets::{self, Situation};
use crate::reclaim::{BATCH, Reclaimer, Rules};

/// A round over the lists of one domain.
#[derive(Clone, Debug)]
pub(in crate::reclaim) struct Round {
    scan: scan::Round,
    /// Late rules: the inactive lists, by kind, that were low when it began. That holds for all of it.
    low: Option<[bool; 2]>,
    /// Kinds whose inactive list is not looked at in the next pass: too many of its pages are taken
    /// out.
    pub held_up: [bool; 2],
}

impl Round {
    /// Pages freed so far.
    pub fn reclaimed(&self) -> u64 {
        self.scan.reclaimed()
    }

    /// Is anything of the kind's inactive list left to look at?
    pub fn is_due(&self, kind: Kind) -> bool {
        self.scan.is_due(kind)
    }
}

impl Node {
    fn is_low(&self, id: DomainId, kind: Kind) -> bool {
        let domain = &self.domains[usize::from(id.0)];
        let len = |list| u64::from(self.pages.len(id, list));
        let lengths = Lengths {
            inactive: len(List::inactive(kind)),
            active: len(List::active(kind)),
            node: u64::from(self.config.frames),
            refaulted: domain.activations[kind as usize] != domain.activations_seen[kind as usize],
        };
        ratio::is_low(self.config.rules, kind, &lengths)
    }

    /// Opens a round over a domain. `None`: it is protected, or no page of it is to be looked at.
    pub(in crate::reclaim) fn round(
        &mut self,
        id: DomainId,
        manner: &Manner,
        priority: u32,
        goal: u64,
    ) -> Option<Round> {
        let pages = self.lengths(id);
        let held = self.held(id);
        let Protection { min, low } = self.domains[usize::from(id.0)].protection;
        let kept = u64::from(if manner.ignores_low { min } else { min.max(low) });
        if held <= kept {
            return None;
        }
        let situation = Situation {
            who: manner.who,
            priority,
            swappiness: self.config.swappiness,
            can_swap: self.can_swap(),
            pages,
            node_files: self.of_all(|pages| pages[2] + pages[3]),
            open: pages.map(|pages| (pages - pages * kept / (held + 1)) * self.config.scale),
            free: self.free,
            high: self.config.watermarks.high,
            low: KINDS.map(|kind| manner.deactivates || self.is_low(id, kind)),
            forced: manner.forced,
        };
        let domain = &mut self.domains[usize::from(id.0)];
        let targets = targets::targets(self.config.rules, &situation, &mut domain.recent, &domain.cost);
        let targets = at_most(targets, pages);
        let is_global_direct = manner.who == Reclaimer::Direct;
        let scan = scan::Round::new(self.config.era, goal, priority, is_global_direct, targets, domain.owed);
        domain.activations_seen = domain.activations;
        let low = (self.config.rules == Rules::Late).then_some(situation.low);
        Some(Round { scan, low, held_up: [false; 2] })
    }

    /// Is the domain left alone only as long as others have something?
    pub(in crate::reclaim) fn is_spared(&self, id: DomainId) -> bool {
        let Protection { min, low } = self.domains[usize::from(id.0)].protection;
        (u64::from(min) + 1..=u64::from(low)).contains(&self.held(id))
    }

    /// Pages of the kind's inactive lists, of all domains.
    pub(in crate::reclaim) fn inactive(&self, kind: Kind) -> u64 {
        self.of_all(|pages| pages[List::inactive(kind) as usize])
    }

    fn of_all(&self, pages: impl Fn(PerList) -> u64) -> u64 {
        (0..self.domain_count()).map(|id| pages(self.lengths(DomainId(id)))).sum()
    }

    /// One pass of a round. Says whether it goes on, and how much was looked at on either list.
    pub(in crate::reclaim) fn pass(
        &mut self,
        id: DomainId,
        manner: &Manner,
        round: &mut Round,
        out: &mut Orders,
    ) -> (bool, LookedAt) {
        let (low, held_up) = (round.low, round.held_up);
        let mut lists =
            OfDomain { node: self, id, manner, low, held_up, looked_at: LookedAt::default(), out };
        let goes_on = round.scan.goes_on() && round.scan.pass(&mut lists);
        let looked_at = lists.looked_at;
        if !goes_on {
            self.domains[usize::from(id.0)].owed = round.scan.owed();
            // At the end anonymous pages grow old a little, whoever was short of what.
            self.age_active(id, manner, Kind::Anon, u64::from(BATCH));
        }
        (goes_on, looked_at)
    }

    /// The node is balanced: what was seen at the tails is forgotten.
    pub(in crate::reclaim) fn note_balanced(&mut self) {
        (self.tail_dirty, self.tail_writeback, self.met_cycling) = (false, false, false);
    }

    /// Did background reclaim meet a page that has come round while it is being written, since it was
    /// last asked?
    pub(in crate::reclaim) fn take_cycling(&mut self) -> bool {
        core::mem::take(&mut self.met_cycling)
    }

    /// Moves up to `pages` from the active to the inactive list, if that is low.
    pub(in crate::reclaim) fn age_active(
        &mut self,
        id: DomainId,
        manner: &Manner,
        kind: Kind,
        pages: u64,
    ) -> u64 {
        let ages = manner.deactivates || self.is_low(id, kind);
        if ages { self.deactivate(id, kind, pages) } else { 0 }
    }

    fn deactivate(&mut self, id: DomainId, kind: Kind, pages: u64) -> u64 {
        let all = self.listed();
        let is_early = self.config.rules == Rules::Early;
        let count = pages.min(u64::from(self.pages.len(id, List::active(kind))));
        let mut rotated = 0;
        for _ in 0..count {
            let page = self.pages.tail(id, List::active(kind)).expect("the list is as long");
            self.pages.remove(page);
            self.counters.pgrefill += 1;
            let accessed = self.pages.take(page, flag::ACCESSED | flag::ACCESSED_OTHER);
            let stays = accessed && kind == Kind::File && self.pages.has(page, flag::EXECUTABLE);
            rotated += u64::from(if is_early { accessed } else { stays });
            if stays {
                self.pages.push_head(page, List::active(kind));
                continue;
            }
            self.counters.pgdeactivate += 1;
            if !is_early {
                self.pages.set(page, flag::WORKINGSET);
            }
            self.pages.push_head(page, List::inactive(kind));
        }
        let domain = &mut self.domains[usize::from(id.0)];
        match self.config.rules {
            Rules::Early => domain.recent.note(kind, count, rotated),
            Rules::Late => domain.cost.rotated(kind, rotated, all),
        }
        count
    }

    /// Looks at up to `pages` of the inactive tail.
    fn look_at(&mut self, id: DomainId, manner: &Manner, kind: Kind, pages: u64, out: &mut Orders) -> Looks {
        let count = pages.min(u64::from(self.pages.len(id, List::inactive(kind))));
        let all = self.listed();
        let (mut freed, mut activated, mut written) = (0, 0, 0);
        let (mut dirty, mut writeback, mut cycling, mut weight) = (0, 0, 0, count);
        let mut pending = 0;
        for _ in 0..count {
            let page = self.pages.tail(id, List::inactive(kind)).expect("the list is as long");
            self.pages.remove(page);
            let is_written = self.pages.has(page, flag::WRITEBACK);
            writeback += u64::from(is_written);
            cycling += u64::from(is_written && self.pages.has(page, flag::RECLAIM));
            // By early rules pages that are more work count twice.
            let is_work =
                self.config.rules == Rules::Early && self.pages.has(page, flag::MAPPED | flag::SLOT);
            weight += u64::from(is_work);
            let is_dirty = self.pages.has(page, flag::DIRTY) && kind == Kind::File;
            dirty += u64::from(is_dirty);
            pending += u64::from(is_dirty || is_written);
            match self.decide(page, manner, out) {
                Fate::Freed => freed += 1,
                Fate::Kept => self.pages.push_head(page, List::inactive(kind)),
                Fate::Written => {
                    written += 1;
                    self.pages.push_head(page, List::inactive(kind));
                }
                Fate::Activated => {
                    activated += 1;
                    self.activate(page);
                }
                Fate::Unevictable => self.pages.push_head(page, List::Unevictable),
            }
        }
        self.tail_dirty |= count > 0 && dirty == count;
        self.tail_writeback |= count > 0 && writeback == count;
        self.counters.scanned(manner.who, kind, count);
        self.counters.stolen(manner.who, kind, freed);
        let domain = &mut self.domains[usize::from(id.0)];
        match self.config.rules {
            Rules::Early => domain.recent.note(kind, count, activated),
            Rules::Late => domain.cost.scanned(kind, count, freed, written, all),
        }
        Looks { looked_at: count, weight, freed, pending, is_congested: count > 0 && cycling == count }
    }
}

/// No list is looked at for longer than it is.
fn at_most(targets: PerList, pages: PerList) -> PerList {
    core::array::from_fn(|list| targets[list].min(pages[list]))
}

/// Pages looked at in a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::reclaim) struct LookedAt {
    /// By kind, of both lists.
    pub pages: [u64; 2],
    /// Whether it was enough is asked of the inactive ones alone, and by what work they are.
    pub weight: u64,
    /// Of the inactive ones, those that were on their way to the device or are to be; and all of them.
    pub pending: u64,
    pub inactive: u64,
    /// A batch had nothing but pages that were being written when they came round.
    pub is_congested: bool,
}

impl LookedAt {
    pub fn all(self) -> u64 {
        self.pages.iter().sum()
    }
}

struct Looks {
    looked_at: u64,
    weight: u64,
    freed: u64,
    pending: u64,
    is_congested: bool,
}

/// The lists of a domain, for the scan loop.
struct OfDomain<'a> {
    node: &'a mut Node,
    id: DomainId,
    manner: &'a Manner,
    /// See [`Round`].
    low: Option<[bool; 2]>,
    held_up: [bool; 2],
    looked_at: LookedAt,
    out: &'a mut Orders,
}

impl Shrink for OfDomain<'_> {
    fn shrink_inactive(&mut self, kind: Kind, pages: u64) -> u64 {
        if self.held_up[kind as usize] {
            return 0;
        }
        let looks = self.node.look_at(self.id, self.manner, kind, pages, self.out);
        self.looked_at.pages[kind as usize] += looks.looked_at;
        self.looked_at.weight += looks.weight;
        self.looked_at.pending += looks.pending;
        self.looked_at.inactive += looks.looked_at;
        self.looked_at.is_congested |= looks.is_congested;
        looks.freed
    }

    fn shrink_active(&mut self, kind: Kind, pages: u64) {
        let is_low = match self.low {
            Some(low) => low[kind as usize],
            None => self.node.is_low(self.id, kind),
        };
        if self.manner.deactivates || is_low {
            self.looked_at.pages[kind as usize] += self.node.deactivate(self.id, kind, pages);
        }
    }
}
