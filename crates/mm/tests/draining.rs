//! An area that is to go while the others have no room for what is in it: the program goes on as
//! before, and the area is left when there is room.
//!
//! *The story:* its pages gave their slots up as they came back, with no other slot to be had. They
//! stayed in RAM, above the budget, and swap was said to be full: `--on-full kill` ended the program.
//!
//! Also here: areas that fail, alone, beside another and while another leaves.

mod willing;

use std::collections::{BTreeSet, VecDeque};

use overspill_mm::readahead::policy::{Config as Knobs, NAMES, Policy};
use overspill_mm::types::{Access, PageId, RegionKind, SpaceId, Vpn};
use overspill_mm::{
    Action, Actions, AreaConfig, AreaId, Config, Event, IoId, Mm, Run, State, Unmapped, Warning, WriteResult,
};

const SPACE: SpaceId = SpaceId(0);
const BUDGET: u32 = 1280;
const PAGES: u32 = 4000;
const FIRST: AreaId = AreaId(0);
const SECOND: AreaId = AreaId(1);

struct World {
    mm: Mm<Policy>,
    random: u64,
    now: u64,
    most: u32,
    is_full: bool,
    left: Option<u32>,
    /// The next write to this area ends so.
    next_write: Option<(AreaId, WriteResult)>,
    /// Areas that were said to have failed.
    failed: u32,
    /// Writes that do not end by themselves, and pages whose bytes were at hand when their area failed.
    held_writes: Option<Vec<(IoId, Run)>>,
    at_hand: BTreeSet<PageId>,
    /// Reads of these pages do not end.
    unread: BTreeSet<PageId>,
    /// ... or fail.
    unreadable: BTreeSet<PageId>,
    /// What is stored is what was there.
    is_idle: bool,
}

