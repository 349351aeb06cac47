//! File regions at work: what a mapping of a file is made of, what its reads bring, and what its
//! pages are worth when they leave.
//!
//! A page that was only read leaves without a hash or a write. Pages of mappings that may be stored
//! to come write-protected where pages can be moved: the first store is told before it is made, and
//! from then on the page is like any other. Where they cannot, a page is hashed when it arrives and
//! when it leaves. What becomes of a file that others change is in `handing_back`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use overspill_mm::types::{PageId, RegionKind, Slot, Vpn};
use overspill_mm::{Event, IoId, Run};
use overspill_sys::maps::Maps;
use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use super::Engine;
use super::mapping::Content;
use crate::file_table::{FileRange, FileTable, RANGES};
use crate::files::{Mapped, Source};
use crate::memory::Manner;
use crate::staging::Frame;
use crate::view::{PROGRAM, Place, address, vpn, vpns};

/// So many pages are poisoned at a time: some milliseconds.
const POISONED_PAGES: u32 = 1 << 14;

/// A read from a file that is under way.
#[derive(Clone, Copy)]
pub(super) struct FileRead {
    pub io: IoId,
    run: Run,
    slot: u32,
}

/// A region that stands for a part of a file: its pages, and the slot of the first of them.
#[derive(Clone, Copy)]
pub(super) struct FilePart {
    pub start: Vpn,
    pub end: Vpn,
    pub slot: u32,
}

impl FilePart {
    /// Where the page of a slot is; an end of the part if it is not in it.
    pub fn at(&self, slot: u32) -> Vpn {
        Vpn(self.start.0 + u64::from(slot.saturating_sub(self.slot))).min(self.end)
    }

    pub fn slot_of(&self, vpn: Vpn) -> u32 {
        self.slot + (vpn.0 - self.start.0) as u32
    }

    pub fn range(&self) -> AddressRange {
        address(self.start)..address(self.end)
    }
}

/// Calls what puts another mapping in the place of the program's in a range, and marks that as the program
/// has marked what was there. False where that could not be done.
pub type KeepMarks = fn(&AddressRange, &mut dyn FnMut() -> bool) -> bool;

impl Engine {
    /// Manages a range that is registered already and stands for a part of a file. Pages behind the
    /// file's end raise SIGBUS.
    pub fn add_file(&mut self, range: AddressRange, source: Source) -> Result<(), Errno> {
        if source.program.is_some() && self.maps.is_none() {
            self.maps = Some(Arc::new(Maps::open()?));
        }
        let (start, end) = vpns(&range);
        let protects = self.view.program.can_move();
        let may_be_huge = protects && !source.writable;
        let slot = self.transfers.files().add(source, end.0 - start.0, protects)?;
        if may_be_huge {
            self.view.program.allow_huge(range.clone());
        }
        let kind = RegionKind::File { bias: start.0.wrapping_sub(u64::from(slot.0)) };
        self.feed(Event::RegionAdded { space: PROGRAM, start, end, kind });
        self.are_files_told = false;
        self.tell_file_ranges();
        self.poison_beyond(slot.0, u64::MAX);
        Ok(())
    }

    /// Forgets a file region whose content nobody wants any more; the caller unmaps it next.
    pub fn remove_file(&mut self, range: AddressRange) {
        // What is under way from the file ends first: its descriptor is closed.
        self.finish_transfers();
        let slot = self.file_slot(vpn(range.start));
        self.remove_region(range);
        self.finish_transfers();
        if let Some(slot) = slot {
            let first = self.transfers.files().of_slot(Slot(slot)).first_slot;
            self.transfers.files().remove(first);
        }
    }

    /// Moves a file region, which nobody knows of yet, over a mapping of the kernel's of the same bytes,
    /// from `to` on: whoever reads there meanwhile reads them from the one or from the other. Where the
    /// kernel refuses all is as it was; EAGAIN: that may be done later.
    pub fn move_over(&mut self, range: AddressRange, to: usize) -> Result<(), Errno> {
        let is_moved = self.view.program.move_over(range, to);
        self.handle_changes();
        is_moved
    }

