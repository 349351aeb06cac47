//! Text from the command line and from files: lists, loads, device models.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overspill_sim::{device::params::Model, generate, options};

fuzz_target!(|text: &str| {
    let _ = options::amounts(text);
    let _ = generate::parse(text);
    if let Ok(model) = Model::parse("fuzz", text) {
        drop(model.build());
    }
});
