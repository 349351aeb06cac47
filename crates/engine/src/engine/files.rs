//! File regions at work: what a mapping of a file is made of, what its reads bring, what its pages are
//! worth when they leave, and what becomes of it when the file is cut.
//!
//! A page that was only read leaves without a hash or a write. Of a writable mapping a page is
//! hashed when it arrives and when it leaves: what was stored to goes to swap from then on.

use overspill_mm::types::{PageId, RegionKind, Slot, Vpn};
use overspill_mm::{Event, IoId, Run, State};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, file};

use super::Engine;
use super::mapping::Content;
use crate::files::Source;
use crate::staging::Frame;
use crate::view::{PROGRAM, vpns};

/// A read from a file that is under way.
#[derive(Clone, Copy)]
pub(super) struct FileRead {
    io: IoId,
    run: Run,
    slot: u32,
}

impl Engine {
    /// Manages a range that is registered already and stands for a part of a file. Pages behind the
    /// file's end raise SIGBUS.
    pub fn add_file(&mut self, range: AddressRange, source: Source) -> Result<(), Errno> {
        let (start, end) = vpns(&range);
        let slot = self.transfers.files().add(source, start, end.0 - start.0)?;
        let kind = RegionKind::File { bias: start.0.wrapping_sub(u64::from(slot.0)) };
        self.feed(Event::RegionAdded { space: PROGRAM, start, end, kind });
        self.poison_beyond(start);
        Ok(())
    }

    /// Forgets a file region whose content nobody wants any more; the caller unmaps it next.
    pub fn remove_file(&mut self, range: AddressRange) {
        // What is under way from the file ends first: its descriptor is closed.
        self.finish_transfers();
        let (start, _) = vpns(&range);
        self.remove_region(range);
        self.finish_transfers();
        self.transfers.files().remove(start);
    }

    /// Looks whether any file was cut: what lay behind its new end raises SIGBUS, as it would in a
    /// mapping of the kernel's.
    pub fn look_at_files(&mut self) {
        let mut cut: Option<Vpn> = None;
        for mapped in self.transfers.files().each() {
            let len = file::status(&mapped.source.file).map_or(mapped.source.len, |status| status.len);
            if len < mapped.source.len {
                mapped.source.len = len;
                cut = Some(mapped.start);
                break;
            }
        }
        if let Some(start) = cut {
            self.finish_transfers();
            self.poison_beyond(start);
        }
    }

    fn poison_beyond(&mut self, start: Vpn) {
        let Some(mapped) = self.transfers.files().at(start) else { return };
        let (Some(first), end) = (mapped.first_beyond(), mapped.end()) else { return };
        (first.0..end.0).for_each(|vpn| self.drop_from_view(Vpn(vpn)));
        self.feed(Event::Discarded { space: PROGRAM, start: first, end });
        self.view.poison_all((PROGRAM, first), end.0 - first.0);
    }

    /// Takes the frame of a page in view away.
    fn drop_from_view(&mut self, vpn: Vpn) {
        let place = (PROGRAM, vpn);
        let Some(page) = self.mm.lookup(PROGRAM, vpn) else { return };
        if self.mm.state(page) != State::Mapped {
            return;
        }
        let frame = if self.view.moves(place) { self.staging.take_holes(1) } else { self.frames_to_fill(1) };
        let Some(frame) = frame else { return };
        if self.view.take_out(place, frame, 1).taken & 1 != 0 {
            self.staging.enter(page, frame);
            self.staging.leave(page, true);
        } else {
            self.staging.abandon(frame);
        }
    }

    /// Orders a read of pages of a file into the frames that hold them from now on.
    pub(super) fn read_file(&mut self, io: IoId, run: Run, slot: u32) {
        self.file_reads.push(FileRead { io, run, slot });
        let pieces = self.pieces_of(run);
        self.transfers.read(io, slot, &pieces);
    }

    /// A read has ended well: if it was a file's, what lies behind the file's end is cleared, and what
    /// may be stored to is hashed.
    pub(super) fn file_was_read(&mut self, io: IoId, succeeded: bool) {
        let Some(at) = self.file_reads.iter().position(|read| read.io == io) else { return };
        let FileRead { run, slot, .. } = self.file_reads.swap_remove(at);
        if !succeeded {
            return;
        }
        let spot = self.transfers.files().spot(Slot(slot));
        let whole = spot.available / PAGE_SIZE as u64;
        if whole < u64::from(run.count) {
            let page = PageId(run.first.0 + whole as u32);
            let frame = self.staging.frame(page).expect("a page that was read has a frame");
            let rest = (spot.available % PAGE_SIZE as u64) as usize;
            self.view.program.fill_frame(frame, |bytes| bytes[rest..].fill(0));
        }
        if !self.transfers.files().of_slot(Slot(slot)).source.writable {
            return;
        }
        for (page, slot) in run.pages().zip(slot..) {
            let frame = self.staging.frame(page).expect("a page that was read has a frame");
            let print = self.fingerprints.of(self.view.program.frame_words(frame));
            self.transfers.files().of_slot(Slot(slot)).note(Slot(slot), print);
        }
    }

    /// What there is to say of a page that was just taken out of view, if it is of a file region.
    pub(super) fn file_content(&mut self, page: PageId, frame: Frame) -> Option<Content> {
        let (space, vpn) = self.mm.place(page);
        if space != PROGRAM {
            return None;
        }
        let mapped = self.transfers.files().at(vpn)?;
        if !mapped.source.writable {
            return Some(Content::Same);
        }
        let words = self.view.program.frame_words(frame);
        let slot = self.mm.slot(page).filter(|slot| slot.is_file());
        if let Some(slot) = slot {
            let print = self.fingerprints.of(words);
            if self.transfers.files().of_slot(slot).is(slot, print) {
                return Some(Content::Same);
            }
        }
        // All zeroes are no reason to forget it: the file would show again.
        let swap = self.mm.slot(page).filter(|slot| !slot.is_file()).map(|slot| slot.0);
        let same = self.fingerprints.taken(page, frame, swap, words);
        Some(if same { Content::Same } else { Content::Other })
    }
}