    /// Unmaps a range of which no region is, and which nobody else knows of.
    pub fn unmap_unknown(&mut self, range: AddressRange) {
        self.await_idle_helper();
        self.view.program.unmap(range);
        self.handle_changes();
    }

    /// From now on the program's own threads find its files in this table; what it has marked as nothing for
    /// its children stays so.
    pub fn publish_files(&mut self, table: &'static FileTable, keep_marks: KeepMarks) {
        self.file_table = Some(table);
        self.keep_marks = Some(keep_marks);
    }

    /// Are any files of the program managed?
    #[must_use]
    pub fn has_files(&mut self) -> bool {
        !self.transfers.files().is_empty()
    }

    /// The slot in its file of a page of a file region.
    pub(super) fn file_slot(&self, vpn: Vpn) -> Option<u32> {
        let (_, _, kind) = self.mm.region_at(PROGRAM, vpn)?;
        kind.file_slot(vpn).map(|slot| slot.0)
    }

    /// Is a page that was not touched yet to be read from a file?
    pub(super) fn is_of_file(&mut self, (space, vpn): Place) -> bool {
        space == PROGRAM && self.has_files() && self.file_slot(vpn).is_some()
    }

    /// The file regions.
    pub(super) fn file_parts(&self) -> Vec<FilePart> {
        let own = self.mm.regions().filter(|&(space, ..)| space == PROGRAM);
        let parts =
            own.filter_map(|(_, start, end)| Some(FilePart { start, end, slot: self.file_slot(start)? }));
        parts.collect()
    }

    /// Those that a mapping is left with.
    pub(super) fn parts_of(&mut self, first_slot: u32) -> Vec<FilePart> {
        let pages = self.transfers.files().of_slot(Slot(first_slot)).pages;
        let mut parts = self.file_parts();
        parts.retain(|part| (first_slot..first_slot + pages).contains(&part.slot));
        parts
    }

    /// Of a part, what lies in the file.
    pub(super) fn inside(&mut self, part: FilePart) -> FilePart {
        let beyond = self.transfers.files().of_slot(Slot(part.slot)).first_beyond();
        let end = beyond.map_or(part.end, |slot| part.at(slot));
        FilePart { end, ..part }
    }

    /// Brings the table that the program's threads look at up to date, if it is not. Where there are
    /// too many ranges it stays as it was, until some are handed back.
    pub(super) fn tell_file_ranges(&mut self) {
        if self.are_files_told {
            return;
        }
        let Some(table) = self.file_table else {
            self.are_files_told = true;
            return;
        };
        let mut ranges = Vec::new();
        let mut rest = Vec::new();
        for part in self.file_parts() {
            let mapped = self.transfers.files().of_slot(Slot(part.slot));
            let Some(program) = &mapped.source.program else { continue };
            let range = FileRange {
                range: part.range(),
                page: (part.slot - mapped.first_slot) as usize,
                file: program.index,
            };
            if mapped.is_handed_back() { rest.push(range) } else { ranges.push(range) }
        }
        // Of what is left of a mapping that was handed back a child has all: there is no need to tell of it.
        rest.truncate(RANGES.saturating_sub(ranges.len()));
        ranges.append(&mut rest);
        self.are_files_told = table.set(&ranges);
    }

    /// The program did something to a range.
    pub(super) fn file_range_changed(&mut self, range: &AddressRange) {
        if self.file_table.is_some_and(|table| table.overlaps(range)) {
            self.are_files_told = false;
        }
    }

    /// The program threw the content of a range away, before `mm` hears of it: the file shows again.
    pub(super) fn forget_stores(&mut self, range: &AddressRange) {
        if self.transfers.files().is_empty() {
            return;
        }
        let (start, end) = vpns(range);
        for part in self.file_parts() {
            let (from, to) = (part.start.max(start), part.end.min(end));
            if from < to {
                let slots = part.slot_of(from)..part.slot_of(to);
                self.transfers.files().of_slot(Slot(part.slot)).forget_stores(slots);
            }
        }
    }

