//! What the launcher asked for: the settings of an engine, and orders that came later.

use core::sync::atomic::Ordering;

use overspill_engine::orders::Order;
use overspill_engine::shared::{Config, flags};
use overspill_engine::{Settings, SwapKind, SwapPlace};
use overspill_mm::readahead::policy::{self, Policy};
use overspill_mm::reclaim::policy::Choice;
use overspill_sys::procfs::{self, Limit};
use overspill_sys::{Errno, PAGE_SIZE};

use super::{Agent, DESCRIPTORS_ENOUGH, Manager};

impl Agent {
    /// What an engine is made from.
    pub(super) fn settings(&mut self) -> Settings {
        let config: &Config = &self.shared.config;
        let mut swap = SwapPlace::decode(&config.swap_places);
        let orders = self.shared.orders.count();
        let given = (0..orders).filter_map(|index| self.shared.orders.get(index));
        given.for_each(|order| order.apply(&mut swap));
        self.process.orders_followed.store(orders, Ordering::Release);
        if let Some(file) = self.swap.take() {
            // The launcher has made the file in the directory that comes first.
            let first = swap.first_mut().filter(|place| place.kind == SwapKind::Directory);
            if let Some(first) = first {
                first.kind = SwapKind::Given(file.into_raw());
            }
        }
        let is_rich = self.is_rich();
        Settings {
            frames: frames(config.ram_bytes),
            frames_max: frames(config.ram_bytes),
            swap,
            swap_bytes_max: config.swap_bytes_max,
            use_move: !self.has(flags::NO_MOVE),
            use_uring: is_rich && !self.has(flags::NO_URING),
            poll_idle: is_rich && self.has(flags::POLL_IDLE),
            user_mode_only: false,
            policy: policy_of(config, frames(config.ram_bytes)),
            reclaim: Choice::ALL.get(config.reclaim as usize).copied().unwrap_or_default(),
            max_pool_percent: config.max_pool_percent,
            fixed_pool: self.has(flags::FIXED_POOL),
            checksums: !self.has(flags::NO_CHECKSUM),
            encrypt: self.has(flags::ENCRYPT),
        }
    }

    /// May it have all descriptors that are of use? It has a table of its own, but the program's limit.
    pub(super) fn is_rich(&self) -> bool {
        let (descriptors, _) = procfs::limit(Limit::Descriptors).unwrap_or((u64::MAX, u64::MAX));
        descriptors >= DESCRIPTORS_ENOUGH
    }
}

/// Pages of so many bytes.
pub(super) fn frames(bytes: u64) -> u32 {
    u32::try_from(bytes / PAGE_SIZE as u64).unwrap_or(u32::MAX / 32)
}

impl Manager<'_> {
    /// Does what was ordered of places to page to since the last look, and tells how far it is.
    pub(super) fn follow_orders(&mut self) {
        let process = self.agent.process;
        let count = self.agent.shared.orders.count();
        for index in process.orders_followed.load(Ordering::Relaxed)..count {
            let outcome = match self.agent.shared.orders.get(index) {
                Some(Order::Add(place)) => self.engine.add_place(&place),
                Some(Order::Drain(path)) => self.engine.drain_place(&path),
                None => Err(Errno::INVAL),
            };
            if outcome.is_err() {
                process.orders_refused.fetch_or(1 << index, Ordering::Relaxed);
            }
        }
        process.areas_leaving.store(self.engine.areas_leaving(), Ordering::Release);
        process.orders_followed.store(count, Ordering::Release);
    }
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
