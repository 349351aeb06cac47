//! `overspill sim soak`: random worlds until one fails, each announced by the command that repeats
//! it.

use std::io::Write as _;

use anyhow::Result;
use clap::Args as ClapArgs;
use overspill_sim::soak::World;

use crate::stdout::print;

/// Options of `overspill sim soak`.
#[derive(ClapArgs)]
pub struct Args {
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How many seeds, one after another; 0 = until stopped
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u64,
    /// Print every event and action
    #[arg(long)]
    log: bool,
}

/// Carries out the command.
pub fn main(args: &Args) -> Result<u8> {
    let count = if args.count == 0 { usize::MAX } else { usize::try_from(args.count).unwrap_or(usize::MAX) };
    for seed in (args.seed..).take(count) {
        let mut world = World::draw(seed);
        if args.log {
            // Who stops reading does not want the rest; the next world says so.
            world.log_to(|line| drop(writeln!(std::io::stdout(), "{line}")));
        }
        print(&format!("{}repeat with: {}\n", world.describe(), world.command()))?;
        print(&format!("{} accesses, all checks hold\n\n", world.run()))?;
    }
    Ok(0)
}
