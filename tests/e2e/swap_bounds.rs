//! What of an area is not to be written: its bad pages, and what lies behind the size that
//! `--swap PLACE:SIZE` allows. Each page has a mark before, and those have it after. Such a size, and
//! `--swap-max`, bound what all processes of a run take together.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::context::Context;
use crate::launch::{Finished, Launch, MIB};
use crate::scratch::{LoopDevice, administer, taken_bytes};
use crate::swap_areas::{make, noise, overspill};
use crate::{Outcome, Test, ensure, json, proc};

const PAGE: usize = 4096;
/// What `--swap PLACE:SIZE` allows.
const SIZE_MIB: u64 = 16;

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("areas::bad-pages", bad_pages),
        Test::new("areas::size-of-file", |context| size_of_file(context, true)),
        Test::new("areas::swap-max-of-file", |context| size_of_file(context, false)),
        Test::new("areas::size-of-directory", size_of_directory),
        Test::new("areas::size-for-three", |context| for_three(context, "size-for-three", true)),
        Test::new("areas::swap-max-for-three", |context| for_three(context, "swap-max-for-three", false)),
        Test::new("areas::size-of-the-killed", size_of_the_killed),
    ]
}

/// What a page has before: its number, again and again.
fn mark(page: u32) -> Vec<u8> {
    [b"mark".as_slice(), &page.to_ne_bytes()].concat().repeat(PAGE / 8)
}

/// Marks all pages but the header.
fn mark_all(area: &Path, pages: u32) -> Outcome<File> {
    let file = OpenOptions::new().read(true).write(true).open(area).map_err(|error| error.to_string())?;
    let marks: Vec<u8> = (1..pages).flat_map(mark).collect();
    file.write_all_at(&marks, PAGE as u64).map_err(|error| error.to_string())?;
    Ok(file)
}

/// The pages that have their marks no more.
fn overwritten(area: &Path, pages: u32) -> Outcome<Vec<u32>> {
    let bytes = std::fs::read(area).map_err(|error| error.to_string())?;
    let has_changed = |&page: &u32| bytes[page as usize * PAGE..][..PAGE] != mark(page);
    Ok((1..pages).filter(has_changed).collect())
}

/// Writes a list of bad pages into a header of mkswap's (docs/swap-header.md).
fn write_bad_pages(file: &File, bad: &[u32]) -> Outcome {
    let count = (bad.len() as u32).to_ne_bytes();
    let list: Vec<u8> = bad.iter().flat_map(|page| page.to_ne_bytes()).collect();
    let written = file.write_all_at(&count, 1032).and_then(|()| file.write_all_at(&list, 1536));
    written.and_then(|()| file.sync_all()).map_err(|error| error.to_string())
}

fn cold<'a>(context: &'a Context, name: &str) -> Launch<'a> {
    Launch::new(context, format!("areas-{name}"), &context.torture)
        .args(["cold", "--dir"])
        .args([&context.scratch])
        .ram(64 * MIB)
        .options(["--max-pool-percent", "0"])
        .timeout(60)
}

/// A small device with many bad pages is filled first: every good page is written, and no bad one.
fn bad_pages(context: &Context) -> Outcome {
    const PAGES: u32 = 2048;
    let disk = LoopDevice::new(context, "areas-bad-pages.img", 8)?;
    let device = Path::new(&disk.device);
    administer("mkswap", &[&disk.device])?;
    // The first and the last one, every third of some windows, and a whole window.
    let bad: Vec<u32> =
        [1].into_iter().chain((300..900).step_by(3)).chain(1024..1152).chain([PAGES - 1]).collect();
    write_bad_pages(&mark_all(device, PAGES)?, &bad)?;

    let info = overspill(context, &["swap", "info", "--json", &disk.device])?;
    let told: Value = serde_json::from_slice(&info.stdout).map_err(|error| error.to_string())?;
    let header = &told["header"];
    ensure!(header["bad_pages"] == serde_json::json!(bad), "bad pages, as told: {}", header["bad_pages"]);
    let good = PAGES - 1 - bad.len() as u32;
    ensure!(header["usable_pages"] == good, "usable pages, as told: {}", header["usable_pages"]);

    let launch = cold(context, "bad-pages").swap(format!("{}:prio=9", disk.device));
    let rest = format!("{}:prio=5", context.swap.display());
    launch.options(["--swap", &rest]).run()?.succeeded()?.paged()?;
    let written = overwritten(device, PAGES)?;
    let bad_ones: Vec<&u32> = written.iter().filter(|page| bad.contains(page)).collect();
    ensure!(bad_ones.is_empty(), "bad pages were written to: {bad_ones:?}");
    ensure!(written.len() as u32 == good, "of {good} good pages {} were written", written.len());
    Ok(())
}

