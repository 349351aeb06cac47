//! Programs that watch their surroundings closely: sanitizers, filters of system calls, whoever
//! must have one thread. They end as they do bare, with their memory right.

use crate::again::Verdict;
use crate::context::Context;
use crate::launch::{Finished, Launch, MIB};
use crate::scratch::{FaultyDisk, Setting};
use crate::{Outcome, Test, ensure, packages};

const AUDITS: &str = include_str!("citizens/audits.c");
const BEHIND: &str = include_str!("citizens/behind.c");
const BLOCKS: &str = include_str!("citizens/blocks.c");
const FIXED: &str = include_str!("citizens/fixed.c");
const FILTER: &str = include_str!("citizens/filter.c");
const RETURNS: &str = include_str!("citizens/returns.c");
const AFTERWARDS: &str = include_str!("citizens/afterwards.c");
const ALONE: &str = include_str!("citizens/alone.c");
const AWAY: &str = include_str!("citizens/away.c");
const ENTERS: &str = include_str!("citizens/enters.c");
const ERRORS: &str = include_str!("citizens/errors.c");
const EXECS: &str = include_str!("citizens/execs.c");
const HANDLERS: &str = include_str!("citizens/handlers.c");
const HIDDEN: &str = include_str!("citizens/hidden.c");
const JUMPS: &str = include_str!("citizens/jumps.c");
const LEAKS: &str = include_str!("citizens/leaks.c");
const LIMITED: &str = include_str!("citizens/limited.c");
const LOST: &str = include_str!("citizens/lost.c");
const LOWERED: &str = include_str!("citizens/lowered.c");
const MUSL: &str = include_str!("citizens/musl.c");
const NESTED: &str = include_str!("citizens/nested.c");
const ODD: &str = include_str!("citizens/odd.c");
const GREETS: &str = include_str!("citizens/greets.c");
const OWN_HOOKS: &str = include_str!("citizens/own-hooks.c");
const QUIET: &str = include_str!("citizens/quiet.c");
const RACING: &str = include_str!("citizens/racing.c");
const SAYS: &str = include_str!("citizens/says.c");
const STRICT: &str = include_str!("citizens/strict.c");
const THREADS: &str = include_str!("citizens/threads.c");
const WORKER: &str = include_str!("trees/worker.c");

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("citizens::symbols", symbols),
        Test::new("citizens::address-sanitizer", |context| {
            sanitized(context, "address", &["-fsanitize=address", "-static-libasan"])
        }),
        Test::new("citizens::address-sanitizer-shared", |context| {
            sanitized(context, "address-shared", &["-fsanitize=address"])
        }),
        Test::new("citizens::thread-sanitizer-shared", |context| {
            sanitized(context, "thread-shared", &["-fsanitize=thread"])
        }),
        Test::new("citizens::thread-sanitizer", |context| {
            sanitized(context, "thread", &["-fsanitize=thread", "-static-libtsan"])
        }),
        Test::new("citizens::address-sanitizer-elsewhere", sanitized_elsewhere),
        Test::new("citizens::leaks-in-mid-run", |context| {
            searched(context, "address", &["-fsanitize=address"], true)?;
            searched(context, "leak", &["-fsanitize=leak"], true)
        }),
        Test::new("citizens::leaks-in-mid-run-static", |context| {
            searched(context, "static", &["-fsanitize=address", "-static-libasan"], false)
        }),
        Test::new("citizens::leaks-not-searched-for", not_searched),
        Test::new("citizens::leaks-at-the-end", searched_at_the_end),
        Test::new("citizens::real-time", real_time),
        Test::new("citizens::bounded-real-time", bounded_real_time),
        Test::new("citizens::valgrind", valgrind),
        Test::new("citizens::traced", traced),
        Test::new("citizens::hidden-library", hidden_library),
        Test::new("citizens::no-proc", no_proc),
        Test::new("citizens::filter", |context| filtered(context, "0")),
        Test::new("citizens::filter-of-all-threads", |context| filtered(context, "1")),
        Test::new("citizens::grows-down", grows_down),
        Test::new("citizens::little-beside-what-stays", little_beside_what_stays),
        Test::new("citizens::promised-forks", |context| unprivileged_forks(context, "1")),
        Test::new("citizens::accounted-forks", |context| unprivileged_forks(context, "2")),
        Test::new("citizens::forks-after-return", forks_after_return),
        Test::new("citizens::forks-as-the-agent-comes-back", racing_forks),
        Test::new("citizens::unread-page-and-one-thread", unread),
        Test::new("citizens::file-without-descriptors", file_without_descriptors),
        Test::new("citizens::forks-without-descriptors", forks_without_descriptors),
        Test::new("citizens::few-descriptors", |context| few_descriptors(context, "0", &["3", "hard"])),
        Test::new("citizens::few-descriptors-of-a-user", |context| {
            few_descriptors(context, "65534", &["10", "hard"])
        }),
        Test::new("citizens::few-descriptors-exit", |context| {
            lowered(context, "65534", &["16", "hard", "exit"])?.succeeded()?.paged().map(drop)
        }),
        Test::new("citizens::few-descriptors-for-now", |context| {
            few_descriptors(context, "0", &["0", "soft", "fork"])
        }),
        Test::new("citizens::own-hooks", own_hooks),
        Test::new("citizens::another-preload", another_preload),
        Test::new("citizens::one-shared-page", |context| away(context, "mappings")),
        Test::new("citizens::forks-while-away", |context| away(context, "forks")),
        Test::new("citizens::user-namespace", user_namespace),
        Test::new("citizens::user-namespace-while-paging", user_namespace_while_paging),
        Test::new("citizens::several-namespaces", several_namespaces),
        Test::new("citizens::proc-of-outside", proc_of_outside),
        Test::new("citizens::entered-namespaces", entered_namespaces),
        Test::new("citizens::counted-threads", counted_threads),
        Test::new("citizens::data-as-standard-error", |context| says(context, "data")),
        Test::new("citizens::full-standard-error", |context| says(context, "pipe")),
        Test::new("citizens::ordinary-standard-error", |context| says(context, "plain")),
        Test::new("citizens::output-among-errors", output_among_errors),
        Test::new("citizens::bare-execs", bare_execs),
        Test::new("citizens::not-to-be-looked-into", hidden),
        Test::new("citizens::handlers-that-fork", handlers),
        Test::new("citizens::managed-after-a-word", |context| afterwards(context, "managed")),
        Test::new("citizens::locked-without-agent", |context| afterwards(context, "locked")),
        Test::new("citizens::first-of-its-namespace", first_of_its_namespace),
        Test::new("citizens::forks-before-all-handlers", nested),
        Test::new("citizens::filter-of-vforked", filtered_child),
        Test::new("citizens::small-stack", small_stack),
        Test::new("citizens::small-stack-moves", small_stack_moves),
        Test::new("citizens::jumps", jumps),
        Test::new("citizens::jumps-that-fit", jumps_that_fit),
        Test::new("citizens::jumps-that-grow", jumps_that_grow),
        Test::new("citizens::own-environment", own_environment),
        Test::new("citizens::odd-calls", odd_calls),
        Test::new("citizens::audited", audited),
        Test::new("citizens::musl", musl),
    ]
}

