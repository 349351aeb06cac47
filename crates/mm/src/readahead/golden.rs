//! The golden vectors of the specification (1.8 cluster mode, 2.7 per-region mode), one by one:
//! slots or pages touched in the order given, nothing evicted, empty cache at start.

use super::SwapIn;
use super::cluster::{Cluster, Variant};
use super::testing::{Counts, Miss, Random, Sim};
use super::vma::PerRegion;
use crate::types::{RegionKind, Vpn};

/// `(fault, window, [first, last])`, as the specification writes it.
type Decision = (u64, u32, u64, u64);

/// Touches in order; every miss with the window decided for it.
fn decisions<P: SwapIn>(
    sim: &mut Sim<P>,
    touches: impl IntoIterator<Item = u64>,
    window: impl Fn(&Sim<P>) -> u32,
) -> Vec<Decision> {
    let mut seen = Vec::new();
    for vpn in touches {
        sim.last_miss = None;
        sim.touch(vpn);
        if let Some(Miss { fault, first, last, .. }) = sim.last_miss {
            seen.push((fault, window(sim), first, last));
        }
    }
    seen
}

/// Slot = page number; slot 0 is the header.
fn slots(variant: Variant, page_cluster: u8, count: u64) -> Sim<Cluster> {
    Sim::new(Cluster::new(variant, page_cluster), 0, count, usize::MAX)
}

fn merged(page_cluster: u8, touches: impl IntoIterator<Item = u64>) -> Vec<Decision> {
    decisions(&mut slots(Variant::Merged, page_cluster, 8192), touches, |sim| sim.policy.last_window())
}

fn pages(page_cluster: u8, touches: impl IntoIterator<Item = u64>) -> Vec<Decision> {
    let mut sim = Sim::new(PerRegion { page_cluster }, 100_000, 10_000, usize::MAX);
    decisions(&mut sim, touches, |sim| sim.region.last_window())
}

/// The windows alone.
fn windows(decisions: &[Decision]) -> Vec<u32> {
    decisions.iter().map(|decision| decision.1).collect()
}

/// `count` slots of 2^24, none near another one or near slot 1.
fn random_slots(count: u64) -> Vec<u64> {
    let mut random = Random(1);
    (0..count).map(|_| 65_536 + random.below((1 << 24) - 65_536)).collect()
}

#[test]
fn cluster_ascending_from_slot_1() {
    assert_eq!(merged(2, 1..=2048)[..3], [(1, 4, 1, 3), (4, 4, 4, 7), (8, 4, 8, 11)]);
    assert_eq!(merged(3, 1..=2048)[..3], [(1, 8, 1, 7), (8, 8, 8, 15), (16, 8, 16, 23)]);
    assert_eq!(merged(4, 1..=2048)[..4], [(1, 8, 1, 7), (8, 8, 8, 15), (16, 16, 16, 31), (32, 16, 32, 47)]);
    assert_eq!(merged(5, 1..=2048)[..4], [(1, 8, 1, 7), (8, 8, 8, 15), (16, 16, 16, 31), (32, 32, 32, 63)]);
    for (page_cluster, steady, operations) in [(2, 4, 513), (3, 8, 257), (4, 16, 130), (5, 32, 67)] {
        let seen = merged(page_cluster, 1..=2048);
        assert_eq!(seen.len(), operations, "cluster {page_cluster}");
        assert!(windows(&seen)[4..].iter().all(|&window| window == steady), "cluster {page_cluster}");
    }
}

#[test]
fn cluster_descending_from_2048() {
    let mut sim = slots(Variant::Merged, 3, 8192);
    let seen = decisions(&mut sim, (1..=2048).rev(), |sim| sim.policy.last_window());
    assert_eq!(
        seen[..4],
        [(2048, 8, 2048, 2055), (2047, 4, 2044, 2047), (2043, 8, 2040, 2047), (2039, 8, 2032, 2039)]
    );
    assert!(windows(&seen)[4..].iter().all(|&window| window == 8));
    assert_eq!(sim.counts.read, 2055, "4 of the third window were cached");
}

