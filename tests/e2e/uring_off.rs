//! A kernel that refuses io_uring: threads do the I/O, and nothing else changes. `--no-uring` only
//! asks for that; here the kernel is told to refuse (`kernel.io_uring_disabled`, 6.6), for the
//! seconds that one program takes.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::context::Context;
use crate::launch::{Launch, MIB};
use crate::{Outcome, Test, ensure};

const SETTING: &str = "/proc/sys/kernel/io_uring_disabled";
/// Refused to everybody.
const REFUSED: &str = "2";

/// All of this file; nothing on a kernel that cannot be told to refuse.
pub fn tests() -> Vec<Test> {
    let is_there = std::path::Path::new(SETTING).exists();
    is_there.then(|| Test::new("uring-off::stores", stores)).into_iter().collect()
}

fn stores(context: &Context) -> Outcome {
    let refusal = Refusal::new()?;
    let finished = Launch::new(context, "uring-off", &context.torture)
        .args(["stores", "--seconds", "1", "--expect-cold", "--dir"])
        .args([&context.scratch])
        .ram(64 * MIB)
        .timeout(180)
        .run()?;
    drop(refusal);
    finished.succeeded()?.paged()?;
    let paths: Vec<&Value> = finished.report()?["processes"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|process| process["paths"].as_array().into_iter().flatten())
        .collect();
    ensure!(
        !paths.iter().any(|path| *path == "io_uring"),
        "{}",
        finished.complain(&format!("the kernel refuses io_uring, and the pager goes by {paths:?}"))
    );
    Ok(())
}

/// The setting, changed until this is dropped. A shell of its own changes it back when our end of
/// its pipe closes: also when this process fails or is killed.
struct Refusal {
    shell: Child,
}

impl Refusal {
    fn new() -> Outcome<Self> {
        let before = fs::read_to_string(SETTING).map_err(|error| format!("{SETTING}: {error}"))?;
        let script = format!(
            "trap '' INT TERM HUP; echo {REFUSED} >{SETTING} && echo set; cat; echo {} >{SETTING}",
            before.trim()
        );
        let mut shell = Command::new("/bin/sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run /bin/sh: {error}"))?;
        let mut answer = [0; 4];
        let mut stdout = shell.stdout.take().ok_or("no pipe to the shell")?;
        let refusal = Self { shell };
        stdout.read_exact(&mut answer).map_err(|_| format!("{SETTING} cannot be changed (needs root)"))?;
        Ok(refusal)
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        let _ = self.shell.wait(); // which closes its pipe first
    }
}
