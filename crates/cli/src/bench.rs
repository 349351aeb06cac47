//! `overspill bench`: the built-in load ([`crate::load`]) as the command of a comparison.

use std::ffi::OsString;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::args::BenchArgs;
use crate::compare::{self, Input, Lab, Measurement, Subject};
use crate::load::pattern::Pattern;
use crate::load::{Done, LoadArgs};
use crate::progress::Progress;
use crate::size::Size;
use crate::{cgroup, human, machine};

/// What kernel and overspill get beyond `--ram`: the load's own code, stacks and page tables.
const ALLOWANCE_BYTES: u64 = 4 << 20;

/// What the JSON file says about the load beside its command line.
#[derive(Serialize)]
struct Parameters {
    pattern: String,
    size_bytes: u64,
    threads: u32,
    write: bool,
    shared: bool,
}

/// Runs the load every way and prints the table.
pub fn main(args: &BenchArgs) -> Result<u8> {
    cgroup::require_root("bench")?;
    let place = compare::place_for(&args.measuring.ways, args.tuning.swap.as_deref())?;
    let ram_bytes = args.ram.bytes(machine::ram_bytes());
    let size_bytes = args.size.unwrap_or(default_size(args.pattern)).bytes(machine::ram_bytes());
    let mut command: Vec<OsString> = vec![std::env::current_exe()?.into()];
    let line = LoadArgs::command_line(args.pattern, size_bytes, &args.work);
    command.extend(line.iter().map(OsString::from));

    let directory = place.directory.clone();
    let progress = Progress::new();
    progress.say(compare::WAITING);
    let mut lab = Lab::new(place, &args.tuning, ram_bytes + ALLOWANCE_BYTES, size_bytes)?;
    let runs =
        compare::series(&mut lab, &args.measuring, &command, &Input::nothing()?, None, &progress, read_done);
    drop(progress);
    let runs = compare::end_of(lab, runs)?;

    println!("load {} in {}", line[1..].join(" "), human::bytes(size_bytes));
    let parameters = Parameters {
        pattern: args.pattern.to_string(),
        size_bytes,
        threads: args.work.threads,
        write: args.work.write,
        shared: args.work.shared,
    };
    let parts = part_lines(&runs);
    let subject =
        Subject { kind: "bench", command: &command, ram_bytes, allowance_bytes: ALLOWANCE_BYTES, parameters };
    compare::report(subject, &args.measuring, runs, &directory)?;
    print!("{parts}");
    Ok(0)
}

fn default_size(pattern: Pattern) -> Size {
    Size::Bytes(if pattern == Pattern::Random { 1800 } else { 1000 } << 20)
}

/// Reads the load's line; a load that failed its own verification ends the bench.
fn read_done(run: &mut Measurement) -> Result<()> {
    ensure!(run.is_success(), "{}", run.captured.error_tail);
    let done: Done = serde_json::from_slice(&run.captured.head).context("the load's line of JSON")?;
    run.load = Some(done);
    Ok(())
}

/// For loads whose threads do different things: each kind's rate, and with `--latency` the faults' latency.
fn part_lines(runs: &[Measurement]) -> String {
    let mut lines = String::new();
    for run in runs {
        let Some(done) = &run.load else { continue };
        let mut kinds: Vec<(&str, f64)> = Vec::new();
        for part in &done.parts {
            match kinds.iter_mut().find(|(pattern, _)| *pattern == part.pattern) {
                Some((_, rate)) => *rate += part.touches_per_second,
                None => kinds.push((&part.pattern, part.touches_per_second)),
            }
        }
        if kinds.len() > 1 {
            let rates =
                kinds.iter().map(|(kind, rate)| format!("{kind} {} touches/s", human::count(*rate as u64)));
            lines.push_str(&format!("{}: {}\n", run.way, rates.collect::<Vec<_>>().join(", ")));
        }
        if let Some(latency) = done.fault_latency {
            let [p50, p90, p99] = [latency.p50_ns, latency.p90_ns, latency.p99_ns].map(human::nanos);
            let count = human::count(latency.count);
            lines.push_str(&format!("{}: {count} faults, p50 {p50}, p90 {p90}, p99 {p99}\n", run.way));
        }
    }
    lines
}
