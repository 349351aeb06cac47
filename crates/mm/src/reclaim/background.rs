//! Reclaim ahead of demand: kswapd (specification 5.6).
//!
//! Asked for when fewer than `low` frames are free, it works until `high` are, with a goal of as
//! many as that watermark. Priorities go down while too little was looked at or nothing was freed.
//! When all is well it dozes for 100 ms, looks again and sleeps. A value that its owner steps pass
//! by pass.

use super::lists::{DomainId, Kind};
use super::node::{Manner, Node, Orders, Round};
use super::{BATCH, PRIORITY_FIRST, Reclaimer, Rules};

const DOZE_NS: u64 = 100_000_000;
const WRITEBACK_NS: u64 = 100_000_000;
/// Runs in vain after which late rules give up.
const HOPELESS: u32 = 16;

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// So many pages were looked at; there is more to do.
    Looked(u64),
    /// It does nothing until then (nanoseconds), unless it is asked for while it dozes.
    Until(u64),
    /// It does nothing until [`Node::wants_background`].
    Asleep,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Asleep,
    /// Dozes: woken before `until` counts as one thing, frames that are gone then as another.
    Dozing {
        until: u64,
    },
    Working,
    /// Pages come round before they are written: it waits for the device, whatever is wanted. So many
    /// more have to be written for late rules to go on sooner.
    Resting {
        until: u64,
        left: u64,
    },
}

/// Background reclaim of a node.
#[derive(Clone, Debug)]
pub struct Background {
    state: State,
    priority: u32,
    next_domain: u8,
    open: Option<(DomainId, Round)>,
    /// Looked at and freed at this priority.
    round_looked_at: u64,
    round_reclaimed: u64,
    /// Freed in this run.
    run_reclaimed: u64,
    /// Has this run looked at any page?
    has_looked: bool,
    aged: bool,
    vain_runs: u32,
}

impl Background {
    /// Asleep.
    #[must_use]
    pub fn new() -> Background {
        Background {
            state: State::Asleep,
            priority: PRIORITY_FIRST,
            next_domain: 0,
            open: None,
            round_looked_at: 0,
            round_reclaimed: 0,
            run_reclaimed: 0,
            has_looked: false,
            aged: false,
            vain_runs: 0,
        }
    }

    /// Does it anything when it is stepped now?
    #[must_use]
    pub fn is_due(&self, now: u64, node: &Node) -> bool {
        match self.state {
            State::Working => true,
            State::Resting { until, .. } => now >= until,
            State::Dozing { until } => now >= until || node.wants_background(),
            State::Asleep => node.wants_background() && !self.is_hopeless(node),
        }
    }

    /// Goes on by one pass.
    pub fn step(&mut self, now: u64, node: &mut Node, out: &mut Orders) -> Step {
        match self.state {
            State::Asleep if !node.wanted || self.is_hopeless(node) => return Step::Asleep,
            State::Asleep => self.begin(node),
            State::Dozing { until } if now < until && !node.wanted => return Step::Until(until),
            State::Dozing { until } => {
                if now < until {
                    node.counters.kswapd_low_wmark_hit_quickly += 1;
                } else if node.is_balanced() {
                    self.state = State::Asleep;
                    return if node.wanted { self.step(now, node, out) } else { Step::Asleep };
                } else {
                    node.counters.kswapd_high_wmark_hit_quickly += 1;
                }
                self.begin(node);
            }
            State::Resting { until, .. } if now < until => return Step::Until(until),
            State::Resting { .. } => self.state = State::Working,
            State::Working => {}
        }
        self.work(now, node, out)
    }

    /// A page has been written. Says whether background reclaim goes on for that: by late rules it rests
    /// no longer once a batch of pages has been written.
    pub fn note_written(&mut self, node: &Node) -> bool {
        let State::Resting { left, .. } = &mut self.state else { return false };
        *left = left.saturating_sub(1);
        let goes_on = *left == 0 && node.config().rules == Rules::Late;
        if goes_on {
            self.state = State::Working;
        }
        goes_on
    }

    /// After a run in vain it looks at every list, however short.
    fn manner(&self) -> Manner {
        Manner {
            who: Reclaimer::Background,
            may_write: true,
            deactivates: false,
            ignores_low: false,
            forced: self.vain_runs > 0,
        }
    }

