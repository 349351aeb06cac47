//! What the default promises, against the kernel's rules where they promise less.

use super::super::policy::Config as PolicyConfig;
use super::super::testing::Sim;
use super::super::{Limits, MapAdvice};
use super::Config;

fn sim(frames: u64) -> Sim {
    let adaptive = Config { frames, ..Config::default() };
    let config = PolicyConfig { adaptive, limits: Limits::default() };
    let capacity = usize::try_from(frames).unwrap_or(usize::MAX);
    Sim::with("adaptive", config, 1, capacity)
}

/// Reads of `pages` by readers in turns, each its own list of first pages; requests and pages read.
fn turns(sim: &mut Sim, readers: &[&dyn Fn(u64) -> u64], rounds: u64, pages: u64) -> (u64, u64) {
    for round in 0..rounds {
        readers.iter().for_each(|reader| sim.read(0, reader(round), pages));
    }
    (sim.counts.ios, sim.counts.pages)
}

#[test]
fn windows_grow_to_the_largest() {
    let mut sim = sim(u64::MAX);
    (0..20_000).for_each(|page| sim.read(0, page, 1));
    assert_eq!(sim.log.iter().map(|extent| extent.pages).max(), Some(2048));
    assert!(sim.counts.ios < 24, "{:?}", sim.counts);
}

#[test]
fn eight_interleaved_streams_are_found_with_the_second_read_of_each() {
    let mut sim = sim(u64::MAX);
    let readers: Vec<Box<dyn Fn(u64) -> u64>> =
        (1..=8u64).map(|n| Box::new(move |round| 100_000 * n + round) as Box<dyn Fn(u64) -> u64>).collect();
    let readers: Vec<&dyn Fn(u64) -> u64> = readers.iter().map(Box::as_ref).collect();
    turns(&mut sim, &readers, 2, 1);
    let windows = sim.log.iter().filter(|extent| extent.pages >= 4).count();
    assert_eq!(windows, 8, "{:?}", sim.trace());
    let (ios, pages) = turns(&mut sim, &readers, 4000, 1);
    assert!(ios < 8 * 16 && pages < 8 * 9000, "{ios} {pages}");
}

#[test]
fn backward_readers_are_read_ahead_below() {
    for pages in [1, 16] {
        let mut sim = sim(u64::MAX);
        let (ios, read) = turns(&mut sim, &[&|round| 40_000 - pages * (round + 1)], 2000, pages);
        assert!(ios < 32, "{pages}: {ios}");
        assert!(read < 2000 * pages + 2 * 2048 + 64, "{pages}: {read}");
    }
    let mut to_the_start = sim(u64::MAX);
    turns(&mut to_the_start, &[&|round| 999 - round], 1000, 1);
    assert_eq!(to_the_start.counts.pages, 1000, "none twice, none beyond the start");
}

#[test]
fn strided_readers_get_their_pieces_and_nothing_else() {
    // iozone: records of 16 pages, every 17th.
    let mut sim = sim(u64::MAX);
    turns(&mut sim, &[&|round| 17 * 16 * round + 5000], 300, 16);
    assert!(sim.counts.pages <= 16 * (300 + 2 * 8), "{:?}", sim.counts);
    assert!(sim.log.iter().all(|extent| extent.pages == 16), "{:?}", sim.trace());
    let ahead = sim.counts.by_cause["Strided"];
    assert!(ahead >= 296, "all but the first were read ahead: {ahead}");
}

/// *The story:* a mapping that is read backwards in records of 16 pages was taken for one of which
/// every sixteenth page is wanted, and each record took three faults.
#[test]
fn records_of_a_mapping_are_one_stream_backwards() {
    let mut sim = sim(u64::MAX);
    let pages = (0..300u64).flat_map(|record| (0..16).map(move |page| 16 * (400 - record) + page));
    pages.for_each(|page| sim.touch(0, page, MapAdvice::Normal));

    assert!(sim.counts.ios < 48, "{:?}", sim.counts);
    assert!(sim.counts.pages < 300 * 16 + 2 * 2048, "{:?}", sim.counts);
}

#[test]
fn every_second_page_is_a_stream_with_holes() {
    let mut sim = sim(u64::MAX);
    let (ios, _) = turns(&mut sim, &[&|round| 1000 + 2 * round], 2000, 1);
    assert!(ios < 24, "{ios}");
}

