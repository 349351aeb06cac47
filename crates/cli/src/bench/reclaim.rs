//! `overspill bench reclaim`: several readers that stream through memory beside a program with a hot
//! set, all under one budget ([`crate::load::neighbours`]); for each reclaim policy by name, and for
//! the kernel in a memory cgroup.
//!
//! What is looked at: are the readers treated alike (range and deviation of their times), does the
//! hot set stay (its touches that nobody had to answer), and what does it take (pages read, refaults,
//! stalls). Nothing is judged.

use std::ffi::OsString;

use anyhow::{Context, Result, ensure};
use overspill_mm::reclaim::policy::NAMES;
use overspill_sim::report::table::aligned;
use serde::Serialize;

use super::options::Options;
use super::{ALLOWANCE_BYTES, figures_file};
use crate::args::BenchArgs;
use crate::compare::way::Way;
use crate::compare::{self, Input, Lab, Measurement, Subject, Turns};
use crate::human;
use crate::load::neighbours::{Neighbours, NeighboursArgs, Role};
use crate::machine;
use crate::progress::Progress;
use crate::size::Size;
use crate::stdout::print;

pub const OPTIONS: Options =
    Options { names: &["ram", "size", "laps", "runs", "json", "out", "ways"], tuning: true };

/// The budget unless it is given.
const RAM_BYTES: u64 = 128 << 20;
/// Readers, and how often each goes through its memory, which is as much as the budget.
const READERS: u32 = 3;
const LAPS: u32 = 2;
/// The hot set's part of the budget.
const HOT_PERCENT: u64 = 60;

/// What the JSON file says beside the runs.
#[derive(Serialize)]
struct Parameters {
    /// Processes that read beside the hot set.
    readers: u32,
    /// What each of them reads.
    stream_bytes: u64,
    /// How often it does.
    laps: u32,
    /// Size of the hot set.
    hot_bytes: u64,
    /// The runs.
    rows: Vec<Row>,
}

/// One run.
#[derive(Serialize, Clone, Debug)]
struct Row {
    /// Which way.
    way: String,
    /// Time of the last reader.
    seconds: f64,
    /// The last reader's time less the first one's.
    range_seconds: f64,
    /// Standard deviation of the readers' times.
    deviation_seconds: f64,
    /// Of the hot set's touches, the share that nobody had to answer.
    hot_kept: f64,
    /// Its rate beside readers, of that alone.
    hot_speed: f64,
    /// Pages read from swap.
    pages_in: u64,
    /// Pages written to swap.
    pages_out: u64,
    /// Faults that waited for a frame; overspill's alone.
    stalls: Option<u64>,
    /// Pages that had left and were read again; overspill's alone.
    refaults: Option<u64>,
    /// What the load said.
    load: Neighbours,
}

/// Carries out the command.
pub fn main(args: &BenchArgs) -> Result<u8> {
    let ways = if args.measuring.ways.is_empty() { every_way() } else { args.measuring.ways.clone() };
    compare::require_root_for(&ways, "bench")?;
    let path = figures_file(args, "reclaim")?;
    let machine_bytes = machine::ram_bytes();
    let ram_bytes = args.ram.map_or(RAM_BYTES.min(machine_bytes / 4), |ram| ram.bytes(machine_bytes));
    let stream_bytes = args.size.map_or(ram_bytes, |size| size.bytes(machine_bytes));
    let load = NeighboursArgs {
        readers: READERS,
        stream: Size::Bytes(stream_bytes),
        laps: args.work.laps.unwrap_or(LAPS),
        hot: Size::Bytes(ram_bytes / 100 * HOT_PERCENT),
        role: Role::All,
    };
    let hot_bytes = load.hot.bytes(machine_bytes);
    let mut command: Vec<OsString> = vec![std::env::current_exe()?.into()];
    command.extend(load.command_line().into_iter().map(OsString::from));
    let place = compare::place_for(&ways, &args.tuning)?;
    let need = u64::from(READERS) * stream_bytes + hot_bytes;
    let mut lab = Lab::new(place, &ways, &args.tuning, ram_bytes + ALLOWANCE_BYTES, need)?;
    let directory = lab.directory().to_path_buf();
    let progress = Progress::about("reclaim: ");
    let turns = Turns { ways: &ways, rounds: args.measuring.runs };
    let mut rows = Vec::new();
    let series = compare::series(&mut lab, turns, &command, &Input::nothing()?, None, &progress, |run| {
        rows.extend(row(run)?);
        Ok(())
    });
    drop(progress);
    let runs = compare::end_of(lab, series)?;
    let title = format!(
        "{READERS} readers of {}, {} times, beside a hot set of {}, in {}",
        human::bytes(stream_bytes),
        load.laps,
        human::bytes(hot_bytes),
        human::bytes(ram_bytes)
    );
    let text = human::folded(&title, "    ") + &table(&rows) + "\n" + &compare::killed_lines(&runs);
    let parameters = Parameters { readers: READERS, stream_bytes, laps: load.laps, hot_bytes, rows };
    let subject =
        Subject { kind: "bench", command: &command, ram_bytes, allowance_bytes: ALLOWANCE_BYTES, parameters };
    path.map_or(Ok(()), |path| compare::write(&path, subject, runs, &directory))?;
    print(&text)?;
    Ok(0)
}

