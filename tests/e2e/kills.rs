//! Killed at any moment, overspill leaves nothing behind: no file, no cgroup, no swap, no changed
//! setting, no process.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::context::{Context, Mode};
use crate::launch::{Launch, MIB, Running};
use crate::{Outcome, Test, ensure, proc, scratch};

/// All of this file.
pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("kills::launcher", kill_launcher),
        Test::new("kills::program", |context| kill_program(context, "program", &[])),
        Test::new("kills::program-pool", |context| kill_program(context, "program-pool", &["--fixed-pool"])),
        Test::new("kills::both", kill_both),
        Test::new("kills::interrupt", interrupt),
    ];
    for (name, signal) in [("int", libc::SIGINT), ("term", libc::SIGTERM), ("kill", libc::SIGKILL)] {
        for after_ms in [300, 1500, 4000, 8000] {
            tests.push(Test::new(format!("kills::compare-{name}-{after_ms}"), move |context| {
                kill_compare(context, signal, after_ms)
            }));
        }
    }
    tests
}

/// What could be left behind.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    swap_directory: Vec<String>,
    swaps: String,
    cgroups: BTreeSet<String>,
    settings: Vec<String>,
    /// Within how many microseconds idle processors must wake up.
    wake_latency: Option<i32>,
    processes: Vec<String>,
}

fn wake_latency() -> Option<i32> {
    let mut microseconds = [0; 4];
    File::open("/dev/cpu_dma_latency").ok()?.read_exact(&mut microseconds).ok()?;
    Some(i32::from_ne_bytes(microseconds))
}

impl Traces {
    fn now(context: &Context) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let mut cgroups = BTreeSet::new();
        collect_cgroups(Path::new("/sys/fs/cgroup"), 0, &mut cgroups);
        let ours = [&context.overspill, &context.torture].map(|path| path.to_string_lossy().into_owned());
        let processes = scratch::names(Path::new("/proc"))
            .into_iter()
            .filter_map(|name| name.parse::<u32>().ok())
            .filter(|&pid| proc::is_running(pid))
            .filter_map(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok())
            .map(|path| path.to_string_lossy().into_owned())
            .filter(|path| ours.contains(path))
            .collect();
        Self {
            swap_directory: scratch::names(&context.swap),
            swaps: read("/proc/swaps"),
            cgroups,
            settings: vec![read("/proc/sys/vm/page-cluster"), read("/sys/kernel/mm/swap/vma_ra_enabled")],
            wake_latency: wake_latency(),
            processes,
        }
    }
}

/// Those that `compare` makes. *The story:* all were compared once, and one that the machine itself
/// removed meanwhile failed the test.
fn collect_cgroups(directory: &Path, depth: u32, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if depth < 8 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_string_lossy().starts_with("overspill-") {
                found.insert(entry.path().to_string_lossy().into_owned());
            }
            collect_cgroups(&entry.path(), depth + 1, found);
        }
    }
}

/// Fails unless all is as before, within some seconds.
fn expect_as_before(context: &Context, before: &Traces) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let now = Traces::now(context);
        if now == *before {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("left behind:\nbefore {before:?}\nafter  {now:?}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A program in the middle of paging.
fn start_paging<'a>(context: &'a Context, name: &str, options: &[&str]) -> Outcome<Running<'a>> {
    let running = Launch::new(context, format!("kills-{name}"), &context.torture)
        .args(["stores", "--seconds", "4", "--expect-cold"])
        .options(["--idle", "poll"]) // also where there are many processors
        .options(options)
        .ram(64 * MIB)
        .timeout(180)
        .start()?;
    std::thread::sleep(Duration::from_millis(1200));
    let is_awake = || wake_latency().is_none_or(|latency| latency == 0);
    let until = Instant::now() + Duration::from_secs(2);
    while context.mode == Mode::Overspill && !is_awake() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(
        context.mode != Mode::Overspill || is_awake(),
        "idle processors sleep while the program waits for pages: they may take {:?} us to wake up",
        wake_latency()
    );
    let names = scratch::names(&context.swap);
    ensure!(names.is_empty(), "the swap file has a name while it is used: {names:?}");
    Ok(running)
}

/// The program goes on within its budget, or is ended; whichever, nothing is left.
fn kill_launcher(context: &Context) -> Outcome {
    let before = Traces::now(context);
    let running = start_paging(context, "launcher", &[])?;
    let program = running.program_pid()?;
    proc::kill(running.pid(), libc::SIGKILL);
    running.finish()?.killed_by(libc::SIGKILL)?;
    let ended = Instant::now() + Duration::from_secs(30);
    while proc::is_running(program) {
        if Instant::now() > ended {
            let hang = proc::where_it_hangs(program);
            proc::kill_tree(program, &[]);
            return Err(format!("the program hangs after its launcher was killed:\n{hang}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    expect_as_before(context, &before)
}

/// The launcher dies by the same signal.
fn kill_program(context: &Context, name: &str, options: &[&str]) -> Outcome {
    let before = Traces::now(context);
    let running = start_paging(context, name, options)?;
    proc::kill(running.program_pid()?, libc::SIGKILL);
    running.finish()?.killed_by(libc::SIGKILL)?;
    expect_as_before(context, &before)
}

fn kill_both(context: &Context) -> Outcome {
    let before = Traces::now(context);
    let running = start_paging(context, "both", &[])?;
    let program = running.program_pid()?;
    proc::kill(running.pid(), libc::SIGKILL);
    proc::kill(program, libc::SIGKILL);
    running.finish()?.killed_by(libc::SIGKILL)?;
    expect_as_before(context, &before)
}

/// Ctrl-C reaches both, as from a terminal: the program dies by it, the launcher writes its report
/// and does likewise.
fn interrupt(context: &Context) -> Outcome {
    let before = Traces::now(context);
    let running = start_paging(context, "interrupt", &[])?;
    let program = running.program_pid()?;
    proc::kill(running.pid(), libc::SIGINT);
    proc::kill(program, libc::SIGINT);
    let finished = running.finish()?;
    finished.killed_by(libc::SIGINT)?.report()?;
    expect_as_before(context, &before)
}

/// `compare` makes a cgroup and a swap file, and changes a setting: all of it is undone.
fn kill_compare(context: &Context, signal: i32, after_ms: u64) -> Outcome {
    let before = Traces::now(context);
    let mut command: Command = context.overspill_command();
    command.args(["compare", "--ram", "64M", "--swap"]).arg(&context.swap).arg("--");
    command.arg(&context.torture).args(["stores", "--seconds", "2"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    std::thread::sleep(Duration::from_millis(after_ms));
    // *The story:* where the command could not even be started, nothing was left behind either, and
    // this passed.
    let early = child.try_wait().map_err(|error| error.to_string())?;
    ensure!(early.is_none_or(|status| status.success()), "compare ended by itself with {early:?}");
    if early.is_none() {
        proc::kill(child.id(), signal);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if Instant::now() > deadline {
            proc::kill_tree(child.id(), &[]);
            let _ = child.wait();
            return Err(format!("compare goes on for 20 s after signal {signal}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    expect_as_before(context, &before)
}
