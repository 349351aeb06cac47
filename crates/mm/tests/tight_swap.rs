//! Above half full, swap is too small for pages to be there and in RAM: one that comes into view
//! gives its slot back (specification 1.7, 3.4). Below, it keeps it and leaves without a write.

mod touching;
mod willing;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::Access;
use overspill_mm::{Config, Mm, Placement, Probe};
use touching::{machine, one_by_one, touch};

const BUDGET: u32 = 4;
/// The header, and room for seven pages.
const SMALL: u32 = 8;
/// Room for more than twice all pages.
const LARGE: u32 = 512;

/// A kernel by its own rules, and the live pager, which compares what it takes with what was read.
fn machines(swap_slots: u32) -> [Mm<NoReadAhead>; 2] {
    let common = one_by_one(BUDGET, swap_slots);
    let live = Config { compares: true, ..common };
    let kernel = Config { placement: Placement::InOrder, probe: Probe::Kernel, ..common };
    [kernel, live].map(machine)
}

/// Ten pages on four frames and seven slots, read round and round: each that comes in makes room on
/// swap for the one that leaves. With slots kept, the seven would soon be those of pages in RAM.
#[test]
fn above_half_full_no_page_in_view_has_a_slot() {
    for mut mm in machines(SMALL) {
        for vpn in 0..10 {
            touch(&mut mm, vpn, Access::Write);
        }
        for round in 0..20 {
            for vpn in 0..10 {
                let written = touch(&mut mm, vpn, Access::Read);
                assert_eq!(mm.slots_used(), mm.pages_swapped(), "round {round}, page {vpn}");
                assert_eq!((mm.frames_held(), mm.pages_swapped()), (BUDGET, 6), "round {round}, page {vpn}");
                // What gave its slot back has nothing on swap: who leaves is written, though only read.
                let is_one = written.as_ref().is_none_or(|slots| slots.len() == 1);
                assert!(is_one, "round {round}, page {vpn}: {written:?}");
            }
        }
    }
}

#[test]
fn below_half_full_a_page_that_was_only_read_keeps_its_slot() {
    for mut mm in machines(LARGE) {
        let rounds = [Access::Write, Access::Read, Access::Read];
        for (access, vpn) in rounds.into_iter().flat_map(|access| (0..10).map(move |vpn| (access, vpn))) {
            touch(&mut mm, vpn, access);
        }
        assert!(mm.slots_used() > mm.pages_swapped(), "{} slots", mm.slots_used());
    }
}
