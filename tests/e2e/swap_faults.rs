//! Swap that is full, fails or is slow. Real errors of real system calls: from a small ext4 on a
//! loop device, and from `overspill-faultyfs`, a file system that fails when told to. (The device
//! mapper's error targets would do as well, but many kernels are built without it.)

use std::path::Path;
use std::time::{Duration, Instant};

use crate::again::Verdict;
use crate::context::Context;
use crate::launch::{Finished, Launch, MIB};
use crate::scratch::{FaultyDisk, SmallDisk};
use crate::tree_sampler::anonymous;
use crate::{Outcome, Test, ensure, json, packages, proc};

const RAM_BYTES: u64 = 64 * MIB;

/// What the stores write before a write fails, in bytes; on an emulated machine they write 20 MiB
/// in all.
const WRITTEN: &str = "62914560";
const WRITTEN_BESIDE_POOL: &str = "2097152";

/// Small enough that most is written back, and fails or finds no room there.
const POOL: [&str; 3] = ["--fixed-pool", "--max-pool-percent", "10"];

/// The stores' pages compress to a fiftieth: of them, too, most are written back from this one.
///
/// *The story:* they fitted into a tenth of the budget, nothing was written, and no write failed.
const TINY_POOL: [&str; 3] = ["--fixed-pool", "--max-pool-percent", "1"];

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("swap::full-disk", full_disk),
        Test::new("swap::full-disk-strict", full_disk_strict),
        Test::new("swap::full-limit", full_limit),
        Test::new("swap::full-limit-strict", full_limit_strict),
        Test::new("swap::full-file-system", full_file_system),
        Test::new("swap::file", named_file),
        Test::new("swap::write-error", |context| write_error(context, "default", &[], WRITTEN)),
        Test::new("swap::write-error-no-uring", |context| {
            write_error(context, "no-uring", &["--no-uring"], WRITTEN)
        }),
        Test::new("swap::write-error-no-move", |context| {
            write_error(context, "no-move", &["--no-move"], WRITTEN)
        }),
        Test::new("swap::write-error-strict", write_error_strict),
        Test::new("swap::read-error", |context| read_error(context, "default", &[])),
        Test::new("swap::read-error-no-uring", |context| read_error(context, "no-uring", &["--no-uring"])),
        Test::new("swap::read-error-no-move", |context| read_error(context, "no-move", &["--no-move"])),
        Test::new("swap::full-limit-pool", full_limit_pool),
        Test::new("swap::write-error-pool", |context| {
            write_error(context, "pool", &TINY_POOL, WRITTEN_BESIDE_POOL)
        }),
        Test::new("swap::read-error-pool", |context| read_error(context, "pool", &POOL)),
        Test::new("swap::write-error-encrypt", |context| {
            write_error(context, "encrypt", &["--encrypt"], WRITTEN)
        }),
        Test::new("swap::read-error-encrypt", |context| read_error(context, "encrypt", &["--encrypt"])),
        Test::new("swap::full-limit-encrypt", |context| {
            let options = ["--encrypt", "--swap-max", "40M"];
            expect_full(&torture(context, "full-limit-encrypt", "stores").options(options).run()?)
        }),
        Test::new("swap::full-disk-beside-another", full_disk_beside_another),
        Test::new("swap::write-error-beside-another", write_error_beside_another),
        Test::new("swap::swap-max-beside-another", swap_max_beside_another),
        Test::new("swap::short-reads", |context| short(context, "reads")),
        Test::new("swap::short-writes", |context| short(context, "writes")),
        Test::new("swap::lies", lies),
        Test::new("swap::lies-believed", lies_believed),
        Test::new("swap::lies-pool", |context| lie(context, "pool", "--flip-reads-after", &POOL)),
        Test::new("swap::full-disk-freed", full_disk_freed),
        Test::new("swap::full-fork", full_fork),
        Test::new("swap::write-error-fork", write_error_fork),
        Test::new("swap::busy", |context| busy(context, "default", &[])),
        Test::new("swap::busy-no-uring", |context| busy(context, "no-uring", &["--no-uring"])),
        Test::new("swap::slow", slow),
    ]
}

