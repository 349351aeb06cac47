//! `overspill run` as a launcher: what it gives on to the program, how it ends, what it writes
//! where.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, alarm};
use support::{Scratch, eventually, overspill, run, stderr, stdout};

#[test]
fn the_exit_status_is_the_programs() {
    for code in [0, 1, 3, 125, 255] {
        let status = run(&["sh", "-c", &format!("exit {code}")]).status().unwrap();
        assert_eq!(status.code(), Some(code));
    }
}

#[test]
fn a_program_killed_by_a_signal_takes_the_launcher_with_it() {
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGSEGV, Signal::SIGINT, Signal::SIGUSR1] {
        let status = run(&["sh", "-c", &format!("kill -{} $$", signal as i32)]).status().unwrap();
        assert_eq!(status.signal(), Some(signal as i32), "{signal}");
        assert!(!status.core_dumped());
    }
}

#[test]
fn what_cannot_be_run_says_so_in_one_line() {
    let scratch = Scratch::new("cannot-run");
    let plain = scratch.file("plain");
    fs::write(&plain, "no program").unwrap();
    let orphan = scratch.executable("orphan", b"#!/no/such/interpreter\n");
    let cases = [
        ("no-such-program-anywhere", 127, "not found"),
        ("/no/such/program", 127, "not found"),
        ("ls -la", 127, "write sh -c 'ls -la'"),
        (plain.to_str().unwrap(), 126, "Permission denied"),
        (scratch.0.to_str().unwrap(), 126, "cannot execute"),
        (orphan.to_str().unwrap(), 126, "/no/such/interpreter is missing"),
    ];
    for (program, code, part) in cases {
        let json = scratch.file("run.json");
        let output = run(&[program]).env("OVERSPILL_JSON", &json).output().unwrap();
        assert!(!json.exists(), "{program}: an empty file would tell of a run");
        assert_eq!(output.status.code(), Some(code), "{program}");
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn bad_input_is_one_line_and_125() {
    let scratch = Scratch::new("bad-input");
    let existing = scratch.file("existing");
    fs::write(&existing, "precious").unwrap();
    let existing = existing.to_str().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["--ram", "0", "true"], "above zero"),
        (&["--ram", "3X", "true"], "not a size"),
        (&["--ram", "10K", "true"], "less than 1M"),
        (&["--ram", "64", "true"], "write 64M for MiB"),
        (&["--ram", "0.001%", "true"], "less than 1M"),
        (&["--ram", "1G"], "command is missing"),
        (&["true"], "--ram <SIZE> is missing"),
        (&["--ram", "1G", "--swap", "/no/such/dir", "true"], "no such directory"),
        (&["--ram", "1G", "--swap", "/dev/shm", "true"], "in memory"),
        (&["--ram", "1G", "--swap", "/proc", "true"], "/proc"),
        (&["--ram", "1G", "--swap", existing, "true"], "it has no swap signature"),
        (&["--ram", "1G", "--json", "/no/such/dir/f", "true"], "cannot write"),
        (&["--ram", "1G", "--page-cluster", "77", "true"], "77"),
        (&["--ram", "1G", "--readahead", "magic", "true"], "the policies are"),
        (&["--frob", "true"], "--frob"),
        (&["--ram", "1G", "--swap", ".:10M:5M", "true"], "two sizes were given, 10M and 5M"),
        (&["--ram", "1G", "--swap", ".:10M:prio=1:prio=2", "true"], "two priorities were given, 1 and 2"),
        (&["--ram", "1G", "--swap", ":", "true"], "missing behind the last colon"),
        (&["--ram", "1G", "--max-pool-percent", "-1", "true"], "-1 is not in 0..=90"),
        (&["--ram", "1G", "--page-cluster", "-1", "true"], "-1 is not in 0..=10"),
        (&["--ram", "1G", "--swap-max", "-1", "true"], "invalid value '-1' for '--swap-max <SIZE>'"),
    ];
    for (words, part) in cases {
        let output = overspill().arg("run").args(*words).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{words:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains(part), "{words:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
    assert_eq!(fs::read_to_string(existing).unwrap(), "precious");
}

#[test]
fn a_missing_agent_is_named_with_the_way_to_mend_it() {
    let output = run(&["true"]).env("OVERSPILL_PRELOAD", "/no/agent.so").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("/no/agent.so") && stderr(&output).contains("mend it with"));
}

#[test]
fn an_agent_that_ld_preload_cannot_name_is_refused() {
    let scratch = Scratch::new("with blank");
    let agent = scratch.file("agent.so");
    fs::copy(support::stand_in(), &agent).unwrap();
    let output = run(&["true"]).env("OVERSPILL_PRELOAD", &agent).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("which LD_PRELOAD cannot carry"), "{}", stderr(&output));
}

