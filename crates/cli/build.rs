//! Builds the agent and hands it to the command as bytes, so that one file is all there is to
//! install; notes the commit that the command is built from, for the machine description in
//! benchmark files. Outside a git checkout that note is simply missing.
//!
//! A nested cargo builds it, since no dependency can: the agent is a library for other programs,
//! has no standard library, and must not get the features that the command's own tree switches on.
//! It has a target directory of its own, so that it never waits for the lock that the outer cargo
//! holds. That directory is shared by `check`, `clippy`, `build` and `test`, which would each build
//! it once otherwise.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const PACKAGE: &str = "overspill-preload";
const LIBRARY: &str = "liboverspill_preload.so";
/// What the outer cargo says for itself, or clippy for the packages that are looked at: not for a
/// build inside of it.
const NOT_PASSED_ON: [&str; 4] =
    ["RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"];
/// Profile settings that come by way of the environment.
const SETTINGS: [&str; 5] = ["LTO", "DEBUG", "CODEGEN_UNITS", "OPT_LEVEL", "STRIP"];

fn main() {
    // Where it is now, not where it was compiled: a target directory may be a copy.
    let workspace =
        fs::canonicalize(Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..")).expect("it is here");
    let out = PathBuf::from(variable("OUT_DIR"));
    let target = agent_target(&out);
    let profile = if variable("PROFILE") == "release" { "release" } else { "dev" };
    build(&workspace, &target, profile);

    let built = target.join(directory_of(profile));
    fs::copy(built.join(LIBRARY), out.join(LIBRARY)).expect("cargo has built the library");
    watch(&workspace, &built.join(LIBRARY).with_extension("d"));
    note_commit();
}

fn note_commit() {
    let git = |args: &[&str]| -> Option<String> {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
    };
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && let Ok(path) = fs::canonicalize(log)
    {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=OVERSPILL_COMMIT={commit}");
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// `target/agent`, or within OUT_DIR where that is not `target/PROFILE/build/PACKAGE/out`.
fn agent_target(out: &Path) -> PathBuf {
    match out.ancestors().find(|path| path.ends_with("build")).and_then(|build| build.ancestors().nth(2)) {
        Some(target) => target.join("agent"),
        None => out.join("agent"),
    }
}

/// Where cargo puts what it builds in a profile.
fn directory_of(profile: &str) -> &str {
    if profile == "dev" { "debug" } else { profile }
}

fn build(workspace: &Path, target: &Path, profile: &str) {
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(workspace).args(["build", "--package", PACKAGE, "--profile", profile, "--target-dir"]);
    cargo.arg(target);
    // The workspace's own lock file, as it is: what it names has been fetched for the command
    // already.
    if workspace.join("Cargo.lock").is_file() {
        cargo.arg("--locked");
    }
    NOT_PASSED_ON.iter().for_each(|name| {
        cargo.env_remove(name);
    });
    let status = cargo.status().expect("the cargo that runs this can be run again");
    assert!(status.success(), "the agent cannot be built: {cargo:?} says why above");
}

/// Has this run again when something of the agent changes: its sources, as the compiler lists them,
/// and manifests.
fn watch(workspace: &Path, dependencies: &Path) {
    let list = fs::read_to_string(dependencies).expect("cargo writes what a library depends on beside it");
    let (_, sources) = list.split_once(": ").expect("a line `library: sources`");
    // A blank within a path is escaped.
    let sources = sources.replace("\\ ", "\0");
    let sources = sources.split_whitespace().map(|path| PathBuf::from(path.replace('\0', " ")));
    for source in sources {
        // From here: a copy of the tree has its own.
        let source =
            source.strip_prefix(workspace).map_or(source.clone(), |path| Path::new("../..").join(path));
        println!("cargo::rerun-if-changed={}", source.display());
    }
    for manifest in ["Cargo.toml", "Cargo.lock", "crates/preload", "crates/engine", "crates/mm", "crates/sys"]
    {
        let path = workspace.join(manifest);
        let path = if path.is_dir() { path.join("Cargo.toml") } else { path };
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    for setting in SETTINGS {
        println!("cargo::rerun-if-env-changed=CARGO_PROFILE_RELEASE_{setting}");
    }
}
