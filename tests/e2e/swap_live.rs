//! Areas that come and go while the program runs, and block devices: a loop device over a file on
//! the disk.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::launch::{Launch, MIB};
use crate::scratch::{FaultyDisk, LoopDevice, administer, taken_bytes};
use crate::swap_areas::{info, make, overspill};
use crate::{Outcome, Test, ensure, proc};

const RAM_BYTES: u64 = 64 * MIB;

/// All of this file.
pub fn tests() -> Vec<Test> {
    let drained = |name: &str, options: &'static [&'static str]| {
        Test::new(format!("areas::drained-{name}"), move |context| drained(context, options))
    };
    vec![
        drained("default", &["--max-pool-percent", "0"]),
        drained("pool", &["--fixed-pool", "--max-pool-percent", "10"]),
        drained("no-uring", &["--max-pool-percent", "0", "--no-uring"]),
        drained("no-move", &["--max-pool-percent", "0", "--no-move"]),
        drained("encrypt", &["--max-pool-percent", "0", "--encrypt"]),
        Test::new("areas::unreadable-pages-stay", unreadable_pages_stay),
        Test::new("areas::drain-waits-for-room", drain_waits),
        Test::new("areas::left-before-paging", left_before_paging),
        Test::new("areas::device", device),
        Test::new("areas::device-of-two", device_of_two),
        Test::new("areas::device-discards", |context| discards(context, &[])),
        Test::new("areas::device-discards-no-uring", |context| discards(context, &["--no-uring"])),
        Test::new("areas::file-discards", file_discards),
    ]
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

fn order(context: &Context, run: u32, words: &[&str]) -> Outcome<Output> {
    let pid = run.to_string();
    overspill(context, &[&["swap", words[0], "--pid", &pid], &words[1..]].concat())
}

fn obeyed(context: &Context, run: u32, words: &[&str]) -> Outcome {
    let output = order(context, run, words)?;
    ensure!(output.status.success(), "swap {}: {}", words.join(" "), said(&output));
    Ok(())
}

/// While threads store and check every word, their area is replaced by another one, twice; the old
/// one is free then. The only one that is left stays.
fn drained(context: &Context, options: &[&str]) -> Outcome {
    let files = ["areas-one", "areas-other"].map(|name| context.path(name));
    files.iter().try_for_each(|file| make(context, file, 512))?;
    let [one, other] = [0, 1].map(|index| files[index].to_string_lossy().into_owned());
    let launch = Launch::new(context, "areas-drained", &context.torture)
        .args(["stores", "--seconds", "8", "--dir"])
        .args([&context.scratch])
        .ram(RAM_BYTES)
        .swap(&files[0])
        .options(options)
        .timeout(240);
    let running = launch.start()?;
    let run = running.pid();
    let replace = |from: &str, to: &str| {
        obeyed(context, run, &["add", to])?;
        obeyed(context, run, &["drain", from])?;
        let (usable, told) = info(context, Path::new(from))?;
        ensure!(usable, "it was left, and is in use: {told}");
        let (usable, _) = info(context, Path::new(to))?;
        ensure!(!usable, "pages go there, and nobody has it");
        Ok(())
    };
    let outcome = running.program_pid().and_then(|_| {
        std::thread::sleep(Duration::from_secs(1));
        let refused = order(context, run, &["drain", &one])?;
        ensure!(!refused.status.success(), "the only place was left: {}", said(&refused));
        replace(&one, &other)?;
        replace(&other, &one)
    });
    let finished = running.finish();
    outcome?;
    let finished = finished?;
    finished.succeeded()?.paged()?;
    let places = finished.report()?["places"].as_array().ok_or("no places in the report")?;
    let last = |place: &serde_json::Value| place["path"] == one.as_str() && place["state"] == "open";
    ensure!(places.iter().any(|place| place["state"] == "drained" && place["peak_bytes"] != 0), "{places:?}");
    ensure!(places.last().is_some_and(last), "{places:?}");
    files.iter().try_for_each(std::fs::remove_file).map_err(|error| error.to_string())
}

/// Takes 160 MiB, most of which goes out, and touches none of it again.
const FILLER: &str = "
import os, random, sys, time
noise = random.Random(7).randbytes(1 << 20)
memory = bytearray(160 << 20)
for at in range(0, len(memory), len(noise)): memory[at:at + len(noise)] = noise
print('full', flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.05)
os._exit(0)
";

