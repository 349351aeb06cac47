//! *The story:* 100 MiB in a budget of 20 with 64 of swap took twelve times as long as with swap
//! enough. What fits nowhere is in RAM, above the budget, and then not a frame was free: pages came
//! back one by one.

mod willing;

use std::collections::VecDeque;

use overspill_mm::readahead::policy::{Config as Knobs, NAMES, Policy};
use overspill_mm::readahead::{Mapping, Plan, SwapIn, Touch, Window};
use overspill_mm::types::{Access, RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm, State, Unmapped, Vmstat, Warning};

const SPACE: SpaceId = SpaceId(0);
const BUDGET: u32 = 1280;
const PAGES: u32 = 6400;
const LAPS: u32 = 4;

/// Laps over all pages, in a shell in which everything succeeds at once. The counters, the most
/// that was held, and whether swap was said to be full.
fn laps(config: Config) -> (Vmstat, u32, bool) {
    let policy = Policy::by_name(NAMES[0], Knobs { frames: BUDGET, ..Knobs::default() }).unwrap();
    let mut mm = Mm::new(config, policy);
    let (mut most, mut is_full) = (0, false);
    let mut now = 0;
    let mut step = |mm: &mut Mm<Policy>, event: Event| {
        let mut events = VecDeque::from([event]);
        let mut out = Actions::new();
        while let Some(event) = events.pop_front() {
            now += 1000;
            mm.step(now, event, &mut out);
            most = most.max(mm.frames_held());
            for action in out.drain() {
                is_full |= matches!(action, Action::Warn(Warning::SwapFull));
                events.extend(willing::answer(&action));
            }
        }
    };
    let end = Vpn(u64::from(PAGES));
    step(&mut mm, Event::RegionAdded { space: SPACE, start: Vpn(0), end, kind: RegionKind::Anon });
    for vpn in (0..LAPS * PAGES).map(|touch| Vpn(u64::from(touch % PAGES))) {
        let is_there = mm.lookup(SPACE, vpn).is_some_and(|id| mm.state(id) == State::Mapped);
        if !is_there {
            step(&mut mm, Event::Fault { space: SPACE, vpn, access: Access::Write });
        }
    }
    mm.check();
    (*mm.stats(), most, is_full)
}

/// *The story:* the float was used where budget and slots just hold the program, and nobody was told; nor
/// may whoever is to end with the budget pass it.
#[test]
fn who_is_held_by_all_slots_passes_the_budget_only_where_that_is_said() {
    let just = PAGES - BUDGET + 2;
    let (stats, most, is_full) = laps(Config::live(BUDGET, just + 1));
    assert!(most <= BUDGET || is_full, "{most} were held");
    let (strict, most, _) = laps(Config { floats: false, ..Config::live(BUDGET, just + 1) });
    assert!(most <= BUDGET, "{most} were held");
    assert!(stats.read_ops < strict.read_ops, "that is what the float is for");
}

