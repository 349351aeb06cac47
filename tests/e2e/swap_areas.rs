//! Swap areas that are there already, several at a time, and what must not be one.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::json;
use crate::launch::{Finished, Launch, MIB};
use crate::scratch::{LoopDevice, SmallDisk, administer};
use crate::{Outcome, Test, ensure};

const RAM_BYTES: u64 = 64 * MIB;
/// Where the numbers of a header begin.
const NUMBERS_AT: u64 = 1024;

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("areas::made-and-used", made_and_used),
        Test::new("areas::of-mkswap", of_mkswap),
        Test::new("areas::several", several),
        Test::new("areas::refused", refused),
        Test::new("areas::reflinked", reflinked),
        Test::new("areas::swapon", swapon),
    ]
}

/// Runs the command to its end.
pub fn overspill(context: &Context, arguments: &[&str]) -> Outcome<Output> {
    context.overspill_command().args(arguments).output().map_err(|error| error.to_string())
}

/// Makes a swap file of so many MiB, in place of what was there.
pub fn make(context: &Context, path: &Path, mib: u64) -> Outcome {
    let _ = std::fs::remove_file(path);
    let (path, size) = (path.to_string_lossy(), format!("{mib}M"));
    let made = overspill(context, &["swap", "make", &path, "--size", &size, "--label", "test"])?;
    ensure!(made.status.success(), "swap make: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}

/// Is it usable, and what `swap info` says of it.
pub fn info(context: &Context, path: &Path) -> Outcome<(bool, String)> {
    let info = overspill(context, &["swap", "info", &path.to_string_lossy()])?;
    Ok((info.status.success(), String::from_utf8_lossy(&info.stdout).into_owned()))
}

/// Fills half as much memory again as its budget, and finds all of it. Nothing goes into the pool.
pub fn noise<'a>(context: &'a Context, name: &str) -> Launch<'a> {
    const PROGRAM: &str = "
import random
noise = random.Random(7).randbytes(1 << 20)
memory = [bytearray(noise) for _ in range(96)]
assert all(part == noise for part in memory)
";
    let launch = Launch::new(context, name, "python3").args(["-c", PROGRAM]);
    launch.ram(RAM_BYTES).options(["--max-pool-percent", "0"]).timeout(60)
}

fn cold<'a>(context: &'a Context, name: &str) -> Launch<'a> {
    Launch::new(context, format!("areas-{name}"), &context.torture)
        .args(["cold", "--seconds", "3", "--expect-cold", "--dir"])
        .args([&context.scratch])
        .ram(RAM_BYTES)
        .timeout(240)
}

/// A file of `swap make` serves one run after another, and is as it was.
fn made_and_used(context: &Context) -> Outcome {
    let file = context.path("areas-made");
    make(context, &file, 512)?;
    for turn in ["first", "second"] {
        cold(context, turn).swap(&file).run()?.succeeded()?.paged()?;
    }
    let (usable, told) = info(context, &file)?;
    ensure!(usable && told.contains("test"), "after two runs: {told}");
    std::fs::remove_file(&file).map_err(|error| error.to_string())
}

/// An area of mkswap, and the same with its numbers in the other byte order, as another machine's mkswap
/// writes them: the header is as it was afterwards.
fn of_mkswap(context: &Context) -> Outcome {
    let file = context.path("areas-mkswap");
    let path = file.to_string_lossy();
    administer("fallocate", &["-l", "256M", &path])?;
    administer("chmod", &["600", &path])?;
    administer("mkswap", &[&path])?;
    for order in ["this", "other"] {
        let header = numbers(&file)?;
        noise(context, &format!("areas-mkswap-{order}")).swap(&file).run()?.succeeded()?.paged()?;
        ensure!(numbers(&file)? == header, "the header was changed");
        let (usable, told) = info(context, &file)?;
        ensure!(usable && told.contains("byte order   the other one") == (order == "other"), "{told}");
        let swapped: Vec<u8> = header.chunks(4).flat_map(|number| number.iter().rev().copied()).collect();
        let area = std::fs::File::options().write(true).open(&file).map_err(|error| error.to_string())?;
        area.write_all_at(&swapped, NUMBERS_AT).map_err(|error| error.to_string())?;
    }
    std::fs::remove_file(&file).map_err(|error| error.to_string())
}