/// The other place is too small. `swap drain` says so, the program goes on within its budget, and what
/// waits goes where there is room as soon as some is added.
///
/// *The story:* swap was said to be full, with `--on-full kill` the program ended, and nobody said what
/// `swap drain` waited for.
fn drain_waits(context: &Context) -> Outcome {
    let files = ["areas-large", "areas-small", "areas-more"].map(|name| context.path(name));
    for (file, mib) in files.iter().zip([512, 24, 512]) {
        make(context, file, mib)?;
    }
    let [large, small, more] = [0, 1, 2].map(|index| files[index].to_string_lossy().into_owned());
    let launch = Launch::new(context, "areas-drain-waits", &context.torture)
        .args(["stores", "--seconds", "12", "--dir"])
        .args([&context.scratch])
        .ram(RAM_BYTES)
        .swap(&files[0])
        .options(["--max-pool-percent", "0", "--on-full", "kill"])
        .timeout(240);
    let running = launch.start()?;
    let run = running.pid();
    let outcome = running.program_pid().and_then(|_| {
        std::thread::sleep(Duration::from_secs(2));
        obeyed(context, run, &["add", &small])?;
        let drained = std::thread::scope(|scope| {
            let drained = scope.spawn(|| order(context, run, &["drain", &large]));
            std::thread::sleep(Duration::from_secs(4));
            let is_early = drained.is_finished();
            let added = obeyed(context, run, &["add", &more]);
            let drained = drained.join().expect("it does not panic")?;
            added?;
            ensure!(!is_early, "it ended without room: {}", said(&drained));
            Ok(drained)
        })?;
        ensure!(drained.status.success(), "{}", said(&drained));
        ensure!(
            said(&drained).contains("have no room for them"),
            "not what it waits for: {}",
            said(&drained)
        );
        let (usable, told) = info(context, &files[0])?;
        ensure!(usable, "it was left, and is in use: {told}");
        Ok(())
    });
    let finished = running.finish();
    outcome?;
    finished?.succeeded()?.paged()?;
    files.iter().try_for_each(std::fs::remove_file).map_err(|error| error.to_string())
}

/// What cannot be read stays where it is. The order says that it was not carried out, and of how
/// many pages; the run says the same.
///
/// *The story:* it said that nothing was left there, with status 0.
fn unreadable_pages_stay(context: &Context) -> Outcome {
    let disk = FaultyDisk::new(context, "areas-unreadable", &["--bad-block-every", "8000"])?;
    let (first, end) = (disk.directory.to_string_lossy(), context.path("areas-unreadable-end"));
    let other = format!("{}:prio=5", context.swap.display());
    let launch = Launch::new(context, "areas-unreadable", "python3")
        .args(["-c", FILLER, &end.to_string_lossy()])
        .ram(RAM_BYTES)
        .swap(format!("{first}:prio=9"))
        .options(["--swap", &other, "--max-pool-percent", "0"])
        .timeout(60);
    let output = launch.stdout_path();
    let running = launch.start()?;
    let drained =
        await_word(&output, "full").and_then(|()| order(context, running.pid(), &["drain", &first]));
    let ended = std::fs::write(&end, "").map_err(|error| error.to_string());
    let finished = running.finish();
    let (drained, finished) = (drained?, finished?);
    ended.and_then(|()| std::fs::remove_file(&end).map_err(|error| error.to_string()))?;
    finished.succeeded()?.paged()?;
    let said = said(&drained);
    ensure!(drained.status.code() == Some(125), "status {}: {said}", drained.status);
    let count = said.split_once(" pages cannot be read").and_then(|(before, _)| before.rsplit(' ').next());
    let count = count.ok_or_else(|| format!("not how many pages stay: {said}"))?;
    let by_the_run = format!(" {count} pages of a place that is to be left cannot be read");
    ensure!(count != "0" && finished.stderr.contains(&by_the_run), "{}", finished.complain(&said));
    Ok(())
}

/// Without a signature it is refused and not touched; with mkswap's, or by `--erase`, it serves.
fn device(context: &Context) -> Outcome {
    let disk = LoopDevice::new(context, "areas-device.img", 512)?;
    let cold = |options: &[&str]| {
        Launch::new(context, "areas-device", &context.torture)
            .args(["cold", "--seconds", "2", "--expect-cold", "--dir"])
            .args([&context.scratch])
            .ram(RAM_BYTES)
            .swap(&disk.device)
            .options(options)
            .timeout(240)
            .run()
    };
    let refused = cold(&[])?;
    refused.exited(125)?;
    ensure!(refused.stderr.contains("no swap signature"), "{}", refused.complain("another reason"));
    ensure!(disk.taken_bytes()? == 0, "a foreign device was written to");
    administer("mkswap", &[&disk.device])?;
    cold(&[])?.succeeded()?.paged()?;
    let (usable, told) = info(context, Path::new(&disk.device))?;
    ensure!(usable, "after the run: {told}");
    // What is somebody's again is taken by force only.
    administer("mkfs.ext4", &["-q", "-F", &disk.device])?;
    cold(&[])?.exited(125)?;
    cold(&["--erase"])?.succeeded()?.paged()?;
    Ok(())
}

