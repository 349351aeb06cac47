//! One area, then several: what the allocators promise, turns, priorities, piled-up writes,
//! discards.

use std::collections::BTreeSet;

use super::*;
use crate::types::PageId;

const ALL: [Placement; 4] = [Placement::ByAddress, Placement::InOrder, Placement::Ssd, Placement::NextFit];

fn areas(placement: Placement, slots: &[(u32, i16)]) -> Areas {
    let mut areas = Areas::new(placement);
    for &(slots, priority) in slots {
        areas.add(&AreaConfig { slots, priority, ..AreaConfig::default() });
    }
    areas
}

#[test]
fn neighbours_in_memory_are_neighbours_on_disk() {
    let mut areas = areas(Placement::ByAddress, &[(4096, 0)]);
    let mut homes = Homes::NONE;
    let mut slot = |page| areas.allocate(PageId(page), &mut homes).unwrap().0;
    assert_eq!([5, 7, 6, 100, 500].map(&mut slot), [5, 7, 6, 100, 500]);
    let mut other = Homes::NONE;
    assert_eq!(areas.allocate(PageId(512 + 9), &mut other), Some(Slot(512 + 9)));
    assert_eq!(areas.owner(Slot(6)), Some(PageId(6)));
    areas.release(Slot(6));
    assert_eq!(areas.owner(Slot(6)), None);
}

#[test]
fn runs_are_as_long_as_what_is_free() {
    let mut areas = areas(Placement::ByAddress, &[(4096, 0)]);
    let mut homes = Homes::NONE;
    assert_eq!(areas.allocate_run(PageId(16), 16, &mut homes), Some((Slot(16), 16)));
    assert_eq!(areas.allocate_run(PageId(10), 16, &mut homes), Some((Slot(10), 6)), "up to those");
    areas.release_run(Slot(16), 16);
    assert_eq!((areas.used(), areas.owner(Slot(20))), (6, None));
}

/// Owners are known by the window while pages lie at their places, and by the slot where they do
/// not; a place that was a stranger's is its page's again.
#[test]
fn a_stranger_is_told_from_the_page_whose_place_it_has() {
    let mut areas = areas(Placement::ByAddress, &[(4096, 0)]);
    let (mut homes, stranger) = (Homes::NONE, PageId(77_777));
    assert_eq!(areas.allocate_run(PageId(0x8000), 16, &mut homes), Some((Slot(1), 1)), "a header");
    assert_eq!(areas.allocate_run(PageId(0x8010), 16, &mut homes), Some((Slot(16), 16)));
    areas.set_owner(Slot(20), stranger);
    let owners = |areas: &Areas| [19, 20, 21].map(|slot| areas.owner(Slot(slot)));
    assert_eq!(owners(&areas), [Some(PageId(0x8013)), Some(stranger), Some(PageId(0x8015))]);
    areas.release(Slot(20));
    assert_eq!(areas.owner(Slot(20)), None);
    assert_eq!(areas.allocate(PageId(0x8014), &mut homes), Some(Slot(20)));
    assert_eq!(areas.owner(Slot(20)), Some(PageId(0x8014)));
}

#[test]
fn every_slot_is_found_and_none_twice() {
    for placement in ALL {
        let mut areas = areas(placement, &[(1500, 0), (700, 0), (65, 3)]);
        let mut homes = [Homes::NONE; 8];
        let mut seen = BTreeSet::new();
        for n in 0..1499 + 699 + 64u32 {
            // Pages scattered over eight chunks.
            let page = (n * 7) % 8 * 512 + (n * 13) % 512;
            let slot = areas.allocate(PageId(page), &mut homes[page as usize / 512]).unwrap();
            assert!(seen.insert(slot), "{slot:?} twice");
            assert!(n >= 64 || areas.area_of(slot) == AreaId(2), "the highest priority first");
        }
        assert!(areas.is_full());
        assert_eq!(areas.allocate(PageId(0), &mut homes[0]), None);
        for slot in seen {
            areas.release(slot);
        }
        assert_eq!(areas.used(), 0);
    }
}

