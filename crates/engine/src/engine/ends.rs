//! Touches behind the end of a mapped file.
//!
//! With a read lease nobody makes the file longer unheard: what lies behind its end is poisoned, and raises
//! SIGBUS without a word. Without one it is left missing: whoever touches it waits while the file is asked
//! how long it is by now. A page that lies behind the end then is poisoned, alone, until the next look.
//!
//! *The story:* a mapping with stores has no lease any more once its file was cut. When the file had grown
//! again all of it was poisoned until somebody looked, up to 95 ms later: twenty growths of twenty raised
//! SIGBUS within the file (`torture file-regrown-at-once`).

use overspill_mm::types::{Slot, Vpn};
use overspill_sys::file;

use super::Engine;
use crate::view::{PROGRAM, vpn};

/// A thread that waits: at this address, to store or not, and its number.
pub(super) type Behind = (usize, bool, u32);

impl Engine {
    /// Takes charge of a thread that touches a page behind the end of a file, as far as that is known.
    /// False: it is not there.
    pub(super) fn is_behind_end(&mut self, touch: Behind) -> bool {
        let is_behind = self.slot_behind(vpn(touch.0)).is_some();
        if is_behind {
            self.behind.push(touch);
        }
        is_behind
    }

    fn slot_behind(&mut self, vpn: Vpn) -> Option<Slot> {
        let slot = if self.has_files() { self.file_slot(vpn)? } else { return None };
        let first = self.transfers.files().of_slot(Slot(slot)).first_beyond()?;
        (first <= slot).then_some(Slot(slot))
    }

    /// Those that could not be settled are looked at once more.
    pub(super) fn answer_unsettled(&mut self) {
        self.behind.append(&mut self.unsettled);
        self.answer_behind();
    }

    /// Answers those, by what their files are now. Not in the midst of anything: files may change hands.
    /// True: there were any.
    pub fn answer_behind(&mut self) -> bool {
        let is_any = !self.behind.is_empty();
        let mut looked = false;
        for (address, write, thread) in core::mem::take(&mut self.behind) {
            if !looked && self.slot_behind(vpn(address)).is_some_and(|slot| self.is_within_by_now(slot)) {
                self.look_at_files();
                looked = true;
            }
            match self.slot_behind(vpn(address)) {
                None => self.fault(address, write, false, thread),
                // It could not be settled now: at the next tick.
                Some(slot) if self.is_within_by_now(slot) => self.unsettled.push((address, write, thread)),
                // Else a read that fails says so.
                Some(_) if self.view.poison((PROGRAM, vpn(address))) => {}
                Some(_) => self.missing((PROGRAM, vpn(address)), write),
            }
        }
        is_any
    }

    fn is_within_by_now(&mut self, slot: Slot) -> bool {
        let mapped = self.transfers.files().of_slot(slot);
        let status = file::status(&mapped.source.file);
        status.is_ok_and(|status| !mapped.slots_beyond(status.len).contains(&slot.0))
    }

    /// A lease is about to go: what was poisoned behind the file's end is missing from then on. False: that
    /// is to be tried again.
    pub(super) fn open_end(&mut self, first_slot: u32) -> bool {
        let mapped = self.transfers.files().of_slot(Slot(first_slot));
        if !mapped.is_leased() {
            return true;
        }
        let len = mapped.source.len;
        mapped.unpoisoned = 0..0;
        self.heal(first_slot, len, u64::MAX)
    }
}