fn torture<'a>(context: &'a Context, name: &str, subtest: &str) -> Launch<'a> {
    Launch::new(context, format!("swap-{name}"), &context.torture)
        .args([subtest, "--seconds", "3", "--dir"])
        .args([&context.scratch])
        .ram(RAM_BYTES)
        .timeout(240)
}

/// A line of standard error that has all the words; at most two, as the summary may say again what
/// was warned of.
fn warned_once(finished: &Finished, words: &[&str]) -> Outcome {
    let warning = |line: &&str| {
        let line = line.to_lowercase();
        words.iter().all(|word| line.contains(word))
    };
    // The command to try next comes last, names the place, and may take several lines.
    let said = finished.stderr.lines().take_while(|line| !line.contains("next  "));
    let count = said.filter(warning).count();
    ensure!((1..=2).contains(&count), "{}", finished.complain(&format!("{count} warnings about {words:?}")));
    Ok(())
}

fn expect_full(finished: &Finished) -> Outcome {
    finished.succeeded()?.paged()?;
    ensure!(
        json::flag(finished.report()?, "swap_full")?,
        "{}",
        finished.complain("swap_full is not in the report")
    );
    warned_once(finished, &["swap", "full"])
}

fn expect_strict(finished: &Finished) -> Outcome {
    finished.exited(125)?;
    let reason = finished.stderr.to_lowercase();
    ensure!(
        reason.contains("swap") && reason.contains("full"),
        "{}",
        finished.complain("the reason is not said")
    );
    let output = std::fs::read(&finished.stdout).map_err(|error| error.to_string())?;
    ensure!(output.is_empty(), "{}", finished.complain("there is something on standard output"));
    Ok(())
}

fn full_disk(context: &Context) -> Outcome {
    let disk = SmallDisk::new(context, "swap-full-disk", 80)?;
    expect_full(&torture(context, "full-disk", "cold").swap(&disk.directory).run()?)?;
    ensure!(disk.names().is_empty(), "left in the swap directory: {:?}", disk.names());
    Ok(())
}

/// *The story:* 250 MiB of the file system were free again, and the program stayed 80 MiB above its budget
/// until it ended.
fn full_disk_freed(context: &Context) -> Outcome {
    let disk = SmallDisk::new(context, "swap-full-disk-freed", 240)?;
    let filler = disk.directory.join("filler");
    let running = Launch::new(context, "swap-full-disk-freed", &context.torture)
        .args(["stores", "--seconds", "40", "--dir"])
        .args([&context.scratch])
        .options(["--max-pool-percent", "0"])
        .ram(RAM_BYTES)
        .swap(&disk.directory)
        .timeout(240)
        .start()?;
    let program = running.program_pid()?;
    // As far as it goes.
    let _ = std::fs::write(&filler, vec![1; 170 << 20]);
    let held = || anonymous(program);
    let begun = Instant::now();
    while held() < RAM_BYTES * 5 / 4 && begun.elapsed().as_secs() < 20 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let full = held();
    std::fs::remove_file(&filler).map_err(|error| error.to_string())?;
    let begun = Instant::now();
    while held() > RAM_BYTES * 9 / 8 && begun.elapsed().as_secs() < 15 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (freed, still) = (held(), proc::is_running(program));
    proc::kill(program, libc::SIGTERM);
    let finished = running.finish()?;
    ensure!(finished.stderr.contains("swap is full"), "{}", finished.complain("not told"));
    let is_right = full >= RAM_BYTES * 5 / 4 && freed <= RAM_BYTES * 9 / 8 && still;
    ensure!(is_right, "{} MiB, then {}; it was still at work: {still}", full / MIB, freed / MIB);
    Ok(())
}

