//! Swap areas that come and go while the engine is at work.
//!
//! An area that is to go takes no more pages, and `mm` brings elsewhere what is in it. Then its
//! file is closed, which also gives up the lock on it; its slot numbers are never used again.

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;

use overspill_mm::types::Nanos;
use overspill_mm::{AreaConfig, AreaId, Event};
use overspill_sys::{Errno, PAGE_SIZE};

use super::claiming::Claim;
use super::{Engine, Notice};
use crate::swapfile::{GivesBack, SwapFile, SwapPlace};

/// How often it is looked whether an area that had no room has it again, and how much more that is.
const REOPEN_NS: Nanos = 1_000_000_000;
const ROOM_BYTES: u64 = 16 << 20;

/// What is known of an area beside its slots.
pub(super) struct KnownArea {
    /// Of the place that it is, or lies in.
    pub(super) path: CString,
    pub(super) bytes: u64,
    pub(super) leaves: bool,
    /// Which place of the run that is: see [`crate::spill`].
    pub(super) spot: Option<u8>,
    /// That by which it was to go.
    order: Option<u32>,
    /// Of what it may use others may use some.
    pub(super) claim: Option<Claim>,
    /// What another one like it is made from; None where there can be none.
    pub(super) renewed: Option<SwapPlace>,
    /// Other processes know what is in it: it only empties.
    pub(super) is_sealed: bool,
    /// What is in it is brought elsewhere, for the room that it takes.
    pub(super) thins_out: bool,
    /// What was free where it lies when it was seen to have no room.
    room_when_closed: Option<u64>,
}

impl KnownArea {
    /// One that the parent of this process has made at a place with this path.
    ///
    /// *The story* (by reading): it had no path. A place that was drained was said to be left while
    /// children had pages there.
    pub(super) fn inherited(path: CString, slots: u32) -> KnownArea {
        let (bytes, is_sealed) = (u64::from(slots) * PAGE_SIZE as u64, true);
        KnownArea { is_sealed, ..KnownArea::new(path, bytes, None, None) }
    }

    fn new(path: CString, bytes: u64, claim: Option<Claim>, renewed: Option<SwapPlace>) -> KnownArea {
        let (leaves, order, is_sealed, thins_out) = (false, None, false, false);
        let (room_when_closed, spot) = (None, None);
        KnownArea { path, bytes, leaves, spot, order, claim, renewed, is_sealed, thins_out, room_when_closed }
    }

    /// May a child read what is in it?
    pub(super) fn can_be_shared(&self) -> bool {
        !self.leaves && self.order.is_none() && (self.is_sealed || self.renewed.is_some())
    }
}

/// How far an order is by which areas are to go.
pub struct Leaving {
    /// Of one at least pages are still to be brought elsewhere.
    pub is_open: bool,
    /// That waits until there is room elsewhere.
    pub waits: bool,
    /// Pages that are there; once it is no more open those that cannot be read.
    pub left: u32,
}

impl Engine {
    /// One more swap area, as large as there are slot numbers left; so many `others` are to come, which get
    /// as many. False: there are none, and it is left out.
    ///
    /// *The story:* after a first place of more than 8 TiB the second had no numbers, and the third
    /// ended the program. *The other story:* then it was left out without a word, whatever its priority.
    fn add_area(&mut self, swap: SwapFile, others: usize) -> bool {
        let numbers = self.mm.slot_numbers_left() / (others as u32 + 1);
        if numbers < 2 {
            return false;
        }
        let slots = u32::try_from(swap.bytes / PAGE_SIZE as u64).unwrap_or(u32::MAX).min(numbers);
        let (priority, discards) = (swap.priority, swap.gives_back != GivesBack::Nothing);
        let claim = Claim::new(self.claims.as_ref(), swap.limits);
        let claims = claim.as_ref().map_or(0, Claim::step);
        let id = self.mm.add_area(&AreaConfig { slots, priority, discards, claims });
        assert_eq!(usize::from(id.0), self.areas.len(), "areas are numbered in order");
        let renewed = swap.renewed.filter(|_| claim.is_none());
        let known = KnownArea::new(swap.path, swap.bytes, claim, renewed);
        self.areas.push(KnownArea { spot: swap.spot, ..known });
        swap.bad_pages.iter().for_each(|&page| self.mm.exclude(id, page));
        self.transfers.add_area(swap.file, swap.lock, self.mm.area_place(id).0.0, swap.gives_back);
        true
    }

