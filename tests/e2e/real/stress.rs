//! stress-ng's memory stressor, which verifies what it writes by its own methods.

use crate::context::{Context, Mode};
use crate::launch::{Launch, MIB};
use crate::{Outcome, ensure, packages};

/// What one stressor maps.
const WANT_BYTES: u64 = 192 * MIB;

/// `stress-ng --vm 2 --verify` with all methods, for a fixed time.
pub fn test(context: &'static Context, budget: &str, divisor: u64) -> Outcome {
    let stress = packages::program("stress-ng", "stress-ng")?;
    let finished = Launch::new(context, format!("real-stress-ng-{budget}"), stress)
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
        .run()?;
    finished.succeeded()?;
    let output =
        std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())? + &finished.stderr;
    let passed = output.contains("successful run completed") && !output.to_lowercase().contains("fail:");
    ensure!(
        passed && context.mode != Mode::Broken,
        "{}",
        finished.complain("stress-ng found something wrong")
    );
    ensure!(finished.peak.anon_bytes > 0, "nothing was sampled");
    finished.paged()?.within_budget()?;
    Ok(())
}
