//! *The story:* pages that left RAM as zeroes were added up, each time that one left. Programs that grow
//! side by side had pages filled ahead, dropped before they came to them and filled again, and "no more
//! than 2130 MiB would avoid that" was told of what holds 241. Such a page counts once, until it has a
//! frame again or the program drops it.

mod willing;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, State, Unmapped};

const SPACE: SpaceId = SpaceId(0);
const BUDGET: u32 = 256;
const PAGES: u64 = 4096;

/// Everything succeeds at once, and all that leaves view is zeroes.
fn answer(action: &Action) -> Option<Event> {
    let Action::Unmap { run } = *action else { return willing::answer(action) };
    let taken = u64::MAX >> (64 - run.count);
    Some(Event::Unmapped { run, result: Unmapped { taken, zero: taken, same: 0, gone: 0 } })
}

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

    /// Carries everything out.
    fn feed(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            self.mm.step(0, event, &mut self.out);
            let orders: Vec<Action> = self.out.drain().collect();
            events.extend(orders.iter().filter_map(answer));
            self.mm.check();
        }
    }

    fn touch(&mut self, vpn: u64, access: Access) {
        let state = self.mm.lookup(SPACE, Vpn(vpn)).map(|id| self.mm.state(id));
        if state != Some(State::Mapped) {
            self.feed(Event::Fault { space: SPACE, vpn: Vpn(vpn), access });
        }
    }

    /// All that the program would hold with RAM enough.
    fn needed(&self) -> u64 {
        u64::from(self.mm.frames_held() + self.mm.pages_swapped() + self.mm.pages_blank())
    }

    fn store_to_all(&mut self) {
        (0..PAGES).for_each(|vpn| self.touch(vpn, Access::Write));
    }
}

#[test]
fn a_page_that_left_as_zeroes_counts_once_however_often_it_left() {
    let mut world = World::new();
    for _ in 0..5 {
        world.store_to_all();
        assert_eq!(world.needed(), PAGES);
    }
    assert!(world.mm.stats().zero_dropped > 4 * PAGES, "each left in each lap");
}

#[test]
fn what_is_only_read_then_would_have_its_frame_still() {
    let mut world = World::new();
    world.store_to_all();
    (0..PAGES).for_each(|vpn| world.touch(vpn, Access::Read));
    assert_eq!(world.needed(), PAGES);
}

#[test]
fn what_the_program_drops_counts_no_more() {
    let mut world = World::new();
    world.store_to_all();
    let (start, end) = (Vpn(512), Vpn(1024));
    world.feed(Event::Discarded { space: SPACE, start, end });
    assert_eq!(world.needed(), PAGES - 512);
    // A part of a chunk: what is left of it counts still.
    world.feed(Event::RegionRemoved { space: SPACE, start: Vpn(1024), end: Vpn(1280) });
    assert_eq!(world.needed(), PAGES - 768);
    world.feed(Event::RegionRemoved { space: SPACE, start: Vpn(0), end: Vpn(PAGES) });
    assert_eq!(world.needed(), 0);
}

/// More chunks may be in the range than exist: those are gone through, used or not.
#[test]
fn a_sparse_range_is_dropped_wholly() {
    let mut world = World::new();
    world.store_to_all();
    assert!(world.mm.pages_blank() > 0);
    world.feed(Event::RegionRemoved { space: SPACE, start: Vpn(0), end: Vpn(1 << 30) });
    assert_eq!(world.needed(), 0);
}

#[test]
fn what_is_moved_counts_at_its_new_place() {
    let mut world = World::new();
    world.store_to_all();
    let (from, to) = (Vpn(0), Vpn(1 << 20));
    world.feed(Event::Moved { space: SPACE, from, to, pages: PAGES });
    assert_eq!(world.needed(), PAGES);
    let end = Vpn((1 << 20) + PAGES);
    world.feed(Event::RegionRemoved { space: SPACE, start: to, end });
    assert_eq!(world.needed(), 0);
}
