//! What the program says that it will need of a file, and how it will use it.
//!
//! Such a part is read piece by piece, as the device and the frames allow: what is read makes older
//! pages leave, as read-ahead does, so that a full budget does not end it. More than a quarter of the
//! budget is not taken, since it would push out what it brought; that is counted, not silent.

use overspill_mm::fileread::MapAdvice;
use overspill_mm::types::{Nanos, Slot, Vpn};
use overspill_mm::{Event, State};
use overspill_sys::{AddressRange, clock};

use super::Engine;
use crate::view::{PROGRAM, vpns};

/// The part of the budget that is read for one request.
const SHARE: u32 = 4;
/// Read at a time, in pages: a part must not keep those waiting who need a page now.
const PIECE: u64 = 256;
/// Requests under way beyond which nothing is added.
const REQUESTS: u32 = 8;
/// Parts that are remembered.
const PARTS: usize = 64;
/// So long without a page read, since there is no room or somebody waits for that page, and the rest
/// is given up.
const PATIENCE_NS: Nanos = 2_000_000_000;

/// A part of a file that is to be read.
pub(super) struct Foreseen {
    next: Vpn,
    end: Vpn,
    /// When a page of it was read last.
    progress: Nanos,
}

impl Engine {
    /// The program will need a range of a file. Returns how many of its pages are not read for it.
    pub fn foresee(&mut self, range: &AddressRange) -> u64 {
        let (start, end) = vpns(range);
        let mut room = u64::from(self.budget() / SHARE);
        let mut left = 0;
        for part in self.file_parts() {
            let part = self.inside(part);
            let (from, to) = (part.start.max(start), part.end.min(end));
            let pages = to.0.saturating_sub(from.0);
            let taken = if self.foreseen.len() < PARTS { pages.min(room) } else { 0 };
            room -= taken;
            left += pages - taken;
            if taken > 0 {
                self.foreseen.push_back(Foreseen {
                    next: from,
                    end: from.offset(taken as i64),
                    progress: clock::monotonic_ns(),
                });
            }
        }
        self.read_foreseen();
        left
    }

    /// The program says how it will use a range of its files.
    pub fn advise_files(&mut self, range: &AddressRange, advice: MapAdvice) {
        let (start, end) = vpns(range);
        for part in self.file_parts() {
            let (from, to) = (part.start.max(start), part.end.min(end));
            if from >= to {
                continue;
            }
            let slot = |vpn: Vpn| Slot(part.slot_of(vpn));
            if let Some((_, state)) = self.region((PROGRAM, from)) {
                state.file.advise(slot(from), slot(to), advice);
            }
        }
    }

    /// Orders the next piece, if there is one and the device has time for it. True: it was ordered.
    pub(super) fn read_foreseen(&mut self) -> bool {
        if self.transfers.in_flight() >= REQUESTS || self.is_paused {
            return false;
        }
        let Some(Foreseen { next, end, .. }) = self.foreseen.front() else { return false };
        let (start, end) = (*next, (*end).min(next.offset(PIECE as i64)));
        if !self.mm.manages(PROGRAM, start, end) {
            self.foreseen.pop_front();
            return false;
        }
        self.feed(Event::WillNeed { space: PROGRAM, start, end });
        let is_out = |vpn: &u64| {
            let page = self.mm.lookup(PROGRAM, Vpn(*vpn));
            page.is_none_or(|page| self.mm.state(page) == State::Swapped)
        };
        let reached = Vpn((start.0..end.0).find(is_out).unwrap_or(end.0));
        if let Some(front) = self.foreseen.front_mut() {
            front.next = reached;
            let now = clock::monotonic_ns();
            if reached > start {
                front.progress = now;
            }
            if front.next >= front.end || now > front.progress + PATIENCE_NS {
                self.foreseen.pop_front();
            }
        }
        reached > start
    }
}