/// Version, last page and the number of bad pages of an area's header.
fn numbers(area: &Path) -> Outcome<[u8; 12]> {
    let mut numbers = [0; 12];
    let file = std::fs::File::open(area).map_err(|error| error.to_string())?;
    file.read_exact_at(&mut numbers, NUMBERS_AT).map_err(|error| error.to_string())?;
    Ok(numbers)
}

/// A file whose blocks another file has, too, is refused, and so is the other: what is written to either goes
/// elsewhere. With blocks of its own it is taken.
fn reflinked(context: &Context) -> Outcome {
    let disk = SmallDisk::xfs(context, "areas-reflinked", 400)?;
    let [area, copy] = ["area", "copy"].map(|name| disk.directory.join(name));
    make(context, &area, 64)?;
    // What is reserved and was never written has nothing that a copy could have, too.
    std::fs::File::options()
        .write(true)
        .open(&area)
        .and_then(|file| file.write_all_at(&vec![b'x'; 63 << 20], 1 << 20))
        .map_err(|error| error.to_string())?;
    administer("cp", &["--reflink=always", &area.to_string_lossy(), &copy.to_string_lossy()])?;
    for file in [&area, &copy] {
        let finished = noise(context, "areas-reflinked").swap(file).run()?;
        finished.exited(125)?;
        let reason = "shared with another file";
        ensure!(finished.stderr.contains(reason), "{}", finished.complain(&format!("not `{reason}`")));
    }
    std::fs::remove_file(&copy).map_err(|error| error.to_string())?;
    // The file system gives the copy's blocks up some time later.
    let until = Instant::now() + Duration::from_secs(20);
    while !info(context, &area)?.0 {
        ensure!(Instant::now() < until, "still shared after 20 s");
        administer("sync", &["--file-system", &area.to_string_lossy()])?;
        std::thread::sleep(Duration::from_millis(20));
    }
    noise(context, "areas-own").swap(&area).run()?.succeeded()?.paged().map(drop)
}

