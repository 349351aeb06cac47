//! An area that is to go while the others have no room for what is in it: the program goes on as
//! before, and the area is left when there is room.
//!
//! *The story:* its pages gave their slots up as they came back, with no other slot to be had. They
//! stayed in RAM, above the budget, and swap was said to be full: `--on-full kill` ended the program.

mod willing;

use std::collections::VecDeque;

use overspill_mm::readahead::policy::{Config as Knobs, NAMES, Policy};
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, AreaConfig, AreaId, Config, Event, Mm, State, Warning};

const SPACE: SpaceId = SpaceId(0);
const BUDGET: u32 = 1280;
const PAGES: u32 = 4000;
const FIRST: AreaId = AreaId(0);

struct World {
    mm: Mm<Policy>,
    random: u64,
    now: u64,
    most: u32,
    is_full: bool,
    left: Option<u32>,
}

impl World {
    /// All pages were touched, and lie in the first area or in RAM.
    fn new() -> World {
        let policy = Policy::by_name(NAMES[0], Knobs { frames: BUDGET, ..Knobs::default() }).unwrap();
        let config = Config { compares: true, ..Config::live(BUDGET, 2 * PAGES) };
        let mm = Mm::new(config, policy);
        let mut world = World { mm, random: 1, now: 0, most: 0, is_full: false, left: None };
        let end = Vpn(u64::from(PAGES));
        world.feed(Event::RegionAdded { space: SPACE, start: Vpn(0), end, kind: RegionKind::Anon });
        (0..PAGES).for_each(|vpn| world.store(vpn));
        world
    }

    fn feed(&mut self, event: Event) {
        let (mut events, mut out) = (VecDeque::from([event]), Actions::new());
        while let Some(event) = events.pop_front() {
            self.now += 1000;
            self.mm.step(self.now, event, &mut out);
            self.most = self.most.max(self.mm.frames_held());
            for action in out.drain() {
                self.is_full |= action == Action::Warn(Warning::SwapFull);
                if let Action::AreaLeft { area: FIRST, slots } = action {
                    self.left = Some(slots);
                }
                events.extend(willing::answer(&action));
            }
        }
    }

    fn store(&mut self, vpn: u32) {
        let vpn = Vpn(u64::from(vpn));
        if self.mm.lookup(SPACE, vpn).is_none_or(|id| self.mm.state(id) != State::Mapped) {
            self.feed(Event::Fault { space: SPACE, vpn, access: Access::Write });
        }
    }

    /// Random stores, with looks between.
    fn stores(&mut self, count: u32) {
        for _ in 0..count {
            self.random =
                self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.store((self.random >> 33) as u32 % PAGES);
            self.feed(Event::Tick);
        }
        self.mm.check();
    }

    fn add(&mut self, slots: u32) {
        self.feed(Event::AreaAdded(AreaConfig { slots, ..AreaConfig::default() }));
    }
}

#[test]
fn it_waits_for_room_and_the_program_does_not() {
    waits(1000);
    // Not even for what has no slot yet.
    waits(300);
}

fn waits(slots: u32) {
    let mut world = World::new();
    world.add(slots);
    world.feed(Event::AreaLeaves { area: FIRST });
    world.stores(30_000);
    assert!(world.most <= BUDGET && !world.is_full, "{} were held", world.most);
    assert!(world.mm.waits_for_room() && world.left.is_none());
    let (there, _) = world.mm.areas_beside(FIRST);
    assert!(there > PAGES / 2, "only {there} pages are there, and there is room for {slots}");
    world.add(PAGES);
    world.stores(3000);
    assert_eq!((world.left, world.mm.areas_beside(FIRST).0), (Some(0), 0), "there is room now");
    assert!(world.most <= BUDGET && !world.is_full, "{} were held", world.most);
}
