//! The policy against generated loads, in the simulator of `testing`, beside the kernel's.
//!
//! Every threshold is asserted for a budget of 9/10 and of 1/2 of the region. `cargo test -p
//! overspill-mm --release adaptive::tests::table -- --ignored --nocapture` prints the whole table.

use super::super::linux::Linux;
use super::super::none::NoReadAhead;
use super::super::testing::{Counts, Random, Sim};
use super::super::{SwapIn, Touch, Window};
use super::stream::{PROVEN, Stream};
use super::{Adaptive, Config};
use crate::types::{RegionKind, Vpn};

/// Pages of the region, and the first.
const PAGES: u64 = 25_600;
const START: u64 = 100_000;
/// 9/10 and 1/2 of the region.
const BUDGETS: [usize; 2] = [23_040, 12_800];

type Load = Vec<u64>;

fn adaptive(frames: usize) -> Sim<Adaptive> {
    Sim::new(
        Adaptive { config: Config::new(256, frames as u32), ..Adaptive::default() },
        START,
        PAGES,
        frames,
    )
}

fn linux(frames: usize) -> Sim<Linux> {
    Sim::new(Linux::new(3, true, false, false), START, PAGES, frames)
}

fn none(frames: usize) -> Sim<NoReadAhead> {
    Sim::new(NoReadAhead, START, PAGES, frames)
}

/// Counts and virtual time of a load, given as offsets into the region.
fn run<P: SwapIn>(mut sim: Sim<P>, load: &Load) -> (Counts, u64) {
    sim.run(load.iter().map(|page| START + page));
    (sim.counts, sim.now)
}

fn ascending() -> Load {
    (0..PAGES).collect()
}

fn descending() -> Load {
    (0..PAGES).rev().collect()
}

/// `count` sequential streams, one touch of each in turn.
fn streams(count: u64) -> Load {
    let part = PAGES / count;
    (0..part).flat_map(|page| (0..count).map(move |stream| stream * part + page)).collect()
}

/// Every `stride`th page, once for each offset: all pages in the end.
fn strided(stride: u64) -> Load {
    (0..stride).flat_map(|first| (first..PAGES).step_by(stride as usize)).collect()
}

fn random(touches: u64, seed: u64) -> Load {
    let mut random = Random(seed);
    (0..touches).map(|_| random.below(PAGES)).collect()
}

/// After each touch of `load`, `count` random ones with a chance of one in `of`.
fn beside_random(load: Load, count: usize, of: u64) -> Load {
    let mut random = Random(3);
    let mut mixed = Vec::new();
    for page in load {
        mixed.push(page);
        let some = if random.below(of) == 0 { count } else { 0 };
        mixed.extend((0..some).map(|_| random.below(PAGES)));
    }
    mixed
}

/// Runs of `length` pages at random places.
fn runs(length: u64) -> Load {
    let mut random = Random(5);
    let starts = (0..PAGES / length * 2).map(|_| random.below(PAGES - length)).collect::<Vec<_>>();
    starts.into_iter().flat_map(|start| start..start + length).collect()
}

/// Ascending, each page with a chance of one in `of`.
fn sparse(of: u64) -> Load {
    let mut random = Random(9);
    ascending().into_iter().filter(|_| random.below(of) == 0).collect()
}

fn phases() -> Load {
    let part = (PAGES / 2) as usize;
    let mut load = Vec::new();
    for round in 0..4 {
        load.extend(ascending().into_iter().cycle().skip(round * part).take(part));
        load.extend(random(PAGES / 4, round as u64));
        load.extend(descending().into_iter().take(part));
        load.extend(strided(16).into_iter().skip(round * part).take(part / 4));
        load.extend(streams(4).into_iter().take(part));
    }
    load
}

