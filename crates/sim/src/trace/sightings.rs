//! The accesses that a live trace tells of (`overspill run --trace`): the pager sees no touch of a
//! page in view, but every fault is one, and what is read ahead is, as good as always, touched
//! before the next.
//!
//! What stays in view is believed to be touched as often as its neighbours that leave and come back
//! (`in_view.rs`). The first touch of a page is a store. A later one is if the page is dirty when it
//! leaves next, which takes a first reading of the trace ([`Learned`]). The program's own time is
//! what passes while no fault waits, less what every fault costs before the pager hears of it and
//! after it has answered: the simulation charges that anew. What is not known is how often a page
//! was used while it was there: with more RAM those touches are no faults either, with less they
//! are missing. So such a trace answers for the RAM of its run and for more.

use super::in_view::Pages;
use super::record::{AccessKind, AccessRecord, PagerOp, PagerRecord};
use crate::engine::costs::{Costs, Worker};
use crate::time::{Nanos, muldiv};
use std::collections::VecDeque;
use std::sync::Arc;

/// What a fault costs its thread in the kernel: 1.59 s of processor time in 195,698 faults of a
/// python program that takes 0.62 alone.
const FAULT_NS: Nanos = 5_000;
/// Begins the note in which the launcher says how long the program computed, agent not counted.
const PROCESSOR_NOTE: &str = "processor time of the program itself, ns: ";

/// Begins the note in which the launcher says how much RAM the run had.
const RAM_NOTE: &str = "RAM of the run, bytes: ";

/// The note at the beginning of a live trace: its run had so much RAM, and about less it knows
/// nothing.
#[must_use]
pub fn ram_note(bytes: u64) -> String {
    format!("{RAM_NOTE}{bytes}")
}

/// The note at the end of a live trace: the program, without its agent, had a processor for `ns`.
#[must_use]
pub fn processor_note(ns: Nanos) -> String {
    format!("{PROCESSOR_NOTE}{ns}")
}

/// What only the whole trace says: of its times the share that is the program's own, and
/// which touches stored, by their number, a bit each.
///
/// *The story:* the touch after a page had left dirty was taken for a store. The store was before that: what
/// is written once and read for ever was written at each touch, and 26,357 pages went out in place of 13,100.
#[derive(Clone, Debug)]
pub struct Learned {
    share: (Nanos, Nanos),
    stores: Arc<Vec<u64>>,
}

impl Default for Learned {
    fn default() -> Self {
        Learned { share: (1, 1), stores: Arc::default() }
    }
}

impl Learned {
    /// Of a time in the trace the program's own.
    #[must_use]
    pub fn own(&self, ns: Nanos) -> Nanos {
        muldiv(ns, self.share.0, self.share.1)
    }

    fn stored(&self, touch: u64) -> bool {
        self.stores.get(touch as usize / 64).is_some_and(|word| word & 1 << (touch % 64) != 0)
    }
}

/// Pages of an address space that the program has given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoneRecord {
    /// The address space.
    pub space: u16,
    /// First page.
    pub start: u64,
    /// One past the last page.
    pub end: u64,
}

/// What the program did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sighting {
    /// It touched a page.
    Access(AccessRecord),
    /// It gave pages back.
    Gone(GoneRecord),
}

/// What is remembered of the pages seen so far.
#[derive(Default)]
pub struct Sightings {
    pages: Pages,
    /// With which pages came into view that then left dirty: the numbers of touches, a bit each.
    stores: Vec<u64>,
    /// What the trace said when it was read before.
    learned: Learned,
    /// When the last fault was answered.
    answered_ns: Nanos,
    /// The program's own time so far.
    own_ns: Nanos,
    faults: u64,
    /// By the launcher's note.
    processor_ns: Option<Nanos>,
    /// By the launcher's other note.
    ram_bytes: Option<u64>,
    /// Touches of pages in view since the last fault: they are over before the next, nobody knows
    /// when.
    since: Vec<Sighting>,
    /// What has its time.
    ready: VecDeque<Sighting>,
}