/// The kernel, and overspill under each policy.
fn every_way() -> Vec<Way> {
    let names = NAMES.map(|name| format!("overspill:adaptive:{name}"));
    let names = ["kernel:0", "kernel:3"].into_iter().chain(names.iter().map(String::as_str));
    names.map(|name| name.parse().expect("these are ways")).collect()
}

/// What a run came to; nothing where the kernel killed it for want of memory.
fn row(run: &Measurement) -> Result<Option<Row>> {
    if run.was_killed_for_memory() {
        return Ok(None);
    }
    ensure!(run.is_success(), "the load failed: {}", run.captured.error_tail);
    let load: Neighbours = serde_json::from_slice(&run.captured.head).context("the load's line of JSON")?;
    let counters = run.overspill.as_ref().map(|report| &report["vmstat"]);
    let total = |name: &str| counters.and_then(|counters| counters[name].as_u64());
    Ok(Some(Row {
        way: run.way.clone(),
        seconds: load.seconds(),
        range_seconds: load.range(),
        deviation_seconds: load.deviation(),
        hot_kept: load.kept(),
        hot_speed: load.speed(),
        pages_in: run.swap_in_bytes / 4096,
        pages_out: run.swap_out_bytes / 4096,
        stalls: total("allocstall"),
        refaults: total("workingset_refault_anon"),
        load,
    }))
}

fn table(rows: &[Row]) -> String {
    let head = ["way", "s", "range", "stddev", "hot kept", "speed", "in", "out", "stalls", "refaults"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| {
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), human::count);
        vec![
            row.way.replace("overspill:adaptive:", ""),
            format!("{:.2}", row.seconds),
            format!("{:.2}", row.range_seconds),
            format!("{:.2}", row.deviation_seconds),
            format!("{:.2}%", 100.0 * row.hot_kept),
            format!("{:.2}", row.hot_speed),
            human::count(row.pages_in),
            human::count(row.pages_out),
            count(row.stalls),
            count(row.refaults),
        ]
    }));
    let right: Vec<bool> = (0..head.len()).map(|column| column > 0).collect();
    aligned(&lines, &right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::neighbours::Part;

    #[test]
    fn every_policy_is_a_way() {
        let ways = every_way();
        assert_eq!(ways.len(), NAMES.len() + 2);
        assert!(ways.iter().any(|way| way.to_string() == "overspill:adaptive:probing"));
    }

    #[test]
    fn the_table_has_a_line_for_each_run() {
        let load = Neighbours {
            readers: vec![Part { seconds: 3.0, ..Part::default() }, Part { seconds: 1.0, ..Part::default() }],
            ..Neighbours::default()
        };
        let row = Row {
            way: "overspill:adaptive:lru".to_owned(),
            seconds: load.seconds(),
            range_seconds: load.range(),
            deviation_seconds: load.deviation(),
            hot_kept: 0.5,
            hot_speed: 0.25,
            pages_in: 7,
            pages_out: 8,
            stalls: None,
            refaults: Some(9),
            load,
        };
        let text = table(&[row]);
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("lru  3.00   2.00    1.00    50.00%"), "{text}");
    }
}