#[test]
fn cluster_random_shrinks_step_by_step_with_the_floor_and_at_once_without() {
    let seen = |variant, page_cluster| {
        let mut sim = slots(variant, page_cluster, 1 << 24);
        windows(&decisions(&mut sim, random_slots(1000), |sim| sim.policy.last_window()))
    };
    for page_cluster in [3, 4, 5] {
        let with_floor = seen(Variant::Merged, page_cluster);
        assert_eq!(with_floor[..5], [8, 4, 2, 1, 1]);
        assert!(with_floor[5..].iter().all(|&window| window == 1));
        let without = seen(Variant::HughNew, page_cluster);
        assert_eq!(without[..3], [8, 1, 1]);
        assert!(without[3..].iter().all(|&window| window == 1));
    }
}

#[test]
fn cluster_stride_2_stays_at_8_and_uses_43_percent() {
    let mut sim = slots(Variant::Merged, 3, 8192);
    let seen = decisions(&mut sim, (0..2000).map(|n| 8 + 2 * n), |sim| sim.policy.last_window());
    assert_eq!(seen.len(), 500, "read operations");
    assert!(windows(&seen).iter().all(|&window| window == 8));
    assert_eq!((sim.counts.hits, sim.counts.ahead), (1500, 3500), "3 of 7");
    assert_eq!((1000 * sim.counts.hits / sim.counts.ahead + 5) / 10, 43);
}

#[test]
fn cluster_stride_3_and_more_collapses() {
    for stride in 3..8 {
        let mut sim = slots(Variant::Merged, 3, 16_384);
        let seen = decisions(&mut sim, (0..2000).map(|n| 8 + stride * n), |sim| sim.policy.last_window());
        assert_eq!(windows(&seen)[..5], [8, 4, 2, 1, 1], "stride {stride}");
        assert!(windows(&seen)[5..].iter().all(|&window| window == 1));
        assert!(sim.counts.ahead <= 11, "practically no read-ahead");
    }
}

/// One sequential stream of 4000 touches from `start`; a random miss after every `period`th touch
/// beyond the first `delay`, or `times` of them. Gives sequential misses, pages read ahead, hits
/// per 1000 of those, and the mean window of all misses in tenths.
fn mixed(start: u64, period: u64, delay: u64, times: u64) -> [u64; 4] {
    let mut sim = slots(Variant::Merged, 3, 1 << 24);
    let mut random = random_slots(8000).into_iter();
    let (mut sequential, mut windows, mut misses) = (0, 0, 0);
    let mut decide = |sim: &mut Sim<Cluster>, slot| {
        let seen = decisions(sim, [slot], |sim| u64::from(sim.policy.last_window()) as u32);
        windows += seen.iter().map(|decision| u64::from(decision.1)).sum::<u64>();
        misses += seen.len() as u64;
        seen.len() as u64
    };
    for touch in 1..=4000 {
        sequential += decide(&mut sim, start + touch - 1);
        if touch > delay && (touch - delay).is_multiple_of(period) {
            for slot in random.by_ref().take(times as usize) {
                decide(&mut sim, slot);
            }
        }
    }
    let Counts { ahead, hits, .. } = sim.counts;
    [sequential, ahead, (hits * 1000 + ahead / 2) / ahead, (windows * 10 + misses / 2) / misses]
}