/// *The story:* the library of LD_AUDIT has a libc of its own, whose memory came to lie directly behind the
/// agent's data. The kernel made one mapping of it and their end. All of it was managed, and the agent waited
/// for itself: five of five runs hung.
fn audited(context: &Context) -> Outcome {
    let library = packages::compile(context, "audits", AUDITS, &["-shared", "-fPIC"])?;
    let program = packages::compile(context, "greets", GREETS, &[])?;
    let launch = Launch::new(context, "citizens-audited", "env");
    let launch = launch.args([format!("LD_AUDIT={}", library.display())]).args([&program]);
    launch.ram(20 * MIB).timeout(60).run()?.succeeded()?.paged().map(drop)
}

/// *The stories:* a program that is linked with musl ended with status 127 where a managed one started it. As
/// the command it ran, and nothing that it started was managed.
fn musl(context: &Context) -> Outcome {
    let program = packages::compile_for_musl(context, "musl", MUSL)?;
    let worker = packages::compile(context, "musl-worker", WORKER, &[])?;
    let below = Launch::new(context, "citizens-musl-below", "sh").args(["-c", r#""$0" "$@"; exit $?"#]);
    for launch in [below.args([&program]), Launch::new(context, "citizens-musl", &program)] {
        let finished = launch.args([&worker]).args(["64", "2"]).ram(48 * MIB).timeout(60).run()?;
        finished.succeeded()?.paged()?;
        if let Some(report) = &finished.report {
            let is_told = report.to_string().contains("is linked with musl");
            ensure!(is_told, "{}", finished.complain(&format!("{report}")));
        }
    }
    Ok(())
}

/// *The stories:* exec with an environment that cannot be read was SIGSEGV, getrlimit to nowhere succeeded;
/// mmap of a file with a length that has no whole pages ended the program; and so did the hooks' own look at
/// the clock where the program may not read the processor's counter.
fn odd_calls(context: &Context) -> Outcome {
    let program = packages::compile(context, "odd", ODD, &[])?;
    let file = context.path("odd.data");
    std::fs::write(&file, vec![7; 16 << 20]).map_err(|error| error.to_string())?;
    for what in ["environments", "lengths", "counter"] {
        let launch =
            Launch::new(context, format!("citizens-odd-{what}"), &program).args([what]).args([&file]);
        let finished = launch.ram(20 * MIB).options(["--files=8M"]).timeout(120).run()?;
        finished.succeeded()?;
        if what == "counter" {
            finished.paged()?;
        }
    }
    Ok(())
}

/// A mapping of the program's grows down into a hole of 4 GiB, in a budget for which the agent needs
/// much address space.
fn grows_down(context: &Context) -> Outcome {
    let launch = Launch::new(context, "citizens-grows-down", &context.torture);
    let launch = launch.args(["grows-down", "--mib", "256", "--expect-cold", "--dir"]);
    launch.args([&context.scratch]).ram(160 * MIB).timeout(180).run()?.succeeded()?.paged().map(drop)
}

/// What cannot be paged is more than the budget. What can be has a little room all the same.
///
/// *The story:* it had none: a floor of 1 MiB, less a reserve of as much. SBCL and Chez Scheme, whose
/// heaps could not be paged, waited at every other instruction, and seemed to hang.
fn little_beside_what_stays(context: &Context) -> Outcome {
    let program = packages::compile(context, "fixed", FIXED, &[])?;
    let finished = Launch::new(context, "citizens-fixed", program).ram(64 * MIB).timeout(180).run()?;
    let faults = finished.succeeded()?.report()?["major_faults"]["count"].as_u64().unwrap_or(u64::MAX);
    ensure!(faults < 5_000, "{}", finished.complain(&format!("{faults} faults for 25,600 touches")));
    // It may have been managed before it was locked.
    let said = finished.report()?["verdict"]["text"].as_str().unwrap_or_default();
    ensure!(said.contains("cannot be paged"), "{}", finished.complain(said));
    Ok(())
}

/// Forks of every form by a program without CAP_SYS_PTRACE, whom the kernel tells of none, where it
/// refuses none for the memory that it would take. *The story:* children read zeroes there.
fn unprivileged_forks(context: &Context, mode: &str) -> Outcome {
    let _mode = Setting::new("/proc/sys/vm/overcommit_memory", mode)?;
    let _share = Setting::new("/proc/sys/vm/overcommit_ratio", "95")?;
    for subtest in ["fork-forms", "fork-advice", "fork-marks", "madvise-self"] {
        let launch = Launch::new(context, format!("citizens-forks-{mode}-{subtest}"), "setpriv");
        let launch = launch.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]);
        let launch = launch.args([&context.torture]).args([subtest, "--expect-cold", "--dir"]);
        launch.args([&context.scratch]).ram(64 * MIB).timeout(180).run()?.succeeded()?.paged()?;
    }
    Ok(())
}

