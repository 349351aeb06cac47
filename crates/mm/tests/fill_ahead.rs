//! *The story:* of four programs that filled 60 MiB each, side by side in 250, the shares became small at
//! times. Watermarks and swap cache stayed those of the whole budget: more was kept free than a small share
//! has, so that all of it left view at each fault, and with it what had just been filled ahead. One of them
//! had each of its 15,360 pages filled six times, and dropped as zeroes before it came to it.

mod willing;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, State, Unmapped};

const SPACE: SpaceId = SpaceId(0);
/// 250 MiB.
const WHOLE: u32 = 64_000;
const PAGES: u64 = 15_360;

struct World {
    mm: Mm<NoReadAhead>,
    out: Actions,
    /// The program has stored to all before this one.
    filled: u64,
}

impl World {
    /// In a share of so many frames, of which it had the whole once.
    fn new(share: u32) -> World {
        let mut world =
            World { mm: Mm::new(Config::live(WHOLE, 1 << 20), NoReadAhead), out: Actions::new(), filled: 0 };
        let (start, end) = (Vpn(0), Vpn(PAGES));
        world.feed(Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon });
        world.feed(Event::Budget { frames: share });
        world
    }

    /// Everything succeeds at once; what was not stored to is zeroes.
    fn feed(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            self.mm.step(0, event, &mut self.out);
            let orders: Vec<Action> = self.out.drain().collect();
            for order in orders {
                let Action::Unmap { run } = order else {
                    events.extend(willing::answer(&order));
                    continue;
                };
                let is_zero = |id| self.mm.place(id).1.0 >= self.filled;
                let zero = run.pages().enumerate().map(|(n, id)| u64::from(is_zero(id)) << n).sum();
                let taken = u64::MAX >> (64 - run.count);
                events.push(Event::Unmapped { run, result: Unmapped { taken, zero, same: 0, gone: 0 } });
            }
        }
    }

    /// Stores to page after page, and rests at times, as others run.
    fn fill(&mut self) {
        for vpn in 0..PAGES {
            let state = self.mm.lookup(SPACE, Vpn(vpn)).map(|id| self.mm.state(id));
            if state != Some(State::Mapped) {
                self.feed(Event::Fault { space: SPACE, vpn: Vpn(vpn), access: Access::Write });
            }
            self.filled = vpn + 1;
            while vpn % 16 == 0 && self.mm.has_idle_work() {
                self.feed(Event::Idle);
            }
        }
        self.mm.check();
    }
}

#[test]
fn what_is_filled_ahead_stays_until_the_program_comes_to_it() {
    for share in [256, 400, 600, 1500, 3000, 6000, 12_000] {
        let mut world = World::new(share);
        world.fill();
        let stats = *world.mm.stats();
        assert!(stats.zero_dropped < PAGES / 16, "in {share} frames {} were dropped", stats.zero_dropped);
        assert!(stats.pswpout > PAGES / 8);
    }
}
