//! Files that others change while a program has them mapped, and mappings that go back to the kernel.
//!
//! Where a read lease is held, whoever wants to write to a file waits until the program has the
//! kernel's own mapping again, which is as coherent as ever. Where none is to be had the file is
//! looked at: what has changed goes back, too, a moment later. A mapping with stores of the
//! program's own stays: POSIX leaves open what others' changes do to it, and its clean pages are
//! read anew. A file that was cut raises SIGBUS behind its new end, until it grows again.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;

use overspill_mm::types::{Slot, Vpn};
use overspill_sys::maps::{BUFFER_BYTES, Maps};
use overspill_sys::mem::{self, Prot};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, clock, overlap};

use super::Engine;
use super::files::FilePart;
use super::marking::Marks;
use crate::files::Mapped;
use crate::memory::REST_NS;
use crate::patience::Patience;
use crate::report::Left;
use crate::view::{PROGRAM, address, vpn};

/// How often what is left of a mapping is looked for: the program may move its parts meanwhile.
const PASSES: u32 = 16;

/// How long a fork waits for a mapping to be handed back that is in more pieces than can be told of.
const UNTOLD_NS: u64 = 5_000_000_000;

/// How long an order that waits for pages is waited for before a mapping goes back, or is cut.
const HELPER_WAIT_NS: u64 = 200_000_000;

impl Engine {
    /// Looks whether any file was cut, has grown or was changed, or is about to be, and forgets those
    /// that nobody has mapped any more.
    pub fn look_at_files(&mut self) {
        if self.transfers.files().is_empty() {
            return;
        }
        self.forget_unmapped();
        let firsts: Vec<u32> = self.transfers.files().each().map(|mapped| mapped.first_slot).collect();
        for first in firsts {
            self.poison_some(first);
            // To settle one takes a while, in which another may be unmapped.
            let Some(seen) = self.transfers.files().find(first).map(Mapped::look) else { continue };
            let is_settled = seen.lengths.into_iter().all(|len| self.resize(first, len))
                && (!seen.is_changed || self.settle_change(first));
            // What could not be done now is done at the next look.
            if let Some(mapped) = self.transfers.files().find(first).filter(|_| !is_settled) {
                mapped.note_unsettled(seen);
            }
        }
    }

    /// The file is so long. What lies behind its old or its new end, whichever comes first, is not what
    /// was read. False: that is to be tried again.
    ///
    /// *The story:* a file's length could only become less: what was cut off raised SIGBUS for good,
    /// though the file had grown again.
    fn resize(&mut self, first_slot: u32, len: u64) -> bool {
        let before = self.transfers.files().of_slot(Slot(first_slot)).source.len;
        if len == before {
            return true;
        }
        // What is under way was ordered for the length that it had.
        if !self.is_quiet() {
            return false;
        }
        let is_clear =
            if len > before { self.heal(first_slot, before, len) } else { self.cut(first_slot, len) };
        if !is_clear || !self.drop_divided(first_slot, len.min(before)) {
            return false;
        }
        self.transfers.files().of_slot(Slot(first_slot)).source.len = len;
        if len < before {
            self.poison_beyond(first_slot, before);
        }
        true
    }

    /// What lies behind that length goes, with what was stored there.
    fn cut(&mut self, first_slot: u32, len: u64) -> bool {
        let mapped = self.transfers.files().of_slot(Slot(first_slot));
        let beyond = mapped.slots_beyond(len);
        mapped.forget_stores(beyond.clone());
        let parts = self.parts_in(first_slot, &beyond);
        self.drop_all(parts)
    }

    /// Takes parts out of view, each as far as it can go. False: something is left.
    fn drop_all(&mut self, parts: Vec<FilePart>) -> bool {
        parts.into_iter().filter(|part| !self.drop_pages(part.start, part.end)).count() == 0
    }

    /// The page in which the file ends, or ended, is read again if it was not stored to.
    fn drop_divided(&mut self, first_slot: u32, len: u64) -> bool {
        let mapped = self.transfers.files().of_slot(Slot(first_slot));
        let Some(Slot(divided)) = mapped.divided_clean(len) else { return true };
        let parts = self.parts_in(first_slot, &(divided..divided + 1));
        parts.into_iter().all(|part| self.drop_pages(part.start, part.end))
    }

