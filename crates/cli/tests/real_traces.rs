//! Traces of real programs, made here and now, through the whole of `record`, `trace` and `sim`.
//! They take a minute or two and need valgrind, gcc, python3 and sqlite3, so `./check` asks for
//! them by name (`--ignored`).

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Scratch, eventually, overspill, stderr, stdout};

/// Records `command` and checks what can be said of any program's trace and its simulation.
fn record_and_simulate(name: &str, command: &[&str]) {
    let scratch = Scratch::new(name);
    let trace = scratch.file("trace.ovt");
    let output = record(&trace, command).current_dir(&scratch.0).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let info = json(&["trace", "info", "--json"], &trace);
    let count = |key: &str| info[key].as_u64().unwrap_or_else(|| panic!("{key} in {info}"));
    assert!(count("loads") > 1000 && count("stores") > 1000 && count("pages") > 100, "{info}");
    simulate(&trace);
    parts_add_up(&scratch, &trace, count("loads") + count("stores") + count("fetches"));
}

fn json(command: &[&str], trace: &Path) -> serde_json::Value {
    let output = overspill().args(command).arg(trace).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// Less RAM is never better, enough RAM reads nothing, and the same command prints the same bytes.
fn simulate(trace: &Path) {
    for policy in ["live", "kernel"] {
        let mut command = overspill();
        command.args(["sim", "--ram", "25%,50%,100%,150%", "--policy", policy, "--json"]).arg(trace);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(output.stdout, command.output().unwrap().stdout, "{policy} is deterministic");
        let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let rows = report["rows"].as_array().unwrap();
        let major: Vec<u64> = rows.iter().map(|row| row["faults_major"].as_u64().unwrap()).collect();
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[3]["pswpin"], 0, "{policy}: with RAM to spare nothing is read");
        assert!(
            major[0] > 0 && major[0] * 11 / 10 >= major[1] && major[1] * 11 / 10 >= major[2],
            "{major:?}"
        );
    }
}

/// What the announcement of proportional reclaim must hold it does. Fewer or shorter worlds are
/// decided by chance.
#[test]
#[ignore = "takes a minute and a half of processor time"]
fn proportional_reclaim_holds() {
    let output = overspill().args(["sim", "paper", "proportional-reclaim"]).output().unwrap();
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("\nThe shape holds."));
}

/// What the pager saw live is what it counted, and it can be simulated.
#[test]
#[ignore = "needs userfaultfd and the agent beside the command"]
fn a_live_trace_tells_what_was_counted() {
    const LISTS: &str = "pages = [bytearray(4096) for _ in range(16000)]\nfor lap in range(3):\n    for page in pages: page[9] = lap";
    let scratch = Scratch::new("live-trace");
    let (trace, report) = (scratch.file("live.ovt"), scratch.file("live.json"));
    let mut command = overspill();
    // The agent that lies beside the command, not the stand-in of the other tests.
    command.env_remove("OVERSPILL_PRELOAD");
    command.args(["run", "-q", "--ram", "32M", "--trace"]).arg(&trace).arg("--json").arg(&report);
    let output = command.args(["--", "python3", "-c", LISTS]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let info = json(&["trace", "info", "--json"], &trace);
    let seen = |name: &str| info["pager_events"][name].as_u64().unwrap_or(0);
    let counted = |group: &str, name: &str| report[group][name].as_u64().unwrap();
    assert!(!info["notes"].to_string().contains("lost"), "{info}");
    let pairs = [
        ("major faults", seen("major_fault"), counted("vmstat", "pgmajfault")),
        ("pages wanted back", seen("refault"), counted("vmstat", "pgmajfault")),
        ("refaults", seen("refault") + seen("read_ahead"), counted("vmstat", "workingset_refault_anon")),
        (
            "faults",
            seen("major_fault") + seen("soft_fault") + seen("first_touch"),
            counted("vmstat", "pgfault"),
        ),
        ("read-ahead", seen("read_ahead"), counted("vmstat", "swap_ra")),
        ("read-ahead in vain", seen("read_ahead_unused"), counted("pager", "swap_ra_unused")),
        (
            "evictions",
            seen("evict_dirty") + seen("evict_clean"),
            counted("vmstat", "pgsteal_kswapd") + counted("vmstat", "pgsteal_direct")
                - counted("pager", "zero_dropped"),
        ),
    ];
    for (what, seen, counted) in pairs {
        // The report is the agent's of its last look, up to a millisecond before the end.
        assert!(
            seen.abs_diff(counted) <= (counted / 100).max(64),
            "{what}: {seen} in the trace, {counted} counted"
        );
    }
    assert!(seen("major_fault") > 10 && seen("read_ahead") > 10_000, "{info}");
    let mut simulation = overspill();
    simulation.args(["sim", "--ram", "25%,50%", "--json"]).arg(&trace);
    let output = simulation.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let simulated: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let read: Vec<u64> =
        simulated["rows"].as_array().unwrap().iter().map(|row| row["pswpin"].as_u64().unwrap()).collect();
    assert!(read[0] > 10_000 && read[0] >= read[1], "{read:?}");
}

/// Two parts of a trace have as many records as the whole, and a copy in another format comes back
/// as it was.
fn parts_add_up(scratch: &Scratch, trace: &Path, records: u64) {
    let half = (records / 2).to_string();
    let part = |name: &str, options: &[&str]| {
        let path = scratch.file(name);
        let output = overspill().args(["trace", "cut"]).args(options).arg(trace).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let info = json(&["trace", "info", "--json"], &path);
        ["loads", "stores", "fetches"].iter().map(|key| info[key].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(part("a.ovt", &["--take", &half]) + part("b.ovt", &["--skip", &half]), records);
    let csv = scratch.file("trace.csv");
    let back = scratch.file("back.ovt");
    for (from, to) in [(trace, &csv), (csv.as_path(), &back)] {
        let output = overspill().args(["trace", "convert"]).arg(from).arg(to).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let (before, after) =
        (json(&["trace", "info", "--json"], trace), json(&["trace", "info", "--json"], &back));
    for key in ["loads", "stores", "fetches", "pages", "pages_written", "last_ns"] {
        assert_eq!(before[key], after[key], "{key} after a trip through CSV");
    }
}

/// `overspill record -o trace -- words...`
fn record(trace: &Path, words: &[&str]) -> Command {
    let mut command = overspill();
    command.arg("record").arg("-o").arg(trace).arg("--").args(words);
    command
}

/// `record` ends as the program ended, and its trace is whole. It used to leave a directory with a
/// pipe in it when the program was killed, and half a trace when it was told to end itself.
#[test]
#[ignore = "./check runs it: it needs packages"]
fn a_recording_ends_like_the_program() {
    let scratch = Scratch::new("record-end");
    let (trace, temporary) = (scratch.file("trace.ovt"), scratch.file("tmp"));
    std::fs::create_dir(&temporary).unwrap();
    let nothing_left = || assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "it left something");
    for (script, code, signal) in
        [("exit 3", Some(3), None), ("kill -SEGV $$", None, Some(Signal::SIGSEGV as i32))]
    {
        let output = record(&trace, &["sh", "-c", script]).env("TMPDIR", &temporary).output().unwrap();
        assert_eq!((output.status.code(), output.status.signal()), (code, signal), "{}", stderr(&output));
        assert!(json(&["trace", "info", "--json"], &trace)["loads"].as_u64().unwrap() > 1000);
        nothing_left();
    }
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let begun = scratch.file("begun");
        // Not without end, should this test come to one.
        let script = format!(": >{}; for i in $(seq 100000); do :; done", begun.display());
        let mut command = record(&trace, &["sh", "-c", &script]);
        let mut child = command.env("TMPDIR", &temporary).stderr(Stdio::null()).spawn().unwrap();
        eventually("the program is under way", || begun.exists());
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal as i32));
        assert!(json(&["trace", "info", "--json"], &trace)["loads"].as_u64().unwrap() > 1000);
        std::fs::remove_file(&begun).unwrap();
        nothing_left();
    }
}