#[test]
fn freed_clusters_are_found_again() {
    let mut areas = areas(Placement::ByAddress, &[(2048, 0)]);
    let mut homes = [Homes::NONE; 4];
    for round in 0..3 {
        let slots: Vec<Slot> = (0..4u32)
            .map(|c| areas.allocate(PageId(c * 512 + 1 + round), &mut homes[c as usize]).unwrap())
            .collect();
        slots.iter().for_each(|&slot| areas.release(slot));
        homes.iter_mut().for_each(|homes| areas.disown(homes));
    }
    assert_eq!(areas.used(), 0);
}

/// *The story:* counts were bytes; the 256th fork would have made a slot free that 255 still refer
/// to.
#[test]
fn a_slot_is_shared_by_as_many_as_there_can_be_and_no_more() {
    let mut areas = areas(Placement::ByAddress, &[(64, 0)]);
    let slot = areas.allocate(PageId(5), &mut Homes::NONE.clone()).unwrap();
    for _ in 1..u16::MAX {
        assert!(areas.share(slot));
    }
    assert!(!areas.share(slot), "one more does not fit, and is told");
    for _ in 1..u16::MAX {
        areas.release(slot);
        assert_eq!(areas.owner(slot), Some(PageId(5)));
    }
    areas.release(slot);
    assert_eq!((areas.owner(slot), areas.used()), (None, 0));
}

/// Areas take turns by window: a window that is read ahead is one request, and the next one is the
/// other device's.
#[test]
fn equals_take_turns_by_window() {
    for placement in ALL {
        let mut areas = areas(placement, &[(1 << 14, 5), (1 << 14, 5), (1 << 14, 4)]);
        let mut homes = [Homes::NONE; 8];
        let of: Vec<AreaId> = (0..4096u32)
            .map(|page| {
                let slot = areas.allocate(PageId(page), &mut homes[page as usize / 512]).unwrap();
                areas.area_of(slot)
            })
            .collect();
        assert!(of.iter().all(|&area| area != AreaId(2)), "a lower priority waits");
        let changes = of.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(changes, 4096 / WINDOW as usize - 1, "{placement:?}");
        let first = of.iter().filter(|&&area| area == AreaId(0)).count();
        assert_eq!(first, 2048);
    }
}

/// *The story:* the area of a window's home was the one whose turn it was. Of two programs that go
/// out in turn each had all its windows on one device.
#[test]
fn neighbouring_windows_are_on_two_devices_whoever_goes_out_between() {
    let mut areas = areas(Placement::ByAddress, &[(1 << 14, 0), (1 << 14, 0)]);
    let mut homes = [Homes::NONE; 8];
    for window in 0..16u32 {
        let area = [0u32, 4].map(|chunk| {
            let page = chunk * CLUSTER + window * WINDOW;
            let slot = areas.allocate(PageId(page), &mut homes[(page / CLUSTER) as usize]).unwrap();
            areas.area_of(slot)
        });
        assert_eq!(area, [AreaId((window % 2) as u8); 2], "window {window} of both programs");
    }
}

/// One slow area never stalls the others: what piles up there is not added to.
#[test]
fn an_area_whose_writes_pile_up_is_passed_over() {
    let mut areas = areas(Placement::ByAddress, &[(1 << 16, 0), (1 << 16, 0)]);
    let mut counts = [0; 2];
    for chunk in 0..64u32 {
        let mut homes = Homes::NONE;
        for page in chunk * 512..(chunk + 1) * 512 {
            let slot = areas.allocate(PageId(page), &mut homes).unwrap();
            let area = areas.area_of(slot);
            counts[usize::from(area.0)] += 1;
            // The first one never gets done with anything, the second one at once.
            if area == AreaId(0) {
                areas.write_begins(slot, 1);
            }
        }
    }
    assert!(counts[0] <= 5 * WINDOW && counts[1] > 30_000, "{counts:?}");
}

