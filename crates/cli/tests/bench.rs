//! The suites of `overspill bench`: bad input is one line, the tables say what was measured, and
//! the kernel's settings are the old ones afterwards, however the suite ends. Those tests need root
//! and memory cgroups, and fail without them.

mod support;

use std::fs;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::machine::{machine, rotational, traces};
use support::{Scratch, eventually, overspill, stderr, stdout};

fn bench(words: &[&str]) -> Output {
    overspill().arg("bench").args(words).output().unwrap()
}

#[test]
fn bad_input_is_one_line_and_runs_nothing() {
    let cases: [(&[&str], &str); 15] = [
        (&["sideways"], "the suites are swapin, mixed, all"),
        (&["all", "--only", "moonwalk"], "it has seq, descending"),
        (&["swapin", "--json", "x.json"], "--out DIR"),
        (&["seq", "--out", "."], "--json FILE"),
        (&["seq", "--only", "seq"], "--only"),
        (&["mixed", "--threads", "3"], "its own threads"),
        (&["all", "--shared"], "its own threads and memory"),
        (&["swapin", "--ways", "kernel:3:slot"], "the ways are"),
        (&["swapin", "--ram", "0"], "above zero"),
        // *The stories:* two of these did nothing, with status 0; of no touches the rate was no number; no
        // file was written.
        (&["extents", "--size", "1K"], "--size: 30.0 KiB at least"),
        (&["extents", "--size", "9999999T"], "more than any machine"),
        (&["seq", "--laps", "0"], "0 is not in 1.."),
        (&["seq", "--touches", "0"], "0 is not in 1.."),
        (&["slots", "--json", "x.json"], "--json does nothing for `bench slots`"),
        (&["extents", "--out", "x"], "--out does nothing for `bench extents`"),
    ];
    for (words, part) in cases {
        let output = bench(words);
        assert_eq!(output.status.code(), Some(125), "{words:?}");
        let complaint = stderr(&output);
        assert!(complaint.contains(part) && complaint.lines().count() == 1, "{words:?}: {complaint}");
        assert!(stdout(&output).is_empty());
    }
}

/// *The story:* hours of runs were lost, as it was seen at their end that they could not be written.
#[test]
fn figures_that_cannot_be_written_are_refused_before_the_work() {
    for load in ["seq --ways bare", "files", "reclaim --ways bare"] {
        let words = load.split(' ').chain(["--ram", "40M", "--json", "/no/such/place/x.json"]);
        let output = bench(&words.collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(125), "{load}: {}", stderr(&output));
        let complaint = stderr(&output);
        assert!(complaint.contains("cannot write /no/such/place/x.json"), "{load}: {complaint}");
        assert!(complaint.lines().count() == 1 && stdout(&output).is_empty(), "{load}: {complaint}");
    }
}

/// *The story:* an interrupted one left its file, of a gigabyte, in the swap directory.
#[test]
fn interrupted_extents_leave_no_file() {
    let scratch = Scratch::new("extents");
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let mut command = overspill();
        command.args(["bench", "extents", "--size", "64M", "--swap"]).arg(&scratch.0);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let files = format!("/proc/{}/fd", child.id());
        let is_made = |path: fs::DirEntry| {
            let place = fs::read_link(path.path()).unwrap_or_default();
            place.starts_with(&scratch.0) && !place.ends_with(scratch.0.file_name().unwrap())
        };
        eventually("it has made its file", || {
            fs::read_dir(&files).unwrap().flatten().any(is_made) && fs::metadata(&scratch.0).is_ok()
        });
        std::thread::sleep(std::time::Duration::from_millis(5));
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0, "{signal}");
    }
}

/// *The story:* the time to cut a file grew with the square of its pieces, so that the counts that
/// were published were never made.
#[test]
fn a_file_is_cut_into_as_many_pieces_as_it_says() {
    let scratch = Scratch::new("pieces");
    let output = overspill().args(["bench", "extents", "--size", "30M", "--swap"]).arg(&scratch.0).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("2 files of 30.0 MiB"), "{}", stderr(&output));
    let text = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = text.split_once("cut into 2,000 pieces: ").expect(&text);
    let reported: u32 =
        rest.split_once(" extents by FIEMAP").expect(rest).0.replace(',', "").parse().unwrap();
    assert!((1800..=2400).contains(&reported), "{reported} extents");
    for tasks in ["1 out list", "4 out tree", "8 in default"] {
        assert!(rest.contains(tasks), "{tasks}: {rest}");
    }
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

