//! What the engine sees, as it happens: faults, refaults, evictions and read-ahead, for `overspill
//! run --trace`.
//!
//! Records go into a ring in the memory that launcher and agent share, one ring a process, after
//! the counters. The agent never waits for the launcher: what does not fit is counted as lost.
//! Without a ring none of this is there.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use overspill_mm::State;
use overspill_mm::types::{Nanos, PageId, Vpn};
use overspill_sys::clock;

use crate::shared::Shared;

/// Records that a ring holds.
pub const RECORDS: usize = 1 << 15;
/// Bits of [`Record::what`] that are the page's number; the rest is the kind.
pub const VPN_BITS: u32 = 56;

/// Kinds, by number; the trace format numbers them in the same order.
pub mod kind {
    /// A fault that had to read; the argument is its latency in ns.
    pub const MAJOR_FAULT: u64 = 0;
    /// A fault answered from a frame; the argument is its latency in ns.
    pub const SOFT_FAULT: u64 = 1;
    /// A first touch; the argument is its latency in ns.
    pub const FIRST_TOUCH: u64 = 2;
    /// A page left RAM and had been written for it; the argument is its slot.
    pub const EVICT_DIRTY: u64 = 3;
    /// A page left RAM unwritten; the argument is its slot.
    pub const EVICT_CLEAN: u64 = 4;
    /// A touch of an evicted page; the argument is the number of pages evicted since.
    pub const REFAULT: u64 = 5;
    /// A page was read ahead.
    pub const READ_AHEAD: u64 = 6;
    /// A read-ahead page was touched for the first time.
    pub const READ_AHEAD_HIT: u64 = 7;
    /// A read-ahead page left RAM untouched.
    pub const READ_AHEAD_UNUSED: u64 = 8;
    /// Pages have frames in view of which nothing was told; the argument is how many, from the page on.
    pub const IN_VIEW: u64 = 9;
    /// Pages were unmapped or discarded; the argument is how many, from the page on.
    pub const GONE: u64 = 10;
}

/// Pages of an address space: 48 bits.
const PAGES_MAX: u64 = 1 << 36;

/// Pages of one [`kind::IN_VIEW`], at most: whoever reads a trace goes through each of them.
pub const IN_VIEW_MAX: u64 = 4096;

/// One record.
#[repr(C)]
pub struct Record {
    /// By the monotonic clock.
    pub time_ns: AtomicU64,
    /// Page number and, above [`VPN_BITS`], the kind.
    pub what: AtomicU64,
    /// See [`kind`].
    pub argument: AtomicU64,
}

/// The ring of one process. One writer, one reader.
#[repr(C)]
pub struct Ring {
    /// Records written since the beginning.
    pub head: AtomicU64,
    /// Records read since the beginning; the reader's.
    pub tail: AtomicU64,
    /// Records for which there was no room.
    pub lost: AtomicU64,
    unused: [u64; 5],
    /// The records, by their number modulo [`RECORDS`].
    pub records: [Record; RECORDS],
}

/// Bytes from one ring to the next: whole pages, so that each is mapped for itself.
pub const RING_BYTES: usize = size_of::<Ring>().next_multiple_of(4096);

/// Where in the shared memory the ring of a process lies.
#[must_use]
pub const fn ring_offset(process: usize) -> usize {
    size_of::<Shared>().next_multiple_of(4096) + process * RING_BYTES
}

/// The writer, and what it must remember to tell one thing from another.
pub struct Tracer {
    ring: &'static Ring,
    /// Faults that wait: page, since when, which kind.
    pending: Vec<(Vpn, Nanos, u64)>,
    /// By page: written since it came in.
    written: Bits,
    /// By page: read ahead and not touched since.
    ahead: Bits,
    /// By page: the clock when it was evicted.
    evicted_at: Vec<u32>,
    /// Pages evicted.
    clock: u32,
    /// What is found in view is the parent's, too, by whom it is told.
    is_heir: bool,
    /// Pages that are filled beside those that are waited for, not told of yet.
    filled: Vec<(Vpn, Vpn)>,
}

impl Tracer {
    /// Writes into `ring`. `is_heir`: a fork made the process.
    #[must_use]
    pub fn new(ring: &'static Ring, is_heir: bool) -> Self {
        let mut tracer = Tracer {
            ring,
            pending: Vec::new(),
            written: Bits::default(),
            ahead: Bits::default(),
            evicted_at: Vec::new(),
            clock: 0,
            is_heir,
            filled: Vec::new(),
        };
        if ring.head.load(Ordering::Relaxed) > 0 {
            // Another program had this ring. What that had is no more.
            tracer.gone(clock::monotonic_ns(), Vpn(0), Vpn(PAGES_MAX));
        }
        tracer
    }

