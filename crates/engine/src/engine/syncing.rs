//! What was stored to a shared mapping of a file goes to the file: which pages, and what is stored to
//! them meanwhile.
//!
//! A shared mapping is a private one whose stores are published. Until then they are the process's
//! own, in RAM or on swap; so nothing here writes, and a page may leave at any time. Whoever syncs
//! reads the pages through the mapping and writes them, from a thread of his own. From the beginning
//! on their first stores are told once more: what is stored meanwhile is the next sync's.

use alloc::vec::Vec;
use core::ops::Range;

use overspill_mm::Event;
use overspill_mm::types::Slot;
use overspill_sys::PAGE_SIZE;

use super::Engine;
use super::files::FilePart;
use crate::view::{PROGRAM, vpn};

impl Engine {
    /// Can stores to pages of a file be followed?
    #[must_use]
    pub fn tells_stores(&self) -> bool {
        self.view.program.can_move()
    }

    /// Begins a sync of the shared mapping whose region begins at `start`: the runs of bytes of the
    /// mapping that are to be written, in order, once stores to them are told
    /// ([`Engine::tell_stores`]).
    pub fn begin_sync(&mut self, start: usize) -> Vec<Range<usize>> {
        let part = self.part_at(start);
        let slots = self.transfers.files().of_slot(Slot(part.slot)).begin_sync();
        let bytes = |slot: u32| (slot - part.slot) as usize * PAGE_SIZE;
        slots.iter().map(|run| bytes(run.start)..bytes(run.end)).collect()
    }

    /// Has stores to these runs be told from now on; what is not in view comes protected. False: the
    /// mapping is changing just now.
    pub fn tell_stores(&mut self, start: usize, runs: &[Range<usize>]) -> bool {
        runs.iter().all(|run| self.view.program.protect(start + run.start..start + run.end))
    }

    /// Ends it. If it went well what was stored before it began is in the file: the runs of bytes of
    /// which that is so, and which need no place on swap ([`Engine::free_synced`]).
    pub fn end_sync(&mut self, start: usize, went_well: bool) -> Vec<Range<usize>> {
        let part = self.part_at(start);
        let clean = self.transfers.files().of_slot(Slot(part.slot)).end_sync(went_well);
        let bytes = |slot: u32| (slot - part.slot) as usize * PAGE_SIZE;
        clean.iter().map(|run| bytes(run.start)..bytes(run.end)).collect()
    }

    /// These bytes are as the file has them since a sync, but for what was stored to since then: the rest
    /// takes no place on swap any more. It visits each page: too many at a time keep others waiting.
    pub fn free_synced(&mut self, start: usize, runs: &[Range<usize>]) {
        let part = self.part_at(start);
        let slot = |bytes: usize| part.slot + (bytes / PAGE_SIZE) as u32;
        for run in runs {
            let mapped = self.transfers.files().of_slot(Slot(part.slot));
            for clean in mapped.not_stored(slot(run.start)..slot(run.end)) {
                let (start, end) = (part.at(clean.start), part.at(clean.end));
                self.feed(Event::Published { space: PROGRAM, start, end });
            }
        }
    }

    fn part_at(&self, start: usize) -> FilePart {
        let parts = self.file_parts();
        parts
            .into_iter()
            .find(|part| part.start == vpn(start))
            .expect("the region is there until it is dropped")
    }
}
