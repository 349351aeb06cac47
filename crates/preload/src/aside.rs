//! How many addresses the agent puts aside; see [`reserve`] for why it does.

use overspill_engine::setup::staging_bytes;
use overspill_engine::shared::Config;
use overspill_sys::procfs::{self, Limit};
use overspill_sys::{PAGE_SIZE, reserve};

/// A budget in frames.
pub fn frames(bytes: u64) -> u32 {
    u32::try_from(bytes / PAGE_SIZE as u64).unwrap_or(u32::MAX / 32)
}

/// Puts aside the addresses that the agent will need. Its books take less
/// than a hundredth of the program's memory, the compressed pool has its share of the budget,
/// staging is known, and the rest is a few MiB.
///
/// *The story:* staging had no room in there with budgets of more than 140 MiB. The kernel put it
/// into a hole, where a mapping of the program's was to grow down: the program got SIGSEGV.
pub fn put(config: &Config) {
    const BYTES: u64 = 256 << 20;
    const RAM_SHARE: u64 = 8;
    /// At most this share of a limit on address space.
    const LIMIT_SHARE: u64 = 16;
    let pool = config.ram_bytes / 100 * u64::from(config.max_pool_percent);
    let (limit, _) = procfs::limit(Limit::AddressSpace).unwrap_or((u64::MAX, u64::MAX));
    let staging = staging_bytes(frames(config.ram_bytes));
    let bytes = (BYTES + config.ram_bytes / RAM_SHARE + pool + staging).min(limit / LIMIT_SHARE);
    if let Ok(bytes) = usize::try_from(bytes) {
        // Without a reserve the kernel chooses the addresses, which is worse, not wrong.
        let _ = reserve::set_up(bytes);
    }
}
