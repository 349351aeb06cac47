//! Reclaim by the side that waits: a frame is wanted and too few are free, or a domain is at its
//! limit (specification 5.5).
//!
//! The goal is 32 frames. Priorities go from 12 down to 0, each looks at twice as much as the one
//! before, and whether it is enough is asked between them. Late rules try three times more before
//! they give up. A call is a value that its owner steps pass by pass, so that others can take
//! frames, or free some, meanwhile.

use super::lists::{DomainId, KINDS};
use super::node::{Manner, Node, Orders, Round};
use super::{BATCH, PRIORITY_FIRST, Reclaimer, Rules};

/// Between two tries of a caller that finds too much being looked at, before 4.x and since.
const ISOLATED_EARLY_NS: u64 = 100_000_000;
const ISOLATED_LATE_NS: u64 = 20_000_000;
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
    /// Far too few frames are free: the caller waits until background reclaim has done something (a
    /// second at most).
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
    next_domain: u8,
    open: Option<(DomainId, Round)>,
    isolated: u64,
    looked_at: u64,
    reclaimed: u64,
    attempt: Try,
    entered: bool,
    throttled: bool,
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
            manner: Manner { who, may_write: true, deactivates: false, ignores_low: false },
            priority: PRIORITY_FIRST,
            next_domain: 0,
            open: None,
            isolated: 0,
            looked_at: 0,
            reclaimed: 0,
            attempt: Try::First,
            entered: false,
            throttled: false,
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
            if self.next_domain < node.domain_count() {
                let id = DomainId(self.next_domain);
                self.next_domain += 1;
                let goal = u64::from(BATCH);
                self.open = if self.domain.is_none_or(|domain| domain == id) {
                    node.round(id, &self.manner, self.priority, goal).map(|round| (id, round))
                } else {
                    None
                };
                continue;
            }
            if let Some(step) = self.next_priority(node) {
                return step;
            }
        }
    }

    /// Before anything else: waits where going on would only make it worse.
    fn enter(&mut self, node: &mut Node) -> Option<Step> {
        if !self.throttled {
            self.throttled = true;
            let marks = node.config().watermarks;
            if self.domain.is_none() && node.free() < marks.min / 2 {
                node.counters.pgscan_direct_throttle += 1;
                node.wanted = true;
                return Some(Step::WaitForBackground);
            }
        }
        if !self.entered {
            self.entered = true;
            node.counters.allocstall += 1;
            self.manner.may_write = !node.config().laptop;
        }
        None
    }

    fn pass(&mut self, node: &mut Node, id: DomainId, round: &mut Round, out: &mut Orders) -> Step {
        if let Some(ns) = self.too_many_isolated(node, id) {
            self.open = Some((id, round.clone()));
            return Step::Sleep(ns);
        }
        let before = round.reclaimed();
        let (goes_on, looked_at) = node.pass(id, &self.manner, round, out);
        self.looked_at += looked_at.inactive;
        self.reclaimed += round.reclaimed() - before;
        self.take_out(node, looked_at.all());
        if goes_on {
            self.open = Some((id, round.clone()));
        }
        Step::Looked(looked_at.all())
    }

    /// All domains were seen to: is it enough, and if not, how does it go on?
    fn next_priority(&mut self, node: &mut Node) -> Option<Step> {
        self.next_domain = 0;
        if self.reclaimed >= u64::from(BATCH) {
            return Some(Step::Done(self.reclaimed));
        }
        self.manner.may_write |= self.looked_at > WRITES_AFTER || self.priority <= WRITES_BELOW;
        if self.priority > 0 {
            self.priority -= 1;
            return None;
        }
        if self.reclaimed > 0 || node.config().rules == Rules::Early || self.attempt == Try::IgnoringLow {
            return Some(Step::Done(self.reclaimed));
        }
        self.attempt = match self.attempt {
            Try::First => Try::Deactivating,
            Try::Deactivating | Try::IgnoringLow => Try::IgnoringLow,
        };
        self.manner.deactivates = true;
        self.manner.ignores_low = self.attempt == Try::IgnoringLow;
        self.priority = PRIORITY_FIRST;
        node.counters.allocstall += 1;
        None
    }

    /// More pages of a kind are being looked at than an eighth of those that wait to be.
    fn too_many_isolated(&self, node: &Node, id: DomainId) -> Option<u64> {
        if self.domain.is_some() {
            return None;
        }
        let pages = node.lengths(id);
        let inactive = [pages[0], pages[2]];
        let is_much = KINDS.iter().all(|&kind| node.isolated[kind as usize] > inactive[kind as usize] / 8);
        let sleep = match node.config().rules {
            Rules::Early => ISOLATED_EARLY_NS,
            Rules::Late => ISOLATED_LATE_NS,
        };
        is_much.then_some(sleep)
    }

    /// What was looked at last counts as taken out until the next step.
    fn take_out(&mut self, node: &mut Node, looked_at: u64) {
        self.isolated = looked_at;
        node.isolated.iter_mut().for_each(|isolated| *isolated += looked_at);
    }

    fn put_back(&mut self, node: &mut Node) {
        let isolated = core::mem::take(&mut self.isolated);
        node.isolated.iter_mut().for_each(|all| *all -= isolated);
    }
}

impl Default for Direct {
    fn default() -> Self {
        Direct::new()
    }
}
