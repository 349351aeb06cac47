//! From measurements to the flash model's parameters, in integers.
//!
//! The highest rate of small reads gives the controller's time, bulk transfers give the bus, what
//! is left of a single small read is overhead, and the slope from 64 KiB to 1 MiB one at a time
//! gives the rate of one stream. What a read loses beside writes becomes the suspension time of a
//! single "die" that is busy whenever writes are. Latencies are medians: a busy machine has a long
//! tail that is not the device's.

use super::Measurement;
use crate::device::Op;
use crate::device::params::{FlashParams, Model};
use crate::time::{Nanos, SECOND, muldiv, transfer_ns};

const KIB4: u64 = 4 << 10;
const KIB64: u64 = 64 << 10;
const MIB: u64 = 1 << 20;

/// What one direction's measurements say.
struct Direction {
    overhead_ns: Nanos,
    bus_bytes_per_us: u64,
    stream_bytes_per_us: u64,
}

/// Solves a model; `origin` becomes its source.
#[must_use]
pub fn fit(measurements: &[Measurement], origin: String) -> Model {
    let find = |op, bytes, depth, beside_writes| {
        measurements.iter().find(|measurement| {
            (measurement.op, measurement.bytes, measurement.depth, measurement.beside_writes)
                == (op, bytes, depth, beside_writes)
        })
    };
    let rate = find(Op::Read, KIB4, 32, false).map_or(1, Measurement::rate).max(1);
    let command_ns = SECOND / rate;
    let read = direction(measurements, Op::Read, command_ns);
    let write = direction(measurements, Op::Write, command_ns);
    let suspend_ns = match (
        find(Op::Read, KIB4, 4, false),
        find(Op::Read, KIB4, 4, true),
        find(Op::Write, KIB64, 4, true),
    ) {
        (Some(alone), Some(mixed), Some(writes)) => {
            let extra_ns = mixed.p50_ns.saturating_sub(alone.p50_ns);
            let busy_permille =
                (1000 * writes.bytes_per_us() / write.bus_bytes_per_us.max(1)).clamp(100, 1000);
            (extra_ns * 1000 / busy_permille).min(SECOND)
        }
        _ => 0,
    };
    Model {
        name: "calibrated".to_owned(),
        description: "The device under a directory, as measured".to_owned(),
        source: vec![origin],
        rotating: None,
        disk: None,
        flash: Some(FlashParams {
            dies: 1,
            unit_bytes: KIB64,
            read_unit_ns: 0,
            program_unit_ns: transfer_ns(KIB64, write.bus_bytes_per_us),
            suspend_ns,
            command_ns,
            read_overhead_ns: read.overhead_ns,
            write_overhead_ns: write.overhead_ns,
            read_bytes_per_us: read.bus_bytes_per_us,
            write_bytes_per_us: write.bus_bytes_per_us,
            stream_read_bytes_per_us: read.stream_bytes_per_us,
            stream_write_bytes_per_us: write.stream_bytes_per_us,
            half_duplex: false,
            buffer_bytes: 64 << 20,
        }),
        network: None,
        ram: None,
        linear: None,
    }
}

fn direction(measurements: &[Measurement], op: Op, command_ns: Nanos) -> Direction {
    let mine =
        || measurements.iter().filter(move |measurement| measurement.op == op && !measurement.beside_writes);
    let single = |bytes| mine().find(|measurement| measurement.bytes == bytes && measurement.depth == 1);
    let bus_bytes_per_us = mine().map(Measurement::bytes_per_us).max().unwrap_or(1).max(1);
    let stream_bytes_per_us = match (single(KIB64), single(MIB)) {
        (Some(middle), Some(large)) if large.p50_ns > middle.p50_ns => {
            muldiv(MIB - KIB64, 1000, large.p50_ns - middle.p50_ns).clamp(1, bus_bytes_per_us)
        }
        _ => 0,
    };
    let small_ns = single(KIB4).map_or(0, |measurement| measurement.p50_ns);
    let moving_ns =
        command_ns + transfer_ns(KIB4, stream_bytes_per_us).max(transfer_ns(KIB4, bus_bytes_per_us));
    Direction { overhead_ns: small_ns.saturating_sub(moving_ns), bus_bytes_per_us, stream_bytes_per_us }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::closed_loop;

    /// Measures a model as `calibrate` measures a device, fits, and wants the same latencies back.
    #[test]
    fn a_model_is_found_again() {
        let original = Model::builtin("vm").expect("built in");
        let mut measurements = Vec::new();
        for (op, bytes, depth) in [
            (Op::Read, KIB4, 1),
            (Op::Read, KIB4, 32),
            (Op::Read, KIB64, 1),
            (Op::Read, MIB, 1),
            (Op::Read, MIB, 32),
            (Op::Write, KIB4, 1),
            (Op::Write, KIB64, 1),
            (Op::Write, MIB, 1),
            (Op::Write, MIB, 8),
        ] {
            let requests = closed_loop::random(op, bytes, 1 << 30);
            let (mean_ns, elapsed_ns) = closed_loop::run(&mut *original.build(), depth, 2000, requests);
            measurements.push(Measurement {
                op,
                bytes,
                depth,
                beside_writes: false,
                count: 2000,
                elapsed_ns,
                mean_ns,
                p50_ns: mean_ns,
                p99_ns: mean_ns,
            });
        }
        let found = fit(&measurements, "test".to_owned());
        for measurement in &measurements {
            let requests = closed_loop::random(measurement.op, measurement.bytes, 1 << 30);
            let (mean_ns, _) = closed_loop::run(&mut *found.build(), measurement.depth, 2000, requests);
            let difference = mean_ns.abs_diff(measurement.mean_ns);
            assert!(
                difference * 10 <= measurement.mean_ns,
                "{}: {} became {mean_ns}",
                measurement.name(),
                measurement.mean_ns
            );
        }
    }
}
