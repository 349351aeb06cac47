//! `overspill sim TRACE` of a trace that knows calls on files alone: each amount of RAM, file
//! read-ahead policy and device, and what the calls had to wait for.

use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow, bail};
use overspill_mm::fileread::policy::NAMES;
use overspill_mm::types::PAGE_SIZE;
use overspill_sim::device::params::Model;
use overspill_sim::files::replay::{Recorded, Setting, record};
use overspill_sim::files::report::{Header, Row, json, render};
use overspill_sim::options::{amounts, names, show_bytes};
use overspill_sim::sweep::parallel;
use overspill_sim::trace::workload::TraceWorkload;
use overspill_sim::trace::{Format, TraceError, open};

use super::sweep::SweepArgs;
use crate::progress::Progress;
use crate::stdout::print;

/// The RAM when nothing is said, as far as that is enough.
const RAM_DEFAULT: &str = "10%,25%,50%,100%,125%";

/// The least RAM: the largest request fits twice.
const LEAST_BYTES: u64 = 2 << 20;

/// Are there calls on files in the trace, and nothing that was done to memory?
pub fn is_of_files(path: &Path, format: Option<Format>) -> bool {
    matches!(TraceWorkload::open(path, format), Err(TraceError::NoAccesses { file_calls: 1.. }))
}

/// Carries out the command.
pub fn main(args: &SweepArgs) -> Result<u8> {
    args.ensure_fit_for_files()?;
    let path = Path::new(&args.workload);
    let progress = Progress::new();
    progress.say("reading the trace's calls");
    let of_trace = |error: TraceError| anyhow!("{}: {error}", path.display());
    let (_, mut reader) = open(path, args.from).map_err(of_trace)?;
    let recorded = Arc::new(record(&mut *reader).map_err(of_trace)?);
    let rams = rams(args, &recorded)?;
    let policies = names(&args.readahead, &NAMES)
        .context("--readahead: this is a trace of calls on files, which have policies of their own")?;
    let devices = devices(&args.device, &recorded)?;
    let [limit, largest] = [args.read_ahead_kb, args.max_sectors_kb].map(|kb| kb / (PAGE_SIZE / 1024));
    let settings: Vec<Setting<'_>> = devices
        .iter()
        .flat_map(|device| policies.iter().map(move |policy| (device, policy)))
        .flat_map(|(device, readahead)| {
            rams.iter().map(move |&cache_pages| Setting { cache_pages, readahead, device, limit, largest })
        })
        .collect();
    let header = Header {
        workload: args.workload.to_string_lossy().into_owned(),
        workload_bytes: recorded.pages * PAGE_SIZE,
        calls: recorded.calls,
        files: recorded.file_count() as u64,
        mappings: recorded.mappings,
        read_ahead_kb: limit * (PAGE_SIZE / 1024),
        max_sectors_kb: largest * (PAGE_SIZE / 1024),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let line = Mutex::new(&progress);
    let say = |done: usize| {
        if let Ok(progress) = line.lock() {
            progress.share(done, settings.len(), "machines");
        }
    };
    let run = |job: usize| Row::new(&recorded, &settings[job], &recorded.replay(&settings[job]));
    let rows = parallel(settings.len(), super::jobs(args.jobs), run, say);
    drop(progress);
    print(&if args.json { json(&header, &rows) } else { render(&header, &rows) })?;
    Ok(0)
}

/// The amounts of RAM, in pages.
fn rams(args: &SweepArgs, recorded: &Recorded) -> Result<Vec<u64>> {
    let whole = recorded.pages * PAGE_SIZE;
    let listed = amounts(args.ram.as_deref().unwrap_or(RAM_DEFAULT)).context("--ram")?;
    let mut bytes: Vec<u64> = listed.iter().map(|ram| ram.bytes(whole)).collect();
    if args.ram.is_none() {
        bytes.retain(|&bytes| bytes >= LEAST_BYTES);
        if bytes.is_empty() {
            bytes.push(LEAST_BYTES);
        }
    }
    if bytes.iter().any(|&bytes| bytes < LEAST_BYTES) {
        bail!("--ram: the least for calls on files is {}", show_bytes(LEAST_BYTES));
    }
    Ok(bytes.into_iter().map(|bytes| bytes / PAGE_SIZE).collect())
}

/// The devices, on each of which all files have room.
fn devices(list: &str, recorded: &Recorded) -> Result<Vec<Model>> {
    let fits = |model: Model| -> Result<Model> {
        let room = model.room_bytes();
        if recorded.laid_out_bytes() > room {
            bail!("--device: the files do not fit on {} ({})", model.name, show_bytes(room));
        }
        Ok(model)
    };
    super::sweep::devices(list)?.into_iter().map(fits).collect()
}