impl World {
    /// All pages were touched, and lie in the first area or in RAM.
    fn new() -> World {
        let policy = Policy::by_name(NAMES[0], Knobs { frames: BUDGET, ..Knobs::default() }).unwrap();
        let config = Config { compares: true, ..Config::live(BUDGET, 2 * PAGES) };
        let mm = Mm::new(config, policy);
        let mut world = World {
            mm,
            random: 1,
            now: 0,
            most: 0,
            is_full: false,
            left: None,
            next_write: None,
            failed: 0,
            held_writes: None,
            at_hand: BTreeSet::new(),
            unread: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            is_idle: false,
        };
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
                self.failed += u32::from(action == Action::Warn(Warning::AreaRetired));
                if let Action::AreaLeft { area: FIRST, slots } = action {
                    self.left = Some(slots);
                }
                match action {
                    Action::Write { io, run, slot }
                        if self.mm.area_of(slot) == FIRST
                            && let Some(held) = &mut self.held_writes =>
                    {
                        held.push((io, run));
                        continue;
                    }
                    Action::Read { run, .. } if run.pages().any(|id| self.unread.contains(&id)) => continue,
                    Action::Read { run, slot, .. } if self.mm.area_of(slot) == FIRST => {
                        assert!(run.pages().all(|id| !self.at_hand.contains(&id)), "its bytes were at hand");
                    }
                    _ => {}
                }
                let answer = self.bad_write(&action).or_else(|| self.bad_read(&action));
                let answer = answer.or_else(|| self.same(&action));
                events.extend(answer.or_else(|| willing::answer(&action)));
            }
        }
    }

    fn bad_write(&mut self, action: &Action) -> Option<Event> {
        let Action::Write { io, slot, .. } = *action else { return None };
        let (_, result) = self.next_write.take_if(|(area, _)| self.mm.area_of(slot) == *area)?;
        Some(Event::WriteDone { io, result })
    }

    fn bad_read(&self, action: &Action) -> Option<Event> {
        let Action::Read { io, run, .. } = *action else { return None };
        let is_bad = run.pages().any(|id| self.unreadable.contains(&id));
        is_bad.then_some(Event::ReadDone { io, ok: false })
    }

    /// Pages that have slots are as those are.
    fn same(&self, action: &Action) -> Option<Event> {
        let Action::Unmap { run } = *action else { return None };
        let mut result = Unmapped { taken: u64::MAX >> (64 - run.count), ..Unmapped::default() };
        let bits = run.pages().enumerate().map(|(at, id)| u64::from(self.mm.slot(id).is_some()) << at);
        result.same = bits.sum();
        self.is_idle.then_some(Event::Unmapped { run, result })
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

/// *The story:* that an area had failed counted as if it had been said that swap is full. Of the only one
/// nobody heard more: `--strict` and `--on-full` did nothing, and the program grew until the kernel
/// ended it.
#[test]
fn the_only_area_that_fails_leaves_swap_full() {
    let mut world = World::new();
    world.next_write = Some((FIRST, WriteResult::Failed));
    world.stores(2000);
    assert_eq!((world.next_write, world.failed, world.is_full), (None, 1, true));
}

/// *The story:* the slots of a write that found no room were taken for bad ones. A file system that was full
/// for a moment, again and again, left an area without a slot.
#[test]
fn no_slot_is_lost_to_a_file_system_that_was_full() {
    let mut world = World::new();
    for _ in 0..4000 {
        world.next_write = Some((FIRST, WriteResult::NoSpace));
        while world.next_write.is_some() {
            world.stores(5);
        }
        assert!(world.mm.is_area_closed(FIRST));
        world.mm.reopen_area(FIRST);
    }
    world.stores(5000);
    (world.is_full, world.most) = (false, 0);
    world.stores(5000);
    assert!(!world.is_full && world.most <= BUDGET, "{} were held", world.most);
}

/// *The story:* an area was leaving by order when the other one took no more. Swap was said to be full,
/// and the leaving one, with all its free slots, was open again at the end of the same step. A device
/// that failed was worse: that swap is full was never said again, whenever it was.
#[test]
fn who_leaves_stays_when_nobody_else_takes_pages() {
    for result in [WriteResult::NoSpace, WriteResult::Failed] {
        let mut world = World::new();
        world.add(2 * PAGES);
        world.next_write = Some((SECOND, result));
        world.feed(Event::AreaLeaves { area: FIRST });
        world.stores(1000);
        assert_eq!(world.next_write, None, "a write went there");
        assert!(!world.is_full, "{result:?}: the first one has room");
        assert!(world.most <= BUDGET, "{result:?}: {} were held", world.most);
        world.stores(10_000);
        assert!(!world.is_full && world.most <= BUDGET, "{result:?}: {} were held", world.most);
        assert!(world.mm.waits_for_room() && world.left.is_none());
        world.next_write = Some((FIRST, WriteResult::NoSpace));
        world.stores(2000);
        assert!(world.is_full, "{result:?}: now nobody has");
    }
}

/// What the pool had for an area failed there: `mm` hears of it.
///
/// *The story* (by reading): the area was only asked to leave, and waited until there was room for all
/// that the program has. Meanwhile it was held to take pages, and what could be read stayed there.
#[test]
fn what_fits_elsewhere_is_brought_out_of_an_area_that_has_failed() {
    let mut world = World::new();
    world.add(1000);
    let (there, room) = world.mm.areas_beside(FIRST);
    assert!(room < there, "{there} pages, and room for {room}");
    world.feed(Event::AreaFailed { area: FIRST });
    assert!(!world.mm.takes_pages(FIRST) && world.mm.has_area_failed(FIRST));
    (0..100).for_each(|_| world.feed(Event::Tick));
    let (left, room) = world.mm.areas_beside(FIRST);
    assert!(
        left + 900 < there && room < 100,
        "{left} pages of {there} are there, and there is room for {room}"
    );
    world.feed(Event::AreaFailed { area: FIRST });
    world.feed(Event::AreaLeaves { area: FIRST });
    world.stores(3000);
    assert_eq!(world.failed, 1, "that is said once");
    assert!(!world.mm.takes_pages(FIRST) && !world.mm.waits_for_room() && world.is_full);
}

/// *The story* (by reading): clean pages in the swap cache went out to a device that was known to have
/// failed, and had to be read back from there to be rescued; so did what was on its way there.
#[test]
fn what_is_at_hand_when_an_area_fails_is_not_left_to_it() {
    let mut world = World::new();
    world.add(2 * PAGES);
    world.is_idle = true;
    world.stores(2000);
    world.is_idle = false;
    world.held_writes = Some(Vec::new());
    let in_flight = |world: &World| world.held_writes.as_ref().map_or(0, Vec::len);
    while in_flight(&world) < 2 {
        world.stores(1);
    }
    world.is_idle = true;
    world.stores(200);
    let held = world.held_writes.take().expect("they are held");
    let is_there =
        |world: &World, &id: &PageId| world.mm.slot(id).is_some_and(|slot| world.mm.area_of(slot) == FIRST);
    let has_frame = |world: &World, &id: &PageId| {
        matches!(world.mm.state(id), State::Cached | State::Mapped | State::Writing)
    };
    world.at_hand =
        world.mm.known_pages().filter(|id| is_there(&world, id) && has_frame(&world, id)).collect();
    let clean = world.at_hand.iter().filter(|&&id| world.mm.state(id) == State::Cached).count();
    assert!(clean > 10, "only {clean} are in the cache");
    let is_out = |world: &World, id: &PageId| world.mm.state(*id) == State::Swapped && is_there(world, id);
    // The drain is held up.
    world.mm.settle_transfers(true);
    let mut result = WriteResult::Failed;
    for (io, run) in held {
        world.feed(Event::WriteDone { io, result });
        assert!(!run.pages().any(|id| is_out(&world, &id)), "{result:?}: what is written is at hand");
        result = WriteResult::Done;
    }
    world.feed(Event::Budget { frames: BUDGET / 2 });
    assert!(world.mm.frames_held() <= BUDGET / 2, "many have left");
    let out = world.at_hand.iter().filter(|&id| is_out(&world, id)).count();
    assert_eq!(out, 0, "they went to where they have to be read");
    world.mm.settle_transfers(false);
    world.feed(Event::Budget { frames: BUDGET });
    world.stores(3000);
    assert_eq!((world.left, world.mm.areas_beside(FIRST).0), (Some(0), 0));
}

/// *The story* (by reading): an area's pages were read for as long as fewer than 64 reads were under way, the
/// program's own among them, and a round ended when none was. Beside a stream nothing was brought out of
/// a device that fails. And an area that waited for a read kept the next one waiting.
#[test]
fn draining_goes_on_beside_a_stream_and_beside_another_area() {
    let mut world = World::new();
    let is_out = |world: &World, id: &PageId| world.mm.state(*id) == State::Swapped;
    let out: Vec<PageId> = world.mm.known_pages().filter(|id| is_out(&world, id)).collect();
    // So that there are frames for both.
    world.feed(Event::Budget { frames: 2 * BUDGET });
    let vpn = |world: &World, id: PageId| world.mm.place(id).1;
    let (start, end) = (vpn(&world, out[0]), vpn(&world, out[0]).offset(200));
    world.unread = out.iter().copied().filter(|&id| (start..end).contains(&vpn(&world, id))).collect();
    world.feed(Event::WillNeed { space: SPACE, start, end });
    let under_way = world.mm.in_flight();
    assert!(under_way >= 100, "only {under_way} reads are under way");
    world.add(2 * PAGES);
    world.feed(Event::AreaFailed { area: FIRST });
    (0..100).for_each(|_| world.feed(Event::Tick));
    assert_eq!(world.mm.areas_beside(FIRST).0, under_way, "only what is under way is there");
    // What is read for the first area does not end, either.
    world.add(2 * PAGES);
    world.feed(Event::AreaFailed { area: SECOND });
    world.stores(3000);
    assert_eq!(world.mm.areas_beside(SECOND).0, 0, "and that keeps nobody waiting");
}

/// *The story:* a place was left but for one page that could not be read. It was held, with its lock, until
/// the run ended: the program freed that page, or was told of it, and nobody looked.
#[test]
fn what_cannot_be_read_holds_an_area_until_its_owner_has_gone_or_was_told() {
    for is_told in [false, true] {
        let mut world = World::new();
        let is_out = |world: &World, id: &PageId| world.mm.state(*id) == State::Swapped;
        let out: Vec<PageId> = world.mm.known_pages().filter(|id| is_out(&world, id)).collect();
        let bad = [out[100], out[900]];
        world.unreadable.extend(bad);
        world.add(2 * PAGES);
        world.feed(Event::AreaLeaves { area: FIRST });
        for _ in 0..300 {
            world.feed(Event::Tick);
        }
        assert_eq!((world.left.take(), world.mm.areas_beside(FIRST).0), (Some(2), 2));
        for (id, left) in bad.into_iter().zip([None, Some(0)]) {
            let (_, vpn) = world.mm.place(id);
            world.feed(if is_told {
                Event::Fault { space: SPACE, vpn, access: Access::Read }
            } else {
                Event::Discarded { space: SPACE, start: vpn, end: vpn.offset(1) }
            });
            assert_eq!(world.mm.is_lost(id), is_told);
            world.feed(Event::Tick);
            assert_eq!(world.left, left, "told: {is_told}");
        }
        assert_eq!(world.mm.areas_beside(FIRST).0, if is_told { 2 } else { 0 });
        // What is told of may be touched again, and go.
        let (_, vpn) = world.mm.place(bad[0]);
        world.feed(Event::Fault { space: SPACE, vpn, access: Access::Read });
        world.feed(Event::Discarded { space: SPACE, start: vpn, end: vpn.offset(1) });
        world.unreadable.clear();
        world.stores(2000);
    }
}
