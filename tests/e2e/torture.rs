//! Every subtest of `overspill-torture`, in a budget far below what it uses, by each of the ways in which
//! pages can go out and in.

use crate::again::Verdict;
use crate::context::{Context, Mode};
use crate::launch::{Finished, Launch, MIB};
use crate::{Outcome, Test, ensure};

/// The budget, and the memory that pushes out what else there is. A test takes as long as its pages do, so
/// that is as little as shows the same.
const RAM_MIB: u64 = 32;
const BALLAST_MIB: u64 = 80;

/// How overspill works inside: what it does by itself on this kernel, what it falls back to on
/// others, and with a compressed pool that takes all it may, or without any.
const WAYS: [(&str, &[&str]); 15] = [
    ("default", &[]),
    (NO_MOVE, &["--no-move"]),
    ("no-uring", &["--no-uring"]),
    ("pool", &["--fixed-pool"]),
    (NO_POOL, &["--max-pool-percent", "0"]),
    (TINY_POOL, &["--fixed-pool", "--max-pool-percent", "1"]),
    (HUGE_POOL, &["--fixed-pool", "--max-pool-percent", "80"]),
    (FILES, &["--files=16M"]),
    (CHUNKS, &["--files=16M"]),
    (OF_RECLAIM[0], &["--reclaim", "probing"]),
    (OF_RECLAIM[1], &["--reclaim", "lru"]),
    (OF_RECLAIM[2], &["--reclaim", "fifo"]),
    (OF_RECLAIM[3], &["--reclaim", "kernel-3.10"]),
    (OF_RECLAIM[4], &["--reclaim", "kernel-6.1"]),
    (OF_RECLAIM[5], &["--reclaim", "dueling"]),
];

/// Other reclaim policies than the default: for the subtest whose threads store everywhere.
const OF_RECLAIM: [&str; 6] = [
    "reclaim-probing",
    "reclaim-lru",
    "reclaim-fifo",
    "reclaim-kernel-3.10",
    "reclaim-kernel-6.1",
    "reclaim-dueling",
];
const UNDER_EACH: &str = "stores";
/// Mappings of files are managed: for the subtests whose names begin so, and for no others.
const FILES: &str = "files";
const OF_FILES: &str = "file-";

/// The same, where chunks of 2 MiB are read and leave whole: for the subtests that read in order, and by
/// what is in the way of that.
const CHUNKS: &str = "chunks";
const OF_CHUNKS: [&str; 8] = [
    "file-loop",
    "file-chunks",
    "file-end",
    "file-read-only",
    "file-cut",
    "file-fork",
    "file-pieces",
    "file-threads",
];

/// Times are compared: by the default way only. So many pages come with each that is waited for.
const OF_TIME: &str = "cost-";
const WINDOW_LEAST: u64 = 8;

const NO_MOVE: &str = "no-move";

/// No pool; one in which next to nothing has room; and one that leaves next to nothing beside it:
/// for the subtests of this list.
const NO_POOL: &str = "no-pool";
const TINY_POOL: &str = "tiny-pool";
const HUGE_POOL: &str = "huge-pool";
const OF_POOLS: [&str; 4] = ["stores", "cold", "zero", "fork"];

/// What cannot be promised, in which way (empty: in none), and why.
const NOT_PROMISED: [(&str, &str, &str); 9] = [
    ("fork-out-many", NO_MOVE, "everything comes in for a fork where pages are not moved (kernel 6.8)"),
    (
        "zero-reads",
        NO_MOVE,
        "the zero page can be shown only where it can be taken out of view again (kernel 6.8)",
    ),
    (
        "direct",
        NO_MOVE,
        "as with registered buffers: what a device writes into a page after it was evicted is lost without UFFDIO_MOVE",
    ),
    ("uring-direct", "no-move", "the same, by io_uring"),
    (
        "uring-fixed",
        NO_MOVE,
        "a kernel without UFFDIO_MOVE gives no way to learn that a frame is pinned: what the device writes into it \
         after it was evicted is lost; such programs need kernel 6.8",
    ),
    ("vm-writev", NO_MOVE, "process_vm_writev pins many pages before it writes to them: the same"),
    ("uring-fixed-closed", NO_MOVE, "the same"),
    (
        "futex-cold-op",
        "",
        "where the kernel itself changes a futex word it does not wait for userfaultfd, and answers EFAULT; C \
         libraries touch the word first, which `futex-pi` tests",
    ),
    (
        "proc-mem",
        "",
        "through /proc/PID/mem and ptrace the kernel does not wait for userfaultfd, and answers EIO",
    ),
];

struct Subtest {
    name: String,
    budget_holds: bool,
}

