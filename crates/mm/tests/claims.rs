//! A process whose claim is refused while others may still give something back.
//!
//! *The story:* its faults did not wait for that, and took frames above the budget, 25 ms long.

mod willing;

use std::collections::VecDeque;

use overspill_mm::readahead::policy::{Config as Knobs, NAMES, Policy};
use overspill_mm::types::{Access, CHUNK_PAGES, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, AreaConfig, AreaId, Config, Event, Mm, Warning};

const SPACE: SpaceId = SpaceId(0);
const BUDGET: u32 = 1280;
const PAGES: u32 = 4000;
const CLUSTER: u32 = CHUNK_PAGES as u32;
const AREA: AreaId = AreaId(0);

struct World {
    mm: Mm<Policy>,
    now: u64,
    /// What the process has of the limit, and what it is told that it could have.
    has: u32,
    more: u32,
    /// It gets what it asks for.
    is_granted: bool,
    refusals: u32,
    is_full: bool,
}

impl World {
    fn new() -> World {
        let policy = Policy::by_name(NAMES[0], Knobs { frames: BUDGET, ..Knobs::default() }).unwrap();
        let mm = Mm::new(Config { compares: true, ..Config::live(BUDGET, 0) }, policy);
        let (has, more) = (0, CLUSTER);
        let mut world = World { mm, now: 0, has, more, is_granted: false, refusals: 0, is_full: false };
        let slots = 4 * PAGES;
        world.feed(Event::AreaAdded(AreaConfig { slots, claims: CLUSTER, ..AreaConfig::default() }));
        let end = Vpn(u64::from(PAGES));
        world.feed(Event::RegionAdded { space: SPACE, start: Vpn(0), end, kind: RegionKind::Anon });
        world
    }

    fn feed(&mut self, event: Event) {
        let (mut events, mut out) = (VecDeque::from([event]), Actions::new());
        while let Some(event) = events.pop_front() {
            self.now += 1000;
            self.mm.step(self.now, event, &mut out);
            for action in out.drain() {
                self.is_full |= action == Action::Warn(Warning::SwapFull);
                match action {
                    Action::Claim { slots, .. } => events.push_back(self.answer(slots)),
                    _ => events.extend(willing::answer(&action)),
                }
            }
        }
    }

    fn answer(&mut self, slots: u32) -> Event {
        self.refusals += u32::from(!self.is_granted);
        self.has = if self.is_granted { slots } else { self.has };
        Event::Claimed { area: AREA, slots: self.has, more: self.more, has_company: true }
    }

    fn store_all(&mut self) {
        for vpn in (0..PAGES).map(|vpn| Vpn(u64::from(vpn))) {
            self.feed(Event::Fault { space: SPACE, vpn, access: Access::Write });
        }
    }
}

#[test]
fn who_may_come_to_have_room_waits_for_it() {
    let mut world = World::new();
    world.store_all();
    assert!(world.mm.frames_held() <= BUDGET && !world.is_full, "{} are held", world.mm.frames_held());
    let refusals = world.refusals;
    (0..3).for_each(|_| world.feed(Event::Tick));
    assert_eq!(world.refusals, refusals + 3, "it asks again at each tick");
    world.is_granted = true;
    world.feed(Event::Tick);
    assert!(world.mm.frames_held() <= BUDGET && !world.is_full, "{} are held", world.mm.frames_held());
    assert_eq!(world.mm.slots_used() + world.mm.frames_held(), PAGES, "all have gone on");
}

#[test]
fn who_will_not_have_any_goes_on_without() {
    let mut world = World::new();
    world.store_all();
    let (slots, more) = (world.has, 0);
    world.feed(Event::Claimed { area: AREA, slots, more, has_company: true });
    assert_eq!((world.mm.frames_held(), world.is_full), (PAGES, true));
}
