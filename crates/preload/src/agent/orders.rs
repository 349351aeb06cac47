//! Orders that come while the program runs: places to page to that are added, and that are to go.

use core::sync::atomic::Ordering;

use overspill_engine::Engine;
use overspill_engine::orders::Order;
use overspill_engine::shared::{Process, Shared};
use overspill_sys::Errno;

use super::Manager;

impl Manager<'_> {
    pub(super) fn follow_orders(&mut self) {
        follow(&mut self.engine, self.agent.shared, self.agent.process);
    }
}

/// Does what was ordered of places to page to since the last look, and tells how far it is.
///
/// *The story:* an agent that has its places open and manages nothing yet was not asked: a place was
/// said to be left, and was in use by it.
pub(super) fn follow(engine: &mut Engine, shared: &Shared, process: &Process) {
    let count = shared.orders.count();
    for index in process.orders_followed.load(Ordering::Relaxed)..count {
        let outcome = match shared.orders.get(index) {
            Some(Order::Add(place)) => engine.add_place(&place),
            Some(Order::Drain(path)) => engine.drain_place(index, &path),
            None => Err(Errno::INVAL),
        };
        if outcome.is_err() {
            process.orders_refused.fetch_or(1 << index, Ordering::Relaxed);
        }
    }
    tell_how_far(engine, process, count);
    process.orders_followed.store(count, Ordering::Release);
}

/// What an order leaves where it is is told before the order counts as done.
fn tell_how_far(engine: &Engine, process: &Process, orders: u32) {
    let (mut open, mut waiting) = (0, 0);
    for order in 0..orders {
        let leaving = engine.leaving(order);
        open |= u32::from(leaving.is_open) << order;
        waiting |= u32::from(leaving.waits) << order;
        process.pages_left[order as usize].store(leaving.left, Ordering::Relaxed);
    }
    process.orders_waiting.store(waiting, Ordering::Relaxed);
    process.orders_open.store(open, Ordering::Release);
}