#[test]
fn more_ram_than_the_machine_has_is_a_note() {
    let output = overspill().args(["run", "--ram", "4000%", "--", "echo", "hello"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), "hello\n");
    assert!(stderr(&output).contains("more than this machine's"), "{}", stderr(&output));
}

#[test]
fn nothing_is_added_to_the_standard_output() {
    let output = overspill().args(["run", "--ram", "100M", "printf", "exactly this"]).output().unwrap();
    assert_eq!(stdout(&output), "exactly this");
    let summary = stderr(&output);
    assert!(summary.starts_with("overspill: printf 'exactly this': exit 0 after "), "{summary}");
    assert!(summary.lines().count() <= 12, "{summary}");
    assert!(run(&["true"]).output().unwrap().stderr.is_empty(), "-q is quiet");
}

#[test]
fn the_summary_and_the_figures_can_go_to_files() {
    let scratch = Scratch::new("files");
    let (json, summary) = (scratch.file("run.json"), scratch.file("summary.%p"));
    let mut command = overspill();
    command.args(["run", "--ram", "100M", "--json"]).arg(&json).arg("-o").arg(&summary);
    let output = command.args(["sh", "-c", "echo $$; exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(output.stderr.is_empty());
    let pid = stdout(&output).trim().to_string();
    let text = fs::read_to_string(scratch.file(&format!("summary.{pid}"))).unwrap();
    assert!(text.contains("exit 7"));
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["pid"].to_string(), pid);
    assert_eq!(report["exit_code"], 7);
    assert_eq!(report["ram_bytes"], 100 << 20);
    assert_eq!(report["swap_full"], false);
    let real_agent = std::env::var_os(support::TEST_AGENT).is_some();
    assert_eq!(report["managed"], real_agent, "the stand-in manages nothing");
    assert!(report["vmstat"].is_object() && report["processes"].is_array());
}

#[test]
fn options_come_from_flags_then_environment_then_file() {
    let scratch = Scratch::new("options");
    let (config, json) = (scratch.file("config"), scratch.file("run.json"));
    fs::write(&config, "ram = 300M\npage-cluster = 2\nquiet = true\n").unwrap();
    let ram = |flag: Option<&str>, variable: Option<&str>| -> u64 {
        let mut command = overspill();
        command.arg("run").env("OVERSPILL_CONFIG", &config).env("OVERSPILL_JSON", &json);
        command.args(flag.map(|size| format!("--ram={size}")));
        command.envs(variable.map(|size| ("OVERSPILL_RAM", size)));
        assert!(command.args(["--", "true"]).status().unwrap().success());
        let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(report["page_cluster"], 2);
        report["ram_bytes"].as_u64().unwrap()
    };
    assert_eq!(ram(None, None), 300 << 20);
    assert_eq!(ram(None, Some("200M")), 200 << 20);
    assert_eq!(ram(Some("100M"), Some("200M")), 100 << 20);
    fs::write(&config, "nonsense = 1\n").unwrap();
    let output = run(&["true"]).env("OVERSPILL_CONFIG", &config).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("no option `nonsense`"), "{}", stderr(&output));
}

/// Runs a shell script bare and with every `@` in it replaced by `overspill run ... --`; both must
/// print the same.
fn same_as_bare(script: &str) {
    let launcher = format!("{} run --ram 100M -q -- ", env!("CARGO_BIN_EXE_overspill"));
    let output = |script: &str| {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).env("OVERSPILL_PRELOAD", support::stand_in());
        let output = shell.env("OVERSPILL_CONFIG", "/dev/null").output().unwrap();
        format!("{}{}", stdout(&output), stderr(&output))
    };
    let (bare, launched) = (output(&script.replace('@', "")), output(&script.replace('@', &launcher)));
    assert!(!bare.is_empty());
    assert_eq!(bare, launched, "{script}");
}

