//! Mapped files: of programs that people use, and of a device that fails, where the program hears
//! what the kernel would say.

use std::path::Path;
use std::process::Command;

use crate::advice::proposed;
use crate::again::Verdict;
use crate::context::Context;
use crate::launch::{Finished, Launch, MIB};
use crate::real::python;
use crate::scratch::FaultyDisk;
use crate::{Outcome, Test, ensure, json};

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("files::python", programs),
        Test::new("files::room", room),
        Test::new("files::read-error", |context| read_error(context, "uring", &[])),
        Test::new("files::read-error-no-uring", |context| read_error(context, "plain", &["--no-uring"])),
    ]
}

/// Reads at random pages of a mapped file. The file is a hole: what is read is zeroes. It stays for some
/// looks of the launcher: what is touched in the last milliseconds of a run nobody may see.
const LOOK_UP: &str = "import mmap, random, sys, time
file = open(sys.argv[1], 'rb')
pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
for page in random.Random(5).sample(range(len(pages) // 4096), 1500):
    assert pages[page * 4096] == 0
time.sleep(0.2)
";

/// A reader at random has the rest of the budget filled with what lies around, and is told what it needs:
/// what it touched. In that nothing of it leaves.
///
/// *The story:* all that was read counted: "287.0 MiB would avoid that" of 25.9.
fn room(context: &Context) -> Outcome {
    let file = context.path("files-room");
    let error = |error: std::io::Error| error.to_string();
    std::fs::File::create(&file).and_then(|file| file.set_len(256 * MIB)).map_err(error)?;
    let run = |name: &str, ram: u64| -> Outcome<Finished> {
        let launch = Launch::new(context, name, python()?).args(["-c", LOOK_UP]).args([&file]);
        let finished = launch.ram(ram).options(["--files=16M"]).timeout(60).run()?;
        finished.succeeded()?;
        ensure!(json::number(finished.report()?, "files_managed")? == 1, "{}", finished.complain("no file"));
        let kind = finished.report()?["verdict"]["kind"].as_str().unwrap_or_default();
        ensure!(kind == "fits", "{}", finished.complain("it does not fit"));
        Ok(finished)
    };
    let roomy = run("files-room", 64 * MIB)?;
    let report = roomy.report()?;
    let figure = |name| json::number(report, name);
    let (filled, needed) = (figure("files_unseen_peak_bytes")?, figure("needed_bytes")?);
    // What python has itself, and 1500 pages.
    ensure!(filled > 16 * MIB, "{}", roomy.complain(&format!("room was filled with {filled} bytes")));
    ensure!(needed < 24 * MIB, "{}", roomy.complain(&format!("{needed} bytes are said to be needed")));
    // *The story:* pages of the file counted as read from swap, of which nothing came.
    let swapped = figure("pswpin")? + figure("swap_ra")? + figure("swap_ra_hit")?;
    ensure!(swapped == 0, "{}", roomy.complain("nothing was on swap, and it is said to have been read"));
    let (read, ahead, hits) = (figure("files_read")?, figure("files_ahead")?, figure("files_ahead_hit")?);
    ensure!(1500 <= read && hits <= ahead && ahead < read, "{}", roomy.complain("pages of the file"));
    run("files-room-said", proposed(&roomy)?)?;
    std::fs::remove_file(&file).map_err(error)
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
