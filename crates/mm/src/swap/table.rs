//! What is known of each slot of one area: how many refer to it, and which page wrote it.
//!
//! It counts the slots in use by window and by cluster, and asserts that a slot is taken when it is
//! free and given back as often as it was taken. Which slot a page gets is an allocator's business;
//! numbers here are the area's own, from 0, the header.

use alloc::vec::Vec;

use super::{CLUSTER, WINDOW, WINDOWS};
use crate::page::NONE;
use crate::types::PageId;

/// How many refer to a slot. As many spaces as there can be ([`crate::types::SpaceId`]) may share
/// one.
pub(super) type References = u16;

/// The slots of an area; they become known a cluster at a time, with use.
pub(super) struct SlotTable {
    limit: u32,
    /// 0 = free. Slots that must not be used count as in use, by nobody.
    references: Vec<References>,
    /// The page that wrote the slot last, or [`NONE`].
    owner: Vec<u32>,
    /// Slots that are not free, by window, a cluster an entry.
    windows: Vec<[u16; WINDOWS]>,
    /// Slots in use by pages.
    used: u32,
    /// Slots that no page can have: the header and bad ones.
    lost: u32,
}

impl SlotTable {
    pub fn new(limit: u32) -> Self {
        SlotTable {
            limit,
            references: Vec::new(),
            owner: Vec::new(),
            windows: Vec::new(),
            used: 0,
            lost: u32::from(limit > 0),
        }
    }

    /// Another cluster becomes known. False: there is none.
    pub fn grow(&mut self) -> bool {
        let old = self.known();
        let slots = (self.limit - old).min(CLUSTER);
        if slots == 0 {
            return false;
        }
        self.references.resize((old + slots) as usize, 0);
        self.owner.resize((old + slots) as usize, NONE);
        self.windows.push([0; WINDOWS]);
        if old == 0 {
            self.references[0] = 1;
            self.windows[0][0] = 1;
        }
        true
    }

    /// Slots known so far.
    #[inline]
    pub fn known(&self) -> u32 {
        self.references.len() as u32
    }

    /// Clusters known so far.
    pub fn clusters(&self) -> u32 {
        self.windows.len() as u32
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

    /// Slots that pages can have.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.limit - self.lost
    }

    /// By slot; 0 = free.
    pub fn references(&self) -> &[References] {
        &self.references
    }

    #[inline]
    pub fn is_free(&self, slot: u32) -> bool {
        self.references.get(slot as usize) == Some(&0)
    }

    /// Are `count` slots of one window free?
    #[inline]
    pub fn are_free(&self, slot: u32, count: u32) -> bool {
        let slots = self.references.get(slot as usize..(slot + count) as usize);
        slots.is_some_and(|slots| slots.iter().fold(0, |all, &count| all | count) == 0)
    }

    /// Slots of a cluster that are not free.
    #[inline]
    pub fn cluster_used(&self, cluster: u32) -> u32 {
        self.windows[cluster as usize].iter().map(|&used| u32::from(used)).sum()
    }

    /// Is no slot of the cluster in use? The header does not count.
    pub fn is_cluster_free(&self, cluster: u32) -> bool {
        self.cluster_used(cluster) == u32::from(cluster == 0)
    }

    /// As [`SlotTable::is_cluster_free`], for a window.
    pub fn is_window_free(&self, window: u32) -> bool {
        let used = self.windows[(window / WINDOWS as u32) as usize][window as usize % WINDOWS];
        used == u16::from(window == 0)
    }

    /// Slots of a cluster: the last one may be short.
    pub fn cluster_size(&self, cluster: u32) -> u32 {
        CLUSTER.min(self.known() - cluster * CLUSTER)
    }

    /// The page that wrote the slot, while that is in use.
    #[inline]
    pub fn owner(&self, slot: u32) -> Option<PageId> {
        let owner = *self.owner.get(slot as usize)?;
        (owner != NONE).then_some(PageId(owner))
    }

