//! The accesses that a live trace tells of (`overspill run --trace`): the pager sees no touch of a page in view, but every fault
//! is one, and what is read ahead is, as good as always, touched next.
//!
//! Whether a page is stored to is taken from how it left the last time. The time that faults took in the live run is no
//! thinking time and is left out. What is not known is how often a page was used while it was there: with more RAM those touches
//! are no faults either, with less they are missing. So such a trace answers for the RAM of its run and for more.

use super::record::{AccessKind, AccessRecord, PagerOp, PagerRecord};
use std::collections::HashMap;

/// What is remembered of the pages seen so far.
#[derive(Default)]
pub struct Sightings {
    /// By space and page: it was dirty when it left last, or never left.
    stored: HashMap<(u16, u64), bool>,
    /// What the faults so far took.
    stalled_ns: u64,
}

impl Sightings {
    /// The access behind a record, if there is one.
    pub fn access(&mut self, record: &PagerRecord) -> Option<AccessRecord> {
        let place = (record.space, record.vpn);
        let known = self.stored.get(&place).copied();
        let mut began_ns = record.time_ns;
        match record.op {
            PagerOp::Refault | PagerOp::ReadAheadHit | PagerOp::ReadAheadUnused => return None,
            PagerOp::EvictDirty | PagerOp::EvictClean => {
                self.stored.insert(place, record.op == PagerOp::EvictDirty);
                if known.is_some() {
                    return None;
                }
                // Not heard of before: it was there when the trace began.
            }
            PagerOp::MajorFault | PagerOp::SoftFault | PagerOp::FirstTouch => {
                began_ns = began_ns.saturating_sub(record.argument);
                self.stored.entry(place).or_insert(true);
            }
            PagerOp::ReadAhead => {
                self.stored.entry(place).or_insert(true);
            }
        }
        let time_ns = began_ns.saturating_sub(self.stalled_ns);
        self.stalled_ns += record.time_ns - began_ns;
        let kind = if known.unwrap_or(true) { AccessKind::Write } else { AccessKind::Read };
        Some(AccessRecord { time_ns, vpn: record.vpn, thread: record.thread, space: record.space, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_touches_and_their_time_is_not_the_programs() {
        let mut sightings = Sightings::default();
        let mut see = |time_ns, vpn, op, argument| {
            let record = PagerRecord { time_ns, vpn, thread: 0, space: 0, op, argument };
            sightings.access(&record).map(|access| (access.time_ns, access.vpn, access.kind))
        };
        assert_eq!(see(150, 1, PagerOp::FirstTouch, 50), Some((100, 1, AccessKind::Write)));
        assert_eq!(see(200, 1, PagerOp::EvictDirty, 7), None);
        assert_eq!(
            see(210, 2, PagerOp::EvictClean, 8),
            Some((160, 2, AccessKind::Write)),
            "it was there before"
        );
        assert_eq!(see(300, 1, PagerOp::Refault, 1), None);
        assert_eq!(see(400, 1, PagerOp::MajorFault, 100), Some((250, 1, AccessKind::Write)));
        assert_eq!(see(400, 2, PagerOp::ReadAhead, 0), Some((250, 2, AccessKind::Read)), "it was clean");
        assert_eq!(see(420, 2, PagerOp::ReadAheadHit, 0), None);
    }
}