/// A suite in little: 60 MiB in 40.
fn suite(scratch: &Scratch, words: &[&str]) -> Command {
    let mut command = overspill();
    command.arg("bench").args(words).args(["--size", "60M", "--ram", "40M", "--swap"]).arg(&scratch.0);
    command
}

#[test]
fn a_suite_prints_a_table_and_keeps_its_figures() {
    let _machine = machine();
    let (scratch, results) = (Scratch::new("suite"), Scratch::new("suite-results"));
    let before = traces(&scratch);
    let words = ["swapin", "--only", "seq,random-shared", "--ways", "kernel:0,kernel:3:vma,kernel:5:cluster"];
    let output = suite(&scratch, &words).args(["--laps", "1", "--out"]).arg(&results.0).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "seq: seq --size=60M",
        "random-shared: random",
        "kernel:3:vma",
        "ra_hit",
        "rows are those of its library",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(traces(&scratch), before);

    let files: Vec<_> = fs::read_dir(&results.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    let sequential =
        files.iter().find(|path| path.to_string_lossy().ends_with("-seq-60M-in-40M.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(sequential).unwrap()).unwrap();
    assert!(!document["machine"]["kernel"].as_str().unwrap().is_empty());
    let rows = document["parameters"]["rows"].as_array().unwrap();
    let number = |row: usize, key: &str| rows[row][key].as_u64().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!((number(0, "read_ahead"), number(0, "pages_in") > 1000), (0, true), "without read-ahead");
    assert!(number(2, "read_ahead_hits") > 1000, "with read-ahead: {}", rows[2]);
    assert!(number(0, "faults") > number(0, "pages_in") / 2, "{}", rows[0]);
}

#[test]
fn a_suite_with_goals_says_what_was_not_reached() {
    let _machine = machine();
    let scratch = Scratch::new("goals");
    let words = ["all", "--only", "seq,mixed-1-1", "--ways", "kernel:0", "--seconds", "1"];
    let output = suite(&scratch, &words).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("mixed-1-1, random part") && text.contains("NO"), "{text}");
}

/// *A user's story:* `overspill bench swapin | head -1` ended in a panic, since `println!` cannot
/// bear that nobody reads.
#[test]
fn a_suite_ends_quietly_when_nobody_reads() {
    let _machine = machine();
    let (scratch, results) = (Scratch::new("unread"), Scratch::new("unread-results"));
    let before = traces(&scratch);
    let mut command = suite(&scratch, &["swapin", "--only", "seq", "--ways", "kernel:0", "--laps", "1"]);
    command.arg("--out").arg(&results.0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let died_by = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(died_by, Some(Signal::SIGPIPE as i32), "{}", stderr(&output));
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(&results.0).unwrap().count(), 1, "what was measured is kept");
    eventually("everything is as before", || traces(&scratch) == before);
}

#[test]
fn an_interrupted_suite_restores_the_kernels_settings() {
    let _machine = machine();
    let scratch = Scratch::new("suite-interrupted");
    let before = traces(&scratch);
    let disk = rotational(&scratch.0).expect("the tests run on a disk");
    // A disk that does not rotate would hide a setting that is forgotten.
    fs::write(&disk, "1").unwrap();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let mut command = suite(&scratch, &["mixed", "--ways", "kernel:4:vma", "--seconds", "60"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap();
        eventually("the load runs on the changed settings", || {
            let inside = traces(&scratch);
            inside.page_cluster == "4\n"
                && inside.rules[1] == "0\n"
                && inside.swaps.contains("overspill-compare-")
        });
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let status = child.wait().unwrap();
        let died_by = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(died_by, Some(signal as i32));
        eventually("everything is as before", || {
            let after = traces(&scratch);
            after.rules[1] == "1\n"
                && after.rules[0] == before.rules[0]
                && after.page_cluster == before.page_cluster
        });
        eventually("nothing is left", || {
            let after = traces(&scratch);
            (after.swaps, after.groups, after.files)
                == (before.swaps.clone(), before.groups.clone(), before.files.clone())
        });
    }
    fs::write(&disk, before.rules[1].trim()).unwrap();
    assert_eq!(traces(&scratch), before);
}