/// The table of 1.8. Its rows come out exactly when the stream starts at slot 1 and a random miss
/// follows as soon as the accumulated `k` reaches 1; in binary fractions ten times 0.1 fall short
/// of 1, so that row is one touch late. Row 0 is the steady state: it starts at a block's border
/// (from slot 1 it is 501 and 3506).
#[test]
fn cluster_sequential_beside_k_random() {
    assert_eq!(mixed(8, 1, 4000, 0), [500, 3500, 1000, 80], "k = 0");
    assert_eq!(mixed(1, 10, 1, 1), [701, 5703, 578, 69], "k = 0.1");
    assert_eq!(mixed(1, 4, 0, 1), [501, 8506, 411, 67], "k = 0.25");
    assert_eq!(mixed(1, 2, 0, 1), [1000, 7005, 428, 33], "k = 0.5");
    // Statistical: it depends on whether a random slot is adjacent to, or in the window of, an
    // earlier one. Other seeds give 1997 and 8010 to 8014; this one gives the row.
    assert_eq!(mixed(1, 1, 0, 1), [1998, 8012, 250, 23], "k = 1");
    assert_eq!(mixed(1, 1, 0, 2), [3994, 34, 176, 10], "k = 2");
}

#[test]
fn page_cluster_0_touches_no_state() {
    let mut sim = slots(Variant::Merged, 0, 8192);
    assert_eq!(sim.run(1..=100).ahead, 0);
    assert_eq!(sim.policy.last_window(), 0);
    sim.policy.page_cluster = 3;
    sim.touch(101);
    assert_eq!(sim.policy.last_window(), 8, "the 4 initial hits are still there");
}

#[test]
fn lowering_page_cluster_takes_effect_over_several_misses() {
    let mut sim = slots(Variant::Merged, 5, 8192);
    sim.run(1..=1024);
    sim.policy.page_cluster = 2;
    let seen = decisions(&mut sim, 1025..2048, |sim| sim.policy.last_window());
    assert_eq!(windows(&seen)[..5], [16, 8, 4, 4, 4]);
}

#[test]
fn blind_reads_the_full_block_always() {
    let mut sim = slots(Variant::Blind, 3, 1 << 24);
    let counts = sim.run(random_slots(1000));
    assert_eq!((counts.misses, counts.read), (1000, 8000));
    assert_eq!(slots(Variant::Blind, 3, 8192).run(1..=2048).misses, 257);
}

#[test]
fn shaohua_limits_private_memory_only_and_after_100_misses() {
    let mut sim = slots(Variant::Shaohua, 3, 1 << 24);
    let counts = sim.run(random_slots(1000));
    assert_eq!((counts.misses, counts.ahead), (1000, 100 * 7));
    let mut shared = slots(Variant::Shaohua, 3, 1 << 24);
    shared.kind = RegionKind::Shared;
    assert_eq!(shared.run(random_slots(1000)).ahead, 1000 * 7);
    assert_eq!(slots(Variant::Shaohua, 3, 8192).run(1..=2048).misses, 257);
}

#[test]
fn konstantin_scales_the_order_by_a_score() {
    let mut sim = slots(Variant::Konstantin, 3, 1 << 24);
    assert_eq!(sim.run([1]).ahead, 6, "1023 and the miss itself make 1024 of 1024");
    sim.policy.swapped_out(&mut sim.region, 35);
    assert_eq!(sim.run([1 << 20]).ahead, 1, "675 of 1024, three times: order 1");
    sim.run(2..=7);
    assert_eq!(sim.run([1 << 21]).ahead, 3, "736 of 1024, three times: order 2");
    (0..60).for_each(|vpn| sim.policy.unused(&mut sim.region, Vpn(vpn)));
    assert_eq!(sim.run([1 << 22]).ahead, 1, "677 of 1024");
}

#[test]
fn hugh_old_settles_at_2_on_random_access() {
    let mut sim = slots(Variant::HughOld, 3, 1 << 24);
    let seen = windows(&decisions(&mut sim, random_slots(1000), |sim| sim.policy.last_window()));
    assert_eq!(seen[..4], [8, 4, 2, 2]);
    assert!(seen[4..].iter().all(|&window| window == 2));
    assert_eq!(slots(Variant::HughOld, 3, 8192).run(1..=2048).misses, 257);
}