/// Forks of a program without CAP_SYS_PTRACE of which nothing is out, once the agent went and came
/// back. *The story:* what forbids forks meanwhile stayed, and each of them failed (ENOMEM).
fn forks_after_return(context: &Context) -> Outcome {
    let program = packages::compile(context, "returns", RETURNS, &[])?;
    for ram in [64 * MIB, 100 * MIB] {
        let launch = Launch::new(context, format!("citizens-returns-{}", ram / MIB), "setpriv");
        let launch = launch.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]);
        launch.args([&program]).ram(ram).timeout(180).run()?.succeeded()?;
    }
    Ok(())
}

/// Forks of a program without CAP_SYS_PTRACE while the agent comes back. *The story:* what forbids
/// forks that nobody hears of was there before forks rang, and one that was on its way failed (ENOMEM).
fn racing_forks(context: &Context) -> Outcome {
    let _mode = Setting::new("/proc/sys/vm/overcommit_memory", "0")?;
    let program = packages::compile(context, "racing", RACING, &[])?;
    let launch = Launch::new(context, "citizens-racing", "setpriv");
    let launch = launch.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]);
    launch.args([&program]).args(["500"]).ram(24 * MIB).timeout(180).run()?.succeeded().map(drop)
}

/// *The story:* the agent is to go, and one page cannot be read. It tried for ever, said so each time,
/// and whoever waited for it to be gone did, too.
fn unread(context: &Context) -> Outcome {
    let program = packages::compile(context, "lost", LOST, &[])?;
    let disk = FaultyDisk::new(context, "citizens-unread", &["--fail-reads-after", "33554432"])?;
    let launch = Launch::new(context, "citizens-unread", &program).swap(&disk.directory);
    let launch = launch.options(["--max-pool-percent", "0"]).ram(64 * MIB).timeout(60);
    launch.run()?.succeeded().map(drop)
}

/// *The story:* the agent goes, and the program has no descriptors left. What had not been touched of a
/// mapped file read as zeroes.
fn file_without_descriptors(context: &Context) -> Outcome {
    let program = packages::compile(context, "limited", LIMITED, &[])?;
    let launch = Launch::new(context, "citizens-limited-file", &program).args(["file"]);
    let launch = launch.args([&context.path("limited.data")]).options(["--files=4M"]);
    launch.ram(20 * MIB).timeout(60).run()?.succeeded().map(drop)
}

/// *The story:* as above, and the program forks where children do not get what is managed. The child
/// of an announced fork did not, either.
fn forks_without_descriptors(context: &Context) -> Outcome {
    let _mode = Setting::new("/proc/sys/vm/overcommit_memory", "1")?;
    let program = packages::compile(context, "limited", LIMITED, &[])?;
    let launch = Launch::new(context, "citizens-limited-fork", "setpriv");
    let launch = launch.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]);
    let launch = launch.args([&program]).args(["fork"]).ram(20 * MIB).timeout(60);
    launch.run()?.succeeded()?.paged().map(drop)
}

/// *The stories:* a program lowers its limit on descriptors, as sandboxes and daemons do. The list of its
/// threads could not be opened: nothing new was managed (205 MiB of 64), and a robust lock's page went out,
/// so that nobody heard of its owner's end. Children of fork had no limit. A child that ended by exit(2)
/// stayed, and its parent waited for ever.
fn few_descriptors(context: &Context, user: &str, arguments: &[&str]) -> Outcome<Verdict> {
    lowered(context, user, arguments)?.succeeded()?.paged()?.within_budget()
}

fn lowered(context: &Context, user: &str, arguments: &[&str]) -> Outcome<Finished> {
    let program = packages::compile(context, "lowered", LOWERED, &["-pthread"])?;
    let launch = Launch::new(context, format!("citizens-lowered-{user}-{}", arguments.join("-")), "setpriv");
    let launch = launch.args(["--reuid", user, "--clear-groups"]).args([&program]).args(arguments);
    launch.ram(64 * MIB).timeout(120).run()
}

