//! One swap area: its slots, its allocator, and whether it takes pages.
//!
//! Slot numbers are the area's own here. Clusters that nobody uses any more are given back to the
//! backing (a hole is punched, a device is told), but for some that are kept for the next pages:
//! the first write of a block costs several times a later one.

use alloc::vec::Vec;

use super::allocator::Allocator;
use super::claim::Claim;
use super::table::SlotTable;
use super::{AreaConfig, CLUSTER, Placement, WINDOW};
use crate::types::PageId;

/// Of clusters without pages that still have blocks on the backing so many are kept, and one for so
/// many in use.
const KEPT_MIN: u32 = 16;
const KEPT_SHARE: u32 = 8;

/// Does the area take pages?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stand {
    /// Yes.
    Open,
    /// The backing has no room: no more, and what is in it stays.
    Closed,
    /// No: what is in it is brought elsewhere.
    Leaving,
    /// No, and what could be brought elsewhere was.
    Left,
}

/// An area.
pub(super) struct Area {
    pub table: SlotTable,
    pub allocator: Allocator,
    /// Number of its header among the slots of all areas.
    pub base: u32,
    pub priority: i16,
    pub stand: Stand,
    /// Pages that are being written to it.
    pub writing: u32,
    /// ... and that are read from it so that it can be left.
    pub draining: u32,
    /// Freed clusters are given back to the backing.
    discards: bool,
    /// By cluster: it has blocks on the backing. Empty when nothing is given back.
    written: Vec<bool>,
    /// Clusters without pages that have blocks.
    stale: u32,
    /// Where draining goes on, in which round over the slots, and whether it passed busy pages in
    /// this one.
    pub cursor: u32,
    pub round: u32,
    pub again: bool,
    /// It is to leave as soon as there is room elsewhere; until then it takes what nobody else does.
    pub is_asked: bool,
    /// A write to it has failed: it never takes a page again.
    pub has_failed: bool,
    /// It was left with pages that could not be read, and one of them may have been told of, or lost, since.
    pub is_stuck: bool,
    pub asks_again: bool,
    /// None: it has its slots for itself.
    claim: Option<Claim>,
    /// Others know what is in it: see [`Area::seal`].
    pub is_sealed: bool,
}

impl Area {
    pub fn new(config: &AreaConfig, placement: Placement, base: u32) -> Self {
        let mut table = SlotTable::new(config.slots);
        let claim = (config.claims > 0).then(|| Claim::new(config.claims));
        if claim.is_some() {
            table.allow(0);
        }
        Area {
            table,
            allocator: Allocator::new(placement),
            base,
            priority: config.priority,
            stand: Stand::Open,
            writing: 0,
            draining: 0,
            discards: config.discards || config.claims > 0,
            written: Vec::new(),
            stale: 0,
            cursor: 1,
            round: 0,
            again: false,
            is_asked: false,
            has_failed: false,
            is_stuck: false,
            asks_again: false,
            claim,
            is_sealed: false,
        }
    }

    /// It takes no more pages, and what is in it is to be brought elsewhere.
    pub fn leave(&mut self) {
        if matches!(self.stand, Stand::Open | Stand::Closed) {
            (self.stand, self.cursor, self.round, self.again) = (Stand::Leaving, 1, 0, false);
        }
    }

    /// It takes no more pages, and nothing of it is given back, as others know what is in it. Numbers
    /// that were never made use of are free for other areas.
    ///
    /// # Panics
    /// When a page is on its way there.
    pub fn seal(&mut self) {
        assert_eq!(self.writing, 0, "what others know is there");
        if self.stand == Stand::Open {
            self.stand = Stand::Closed;
        }
        (self.is_sealed, self.discards, self.claim) = (true, false, None);
        self.table.end_at(self.end_if_sealed());
    }

    /// Where its slots end, or would.
    pub fn end_if_sealed(&self) -> u32 {
        if self.table.known() > 0 { self.table.known() } else { self.table.limit() }
    }

    /// A slot that another process wrote is the page's.
    pub fn take_inherited(&mut self, slot: u32, page: PageId) {
        while slot >= self.table.known() {
            assert!(self.table.grow(), "the slot is one of the area");
        }
        self.table.take(slot, 1, page);
    }

    /// It does not leave as yet, unless it has failed.
    ///
    /// *The story* (by reading): a place that had failed was drained by order, too. As nobody had room for
    /// what was there it was put back into service.
    pub fn stay(&mut self) {
        if !self.has_failed {
            self.stand = if self.is_sealed { Stand::Closed } else { Stand::Open };
        }
    }

    /// Does it take no page?
    #[inline]
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Pages that it would still take.
    #[inline]
    pub fn room(&self) -> u32 {
        match self.stand {
            Stand::Open => self.capacity().saturating_sub(self.table.used()),
            _ => 0,
        }
    }

    /// Slots that pages can have.
    #[inline]
    pub fn capacity(&self) -> u32 {
        let limit = self.table.limit();
        let all = self.claim.as_ref().map_or(limit, |claim| claim.could_serve(self.table.serving(), limit));
        all.saturating_sub(self.table.lost())
    }