#[test]
fn freed_clusters_are_given_back_but_for_some() {
    for placement in [Placement::ByAddress, Placement::InOrder] {
        let mut areas = Areas::new(placement);
        areas.add(&AreaConfig { slots: 100 * CLUSTER, discards: true, ..AreaConfig::default() });
        let mut homes = vec![Homes::NONE; 100];
        let slots: Vec<Slot> = (0..64 * CLUSTER)
            .map(|page| areas.allocate(PageId(page), &mut homes[(page / CLUSTER) as usize]).unwrap())
            .collect();
        slots.iter().for_each(|&slot| areas.release(slot));
        let mut given = Vec::new();
        while let Some((slot, count)) = areas.next_discard() {
            assert!(slot.0 != 0 && count <= CLUSTER, "the header stays");
            given.push(slot);
        }
        // The header takes a slot, so one more than 64.
        assert_eq!(given.len(), 65 - 16, "{placement:?}: some are kept for the next pages");
        // What is being given back is nobody's, until it is done.
        homes.iter_mut().for_each(|homes| areas.disown(homes));
        let taken: BTreeSet<u32> = (0..30 * CLUSTER)
            .map(|page| areas.allocate(PageId(page), &mut homes[(page / CLUSTER) as usize]).unwrap().0)
            .collect();
        assert!(given.iter().all(|slot| !taken.contains(&slot.0)));
        given.iter().for_each(|&slot| areas.discarded(slot, false));
        let free = (0..).map_while(|n| areas.allocate(PageId(n % 512), &mut homes[99])).count();
        assert_eq!(free as u32 + 30 * CLUSTER, 100 * CLUSTER - 1, "{placement:?}: everything can be used");
    }
}

#[test]
fn backing_is_a_slot_or_nothing() {
    assert_eq!(Backing::NOTHING.slot(), None);
    assert_eq!(Backing::in_slot(Slot(7)).slot(), Some(Slot(7)));
    assert_eq!(Backing::default(), Backing::NOTHING);
}

/// *The story:* areas that had left, or taken what they could, counted as room for ever. Pages that came
/// back kept their slots, and what was left of swap was soon full of them.
#[test]
fn areas_that_take_nothing_are_no_room() {
    let mut areas = areas(Placement::ByAddress, &[(4096, 1), (1024, 0)]);
    let mut homes = Homes::NONE;
    let slots: Vec<Slot> = (0..400).map(|page| areas.allocate(PageId(page), &mut homes).unwrap()).collect();
    assert!(slots.iter().all(|&slot| areas.area_of(slot) == AreaId(0)));
    assert!(!areas.is_tight() && areas.could_hold() == 4095 + 1023);
    areas.close(slots[0]);
    assert!(!areas.is_tight() && areas.could_hold() == 400 + 1023);
    let others = (512..1024).map(|page| areas.allocate(PageId(page), &mut { Homes::NONE }).unwrap());
    assert!(others.collect::<Vec<_>>().iter().all(|&slot| areas.area_of(slot) == AreaId(1)));
    assert!(areas.is_tight(), "912 used, and 511 left");
}

#[test]
fn an_area_has_been_left_once_nothing_is_in_it_or_on_its_way_there() {
    let mut areas = areas(Placement::ByAddress, &[(4096, 1), (1024, 0)]);
    let slot = areas.allocate(PageId(7), &mut { Homes::NONE }).unwrap();
    assert!(areas.fail(AreaId(0)) && areas.leaving(AreaId(0)) == Some(AreaId(0)));
    areas.write_begins(slot, 1);
    assert!(!areas.is_emptied(AreaId(0)));
    areas.release(slot);
    assert!(!areas.is_emptied(AreaId(0)), "it is being written");
    areas.write_ended(slot, 1);
    assert!(areas.is_emptied(AreaId(0)));
    assert_eq!(areas.leaving(AreaId(0)), None);
}

/// See `Area::stay`.
#[test]
fn what_has_failed_takes_no_page_again() {
    let mut areas = areas(Placement::ByAddress, &[(4096, 1), (1024, 0)]);
    assert!(areas.fail(AreaId(0)) && !areas.fail(AreaId(0)), "it is new once");
    let room = areas.room();
    areas.ask_to_leave(AreaId(0));
    areas.leave_if_room(u32::MAX, true);
    assert!(!areas.takes_pages(AreaId(0)) && areas.room() == room);
    areas.close(Slot(4096 + 1));
    assert!(areas.is_full() && !areas.waits_to_leave());
}