/// *The story:* a program with an mmap of its own that goes by libc's `syscall`: the agent's `syscall` called
/// that mmap, and so on until there was no stack left.
fn own_hooks(context: &Context) -> Outcome {
    let program = packages::compile(context, "own-hooks", OWN_HOOKS, &[])?;
    let launch = Launch::new(context, "citizens-own-hooks", program);
    launch.ram(48 * MIB).timeout(120).run()?.succeeded()?.paged().map(drop)
}

/// Another library that is loaded before all others, behind the agent. *The story:* the kernel was asked
/// past fakeroot, and files in an archive had the wrong owner.
fn another_preload(context: &Context) -> Outcome {
    let program = packages::compile(context, "asks-owners", BEHIND, &[])?;
    let library = packages::compile(context, "owners.so", BEHIND, &["-DLIBRARY", "-shared", "-fPIC"])?;
    let launch = Launch::new(context, "citizens-another-preload", "sh");
    let launch = launch.args(["-c", "LD_PRELOAD=$0 exec $1"]).args([&library, &program]);
    launch.ram(48 * MIB).timeout(60).run()?.succeeded().map(drop)
}

/// What the agent asks of others is what nobody stands before. *The story:* it asked for memcpy,
/// and got a sanitizer's.
fn symbols(context: &Context) -> Outcome {
    // The second is a variable, whose place the loader alone knows. musl has both, too: its loader ends a
    // program whose libraries ask for more.
    const MAY: [&str; 2] = ["__errno_location", "__environ"];
    packages::program("nm", "binutils")?;
    // The library that programs get: it is part of the command, and its path is in their environment.
    let script = "nm -D --undefined-only \"${LD_PRELOAD%%[: ]*}\" | tee /dev/stderr | grep -c .";
    let finished = Launch::new(context, "citizens-symbols", "/bin/sh")
        .args(["-c", script])
        .ram(100 * MIB)
        .options(["-q"])
        .timeout(180)
        .run()?;
    finished.succeeded()?;
    let text = &finished.stderr;
    ensure!(text.contains("w __register_atfork"), "{}", finished.complain("nm lists nothing"));
    // Weak ones may be missing: the compiler's own start files ask for them.
    let asked = text.lines().filter_map(|line| line.trim().strip_prefix("U "));
    let names = asked.map(|name| name.split('@').next().unwrap_or(name));
    let more: Vec<&str> = names.filter(|name| !MAY.contains(name)).collect();
    ensure!(more.is_empty(), "the agent asks others for {more:?}");
    Ok(())
}

/// *The stories:* the agent's calls of memcpy looked into shadow memory that was managed, and it
/// waited for itself; it used thread-locals of the sanitizer's that its thread does not have. And
/// the search for leaks at the end stops all threads but one of its own, which then waited for
/// pages.
fn sanitized(context: &Context, name: &str, options: &[&str]) -> Outcome {
    let program = packages::compile(context, &format!("sanitized-{name}"), BLOCKS, options)?;
    let finished =
        Launch::new(context, format!("citizens-{name}"), program).ram(100 * MIB).timeout(180).run()?;
    finished.succeeded()?.paged().map(drop)
}

/// *The story:* a script that set the sanitizer's options, or cleaned the environment, started a program
/// that refused to be loaded behind the agent.
fn sanitized_elsewhere(context: &Context) -> Outcome {
    let program = packages::compile(context, "sanitized-elsewhere", BLOCKS, &["-fsanitize=address"])?;
    let script = "ASAN_OPTIONS=detect_leaks=0 \"$0\" && exec env -i \"$0\"";
    let launch = Launch::new(context, "citizens-sanitized-elsewhere", "sh").args(["-c", script]);
    launch.args([&program]).ram(100 * MIB).timeout(180).run()?.succeeded()?.paged().map(drop)
}

/// *The story:* a program that asked for a search for leaks in mid-run, with memory out, waited for ever:
/// who searches had stopped the agent, and waited for it. `comes_back`: the agent sees the end of it.
fn searched(context: &Context, name: &str, options: &[&str], comes_back: bool) -> Outcome {
    let program = packages::compile(context, &format!("leaks-{name}"), LEAKS, options)?;
    let launch = Launch::new(context, format!("citizens-leaks-{name}"), program).ram(48 * MIB);
    let finished = launch.timeout(120).run()?;
    finished.succeeded()?.paged()?;
    let Some(report) = &finished.report else { return Ok(()) };
    ensure!(has_event(report, "leak_search"), "{}", finished.complain("no search is told"));
    let is_managed = report["managed"] == true;
    ensure!(is_managed == comes_back, "{}", finished.complain("not managed as it should be afterwards"));
    let reason = report["unmanaged_reason"].as_str().unwrap_or_default();
    ensure!(comes_back || reason.contains("search for leaks"), "{}", finished.complain("no reason"));
    // 64 MiB were filled again after the search: they left by then.
    let stdout = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
    let resident: Option<u64> = stdout.lines().find_map(|line| line.strip_prefix("resident ")?.parse().ok());
    ensure!(resident.is_some(), "{}", finished.complain("nothing is told"));
    ensure!(!comes_back || resident < Some(80), "{}", finished.complain("above the budget afterwards"));
    Ok(())
}