#[test]
fn descriptors_are_the_callers() {
    let list = r"for fd in /proc/self/fd/*; do [ -e $fd ] && echo ${fd##*/} $(readlink $fd); done";
    same_as_bare("exec 7</dev/zero 9>/dev/null; @ ls /proc/self/fd");
    same_as_bare("exec 7</dev/zero; @ readlink /proc/self/fd/7");
    same_as_bare("@ ls /proc/self/fd 0<&-");
    same_as_bare("@ ls /proc/self/fd 2>&-");
    same_as_bare(&format!("@ sh -c '{list}' 0</dev/null 2>/dev/null | grep -v pipe"));
}

#[test]
fn signal_dispositions_and_mask_are_the_callers() {
    let show = "@ grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status";
    same_as_bare(show);
    same_as_bare(&format!("trap '' PIPE; {show}"));
    same_as_bare(&format!("trap '' INT HUP; {show}"));
    same_as_bare(&format!("trap '' CHLD USR1; {show}"));
}

#[test]
fn a_broken_pipe_ends_the_program_as_usual() {
    same_as_bare("(@ yes; echo $? >&2) | head -n 1");
}

#[test]
fn the_directory_and_the_standard_input_are_the_callers() {
    same_as_bare("cd /usr && @ pwd");
    same_as_bare("echo hello | @ cat");
    same_as_bare("umask 077; @ sh -c umask");
}

#[test]
fn limits_are_the_callers() {
    same_as_bare("ulimit -n 100; ulimit -c 0; @ sh -c 'ulimit -n; ulimit -c; ulimit -l'");
}

/// Starts a script under the launcher, in a process group of its own, and waits until it has said
/// `ready`.
fn started(script: &str) -> std::process::Child {
    use std::os::unix::process::CommandExt;
    let mut command = overspill();
    command.args(["run", "--ram", "100M", "--", "sh", "-c", script]);
    let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\n");
    child
}

#[test]
fn a_signal_to_the_launcher_reaches_the_program() {
    let named = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGINT, Signal::SIGALRM]
        .into_iter()
        .chain([Signal::SIGIO, Signal::SIGXCPU, Signal::SIGABRT, Signal::SIGPROF, Signal::SIGPIPE]);
    for signal in named.map(|signal| signal as i32).chain([libc::SIGRTMIN(), libc::SIGRTMAX()]) {
        let script = format!("trap 'exit 42' {signal}; echo ready; while :; do sleep 0.01; done");
        let child = started(&script);
        let send = format!("kill -{signal} {}", child.id());
        assert!(Command::new("sh").args(["-c", &send]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(42), "{signal}");
        assert!(stderr(&output).contains("exit 42"), "the summary is written");
    }
}

/// *The story:* "cannot wait for the program: Invalid argument".
#[test]
fn a_signal_without_a_name_kills_the_program() {
    let output = run(&["sh", "-c", "kill -34 $$; sleep 5"]).output().unwrap();
    assert_eq!(output.status.signal(), Some(34), "{}", stderr(&output));
}

/// *The story:* an alarm outlives the exec that starts the launcher. It ended the launcher without a
/// summary, and the program ran on.
#[test]
fn an_alarm_set_before_the_launcher_ends_the_program() {
    let mut command = run(&["sh", "-c", "trap 'echo ended; exit 42' ALRM; while :; do sleep 0.01; done"]);
    use std::os::unix::process::CommandExt;
    let set = || {
        alarm::set(4); // time enough to begin, on a busy machine, too
        Ok(())
    };
    // SAFETY: alarm is async-signal-safe.
    unsafe { command.pre_exec(set) };
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(stdout(&output), "ended\n");
}

#[test]
fn the_launcher_survives_an_interrupt_that_the_program_survives() {
    // As from a terminal, the whole group gets the signal.
    let child = started("trap 'echo got it' INT; echo ready; sleep 1; sleep 1; exit 5");
    kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(stdout(&output).contains("got it"));
    assert!(stderr(&output).contains("exit 5"));
}

