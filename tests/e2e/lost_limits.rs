//! Limits that were lost without a word: what a whole tree holds with swap full, what a memory cgroup
//! gives, pages of hugetlbfs, areas that another user may not open, and the program's own limits on
//! memory and files.

use std::collections::BTreeSet;
use std::path::Path;

use crate::again::Verdict;
use crate::context::Context;
use crate::launch::{Finished, Launch, MIB};
use crate::scratch::MemoryCgroup;
use crate::swap_areas::make;
use crate::trees::{kind, text, worker};
use crate::{Outcome, Test, ensure, packages};

const LIMITED: &str = include_str!("trees/limited.c");
const PROCESSOR: &str = include_str!("trees/processor.c");
const SPLIT: &str = include_str!("trees/split.c");
const SHORT_FILES: &str = include_str!("trees/short_files.c");
const HUGE: &str = include_str!("trees/huge.c");
const SEALED: &str = include_str!("trees/sealed.c");
const JAIL: &str = include_str!("trees/jail.c");
const LOCKED: &str = include_str!("trees/locked.c");
const UNMAPPED: &str = include_str!("trees/unmapped.c");
const BESIDE: &str = include_str!("trees/beside.c");

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("limits::sealed", sealed_memory),
        Test::new("limits::full-tree", full_tree),
        Test::new("limits::full-in-a-group", full_in_a_group),
        Test::new("limits::share-of-a-group", share_of_a_group),
        Test::new("limits::ended-in-a-group", ended_in_a_group),
        Test::new("limits::huge-pages", huge_pages),
        Test::new("limits::locked", locked),
        Test::new("limits::shared-unmapped", shared_unmapped),
        Test::new("limits::shared-leaves-less", shared_leaves_less),
        Test::new("limits::areas-of-another-user", areas_of_another_user),
        Test::new("limits::address-space", address_space),
        Test::new("limits::address-space-from-outside", address_space_from_outside),
        Test::new("limits::address-space-large", address_space_large),
        Test::new("limits::data", data),
        Test::new("limits::processor", processor),
        Test::new("limits::processor-of-children", processor_of_children),
        Test::new("limits::processor-beside-children", processor_beside_children),
        Test::new("limits::small-mappings", small_mappings),
        Test::new("limits::length-of-files", length_of_files),
        Test::new("limits::covered-directory", covered_directory),
        Test::new("limits::another-root", another_root),
    ]
}

/// *The story:* four processes of 15 MiB each went above the 25 MiB that they share. None of them held
/// more than that by itself, so nothing was said, and nobody looked what the machine had left.
fn full_tree(context: &Context) -> Outcome {
    let worker = worker(context, "limits-worker", &[])?;
    let finished = Launch::new(context, "limits-full-tree", "/bin/sh")
        // Long enough that all four are there at the same time.
        .args(["-c", "for n in 1 2 3 4; do $0 15 100 & done; wait", &text(&worker)])
        .ram(25 * MIB)
        .options(["--swap-max", "4M", "--max-pool-percent", "0"])
        .timeout(180)
        .run()?;
    finished.succeeded()?;
    ensure!(kind(finished.report()?) == "swap_full", "{}", finished.complain(kind(finished.report()?)));
    let told: Vec<&str> = finished.stderr.lines().filter(|line| line.contains("% more than")).collect();
    ensure!((3..=16).contains(&told.len()), "{}", finished.complain(&format!("told: {told:?}")));
    let different: BTreeSet<&&str> = told.iter().collect();
    ensure!(different.len() == told.len(), "{}", finished.complain(&format!("told twice: {told:?}")));
    Ok(())
}

