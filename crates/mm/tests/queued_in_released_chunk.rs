//! Found by threads that mapped and unmapped side by side (torture `munmap-churn`): a fault that
//! waits for a frame is on a page that is still untouched, so nothing else in its 2 MiB chunk need
//! be in use. When a neighbour in that chunk was unmapped, the chunk was forgotten with the waiting
//! page in it. Its number went to another chunk, the frame to a page that nobody could find, and
//! sooner or later an assertion failed: "a vacant chunk holds no page", "a page is in one frame".

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, Run, Unmapped};

const SPACE: SpaceId = SpaceId(0);

struct World {
    mm: Mm<NoReadAhead>,
    out: Actions,
    filled: Vec<u64>,
    /// Unmaps that were ordered and not answered yet.
    unmaps: Vec<Run>,
}

impl World {
    fn feed(&mut self, event: Event) {
        self.mm.step(0, event, &mut self.out);
        for action in self.out.drain() {
            match action {
                Action::ZeroFill { run } => {
                    self.filled.extend(run.pages().map(|id| self.mm.place(id).1.0));
                }
                Action::Unmap { run } => self.unmaps.push(run),
                _ => {}
            }
        }
        self.mm.check();
    }

    /// All that was ordered out of view is out, and all zero.
    fn unmap(&mut self) {
        for run in std::mem::take(&mut self.unmaps) {
            let taken = u64::MAX >> (64 - run.count);
            self.feed(Event::Unmapped { run, result: Unmapped { taken, zero: taken, same: 0, gone: 0 } });
        }
    }

    fn add(&mut self, start: u64, end: u64) {
        let (start, end) = (Vpn(start), Vpn(end));
        self.feed(Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon });
    }

    fn touch(&mut self, vpn: u64) {
        self.feed(Event::Fault { space: SPACE, vpn: Vpn(vpn), access: Access::Write });
    }
}

#[test]
fn a_waiting_page_keeps_its_chunk() {
    let config = Config { fill_max: 1, ..Config::live(16, 8192) };
    let mut world = World {
        mm: Mm::new(config, NoReadAhead),
        out: Actions::new(),
        filled: Vec::new(),
        unmaps: Vec::new(),
    };
    world.add(0, 64);
    (0..16).for_each(|vpn| world.touch(vpn));
    assert_eq!(world.filled.len(), 16, "the budget is used up");

    // Two regions in one new chunk; the fault in the first has to wait, the second goes.
    world.add(4096, 4160);
    world.add(4160, 4224);
    world.touch(4100);
    assert_eq!(world.filled.len(), 16);
    world.feed(Event::RegionRemoved { space: SPACE, start: Vpn(4160), end: Vpn(4224) });

    // The chunk's number would go to this one.
    world.add(8192, 8256);
    world.touch(8200);
    world.unmap();
    assert_eq!(world.filled[16..], [4100, 8200], "both faults are answered, each at its place");
    let id = world.mm.lookup(SPACE, Vpn(4100)).expect("the page is known");
    assert_eq!(world.mm.place(id), (SPACE, Vpn(4100)));
}
