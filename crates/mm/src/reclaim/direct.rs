//! Reclaim by the side that waits: a frame is wanted and too few are free, or a domain is at its
//! limit (specification 5.5).
//!
//! The goal is 32 frames. Priorities go from 12 down to 0, each looks at twice as much as the one
//! before, and whether it is enough is asked between them; under [`Era::Bounded`] it is asked between
//! domains, too, and the next call begins where this one ended. Late rules try twice more before they
//! give up, early ones once where a domain was spared. A call is a value that its owner steps pass by
//! pass, so that others can take frames, or free some, meanwhile.

use super::lists::{DomainId, KINDS};
use super::node::{Manner, Node, Orders, Round};
use super::scan::Era;
use super::{BATCH, PRIORITY_FIRST, Reclaimer, Rules};

/// Between two tries of a caller that finds too much being looked at, before 4.x and since.
const ISOLATED_EARLY_NS: u64 = 100_000_000;
const ISOLATED_LATE_NS: u64 = 20_000_000;
/// A tick: 250 a second, as most kernels are built.
const TICK_NS: u64 = 4_000_000;
/// Whoever waits for background reclaim looks again after so long, a second in all at most.
pub const WAIT_NS: u64 = 1_000_000;
const WAITS_MAX: u32 = 1000;
/// Pages looked at in a call after which it may write, where writing is put off.
const WRITES_AFTER: u64 = 48;
/// Below this priority it always may.
const WRITES_BELOW: u32 = 10;

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// So many pages were looked at; there is more to do.
    Looked(u64),
    /// The caller sleeps for so long, then goes on.
    Sleep(u64),
    /// Far too few frames are free: background reclaim is to do something first. The caller asks again
    /// after [`WAIT_NS`].
    WaitForBackground,
    /// It is over: so many frames were freed. 0 = nothing can be.
    Done(u64),
}

/// How hard it is tried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Try {
    First,
    Deactivating,
    IgnoringLow,
}

/// A call.
#[derive(Clone, Debug)]
pub struct Direct {
    domain: Option<DomainId>,
    manner: Manner,
    priority: u32,
    /// Where it began, and how many it has asked at this priority.
    first_domain: u8,
    domains_asked: u8,
    open: Option<(DomainId, Round)>,
    isolated: [u64; 2],
    looked_at: u64,
    reclaimed: u64,
    attempt: Try,
    entered: bool,
    /// How often it has waited for background reclaim.
    waits: u32,
    /// It has slept before this pass, as too many pages were taken out.
    has_slept: bool,
    /// At this priority a batch had nothing but pages that were being written.
    congested: bool,
    /// Inactive pages looked at at this priority, and those of them that wait for the device.
    inactive: u64,
    pending: u64,
    /// A domain was left alone that need not be.
    spared: bool,
}

impl Direct {
    /// Somebody wants a frame and was refused.
    #[must_use]
    pub fn new() -> Direct {
        Direct::by(Reclaimer::Direct, None)
    }

    /// The domain is at its limit: only its own pages go.
    #[must_use]
    pub fn of_domain(domain: DomainId) -> Direct {
        Direct::by(Reclaimer::Domain, Some(domain))
    }

    fn by(who: Reclaimer, domain: Option<DomainId>) -> Direct {
        Direct {
            domain,
            manner: Manner { who, may_write: true, deactivates: false, ignores_low: false, forced: false },
            priority: PRIORITY_FIRST,
            first_domain: 0,
            domains_asked: 0,
            open: None,
            isolated: [0; 2],
            looked_at: 0,
            reclaimed: 0,
            attempt: Try::First,
            entered: false,
            waits: 0,
            has_slept: false,
            congested: false,
            inactive: 0,
            pending: 0,
            spared: false,
        }
    }

    /// Goes on by one pass over the lists of one domain.
    pub fn step(&mut self, node: &mut Node, out: &mut Orders) -> Step {
        self.put_back(node);
        if let Some(step) = self.enter(node) {
            return step;
        }
        loop {
            if let Some((id, mut round)) = self.open.take() {
                return self.pass(node, id, &mut round, out);
            }
            if let Some(id) = self.next_domain(node) {
                self.begin_round(node, id);
                continue;
            }
            if let Some(step) = self.next_priority(node) {
                return step;
            }
        }
    }

    /// The next domain of this priority, if it is asked for more.
    fn next_domain(&mut self, node: &Node) -> Option<DomainId> {
        let count = node.domain_count();
        if self.domains_asked == count || is_bounded(node) && self.reclaimed >= u64::from(BATCH) {
            return None;
        }
        let id = (u16::from(self.first_domain) + u16::from(self.domains_asked)) % u16::from(count);
        self.domains_asked += 1;
        Some(DomainId(id as u8))
    }

    fn begin_round(&mut self, node: &mut Node, id: DomainId) {
        if self.domain.is_some_and(|domain| domain != id) {
            return;
        }
        let has = if is_bounded(node) { self.reclaimed } else { 0 };
        let goal = u64::from(BATCH).saturating_sub(has);
        self.open = node.round(id, &self.manner, self.priority, goal).map(|round| (id, round));
        self.spared |= node.is_spared(id);
    }