    /// Pages that were behind the file's end are to be read from it. False: that is to be tried again.
    pub(super) fn heal(&mut self, first_slot: u32, before: u64, len: u64) -> bool {
        let mapped = self.transfers.files().of_slot(Slot(first_slot));
        let (were, are) = (mapped.slots_beyond(before), mapped.slots_beyond(len));
        let parts = self.parts_in(first_slot, &(were.start..are.start));
        parts.into_iter().all(|part| self.view.program.discard(part.range()))
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

    /// Somebody writes to the file, or waits to. False: that is to be tried again.
    fn settle_change(&mut self, first_slot: u32) -> bool {
        let has_stores = self.transfers.files().of_slot(Slot(first_slot)).has_stores();
        let handed = !has_stores && self.hand_back(first_slot, Left::Changing);
        if !(handed || self.is_quiet() && self.read_anew(first_slot) && self.open_end(first_slot)) {
            return false;
        }
        if let Some(mapped) = self.transfers.files().find(first_slot) {
            mapped.give_up_lease();
        }
        self.forget_unmapped();
        true
    }

    /// Drops the pages of a file that were not stored to: what is touched next is what is there now.
    /// False: some are still in view.
    fn read_anew(&mut self, first_slot: u32) -> bool {
        let parts = self.parts_of(first_slot);
        let runs: Vec<FilePart> = parts.into_iter().flat_map(|part| self.clean_runs(part)).collect();
        self.drop_all(runs)
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
        self.await_idle_helper();
        let mut firsts: Vec<u32> = Vec::new();
        for part in self.file_parts() {
            if overlap(&part.range(), range) {
                firsts.push(self.transfers.files().of_slot(Slot(part.slot)).first_slot);
            }
        }
        firsts.sort_unstable();
        firsts.dedup();
        let handed = firsts.into_iter().all(|first| self.hand_back(first, why));
        self.forget_unmapped();
        handed
    }

    /// Maps a part of a file, of which the program has others mapped, for the program: where it is another
    /// part's continuation that is handed back already. In the place of what is there, which is not managed,
    /// or where nothing is (EEXIST). ENOENT: nobody has that file mapped.
    ///
    /// *The story:* what is replaced was mapped as a place to move to, without rights. It came to lie behind
    /// managed memory and was taken for the reservation that such memory grows into: registered. The agent's
    /// own thread replaced it and waited for itself to read of that (`citizens::jumps-that-grow`, one run in
    /// three).
    pub fn map_tail(
        &mut self,
        file: usize,
        range: AddressRange,
        offset: u64,
        prot: Prot,
        replaces: bool,
    ) -> Result<(), Errno> {
        let programs = self.transfers.files().each().filter_map(|mapped| mapped.source.program.as_ref());
        let program = programs.into_iter().find(|program| program.index == file).ok_or(Errno::NOENT)?;
        let (plain, shared) = (program.plain.raw(), program.place.shared.load(SeqCst));
        if replaces {
            self.await_idle_helper();
            let is_mapped = self.view.program.replace(range, plain, offset, prot, shared);
            self.handle_changes();
            if is_mapped { Ok(()) } else { Err(Errno::NOMEM) }
        } else {
            mem::map_file_if_free(range, plain, offset, prot, shared)
        }
    }

    /// Goes on with everything until the helper's last order is done, for a while: it may wait for a
    /// page, or for another's lock.
    pub fn await_idle_helper(&mut self) {
        let until = clock::monotonic_ns() + HELPER_WAIT_NS;
        while !self.view.program.is_helper_idle() && clock::monotonic_ns() < until {
            if !self.crank() {
                clock::sleep_ns(REST_NS);
            }
        }
    }

    /// Ends what is under way, with the helper at rest: ends of transfers may give it something to do.
    /// Then handles what was read meanwhile: parts are looked for where they are, not where they were.
    /// False: there is still something under way.
    fn is_quiet(&mut self) -> bool {
        let until = clock::monotonic_ns() + HELPER_WAIT_NS;
        loop {
            self.await_idle_helper();
            self.finish_transfers();
            self.handle_changes();
            let is_quiet = self.view.program.is_helper_idle() && self.transfers.in_flight() == 0;
            if is_quiet || clock::monotonic_ns() > until {
                return is_quiet;
            }
        }
    }

    /// Hands back what there is more of than can be told, and what became the file's again of mappings
    /// that were handed back.
    ///
    /// *The story:* a mapping with more stores, each for itself, than pieces can be told of was still in
    /// as many pieces when it had been handed back. So it was handed back, for ever.
    pub(super) fn hand_back_rest(&mut self) {
        if self.transfers.files().is_empty() || !self.view.program.is_helper_idle() {
            return;
        }
        let rest: Vec<u32> = self
            .transfers
            .files()
            .each()
            .filter_map(|mapped| mapped.take_rest().then_some(mapped.first_slot))
            .collect();
        for first in rest {
            self.map_file_again(first);
        }
        while !self.are_files_told && self.hand_back_most_cut() {}
    }

    /// Has a fork to wait, since its child would not find its files? For a while, at most.
    ///
    /// *The story* (by reading): what could not be handed back at once, as no descriptor was left or the
    /// helper was at work, ended the program, whether there was a fork or not.
    pub(super) fn must_tell_files(&mut self) -> bool {
        if self.are_files_told {
            self.untold = Patience::default();
            return false;
        }
        assert!(
            self.untold.lasts(clock::monotonic_ns(), UNTOLD_NS),
            "a mapping in more pieces than can be told of cannot be left to a fork"
        );
        true
    }

    /// The mapping that is in most pieces goes back. False: it could not be given back now.
    fn hand_back_most_cut(&mut self) -> bool {
        let managed = self.transfers.files().each().filter(|mapped| !mapped.is_handed_back());
        let firsts: Vec<u32> = managed.map(|mapped| mapped.first_slot).collect();
        let most = firsts.into_iter().max_by_key(|&first| self.parts_of(first).len());
        most.is_some_and(|first| self.hand_back(first, Left::Other))
    }

    /// Maps the file itself over all that is left of a mapping, but for what was stored to.
    fn hand_back(&mut self, first_slot: u32, why: Left) -> bool {
        let parts = self.parts_of(first_slot);
        let pages: u64 = parts.iter().map(|part| part.end.0 - part.start.0).sum();
        let handed = self.map_file_again(first_slot);
        if handed {
            let mapped = self.transfers.files().of_slot(Slot(first_slot));
            mapped.give_up_lease();
            if mapped.note_handed_back() {
                self.report.note_file_left(why, pages * PAGE_SIZE as u64);
            }
        }
        self.are_files_told = false;
        self.tell_file_ranges();
        handed
    }

    /// *The story:* the list of mappings was opened when it was needed. The program might have no
    /// descriptors left by then, and its file was not mapped again.
    fn map_file_again(&mut self, first_slot: u32) -> bool {
        let maps = self.maps.clone().expect("it is open where a program's file is managed");
        for _ in 0..PASSES {
            self.handle_changes();
            // What is under way goes into pages that are about to be nobody's.
            self.finish_transfers();
            let parts = self.parts_of(first_slot);
            let runs: Vec<FilePart> = parts.into_iter().flat_map(|part| self.clean_runs(part)).collect();
            if runs.is_empty() {
                return true;
            }
            // All at once: each look is at all mappings before.
            let marks = self.marks_of(&address_span(&runs));
            if !runs.into_iter().all(|run| self.map_run_again(&maps, &marks, first_slot, run)) {
                return false;
            }
        }
        false
    }

    /// Maps the file over a run of pages, as far as they still are where they were. False where that
    /// could not be done.
    ///
    /// *The story:* a run was mapped where it had been when the first of them was looked at. By then
    /// the program had unmapped some and mapped memory of its own there, and lost it.
    fn map_run_again(&mut self, maps: &Maps, marks: &Marks, first_slot: u32, run: FilePart) -> bool {
        let mut at = run.start;
        while at < run.end {
            self.handle_changes();
            match self.mapped_part(maps, FilePart { start: at, slot: run.slot_of(at), ..run }) {
                None => at = self.next_of(at, run.end),
                Some((part, prot)) if self.replace(first_slot, part, prot) => {
                    marks.set(&part.range(), |_, _| {});
                    at = part.end;
                }
                Some(_) => return false,
            }
        }
        true
    }

    /// Where to look next, with nothing at `at` to map the file over: behind its region, or before the next.
    fn next_of(&self, at: Vpn, end: Vpn) -> Vpn {
        let behind = match self.mm.region_at(PROGRAM, at) {
            Some((_, region_end, _)) => Some(region_end),
            None => self.mm.unmanaged(PROGRAM, at, end).next().map(|(_, gap_end)| gap_end),
        };
        behind.map_or(end, |behind| behind.min(end))
    }

    /// The head of a part that lies in one mapping, and that mapping's protection; `None` if something
    /// else is there by now.
    fn mapped_part(&mut self, maps: &Maps, part: FilePart) -> Option<(FilePart, Prot)> {
        let (_, end, kind) = self.mm.region_at(PROGRAM, part.start)?;
        kind.file_slot(part.start).filter(|slot| slot.0 == part.slot)?;
        let look = |vma: &overspill_sys::maps::Vma<'_>| (vma.range(), vma.prot);
        let (vma, prot) = maps.query(address(part.start), true, &mut [0; BUFFER_BYTES], look).ok()??;
        let part = FilePart { end: end.min(part.end).min(vpn(vma.end)), ..part };
        // The kernel has the last word: it says no, too, while a change is not heard of yet.
        let is_there = vma.start <= address(part.start) && self.view.program.protect(part.range());
        is_there.then_some((part, prot))
    }

    fn replace(&mut self, first_slot: u32, part: FilePart, prot: Prot) -> bool {
        let mapped = self.transfers.files().of_slot(Slot(first_slot));
        let Some(program) = &mapped.source.program else { return false };
        let (plain, lies) = (program.plain.raw(), !program.place.may_store());
        let shared = program.place.shared.load(SeqCst);
        let offset = mapped.source.offset + u64::from(part.slot - mapped.first_slot) * PAGE_SIZE as u64;
        let prot = if lies { prot & !Prot::WRITE } else { prot };
        let range = part.range();
        let mut replace = || self.view.program.replace(range.clone(), plain, offset, prot, shared);
        match self.keep_marks {
            Some(keep_marks) => keep_marks(&range, &mut replace),
            None => replace(),
        }
    }
}

/// From the first page of these to their last.
fn address_span(parts: &[FilePart]) -> AddressRange {
    let (start, end) = (parts.iter().map(|part| part.start).min(), parts.iter().map(|part| part.end).max());
    start.zip(end).map_or(0..0, |(start, end)| address(start)..address(end))
}
