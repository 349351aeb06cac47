//! What is known of each slot of one area: how many refer to it, and which page wrote it.
//!
//! A window's slots are the bits of one word: those that pages have, and those that none can have.
//! So a run is looked at, taken and given back as a whole. What is the rule is not said slot by
//! slot: pages of a window that are neighbours in memory are known by the first of them, and
//! owners that do not fit in, or references beyond the first, have tables from the first one on
//! that there is. It asserts that a slot is taken when it is free
//! and given back as often as it was taken. Which slot a page gets is an allocator's business;
//! numbers here are the area's own, from 0, the header.

use alloc::vec::Vec;

use super::{CLUSTER, WINDOW, WINDOWS};
use crate::page::NONE;
use crate::types::PageId;

/// How many refer to a slot beside the first one. As many spaces as there can be
/// ([`crate::types::SpaceId`]) may share one.
type References = u16;

/// A bit for each slot of a window.
type Bits = u128;

const _: () = assert!(Bits::BITS == WINDOW, "a window is a word");

/// The slots of a window.
#[derive(Clone, Copy)]
struct Window {
    /// They are not free.
    taken: Bits,
    /// Of these, no page can have them: the header, bad ones, those that are being given back.
    barred: Bits,
    /// The page that its first slot is for. The others are for those behind it, but for strangers.
    first: PageId,
}

impl Window {
    const FRESH: Window = Window { taken: 0, barred: 0, first: PageId(0) };

    /// Do pages have all of them?
    #[inline]
    fn are_used(&self, bits: Bits) -> bool {
        self.taken & !self.barred & bits == bits
    }
}

/// The bits of `count` slots of one window.
#[inline]
fn bits(slot: u32, count: u32) -> Bits {
    let at = slot % WINDOW;
    assert!(count > 0 && at + count <= WINDOW, "the slots are of one window");
    (!0 >> (WINDOW - count)) << at
}

/// The slots of an area; they become known a cluster at a time, with use.
pub(super) struct SlotTable {
    limit: u32,
    known: u32,
    /// A cluster has [`WINDOWS`] of them, a short one, too.
    windows: Vec<Window>,
    /// By slot: the page that has it, where that is not the window's, else [`NONE`]. Slots behind
    /// the end have no strangers.
    strangers: Vec<u32>,
    /// By slot: who refers to it beside the first one. Nobody, behind the end.
    others: Vec<References>,
    /// Slots in use by pages.
    used: u32,
    /// Slots that no page can have: the header and bad ones.
    lost: u32,
    /// Most slots that may be in service.
    allowed: u32,
    /// Slots of clusters that are known and out of service.
    idle: u32,
    /// More slots would have been of use, and were not allowed.
    is_starved: bool,
}

impl SlotTable {
    pub fn new(limit: u32) -> Self {
        SlotTable {
            limit,
            known: 0,
            windows: Vec::new(),
            strangers: Vec::new(),
            others: Vec::new(),
            used: 0,
            lost: u32::from(limit > 0),
            allowed: u32::MAX,
            idle: 0,
            is_starved: false,
        }
    }

    /// Another cluster becomes known. False: there is none, or none is allowed.
    pub fn grow(&mut self) -> bool {
        let slots = (self.limit - self.known).min(CLUSTER);
        let is_allowed = slots <= self.allowed.saturating_sub(self.serving());
        self.is_starved |= if slots == 0 { self.idle > 0 } else { !is_allowed };
        is_allowed && self.know_more()
    }

    /// Another cluster becomes known, allowed or not.
    fn know_more(&mut self) -> bool {
        let old = self.known();
        let slots = (self.limit - old).min(CLUSTER);
        if slots == 0 {
            return false;
        }
        self.known += slots;
        self.windows.resize(self.windows.len() + WINDOWS, Window::FRESH);
        if old == 0 {
            (self.windows[0].taken, self.windows[0].barred) = (1, 1);
        }
        true
    }

    /// There are no more slots than these, of which none is known that is left out.
    pub fn end_at(&mut self, limit: u32) {
        assert!((self.known..=self.limit).contains(&limit), "what is known stays");
        self.limit = limit;
    }

    /// Slots known so far.
    #[inline]
    pub fn known(&self) -> u32 {
        self.known
    }

    /// Clusters known so far.
    pub fn clusters(&self) -> u32 {
        (self.windows.len() / WINDOWS) as u32
    }

