//! Solid-state storage: a controller, a bus, and dies that work side by side.
//!
//! A command takes the controller for a moment; its bytes are cut into units, each on the die its
//! address names; the dies read side by side; the bus carries the bytes. A write is acknowledged
//! once its bytes are in the device's buffer, and programmed afterwards, on the same dies: a read
//! that finds its die programming waits, at most until the program is suspended. That is where
//! mixed loads lose their latency. The parameters are chosen so that the model gives the data
//! sheet's four figures (one 4 KiB read, deep 4 KiB reads, bulk reads, bulk writes); a measured
//! device uses the same model with as many dies as show in its measurements.

use super::params::FlashParams;
use super::{Op, Request, Serial, Service};
use crate::rng::splitmix64;
use crate::time::{Nanos, muldiv_up, transfer_ns};

/// One die (or whatever works side by side).
#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// Reads before this time are done.
    read_free_at: Nanos,
    /// Programs before this time are done, if no read suspends them.
    program_free_at: Nanos,
}

/// The state of the device.
#[derive(Debug)]
pub struct Flash {
    params: FlashParams,
    controller: Serial,
    inbound: Serial,
    outbound: Serial,
    dies: Vec<Die>,
    /// How far a die's programs may lag behind what is acknowledged.
    backlog_ns: Nanos,
}

impl Flash {
    /// An idle device with an empty buffer.
    #[must_use]
    pub fn new(params: FlashParams) -> Flash {
        let dies = vec![Die::default(); params.dies as usize];
        let share_bytes = params.buffer_bytes / u64::from(params.dies);
        let backlog_ns = muldiv_up(share_bytes, params.program_unit_ns, params.unit_bytes);
        Flash {
            params,
            controller: Serial::default(),
            inbound: Serial::default(),
            outbound: Serial::default(),
            dies,
            backlog_ns,
        }
    }

    /// The dies and byte counts of a request, unit by unit.
    fn units(&self, request: &Request) -> impl Iterator<Item = (usize, u64)> + use<> {
        let (unit_bytes, dies) = (self.params.unit_bytes, self.dies.len() as u64);
        let end = request.end();
        let mut at = request.offset_bytes;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let unit = at / unit_bytes;
            let until = ((unit + 1) * unit_bytes).min(end);
            let bytes = until - at;
            at = until;
            // Runs of units go round the dies; each round begins somewhere else, as a translation
            // layer's does.
            let mut round = unit / dies;
            let die = (unit + splitmix64(&mut round)) % dies;
            Some((die as usize, bytes))
        })
    }

    fn bus(&mut self, op: Op) -> (&mut Serial, u64) {
        match op {
            Op::Read => (&mut self.inbound, self.params.read_bytes_per_us),
            Op::Write if self.params.half_duplex => (&mut self.inbound, self.params.write_bytes_per_us),
            Op::Write => (&mut self.outbound, self.params.write_bytes_per_us),
        }
    }

    /// Reads one unit of `die` from `now` on; gives the end.
    fn read_unit(&mut self, die: usize, now: Nanos) -> Nanos {
        let (read_ns, suspend_ns) = (self.params.read_unit_ns, self.params.suspend_ns);
        let die = &mut self.dies[die];
        let mut begin = now.max(die.read_free_at);
        if die.program_free_at > begin {
            begin = die.program_free_at.min(begin + suspend_ns);
            if die.program_free_at > begin {
                die.program_free_at += read_ns;
            }
        }
        die.read_free_at = begin + read_ns;
        die.read_free_at
    }

    /// Puts `bytes` into the buffer of `die` at `now`; gives the time at which there is room for them.
    fn program(&mut self, die: usize, bytes: u64, now: Nanos) -> Nanos {
        let program_ns = muldiv_up(bytes, self.params.program_unit_ns, self.params.unit_bytes);
        let die = &mut self.dies[die];
        die.program_free_at = die.program_free_at.max(now) + program_ns;
        now.max(die.program_free_at.saturating_sub(self.backlog_ns.max(program_ns)))
    }
}

