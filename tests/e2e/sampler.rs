//! Reads the anonymous memory of every process of a run, every millisecond: the harness's own
//! figure, beside the one that the report of the run gives.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::proc;

const INTERVAL: Duration = Duration::from_millis(1);
const INTERVAL_TREE: Duration = Duration::from_millis(20);

/// The largest process of a run.
#[derive(Clone, Debug, Default)]
pub struct Peak {
    /// Its name.
    pub name: String,
    /// The most anonymous memory it was seen to hold.
    pub anon_bytes: u64,
}

/// A thread that watches a process and its descendants.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    peak: Arc<Mutex<Peak>>,
    thread: JoinHandle<Vec<u32>>,
}

impl Sampler {
    /// Watches the descendants of `root`, and itself unless it is the launcher.
    pub fn start(root: u32, root_is_launcher: bool) -> Self {
        let (stop, peak) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Peak::default())));
        let (stopped, seen) = (stop.clone(), peak.clone());
        Self {
            stop,
            peak,
            thread: std::thread::spawn(move || watch(root, root_is_launcher, &stopped, &seen)),
        }
    }

    /// The largest process so far.
    pub fn peak(&self) -> Peak {
        self.peak.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The largest process, and the ids of all that were seen.
    pub fn finish(self) -> (Peak, Vec<u32>) {
        self.stop.store(true, Relaxed);
        let peak = self.peak();
        (peak, self.thread.join().expect("the sampler does not panic"))
    }
}

fn watch(root: u32, root_is_launcher: bool, stop: &AtomicBool, peak: &Mutex<Peak>) -> Vec<u32> {
    let mut watched: BTreeMap<u32, Option<File>> = BTreeMap::new();
    let mut looked = None::<Instant>;
    while !stop.load(Relaxed) {
        if looked.is_none_or(|looked| looked.elapsed() >= INTERVAL_TREE) {
            looked = Some(Instant::now());
            for pid in proc::tree(root) {
                if !(root_is_launcher && pid == root) {
                    watched.entry(pid).or_insert_with(|| File::open(format!("/proc/{pid}/status")).ok());
                }
            }
        }
        for (&pid, file) in &mut watched {
            match file.as_ref().map(sample) {
                Some(Some(bytes)) => {
                    let mut peak = peak.lock().unwrap_or_else(PoisonError::into_inner);
                    if bytes > peak.anon_bytes {
                        *peak = Peak { name: proc::name(pid), anon_bytes: bytes };
                    }
                }
                Some(None) => *file = None,
                None => {}
            }
        }
        std::thread::sleep(INTERVAL);
    }
    watched.into_keys().collect()
}

/// RssAnon, or nothing when the process is gone.
fn sample(status: &File) -> Option<u64> {
    let mut buffer = [0; 4096];
    let len = status.read_at(&mut buffer, 0).ok()?;
    Some(proc::status_bytes(std::str::from_utf8(&buffer[..len]).ok()?, "RssAnon:").unwrap_or(0))
}
