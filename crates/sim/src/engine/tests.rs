//! What programs may be like: many threads, many spaces, regions of any size and at any time.

use super::*;
use crate::time::LAST;
use crate::workload::{Access as Touch, Listed};
use overspill_mm::readahead::none::NoReadAhead;

/// A list, the regions that it has from the beginning, and one that it comes to.
struct Declared {
    list: Listed,
    regions: Vec<RegionSpec>,
    late: Vec<RegionSpec>,
}

impl Workload for Declared {
    fn next(&mut self) -> Result<Option<Touch>, WorkloadError> {
        self.list.next()
    }

    fn regions(&self) -> Vec<RegionSpec> {
        self.regions.clone()
    }

    fn take_regions(&mut self) -> Vec<RegionSpec> {
        std::mem::take(&mut self.late)
    }
}

fn touch(thread: u16, space: u16, vpn: u64) -> Touch {
    Touch { vpn, think_ns: 100, thread, space, write: true }
}

fn engine() -> Engine<NoReadAhead> {
    let device = Model::builtin("nvme").expect("a model");
    Engine::new(Options { shadow: true, ..Options::live(1 << 12, 1 << 16, device) }, NoReadAhead)
}

fn run(list: Vec<Touch>, regions: Vec<RegionSpec>, late: Vec<RegionSpec>) -> (Engine<NoReadAhead>, Outcome) {
    let mut engine = engine();
    let list = Listed::new(list);
    engine.add(Box::new(Declared { list, regions, late })).expect("a program");
    let outcome = engine.run().expect("it ends");
    (engine, outcome)
}

/// *The story:* one access to the last space of all was a panic, and so were two programs with more
/// than 65,535 together.
#[test]
fn spaces_are_numbered_as_they_are_seen() {
    let (engine, outcome) = run(vec![touch(0, u16::MAX, 5), touch(0, 3, 5)], vec![], vec![]);
    assert_eq!((outcome.accesses, engine.space_count), (2, 2));
    let mut engine = self::engine();
    for source in 0..2 {
        engine.add(Box::new(Listed::default())).expect("a program");
        let seen: Result<Vec<u16>, _> = (0..40_000).map(|space| engine.space(source, space)).collect();
        assert_eq!(seen.is_ok(), source == 0);
    }
    let error = engine.space(1, 39_999).expect_err("too many").to_string();
    assert_eq!(error, "more than 65,535 address spaces");
}

/// *The story:* a trace whose last time was the last of all numbers was at its beginning again when it was
/// there.
#[test]
fn times_without_end_come_to_an_end() {
    let never = |touch: Touch| Touch { think_ns: u64::MAX, ..touch };
    let list = vec![touch(0, 0, 5), never(touch(0, 0, 6)), never(touch(1, 0, 7)), never(touch(0, 0, 8))];
    let (_, outcome) = run(list, vec![], vec![]);
    assert_eq!(outcome.accesses, 4);
    assert!((LAST..LAST + LAST / 2).contains(&outcome.elapsed_ns), "{} ns", outcome.elapsed_ns);
}

/// *The story:* each piece of a thread's run looked at all threads: 20,000 of them never ended.
#[test]
fn twenty_thousand_threads_end() {
    let accesses = (0..80_000_u32).map(|index| touch((index % 20_000) as u16, 0, u64::from(index % 512)));
    let (_, outcome) = run(accesses.collect(), vec![], vec![]);
    assert_eq!((outcome.accesses, outcome.threads.len()), (80_000, 20_000));
}

/// *The story:* a reserved heap of many TiB got a place for each of its 2 MiB before it was touched.
#[test]
fn a_region_costs_what_is_touched_of_it() {
    let region = RegionSpec { space: 0, start: 512, end: 1 << 35, kind: RegionKind::Anon };
    let (engine, _) = run(vec![touch(0, 0, 600), touch(0, 0, 1 << 34)], vec![region], vec![]);
    assert_eq!(engine.memory.chunk_count(), 2);
}

/// *The story:* a touch of a page that shares its 2 MiB with a region, and is not of it, was
/// answered and tried again for ever.
#[test]
fn a_page_beside_a_region_is_one_too() {
    let region = RegionSpec { space: 0, start: 10, end: 20, kind: RegionKind::Shared };
    let (_, outcome) = run(vec![touch(0, 0, 15), touch(0, 0, 25), touch(0, 0, 5)], vec![region], vec![]);
    assert_eq!(outcome.accesses, 3);
}

#[test]
fn a_region_that_comes_late_is_declared() {
    let late = RegionSpec { space: 7, start: 9000, end: 9010, kind: RegionKind::Shared };
    let (engine, _) = run(vec![touch(0, 0, 5), touch(0, 7, 9001)], vec![], vec![late]);
    let space = SpaceId(engine.spaces[0][7].expect("it was seen"));
    assert_eq!(engine.mm.region_at(space, Vpn(9001)), Some((Vpn(9000), Vpn(9010), RegionKind::Shared)));
}
