//! Memory that may be dropped (MAP_DROPPABLE, 6.11): its pages are the first to go where little is left, and
//! read as zeroes from then on, as the program has asked for. The kernel lets nobody page it.
//!
//! *The story:* it stayed in RAM, 192 MiB of it in a budget of 64, and took that from all other memory.

use overspill_sys::mem::{self, Advice};

use super::Manager;

/// So much is asked for at a look: some milliseconds, for which no fault is answered.
const LOOK_BYTES: usize = 8 << 20;

impl Manager<'_> {
    /// Has the kernel drop some of it, in turn, where the program holds so many bytes and that is nearly all
    /// that it may.
    ///
    /// What has taken its place since the last look, and is not managed, loses nothing by the call.
    pub(super) fn drop_droppable(&mut self, held: u64) {
        if self.adopter.droppable().is_empty() || !self.is_tight(held) {
            return;
        }
        let mut left = LOOK_BYTES;
        // From where it ended to the end, and from the beginning.
        for from in [self.drops_from, 0] {
            for range in self.adopter.droppable() {
                let start = range.start.max(from);
                if start >= range.end || left == 0 {
                    continue;
                }
                let part = start..range.end.min(start + left);
                left -= part.len();
                self.drops_from = part.end;
                for piece in self.engine.unmanaged(&part) {
                    // SAFETY: the advice changes nothing of what may not be dropped.
                    let _ = unsafe { mem::madvise(piece, Advice::PageOut) };
                }
            }
        }
    }
}
