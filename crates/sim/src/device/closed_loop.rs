//! A closed loop around a device: so many requests, so many at a time. What `sim calibrate` does to
//! a real device, done to a model, so that the two can be compared line by line.

use super::{Device, Op, Request};
use crate::rng::Rng;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// Mean latency and total time of `count` requests, kept `depth` deep, made by `next` from their index.
///
/// `device` must be idle.
pub fn run(
    device: &mut dyn Device,
    depth: u64,
    count: u64,
    mut next: impl FnMut(u64) -> Request,
) -> (Nanos, Nanos) {
    assert!(depth > 0 && count > 0, "a loop without requests measures nothing");
    let mut started = BTreeMap::new();
    let (mut now, mut issued, mut finished, mut latency_sum) = (0, 0, 0, 0);
    while finished < count {
        while issued < count && issued - finished < depth {
            device.submit(now, issued, next(issued));
            started.insert(issued, now);
            issued += 1;
        }
        now = device.next_completion().expect("requests are under way");
        while let Some(ticket) = device.complete(now) {
            latency_sum += now - started.remove(&ticket).expect("a request completes once");
            finished += 1;
        }
    }
    assert!(device.next_completion().is_none(), "every request is complete");
    (latency_sum / count, now)
}

/// Random aligned requests within the first `span_bytes`; the same ones every time.
pub fn random(op: Op, bytes: u64, span_bytes: u64) -> impl FnMut(u64) -> Request {
    let mut rng = Rng::new(1);
    move |_| Request { op, offset_bytes: rng.below(span_bytes / bytes) * bytes, bytes }
}

/// Consecutive requests from 0 on.
pub fn sequential(op: Op, bytes: u64) -> impl FnMut(u64) -> Request {
    move |index| Request { op, offset_bytes: index * bytes, bytes }
}
