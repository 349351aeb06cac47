//! What others do to the file: it grows, or is cut, and nobody says so.
//!
//! It is looked at where a read comes to its end, where less of it was read than there should be,
//! and when something is written back or was synced. What is newer than the file is the cache's own,
//! and stays.

use std::ops::Range;
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
    /// *The other story:* nor was what others appended. It was zeroes, and the next store to the page in
    /// which the file had ended wrote these over it.
    pub(super) fn see_length(&self, books: &mut Books, found: u64) {
        let before = std::mem::replace(&mut books.in_file, found);
        if found < before {
            books.cut_at(found);
        }
        books.note_grown(before..found);
        books.forget_grown();
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
    /// A page gets its place.
    pub(super) fn place(&mut self, page: u64, entry: Entry) -> Option<Entry> {
        self.highest = self.highest.max(page);
        self.pages.insert(page, entry)
    }

    /// Those of these pages that have places. It looks at the fewer of both: who waits at the end of a
    /// file that grows asks with each piece of it.
    ///
    /// *The story:* each time all pages of the cache were looked at, twice.
    pub(super) fn placed_in(&self, range: Range<u64>) -> Vec<u64> {
        let range = range.start..range.end.min(self.highest + 1);
        if range.end.saturating_sub(range.start) < self.pages.len() as u64 {
            range.filter(|page| self.pages.contains_key(page)).collect()
        } else {
            self.pages.keys().copied().filter(|page| range.contains(page)).collect()
        }
    }

    /// Is any page from `first` on its way, in one direction or the other?
    fn is_any_own_from(&self, first: u64) -> bool {
        self.placed_in(first..u64::MAX).into_iter().any(|page| self.is_own(page))
    }

    /// Is it on its way, or to be settled?
    fn is_own(&self, page: u64) -> bool {
        self.pages[&page].is_moving() || self.unsettled.contains(&page)
    }

    /// These bytes are in the file now, and were not before.
    fn note_grown(&mut self, bytes: Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        let grown = &self.grown;
        self.grown =
            if grown.is_empty() { pages } else { grown.start.min(pages.start)..grown.end.max(pages.end) };
    }

    /// Forgets pages that may have zeroes where the file has something by now. What is newer than the file
    /// gets there first, and is settled; what is on its way is read once more.
    fn forget_grown(&mut self) {
        let mut is_any_left = false;
        for page in self.placed_in(self.grown.clone()) {
            if self.is_own(page) {
                let entry = self.pages.get_mut(&page).expect("it was just found");
                let is_read_again = entry.frame.is_none();
                entry.is_stale |= is_read_again;
                is_any_left |= !is_read_again;
            } else {
                self.drop_page(page);
            }
        }
        if !is_any_left {
            self.grown = 0..0;
        }
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
        for page in self.placed_in(found / PAGE..u64::MAX) {
            let entry = self.pages.get_mut(&page).expect("it was just found");
            if entry.dirty.is_some() {
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
        for page in self.placed_in(first..u64::MAX) {
            let is_behind = page > first || !self.unsettled.contains(&page);
            if is_behind && !self.pages[&page].is_moving() {
                self.drop_page(page);
            }
        }
    }

    /// Forgets a page that is there.
    pub(super) fn drop_page(&mut self, page: u64) {
        let entry = self.pages.remove(&page).expect("it was just found");
        self.unsettled.remove(&page);
        self.leaving.dropped(page);
        entry.frame.into_iter().for_each(|frame| self.blocks.give_back(frame));
    }
}