#[test]
fn random_reads_and_faults_get_what_they_ask_for() {
    let mut sim = sim(u64::MAX);
    let mut seed = 7u64;
    let mut draw = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % 1_000_000
    };
    for _ in 0..10_000 {
        sim.touch(0, draw() + 1, MapAdvice::Normal);
    }
    // Some pages were drawn twice: some 50 of them, and a few pairs lie side by side.
    assert!((9900..10_100).contains(&sim.counts.pages), "{:?}", sim.counts);
}

#[test]
fn windows_of_many_streams_fit_the_frames_together() {
    let adaptive = Config { frames: 20_000, ..Config::default() };
    let config = PolicyConfig { adaptive, limits: Limits::default() };
    let mut sim = Sim::with("adaptive", config, 200, 20_000);
    for round in 0..600 {
        (0..200).for_each(|file| sim.read(file, 4 * round, 4));
    }
    let counts = &sim.counts;
    assert!(counts.pages * 10 < counts.used * 13, "nearly nothing is read twice: {counts:?}");
    assert!(counts.pages / counts.ios >= 16, "in requests of 64 KiB or more: {counts:?}");
}

#[test]
fn a_slow_reader_gets_no_more_than_it_needs() {
    let mut slow = sim(u64::MAX);
    for page in 0..20_000 {
        slow.now += 1_000_000;
        slow.read(0, page, 1);
    }
    let largest = slow.log.iter().skip(8).map(|extent| extent.pages).max().expect("many");
    // Worth a request: as long on the way as 2 x 70 us are of transfer.
    assert!((64..=256).contains(&largest), "{largest}");
}

#[test]
fn advice_is_taken_whole() {
    let mut sim = sim(u64::MAX);
    sim.touch(0, 5000, MapAdvice::Sequential);
    sim.touch(0, 5001, MapAdvice::Sequential);
    assert_eq!(sim.trace()[0], "seq[5000,+4 @5001]");
}

/// *The story:* 200 readers in one file of eight times the budget came to 0.7 of the kernel's rate. A
/// file had eight streams and remembered sixteen reads, and readers at equal distance were taken for
/// one that leaves pages out: each page was a read of its own.
#[test]
fn two_hundred_slow_readers_are_two_hundred_streams() {
    const READERS: u64 = 200;
    const DISTANCE: u64 = 1310;
    for scattered in [0, 97] {
        let mut sim = sim(32_768);
        let first = |n: u64| 1 + n * DISTANCE + n * n % 7 * scattered;
        let readers: Vec<Box<dyn Fn(u64) -> u64>> = (0..READERS)
            .map(|n| Box::new(move |round| first(n) + round) as Box<dyn Fn(u64) -> u64>)
            .collect();
        let readers: Vec<&dyn Fn(u64) -> u64> = readers.iter().map(Box::as_ref).collect();
        let (ios, pages) = turns(&mut sim, &readers, 600, 1);
        let wanted = READERS * 600;
        assert!(pages < wanted * 112 / 100 && ios < wanted / 20, "{ios} requests, {pages} of {wanted}");
    }
}

/// Streams that stopped leave the frames to those that go on.
#[test]
fn a_stream_that_has_stopped_gives_up_its_share() {
    let mut sim = sim(32_768);
    let readers: Vec<Box<dyn Fn(u64) -> u64>> =
        (0..50u64).map(|n| Box::new(move |round| 1 + n * 5000 + round) as Box<dyn Fn(u64) -> u64>).collect();
    let readers: Vec<&dyn Fn(u64) -> u64> = readers.iter().map(Box::as_ref).collect();
    turns(&mut sim, &readers, 700, 1);
    let largest = |sim: &Sim| sim.log.iter().map(|extent| extent.pages).max().unwrap_or(0);
    assert!(largest(&sim) <= 32_768 / 200, "{}", largest(&sim));
    sim.log.clear();
    (0..40_000).for_each(|page| sim.read(0, 1_000_000 + page, 1));
    assert_eq!(largest(&sim), 512, "as if it were alone");
}

/// *The story:* with 256 reads remembered every 128th random read of a file of 255M continued one of
/// them by chance: 0.82 pages were read for each used where 0.77 had been.
#[test]
fn random_readers_of_a_small_file_are_not_taken_for_many_streams() {
    const PAGES: u64 = 65_280;
    let mut sim = sim(16_384);
    let mut page = 7u64;
    for _ in 0..10_000 {
        page = page.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        sim.read(0, 1 + (page >> 33) % PAGES, 1);
    }
    let unasked: u64 = sim.log.iter().map(|extent| extent.pages - 1).sum();
    assert!(unasked < sim.log.len() as u64 / 100, "{unasked} for {} reads", sim.log.len());
}
