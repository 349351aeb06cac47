//! What the commands beside `run` leave behind, replace, refuse and say. Stories of a week in which
//! each of them was tried with what users do to it.

mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use support::{Scratch, eventually, in_time, overspill, stderr, stdout};

fn sim(words: &str) -> Output {
    overspill().arg("sim").args(words.split(' ')).output().unwrap()
}

/// What it says in one line, with status 125.
fn refused(output: &Output) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(125), "{text}{}", stdout(output));
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// As an ordinary user, if the test is not.
fn as_user(command: &mut Command) -> &mut Command {
    if geteuid().is_root() { command.uid(65_534).gid(65_534) } else { command }
}

/// A directory on a disk that everybody may write to.
struct Open(PathBuf);

impl Open {
    fn new(name: &str) -> Open {
        let path = Path::new("/var/tmp").join(format!("overspill-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        Open(path)
    }

    fn names(&self) -> Vec<String> {
        names(&self.0)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let all = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// *The story:* each `bench files` of an ordinary user left its file, of a gigabyte, after five lines about
/// what it could not do.
#[test]
fn a_bench_of_files_says_first_that_it_needs_root() {
    let open = Open::new("bench-files");
    let mut command = overspill();
    command.args(["bench", "files", "--ram", "16M", "--only", "cold", "--swap"]).arg(&open.0);
    let text = refused(&in_time(as_user(&mut command)));
    assert!(text.contains("`overspill bench files` needs root"), "{text}");
    assert!(open.names().is_empty(), "{:?}", open.names());
}

/// *The story:* who may not stop swapping kept the file, though nobody swapped to it.
#[test]
fn a_file_goes_also_where_swapping_may_not_be_stopped() {
    let open = Open::new("guard");
    let file = open.0.join("swap");
    fs::write(&file, "0").unwrap();
    let mut command = overspill();
    let mut child =
        as_user(command.arg("guard")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let note = serde_json::json!({"Hold": {"SwapFile": file}});
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), format!("{note}\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(open.names().is_empty(), "{:?}", open.names());
}

/// A directory with a `valgrind` in it that writes so many lines, and then waits.
fn valgrind(scratch: &Scratch, lines: u64, then: &str) -> String {
    let script = format!(
        "#!/bin/sh\nfor word in \"$@\"; do case $word in --log-file=*) log=${{word#*=}};; esac; done\n\
         exec 3> \"$log\"\nyes ' L 04000000,8' | head -{lines} >&3\n{then}\n"
    );
    fs::create_dir_all(scratch.file("bin")).unwrap();
    scratch.executable("bin/valgrind", script.as_bytes());
    format!("{}:{}", scratch.file("bin").display(), std::env::var("PATH").unwrap())
}

/// *The story:* `record -o OLD` emptied the old trace at once. Who was killed had neither.
#[test]
fn a_recording_replaces_the_old_one_when_it_is_whole() {
    let scratch = Scratch::new("record-old");
    let record = |path: &str| {
        let mut command = overspill();
        command
            .args(["record", "--exact", "-o", "t.ovt", "--", "true"])
            .current_dir(&scratch.0)
            .env("PATH", path);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    fs::write(scratch.file("t.ovt"), "the old one").unwrap();
    let path = valgrind(&scratch, 300_000, "sleep 5");
    let mut child = record(&path).spawn().unwrap();
    let is_begun = || fs::metadata(scratch.file("t.ovt.part")).is_ok_and(|about| about.len() > 500);
    eventually("blocks are written", is_begun);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read(scratch.file("t.ovt")).unwrap(), b"the old one");
    assert_eq!(names(&scratch.0), ["bin", "t.ovt", "t.ovt.part"], "what came before is there");
    let mut convert = overspill();
    let output =
        convert.args(["trace", "convert", "t.ovt.part", "part.csv"]).current_dir(&scratch.0).output();
    let text = stderr(&output.unwrap());
    assert!(text.contains("the file ends here") && text.contains("what came before was taken"), "{text}");
    assert!(fs::read_to_string(scratch.file("part.csv")).unwrap().lines().count() > 60_000);
    fs::remove_file(scratch.file("part.csv")).unwrap();
    let path = valgrind(&scratch, 300_000, "exit 3");
    assert_eq!(record(&path).status().unwrap().code(), Some(3));
    assert_eq!(names(&scratch.0), ["bin", "t.ovt"]);
    let info = overspill().args(["trace", "info", "--json"]).arg(scratch.file("t.ovt")).output().unwrap();
    assert!(stdout(&info).contains("times are counts of instructions"), "{}", stdout(&info));
}

/// *The story:* a sort was recorded for four minutes, and nothing said that it went on.
#[test]
fn a_recording_says_on_a_terminal_how_far_it_is() {
    let scratch = Scratch::new("record-progress");
    let path = valgrind(&scratch, 3_000_000, "exit 0");
    let line = format!("{} record -o t.ovt -- true", env!("CARGO_BIN_EXE_overspill"));
    let mut command = Command::new("script");
    command.args(["-qefc", &line, "/dev/null"]).current_dir(&scratch.0).env("PATH", path);
    let text = stdout(&in_time(&mut command));
    assert!(text.contains("2 million accesses, 0 ns of the program ..."), "{text}");
    assert!(text.contains("3000000 accesses, "), "{text}");
}

/// *The story:* `run --trace OLD` emptied the old trace at the start.
#[test]
fn a_trace_of_a_run_replaces_the_old_one_at_its_end() {
    let scratch = Scratch::new("trace-old");
    fs::write(scratch.file("t.ovt"), "the old one").unwrap();
    let run = |program: &[&str]| {
        let mut command = overspill();
        command.args(["run", "--ram", "64M", "-q", "--trace", "t.ovt", "--"]).args(program);
        command.current_dir(&scratch.0);
        command
    };
    let mut child = run(&["sleep", "60"]).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let program = || fs::read_to_string(&children).unwrap_or_default();
    eventually("the program runs", || scratch.file("t.ovt.part").exists() && !program().is_empty());
    std::thread::sleep(Duration::from_millis(200));
    let programs = program();
    child.kill().unwrap();
    child.wait().unwrap();
    for pid in programs.split_whitespace() {
        let _ = kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL);
    }
    assert_eq!(fs::read(scratch.file("t.ovt")).unwrap(), b"the old one");
    assert_eq!(names(&scratch.0), ["t.ovt", "t.ovt.part"], "what came before is there");
    assert!(run(&["true"]).status().unwrap().success());
    assert_eq!(names(&scratch.0), ["t.ovt"]);
    let info = overspill().args(["trace", "info"]).arg(scratch.file("t.ovt")).output().unwrap();
    assert!(info.status.success(), "{}", stderr(&info));
    assert_eq!(run(&["./nothing"]).status().unwrap().code(), Some(127));
    assert_eq!(names(&scratch.0), ["t.ovt"]);
}

/// *The story:* Ctrl-C left a page that was empty.
#[test]
fn an_interrupted_simulation_leaves_no_page() {
    let scratch = Scratch::new("page");
    let mut command = overspill();
    command.args(["sim", "zipf:size=1G,touches=500M", "--html", "page.html"]).current_dir(&scratch.0);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert!(!child.wait().unwrap().success(), "it was done before that");
    assert!(names(&scratch.0).is_empty(), "{:?}", names(&scratch.0));
}

/// *The story:* a model was made of /dev/shm, whose reads take 1.5 us.
#[test]
fn memory_is_no_device_to_measure() {
    let run = overspill().args(["run", "--ram", "64M", "--swap", "/dev/shm", "true"]).output().unwrap();
    let sentence = "/dev/shm is in memory (tmpfs), so spilling there would save nothing";
    for output in [run, sim("calibrate /dev/shm")] {
        let text = refused(&output);
        assert!(text.contains(sentence), "{text}");
    }
}

/// *The story:* "with 12.6 MiB the run takes 1.10x of unlimited RAM": it took four to six times as long.
#[test]
fn times_of_a_recording_are_believed_by_nobody() {
    let scratch = Scratch::new("instructions");
    let lines: String = (0..400).map(|line| format!(" L {:x},8\nI  400000,4\n", (line % 50) << 12)).collect();
    fs::write(scratch.file("l.lackey"), lines).unwrap();
    let path = valgrind(&scratch, 1000, "exit 0");
    let mut record = overspill();
    let record =
        record.args(["record", "-o", "r.ovt", "--", "true"]).current_dir(&scratch.0).env("PATH", path);
    assert!(record.status().unwrap().success());
    let caution = "caution: times in this trace are counts of instructions";
    for (words, is_told) in [
        ("l.lackey --ram 100K", true),
        ("l.lackey --explain", true),
        ("r.ovt --ram 64K", true),
        ("r.ovt --ram 64K --html page.html", true),
        ("zipf:size=1M,touches=1k --ram 50%", false),
    ] {
        let mut command = overspill();
        let output = command.arg("sim").args(words.split(' ')).current_dir(&scratch.0).output().unwrap();
        let text = stdout(&output);
        assert!(output.status.success(), "{words}: {}", stderr(&output));
        assert_eq!(text.contains(caution), is_told, "{words}: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
    assert!(fs::read_to_string(scratch.file("page.html")).unwrap().contains(caution));
}

/// *The stories:* of two sizes the last one counted, rows came twice, and a policy that the help lists was
/// said not to be there.
#[test]
fn what_is_said_twice_or_of_something_else_is_refused() {
    for (words, part) in [
        ("seq:size=64M,size=1M", "size was given before"),
        ("seq:size=1M --device nvme,nvme", "'nvme' is in the list twice"),
        ("seq:size=1M --policy lru,opt,lru", "'lru' is in the list twice"),
        ("seq:size=1M --readahead 6.8", "--readahead: 6.8 is of traces of calls on files, and this is none"),
    ] {
        let text = refused(&sim(words));
        assert!(text.contains(part), "{words}: {text}");
    }
    let output = sim("seq:size=1M,laps=2 --ram 512K,512K,256K..512K/256K --json");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 2, "each once");
}

/// *The story:* a peak of 28 KiB stood beside one of 1.7 MiB, of which the first was of other memory.
#[test]
fn a_comparison_says_what_its_peaks_are_of() {
    let compare = |ways: &str| {
        let words = ["compare", "--ram", "64M", "--ways", ways, "true"];
        stdout(&overspill().args(words).output().unwrap())
    };
    let text = compare("bare,overspill");
    assert!(text.contains("peak: overspill's is the anonymous memory of"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!compare("bare").contains("peak:"));
}

/// *The story:* `swap info a b` was an unexpected argument.
#[test]
fn several_areas_are_looked_at_in_turn() {
    let scratch = Scratch::new("areas");
    for name in ["a", "b"] {
        let make = overspill().args(["swap", "make", name, "--size", "1M"]).current_dir(&scratch.0).status();
        assert!(make.unwrap().success());
    }
    let info =
        |words: &[&str]| overspill().args(["swap", "info"]).args(words).current_dir(&scratch.0).output();
    let output = info(&["a", "b"]).unwrap();
    let text = stdout(&output);
    assert!(
        output.status.success() && text.contains("a: can be used\n") && text.contains("b: can"),
        "{text}"
    );
    assert_eq!(info(&["a", "none"]).unwrap().status.code(), Some(1));
    let all: serde_json::Value =
        serde_json::from_slice(&info(&["a", "b", "--json"]).unwrap().stdout).unwrap();
    assert_eq!((all[0]["path"].as_str(), all[1]["path"].as_str()), (Some("a"), Some("b")));
}
