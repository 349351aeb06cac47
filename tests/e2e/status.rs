//! The child's exit status and signals are the launcher's, and its streams, descriptors, directory
//! and environment are its own.

use crate::context::{Context, Mode};
use crate::launch::{Finished, Launch, MIB};
use crate::{Outcome, Test, ensure, packages};

const PARENTS: &str = include_str!("citizens/parents.c");

/// All of this file.
pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("status::streams", streams),
        Test::new("status::surroundings", surroundings),
        Test::new("status::parents", parents),
        Test::new("status::paths", paths),
        Test::new("status::exit-while-paging", exit_while_paging),
        Test::new("status::signals-while-paging", signals_while_paging),
    ];
    for code in [0, 1, 7, 125, 126, 127, 255] {
        tests.push(Test::new(format!("status::exit-{code}"), move |context| {
            let expected = if context.mode == Mode::Broken { code ^ 1 } else { code };
            shell(context, &format!("exit-{code}"), &format!("exit {expected}"))?.exited(code).map(drop)
        }));
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGINT, libc::SIGHUP, libc::SIGABRT, libc::SIGSEGV] {
        tests.push(Test::new(format!("status::signal-{signal}"), move |context| {
            let sent = if context.mode == Mode::Broken { libc::SIGUSR1 } else { signal };
            let script = format!("ulimit -c 0; kill -{sent} $$; sleep 5");
            shell(context, &format!("signal-{signal}"), &script)?.killed_by(signal).map(drop)
        }));
    }
    tests
}

fn shell(context: &Context, name: &str, script: &str) -> Outcome<Finished> {
    Launch::new(context, format!("status-{name}"), "/bin/sh")
        .args(["-c", script])
        .ram(64 * MIB)
        .timeout(180)
        .run()
}

/// Standard input arrives, standard output holds the program's bytes and no others, the summary is
/// on standard error.
fn streams(context: &Context) -> Outcome {
    let input = context.path("status-streams.in");
    let text = "one\ntwo\0three".repeat(10_000);
    std::fs::write(&input, &text).map_err(|error| error.to_string())?;
    let program = if context.mode == Mode::Broken { "/usr/bin/wc" } else { "/bin/cat" };
    let finished = Launch::new(context, "status-streams", program).stdin(&input).ram(64 * MIB).run()?;
    finished.succeeded()?;
    let output = std::fs::read(&finished.stdout).map_err(|error| error.to_string())?;
    ensure!(
        output == text.as_bytes(),
        "cat gave {} bytes, not the {} it was given",
        output.len(),
        text.len()
    );
    if context.mode == Mode::Overspill {
        let lines = finished.stderr.lines().count();
        ensure!((1..=12).contains(&lines), "{}", finished.complain(&format!("a summary of {lines} lines")));
        let quiet = Launch::new(context, "status-quiet", "/bin/true").ram(64 * MIB).options(["-q"]).run()?;
        ensure!(quiet.stderr.is_empty(), "{}", quiet.complain("-q is not quiet"));
    }
    Ok(())
}

/// Working directory, descriptors, signal dispositions and umask are as they were.
fn surroundings(context: &Context) -> Outcome {
    let script = "pwd; umask; ls /proc/self/fd | wc -l; grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let script = if context.mode == Mode::Broken {
        format!("cd /; umask 0; exec 9</dev/null; {script}")
    } else {
        script.into()
    };
    let run = |name: &str, managed: bool, script: &str| -> Outcome<String> {
        let mut launch =
            Launch::new(context, name, "/bin/sh").args(["-c", script]).directory(&context.scratch);
        if managed {
            launch = launch.ram(64 * MIB);
        }
        let finished = launch.run()?;
        finished.succeeded()?;
        std::fs::read_to_string(&finished.stdout).map_err(|error| error.to_string())
    };
    let plain = "pwd; umask; ls /proc/self/fd | wc -l; grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let bare = run("status-surroundings-bare", false, plain)?;
    let under = run("status-surroundings", true, &script)?;
    ensure!(bare == under, "the program sees other surroundings:\nbare:\n{bare}under overspill:\n{under}");
    Ok(())
}

/// Who is a process's parent is what it would be without the launcher.
///
/// *The story:* orphans are the launcher's. Workers that end once their parent is process 1 never did, and
/// the command waited for them; and one that was told whose child it is to be was the launcher's.
fn parents(context: &Context) -> Outcome {
    let program = packages::compile(context, "parents", PARENTS, &[])?;
    let starter = std::process::id() + u32::from(context.mode == Mode::Broken);
    // Bare somebody else may adopt orphans than process 1.
    let adopters = (context.mode == Mode::Bare).then_some("elsewhere");
    let launch = Launch::new(context, "status-parents", program).args([starter.to_string()]).args(adopters);
    launch.ram(64 * MIB).timeout(60).run()?.succeeded().map(drop)
}

/// What `doctor` finds is what the agent uses. *The story behind it:* the agent's mappings were put
/// at certain addresses once, which io_uring refuses, and every program was paged by threads
/// without anybody's being told.
fn paths(context: &Context) -> Outcome {
    if context.mode == Mode::Bare {
        return Ok(());
    }
    ensure!(context.mode == Mode::Overspill, "without overspill nothing is used");
    let doctor = context.overspill_command().arg("doctor").output().map_err(|error| error.to_string())?;
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let finds = |words: &[&str]| {
        doctor.lines().any(|line| line.starts_with("ok") && words.iter().all(|word| line.contains(word)))
    };
    let finished = Launch::new(context, "status-paths", &context.torture)
        .args(["munmap", "--seconds", "1", "--dir"])
        .args([&context.scratch])
        .ram(64 * MIB)
        .run()?;
    finished.succeeded()?.paged()?;
    let paths = finished.report()?.pointer("/processes/0/paths").cloned().unwrap_or_default();
    let uses = |path: &str| paths.as_array().is_some_and(|paths| paths.iter().any(|used| used == path));
    ensure!(
        uses("io_uring") == finds(&["io_uring", "available"])
            && uses("move") == finds(&["moving of pages"])
            && uses("idle_poll") == finds(&["idle processors", "kept awake"]),
        "{}",
        finished.complain(&format!("it uses {paths}, where doctor says:\n{doctor}"))
    );
    Ok(())
}

fn part(context: &Context, way: &str, argument: i32) -> Outcome<Finished> {
    Launch::new(context, format!("status-part-{way}-{argument}"), &context.torture)
        .args(["part", "exit", way, &argument.to_string()])
        .ram(64 * MIB)
        .timeout(240)
        .run()
}

/// A program that ends while eight threads wait for pages.
fn exit_while_paging(context: &Context) -> Outcome {
    let wrong = i32::from(context.mode == Mode::Broken);
    part(context, "return", 0)?.exited(wrong)?;
    part(context, "exit", 7)?.exited(7)?;
    part(context, "quick-exit", 9)?.exited(9)?;
    part(context, "main-leaves", 0)?.exited(0).map(drop)
}

/// The same by signals.
fn signals_while_paging(context: &Context) -> Outcome {
    let wrong = i32::from(context.mode == Mode::Broken);
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGABRT] {
        part(context, "signal", signal)?.killed_by(signal + wrong)?;
    }
    Ok(())
}