/// *The story:* in a container the bound was what the host has, and the kernel ended what it liked.
fn full_in_a_group(context: &Context) -> Outcome {
    let cgroup = MemoryCgroup::new("limits-full", 512 * MIB)?;
    let worker = worker(context, "limits-worker", &[])?;
    let finished = Launch::new(context, "limits-full-in-a-group", worker)
        .args(["800", "2"])
        .ram(64 * MIB)
        .options(["--swap-max", "16M", "--max-pool-percent", "0"])
        .cgroup(&cgroup.directory)
        .timeout(180)
        .run()?;
    finished.exited(125)?;
    ensure!(kind(finished.report()?) == "strict_ended", "{}", finished.complain(kind(finished.report()?)));
    let kills = cgroup.kills()?;
    ensure!(kills == 0, "{}", finished.complain(&format!("the kernel killed {kills} for lack of memory")));
    Ok(())
}

/// *The story:* of sealed memory, which cannot leave, each page was copied again and again, and nobody
/// said why the budget was passed.
fn sealed_memory(context: &Context) -> Outcome {
    let program = packages::compile(context, "sealed", SEALED, &[])?;
    let finished = Launch::new(context, "limits-sealed", program).ram(48 * MIB).timeout(60).run()?;
    finished.succeeded()?;
    let is_sealed = std::fs::read_to_string(&finished.stdout).is_ok_and(|said| said == "sealed\n");
    let is_said = finished.stderr.contains("of sealed memory (mseal) stay in RAM");
    ensure!(is_said == is_sealed, "{}", finished.complain("what is sealed is to be said, and nothing else"));
    Ok(())
}

/// Shares are of what the group gives, and what is more than that is noted.
fn share_of_a_group(context: &Context) -> Outcome {
    let cgroup = MemoryCgroup::new("limits-share", 200 * MIB)?;
    let overspill = context.overspill_command().get_program().to_owned();
    let run = |ram: &str| -> Outcome<(Finished, u64)> {
        let json = context.path("limits-share.report");
        let finished = Launch::new(context, "limits-share", &overspill)
            .args(["run", "--ram", ram, "--json", &text(&json), "--", "true"])
            .cgroup(&cgroup.directory)
            .timeout(60)
            .run()?;
        finished.succeeded()?;
        let report = std::fs::read(&json).map_err(|error| error.to_string())?;
        let report: serde_json::Value = serde_json::from_slice(&report).map_err(|error| error.to_string())?;
        Ok((finished, report["ram_bytes"].as_u64().unwrap_or(0)))
    };
    let (_, half) = run("50%")?;
    ensure!(half == 100 * MIB, "50 % of a group of 200 MiB are {half} bytes");
    let (finished, _) = run("300M")?;
    let said = finished.stderr.contains("more than what this memory cgroup gives, 200.0 MiB");
    ensure!(said, "{}", finished.complain("nothing was said of 300 MiB in a group of 200"));
    Ok(())
}

