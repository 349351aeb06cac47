//! What others do to the file: it grows, or is cut, and nobody says so.
//!
//! It is looked at where a read comes to its end, where less of it was read than there should be,
//! and when something is written back or was synced. What is newer than the file is the cache's own,
//! and stays.

use std::sync::atomic::Ordering::Release;

use super::{Books, Cache, Entry, PAGE};

impl Cache {
    /// Takes the file's length for its own, and forgets the pages that are others than they were.
    ///
    /// *The story:* a file had the length for good that it had when it was opened: what others appended
    /// was never seen, and what they cut off was zeroes.
    pub(super) fn look(&self, books: &mut Books) {
        if self.is_ours().is_ok()
            && let Ok(found) = self.store().len()
        {
            self.see_length(books, found);
        }
    }

    /// The file has `found` bytes now.
    ///
    /// *The story:* a cut was not followed as long as a page behind it was newer than the file.
    pub(super) fn see_length(&self, books: &mut Books, found: u64) {
        if found < std::mem::replace(&mut books.in_file, found) {
            books.cut_at(found);
        }
        let known = self.len();
        let len = found.max(books.own_end(known));
        if len == known {
            return;
        }
        let first = len.min(known) / PAGE;
        // A page that is being read or written may have zeroes where others have written since: first it
        // gets there, so that both have their part.
        if len > known && books.is_any_own_from(first) {
            return;
        }
        books.drop_from(first);
        self.len.store(len, Release);
    }
}

impl Books {
    /// Is any page from `first` on its way, in one direction or the other?
    fn is_any_own_from(&self, first: u64) -> bool {
        let is_own = |page: &u64, entry: &Entry| entry.is_moving() || self.unsettled.contains(page);
        self.pages.iter().any(|(page, entry)| *page >= first && is_own(page, entry))
    }

    /// The end of what is newer than the file, of which so many bytes are known.
    fn own_end(&self, known: u64) -> u64 {
        self.dirty.last().map_or(0, |page| ((page + 1) * PAGE).min(known))
    }

    /// The file ends there now, or did a moment ago: it has nothing of what is behind. What is newer than
    /// the file stays as it is; what has to stay is zeroes, and what is on its way is read once more.
    ///
    /// *The story:* the bytes behind the new end were there again when the file grew.
    fn cut_at(&mut self, found: u64) {
        self.drop_from(found / PAGE);
        for (&page, entry) in &mut self.pages {
            if page < found / PAGE || entry.dirty.is_some() {
                continue;
            }
            match entry.frame {
                Some(frame) => {
                    let inside = found.saturating_sub(page * PAGE) as usize;
                    self.blocks.bytes_mut(frame)[inside..].fill(0);
                }
                None => entry.is_stale = true,
            }
        }
    }

    /// Forgets pages from `first` on that are neither newer than the file nor on their way. The first
    /// may lie in the file in part: it stays where a sync is to settle it.
    fn drop_from(&mut self, first: u64) {
        let is_behind = |page: u64| page > first || page == first && !self.unsettled.contains(&page);
        let goes = |&(&page, entry): &(&u64, &Entry)| is_behind(page) && !entry.is_moving();
        let gone: Vec<u64> = self.pages.iter().filter(goes).map(|(&page, _)| page).collect();
        for page in gone {
            let entry = self.pages.remove(&page).expect("it was just found");
            self.unsettled.remove(&page);
            self.leaving.dropped(page);
            entry.frame.into_iter().for_each(|frame| self.blocks.give_back(frame));
        }
    }
}