    /// `count` free slots of one window are the pages' from `page` on.
    #[inline]
    pub fn take(&mut self, slot: u32, count: u32, page: PageId) {
        let slots = slot as usize..(slot + count) as usize;
        let references = &mut self.references[slots.clone()];
        let taken = references.iter().fold(0, |all, &count| all | count);
        assert_eq!(taken, 0, "a slot in use is never given away");
        references.fill(1);
        self.owner[slots].iter_mut().zip(page.0..).for_each(|(owner, page)| *owner = page);
        *self.window_mut(slot) += count as u16;
        self.used += count;
    }

    /// Another page owns the slot now (mremap).
    pub fn set_owner(&mut self, slot: u32, page: PageId) {
        assert!(self.owner(slot).is_some(), "only a slot in use has an owner");
        self.owner[slot as usize] = page.0;
    }

    /// One more refers to the slot. False: no more can, and nothing has changed.
    pub fn share(&mut self, slot: u32) -> bool {
        assert!(self.owner(slot).is_some(), "only a slot in use is shared");
        let references = &mut self.references[slot as usize];
        let more = references.checked_add(1);
        *references = more.unwrap_or(*references);
        more.is_some()
    }

    /// Gives a reference back. True: it was the last one, and the slot is free.
    #[inline]
    pub fn release(&mut self, slot: u32) -> bool {
        let index = slot as usize;
        assert!(self.owner[index] != NONE, "a slot is released once a reference");
        self.references[index] -= 1;
        if self.references[index] > 0 {
            return false;
        }
        self.owner[index] = NONE;
        *self.window_mut(slot) -= 1;
        self.used -= 1;
        true
    }

    /// Gives `count` slots of one window back that nobody shares. False: somebody does, and nothing
    /// has changed.
    #[inline]
    pub fn release_run(&mut self, slot: u32, count: u32) -> bool {
        let slots = slot as usize..(slot + count) as usize;
        // Without a way out in the middle: several are looked at with one instruction.
        let references = &mut self.references[slots.clone()];
        if references.iter().fold(0, |other, &references| other | references ^ 1) != 0 {
            return false;
        }
        let owners = &mut self.owner[slots];
        let nobodys = owners.iter().fold(0, |count, &owner| count + u32::from(owner == NONE));
        assert_eq!(nobodys, 0, "a slot is released once a reference");
        references.fill(0);
        owners.fill(NONE);
        *self.window_mut(slot) -= count as u16;
        self.used -= count;
        true
    }

    /// The page that has the slot gives it up, and no page ever gets it again.
    pub fn condemn(&mut self, slot: u32) {
        assert!(self.owner(slot).is_some(), "only a slot in use turns out to be bad");
        assert_eq!(self.references[slot as usize], 1, "nobody shares a slot whose first write failed");
        self.owner[slot as usize] = NONE;
        self.used -= 1;
        self.lost += 1;
    }

    /// A slot that is bad from the start.
    pub fn exclude(&mut self, slot: u32) {
        while slot >= self.known() {
            assert!(self.grow(), "a bad page is one of the area");
        }
        assert!(self.is_free(slot), "slots are excluded before any is used, each once");
        self.references[slot as usize] = 1;
        *self.window_mut(slot) += 1;
        self.lost += 1;
    }

    /// Takes all slots of a cluster in which none is in use out of everybody's reach, or puts them
    /// back.
    pub fn withhold(&mut self, cluster: u32, withheld: bool) {
        let first = (cluster * CLUSTER).max(1);
        let slots = first as usize..(cluster * CLUSTER + self.cluster_size(cluster)) as usize;
        let was = References::from(!withheld);
        assert!(self.references[slots.clone()].iter().all(|&references| references == was));
        self.references[slots.clone()].fill(References::from(withheld));
        for slot in slots {
            let window = self.window_mut(slot as u32);
            *window = if withheld { *window + 1 } else { *window - 1 };
        }
    }

    #[inline]
    fn window_mut(&mut self, slot: u32) -> &mut u16 {
        &mut self.windows[(slot / CLUSTER) as usize][(slot % CLUSTER / WINDOW) as usize]
    }
}