/// *The story:* a run in a budget of 200 MiB was ended, as its group gives 100. The same was proposed again.
/// In a group below the one with the limit nothing was said of it at all.
fn ended_in_a_group(context: &Context) -> Outcome {
    let cgroup = MemoryCgroup::new("limits-ended", 100 * MIB)?;
    let inner = cgroup.directory.join("inner");
    std::fs::create_dir(&inner).map_err(|error| format!("{}: {error}", inner.display()))?;
    let overspill = context.overspill_command().get_program().to_owned();
    let line = "head -c 300M /dev/zero | tail -c 299M | wc -c; exit 3";
    let run = Launch::new(context, "limits-ended", &overspill)
        .args(["run", "--ram", "200M", "--", "sh", "-c", line])
        .cgroup(&inner)
        .timeout(60)
        .run();
    for _ in 0..100 {
        if std::fs::remove_dir(&inner).is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let finished = run?;
    let said = finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = said.contains("the kernel ended 1 process, as the memory cgroup (100.0 MiB) was full");
    ensure!(told, "{}", finished.complain("nothing is said of who was ended"));
    let proposed = said.split("next overspill run --ram ").nth(1).and_then(|rest| rest.split('M').next());
    let mib: u64 = proposed.and_then(|figure| figure.parse().ok()).ok_or("nothing is proposed")?;
    ensure!(mib < 100, "{}", finished.complain(&format!("{mib} MiB are proposed in a group of 100")));
    Ok(())
}

/// Pages of hugetlbfs for as long as this lives.
struct HugePages {
    before: String,
}

const HUGE_COUNT: &str = "/proc/sys/vm/nr_hugepages";

impl HugePages {
    fn new(count: u64) -> Outcome<Self> {
        let read = || std::fs::read_to_string(HUGE_COUNT).map_err(|error| error.to_string());
        let pages = HugePages { before: read()? };
        std::fs::write(HUGE_COUNT, count.to_string()).map_err(|error| error.to_string())?;
        let there = read()?;
        ensure!(there.trim().parse() == Ok(count), "there are only {there} huge pages");
        Ok(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(HUGE_COUNT, self.before.trim());
    }
}

/// A program that sets its limit, or is executed or started with one, has all of it; the kernel has
/// as much more however often there was an exec.
///
/// *The story:* of 160 MiB of addresses, of which 96 were wanted, the agent had taken most before
/// main. The program failed, and the verdict was "fits".
fn address_space(context: &Context) -> Outcome {
    let program = text(&packages::compile(context, "limits-limited", LIMITED, &[])?);
    let run = |script: &str| told_by(context, "limits-address-space", &program, script);
    let own = run("$0 160; $0 110; $0 100000")?;
    ensure!(limits_in(&own) == ["160", "110", "100000"], "{own}");
    let once = run("ulimit -v 163840; exec $0 0")?;
    ensure!(once.starts_with("160 "), "{once}");
    let same = [
        "ulimit -v 163840; exec bash -c 'exec bash -c \"exec $0 0\" $0' $0",
        "ulimit -v 163840; bash -c 'bash -c \"$0 0; true\" $0; true' $0",
        "ulimit -v 163840; (ulimit -v 163840; ($0 160); true)",
    ];
    for script in same {
        let often = run(script)?;
        ensure!(often == once, "{script}: {often}, not {once}");
    }
    Ok(())
}

/// The same of private data, of which the agent takes most when it begins to manage; a fork's child
/// has what its parent's left there.
///
/// *The story:* a program within its limit got ENOMEM once it was managed.
fn data(context: &Context) -> Outcome {
    let flags = ["-DLIMIT=RLIMIT_DATA", "-DSHOWN=\"Max data size\""];
    let program = text(&packages::compile(context, "limits-data", LIMITED, &flags)?);
    let script = "$0 160; $0 110; ulimit -d 163840; $0 0; ($0 0; true); exec bash -c 'exec $0 0' $0";
    let told = told_by(context, "limits-data", &program, script)?;
    ensure!(limits_in(&told) == ["160", "110", "160", "160", "160"], "{told}");
    Ok(())
}

/// A limit on processor time is the program's: it has all of that for itself, is told what it asked for, and
/// hears when it has taken it.
///
/// *The story:* a program of four seconds, with `ulimit -t 6`, was ended for the agent's time.
fn processor(context: &Context) -> Outcome {
    const LIMIT: i64 = 300;
    let program = packages::compile(context, "limits-processor", PROCESSOR, &[])?;
    let finished = Launch::new(context, "limits-processor", program).ram(16 * MIB).timeout(180).run()?;
    finished.succeeded()?.paged()?;
    let told = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
    let figures: Vec<i64> = told.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [all, limit, own] = figures[..] else { return Err(told) };
    ensure!(all > LIMIT, "{}", finished.complain(&format!("the agent took too little to tell: {told}")));
    let is_heard = (LIMIT..LIMIT + 250).contains(&own);
    ensure!(limit == LIMIT / 100 && is_heard, "{}", finished.complain(&told));
    Ok(())
}

/// *The story:* a mapping was split in pieces of 252 KiB, each of them too small to be managed. 158 MiB of
/// 160 were held in 64.
fn small_mappings(context: &Context) -> Outcome<Verdict> {
    let program = packages::compile(context, "limits-split", SPLIT, &[])?;
    let mut verdict = Verdict::default();
    for piece in ["256", "128"] {
        let launch = Launch::new(context, format!("limits-small-mappings-{piece}"), &program).args([piece]);
        let finished = launch.ram(64 * MIB).timeout(120).run()?;
        verdict = finished.succeeded()?.paged()?.within_budget()?;
        if verdict.is_excess() {
            break;
        }
    }
    Ok(verdict)
}

/// *The story:* what a program started by vfork or posix_spawn once the kernel had been told more for it, for
/// the agent's time, had that limit for its own.
fn processor_of_children(context: &Context) -> Outcome {
    processor_told(context, "children", &["1000", "3"].repeat(5))
}

/// *The story:* a child of vfork set a limit of its own. Its parent, whose memory it has, was told that one.
fn processor_beside_children(context: &Context) -> Outcome {
    processor_told(context, "beside", &["3", "1000"])
}

/// What is told to a program when its agent has taken more than the limit leaves.
fn processor_told(context: &Context, way: &str, expected: &[&str]) -> Outcome {
    let program = packages::compile(context, "limits-processor", PROCESSOR, &[])?;
    let launch = Launch::new(context, format!("limits-processor-{way}"), program).args([way]);
    let finished = launch.ram(16 * MIB).timeout(180).run()?;
    finished.succeeded()?.paged()?;
    let told = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
    let mut words = told.split_whitespace();
    let all = words.next().and_then(|word| word.parse::<i64>().ok());
    ensure!(all > Some(300), "{}", finished.complain(&format!("the agent took too little to tell: {told}")));
    let limits: Vec<&str> = words.collect();
    ensure!(limits == expected, "{}", finished.complain(&format!("{limits:?}")));
    Ok(())
}

/// What a program says that a script runs, in 32 MiB, managed and paged.
fn told_by(context: &Context, name: &str, program: &str, script: &str) -> Outcome<String> {
    let finished = Launch::new(context, name, "/bin/bash")
        .args(["-c", script, program])
        .ram(32 * MIB)
        .timeout(120)
        .run()?;
    finished.succeeded()?.paged()?;
    ensure!(finished.report()?["managed"] == true, "{}", finished.complain("not managed"));
    std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())
}

/// The first word of each line: a limit in MiB.
fn limits_in(told: &str) -> Vec<&str> {
    told.lines().filter_map(|line| line.split(' ').next()).collect()
}

/// Who has a limit from outside that may not be raised keeps it, and is not said to fit.
fn address_space_from_outside(context: &Context) -> Outcome {
    let program = text(&packages::compile(context, "limits-outside", LIMITED, &[])?);
    let json = context.path("limits-outside.report");
    let overspill = text(&context.overspill);
    let setpriv = packages::program("setpriv", "util-linux")?;
    let run = |kib: &str, own: &str| -> Outcome<(String, serde_json::Value)> {
        let script = "ulimit -v $3; exec $0 run --ram 32M --json $1 -- $2 $4";
        let finished = Launch::new(context, "limits-outside", &setpriv)
            .args(["--inh-caps=-sys_resource", "--bounding-set=-sys_resource", "/bin/bash", "-c", script])
            .args([&overspill, &text(&json), &program, kib, own])
            .timeout(60)
            .run()?;
        finished.succeeded()?;
        let limits = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
        let report = std::fs::read(&json).map_err(|error| error.to_string())?;
        Ok((limits, serde_json::from_slice(&report).map_err(|error| error.to_string())?))
    };
    let (limits, report) = run("2097152", "0")?;
    ensure!(limits.starts_with("2048 2147483648"), "{limits}");
    let told = report["verdict"]["text"].as_str().unwrap_or("none");
    ensure!(kind(&report) == "exceeded" && told.contains("RLIMIT_AS"), "{told}");
    // Of a large one the agent takes little. One that the program sets is the program's.
    let (limits, report) = run("16777216", "160")?;
    ensure!(limits.starts_with("160 ") && report["managed"] == true, "{limits}: {}", kind(&report));
    // Nor is it told another one where there is not room for both.
    let (limits, _) = run("16777216", "16383")?;
    ensure!(limits.starts_with("16383 "), "{limits}");
    Ok(())
}

/// Who may use most of a large limit may still when it is managed.
///
/// *The story:* where forks are not heard of, what keeps them from being made took twice the machine's RAM
/// of addresses, once the program was managed. What it mapped next failed.
fn address_space_large(context: &Context) -> Outcome {
    let program = text(&packages::compile(context, "limits-large", LIMITED, &[])?);
    let overspill = text(&context.overspill);
    let setpriv = packages::program("setpriv", "util-linux")?;
    let json = context.path("limits-large.report");
    let machine = std::fs::read_to_string("/proc/meminfo").map_err(|error| error.to_string())?;
    let kib = |name: &str| {
        let line = machine.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().nth(1)).and_then(|number| number.parse::<u64>().ok())
    };
    let all = kib("MemTotal").unwrap_or(0) + kib("SwapTotal").unwrap_or(0);
    let without = "-sys_ptrace,-sys_resource";
    let finished = Launch::new(context, "limits-large", &setpriv)
        .args([&format!("--inh-caps={without}"), &format!("--bounding-set={without}"), "/bin/bash", "-c"])
        .args(["ulimit -v $3; exec $0 run --ram 32M --json $1 -- $2 0 80"])
        .args([&overspill, &text(&json), &program, &(3 * all).to_string()])
        .timeout(60)
        .run()?;
    finished.succeeded()?;
    let report = std::fs::read(&json).map_err(|error| error.to_string())?;
    let report: serde_json::Value = serde_json::from_slice(&report).map_err(|error| error.to_string())?;
    ensure!(report["managed"] == true, "{}", finished.complain(kind(&report)));
    Ok(())
}

