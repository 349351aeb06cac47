//! What a summary says is so: what is held is counted once, nothing that is held is left out, and where
//! something is not managed the reason is the true one.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::context::Context;
use crate::launch::{Finished, Launch, MIB};
use crate::trees::{kind, text};
use crate::{Outcome, Test, ensure, json, packages};

const SUMS: &str = include_str!("trees/sums.c");
/// Of what [`moves`] and [`last_thread`] hold twice as much.
const MOVED_RAM: u64 = 40 * MIB;

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("limits::sum-of-a-daemon", daemon),
        Test::new("limits::sum-of-a-reader", reader),
        Test::new("limits::sum-of-readers", readers),
        Test::new("limits::sum-of-heirs", heirs),
        Test::new("limits::sum-of-secret-memory", secret),
        Test::new("limits::sum-of-page-tables", tables),
        Test::new("limits::sum-that-moves", moves),
        Test::new("limits::sum-of-a-last-thread", last_thread),
        Test::new("limits::reason-capabilities", capabilities),
        Test::new("limits::reason-no-environment", no_environment),
        Test::new("limits::reason-no-thread", no_thread),
        Test::new("limits::namespaces", namespaces),
    ]
}

fn program(context: &Context) -> Outcome<PathBuf> {
    packages::compile(context, "sums", SUMS, &[])
}

fn run(context: &Context, name: &str, words: &[&str], ram: u64, options: &[&str]) -> Outcome<Finished> {
    Launch::new(context, format!("sums-{name}"), program(context)?)
        .args(words)
        .ram(ram)
        .options(options)
        .timeout(120)
        .run()
}

/// A figure of the report's.
fn figure(finished: &Finished, name: &str) -> Outcome<u64> {
    json::number(finished.report()?, name)
}

/// *The story:* a daemon's parent ended, and what it had in common with its parent's parent counted twice:
/// 100 MiB "went above the budget, to 202", and 40 MiB were paged in 64.
fn daemon(context: &Context) -> Outcome {
    for (held, ram) in [(100, 125), (40, 64)] {
        let held_text = held.to_string();
        let finished = run(context, &format!("daemon-{held}"), &["daemon", &held_text], ram * MIB, &[])?;
        finished.succeeded()?;
        let (told, out) = (figure(&finished, "tree_peak_bytes")?, figure(&finished, "pswpout").unwrap_or(0));
        let verdict = kind(finished.report()?);
        let what = format!("{held} MiB: {verdict}, {} MiB, {out} pages went out", told / MIB);
        ensure!(
            verdict == "fits" && told < (held + held / 8) * MIB && out == 0,
            "{}",
            finished.complain(&what)
        );
    }
    Ok(())
}

/// *The story:* what a child of fork had inherited in slots counted as its own, too: of 224 MiB 485 "would
/// avoid that".
fn reader(context: &Context) -> Outcome {
    needs(&run(context, "reader", &["reader", "200"], 64 * MIB, &[])?, 200..300)
}

/// It paged, and so many MiB were needed.
fn needs(finished: &Finished, expected: Range<u64>) -> Outcome {
    finished.succeeded()?.paged()?;
    let needed = figure(finished, "needed_bytes")?;
    let what = format!("{} MiB were needed", needed / MIB);
    ensure!((expected.start * MIB..expected.end * MIB).contains(&needed), "{}", finished.complain(&what));
    Ok(())
}

/// *The story:* a page that parent and children had together was copied so that it could leave, and each copy
/// counted as needed: of 100 MiB "X" was told that was 1.5 to 3.4 times as much.
fn readers(context: &Context) -> Outcome {
    needs(&run(context, "readers", &["readers", "100"], 70 * MIB, &[])?, 100..125)
}

/// *The story:* what children had inherited and let go of was told as held beside what they filled: "never
/// needed more than" the budget, 260 MiB, of 191. And of workers that were seen when their parent had ended
/// each counted in full, 301 of 101.
fn heirs(context: &Context) -> Outcome {
    for (kind, ram, most) in [("discards", 260, 215), ("left", 400, 125)] {
        let finished = run(context, kind, &[kind, "100"], ram * MIB, &[])?;
        finished.succeeded()?;
        let told = figure(&finished, "tree_peak_bytes")?;
        let what = format!("{kind}: {} MiB", told / MIB);
        ensure!((95 * MIB..most * MIB).contains(&told), "{}", finished.complain(&what));
    }
    Ok(())
}

/// *The story:* what memfd_secret makes counted with files: "fits: never needed more than 236 KiB" of 100 MiB
/// that nobody can page, and `--strict` let it run.
fn secret(context: &Context) -> Outcome {
    let finished = run(context, "secret", &["secret", "100"], 48 * MIB, &[])?;
    if finished.exited(77).is_ok() {
        return Ok(()); // the kernel has none
    }
    finished.succeeded()?;
    let (told, verdict) = (figure(&finished, "tree_peak_bytes")?, kind(finished.report()?));
    let what = format!("{verdict}, {} MiB", told / MIB);
    ensure!(verdict == "exceeded" && told >= 100 * MIB, "{}", finished.complain(&what));
    let strict = run(context, "secret-strict", &["secret", "100"], 48 * MIB, &["--strict"])?;
    let verdict = kind(strict.report()?);
    ensure!(verdict == "strict_refused", "{}", strict.complain(verdict));
    run(context, "secret-little", &["secret", "20"], 48 * MIB, &["--strict"])?.succeeded()?;
    Ok(())
}

