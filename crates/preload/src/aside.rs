//! How many addresses the agent puts aside, see [`reserve`] for why it does; and how much memory is not
//! the program's.

use overspill_engine::Failure;
pub use overspill_engine::frames_of as frames;
use overspill_engine::setup::staging_bytes;
use overspill_engine::shared::{Config, Shared};
use overspill_mm::pool::{SEGMENT_BYTES, segments_max};
use overspill_sys::{PAGE_SIZE, reserve};

use crate::limits::{ADDRESSES, DATA};

/// The agent's library and its first thread, which are there.
const BEFORE: u64 = 2 << 20;
/// Steps that failed, see [`overspill_engine::STEPS`].
const ADDRESSES_LIMITED: u32 = 11;
const DATA_LIMITED: u32 = 12;

/// Puts aside the addresses that the agent will need. Its books take less
/// than a hundredth of the program's memory, the compressed pool has its share of the budget,
/// staging is known, and the rest is a few MiB.
///
/// *The story:* staging had no room in there with budgets of more than 140 MiB. The kernel put it
/// into a hole, where a mapping of the program's was to grow down: the program got SIGSEGV.
///
/// It fails where the program has a limit on addresses, or data, that may not be raised by so much.
pub fn put(shared: &Shared) -> Result<(), Failure> {
    const BYTES: u64 = 256 << 20;
    const RAM_SHARE: u64 = 8;
    let config = &shared.config;
    let pool = config.ram_bytes / 100 * u64::from(config.max_pool_percent);
    let staging = staging_bytes(frames(config.ram_bytes));
    let bytes = BYTES + config.ram_bytes / RAM_SHARE + pool + staging;
    let all = (bytes + BEFORE + size_of::<Shared>() as u64).next_multiple_of(PAGE_SIZE as u64);
    ADDRESSES.make_room(all, all).map_err(|errno| Failure { step: ADDRESSES_LIMITED, errno })?;
    let inherited = inherited();
    take_data(config, BEFORE)?;
    if let Ok(bytes) = usize::try_from(bytes) {
        // Without a reserve the kernel chooses the addresses, which is worse, not wrong.
        let _ = reserve::set_up(bytes.saturating_sub(inherited));
    }
    Ok(())
}

/// The engine is about to be opened.
pub fn put_data(config: &Config) -> Result<(), Failure> {
    take_data(config, data_bytes(config))
}

/// The private memory of an engine, and what is there before. What its books take beyond that is memory
/// of another kind, where there is a limit.
fn data_bytes(config: &Config) -> u64 {
    const REST: u64 = 16 << 20;
    let frames = frames(config.ram_bytes);
    let pool = if config.max_pool_percent == 0 { 0 } else { segments_max(frames) as usize * SEGMENT_BYTES };
    BEFORE + REST + staging_bytes(frames) + pool as u64
}

fn take_data(config: &Config, bytes: u64) -> Result<(), Failure> {
    let all = data_bytes(config);
    let outcome = DATA.make_room(all.min(bytes + inherited() as u64), all);
    outcome.map_err(|errno| Failure { step: DATA_LIMITED, errno })
}

/// A child of fork has what its parent's agent used. Within a limit both have to find room.
fn inherited() -> usize {
    if ADDRESSES.is_set() || DATA.is_set() { reserve::left_behind() } else { 0 }
}