fn loads() -> Vec<(&'static str, Load)> {
    vec![
        ("sequential, 3 rounds", ascending().repeat(3)),
        ("descending, 3 rounds", descending().repeat(3)),
        ("4 streams, 3 rounds", streams(4).repeat(3)),
        ("12 streams, 3 rounds", streams(12).repeat(3)),
        ("24 streams, 3 rounds", streams(24).repeat(3)),
        ("stride 4, 2 rounds", strided(4).repeat(2)),
        ("stride 16, 2 rounds", strided(16).repeat(2)),
        ("stride 64, 2 rounds", strided(64).repeat(2)),
        ("pages 0,1,4,5,8,9,..", (0..PAGES).filter(|page| page % 4 < 2).collect::<Load>().repeat(3)),
        ("sequential + random 1:1", beside_random(ascending(), 1, 1)),
        ("sequential + random 16:1", beside_random(ascending().repeat(3), 1, 16)),
        ("4 streams + 8 random", beside_random(streams(4), 8, 4)),
        ("uniform random", random(3 * PAGES, 1)),
        ("phases", phases()),
        ("runs of 4", runs(4)),
        ("runs of 64", runs(64)),
        ("1 of 2, ascending", sparse(2).repeat(3)),
        ("1 of 4, ascending", sparse(4).repeat(3)),
        ("ascending with jitter", jitter()),
    ]
}

fn jitter() -> Load {
    let mut random = Random(8);
    ascending().into_iter().map(|page| (page + random.below(8)).min(PAGES - 1)).collect::<Load>().repeat(2)
}

#[test]
#[ignore = "prints a table, asserts nothing"]
fn table() {
    for frames in BUDGETS {
        eprintln!("\n{PAGES} pages, {frames} frames: misses / soft faults / pages read / in vain %, time ms");
        for (name, load) in loads() {
            let row = |(counts, time): (Counts, u64)| {
                let Counts { misses, soft, read, .. } = counts;
                let vain = counts.vain();
                format!("{misses:6} {soft:6} {read:6} {:3}.{} {:5}", vain / 10, vain % 10, time / 1_000_000)
            };
            let (ours, kernel, single) =
                (run(adaptive(frames), &load), run(linux(frames), &load), run(none(frames), &load));
            let gain = kernel.1 * 100 / ours.1;
            eprintln!(
                "{name:25} adaptive {} | linux {} | none {} | x {}.{:02}",
                row(ours),
                row(kernel),
                row(single),
                gain / 100,
                gain % 100
            );
        }
    }
}

/// Asserts that the load has at most `faults` misses, that soft faults are below `soft` and pages
/// in vain below `vain` of 1000, and that it runs at least `gain` tenths as fast as with the
/// kernel's policy.
fn check(name: &str, load: &Load, faults: u64, soft: u64, vain: u64, gain: u64) {
    for frames in BUDGETS {
        let (ours, time) = run(adaptive(frames), load);
        let (_, kernel) = run(linux(frames), load);
        assert!(ours.misses <= faults, "{name}, {frames} frames: {ours:?}");
        assert!(ours.soft <= soft, "{name}, {frames} frames: {ours:?}");
        assert!(ours.vain() <= vain, "{name}, {frames} frames: {ours:?}");
        assert!(kernel * 10 >= time * gain, "{name}, {frames} frames: {time} against {kernel}");
    }
}

#[test]
fn sequential_either_way() {
    check("ascending", &ascending().repeat(3), 8, 700, 1, 100);
    check("descending", &descending().repeat(3), 8, 700, 1, 100);
}

#[test]
fn a_sequential_reader_that_is_no_faster_than_the_device_waits_only_at_the_start() {
    let mut sim = adaptive(BUDGETS[0]);
    sim.pace = 3_000;
    let first = sim.run(START..START + 1000);
    assert!(first.misses <= 2 && first.waits <= 12, "{first:?}");
    let steady = sim.run(START + 1000..START + PAGES);
    assert_eq!((steady.misses, steady.waits), (0, 0), "{steady:?}");
    assert!(steady.soft <= steady.touches / 250, "one soft fault a window: {steady:?}");
}

#[test]
fn several_streams_in_one_region() {
    check("4 streams", &streams(4).repeat(3), 20, 800, 20, 100);
    // More than a region keeps: no window lasts, but the reads are still shared.
    check("24 streams", &streams(24).repeat(3), 1000, u64::MAX, 1, 15);
    check("12 streams", &streams(12).repeat(3), 80, 1000, 50, 100);
}

#[test]
fn strides_are_read_as_strided_windows() {
    for (stride, passes) in [(4, 8), (16, 32), (64, 128)] {
        check(&format!("stride {stride}"), &strided(stride).repeat(2), 3 * passes, 16 * passes + 480, 5, 40);
    }
}