/// *The story:* a file system that was full for a moment took no more pages of a run, ever.
#[test]
fn what_had_no_room_takes_pages_again_when_it_has() {
    let mut areas = areas(Placement::ByAddress, &[(4096, 1)]);
    let mut homes = Homes::NONE;
    let slot = areas.allocate(PageId(1), &mut homes).expect("there is room");
    areas.close(slot);
    assert!(areas.is_closed(AreaId(0)) && areas.allocate(PageId(2), &mut homes).is_none());
    assert!(areas.reopen(AreaId(0)) && !areas.reopen(AreaId(0)));
    assert!(areas.allocate(PageId(2), &mut homes).is_some());
    areas.fail(AreaId(0));
    assert!(!areas.reopen(AreaId(0)), "that is another matter");
}

/// *The story:* a window's home came before everything else, in an area that was to take only what
/// nobody else does, too.
#[test]
fn homes_in_an_area_that_is_to_leave_come_last() {
    let mut areas = areas(Placement::ByAddress, &[(4096, 1), (1024, 0)]);
    let mut homes = Homes::NONE;
    let mut area_of = |areas: &mut Areas, page| {
        let slot = areas.allocate(PageId(page), &mut homes).expect("there is room");
        (areas.area_of(slot), slot)
    };
    assert_eq!(area_of(&mut areas, 130), (AreaId(0), Slot(130)));
    areas.ask_to_leave(AreaId(0));
    assert_eq!(area_of(&mut areas, 131).0, AreaId(1));
    areas.close(Slot(4096 + 1));
    assert_eq!(area_of(&mut areas, 132), (AreaId(0), Slot(132)), "where nobody else takes it");
}

/// An area of 64 clusters that shares a limit with others, of which it claims two clusters at a time.
fn sharing() -> Areas {
    let mut areas = Areas::new(Placement::ByAddress);
    areas.add(&AreaConfig { slots: 64 * CLUSTER, claims: 2 * CLUSTER, ..AreaConfig::default() });
    areas
}

const AREA: AreaId = AreaId(0);

fn claims(areas: &mut Areas) -> Vec<(AreaId, u32)> {
    areas.claims().collect()
}

/// Pages of so many 2 MiB of memory, one after another, as long as there are slots.
fn fill(areas: &mut Areas, homes: &mut [Homes]) -> Vec<Slot> {
    let pages = 0..homes.len() as u32 * CLUSTER;
    pages.map_while(|page| areas.allocate(PageId(page), &mut homes[(page / CLUSTER) as usize])).collect()
}

#[test]
fn nothing_is_used_before_it_is_claimed() {
    let mut areas = sharing();
    assert_eq!((areas.room(), claims(&mut areas)), (64 * CLUSTER - 1, vec![]), "nobody wants it");
    let mut homes = vec![Homes::NONE; 64];
    assert!(fill(&mut areas, &mut homes).is_empty() && areas.is_claiming() && !areas.is_full());
    assert_eq!(claims(&mut areas), [(AREA, 2 * CLUSTER)]);
    assert!(fill(&mut areas, &mut homes).is_empty());
    assert!(areas.is_claiming() && claims(&mut areas).is_empty(), "one answer at a time");
    areas.claimed(AREA, 2 * CLUSTER, 3 * CLUSTER + 7, false);
    assert_eq!(areas.room(), 5 * CLUSTER - 1, "a part of a cluster is no room");
    assert_eq!(fill(&mut areas, &mut homes).len() as u32, 2 * CLUSTER - 1);
    assert_eq!(claims(&mut areas), [(AREA, 4 * CLUSTER)]);
    // Others were faster.
    areas.claimed(AREA, 2 * CLUSTER, 0, true);
    assert!(areas.is_full() && fill(&mut areas, &mut homes).is_empty() && !areas.is_claiming());
}

#[test]
fn what_is_refused_is_asked_for_again() {
    let (mut areas, mut homes) = (sharing(), vec![Homes::NONE; 64]);
    let mut ask = |areas: &mut Areas| (fill(areas, &mut homes).len(), claims(areas)).1;
    assert_eq!(ask(&mut areas), [(AREA, 2 * CLUSTER)]);
    areas.claimed(AREA, 0, 2 * CLUSTER, true);
    assert!(ask(&mut areas).is_empty() && !areas.is_full(), "there is some, but not in this instant");
    areas.tick();
    assert_eq!(ask(&mut areas).len(), 1);
    areas.claimed(AREA, CLUSTER, 0, true);
    assert_eq!(areas.room(), CLUSTER - 1);
}

