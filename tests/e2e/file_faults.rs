//! Mapped files of a device that fails: what the kernel would say to the program is what it hears.

use crate::context::Context;
use crate::launch::{Launch, MIB};
use crate::scratch::FaultyDisk;
use crate::{Outcome, Test, ensure, json};

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
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
        .timeout(60)
        .run()?;
    finished.succeeded()?.paged()?;
    let output = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
    ensure!(output.contains("22 of 32768 pages cannot be read"), "{}", finished.complain("nothing was bad"));
    ensure!(
        json::lists(finished.report()?, "events", "file_read_error"),
        "{}",
        finished.complain("file_read_error is not in the report")
    );
    let said = finished.stderr.matches("a page of a mapped file could not be read").count();
    ensure!(said > 0, "{}", finished.complain("that a page cannot be read is not said"));
    Ok(())
}