#[test]
fn a_program_that_signals_the_launcher_is_not_hit_by_its_own_signal() {
    let line = "read -r _ _ _ launcher _ </proc/$$/stat; kill -USR1 $launcher; sleep 0.1; exit 3";
    let output = run(&["sh", "-c", line]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_killed_launcher_leaves_the_program_running() {
    let scratch = Scratch::new("killed");
    let done = scratch.file("done");
    let mut child = started(&format!("echo ready; sleep 0.3; echo yes > {}", done.display()));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the program writes its file", || fs::read_to_string(&done).is_ok_and(|text| text == "yes\n"));
}

/// What another program is to start has the same environment.
fn hand_on(command: &Command, other: &mut Command) {
    command.get_envs().for_each(|(name, value)| match value {
        Some(value) => drop(other.env(name, value)),
        None => drop(other.env_remove(name)),
    });
}

/// Ends a launcher of a group of its own, with its program.
fn end(mut launcher: std::process::Child) {
    let _ = killpg(Pid::from_raw(launcher.id() as i32), Signal::SIGKILL);
    launcher.wait().unwrap();
}

/// *The story:* see `Inherited::let_go`.
#[test]
fn what_the_program_closes_is_closed() {
    use std::os::unix::process::CommandExt;
    for (given, closed) in [("", "exec >&-"), ("5>&1 >/dev/null", "exec 5>&-")] {
        let command = run(&["sh", "-c", &format!("{closed}; sleep 20")]);
        let script = format!("exec \"$0\" \"$@\" {given}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).arg(command.get_program()).args(command.get_args()).process_group(0);
        hand_on(&command, &mut shell);
        let mut child = shell.stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.take().expect("a pipe").read_to_end(&mut Vec::new()).unwrap();
        let is_running = child.try_wait().unwrap().is_none();
        end(child);
        assert!(is_running, "{closed}: the pipe ended with the run");
    }
    let mut reader = run(&["sh", "-c", "exec <&-; sleep 100"]);
    let mut child = reader.stdin(Stdio::piped()).process_group(0).spawn().unwrap();
    let mut pipe = child.stdin.take().expect("a pipe");
    eventually("nobody has what the program has closed", || pipe.write_all(b"y\n").is_err());
    end(child);
}

/// *The story:* see `main`'s `on_own_stack`.
#[test]
fn a_small_stack_is_enough_and_is_the_programs() {
    let command = run(&["sh", "-c", "ulimit -s"]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -s 100; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    hand_on(&command, &mut shell);
    let output = shell.output().unwrap();
    assert_eq!(stdout(&output), "100\n", "{}", stderr(&output));
}

/// *The story:* see `inherit::die_with`.
#[test]
fn a_signal_for_the_parents_death_is_the_programs_too() {
    let scratch = Scratch::new("parents-death");
    let told = scratch.file("pid");
    let program = format!("echo $$ > {}; exec sleep 100", told.display());
    let run = run(&["sh", "-c", &program]);
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(run.get_program()).args(run.get_args());
    hand_on(&run, &mut command);
    let starter = std::thread::spawn(move || {
        let child = command.spawn().unwrap();
        let number = || fs::read_to_string(&told).ok()?.trim().parse::<i32>().ok();
        eventually("the program starts", || number().is_some());
        (child, number().expect("it was told"))
    });
    // The thread that has started it is its parent, as far as this signal goes.
    let (mut launcher, program) = starter.join().unwrap();
    launcher.wait().unwrap();
    // One that has ended, and that nobody has waited for, has no words.
    let words = || fs::read(format!("/proc/{program}/cmdline")).unwrap_or_default();
    eventually("the program ends, too", || words().is_empty());
}

/// A static program for x86-64 that exits with code 9: an ELF header, one program header, `mov edi,
/// 9; mov eax, 60; syscall`.
#[cfg(target_arch = "x86_64")]
fn static_program() -> Vec<u8> {
    let code = [0xbf, 9, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
    let mut bytes = Vec::new();
    bytes.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    [2u16, 62].iter().for_each(|half| bytes.extend(half.to_le_bytes()));
    bytes.extend(1u32.to_le_bytes());
    [0x40_0078u64, 64, 0].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(0u32.to_le_bytes());
    [64u16, 56, 1, 64, 0, 0].iter().for_each(|half| bytes.extend(half.to_le_bytes()));
    [1u32, 5].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    let size = 120 + code.len() as u64;
    [0u64, 0x40_0000, 0x40_0000, size, size, 0x1000].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(code);
    bytes
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_static_program_runs_and_is_said_to_be_unmanaged() {
    let scratch = Scratch::new("static");
    let program = scratch.executable("static", &static_program());
    let output = overspill().args(["run", "--ram", "100M"]).arg(&program).output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
    assert!(stderr(&output).contains("statically linked"), "{}", stderr(&output));
    assert!(stderr(&output).contains("ran unmanaged, without a limit"), "{}", stderr(&output));
}

#[test]
fn a_script_without_an_interpreter_line_is_a_shell_script() {
    let scratch = Scratch::new("script");
    let script = scratch.executable("script", b"exit 11\n");
    assert_eq!(run(&[script.to_str().unwrap()]).status().unwrap().code(), Some(11));
}

#[test]
fn the_start_adds_little() {
    let time = |mut command: Command| {
        let start = std::time::Instant::now();
        assert!(command.status().unwrap().success());
        start.elapsed()
    };
    // The best of many, for other tests and programs share the machine.
    let (mut bare, mut launched) = (std::time::Duration::MAX, std::time::Duration::MAX);
    eventually("the launcher adds less than 10 ms", || {
        bare = bare.min(time(Command::new("true")));
        launched = launched.min(time(run(&["true"])));
        launched.saturating_sub(bare).as_millis() < 10
    });
}

/// *The story:* the trace of the last run was gone when the next program could not be started.
#[test]
fn what_cannot_be_started_replaces_no_trace() {
    let scratch = Scratch::new("no-start");
    let (trace, program) =
        (scratch.file("old.ovt"), scratch.executable("program", b"#!/no/such/interpreter\n"));
    std::fs::write(&trace, "the last run's").unwrap();
    let mut command = support::overspill();
    command.args(["run", "--ram", "100M", "--trace"]).arg(&trace).arg("--").arg(program);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(126), "{}", stderr(&output));
    assert!(!stderr(&output).contains("is replaced"), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), "the last run's");
}

#[test]
fn a_trace_of_a_program_that_nobody_manages_is_sound_and_empty() {
    let scratch = Scratch::new("live-trace");
    let trace = scratch.file("live.ovt");
    let mut command = support::overspill();
    command.args(["run", "--ram", "100M", "-q", "--trace"]).arg(&trace).args(["--", "true"]);
    assert!(command.status().unwrap().success());
    let output = support::overspill().args(["trace", "info", "--json"]).arg(&trace).output().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["notes"][0], "seen by overspill run: true");
    assert_eq!(info["pager_events"]["major_fault"], 0);
    let impossible = support::overspill()
        .args(["run", "--ram", "100M", "--trace", "/nowhere/x.ovt", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(impossible.status.code(), Some(125));
}

/// `overspill run` with the agent that is part of it, which is unpacked in `scratch`.
fn with_own_agent(scratch: &Scratch, script: &str) -> std::process::Command {
    let mut command = run(&["sh", "-c", script]);
    command.env_remove("OVERSPILL_PRELOAD").env("TMPDIR", &scratch.0);
    command
}

fn unpacked(scratch: &Scratch) -> usize {
    fs::read_dir(&scratch.0).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
}

/// *The story:* the agent was a file of its own, to be built and installed beside the command.
#[test]
fn one_file_is_enough_and_unpacks_itself_while_it_is_needed() {
    let scratch = Scratch::new("own-agent");
    let script = "echo $LD_PRELOAD; grep -c liboverspill_preload /proc/self/maps; stat -c %a $LD_PRELOAD";
    let output = with_own_agent(&scratch, script).output().unwrap();
    let lines: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{lines:?} {}", stderr(&output));
    assert!(lines[0].starts_with(scratch.0.to_str().unwrap()), "{lines:?}");
    assert!(lines[1] != "0" && lines[2] == "555", "{lines:?}");
    assert_eq!(unpacked(&scratch), 0, "it is gone with the program");
}

/// *The story:* the process that removes the library in the end was taken for a program of the run.
#[test]
fn the_keeper_of_the_agent_is_no_program_of_the_run() {
    let scratch = Scratch::new("keeper");
    let mut command = support::overspill();
    command.env_remove("OVERSPILL_PRELOAD").env("TMPDIR", &scratch.0);
    let output = command.args(["run", "--ram", "100M", "--", "sleep", "0.3"]).output().unwrap();
    let summary = stderr(&output);
    assert!(summary.contains("verdict") && !summary.contains("unmanaged"), "{summary}");
}

/// *The story:* the keeper had what the caller had open. A daemon let its lock go, and nobody got it before
/// the last of its children had ended. *The other story:* it and the launcher kept the caller's directory,
/// and what was mounted there was in use.
#[test]
fn launcher_and_keeper_have_neither_the_callers_descriptors_nor_its_directory() {
    let scratch = Scratch::new("keeper-files");
    let script = "read -r _ _ _ launcher _ </proc/$$/stat
        for pid in $(cat /proc/$launcher/task/*/children); do
        [ $pid = $$ ] || { until [ -e /proc/$pid/fd/8 ]; do sleep 0.05; done
        cd /proc/$pid/fd; readlink *; readlink ../cwd /proc/$launcher/cwd; }; done";
    let mut command = Command::new("sh");
    let line = "exec 7</dev/zero 9>lock; exec \"$0\" run --ram 100M -q -- sh -c \"$1\"";
    command.args(["-c", line, env!("CARGO_BIN_EXE_overspill"), script]).current_dir(&scratch.0);
    let output = command.env("TMPDIR", &scratch.0).env("OVERSPILL_CONFIG", "/dev/null").output().unwrap();
    // Its end of the line twice, the library's directory, and what it goes on with: the shared page, the
    // door by its name and by its file, and the directory to page to.
    let own = scratch.0.to_str().unwrap();
    let (door, page) = (["socket:"; 2], "/memfd:overspill");
    let expected = ["socket:", "/dev/null", "/dev/null", own, "socket:", page, door[0], door[1]];
    let found = stdout(&output);
    let found: Vec<_> = found.lines().collect();
    let is_expected = |(found, expected): (&&str, &&str)| found.starts_with(*expected);
    assert!(found.iter().zip(&expected).all(is_expected), "{found:?} {}", stderr(&output));
    assert!(found[8..] == ["/var/tmp", "/", "/"] || found[8..] == [own, "/", "/"], "{found:?}");
}

#[test]
fn the_agent_stays_for_whoever_outlives_the_launcher_and_no_longer() {
    let scratch = Scratch::new("left-agent");
    // The background job has the agent, and starts another program with it when the launcher has
    // ended.
    let script = "(sleep 1; grep -c liboverspill_preload /proc/self/maps > seen) >/dev/null 2>&1 &";
    let status = with_own_agent(&scratch, script).current_dir(&scratch.0).status().unwrap();
    assert!(status.success());
    assert_eq!(unpacked(&scratch), 1);
    let seen = scratch.file("seen");
    support::eventually("the job has ended", || fs::read_to_string(&seen).is_ok_and(|text| !text.is_empty()));
    assert_ne!(fs::read_to_string(&seen).unwrap().trim(), "0");
    support::eventually("the agent is gone", || unpacked(&scratch) == 0);
}

#[test]
fn a_killed_launcher_leaves_no_agent_behind() {
    let scratch = Scratch::new("killed-agent");
    let mut child = with_own_agent(&scratch, "sleep 4").spawn().unwrap();
    // Between its directory and its keeper is a millisecond (docs/limits.md).
    let is_there = |entry: fs::DirEntry| entry.path().join("liboverspill_preload.so").exists();
    let entries = || fs::read_dir(&scratch.0).unwrap().map(Result::unwrap);
    support::eventually("the agent is there", || entries().any(is_there));
    child.kill().unwrap();
    child.wait().unwrap();
    support::eventually("the agent is gone", || unpacked(&scratch) == 0);
}

/// *The story:* SIGUSR1 was passed on like the others, and a program that does not wait for it was
/// killed by a question.
#[test]
fn sigusr1_asks_for_a_line_of_status_and_does_no_harm() {
    let child = started("echo ready; sleep 1.5; exit 6");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGUSR1).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(stderr(&output).contains(" of 100.0 MiB, 0 major faults"), "{}", stderr(&output));
}

/// *The story:* the line was said by the thread that divides the budget. Where nobody read on that stood
/// still, and the command did not end.
#[test]
fn a_line_of_status_that_nobody_reads_holds_nobody_up() {
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the descriptor is the pipe's, and no pointer is given.
    assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) }, 4096);
    (&writer).write_all(&[b'.'; 4096]).unwrap();
    let mut command = run(&["sh", "-c", "echo ready; read word; exit 6"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    for _ in 0..3 {
        kill(Pid::from_raw(child.id() as i32), Signal::SIGUSR1).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(child.stdin.take());
    let mut status = None;
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while status.is_none() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
        status = child.try_wait().unwrap();
    }
    drop(reader); // who still waits for it ends
    let late = child.wait().unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(6), "late: {late}");
}

#[test]
fn top_shows_a_run_as_text_where_there_is_no_terminal() {
    let child = started("echo ready; sleep 4; exit 0");
    let pid = child.id().to_string();
    let top = |pid: &str| overspill().args(["top", "--interval", "0.2", pid]).output().unwrap();
    let output = top(&pid);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).starts_with(&format!("{pid}  sh -c ")), "{}", stdout(&output));
    assert!(stdout(&output).lines().all(|line| line.chars().count() <= 80), "{}", stdout(&output));
    assert!(child.wait_with_output().unwrap().status.success());
    let output = top(&pid);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("no run of overspill"), "{}", stdout(&output));
}

/// *The story:* runs were found by the name of the launcher's process, which is that of a link that it was
/// started by; and where there was no such run, it was said that this user may not look into it.
#[test]
fn a_run_is_found_whatever_link_it_was_started_by() {
    let scratch = Scratch::new("other-name");
    let link = scratch.file("os");
    let plain = overspill();
    std::os::unix::fs::symlink(plain.get_program(), &link).unwrap();
    let mut command = Command::new(&link);
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(["run", "--ram", "100M", "--", "sh", "-c", "echo ready; read word; exit 0"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = child.id().to_string();
    let asked = |words: &[&str]| overspill().args(words).output().unwrap();
    let top = asked(&["top", "--once", "--interval", "0.2"]);
    let has_run = |line: &str| line.starts_with(&format!("{pid}  sh -c "));
    assert_eq!(stdout(&top).lines().filter(|line| has_run(line)).count(), 1, "{}", stdout(&top));
    assert!(!stdout(&top).contains(" keep "), "its keeper is no run: {}", stdout(&top));
    let added = asked(&["swap", "add", "--pid", &pid, scratch.0.to_str().unwrap()]);
    assert!(added.status.success(), "{}", stderr(&added));
    let drained = asked(&["swap", "drain", "--pid", &pid, scratch.0.to_str().unwrap()]);
    assert!(drained.status.success(), "{}", stderr(&drained));
    // *The other story:* the only run there was got another place, and nobody was told which that was.
    let run = format!("of sh -c 'echo ready; read word; exit 0' (pid {pid}) ");
    for (done, said) in [(added, "pages "), (drained, "nothing ")] {
        assert!(stdout(&done).contains(&format!("{said}{run}")), "{}", stdout(&done));
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let over = asked(&["swap", "drain", "--pid", &pid, "/var/tmp"]);
    assert!(stderr(&over).contains(&format!("there is no process {pid}")), "{}", stderr(&over));
    let own = std::process::id().to_string();
    let no_run = asked(&["swap", "drain", "--pid", &own, "/var/tmp"]);
    assert!(stderr(&no_run).contains(&format!("process {own} is of no run")), "{}", stderr(&no_run));
}

#[test]
fn what_is_printed_ends_quietly_with_its_reader() {
    for words in [&["man"][..], &["completions", "zsh"], &["help", "run"], &["doctor", "--print", "seccomp"]]
    {
        let mut child =
            overspill().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let died = output.status.signal() == Some(Signal::SIGPIPE as i32) || output.status.success();
        assert!(died && output.stderr.is_empty(), "{words:?}: {:?} {}", output.status, stderr(&output));
    }
}

#[test]
fn nothing_is_overwritten_without_a_word_and_a_dash_is_no_file() {
    let scratch = Scratch::new("overwritten");
    let path = scratch.file("run.json");
    fs::write(&path, "precious").unwrap();
    let once =
        || overspill().args(["run", "--ram", "100M", "--json"]).arg(&path).arg("true").output().unwrap();
    assert!(stderr(&once()).contains("run.json is replaced"), "{}", stderr(&once()));
    let output = overspill().args(["run", "--ram", "100M", "--json", "-", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("name a file"), "{}", stderr(&output));
}