/// Random stores over all pages. Whether swap was said to be full, and the most that was held.
fn random_stores(slots: u32) -> (bool, u32) {
    let policy = Policy::by_name(NAMES[0], Knobs { frames: BUDGET, ..Knobs::default() }).unwrap();
    let mut mm = Mm::new(Config::live(BUDGET, slots + 1), policy);
    let (mut is_full, mut most, mut random) = (false, 0, 1u64);
    let end = Vpn(u64::from(PAGES));
    let added = Event::RegionAdded { space: SPACE, start: Vpn(0), end, kind: RegionKind::Anon };
    let mut events = VecDeque::from([added]);
    let mut out = Actions::new();
    for now in 1..=4 * u64::from(PAGES) {
        while let Some(event) = events.pop_front() {
            mm.step(now * 1000, event, &mut out);
            most = most.max(mm.frames_held());
            for action in out.drain() {
                is_full |= matches!(action, Action::Warn(Warning::SwapFull));
                events.extend(willing::answer(&action));
            }
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let vpn = Vpn((random >> 33) % u64::from(PAGES));
        if mm.lookup(SPACE, vpn).is_none_or(|id| mm.state(id) != State::Mapped) {
            events.push_back(Event::Fault { space: SPACE, vpn, access: Access::Write });
        }
    }
    (is_full, most)
}

/// *The story:* with writes that end at once (into the compressed pool) the last slots were never
/// taken, as so many frames float; the budget was passed twice over, and nobody was told.
#[test]
fn what_fits_nowhere_is_told_though_some_slots_are_free() {
    let (is_full, most) = random_stores(PAGES / 4);
    assert!(is_full && most > 2 * BUDGET, "{most} were held");
    let (is_full, most) = random_stores(PAGES);
    assert!(!is_full && most <= BUDGET, "{most} were held");
}

/// With so many slots: no more than so many times the faults and reads.
fn overfull(slots: u32, times: u64) {
    let (enough, within, is_full) = laps(Config::live(BUDGET, 4 * PAGES));
    assert!(within <= BUDGET && !is_full);
    let (full, most, is_full) = laps(Config::live(BUDGET, slots + 1));
    assert!(is_full, "many pages have no slot");
    let faults = |stats: &Vmstat| stats.pgmajfault + stats.soft_fault;
    assert!(faults(&full) <= faults(&enough) * times, "{} and {}", faults(&full), faults(&enough));
    assert!(full.read_ops <= enough.read_ops * times, "{} and {}", full.read_ops, enough.read_ops);
    let must = PAGES - slots;
    assert!(most <= must + BUDGET / 8, "{most} were held, {must} had to be");
}

#[test]
fn a_full_swap_area_does_not_end_read_ahead() {
    overfull(4096, 2);
}

/// What floats is next to nothing then.
#[test]
fn nor_does_a_small_one() {
    overfull(1024, 4);
}

/// Each miss asks for 64 pages.
struct Large;

impl SwapIn for Large {
    type Region = ();

    fn cached(&mut self, (): &mut (), _: &Touch) -> Option<Plan> {
        None
    }

    fn miss(&mut self, (): &mut (), touch: &Touch) -> Option<Plan> {
        let window = Window::Pages { start: touch.vpn, stride: 1, count: 64 };
        Some(Plan { window, marker: None, mapping: Mapping::OnTouch, passed: None, wanted_first: false })
    }

    fn unused(&mut self, (): &mut (), _: Vpn) {}
}

/// Found by reading: where swap was nearly full, and what was in RAM locked, windows came above the
/// budget that were larger than what floats.
#[test]
fn what_is_locked_where_swap_is_nearly_full_comes_by_what_floats() {
    const FRAMES: u32 = 160;
    const FLOAT: u32 = FRAMES / 8;
    let (slots, end) = (2 * FRAMES, Vpn(u64::from(4 * FRAMES)));
    let mut mm = Mm::new(Config::live(FRAMES, slots + 1), Large);
    let mut out = Actions::new();
    let added = Event::RegionAdded { space: SPACE, start: Vpn(0), end, kind: RegionKind::Anon };
    let mut events = VecDeque::from([added]);
    let mut windows = 0;
    for touch in 0..2 * end.0 {
        let (vpn, is_locked) = (Vpn(touch % end.0), touch >= end.0);
        if mm.lookup(SPACE, vpn).is_none_or(|id| mm.state(id) != State::Mapped) {
            events.push_back(Event::Fault { space: SPACE, vpn, access: Access::Write });
        }
        while let Some(event) = events.pop_front() {
            let is_nearly_full = slots - mm.slots_used() < FLOAT;
            mm.step(touch * 1000, event, &mut out);
            let mut pages = 0;
            for action in out.drain() {
                match action {
                    Action::Unmap { run } if is_locked => {
                        events.push_back(Event::Unmapped { run, result: Unmapped::default() });
                        continue;
                    }
                    Action::Read { run, .. } => pages += run.count,
                    _ => {}
                }
                events.extend(willing::answer(&action));
            }
            if is_locked && is_nearly_full {
                windows += u32::from(pages > 0);
                assert!(pages <= FLOAT, "{pages} pages come at once");
            }
        }
        mm.check();
    }
    assert!(windows > 1, "swap was nearly full while something was read");
}