/// *The story:* where no leaks are searched for (`detect_leaks=0`, or the program's own word) everything was
/// brought in at the end all the same: three times the budget, and no word why.
fn not_searched(context: &Context) -> Outcome {
    let program = packages::compile(context, "leaks-off", BLOCKS, &["-fsanitize=address"])?;
    let launch = Launch::new(context, "citizens-leaks-off", program).env("ASAN_OPTIONS", "detect_leaks=0");
    let finished = launch.ram(100 * MIB).timeout(180).run()?;
    finished.succeeded()?.paged()?;
    let Some(report) = &finished.report else { return Ok(()) };
    ensure!(!has_event(report, "leak_search"), "{}", finished.complain("a search is told"));
    let kind = &report["verdict"]["kind"];
    ensure!(kind != "exceeded", "{}", finished.complain("above the budget"));
    Ok(())
}

/// *The story:* it was above its budget for the search at its end, and no word why.
fn searched_at_the_end(context: &Context) -> Outcome {
    let program = packages::compile(context, "leaks-on", BLOCKS, &["-fsanitize=address"])?;
    let finished = Launch::new(context, "citizens-leaks-on", program).ram(100 * MIB).timeout(180).run()?;
    finished.succeeded()?.paged()?;
    let Some(report) = &finished.report else { return Ok(()) };
    ensure!(has_event(report, "leak_search"), "{}", finished.complain("no search is told"));
    let verdict = &report["verdict"];
    let text = verdict["text"].as_str().unwrap_or_default();
    let is_told = verdict["kind"] != "exceeded" || text.contains("search for leaks");
    ensure!(is_told, "{}", finished.complain("no reason is told"));
    Ok(())
}

fn has_event(report: &serde_json::Value, event: &str) -> bool {
    let processes = report["processes"].as_array().into_iter().flatten();
    let mut events = processes.filter_map(|process| process["events"].as_array()).flatten();
    events.any(|told| told == event)
}

/// *The story:* beside a program with a real-time class on one processor the agent never ran: there was
/// no limit at all, and `--strict` was content.
fn real_time(context: &Context) -> Outcome<Verdict> {
    let launch = Launch::new(context, "citizens-real-time", "taskset");
    let launch = launch.args(["1", "chrt", "-f", "50"]).args([&context.torture]);
    let launch = launch.args(["cold", "--mib", "96", "--dir"]).args([&context.scratch]);
    launch.ram(48 * MIB).timeout(60).run()?.succeeded()?.paged()?.within_budget()
}

/// The kernel kills a process of which a real-time thread works for longer than its limit without a
/// pause. *The story:* that thread was the agent's: every second run with 500 us was killed.
fn bounded_real_time(context: &Context) -> Outcome {
    let real_time = |limit: &str| -> Outcome<usize> {
        let launch = Launch::new(context, "citizens-bounded-real-time", "prlimit");
        let launch = launch.args([&format!("--rttime={limit}"), "sh", "-c"]);
        let finished =
            launch.args(["sleep 0.1; cat /proc/$$/task/*/stat"]).ram(100 * MIB).timeout(60).run()?;
        finished.succeeded()?;
        let said = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
        // The policy is the 41st field of all, and the name, which is the second, has no blank.
        let policies: Vec<&str> = said.lines().filter_map(|line| line.split(' ').nth(40)).collect();
        ensure!(
            policies.len() == 2,
            "{}",
            finished.complain(&format!("not the shell and the agent: {said}"))
        );
        Ok(policies.iter().filter(|&&policy| policy != "0").count())
    };
    let counts = [real_time("unlimited")?, real_time("1000000:1000000")?];
    ensure!(counts == [1, 0], "{counts:?} threads are real-time without a limit and with one");
    Ok(())
}

/// Fails unless the report has these words.
fn reported(finished: &Finished, words: &str) -> Outcome {
    let is_there = finished.report()?.to_string().contains(words);
    ensure!(is_there, "{}", finished.complain(&format!("the report does not say: {words}")));
    Ok(())
}

/// *The stories:* valgrind ended the program for the agent's thread, which it cannot run; and a child of
/// `_Fork`, which was to have an agent though its parent had none.
fn valgrind(context: &Context) -> Outcome {
    let valgrind = packages::program("valgrind", "valgrind")?;
    let launch = Launch::new(context, "citizens-valgrind", &valgrind).args(["-q", "true"]);
    let finished = launch.ram(100 * MIB).timeout(60).run()?;
    finished.succeeded()?;
    reported(&finished, "it runs in valgrind")?;
    let program = packages::compile(context, "quiet", QUIET, &[])?;
    let launch = Launch::new(context, "citizens-valgrind-forks", valgrind).args(["-q"]).args([&program]);
    launch.ram(100 * MIB).timeout(180).run()?.succeeded().map(drop)
}

/// A program and all that it starts are traced. *The story:* so was the agent, which stopped at each of
/// its calls: 200 MiB in 77 held 181, and next to all of what strace wrote was the agent's.
fn traced(context: &Context) -> Outcome {
    let strace = packages::program("strace", "strace")?;
    let calls = context.path("citizens-traced.calls");
    let launch = Launch::new(context, "citizens-traced", strace).args(["-f", "-o"]).args([&calls]);
    let launch = launch.args([&context.torture]).args(["cold", "--expect-cold", "--dir"]);
    launch.args([&context.scratch]).ram(64 * MIB).timeout(180).run()?.succeeded()?.paged()?;
    let calls = std::fs::read_to_string(&calls).map_err(|error| error.to_string())?;
    ensure!(calls.contains("+++ exited with 0 +++"), "strace has not seen the program's end");
    let agents = calls.lines().filter(|line| line.contains("UFFDIO_") || line.contains("io_uring_enter"));
    let agents: Vec<&str> = agents.take(3).collect();
    ensure!(agents.is_empty(), "the agent was traced: {agents:?}");
    Ok(())
}

