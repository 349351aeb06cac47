//! The tier's books against a simple model, and its rules one by one.

use std::collections::BTreeMap;

use super::*;

fn on(frames: u32) -> Tier {
    let mut tier = Tier::new(frames);
    tier.set_limit(frames);
    tier
}

/// Everything is where nothing else is, and every entry is found.
fn check(tier: &Tier, model: &BTreeMap<u32, (usize, bool)>) {
    let mut taken = Vec::new();
    for (&slot, &(len, dirty)) in model {
        let spot = tier.spot(slot).expect("what was put in is there");
        assert_eq!((spot.len, tier.is_dirty(slot)), (len, dirty));
        assert!(spot.offset + len <= SEGMENT_BYTES);
        taken.push((spot.segment, spot.offset, spot.offset + len));
    }
    taken.sort_unstable();
    assert!(taken.windows(2).all(|two| two[0].0 < two[1].0 || two[0].2 <= two[1].1), "two at one place");
    assert_eq!(tier.entries() as usize, model.len());
}

#[test]
fn a_random_life_agrees_with_a_simple_model() {
    let mut tier = on(8 * SEGMENT_FRAMES);
    let mut model: BTreeMap<u32, (usize, bool)> = BTreeMap::new();
    let mut random = 4711u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    // Requests under way: their first number, and their slots.
    let mut writes: Vec<(u32, Range<u32>)> = Vec::new();
    for round in 0..30_000 {
        let slot = below(2000) as u32;
        match below(12) {
            0..7 => {
                let (packed, dirty) = (1 + below(5000) as usize, below(2) == 0);
                let must = tier.must_take(slot..slot + 1);
                let kept = model.get(&slot).copied();
                match tier.put(slot, packed, dirty, must) {
                    Ok(spot) => drop(model.insert(slot, (spot.len, dirty))),
                    Err(Refused::Stiff) => assert!(!must && model.get(&slot).copied() == kept),
                    Err(Refused::Full) => {
                        assert!(!must);
                        model.remove(&slot);
                    }
                }
            }
            7 => assert_eq!(tier.remove(slot), model.remove(&slot).is_some_and(|(_, dirty)| dirty)),
            8 if !writes.is_empty() => {
                let (at, slots) = writes.swap_remove(below(writes.len() as u64) as usize);
                let arrived = below(4) > 0;
                let before: Vec<u32> = slots.clone().filter(|&slot| tier.holds(slot)).collect();
                tier.left(at, slots.end - slots.start, arrived);
                before.iter().filter(|&&slot| !tier.holds(slot)).for_each(|slot| {
                    assert!(arrived, "what did not arrive stays");
                    model.remove(slot);
                });
            }
            _ => match tier.chore(|slot| slot % 5 > 0) {
                Chore::Nothing => {}
                Chore::Move(moved) => {
                    assert!(moved.iter().all(|moved| moved.from.segment != moved.to.segment));
                    assert!(moved.iter().all(|moved| moved.from.len == moved.to.len));
                }
                Chore::Write(runs) => {
                    model.retain(|&slot, _| tier.holds(slot));
                    for run in runs {
                        assert!(run.clone().all(|slot| model[&slot].1 && slot % 5 > 0));
                        writes.push((tier.leaving(), run.clone()));
                        tier.leaves(run);
                    }
                }
            },
        }
        model.retain(|&slot, _| tier.holds(slot));
        if round % 500 == 0 {
            check(&tier, &model);
        }
    }
    check(&tier, &model);
    (0..2000).for_each(|slot| _ = tier.remove(slot));
    let before = tier.frames();
    let stays = tier.next_freed().expect("nothing is in it");
    tier.could_not_free(stays);
    assert_eq!(tier.frames(), before, "it takes memory still");
    while tier.next_freed().is_some() {}
    assert_eq!((tier.frames(), tier.entries()), (0, 0), "an empty pool takes no memory");
}

#[test]
fn what_does_not_compress_is_passed_on_unless_it_must_be_taken() {
    let mut tier = Tier::new(8 * SEGMENT_FRAMES);
    assert_eq!(tier.put(3, 100, true, false), Err(Refused::Full), "it is off");
    tier.set_limit(SEGMENT_FRAMES);
    assert_eq!(tier.put(3, 4000, true, false), Err(Refused::Stiff));
    assert!(!tier.is_worth_packing(3) && tier.is_worth_packing(4), "it is known for that");
    assert_eq!(tier.put(3, 4000, true, true).map(|spot| spot.len), Ok(PAGE_BYTES));
    tier.remove(3);
    assert!(tier.put(3, 100, true, false).is_ok(), "new content is tried");
    tier.remove(3);
    assert!(tier.is_worth_packing(3), "and known");
    assert!(tier.put(4, FILLED_BYTES, true, false).is_ok_and(|spot| spot.len == FILLED_BYTES));
}