#[test]
fn a_repeating_pattern_of_steps_is_as_many_strides() {
    let load = (0..PAGES).filter(|page| page % 4 < 2).collect();
    check("0, 1, 4, 5, ..", &load, 8, 200, 1, 40);
}

#[test]
fn uniform_random_reads_nothing_in_vain() {
    for seed in 0..5 {
        check("random", &random(2 * PAGES, seed), u64::MAX, 20, 20, 9);
    }
}

#[test]
fn random_access_after_success_soon_reads_nothing_in_vain() {
    // Streams that are alive when it begins may each be continued once by a touch of its marker.
    for (before, alive) in [(ascending(), 0), (streams(12), 11), (strided(16), 0), (runs(4), 1)] {
        for frames in BUDGETS {
            let mut sim = adaptive(frames);
            sim.run(before.iter().map(|page| START + page));
            let counts = sim.run(random(PAGES, 1).iter().map(|page| START + page));
            let limit = counts.read / 50 + 2 * u64::from(super::CREDIT_MAX) + alive * 256;
            assert!(counts.ahead <= limit, "{frames} frames: {counts:?}");
        }
    }
}

#[test]
fn a_stream_beside_random_access() {
    for (count, of) in [(1, 1), (1, 16), (8, 4), (8, 1)] {
        let load = beside_random(ascending(), count, of);
        for frames in BUDGETS {
            let (ours, _) = run(adaptive(frames), &load);
            let (single, _) = run(none(frames), &load);
            let random = load.len() as u64 - PAGES;
            assert!(ours.misses <= random + 200, "{count} in {of}: the stream itself misses: {ours:?}");
            assert!(
                ours.misses < single.misses * 3 / 4 || count == 8,
                "{count} in {of}: {ours:?}, {single:?}"
            );
            assert!(ours.vain() <= 20, "{count} in {of}: {ours:?}");
        }
    }
}

#[test]
fn eight_random_threads_beside_four_sequential_ones() {
    for frames in BUDGETS {
        let mut sim = adaptive(frames);
        let mut random = Random(2);
        let mut sequential_misses = 0;
        for page in streams(4) {
            let before = sim.counts.misses;
            sim.touch(START + page);
            sequential_misses += sim.counts.misses - before;
            sim.run((0..2).map(|_| START + random.below(PAGES)).collect::<Load>());
        }
        assert!(sequential_misses <= PAGES / 50, "{frames} frames: {sequential_misses} of {PAGES}");
        assert!(sim.counts.vain() <= 20, "{:?}", sim.counts);
    }
}

/// Four sequential threads, each with a mebibyte or two on its way, once made eight random ones
/// wait 10 ms for a page that the device delivers in 0.1: 1,300 touches a second in place of
/// 20,000.
#[test]
fn a_stream_asks_for_little_at_a_time_while_others_wait_and_for_much_when_they_have_gone() {
    let mut sim = adaptive(BUDGETS[1]);
    let window = |sim: &mut Sim<Adaptive>, at: u64| {
        let (index, _) = sim.region.find(Vpn(START + at), false).expect("a stream is there");
        sim.policy.wish(&mut sim.region, index)
    };
    let half = PAGES / 2;
    sim.run(START..START + half);
    assert_eq!(window(&mut sim, half - 1), 128, "alone");
    let load = beside_random((half..half + 4000).collect(), 1, 4);
    sim.run(load.into_iter().map(|page| START + page));
    assert_eq!(window(&mut sim, half + 3999), super::CROWDED_WINDOW, "beside others");
    sim.run(START + half + 4000..START + PAGES);
    assert_eq!(window(&mut sim, PAGES - 1), 128, "alone again");
}

#[test]
fn phases_are_followed_within_a_few_faults() {
    check("phases", &phases(), PAGES + 400, 3000, 60, 15);
    let mut sim = adaptive(BUDGETS[1]);
    let mut touch = |load: Load| sim.run(load.into_iter().map(|page| START + page));
    for round in 0..3 {
        touch(random(PAGES, round));
        // Half of the pages are in RAM by chance: what counts is how many of the others are missed.
        let counts = touch(ascending());
        assert!(counts.misses <= counts.read / 20, "ascending: {counts:?}");
        let counts = touch(descending());
        assert!(counts.misses <= 6, "descending: {counts:?}");
        let counts = touch(strided(16).into_iter().take(PAGES as usize / 4).collect());
        assert!(counts.misses <= 16, "strided: {counts:?}");
    }
}

