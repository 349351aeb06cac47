//! What overspill costs, and that it holds its budget when the kernel enforces it: inside a memory
//! cgroup of the budget
//! + 32 MiB without swap, any page too much is a process killed.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::again::{Held, Verdict};
use crate::context::Context;
use crate::launch::{Launch, MIB};
use crate::scratch::MemoryCgroup;
use crate::{Outcome, Test, ensure, torture};

const FENCED: [&str; 9] =
    ["stores", "cold", "first-touch", "awakened", "alloc-churn", "pipes", "direct", "mremap", "advice-race"];

/// All of this file.
pub fn tests(context: &Context, selected: impl Fn(&str) -> bool) -> Vec<Test> {
    let mut tests = vec![
        Test::new("bounds::start-up", start_up),
        Test::new("bounds::idle-below-budget", idle_below_budget),
    ];
    for subtest in FENCED {
        let name = format!("bounds::cgroup::{subtest}");
        if torture::is_promised(context, subtest, "default", selected(&name).then_some(&name)) {
            tests.push(Test::new(name, move |context| fenced(context, subtest)));
        }
    }
    tests
}

fn fenced(context: &Context, subtest: &str) -> Outcome<Verdict> {
    let ram = 64 * MIB;
    let cgroup = MemoryCgroup::new(subtest, ram + 32 * MIB)?;
    let finished = Launch::new(context, format!("bounds-cgroup-{subtest}"), &context.torture)
        .args([subtest, "--seconds", "5", "--expect-cold", "--dir"])
        .args([&context.scratch])
        .ram(ram)
        .cgroup(&cgroup.directory)
        .timeout(240)
        .run()?;
    let kills = cgroup.kills()?;
    if kills > 0 {
        let complaint = finished.complain(&format!("the kernel killed {kills} processes in the cgroup"));
        return Ok(Verdict(Some(Held { bytes: u64::MAX, bound_bytes: 0, complaint })));
    }
    finished.succeeded()?.paged()?.within_budget()
}

/// The median of many starts of /bin/true, with and without: less than 10 ms apart.
fn start_up(context: &Context) -> Outcome {
    const RUNS: usize = 41;
    let time = |managed: bool| -> Outcome<Duration> {
        let mut times = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            let mut command = if managed {
                let mut command = context.overspill_command();
                command
                    .args(["run", "-q", "--ram", "64M", "--swap"])
                    .arg(&context.swap)
                    .args(["--", "/bin/true"]);
                command
            } else {
                std::process::Command::new("/bin/true")
            };
            let started = Instant::now();
            let status = command.stdin(Stdio::null()).status().map_err(|error| error.to_string())?;
            times.push(started.elapsed());
            ensure!(status.success(), "{command:?} ended with {status}");
        }
        times.sort();
        Ok(times[RUNS / 2])
    };
    let (bare, managed) = (time(false)?, time(true)?);
    let added = managed.saturating_sub(bare);
    eprintln!("e2e: start-up adds {:.1} ms to {:.1} ms", added.as_secs_f64() * 1e3, bare.as_secs_f64() * 1e3);
    ensure!(added < Duration::from_millis(10), "start-up adds {added:?} to {bare:?}");
    Ok(())
}

/// A program far below its budget is left alone: nothing is registered, nothing is paged.
fn idle_below_budget(context: &Context) -> Outcome {
    let finished = Launch::new(context, "bounds-idle", &context.torture)
        .args(["cold", "--mib", "64", "--dir"])
        .args([&context.scratch])
        .ram(1024 * MIB)
        .run()?;
    finished.succeeded()?;
    for counter in ["pswpout", "pswpin", "pgfault"] {
        let count = crate::json::number(finished.report()?, counter)?;
        ensure!(count == 0, "{}", finished.complain(&format!("{counter} is {count} far below the budget")));
    }
    Ok(())
}
