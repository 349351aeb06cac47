//! Arbitrary bytes as a trace: records or one error, no panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overspill_sim::trace::Format;
use overspill_sim::trace::RecordReader;
use overspill_sim::trace::open::read_any;
use std::io::Cursor;

fuzz_target!(|bytes: &[u8]| {
    let Ok((_, mut reader)) = read_any(Box::new(Cursor::new(bytes.to_vec())), Some(Format::Lackey)) else { return };
    while let Ok(Some(_)) = reader.next_record() {}
});
