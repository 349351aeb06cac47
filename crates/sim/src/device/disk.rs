//! A hard disk: one head, a seek curve, rotation, zones, the disk's own look-ahead, and an elevator in front.
//!
//! Requests wait in two queues, reads before writes; the head sweeps upwards from where it is and
//! jumps back to the lowest (one-way elevator), and a request that has waited past its deadline
//! goes first. Positioning costs a seek (root of the distance up to a third of the stroke, linear
//! beyond: the usual fit to measured curves, Ruemmler and Wilkes 1994) and the wait for the sector,
//! which is known because the platter's angle is a function of the time. A request that begins
//! where the last one of its kind ended (a read: or a little further) pays neither: the disk has
//! read on, or gathers the writes.

use super::params::DiskParams;
use super::{Device, Op, Request, Ticket, Usage};
use crate::time::{MICROSECOND, Nanos, muldiv, transfer_ns};
use std::collections::BTreeMap;

/// Requests of one direction in a row before the other gets its turn.
const BATCH_MAX: u32 = 16;
/// Batches of reads that may overtake waiting writes.
const READ_BATCHES_MAX: u32 = 2;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: Ticket,
    request: Request,
    since: Nanos,
}

/// The waiting requests of one direction, by place and by age.
#[derive(Debug, Default)]
struct Queue {
    by_place: BTreeMap<(u64, u64), Waiting>,
    by_age: BTreeMap<u64, u64>,
}

impl Queue {
    fn insert(&mut self, sequence: u64, waiting: Waiting) {
        self.by_place.insert((waiting.request.offset_bytes, sequence), waiting);
        self.by_age.insert(sequence, waiting.request.offset_bytes);
        assert!(self.by_place.len() == self.by_age.len(), "both orders hold the same requests");
    }

    fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    fn oldest_since(&self) -> Option<Nanos> {
        let (sequence, offset) = self.by_age.first_key_value()?;
        Some(self.by_place[&(*offset, *sequence)].since)
    }

    fn take_oldest(&mut self) -> Option<Waiting> {
        let (sequence, offset) = self.by_age.pop_first()?;
        self.by_place.remove(&(offset, sequence))
    }

    /// The first at or beyond `head`, else the lowest.
    fn take_next(&mut self, head: u64) -> Option<Waiting> {
        let key = match self.by_place.range((head, 0)..).next() {
            Some((key, _)) => *key,
            None => *self.by_place.first_key_value()?.0,
        };
        self.by_age.remove(&key.1);
        self.by_place.remove(&key)
    }
}

/// Where the last transfer of one direction ended.
#[derive(Clone, Copy, Debug)]
struct Trail {
    end: u64,
    at: Nanos,
}

/// The state of the disk.
#[derive(Debug)]
pub struct Disk {
    params: DiskParams,
    period_ns: Nanos,
    reads: Queue,
    writes: Queue,
    sequence: u64,
    serving: Option<(Nanos, Ticket)>,
    head: u64,
    trails: [Option<Trail>; 2],
    direction: Op,
    batch_left: u32,
    read_batches: u32,
    usage: Usage,
}

impl Disk {
    /// An idle disk, its head on the outermost track.
    #[must_use]
    pub fn new(params: DiskParams) -> Disk {
        let period_ns = 60 * crate::time::SECOND / params.rpm;
        Disk {
            params,
            period_ns,
            reads: Queue::default(),
            writes: Queue::default(),
            sequence: 0,
            serving: None,
            head: 0,
            trails: [None; 2],
            direction: Op::Read,
            batch_left: 0,
            read_batches: 0,
            usage: Usage::default(),
        }
    }

    /// The media rate at `offset`: falls evenly from the outer to the inner tracks.
    fn rate(&self, offset: u64) -> u64 {
        let (outer, inner) = (self.params.outer_bytes_per_us, self.params.inner_bytes_per_us);
        let capacity = self.params.capacity_bytes;
        outer - muldiv(outer - inner, offset.min(capacity), capacity)
    }

    fn track_bytes(&self, offset: u64) -> u64 {
        (self.rate(offset) * self.period_ns / MICROSECOND).max(1)
    }

    /// The arm's time from `from` to `to`.
    fn seek_ns(&self, from: u64, to: u64) -> Nanos {
        let (distance, capacity) = (from.abs_diff(to), self.params.capacity_bytes);
        if distance < self.track_bytes(to) {
            return 0;
        }
        let third = (capacity / 3).max(1);
        if distance <= third {
            // 2^16 times the root of distance / third.
            let root = muldiv(distance, 1 << 32, third).isqrt();
            let rise = self.params.seek_average_ns - self.params.seek_track_ns;
            self.params.seek_track_ns + muldiv(rise, root, 1 << 16)
        } else {
            let rise = self.params.seek_full_ns - self.params.seek_average_ns;
            let beyond = (distance - third).min(capacity - third);
            self.params.seek_average_ns + muldiv(rise, beyond, (capacity - third).max(1))
        }
    }

