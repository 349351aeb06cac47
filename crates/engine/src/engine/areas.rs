//! Swap areas that come and go while the engine is at work.
//!
//! An area that is to go takes no more pages, and `mm` brings elsewhere what is in it. Then its
//! file is closed, which also gives up the lock on it; its slot numbers are never used again.

use alloc::ffi::CString;
use core::ffi::CStr;

use overspill_mm::{AreaConfig, AreaId, Event};
use overspill_sys::{Errno, PAGE_SIZE};

use super::{Engine, Notice};
use crate::swapfile::{GivesBack, SwapFile, SwapPlace};

/// What is known of an area beside its slots.
pub(super) struct KnownArea {
    /// Of the place that it is, or lies in.
    path: CString,
    bytes: u64,
    leaves: bool,
}

impl Engine {
    /// One more swap area, as large as there are slot numbers left. False: there are none, and it is
    /// left out.
    ///
    /// *The story:* after a first place of more than 8 TiB the second had no numbers, and the third
    /// ended the program.
    pub(crate) fn add_area(&mut self, swap: SwapFile) -> bool {
        if self.mm.slot_numbers_left() < 2 {
            return false;
        }
        let slots = u32::try_from(swap.bytes / PAGE_SIZE as u64).unwrap_or(u32::MAX);
        let discards = swap.gives_back != GivesBack::Nothing;
        let id = self.mm.add_area(&AreaConfig { slots, priority: swap.priority, discards });
        assert_eq!(usize::from(id.0), self.areas.len(), "areas are numbered in order");
        self.areas.push(KnownArea { path: swap.path, bytes: swap.bytes, leaves: false });
        swap.bad_pages.iter().for_each(|&page| self.mm.exclude(id, page));
        self.transfers.add_area(swap.file, swap.lock, self.mm.area_place(id).0.0, swap.gives_back);
        true
    }

    /// Pages go to this place, too, from now on. EAGAIN: another process has the area. ENOSPC: it
    /// has no room, or there are too many.
    pub fn add_place(&mut self, place: &SwapPlace) -> Result<(), Errno> {
        let swap = SwapFile::open(place, u64::MAX)?;
        let has_room = swap.bytes > PAGE_SIZE as u64 && self.areas.len() < usize::from(u8::MAX);
        if !has_room || !self.add_area(swap) {
            return Err(Errno::NOSPC);
        }
        self.report.note_areas(self.area_bytes());
        self.feed(Event::Tick);
        Ok(())
    }

    /// The areas of the place with this path are to go. EBUSY: no other would be left to take what
    /// is in them. ENOENT: there is none.
    pub fn drain_place(&mut self, path: &CStr) -> Result<(), Errno> {
        // One of which nothing is left was left before.
        let is_meant = |area: &KnownArea| area.path.as_c_str() == path && !area.leaves && area.bytes > 0;
        if !self.areas.iter().any(is_meant) {
            return Err(Errno::NOENT);
        }
        let ids = (0..).map(AreaId).zip(&self.areas);
        let others = ids.filter(|(_, area)| !is_meant(area) && !area.leaves).map(|(id, _)| id);
        if !others.into_iter().any(|id| self.mm.takes_pages(id)) {
            return Err(Errno::BUSY);
        }
        for index in 0..self.areas.len() {
            if is_meant(&self.areas[index]) {
                self.areas[index].leaves = true;
                self.feed(Event::AreaLeaves { area: AreaId(index as u8) });
            }
        }
        Ok(())
    }

    /// Areas that are to go and are not empty yet.
    #[must_use]
    pub fn areas_leaving(&self) -> u32 {
        self.areas.iter().filter(|area| area.leaves).count() as u32
    }

    /// Bytes of all areas that are not to go.
    fn area_bytes(&self) -> u64 {
        self.areas.iter().filter(|area| !area.leaves).map(|area| area.bytes).sum()
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
        }
        self.report.note_areas(self.area_bytes());
    }
}