impl Sightings {
    /// Takes a record.
    pub fn note(&mut self, record: &PagerRecord) {
        let place = (record.space, record.vpn);
        match record.op {
            PagerOp::Refault | PagerOp::ReadAheadHit | PagerOp::ReadAheadUnused => {}
            PagerOp::EvictDirty | PagerOp::EvictClean => {
                if !self.pages.is_known(place) {
                    // It was there when the trace began.
                    self.touch(record, place);
                }
                if let Some(touch) = self.pages.leaves(place)
                    && record.op == PagerOp::EvictDirty
                {
                    self.note_store(touch);
                }
            }
            PagerOp::MajorFault | PagerOp::SoftFault | PagerOp::FirstTouch => {
                self.fault(record.time_ns.saturating_sub(record.argument));
                let (access, after) = self.access(record, place);
                self.ready.push_back(Sighting::Access(access));
                // What was read ahead was believed to be touched then, and its neighbours were.
                if !self.pages.was_ahead(place) {
                    self.follow(record, after);
                }
                self.answered_ns = self.answered_ns.max(record.time_ns);
            }
            PagerOp::ReadAhead => {
                let after = self.touch(record, place);
                self.pages.note_ahead(place);
                self.follow(record, after);
            }
            PagerOp::InView => {
                for vpn in record.vpn..record.vpn.saturating_add(record.argument) {
                    if !self.pages.is_in_view((record.space, vpn)) {
                        self.touch(record, (record.space, vpn));
                    }
                }
            }
            PagerOp::Gone => {
                let (start, end) = (record.vpn, record.vpn.saturating_add(record.argument));
                self.pages.forget(record.space, start, end);
                self.since.push(Sighting::Gone(GoneRecord { space: record.space, start, end }));
            }
        }
    }

    /// A touch whose time the next fault tells.
    fn touch(&mut self, record: &PagerRecord, place: (u16, u64)) -> Option<u64> {
        let (access, after) = self.access(record, place);
        self.since.push(Sighting::Access(access));
        after
    }

    /// A page has come back after a while: so do its neighbours in view come to be touched.
    fn follow(&mut self, record: &PagerRecord, after: Option<u64>) {
        let Some(after) = after else { return };
        for down in [false, true] {
            let (mut vpn, mut after) = (record.vpn, after);
            while let Some(next) = if down { vpn.checked_sub(1) } else { vpn.checked_add(1) } {
                let place = (record.space, next);
                if !self.pages.is_due(place, after) {
                    break;
                }
                let (touch, its_own) = self.pages.believe(place);
                (vpn, after) = (next, its_own.expect("what is in view was touched"));
                let access = self.access_of(record, place, touch, false);
                self.since.push(Sighting::Access(access));
            }
        }
    }

    /// The next recorded touch, of this page, and after what while.
    fn access(&mut self, record: &PagerRecord, place: (u16, u64)) -> (AccessRecord, Option<u64>) {
        let (touch, after) = self.pages.touch(place);
        (self.access_of(record, place, touch, after.is_none()), after)
    }

    fn access_of(
        &self,
        record: &PagerRecord,
        (space, vpn): (u16, u64),
        touch: u64,
        is_first: bool,
    ) -> AccessRecord {
        let stores = is_first || self.learned.stored(touch);
        let kind = if stores { AccessKind::Write } else { AccessKind::Read };
        AccessRecord { time_ns: self.own_ns, vpn, thread: record.thread, space, kind }
    }

    fn note_store(&mut self, touch: u64) {
        let word = touch as usize / 64;
        self.stores.resize(self.stores.len().max(word + 1), 0);
        self.stores[word] |= 1 << (touch % 64);
    }

    /// Reads the trace once more.
    pub fn know(&mut self, learned: Learned) {
        self.learned = learned;
    }

    /// Of a time in the trace the program's own, by what is known of it.
    #[must_use]
    pub fn own(&self, ns: Nanos) -> Nanos {
        self.learned.own(ns)
    }

    /// What there is to know when it is read once more. After the last record.
    #[must_use]
    pub fn learned(&self) -> Learned {
        Learned { share: self.share(), stores: Arc::new(self.stores.clone()) }
    }

    /// Takes a note.
    pub fn hear(&mut self, note: &str) {
        let ns = note.strip_prefix(PROCESSOR_NOTE).and_then(|ns| ns.parse().ok());
        self.processor_ns = ns.or(self.processor_ns);
        let bytes = note.strip_prefix(RAM_NOTE).and_then(|bytes| bytes.parse().ok());
        self.ram_bytes = bytes.or(self.ram_bytes);
    }

    /// The RAM of the run, if the trace says so: it answers for that much and for more.
    #[must_use]
    pub fn ram_bytes(&self) -> Option<u64> {
        self.ram_bytes
    }

