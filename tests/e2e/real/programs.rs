//! How each program is run: what it is given, and where it comes from.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::inputs;
use crate::context::Context;
use crate::launch::Launch;
use crate::{Outcome, ensure, packages};

/// GNU sort with a buffer as large as it likes.
pub fn sort(context: &'static Context) -> Outcome<Launch<'static>> {
    let numbers = inputs::numbers(context)?;
    let launch =
        Launch::new(context, "real-sort", packages::program("sort", "coreutils")?).env("LC_ALL", "C");
    Ok(launch.args(["-S", "2G", "--parallel=2"]).args([numbers]))
}

/// The python that is tested.
pub fn python() -> Outcome<PathBuf> {
    // Debian's own first: what stands before it in the search path may be a script that chooses one.
    let debian = PathBuf::from("/usr/bin/python3");
    if debian.exists() { Ok(debian) } else { packages::program("python3", "python3") }
}

/// Python with millions of small objects.
pub fn python_objects(context: &'static Context) -> Outcome<Launch<'static>> {
    let script = inputs::text(context, "objects.py", include_str!("programs/objects.py"))?;
    Ok(Launch::new(context, "real-python-objects", python()?).args([script]))
}

/// Python with numpy, installed from PyPI into the scratch directory.
pub fn python_numpy(context: &'static Context) -> Outcome<Launch<'static>> {
    let python = python()?;
    let packages_directory = context.path("python-packages");
    if !packages_directory.join("numpy").exists() {
        let has_pip = |python: &PathBuf| {
            let output = Command::new(python).args(["-m", "pip", "--version"]).stdin(Stdio::null()).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !has_pip(&python) {
            packages::install("python3-pip")?;
        }
        eprintln!("e2e: installing numpy from PyPI into {}", packages_directory.display());
        let output = Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
            .arg(&packages_directory)
            .arg("numpy")
            .output()
            .map_err(|error| error.to_string())?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "pip cannot install numpy: {}", complaint.trim());
    }
    let script = inputs::text(context, "arrays.py", include_str!("programs/arrays.py"))?;
    Ok(Launch::new(context, "real-python-numpy", python).env("PYTHONPATH", packages_directory).args([script]))
}

/// sqlite3 with a database in memory.
pub fn sqlite(context: &'static Context) -> Outcome<Launch<'static>> {
    let script = inputs::text(context, "database.sql", include_str!("programs/database.sql"))?;
    let sqlite = packages::program("sqlite3", "sqlite3")?;
    Ok(Launch::new(context, "real-sqlite", sqlite).args([":memory:"]).stdin(script))
}

/// xz at its largest dictionary.
pub fn xz(context: &'static Context) -> Outcome<Launch<'static>> {
    let corpus = inputs::corpus(context)?;
    let xz = packages::program("xz", "xz-utils")?;
    Ok(Launch::new(context, "real-xz", xz).args(["-9", "-T1", "-c"]).stdin(corpus))
}

/// zstd with a window of 128 MiB.
pub fn zstd(context: &'static Context) -> Outcome<Launch<'static>> {
    let corpus = inputs::corpus(context)?;
    let zstd = packages::program("zstd", "zstd")?;
    Ok(Launch::new(context, "real-zstd", zstd)
        .args(["--ultra", "-20", "--long=27", "-T1", "-q", "-c"])
        .stdin(corpus))
}

/// gcc on a large generated file.
pub fn gcc(context: &'static Context) -> Outcome<Launch<'static>> {
    let source = inputs::c_source(context)?;
    let gcc = packages::program("gcc", "gcc")?;
    // A relative name: it stands in the output.
    let name = source.file_name().ok_or("the source has no name")?.to_owned();
    let launch = Launch::new(context, "real-gcc", gcc).directory(&context.scratch);
    Ok(launch.args(["-O1", "-S", "-o", "-"]).args([name]))
}

/// Java with a heap far above the budget.
pub fn java(context: &'static Context) -> Outcome<Launch<'static>> {
    let javac = packages::program("javac", "default-jdk-headless")?;
    let java = packages::program("java", "default-jdk-headless")?;
    let source = inputs::text(context, "Objects.java", include_str!("programs/Objects.java"))?;
    let output = Command::new(javac).arg("-d").arg(&context.scratch).arg(&source).output();
    let output = output.map_err(|error| error.to_string())?;
    ensure!(output.status.success(), "javac: {}", String::from_utf8_lossy(&output.stderr));
    let launch = Launch::new(context, "real-java", java).directory(&context.scratch);
    Ok(launch.args(["-XX:+UseSerialGC", "-Xmx320m", "-cp", ".", "Objects", "900000"]))
}
