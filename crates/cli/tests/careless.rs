//! A careless newcomer: odd names, files that are there, words that are wrong, no room, no standard
//! output. Each is answered by one clear line and a status, and nothing is lost.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use support::{Scratch, in_time, overspill, stderr, stdout};

/// What it says on standard error, with the status that is expected.
fn said(scratch: &Scratch, words: &[&OsStr], code: i32) -> String {
    let output = overspill().args(words).current_dir(&scratch.0).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {} {}", stdout(&output), stderr(&output));
    stderr(&output)
}

fn words(line: &str) -> Vec<&OsStr> {
    line.split(' ').map(OsStr::new).collect()
}

/// *The story:* `swap make` made an area anew that was there, whatever a hibernation or another
/// machine had in it.
#[test]
fn an_area_that_is_there_stays() {
    let scratch = Scratch::new("area");
    assert_eq!(said(&scratch, &words("swap make area --size 1M --label first"), 0), "");
    let before = fs::read(scratch.file("area")).unwrap();
    let text = said(&scratch, &words("swap make area --size 2M"), 125);
    assert!(text.contains("a swap area already, which only --erase makes anew"), "{text}");
    assert_eq!(fs::read(scratch.file("area")).unwrap(), before);
    said(&scratch, &words("swap make area --size 2M --erase"), 0);
    assert_eq!(fs::metadata(scratch.file("area")).unwrap().len(), 2 << 20);
    fs::write(scratch.file("empty"), "").unwrap();
    said(&scratch, &words("swap make empty --size 1M"), 0);
}

/// *The story:* what could not be made was removed, whoever had made it; a file that was to be longer
/// than the disk was that long afterwards.
#[test]
fn an_area_that_cannot_be_made_changes_nothing() {
    let scratch = Scratch::new("no-area");
    std::os::unix::fs::symlink("not-mounted/swap", scratch.file("link")).unwrap();
    said(&scratch, &words("swap make link --size 1M"), 125);
    said(&scratch, &words("swap make link --size 4K"), 125);
    assert!(fs::symlink_metadata(scratch.file("link")).unwrap().is_symlink());
    fs::write(scratch.file("empty"), "").unwrap();
    said(&scratch, &words("swap make empty --size 8T"), 125);
    assert_eq!(fs::metadata(scratch.file("empty")).unwrap().len(), 0);
    let text = said(&scratch, &words("swap make new --size 8T"), 125);
    assert!(text.contains("are free") && !scratch.file("new").exists(), "{text}: the disk was filled first");
}

/// *The stories:* an empty file that everybody may read became an area without a word. One on a file
/// system that has no areas was one afterwards, which could not be used.
#[test]
fn an_empty_file_becomes_an_area_that_can_be_used_or_stays() {
    let scratch = Scratch::new("blank");
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    for (bits, note) in [(0o644, "others may open it (mode 0644)"), (0o640, "(mode 0640)"), (0o600, "")] {
        let name = format!("area {bits:o}");
        fs::write(scratch.file(&name), "").unwrap();
        fs::set_permissions(scratch.file(&name), mode(bits)).unwrap();
        let make = ["swap", "make", &name, "--size", "1M"].map(OsStr::new);
        let text = said(&scratch, &make, 0).replace("\n    ", " ");
        assert!(text.contains(note) && text.is_empty() == note.is_empty(), "{text}");
        assert!(note.is_empty() || text.contains(&format!("chmod 600 '{name}'")), "{text}");
    }
    said(&scratch, &words("swap make new --size 1M"), 0);
    let about = fs::metadata(scratch.file("new")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&about) & 0o7777, 0o600);
    let memory = Path::new("/dev/shm").join(format!("overspill-blank-{}", std::process::id()));
    fs::write(&memory, "").unwrap();
    let text = said(&scratch, &[&words("swap make --size 1M")[..], &[memory.as_os_str()]].concat(), 125);
    let left = fs::metadata(&memory).unwrap().len();
    fs::remove_file(&memory).unwrap();
    assert!(text.lines().count() == 1 && left == 0, "{left} bytes: {text}");
}

