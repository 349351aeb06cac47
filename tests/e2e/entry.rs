//! How the launcher comes to be started: in place of a shell that has children, as the first process of a
//! pid namespace, where little can be written. What is not the run's is neither counted nor ended.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::context::Context;
use crate::launch::{Launch, MIB};
use crate::trees::text;
use crate::{Outcome, Test, ensure, packages, proc, scratch};

const TINY: &str = include_str!("citizens/tiny.c");
const BARE: &str = include_str!("citizens/bare.c");
const BECOMES: &str = include_str!("citizens/becomes.c");

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("limits::beside-others", beside_others),
        Test::new("limits::entered-from-outside", entered_from_outside),
        Test::new("limits::left-with-nothing", left_with_nothing),
        Test::new("limits::same-size", same_size),
        Test::new("newcomer::first-process", first_process),
        Test::new("newcomer::little-room", little_room),
        Test::new("status::waits-for-a-line", waits_for_a_line),
    ]
}

/// Lines for a shell, which has the launcher and its options in `$0` and what is given here from `$1` on.
fn shell(context: &Context, line: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).arg(&context.overspill).args(arguments);
    command.env("OVERSPILL_CONFIG", "/dev/null").stdin(Stdio::null());
    command
}

/// Exit status, and all that was said.
fn said(command: &mut Command) -> Outcome<(Option<i32>, String)> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok((output.status.code(), text.concat()))
}

fn report(path: &Path) -> Outcome<Value> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// A process that holds 100 MiB for so long, as words of a shell.
fn holder(seconds: &str) -> Outcome<String> {
    let perl = text(&packages::program("perl", "perl")?);
    Ok(format!("{perl} -e '$x = \"x\" x (100 << 20); select undef, undef, undef, {seconds}'"))
}

/// *The story:* `sidecar & exec overspill run --strict ...` ended both: the sidecar was a child of the
/// launcher's process, and so the run's. What the sidecar leaves behind is not the run's, either; what a
/// command leaves behind within a millisecond is.
fn beside_others(context: &Context) -> Outcome {
    let json = context.path("limits-beside.json");
    let _ = std::fs::remove_file(&json);
    let line = format!(
        "(({holder}) & sleep 0.6) & {holder} & echo $! ; sleep 0.3; \
         exec \"$0\" run --strict --ram 64M --json \"$1\" -- /bin/sh -c '(sleep 0.5 &); sleep 0.9; exit 3'",
        holder = holder("4")?
    );
    let path = context.path("limits-beside.stdout");
    let out = std::fs::File::create(&path).map_err(|error| error.to_string())?;
    let status = shell(context, &line, &[&text(&json)]).stdout(out).stderr(Stdio::null()).status();
    let status = status.map_err(|error| error.to_string())?;
    let helper = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let helper: u32 = helper.trim().parse().map_err(|_| helper)?;
    let lives = proc::is_running(helper);
    proc::kill(helper, libc::SIGKILL);
    ensure!(status.code() == Some(3) && lives, "{status}, and the helper lives: {lives}");
    let report = report(&json)?;
    let all = report["processes"].as_array().ok_or("no processes")?;
    let count = |name: &str| all.iter().filter(|process| process["comm"] == name).count();
    let names = [count("perl"), count("sleep")];
    let is_right = names == [0, 2] && report["managed"] == true && report["verdict"]["kind"] == "fits";
    ensure!(is_right, "{names:?}: {}", report["verdict"]);
    Ok(())
}

/// *The story:* an orphan of what somebody had entered into a container (`docker exec`, nsenter) became
/// the launcher's child, as that was the first process there, and ended a run under `--strict`.
fn entered_from_outside(context: &Context) -> Outcome {
    let (unshare, nsenter) =
        (packages::program("unshare", "util-linux")?, packages::program("nsenter", "util-linux")?);
    let mut outer = Command::new(unshare)
        .args(["-pf", "--kill-child", "--mount-proc"])
        .arg(&context.overspill)
        .args(["run", "--strict", "--ram", "64M", "--", "/bin/sh", "-c", "sleep 1.2; exit 3"])
        .env("OVERSPILL_CONFIG", "/dev/null")
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let begun = Instant::now();
    let first = loop {
        let launcher = proc::tree(outer.id()).into_iter().nth(1);
        // It has started the command.
        if let Some(pid) = launcher.filter(|&pid| proc::tree(pid).len() >= 3) {
            break pid;
        }
        ensure!(begun.elapsed() < Duration::from_secs(10), "nothing was started");
        std::thread::sleep(Duration::from_millis(5));
    };
    let entered = Command::new(nsenter)
        .args(["-p", "-m", "-t", &first.to_string(), "/bin/sh", "-c"])
        .arg(format!("{} & exit 0", holder("3")?))
        .stdin(Stdio::null())
        .status();
    let status = outer.wait().map_err(|error| error.to_string())?;
    ensure!(entered.is_ok_and(|entered| entered.success()), "nobody was entered");
    ensure!(status.code() == Some(3), "the run ended with {status}");
    Ok(())
}

