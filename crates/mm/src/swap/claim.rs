//! What an area may use of a limit that others use, too.
//!
//! A run's `--swap DIR:SIZE` bounds what all its processes have there together, each in a file of
//! its own. So an area serves no cluster before it has claimed the slots ([`crate::Action::Claim`]),
//! some at a time, and how many more it could claim it is told ([`crate::Event::Claimed`]): both
//! together are its room. A cluster is what can be given back to the disk, so a claim is for whole
//! clusters, whatever of them is used. Where next to nothing of the limit is left and others want
//! some, clusters that nobody uses are given back, and with them their claim: they are idle until
//! there is a claim for them again. One that is refused is asked for again at the next tick.
//!
//! What is given up counts as given from that moment, not from the answer on, and there is one
//! question at a time. *The story:* others could have it at once, while what was handled before the
//! answer still took slots of it.

use alloc::vec::Vec;

use super::CLUSTER;

/// With less than this share of an area left to be claimed nobody keeps what he does not use.
const SCARCE_SHARE: u32 = 8;

/// What is known of an area's claim.
pub(super) struct Claim {
    /// So many slots are claimed at a time.
    step: u32,
    /// So many it has.
    has: u32,
    /// So many it could have beside those.
    more: u32,
    /// Others claim of the same limit.
    has_company: bool,
    /// The answer is on its way.
    is_asked: bool,
    /// A claim was refused since the last tick, or was not answered.
    waits: bool,
    /// The backing has not given blocks back: what it has it keeps.
    pub keeps: bool,
    /// Clusters that were given back.
    pub idle: Vec<u32>,
}

impl Claim {
    /// Nothing is claimed as yet; all that there is may be had.
    pub fn new(step: u32) -> Self {
        let step = step.next_multiple_of(CLUSTER);
        Claim {
            step,
            has: 0,
            more: u32::MAX,
            has_company: false,
            is_asked: false,
            waits: false,
            keeps: false,
            idle: Vec::new(),
        }
    }

    /// Slots that may be in service.
    pub fn has(&self) -> u32 {
        self.has
    }

    /// Little is left of the limit of an area with so many slots, and others want some.
    pub fn is_scarce(&self, limit: u32) -> bool {
        self.has_company && self.more < limit / SCARCE_SHARE
    }

    /// Could more be in service, as soon as it is asked for, or answered, or asked for again?
    pub fn may_come(&self, serving: u32, limit: u32) -> bool {
        self.could_serve(serving, limit) > serving
    }

    /// Slots of `limit` that are in service, `serving`, and that could be: as whole clusters.
    pub fn could_serve(&self, serving: u32, limit: u32) -> u32 {
        let rest = limit - serving;
        let could = self.has.saturating_add(self.more).saturating_sub(serving);
        serving + if could >= rest { rest } else { could / CLUSTER * CLUSTER }
    }

    /// The answer to a claim, or news of it.
    pub fn answered(&mut self, has: u32, more: u32, has_company: bool) {
        self.waits &= has <= self.has;
        self.is_asked = false;
        (self.has, self.more, self.has_company) = (has, more, has_company);
    }

    /// What was refused may be asked for again.
    pub fn tick(&mut self) {
        self.waits = false;
    }

    /// What it has and does not serve goes to others: what it is to claim then, all told.
    pub fn give_up(&mut self, serving: u32) -> Option<u32> {
        if self.is_asked || self.has <= serving {
            return None;
        }
        (self.has, self.is_asked) = (serving, true);
        Some(serving)
    }

    /// What is to be claimed, all told, of an area that takes pages; `is_starved` says that it found
    /// no slot for want of a claim, `is_used` that it has pages.
    pub fn wanted(&mut self, serving: u32, limit: u32, is_starved: bool, is_used: bool) -> Option<u32> {
        let is_scarce = self.is_scarce(limit);
        let ahead = if is_scarce || !is_used { 0 } else { CLUSTER };
        let wants = is_starved || self.has < (serving + ahead).min(limit);
        if wants && !self.waits && !self.is_asked && self.may_come(serving, limit) {
            (self.waits, self.is_asked) = (true, true);
            let step = if is_scarce { CLUSTER } else { self.step };
            return Some(limit.min(serving.max(self.has) + step));
        }
        if is_scarce && !wants { self.give_up(serving) } else { None }
    }
}