/// Where others want some clusters without pages go back, and their claims once that is done; they serve
/// again when they are claimed again.
#[test]
fn what_is_not_used_is_given_back_where_others_want_it() {
    let (mut areas, mut homes) = (sharing(), vec![Homes::NONE; 64]);
    areas.claimed(AREA, 10 * CLUSTER, 54 * CLUSTER, false);
    let slots = fill(&mut areas, &mut homes);
    assert_eq!(slots.len() as u32, 10 * CLUSTER - 1);
    assert_eq!(claims(&mut areas).len(), 1, "one more page has no slot");
    let behind = slots.iter().filter(|slot| slot.0 >= 3 * CLUSTER);
    behind.for_each(|&slot| areas.release(slot));
    areas.claimed(AREA, 10 * CLUSTER, 54 * CLUSTER, true);
    assert_eq!(areas.next_discard(), None, "there is enough for all");
    areas.claimed(AREA, 10 * CLUSTER, CLUSTER, true);
    let mut given = Vec::new();
    while let Some((slot, count)) = areas.next_discard() {
        assert_eq!(count, CLUSTER);
        given.push(slot);
    }
    assert_eq!((given.len(), claims(&mut areas).len()), (7, 0), "not before the disk has it back");
    given.iter().for_each(|&slot| areas.discarded(slot, false));
    assert_eq!(claims(&mut areas), [(AREA, 3 * CLUSTER)]);
    areas.claimed(AREA, 3 * CLUSTER, 0, true);
    assert_eq!((areas.room(), areas.serving(AREA)), (0, 3 * CLUSTER));
    areas.claimed(AREA, 5 * CLUSTER, 0, true);
    assert_eq!(areas.room(), 2 * CLUSTER, "it has room, as it has a claim");
    let mut others = [Homes::NONE; 3];
    let pages = (0..2 * CLUSTER).map(|page| areas.allocate(PageId(page), &mut others[2]));
    assert!(pages.flatten().all(|slot| given.contains(&Slot(slot.0 / CLUSTER * CLUSTER))));
}

/// An area with four clusters in use of ten that it has, where others want some.
fn with_six_to_give() -> (Areas, Vec<Homes>) {
    let (mut areas, mut homes) = (sharing(), vec![Homes::NONE; 64]);
    areas.claimed(AREA, 4 * CLUSTER, 54 * CLUSTER, false);
    assert_eq!(fill(&mut areas, &mut homes).len() as u32, 4 * CLUSTER - 1);
    areas.claims().for_each(drop);
    areas.claimed(AREA, 10 * CLUSTER, CLUSTER, true);
    (areas, homes)
}

/// *The story:* what had been given up was another process's at once, while pages that came before the
/// answer still got slots of it.
#[test]
fn what_is_given_up_is_not_used_before_the_answer() {
    let (mut areas, mut homes) = with_six_to_give();
    assert_eq!(claims(&mut areas), [(AREA, 4 * CLUSTER)]);
    assert!(fill(&mut areas, &mut homes).is_empty() && areas.serving(AREA) == 4 * CLUSTER);
    assert!(areas.is_claiming() && claims(&mut areas).is_empty(), "one question at a time");
    areas.claimed(AREA, 4 * CLUSTER, 7 * CLUSTER, true);
    assert!(fill(&mut areas, &mut homes).is_empty());
    assert_eq!(claims(&mut areas), [(AREA, 5 * CLUSTER)]);
}

/// *The story:* a file system that cannot punch holes kept the blocks, and others had the claim to them.
#[test]
fn what_the_backing_keeps_stays_claimed() {
    let (mut areas, mut homes) = (sharing(), vec![Homes::NONE; 64]);
    areas.claimed(AREA, 4 * CLUSTER, 54 * CLUSTER, false);
    let slots = fill(&mut areas, &mut homes);
    areas.claims().for_each(drop);
    areas.claimed(AREA, 4 * CLUSTER, 0, true);
    let last = slots.iter().filter(|slot| slot.0 >= 2 * CLUSTER);
    last.for_each(|&slot| areas.release(slot));
    while let Some((slot, _)) = areas.next_discard() {
        areas.discarded(slot, true);
    }
    assert_eq!((areas.serving(AREA), claims(&mut areas).len()), (4 * CLUSTER, 0));
    areas.claimed(AREA, 4 * CLUSTER, CLUSTER, true);
    assert_eq!(areas.next_discard(), None, "it is not tried again and again");
    assert_eq!(fill(&mut areas, &mut homes).len() as u32, 2 * CLUSTER, "its pages have the use of them");
}