    fn is_hopeless(&self, node: &Node) -> bool {
        node.config().rules == Rules::Late && self.vain_runs >= HOPELESS
    }

    fn begin(&mut self, node: &mut Node) {
        node.counters.pageoutrun += 1;
        node.wanted = false;
        self.state = State::Working;
        self.priority = PRIORITY_FIRST;
        self.run_reclaimed = 0;
        self.has_looked = false;
        self.begin_priority();
    }

    fn begin_priority(&mut self) {
        self.next_domain = 0;
        (self.round_looked_at, self.round_reclaimed) = (0, 0);
        self.aged = false;
    }

    fn work(&mut self, now: u64, node: &mut Node, out: &mut Orders) -> Step {
        loop {
            if let Some((id, mut round)) = self.open.take() {
                let before = round.reclaimed();
                let (goes_on, looked_at) = node.pass(id, &self.manner(), &mut round, out);
                self.round_looked_at += looked_at.weight;
                self.has_looked |= looked_at.all() > 0;
                self.round_reclaimed += round.reclaimed() - before;
                if goes_on {
                    self.open = Some((id, round));
                }
                return Step::Looked(looked_at.all());
            }
            if !self.aged {
                if node.is_balanced() {
                    return self.end(now, node);
                }
                self.aged = true;
                let aged = self.age(node);
                if aged > 0 {
                    self.has_looked = true;
                    return Step::Looked(aged);
                }
            }
            if self.next_domain < node.domain_count() && node.free() < enough(node) {
                let id = DomainId(self.next_domain);
                self.next_domain += 1;
                let round = node.round(id, &self.manner(), self.priority, goal(node));
                self.open = round.map(|round| (id, round));
                continue;
            }
            if node.take_cycling() {
                let until = now + WRITEBACK_NS;
                self.state = State::Resting { until, left: u64::from(BATCH) };
                return Step::Until(until);
            }
            if let Some(step) = self.next_priority(now, node) {
                return step;
            }
        }
    }

    fn age(&mut self, node: &mut Node) -> u64 {
        let domains = (0..node.domain_count()).map(DomainId);
        domains.map(|id| node.age_active(id, &self.manner(), Kind::Anon, u64::from(BATCH))).sum()
    }

    fn next_priority(&mut self, now: u64, node: &mut Node) -> Option<Step> {
        self.run_reclaimed += self.round_reclaimed;
        if self.round_reclaimed > 0 {
            self.vain_runs = 0;
        }
        let was_enough = self.round_looked_at >= goal(node);
        if !was_enough || self.round_reclaimed == 0 {
            self.priority -= 1;
        }
        self.begin_priority();
        (self.priority < 1 || node.is_balanced()).then(|| self.end(now, node))
    }

    /// The run is over: it dozes where all is well, or where a forced run of early rules found nothing
    /// to look at, else the next one begins at once, unless it is hopeless.
    ///
    /// *The story:* where every page was spared, early background reclaim began anew for ever, with
    /// a step in each 300 ns.
    fn end(&mut self, now: u64, node: &mut Node) -> Step {
        self.open = None;
        if node.is_balanced() {
            node.note_balanced();
            return self.doze(now);
        }
        if self.run_reclaimed == 0 {
            self.vain_runs += 1;
        }
        if self.is_hopeless(node) {
            self.state = State::Asleep;
            return Step::Asleep;
        }
        if node.config().rules == Rules::Early && self.vain_runs > 1 && !self.has_looked {
            return self.doze(now);
        }
        self.begin(node);
        Step::Looked(0)
    }

    fn doze(&mut self, now: u64) -> Step {
        let until = now + DOZE_NS;
        self.state = State::Dozing { until };
        Step::Until(until)
    }

    /// Somebody else freed frames: there is hope again.
    pub fn note_progress(&mut self) {
        self.vain_runs = 0;
    }
}

impl Default for Background {
    fn default() -> Self {
        Background::new()
    }
}

/// What a round is to free.
fn goal(node: &Node) -> u64 {
    node.config().watermarks.high.max(u64::from(BATCH))
}

/// With so many frames free a node is left alone, even though others may be short.
fn enough(node: &Node) -> u64 {
    let marks = node.config().watermarks;
    marks.high + marks.low.min(u64::from(node.config().frames) / 100)
}