impl Service for Flash {
    fn serve(&mut self, now: Nanos, request: &Request) -> Nanos {
        let accepted_at = self.controller.book(now, self.params.command_ns);
        let (bus, bytes_per_us) = self.bus(request.op);
        let bus_ends_at = bus.book(accepted_at, transfer_ns(request.bytes, bytes_per_us));
        let mut last_at = accepted_at;
        match request.op {
            Op::Read => {
                let mut last_bytes = 0;
                for (die, bytes) in self.units(request) {
                    let at = self.read_unit(die, accepted_at);
                    if at >= last_at {
                        (last_at, last_bytes) = (at, bytes);
                    }
                }
                // The bus is booked from the command on, not from the last die: one slow die does
                // not idle it.
                let carried_at = last_at + transfer_ns(last_bytes, bytes_per_us);
                let stream_ends_at =
                    accepted_at + transfer_ns(request.bytes, self.params.stream_read_bytes_per_us);
                carried_at.max(bus_ends_at).max(stream_ends_at) + self.params.read_overhead_ns
            }
            Op::Write => {
                for (die, bytes) in self.units(request) {
                    last_at = last_at.max(self.program(die, bytes, bus_ends_at));
                }
                let stream_ends_at =
                    accepted_at + transfer_ns(request.bytes, self.params.stream_write_bytes_per_us);
                last_at.max(bus_ends_at).max(stream_ends_at) + self.params.write_overhead_ns
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Direct, closed_loop, params::Model};
    use super::*;

    fn device(name: &str) -> Direct<Flash> {
        let model = Model::builtin(name).expect("a model of this name");
        Direct::new(Flash::new(model.flash.expect("a flash model")))
    }

    /// Operations a second of `depth` deep requests.
    fn rate(name: &str, op: Op, depth: u64, bytes: u64) -> u64 {
        let (_, elapsed_ns) =
            closed_loop::run(&mut device(name), depth, 20_000, closed_loop::random(op, bytes, 1 << 36));
        20_000 * 1_000_000_000 / elapsed_ns
    }

    /// The models give the figures of the data sheets they quote, within a tenth.
    #[test]
    fn data_sheets() {
        for (name, op, depth, bytes, expected) in [
            ("sata-ssd", Op::Read, 1, 4096, 10_000),
            ("sata-ssd", Op::Read, 32, 4096, 98_000),
            ("sata-ssd", Op::Write, 1, 4096, 40_000),
            ("sata-ssd", Op::Read, 32, 131_072, 540_000_000 / 131_072),
            ("sata-ssd", Op::Write, 32, 131_072, 520_000_000 / 131_072),
            ("nvme-2014", Op::Read, 1, 4096, 8_900),
            ("nvme-2014", Op::Read, 128, 4096, 450_000),
            ("nvme-2014", Op::Read, 128, 131_072, 2_700_000_000 / 131_072),
            ("nvme-2014", Op::Write, 128, 131_072, 1_080_000_000 / 131_072),
            ("nvme", Op::Read, 1, 4096, 15_000),
            ("nvme", Op::Read, 128, 4096, 370_000),
            ("nvme", Op::Write, 1, 4096, 55_000),
            ("nvme", Op::Read, 128, 131_072, 3_500_000_000 / 131_072),
            ("nvme", Op::Write, 128, 131_072, 2_300_000_000 / 131_072),
        ] {
            let got = rate(name, op, depth, bytes);
            assert!(
                got.abs_diff(expected) * 10 <= expected,
                "{name} {op:?} {depth} {bytes}: {got}, not {expected}"
            );
        }
    }

    #[test]
    fn writes_slow_reads_down() {
        let mut reads = closed_loop::random(Op::Read, 4096, 1 << 36);
        let alone = closed_loop::run(&mut device("nvme"), 4, 4000, &mut reads).0;
        let mut writes = closed_loop::random(Op::Write, 65_536, 1 << 36);
        let mixed = closed_loop::run(&mut device("nvme"), 8, 8000, |index| {
            if index % 2 == 0 { reads(index) } else { writes(index) }
        });
        assert!(mixed.0 > alone * 5 / 4, "mixed {} alone {alone}", mixed.0);
    }
}
