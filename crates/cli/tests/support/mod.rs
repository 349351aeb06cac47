//! What the tests of the command share: starting it with a harmless library in the agent's place,
//! so that they test the launcher alone. The agent itself is tested end to end elsewhere.
#![allow(dead_code, missing_docs)]

pub mod machine;

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;

/// The command, with a stand-in for the agent and without the user's configuration. OVERSPILL_TESTED names
/// another build of it: what works for long is done by one that is optimized.
pub fn overspill() -> Command {
    let tested = std::env::var_os("OVERSPILL_TESTED");
    let mut command = Command::new(tested.unwrap_or_else(|| env!("CARGO_BIN_EXE_overspill").into()));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("OVERSPILL_") {
            command.env_remove(name);
        }
    }
    command.env("OVERSPILL_PRELOAD", stand_in()).env("OVERSPILL_CONFIG", "/dev/null");
    hear_signals(&mut command);
    command
}

/// A shell starts background jobs with interrupts ignored, nohup with SIGHUP, the tests among them,
/// and what is ignored stays so. (A shell's `trap` cannot undo it: a test that waited for one
/// waited for ever.)
fn hear_signals(command: &mut Command) {
    // SAFETY: between fork and exec only signal(2) is called.
    unsafe {
        command.pre_exec(|| {
            for ignored in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
                signal(ignored, SigHandler::SigDfl)?;
            }
            Ok(())
        });
    }
}

/// `overspill run --ram 100M -q -- words...`
pub fn run(words: &[&str]) -> Command {
    let mut command = overspill();
    command.args(["run", "--ram", "100M", "-q", "--"]).args(words);
    command
}

/// Names the agent to test with, instead of a stand-in.
pub const TEST_AGENT: &str = "TEST_AGENT";

/// A library that does nothing when it is preloaded, because every program has it already: the C
/// library. Or the real agent, if that is asked for: the same must be true with it.
pub fn stand_in() -> PathBuf {
    if let Some(agent) = std::env::var_os(TEST_AGENT) {
        return agent.into();
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps
        .lines()
        .find_map(|line| line.find('/').map(|at| &line[at..]).filter(|path| path.contains("libc.so")));
    path.expect("the tests are linked to the C library").into()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory of the test's own, on the file system of the build tree.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn executable(&self, name: &str, bytes: &[u8]) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.file(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a command says that once never ended: a minute is enough.
pub fn in_time(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    let (ended, has_ended) = mpsc::channel();
    let watch = std::thread::spawn(move || {
        if has_ended.recv_timeout(Duration::from_secs(60)).is_err() {
            let _ = kill(pid, Signal::SIGKILL);
        }
    });
    let output = child.wait_with_output().unwrap();
    let _ = ended.send(());
    watch.join().unwrap();
    assert_ne!(output.status.signal(), Some(Signal::SIGKILL as i32), "{command:?} did not end");
    output
}

/// Waits until something is true.
pub fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < deadline, "still not true after a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