/// A small one that is filled first, then two that take turns.
fn several(context: &Context) -> Outcome {
    let files = ["areas-first", "areas-left", "areas-right"].map(|name| context.path(name));
    for (file, mib) in files.iter().zip([8, 256, 256]) {
        make(context, file, mib)?;
    }
    let word = |file: &Path, priority: i32| format!("{}:prio={priority}", file.display());
    let launch = cold(context, "several").swap(word(&files[0], 9));
    let others = [word(&files[1], 5), word(&files[2], 5)];
    let launch = launch.options(["--swap", &others[0], "--swap", &others[1], "--max-pool-percent", "0"]);
    let finished = launch.run()?;
    finished.succeeded()?.paged()?;
    told_by_place(&finished, &files)?;
    for file in &files {
        // A sparse second page would be the file's end: both halves of the pair were written.
        let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
        let written = bytes[4096..].chunks(4096).filter(|page| page.iter().any(|&byte| byte != 0)).count();
        ensure!(written > 500, "only {written} pages went to {}", file.display());
        std::fs::remove_file(file).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// What went where adds up to what went out, and the first one was full.
///
/// *The story:* nothing told how much went to which of several places.
fn told_by_place(finished: &Finished, files: &[PathBuf]) -> Outcome {
    let report = finished.report()?;
    let places = report["places"].as_array().ok_or("no places in the report")?;
    let paths: Vec<&str> = places.iter().filter_map(|place| place["path"].as_str()).collect();
    ensure!(paths == files.iter().filter_map(|file| file.to_str()).collect::<Vec<_>>(), "{paths:?}");
    let sum = |key: &str| places.iter().filter_map(|place| place[key].as_u64()).sum::<u64>();
    for (moved, counter) in [("written_bytes", "pswpout"), ("read_bytes", "pswpin")] {
        let pages = json::number(report, counter)?;
        // The report is the agent's of its last look, up to a millisecond before the end.
        let near = (sum(moved) / 4096).abs_diff(pages) <= (pages / 100).max(64);
        ensure!(near, "{moved}: {} of {pages} pages", sum(moved) / 4096);
    }
    for place in places {
        let [size, peak] = ["size_bytes", "peak_bytes"].map(|key| place[key].as_u64().unwrap_or(0));
        ensure!(place["state"] == "open" && 2 << 20 < peak && peak <= size, "{place}");
    }
    let all = ["8.0 MiB", "areas-first", "areas-left", "areas-right"];
    let told = all.iter().all(|word| finished.stderr.contains(word));
    ensure!(told, "{}", finished.complain("the summary does not tell of the places"));
    Ok(())
}

/// What is somebody's, has holes, or is in use is refused with its reason, and is not touched.
fn refused(context: &Context) -> Outcome {
    let file = context.path("areas-refused");
    let refusal = |path: &Path, reason: &str| -> Outcome {
        let finished = cold(context, "refused").swap(path).run()?;
        finished.exited(125)?;
        ensure!(finished.stderr.contains(reason), "{}", finished.complain(&format!("not `{reason}`")));
        Ok(())
    };
    let text = vec![b'x'; 1 << 20];
    std::fs::write(&file, &text).map_err(|error| error.to_string())?;
    refusal(&file, "no swap signature")?;
    let path = file.to_string_lossy().into_owned();
    let foreign = overspill(context, &["swap", "make", &path])?;
    let complaint = String::from_utf8_lossy(&foreign.stderr).into_owned();
    ensure!(!foreign.status.success() && complaint.contains("--erase"), "swap make: {complaint}");
    ensure!(std::fs::read(&file).is_ok_and(|now| now == text), "a foreign file was touched");
    let erased = overspill(context, &["swap", "make", &path, "--erase"])?;
    ensure!(erased.status.success(), "{}", String::from_utf8_lossy(&erased.stderr));
    administer("fallocate", &["--punch-hole", "-o", "409600", "-l", "40960", &path])?;
    refusal(&file, "a hole at byte 409600")?;
    make(context, &file, 64)?;
    let locked = std::fs::File::open(&file).map_err(|error| error.to_string())?;
    locked.lock().map_err(|error| error.to_string())?;
    refusal(&file, "another run")?;
    drop(locked);
    std::fs::remove_file(&file).map_err(|error| error.to_string())?;
    // *The story:* it was taken, and the program ran without a limit.
    let disk = SmallDisk::new(context, "areas-read-only", 100)?;
    let area = disk.directory.join("area");
    make(context, &area, 64)?;
    administer("mount", &["-o", "remount,ro", &disk.directory.to_string_lossy()])?;
    refusal(&area, "it cannot be written to")?;
    // *The story:* of a device it was said that the operation was not permitted.
    let disk = LoopDevice::new(context, "areas-read-only-device", 64)?;
    administer("blockdev", &["--setro", &disk.device])?;
    let made = overspill(context, &["swap", "make", &disk.device, "--erase"])?;
    let told = String::from_utf8_lossy(&made.stderr);
    ensure!(told.contains("it cannot be written to: Read-only file system"), "{told}");
    Ok(())
}

/// The kernel takes what `swap make` made; meanwhile it is nobody else's.
fn swapon(context: &Context) -> Outcome {
    let file = context.path("areas-swapon");
    make(context, &file, 64)?;
    let path = file.to_string_lossy().into_owned();
    administer("swapon", &[&path])?;
    let meanwhile = info(context, &file);
    let again = overspill(context, &["swap", "make", &path, "--erase"]);
    administer("swapoff", &[&path])?;
    let (usable, told) = meanwhile?;
    ensure!(!usable && told.contains("the kernel swaps to it"), "{told}");
    ensure!(!again?.status.success(), "an area in use was made anew");
    ensure!(info(context, &file)?.0, "it cannot be used after swapoff");
    std::fs::remove_file(&file).map_err(|error| error.to_string())
}