/// *The story:* who was interrupted had a file of a gigabyte that was no area.
#[test]
fn an_area_is_there_when_it_is_one() {
    let scratch = Scratch::new("interrupted-area");
    let area = scratch.file("area");
    let (mut none, mut whole) = (0, 0);
    for moment in 0..60 {
        let mut command = overspill();
        command.args(["swap", "make", "--size", "256M"]).arg(&area);
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(moment * 300));
        child.kill().unwrap();
        child.wait().unwrap();
        if !area.exists() {
            none += 1;
            continue;
        }
        let output = overspill().args(["swap", "info"]).arg(&area).output().unwrap();
        assert!(output.status.success(), "after {moment}: {}", stdout(&output));
        fs::remove_file(&area).unwrap();
        whole += 1;
    }
    assert!(none > 0 && none + whole == 60, "{none} and {whole}: the moments were too late");
    assert!(fs::read_dir(&scratch.0).unwrap().next().is_none());
}

/// *The story:* `--erase` was named as the mend to who had given it.
#[test]
fn what_may_be_erased_is_erased_for_a_comparison_too() {
    let scratch = Scratch::new("erase");
    fs::write(scratch.file("old"), vec![b'x'; 1 << 20]).unwrap();
    let compare = "compare --ram 64M --ways bare,overspill --swap old";
    let text = said(&scratch, &words(&format!("{compare} true")), 125);
    assert!(text.contains("it has no swap signature"), "{text}");
    said(&scratch, &words(&format!("{compare} --erase true")), 0);
    said(&scratch, &words("swap info old"), 0);
}

/// *The stories:* a part of nothing was cut, and what had been in the file was gone. An empty file told
/// of figures that there are none of.
#[test]
fn what_comes_to_nothing_leaves_what_was_there() {
    let scratch = Scratch::new("nothing");
    fs::write(scratch.file("t.csv"), "1,0,0,7,read\n2,0,0,8,write\n").unwrap();
    fs::write(scratch.file("damaged.csv"), "1,0,0,7,read\nnot a line\n").unwrap();
    said(&scratch, &words("trace convert t.csv out.ovt"), 0);
    let before = fs::read(scratch.file("out.ovt")).unwrap();
    for line in [
        "trace cut t.csv out.ovt --after 100s",
        "trace cut t.csv out.ovt --skip 5",
        "trace convert damaged.csv out.ovt",
        "trace convert t.csv out.ovt --to strace",
    ] {
        let text = said(&scratch, &words(line), 125);
        assert!(text.lines().count() == 1, "{line}: {text}");
        assert_eq!(fs::read(scratch.file("out.ovt")).unwrap(), before, "{line}");
    }
    let text = said(&scratch, &words("trace cut t.csv out.ovt --take 1"), 0);
    assert!(text.contains("out.ovt is replaced"), "{text}");
    assert_ne!(fs::read(scratch.file("out.ovt")).unwrap(), before);
    said(&scratch, &words("compare --ram 64M --ways bare --json new --keep-output no/such true"), 125);
    let text = said(&scratch, &words("sim calibrate no/dir -o no/such"), 125);
    assert!(text.contains("cannot write no/such"), "it is said before the work: {text}");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 3);
}

/// *The story:* for `compare` what cannot be executed was a failure of overspill's own, and for `record` a
/// directory was a program.
#[test]
fn what_cannot_be_executed_is_told_alike() {
    let scratch = Scratch::new("alike");
    fs::write(scratch.file("text"), "words\n").unwrap();
    for command in ["run --ram 64M", "compare --ram 64M --ways bare", "record -o new"] {
        for (program, code) in [("./text", 126), ("./", 126), ("./nothing", 127)] {
            let text = said(&scratch, &words(&format!("{command} {program}")), code);
            assert!(text.lines().count() == 1 && text.contains(program), "{command} {program}: {text}");
        }
    }
}

