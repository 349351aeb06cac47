//! Samples the anonymous memory of a whole tree of processes, every ten milliseconds: what a budget
//! of the tree is held against. What several have together counts once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::again::{Held, Verdict, mib};
use crate::launch::{Finished, MIB};
use crate::{Outcome, proc};

const INTERVAL: Duration = Duration::from_millis(10);

/// The largest sample, by how much it passes its bound.
#[derive(Clone, Debug, Default)]
pub struct TreePeak {
    /// Anonymous memory of all processes.
    pub bytes: u64,
    /// What they might hold: budget, 2 %, 8 MiB, and 1 MiB for each process.
    pub bound_bytes: u64,
    /// Who held what.
    pub who: String,
}

/// A thread that samples.
#[derive(Debug)]
pub struct TreeSampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<TreePeak>,
}

impl TreeSampler {
    /// Watches the descendants of a launcher, which was given that budget.
    pub fn start(launcher: u32, budget_bytes: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut peak = TreePeak::default();
            while !stopped.load(Relaxed) {
                let sample = sample(launcher, budget_bytes);
                let excess = |peak: &TreePeak| peak.bytes.cast_signed() - peak.bound_bytes.cast_signed();
                if peak.bound_bytes == 0 || excess(&sample) > excess(&peak) {
                    peak = sample;
                }
                std::thread::sleep(INTERVAL);
            }
            peak
        });
        Self { stop, thread }
    }

    /// The verdict on the run, which has ended.
    pub fn finish(self, run: &Finished) -> Outcome<Verdict> {
        self.stop.store(true, Relaxed);
        let peak = self.thread.join().expect("the sampler does not panic");
        let held = format!("held {} of {} MiB: {}", mib(peak.bytes), mib(peak.bound_bytes), peak.who);
        let complaint = run.complain(&held);
        Ok(Verdict(Some(Held { bytes: peak.bytes, bound_bytes: peak.bound_bytes, complaint })))
    }
}

fn sample(launcher: u32, budget_bytes: u64) -> TreePeak {
    let tree: Vec<u32> = proc::tree(launcher).into_iter().skip(1).filter(|&pid| !is_keeper(pid)).collect();
    let bound_bytes = budget_bytes + budget_bytes / 50 + 8 * MIB + tree.len() as u64 * MIB;
    let mut held: Vec<(u32, u64)> = tree.iter().map(|&pid| (pid, anonymous(pid))).collect();
    let sum = |held: &[(u32, u64)]| held.iter().map(|(_, bytes)| bytes).sum::<u64>();
    if sum(&held) > bound_bytes {
        // Slow to ask, as the kernel walks the page tables.
        held.iter_mut().for_each(|(pid, bytes)| *bytes = own(*pid).unwrap_or(0).min(*bytes));
    }
    let who = held.iter().filter(|(_, bytes)| *bytes > MIB);
    let who = who.map(|(pid, bytes)| format!("{} {}, ", proc::name(*pid), mib(*bytes))).collect();
    TreePeak { bytes: sum(&held), bound_bytes, who }
}

/// The launcher's helper that keeps the agent's library.
fn is_keeper(pid: u32) -> bool {
    proc::command_line(pid).get(1).is_some_and(|word| word == "keep")
}

/// What a process has in RAM. One whose first thread has ended says nothing there; its other threads do.
pub fn anonymous(pid: u32) -> u64 {
    let read = |path: &std::path::Path| std::fs::read_to_string(path.join("status")).unwrap_or_default();
    let bytes = |path: &std::path::Path| proc::status_bytes(&read(path), "RssAnon:");
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    bytes(format!("/proc/{pid}").as_ref())
        .or_else(|| threads().find_map(|thread| bytes(&thread.path())))
        .unwrap_or(0)
}

/// What it has with others is divided by their number.
fn own(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    proc::status_bytes(&text, "Pss_Anon:")
}
