//! What `overspill run` says of a tree is what it has seen of it: with the agent that is built in,
//! which only watches here (nothing comes near its budget but what cannot be managed, and what root
//! tries), so that no privilege is needed.

mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use serde_json::Value;
use support::{Scratch, overspill, stderr};

const MIB: u32 = 1 << 20;

/// A run with its report.
fn report(scratch: &Scratch, ram: &str, options: &[&str], words: &[&str]) -> (Output, Value) {
    let json = scratch.file("run.json");
    let mut command = overspill();
    command.env_remove("OVERSPILL_PRELOAD").args(["run", "--ram", ram, "--json"]).arg(&json);
    let output = command.args(options).arg("--").args(words).output().unwrap();
    let text = fs::read_to_string(json).unwrap_or_default();
    (output, serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn of<'a>(report: &'a Value, comm: &str) -> Vec<&'a Value> {
    let all = report["processes"].as_array().unwrap();
    all.iter().filter(|process| process["comm"] == comm).collect()
}

/// Flags of mmap.
const PRIVATE_ANONYMOUS: u8 = 0x22;
const SHARED_ANONYMOUS: u8 = 0x21;

/// A static program: maps memory, stores to each page, sleeps for 300 ms, exits.
fn static_program(bytes: u32) -> Vec<u8> {
    static_program_that_maps(bytes, PRIVATE_ANONYMOUS)
}

fn static_program_that_maps(bytes: u32, flags: u8) -> Vec<u8> {
    let [a, b, c, d] = bytes.to_le_bytes();
    #[rustfmt::skip]
    let code = [
        0xb8, 9, 0, 0, 0, 0x31, 0xff, 0xbe, a, b, c, d, // mmap(0, bytes,
        0xba, 3, 0, 0, 0, 0x41, 0xba, flags, 0, 0, 0, // PROT_READ | PROT_WRITE, flags,
        0x49, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, 0x45, 0x31, 0xc9, 0x0f, 0x05, // -1, 0)
        0x48, 0x89, 0xc3, 0xb9, a, b, c, d, 0xc1, 0xe9, 12, // pages
        0xc6, 0x03, 1, 0x48, 0x81, 0xc3, 0, 0x10, 0, 0, 0xff, 0xc9, 0x75, 0xf2, // a byte in each
        0x68, 0x00, 0x65, 0xcd, 0x1d, 0x6a, 1, 0x48, 0x89, 0xe7, 0x31, 0xf6, // {1 s, 500 ms}
        0xb8, 35, 0, 0, 0, 0x0f, 0x05, // nanosleep
        0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05, // exit(0)
    ];
    static_elf(&code)
}

/// A static program that sleeps for 20 ms and becomes the program that its arguments are.
fn static_wrapper() -> Vec<u8> {
    #[rustfmt::skip]
    let code = [
        0x49, 0x89, 0xe4, // r12 = where the arguments are
        0x68, 0x00, 0x2d, 0x31, 0x01, 0x6a, 0, 0x48, 0x89, 0xe7, 0x31, 0xf6, // {0 s, 20 ms}
        0xb8, 35, 0, 0, 0, 0x0f, 0x05, // nanosleep
        0x49, 0x8b, 0x7c, 0x24, 16, 0x49, 0x8d, 0x74, 0x24, 16, // the first argument, and all from it on
        0x49, 0x8b, 0x04, 0x24, 0x49, 0x8d, 0x54, 0xc4, 16, // the environment
        0xb8, 59, 0, 0, 0, 0x0f, 0x05, // execve
        0xb8, 60, 0, 0, 0, 0xbf, 127, 0, 0, 0, 0x0f, 0x05, // exit(127)
    ];
    static_elf(&code)
}