/// See `usage::precedence`.
#[test]
fn what_is_typed_beats_variables_and_the_file() {
    let scratch = Scratch::new("precedence");
    fs::write(scratch.file("config"), "no-checksum = true\nencrypt = false\n").unwrap();
    for (variable, value, line) in [
        ("OVERSPILL_LAPS", "3", "bench seq --size 1M --ram 16M --ways bare --seconds 1"),
        ("OVERSPILL_ENCRYPT", "0", "run --ram 64M -q --no-checksum true"),
        ("OVERSPILL_ENCRYPT", "1", "run --ram 64M -q --no-checksum true"),
        ("OVERSPILL_ENCRYPT", "1", "run --ram 64M -q true"),
        ("OVERSPILL_NO_FILES", "1", "run --ram 64M -q --files true"),
        ("OVERSPILL_FILES", "1G", "run --ram 64M -q --no-files true"),
        ("OVERSPILL_SIM_RAM", "1G", "sim devices"),
        ("OVERSPILL_NO_CHECKSUM", "0", "compare --ram 64M --ways overspill --encrypt true"),
        ("OVERSPILL_RUNS", "1", "compare --ram 64M --ways overspill --encrypt true"),
    ] {
        let mut command = overspill();
        command.env("OVERSPILL_CONFIG", scratch.file("config")).env(variable, value);
        let output = command.args(words(line)).current_dir(&scratch.0).output().unwrap();
        assert!(output.status.success(), "{variable}={value} {line}: {}", stderr(&output));
    }
    let mut command = overspill();
    command.env("OVERSPILL_ENCRYPT", "1").args(words("run --ram 64M --no-checksum --encrypt true"));
    let text = stderr(&command.output().unwrap());
    assert!(text.contains("cannot be used with"), "both are typed: {text}");
}

/// A trace goes to whatever stands for a file: a link, standard output, and who stops reading.
#[test]
fn a_trace_goes_where_it_is_sent() {
    let scratch = Scratch::new("sent");
    let rows: String = (0..50_000).map(|page| format!("{page},0,0,{page},read\n")).collect();
    fs::write(scratch.file("t.csv"), &rows).unwrap();
    fs::write(scratch.file("real.csv"), "old").unwrap();
    std::os::unix::fs::symlink("real.csv", scratch.file("link.csv")).unwrap();
    said(&scratch, &words("trace cut t.csv link.csv --take 1"), 0);
    assert!(fs::symlink_metadata(scratch.file("link.csv")).unwrap().is_symlink());
    assert!(fs::read_to_string(scratch.file("real.csv")).unwrap().contains("0,0,0,0,read"));
    let shell = |script: &str| {
        let program = env!("CARGO_BIN_EXE_overspill");
        let command = format!("cd '{}' && {}", scratch.0.display(), script.replace("overspill", program));
        Command::new("bash").args(["-c", &command]).env("OVERSPILL_CONFIG", "/dev/null").output().unwrap()
    };
    let output =
        shell("(echo before; overspill trace convert t.csv /dev/stdout --to numbers; echo after) > all");
    assert!(output.status.success(), "{}", stderr(&output));
    let all = fs::read_to_string(scratch.file("all")).unwrap();
    assert!(all.starts_with("before\n") && all.ends_with("49999\nafter\n"), "{} bytes", all.len());
    let output = shell("overspill trace convert t.csv /dev/stdout --to csv | head -1; echo ${PIPESTATUS[0]}");
    assert!(stdout(&output).ends_with("\n141\n") && stderr(&output).is_empty(), "{}", stderr(&output));
    // *The story:* a dash was no file, and standard input everywhere else.
    let output = shell("overspill trace convert t.csv - --to numbers | wc -l");
    assert!(stdout(&output) == "50000\n" && stderr(&output).is_empty(), "{}", stderr(&output));
    fs::set_permissions(scratch.file("real.csv"), std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .unwrap();
    said(&scratch, &words("trace cut t.csv real.csv --take 2"), 0);
    let about = fs::metadata(scratch.file("real.csv")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&about) & 0o7777, 0o666, "as it was");
}

/// *The story:* `--strict` won, without a word.
#[test]
fn what_contradicts_is_refused() {
    let scratch = Scratch::new("contradicts");
    for what in ["exceed", "stop"] {
        let line = format!("run --ram 64M --strict --on-full {what} -- true");
        let text = said(&scratch, &words(&line), 125);
        assert!(text.contains(&format!("--on-full {what} cannot be had beside --strict")), "{text}");
    }
    said(&scratch, &words("run --ram 64M -q --strict --on-full kill -- true"), 0);
}

