//! Modelled storage devices: requests go in at a virtual time, completions come out at a later one.
//!
//! A device owns its queue, its mechanics and its accounts; it holds no data and never fails by
//! itself (the engine injects faults and keeps the contents). Everything is integer arithmetic on
//! the state the earlier requests left, so the same requests at the same times complete at the same
//! times. Parameters come from a TOML model ([`params`]) that names its source.

pub mod closed_loop;
pub mod disk;
pub mod flash;
pub mod params;
pub mod several;
pub mod simple;

use crate::time::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Op {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// One transfer of consecutive bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Which way.
    pub op: Op,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// How many; never 0.
    pub bytes: u64,
}

impl Request {
    /// One past the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset_bytes.checked_add(self.bytes).expect("requests lie within 2^64 bytes")
    }
}

/// The submitter's name for a request; comes back when it is complete.
pub type Ticket = u64;

/// What a device has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Time during which at least one request was in service.
    pub busy_ns: Nanos,
    /// End of the last interval that `busy_ns` covers.
    busy_until: Nanos,
    /// Read requests taken.
    pub reads: u64,
    /// Write requests taken.
    pub writes: u64,
    /// Bytes of the read requests.
    pub bytes_read: u64,
    /// Bytes of the write requests.
    pub bytes_written: u64,
}

impl Usage {
    /// Counts a request.
    fn count(&mut self, request: &Request) {
        match request.op {
            Op::Read => {
                self.reads += 1;
                self.bytes_read += request.bytes;
            }
            Op::Write => {
                self.writes += 1;
                self.bytes_written += request.bytes;
            }
        }
    }

    /// Counts `from .. until` as busy, once, however many requests overlap in it. Intervals come in
    /// the order of `from`.
    fn occupy(&mut self, from: Nanos, until: Nanos) {
        assert!(from <= until, "an interval ends after it begins");
        let from = from.max(self.busy_until);
        if until > from {
            self.busy_ns += until - from;
            self.busy_until = until;
        }
    }

    /// The share of `elapsed_ns` during which the device was busy, in thousandths.
    #[must_use]
    pub fn busy_permille(&self, elapsed_ns: Nanos) -> u64 {
        crate::time::permille(self.busy_ns.min(elapsed_ns), elapsed_ns)
    }
}

/// A device: takes requests, gives completions.
///
/// The caller never lets time run backwards: `now` of each call is at least that of the call before. It calls
/// [`Device::complete`] until that answers `None` whenever [`Device::next_completion`] has come.
pub trait Device {
    /// Takes a request.
    fn submit(&mut self, now: Nanos, ticket: Ticket, request: Request);

    /// When the next completion is due, as far as is known: a later `submit` can only make it
    /// earlier or leave it.
    fn next_completion(&self) -> Option<Nanos>;

    /// Takes back one request that is complete at `now`, earliest first, equals in order of submission.
    fn complete(&mut self, now: Nanos) -> Option<Ticket>;

    /// What was done so far.
    fn usage(&self) -> &Usage;
}

/// A model whose answer is known when the question is put: nothing that is submitted later changes
/// a completion time.
pub trait Service {
    /// When the request will be complete; at least `now`.
    fn serve(&mut self, now: Nanos, request: &Request) -> Nanos;
}

/// The [`Device`] of a [`Service`].
#[derive(Debug)]
pub struct Direct<S> {
    service: S,
    done: BinaryHeap<Reverse<(Nanos, u64, Ticket)>>,
    sequence: u64,
    usage: Usage,
}

impl<S: Service> Direct<S> {
    /// An idle device.
    pub fn new(service: S) -> Direct<S> {
        Direct { service, done: BinaryHeap::new(), sequence: 0, usage: Usage::default() }
    }
}

impl<S: Service> Device for Direct<S> {
    fn submit(&mut self, now: Nanos, ticket: Ticket, request: Request) {
        assert!(request.bytes > 0, "an empty request transfers nothing");
        let until = self.service.serve(now, &request);
        assert!(until >= now, "nothing completes before it was asked for");
        self.usage.count(&request);
        self.usage.occupy(now, until);
        self.done.push(Reverse((until, self.sequence, ticket)));
        self.sequence += 1;
    }

    fn next_completion(&self) -> Option<Nanos> {
        self.done.peek().map(|Reverse((at, _, _))| *at)
    }

    fn complete(&mut self, now: Nanos) -> Option<Ticket> {
        match self.done.peek() {
            Some(Reverse((at, _, _))) if *at <= now => self.done.pop().map(|Reverse((_, _, ticket))| ticket),
            _ => None,
        }
    }

    fn usage(&self) -> &Usage {
        &self.usage
    }
}

/// A server that does one thing after another: the time at which it is free again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Serial {
    free_at: Nanos,
}

impl Serial {
    /// Books `span_ns` from `now` on, or from when the server is free; gives the end.
    pub(crate) fn book(&mut self, now: Nanos, span_ns: Nanos) -> Nanos {
        self.free_at = self.free_at.max(now) + span_ns;
        self.free_at
    }
}

/// Equal servers; a job takes the one that is free first (the lowest of equals).
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Serial>,
}

impl Lanes {
    pub(crate) fn new(count: u32) -> Lanes {
        assert!(count > 0, "somebody must serve");
        Lanes { lanes: vec![Serial::default(); count as usize] }
    }

    pub(crate) fn book(&mut self, now: Nanos, span_ns: Nanos) -> Nanos {
        let lane = self.lanes.iter_mut().min_by_key(|lane| lane.free_at).expect("there is at least one lane");
        lane.book(now, span_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Nanos);

    impl Service for Fixed {
        fn serve(&mut self, now: Nanos, request: &Request) -> Nanos {
            now + self.0 * request.bytes
        }
    }

    #[test]
    fn completions_come_earliest_first_and_equals_in_order() {
        let mut device = Direct::new(Fixed(10));
        let read = |bytes| Request { op: Op::Read, offset_bytes: 0, bytes };
        device.submit(0, 1, read(3));
        device.submit(0, 2, read(1));
        device.submit(10, 3, read(2));
        assert_eq!(device.next_completion(), Some(10));
        assert_eq!(device.complete(9), None);
        assert_eq!(device.complete(10), Some(2));
        assert_eq!(device.complete(40), Some(1));
        assert_eq!(device.complete(40), Some(3));
        assert_eq!(device.complete(40), None);
        assert_eq!(device.usage().reads, 3);
        assert_eq!(device.usage().busy_ns, 30);
    }

    #[test]
    fn busy_time_counts_overlaps_once_and_gaps_never() {
        let mut usage = Usage::default();
        usage.occupy(0, 10);
        usage.occupy(5, 20);
        usage.occupy(6, 15);
        usage.occupy(30, 40);
        assert_eq!(usage.busy_ns, 30);
        assert_eq!(usage.busy_permille(60), 500);
    }
}