fn static_elf(code: &[u8]) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEAD: u64 = 64 + 56;
    let length = HEAD + code.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [2u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1u32.to_le_bytes());
    for word in [BASE + HEAD, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for number in [1u32, 5] {
        file.extend(number.to_le_bytes());
    }
    for word in [0, BASE, BASE, length, length, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}

/// *The story:* `sh -c 'go build'` held 290 MiB of 100, and was said to fit: never more than 152 KiB.
#[test]
fn a_static_program_that_a_shell_starts_is_seen() {
    let scratch = Scratch::new("static");
    let program = scratch.executable("hog", &static_program(60 * MIB));
    let line = format!("{}; true", program.display());
    let (output, report) = report(&scratch, "20M", &[], &["sh", "-c", &line]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        (&report["managed"], &report["verdict"]["kind"]),
        (&false.into(), &"exceeded".into()),
        "{report}"
    );
    let hog = of(&report, "hog")[0];
    assert_eq!(hog["managed"], false);
    assert!(hog["reason"].as_str().unwrap().contains("statically linked"), "{hog}");
    assert!(hog["peak_bytes"].as_u64().unwrap() >= 60 << 20, "{hog}");
    assert!(report["tree_peak_bytes"].as_u64().unwrap() >= 60 << 20);
    assert_eq!(of(&report, "sh")[0]["managed"], true, "{report}");
    assert!(stderr(&output).contains("went above the budget"), "{}", stderr(&output));
}

/// One that stays small does not exceed, but nobody kept it, either.
#[test]
fn a_small_static_program_does_not_fit() {
    let scratch = Scratch::new("small-static");
    let program = scratch.executable("mouse", &static_program(MIB / 4));
    let (_, report) = report(&scratch, "100M", &[], &["sh", "-c", &format!("{}; true", program.display())]);
    assert_eq!(report["verdict"]["kind"], "partly_unmanaged", "{report}");
}

/// *The story:* only what was known to be static, or to have a cleaned environment, was ended. What had
/// no agent for another reason, and memory that several map, ran on without a limit.
#[test]
fn strict_ends_what_nobody_pages_for_whatever_reason() {
    let scratch = Scratch::new("unkept");
    let shared = scratch.executable("shared", &static_program_that_maps(60 * MIB, SHARED_ANONYMOUS));
    let mut cases = vec![(vec![shared.to_str().unwrap()], "shared memory")];
    // Nobody sees the library there.
    let hidden = "mount -t tmpfs none \"${LD_PRELOAD%/*}\" && \
                  exec dd if=/dev/zero of=/dev/null bs=40M count=10000";
    if Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        cases.push((vec!["unshare", "-m", "sh", "-c", hidden], "is not to be found from its root"));
    }
    for (words, reason) in cases {
        let (output, report) = report(&scratch, "20M", &["--strict"], &words);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {report}");
        assert_eq!(report["verdict"]["kind"], "strict_refused", "{words:?}: {report}");
        assert!(stderr(&output).contains(reason), "{words:?}: {}", stderr(&output));
    }
}

/// *The story:* `--strict -- gosu nobody prog` was refused, as gosu is static, and without --strict the
/// run was "partly unmanaged" for the milliseconds that gosu was there.
#[test]
fn a_static_program_may_start_another_one_in_its_place() {
    let scratch = Scratch::new("wrapper");
    let wrapper = scratch.executable("wrapper", &static_wrapper());
    for options in [&["--strict"][..], &[]] {
        let words = [wrapper.to_str().unwrap(), "/bin/sleep", "0.2"];
        let (output, report) = report(&scratch, "20M", options, &words);
        assert!(output.status.success(), "{}", stderr(&output));
        let told = (&report["verdict"]["kind"], &report["managed"]);
        assert_eq!(told, (&"fits".into(), &true.into()), "{report}");
    }
}

/// *The story:* the launcher keeps a descriptor for each process that it watches. With `ulimit -n 64`
/// it did not see the fiftieth, with 10 nobody, and said that all fitted.
#[test]
fn processes_are_seen_with_few_descriptors_or_there_is_a_doubt() {
    let scratch = Scratch::new("descriptors");
    let run = |limits: &str, sleeps: u32| {
        let json = scratch.file("limits.json");
        // All wait until the last is there, and a second more, in which they are seen.
        let line = format!(
            "ulimit {limits}; exec \"$0\" run --ram 100M --json \"$1\" -- sh -c \
             'all=; for i in $(seq {sleeps}); do sleep 60 & all=\"$all $!\"; done; ulimit -n; sleep 1; \
             kill $all; wait'"
        );
        let command = overspill();
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(line).arg(command.get_program()).arg(&json);
        let output = shell.env("OVERSPILL_CONFIG", "/dev/null").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
        (support::stdout(&output), report)
    };
    for limits in ["-n 64", "-S -n 64"] {
        let (said, report) = run(limits, 80);
        assert_eq!(said, "64\n", "the program has the limit of the caller");
        let told = (&report["verdict"]["kind"], &report["managed"]);
        assert_eq!(told, (&"fits".into(), &true.into()), "{report}");
        let (at_once, total) = (&report["programs_at_once"], &report["programs_total"]);
        assert!(at_once.as_u64().unwrap() >= 81 && total.as_u64().unwrap() >= 81, "{report}");
        assert!(of(&report, "sleep").iter().all(|sleep| sleep["managed"] == true), "{report}");
    }
    // With ten the launcher cannot always start the program, and says so.
    let (_, report) = run("-n 12", 2);
    let saw_all = report["programs_at_once"].as_u64().unwrap() >= 3;
    let doubts = report["verdict"]["kind"] == "partly_unmanaged" && report["managed"] == false;
    assert!(saw_all || doubts, "{report}");
}