    /// The wait at `now` until the sector at `offset` comes by.
    fn rotation_ns(&self, offset: u64, now: Nanos) -> Nanos {
        let track_bytes = self.track_bytes(offset);
        let sector_at = muldiv(offset % track_bytes, self.period_ns, track_bytes);
        (sector_at + self.period_ns - now % self.period_ns) % self.period_ns
    }

    /// Serves `request` from `now` on; gives the end.
    fn serve(&mut self, now: Nanos, request: &Request) -> Nanos {
        let begin = now + self.params.command_ns;
        let media_ns = transfer_ns(request.bytes, self.rate(request.offset_bytes));
        let end = match self.continued(begin, request, media_ns) {
            Some(end) => end,
            None => {
                let settle_ns = if request.op == Op::Write { self.params.write_settle_ns } else { 0 };
                let arrived = begin + self.seek_ns(self.head, request.offset_bytes) + settle_ns;
                arrived + self.rotation_ns(request.offset_bytes, arrived) + media_ns
            }
        };
        self.head = request.end();
        self.trails[request.op as usize] = Some(Trail { end: request.end(), at: end });
        // One head: a transfer of the other kind ends this kind's look-ahead, and the other way round.
        self.trails[1 - request.op as usize] = None;
        end
    }

    /// The end of a request that goes on where its kind stopped (a read: or soon after), if the
    /// disk still has the trail.
    fn continued(&self, begin: Nanos, request: &Request, media_ns: Nanos) -> Option<Nanos> {
        let trail = self.trails[request.op as usize].filter(|trail| trail.end <= request.offset_bytes)?;
        let skipped_bytes = request.offset_bytes - trail.end;
        // The media went on by itself since the trail's end: a read finds its bytes under way or in
        // the buffer.
        let media_at = trail.at + transfer_ns(skipped_bytes, self.rate(trail.end)) + media_ns;
        let buffered_at = begin + transfer_ns(request.bytes, self.params.interface_bytes_per_us);
        match request.op {
            Op::Read if skipped_bytes + request.bytes <= self.params.lookahead_bytes => {
                Some(media_at.max(buffered_at))
            }
            _ if skipped_bytes == 0 && begin <= trail.at + self.period_ns => {
                Some(begin.max(trail.at) + media_ns)
            }
            _ => None,
        }
    }

    /// Chooses whose turn it is.
    fn choose(&mut self) -> Op {
        if self.batch_left > 0 && !self.queue(self.direction).is_empty() {
            return self.direction;
        }
        let reads_first = !self.reads.is_empty()
            && (self.writes.is_empty()
                || self.read_batches < READ_BATCHES_MAX
                || self.direction == Op::Write);
        if reads_first {
            self.read_batches += 1;
            self.direction = Op::Read;
        } else {
            self.read_batches = 0;
            self.direction = Op::Write;
        }
        self.batch_left = BATCH_MAX;
        self.direction
    }

    fn queue(&mut self, op: Op) -> &mut Queue {
        if op == Op::Read { &mut self.reads } else { &mut self.writes }
    }

    /// Takes the next waiting request into service, if the head is free.
    fn start(&mut self, now: Nanos) {
        if self.serving.is_some() || (self.reads.is_empty() && self.writes.is_empty()) {
            return;
        }
        let op = self.choose();
        let deadline_ns =
            if op == Op::Read { self.params.read_deadline_ns } else { self.params.write_deadline_ns };
        let head = self.head;
        let queue = self.queue(op);
        let late = queue.oldest_since().is_some_and(|since| now >= since.saturating_add(deadline_ns));
        let waiting = if late { queue.take_oldest() } else { queue.take_next(head) };
        let waiting = waiting.expect("the chosen queue is not empty");
        self.batch_left = self.batch_left.saturating_sub(1);
        let until = self.serve(now, &waiting.request);
        self.usage.occupy(now, until);
        self.serving = Some((until, waiting.ticket));
    }
}

impl Device for Disk {
    fn submit(&mut self, now: Nanos, ticket: Ticket, request: Request) {
        assert!(request.bytes > 0, "an empty request transfers nothing");
        assert!(request.end() <= self.params.capacity_bytes, "the request lies on the disk");
        self.usage.count(&request);
        let sequence = self.sequence;
        self.sequence += 1;
        self.queue(request.op).insert(sequence, Waiting { ticket, request, since: now });
        self.start(now);
    }

