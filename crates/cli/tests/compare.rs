//! `overspill compare` and `bench` against the kernel's swap: the figures add up and nothing is
//! left behind, however they end. These tests need root and memory cgroups, and fail without them.

mod support;

use std::fs;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::machine::{machine, traces};
use support::{Scratch, eventually, in_time, overspill, stderr, stdout};

fn compare(scratch: &Scratch, options: &[&str], command: &[&str]) -> Command {
    let mut compare = overspill();
    compare.args(["compare", "--ram", "40M", "--swap"]).arg(&scratch.0).args(options).arg("--").args(command);
    compare
}

/// A load twice as large as the budget, for as many seconds.
fn load(seconds: &str) -> [&str; 5] {
    [env!("CARGO_BIN_EXE_overspill"), "load", "random", "--size=80M", seconds]
}

#[test]
fn the_kernel_swaps_and_the_figures_say_so() {
    let _machine = machine();
    let scratch = Scratch::new("figures");
    let before = traces(&scratch);
    let json = Scratch::new("figures-json");
    let json_path = json.file("compare.json");
    let options = ["--ways", "bare,kernel:3", "--json", json_path.to_str().unwrap()];
    let script = "head -c 60000000 /dev/zero | tr '\\0' 'x' | sort -S 70M | md5sum; cat; echo oops >&2";
    let mut child = compare(&scratch, &options, &["sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"the same input\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("the same output in all runs"), "{}", stdout(&output));

    let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(json_path).unwrap()).unwrap();
    assert_eq!(document["kind"], "compare");
    assert!(!document["machine"]["kernel"].as_str().unwrap().is_empty());
    let runs = document["runs"].as_array().unwrap();
    let number = |run: &serde_json::Value, key: &str| run[key].as_u64().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!((runs[0]["way"].as_str(), runs[1]["way"].as_str()), (Some("bare"), Some("kernel:3")));
    for run in runs {
        assert_eq!(number(run, "output_bytes"), 36 + 15, "an md5sum line and the input");
        assert!(run["wall_seconds"].as_f64().unwrap() > 0.0 && run["user_seconds"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(number(&runs[0], "swap_out_bytes"), 0);
    assert!(number(&runs[0], "peak_bytes") > 50 << 20);
    assert!(number(&runs[1], "swap_out_bytes") > 5 << 20);
    assert!(number(&runs[1], "peak_bytes") <= 40 << 20);
    assert_eq!(traces(&scratch), before);
}

#[test]
fn runs_that_differ_are_found() {
    let _machine = machine();
    let scratch = Scratch::new("differ");
    let output =
        compare(&scratch, &["--ways", "bare", "--runs", "2"], &["sh", "-c", "echo $$"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("DIFFERS"));
    let output = compare(&scratch, &[], &["no-such-program-anywhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
}

/// *The story:* a command that left a process in the background, which had its standard output, kept the
/// comparison waiting for that.
#[test]
fn what_a_command_leaves_behind_is_ended_with_it() {
    let _machine = machine();
    let scratch = Scratch::new("behind");
    let before = traces(&scratch);
    for ways in ["bare,overspill", "bare,kernel:0,overspill"] {
        let script = "setsid sleep 7654321 & sleep 7654321 & echo hello";
        let output = in_time(&mut compare(&scratch, &["--ways", ways], &["sh", "-c", script]));
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
        assert!(text.contains("the command left processes behind, which were killed"), "{text}");
        assert!(text.contains("the same output in all runs"), "{text}");
        let sleeps = |pid: &fs::DirEntry| {
            fs::read(pid.path().join("cmdline")).is_ok_and(|words| words == b"sleep\x007654321\0")
        };
        assert!(!fs::read_dir("/proc").unwrap().flatten().any(|pid| sleeps(&pid)), "{ways}");
    }
    assert_eq!(traces(&scratch), before);
    let output = in_time(&mut compare(&scratch, &["--ways", "bare"], &["sh", "-c", "echo hello"]));
    assert!(!stdout(&output).contains("left"), "{}", stdout(&output));
}

/// *The story:* without a group to remove, what the shell had started went on when the comparison was
/// ended, and so did whoever did not heed the signal.
#[test]
fn an_interrupted_comparison_without_a_group_leaves_nobody_either() {
    let scratch = Scratch::new("nobody");
    for (way, script) in [
        ("bare", "sleep 7654322; true"),
        ("bare", "trap '' INT TERM; setsid sleep 7654322 & sleep 7654322; sleep 7654322"),
        ("overspill", "trap '' INT TERM; sleep 7654322; sleep 7654322"),
    ] {
        let mut command = compare(&scratch, &["--ways", way], &["sh", "-c", script]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let are_there = || {
            let words = |pid: fs::DirEntry| fs::read(pid.path().join("cmdline")).unwrap_or_default();
            fs::read_dir("/proc").unwrap().flatten().any(|pid| words(pid) == b"sleep\x007654322\0")
        };
        eventually("the command runs", are_there);
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
        eventually("the comparison ends", || child.try_wait().unwrap().is_some());
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::SIGTERM as i32));
        assert!(!are_there(), "{way}: {script}");
    }
}

#[test]
fn the_output_of_the_first_run_can_be_kept() {
    let _machine = machine();
    let (scratch, other) = (Scratch::new("keep"), Scratch::new("keep-file"));
    let kept = other.file("kept");
    let options = ["--ways", "bare", "--runs", "2", "--keep-output", kept.to_str().unwrap()];
    assert!(compare(&scratch, &options, &["echo", "hello"]).status().unwrap().success());
    assert_eq!(fs::read_to_string(kept).unwrap(), "hello\n");
}

#[test]
fn a_bench_verifies_its_load() {
    let _machine = machine();
    let scratch = Scratch::new("bench");
    let before = traces(&scratch);
    let mut bench = overspill();
    bench.args([
        "bench",
        "mixed:1+2",
        "--size",
        "60M",
        "--ram",
        "40M",
        "--seconds",
        "1",
        "--write",
        "--latency",
    ]);
    let output = bench.args(["--ways", "bare,kernel:0", "--swap"]).arg(&scratch.0).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("touches/s") && text.contains("kernel:0: seq "), "{text}");
    assert_eq!(traces(&scratch), before);
}

/// A comparison in the middle of its run on the kernel's swap.
fn swapping(scratch: &Scratch) -> Child {
    let mut command = compare(scratch, &["--ways", "kernel:5"], &load("--seconds=60"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the load runs in its cgroup", || {
        let inside = traces(scratch);
        inside.page_cluster == "5\n"
            && inside.swaps.contains("overspill-compare-")
            && inside
                .groups
                .iter()
                .any(|group| fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|p| !p.is_empty()))
    });
    child
}

#[test]
fn an_interrupted_comparison_leaves_nothing_behind() {
    let _machine = machine();
    let scratch = Scratch::new("interrupted");
    let before = traces(&scratch);
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let child = swapping(&scratch);
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let died_by = std::os::unix::process::ExitStatusExt::signal(&output.status);
        assert_eq!(died_by, Some(signal as i32), "{}", stderr(&output));
        assert_eq!(traces(&scratch), before);
    }
}

#[test]
fn a_killed_comparison_leaves_nothing_behind() {
    let _machine = machine();
    let scratch = Scratch::new("killed");
    let before = traces(&scratch);
    let mut child = swapping(&scratch);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the guardian has cleaned up", || traces(&scratch) == before);
}

#[test]
fn a_killed_guardian_leaves_nothing_behind_either() {
    let _machine = machine();
    let scratch = Scratch::new("guardian");
    let before = traces(&scratch);
    let child = swapping(&scratch);
    let guardian = guardian_of(child.id());
    kill(guardian, Signal::SIGKILL).unwrap();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert_eq!(traces(&scratch), before);
}

fn guardian_of(parent: u32) -> Pid {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let is_guardian = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.ends_with("\0guard\0"))
    };
    Pid::from_raw(children.split_whitespace().find(is_guardian).expect("it has a guardian").parse().unwrap())
}
