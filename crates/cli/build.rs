//! Notes the commit that the command is built from, for the machine description in benchmark files. Outside a git
//! checkout the note is simply missing.

use std::process::Command;

fn main() {
    let git = |args: &[&str]| -> Option<String> {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
    };
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && let Ok(path) = std::fs::canonicalize(log)
    {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=OVERSPILL_COMMIT={commit}");
    }
}
