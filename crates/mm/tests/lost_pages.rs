//! Pages that cannot be read back, while everything is brought in.

mod willing;

use std::collections::VecDeque;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, PageId, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, State};

const SPACE: SpaceId = SpaceId(0);
const PAGES: u64 = 2000;

/// A machine of which the first page cannot be read back.
struct World {
    mm: Mm<NoReadAhead>,
    first: Option<PageId>,
    orders: Vec<Action>,
}

impl World {
    fn new() -> World {
        let mm = Mm::new(Config { cache: 0, ..Config::live(1000, 8192) }, NoReadAhead);
        let mut world = World { mm, first: None, orders: Vec::new() };
        world.feed(Event::RegionAdded {
            space: SPACE,
            start: Vpn(0),
            end: Vpn(PAGES),
            kind: RegionKind::Anon,
        });
        for vpn in (0..PAGES).map(Vpn) {
            world.feed(Event::Fault { space: SPACE, vpn, access: Access::Write });
        }
        world.first = world.mm.lookup(SPACE, Vpn(0));
        assert_eq!(world.first.map(|id| world.mm.state(id)), Some(State::Swapped));
        world
    }

    /// Gives what was ordered from then on until nothing is under way.
    fn feed(&mut self, event: Event) -> &[Action] {
        self.orders.clear();
        let (mut events, mut out) = (VecDeque::from([event]), Actions::new());
        while let Some(event) = events.pop_front() {
            self.mm.step(0, event, &mut out);
            for order in out.drain() {
                events.extend(match order {
                    Action::Read { io, run, .. } if run.pages().any(|id| Some(id) == self.first) => {
                        Some(Event::ReadDone { io, ok: false })
                    }
                    _ => willing::answer(&order),
                });
                self.orders.push(order);
            }
        }
        self.mm.check();
        &self.orders
    }

    fn reads_first(&self) -> usize {
        let read = |order: &Action| if let Action::Read { run, .. } = *order { Some(run) } else { None };
        let runs = self.orders.iter().filter_map(read);
        runs.filter(|run| run.pages().any(|id| Some(id) == self.first)).count()
    }
}

/// *The story:* a page that could not be read was on swap as before. Each attempt to bring everything
/// in read it again and said so again, and an agent that was to go, which takes everything to be in,
/// never went.
#[test]
fn what_is_lost_is_not_out_any_more_and_not_read_again() {
    let mut world = World::new();
    let first = world.first.expect("it was touched");
    let fail = Action::Fail { page: first };
    let populated = |orders: &[Action]| orders.contains(&Action::Populated);
    assert!(!world.mm.is_lost(first));
    let orders = world.feed(Event::Pause);
    assert!(orders.contains(&fail) && populated(orders));
    assert_eq!((world.reads_first(), world.mm.is_lost(first)), (2, true), "once with others, once alone");
    world.feed(Event::Resume);
    let orders = world.feed(Event::Pause);
    assert!(!orders.contains(&fail) && populated(orders));
    assert_eq!(world.reads_first(), 0);
    // Whoever touches it is told all the same.
    let orders = world.feed(Event::Fault { space: SPACE, vpn: Vpn(0), access: Access::Read });
    assert!(orders.contains(&fail) && world.mm.is_lost(first));
    // The program drops it: it is a page like others.
    world.feed(Event::Discarded { space: SPACE, start: Vpn(0), end: Vpn(1) });
    assert!(!world.mm.is_lost(first));
    world.feed(Event::Fault { space: SPACE, vpn: Vpn(0), access: Access::Write });
    assert_eq!(world.mm.state(first), State::Mapped);
}
