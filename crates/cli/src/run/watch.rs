//! A thread that looks at the whole tree while the program runs: what /proc says of each process, and what the agents
//! report. It keeps the books ([`Census`]) and takes back the places of processes that have ended.
//!
//! Its pauses follow from what its looks cost, so that it takes some thousandths of a processor at most.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use overspill_engine::shared::ENV;

use super::census::{Census, Sighting};
use super::descendants::{Descendants, Look, Orphans, figure, name};
use super::program;
use super::shared_page::SharedPage;
use super::status_line;

/// Shortest and longest pause between two looks, and how many times as long as a look it is.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(100);
const PAUSE_FACTOR: u32 = 300;
/// A process's shared memory is asked for again when the sum of it and of its files has changed by so much.
const SHARED_STEP_BYTES: u64 = 1 << 20;
/// Between two questions that walk a process's page tables.
const ROLLUP_PAUSE: Duration = Duration::from_millis(50);

/// What the run was like, when it is over.
pub struct Watched {
    /// The books.
    pub census: Census,
    /// What orphans used.
    pub orphans: Orphans,
}

/// The thread.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Watched>,
}

impl Watch {
    /// Begins to watch the tree below this process, which has started `command`.
    pub fn start(page: Arc<SharedPage>, command: u32, ram_bytes: u64, traces: bool) -> io::Result<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let mut watcher = Watcher {
            page,
            traces,
            ram_bytes,
            descendants: Descendants::new(command),
            census: Census::default(),
            extras: BTreeMap::new(),
            began: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                let began = Instant::now();
                watcher.look(false);
                status_line::answer(&watcher.page, command, ram_bytes, watcher.began.elapsed());
                std::thread::park_timeout((began.elapsed() * PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX));
            }
            watcher.look(true);
            Watched { census: watcher.census, orphans: watcher.descendants.orphans() }
        })?;
        Ok(Watch { stop, thread })
    }

    /// The run is over.
    pub fn finish(self) -> Watched {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("the watcher does not panic")
    }
}

struct Watcher {
    page: Arc<SharedPage>,
    /// A place is not used again while there are others: the trace numbers processes by their places.
    traces: bool,
    ram_bytes: u64,
    descendants: Descendants,
    census: Census,
    extras: BTreeMap<u32, Extra>,
    began: Instant,
}

/// What is not read at every look.
#[derive(Default)]
struct Extra {
    /// The figure of files and shared memory when it was read.
    shared_bytes: u64,
    shmem_bytes: u64,
    /// Of that, what others map, too, and of anonymous memory what others have.
    shmem_doubly_bytes: u64,
    anon_doubly_bytes: u64,
    rolled_up: Option<Instant>,
}

impl Watcher {
    fn look(&mut self, is_over: bool) {
        let looks = self.descendants.look();
        self.extras.retain(|pid, _| looks.iter().any(|look| look.pid == *pid));
        let mut sightings: Vec<Sighting> = looks.iter().map(|look| self.sighting(*look)).collect();
        let sum: u64 = sightings.iter().map(|seen| seen.look.anon_bytes + seen.shmem_bytes).sum();
        if sum > self.ram_bytes && looks.len() > 1 {
            sightings = looks.iter().map(|look| self.exact_sighting(*look)).collect();
        }
        for pid in self.census.look(&sightings, self.began.elapsed().as_nanos() as u64) {
            self.census.describe(pid, name(pid), objection(pid));
        }
        // A report that cannot be read is told by no record having it.
        let _ = self.read_reports(&looks, is_over);
    }

    fn sighting(&mut self, look: Look) -> Sighting {
        let extra = self.extras.entry(look.pid).or_default();
        if look.shared_bytes.abs_diff(extra.shared_bytes) >= SHARED_STEP_BYTES {
            extra.shared_bytes = look.shared_bytes;
            extra.shmem_bytes = figure(look.pid, "status", "RssShmem").unwrap_or(0);
        }
        Sighting {
            look,
            doubly_bytes: extra.anon_doubly_bytes,
            shmem_bytes: extra.shmem_bytes - extra.shmem_doubly_bytes.min(extra.shmem_bytes),
        }
    }

    /// With what several processes have together counted once, as far as that is known.
    fn exact_sighting(&mut self, look: Look) -> Sighting {
        let extra = self.extras.entry(look.pid).or_default();
        if extra.rolled_up.is_none_or(|then| then.elapsed() >= ROLLUP_PAUSE) {
            extra.rolled_up = Some(Instant::now());
            if let Some([anon, shmem]) = proportional(look.pid) {
                extra.anon_doubly_bytes = look.anon_bytes.saturating_sub(anon);
                extra.shmem_doubly_bytes = extra.shmem_bytes.saturating_sub(shmem);
            }
        }
        self.sighting(look)
    }

    /// Keeps what those reported that have ended, and lets others have their places.
    fn read_reports(&mut self, looks: &[Look], is_over: bool) -> io::Result<()> {
        for report in self.page.reports()? {
            let lives = looks.iter().any(|look| look.pid == report.pid);
            let has_ended = report.is_over || (!lives && !exists(report.pid));
            if !has_ended && !is_over {
                continue;
            }
            if has_ended && !is_over {
                self.page.release(report.place, self.traces)?;
            }
            self.census.keep(report);
        }
        Ok(())
    }
}

/// What is a process's own of anonymous and of shared memory, what it has with others divided by their number.
fn proportional(pid: u32) -> Option<[u64; 2]> {
    let of = |name| figure(pid, "smaps_rollup", name);
    Some([of("Pss_Anon")?, of("Pss_Shmem")?])
}

fn exists(pid: u32) -> bool {
    let state = |stat: String| stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    stat.and_then(state).is_some_and(|state| !['Z', 'X'].contains(&state))
}

/// What is known against a program's being managed. To be asked while it lives.
fn objection(pid: u32) -> Option<String> {
    let executable = format!("/proc/{pid}/exe");
    if let Some(reason) = program::unmanageable(Path::new(&executable)) {
        let path =
            std::fs::read_link(&executable).map_or_else(|_| name(pid), |path| path.display().to_string());
        return Some(reason.replace(&executable, &path));
    }
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let variable = [ENV.as_bytes(), b"="].concat();
    let is_there = environment.split(|&byte| byte == 0).any(|entry| entry.starts_with(&variable));
    (!is_there && !environment.is_empty()).then(|| "its environment was cleaned before it was started".into())
}
