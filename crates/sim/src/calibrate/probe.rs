//! The hands of the calibration: a file of random bytes and threads that read and write it with O_DIRECT.
//!
//! One thread a request in flight, each with its own aligned buffer: no io_uring here, since a
//! directory must be measurable on any kernel and in any container.

use super::{CalibrateError, FILE_BYTES_MAX, FILE_BYTES_MIN, Measurement};
use crate::device::Op;
use crate::rng::Rng;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Alignment and granularity that O_DIRECT asks for, on any device.
const ALIGN: usize = 4096;
/// How long the file may take to be written.
const FILL_TIME_MAX: Duration = Duration::from_secs(4);

/// A buffer that O_DIRECT accepts.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    fn new(length: usize, rng: &mut Rng) -> Buffer {
        let mut bytes = vec![0; length + ALIGN];
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&rng.next_u64().to_le_bytes());
        }
        let start = bytes.as_ptr().align_offset(ALIGN);
        assert!(start < ALIGN, "there is an aligned byte in every {ALIGN}");
        Buffer { bytes, start, length }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// The unlinked file that is measured.
pub struct TestFile {
    file: File,
    dir: PathBuf,
    bytes: u64,
}

impl TestFile {
    /// Makes the file and fills it with random bytes.
    pub fn create(dir: &Path) -> Result<TestFile, CalibrateError> {
        let path = dir.join(format!(".overspill-calibrate-{}", std::process::id()));
        let flags = linux_raw_sys::general::O_DIRECT as i32;
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(&path);
        let removed = std::fs::remove_file(&path);
        let file = opened
            .and_then(|file| removed.map(|()| file))
            .map_err(|error| CalibrateError::Create { dir: dir.to_owned(), error })?;
        let mut test = TestFile { file, dir: dir.to_owned(), bytes: 0 };
        test.fill()?;
        Ok(test)
    }

    /// Size of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn fill(&mut self) -> Result<(), CalibrateError> {
        let begin = Instant::now();
        let mut buffer = Buffer::new(4 << 20, &mut Rng::new(1));
        while self.bytes < FILE_BYTES_MAX && begin.elapsed() < FILL_TIME_MAX {
            let chunk = buffer.get();
            self.file.write_all_at(chunk, self.bytes).map_err(|error| self.failed("write", error))?;
            self.bytes += chunk.len() as u64;
        }
        if self.bytes < FILE_BYTES_MIN {
            return Err(CalibrateError::TooSlow { dir: self.dir.clone(), bytes: self.bytes });
        }
        self.file.sync_all().map_err(|error| self.failed("write", error))
    }

    fn failed(&self, action: &'static str, error: std::io::Error) -> CalibrateError {
        CalibrateError::Transfer { dir: self.dir.clone(), action, error }
    }

    /// Random requests, `depth` at a time, for `span`.
    pub fn measure(
        &self,
        op: Op,
        bytes: u64,
        depth: u64,
        span: Duration,
    ) -> Result<Measurement, CalibrateError> {
        let begin = Instant::now();
        let stop = &AtomicBool::new(false);
        let latencies = std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..depth).map(|index| scope.spawn(move || self.work(op, bytes, index + 1, stop))).collect();
            std::thread::sleep(span);
            stop.store(true, Ordering::Relaxed);
            self.gather(op, workers)
        })?;
        Ok(summarise(op, bytes, depth, false, begin.elapsed(), latencies))
    }

    /// Reads of 4 KiB, four deep, beside writes of 64 KiB, four deep; gives both.
    pub fn measure_mixed(&self, span: Duration) -> Result<[Measurement; 2], CalibrateError> {
        let begin = Instant::now();
        let stop = AtomicBool::new(false);
        let (reads, writes) = std::thread::scope(|scope| {
            let start = |op, bytes, seed: u64| {
                (0..4)
                    .map(|index| {
                        scope.spawn({
                            let stop = &stop;
                            move || self.work(op, bytes, seed + index, stop)
                        })
                    })
                    .collect::<Vec<_>>()
            };
            let readers = start(Op::Read, 4 << 10, 10);
            let writers = start(Op::Write, 64 << 10, 20);
            std::thread::sleep(span);
            stop.store(true, Ordering::Relaxed);
            let reads = self.gather(Op::Read, readers);
            (reads, self.gather(Op::Write, writers))
        });
        let elapsed = begin.elapsed();
        Ok([
            summarise(Op::Read, 4 << 10, 4, true, elapsed, reads?),
            summarise(Op::Write, 64 << 10, 4, true, elapsed, writes?),
        ])
    }

    fn gather(
        &self,
        op: Op,
        workers: Vec<std::thread::ScopedJoinHandle<'_, std::io::Result<Vec<u64>>>>,
    ) -> Result<Vec<u64>, CalibrateError> {
        let action = if op == Op::Read { "read" } else { "write" };
        let mut all = Vec::new();
        for worker in workers {
            let latencies = worker.join().expect("a worker returns its errors");
            all.extend(latencies.map_err(|error| self.failed(action, error))?);
        }
        Ok(all)
    }

    /// One thread's requests until `stop`, at least one; gives their latencies in ns.
    fn work(&self, op: Op, bytes: u64, seed: u64, stop: &AtomicBool) -> std::io::Result<Vec<u64>> {
        let mut rng = Rng::new(seed);
        let mut buffer = Buffer::new(bytes as usize, &mut rng);
        let mut latencies = Vec::new();
        loop {
            let offset = rng.below(self.bytes / bytes) * bytes;
            let begin = Instant::now();
            match op {
                Op::Read => self.file.read_exact_at(buffer.get(), offset)?,
                Op::Write => self.file.write_all_at(buffer.get(), offset)?,
            }
            latencies.push(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
            if stop.load(Ordering::Relaxed) {
                return Ok(latencies);
            }
        }
    }
}

fn summarise(
    op: Op,
    bytes: u64,
    depth: u64,
    beside_writes: bool,
    elapsed: Duration,
    mut latencies: Vec<u64>,
) -> Measurement {
    latencies.sort_unstable();
    let count = latencies.len() as u64;
    assert!(count > 0, "every worker makes at least one request");
    let at = |percent: u64| latencies[((count - 1) * percent / 100) as usize];
    Measurement {
        op,
        bytes,
        depth,
        beside_writes,
        count,
        elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        mean_ns: latencies.iter().sum::<u64>() / count,
        p50_ns: at(50),
        p99_ns: at(99),
    }
}

/// The type of the file system that holds `dir`, from the mount table: the longest mount point that
/// is a prefix.
pub fn file_system(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let table = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = table.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let point = fields.nth(1)?;
        Some((point, fields.next()?))
    });
    let (_, kind) =
        mounts.filter(|(point, _)| dir.starts_with(point)).max_by_key(|(point, _)| point.len())?;
    Some(kind.to_owned())
}

/// Does the kernel count the directory's block device as rotating? `None` where it has none.
pub fn rotates(dir: &Path) -> Option<bool> {
    let device = dir.metadata().ok()?.dev();
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & !0xff);
    // A partition has no queue of its own.
    let said = ["queue", "../queue"].iter().find_map(|queue| {
        std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{queue}/rotational")).ok()
    })?;
    Some(said.trim() == "1")
}
