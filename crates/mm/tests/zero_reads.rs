//! *The story:* a program that read 2000 MiB of never-written memory (a sparse table, calloc)
//! beside 170 MiB in use, in 200, gave each page that it read a frame, and lost the 170 MiB to
//! them lap after lap. The kernel shows its one zero page there and settles.

mod willing;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, State};

const SPACE: SpaceId = SpaceId(0);
const BUDGET: u32 = 256;
const PAGES: u64 = 8192;

struct World {
    mm: Mm<NoReadAhead>,
    out: Actions,
}

impl World {
    fn new() -> World {
        let config = Config { maps_zeroes: true, ..Config::live(BUDGET, 16_384) };
        let mut world = World { mm: Mm::new(config, NoReadAhead), out: Actions::new() };
        let (start, end) = (Vpn(0), Vpn(PAGES));
        world.feed(Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon });
        world
    }

    /// Carries everything out; gives what was ordered.
    fn feed(&mut self, event: Event) -> Vec<Action> {
        let (mut events, mut ordered) = (vec![event], Vec::new());
        while let Some(event) = events.pop() {
            self.mm.step(0, event, &mut self.out);
            let orders: Vec<Action> = self.out.drain().collect();
            events.extend(orders.iter().filter_map(willing::answer));
            ordered.extend(orders);
        }
        self.mm.check();
        ordered
    }

    fn state(&self, vpn: u64) -> Option<State> {
        self.mm.lookup(SPACE, Vpn(vpn)).map(|id| self.mm.state(id))
    }

    /// Touches a page as a program does; true when that was a fault.
    fn touch(&mut self, vpn: u64, access: Access) -> bool {
        let is_fault = match self.state(vpn) {
            Some(State::Mapped) => false,
            Some(State::Zero) => access == Access::Write,
            _ => true,
        };
        if is_fault {
            self.feed(Event::Fault { space: SPACE, vpn: Vpn(vpn), access });
        }
        is_fault
    }
}

#[test]
fn what_is_only_read_takes_nothing_and_evicts_nothing() {
    let mut world = World::new();
    let hot = 0..100;
    hot.clone().for_each(|vpn| _ = world.touch(vpn, Access::Write));
    let held = world.mm.frames_held();
    for _ in 0..3 {
        (1024..PAGES).for_each(|vpn| _ = world.touch(vpn, Access::Read));
    }
    assert_eq!(world.mm.frames_held(), held);
    assert_eq!(world.mm.stats().pswpout, 0);
    assert!(hot.clone().all(|vpn| !world.touch(vpn, Access::Read)), "the hot set is in view");
    assert_eq!(world.mm.stats().zero_shown, PAGES - 1024);
}

#[test]
fn the_first_store_takes_a_frame_and_a_run_of_them_few_faults() {
    let mut world = World::new();
    (0..2048).for_each(|vpn| _ = world.touch(vpn, Access::Read));
    assert_eq!(world.mm.frames_held(), 0);
    assert!(world.touch(700, Access::Write));
    assert_eq!((world.mm.frames_held(), world.state(700)), (1, Some(State::Mapped)));
    assert_eq!(world.state(701), Some(State::Zero), "a store by itself takes one page");
    let faults = (1024..1152).filter(|&vpn| world.touch(vpn, Access::Write)).count();
    assert!(faults <= 8, "stores in order get frames in batches: {faults} faults");
    assert_eq!(world.mm.frames_held(), 129);
}

#[test]
fn it_is_forgotten_and_moved_like_any_other_page() {
    let mut world = World::new();
    (0..64).for_each(|vpn| _ = world.touch(vpn, Access::Read));
    world.feed(Event::Discarded { space: SPACE, start: Vpn(0), end: Vpn(32) });
    assert_eq!((world.state(0), world.state(32)), (Some(State::Untouched), Some(State::Zero)));
    world.feed(Event::Moved { space: SPACE, from: Vpn(32), to: Vpn(4096), pages: 32 });
    assert_eq!(world.state(4096 + 31), Some(State::Zero));
    world.feed(Event::Resident { space: SPACE, start: Vpn(4096), end: Vpn(4100) });
    assert_eq!((world.state(4099), world.mm.frames_held()), (Some(State::Mapped), 4));
    let refused = world.feed(Event::Fault { space: SPACE, vpn: Vpn(5000), access: Access::Read });
    let [Action::ShowZeroes { run }] = refused[..] else { panic!("{refused:?}") };
    world.feed(Event::NotFilled { run });
    assert_eq!(world.state(5000), Some(State::Untouched), "its range was changing");
}