/// `--swap FILE:SIZE`, or `--swap-max SIZE`, of an area that is larger: it is full with that, and behind it
/// nothing changes.
///
/// *The story:* `--swap-max 30M` bounded files without names alone. 138 MiB went to an area, and the run was
/// told to be comfortable.
fn size_of_file(context: &Context, is_of_place: bool) -> Outcome {
    const PAGES: u32 = (2 * SIZE_MIB * MIB / PAGE as u64) as u32;
    let name = if is_of_place { "areas-size" } else { "areas-swap-max" };
    let area = context.path(name);
    make(context, &area, 2 * SIZE_MIB)?;
    mark_all(&area, PAGES)?;
    let launch = noise(context, name);
    let finished = match is_of_place {
        true => launch.swap(format!("{}:{SIZE_MIB}M", area.display())).run()?,
        false => launch.swap(&area).options(["--swap-max", &format!("{SIZE_MIB}M")]).run()?,
    };
    finished.succeeded()?.paged()?;
    ensure!(json::flag(finished.report()?, "swap_full")?, "{}", finished.complain("it was not full"));
    let written = overwritten(&area, PAGES)?;
    let end = PAGES / 2;
    let behind = written.iter().filter(|&&page| page >= end).count();
    ensure!(behind == 0, "{behind} pages behind the size were written");
    ensure!(written.len() as u32 == end - 1, "of {} pages {} were written", end - 1, written.len());
    std::fs::remove_file(&area).map_err(|error| error.to_string())
}

/// `--swap DIR:SIZE`: the file without a name there never takes more.
fn size_of_directory(context: &Context) -> Outcome {
    let place = format!("{}:{SIZE_MIB}M", context.swap.display());
    let running = noise(context, "areas-size-of-directory").swap(place).start()?;
    let program = running.program_pid()?;
    let mut most = [0; 2];
    while proc::is_running(program) {
        let files = proc::nameless_files(program, &context.swap);
        // One that is gone by now was seen before.
        let figures = files.first().and_then(|file| bytes_of(file).ok());
        most = std::array::from_fn(|n| most[n].max(figures.map_or(0, |figures: [u64; 2]| figures[n])));
        std::thread::sleep(Duration::from_millis(5));
    }
    let finished = running.finish()?;
    finished.succeeded()?.paged()?;
    ensure!(json::flag(finished.report()?, "swap_full")?, "{}", finished.complain("it was not full"));
    let [length, taken] = most.map(|bytes| bytes / 1024);
    let size = SIZE_MIB * 1024;
    // What the file system notes of its extents is counted as the file's, too.
    ensure!(length <= size + 4 && taken <= size + 64, "it grew to {length} KiB, with {taken} on the disk");
    ensure!(taken > size * 9 / 10, "{taken} KiB say nothing of the limit");
    Ok(())
}

/// A file's length, and what it takes on its disk.
fn bytes_of(file: &PathBuf) -> Outcome<[u64; 2]> {
    let length = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    Ok([length, taken_bytes(file)?])
}

/// What the place may have together in the tests below, and the budget.
const SHARED_MIB: u64 = 128;
const SHARED_RAM_MIB: u64 = 48;

/// Three processes, each of which wants more than half of what all may have.
///
/// *The story:* each process had the whole size: three took three times as much.
fn for_three(context: &Context, name: &str, is_place: bool) -> Outcome {
    const SCRIPT: &str = "for n in 1 2 3; do python3 -c \"$0\" 3 80 & done; wait";
    let launch = Launch::new(context, format!("areas-{name}"), "/bin/sh").args(["-c", SCRIPT, HOLDER]);
    let (place, max) = (context.swap.display(), format!("{SHARED_MIB}M"));
    let launch = match is_place {
        true => launch.swap(format!("{place}:{max}")),
        false => launch.options(["--swap-max", &max]),
    };
    let most = most_taken(context, launch, |_| Ok(()))?;
    let [sum, others] = most.map(|bytes| bytes / 1024);
    let limit = SHARED_MIB * 1024;
    // What the file system notes of its extents is counted as the files', too.
    ensure!(sum <= limit + 3 * 64, "together they took {sum} of {limit} KiB");
    ensure!(sum > limit * 8 / 10, "{sum} of {limit} KiB say nothing of the limit");
    ensure!(others > limit / 5, "beside the largest the others took {others} of {limit} KiB: they starved");
    Ok(())
}