/// *The story:* `--json /dev/stderr 2>>log` cut the log to nothing.
#[test]
fn what_the_program_said_stays() {
    let scratch = Scratch::new("stderr");
    fs::write(scratch.file("log"), "before\n").unwrap();
    let log = || fs::OpenOptions::new().append(true).open(scratch.file("log")).unwrap();
    let run = words("run --ram 64M -q --json /dev/stderr -- sh -c");
    let status = overspill().args(run).arg("echo said >&2").stderr(log()).status().unwrap();
    assert!(status.success());
    let text = fs::read_to_string(scratch.file("log")).unwrap();
    let report = text.strip_prefix("before\nsaid\n").unwrap_or_else(|| panic!("{text}"));
    assert_eq!(serde_json::from_str::<serde_json::Value>(report).unwrap()["exit_code"], 0);
    let trace = words("run --ram 64M -q --trace /dev/stderr -- true");
    assert_eq!(overspill().args(trace).stderr(log()).status().unwrap().code(), Some(125));
    assert!(fs::read_to_string(scratch.file("log")).unwrap().starts_with(&text));
}

/// *The story:* a mistyped directory became a file on whatever disk its parent was on, without a word.
#[test]
fn a_place_that_is_not_there_is_named() {
    let scratch = Scratch::new("typo");
    let text = said(&scratch, &words("run --ram 64M --swap typo -- true"), 0);
    assert!(text.lines().next().unwrap().contains("a new file is made there to spill to"), "{text}");
    assert_eq!(said(&scratch, &words("run --ram 64M -q --swap typo -- true"), 0), "");
    let text = said(&scratch, &words("run --ram 64M --swap typo/ -- true"), 125);
    assert!(text.contains("no such directory") && text.lines().count() == 1, "{text}");
    assert!(fs::read_dir(&scratch.0).unwrap().next().is_none());
}

#[test]
fn names_may_be_odd() {
    let scratch = Scratch::new("odd");
    let place = OsStr::from_bytes(b"place \n\xff:x");
    fs::create_dir(scratch.0.join(place)).unwrap();
    let [json, trace, summary] = [&b"j \n\xff.json"[..], b"t \n\xff.ovt", b"-s \n\xff"]
        .map(|name| scratch.0.join(OsStr::from_bytes(name)));
    let mut line = words("run --ram 64M --swap");
    line.extend([place, OsStr::new("--json"), json.as_os_str(), OsStr::new("--trace"), trace.as_os_str()]);
    line.extend([OsStr::new("-o"), summary.as_os_str(), OsStr::new("true"), OsStr::from_bytes(b"a\xff")]);
    assert_eq!(said(&scratch, &line, 0), "");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["exit_code"], 0);
    assert_eq!(report["command_line"], r"true 'a'$'\xff'''");
    let summary = fs::read_to_string(&summary).unwrap();
    assert!(summary.contains(r"true 'a'$'\xff''': exit 0"), "{summary}");
    // What is said of such a name is one line.
    let note = said(&scratch, &line, 0);
    assert!(note.lines().count() == 3 && note.contains(r"t \n"), "{note}");
    assert_eq!(said(&scratch, &[OsStr::new("trace"), OsStr::new("info"), trace.as_os_str()], 0), "");
    let text = said(&scratch, &[OsStr::new("sim"), trace.as_os_str()], 125);
    assert!(text.lines().count() == 1 && text.contains("t \\n"), "{text}");
    // Of a trace without a record nothing can be made; it was an empty file, and status 0.
    let made = scratch.file("made.strace");
    let convert = words("trace convert --to strace");
    let text = said(&scratch, &[&convert[..], &[trace.as_os_str(), made.as_os_str()]].concat(), 125);
    assert!(text.contains("there is no record in it") && !made.exists(), "{text}");
}

#[test]
fn two_runs_with_one_file_leave_the_report_of_one() {
    let scratch = Scratch::new("one-file");
    let json = scratch.file("run.json");
    let runs: Vec<_> = (0..6)
        .map(|index| {
            let mut command = overspill();
            command.args(["run", "--ram", "64M", "-q", "--json"]).arg(&json);
            command.args(["sh", "-c", &format!("exit {index}"), &"x".repeat(4000 * index)]).spawn().unwrap()
        })
        .collect();
    for (index, mut run) in runs.into_iter().enumerate() {
        assert_eq!(run.wait().unwrap().code(), Some(index as i32));
    }
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(report["exit_code"].as_u64().unwrap() < 6);
}

