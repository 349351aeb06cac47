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
    let plain = |name: &'static str, victim, options: &'static [&'static str]| {
        Test::new(format!("kills::{name}"), move |context| {
            Kill { name, victim, swap: &context.swap, options, seconds: 4 }.carry_out(context, || Ok(()))
        })
    };
    let mut tests = vec![
        plain("launcher", Victim::Launcher, &[]),
        plain("program", Victim::Program, &[]),
        plain("program-pool", Victim::Program, &["--fixed-pool"]),
        plain("both", Victim::Both, &[]),
        Test::new("kills::interrupt", interrupt),
    ];
    tests.extend(crate::kills_areas::tests());
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

/// Who is killed. Where it is the launcher alone the program goes on within its budget, or is ended;
/// where it is the program the launcher dies by the same signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Launcher,
    Program,
    Both,
}

/// A program that is killed in the middle of paging.
pub struct Kill<'a> {
    pub name: &'a str,
    pub victim: Victim,
    pub swap: &'a Path,
    pub options: &'a [&'a str],
    /// How long it would go on.
    pub seconds: u32,
}

impl Kill<'_> {
    /// Fails if anything is left behind, or by what is asked just before.
    pub fn carry_out(&self, context: &Context, meanwhile: impl FnOnce() -> Outcome) -> Outcome {
        let before = Traces::now(context);
        let running = self.start(context)?;
        let program = running.program_pid()?;
        let asked = meanwhile();
        if self.victim != Victim::Program {
            proc::kill(running.pid(), libc::SIGKILL);
        }
        if self.victim != Victim::Launcher {
            proc::kill(program, libc::SIGKILL);
        }
        running.finish()?.killed_by(libc::SIGKILL)?;
        asked?;
        wait_for_end(program)?;
        expect_as_before(context, &before)
    }

    fn start<'a>(&self, context: &'a Context) -> Outcome<Running<'a>> {
        let running = Launch::new(context, format!("kills-{}", self.name), &context.torture)
            .args(["stores", "--expect-cold", "--seconds", &self.seconds.to_string()])
            .options(["--idle", "poll"]) // also where there are many processors
            .options(self.options)
            .swap(self.swap)
            .ram(64 * MIB)
            .timeout(180)
            .start()?;
        std::thread::sleep(Duration::from_millis(1200));
        // Where much else runs it has only just begun.
        let is_awake =
            || context.mode != Mode::Overspill || wake_latency().is_none_or(|latency| latency == 0);
        let deadline = Instant::now() + Duration::from_secs(5);
        while !is_awake() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        ensure!(
            is_awake(),
            "idle processors sleep while the program waits for pages: they may take {:?} us to wake up",
            wake_latency()
        );
        let names = scratch::names(&context.swap);
        ensure!(names.is_empty(), "the swap file has a name while it is used: {names:?}");
        Ok(running)
    }
}

fn wait_for_end(program: u32) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(30);
    while proc::is_running(program) {
        if Instant::now() > deadline {
            let hang = proc::where_it_hangs(program);
            proc::kill_tree(program, &[]);
            return Err(format!("the program hangs after its launcher was killed:\n{hang}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Ctrl-C reaches both, as from a terminal: the program dies by it, the launcher writes its report
/// and does likewise.
fn interrupt(context: &Context) -> Outcome {
    let before = Traces::now(context);
    let kill =
        Kill { name: "interrupt", victim: Victim::Both, swap: &context.swap, options: &[], seconds: 4 };
    let running = kill.start(context)?;
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
