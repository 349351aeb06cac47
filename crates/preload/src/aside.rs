//! How many addresses the agent puts aside; see [`reserve`] for why it does.

use overspill_engine::setup::staging_bytes;
use overspill_engine::shared::Shared;
use overspill_sys::{Errno, PAGE_SIZE, reserve};

use crate::limits;

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
///
/// EPERM: the program has a limit on address space that may not be raised by so many.
pub fn put(shared: &Shared) -> Result<(), Errno> {
    const BYTES: u64 = 256 << 20;
    const RAM_SHARE: u64 = 8;
    /// The agent's library and its first thread, which are there.
    const BEFORE: u64 = 2 << 20;
    let config = &shared.config;
    let pool = config.ram_bytes / 100 * u64::from(config.max_pool_percent);
    let staging = staging_bytes(frames(config.ram_bytes));
    let bytes = BYTES + config.ram_bytes / RAM_SHARE + pool + staging;
    let all = (bytes + BEFORE + size_of::<Shared>() as u64).next_multiple_of(PAGE_SIZE as u64);
    limits::make_room(&shared.tree.raised, all)?;
    // A child of fork has what its parent's agent used. Within a limit both have to find room.
    let inherited = if limits::are_set() { reserve::left_behind() } else { 0 };
    if let Ok(bytes) = usize::try_from(bytes) {
        // Without a reserve the kernel chooses the addresses, which is worse, not wrong.
        let _ = reserve::set_up(bytes.saturating_sub(inherited));
    }
    Ok(())
}