/// *The story:* where the library's directory was out of sight each program began with the loader's
/// complaint, and nobody said why it had no agent.
fn hidden_library(context: &Context) -> Outcome {
    let unshare = packages::program("unshare", "util-linux")?;
    let script = "mount -t tmpfs none \"${LD_PRELOAD%/*}\" && exec sleep 0.5";
    let launch = Launch::new(context, "citizens-hidden-library", unshare).args(["-m", "sh", "-c", script]);
    let finished = launch.ram(100 * MIB).timeout(60).run()?;
    finished.succeeded()?;
    ensure!(!finished.stderr.contains("ld.so"), "{}", finished.complain("the loader complains"));
    reported(&finished, "the agent's library is not to be found from its root")?;
    reported(&finished, "TMPDIR=DIR overspill run .. puts it into a directory, say /var/tmp")
}

/// *The story:* without /proc everything ran without a limit, and `--strict` ended with 0.
fn no_proc(context: &Context) -> Outcome {
    let unshare = packages::program("unshare", "util-linux")?;
    // There may be one below the other.
    let script = "while umount -l /proc; do :; done; exec \"$0\" run --ram 100M --strict -- true";
    let launch = Launch::new(context, "citizens-no-proc", unshare).args(["-m", "sh", "-c", script]);
    let finished = launch.args([&context.overspill]).timeout(60).run()?;
    finished.exited(125)?;
    ensure!(finished.stderr.contains("/proc"), "{}", finished.complain("it does not say what is missing"));
    Ok(())
}

/// *The story:* the child of a program with a list of twenty calls was killed, as the agent that
/// was started in it made others.
fn filtered(context: &Context, flags: &str) -> Outcome {
    let program = packages::compile(context, "filtered", FILTER, &[])?;
    let finished = Launch::new(context, format!("citizens-filter-{flags}"), program)
        .args([flags])
        .ram(48 * MIB)
        .timeout(180)
        .run()?;
    finished.succeeded()?.paged().map(drop)
}

/// A pid namespace of the program's own, without a /proc of its own. *The story:* the numbers of the two
/// were mixed. Nobody was told of a lock whose owner had ended, and the descriptors of the machine's
/// first process were looked at in place of the program's: what it had lent changed. And a child that
/// ended by exit(2) stayed for ever.
fn proc_of_outside(context: &Context) -> Outcome {
    let unshare = packages::program("unshare", "util-linux")?;
    for subtest in ["robust", "zero-copy", "splice-own", "fork-forms"] {
        let launch = Launch::new(context, format!("citizens-proc-{subtest}"), &unshare).args(["-pf"]);
        let launch = launch.args([&context.torture]).args([subtest, "--expect-cold", "--dir"]);
        launch.args([&context.scratch]).ram(64 * MIB).timeout(180).run()?.succeeded()?.paged()?;
    }
    Ok(())
}

/// *The story:* the kernel answered EINVAL, as the program had a thread that it did not know of.
fn user_namespace(context: &Context) -> Outcome {
    let unshare = packages::program("unshare", "util-linux")?;
    let finished = Launch::new(context, "citizens-unshare", unshare)
        .args(["-Ur", "id", "-u"])
        .ram(100 * MIB)
        .timeout(180)
        .run()?;
    finished.succeeded()?;
    let said = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
    ensure!(said.trim() == "0", "{}", finished.complain(&format!("id -u says {said}")));
    Ok(())
}

/// *The story:* an agent that came back mapped the shared page once more each time.
///
/// *The other story:* a signal handler forked while the program's only thread waited for the agent
/// to go. The child waited for ever, for a thread that its parent had.
fn away(context: &Context, what: &str) -> Outcome {
    let program = packages::compile(context, "away", AWAY, &[])?;
    let launch = Launch::new(context, format!("citizens-away-{what}"), program);
    launch.args([what]).ram(64 * MIB).timeout(180).run()?.succeeded().map(drop)
}

fn user_namespace_while_paging(context: &Context) -> Outcome {
    let program = packages::compile(context, "alone", ALONE, &[])?;
    let finished = Launch::new(context, "citizens-alone", program).ram(48 * MIB).timeout(180).run()?;
    finished.succeeded()?.paged().map(drop)
}

/// Fails unless every program of a run was managed.
fn all_managed(finished: &Finished) -> Outcome {
    let report = finished.report()?;
    let processes = report["processes"].as_array().map_or(&[][..], Vec::as_slice);
    let are = !processes.is_empty() && processes.iter().all(|process| process["managed"] == true);
    ensure!(are, "{}", finished.complain("not all of it was managed"));
    Ok(())
}

/// What podman and others do. *The story:* the agent went for the user namespace, and the kernel
/// makes no thread for who has asked for another pid namespace: it did not come back.
fn several_namespaces(context: &Context) -> Outcome {
    let unshare = packages::program("unshare", "util-linux")?;
    let launch = Launch::new(context, "citizens-several-namespaces", unshare);
    let launch = launch.args(["-Urpf", "--mount-proc", "sh", "-c", "id -u; echo $$"]);
    let finished = launch.ram(100 * MIB).timeout(180).run()?;
    finished.succeeded()?;
    let said = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
    ensure!(said == "0\n1\n", "{}", finished.complain(&format!("user and process are {said}")));
    all_managed(&finished)
}

