//! `overspill sim calibrate DIR`: measures the device under a directory and makes a model of it.
//!
//! The only part of the simulator that touches the real world. It writes one temporary file (0600,
//! unlinked at once), reads and writes it past the page cache for a few seconds, and solves the
//! parameters of the flash model from what it saw ([`fit`]). Real times go into the model and
//! nowhere else; the simulation itself never asks a clock.

pub mod fit;
mod probe;

use crate::device::params::Model;
use crate::device::{Op, closed_loop};
use crate::time::{Nanos, SECOND};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Size of the temporary file, unless the device is too slow to write it in time.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// The least file that measures anything.
const FILE_BYTES_MIN: u64 = 16 << 20;

/// A directory that cannot be measured.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// The temporary file cannot be made.
    #[error("cannot make a file in {}: {error}", dir.display())]
    Create {
        /// The directory.
        dir: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// A read or write of it failed.
    #[error("cannot {action} the test file in {}: {error}", dir.display())]
    Transfer {
        /// The directory.
        dir: PathBuf,
        /// read or write
        action: &'static str,
        /// Why not.
        error: std::io::Error,
    },
    /// Too small to measure.
    #[error("{} took only {bytes} bytes before the time was up; {FILE_BYTES_MIN} are needed", dir.display())]
    TooSlow {
        /// The directory.
        dir: PathBuf,
        /// What was written.
        bytes: u64,
    },
}

/// One measurement: requests of one kind, kept so many deep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// Read or write.
    pub op: Op,
    /// Bytes of a request.
    pub bytes: u64,
    /// Requests in flight.
    pub depth: u64,
    /// Writes of 64 KiB, four deep, ran beside it.
    pub beside_writes: bool,
    /// Requests completed.
    pub count: u64,
    /// In this time.
    pub elapsed_ns: Nanos,
    /// Mean latency.
    pub mean_ns: Nanos,
    /// Median latency.
    pub p50_ns: Nanos,
    /// 99th percentile.
    pub p99_ns: Nanos,
}

impl Measurement {
    /// Requests a second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        crate::time::muldiv(self.count, SECOND, self.elapsed_ns.max(1))
    }

    /// Bytes a microsecond (= MB/s).
    #[must_use]
    pub fn bytes_per_us(&self) -> u64 {
        crate::time::muldiv(self.count * self.bytes, 1000, self.elapsed_ns.max(1))
    }

    /// Like `random read 4 KiB, 32 deep`.
    #[must_use]
    pub fn name(&self) -> String {
        let op = if self.op == Op::Read { "read" } else { "write" };
        let beside = if self.beside_writes { ", beside writes" } else { "" };
        format!("random {op} {} KiB, {} deep{beside}", self.bytes / 1024, self.depth)
    }
}

/// What a calibration found.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The measurements, in the order in which they were made.
    pub measurements: Vec<Measurement>,
    /// The model that was solved from them.
    pub model: Model,
    /// For each measurement that the model can repeat: name, measured and modelled mean latency.
    pub check: Vec<(String, Nanos, Nanos)>,
}

/// Measures the device under `dir`; `progress` hears the name of each step as it begins. The
/// model's source names the `circumstances`, if there are any.
pub fn calibrate(
    dir: &Path,
    circumstances: &str,
    progress: &mut dyn FnMut(&str),
) -> Result<Calibration, CalibrateError> {
    progress("writing the test file");
    let file = probe::TestFile::create(dir)?;
    let mut measurements = Vec::new();
    for (op, bytes, depth) in [
        (Op::Read, 4 << 10, 1),
        (Op::Read, 4 << 10, 4),
        (Op::Read, 4 << 10, 32),
        (Op::Read, 64 << 10, 1),
        (Op::Read, 1 << 20, 1),
        (Op::Read, 1 << 20, 32),
        (Op::Write, 4 << 10, 1),
        (Op::Write, 64 << 10, 1),
        (Op::Write, 64 << 10, 4),
        (Op::Write, 1 << 20, 1),
        (Op::Write, 1 << 20, 8),
    ] {
        progress(&format!("{op:?} {} KiB, {depth} deep", bytes >> 10));
        measurements.push(file.measure(op, bytes, depth, Duration::from_millis(300))?);
    }
    progress("reads beside writes");
    measurements.extend(file.measure_mixed(Duration::from_millis(500))?);
    let mut model = fit::fit(&measurements, origin(dir, circumstances));
    model.rotating = probe::rotates(dir);
    let check = check(&model, &measurements, file.bytes());
    Ok(Calibration { measurements, model, check })
}

/// Repeats the plain measurements on the model.
fn check(model: &Model, measurements: &[Measurement], span_bytes: u64) -> Vec<(String, Nanos, Nanos)> {
    let plain = measurements.iter().filter(|measurement| !measurement.beside_writes);
    plain
        .map(|measurement| {
            let requests = closed_loop::random(measurement.op, measurement.bytes, span_bytes);
            let (mean_ns, _) = closed_loop::run(&mut *model.build(), measurement.depth, 4000, requests);
            (measurement.name(), measurement.mean_ns, mean_ns)
        })
        .collect()
}

/// A sentence on where and when.
fn origin(dir: &Path, circumstances: &str) -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil_date(since_epoch.as_secs() / 86_400);
    let circumstances = if circumstances.is_empty() { String::new() } else { format!(", {circumstances}") };
    let file_system = probe::file_system(dir).unwrap_or_else(|| "unknown file system".to_owned());
    format!(
        "measured by `overspill sim calibrate` on {year}-{month:02}-{day:02}: {file_system}, Linux {}, {processors} processors{circumstances}",
        release.trim()
    )
}

/// Year, month and day of the `days`-th day after 1970-01-01 (Gregorian calendar).
fn civil_date(days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has no block device is not known to rotate, or not to.
    #[test]
    fn a_directory_without_a_disk_says_nothing_of_rotation() {
        assert_eq!(probe::rotates(Path::new("/proc")), None);
        assert_eq!(probe::rotates(Path::new("/nowhere/at/all")), None);
    }

    #[test]
    fn dates() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(11_016), (2000, 2, 29));
        assert_eq!(civil_date(20_819), (2027, 1, 1));
        assert_eq!(civil_date(20_778), (2026, 11, 21));
    }
}