    fn next_completion(&self) -> Option<Nanos> {
        self.serving.map(|(at, _)| at)
    }

    fn complete(&mut self, now: Nanos) -> Option<Ticket> {
        let (at, ticket) = self.serving.filter(|(at, _)| *at <= now)?;
        self.serving = None;
        self.start(at);
        Some(ticket)
    }

    fn usage(&self) -> &Usage {
        &self.usage
    }
}

#[cfg(test)]
mod tests {
    use super::super::{closed_loop, params::Model};
    use super::*;
    use crate::time::MILLISECOND;

    fn disk() -> Disk {
        Disk::new(Model::builtin("hdd").expect("built in").disk.expect("a disk"))
    }

    #[test]
    fn random_reads_cost_a_seek_and_half_a_turn() {
        let span = disk().params.capacity_bytes;
        let (latency_ns, _) =
            closed_loop::run(&mut disk(), 1, 2000, closed_loop::random(Op::Read, 4096, span));
        let expected_ns = 8 * MILLISECOND + 4 * MILLISECOND;
        assert!(latency_ns.abs_diff(expected_ns) < 2 * MILLISECOND, "{latency_ns}");
    }

    #[test]
    fn the_elevator_pays_off() {
        let span = disk().params.capacity_bytes;
        let (_, alone_ns) = closed_loop::run(&mut disk(), 1, 2000, closed_loop::random(Op::Read, 4096, span));
        let (_, deep_ns) = closed_loop::run(&mut disk(), 32, 2000, closed_loop::random(Op::Read, 4096, span));
        assert!(deep_ns * 3 < alone_ns * 2, "deep {deep_ns} alone {alone_ns}");
    }

    #[test]
    fn sequential_reads_and_writes_run_at_media_rate() {
        for op in [Op::Read, Op::Write] {
            for bytes in [4096, 131_072] {
                let mut disk = disk();
                let count = (64 << 20) / bytes;
                let (_, elapsed_ns) =
                    closed_loop::run(&mut disk, 4, count, closed_loop::sequential(op, bytes));
                let bytes_per_us = (64 << 20) * 1000 / elapsed_ns;
                // Small requests are bound by the time of a command.
                let floor = if bytes == 4096 { 30 } else { 130 };
                assert!((floor..=175).contains(&bytes_per_us), "{op:?} {bytes}: {bytes_per_us} MB/s");
            }
        }
    }

    #[test]
    fn inner_tracks_are_slower_and_seeks_grow() {
        let disk = disk();
        let capacity = disk.params.capacity_bytes;
        assert_eq!(disk.rate(0), disk.params.outer_bytes_per_us);
        assert_eq!(disk.rate(capacity), disk.params.inner_bytes_per_us);
        let steps: Vec<Nanos> = (0..=20).map(|step| disk.seek_ns(0, capacity / 20 * step)).collect();
        assert!(steps.is_sorted(), "{steps:?}");
        assert_eq!(disk.seek_ns(0, capacity), disk.params.seek_full_ns);
    }

    #[test]
    fn a_deadline_beats_the_elevator() {
        let mut disk = disk();
        let read = |offset_bytes| Request { op: Op::Read, offset_bytes, bytes: 4096 };
        disk.submit(0, 0, read(disk.params.capacity_bytes / 2));
        disk.submit(0, 1, read(0));
        let mut now = 0;
        let mut served_at = None;
        for ticket in 2..10_000 {
            now = disk.next_completion().expect("busy");
            disk.submit(now, ticket, read(disk.params.capacity_bytes / 2 + ticket * 4096));
            while let Some(done) = disk.complete(now) {
                if done == 1 {
                    served_at = Some(now);
                }
            }
        }
        let served_at = served_at.unwrap_or_else(|| panic!("starved until {now}"));
        assert!(served_at <= disk.params.read_deadline_ns + 50 * MILLISECOND, "{served_at}");
    }

    #[test]
    fn writes_are_not_starved_by_reads() {
        let mut disk = disk();
        let mut next = closed_loop::random(Op::Read, 4096, disk.params.capacity_bytes);
        for ticket in 0..64 {
            disk.submit(0, ticket, next(ticket));
        }
        disk.submit(0, 64, Request { op: Op::Write, offset_bytes: 4096, bytes: 4096 });
        let mut before = 0;
        loop {
            let now = disk.next_completion().expect("busy");
            match disk.complete(now) {
                Some(64) => break,
                Some(_) => before += 1,
                None => panic!("a completion was due"),
            }
        }
        assert!(before <= BATCH_MAX * (READ_BATCHES_MAX + 1), "{before}");
    }
}