/// setns of a pidfd is one call, as it may be refused halfway in two. No agent comes back after it.
fn entered_namespaces(context: &Context) -> Outcome {
    let program = packages::compile(context, "enters", ENTERS, &[])?;
    let finished = Launch::new(context, "citizens-enters", program).ram(32 * MIB).timeout(180).run()?;
    finished.succeeded()?;
    let managed = &finished.report()?["managed"];
    ensure!(*managed == false, "{}", finished.complain("nobody says that the program had no agent"));
    Ok(())
}

/// The kernel's number of the first pid namespace.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

fn counted_threads(context: &Context) -> Outcome<Verdict> {
    let program = packages::compile(context, "threads", THREADS, &[])?;
    let finished = Launch::new(context, "citizens-threads", program).ram(32 * MIB).timeout(180).run()?;
    finished.succeeded()?.paged()?;
    // Threads that the kernel has made for an io_uring bear a number of the first namespace: elsewhere the
    // agent goes for a look, and all comes in.
    let is_first = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.ends_with(FIRST_NAMESPACE));
    if is_first { finished.within_budget() } else { Ok(Verdict::default()) }
}

/// *The stories:* what the agent had to say of full swap went into a program's data, which had
/// become descriptor 2; and into a full pipe, where the agent waited for ever, and all threads for it.
fn says(context: &Context, what: &str) -> Outcome {
    let program = packages::compile(context, "says", SAYS, &[])?;
    let launch = Launch::new(context, format!("citizens-says-{what}"), program);
    let launch = launch.args([what]).args([context.path("says.data")]);
    let finished = launch.ram(20 * MIB).options(["--swap-max", "8M"]).timeout(60).run()?;
    finished.succeeded()?.paged()?;
    let is_said = finished.stderr.contains("overspill: swap is full: the program goes on");
    ensure!(
        is_said == (what == "plain"),
        "{}",
        finished.complain("that swap is full is said to nobody else")
    );
    Ok(())
}

/// *The story:* a thread that wrote cold memory to a file held the file's lock while it waited for
/// the agent, and the agent waited for that lock to write its own line to the same file.
fn output_among_errors(context: &Context) -> Outcome {
    let program = packages::compile(context, "errors", ERRORS, &["-pthread"])?;
    let run = |name: &str, words: &[&str]| -> Outcome {
        let launch = Launch::new(context, format!("citizens-errors-{name}"), words[0]).args(&words[1..]);
        let options = ["--swap-max", "48M", "--max-pool-percent", "0"];
        let finished = launch.args([&program]).ram(32 * MIB).options(options).timeout(40).run()?;
        finished.succeeded()?.paged()?;
        reported(&finished, "swap_full")?;
        Ok(())
    };
    run("file", &["nice", "-n", "0"])?;
    run("pipe", &["sh", "-c", "{ \"$0\" 2>&1 || kill $$; } | cat > /dev/null"])
}

/// *The story:* libc's `syscall` with the number of execve and a cleaned environment led out of the run.
fn bare_execs(context: &Context) -> Outcome {
    let program = packages::compile(context, "execs", EXECS, &[])?;
    for way in ["execve", "execveat", "fexecve"] {
        let launch = Launch::new(context, format!("citizens-execs-{way}"), &program);
        launch.args([way]).ram(32 * MIB).timeout(180).run()?.succeeded()?.paged()?;
    }
    Ok(())
}

/// *The story:* a program that nobody may look into, and that is not root's, may not open its own
/// page map, which the agent opened when the budget was near.
fn hidden(context: &Context) -> Outcome {
    let program = packages::compile(context, "hidden", HIDDEN, &[])?;
    let launch = Launch::new(context, "citizens-hidden", "setpriv");
    let launch = launch.args(["--reuid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
    launch.args([&program]).ram(48 * MIB).timeout(180).run()?.succeeded()?.paged().map(drop)
}

/// *The story:* a handler's child went on in a call that waited for its parent's agent, for ever.
fn handlers(context: &Context) -> Outcome {
    let program = packages::compile(context, "handlers", HANDLERS, &[])?;
    let file = context.path("handlers.data");
    for what in ["lock", "fork", "map"] {
        let launch = Launch::new(context, format!("citizens-handlers-{what}"), &program);
        let launch = launch.args([what]).args([&file]).options(["--files=4M"]);
        launch.ram(20 * MIB).timeout(60).run()?.succeeded()?;
    }
    let _mode = Setting::new("/proc/sys/vm/overcommit_memory", "1")?;
    let launch = Launch::new(context, "citizens-handlers-mark", "setpriv");
    let launch = launch.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]);
    launch.args([&program]).args(["mark"]).ram(20 * MIB).timeout(60).run()?.succeeded().map(drop)
}

/// *The stories:* the range of whoever speaks, or of the agent that is gone, was all that lies below its end.
/// Nothing was managed any more once the agent came back, and mlockall locked nothing.
fn afterwards(context: &Context, what: &str) -> Outcome {
    let program = packages::compile(context, "afterwards", AFTERWARDS, &[])?;
    let launch = Launch::new(context, format!("citizens-afterwards-{what}"), program).args([what]);
    let options = ["--swap-max", "8M", "--max-pool-percent", "0"];
    let finished = launch.ram(20 * MIB).options(options).timeout(120).run()?;
    finished.succeeded()?;
    if what == "managed" {
        reported(&finished, "swap_full")?;
    }
    Ok(())
}