    /// Is there little left of what it shares with others?
    pub fn is_scarce(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.is_scarce(self.table.limit()))
    }

    /// Has it no slot for want of a claim that it may come to have?
    ///
    /// *The story:* while others were given time to give something back, faults did not wait, and took
    /// frames above the budget.
    pub fn is_claiming(&self) -> bool {
        let (serving, limit) = (self.table.serving(), self.table.limit());
        self.stand == Stand::Open
            && self.table.is_starved()
            && self.claim.as_ref().is_some_and(|claim| claim.may_come(serving, limit))
    }

    /// What it is to claim, all told.
    pub fn wanted_claim(&mut self) -> Option<u32> {
        let claim = self.claim.as_mut()?;
        let (serving, is_starved) = (self.table.serving(), self.table.was_starved());
        let wanted = match self.stand {
            Stand::Open => claim.wanted(serving, self.table.limit(), is_starved, self.table.used() > 0),
            // The shell has closed its claim.
            Stand::Left if self.table.used() == 0 => None,
            _ => claim.give_up(serving),
        };
        self.table.allow(claim.has());
        wanted
    }

    /// The answer to its claim, or news of it. What is given back is told to `give`, cluster by cluster.
    pub fn claimed(&mut self, has: u32, more: u32, has_company: bool, give: impl FnMut(u32)) {
        let Some(claim) = &mut self.claim else { return };
        let has_gained = has > claim.has();
        claim.answered(has, more, has_company);
        self.table.allow(has);
        self.reinstate();
        if self.is_scarce() && !has_gained {
            self.give_back(give);
        }
    }

    /// A claim that was refused may be asked for again.
    pub fn tick(&mut self) {
        if let Some(claim) = &mut self.claim {
            claim.tick();
        }
    }

    /// Clusters that nobody uses go, but for the first one, which has the header.
    fn give_back(&mut self, mut give: impl FnMut(u32)) {
        for cluster in 1..self.table.clusters() {
            if self.gives_back(cluster) && self.table.is_cluster_free(cluster) {
                let has_blocks = self.written.get(cluster as usize).is_some_and(|&written| written);
                self.stale += u32::from(!has_blocks);
                self.withhold(cluster);
                give(cluster);
            }
        }
    }

    /// Idle clusters are in service again, as many as are claimed.
    fn reinstate(&mut self) {
        let Some(claim) = &mut self.claim else { return };
        while let Some(&cluster) = claim.idle.last()
            && self.table.reinstate(cluster)
        {
            claim.idle.pop();
            Area::put_back(&mut self.table, &mut self.allocator, cluster);
        }
    }

    /// So many free slots from this one on, in one window, are the pages'.
    #[inline]
    pub fn take(&mut self, slot: u32, count: u32, page: PageId) {
        if self.discards {
            self.note_written(slot / CLUSTER);
        }
        self.table.take(slot, count, page);
        self.allocator.taken(&self.table, slot);
    }

    fn note_written(&mut self, cluster: u32) {
        let index = cluster as usize;
        if index >= self.written.len() {
            self.written.resize(index + 1, false);
        }
        let was = core::mem::replace(&mut self.written[index], true);
        self.stale -= u32::from(was && self.table.is_cluster_free(cluster));
    }

    /// Gives a reference back. The answer is a cluster that is to be given back to the backing.
    pub fn release(&mut self, slot: u32) -> Option<u32> {
        if !self.table.release(slot) {
            return None;
        }
        self.allocator.freed(&self.table, slot);
        self.emptied(slot / CLUSTER)
    }

    /// Gives slots of one window back, each once.
    pub fn release_run(&mut self, slot: u32, count: u32) -> Option<u32> {
        if !self.table.release_run(slot, count) {
            // Some are shared: one by one, and at most the last of them empties the cluster.
            return (slot..slot + count).filter_map(|slot| self.release(slot)).last();
        }
        self.allocator.freed(&self.table, slot);
        self.emptied(slot / CLUSTER)
    }

    fn emptied(&mut self, cluster: u32) -> Option<u32> {
        if !self.discards || !self.table.is_cluster_free(cluster) {
            return None;
        }
        self.stale += 1;
        let kept = (self.table.used() / CLUSTER / KEPT_SHARE).max(KEPT_MIN);
        if self.stale <= kept && !self.gives_back(cluster) {
            return None;
        }
        self.withhold(cluster);
        Some(cluster)
    }

    /// Is it for others to have? The first one is not: it has the header.
    fn gives_back(&self, cluster: u32) -> bool {
        let can_give = self.claim.as_ref().is_some_and(|claim| !claim.keeps);
        cluster > 0 && can_give && (self.is_scarce() || self.stand != Stand::Open)
    }

    /// A cluster that has blocks and no pages is out of everybody's reach.
    fn withhold(&mut self, cluster: u32) {
        self.stale -= 1;
        if let Some(written) = self.written.get_mut(cluster as usize) {
            *written = false;
        }
        self.table.withhold(cluster, true);
        self.allocator.taken(&self.table, cluster * CLUSTER);
    }

    /// The backing has the cluster's blocks back: it can be used again, or others may have it. Or it
    /// has `kept` them: then the claim stays, and none is given up until the backing gives some back.
    pub fn discarded(&mut self, cluster: u32, kept: bool) {
        if let Some(claim) = &mut self.claim {
            claim.keeps = kept;
        }
        let gives_back = self.gives_back(cluster);
        match &mut self.claim {
            Some(claim) if gives_back => {
                claim.idle.push(cluster);
                self.table.retire(cluster);
            }
            _ => Area::put_back(&mut self.table, &mut self.allocator, cluster),
        }
    }

    fn put_back(table: &mut SlotTable, allocator: &mut Allocator, cluster: u32) {
        table.withhold(cluster, false);
        let first = cluster * CLUSTER;
        let windows = (first..first + table.cluster_size(cluster)).step_by(WINDOW as usize);
        windows.for_each(|slot| allocator.freed(table, slot));
    }
}
