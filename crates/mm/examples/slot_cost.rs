//! What a slot costs, for those who count instructions (callgrind). Arguments: `together` or
//! `singly` (how slots are given back), rounds, pages of a run. Prints how many slots were had and
//! given back; the instructions of 12 rounds less those of 2, by ten times 32,768 slots, are those
//! of a slot. `overspill bench slots` tells the time.

use overspill_mm::swap::cost::{Freed, allocate_and_free};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let is_singly = arguments.next().is_some_and(|freed| freed == "singly");
    let mut number = |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (rounds, run) = (number(12), number(16));
    let freed = if is_singly { Freed::Singly } else { Freed::Together };
    println!("{} slots", allocate_and_free(rounds, run, freed));
}
