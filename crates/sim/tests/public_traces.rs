//! Traces as they are public: oracleGeneral, no stores, patterns of the LIRS suite (made here),
//! simulated with the defaults, under the kernel's rules, and by a plain LRU that is written down
//! here.
//!
//! *The story:* oracleGeneral says nothing of stores, so every page was empty, losing it cost
//! nothing, and `live` counted no fault whatever the RAM. What is new to the simulator must stand
//! where LRU and the kernel stand: within their order of misses, below LRU where a scan or a loop
//! ruins that, never far above it where LRU is best.
#![allow(missing_docs)]

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;

use overspill_mm::types::PAGE_SIZE;
use overspill_sim::device::params::Model;
use overspill_sim::engine::outcome::Outcome;
use overspill_sim::replace::{self, Touches};
use overspill_sim::rng::Rng;
use overspill_sim::sweep::{Extent, Machine, System, simulate};
use overspill_sim::trace::oracle::OracleWriter;
use overspill_sim::trace::workload::TraceWorkload;
use overspill_sim::trace::{AccessKind, AccessRecord, Record, RecordWriter};
use overspill_sim::workload::Workload;

/// Pages that the RAM holds.
const RAM: u64 = 2000;

/// The objects of a pattern, in order.
type Pattern = Vec<u64>;

/// Laps over a little more than RAM.
fn looping() -> Pattern {
    (0..40_000).map(|index| index % 2500).collect()
}

/// Up and down again.
fn zigzag() -> Pattern {
    let up_and_down = (0..2500).chain((1..2499).rev());
    up_and_down.cycle().take(40_000).collect()
}

/// A small set at random, and every 5000 accesses a scan over pages that never come again.
fn scans() -> Pattern {
    let mut rng = Rng::new(7);
    let hot = |rng: &mut Rng| rng.below(1500);
    (0..8)
        .flat_map(|lap| {
            let hot: Pattern = (0..5000).map(|_| hot(&mut rng)).collect();
            hot.into_iter().chain((0..1500).map(move |page| 10_000 + lap * 1500 + page)).collect::<Pattern>()
        })
        .collect()
}

/// An index of 1000 pages, a quarter of 12,000 data pages beside each: the suite's two pools.
fn two_pools() -> Pattern {
    let mut rng = Rng::new(11);
    (0..40_000).map(|index| if index % 2 == 0 { rng.below(1000) } else { 1000 + rng.below(12_000) }).collect()
}

/// A set that fits.
fn fitting() -> Pattern {
    (0..20_000).map(|index| index * 7919 % 1201).collect()
}

/// The misses of least recently used, by the book.
fn lru(pattern: &Pattern, frames: usize) -> u64 {
    let mut last_use: HashMap<u64, usize> = HashMap::new();
    let mut order: std::collections::BTreeMap<usize, u64> = std::collections::BTreeMap::new();
    let mut misses = 0;
    for (now, &page) in pattern.iter().enumerate() {
        match last_use.insert(page, now) {
            Some(before) => {
                order.remove(&before);
            }
            None => {
                misses += 1;
                if order.len() == frames {
                    let (_, oldest) = order.pop_first().expect("frames are not zero");
                    last_use.remove(&oldest);
                }
            }
        }
        order.insert(now, page);
    }
    misses
}

/// The pattern as a file of public kind: object numbers are hashes.
struct Trace(PathBuf);

impl Trace {
    fn new(name: &str, pattern: &Pattern) -> Trace {
        let path =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.bin", std::process::id()));
        let mut writer = OracleWriter::new(File::create(&path).expect("a file in the target directory"));
        for (index, object) in (0..).zip(pattern) {
            let vpn = object.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let time_ns = index / 1000 * 1_000_000_000;
            let access = AccessRecord { time_ns, vpn, thread: 0, space: 0, kind: AccessKind::Read };
            writer.write_record(&Record::Access(access)).expect("room on the disk");
        }
        writer.finish().expect("room on the disk");
        Trace(path)
    }

