//! *The story:* where pages are copied out in place of being moved, a program that had grown far above its budget was brought
//! back under it in a single step of 40 ms. Meanwhile nobody looked what else it mapped: 145 MiB in a budget of 64.

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, State, Unmapped};

const SPACE: SpaceId = SpaceId(0);
const MAX: u32 = 32;

/// Feeds an event, answers every order to unmap at once, and counts the pages; the faults that are filled.
fn step(mm: &mut Mm<NoReadAhead>, event: Event) -> (u32, u32) {
    let (mut unmapped, mut filled) = (0, 0);
    let mut events = std::collections::VecDeque::from([event]);
    while let Some(event) = events.pop_front() {
        let mut out = Actions::new();
        mm.step(0, event, &mut out);
        for action in out.drain() {
            match action {
                Action::Unmap { run } => {
                    unmapped += run.count;
                    let taken = ((1u128 << run.count) - 1) as u64;
                    let result = Unmapped { taken, zero: taken, ..Unmapped::default() };
                    events.push_back(Event::Unmapped { run, result });
                }
                Action::ZeroFill { run } => filled += run.count,
                _ => {}
            }
        }
    }
    (unmapped, filled)
}

#[test]
fn the_owner_gets_to_look_in_between() {
    let config = Config { unmap_max: MAX, cache: 0, ..Config::live(1000, 8192) };
    let mut mm = Mm::new(config, NoReadAhead);
    let (start, end) = (Vpn(0), Vpn(4096));
    step(&mut mm, Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon });
    // Twice the budget is there when memory is found.
    let (unmapped, _) = step(&mut mm, Event::Resident { space: SPACE, start, end: Vpn(2000) });
    assert!(unmapped >= MAX && unmapped < 2 * MAX + 64, "{unmapped} at once");
    // A fault waits, too: it is not served above the budget.
    let (unmapped, filled) =
        step(&mut mm, Event::Fault { space: SPACE, vpn: Vpn(3000), access: Access::Read });
    assert_eq!((unmapped, filled), (0, 0));
    let mut ticks = 0;
    while mm.frames_held() > 1000 {
        let (unmapped, filled) = step(&mut mm, Event::Tick);
        assert!(unmapped > 0 && unmapped < MAX + 64, "{unmapped} after a tick");
        assert!(filled == 0 || mm.frames_held() <= 1000, "{} frames are held", mm.frames_held());
        ticks += 1;
    }
    assert!((1000 / (MAX + 64)..=1000 / MAX).contains(&ticks), "{ticks} ticks");
    step(&mut mm, Event::Tick);
    let id = mm.lookup(SPACE, Vpn(3000)).expect("it is used");
    assert_eq!(mm.state(id), State::Mapped, "the fault is answered in the end");
}