/// Subtests x ways; bare runs have only one way. What is left out of those that are `selected` by
/// name is told.
pub fn tests(context: &Context, selected: impl Fn(&str) -> bool) -> Vec<Test> {
    let subtests = match list(context) {
        Ok(subtests) => subtests,
        Err(complaint) => {
            return vec![Test::new("torture", move |_| Outcome::<Verdict>::Err(complaint.clone()))];
        }
    };
    let ways = if context.mode == Mode::Overspill { &WAYS[..] } else { &WAYS[..1] };
    let pairs = ways.iter().flat_map(|way| subtests.iter().map(move |subtest| (way, subtest)));
    pairs
        .filter(|((way, _), subtest)| {
            let is_of_files = [FILES, CHUNKS].contains(way);
            context.mode != Mode::Overspill || is_of_files == subtest.name.starts_with(OF_FILES)
        })
        .filter(|((way, _), subtest)| *way != CHUNKS || OF_CHUNKS.contains(&subtest.name.as_str()))
        .filter(|((way, _), subtest)| {
            ![NO_POOL, TINY_POOL, HUGE_POOL].contains(way) || OF_POOLS.contains(&subtest.name.as_str())
        })
        .filter(|((way, _), subtest)| *way == WAYS[0].0 || !subtest.name.starts_with(OF_TIME))
        .filter(|((way, _), subtest)| !OF_RECLAIM.contains(way) || subtest.name == UNDER_EACH)
        .filter(|((way, _), subtest)| {
            if context.mode != Mode::Overspill {
                return true;
            }
            let name = format!("torture::{}::{way}", subtest.name);
            is_promised(context, &subtest.name, way, selected(&name).then_some(&name))
        })
        .map(|(&(way, options), subtest)| {
            let (name, budget_holds) = (subtest.name.clone(), subtest.budget_holds);
            Test::new(format!("torture::{name}::{way}"), move |context| {
                run(context, &name, way, options, budget_holds)
            })
        })
        .collect()
}

/// Whether a subtest is to hold when pages go that way; if not, says so of the test that is `told`.
/// Without UFFDIO_MOVE in the kernel every way is the one without.
pub fn is_promised(context: &Context, subtest: &str, way: &str, told: Option<&String>) -> bool {
    let is_meant = |of: &str| of == way || of.is_empty() || (of == NO_MOVE && !context.moves_pages);
    let excuse = NOT_PROMISED.iter().find(|(name, of, _)| *name == subtest && is_meant(of));
    if let (Some((.., why)), Some(told)) = (excuse, told) {
        println!("e2e: {told} is not promised: {why}");
    }
    excuse.is_none()
}

fn list(context: &Context) -> Outcome<Vec<Subtest>> {
    let output = std::process::Command::new(&context.torture).arg("list").output();
    let output = output.map_err(|error| format!("{}: {error}", context.torture.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let subtests: Vec<Subtest> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            Some(Subtest { name: fields.next()?.to_owned(), budget_holds: fields.next()? == "holds" })
        })
        .collect();
    ensure!(!subtests.is_empty(), "{} lists no subtests", context.torture.display());
    Ok(subtests)
}

fn run(context: &Context, name: &str, way: &str, options: &[&str], budget_holds: bool) -> Outcome<Verdict> {
    let seconds = soak_seconds(name, way)?;
    let times = times_as_large(way, budget_holds);
    let mut launch = Launch::new(context, format!("torture-{name}-{way}"), &context.torture)
        .args([name, "--mib", &(times * BALLAST_MIB).to_string()])
        .args(["--seconds", &seconds.to_string(), "--dir"])
        .args([&context.scratch])
        .ram(times * RAM_MIB * MIB)
        .options(options)
        .timeout(240 + 2 * seconds);
    match context.mode {
        Mode::Overspill => launch = launch.args(["--expect-cold"]),
        Mode::Bare => {}
        Mode::Broken => launch = launch.args(["--sabotage"]),
    }
    let finished = launch.run()?;
    finished.succeeded()?.paged()?;
    if name.starts_with(OF_TIME) && context.mode == Mode::Overspill {
        by_windows(&finished)?;
    }
    if budget_holds { finished.within_budget() } else { Ok(Verdict::default()) }
}

/// Files are managed from 16 MiB on, and come in chunks in budgets of 128 MiB and more. What comes in all
/// together for a fork is taken for what came first, and may stay where it is most of a small budget.
fn times_as_large(way: &str, budget_holds: bool) -> u64 {
    match way {
        CHUNKS => 4,
        FILES => 2,
        _ if !budget_holds => 2,
        _ => 1,
    }
}

/// Pages came back by windows: that is counted, as times depend on what else the machine does.
///
/// *The story:* of memory that had grown down, 24,370 of 67,000 pages were waited for, one by one, and
/// of 62,000 in mappings of a page each all of them.
fn by_windows(finished: &Finished) -> Outcome {
    let count = |name: &str| Ok::<_, String>(finished.report()?["vmstat"][name].as_u64().unwrap_or(0));
    let (waits, pages) = (count("pgmajfault")?, count("pswpin")? + count("zswpin")?);
    let complaint = finished.complain(&format!("{waits} waits for {pages} pages"));
    ensure!(waits * WINDOW_LEAST < pages, "{complaint}");
    Ok(())
}

/// Six seconds of random stores in every run of the suite, three by each of the other ways, or as many as
/// `OVERSPILL_E2E_SOAK_SECONDS` says; a few for the other subtests that could go on for ever.
fn soak_seconds(name: &str, way: &str) -> Outcome<u64> {
    match std::env::var("OVERSPILL_E2E_SOAK_SECONDS") {
        _ if name != "stores" => Ok(2),
        Ok(text) => text.parse().map_err(|_| format!("OVERSPILL_E2E_SOAK_SECONDS={text} is no number")),
        Err(_) => Ok(if way == "default" { 6 } else { 3 }),
    }
}
