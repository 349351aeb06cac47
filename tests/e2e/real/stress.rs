//! stress-ng's memory stressor, which verifies what it writes by its own methods.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::inputs::Rng;
use crate::again::Verdict;
use crate::context::{Context, Mode};
use crate::launch::{Launch, MIB, Running};
use crate::{Outcome, ensure, packages, proc};

/// What one stressor maps.
const WANT_BYTES: u64 = 192 * MIB;

/// `stress-ng --vm 1 --verify` with all methods, for a fixed time.
pub fn test(context: &'static Context, budget: &str, divisor: u64) -> Outcome<Verdict> {
    let stress = packages::program("stress-ng", "stress-ng")?;
    let running = Launch::new(context, format!("real-stress-ng-{budget}"), stress)
        .args([
            "--vm",
            "1",
            "--vm-bytes",
            &WANT_BYTES.to_string(),
            "--vm-method",
            "all",
            "--vm-keep",
            "--verify",
        ])
        .args(["--timeout", "15s", "--metrics-brief", "--temp-path"])
        .args([&context.scratch])
        .ram(WANT_BYTES / divisor)
        .timeout(180)
        .start()?;
    if context.mode == Mode::Broken {
        damage(&running)?;
    }
    let finished = running.finish()?;
    finished.succeeded()?;
    let output =
        std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())? + &finished.stderr;
    let passed = output.contains("successful run completed") && !output.to_lowercase().contains("fail:");
    ensure!(passed, "{}", finished.complain("stress-ng found something wrong"));
    finished.paged()?.within_budget()
}

/// Flips bits in the stressor's memory while it runs, here and there, for some seconds.
fn damage(running: &Running<'_>) -> Outcome {
    let mut rng = Rng(1);
    let mut flips = 0;
    for _ in 0..4000 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        for pid in proc::tree(running.pid()) {
            let Some((start, len)) = largest_mapping(pid) else { continue };
            let Ok(memory) = File::options().read(true).write(true).open(format!("/proc/{pid}/mem")) else {
                continue;
            };
            let mut byte = [0];
            let at = start + rng.next() % len;
            if memory.read_exact_at(&mut byte, at).is_ok() {
                byte[0] ^= 1 << rng.below(8);
                flips += usize::from(memory.write_all_at(&byte, at).is_ok());
            }
        }
    }
    ensure!(flips > 100, "the stressor's memory was not found");
    Ok(())
}

/// The largest mapping of a process, if it is the stressor's: (start, length).
fn largest_mapping(pid: u32) -> Option<(u64, u64)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let range = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        Some((start, end - start))
    };
    maps.lines().filter_map(range).max_by_key(|&(_, len)| len).filter(|&(_, len)| len >= WANT_BYTES / 2)
}
