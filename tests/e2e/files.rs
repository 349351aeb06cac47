//! Mapped files: of programs that people use, and of a device that fails, where the program hears
//! what the kernel would say.

use std::path::Path;
use std::process::Command;

use crate::again::Verdict;
use crate::context::Context;
use crate::launch::{Launch, MIB};
use crate::real::python;
use crate::scratch::FaultyDisk;
use crate::{Outcome, Test, ensure, json};

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("files::python", programs),
        Test::new("files::read-error", |context| read_error(context, "uring", &[])),
        Test::new("files::read-error-no-uring", |context| read_error(context, "plain", &["--no-uring"])),
    ]
}

/// A bad block raises SIGBUS in the program, which goes on; the run says so, and never of swap.
fn read_error(context: &Context, way: &str, options: &[&str]) -> Outcome {
    let name = format!("files-read-error-{way}");
    let disk = FaultyDisk::new(context, &name, &["--bad-block-every", "1500"])?;
    let finished = Launch::new(context, name, &context.torture)
        .args(["file-bad", "--dir"])
        .args([&disk.directory])
        .ram(64 * MIB)
        .options(["--files=16M"])
        .options(options)
        .timeout(180)
        .run()?;
    finished.succeeded()?.paged()?;
    let output = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
    ensure!(output.contains("22 of 32768 pages cannot be read"), "{}", finished.complain("nothing was bad"));
    ensure!(
        json::happened(finished.report()?, "file_read_error"),
        "{}",
        finished.complain("file_read_error is not in the report")
    );
    let said = finished.stderr.matches("a page of a mapped file could not be read").count();
    ensure!(said == 1, "{}", finished.complain(&format!("a page cannot be read was said {said} times")));
    Ok(())
}

/// Two files of twice the budget and more, through mmap and through sqlite3's mmap_size: the output
/// is that of a bare run, both are managed, and the budget holds.
fn programs(context: &'static Context) -> Outcome<Verdict> {
    let directory = context.path("mapped-files");
    let error = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(&directory).map_err(error)?;
    let script = directory.join("mapped.py");
    std::fs::write(&script, include_str!("../../bench/programs/mapped.py")).map_err(error)?;
    let in_directory = |name: &str| format!("{name}={}", directory.join(name).display());
    let words = ["128".to_owned(), in_directory("arrays"), in_directory("sqlite3")];
    let made = Command::new(python()?).arg(&script).arg("make").args(&words).status().map_err(error)?;
    ensure!(made.success(), "the files cannot be made: {made}");
    let launch = |name: &str, script: &Path| -> Outcome<Launch<'static>> {
        Ok(Launch::new(context, name, python()?).args([script]).args(&words))
    };
    let bare = launch("files-python-bare", &script)?.run()?;
    bare.succeeded()?;
    let managed = launch("files-python", &script)?.ram(56 * MIB).options(["--files=16M"]).timeout(240);
    let finished = managed.run()?;
    finished.succeeded()?;
    let read = |path: &Path| std::fs::read(path).map_err(error);
    let same = read(&bare.stdout)? == read(&finished.stdout)?;
    ensure!(same, "{}", finished.complain("the output differs from that of a bare run"));
    let mapped = json::number(finished.report()?, "files_managed")?;
    ensure!(mapped == 3, "{}", finished.complain(&format!("{mapped} mappings of files were managed")));
    std::fs::remove_dir_all(&directory).map_err(error)?;
    finished.paged()?.within_budget()
}