    fn open(&self) -> TraceWorkload {
        TraceWorkload::open(&self.0, None).expect("it is told by its beginning")
    }

    /// As `overspill sim` does it: with content where the trace knows no stores.
    fn simulate(&self, system: System) -> Outcome {
        let mut survey = self.open();
        let mut extent = Extent::default();
        extent.add(&mut survey).expect("what was written");
        assert!(!survey.has_stores() && survey.counts_seconds());
        let device = Model::builtin("nvme").expect("built in");
        let machine = Machine::new(system, RAM * PAGE_SIZE, "adaptive", device);
        let trace: Box<dyn Workload + Send> = Box::new(self.open().with_content(true));
        simulate(&machine, &extent, vec![trace]).expect("no error")
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Pages brought in: at their first touch, or from swap.
fn misses(outcome: &Outcome, pages: u64) -> u64 {
    pages + outcome.vmstat.pswpin
}

#[test]
fn lru_is_exact() {
    let frames = RAM as usize;
    assert_eq!(lru(&looping(), frames), 40_000, "every access of a loop that does not fit");
    assert_eq!(lru(&looping(), 2500), 2500, "and only the first where it does");
    assert_eq!(lru(&fitting(), frames), 1201);
    // Up and down: each turn finds the last 2000 pages, and misses the 500 beyond them at the other
    // end.
    let turns = (40_000 - 2500) / 2499;
    let part = (40_000 - 2500) % 2499_u64;
    assert_eq!(lru(&zigzag(), frames), 2500 + turns * 500 + part.saturating_sub(2000));
}

/// `--policy lru` is plain LRU, miss for miss, on whatever is read from a file of public kind.
#[test]
fn lru_of_the_simulator_is_that_by_the_book() {
    let patterns = [looping(), zigzag(), scans(), two_pools(), fitting()];
    for (number, pattern) in patterns.iter().enumerate() {
        let trace = Trace::new(&format!("exact-{number}"), pattern);
        let touches = Touches::of(vec![Box::new(trace.open())]).expect("what was written");
        for frames in [1, 500, RAM as u32, 2500] {
            let mut policy = replace::by_name("lru", frames, touches.pages()).expect("it is known");
            let misses = touches.misses(&mut *policy);
            assert_eq!(misses, lru(pattern, frames as usize), "pattern {number}, {frames} frames");
        }
    }
}

#[test]
fn public_patterns_miss_as_often_as_their_order_says() {
    let patterns = [
        ("loop", looping()),
        ("zigzag", zigzag()),
        ("scans", scans()),
        ("pools", two_pools()),
        ("fitting", fitting()),
    ];
    let mut found = Vec::new();
    for (name, pattern) in &patterns {
        let trace = Trace::new(name, pattern);
        let pages = pattern.iter().collect::<std::collections::HashSet<_>>().len() as u64;
        let of = |system| misses(&trace.simulate(system), pages);
        found.push((*name, lru(pattern, RAM as usize), of(System::Live), of(System::Kernel)));
    }
    // By misses, fewest first.
    let order = |by: fn(&(&'static str, u64, u64, u64)) -> u64, without: &str| -> Vec<&str> {
        let mut list: Vec<_> = found.iter().filter(|row| row.0 != without).collect();
        list.sort_by_key(|row| by(row));
        list.iter().map(|row| row.0).collect()
    };
    assert_eq!(
        order(|row| row.3, ""),
        order(|row| row.1, ""),
        "the kernel's rules are those of LRU: {found:?}"
    );
    assert_eq!(order(|row| row.2, "loop"), order(|row| row.1, "loop"), "live: {found:?}");
    for (name, lru, live, kernel) in &found {
        let near = |misses: &u64| (lru / 2..=lru * 2).contains(misses);
        assert!(near(kernel) && (near(live) || *name == "loop"), "{name}: {found:?}");
    }
    let (_, lru, live, _) = found[0];
    assert!(live * 2 < lru, "of a loop over a little more than RAM most stays: {found:?}");
}
