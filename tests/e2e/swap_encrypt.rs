//! `--encrypt`: nothing that the program had can be read on the device, and what was changed there
//! is never taken for what the program had.

use std::path::Path;

use crate::context::Context;
use crate::launch::{Launch, MIB};
use crate::scratch::FaultyDisk;
use crate::swap_areas::make;
use crate::{Outcome, Test, ensure, json};

const RAM_BYTES: u64 = 64 * MIB;
/// What the program's memory is full of.
const NEEDLE: &[u8] = b"overspill-secret";

/// Ways in which pages go out and in, and the subtests that go there.
const WAYS: [(&str, &[&str]); 5] = [
    ("default", &["cold", "stores", "mremap", "fork"]),
    ("no-move", &["cold", "stores"]),
    ("no-uring", &["cold", "stores"]),
    ("no-pool", &["stores", "fork-snapshot"]),
    ("small-pool", &["cold", "stores"]),
];

fn options(way: &str) -> &'static [&'static str] {
    match way {
        "no-move" => &["--encrypt", "--no-move"],
        "no-uring" => &["--encrypt", "--no-uring"],
        "no-pool" => &["--encrypt", "--max-pool-percent", "0"],
        "small-pool" => &["--encrypt", "--fixed-pool", "--max-pool-percent", "1"],
        _ => &["--encrypt"],
    }
}

/// All of this file.
pub fn tests() -> Vec<Test> {
    let way = |(name, subtests): (&'static str, &'static [&'static str])| {
        Test::new(format!("encrypt::way-{name}"), move |context| {
            subtests.iter().try_for_each(|subtest| torture(context, subtest, name))
        })
    };
    let mut tests: Vec<Test> = WAYS.into_iter().map(way).collect();
    tests.push(Test::new("encrypt::no-plaintext", no_plaintext));
    tests.push(Test::new("encrypt::several-areas", several_areas));
    tests.push(Test::new("encrypt::lies", lies));
    tests
}

fn launch<'a>(context: &'a Context, subtest: &str, way: &str) -> Launch<'a> {
    Launch::new(context, format!("encrypt-{subtest}-{way}"), &context.torture)
        .args([subtest, "--seconds", "2", "--dir"])
        .args([&context.scratch])
        .ram(RAM_BYTES)
        .options(options(way))
        .timeout(240)
}

fn torture(context: &Context, subtest: &str, way: &str) -> Outcome {
    let finished = launch(context, subtest, way).run()?;
    finished.succeeded()?.paged()?;
    ensure!(
        json::lists(finished.report()?, "paths", "encrypt"),
        "{}",
        finished.complain("the report does not say that pages were encrypted")
    );
    Ok(())
}

fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// Without the option the area has what the program had; with it, it has not.
const EXPECTED: [(&[&str], bool); 2] = [(&[], true), (&["--encrypt"], false)];

/// A program that fills 160 MiB with the needle and finds each of them again.
fn needles<'a>(context: &'a Context, name: &str) -> Launch<'a> {
    let text = String::from_utf8_lossy(NEEDLE);
    let program = format!("m = bytearray(b'{text}' * (10 << 20)); assert m.count(b'{text}') == 10 << 20");
    Launch::new(context, name, "python3")
        .args(["-c", &program])
        .ram(RAM_BYTES)
        .options(["--max-pool-percent", "0"])
        .timeout(240)
}

/// The area keeps what was written to it, and the program reads what it wrote.
fn no_plaintext(context: &Context) -> Outcome {
    let file = context.path("encrypt-area");
    for (options, expected) in EXPECTED {
        make(context, &file, 256)?;
        let finished = needles(context, "encrypt-plaintext").swap(&file).options(options).run()?;
        finished.succeeded()?.paged()?;
        let bytes = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let found = holds(&bytes, NEEDLE);
        ensure!(found == expected, "with {options:?} the program's memory is in the area: {found}");
    }
    std::fs::remove_file(&file).map_err(|error| error.to_string())
}

/// A file and a directory that take turns: pages of both come back as they were, and what the file
/// keeps is nobody's to read. What the directory had is gone with the run.
fn several_areas(context: &Context) -> Outcome {
    let (file, directory) = (context.path("encrypt-file"), context.path("encrypt-directory"));
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let word = |path: &Path| format!("{}:prio=5", path.display());
    for (options, expected) in EXPECTED {
        make(context, &file, 256)?;
        let launch = needles(context, "encrypt-several").swap(word(&file)).options(options);
        let finished = launch.options(["--swap", &word(&directory)]).run()?;
        finished.succeeded()?.paged()?;
        let bytes = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let found = holds(&bytes, NEEDLE);
        ensure!(found == expected, "with {options:?} the program's memory is in the file: {found}");
        // The program stores to each page once, so each write has a page of its own.
        let is_written = |page: &&[u8]| page.iter().any(|&byte| byte != 0);
        let in_file = bytes[4096..].chunks(4096).filter(is_written).count() as u64;
        let written = json::number(finished.report()?, "pswpout")?;
        let takes_turns = in_file > 500 && written > in_file + 500;
        ensure!(takes_turns, "{} of {written} pages were written to the file", in_file);
        let left = crate::scratch::names(&directory);
        ensure!(left.is_empty(), "left in the directory: {left:?}");
    }
    std::fs::remove_file(&file).map_err(|error| error.to_string())
}

/// A device that lies: the program dies by SIGBUS at that page, and the reason is said.
fn lies(context: &Context) -> Outcome {
    let kinds =
        ["--flip-reads-after", "--misplace-reads-after", "--forget-writes-after", "--tear-writes-after"];
    for kind in kinds {
        let name = format!("encrypt-lie{kind}");
        let disk = FaultyDisk::new(context, &name, &[kind, "8388608"])?;
        let finished = launch(context, "cold", &name).swap(&disk.directory).run()?;
        finished.killed_by(libc::SIGBUS)?;
        let is_said = finished.stderr.contains("not what was written");
        ensure!(is_said, "{}", finished.complain("the reason is not said"));
    }
    Ok(())
}
