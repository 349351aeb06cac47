//! Regions with holes: what a program that unmaps a few pages here and there gets back by windows.

mod willing;

use overspill_mm::readahead::policy::{self, Policy};
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Actions, Config, Event, Mm, State};

const SPACE: SpaceId = SpaceId(0);

/// A machine and how its touches went.
struct World {
    mm: Mm<Policy>,
    out: Actions,
}

impl World {
    fn step(&mut self, event: Event) {
        let mut events = std::collections::VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.mm.step(self.mm.stats().pgfault * 1000, event, &mut self.out);
            events.extend(self.out.drain().filter_map(|action| willing::answer(&action)));
        }
    }

    fn touch(&mut self, vpn: Vpn) {
        let is_mapped =
            |mm: &Mm<Policy>| mm.lookup(SPACE, vpn).is_some_and(|id| mm.state(id) == State::Mapped);
        if !is_mapped(&self.mm) {
            self.step(Event::Fault { space: SPACE, vpn, access: Access::Write });
        }
        assert!(is_mapped(&self.mm), "page {} is in", vpn.0);
    }
}

/// Fills 4000 pages in a budget of 2000, cuts holes of a page behind each `kept`, goes through what is
/// left twice. Gives the pages that were read in the second lap, and the faults that had to wait for it.
fn lap(kept: u64) -> (u64, u64) {
    const PAGES: u64 = 4000;
    let policy = Policy::by_name("adaptive", policy::Config { frames: 2000, ..Default::default() });
    let mm = Mm::new(Config::live(2000, 8192), policy.expect("that is its name"));
    let mut world = World { mm, out: Actions::new() };
    let whole = Vpn(0)..Vpn(PAGES * (kept + 1) / kept);
    let (start, end) = (whole.start, whole.end);
    world.step(Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon });
    let pages = || (start.0..end.0).filter(|vpn| vpn % (kept + 1) != kept).map(Vpn);
    pages().for_each(|vpn| world.touch(vpn));
    for hole in (start.0..end.0).filter(|vpn| vpn % (kept + 1) == kept).map(Vpn) {
        world.step(Event::RegionRemoved { space: SPACE, start: hole, end: hole.offset(1) });
    }
    pages().for_each(|vpn| world.touch(vpn));
    let before = *world.mm.stats();
    pages().for_each(|vpn| world.touch(vpn));
    world.mm.check();
    let stats = world.mm.stats();
    (stats.pswpin - before.pswpin, stats.pgmajfault - before.pgmajfault)
}

/// *The story:* of a mapping in which every second page was unmapped each page that was left was a
/// region of its own. No window reached beyond it: 62,343 of 62,343 pages were waited for, one by one.
#[test]
fn a_reader_that_steps_over_holes_is_read_ahead_for() {
    for kept in [1, 2, 3, 7] {
        let (pages, waits) = lap(kept);
        println!("{kept} kept: {waits} waits for {pages} pages");
        assert!(pages > 1000, "{pages} pages are read");
        assert!(waits * 16 < pages, "{waits} waits for {pages} pages, {kept} of {} kept", kept + 1);
    }
}