    fn push(&mut self, now: Nanos, vpn: Vpn, kind: u64, argument: u64) {
        let head = self.ring.head.load(Ordering::Relaxed);
        if head.wrapping_sub(self.ring.tail.load(Ordering::Acquire)) >= RECORDS as u64 {
            self.ring.lost.store(self.ring.lost.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        }
        let record = &self.ring.records[head as usize % RECORDS];
        record.time_ns.store(now, Ordering::Relaxed);
        record.what.store(vpn.0 | kind << VPN_BITS, Ordering::Relaxed);
        record.argument.store(argument, Ordering::Relaxed);
        self.ring.head.store(head + 1, Ordering::Release);
    }

    /// A thread faulted on a page that was in `state`; `id` if it is known.
    pub(crate) fn fault(&mut self, now: Nanos, vpn: Vpn, id: Option<PageId>, state: Option<State>) {
        if self.pending.iter().any(|&(waiting, _, _)| waiting == vpn) {
            return;
        }
        let kind = match state {
            None | Some(State::Untouched) => kind::FIRST_TOUCH,
            Some(State::Swapped) => kind::MAJOR_FAULT,
            Some(_) => kind::SOFT_FAULT,
        };
        if let (Some(id), kind::MAJOR_FAULT) = (id, kind) {
            let distance =
                self.clock.wrapping_sub(self.evicted_at.get(id.index()).copied().unwrap_or(self.clock));
            self.push(now, vpn, kind::REFAULT, u64::from(distance));
        }
        if id.is_some_and(|id| self.ahead.take(id)) {
            self.push(now, vpn, kind::READ_AHEAD_HIT, 0);
        }
        self.pending.push((vpn, now, kind));
    }

    /// The faults on `count` pages from `first` on have their answer: the page is there, or
    /// (`retry`) they try again.
    pub(crate) fn answered(&mut self, now: Nanos, first: Vpn, count: u32, retry: bool) {
        let mut at = 0;
        while at < self.pending.len() {
            let (vpn, since, kind) = self.pending[at];
            if vpn < first || vpn.0 >= first.0 + u64::from(count) {
                at += 1;
                continue;
            }
            self.pending.swap_remove(at);
            if !retry {
                self.push(now, vpn, kind, now - since);
            }
        }
    }

    /// A page is being read; it was read ahead unless somebody waits for it.
    pub(crate) fn reading(&mut self, now: Nanos, vpn: Vpn, id: PageId) {
        if self.pending.iter().all(|&(waiting, _, _)| waiting != vpn) {
            self.ahead.set(id);
            self.push(now, vpn, kind::READ_AHEAD, 0);
        }
    }

    /// Pages were found in view that nobody had heard of.
    pub(crate) fn found(&mut self, now: Nanos, start: Vpn, end: Vpn) {
        if !self.is_heir {
            self.in_view(now, start, end);
        }
    }

    /// Pages have come into view elsewhere than they were.
    pub(crate) fn moved(&mut self, now: Nanos, start: Vpn, end: Vpn) {
        self.in_view(now, start, end);
    }

    /// Pages get zeroed frames. Whoever waits for one of them is told of with his answer; the others are in
    /// view from then on ([`Tracer::carried_out`]), and no fault will tell.
    ///
    /// *The story:* what never left RAM was in no record, so that the simulated program was smaller than the
    /// real one by all that stays: by 13 % of a loop, of which the live pager keeps a part.
    pub(crate) fn filling(&mut self, first: Vpn, count: u32) {
        let end = first.offset(count.into());
        let mut at = first;
        while at < end {
            let awaited = self.pending.iter().map(|&(vpn, _, _)| vpn).filter(|vpn| (at..end).contains(vpn));
            let stop = awaited.min().unwrap_or(end);
            if at < stop {
                self.filled.push((at, stop));
            }
            at = stop.offset(1);
        }
    }

    /// What was about to be done has been done: who waited is told of.
    pub(crate) fn carried_out(&mut self, now: impl Fn() -> Nanos) {
        while let Some((start, end)) = self.filled.pop() {
            self.in_view(now(), start, end);
        }
    }

    fn in_view(&mut self, now: Nanos, start: Vpn, end: Vpn) {
        let mut at = start.0;
        while at < end.0 {
            let count = (end.0 - at).min(IN_VIEW_MAX);
            self.push(now, Vpn(at), kind::IN_VIEW, count);
            at += count;
        }
    }

    /// Pages are no more.
    pub(crate) fn gone(&mut self, now: Nanos, start: Vpn, end: Vpn) {
        if start < end {
            self.push(now, start, kind::GONE, end.0 - start.0);
        }
    }

    /// A page comes into view: what is read ahead and mapped at once is touched unseen, and is no
    /// more to be told of.
    pub(crate) fn mapped(&mut self, id: PageId) {
        self.ahead.take(id);
    }

    /// A page is being written.
    pub(crate) fn writing(&mut self, id: PageId) {
        self.written.set(id);
    }

    /// A page left RAM for its slot.
    pub(crate) fn evicted(&mut self, now: Nanos, vpn: Vpn, id: PageId, slot: u32) {
        if self.ahead.take(id) {
            self.push(now, vpn, kind::READ_AHEAD_UNUSED, 0);
        }
        let kind = if self.written.take(id) { kind::EVICT_DIRTY } else { kind::EVICT_CLEAN };
        self.push(now, vpn, kind, u64::from(slot));
        self.clock = self.clock.wrapping_add(1);
        if id.index() >= self.evicted_at.len() {
            self.evicted_at.resize((id.index() + 1).next_multiple_of(4096), 0);
        }
        self.evicted_at[id.index()] = self.clock;
    }
}

/// A bit for each page.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, id: PageId) {
        let word = id.index() / 64;
        if word >= self.0.len() {
            self.0.resize((word + 1).next_multiple_of(64), 0);
        }
        self.0[word] |= 1 << (id.index() % 64);
    }

    /// Clears the bit and says whether it was set.
    fn take(&mut self, id: PageId) -> bool {
        let Some(word) = self.0.get_mut(id.index() / 64) else { return false };
        let bit = 1 << (id.index() % 64);
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;

    fn ring() -> &'static Ring {
        // SAFETY: a ring is integers and atomics, for which zeroes are valid.
        Box::leak(unsafe { Box::new_zeroed().assume_init() })
    }

    fn drain(ring: &Ring) -> Vec<(u64, u64, u64)> {
        let (tail, head) = (ring.tail.load(Ordering::Relaxed), ring.head.load(Ordering::Acquire));
        ring.tail.store(head, Ordering::Release);
        let record = |number: u64| {
            let record = &ring.records[number as usize % RECORDS];
            let what = record.what.load(Ordering::Relaxed);
            let argument = record.argument.load(Ordering::Relaxed);
            (what & ((1 << VPN_BITS) - 1), what >> VPN_BITS, argument)
        };
        (tail..head).map(record).collect()
    }

    #[test]
    fn a_page_there_and_back() {
        let ring = ring();
        let mut tracer = Tracer::new(ring, false);
        let (vpn, id) = (Vpn(7), PageId(3));
        tracer.fault(10, vpn, None, None);
        tracer.answered(15, vpn, 1, false);
        tracer.writing(id);
        tracer.evicted(20, vpn, id, 5);
        tracer.fault(30, vpn, Some(id), Some(State::Swapped));
        tracer.reading(31, vpn, id);
        tracer.reading(31, Vpn(8), PageId(4));
        tracer.answered(40, vpn, 1, false);
        tracer.fault(50, Vpn(8), Some(PageId(4)), Some(State::Cached));
        tracer.answered(52, Vpn(8), 1, true);
        tracer.evicted(60, vpn, id, 5);
        let expected = [
            (7, kind::FIRST_TOUCH, 5),
            (7, kind::EVICT_DIRTY, 5),
            (7, kind::REFAULT, 0),
            (8, kind::READ_AHEAD, 0),
            (7, kind::MAJOR_FAULT, 10),
            (8, kind::READ_AHEAD_HIT, 0),
            (7, kind::EVICT_CLEAN, 5),
        ];
        assert_eq!(drain(ring), expected);
    }

    /// See [`Tracer::filling`].
    #[test]
    fn what_comes_into_view_without_a_fault_is_told() {
        let ring = ring();
        let mut tracer = Tracer::new(ring, false);
        tracer.fault(10, Vpn(103), None, None);
        tracer.fault(10, Vpn(106), None, None);
        tracer.filling(Vpn(100), 7);
        tracer.answered(12, Vpn(100), 7, false);
        tracer.carried_out(|| 13);
        tracer.found(20, Vpn(1000), Vpn(1000 + IN_VIEW_MAX + 1));
        tracer.gone(30, Vpn(1000), Vpn(1005));
        tracer.gone(30, Vpn(1000), Vpn(1000));
        let expected = [
            (103, kind::FIRST_TOUCH, 2),
            (106, kind::FIRST_TOUCH, 2),
            (104, kind::IN_VIEW, 2),
            (100, kind::IN_VIEW, 3),
            (1000, kind::IN_VIEW, IN_VIEW_MAX),
            (1000 + IN_VIEW_MAX, kind::IN_VIEW, 1),
            (1000, kind::GONE, 5),
        ];
        assert_eq!(drain(ring), expected);
    }

    /// What a child has of its parent counts once.
    #[test]
    fn an_heir_tells_of_what_it_fills_alone() {
        let ring = ring();
        let mut tracer = Tracer::new(ring, true);
        tracer.found(1, Vpn(1), Vpn(9));
        tracer.filling(Vpn(20), 2);
        tracer.carried_out(|| 2);
        assert_eq!(drain(ring), [(20, kind::IN_VIEW, 2)]);
        // The next one in its place.
        drop(Tracer::new(ring, false));
        assert_eq!(drain(ring), [(0, kind::GONE, PAGES_MAX)]);
    }

    #[test]
    fn a_full_ring_loses_and_counts() {
        let ring = ring();
        let mut tracer = Tracer::new(ring, false);
        for slot in 0..RECORDS as u32 + 3 {
            tracer.evicted(1, Vpn(1), PageId(1), slot);
        }
        assert_eq!(ring.lost.load(Ordering::Relaxed), 3);
        assert_eq!(drain(ring).len(), RECORDS);
        tracer.evicted(2, Vpn(2), PageId(2), 9);
        assert_eq!(drain(ring), [(2, kind::EVICT_CLEAN, 9)]);
    }
}