/// The swap file is none of the program's files.
///
/// *The story:* a program lowered its limit on their length (RLIMIT_FSIZE). What was to go to the swap
/// file was refused from then on, and swap was called full.
fn length_of_files(context: &Context) -> Outcome<Verdict> {
    let program = packages::compile(context, "limits-files", SHORT_FILES, &[])?;
    let mut held = Verdict::default();
    let ways: [&[&str]; 3] = [&[], &["--no-uring"], &["--encrypt"]];
    for way in ways {
        let finished = Launch::new(context, "limits-files", &program)
            .args(["64"])
            .ram(32 * MIB)
            .options(["--max-pool-percent", "0"])
            .options(way)
            .timeout(180)
            .run()?;
        finished.succeeded()?.paged()?;
        let told = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
        ensure!(told == "64 1 1\n", "{}", finished.complain(&told));
        let kind = kind(finished.report()?);
        ensure!(kind != "swap_full", "{}", finished.complain(kind));
        held = finished.within_budget()?;
    }
    Ok(held)
}

/// *The story:* MAP_HUGETLB shows in none of the figures that were read: 32 MiB of it "fitted" in 16.
fn huge_pages(context: &Context) -> Outcome {
    let program = packages::compile(context, "limits-huge", HUGE, &[])?;
    let _pages = HugePages::new(20)?;
    let finished =
        Launch::new(context, "limits-huge", program).args(["32"]).ram(16 * MIB).timeout(60).run()?;
    finished.succeeded()?;
    let report = finished.report()?;
    let held = report["tree_peak_shmem_bytes"].as_u64().unwrap_or(0);
    let is_told = kind(report) == "exceeded" && held >= 32 * MIB;
    ensure!(is_told, "{}", finished.complain(&format!("{}: {held}", kind(report))));
    Ok(())
}

