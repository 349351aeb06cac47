//! Found by comparing with a real kernel: pages kept the slots of their first eviction for ever, so
//! slots stayed in the order of the first fill, and read-ahead by slots saw neighbours where the
//! kernel has none (random stores), or none where the kernel has them (strided stores). The kernel
//! gives a slot back at the first store (specification 1.7).

mod touching;
mod willing;

use overspill_mm::readahead::none::NoReadAhead;
use overspill_mm::types::Access;
use overspill_mm::{Config, Mm, Placement, Probe};
use touching::{one_by_one, touch};

fn machine(placement: Placement) -> Mm<NoReadAhead> {
    touching::machine(Config { placement, probe: Probe::Kernel, ..one_by_one(4, 8192) })
}

#[test]
fn a_store_gives_the_slot_back_a_load_does_not() {
    let mut mm = machine(Placement::InOrder);
    for vpn in 0..8 {
        touch(&mut mm, vpn, Access::Write);
    }
    let on_swap = mm.slots_used();
    assert_eq!(on_swap, 4);
    assert_eq!(touch(&mut mm, 0, Access::Read).map(|slots| slots.len()), Some(1), "somebody made room");
    assert_eq!(mm.slots_used(), on_swap + 1, "a page that was only read keeps its slot");
    assert_eq!(mm.frames_held() + mm.pages_swapped(), 8, "but it is there once");
    touch(&mut mm, 0, Access::Write);
    assert_eq!(mm.slots_used(), on_swap, "the first store gives it back");
}

#[test]
fn slots_follow_the_order_of_eviction() {
    let mut mm = machine(Placement::InOrder);
    let mut last = 0;
    // Scattered stores, several times over: every eviction takes the next slot, whatever the page had before.
    for round in 0..40_u64 {
        for slot in touch(&mut mm, round * 7 % 16, Access::Write).unwrap_or_default() {
            assert!(slot > last, "round {round}: slot {slot} after {last}");
            last = slot;
        }
    }
}
