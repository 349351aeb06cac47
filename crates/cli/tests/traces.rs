//! `overspill trace` and `overspill sim` on files that people have: what can be said of them is
//! said, in one line, and nothing that was there before is lost.

mod support;

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use support::{Scratch, overspill, stderr, stdout};

/// A process that maps a file, opens another and reads it from the beginning.
const CALLS: &str = "\
17 1.000000 openat(AT_FDCWD, \"/etc/ld.so.cache\", O_RDONLY|O_CLOEXEC) = 3
17 1.000010 mmap(NULL, 35399, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f36f81c8000
17 1.000020 close(3) = 0
17 1.000030 openat(AT_FDCWD, \"/data\", O_RDONLY) = 3
17 1.000040 read(3, \"abc\"..., 131072) = 131072
17 1.000050 pread64(3, \"abc\"..., 4096, 8192) = 4096
17 1.000060 close(3) = 0
";

fn calls(scratch: &Scratch) -> std::path::PathBuf {
    let path = scratch.file("calls.strace");
    fs::write(&path, CALLS).unwrap();
    path
}

/// What `overspill words... path` complains of: one line, exit status 125, nothing on standard
/// output.
fn complaint(words: &[&str], paths: &[&std::path::Path]) -> String {
    let output = overspill().args(words).args(paths).output().unwrap();
    let text = stderr(&output);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(125), ""), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn calls_on_files_are_described_converted_and_simulated() {
    let scratch = Scratch::new("calls");
    let (strace, own) = (calls(&scratch), scratch.file("calls.ovt"));
    let output = overspill().args(["trace", "convert"]).args([&strace, &own]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for path in [&strace, &own] {
        let output = overspill().args(["trace", "info"]).arg(path).output().unwrap();
        assert!(stdout(&output).contains("files     2 files, 7 calls, 132 KiB read"), "{}", stdout(&output));
        let output = overspill().args(["sim", "--readahead", "none,2.6.20,6.8"]).arg(path).output().unwrap();
        let text = stdout(&output);
        assert!(text.contains("reads and writes of"), "{text}{}", stderr(&output));
        assert_eq!(text.lines().filter(|line| line.contains("nvme")).count(), 3, "{text}");
        for (words, problem) in [
            (&["--explain"][..], "--explain is not about files, and "),
            (&["--processors", "2"], "--processors is not about files, and "),
            (&["--readahead", "linux"], "'linux' is not one of adaptive, none, 2.6.20"),
            (&["--ram", "1M"], "the least for calls on files is 2 MiB"),
        ] {
            let text = complaint(&[&["sim"], words].concat(), &[path]);
            assert!(text.contains(problem), "{text}");
        }
    }
}

/// It used to leave an empty file and to say that all was well.
#[test]
fn a_format_without_room_for_anything_is_refused() {
    let scratch = Scratch::new("room");
    let lackey = scratch.file("calls.lackey");
    let text = complaint(&["trace", "convert", "--to", "lackey"], &[&calls(&scratch), &lackey]);
    assert!(text.contains("lackey has no place for anything that is in it"), "{text}");
    assert!(!lackey.exists());
}

/// It used to leave a trace with nothing in it and to say that all was well.
#[test]
fn a_part_with_nothing_in_it_is_refused() {
    let scratch = Scratch::new("part");
    let (whole, part) = (calls(&scratch), scratch.file("part.ovt"));
    for (options, part_of_text) in [
        (&["--skip", "7"][..], "calls.strace: --skip 7 leaves nothing of 7 records"),
        (&["--take", "0"], "invalid value '0' for '--take <N>'"),
        (&["--after", "9s"], "calls.strace: it has no record of these times and threads"),
        (&["--threads", "18", "--skip", "1"], "it has no record of these times and threads"),
    ] {
        let words = [&["trace", "cut"], options].concat();
        let text = complaint(&words, &[&whole, &part]);
        assert!(text.contains(part_of_text), "{text}");
        assert!(!part.exists());
    }
    let output = overspill().args(["trace", "cut", "--skip", "6"]).args([&whole, &part]).output().unwrap();
    assert!(output.status.success() && part.exists(), "{}", stderr(&output));
}

/// *The story:* a part that begins later was cut out of a trace by a jump, past all names, notes and
/// regions.
#[test]
fn a_part_keeps_names_and_regions() {
    let scratch = Scratch::new("lasting");
    let accesses = scratch.file("accesses.csv");
    let lines: String = (0..200_000).map(|number| format!("{number},0,0,{}\n", number % 10 + 5)).collect();
    fs::write(&accesses, "time_ns,thread,space,page,op,argument\n,,0,5,region,10\n".to_owned() + &lines)
        .unwrap();
    for (trace, after, [loads, regions, calls, files]) in
        [(accesses, "150us", [50_000, 1, 0, 0]), (calls(&scratch), "45us", [0, 0, 2, 2])]
    {
        let (whole, part) = (scratch.file("whole.ovt"), scratch.file("part.ovt"));
        assert!(overspill().args(["trace", "convert"]).args([&trace, &whole]).status().unwrap().success());
        for from in [&trace, &whole] {
            let mut cut = overspill();
            cut.args(["trace", "cut", "--after", after]).args([from, &part]);
            assert!(cut.status().unwrap().success());
            let output = overspill().args(["trace", "info", "--json"]).arg(&part).output().unwrap();
            let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let found = ["loads", "regions", "file_calls", "files"].map(|name| info[name].as_u64().unwrap());
            assert_eq!(found, [loads, regions, calls, files], "{info}");
            fs::remove_file(&part).unwrap();
        }
        fs::remove_file(&whole).unwrap();
    }
}

/// *The story:* a region at the end of all page numbers kept `sim` busy for ever.
#[test]
fn pages_beyond_all_addresses_are_one_line() {
    let scratch = Scratch::new("beyond");
    let trace = scratch.file("t.csv");
    for records in [
        "0,0,0,68719476736\n",
        "0,0,0,5\n1,0,0,18446744073709551615\n",
        "0,0,0,18446744073709551615,major_fault,1\n",
        ",,0,68719476736,region,1\n0,0,0,5\n",
        ",,0,18446744073709551600,region,15\n0,0,0,5\n",
    ] {
        fs::write(&trace, format!("time_ns,thread,space,page,op,argument\n{records}")).unwrap();
        for words in [&["sim"][..], &["sim", "--policy", "lru"], &["sim", "policies"]] {
            let output = support::in_time(overspill().args(words).arg(&trace));
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{records}: {text}");
            assert!(text.lines().count() == 1 && text.contains("beyond 48-bit addresses"), "{text}");
            assert_eq!(text.matches("t.csv").count(), 1, "{text}");
        }
    }
}

/// Half a trace is removed: but root, writing to /dev/full, removed that, and every program after
/// it wrote to a file.
#[test]
fn only_files_of_its_own_are_removed() {
    let scratch = Scratch::new("own");
    let strace = calls(&scratch);
    let (pipe, damaged) = (scratch.file("pipe"), scratch.file("damaged.ovt"));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let good = scratch.file("good.ovt");
    assert!(overspill().args(["trace", "convert"]).args([&strace, &good]).status().unwrap().success());
    let mut bytes = fs::read(&good).unwrap();
    bytes.truncate(bytes.len() - 50);
    fs::write(&damaged, bytes).unwrap();
    let kept = pipe.clone();
    // Opened for reading and writing, a pipe waits for nobody.
    let _end = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let text = complaint(&["trace", "convert", "--to", "csv"], &[&damaged, &kept]);
    assert!(text.contains("damaged.ovt: offset"), "{text}");
    assert!(kept.exists(), "a pipe is not half a trace");
    let text = complaint(&["trace", "convert", "--to", "csv"], &[&strace, std::path::Path::new("/dev/full")]);
    assert!(text.contains("the output, offset"), "{text}");
    assert!(!fs::metadata("/dev/full").unwrap().is_file());
}

/// It used to be a panic with a trace of the stack.
#[test]
fn who_stops_reading_is_not_told() {
    let mut command = overspill();
    command.args(["sim", "random:size=4M,touches=2k"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(nix::libc::SIGPIPE));
    assert_eq!(text, "");
}

#[test]
fn mistakes_of_a_sweep_are_one_line() {
    for (words, part) in [
        (&["sim", "zipf:size=1M", "--from", "csv"][..], "a load has no format"),
        (&["sim", "zipf:size=1M", "--jobs", "0"], "--jobs"),
        (&["sim", "zipf:size=1M", "--ram", "10%..100%"], "FROM..TO/STEP"),
        (&["sim", "zipf:size=1M", "--ram", "banana"], "is not a size"),
        (&["sim", "zipf:size=1M", "--ram", "1K"], "the least is 64 KiB"),
        (&["sim", "zipf:size=1M", "--device", "floppy"], "the built-in ones are"),
        (&["sim", "zipf:size=1M", "--policy", "other"], "live, kernel"),
        (&["sim", "zipf:size=1M", "--readahead", "magic"], "adaptive, linux"),
        (&["sim", "zipf:size=1M", "--html", "/no/such/file"], "cannot write"),
        (&["sim", "no.such.trace"], "there is no such file"),
        (&["sim", "zipf:size=1M", "--read-ahead-kb", "64"], "--read-ahead-kb: there are no calls"),
        (&["sim", "zipf:size=1M", "--pool-ratio", "4"], "--pool-ratio: there is no pool"),
        (&["sim", "zipf:size=1M", "--pool-costs", "1,1"], "--pool-costs: there is no pool"),
        (&["sim", "zipf:size=1M", "--policy", "lru", "--device", "hdd"], "--device: pure replacement"),
        (&["sim", "zipf:size=1M", "--policy", "lru", "--swap", "1M"], "--swap: pure replacement"),
        (&["sim", "zipf:size=1M", "--device", "hdd,nvme", "--swap", "2T"], "2 TiB have no room on hdd"),
        (&["sim", "seq:stride=16"], "it changes nothing of seq"),
        (&["sim", "policies", "zipf:size=1M", "--ram", "12.5%"], "whole shares"),
    ] {
        let text = complaint(words, &[]);
        assert!(text.contains(part), "{text}");
    }
}

/// Three programs at once.
const LOAD: &str = "moving:size=8M,window=3M,programs=3,touches=20k,write=30";

/// Equal options, equal bytes: whatever the number of simulations at a time, and in every form of
/// the output.
#[test]
fn equal_options_give_equal_bytes() {
    let scratch = Scratch::new("equal");
    let run = |jobs: &str, name: &str, json: bool| {
        let page = scratch.file(name);
        let mut command = overspill();
        command.args(["sim", LOAD, "--ram", "20%..80%/20,6M", "--readahead", "adaptive,linux"]);
        command.args(["--policy", "live,kernel", "--device", "nvme,hdd", "--seed", "5", "--explain"]);
        command.args(["--jobs", jobs, "--html"]).arg(&page).args(json.then_some("--json"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        (output.stdout, fs::read(page).unwrap())
    };
    for json in [false, true] {
        let alone = run("1", "alone.html", json);
        assert!(alone.0.split(|&byte| byte == b'\n').count() > 40);
        for jobs in ["2", "7"] {
            assert!(run(jobs, "more.html", json) == alone, "with {jobs} at a time");
        }
    }
}

/// *The story:* `--content` said nothing to a load: pages that it only reads were empty whatever was said.
#[test]
fn what_a_load_only_reads_may_have_content() {
    let read = |content: &str| {
        let mut command = overspill();
        command.args([
            "sim",
            "random:size=2M,touches=5k,write=0",
            "--ram",
            "50%",
            "--json",
            "--content",
            content,
        ]);
        let report: serde_json::Value =
            serde_json::from_slice(&command.output().unwrap().stdout).expect("JSON");
        report["rows"][0]["pswpin"].as_u64().expect("a number")
    };
    assert!(read("first") > 500 && read("stores") == 0 && read("auto") == 0);
}

/// *The story:* whatever RAM was tried, the pool had its share of that of the first row.
#[test]
fn how_much_is_enough_does_not_depend_on_the_rows() {
    let explained = |ram: &str| {
        let mut command = overspill();
        command.args(["sim", "zipf:size=8M,touches=40k,write=100", "--device", "sata-ssd", "--json"]);
        command.args(["--pool", "50%", "--pool-ratio", "4", "--fixed-pool", "--explain", "--ram", ram]);
        let output = command.output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["explanation"].as_str().expect("a sentence").to_owned()
    };
    assert_eq!(explained("20%"), explained("90%"));
}

/// *The story:* a load that ends by the clock took as long with 6 MiB as with 1.2 GiB: "with 5.96 MiB
/// the run takes 1.00x of unlimited RAM".
#[test]
fn of_a_load_that_ends_by_the_clock_no_threshold_is_told() {
    let output = overspill().args(["sim", "mixed:scale=8192", "--ram", "50%", "--explain"]).output().unwrap();
    let text = stdout(&output);
    assert!(text.contains("this load runs for 36.6 ms whatever the RAM"), "{text}");
    assert!(!text.contains("unlimited RAM") && !text.contains("thrash"), "{text}");
}

/// *The story:* of a load whose swap was full from the start it was said that it does not thrash
/// with a two-hundredth of its pages: it had simply taken more.
#[test]
fn where_swap_was_full_no_threshold_is_told() {
    for policy in ["live", "kernel"] {
        let words = ["sim", "seq:size=16M", "--explain", "--swap=4K", "--policy", policy];
        let output = overspill().args(words).output().unwrap();
        let text = stdout(&output);
        assert!(text.contains("swap was full in") && !text.contains("thrash"), "{policy}: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
    let output = overspill().args(["sim", "seq:size=16M", "--explain"]).output().unwrap();
    assert!(!stdout(&output).contains("swap was full"), "{}", stdout(&output));
}