/// *The story:* what is locked is managed, but stays in RAM. Two and a half times the budget was
/// locked under `--strict`, and the run was let go on.
fn locked(context: &Context) -> Outcome {
    let program = packages::compile(context, "limits-locked", LOCKED, &[])?;
    for way in ["mlock", "mlockall", "onfault"] {
        let launch = |mib: &str| {
            Launch::new(context, format!("limits-locked-{way}-{mib}"), &program)
                .args([way, mib])
                .ram(48 * MIB)
                .options(["--strict"])
                .timeout(120)
                .run()
        };
        launch("32")?.succeeded()?;
        let finished = launch("120")?;
        finished.exited(125)?;
        let told = kind(finished.report()?);
        ensure!(told == "strict_refused", "{}", finished.complain(&format!("{way}: {told}")));
    }
    Ok(())
}

/// *The story:* only what is mapped and touched was seen of shared memory. Of 96 MiB that fallocate had
/// allocated, or that were mapped in pieces one after the other, "fits: never needed more than 3.7 MiB" was
/// told, and `--strict` let them be. What others had written before counts for nobody.
fn shared_unmapped(context: &Context) -> Outcome {
    let program = packages::compile(context, "limits-unmapped", UNMAPPED, &[])?;
    let launch = |way: &str, options: &[&str]| {
        Launch::new(context, format!("limits-unmapped-{way}"), &program)
            .args([way, "96"])
            .ram(48 * MIB)
            .options(options)
            .timeout(60)
            .run()
    };
    for way in ["allocated", "pieces", "file", "segment"] {
        let finished = launch(way, &[])?;
        finished.succeeded()?;
        let report = finished.report()?;
        let shared = report["tree_peak_shmem_bytes"].as_u64().unwrap_or(0);
        let is_told = kind(report) == "exceeded" && (96 * MIB..100 * MIB).contains(&shared);
        ensure!(is_told, "{}", finished.complain(&format!("{way}: {}, {shared}", kind(report))));
    }
    let refused = launch("allocated", &["--strict"])?;
    refused.exited(125)?;
    let told = kind(refused.report()?);
    ensure!(told == "strict_refused", "{}", refused.complain(told));
    let others = format!("/dev/shm/overspill-e2e-{}", std::process::id());
    std::fs::write(&others, vec![1; 96 << 20]).map_err(|error| error.to_string())?;
    let finished = Launch::new(context, "limits-unmapped-others", &program)
        .args(["allocated", "8", &others])
        .ram(48 * MIB)
        .options(["--strict"])
        .timeout(60)
        .run();
    std::fs::remove_file(&others).map_err(|error| error.to_string())?;
    let finished = finished?;
    finished.succeeded()?;
    let shared = finished.report()?["tree_peak_shmem_bytes"].as_u64().unwrap_or(0);
    let is_own = kind(finished.report()?) == "fits" && (8 * MIB..12 * MIB).contains(&shared);
    ensure!(is_own, "{}", finished.complain(&format!("{}, {shared}", kind(finished.report()?))));
    Ok(())
}