/// The oldest are written first, neighbours together; what the areas have, and what nobody wants,
/// just goes.
#[test]
fn the_oldest_leave_first() {
    let mut tier = on(3 * SEGMENT_FRAMES);
    let many = 2 * SEGMENT_BYTES as u32 / 2048;
    let order = |slot: u32| slot ^ 1;
    (0..many).for_each(|slot| _ = tier.put(order(slot), 2048, slot >= 20, false));
    let Chore::Write(runs) = tier.chore(|slot| slot != 30) else { panic!("room is short") };
    assert!((0..20).all(|slot| !tier.holds(slot)), "the areas have these");
    assert!(!tier.holds(30), "nobody wants this one");
    assert_eq!(runs, [20..30, 31..85], "neighbours together, a batch of them");
    tier.leaves(20..30);
    assert_eq!(tier.chore(|_| true), Chore::Nothing, "a batch at a time");
    assert!(tier.must_take(29..31) && !tier.must_take(30..40));
    assert!(tier.admits(25..26));
    tier.put(25, 4096, true, true).unwrap();
    tier.left(0, 10, true);
    assert!((20..30).all(|slot| tier.holds(slot) == (slot == 25)), "what was replaced stays");
    assert_eq!(tier.totals().written_back, 10);
}

#[test]
fn gaps_are_closed_before_anything_is_written() {
    let mut tier = on(4 * SEGMENT_FRAMES);
    let many = 4 * (SEGMENT_BYTES / 1104) as u32;
    (0..many).for_each(|slot| _ = tier.put(slot, 1104, true, false));
    (0..many).filter(|slot| slot % 4 != 0).for_each(|slot| assert!(tier.remove(slot)));
    while let Chore::Move(moved) = tier.chore(|_| true) {
        assert!(!moved.is_empty());
    }
    assert!(tier.allocated <= 2, "a quarter of the entries is left");
    while tier.next_freed().is_some() {}
    assert!(tier.frames() <= 4 * SEGMENT_FRAMES, "what is kept for later is within the limit");
    assert!((0..many).step_by(4).all(|slot| tier.spot(slot).is_some_and(|spot| spot.len == 1104)));
    assert_eq!(tier.totals().written_back, 0);
}

#[test]
fn a_pool_that_was_stopped_takes_nothing_and_keeps_what_it_has() {
    let mut tier = on(SEGMENT_FRAMES);
    tier.put(7, 1000, true, false).unwrap();
    assert!(tier.stop() && !tier.stop(), "the first one who knows says so");
    tier.set_limit(SEGMENT_FRAMES);
    assert!(!tier.is_on() && !tier.admits(8..9));
    assert_eq!(tier.chore(|_| true), Chore::Nothing, "there is nowhere to write it");
    assert!(tier.spot(7).is_some());
}

#[test]
fn what_nobody_has_any_more_is_swept_out() {
    let mut tier = on(8 * SEGMENT_FRAMES);
    (0..600).for_each(|slot| _ = tier.put(slot, 1000, true, false));
    tier.sweep(600, |_| panic!("every slot is in use"));
    tier.sweep(400, |_| panic!("a third of it is not worth the search"));
    tier.sweep(200, |slot| slot % 3 == 0);
    assert_eq!(tier.entries(), 200);
    assert!((0..600).all(|slot| tier.holds(slot) == (slot % 3 == 0)));
    tier.sweep(0, |_| false);
    while tier.next_freed().is_some() {}
    assert_eq!((tier.entries(), tier.frames()), (0, 0));
}

/// Pages leave at random and others come: the pool keeps full, nothing has to be written, and what
/// is moved on keeps its age.
///
/// *The story:* segments were emptied when half of them was gaps, else written. A random load whose
/// pages all fitted, packed, wrote and read a third of them.
#[test]
fn a_pool_that_nine_tenths_fit_into_writes_nothing() {
    const SEGMENTS: u32 = 160;
    let len = 2200;
    let fit = SEGMENTS * (SEGMENT_BYTES / footprint(len)) as u32;
    let mut tier = on(SEGMENTS * SEGMENT_FRAMES);
    let mut there: Vec<u32> = (0..fit * 9 / 10).collect();
    there.iter().for_each(|&slot| _ = tier.put(slot, len, true, false).unwrap());
    let (mut random, mut copied) = (4711u64, 0);
    for slot in fit..5 * fit {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (random >> 33) as usize % there.len();
        assert!(tier.remove(there.swap_remove(at)));
        there.push(slot);
        assert!(tier.put(slot, len, true, false).is_ok(), "there is room for {slot}");
        while let Chore::Move(moved) = tier.chore(|_| true) {
            copied += moved.len();
        }
        assert_eq!(tier.leaving(), 0);
    }
    assert_eq!(tier.totals().written_back, 0);
    assert!(copied < 7 * 4 * fit as usize, "{copied} moved for {}", 4 * fit);
    there.sort_unstable();
    let of = |slots: &[u32], age| slots.iter().filter(|&&slot| tier.age(slot) == Some(age)).count();
    let eighth = there.len() / 8;
    assert!(of(&there[..eighth], Age::Old) > eighth * 3 / 4, "what is old is known as old");
    assert_eq!(of(&there[there.len() - eighth..], Age::Young), eighth);
    let young = there.len() * tier.frames() as usize / tier.entries() as usize;
    assert!(of(&there, Age::Young).abs_diff(young) < there.len() / 20, "as many as it has frames");
}