    /// All slots, known or not.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Slots in use by pages.
    #[inline]
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Slots that pages can have, in service or not.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.limit - self.lost
    }

    /// Slots that no page can have.
    #[inline]
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Slots of all clusters that are in service.
    pub fn serving(&self) -> u32 {
        self.known - self.idle
    }

    /// So many slots may be in service.
    pub fn allow(&mut self, slots: u32) {
        self.allowed = slots;
    }

    /// Would more slots have been of use, since the last time that this was asked?
    pub fn was_starved(&mut self) -> bool {
        core::mem::take(&mut self.is_starved)
    }

    /// See [`SlotTable::was_starved`].
    pub fn is_starved(&self) -> bool {
        self.is_starved
    }

    /// A cluster that is withheld is out of service.
    pub fn retire(&mut self, cluster: u32) {
        self.idle += self.cluster_size(cluster);
    }

    /// It is in service again, if that is allowed, and still withheld.
    pub fn reinstate(&mut self, cluster: u32) -> bool {
        let slots = self.cluster_size(cluster);
        let is_allowed = slots <= self.allowed.saturating_sub(self.serving());
        self.idle -= if is_allowed { slots } else { 0 };
        is_allowed
    }

    #[inline]
    pub fn is_free(&self, slot: u32) -> bool {
        self.free_run(slot, 1) == 1
    }

    /// Free slots from this one on, up to `count`, in its window.
    #[inline]
    pub fn free_run(&self, slot: u32, count: u32) -> u32 {
        let Some(window) = self.windows.get((slot / WINDOW) as usize) else { return 0 };
        let known = self.known().saturating_sub(slot);
        let free = (window.taken >> (slot % WINDOW)).trailing_zeros();
        free.min(count).min(known).min(WINDOW - slot % WINDOW)
    }

    /// Slots from this one on that are not free, up to `count`, in its window.
    pub fn taken_run(&self, slot: u32, count: u32) -> u32 {
        if slot >= self.known() {
            return count;
        }
        let window = &self.windows[(slot / WINDOW) as usize];
        let taken = (window.taken >> (slot % WINDOW)).trailing_ones();
        taken.min(count)
    }

    /// Is no slot of the cluster free?
    pub fn is_cluster_full(&self, cluster: u32) -> bool {
        let (first, end) = (cluster * CLUSTER, cluster * CLUSTER + self.cluster_size(cluster));
        let mut windows = (first..end).step_by(WINDOW as usize);
        windows.all(|slot| {
            let all = bits(slot, WINDOW.min(end - slot));
            self.windows[(slot / WINDOW) as usize].taken == all
        })
    }

    /// Is no slot of the cluster in use? The header does not count.
    pub fn is_cluster_free(&self, cluster: u32) -> bool {
        let first = cluster * WINDOWS as u32;
        (first..first + WINDOWS as u32).all(|window| self.is_window_free(window))
    }

    /// As [`SlotTable::is_cluster_free`], for a window.
    #[inline]
    pub fn is_window_free(&self, window: u32) -> bool {
        self.windows[window as usize].taken == Bits::from(window == 0)
    }

    /// Slots of a cluster: the last one may be short.
    pub fn cluster_size(&self, cluster: u32) -> u32 {
        CLUSTER.min(self.known() - cluster * CLUSTER)
    }

    /// Do pages have all of them?
    #[inline]
    fn are_used(&self, slot: u32, count: u32) -> bool {
        let window = self.windows.get((slot / WINDOW) as usize);
        window.is_some_and(|window| window.are_used(bits(slot, count)))
    }

    /// The page that wrote the slot, while that is in use.
    #[inline]
    pub fn owner(&self, slot: u32) -> Option<PageId> {
        let window = *self.windows.get((slot / WINDOW) as usize)?;
        let stranger = self.strangers.get(slot as usize).filter(|&&page| page != NONE);
        let page = stranger.copied().unwrap_or(window.first.0.wrapping_add(slot % WINDOW));
        window.are_used(bits(slot, 1)).then_some(PageId(page))
    }

    /// The first slot from `slot` on that a page has.
    pub fn next_used(&self, mut slot: u32) -> Option<u32> {
        while slot < self.known {
            let window = self.windows[(slot / WINDOW) as usize];
            let used = (window.taken & !window.barred) >> (slot % WINDOW);
            if used != 0 {
                return Some(slot + used.trailing_zeros());
            }
            slot = (slot / WINDOW + 1) * WINDOW;
        }
        None
    }

    /// `count` free slots of one window are the pages' from `page` on.
    #[inline]
    pub fn take(&mut self, slot: u32, count: u32, page: PageId) {
        let bits = bits(slot, count);
        let first = PageId(page.0.wrapping_sub(slot % WINDOW));
        let window = &mut self.windows[(slot / WINDOW) as usize];
        assert!(window.taken & bits == 0, "a slot in use is never given away");
        if window.taken == window.barred {
            window.first = first;
        }
        let are_strangers = window.first != first;
        window.taken |= bits;
        self.used += count;
        if are_strangers || !self.strangers.is_empty() {
            self.name(slot, count, are_strangers.then_some(page));
        }
    }

    /// Slots are the strangers' from `page` on, or nobody's among these any more.
    #[cold]
    fn name(&mut self, slot: u32, count: u32, page: Option<PageId>) {
        for n in 0..count {
            match (self.strangers.get_mut((slot + n) as usize), page) {
                (Some(stranger), page) => *stranger = page.map_or(NONE, |page| page.0 + n),
                (None, Some(page)) => {
                    self.strangers.resize(self.known as usize, NONE);
                    self.strangers[(slot + n) as usize] = page.0 + n;
                }
                (None, None) => {}
            }
        }
    }

    /// Another page owns the slot now (mremap).
    pub fn set_owner(&mut self, slot: u32, page: PageId) {
        assert!(self.are_used(slot, 1), "only a slot in use has an owner");
        self.name(slot, 1, Some(page));
    }

    /// One more refers to the slot. False: no more can, and nothing has changed.
    pub fn share(&mut self, slot: u32) -> bool {
        assert!(self.are_used(slot, 1), "only a slot in use is shared");
        if self.others.len() <= slot as usize {
            self.others.resize(self.known as usize, 0);
        }
        let others = &mut self.others[slot as usize];
        // With the first one there are as many as the type holds.
        let more = others.checked_add(1).filter(|&more| more < References::MAX);
        *others = more.unwrap_or(*others);
        more.is_some()
    }

    /// Does anybody refer to one of the slots beside the first?
    #[inline]
    fn is_any_shared(&self, slot: u32, count: u32) -> bool {
        let end = ((slot + count) as usize).min(self.others.len());
        let others = self.others.get(slot as usize..end);
        others.is_some_and(|others| others.iter().any(|&others| others > 0))
    }

    /// Gives a reference back. True: it was the last one, and the slot is free.
    #[inline]
    pub fn release(&mut self, slot: u32) -> bool {
        if self.release_run(slot, 1) {
            return true;
        }
        self.others[slot as usize] -= 1;
        false
    }

    /// Gives `count` slots of one window back that nobody shares. False: somebody does, and nothing
    /// has changed.
    #[inline]
    pub fn release_run(&mut self, slot: u32, count: u32) -> bool {
        let is_any_shared = self.is_any_shared(slot, count);
        let bits = bits(slot, count);
        let window = &mut self.windows[(slot / WINDOW) as usize];
        assert!(window.are_used(bits), "a slot is released once a reference");
        if is_any_shared {
            return false;
        }
        window.taken &= !bits;
        self.used -= count;
        true
    }

    /// The page that has the slot gives it up, and no page ever gets it again.
    pub fn condemn(&mut self, slot: u32) {
        assert!(self.are_used(slot, 1), "only a slot in use turns out to be bad");
        assert!(!self.is_any_shared(slot, 1), "nobody shares a slot whose first write failed");
        self.windows[(slot / WINDOW) as usize].barred |= bits(slot, 1);
        self.used -= 1;
        self.lost += 1;
    }

    /// A slot that is bad from the start.
    pub fn exclude(&mut self, slot: u32) {
        while slot >= self.known() {
            assert!(self.know_more(), "a bad page is one of the area");
        }
        assert!(self.is_free(slot), "slots are excluded before any is used, each once");
        let window = &mut self.windows[(slot / WINDOW) as usize];
        window.taken |= bits(slot, 1);
        window.barred |= bits(slot, 1);
        self.lost += 1;
    }

    /// Takes all slots of a cluster in which none is in use out of everybody's reach, or puts them
    /// back.
    pub fn withhold(&mut self, cluster: u32, withheld: bool) {
        let (first, end) = (cluster * CLUSTER, cluster * CLUSTER + self.cluster_size(cluster));
        for slot in (first..end).step_by(WINDOW as usize) {
            let header = Bits::from(slot == 0);
            let all = bits(slot, WINDOW.min(end - slot));
            let (was, is) = if withheld { (header, all) } else { (all, header) };
            let window = &mut self.windows[(slot / WINDOW) as usize];
            assert!(window.taken == was && window.barred == was, "a free cluster, withheld or not");
            (window.taken, window.barred) = (is, is);
        }
    }
}
