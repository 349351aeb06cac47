//! What the command shows on a terminal of 80 columns and 24 lines, as `script` gives one: nothing is
//! wider, and signals at odd moments end it as they should and leave nothing.
//!
//! The ways that need root are shown by the live tests (`newcomer::terminal`).

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use support::{Scratch, overspill, stderr, stdout};

const COLUMNS: usize = 80;

/// Runs a shell line on a terminal; `overspill` in it is the command under test. The result is what
/// stood on the screen, without colours and movements, line by line, each state of a line that was
/// drawn again being one.
fn on_terminal(scratch: &Scratch, line: &str) -> (Option<i32>, Vec<String>) {
    let directory = std::path::Path::new(env!("CARGO_BIN_EXE_overspill")).parent().unwrap();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    let stand_in = overspill();
    let variables = stand_in.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let output = Command::new("timeout")
        .args([
            "-k",
            "5",
            "60",
            "script",
            "-qefc",
            &format!("stty rows 24 cols {COLUMNS}; {line}"),
            "/dev/null",
        ])
        .current_dir(&scratch.0)
        .envs(variables)
        .env("PATH", path)
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .expect("script, of bsdutils, gives a terminal");
    let text = plain(&stdout(&output));
    (output.status.code(), text.split(['\n', '\r']).map(str::to_owned).collect())
}

/// A text without what moves the cursor and colours what follows.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\x1b' {
            out.push(c);
        } else if chars.next() == Some('[') {
            chars.find(|c| c.is_ascii_alphabetic());
        }
    }
    out
}

fn too_wide(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|line| line.chars().count() > COLUMNS).collect()
}

#[test]
fn nothing_is_wider_than_the_terminal() {
    let scratch = Scratch::new("terminal");
    std::fs::write(scratch.file("l.lackey"), "I  04000000,3\n L 1ffeffe7e0,8\n S 1ffeffe7e8,8\n").unwrap();
    let long = "a-long-name-".repeat(8);
    std::fs::create_dir(scratch.file(&long)).unwrap();
    for line in [
        "overspill doctor || true",
        "overspill run --ram 100M -- sh -c 'seq 100000 >/dev/null; echo one two three four five six seven eight'",
        "overspill top --once --interval 0.1 || true",
        "overspill swap make area --size 8M --label of-the-terminal",
        "overspill swap info area",
        "overspill trace info l.lackey",
        "overspill trace convert l.lackey l.ovt && overspill trace info l.ovt",
        "overspill sim devices",
        "overspill sim l.ovt --ram 64K --explain",
        "overspill sim zipf:size=4M,touches=4k",
        "overspill sim zipf:size=4M,touches=4k --readahead adaptive,linux,none --device nvme,network-rdma \
         --policy live,kernel,kernel-2012,live:bounded --ram 25%,50% --explain --html page.html",
        "overspill sim zipf:size=1M,touches=4k --ram 50%,90% --policy opt,lru,fifo,clock,s3fifo,sieve,2q,arc,lirs,\
         kernel-3.10,kernel-3.15,kernel-3.16,kernel-6.1,bounded",
        "overspill sim policies zipf:size=1M,touches=4k zipf:size=1M,touches=5k,exponent=1.2,write=30,think=100",
        "overspill sim soak --help | head -40",
    ] {
        let (code, lines) = on_terminal(&scratch, line);
        assert_eq!(code, Some(0), "{line}: {lines:#?}");
        assert!(lines.len() > 1, "{line}: {lines:#?}");
        let wide = too_wide(&lines);
        assert!(wide.is_empty(), "{line}: {wide:#?}");
    }
}

/// The rules of this test can fail.
#[test]
fn a_wide_line_is_seen() {
    let scratch = Scratch::new("wide");
    let (code, lines) = on_terminal(&scratch, "printf 'short\\r\\033[K%081d\\n' 0; exit 3");
    assert_eq!((code, too_wide(&lines).len()), (Some(3), 1), "{lines:?}");
}

/// *The story:* a signal left the terminal without echo and line ends.
#[test]
fn top_gives_the_terminal_back_when_a_signal_ends_it() {
    let scratch = Scratch::new("top");
    let script = "(sleep 3; kill -TERM $$) & exec overspill top --interval 0.1";
    let run = "overspill run --ram 100M -q -- sleep 6 & sleep 1; ";
    let after = "echo status $?; stty -a; wait";
    let (_, lines) = on_terminal(&scratch, &format!("stty -a; {run} sh -c '{script}'; {after}"));
    let text = lines.join("\n");
    // Blanks are not written, but passed over.
    assert!(text.contains("of100.0MiB(") && text.contains("q: end"), "{text}");
    // SIGTERM ended it, and the terminal is as before.
    let settings: Vec<&String> = lines.iter().filter(|line| line.contains("icanon")).collect();
    assert!(text.contains("status 143") && settings.len() == 2 && settings[0] == settings[1], "{text}");
}

/// The word that a shell's completion gives for what was typed.
fn completed(scratch: &Scratch, shell: &str, script: &str) -> Output {
    let mut command = Command::new(shell);
    command.args(if shell == "bash" { &["--norc", "-c"][..] } else { &["-fc"][..] });
    if shell == "fish" {
        command = Command::new(shell);
        command.args(["--no-config", "-c"]).env("HOME", &scratch.0);
    }
    command.arg(script).current_dir(&scratch.0).output().unwrap()
}