/// The kernel keeps the first process of a pid namespace from ending, or stopping, itself by a signal.
///
/// *The story:* with `--on-full kill` it went on above its budget; with `stop` it was said to be stopped.
fn first_of_its_namespace(context: &Context) -> Outcome {
    packages::program("unshare", "util-linux")?;
    let program = packages::compile(context, "says", SAYS, &[])?;
    let run = |how: &str| {
        let launch = Launch::new(context, format!("citizens-first-{how}"), "sh");
        let launch = launch.args(["-c", "unshare -pf --mount-proc \"$0\"; echo $?"]).args([&program]);
        launch.ram(20 * MIB).options(["--swap-max", "8M", "--on-full", how]).timeout(60).run()
    };
    let finished = run("kill")?;
    finished.exited(125)?;
    let said = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
    ensure!(said == "137\n", "{}", finished.complain(&format!("its status is {said}")));
    let finished = run("stop")?;
    finished.succeeded()?;
    let is_said = finished.stderr.contains("cannot be stopped");
    ensure!(is_said, "{}", finished.complain("it does not say that it goes on"));
    Ok(())
}

/// *The story:* the child of a handler's fork in a child of fork went on there with an agent, which was
/// forgotten for a second one. Its own forks waited for ever.
fn nested(context: &Context) -> Outcome {
    let program = packages::compile(context, "nested", NESTED, &[])?;
    Launch::new(context, "citizens-nested", program).ram(32 * MIB).timeout(120).run()?.succeeded().map(drop)
}

/// *The story:* it was killed for a call of the agent's.
fn filtered_child(context: &Context) -> Outcome {
    let program = packages::compile(context, "strict", STRICT, &[])?;
    Launch::new(context, "citizens-strict", program).ram(32 * MIB).timeout(60).run()?.succeeded().map(drop)
}

/// *The story:* a thread with the smallest stack executed a program, and what its environment was put
/// together in ran into the guard.
fn small_stack(context: &Context) -> Outcome {
    let program = packages::compile(context, "execs", EXECS, &[])?;
    let launch = Launch::new(context, "citizens-small-stack", program).args(["small"]);
    launch.ram(32 * MIB).timeout(60).run()?.succeeded()?.paged().map(drop)
}

/// *The story:* mremap to a given place took 13 KiB of stack: a thread with the smallest one ran into its
/// guard.
fn small_stack_moves(context: &Context) -> Outcome {
    let program = packages::compile(context, "jumps", JUMPS, &["-O2"])?;
    let launch = Launch::new(context, "citizens-small-stack-moves", program).args(["small"]);
    launch.ram(32 * MIB).timeout(60).run()?.succeeded()?.paged().map(drop)
}

/// *The story:* handlers left mremap by siglongjmp. Each such call counted as one under way, for good, and
/// what is taken in turns with mremap waited 50 ms for it, each time: 3.6 seconds in place of 0.7.
fn jumps(context: &Context) -> Outcome {
    let program = packages::compile(context, "jumps", JUMPS, &["-O2"])?;
    let launch = Launch::new(context, "citizens-jumps", program).args(["remap"]);
    let finished = launch.ram(32 * MIB).timeout(60).run()?;
    finished.succeeded()?.paged()?;
    let told = std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())?;
    let times: Vec<u64> = told.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [before, after] = times[..] else { return Err(finished.complain(&told)) };
    ensure!(
        after < 3 * before + 1000,
        "{}",
        finished.complain(&format!("{before} ms before, {after} after"))
    );
    Ok(())
}

/// *The story:* handlers left calls that populate by siglongjmp. Their bytes were expected for ever, and a
/// program that fits was managed.
fn jumps_that_fit(context: &Context) -> Outcome {
    let program = packages::compile(context, "jumps", JUMPS, &["-O2"])?;
    let launch = Launch::new(context, "citizens-jumps-that-fit", program).args(["populate"]);
    let finished = launch.ram(64 * MIB).timeout(60).run()?;
    finished.succeeded()?;
    let state = &finished.report()?["processes"][0]["state"];
    ensure!(state == "watching", "{}", finished.complain(&format!("{state}, though it fits")));
    Ok(())
}

/// *The stories:* handlers left mremap of a mapping with stores by siglongjmp, while it grew: part of it had
/// moved, and the rest had not. And one run in three hung, as the agent waited for itself.
fn jumps_that_grow(context: &Context) -> Outcome {
    let program = packages::compile(context, "jumps", JUMPS, &["-O2"])?;
    let file = context.path("grow.data");
    let bytes: Vec<u8> = (0..16 * MIB).map(|at| (at >> 16) as u8).collect();
    std::fs::write(&file, bytes).map_err(|error| error.to_string())?;
    let launch = Launch::new(context, "citizens-jumps-that-grow", program).args(["grow"]).args([&file]);
    launch.ram(32 * MIB).options(["--files=8M"]).timeout(120).run()?.succeeded()?.paged().map(drop)
}

/// *The story:* a program that is linked with the older hash table had a variable `environ` that nobody
/// found, and what it started had no environment.
fn own_environment(context: &Context) -> Outcome {
    let options = ["-fno-pie", "-no-pie", "-Wl,--hash-style=sysv"];
    let program = packages::compile(context, "execs-older", EXECS, &options)?;
    let launch = Launch::new(context, "citizens-own-environment", program).args(["variable"]);
    launch.ram(32 * MIB).timeout(60).run()?.succeeded().map(drop)
}