/// *The story:* once an area had been left, and all its claim with it, it asked for what its header's
/// cluster needs, and got it: nobody else could ever have that.
#[test]
fn who_has_left_claims_nothing() {
    let (mut areas, mut homes) = (sharing(), vec![Homes::NONE; 64]);
    areas.claimed(AREA, 4 * CLUSTER, 54 * CLUSTER, false);
    let slots = fill(&mut areas, &mut homes);
    areas.fail(AREA);
    slots.into_iter().for_each(|slot| areas.release(slot));
    while let Some((slot, _)) = areas.next_discard() {
        areas.discarded(slot, false);
    }
    assert!(areas.is_emptied(AREA));
    assert_eq!(claims(&mut areas), []);
}

/// *The story:* areas that others knew kept their numbers when nothing was in them any more. From the 64th
/// one that a fork had made on everything came in for a fork.
#[test]
fn numbers_of_an_area_that_is_forgotten_are_given_out_again() {
    let mut areas = areas(Placement::ByAddress, &[(4096, 0), (4096, 0), (4096, 0)]);
    let mut homes = [Homes::NONE; 8];
    let fill = |areas: &mut Areas, homes: &mut [Homes; 8]| -> Vec<(Slot, PageId)> {
        let pages = (0..8 * CLUSTER).map(PageId);
        let place =
            |page: PageId| (areas.allocate(page, &mut homes[(page.0 / CLUSTER) as usize]).unwrap(), page);
        pages.map(place).collect()
    };
    let filled = fill(&mut areas, &mut homes);
    let (first, others): (Vec<_>, Vec<_>) = filled.into_iter().partition(|&(slot, _)| slot.0 < 4096);
    assert!(first.len() > 1000 && others.len() > 2000, "they take turns");
    areas.seal(AreaId(0), homes.iter_mut());
    first.iter().for_each(|&(slot, _)| areas.release(slot));
    areas.remove(AreaId(0), homes.iter_mut());
    assert!(others.iter().all(|&(slot, page)| areas.owner(slot) == Some(page)), "theirs are as they were");
    assert_eq!((areas.area_of(Slot(4096)), areas.area_of(Slot(2 * 4096 + 1))), (AreaId(0), AreaId(1)));
    assert_eq!(areas.used() as usize, others.len());

    // Those of the last one are the next one's.
    areas.seal(AreaId(1), homes.iter_mut());
    let (_, slots) = areas.place_of(AreaId(1));
    assert!(slots < 4096 && areas.numbers_left_sealed() == areas.numbers_left());
    let (last, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|&(slot, _)| slot.0 >= 2 * 4096);
    last.iter().for_each(|&(slot, _)| areas.release(slot));
    areas.remove(AreaId(1), homes.iter_mut());
    let id = areas.add(&AreaConfig { slots: 4096, ..AreaConfig::default() });
    assert_eq!((id, areas.place_of(id)), (AreaId(1), (Slot(2 * 4096), 4096)));
    others.iter().for_each(|&(slot, _)| areas.release(slot));
    let again = fill(&mut areas, &mut homes);
    assert!(again.iter().any(|&(slot, _)| slot.0 > 2 * 4096), "pages go there");
    assert!(again.iter().all(|&(slot, page)| areas.owner(slot) == Some(page)));
}

#[test]
#[should_panic(expected = "nothing is there")]
fn an_area_with_a_page_is_not_forgotten() {
    let mut areas = areas(Placement::ByAddress, &[(4096, 0), (4096, 0)]);
    let mut homes = [Homes::NONE];
    assert!(areas.allocate(PageId(7), &mut homes[0]).is_some_and(|slot| slot.0 < 4096));
    areas.seal(AreaId(0), homes.iter_mut());
    areas.remove(AreaId(0), homes.iter_mut());
}