/// *The story:* what a command left behind within a millisecond, static and with an empty environment, was a
/// stranger where there could be any: in the session of a container's first process, and in the process group
/// of a command beside a sidecar that has another one.
fn left_with_nothing(context: &Context) -> Outcome {
    let bare = text(&packages::compile(context, "limits-bare", BARE, &["-static"])?);
    let bash = packages::program("bash", "bash")?;
    let json = context.path("limits-bare.json");
    let run = "\"$0\" run --ram 64M --json \"$1\" -- /bin/sh -c 'sleep 0.5; \"$0\" 30 60 leave; sleep 0.3; \
               \"$0\" 30 60 leave; sleep 1' \"$2\"";
    for line in [
        format!("set -m; sleep 3 & exec {run}"),
        // Who was there before has ended.
        format!("sleep 0.2 & exec {run}"),
        format!("exec unshare -pf --kill-child --mount-proc setsid {run}"),
    ] {
        let _ = std::fs::remove_file(&json);
        let status = Command::new(&bash)
            .args(["-c", &line])
            .arg(&context.overspill)
            .args([&text(&json), &bare])
            .env("OVERSPILL_CONFIG", "/dev/null")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|error| error.to_string())?;
        let report = report(&json)?;
        let all = report["processes"].as_array().ok_or("no processes")?;
        // Who leaves it has the same name, and no such memory.
        let is_left = |process: &&Value| {
            process["comm"] == "limits-bare" && process["peak_bytes"].as_u64() > Some(25 * MIB)
        };
        let seen = all.iter().filter(is_left).count();
        ensure!(status.success() && seen == 2, "{status}, {seen} seen of those left by: {line}");
    }
    Ok(())
}

/// *The story:* an exec of a static program that has as many pages of code as the one before it: that one's
/// agent was taken for its own. 300 MiB in 64, "managed", under `--strict`.
fn same_size(context: &Context) -> Outcome {
    let tiny =
        packages::compile(context, "limits-tiny", TINY, &["-static", "-nostdlib", "-fno-stack-protector"])?;
    let becomes = packages::compile(context, "limits-becomes", BECOMES, &[])?;
    for options in [&["--strict"][..], &[]] {
        let launch = Launch::new(context, "limits-same-size", &becomes).args([&tiny]);
        let finished = launch.ram(64 * MIB).options(options).timeout(60).run()?;
        finished.exited(if options.is_empty() { 7 } else { 125 })?;
        let report = finished.report()?;
        let is_told = report["managed"] == false && report.to_string().contains("statically linked");
        ensure!(is_told, "{}", finished.complain(&report["verdict"].to_string()));
    }
    Ok(())
}

/// A directory for the agent's library.
fn place(context: &Context, name: &str) -> Outcome<PathBuf> {
    let place = context.path(name);
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).map_err(|error| error.to_string())?;
    Ok(place)
}

/// *The story:* in a container the launcher is the first process, and its number always 1. Where the command
/// left anybody behind the library's directory stayed; the 102nd start was refused.
fn first_process(context: &Context) -> Outcome {
    let unshare = packages::program("unshare", "util-linux")?;
    let place = place(context, "newcomer-first")?;
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    for number in 0..=100 {
        let directory = place.join(format!("overspill-1-{number}"));
        std::fs::create_dir(&directory).map_err(|error| error.to_string())?;
        let file = std::fs::File::open(&directory).map_err(|error| error.to_string())?;
        file.set_modified(old).map_err(|error| error.to_string())?;
    }
    let mut command = Command::new(unshare);
    command.args(["-pf", "--mount-proc"]).arg(&context.overspill).args(["run", "--ram", "64M", "--"]);
    command.args(["/bin/sh", "-c", "sleep 5 & exit 0"]).stdin(Stdio::null());
    let (code, told) = said(command.env("TMPDIR", &place).env("OVERSPILL_CONFIG", "/dev/null"))?;
    ensure!(code == Some(0), "{code:?}: {told}");
    let left = scratch::names(&place);
    ensure!(left.len() == 100, "{} are left, and one of them was used: {left:?}", left.len());
    std::fs::remove_dir_all(&place).map_err(|error| error.to_string())
}

/// *The story:* where the first directory for temporary files was full, or files might not be as long as the
/// agent's library (`ulimit -f`), no program was run.
fn little_room(context: &Context) -> Outcome {
    let unshare = packages::program("unshare", "util-linux")?;
    let place = place(context, "newcomer-room")?;
    let line = "mount -t tmpfs -o size=100k none \"$1\" && TMPDIR=$1 \"$0\" run --ram 64M -- /bin/true && \
                ulimit -Sf 100 && \"$0\" run --ram 64M -- /bin/sh -c 'ulimit -Sf'";
    let mut command = Command::new(unshare);
    command.args(["-m", "/bin/bash", "-c", line]).arg(&context.overspill).arg(&place);
    let (code, told) = said(command.env("OVERSPILL_CONFIG", "/dev/null").stdin(Stdio::null()))?;
    // In blocks of 512 bytes.
    ensure!(code == Some(0) && told.starts_with("200\n"), "{code:?}: {told}");
    Ok(())
}

/// *The story:* SIGUSR1, which asks the launcher for a line, was given to programs with a handler only. Who
/// kept it out and took it by sigwait or signalfd waited for ever.
fn waits_for_a_line(context: &Context) -> Outcome {
    const WAITS: &str = "use POSIX; $set = POSIX::SigSet->new(SIGUSR1); sigprocmask(SIG_BLOCK, $set); \
                         $there = POSIX::SigSet->new; open F, '>', $ARGV[0]; close F; \
                         for (1..200) { select undef, undef, undef, 0.02; sigpending($there); \
                         exit 5 if $there->ismember(SIGUSR1) } exit 6";
    let begun = context.path("status-waits.begun");
    let _ = std::fs::remove_file(&begun);
    let running = Launch::new(context, "status-waits", packages::program("perl", "perl")?)
        .args(["-e", WAITS, &text(&begun)])
        .ram(64 * MIB)
        .timeout(60)
        .start()?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !begun.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    proc::kill(running.pid(), libc::SIGUSR1);
    let finished = running.finish()?;
    finished.exited(5)?;
    ensure!(finished.stderr.contains("1 process, "), "{}", finished.complain("no line"));
    Ok(())
}