    /// These swap areas, each as large as the others leave it numbers.
    pub(crate) fn add_areas(&mut self, areas: Vec<SwapFile>) {
        let count = areas.len();
        for (index, area) in areas.into_iter().enumerate() {
            self.add_area(area, count - index - 1);
        }
    }

    /// Pages go to this place, too, from now on. EAGAIN: another process has the area. ENOSPC: it
    /// has no room, or there are too many.
    pub fn add_place(&mut self, place: &SwapPlace) -> Result<(), Errno> {
        let swap = SwapFile::open(place, u64::MAX)?;
        let has_room = swap.bytes > PAGE_SIZE as u64 && self.areas.len() < usize::from(u8::MAX);
        if !has_room || !self.add_area(swap, 0) {
            return Err(Errno::NOSPC);
        }
        self.report.note_areas(self.area_bytes());
        self.feed(Event::Tick);
        Ok(())
    }

    /// The areas of the place with this path are to go, by this order. EBUSY: no other would be left
    /// to take what is in them. ENOENT: there is none.
    pub fn drain_place(&mut self, order: u32, path: &CStr) -> Result<(), Errno> {
        let ids = (0..self.areas.len()).map(|index| AreaId(index as u8));
        let (meant, others): (Vec<_>, Vec<_>) = ids.partition(|&id| self.has_at(path, id));
        if meant.is_empty() {
            return Err(Errno::NOENT);
        }
        if !others.into_iter().any(|id| self.mm.takes_pages(id)) {
            return Err(Errno::BUSY);
        }
        for id in meant {
            let area = &mut self.areas[usize::from(id.0)];
            (area.leaves, area.order) = (area.bytes > 0, Some(order));
            self.feed(Event::AreaLeaves { area: id });
        }
        Ok(())
    }

    /// Does the area lie at the path, and is it in use? One that was left is while pages are stuck
    /// there.
    fn has_at(&self, path: &CStr, id: AreaId) -> bool {
        let area = &self.areas[usize::from(id.0)];
        area.path.as_c_str() == path && !area.leaves && (area.bytes > 0 || self.mm.areas_beside(id).0 > 0)
    }

    /// Of those that had no room some may have it by now: what filled the file system is gone. That is so
    /// where more is free than there was: a quota, or a limit on files, shows in no such figure.
    ///
    /// *The story:* 250 MiB were free again, and a program stayed 80 MiB above its budget until it ended.
    pub(super) fn reopen_areas(&mut self, now: Nanos) {
        if now < self.reopens_next {
            return;
        }
        self.reopens_next = now + REOPEN_NS;
        self.look_at_closed();
    }

    /// What is free now where closed areas lie, against what was when they were first seen so.
    pub(super) fn look_at_closed(&mut self) {
        for id in (0..self.areas.len()).map(|index| AreaId(index as u8)) {
            let room_when_closed = &mut self.areas[usize::from(id.0)].room_when_closed;
            if !self.mm.is_area_closed(id) {
                *room_when_closed = None;
                continue;
            }
            let Some(room) = self.transfers.room_of(id.0.into()) else { continue };
            let before = *room_when_closed.get_or_insert(room);
            if room >= before.saturating_add(ROOM_BYTES) {
                self.mm.reopen_area(id);
            }
        }
    }

    /// How far the order is.
    #[must_use]
    pub fn leaving(&self, order: u32) -> Leaving {
        let mut leaving = Leaving { is_open: false, waits: false, left: 0 };
        for (area, id) in self.areas.iter().zip((0..).map(AreaId)) {
            if area.order == Some(order) {
                leaving.is_open |= area.leaves;
                leaving.left += self.mm.areas_beside(id).0;
            }
        }
        leaving.waits = leaving.is_open && self.mm.waits_for_room();
        leaving
    }

    /// Bytes of all areas that are not to go.
    pub(super) fn area_bytes(&self) -> u64 {
        self.areas.iter().filter(|area| !area.leaves && !area.is_sealed).map(|area| area.bytes).sum()
    }

    /// What could be brought elsewhere was. What could not, cannot be read: its pages fail when they
    /// are touched.
    pub(super) fn area_left(&mut self, area: AreaId, slots: u32) {
        let known = &mut self.areas[usize::from(area.0)];
        known.bytes = 0;
        if core::mem::take(&mut known.leaves) && slots > 0 {
            self.notices.push_back(Notice::AreaNotEmptied { pages: slots });
        }
        if slots == 0 {
            self.transfers.close_area(area.0.into());
            self.close_claim(area);
        }
        self.report.note_areas(self.area_bytes());
    }
}