/// *The story:* 60 GiB of which a page was read each 2 MiB have 120 MiB of page tables: "fits".
fn tables(context: &Context) -> Outcome {
    let finished = run(context, "tables", &["tables", "60"], 48 * MIB, &[])?;
    finished.succeeded()?;
    let told = verdict_text(&finished)?;
    ensure!(
        kind(finished.report()?) == "exceeded" && told.contains("page tables"),
        "{}",
        finished.complain(&told)
    );
    Ok(())
}

/// *The story:* a program loaded a file into shared memory and let go of what it had read. The sum of both
/// stayed, so nobody asked: of 250 MiB in 100 "fits: never needed more than 496 KiB" was said.
fn moves(context: &Context) -> Outcome {
    let file = context.path("sums-moves.file");
    std::fs::write(&file, vec![7_u8; 80 << 20]).map_err(|error| error.to_string())?;
    let finished = run(context, "moves", &["moves", "80", &text(&file)], MOVED_RAM, &["--strict"])?;
    std::fs::remove_file(&file).map_err(|error| error.to_string())?;
    refused(&finished)
}

/// *The story:* of a process whose first thread has ended /proc/PID/status says nothing of memory, and that
/// counted as none: 200 MiB that were shared or locked "fitted" in 100.
fn last_thread(context: &Context) -> Outcome {
    for kind in ["last-shares", "last-locks"] {
        refused(&run(context, kind, &[kind, "80"], MOVED_RAM, &["--strict"])?)?;
    }
    Ok(())
}

/// What nobody can page was seen to be more than the budget, and `--strict` ended the run for it.
fn refused(finished: &Finished) -> Outcome {
    let (told, verdict) = (figure(finished, "tree_peak_bytes")?, kind(finished.report()?));
    let what = format!("{verdict}, {} MiB", told / MIB);
    ensure!(verdict == "strict_refused" && told > MOVED_RAM, "{}", finished.complain(&what));
    Ok(())
}

fn verdict_text(finished: &Finished) -> Outcome<String> {
    let text = finished.report()?["verdict"]["text"].as_str();
    text.map(str::to_owned).ok_or_else(|| "there is no verdict".to_owned())
}

/// Runs what cannot be managed, of which that is to be said.
fn unmanaged(finished: &Finished, reason: &str) -> Outcome {
    finished.succeeded()?;
    let told = finished.report()?.to_string();
    ensure!(told.contains(reason) && !told.contains("sandbox"), "{}", finished.complain(reason));
    Ok(())
}

/// *The story:* "a sandbox (Landlock) may keep the library from it", as root's launcher asked what it would
/// have been to root.
fn capabilities(context: &Context) -> Outcome {
    let program = program(context)?;
    let given = context.path("sums-given");
    std::fs::copy(&program, &given).map_err(|error| error.to_string())?;
    give_capability(&given)?;
    let finished = Launch::new(context, "sums-capabilities", packages::program("setpriv", "util-linux")?)
        .args(["--reuid", "65534", "--clear-groups", &text(&given), "plain", "20"])
        .ram(64 * MIB)
        .timeout(60)
        .run()?;
    unmanaged(&finished, "given file capabilities")
}

/// In a user and a network namespace it is managed, and with one of both.
///
/// *The story:* with both no way led from there to the launcher.
fn namespaces(context: &Context) -> Outcome {
    let of = |options: &str| {
        Launch::new(context, "sums-namespaces", packages::program("unshare", "util-linux")?)
            .args([options, &text(&program(context)?), "plain", "20"])
            .ram(64 * MIB)
            .timeout(60)
            .run()
    };
    for options in ["-Urn", "-Ur", "-n"] {
        let finished = of(options)?;
        let is_managed = finished.succeeded()?.report()?["managed"] == true;
        ensure!(is_managed, "{}", finished.complain(options));
    }
    Ok(())
}

/// CAP_NET_RAW, in effect at once.
fn give_capability(path: &Path) -> Outcome {
    let words: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let file = std::ffi::CString::new(text(path)).map_err(|error| error.to_string())?;
    let name = c"security.capability";
    // SAFETY: two strings that end, and a value of that length.
    let result =
        unsafe { libc::setxattr(file.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    let error = std::io::Error::last_os_error();
    ensure!(result == 0, "capabilities of {}: {error}", path.display());
    Ok(())
}

/// The same of an exec by the bare instruction that gives no environment.
fn no_environment(context: &Context) -> Outcome {
    let finished = run(context, "bare", &["bare", "20"], 64 * MIB, &[])?;
    unmanaged(&finished, "its environment was cleaned before it was started")
}

/// The same where one thread is all that may be: nobody told the launcher that none could be made. With two
/// an agent is one of them, and does its own I/O where there is no io_uring.
fn no_thread(context: &Context) -> Outcome {
    let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(Path::new);
    let group = roots.iter().map(|root| root.join(format!("overspill-sums-{}", std::process::id())));
    let made = group.into_iter().find(|group| {
        let has_limit = || group.join("pids.max").exists();
        std::fs::create_dir(group).is_ok() && (has_limit() || std::fs::remove_dir(group).is_err())
    });
    let group = made.ok_or("no group of processes can be made (pids)")?;
    let alone = run(context, "alone", &["alone", "1", &text(&group)], 48 * MIB, &[]);
    let two = run(context, "two", &["alone", "2", &text(&group)], 48 * MIB, &["--no-uring"]);
    let _ = std::fs::remove_dir(&group);
    unmanaged(&alone?, "the agent could not start the agent's thread")?;
    let two = two?;
    two.succeeded()?.paged()?;
    let is_managed = two.report()?["managed"] == true;
    ensure!(is_managed, "{}", two.complain(kind(two.report()?)));
    Ok(())
}
