//! Regions with holes: what a program that unmaps a few pages here and there gets back by windows.

mod willing;

use overspill_mm::readahead::policy::{self, Policy};
use overspill_mm::readahead::{Mapping, Plan, SwapIn, Touch, Window};
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Actions, Config, Event, Mm, State};

const SPACE: SpaceId = SpaceId(0);

/// A machine and how its touches went.
struct World<P: SwapIn> {
    mm: Mm<P>,
    out: Actions,
}

impl<P: SwapIn> World<P> {
    /// All of a region was filled, of which a part is in RAM.
    fn filled(policy: P, budget: u32, pages: u64) -> Self {
        let mut world = World { mm: Mm::new(Config::live(budget, 8192), policy), out: Actions::new() };
        world.step(Event::RegionAdded {
            space: SPACE,
            start: Vpn(0),
            end: Vpn(pages),
            kind: RegionKind::Anon,
        });
        (0..pages).for_each(|vpn| world.touch(Vpn(vpn)));
        world
    }

    fn unmap(&mut self, pages: core::ops::Range<u64>) {
        self.step(Event::RegionRemoved { space: SPACE, start: Vpn(pages.start), end: Vpn(pages.end) });
        self.mm.check();
    }

    fn step(&mut self, event: Event) {
        let mut events = std::collections::VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.mm.step(self.mm.stats().pgfault * 1000, event, &mut self.out);
            events.extend(self.out.drain().filter_map(|action| willing::answer(&action)));
        }
    }

    fn touch(&mut self, vpn: Vpn) {
        let is_mapped = |mm: &Mm<P>| mm.lookup(SPACE, vpn).is_some_and(|id| mm.state(id) == State::Mapped);
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

/// Windows of eight pages that are mapped together, with the mark on the last.
struct Eights;

/// What a region saw of them.
#[derive(Default)]
struct Seen {
    marks: Vec<u64>,
    told: u32,
}

impl Eights {
    fn from(start: Vpn) -> Plan {
        let window = Window::Pages { start, stride: 1, count: 8 };
        Plan {
            window,
            marker: Some(start.offset(7)),
            mapping: Mapping::Together,
            passed: None,
            wanted_first: false,
        }
    }
}

impl SwapIn for Eights {
    type Region = Seen;

    fn cached(&mut self, region: &mut Seen, touch: &Touch) -> Option<Plan> {
        if touch.marker {
            region.marks.push(touch.vpn.0);
        }
        touch.marker.then(|| Eights::from(touch.vpn.offset(1)))
    }

    fn miss(&mut self, _: &mut Seen, touch: &Touch) -> Option<Plan> {
        Some(Eights::from(touch.vpn))
    }

    fn unused(&mut self, _: &mut Seen, _: Vpn) {}

    fn issued(&mut self, region: &mut Seen, _: &Plan, _: u32) {
        region.told += 1;
    }

    fn spans_holes(&self) -> bool {
        true
    }
}

/// Found by reading: a bet is judged by its mark, which is its last page. Where that lay in a hole nobody
/// had the mark, and what was used to the last page was taken for read in vain.
#[test]
fn a_window_that_ends_in_a_hole_is_marked_before_it() {
    let mut world = World::filled(Eights, 200, 1000);
    world.mm.region(SPACE, Vpn(0)).unwrap().1.marks.clear();
    world.unmap(7..8);
    world.unmap(5..6);
    [0, 1, 2, 3, 4, 6].into_iter().for_each(|vpn| world.touch(Vpn(vpn)));
    assert_eq!(world.mm.region(SPACE, Vpn(0)).unwrap().1.marks, [6]);
}

/// Found by reading: whom a plan that began in a hole was told of was found by that hole, in which two
/// regions could lie: here the first one heard of a plan of the second.
#[test]
fn who_asked_is_told_of_its_plan() {
    let mut world = World::filled(Eights, 200, 1000);
    world.unmap(704..705);
    world.unmap(100..400);
    let told = |world: &mut World<Eights>, vpn| world.mm.region(SPACE, Vpn(vpn)).unwrap().1.told;
    let (left, right) = (told(&mut world, 0), told(&mut world, 696));
    world.touch(Vpn(696));
    world.touch(Vpn(703));
    assert_eq!(world.mm.region(SPACE, Vpn(703)).unwrap().1.marks, [703], "its plan begins in the hole");
    assert_eq!((told(&mut world, 0), told(&mut world, 696)), (left, right + 2));
}

/// Found by reading: whether a region goes on over a hole was asked once. Policies can be exchanged.
#[test]
fn a_hole_is_what_the_policy_takes_it_for_now() {
    let named = |name| Policy::by_name(name, policy::Config { frames: 2000, ..Default::default() }).unwrap();
    for (before, now, spans) in [("adaptive", "vma", false), ("vma", "adaptive", true)] {
        let mut world = World::filled(named(before), 2000, 1000);
        *world.mm.policy_mut() = named(now);
        world.mm.region(SPACE, Vpn(0)).unwrap().1.overrides.page_cluster = Some(5);
        world.unmap(500..501);
        let right = world.mm.region(SPACE, Vpn(501)).unwrap().1.overrides.page_cluster;
        assert_eq!(right == Some(5), spans, "{now}");
    }
}
