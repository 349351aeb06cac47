//! The file is given another length by way of the cache: at once, and not with the next write-back.
//!
//! What is newer than the file and lies behind its new end is thrown away with it. So nobody writes
//! back meanwhile, who would bring it there again.

use std::sync::atomic::Ordering::Release;

use overspill_sys::Errno;

use super::{Books, Cache, PAGE};

impl Cache {
    /// The file ends there from now on.
    pub fn set_len(&self, len: u64) -> Result<(), Errno> {
        self.is_ours()?;
        // The kernel ends who passes his limit (SIGXFSZ).
        if len > self.len() {
            self.store().may_be_long(len)?;
        }
        let _alone = self.alone();
        // What others have done to it comes first.
        self.look(&mut self.books());
        self.store().set_len(len)?;
        let mut books = self.books();
        books.end_at(len);
        self.len.store(len, Release);
        self.settle(&mut books);
        drop(books);
        // Who waits for a page that is gone sees that it is.
        self.arrived.notify_all();
        Ok(())
    }
}

impl Books {
    /// Nothing is there of what lies behind byte `len`, newer than the file or not, and nothing of it comes:
    /// what is on its way is read once more. Nobody writes back meanwhile.
    fn end_at(&mut self, len: u64) {
        self.in_file = len;
        for page in self.placed_in(len / PAGE..u64::MAX) {
            let entry = self.pages.get_mut(&page).expect("it was just found");
            let inside = len.saturating_sub(page * PAGE) as usize;
            if inside > 0 {
                match entry.frame {
                    Some(frame) => self.blocks.bytes_mut(frame)[inside..].fill(0),
                    None => entry.is_stale = true,
                }
                continue;
            }
            entry.dirty = None;
            self.dirty.remove(&page);
            if !entry.arriving {
                self.drop_page(page);
                continue;
            }
            // Whoever fetches it finds its place.
            entry.is_stale = true;
            self.unsettled.remove(&page);
            if let Some(frame) = entry.frame.take() {
                self.leaving.dropped(page);
                self.blocks.give_back(frame);
            }
        }
    }
}
