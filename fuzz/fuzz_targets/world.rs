//! Whole worlds by their seed: the engine's checks are the oracle.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overspill_sim::soak::World;

fuzz_target!(|seed: u64| {
    let _ = World::draw(seed).run();
});
