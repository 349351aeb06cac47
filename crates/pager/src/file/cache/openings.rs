//! Who has the file open: several share its pages, and each reads it in an order of his own.

use overspill_mm::fileread::FileRead;
use overspill_mm::fileread::policy::{FileState, Policy};
use overspill_sys::Errno;

use super::{Books, Cache, Entry, Run};
use crate::file::Store;
use crate::file::numbers::ByNumber;

/// One of those who have the file open, by number.
pub(in crate::file) type Opening = u64;
/// Whoever had the cache made.
pub(in crate::file) const FIRST: Opening = 0;

/// What is known of one of them.
pub(super) struct Reader {
    pub policy: Policy,
    pub file: FileState,
    /// The first failure since his last sync.
    error: Option<Errno>,
}

/// Who calls.
pub(in crate::file) trait Caller {
    fn opening(&self) -> Opening;
    /// Has somebody else fetch what is read ahead.
    fn order(&self, run: Run);
}

/// In tests, the first.
#[cfg(test)]
impl<F: Fn(Run)> Caller for F {
    fn opening(&self) -> Opening {
        FIRST
    }

    fn order(&self, run: Run) {
        self(run);
    }
}

impl Cache {
    /// The file, so that it may be written to if anybody may.
    pub(super) fn store(&self) -> &dyn Store {
        self.writable.get().unwrap_or(&self.store).as_ref()
    }

    /// Somebody else opens the file, by this descriptor if he may write to it. It is for use where none
    /// of those before could be written by.
    ///
    /// *The story:* the first that came so took the place of the cache's own. That had written, and the
    /// device failed; the new descriptor knew nothing of it, and its sync said that all was well.
    pub fn open_again(&self, writable: Option<Box<dyn Store>>, policy: Policy) -> Opening {
        if let Some(store) = writable.filter(|_| self.wants_writer()) {
            let _ = self.writable.set(store);
        }
        let opening = self.open(policy);
        self.look(&mut self.books());
        opening
    }

    /// Is there none yet by which it could be written? The first serves all.
    pub fn wants_writer(&self) -> bool {
        !self.writes && self.writable.get().is_none()
    }

    pub(super) fn open(&self, mut policy: Policy) -> Opening {
        let mut books = self.books();
        let opening = books.opened;
        books.opened += 1;
        let reader = Reader { file: policy.open(), policy, error: None };
        books.openings.insert(opening, reader);
        opening
    }

    /// Somebody has closed it.
    pub fn close(&self, opening: Opening) {
        let gone = self.books().openings.remove(&opening);
        let Reader { mut policy, mut file, .. } = gone.expect("it is closed once");
        policy.close(&mut file);
    }
}

impl Books {
    /// What is kept of an opening, and the pages.
    pub(super) fn reader(&mut self, opening: Opening) -> (&mut Reader, &ByNumber<Entry>) {
        (self.openings.get_mut(&opening).expect("it is closed once"), &self.pages)
    }

    /// Something could not be written or settled: the next sync of each opening tells it.
    pub(super) fn note_failure(&mut self, errno: Errno) {
        self.openings.values_mut().for_each(|reader| _ = reader.error.get_or_insert(errno));
    }

    /// What is to be told to whoever syncs now.
    pub(super) fn take_failure(&mut self, opening: Opening) -> Option<Errno> {
        self.reader(opening).0.error.take()
    }

    /// A page leaves that nobody has used.
    pub(super) fn note_unused(&mut self, page: u64) {
        self.stats.unused += 1;
        self.openings.values_mut().for_each(|reader| reader.policy.unused(&mut reader.file, page));
    }
}
