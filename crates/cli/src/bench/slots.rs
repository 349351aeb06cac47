//! `overspill bench slots`: what it costs to give a page a slot, and to take that back, in runs of
//! 16 and singly. The time depends on the machine; the instructions, under callgrind, do not.

use std::time::Instant;

use anyhow::Result;
use overspill_mm::swap::cost::{Freed, allocate_and_free};
use overspill_sim::report::table::aligned;

use super::options::Options;
use crate::stdout::print;

pub const OPTIONS: Options = Options { names: &["laps"], tuning: false };

/// Pages of a run: those that leave together.
const RUN: u32 = 16;
/// Rounds over 128 MiB of memory.
const ROUNDS: u32 = 200;

/// Carries out the command.
pub fn main(rounds: Option<u32>) -> Result<u8> {
    let rounds = rounds.unwrap_or(ROUNDS);
    let mut rows = vec![["slots", "freed", "ns a slot"].map(str::to_owned).to_vec()];
    for (freed, name) in [(Freed::Together, "in runs of 16"), (Freed::Singly, "singly")] {
        let began = Instant::now();
        let slots = allocate_and_free(rounds, RUN, freed);
        let ns = began.elapsed().as_nanos() as f64 / slots.max(1) as f64;
        rows.push(vec![slots.to_string(), name.into(), format!("{ns:.1}")]);
    }
    print(&(aligned(&rows, &[true, false, true]) + "\n"))?;
    Ok(0)
}
