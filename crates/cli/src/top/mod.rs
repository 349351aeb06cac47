//! `overspill top`: the budgets that are running, looked at from outside, once or again and again.
//!
//! It reads the memory that a launcher shares with its agents ([`scan`]), and writes nothing to it.
//! What is shown is made from two looks ([`view`]): figures now, and rates between them. On a
//! terminal it is drawn in place ([`screen`]).

pub mod scan;
mod screen;
mod view;

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;

use crate::stdout::print;
use scan::Look;

/// Options of `overspill top`.
#[derive(clap::Args)]
pub struct Args {
    /// Look for so long, print the figures as text, and end; so it is where standard output is no
    /// terminal
    #[arg(long)]
    once: bool,
    /// Time between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Only the runs of these launchers
    #[arg(value_name = "PID")]
    pids: Vec<u32>,
}

/// A tenth of a second to an hour.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| format!("`{text}` is not a number of seconds from 0.1 to 3600"))
}

/// Shows the runs; exit code 1 if it was to look once and there are none.
pub fn main(args: &Args) -> Result<u8> {
    let interval = Duration::from_secs_f64(args.interval);
    if !args.once && std::io::stdout().is_terminal() {
        screen::show(&args.pids, interval)?;
        return Ok(0);
    }
    let before = Look::now(&args.pids);
    std::thread::sleep(interval);
    let now = Look::now(&args.pids);
    print(&view::text(&before, &now))?;
    Ok(u8::from(now.runs.is_empty()))
}