#[test]
fn three_equal_steps_restart_a_stream_after_any_amount_of_randomness() {
    let mut sim = adaptive(BUDGETS[1]);
    sim.run(random(2 * PAGES, 4).iter().map(|page| START + page));
    for (first, step) in [(30_000, 1), (30_000, -1), (20_000, 16), (50_000, -64)] {
        sim.evict_all();
        let counts = sim.run((0..100).map(|n| (START as i64 + first % PAGES as i64 + n * step) as u64));
        assert!(counts.misses <= 4, "step {step}: {counts:?}");
    }
}

#[test]
fn a_cycle_costs_two_misses_a_round() {
    let mut sim = adaptive(BUDGETS[0]);
    sim.run(START..START + PAGES);
    for _ in 0..3 {
        assert!(sim.run(START..START + PAGES).misses <= 2);
    }
}

#[test]
fn what_was_lost_or_never_read_is_resumed_with_single_reads() {
    let mut sim = adaptive(BUDGETS[0]);
    sim.run(START..START + 5000);
    for jump in [START + 5000, START + 9000, START + 2] {
        sim.evict_all();
        let counts = sim.run(jump..jump + 2000);
        assert!(counts.misses <= 3, "{jump}: {counts:?}");
    }
}

#[test]
fn a_plan_cut_short_goes_on_where_it_stopped() {
    for load in [ascending(), descending(), strided(16)] {
        let mut sim = adaptive(BUDGETS[0]);
        sim.spare = 20;
        let counts = sim.run(load.iter().map(|page| START + page));
        assert!(counts.misses <= 40 && counts.vain() == 0, "{counts:?}");
    }
}

#[test]
fn a_window_of_which_half_is_used_is_noticed_though_it_is_mapped_together() {
    let mut sim = adaptive(BUDGETS[0]);
    sim.run(START..START + 4096);
    let dense = sim.counts;
    sim.run((START + 4096..START + PAGES).step_by(4));
    let counts = sim.counts.since(&dense);
    assert!(counts.read < counts.touches + 2000, "the stride is found: {counts:?}");
}

#[test]
fn irregular_loads_are_no_worse_than_with_the_kernel() {
    for (name, load) in [
        ("runs of 4", runs(4)),
        ("runs of 64", runs(64)),
        ("1 of 2", sparse(2).repeat(3)),
        ("1 of 4", sparse(4).repeat(3)),
        ("jitter", jitter()),
    ] {
        check(name, &load, u64::MAX, u64::MAX, 500, 10);
    }
}

#[test]
fn read_ahead_that_is_evicted_unused_shrinks_the_window() {
    let mut sim = adaptive(BUDGETS[0]);
    sim.run(START..START + 8000);
    let (index, _) = sim.region.find(Vpn(START + 8000), false).expect("a stream is there");
    let window = |sim: &Sim<Adaptive>| sim.region.streams[index].clone().wish(256);
    assert_eq!(window(&sim), 256);
    sim.evict_all();
    assert_eq!(window(&sim), 16, "not proven any more");
}

/// *The story:* a limit of one page left streams of larger strides a window of none, for good, and
/// to turn such a stream was a panic.
#[test]
fn the_smallest_limit_leaves_a_window() {
    let [none, least] = [0, 1].map(|max_window| Config::new(max_window, 1 << 20));
    assert_eq!((none.max_window, none.max_strided), (0, 0));
    assert_eq!((least.max_window, least.max_strided), (1, 1));
    let mut stream = Stream::new(Vpn(5), 4, PROVEN, 64, 0);
    assert_eq!(stream.wish(0), 1);
    stream.turn(Vpn(9), 1, 0);
    assert_eq!(stream.wish(256), 1);
}

#[test]
fn any_sequence_of_calls_is_answered_within_the_region() {
    let mut random = Random(11);
    for pages in [1, 2, 3, 100, 5000] {
        let mut sim = Sim::new(Adaptive::default(), START, pages, pages as usize / 2 + 1);
        let mut at = 0;
        for _ in 0..50_000 {
            let step = [0, 1, 2, 5, pages - 1, 2 * pages - 2, 4 * pages - 4][random.below(7) as usize];
            at = if random.below(8) == 0 { random.below(pages) } else { (at + step) % pages };
            sim.spare = random.below(300) as usize;
            sim.touch(START + at);
            if random.below(5) == 0 {
                sim.evict(START + random.below(pages));
            }
        }
        assert!(sim.region.credit <= super::CREDIT_MAX);
    }
}

