//! What the engine is made from: what the launcher chose, as far as this process may have it.

use core::sync::atomic::Ordering;

use overspill_engine::claims::{self, Claims};
use overspill_engine::shared::{Config, Process, Shared, flags};
use overspill_engine::spill::Teller;
use overspill_engine::{Settings, SwapKind, SwapPlace};
use overspill_mm::readahead::policy::{self, Policy};
use overspill_mm::reclaim::policy::Choice;
use overspill_sys::file::{self, Open};
use overspill_sys::pagemap::Pagemap;
use overspill_sys::procfs::{self, Limit};

use crate::aside::frames;
use crate::launcher::Files;

/// With a limit below this the agent does without the descriptors that it need not have.
const DESCRIPTORS_ENOUGH: u64 = 16;

/// May the agent have all descriptors that are of use? It has a table of its own, but the program's
/// limit.
pub fn is_rich() -> bool {
    let (descriptors, _) = procfs::limit(Limit::Descriptors).unwrap_or((u64::MAX, u64::MAX));
    descriptors >= DESCRIPTORS_ENOUGH
}

/// The settings for the engine of a process. `files` are those to page to that the launcher gave; the
/// page map is opened if it is not yet.
pub fn of(shared: &'static Shared, process: &Process, files: Files, pagemap: Option<Pagemap>) -> Settings {
    let config: &Config = &shared.config;
    let has = |flag: u32| config.flags & flag != 0;
    let mut swap = SwapPlace::decode(&config.swap_places);
    for (index, file) in files {
        if let Some(place) = swap.get_mut(index).filter(|place| is_served_by_a_file(place)) {
            place.kind = SwapKind::Given(file.into_raw());
        }
    }
    let orders = shared.orders.count();
    for (place, index) in swap.iter_mut().zip(1..=claims::PLACES) {
        place.limit = Some(index as u8);
    }
    let given = (0..orders).filter_map(|index| shared.orders.get(index));
    given.for_each(|order| order.apply(&mut swap));
    process.orders_followed.store(orders, Ordering::Release);
    let is_rich = is_rich();
    Settings {
        frames: frames(config.ram_bytes),
        swap,
        swap_bytes_max: config.swap_bytes_max,
        claims: if has(flags::PER_PROCESS) { None } else { Claims::of(shared, process) },
        spill: Teller::of(shared, process),
        use_move: !has(flags::NO_MOVE),
        use_uring: is_rich && !has(flags::NO_URING),
        poll_idle: is_rich && has(flags::POLL_IDLE),
        user_mode_only: false,
        policy: policy_of(config, frames(config.ram_bytes)),
        reclaim: Choice::ALL.get(config.reclaim as usize).copied().unwrap_or_default(),
        max_pool_percent: config.max_pool_percent,
        fixed_pool: has(flags::FIXED_POOL),
        // The program ends, or stops, where its budget does.
        floats: !has(flags::STRICT | flags::STOP_WHEN_FULL),
        fills_room: true,
        checksums: !has(flags::NO_CHECKSUM),
        encrypt: has(flags::ENCRYPT),
        pagemap,
    }
}

/// Does a file of the launcher's stand for this place? Not for an area that this process can open.
fn is_served_by_a_file(place: &SwapPlace) -> bool {
    place.kind != SwapKind::Area || file::open(&place.path, Open::READ_WRITE).is_err()
}

/// The read-ahead policy that the launcher chose: an index into the names that `mm` knows.
fn policy_of(config: &Config, frames: u32) -> Policy {
    let mut chosen = policy::Config { frames, ..policy::Config::default() };
    if config.page_cluster != u32::MAX {
        chosen.knobs.page_cluster = config.page_cluster.min(31) as u8;
    }
    let name = policy::NAMES.get(config.readahead as usize).unwrap_or(&policy::NAMES[0]);
    Policy::by_name(name, chosen).expect("every listed name makes a policy")
}
