//! Found by comparing with a real kernel: pages kept the slots of their first eviction for ever, so
//! slots stayed in the order of the first fill, and read-ahead by slots saw neighbours where the
//! kernel has none (random stores), or none where the kernel has them (strided stores). The kernel
//! gives a slot back at the first store (specification 1.7).

mod willing;

use std::collections::VecDeque;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, Placement, Probe};

const SPACE: SpaceId = SpaceId(0);

fn machine(placement: Placement) -> Mm<NoReadAhead> {
    let config = Config {
        placement,
        low: 0,
        high: 0,
        swap_in_frames: 1,
        cache: 0,
        unit: 1,
        write_max: 1,
        fill_max: 1,
        probe: Probe::Kernel,
        ..Config::live(4, 8192)
    };
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
            if let Action::Write { slot, .. } = action {
                written.push(slot.0);
            }
            events.extend(willing::answer(&action));
        }
    }
    mm.check();
    written
}

fn touch(mm: &mut Mm<NoReadAhead>, vpn: u64, access: Access) -> Vec<u32> {
    let mapped =
        |mm: &mut Mm<NoReadAhead>| mm.lookup(SPACE, Vpn(vpn)).is_some_and(|id| mm.mark_accessed(id, access));
    if mapped(mm) {
        return Vec::new();
    }
    let written = step(mm, Event::Fault { space: SPACE, vpn: Vpn(vpn), access });
    assert!(mapped(mm), "an answered fault leaves the page in view");
    written
}

#[test]
fn a_store_gives_the_slot_back_a_load_does_not() {
    let mut mm = machine(Placement::InOrder);
    for vpn in 0..8 {
        touch(&mut mm, vpn, Access::Write);
    }
    let on_swap = mm.slots_used();
    assert_eq!(on_swap, 4);
    assert_eq!(touch(&mut mm, 0, Access::Read).len(), 1, "somebody made room");
    assert_eq!(mm.slots_used(), on_swap + 1, "a page that was only read keeps its slot");
    assert_eq!(mm.frames_held() + mm.pages_swapped(), 8, "but it is there once");
    touch(&mut mm, 0, Access::Write);
    assert_eq!(mm.slots_used(), on_swap, "the first store gives it back");
}

#[test]
fn slots_follow_the_order_of_eviction() {
    let mut mm = machine(Placement::InOrder);
    let mut last = 0;
    // Scattered stores, several times over: every eviction takes the next slot, whatever the page had before.
    for round in 0..40_u64 {
        for slot in touch(&mut mm, round * 7 % 16, Access::Write) {
            assert!(slot > last, "round {round}: slot {slot} after {last}");
            last = slot;
        }
    }
}
