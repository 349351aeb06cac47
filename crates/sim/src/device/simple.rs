//! Models with few parameters: a device of fixed cost an operation and a page, a store behind a
//! network, compressed RAM.
//!
//! The first is the one that reproduces the published load of the swap-in detector, whose authors
//! named no device: its two constants are solved from their table. The others follow from their own
//! arithmetic: a round trip and a link; a processor and a page.

use super::params::{LinearParams, NetworkParams, RamParams};
use super::{Lanes, Op, Request, Serial, Service};
use crate::time::{Nanos, transfer_ns};
use overspill_mm::types::PAGE_SIZE;

fn pages(request: &Request) -> u64 {
    request.bytes.div_ceil(PAGE_SIZE)
}

/// `a` an operation and `b` a page, one operation at a time. Reads that arrive together are one
/// operation: a device with a queue of commands looks for all of them at once.
#[derive(Debug)]
pub struct Linear {
    params: LinearParams,
    server: Serial,
    /// When the last read arrived.
    read_at: Option<Nanos>,
}

impl Linear {
    /// An idle device.
    #[must_use]
    pub fn new(params: LinearParams) -> Linear {
        Linear { params, server: Serial::default(), read_at: None }
    }
}

impl Service for Linear {
    fn serve(&mut self, now: Nanos, request: &Request) -> Nanos {
        let (op_ns, page_ns) = match request.op {
            Op::Read if self.read_at.replace(now) == Some(now) => (0, self.params.read_page_ns),
            Op::Read => (self.params.read_op_ns, self.params.read_page_ns),
            Op::Write => (self.params.write_op_ns, self.params.write_page_ns),
        };
        self.server.book(now, op_ns + page_ns * pages(request))
    }
}

/// A store at the other end of a network: half a round trip, a server's lane, the link, half a round trip.
#[derive(Debug)]
pub struct Network {
    params: NetworkParams,
    lanes: Lanes,
    inbound: Serial,
    outbound: Serial,
}

impl Network {
    /// An idle network.
    #[must_use]
    pub fn new(params: NetworkParams) -> Network {
        let lanes = Lanes::new(params.server_lanes);
        Network { params, lanes, inbound: Serial::default(), outbound: Serial::default() }
    }
}

impl Service for Network {
    fn serve(&mut self, now: Nanos, request: &Request) -> Nanos {
        let half_ns = self.params.round_trip_ns / 2;
        let span_ns = transfer_ns(request.bytes, self.params.link_bytes_per_us);
        let server_ns = self.params.server_ns + self.params.server_page_ns * pages(request);
        match request.op {
            Op::Write => {
                let sent_at = self.outbound.book(now, span_ns);
                self.lanes.book(sent_at + half_ns, server_ns) + half_ns
            }
            Op::Read => {
                // The link is booked in order of submission, without waiting for the server: an
                // answer that is late there does not hold up the others here.
                let link_ends_at = self.inbound.book(now + half_ns, span_ns);
                let served_at = self.lanes.book(now + half_ns, server_ns);
                (served_at + span_ns).max(link_ends_at) + half_ns
            }
        }
    }
}

/// A compressed tier: the cost is the processor's.
#[derive(Debug)]
pub struct Ram {
    params: RamParams,
    lanes: Lanes,
}

impl Ram {
    /// Idle processors.
    #[must_use]
    pub fn new(params: RamParams) -> Ram {
        let lanes = Lanes::new(params.lanes);
        Ram { params, lanes }
    }
}

impl Service for Ram {
    fn serve(&mut self, now: Nanos, request: &Request) -> Nanos {
        let page_ns = match request.op {
            Op::Read => self.params.decompress_page_ns,
            Op::Write => self.params.compress_page_ns,
        };
        self.lanes.book(now, (page_ns + self.params.handling_page_ns) * pages(request))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Device, Direct, closed_loop};
    use super::*;

    #[test]
    fn linear_adds_up() {
        let mut device = Direct::new(Linear::new(LinearParams {
            read_op_ns: 100_000,
            read_page_ns: 15_000,
            write_op_ns: 0,
            write_page_ns: 22_000,
        }));
        let (latency_ns, elapsed_ns) =
            closed_loop::run(&mut device, 1, 10, closed_loop::sequential(Op::Read, 8 * PAGE_SIZE));
        assert_eq!(latency_ns, 220_000);
        assert_eq!(elapsed_ns, 2_200_000);
        assert_eq!(device.usage().busy_permille(elapsed_ns), 1000);
    }

    #[test]
    fn network_is_latency_alone_and_bandwidth_in_bulk() {
        let params = NetworkParams {
            round_trip_ns: 50_000,
            link_bytes_per_us: 1_250,
            server_ns: 10_000,
            server_page_ns: 0,
            server_lanes: 16,
        };
        let read = |depth, bytes| {
            let mut device = Direct::new(Network::new(params.clone()));
            closed_loop::run(&mut device, depth, 500, closed_loop::random(Op::Read, bytes, 1 << 30))
        };
        assert_eq!(read(1, 4096).0, 50_000 + 10_000 + 3_277);
        let elapsed_ns = read(32, 1 << 20).1;
        let bytes_per_us = (500 << 20) * 1000 / elapsed_ns;
        assert!((1_240..=1_250).contains(&bytes_per_us), "{bytes_per_us}");
    }

    #[test]
    fn ram_scales_with_lanes() {
        let params = |lanes| RamParams {
            decompress_page_ns: 800,
            compress_page_ns: 5_000,
            handling_page_ns: 200,
            lanes,
            ratio_percent: 210,
        };
        for lanes in [1, 4] {
            let mut device = Direct::new(Ram::new(params(lanes)));
            let (_, elapsed_ns) =
                closed_loop::run(&mut device, 64, 400, closed_loop::sequential(Op::Read, PAGE_SIZE));
            assert_eq!(elapsed_ns, 400 * 1000 / u64::from(lanes));
        }
    }
}