    /// After the last record: the time that the program had a processor for, and the time between
    /// its faults, of which it is a part. A thread that was answered waits until the agent has made
    /// room and gives up the processor, and the clock does not tell.
    fn share(&self) -> (Nanos, Nanos) {
        let processor_ns =
            self.processor_ns.map_or(self.own_ns, |ns| ns.saturating_sub(self.faults * FAULT_NS));
        (processor_ns.min(self.own_ns).max(1), self.own_ns.max(1))
    }

    /// No more records will come.
    pub fn end(&mut self) {
        self.ready.extend(self.since.drain(..));
    }

    /// What comes next.
    pub fn take(&mut self) -> Option<Sighting> {
        self.ready.pop_front()
    }

    /// A fault began: what was touched since the last one was touched evenly in the program's time
    /// between them.
    fn fault(&mut self, began_ns: Nanos) {
        let own_ns = own(began_ns.saturating_sub(self.answered_ns));
        let parts = self.since.len() as u64 + 1;
        for (sighting, part) in self.since.drain(..).zip(1..) {
            self.ready.push_back(match sighting {
                Sighting::Access(touch) => Sighting::Access(AccessRecord {
                    time_ns: self.own_ns + muldiv(own_ns, part, parts),
                    ..touch
                }),
                gone => gone,
            });
        }
        self.own_ns += own_ns;
        self.faults += 1;
    }
}