    /// What lies behind the file's end, up to its end before, raises SIGBUS. Nothing is in view there. Where
    /// the file may become longer unheard each touch asks (`ends.rs`).
    pub(super) fn poison_beyond(&mut self, first_slot: u32, before: u64) {
        let mapped = self.transfers.files().of_slot(Slot(first_slot));
        if mapped.source.program.is_some() && !mapped.is_leased() {
            return;
        }
        let left = mapped.unpoisoned.clone();
        let end = mapped.slots_beyond(before).start.max(if left.is_empty() { 0 } else { left.end });
        mapped.unpoisoned = mapped.slots_beyond(mapped.source.len).start..end;
        self.poison_some(first_slot);
    }

    /// The next of those pages, if any are left. Who touches one that is not poisoned yet waits for a
    /// read that fails, and gets his SIGBUS then.
    ///
    /// *The story:* each page took a call of its own, and all were done at once. When 50 GiB were cut off
    /// that were 13 million, and no fault was answered meanwhile.
    pub(super) fn poison_some(&mut self, first_slot: u32) {
        let mapped = self.transfers.files().of_slot(Slot(first_slot));
        // It may have grown.
        let start = mapped.unpoisoned.start.max(mapped.slots_beyond(mapped.source.len).start);
        let left = start..mapped.unpoisoned.end;
        if left.is_empty() {
            return;
        }
        let slots = start..left.end.min(start + POISONED_PAGES);
        let parts = self.parts_in(first_slot, &slots);
        let are_done = parts.into_iter().all(|part| self.view.program.poison_all(part.range()));
        let start = if are_done { slots.end } else { start };
        self.transfers.files().of_slot(Slot(first_slot)).unpoisoned = start..left.end;
    }

    /// What is left of these slots of a mapping.
    pub(super) fn parts_in(&mut self, first_slot: u32, slots: &Range<u32>) -> Vec<FilePart> {
        let parts = self.parts_of(first_slot).into_iter().map(|part| {
            let (start, end) = (part.at(slots.start), part.at(slots.end));
            FilePart { start, end, slot: part.slot_of(start) }
        });
        parts.filter(|part| part.start < part.end).collect()
    }

    /// Takes pages out of view and forgets what they hold. False: some are still there.
    ///
    /// *The story:* pages of a file that was cut were in view for good, as the helper was busy making
    /// what a fork had shared exclusive again, and what a fork has shared cannot be moved out. Nobody
    /// looked whether they had gone (`torture file-regrown`).
    #[must_use]
    pub(super) fn drop_pages(&mut self, start: Vpn, end: Vpn) -> bool {
        let pages = (start.0..end.0).map(Vpn);
        let is_bare = !pages.clone().any(|vpn| self.is_in_view(vpn));
        if is_bare || self.view.program.discard(address(start)..address(end)) {
            self.feed(Event::Discarded { space: PROGRAM, start, end });
            return true;
        }
        let mut are_gone = true;
        for vpn in pages {
            let is_gone = !self.is_in_view(vpn) || self.drop_from_view(vpn);
            if is_gone {
                self.feed(Event::Discarded { space: PROGRAM, start: vpn, end: vpn.offset(1) });
            }
            are_gone &= is_gone;
        }
        are_gone
    }

    /// Takes the frame of a page in view away. False: it is still there.
    fn drop_from_view(&mut self, vpn: Vpn) -> bool {
        let place = (PROGRAM, vpn);
        let page = self.mm.lookup(PROGRAM, vpn).expect("a page in view is known");
        let frame = if self.view.moves(place) { self.holes(1) } else { self.frames_to_fill(1) };
        let Some(frame) = frame else { return false };
        let watched = self.watched(Run::one(page));
        let is_taken = self.view.take_out(place, frame, 1, watched).taken & 1 != 0;
        if is_taken {
            self.staging.enter(page, frame);
            self.staging.leave(page, true);
        } else {
            self.staging.abandon(frame);
        }
        is_taken
    }

    /// Orders a read of pages of a file into the frames that hold them from now on.
    pub(super) fn read_file(&mut self, io: IoId, run: Run, slot: u32) {
        self.file_reads.push(FileRead { io, run, slot });
        let pieces = self.pieces_of(run);
        self.transfers.read(io, slot, &pieces);
    }