fn full_disk_strict(context: &Context) -> Outcome {
    let disk = SmallDisk::new(context, "swap-full-disk-strict", 80)?;
    let launch = torture(context, "full-disk-strict", "cold").swap(&disk.directory).options(["--strict"]);
    expect_strict(&launch.run()?)?;
    ensure!(disk.names().is_empty(), "left in the swap directory: {:?}", disk.names());
    Ok(())
}

fn full_limit(context: &Context) -> Outcome {
    expect_full(&torture(context, "full-limit", "cold").options(["--swap-max", "40M"]).run()?)?;
    // Threads meet the limit too.
    expect_full(&torture(context, "full-limit-stores", "stores").options(["--swap-max", "40M"]).run()?)
}

/// *The story:* pages in the pool had all slots. Nothing was written, what fitted nowhere stayed in
/// RAM beside the pool, and the run said that it passed its budget, but not that swap was full.
fn full_limit_pool(context: &Context) -> Outcome {
    let options = ["--swap-max", "40M"].iter().chain(&POOL);
    let finished = torture(context, "full-limit-pool", "stores").options(options).run()?;
    expect_full(&finished)?;
    let written = json::number(finished.report()?, "pswpout")?;
    ensure!(written > 0, "{}", finished.complain("slots were used up, and none was ever written to"));
    Ok(())
}

fn full_limit_strict(context: &Context) -> Outcome {
    expect_strict(
        &torture(context, "full-limit-strict", "cold").options(["--swap-max", "40M", "--strict"]).run()?,
    )
}

fn full_file_system(context: &Context) -> Outcome {
    let disk = FaultyDisk::new(context, "swap-full-file-system", &["--capacity", "75497472"])?;
    expect_full(&torture(context, "full-file-system", "cold").swap(&disk.directory).run()?)
}

/// What a child inherits stays on a disk that is full by then, whatever its parent gives back. *The story:*
/// that was punched out of the file under it, and the child lost it (SIGBUS).
fn full_fork(context: &Context) -> Outcome {
    const FORK: &str = "import hashlib, mmap, os, sys, time
def fill(mib):
    part = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, mib << 20, 1 << 20):
        part[at:at + (1 << 20)] = os.urandom(1 << 20)
    return part
def digest():
    view = memoryview(data)
    return hashlib.sha1(view).digest()
data = fill(110)
expected = digest()
file = open(sys.argv[1], 'wb', buffering=0)
try:
    while file.write(bytes(1 << 20)):
        pass
except OSError:
    pass
more = fill(30)
child = os.fork()
if child == 0:
    time.sleep(2)
    os._exit(0 if digest() == expected else 1)
data.madvise(mmap.MADV_DONTNEED)
os._exit(0 if os.waitpid(child, 0)[1] == 0 else 1)
";
    let disk = SmallDisk::new(context, "swap-full-fork", 250)?;
    let python = packages::program("python3", "python3")?;
    let file = disk.directory.join("filler");
    let launch = Launch::new(context, "swap-full-fork", python)
        .args(["-c", FORK])
        .args([&file])
        .swap(&disk.directory)
        .ram(40 * MIB);
    let finished = launch.run()?;
    finished.succeeded()?.paged()?;
    let is_full = json::flag(finished.report()?, "swap_full")?;
    ensure!(is_full, "{}", finished.complain("the disk did not get full before the fork"));
    Ok(())
}