#[test]
fn plans_stay_within_a_region_that_changes() {
    let mut random = Random(17);
    let (mut policy, mut region) = (Adaptive::default(), super::Region::default());
    let mut at = 5_000;
    for _ in 0..200_000 {
        at = if random.below(40) == 0 { random.below(10_000) } else { at + random.below(3) };
        let touch = Touch {
            now: 0,
            vpn: Vpn(at),
            slot: None,
            area_slots: 0,
            region_start: Vpn(at.saturating_sub(random.below(2000))),
            region_end: Vpn(at + 1 + random.below(2000)),
            kind: RegionKind::Anon,
            clock: 0,
            left_at: 0,
            room: 0,
            read_ahead: random.below(2) == 0,
            marker: random.below(8) == 0,
            arriving: random.below(8) == 0,
        };
        let plan = match random.below(3) {
            0 => policy.miss(&mut region, &Touch { read_ahead: false, marker: false, ..touch }),
            _ => policy.cached(&mut region, &touch),
        };
        let Some(plan) = plan else { continue };
        let Window::Pages { start, stride, count } = plan.window else { panic!("{plan:?}") };
        let last = start.offset(stride * i64::from(count - 1));
        for vpn in [Some(start), Some(last), plan.marker].into_iter().flatten() {
            assert!(touch.region_start <= vpn && vpn < touch.region_end, "{plan:?} for {touch:?}");
        }
        assert!(count <= 2 * 256 + 1, "{plan:?}");
        if random.below(3) == 0 {
            policy.cut_short(&mut region, &plan, random.below(u64::from(count)) as u32);
        }
        policy.issued(&mut region, &plan, random.below(u64::from(count)) as u32);
        policy.unused(&mut region, Vpn(at + random.below(300)));
    }
}

#[test]
fn what_became_of_a_window_that_waited_is_told_to_its_own_stream() {
    let (mut policy, mut region) = (Adaptive::default(), super::Region::default());
    let touch = |vpn: u64, marker: bool| Touch {
        now: 0,
        vpn: Vpn(vpn),
        slot: None,
        area_slots: 0,
        region_start: Vpn(0),
        region_end: Vpn(20_000),
        kind: RegionKind::Anon,
        clock: 0,
        left_at: 0,
        room: 0,
        read_ahead: marker,
        marker,
        arriving: false,
    };
    let markers = [1000, 9000].map(|vpn| {
        let mut plans = (0..8).filter_map(|page| policy.miss(&mut region, &touch(vpn + page, false)));
        plans.next().and_then(|plan| plan.marker).expect("a stream begins")
    });
    let [waits, other] = markers.map(|marker| {
        let touch = touch(marker.0, true);
        policy.cached(&mut region, &touch).expect("the next window")
    });
    policy.issued(&mut region, &other, other.window.count());
    // Of the one that waited nothing is left to be read: its stream has come to what is in RAM.
    policy.issued(&mut region, &waits, 0);
    let Some(Window::Pages { start, .. }) = region.ended else { panic!("it has left something") };
    assert!((1000..1100).contains(&start.0), "{start:?}");
}

/// Goes through 20,000 pages in 11,000 frames and then touches the first `pages` at random.
fn after_a_scan(pages: u64, touches: u64) -> Counts {
    let mut random = Random(3);
    let mut sim = Sim::new(Adaptive::default(), START, 20_000, 11_000);
    sim.run(START..START + 20_000);
    let before = sim.counts;
    (0..touches).for_each(|_| sim.touch(START + random.below(pages)));
    sim.counts.since(&before)
}

/// See [`super::around`].
#[test]
fn what_comes_back_at_random_is_read_by_blocks() {
    let counts = after_a_scan(10_000, 100_000);
    assert!(counts.misses < 4000 && counts.read < 10_500, "{counts:?}");
    let counts = after_a_scan(20_000, 100_000);
    assert!(counts.ahead < counts.misses / 50, "{counts:?}");
}