/// *The story:* beside shared memory a program had all of the budget for the rest: 60 MiB and 60 MiB in 100
/// were held, and nothing was paged.
fn shared_leaves_less(context: &Context) -> Outcome {
    let program = packages::compile(context, "limits-beside", BESIDE, &[])?;
    let finished = Launch::new(context, "limits-shared-leaves-less", program)
        .args(["60", "60"])
        .ram(100 * MIB)
        .options(["--max-pool-percent", "0"])
        .timeout(120)
        .run()?;
    finished.succeeded()?.paged()?;
    let report = finished.report()?;
    let held = report["tree_peak_bytes"].as_u64().unwrap_or(u64::MAX);
    let is_within = kind(report) != "exceeded" && held < 111 * MIB;
    ensure!(is_within, "{}", finished.complain(&format!("{}: {held}", kind(report))));
    let needed = report["needed_bytes"].as_u64().unwrap_or(0);
    ensure!(needed >= 120 * MIB, "{}", finished.complain(&format!("{needed} were needed")));
    Ok(())
}

/// *The story:* what the launcher opens for another user was a file for the first place only, and only
/// if that is a directory. With an area there the program had no limit.
fn areas_of_another_user(context: &Context) -> Outcome {
    let worker = worker(context, "limits-worker", &[])?;
    let (area, closed) = (context.path("limits-area"), context.path("limits-closed"));
    make(context, &area, 64)?;
    std::fs::create_dir_all(&closed).map_err(|error| error.to_string())?;
    set_mode(&area, 0o600)?;
    set_mode(&closed, 0o700)?;
    let others: [&[&Path]; 2] = [&[], &[&closed]];
    for other in others {
        let options = other.iter().flat_map(|path| ["--swap".into(), text(path)]);
        let finished = Launch::new(context, "limits-areas", packages::program("setpriv", "util-linux")?)
            .args(["--reuid", "65534", "--clear-groups", &text(&worker), "64", "2"])
            .ram(32 * MIB)
            .swap(&area)
            .options(options)
            .timeout(120)
            .run()?;
        finished.succeeded()?.paged()?;
        let report = finished.report()?;
        ensure!(report["managed"] == true, "{}", finished.complain(&format!("{other:?}: {}", kind(report))));
    }
    std::fs::remove_file(&area).map_err(|error| error.to_string())
}

