//! Memory that the books have and the process has not: something replaced a mapping, and no event said so.

use super::{Manager, STRAY_BYTES, managed_bytes};

impl Manager<'_> {
    /// Does the process hold less than the books say, by more than when that was looked into last? What the
    /// program has just given back, and the kernel has told of, is none of it.
    pub(super) fn lacks(&mut self, resident: u64) -> bool {
        let lack = managed_bytes(&self.engine).saturating_sub(resident);
        self.lack_accepted = self.lack_accepted.min(lack);
        if lack <= self.lack_accepted + STRAY_BYTES {
            return false;
        }
        self.engine.handle_changes();
        let lack = managed_bytes(&self.engine).saturating_sub(self.agent.resident().anon_bytes);
        let is_more = lack > self.lack_accepted + STRAY_BYTES;
        self.lack_accepted = lack;
        is_more
    }
}