/// What a process had that was killed is the next one's. Together they want more than there is.
fn size_of_the_killed(context: &Context) -> Outcome {
    const SCRIPT: &str = "
import os, signal, subprocess, sys
def holder(seconds):
    return subprocess.Popen(['python3', '-c', sys.argv[1], seconds, '110'], stdout=subprocess.PIPE)
first = holder('600')
first.stdout.readline()
first.send_signal(signal.SIGKILL)
first.wait()
sys.exit(holder('1').wait())
";
    let launch = Launch::new(context, "areas-size-of-the-killed", "python3").args(["-c", SCRIPT, HOLDER]);
    let launch = launch.options(["--swap-max", &format!("{SHARED_MIB}M")]);
    let most = most_taken(context, launch, |finished| {
        let full = json::flag(finished.report()?, "swap_full")?;
        ensure!(!full, "{}", finished.complain("what the killed one had was not given back"));
        Ok(())
    })?;
    ensure!(most[0] > SHARED_MIB * MIB / 2, "{most:?} bytes: two would have had room");
    Ok(())
}

/// Fills so many MiB, says so, and finds all of it after so many seconds.
const HOLDER: &str = "
import random, sys, time
noise = random.Random(7).randbytes(1 << 20)
memory = [bytearray(noise) for _ in range(int(sys.argv[2]))]
print('full', flush=True)
time.sleep(int(sys.argv[1]))
assert all(part == noise for part in memory)
";

/// A look at files that takes longer says nothing: much may go from one to another meanwhile.
const LOOK: Duration = Duration::from_millis(2);

/// What files without a name take on the disk, by inode.
fn taken(files: &[PathBuf]) -> BTreeMap<u64, u64> {
    let bytes = |file: &PathBuf| Some((std::fs::metadata(file).ok()?.ino(), taken_bytes(file).ok()?));
    files.iter().filter_map(bytes).collect()
}

/// The same at one moment, of which none took less, or `None`. There is a moment between two looks.
/// Who only grew from one to the other, or only shrank, took then what it took at least in the two.
///
/// *The story:* one look read a file before another gave it a cluster, and that one afterwards.
fn taken_at_once(files: &[PathBuf]) -> Option<Vec<u64>> {
    let began = Instant::now();
    let (first, second) = (taken(files), taken(files));
    let both = first.iter().filter_map(|(inode, &bytes)| Some(bytes.min(*second.get(inode)?)));
    let both = both.collect();
    (began.elapsed() < LOOK).then_some(both)
}

/// Runs it; the most that all its files without a name took on the disk, and all at one time but the largest.
///
/// *The story:* the largest of all times was taken, too: that was the last one's, when the others had ended.
fn most_taken(
    context: &Context,
    launch: Launch<'_>,
    judge: impl FnOnce(&Finished) -> Outcome,
) -> Outcome<[u64; 2]> {
    let launch = launch.ram(SHARED_RAM_MIB * MIB).options(["--max-pool-percent", "0"]).timeout(120);
    let running = launch.start()?;
    let launcher = running.pid();
    let mut most = [0; 2];
    while proc::is_running(launcher) {
        let files = proc::tree(launcher).into_iter().flat_map(|pid| proc::nameless_files(pid, &context.swap));
        let taken = taken_at_once(&files.collect::<Vec<_>>()).unwrap_or_default();
        let sum: u64 = taken.iter().sum();
        let now = [sum, sum - taken.iter().copied().max().unwrap_or(0)];
        most = std::array::from_fn(|n| most[n].max(now[n]));
        std::thread::sleep(Duration::from_millis(5));
    }
    let finished = running.finish()?;
    finished.succeeded()?.paged()?;
    judge(&finished)?;
    Ok(most)
}
