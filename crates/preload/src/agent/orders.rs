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
                Some(Order::Drain(path)) => self.engine.drain_place(index, &path),
                None => Err(Errno::INVAL),
            };
            if outcome.is_err() {
                process.orders_refused.fetch_or(1 << index, Ordering::Relaxed);
            }
        }
        self.tell_how_far(count);
        process.orders_followed.store(count, Ordering::Release);
    }

    /// What an order leaves where it is is told before the order counts as done.
    fn tell_how_far(&self, orders: u32) {
        let (process, mut open) = (self.agent.process, 0);
        for order in 0..orders {
            let leaving = self.engine.leaving(order);
            open |= u32::from(leaving.is_open) << order;
            process.pages_stuck[order as usize].store(leaving.stuck, Ordering::Relaxed);
        }
        process.orders_open.store(open, Ordering::Release);
    }
}
