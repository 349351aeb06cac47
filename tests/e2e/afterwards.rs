//! The launcher has ended, or was killed, and its run goes on: what is started then is held to the budget,
//! and what ended has is given back.
//!
//! *The story:* a shell that killed its launcher and started a program of 300 MiB held 309 in 64M. What was
//! started in the background of a command that had ended had no limit.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::launch::MIB;
use crate::tree_sampler::anonymous;
use crate::trees::{text, worker};
use crate::{Outcome, Test, ensure, proc};

const BUDGET: u64 = 64 * MIB;
const INTERVAL: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(120);

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("limits::after-the-end", |context| in_background(context, "ended")),
        Test::new("limits::after-a-kill", |context| in_background(context, "killed")),
    ]
}

/// Two at once want one and a half times the budget each; when they have ended one alone has nearly all.
fn in_background(context: &Context, way: &str) -> Outcome {
    let worker = worker(context, "afterwards-worker", &[])?;
    let [job, said, gone] =
        ["job", "said", "gone"].map(|name| context.path(format!("afterwards-{way}.{name}")));
    let _ = [&job, &said, &gone].map(std::fs::remove_file);
    let shell = "echo $$ > \"$1\"; until [ -e \"$2\" ]; do sleep 0.05; done
        \"$0\" 96 3 & \"$0\" 96 3 & wait; sleep 0.3; \"$0\" 48 40";
    let wait = if way == "killed" { "wait" } else { "exit 0" };
    let script = format!("(exec sh -c '{shell}' \"$0\" \"$1\" \"$3\" > \"$2\" 2>&1) & {wait}");
    let mut launcher = Command::new(&context.overspill)
        .args(["run", "--ram", "64M", "--swap", &text(&context.swap), "--quiet", "--", "sh", "-c", &script])
        .args([&worker, &job, &said, &gone])
        .env("OVERSPILL_CONFIG", "/dev/null")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let root = number_in(&job)?;
    if way == "killed" {
        proc::kill(launcher.id(), libc::SIGKILL);
    }
    launcher.wait().map_err(|error| error.to_string())?;
    std::fs::write(&gone, "").map_err(|error| error.to_string())?;
    let held = watch(root);
    let said = std::fs::read_to_string(&said).unwrap_or_default();
    proc::kill_tree(root, &[]);
    let Held { most, alone } = held?;
    ensure!(said == "right\n".repeat(3), "{said:?}");
    // Two workers, two shells.
    let bound = BUDGET + BUDGET / 50 + 8 * MIB + 4 * MIB;
    ensure!(most <= bound, "held {} of {} MiB", most / MIB, bound / MIB);
    ensure!(alone >= 44 * MIB, "of 48 MiB one alone had {} in {BUDGET}", alone / MIB);
    Ok(())
}

/// The number that is written there soon.
fn number_in(path: &Path) -> Outcome<u32> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if let Some(number) = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()) {
            return Ok(number);
        }
        std::thread::sleep(INTERVAL);
    }
    Err("the job did not begin".into())
}

/// What was seen of a tree until it ended.
struct Held {
    /// The most at once.
    most: u64,
    /// The most that the last one had.
    alone: u64,
}

fn watch(root: u32) -> Outcome<Held> {
    let (begun, mut most, mut alone) = (Instant::now(), 0, 0);
    let (mut were_two, mut have_ended) = (false, false);
    while proc::is_running(root) {
        ensure!(begun.elapsed() < PATIENCE, "it does not end:\n{}", proc::where_it_hangs(root));
        let held: Vec<u64> = proc::tree(root).into_iter().map(anonymous).collect();
        let large = held.iter().filter(|&&bytes| bytes > 4 * MIB).count();
        were_two |= large == 2;
        most = most.max(held.iter().sum());
        have_ended |= were_two && large == 0;
        if have_ended {
            alone = alone.max(held.iter().copied().max().unwrap_or(0));
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(Held { most, alone })
}
