//! Orders that come while the program runs: places to page to that are added, and that are to go.

use core::sync::atomic::Ordering;

use overspill_engine::orders::Order;
use overspill_sys::Errno;

use super::Manager;

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