#[test]
fn marking_what_was_cached_lets_an_old_page_be_hit_again() {
    for (marks_cached, hits) in [(false, 1), (true, 2)] {
        let mut sim = slots(Variant::Merged, 3, 8192);
        sim.policy.marks_cached = marks_cached;
        assert_eq!(sim.run([8, 9]).hits, 1);
        sim.deactivate(9);
        sim.evict(11);
        sim.run([11, 9]);
        assert_eq!(sim.counts.hits, hits, "3.14: {marks_cached}");
    }
}

#[test]
fn per_region_ascending() {
    let seen = pages(3, 100_000..102_000);
    assert_eq!(
        seen[..3],
        [(100_000, 8, 100_000, 100_004), (100_005, 8, 100_005, 100_012), (100_013, 8, 100_013, 100_020)]
    );
    assert_eq!(seen.len(), 252);
    let seen = pages(4, 100_000..102_000);
    assert_eq!(windows(&seen)[..4], [8, 8, 16, 16]);
    assert_eq!(seen[2], (100_013, 16, 100_013, 100_028));
    assert_eq!(seen.len(), 128);
    let seen = pages(5, 100_000..102_000);
    assert_eq!(windows(&seen)[..5], [8, 8, 16, 32, 32]);
    assert_eq!(seen.len(), 67);
    assert_eq!(pages(9, 100_000..102_000), seen, "the ceiling is 5");
}

#[test]
fn per_region_descending_from_101999() {
    let seen = pages(3, (100_000..102_000).rev());
    assert_eq!(
        seen[..3],
        [(101_999, 8, 101_996, 102_003), (101_995, 8, 101_988, 101_995), (101_987, 8, 101_980, 101_987)]
    );
    assert_eq!(seen.len(), 251);
}

#[test]
fn per_region_stride_2_collapses_at_a_page_table_border() {
    let seen = pages(3, (0..2000).map(|n| 100_000 + 2 * n));
    assert_eq!(
        seen[..3],
        [(100_000, 8, 100_000, 100_004), (100_006, 4, 100_005, 100_008), (100_010, 4, 100_009, 100_012)]
    );
    assert_eq!(seen.len(), 1912);
    let collapse = seen.iter().position(|decision| decision.1 == 1).expect("it collapses");
    assert!(seen[collapse].0 > 100_352 && seen[collapse].0 < 100_400, "at the first border");
    assert!(windows(&seen)[collapse..].iter().all(|&window| window == 1));
}

#[test]
fn per_region_stride_3_and_random_collapse() {
    for stride in [3, 4, 5] {
        let seen = pages(3, (0..2000).map(|n| 100_000 + stride * n));
        assert_eq!(windows(&seen)[..5], [8, 4, 2, 1, 1], "stride {stride}");
        assert!(seen.len() >= 1998, "stride {stride}: {}", seen.len());
    }
    let mut sim = Sim::new(PerRegion { page_cluster: 3 }, 100_000, 1 << 24, usize::MAX);
    let touches = random_slots(1000).into_iter().map(|slot| 100_000 + slot - 65_536);
    let seen = decisions(&mut sim, touches, |sim| sim.region.last_window());
    assert_eq!(windows(&seen)[..5], [8, 4, 2, 1, 1]);
    assert_eq!(seen.len(), 1000);
}

#[test]
fn per_region_window_1_reopens_on_an_adjacent_access_only() {
    let mut sim = Sim::new(PerRegion { page_cluster: 3 }, 100_000, 10_000, usize::MAX);
    let mut open = |vpn| decisions(&mut sim, [vpn], |sim| sim.region.last_window());
    for (fault, window) in
        [(104_000, 8), (107_000, 4), (102_000, 2), (109_000, 1), (101_000, 1), (101_001, 2)]
    {
        assert_eq!(windows(&open(fault)), [window], "{fault}");
    }
}