    /// A read has ended: if it was a file's, and well, what lies behind the file's end is cleared, and
    /// what may be stored to unheard is hashed.
    pub(super) fn file_was_read(&mut self, io: IoId, succeeded: bool) {
        let Some(at) = self.file_reads.iter().position(|read| read.io == io) else { return };
        let FileRead { run, slot, .. } = self.file_reads.swap_remove(at);
        if !succeeded {
            let mapped = self.transfers.files().of_slot(Slot(slot));
            // What was to be stored to is not there to be synced ([`Engine::foresee_store`]).
            if mapped.source.shared {
                mapped.forget_stores(slot..slot + run.count);
            }
            return mapped.note_failed_read();
        }
        let available = self.transfers.files().spot(Slot(slot)).available;
        self.end_within(run, available);
        let mapped = self.transfers.files().of_slot(Slot(slot));
        if mapped.is_protected() || !mapped.source.writable {
            return;
        }
        for (page, slot) in run.pages().zip(slot..) {
            let frame = self.staging.frame(page).expect("a page that was read has a frame");
            let print = self.fingerprints.of(self.view.program.frame_words(frame));
            self.transfers.files().of_slot(Slot(slot)).note(Slot(slot), print);
        }
    }

    /// Of what was read so many bytes are in the file: the rest of its last page is zero, and the pages
    /// behind that are not there.
    fn end_within(&mut self, run: Run, available: u64) {
        let rest = (available % PAGE_SIZE as u64) as usize;
        let (whole, inside) = (available / PAGE_SIZE as u64, available.div_ceil(PAGE_SIZE as u64));
        if whole < inside && inside <= run.count.into() {
            let page = PageId(run.first.0 + whole as u32);
            let frame = self.staging.frame(page).expect("a page that was read has a frame");
            self.view.program.fill_frame(frame, |bytes| bytes[rest..].fill(0));
        }
        if inside < run.count.into() {
            let (space, first) = self.mm.place(run.first);
            let (start, end) = (Vpn(first.0 + inside), Vpn(first.0 + u64::from(run.count)));
            self.feed(Event::Discarded { space, start, end });
        }
    }

    /// The file's slot of a page that has not been stored to, as far as is known.
    fn slot_in_file(&self, page: PageId) -> Option<Slot> {
        self.mm.slot(page).filter(|slot| slot.is_file())
    }

    /// Is a page's content what the file holds?
    pub(super) fn is_in_file(&self, page: PageId) -> bool {
        self.slot_in_file(page).is_some()
    }

    /// What there is to say of a page that was just taken out of view, if it is of a file region.
    pub(super) fn file_content(&mut self, page: PageId, frame: Frame) -> Option<Content> {
        if self.transfers.files().is_empty() {
            return None;
        }
        let words = self.view.program.frame_words(frame);
        if let Some(slot) = self.slot_in_file(page) {
            let mapped = self.transfers.files().of_slot(slot);
            let is_same = if mapped.is_protected() {
                !mapped.is_stored(slot)
            } else {
                !mapped.source.writable || mapped.is(slot, self.fingerprints.of(words))
            };
            if is_same {
                self.fingerprints.filled(frame);
                return Some(Content::Same);
            }
        } else {
            let (space, vpn) = self.mm.place(page);
            let (_, _, kind) = self.mm.region_at(space, vpn)?;
            if kind.is_zero_at_first() {
                return None;
            }
        }
        // All zeroes are no reason to forget it: the file would show again.
        let swap = self.mm.slot(page).filter(|slot| !slot.is_file()).map(|slot| slot.0);
        let same = self.fingerprints.taken(page, frame, swap, words);
        Some(if same { Content::Same } else { Content::Other })
    }

    /// Of `count` pages from `first` on: how many at the head come into view in one way, and in which.
    pub(super) fn manner(&mut self, first: PageId, count: u32) -> (u32, Manner) {
        if self.transfers.files().is_empty() {
            return (count, Manner::Open);
        }
        let head = self.manner_of(first);
        let rest = (1..count).take_while(|&n| self.manner_of(PageId(first.0 + n)) == head);
        (1 + rest.count() as u32, head)
    }

