//! When pages of files are written back: by age, by how many there are, and when reclaim meets them.
//!
//! The numbers are those of the kernel's documentation (sysctl/vm): the flusher wakes each 5 s and
//! writes what has been dirty for 30 s; above 10 % of the memory that is free or holds file pages it
//! writes whatever its age; above 20 % whoever writes waits. Reclaim that finds dirty pages asks for
//! as many to be written (specification 5.2, 5.5).

use super::{FLUSHER, World};
use crate::time::{MILLISECOND, Nanos, SECOND};
use overspill_mm::reclaim::lists::{DomainId, List};

const BACKGROUND_PERCENT: u64 = 10;
const LIMIT_PERCENT: u64 = 20;
/// The flusher wakes each so long.
pub const PERIOD: Nanos = 5 * SECOND;
const EXPIRES: Nanos = 30 * SECOND;
/// A program that has to wait looks again after so long.
pub const PAUSE: Nanos = 10 * MILLISECOND;
/// Pages that the flusher sends before it waits for the disk.
const BATCH: u32 = 256;

/// Who had pages of files written, and who waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writeback {
    /// Pages that the flusher sent.
    pub by_flusher: u64,
    /// Pages that background reclaim sent.
    pub by_reclaim: u64,
    /// Pauses of programs that wrote.
    pub pauses: u64,
}

impl World {
    /// Memory that the limits are shares of.
    fn dirtyable(&self) -> u64 {
        let files = |id| {
            let pages = self.node.lengths(DomainId(id));
            pages[List::InactiveFile as usize] + pages[List::ActiveFile as usize]
        };
        self.node.free() + (0..self.node.domain_count()).map(files).sum::<u64>()
    }

    /// So much is dirty that the flusher writes whatever its age.
    fn is_much_dirty(&self) -> bool {
        self.files.dirty() * 100 > self.dirtyable() * BACKGROUND_PERCENT
    }

    /// Before a page is written: does the program wait? Wakes the flusher where it should work.
    pub(super) fn must_pause(&mut self, at: Nanos) -> bool {
        if self.is_much_dirty() {
            self.schedule.wake(FLUSHER, at);
        }
        let waits = self.files.unwritten() * 100 > self.dirtyable() * LIMIT_PERCENT;
        self.writeback.pauses += u64::from(waits);
        waits
    }

    /// Reclaim has met dirty pages since it was asked last: as many are to be written.
    pub(super) fn flush_for_reclaim(&mut self, at: Nanos) {
        let met = self.node.counters().dirty_files_met;
        let new = met - std::mem::replace(&mut self.met_dirty, met);
        if new > 0 {
            self.flush_asked = (self.flush_asked + new).min(self.files.dirty());
            self.schedule.wake(FLUSHER, at);
        }
    }

    /// One step of the flusher: a batch, then it waits for the disk, or until it is wanted.
    pub(super) fn flush(&mut self, at: Nanos) {
        if self.disk_free_at > at + MILLISECOND {
            return self.schedule.sleep(self.disk_free_at - at);
        }
        let mut sent = 0;
        while sent < BATCH {
            let is_urgent = self.flush_asked > 0 || self.is_syncing || self.is_much_dirty();
            let before = if is_urgent { at } else { at.saturating_sub(EXPIRES) };
            let Some(spot) = self.files.next_dirty(before, at + 1) else { break };
            let page = self.files.frame(spot).expect("a dirty page has a frame");
            assert!(self.node.flush(page), "both agree that it is dirty and not on its way");
            self.send(spot, page, at);
            self.writeback.by_flusher += 1;
            self.flush_asked = self.flush_asked.saturating_sub(1);
            sent += 1;
        }
        if sent > 0 {
            return self.schedule.sleep(self.disk_free_at - at);
        }
        self.flush_asked = 0;
        self.schedule.sleep(PERIOD);
    }
}
