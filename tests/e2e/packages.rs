//! Debian packages that tests need: installed when missing, after saying so.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::context::Context;
use crate::{Outcome, ensure};

/// One at a time: apt locks.
static INSTALLING: Mutex<()> = Mutex::new(());

/// The path of a program, after installing `package` if it is missing.
pub fn program(name: &str, package: &str) -> Outcome<PathBuf> {
    if let Some(path) = find(name) {
        return Ok(path);
    }
    install(package)?;
    find(name).ok_or_else(|| format!("package {package} is installed, but there is no {name}"))
}

/// Builds a program in C.
pub fn compile(context: &Context, name: &str, source: &str, options: &[&str]) -> Outcome<PathBuf> {
    compile_by(&program("gcc", "gcc")?, context, name, source, options)
}

/// Builds one that is linked with musl.
pub fn compile_for_musl(context: &Context, name: &str, source: &str) -> Outcome<PathBuf> {
    compile_by(&program("musl-gcc", "musl-tools")?, context, name, source, &[])
}

fn compile_by(
    compiler: &Path,
    context: &Context,
    name: &str,
    source: &str,
    options: &[&str],
) -> Outcome<PathBuf> {
    let [file, built] = [context.path(format!("{name}.c")), context.path(name)];
    std::fs::write(&file, source).map_err(|error| error.to_string())?;
    let mut command = Command::new(compiler);
    command.arg("-O1").args(options).arg("-o").arg(&built).arg(&file).arg("-lpthread");
    let output = command.output().map_err(|error| error.to_string())?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(built)
}

/// Installs a package.
pub fn install(package: &str) -> Outcome {
    let _guard = INSTALLING.lock().map_err(|_| "an earlier installation panicked")?;
    // SAFETY: asks only.
    let root = unsafe { libc::geteuid() } == 0;
    ensure!(root, "package {package} is missing and only root can install it: apt-get install {package}");
    eprintln!("e2e: installing the Debian package {package}");
    apt(&["update"])?;
    apt(&["install", "-y", "--no-install-recommends", package])
}

fn apt(arguments: &[&str]) -> Outcome {
    let output = Command::new("apt-get")
        .args(arguments)
        // A server must not be started by its installation: tests start their own.
        .envs([("DEBIAN_FRONTEND", "noninteractive"), ("RUNLEVEL", "1")])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run apt-get: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "apt-get {}: {}", arguments.join(" "), stderr.trim());
    Ok(())
}

/// A program in the search path or where Debian puts those of the administrator.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    directories.map(|directory| directory.join(name)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
