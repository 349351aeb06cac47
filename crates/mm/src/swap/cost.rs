//! What a slot costs: pages of some memory get slots and give them back, again and again, in runs.
//! For those who count instructions (`overspill bench slots`, under callgrind).

use alloc::vec;

use super::{AreaConfig, Areas, CLUSTER, Homes, Placement};
use crate::types::PageId;

/// 2 MiB of memory that go out and come back.
const CHUNKS: u32 = 64;

/// How slots are given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    /// As many at a time as were allocated.
    Together,
    /// One by one.
    Singly,
}

/// Has every page of 128 MiB get a slot and give it back, in runs of `run` pages, so many times.
/// Returns how many slots that were.
///
/// # Panics
/// When `run` does not divide a window.
#[must_use]
pub fn allocate_and_free(rounds: u32, run: u32, freed: Freed) -> u64 {
    let mut areas = Areas::new(Placement::ByAddress);
    let slots = (CHUNKS + 1) * CLUSTER;
    areas.add(&AreaConfig { slots, ..AreaConfig::default() });
    let mut homes = vec![Homes::NONE; CHUNKS as usize];
    let mut all = vec![crate::types::Slot(0); (CHUNKS * CLUSTER / run) as usize];
    let mut count = 0;
    for _ in 0..rounds {
        for (index, slot) in (0..).zip(&mut all) {
            let page = index * run;
            let home = &mut homes[(page / CLUSTER) as usize];
            let (first, got) = areas.allocate_run(PageId(page), run, home).expect("there is room for all");
            // Only the window with the header has a shorter one.
            count += u64::from(got);
            *slot = first;
            if got < run {
                (0..got).for_each(|n| areas.release(crate::types::Slot(first.0 + n)));
                slot.0 = 0;
            }
        }
        for slot in all.iter().filter(|slot| slot.0 != 0) {
            match freed {
                Freed::Together => areas.release_run(*slot, run),
                Freed::Singly => {
                    (slot.0..slot.0 + run).for_each(|slot| areas.release(crate::types::Slot(slot)));
                }
            }
        }
    }
    assert_eq!(areas.used(), 0, "what was allocated was freed");
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_gets_a_slot_in_every_round() {
        for freed in [Freed::Together, Freed::Singly] {
            let most = u64::from(3 * CHUNKS * CLUSTER);
            let slots = allocate_and_free(3, 16, freed);
            assert!((most - 3 * 16..=most).contains(&slots), "{slots} of {most}");
        }
    }
}
