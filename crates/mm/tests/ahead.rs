//! Room is made before it is needed, by small batches, while the shell has nothing else to do.

mod willing;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::{RegionKind, SpaceId, Vpn};
use overspill_mm::{Action, Actions, Config, Event, Mm};

const SPACE: SpaceId = SpaceId(0);
const BUDGET: u32 = 1 << 16;

/// Feeds an event and answers its unmaps. Returns the pages of each write, and ends the writes if
/// `writes_end`.
fn feed(mm: &mut Mm<NoReadAhead>, event: Event, writes_end: bool) -> Vec<u32> {
    let mut events = vec![event];
    let mut written = Vec::new();
    let mut out = Actions::new();
    while let Some(event) = events.pop() {
        mm.step(0, event, &mut out);
        for action in out.drain() {
            if let Action::Write { run, .. } = action {
                written.push(run.count);
                if !writes_end {
                    continue;
                }
            }
            events.extend(willing::answer(&action));
        }
        mm.check();
    }
    written
}

/// All of the budget but `free` frames is in view.
fn machine(free: u32) -> Mm<NoReadAhead> {
    let mut mm = Mm::new(Config::live(BUDGET, 1 << 18), NoReadAhead);
    let (start, end) = (Vpn(0), Vpn(u64::from(BUDGET)));
    feed(&mut mm, Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon }, true);
    let end = Vpn(u64::from(BUDGET - free));
    feed(&mut mm, Event::Resident { space: SPACE, start, end }, true);
    mm
}

#[test]
fn small_writes_make_room_while_there_is_time() {
    let mut mm = machine(200);
    let free = |mm: &Mm<NoReadAhead>| BUDGET - mm.frames_held();
    assert_eq!(feed(&mut mm, Event::Tick, true), [], "nothing has to be done yet");
    assert!(mm.has_idle_work());
    let written = feed(&mut mm, Event::Idle, true);
    assert!(!written.is_empty() && written.iter().all(|&pages| pages <= 32), "{written:?}");
    assert!((225..=300).contains(&free(&mm)), "{} frames are free", free(&mm));
    assert!(!mm.has_idle_work(), "it comes to rest");
}

#[test]
fn what_is_being_written_counts_as_made() {
    let mut mm = machine(200);
    assert!(!feed(&mut mm, Event::Idle, false).is_empty());
    assert!(!mm.has_idle_work());
    assert_eq!(feed(&mut mm, Event::Tick, false), [], "other events do not go on with it");
}

#[test]
fn enough_is_left_alone() {
    assert!(!machine(250).has_idle_work());
    let mut paused = machine(200);
    feed(&mut paused, Event::Pause, true);
    assert!(!paused.has_idle_work());
}

/// Found by the simulator (seed 2): without room between the watermarks there was always something
/// to do, and nothing was done.
#[test]
fn it_comes_to_rest_without_room_between_the_watermarks() {
    let mut mm = Mm::new(Config { low: 9, high: 9, ..Config::live(104, 8192) }, NoReadAhead);
    let (start, end) = (Vpn(0), Vpn(1024));
    feed(&mut mm, Event::RegionAdded { space: SPACE, start, end, kind: RegionKind::Anon }, true);
    feed(&mut mm, Event::Resident { space: SPACE, start, end: Vpn(95) }, true);
    let mut turns = 0;
    while mm.has_idle_work() {
        feed(&mut mm, Event::Idle, true);
        turns += 1;
        assert!(turns < 10, "a shell without anything else to do never comes to rest");
    }
    assert!(104 - mm.frames_held() >= 9);
}