/// A program that is near its budget and does not page yet has its places open, and leaves them, too.
///
/// *The story:* its agent was not asked: the place was said to be left, and nobody else could have it.
fn left_before_paging(context: &Context) -> Outcome {
    // It may begin to manage at 187 MiB, and makes ready at three quarters of that.
    const FILLS: &str = "import time; memory = bytearray(150 << 20); time.sleep(30)";
    let files = ["areas-near", "areas-far"].map(|name| context.path(name));
    files.iter().try_for_each(|file| make(context, file, 16))?;
    let launch = Launch::new(context, "areas-left-before", "python3").args(["-c", FILLS]);
    let running = launch.ram(256 * MIB).swap(&files[0]).start()?;
    let (run, pid) = (running.pid(), running.program_pid()?);
    let outcome = (|| {
        let until = Instant::now() + Duration::from_secs(20);
        while info(context, &files[0])?.0 {
            ensure!(Instant::now() < until, "nobody opens it");
            std::thread::sleep(Duration::from_millis(20));
        }
        let [near, far] = [0, 1].map(|index| files[index].to_string_lossy().into_owned());
        obeyed(context, run, &["add", &far])?;
        obeyed(context, run, &["drain", &near])?;
        let (usable, told) = info(context, &files[0])?;
        ensure!(usable, "it was left, and is in use: {told}");
        Ok(())
    })();
    proc::kill(pid, libc::SIGTERM);
    let finished = running.finish()?;
    outcome?;
    let out = crate::json::number(finished.report()?, "pswpout")?;
    ensure!(out == 0, "{}", finished.complain("it paged: this shows nothing"));
    files.iter().try_for_each(std::fs::remove_file).map_err(|error| error.to_string())
}

/// Two programs that page at a time: the device is the first one's, the other has a file.
///
/// *The story:* the second got EBUSY in place of EAGAIN, and ran without a budget.
fn device_of_two(context: &Context) -> Outcome {
    const FILLED: &str = "
import random, time
noise = random.Random(7).randbytes(1 << 20)
memory = [bytearray(noise) for _ in range(80)]
time.sleep(1)
assert all(part == noise for part in memory)
";
    let disk = LoopDevice::new(context, "areas-device-of-two.img", 512)?;
    administer("mkswap", &[&disk.device])?;
    let script = "python3 -c \"$0\" & first=$!; python3 -c \"$0\" && wait $first";
    let launch = Launch::new(context, "areas-device-of-two", "/bin/sh").args(["-c", script, FILLED]);
    let finished = launch.ram(RAM_BYTES).swap(&disk.device).timeout(240).run()?;
    finished.succeeded()?.paged()?;
    let report = finished.report()?;
    ensure!(report["managed"] == true, "{}", finished.complain(&format!("managed: {}", report["managed"])));
    Ok(())
}

/// Takes 256 MiB, most of which goes out, and gives it back; what it does it tells, and then waits.
const PROGRAM: &str = "
import sys, time, random
def say(word):
    print(word, flush=True)
    time.sleep(3)
noise = random.Random(7).randbytes(1 << 20)
memory = bytearray(256 << 20)
for at in range(0, len(memory), len(noise)): memory[at:at + len(noise)] = noise
say('full')
assert memory.count(noise) == 256
del memory
say('freed')
";

/// Waits until the program has said it.
fn await_word(output: &Path, word: &str) -> Outcome {
    let until = Instant::now() + Duration::from_secs(30);
    while !std::fs::read_to_string(output).is_ok_and(|text| text.contains(word)) {
        ensure!(Instant::now() < until, "the program did not say `{word}`");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs the program; the bytes that are taken on the disk when its memory is full, and after.
fn taken(launch: Launch<'_>, bytes: impl Fn(u32) -> Outcome<u64>) -> Outcome<(u64, u64)> {
    let launch =
        launch.args(["-c", PROGRAM]).ram(RAM_BYTES).options(["--max-pool-percent", "0"]).timeout(180);
    let output = launch.stdout_path();
    let running = launch.start()?;
    let program = running.program_pid()?;
    let at = |word: &str| {
        await_word(&output, word)?;
        // What was ordered is done a little later.
        std::thread::sleep(Duration::from_secs(2));
        bytes(program)
    };
    let figures = at("full").and_then(|full| Ok((full, at("freed")?)));
    running.finish()?.succeeded()?.paged()?;
    figures
}

/// 16 clusters of 2 MiB are kept for the next pages.
fn expect_given_back((full, freed): (u64, u64)) -> Outcome {
    let (full, freed) = (full / MIB, freed / MIB);
    ensure!(full > 150, "only {full} MiB were written");
    ensure!(freed < 60, "of {full} MiB {freed} are still taken after the memory was freed");
    Ok(())
}

fn discards(context: &Context, options: &[&str]) -> Outcome {
    let disk = LoopDevice::new(context, "areas-discards.img", 512)?;
    administer("mkswap", &[&disk.device])?;
    let launch = Launch::new(context, "areas-discards", "python3").swap(&disk.device).options(options);
    expect_given_back(taken(launch, |_| disk.taken_bytes())?)
}

/// The same of a file without a name.
fn file_discards(context: &Context) -> Outcome {
    let launch = Launch::new(context, "areas-file-discards", "python3");
    expect_given_back(taken(launch, |program| {
        let files = proc::nameless_files(program, &context.swap);
        taken_bytes(files.first().ok_or("no file to page to is open")?)
    })?)
}
