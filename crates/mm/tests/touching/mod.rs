//! Pages of one region that are touched one by one, in a shell in which everything succeeds at once.

use std::collections::VecDeque;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm};

use crate::willing;

const SPACE: SpaceId = SpaceId(0);

/// No page does anything beside another.
pub fn one_by_one(budget: u32, slots: u32) -> Config {
    Config {
        low: 0,
        high: 0,
        swap_in_frames: 1,
        cache: 0,
        unit: 1,
        write_max: 1,
        fill_max: 1,
        ..Config::live(budget, slots)
    }
}

/// With a region of 64 pages.
pub fn machine(config: Config) -> Mm<NoReadAhead> {
    let mut mm = Mm::new(config, NoReadAhead);
    step(&mut mm, Event::RegionAdded { space: SPACE, start: Vpn(0), end: Vpn(64), kind: RegionKind::Anon });
    mm
}

/// One event, everything it orders succeeding at once; gives the slots written to.
fn step(mm: &mut Mm<NoReadAhead>, event: Event) -> Vec<u32> {
    let (mut events, mut out, mut written) = (VecDeque::from([event]), Actions::new(), Vec::new());
    while let Some(event) = events.pop_front() {
        mm.step(0, event, &mut out);
        for action in out.drain() {
            if let Action::Write { slot, run, .. } = action {
                written.extend(slot.0..slot.0 + run.count);
            }
            events.extend(willing::answer(&action));
        }
    }
    mm.check();
    written
}

/// The slots that were written to so as to have the page in view; nothing where it was.
pub fn touch(mm: &mut Mm<NoReadAhead>, vpn: u64, access: Access) -> Option<Vec<u32>> {
    let mapped =
        |mm: &mut Mm<NoReadAhead>| mm.lookup(SPACE, Vpn(vpn)).is_some_and(|id| mm.mark_accessed(id, access));
    if mapped(mm) {
        return None;
    }
    let written = step(mm, Event::Fault { space: SPACE, vpn: Vpn(vpn), access });
    assert!(mapped(mm), "an answered fault leaves the page in view");
    Some(written)
}