/// A place has failed, and what is there is brought elsewhere, when the program forks.
///
/// *The story:* the child inherited what was still there and did not know. It stayed on the bad device for
/// as long as the child lived.
fn write_error_fork(context: &Context) -> Outcome {
    const FORK: &str = "import hashlib, mmap, os, sys, time
def taken():
    about = os.statvfs(sys.argv[1])
    return (about.f_blocks - about.f_bfree) * about.f_frsize
data = mmap.mmap(-1, 72 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
expected = hashlib.sha1()
for at in range(0, len(data), 1 << 20):
    piece = os.urandom(1 << 20)
    data[at:at + (1 << 20)] = piece
    expected.update(piece)
time.sleep(0.3)
there = taken()
child = os.fork()
end = time.monotonic() + 20
while taken() > 0 and time.monotonic() < end:
    time.sleep(0.1)
if child == 0:
    view = memoryview(data)
    same = hashlib.sha1(view).digest() == expected.digest()
    os._exit((not same) * 2 + (taken() > 0))
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(there >> 10, status, file=sys.stderr)
sys.exit(3 if there < 4 << 20 else status)
";
    let options = ["--fail-writes-after", "20971520", "--delay-us", "10000"];
    let disk = FaultyDisk::new(context, "swap-write-error-fork", &options)?;
    let python = packages::program("python3", "python3")?;
    let launch = Launch::new(context, "swap-write-error-fork", python)
        .args(["-c", FORK])
        .args([&disk.directory])
        .swap(format!("{}:prio=9", disk.directory.display()))
        .ram(40 * MIB);
    let other = format!("{}:prio=5", context.scratch.display());
    let finished = launch.options(["--swap", &other, "--max-pool-percent", "0"]).run()?;
    finished.succeeded()?.paged()?;
    warned_once(&finished, &["write", "go to the others"])
}

/// *A review's story:* what the pool had to write found no room, and swap was called full although
/// another place was empty.
fn full_disk_beside_another(context: &Context) -> Outcome<Verdict> {
    let disk = FaultyDisk::new(context, "swap-full-disk-beside", &["--quota", "65536"])?;
    let finished = beside_another(context, "full-disk-beside", &disk.directory)?;
    ensure!(
        !json::flag(finished.report()?, "swap_full")?,
        "{}",
        finished.complain("the other place has room")
    );
    finished.within_budget()
}

/// As above, with a device that fails.
fn write_error_beside_another(context: &Context) -> Outcome<Verdict> {
    let disk = FaultyDisk::new(context, "swap-write-error-beside", &["--fail-writes-after", "65536"])?;
    let finished = beside_another(context, "write-error-beside", &disk.directory)?;
    warned_once(&finished, &["write", "go to the others"])?;
    let states: Vec<_> =
        finished.report()?["places"].as_array().into_iter().flatten().map(|it| &it["state"]).collect();
    ensure!(states == ["failed", "open"], "{states:?}");
    finished.within_budget()
}

/// *The story:* what bounds all places was given to the first one whole. The second was never opened,
/// whatever its priority, and stood in for nobody.
fn swap_max_beside_another(context: &Context) -> Outcome<Verdict> {
    let disk = FaultyDisk::new(context, "swap-max-beside", &["--fail-writes-after", "65536"])?;
    let launch = torture(context, "max-beside", "stores")
        .swap(format!("{}:prio=5", context.scratch.display()))
        .options(["--swap", &format!("{}:prio=9", disk.directory.display())])
        .options(["--max-pool-percent", "0", "--swap-max", "400M"]);
    let finished = launch.run()?;
    finished.succeeded()?.paged()?;
    warned_once(&finished, &["write", "go to the others"])?;
    finished.within_budget()
}

/// Two places, of which the first one fails early.
fn beside_another(context: &Context, name: &str, first: &Path) -> Outcome<Finished> {
    let launch = torture(context, name, "stores").swap(format!("{}:prio=9", first.display()));
    let other = format!("{}:prio=5", context.scratch.display());
    // Of the stores' pages some fit: what is written first is of the pool.
    let pool = ["--fixed-pool", "--max-pool-percent", "2"];
    let finished = launch.options(["--swap", &other]).options(pool).run()?;
    finished.succeeded()?.paged()?;
    Ok(finished)
}

/// `--swap FILE`: used, and gone afterwards.
fn named_file(context: &Context) -> Outcome<Verdict> {
    let file = context.path("named.swap");
    let finished = torture(context, "file", "cold").args(["--expect-cold"]).swap(&file).run()?;
    let verdict = finished.succeeded()?.paged()?.within_budget()?;
    ensure!(!file.exists(), "{} is still there", file.display());
    Ok(verdict)
}

/// Pages stay in RAM, the area is retired, one warning, the right result. The first so many bytes
/// that the stores write succeed; those of the other subtest are fewer.
fn write_error(context: &Context, way: &str, options: &[&str], after_of_stores: &str) -> Outcome {
    let after_of_stores = if context.slow { WRITTEN_BESIDE_POOL } else { after_of_stores };
    for (after, subtest) in [("20971520", "cold"), (after_of_stores, "stores")] {
        let name = format!("swap-write-error-{way}-{subtest}");
        let disk = FaultyDisk::new(context, &name, &["--fail-writes-after", after])?;
        let launch = torture(context, &format!("write-error-{way}-{subtest}"), subtest);
        let finished = launch.swap(&disk.directory).options(options).run()?;
        finished.succeeded()?.paged()?;
        let written = json::number(finished.report()?, "pswpout")?;
        ensure!(written > 0, "{}", finished.complain("nothing was written, so nothing can have failed"));
        warned_once(&finished, &["swap", "writ"])?;
    }
    Ok(())
}

/// *The story:* `--strict` ended a program whose only place was full, and let one go on whose only place
/// had failed: it grew until the kernel ended it. With the pool, too, whose writes fail first.
fn write_error_strict(context: &Context) -> Outcome {
    let after = if context.slow { WRITTEN_BESIDE_POOL } else { WRITTEN };
    for (way, pool, after) in
        [("alone", &["--max-pool-percent", "0"][..], after), ("pool", &TINY_POOL, WRITTEN_BESIDE_POOL)]
    {
        let name = format!("write-error-strict-{way}");
        let disk = FaultyDisk::new(context, &format!("swap-{name}"), &["--fail-writes-after", after])?;
        let launch = torture(context, &name, "stores").swap(&disk.directory).options(["--strict"]);
        let finished = launch.options(pool).run()?;
        expect_strict(&finished)?;
        warned_once(&finished, &["write to swap failed"])?;
    }
    Ok(())
}

/// The program dies by SIGBUS at that page, and the reason is said.
fn read_error(context: &Context, way: &str, options: &[&str]) -> Outcome {
    let disk =
        FaultyDisk::new(context, &format!("swap-read-error-{way}"), &["--fail-reads-after", "8388608"])?;
    let launch =
        torture(context, &format!("read-error-{way}"), "cold").swap(&disk.directory).options(options);
    let finished = launch.run()?;
    finished.killed_by(libc::SIGBUS)?;
    let reason = finished.stderr.to_lowercase();
    ensure!(
        reason.contains("swap") && reason.contains("read"),
        "{}",
        finished.complain("the reason is not said")
    );
    Ok(())
}

/// *The story:* what a device gave back was believed: a wrong bit, the bytes of another place, or
/// those of before a write that it had only said to have done, were the program's memory.
fn lies(context: &Context) -> Outcome {
    let kinds =
        ["--flip-reads-after", "--misplace-reads-after", "--forget-writes-after", "--tear-writes-after"];
    kinds.into_iter().try_for_each(|kind| lie(context, kind.trim_start_matches('-'), kind, &[]))
}

/// A device that lies: the program dies by SIGBUS at that page, and the reason is said; the subtest
/// never sees a wrong word.
fn lie(context: &Context, name: &str, kind: &str, options: &[&str]) -> Outcome {
    let disk = FaultyDisk::new(context, &format!("swap-lie-{name}"), &[kind, "8388608"])?;
    let launch = torture(context, &format!("lie-{name}"), "cold").swap(&disk.directory).options(options);
    let finished = launch.run()?;
    finished.killed_by(libc::SIGBUS)?;
    ensure!(
        finished.stderr.contains("not what was written"),
        "{}",
        finished.complain("the reason is not said")
    );
    Ok(())
}

/// `--no-checksum`: what a device gives back is believed, and the subtest sees it. What it does not
/// give back is lost as ever, and that is all that the option changes.
fn lies_believed(context: &Context) -> Outcome {
    let believing = |name: &str, options: &[&str]| {
        let disk = FaultyDisk::new(context, &format!("swap-{name}"), options)?;
        let launch = torture(context, name, "cold").args(["--mib", "80"]).swap(&disk.directory);
        launch.options(["--no-checksum", "--max-pool-percent", "0"]).run()
    };
    believing("honest", &[])?.succeeded()?.paged()?;
    let failing = believing("unread", &["--fail-reads-after", "8388608"])?;
    failing.killed_by(libc::SIGBUS)?;
    let lying = believing("believed", &["--flip-reads-after", "8388608"])?;
    lying.exited(1)?;
    let is_seen = lying.stderr.contains("FAILED cold") && !lying.stderr.contains("not what was written");
    ensure!(is_seen, "{}", lying.complain("the program did not see what the device gave back"));
    Ok(())
}

/// A file system may do a part of what it is asked for. The rest is asked for again: the program
/// finds what it wrote, and nothing is said to have failed or to be full.
fn short(context: &Context, what: &str) -> Outcome {
    let name = format!("short-{what}");
    let disk = FaultyDisk::new(context, &format!("swap-{name}"), &[&format!("--short-{what}-every"), "3"])?;
    let launch = torture(context, &name, "cold").args(["--mib", "80"]).swap(&disk.directory);
    // A checksum would mend a read that is taken for a whole one: it is read again.
    let options = ["--max-pool-percent", "0", "--no-checksum", "--no-uring"];
    let finished = launch.options(options).run()?;
    let report = finished.succeeded()?.paged()?.report()?;
    let is_well = !json::flag(report, "swap_full")? && !json::happened(report, "write_error");
    ensure!(is_well, "{}", finished.complain("it is said to be full, or to have failed"));
    Ok(())
}

/// A device of three milliseconds: slow, but right, and within the budget.
fn slow(context: &Context) -> Outcome<Verdict> {
    let disk = FaultyDisk::new(context, "swap-slow", &["--delay-us", "3000"])?;
    for subtest in ["cold", "stores", "advice-race"] {
        let launch = torture(context, &format!("slow-{subtest}"), subtest).swap(&disk.directory).timeout(240);
        let verdict = launch.run()?.succeeded()?.paged()?.within_budget()?;
        if verdict.is_excess() {
            return Ok(verdict);
        }
    }
    Ok(Verdict::default())
}

/// *The story:* for a second and a half the kernel could not read or write the place (EAGAIN, ENOMEM). After
/// ten tries in as many milliseconds the place was given up, or a page was lost, for ever.
fn busy(context: &Context, way: &str, options: &[&str]) -> Outcome {
    for after in ["20971520", "104857600"] {
        let name = format!("busy-{way}-{after}");
        let faults = ["--busy-after", after, "--busy-ms", "1500"];
        let disk = FaultyDisk::new(context, &format!("swap-{name}"), &faults)?;
        let launch = torture(context, &name, "cold").args(["--mib", "80"]).swap(&disk.directory);
        let finished = launch.options(["--max-pool-percent", "0"]).options(options).run()?;
        let report = finished.succeeded()?.paged()?.report()?;
        let is_well = !json::flag(report, "swap_full")? && !json::happened(report, "write_error");
        ensure!(is_well, "{}", finished.complain("it is said to be full, or to have failed"));
        // Else nothing was refused.
        ensure!(finished.wall.as_millis() > 1500, "{}", finished.complain("nothing waited"));
    }
    Ok(())
}
