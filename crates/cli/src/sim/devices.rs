//! `overspill sim devices` and `overspill sim calibrate`: models of devices, built in or measured
//! here.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use overspill_sim::calibrate::{CalibrateError, Calibration, calibrate};
use overspill_sim::device::Op;
use overspill_sim::device::params::Model;
use overspill_sim::report::table;
use overspill_sim::time::show as duration;

use crate::checks::{Status, swap_place};
use crate::human::folded;
use crate::idle::Idle;
use crate::output::Anew;
use crate::progress::Progress;
use crate::stderr;
use crate::stdout::print;
use crate::swap::arg::SwapArg;

/// Measures a directory's device as the pager meets it: with idle processors awake, if `idle` says
/// so and it is allowed. An interrupt that finds its processor asleep takes a third longer on some
/// machines.
pub fn measure(directory: &Path, idle: Idle, progress: &Progress) -> Result<Calibration, CalibrateError> {
    let awake = idle.keep_awake();
    let circumstances = if awake.is_some() { "idle ones kept awake" } else { "" };
    calibrate(directory, circumstances, &mut |step| progress.say(step))
}

/// Measures a directory's device: the figures on standard error, the model to `output`.
pub fn tell(directory: &Path, idle: Idle, output: Option<&PathBuf>) -> Result<u8> {
    let cannot = || format!("cannot write {}", output.map_or(Path::new(""), PathBuf::as_path).display());
    // Whether it can be written is said before the work, not after.
    let file = output.map(|path| Anew::begin(path)).transpose().with_context(cannot)?;
    refuse_what_run_refuses(directory)?;
    let progress = Progress::new();
    let calibration = measure(directory, idle, &progress)?;
    drop(progress);
    stderr::write(&figures(&calibration));
    let text = calibration.model.to_toml();
    match file {
        Some(anew) => {
            let written = anew.file().write_all(text.as_bytes());
            written.and_then(|()| anew.finish()).with_context(cannot)?;
        }
        None => print(&text)?,
    }
    Ok(0)
}

/// *The story:* of /dev/shm a device was measured whose reads take 1.5 us: with a model of it every budget
/// was comfortable.
fn refuse_what_run_refuses(directory: &Path) -> Result<()> {
    if directory.is_dir()
        && let Ok(place) = swap_place::resolve(Some(&SwapArg::plain(directory.to_path_buf())))
    {
        let check = swap_place::usable(&place);
        ensure!(check.status != Status::Fail, "{}: {}", check.name, check.detail);
    }
    Ok(())
}

/// What was measured, all of it at random places.
fn figures(calibration: &Calibration) -> String {
    let head = ["random", "KiB", "deep", "mean", "p50", "p99", "/s", "MB/s", "model"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for measurement in &calibration.measurements {
        let modelled = calibration.check.iter().find(|(name, _, _)| *name == measurement.name());
        let what = match (measurement.op, measurement.beside_writes) {
            (Op::Read, false) => "read",
            (Op::Read, true) => "read beside writes",
            (Op::Write, _) => "write",
        };
        lines.push(vec![
            what.to_owned(),
            (measurement.bytes / 1024).to_string(),
            measurement.depth.to_string(),
            duration(measurement.mean_ns),
            duration(measurement.p50_ns),
            duration(measurement.p99_ns),
            measurement.rate().to_string(),
            measurement.bytes_per_us().to_string(),
            modelled.map_or(String::new(), |(_, _, mean_ns)| duration(*mean_ns)),
        ]);
    }
    let right = [false, true, true, true, true, true, true, true, true];
    table::in_blocks(&lines, &right, 3)
}

/// Lists the built-in devices, or prints one.
pub fn show(name: Option<&str>) -> Result<u8> {
    if let Some(name) = name {
        print(&Model::find(name)?.to_toml())?;
        return Ok(0);
    }
    let widest = Model::builtin_names().map(str::len).max().unwrap_or(0);
    for name in Model::builtin_names() {
        let model = Model::builtin(name).expect("the name is from the list");
        print(&folded(&format!("{name:<widest$}  {}", model.description), &" ".repeat(widest + 2)))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::human::WIDTH;
    use overspill_sim::calibrate::Measurement;

    /// *The story:* the table of `sim calibrate` had 97 columns.
    #[test]
    fn figures_fit_a_terminal() {
        let (ns, elapsed_ns) = (29_900_000, 1_000_000_000);
        let measurement = |op, bytes, depth, beside_writes| Measurement {
            op,
            bytes,
            depth,
            beside_writes,
            count: (9_000_000_000 / bytes).min(999_999),
            elapsed_ns,
            mean_ns: ns,
            p50_ns: ns,
            p99_ns: 129_000_000,
        };
        let measurements =
            vec![measurement(Op::Read, 4096, 1, true), measurement(Op::Write, 1 << 20, 32, false)];
        let check = measurements.iter().map(|one| (one.name(), ns, ns)).collect();
        let model = Model::builtin("nvme").expect("built in");
        let text = figures(&Calibration { measurements, model, check });
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }
}