/// The program's part of the time between an answer and the next fault: without its way to the
/// pager, which is longer when that sleeps, and back.
fn own(between_ns: Nanos) -> Nanos {
    const COSTS: Costs = Costs::pager();
    let awake_ns = between_ns.saturating_sub(COSTS.trap_ns + COSTS.resume_ns);
    match COSTS.worker {
        Worker::Reactor { wake_ns, spin_ns } if awake_ns > spin_ns => {
            awake_ns.saturating_sub(wake_ns).max(spin_ns)
        }
        _ => awake_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read twice, as the simulator does.
    fn seen(records: &[(u64, u64, PagerOp, u64)]) -> Vec<(u64, u64, AccessKind)> {
        let mut learned = Learned::default();
        loop {
            let mut sightings = Sightings::default();
            let is_known = !learned.stores.is_empty();
            sightings.know(learned);
            for &(time_ns, vpn, op, argument) in records {
                sightings.note(&PagerRecord { time_ns, vpn, thread: 0, space: 0, op, argument });
            }
            sightings.end();
            learned = sightings.learned();
            if is_known || learned.stores.is_empty() {
                let accesses =
                    std::iter::from_fn(|| sightings.take()).filter_map(|sighting| match sighting {
                        Sighting::Access(access) => Some((access.time_ns, access.vpn, access.kind)),
                        Sighting::Gone(_) => None,
                    });
                return accesses.collect();
            }
        }
    }

    #[test]
    fn faults_are_touches_and_their_time_is_not_the_programs() {
        use AccessKind::{Read, Write};
        let list = seen(&[
            (40_000, 1, PagerOp::FirstTouch, 5_000),
            (50_000, 1, PagerOp::EvictDirty, 7),
            (50_000, 2, PagerOp::EvictClean, 8),
            (60_000, 1, PagerOp::Refault, 1),
            (94_000, 1, PagerOp::MajorFault, 10_000),
            (94_000, 2, PagerOp::ReadAhead, 0),
            (95_000, 2, PagerOp::ReadAheadHit, 0),
            (128_000, 3, PagerOp::SoftFault, 10_000),
        ]);
        // 10 us of each time between two faults are the way to the pager and back.
        let expected = [
            (25_000, 1, Write),
            (42_000, 2, Write), // It was there before; nobody knows since when.
            (59_000, 1, Read),  // The store was before it left.
            (66_000, 2, Read),  // Touched on the way.
            (73_000, 3, Write),
        ];
        assert_eq!(list, expected);
    }

    /// See [`Learned`].
    #[test]
    fn the_touch_before_a_page_leaves_dirty_stores() {
        use AccessKind::{Read, Write};
        use PagerOp::{EvictClean, EvictDirty, FirstTouch, MajorFault};
        let list = seen(&[
            (1, 7, FirstTouch, 0),
            (2, 7, EvictDirty, 0),
            (3, 7, MajorFault, 0),
            (4, 7, EvictClean, 0),
            (5, 7, MajorFault, 0),
            (6, 7, EvictDirty, 0),
            (7, 7, MajorFault, 0),
        ]);
        assert_eq!(list.iter().map(|access| access.2).collect::<Vec<_>>(), [Write, Read, Write, Read]);
    }

    /// *The story:* what never left RAM was in no record: of a loop the pager keeps a part, and the simulated
    /// one was smaller by just that. With 60 MiB for 61 it read 4,000 pages in place of 15,000.
    #[test]
    fn what_stays_is_touched_as_often_as_its_neighbours() {
        use PagerOp::{EvictClean, FirstTouch, InView, ReadAhead};
        let mut records = vec![(1, 100, InView, 3)];
        records.extend((103..111).map(|vpn| (2, vpn, FirstTouch, 0)));
        for lap in 0..3 {
            records.extend((103..111).map(|vpn| (10 * lap + 3, vpn, EvictClean, 0)));
            records.extend((103..111).map(|vpn| (10 * lap + 4, vpn, ReadAhead, 0)));
        }
        let pages: Vec<u64> = seen(&records).iter().map(|access| access.1).collect();
        let lap = [103, 102, 101, 100, 104, 105, 106, 107, 108, 109, 110];
        assert_eq!(pages, [&(100..111).collect::<Vec<_>>()[..], &lap, &lap, &lap].concat());
    }

    /// See `in_view.rs`: its second story.
    #[test]
    fn what_was_read_ahead_and_waited_for_was_touched_once() {
        use PagerOp::{EvictClean, InView, ReadAhead, ReadAheadHit, SoftFault};
        let list = seen(&[
            (1, 100, InView, 4),
            (2, 103, EvictClean, 0),
            (3, 103, ReadAhead, 0),
            (4, 103, ReadAheadHit, 0),
            (4, 103, SoftFault, 0),
        ]);
        let pages: Vec<u64> = list.iter().map(|access| access.1).collect();
        assert_eq!(pages, [100, 101, 102, 103, 103, 102, 101, 100, 103]);
    }

    /// ... but not what has been touched just now, is out of view, or is no more.
    #[test]
    fn what_is_no_more_is_not_touched() {
        use PagerOp::{EvictClean, FirstTouch, Gone, InView, MajorFault};
        let list = seen(&[
            (1, 100, InView, 6),
            (2, 200, FirstTouch, 0),
            (3, 103, EvictClean, 0),
            (3, 101, EvictClean, 0),
            (4, 104, Gone, 1),
            (5, 103, MajorFault, 0),
        ]);
        let pages: Vec<u64> = list.iter().map(|access| access.1).collect();
        assert_eq!(pages, [100, 101, 102, 103, 104, 105, 200, 103, 102]);
    }

    /// *The story:* sqlite3 spent 4.5 s of its own, and 22.6 s in the simulation: most of it passed
    /// between the pager's answers and the instant in which the thread ran again, or the pager
    /// heard of its next fault.
    #[test]
    fn a_fault_that_follows_at_once_leaves_no_time_of_its_own() {
        let list = seen(&[
            (100_000, 1, PagerOp::SoftFault, 100_000),
            (111_000, 2, PagerOp::SoftFault, 2_000),
            (500_000, 3, PagerOp::SoftFault, 2_000),
        ]);
        assert_eq!(list.iter().map(|access| access.0).collect::<Vec<_>>(), [0, 0, 387_000 - 13_000]);
    }

    /// *The story:* python objects at half their RAM took 16 times as long as with all of it, and
    /// 2.6 times as long in the simulation: of the time between two faults most was not the
    /// program's, which ran when the agent had made room, on the same processor.
    #[test]
    fn the_launcher_knows_how_long_the_program_computed() {
        let mut sightings = Sightings::default();
        let record = PagerRecord {
            time_ns: 1_013_000,
            vpn: 1,
            thread: 0,
            space: 0,
            op: PagerOp::SoftFault,
            argument: 0,
        };
        sightings.note(&record);
        assert_eq!(sightings.share(), (1_000_000, 1_000_000), "nobody said");
        sightings.hear("seen by overspill run: true");
        sightings.hear(&processor_note(405_000));
        assert_eq!(sightings.share(), (400_000, 1_000_000));
        sightings.hear(&processor_note(9_000_000));
        assert_eq!(sightings.share(), (1_000_000, 1_000_000), "several threads");
    }

    /// Two threads that wait at once do not wait for twice as long.
    #[test]
    fn what_two_wait_for_counts_once() {
        let list = seen(&[
            (100_000, 1, PagerOp::MajorFault, 100_000),
            (120_000, 2, PagerOp::MajorFault, 90_000),
            (160_000, 3, PagerOp::SoftFault, 0),
        ]);
        assert_eq!(list.iter().map(|access| access.0).collect::<Vec<_>>(), [0, 0, 30_000]);
    }
}