/// Completions are sourced by the shells that are here: bash everywhere, zsh and fish where the whole
/// check runs, which installs them.
#[test]
fn shells_take_their_completions() {
    let scratch = Scratch::new("completions");
    let scripts = [
        (
            "bash",
            "source ./bash; complete -p overspill >/dev/null || exit 9; COMP_WORDS=(overspill run --swap-m); \
             COMP_CWORD=2; _overspill overspill --swap-m run; echo \"${COMPREPLY[@]}\"",
        ),
        (
            "zsh",
            "autoload -U compinit && compinit -D; source ./zsh; (( $+_comps[overspill] )) || exit 9
             zmodload zsh/zpty; zpty shell zsh -f
             zpty -w shell \"autoload -U compinit; compinit -D; source ./zsh; echo re''ady\"
             until [[ $seen == *ready* ]]; do zpty -r shell line || exit 8; seen+=$line; done
             zpty -w -n shell 'overspill run --swap-m'; sleep 0.3 # what is pending makes a tab a tab
             zpty -w -n shell $'\\t'
             for try in {1..100}; do
                 while zpty -rt shell line; do print -rn -- $line; seen+=$line; done
                 [[ $seen == *swap-max* ]] && break; sleep 0.1
             done
             zpty -d shell; true",
        ),
        ("fish", "source ./fish; complete -C 'overspill run --swap-m'"),
    ];
    for (shell, script) in scripts {
        let made = overspill().args(["completions", shell]).output().unwrap();
        assert!(made.status.success() && made.stderr.is_empty(), "{shell}: {}", stderr(&made));
        std::fs::write(scratch.file(shell), made.stdout).unwrap();
        if Command::new(shell).args(["-c", "true"]).output().is_err() {
            assert_ne!(shell, "bash", "bash is everywhere");
            continue;
        }
        let output = completed(&scratch, shell, script);
        let text = plain(&stdout(&output));
        assert!(output.status.success(), "{shell}: {} {text}", stderr(&output));
        assert!(text.contains("--swap-max"), "{shell}: {text} {}", stderr(&output));
    }
}

/// Signals at odd moments: during a simulation, and from the first instant of a run on.
#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    let scratch = Scratch::new("signals");
    let page = scratch.file("page.html");
    std::fs::write(&page, "of before").unwrap();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut command = overspill();
        command.args(["sim", "random:size=1G,touches=900M", "--ram", "50%"]);
        command.arg("--html").arg(&page).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150));
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(signal as i32), "{}", stderr(&output));
        assert!(output.stdout.is_empty(), "{signal}");
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "of before", "{signal}");
    }
}

/// Whatever the moment, a run that was signalled ends by that signal or as its program did, and its
/// directories are empty.
#[test]
fn a_run_may_be_ended_at_any_moment() {
    let scratch = Scratch::new("moments");
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        for moment in (0..20).map(|step| Duration::from_micros(step * 500)) {
            let mut command = overspill();
            command.env_remove("OVERSPILL_PRELOAD").env("TMPDIR", &scratch.0);
            command.args(["run", "--ram", "100M", "-q", "--", "sleep", "20"]);
            let child = command.stderr(Stdio::piped()).spawn().unwrap();
            std::thread::sleep(moment);
            kill(Pid::from_raw(child.id() as i32), signal).unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.signal(), Some(signal as i32), "{moment:?} {}", stderr(&output));
            assert!(output.stderr.is_empty(), "{}", stderr(&output));
        }
    }
    support::eventually("nothing is left", || std::fs::read_dir(&scratch.0).unwrap().next().is_none());
}

/// *The story:* of a terminal that goes away the kernel tells the session's leader, and the others once that
/// has ended. The launcher took it that the program had been told, and both lived on for ever.
#[test]
fn a_terminal_that_goes_away_ends_a_run_that_leads_its_session() {
    let scratch = Scratch::new("hang-up");
    let told = scratch.file("told");
    let line = format!(
        "exec '{}' run --ram 100M -q -- sh -c 'trap \"echo hung up >>told; exit\" HUP; \
         read -r _ _ _ launcher _ </proc/$$/stat; echo $launcher >>told; while :; do sleep 0.05; done'",
        env!("CARGO_BIN_EXE_overspill")
    );
    let stand_in = overspill();
    // Whoever runs the tests may ignore it, by nohup, and all that are started then do.
    let mut terminal = Command::new("env")
        .args(["--default-signal=HUP", "script", "-qec", &line, "/dev/null"])
        .current_dir(&scratch.0)
        .envs(stand_in.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("script, of bsdutils, gives a terminal");
    let read = || std::fs::read_to_string(&told).unwrap_or_default();
    support::eventually("the program has begun", || read().ends_with('\n'));
    let launcher: i32 = read().trim().parse().unwrap();
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    support::eventually("the program is told", || read().contains("hung up"));
    support::eventually("the launcher ends", || kill(Pid::from_raw(launcher), None).is_err());
}