/// *The story:* `sim TRACE --html TRACE` replaced the trace by the page. Of `run --json FILE -o FILE`
/// one was lost, without a word.
#[test]
fn no_file_is_written_twice_or_over_what_is_read() {
    let scratch = Scratch::new("apart");
    fs::write(scratch.file("t.csv"), "somebody's trace\n").unwrap();
    let before = fs::read(scratch.file("t.csv")).unwrap();
    std::os::unix::fs::symlink("t.csv", scratch.file("link")).unwrap();
    fs::hard_link(scratch.file("t.csv"), scratch.file("twin")).unwrap();
    for (line, part) in [
        ("sim t.csv --ram 1M --html ./link", "the trace and --html are one file, ./link"),
        ("trace convert t.csv link", "cannot be read and written at once"),
        ("trace convert t.csv twin", "cannot be read and written at once"),
        ("trace cut twin t.csv --take 1", "cannot be read and written at once"),
        ("run --ram 64M --json new -o ./new true", "--json and --output are one file, ./new"),
        ("run --ram 64M --json t.csv --trace link true", "--json and --trace are one file, link"),
        ("compare --ram 64M --ways bare --html new --markdown new true", "--markdown and --html are one"),
    ] {
        let text = said(&scratch, &words(line), 125);
        assert!(text.contains(part) && text.lines().count() == 1, "{line}: {text}");
    }
    assert_eq!(fs::read(scratch.file("t.csv")).unwrap(), before);
    assert!(!scratch.file("new").exists());
    let mut piped = overspill();
    piped.args(words("trace convert - twin")).current_dir(&scratch.0);
    piped.stdin(fs::File::open(scratch.file("t.csv")).unwrap());
    assert!(stderr(&piped.output().unwrap()).contains("cannot be read and written at once"));
    assert_eq!(fs::read(scratch.file("t.csv")).unwrap(), before);
    // A device takes what several write.
    said(&scratch, &words("run --ram 64M --json /dev/null -o /dev/null true"), 0);
}

/// *The story:* what was told of a place coloured the terminal, as its name said.
#[test]
fn no_name_moves_the_cursor() {
    let scratch = Scratch::new("escapes");
    let all = |words: &[&str]| {
        let output = overspill().args(words).current_dir(&scratch.0).output().unwrap();
        stdout(&output) + &stderr(&output)
    };
    for words in [
        &["run", "--ram", "64M", "--swap", "no\x1b[31mdir/x", "true"][..],
        &["doctor", "--swap", "no\x1b[31mdir/x"],
        &["sim", "reclaim", "--ram", "16M", "--seconds", "1", "no\x1b[31mdir:memory=1M"],
    ] {
        let text = all(words);
        assert!(text.contains(r"no\u{1b}[31m") && !text.contains('\x1b'), "{words:?}: {text}");
    }
}

