//! Several devices side by side, each for a range of offsets: what swap areas lie on.
//!
//! Each keeps its own queue and time; together they are one device to whoever submits. Equal
//! completions come in the order of the devices.

use super::{Device, Request, Ticket, Usage};
use crate::time::Nanos;

/// The devices.
pub struct Several {
    /// With the first offset of each, in ascending order.
    devices: Vec<(u64, Box<dyn Device + Send>)>,
    /// All of them: busy while a request is under way on at least one.
    usage: Usage,
    /// Requests under way, and since when there are any.
    under_way: u64,
    busy_since: Nanos,
}

impl Several {
    /// One, for all offsets so far.
    #[must_use]
    pub fn new(first: Box<dyn Device + Send>) -> Several {
        Several { devices: vec![(0, first)], usage: Usage::default(), under_way: 0, busy_since: 0 }
    }

    /// One more, for offsets from here on.
    pub fn add(&mut self, from: u64, device: Box<dyn Device + Send>) {
        assert!(self.devices.last().is_some_and(|(last, _)| *last < from), "devices come in order");
        self.devices.push((from, device));
    }
}

impl Device for Several {
    fn submit(&mut self, now: Nanos, ticket: Ticket, request: Request) {
        let at = self.devices.partition_point(|(from, _)| *from <= request.offset_bytes) - 1;
        let ends = self.devices.get(at + 1).map_or(u64::MAX, |(from, _)| *from);
        assert!(request.end() <= ends, "no request is for two devices");
        let (from, device) = &mut self.devices[at];
        self.usage.count(&request);
        if self.under_way == 0 {
            self.busy_since = now;
        }
        self.under_way += 1;
        device.submit(now, ticket, Request { offset_bytes: request.offset_bytes - *from, ..request });
    }

    fn next_completion(&self) -> Option<Nanos> {
        self.devices.iter().filter_map(|(_, device)| device.next_completion()).min()
    }

    fn complete(&mut self, now: Nanos) -> Option<Ticket> {
        let next =
            |(_, device): &&mut (u64, Box<dyn Device + Send>)| device.next_completion().unwrap_or(Nanos::MAX);
        let ticket = self.devices.iter_mut().min_by_key(next)?.1.complete(now)?;
        self.under_way -= 1;
        if self.under_way == 0 {
            self.usage.occupy(self.busy_since, now);
        }
        Some(ticket)
    }

    fn usage(&self) -> &Usage {
        &self.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Direct, Op, Service};

    struct Fixed(Nanos);

    impl Service for Fixed {
        fn serve(&mut self, now: Nanos, request: &Request) -> Nanos {
            now + self.0 + request.offset_bytes
        }
    }

    #[test]
    fn each_has_its_own_offsets_and_its_own_time() {
        let mut several = Several::new(Box::new(Direct::new(Fixed(10))));
        several.add(1000, Box::new(Direct::new(Fixed(3))));
        let read = |offset_bytes| Request { op: Op::Read, offset_bytes, bytes: 1 };
        several.submit(0, 1, read(0));
        several.submit(0, 2, read(1005));
        several.submit(0, 3, read(999));
        assert_eq!(several.next_completion(), Some(8), "from the second one's own beginning");
        assert_eq!(several.complete(7), None);
        assert_eq!([several.complete(2000), several.complete(2000)], [Some(2), Some(1)]);
        assert_eq!([several.complete(2000), several.complete(2000)], [Some(3), None]);
        assert_eq!(several.usage().reads, 3);
    }

    /// *The story:* that was once the time of the device which was busy for longest.
    #[test]
    fn they_are_busy_while_at_least_one_is() {
        let mut several = Several::new(Box::new(Direct::new(Fixed(10))));
        several.add(1000, Box::new(Direct::new(Fixed(10))));
        for (now, offset_bytes) in [(0, 0), (5, 1000), (20, 1000)] {
            several.submit(now, 0, Request { op: Op::Read, offset_bytes, bytes: 1 });
            while let Some(at) = several.next_completion().filter(|&at| now >= 5 && at <= now + 10) {
                several.complete(at);
            }
        }
        assert_eq!(several.usage().busy_ns, 15 + 10);
    }
}