/// *The story:* how many seccomp filters the launcher is behind was read in the /proc that the program
/// saw. In a pid namespace of its own the launcher is not there, and a container's one filter was
/// taken for the program's: it had no agent.
#[test]
fn a_filter_that_the_launcher_is_behind_too_does_not_matter_in_a_namespace() {
    let words = ["unshare", "-pf", "--mount-proc", "/bin/sleep", "0.5"];
    if !Command::new(words[0]).args(&words[1..]).status().is_ok_and(|status| status.success()) {
        return; // not every container allows namespaces
    }
    let scratch = Scratch::new("filter");
    let json = scratch.file("run.json");
    let mut command = overspill();
    command.env_remove("OVERSPILL_PRELOAD").args(["run", "--ram", "20M", "--json"]).arg(&json);
    // SAFETY: between fork and exec only prctl(2) is called.
    unsafe { command.pre_exec(filter_nothing) };
    let output = command.arg("--").args(words).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let sleep = of(&report, "sleep");
    assert!(!sleep.is_empty() && sleep.iter().all(|sleep| sleep["managed"] == true), "{report}");
}

/// Puts this process behind a filter that lets everything pass.
fn filter_nothing() -> std::io::Result<()> {
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    let allow = [libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: ALLOW }];
    let filter = libc::sock_fprog { len: 1, filter: allow.as_ptr().cast_mut() };
    // SAFETY: the filter outlives the call, which copies it.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const filter) };
    if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn strict_runs_nothing_without_a_limit() {
    let scratch = Scratch::new("strict");
    let program = scratch.executable("hog", &static_program(60 * MIB));
    let program = program.to_str().unwrap();
    let (output, _) = report(&scratch, "100M", &["--strict"], &[program]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("statically linked"), "{}", stderr(&output));
    let (output, report) =
        report(&scratch, "100M", &["--strict"], &["sh", "-c", &format!("{program}; true")]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(report["verdict"]["kind"], "strict_refused", "{report}");
}

/// *The story:* places of ended processes were kept, and what came after the 64th was not managed
/// and not mentioned.
#[test]
fn every_one_of_many_programs_is_managed() {
    let scratch = Scratch::new("many");
    let (_, report) = report(&scratch, "100M", &[], &["sh", "-c", "for i in $(seq 150); do /bin/true; done"]);
    assert_eq!((&report["managed"], &report["verdict"]["kind"]), (&true.into(), &"fits".into()), "{report}");
    assert!(of(&report, "true").len() >= 150, "{}", report["processes"].as_array().unwrap().len());
}

/// *The story:* `env -i CMD` ran without an agent, and "fit".
#[test]
fn a_cleaned_environment_is_mended() {
    let scratch = Scratch::new("env");
    let (output, report) = report(&scratch, "100M", &[], &["env", "-i", "/bin/sleep", "0.5"]);
    assert!(output.status.success());
    // What starts it may be seen under its name, too, in the instant in which it becomes it.
    let sleep = of(&report, "sleep");
    let all_managed = sleep.iter().all(|sleep| sleep["managed"] == true);
    assert!(!sleep.is_empty() && all_managed, "{report}");
    assert_eq!(report["managed"], true);
}

/// *The story:* with more than 32,768 words of it a program ran without an agent, and was said to have a
/// cleaned environment.
#[test]
fn a_large_environment_is_mended() {
    let scratch = Scratch::new("large-env");
    let line = "env -i $(seq -f V%.0f=x 40000) /bin/sh -c 'echo $LD_PRELOAD; sleep 0.5'";
    let (output, report) = report(&scratch, "100M", &[], &["sh", "-c", line]);
    assert!(output.status.success() && support::stdout(&output).contains("overspill"), "{output:?}");
    assert_eq!(report["managed"], true, "{report}");
}

/// *The story:* an agent that was built for debugging needed more stack than it had, and each program that
/// paged was ended by SIGSEGV.
#[test]
fn what_is_built_for_debugging_pages_too() {
    if !nix::unistd::geteuid().is_root() {
        return; // it may have no right to page
    }
    let scratch = Scratch::new("debug");
    const SORT: &str = "seq 600000 | LC_ALL=C sort -S 200M | md5sum";
    let bare = Command::new("sh").args(["-c", SORT]).output().unwrap();
    let (output, report) = report(&scratch, "24M", &[], &["sh", "-c", SORT]);
    assert!(output.status.success() && output.stdout == bare.stdout, "{output:?}");
    let out = ["pswpout", "zswpout"].map(|name| report["vmstat"][name].as_u64().unwrap());
    assert!(out[0] + out[1] > 0, "{report}");
}

/// A shell's own way to leave out one variable leaves the other.
#[test]
fn a_preload_of_the_programs_own_stays() {
    let scratch = Scratch::new("preload");
    let line = "LD_PRELOAD=libm.so.6 sh -c 'echo $LD_PRELOAD; sleep 0.05'";
    let (output, report) = report(&scratch, "100M", &[], &["sh", "-c", line]);
    let shown = support::stdout(&output);
    assert!(shown.contains("overspill") && shown.trim_end().ends_with(":libm.so.6"), "{shown}");
    assert_eq!(report["managed"], true, "{report}");
}

#[test]
fn runs_that_are_killed_or_leave_something_behind_do_not_fit() {
    let scratch = Scratch::new("killed");
    let (_, killed) = report(&scratch, "100M", &[], &["sh", "-c", "sleep 0.05; kill -KILL $$"]);
    assert_eq!(killed["verdict"]["kind"], "killed", "{killed}");
    let (output, left) =
        report(&scratch, "100M", &[], &["sh", "-c", "sleep 3 > /dev/null 2>&1 & sleep 0.05"]);
    assert!(output.status.success());
    assert_eq!((&left["verdict"]["kind"], &left["programs_left"]), (&"went_on".into(), &1.into()), "{left}");
}

/// *The story:* the resource tracker of Python's multiprocessing ends an instant after the command, when
/// the pipe between them does. It "went on when the command had ended", of each run that used it.
#[test]
fn who_ends_because_the_command_has_did_not_go_on() {
    let scratch = Scratch::new("after");
    let line = "sleep 0.15 & sleep 0.1";
    let (_, report) = self::report(&scratch, "100M", &[], &["sh", "-c", line]);
    assert_eq!(
        (&report["verdict"]["kind"], &report["programs_left"]),
        (&"fits".into(), &0.into()),
        "{report}"
    );
    let began = std::time::Instant::now();
    let (_, report) = self::report(&scratch, "100M", &[], &["sh", "-c", "sleep 30 > /dev/null 2>&1 &"]);
    assert_eq!(report["programs_left"], 1, "{report}");
    assert!(began.elapsed().as_secs() < 10, "it was waited for");
}

/// *The story:* memory that several map was no part of any figure: "25.1 MiB" was said of 404.
#[test]
fn shared_memory_counts() {
    let scratch = Scratch::new("shared");
    let program = scratch.executable("shared", &static_program_that_maps(60 * MIB, SHARED_ANONYMOUS));
    let (_, report) = report(&scratch, "20M", &[], &["sh", "-c", &format!("{}; true", program.display())]);
    assert_eq!(report["verdict"]["kind"], "exceeded", "{report}");
    assert!(report["tree_peak_shmem_bytes"].as_u64().unwrap() >= 50 << 20, "{report}");
}

/// Another user cannot look into the launcher's /proc, another pid namespace does not see it: both are
/// told by the socket.
#[test]
fn other_users_and_namespaces_have_an_agent() {
    if !nix::unistd::geteuid().is_root() {
        return; // neither can be made
    }
    let scratch = Scratch::new("others");
    let mut ways = vec![vec!["setpriv", "--reuid", "65534", "--clear-groups", "/bin/sleep", "0.5"]];
    // Not every container allows namespaces.
    if Command::new("unshare")
        .args(["-pf", "--mount-proc", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        ways.push(vec!["unshare", "-pf", "--mount-proc", "/bin/sleep", "0.5"]);
    }
    for words in ways {
        let (output, report) = report(&scratch, "100M", &[], &words);
        assert!(output.status.success(), "{}", stderr(&output));
        // What starts it may be seen under its name, too, in the instant in which it becomes it.
        let sleep = of(&report, "sleep");
        let all_managed = sleep.iter().all(|sleep| sleep["managed"] == true);
        assert!(!sleep.is_empty() && all_managed, "{words:?}: {report}");
    }
}

/// Who loses its parent stays in the tree.
#[test]
fn the_launcher_is_the_parent_of_orphans() {
    let scratch = Scratch::new("orphans");
    let line = "(sh -c 'sleep 3; true' &) ; sleep 0.1; true";
    let (_, report) = report(&scratch, "100M", &[], &["sh", "-c", line]);
    assert!(report["programs_left"].as_u64().unwrap() >= 1, "{report}");
    assert!(of(&report, "sleep").iter().all(|sleep| sleep["managed"] == true), "{report}");
}

/// *The story:* orphans that were first seen dead were never waited for. A program that left thousands
/// behind was at its limit of processes, and each look of the launcher was at all of them.
#[test]
fn orphans_that_end_at_once_are_waited_for() {
    let scratch = Scratch::new("zombies");
    // The shell's parent is the launcher, and soon that of the orphans.
    let line = r#"
        read -r _ _ _ launcher _ < /proc/$$/stat
        for i in $(seq 300); do (true &); done
        for i in $(seq 300); do
            left=0
            for child in $(cat /proc/$launcher/task/*/children); do
                read -r stat 2> /dev/null < /proc/$child/stat || continue
                case ${stat##*)} in " Z"*) left=$((left + 1));; esac
            done
            [ $left = 0 ] && exit 0
            sleep 0.1
        done
        echo $left are left; exit 1"#;
    let (output, _) = report(&scratch, "100M", &[], &["bash", "-c", line]);
    assert!(output.status.success(), "{} {}", support::stdout(&output), stderr(&output));
}

/// See `Watcher::refuse`.
#[test]
fn strict_ends_what_is_forked_meanwhile_too() {
    let scratch = Scratch::new("forked-meanwhile");
    let program = scratch.executable("hog", &static_program(60 * MIB));
    let name = format!("86400.{}", std::process::id());
    let line = "(while :; do $0; done) & while :; do (sleep $1 &); done";
    for _ in 0..3 {
        let words = ["bash", "-c", line, program.to_str().unwrap(), &name];
        let (output, report) = report(&scratch, "20M", &["--strict"], &words);
        let left = processes_with(&name);
        for &pid in &left {
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        assert_eq!(report["verdict"]["kind"], "strict_refused", "{report}");
        assert_eq!((output.status.code(), left.len()), (Some(125), 0));
    }
}

/// Those that have this word on their command lines.
fn processes_with(word: &str) -> Vec<nix::unistd::Pid> {
    let has = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|part| part == word.as_bytes())
    };
    let numbers = fs::read_dir("/proc").unwrap();
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(has).map(nix::unistd::Pid::from_raw).collect()
}

/// *The story:* of a build of 100 s whose `make` was ended 38 ms were told, as its compilers went on.
#[test]
fn who_goes_on_has_used_the_processor() {
    let scratch = Scratch::new("goes-on");
    let script = "timeout 4 sh -c 'while :; do :; done' >/dev/null 2>&1 & sleep 1; kill -9 $$";
    let (_, report) = report(&scratch, "100M", &[], &["sh", "-c", script]);
    assert_eq!(report["verdict"]["kind"], "killed", "{report}");
    assert_eq!(report["programs_left"], 2, "{report}");
    let seconds = report["user_seconds"].as_f64().unwrap() + report["system_seconds"].as_f64().unwrap();
    assert!(seconds > 0.2, "{seconds} s of some 1.1");
}
