//! Files that others change while a program has them mapped, and mappings that go back to the kernel.
//!
//! Where a read lease is held, whoever wants to write to a file waits until the program has the
//! kernel's own mapping again, which is as coherent as ever. Where none is to be had the file is
//! looked at: what has changed goes back, too, a moment later. A mapping with stores of the
//! program's own stays: POSIX leaves open what others' changes do to it, and its clean pages are
//! read anew. A file that was cut raises SIGBUS behind its new end.

use alloc::vec::Vec;

use overspill_mm::types::{Slot, Vpn};
use overspill_sys::maps::{BUFFER_BYTES, Maps};
use overspill_sys::mem::Prot;
use overspill_sys::{AddressRange, PAGE_SIZE, file, lease, overlap};

use super::Engine;
use super::files::FilePart;
use crate::report::Left;
use crate::view::address;

/// What was seen of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Nothing.
    Same,
    /// It is shorter than it was.
    Cut,
    /// Somebody has written to it, or wants to.
    Changed,
}

impl Engine {
    /// Looks whether any file was cut or changed, or is about to be, and forgets those that nobody
    /// has mapped any more.
    pub fn look_at_files(&mut self) {
        if self.transfers.files().is_empty() {
            return;
        }
        self.forget_unmapped();
        let firsts: Vec<u32> = self.transfers.files().each().map(|mapped| mapped.first_slot).collect();
        for first in firsts {
            match self.seen(first) {
                Seen::Same => {}
                Seen::Cut => {
                    self.finish_transfers();
                    self.poison_beyond(first);
                }
                Seen::Changed => self.settle_change(first),
            }
        }
    }

    fn seen(&mut self, first_slot: u32) -> Seen {
        let source = &mut self.transfers.files().of_slot(Slot(first_slot)).source;
        if source.program.as_ref().is_some_and(|program| program.leased && lease::is_breaking(&program.plain))
        {
            return Seen::Changed;
        }
        let Ok(status) = file::status(&source.file) else { return Seen::Same };
        if status.len < source.len {
            source.len = status.len;
            return Seen::Cut;
        }
        match &mut source.program {
            Some(program) if program.changed_ns != status.changed_ns => {
                program.changed_ns = status.changed_ns;
                Seen::Changed
            }
            _ => Seen::Same,
        }
    }

    /// Mappings without a region, and without a read under way, are over.
    fn forget_unmapped(&mut self) {
        let parts = self.file_parts();
        let is_left =
            |first: u32, pages: u32| parts.iter().any(|part| (first..first + pages).contains(&part.slot));
        let over: Vec<u32> = self
            .transfers
            .files()
            .each()
            .filter(|mapped| !is_left(mapped.first_slot, mapped.pages))
            .map(|mapped| mapped.first_slot)
            .collect();
        if over.is_empty() {
            return;
        }
        // A page that is being read has the slot until that has ended.
        self.finish_transfers();
        over.into_iter().for_each(|first| self.transfers.files().remove(first));
    }

    /// Somebody writes to the file, or waits to.
    fn settle_change(&mut self, first_slot: u32) {
        let mapped = self.transfers.files().of_slot(Slot(first_slot));
        let has_stores = mapped.has_stores();
        let handed = !has_stores && self.hand_back(first_slot, Left::Changing);
        if !handed {
            self.finish_transfers();
            self.read_anew(first_slot);
        }
        let mapped = self.transfers.files().each().find(|mapped| mapped.first_slot == first_slot);
        if let Some(program) = mapped.and_then(|mapped| mapped.source.program.as_mut())
            && core::mem::take(&mut program.leased)
        {
            let _ = lease::give_up(&program.plain);
        }
        self.forget_unmapped();
    }

    /// Drops the pages of a file that were not stored to: what is touched next is what is there now.
    fn read_anew(&mut self, first_slot: u32) {
        for part in self.parts_of(first_slot) {
            for run in self.clean_runs(part) {
                self.drop_pages(run.start, run.end);
            }
        }
    }

    /// The runs of pages that were not stored to.
    fn clean_runs(&mut self, part: FilePart) -> Vec<FilePart> {
        let mapped = self.transfers.files().of_slot(Slot(part.slot));
        let mut runs: Vec<FilePart> = Vec::new();
        for (vpn, slot) in (part.start.0..part.end.0).map(Vpn).zip(part.slot..) {
            if mapped.is_protected() && mapped.is_stored(Slot(slot)) {
                continue;
            }
            match runs.last_mut().filter(|run| run.end == vpn) {
                Some(run) => run.end = vpn.offset(1),
                None => runs.push(FilePart { start: vpn, end: vpn.offset(1), slot }),
            }
        }
        runs
    }

    /// Gives the mappings that overlap a range back to the kernel; pages that were stored to stay as
    /// they are. False where that failed.
    pub fn hand_back_range(&mut self, range: &AddressRange, why: Left) -> bool {
        let mut firsts: Vec<u32> = Vec::new();
        for part in self.file_parts() {
            if overlap(&(address(part.start)..address(part.end)), range) {
                firsts.push(self.transfers.files().of_slot(Slot(part.slot)).first_slot);
            }
        }
        firsts.dedup();
        let handed = firsts.into_iter().all(|first| self.hand_back(first, why));
        self.forget_unmapped();
        handed
    }

    /// The mapping that is in most pieces goes back.
    pub(super) fn hand_back_most_cut(&mut self) {
        let firsts: Vec<u32> = self.transfers.files().each().map(|mapped| mapped.first_slot).collect();
        let most = firsts.into_iter().max_by_key(|&first| self.parts_of(first).len());
        if let Some(first) = most {
            let handed = self.hand_back(first, Left::Other);
            assert!(handed, "a mapping in more pieces than can be told of cannot be left to a fork");
        }
    }

    /// Maps the file itself over all that is left of a mapping.
    fn hand_back(&mut self, first_slot: u32, why: Left) -> bool {
        // What is under way goes into pages that are about to be nobody's.
        self.finish_transfers();
        let parts = self.parts_of(first_slot);
        let pages: u64 = parts.iter().map(|part| part.end.0 - part.start.0).sum();
        self.report.note_file_left(why, pages * PAGE_SIZE as u64);
        let handed = parts
            .into_iter()
            .all(|part| self.clean_runs(part).into_iter().all(|run| self.hand_back_part(first_slot, run)));
        self.handle_changes();
        self.tell_file_ranges();
        handed
    }

    fn hand_back_part(&mut self, first_slot: u32, part: FilePart) -> bool {
        let Ok(maps) = Maps::open() else { return false };
        let mut buffer = [0; BUFFER_BYTES];
        let mapped = self.transfers.files().of_slot(Slot(first_slot));
        let Some(program) = &mapped.source.program else { return false };
        let (plain, lies) = (program.plain.raw(), !program.place.may_store());
        let shared = program.place.shared.load(core::sync::atomic::Ordering::SeqCst);
        let offset = mapped.source.offset + u64::from(part.slot - mapped.first_slot) * PAGE_SIZE as u64;
        let (start, end) = (address(part.start), address(part.end));
        let mut at = start;
        while at < end {
            let found = maps.query(at, true, &mut buffer, |vma| (vma.range(), vma.prot));
            let Ok(Some((vma, prot))) = found else { return false };
            let range = at.max(vma.start)..end.min(vma.end);
            if range.is_empty() {
                break;
            }
            let prot = if lies { prot & !Prot::WRITE } else { prot };
            let offset = offset + (range.start - start) as u64;
            at = range.end;
            if !self.view.program.replace(range, plain, offset, prot, shared) {
                return false;
            }
        }
        true
    }
}
