//! Above half full, swap is too small for pages to be there and in RAM: one that comes into view
//! gives its slot back (specification 1.7, 3.4). Below, it keeps it and leaves without a write.

mod willing;

use std::collections::VecDeque;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, Placement, Probe};

const SPACE: SpaceId = SpaceId(0);
const BUDGET: u32 = 4;
/// The header, and room for seven pages.
const SMALL: u32 = 8;
/// Room for more than twice all pages.
const LARGE: u32 = 512;

/// A kernel by its own rules, and the live pager, which compares what it takes with what was read.
fn machines(swap_slots: u32) -> [Mm<NoReadAhead>; 2] {
    let common = Config {
        low: 0,
        high: 0,
        swap_in_frames: 1,
        cache: 0,
        unit: 1,
        write_max: 1,
        fill_max: 1,
        ..Config::live(BUDGET, swap_slots)
    };
    let live = Config { compares: true, ..common };
    let kernel = Config { placement: Placement::InOrder, probe: Probe::Kernel, ..common };
    [kernel, live].map(|config| {
        let mut mm = Mm::new(config, NoReadAhead);
        let (start, end) = (Vpn(0), Vpn(64));
        step(&mut mm, Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon });
        mm
    })
}

/// One event, everything it orders succeeding at once; gives how many pages were written.
fn step(mm: &mut Mm<NoReadAhead>, event: Event) -> u32 {
    let (mut events, mut out, mut written) = (VecDeque::from([event]), Actions::new(), 0);
    while let Some(event) = events.pop_front() {
        mm.step(0, event, &mut out);
        for action in out.drain() {
            if let Action::Write { run, .. } = action {
                written += run.count;
            }
            events.extend(willing::answer(&action));
        }
    }
    mm.check();
    written
}

/// How many pages were written to have this one in view; nothing where it was.
fn touch(mm: &mut Mm<NoReadAhead>, vpn: u64, access: Access) -> Option<u32> {
    let mapped =
        |mm: &mut Mm<NoReadAhead>| mm.lookup(SPACE, Vpn(vpn)).is_some_and(|id| mm.mark_accessed(id, access));
    if mapped(mm) {
        return None;
    }
    let written = step(mm, Event::Fault { space: SPACE, vpn: Vpn(vpn), access });
    assert!(mapped(mm), "an answered fault leaves the page in view");
    Some(written)
}

/// Ten pages on four frames and seven slots, read round and round: each that comes in makes room on
/// swap for the one that leaves. With slots kept, the seven would soon be those of pages in RAM.
#[test]
fn above_half_full_no_page_in_view_has_a_slot() {
    for mut mm in machines(SMALL) {
        for vpn in 0..10 {
            touch(&mut mm, vpn, Access::Write);
        }
        for round in 0..20 {
            for vpn in 0..10 {
                let written = touch(&mut mm, vpn, Access::Read);
                assert_eq!(mm.slots_used(), mm.pages_swapped(), "round {round}, page {vpn}");
                assert_eq!((mm.frames_held(), mm.pages_swapped()), (BUDGET, 6), "round {round}, page {vpn}");
                // What gave its slot back has nothing on swap: who leaves is written, though only read.
                assert!(written.is_none_or(|count| count == 1), "round {round}, page {vpn}: {written:?}");
            }
        }
    }
}

#[test]
fn below_half_full_a_page_that_was_only_read_keeps_its_slot() {
    for mut mm in machines(LARGE) {
        let rounds = [Access::Write, Access::Read, Access::Read];
        for (access, vpn) in rounds.into_iter().flat_map(|access| (0..10).map(move |vpn| (access, vpn))) {
            touch(&mut mm, vpn, access);
        }
        assert!(mm.slots_used() > mm.pages_swapped(), "{} slots", mm.slots_used());
    }
}