#[test]
fn what_is_wrong_is_one_line() {
    let scratch = Scratch::new("wrong");
    fs::write(scratch.file("config"), "swpa = /var/tmp\n").unwrap();
    for (line, part) in [
        ("sim calbrate /tmp", "overspill help sim"),
        ("sim seq:size=4M --ram 100%..10%/10", "goes from 100% to 10%: write the smaller one first"),
        ("sim seq:programs=4096,size=4K", "programs=4, 1024 at most"),
        ("man sim calbrate", "(did you mean `sim-calibrate`?)"),
        ("man --out config", "File exists"),
        ("help rnu", "(did you mean `run`?)"),
        ("swap info", "is missing"),
        ("trace info config", "not a trace"),
        ("top --interval 0", "0.1 to 3600"),
        ("run --ram 64M -o . true", "Is a directory"),
        ("compare --ram 64M --ways bare,,overspill true", "the ways are"),
        ("run --ram 0 true", "the size must be above zero"),
        ("run --ram 1K true", "in less than 1M"),
        ("run --ram 99999999T true", "more than any machine holds"),
        ("run --ram 64M --swap /dev/null true", "neither a file nor a block device"),
        ("run --ram 64M --swap config true", "it has no swap signature"),
        ("swap make . --size 1M", "neither a file nor a block device"),
        ("record -o . true", "Is a directory"),
        ("sim config/deep --ram 1M", "config/deep"),
    ] {
        let text = said(&scratch, &words(line), 125);
        assert!(text.contains(part) && text.lines().count() == 1, "{line}: {text}");
    }
    fs::write(scratch.file("odd"), "ram 4G\n").unwrap();
    for (config, part) in [
        ("config", "(did you mean `swap`?)"),
        ("nowhere", "No such file"),
        ("odd", "odd: line 1: `ram 4G` is not `key = value`"),
    ] {
        let output = overspill().args(["run", "true"]).env("OVERSPILL_CONFIG", scratch.file(config)).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}

/// *The story:* who named a pipe, by mistake or as `<(zcat trace.gz)`, waited for ever.
#[test]
fn pipes_are_no_files() {
    let scratch = Scratch::new("pipe");
    nix::unistd::mkfifo(&scratch.file("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (line, code) in [
        ("sim pipe", 125),
        ("sim /dev/zero", 125),
        ("sim policies pipe", 125),
        ("sim policies /dev/zero", 125),
        ("trace info pipe", 125),
        ("trace info /dev/zero", 125),
        ("trace convert pipe out.csv", 125),
        ("trace cut pipe out.csv --take 1", 125),
        ("trace cut pipe out.csv --after 1s", 125),
        ("swap info pipe", 1),
        ("swap make pipe --size 1M", 125),
        ("run --ram 64M --swap pipe true", 125),
    ] {
        let output = in_time(overspill().args(words(line)).current_dir(&scratch.0));
        let text = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{line}: {text}");
        let is_said = ["it is no regular file", "it is neither a file nor a block device"];
        assert!(is_said.iter().any(|part| text.contains(part)), "{line}: {text}");
        assert!(code == 1 || text.lines().count() == 1, "{line}: {text}");
    }
    assert!(!scratch.file("out.csv").exists());
}

/// *The stories:* with too few descriptors a note was printed in spite of `-q`. With six of them it
/// was a matter of the moment whether they were enough.
#[test]
fn surroundings_may_be_poor() {
    let program = env!("CARGO_BIN_EXE_overspill");
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("OVERSPILL_CONFIG", "/dev/null");
        command.env("OVERSPILL_PRELOAD", support::stand_in()).output().unwrap()
    };
    for (script, code, part) in [
        ("overspill doctor >/dev/full", 125, "No space left on device"),
        ("overspill sim seq:size=1M,laps=1 >/dev/full", 125, "No space left on device"),
        ("ulimit -n 5; overspill run --ram 64M -q true", 125, "Too many open files"),
        ("overspill run --ram 64M ''", 127, "'': not found"),
        ("overspill help run >&-", 125, "Bad file descriptor"),
        ("overspill --version >&-", 125, "Bad file descriptor"),
        ("overspill sim seq:size=1M,laps=1 >&-", 125, "Bad file descriptor"),
        ("overspill trace convert /dev/null - >&-", 125, "standard output is closed"),
        ("overspill run --ram 64M -q sh -c 'exit 3' >&-", 3, ""),
        ("overspill run --ram 64M sh -c 'exit 3' 2>/dev/full", 3, ""),
        ("overspill run --ram 64M --swap new sh -c 'kill -9 $$' 2>/dev/full", 137, ""),
        ("overspill run --ram 64M '' 2>/dev/full", 127, ""),
        ("overspill compare --ram 64M --ways bare '' 2>/dev/full", 127, ""),
        ("overspill frobnicate 2>/dev/full", 125, ""),
        ("overspill trace 2>/dev/full", 125, ""),
        ("overspill doctor --frobnicate 2>&-", 125, ""),
        ("overspill run --ram 64M -q true >&- 2>&-", 0, ""),
        ("env -i overspill run --ram 64M -q /bin/true", 0, ""),
        ("TMPDIR=/proc overspill run --ram 64M -q true", 0, ""),
        ("TMPDIR=/nowhere TERM=dumb LANG=C COLUMNS=20 overspill run --ram 64M -q true", 0, ""),
        ("mkdir -p gone && cd gone && rmdir ../gone && overspill run --ram 64M -q true", 0, ""),
    ] {
        let scratch = Scratch::new("poor");
        // The directory may have the program's name.
        let command = script.replace("overspill ", &format!("'{program}' "));
        let output = shell(&format!("cd '{}' && {command}", scratch.0.display()));
        assert_eq!(output.status.code(), Some(code), "{script}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{script}: {}", stderr(&output));
        assert!(stderr(&output).lines().count() <= 1, "{script}: {}", stderr(&output));
    }
    assert!(Path::new(program).exists());
}