    /// Those pages of a run, by their bits, of which stores are to be told, so that no device writes to them.
    /// (Of a mapping whose stores are the file's one may that began before the last sync.) None where pages
    /// are moved, and no child may have them: nobody asks then.
    pub(super) fn watched(&mut self, run: Run) -> u64 {
        let program = &self.view.program;
        let matters = program.may_share() || !program.can_move();
        if !matters || self.transfers.files().is_empty() || self.mm.place(run.first).0 != PROGRAM {
            return 0;
        }
        let mut is_watched = |page: PageId| {
            self.manner_of(page) != Manner::Open && self.shared_slot(self.mm.place(page)).is_none()
        };
        (0..run.count).map(|n| u64::from(is_watched(PageId(run.first.0 + n))) << n).sum()
    }

    /// The file's slot of a page whose stores are to be told: one that shows the file, or any of a
    /// mapping whose stores are the file's.
    fn followed_slot(&mut self, page: PageId) -> Option<Slot> {
        self.slot_in_file(page).or_else(|| self.shared_slot(self.mm.place(page)))
    }

    /// The file's slot of a place in a mapping whose stores are the file's.
    fn shared_slot(&mut self, (space, vpn): Place) -> Option<Slot> {
        if space != PROGRAM || !self.transfers.files().has_shared() {
            return None;
        }
        let slot = self.file_slot(vpn).map(Slot)?;
        self.transfers.files().of_slot(slot).source.shared.then_some(slot)
    }

    fn manner_of(&mut self, page: PageId) -> Manner {
        let Some(slot) = self.followed_slot(page) else { return Manner::Open };
        let mapped: &Mapped = self.transfers.files().of_slot(slot);
        // What was stored to is like any other page, though it has no other slot yet.
        if !mapped.wants_stores(slot) {
            Manner::Open
        } else if mapped.may_store() {
            Manner::Watched
        } else {
            Manner::Sealed
        }
    }

    /// Pages of files that are to leave and may be stored to, though nobody would be told, count as stored
    /// to: the kernel takes protection away from what it merges with other pages that are the same.
    ///
    /// *The story:* see `merging` in the agent.
    pub(super) fn note_unheard_stores(&mut self, run: Run) {
        if self.transfers.files().is_empty() || self.mm.place(run.first).0 != PROGRAM {
            return;
        }
        let (count, manner) = self.manner(run.first, run.count);
        if manner != Manner::Watched {
            return;
        }
        let (_, first) = self.mm.place(run.first);
        let mut open = Vec::new();
        let range = address(first)..address(first.offset(i64::from(count)));
        self.view.program.each_open(range, |part| open.extend(vpn(part.start).0..vpn(part.end).0));
        for at in open {
            let page = PageId(run.first.0 + (at - first.0) as u32);
            if let Some(slot) = self.followed_slot(page) {
                self.transfers.files().of_slot(slot).note_store(slot);
            }
        }
    }

    /// A thread waits to store to a page that is not in view: of a mapping whose stores are the file's it
    /// counts as stored to, and comes open.
    ///
    /// *The story:* it came protected, and the thread waited a second time. Of ten waits of a thread that
    /// wrote 64 KiB here and there two were these.
    pub(super) fn foresee_store(&mut self, place: Place) {
        let Some(slot) = self.shared_slot(place) else { return };
        let mapped = self.transfers.files().of_slot(slot);
        if mapped.is_protected() {
            mapped.note_store(slot);
        }
    }

    /// A store to a protected page of a file. False: it is none.
    pub(super) fn file_store(&mut self, at: usize) -> bool {
        let Some(page) = self.mm.lookup(PROGRAM, vpn(at)) else { return false };
        let Some(slot) = self.followed_slot(page) else { return false };
        let mapped = self.transfers.files().of_slot(slot);
        if !mapped.is_protected() {
            return false;
        }
        if mapped.may_store() {
            // First: a child of fork looks at it.
            mapped.note_store(slot);
            self.view.program.unprotect(at..at + PAGE_SIZE);
        } else {
            let place = mapped.source.program.as_ref().map(|program| program.place);
            self.view.program.forbid_stores(at, place);
        }
        true
    }
}
