//! Found by the simulator (seed 2397): with hardware bits and every page in use, reclaim gave up
//! after one look at each page, and the fault was served above the budget, although further looks
//! would have found the bits cleared.

mod willing;

use std::collections::VecDeque;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Actions, Config, Event, Mm, Placement, Probe};

const SPACE: SpaceId = SpaceId(0);
const BUDGET: u32 = 100;

/// A shell in which everything succeeds at once; the budget must hold after every step.
fn carry_out(mm: &mut Mm<NoReadAhead>, event: Event) {
    let mut events = VecDeque::from([event]);
    let mut out = Actions::new();
    while let Some(event) = events.pop_front() {
        mm.step(0, event, &mut out);
        assert!(mm.frames_held() <= BUDGET, "{event:?} leaves {} frames", mm.frames_held());
        for action in out.drain() {
            events.extend(willing::answer(&action));
        }
    }
    mm.check();
}

#[test]
fn a_budget_full_of_used_pages_is_kept() {
    let config = Config {
        placement: Placement::InOrder,
        low: 0,
        high: 0,
        swap_in_frames: 1,
        cache: 0,
        unit: 1,
        write_max: 1,
        fill_max: 1,
        probe: Probe::Kernel,
        ..Config::live(BUDGET, 8192)
    };
    let mut mm = Mm::new(config, NoReadAhead);
    let (start, end) = (Vpn(0), Vpn(4096));
    carry_out(&mut mm, Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon });
    for round in 0..2000 {
        // Pages of a set a little larger than the budget, each used again and again while it is there.
        let vpn = Vpn(round * 7 % 130);
        carry_out(&mut mm, Event::Fault { space: SPACE, vpn, access: Access::Write });
        for used in 0..130 {
            if let Some(id) = mm.lookup(SPACE, Vpn(used)) {
                mm.mark_accessed(id, Access::Read);
            }
        }
    }
}
