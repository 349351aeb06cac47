//! Found by reading: a range that is unmapped while its pages are being written, read or taken out
//! of view cannot be forgotten at once, and was never forgotten afterwards. Its chunks of the page
//! table stayed, and with them their swap clusters: of fifty such ranges, fifty. A program that
//! maps and unmaps for days held a chunk of 8 KiB for each.

mod willing;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, PageId, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, State, Unmapped};

const SPACE: SpaceId = SpaceId(0);
const CHUNK: u64 = 512;
const ROUNDS: u64 = 50;

struct World {
    mm: Mm<NoReadAhead>,
    /// Orders that were not answered yet.
    orders: Vec<Action>,
}

impl World {
    /// Four clusters of swap: a fifth that is kept shows at once.
    fn new() -> World {
        let config = Config { unit: 1, cache: 0, fill_max: 1, ..Config::live(8, 4 * CHUNK as u32) };
        World { mm: Mm::new(config, NoReadAhead), orders: Vec::new() }
    }

    fn feed(&mut self, event: Event) {
        let mut out = Actions::new();
        self.mm.step(0, event, &mut out);
        self.orders.extend(out.drain());
        self.mm.check();
    }

    fn touch(&mut self, vpn: u64) {
        self.feed(Event::Fault { space: SPACE, vpn: Vpn(vpn), access: Access::Write });
    }

    fn answer_all(&mut self) {
        while let Some(order) = self.orders.pop() {
            if let Some(event) = willing::answer(&order) {
                self.feed(event);
            }
        }
    }

    fn answer_unmaps(&mut self) {
        while let Some(at) = self.orders.iter().position(|order| matches!(order, Action::Unmap { .. })) {
            let order = self.orders.remove(at);
            self.feed(willing::answer(&order).expect("unmaps are answered"));
        }
    }

    /// Maps a chunk, pages some of it out, and says where its first page went.
    fn fill(&mut self, start: u64) -> PageId {
        self.feed(Event::RegionAdded {
            space: SPACE,
            start: Vpn(start),
            end: Vpn(start + CHUNK),
            kind: RegionKind::Anon,
        });
        (start + 1..start + 12).for_each(|vpn| self.touch(vpn));
        self.mm.lookup(SPACE, Vpn(start)).expect("pages of the chunk were touched")
    }

    fn unmap(&mut self, start: u64) {
        self.feed(Event::RegionRemoved { space: SPACE, start: Vpn(start), end: Vpn(start + CHUNK) });
    }

    fn assert_forgotten(&self, start: u64) {
        assert_eq!(self.mm.lookup(SPACE, Vpn(start)), None, "nothing is known of what is unmapped");
        assert_eq!((self.mm.slots_used(), self.mm.in_flight()), (0, 0));
    }
}

fn states(world: &World, first: PageId) -> Vec<State> {
    (0..CHUNK as u32).map(|page| world.mm.state(PageId(first.0 + page))).collect()
}

#[test]
fn ranges_unmapped_in_mid_write_are_forgotten() {
    let mut world = World::new();
    for round in 0..ROUNDS {
        let start = round * CHUNK;
        let first = world.fill(start);
        world.answer_unmaps();
        let written = states(&world, first).iter().position(|&state| state == State::Writing);
        let written = PageId(first.0 + written.expect("a write is under way") as u32);
        let slot = world.mm.slot(written).expect("a page is written to a slot");
        assert_eq!(slot.0 % CHUNK as u32, written.0 % CHUNK as u32, "the chunk has a cluster of its own");
        world.unmap(start);
        world.answer_all();
        world.assert_forgotten(start);
    }
}

#[test]
fn ranges_unmapped_while_pages_go_out_or_come_in_are_forgotten() {
    for reading in [false, true] {
        let mut world = World::new();
        for round in 0..ROUNDS {
            let start = round * CHUNK;
            let first = world.fill(start);
            if reading {
                world.answer_all();
                let out = states(&world, first).iter().position(|&state| state == State::Swapped);
                world.touch(start + out.expect("a page is on swap") as u64);
                assert!(states(&world, first).contains(&State::Reading) || world.mm.is_stalled());
            } else {
                assert!(world.mm.in_flight() > 0, "a page is on its way out");
            }
            world.unmap(start);
            world.answer_all();
            world.assert_forgotten(start);
        }
    }
}

/// The last that keeps the chunk is a page that the program dropped itself before the unmap was
/// answered.
#[test]
fn ranges_whose_pages_are_gone_are_forgotten() {
    let mut world = World::new();
    world.fill(0);
    world.unmap(0);
    while let Some(order) = world.orders.pop() {
        let event = match order {
            Action::Unmap { run } => {
                let gone = u64::MAX >> (64 - run.count);
                Some(Event::Unmapped { run, result: Unmapped { gone, ..Unmapped::default() } })
            }
            order => willing::answer(&order),
        };
        event.into_iter().for_each(|event| world.feed(event));
    }
    world.assert_forgotten(0);
}