    /// Before anything else: waits where going on would only make it worse.
    fn enter(&mut self, node: &mut Node) -> Option<Step> {
        if !self.entered {
            let is_far_too_few = self.domain.is_none() && node.free() < node.config().watermarks.min / 2;
            if is_far_too_few && self.waits < WAITS_MAX {
                node.counters.pgscan_direct_throttle += u64::from(self.waits == 0);
                self.waits += 1;
                node.wanted = true;
                return Some(Step::WaitForBackground);
            }
            self.entered = true;
            // Counted is what the whole machine lacks, not what a domain may not have.
            node.counters.allocstall += u64::from(self.domain.is_none());
            self.manner.may_write = !node.config().laptop;
            if is_bounded(node) {
                self.first_domain = node.turn;
            }
        }
        None
    }

    fn pass(&mut self, node: &mut Node, id: DomainId, round: &mut Round, out: &mut Orders) -> Step {
        round.held_up = self.too_many_isolated(node, round);
        if round.held_up != [false; 2]
            && let Some(ns) = self.sleeps_for_others(node)
        {
            self.open = Some((id, round.clone()));
            return Step::Sleep(ns);
        }
        self.has_slept = false;
        let before = round.reclaimed();
        let (goes_on, looked_at) = node.pass(id, &self.manner, round, out);
        self.looked_at += looked_at.weight;
        self.congested |= looked_at.is_congested;
        self.inactive += looked_at.inactive;
        self.pending += looked_at.pending;
        self.reclaimed += round.reclaimed() - before;
        self.take_out(node, looked_at.pages);
        if goes_on {
            self.open = Some((id, round.clone()));
        }
        Step::Looked(looked_at.all())
    }

    /// All domains were seen to: is it enough, and if not, how does it go on?
    fn next_priority(&mut self, node: &mut Node) -> Option<Step> {
        let asked = core::mem::take(&mut self.domains_asked);
        if self.reclaimed >= u64::from(BATCH) {
            let next = (u16::from(self.first_domain) + u16::from(asked)) % u16::from(node.domain_count());
            node.turn = next as u8;
            return Some(Step::Done(self.reclaimed));
        }
        let rests = self.rests(node);
        self.manner.may_write |= self.looked_at > WRITES_AFTER || self.priority <= WRITES_BELOW;
        if self.priority > 0 {
            self.priority -= 1;
            return rests.then_some(Step::Sleep(TICK_NS));
        }
        if self.reclaimed > 0 || !self.tries_again(node) {
            return Some(Step::Done(self.reclaimed));
        }
        self.priority = PRIORITY_FIRST;
        None
    }

    /// Late rules: a tick is slept where all that a batch had is on its way to the device, unless of all
    /// that was looked at half and more need not go there; and where nearly everything was looked at and
    /// nothing was freed.
    fn rests(&mut self, node: &Node) -> bool {
        let [inactive, pending] = [&mut self.inactive, &mut self.pending].map(core::mem::take);
        let is_congested = core::mem::take(&mut self.congested) && pending * 2 > inactive;
        let is_vain = self.priority == 1 && self.reclaimed == 0;
        node.config().rules == Rules::Late && (is_congested || is_vain)
    }

    /// Nothing was freed: is it tried once more, and how?
    fn tries_again(&mut self, node: &mut Node) -> bool {
        let next = match (node.config().rules, self.attempt) {
            (Rules::Late, Try::First) => Try::Deactivating,
            (Rules::Late, Try::Deactivating) => Try::IgnoringLow,
            (Rules::Early, Try::First | Try::Deactivating) if self.spared => Try::IgnoringLow,
            (Rules::Early, _) | (_, Try::IgnoringLow) => return false,
        };
        self.attempt = next;
        self.manner.ignores_low = next == Try::IgnoringLow;
        if node.config().rules == Rules::Late {
            self.manner.deactivates = true;
            node.counters.allocstall += u64::from(self.domain.is_none());
        }
        true
    }

    /// Of which kinds, of those that this pass would look at, do others look at more pages than an
    /// eighth of those that wait to be?
    fn too_many_isolated(&self, node: &Node, round: &Round) -> [bool; 2] {
        KINDS.map(|kind| {
            self.domain.is_none()
                && round.is_due(kind)
                && node.isolated[kind as usize] > node.inactive(kind) / 8
        })
    }

    /// How long it sleeps for that: early rules until it is over, late ones once, and then the pass
    /// does without.
    fn sleeps_for_others(&mut self, node: &Node) -> Option<u64> {
        match node.config().rules {
            Rules::Early => Some(ISOLATED_EARLY_NS),
            Rules::Late if core::mem::replace(&mut self.has_slept, true) => None,
            Rules::Late => Some(ISOLATED_LATE_NS),
        }
    }

    /// What was looked at last counts as taken out until the next step.
    fn take_out(&mut self, node: &mut Node, pages: [u64; 2]) {
        self.isolated = pages;
        KINDS.iter().for_each(|&kind| node.isolated[kind as usize] += pages[kind as usize]);
    }

    fn put_back(&mut self, node: &mut Node) {
        let isolated = core::mem::take(&mut self.isolated);
        KINDS.iter().for_each(|&kind| node.isolated[kind as usize] -= isolated[kind as usize]);
    }
}

/// Does a call ask for no more than it must?
fn is_bounded(node: &Node) -> bool {
    node.config().era == Era::Bounded
}

impl Default for Direct {
    fn default() -> Self {
        Direct::new()
    }
}