/// Many a python3 is a script that finds the real one and becomes that, which valgrind does not
/// follow: 400,000 accesses were recorded then, of a shell, and nothing was said.
#[test]
#[ignore = "./check runs it: it needs packages"]
fn a_program_that_becomes_another_is_named() {
    let scratch = Scratch::new("record-exec");
    let trace = scratch.file("trace.ovt");
    let output = record(&trace, &["sh", "-c", "exec sleep 0.2"]).output().unwrap();
    let text = stderr(&output);
    assert!(output.status.success() && text.contains("sleep (exec), whose accesses are missing"), "{text}");
    let output = record(&trace, &["sh", "-c", "sleep 0.2; exit 0"]).output().unwrap();
    assert!(!stderr(&output).contains("(exec)"), "a child is no such thing: {}", stderr(&output));
}

#[test]
#[ignore = "./check runs it: it needs packages"]
fn a_recording_that_cannot_be_is_refused() {
    let scratch = Scratch::new("record-refused");
    let trace = scratch.file("trace.ovt");
    let text = scratch.file("text");
    std::fs::write(&text, "no program\n").unwrap();
    for (words, code) in [(["no-such-program"], 127), ([text.to_str().unwrap()], 126)] {
        let output = record(&trace, &words).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(code), 1));
        assert!(!trace.exists());
    }
    let output = record(Path::new("/dev/full"), &["true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
}

#[test]
#[ignore = "./check runs it: it needs packages"]
fn sort() {
    let scratch = Scratch::new("lines");
    let lines = scratch.file("lines");
    let text: String = (0..3000_u64).map(|line| format!("{}\n", line * 7919 % 3001)).collect();
    std::fs::write(&lines, text).unwrap();
    record_and_simulate("sort", &["sort", "-S", "1M", lines.to_str().unwrap()]);
}

#[test]
#[ignore = "./check runs it: it needs packages"]
fn python() {
    let program = "d = {i: str(i) for i in range(2000)}; print(len(d))";
    record_and_simulate("python", &["/usr/bin/python3", "-S", "-E", "-c", program]);
}

#[test]
#[ignore = "./check runs it: it needs packages"]
fn sqlite() {
    let program = "create table t(a, b); \
                   with recursive c(x) as (select 1 union all select x + 1 from c where x < 500) \
                   insert into t select x, x * x from c; \
                   create index i on t(b); select count(*) from t where b % 7 = 0;";
    record_and_simulate("sqlite", &["sqlite3", ":memory:", program]);
}

#[test]
#[ignore = "./check runs it: it needs packages"]
fn gcc() {
    let compiler = Command::new("gcc").arg("-print-prog-name=cc1").output().unwrap();
    let compiler = stdout(&compiler).trim().to_owned();
    let scratch = Scratch::new("source");
    let source = scratch.file("a.c");
    std::fs::write(&source, "#define F(a) ((a) * (a))\nint main(void) { return F(3); }\n").unwrap();
    record_and_simulate("gcc", &[&compiler, "-E", "-quiet", source.to_str().unwrap(), "-o", "a.i"]);
}
