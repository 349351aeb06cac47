//! What is noted of a page for the counters alone: who looked at it last and what it was then, that it
//! was evicted, and whether it had been in use before. No decision is made by it.
//!
//! A page is freed by whom it was looked at by (specification 5.8): the write that was begun for it may
//! end while a fault waits, and the bytes may have become a slot's. So what is freed was looked at,
//! counter by counter, whatever happened in between.

use crate::mm::Mm;
use crate::page::flag;
use crate::readahead::SwapIn;
use crate::types::PageId;

/// The notes on one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ledger(u8);

impl Ledger {
    /// Reclaim looked at it, and it was not freed yet.
    const LOOKED_AT: u8 = 1 << 0;
    /// ... while a fault waited for a frame.
    const DIRECT: u8 = 1 << 1;
    /// ... and its bytes were a file's.
    const FILE: u8 = 1 << 2;
    /// It left RAM, and has not come back.
    const EVICTED: u8 = 1 << 3;
    /// It was active before it became inactive.
    const WORKINGSET: u8 = 1 << 4;

    fn look(self) -> Option<Look> {
        let has = |bit| self.0 & bit != 0;
        has(Self::LOOKED_AT).then(|| Look { is_direct: has(Self::DIRECT), is_file: has(Self::FILE) })
    }

    fn set_look(&mut self, look: Option<Look>) {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let bits = look.map_or(0, |look| {
            Self::LOOKED_AT | bit(look.is_direct, Self::DIRECT) | bit(look.is_file, Self::FILE)
        });
        self.0 = self.0 & !(Self::LOOKED_AT | Self::DIRECT | Self::FILE) | bits;
    }

    fn take(&mut self, bit: u8) -> bool {
        let was = self.0 & bit != 0;
        self.0 &= !bit;
        was
    }
}

/// A look at a page: by whom, and at what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Look {
    /// A fault waited for a frame.
    pub is_direct: bool,
    /// The bytes are in a file.
    pub is_file: bool,
}

impl<P: SwapIn> Mm<P> {
    /// Reclaim looks at a page: whether it leaves is seen later, and then counted as freed. Every
    /// page that is freed was looked at once since it came into view or was read.
    pub(crate) fn count_scan(&mut self, id: PageId) {
        // What was stored to is no file's any more, though its file has the place still.
        let is_file = self.is_in_file(id) && !self.pages[id].has(flag::DIRTY);
        let look = Look { is_direct: !self.waiting.is_empty(), is_file };
        self.stats.note_scan(look);
        self.pages.ledger_mut(id).set_look(Some(look));
    }

    /// The program has stored to a page of a file, which shows when it is taken: it was none when it was
    /// looked at, in the same turn of the shell.
    pub(crate) fn count_as_stored_to(&mut self, id: PageId) {
        let ledger = self.pages.ledger_mut(id);
        if let Some(look) = ledger.look().filter(|look| look.is_file) {
            ledger.set_look(Some(Look { is_file: false, ..look }));
            self.stats.pgscan_file -= 1;
            self.stats.pgscan_anon += 1;
        }
    }

    /// Reclaim frees a page.
    pub(crate) fn count_steal(&mut self, id: PageId) {
        if self.pages.ledger(id).look().is_none() {
            self.count_scan(id);
        }
        let ledger = self.pages.ledger_mut(id);
        let look = ledger.look().expect("what is freed was looked at");
        ledger.set_look(None);
        self.stats.note_steal(look);
    }

    /// A page is in nobody's frame from now on, and its bytes are kept.
    pub(crate) fn note_evicted(&mut self, id: PageId) {
        self.pages.ledger_mut(id).0 |= Ledger::EVICTED;
    }

    /// A page becomes inactive that was active.
    pub(crate) fn note_deactivated(&mut self, id: PageId) {
        self.pages.ledger_mut(id).0 |= Ledger::WORKINGSET;
        self.stats.pgdeactivate += 1;
    }

    /// An evicted page is read again, for a fault or ahead of one; `activated`: to be active at once.
    /// What is read of a file for the first time was never evicted.
    pub(crate) fn count_refault(&mut self, id: PageId, activated: bool) {
        let kind = usize::from(self.is_in_file(id));
        let ledger = self.pages.ledger_mut(id);
        let (was_evicted, was_in_use) = (ledger.take(Ledger::EVICTED), ledger.take(Ledger::WORKINGSET));
        if !was_evicted {
            return;
        }
        let stats = &mut self.stats;
        *[&mut stats.workingset_refault_anon, &mut stats.workingset_refault_file][kind] += 1;
        if activated {
            *[&mut stats.workingset_activate_anon, &mut stats.workingset_activate_file][kind] += 1;
        }
        if activated && was_in_use {
            *[&mut stats.workingset_restore_anon, &mut stats.workingset_restore_file][kind] += 1;
            self.pages.ledger_mut(id).0 |= Ledger::WORKINGSET;
        }
    }
}