/// The swap directory is another one for the program: a tmpfs lies over it, or it may only be read there.
///
/// *The story:* all pages stayed in RAM, in the tmpfs, and the summary said that it had worked. Below the other
/// mount the program was not managed.
fn covered_directory(context: &Context) -> Outcome {
    let worker = worker(context, "limits-worker", &[])?;
    let directory = context.path("limits-covered");
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    // What is put there is soon too much.
    let covered = "mount -t tmpfs -o size=1M tmpfs \"$0\"";
    let closed = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\"";
    for cover in [covered, closed] {
        let script = format!("{cover} && exec $1 64 2");
        let finished =
            Launch::new(context, "limits-covered-directory", packages::program("unshare", "util-linux")?)
                .args(["-m", "sh", "-c", &script, &text(&directory), &text(&worker)])
                .ram(32 * MIB)
                .swap(&directory)
                .options(["--strict"])
                .timeout(120)
                .run()?;
        finished.succeeded()?.paged()?;
        let report = finished.report()?;
        ensure!(report["managed"] == true, "{}", finished.complain(&format!("{cover}: {}", kind(report))));
    }
    std::fs::remove_dir_all(&directory).map_err(|error| error.to_string())
}

/// What a daemon does: another root, with /proc or without, another user, and then its workers.
///
/// *The story:* no worker was managed, as it could open neither what /proc shows of itself nor, not being
/// root any more, its own page map. In 64 MiB one had 192. Of the first the summary said that the agent's
/// library is not to be found, which a child of fork does not look for.
fn another_root(context: &Context) -> Outcome<Verdict> {
    const NOBODY: &str = "65534";
    let program = text(&packages::compile(context, "limits-jail", JAIL, &[])?);
    let [empty, with_proc] = ["limits-root", "limits-root-with-proc"].map(|name| context.path(name));
    for directory in [&empty, &with_proc.join("proc")] {
        std::fs::create_dir_all(directory).map_err(|error| error.to_string())?;
    }
    let roots = [("", NOBODY), (&*text(&empty), "0"), (&text(&empty), NOBODY), (&text(&with_proc), NOBODY)]
        .map(|(root, user)| (root.to_owned(), user));
    let mut verdict = Verdict::default();
    for (root, user) in roots {
        let mount = if root == text(&with_proc) { "mount -t proc proc \"$1/proc\" && " } else { "" };
        let finished = Launch::new(context, "limits-root", packages::program("unshare", "util-linux")?)
            .args(["-m", "sh", "-c", &format!("{mount}exec \"$0\" \"$1\" {user} 96"), &program, &root])
            .ram(32 * MIB)
            .options(["--strict"])
            .timeout(120)
            .run()?;
        verdict = finished.succeeded()?.paged()?.within_budget()?;
        let report = finished.report()?;
        ensure!(
            report["managed"] == true,
            "{}",
            finished.complain(&format!("{root} {user}: {}", kind(report)))
        );
        if verdict.is_excess() {
            break;
        }
    }
    Ok(verdict)
}

fn set_mode(path: &Path, mode: u32) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).map_err(|error| error.to_string())
}
