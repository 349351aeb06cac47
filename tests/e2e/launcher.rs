//! The launcher where it is hard to be one: limits of processes, a /proc that hides some, pages that
//! leave without a trace.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::context::Context;
use crate::launch::{Launch, MIB};
use crate::trees::{kind, text};
use crate::{Outcome, Test, ensure, packages};

/// A user that has no processes on any machine.
const USER: &str = "61234";

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("launcher::few-processes", few_processes),
        Test::new("launcher::hidden", hidden),
        Test::new("launcher::zeroes", zeroes),
        Test::new("launcher::within-a-run", within_a_run),
        Test::new("launcher::within-a-strict-run", within_a_strict_run),
    ]
}

/// As that user, who may have so many processes and threads.
fn limited(context: &Context, name: &str, processes: u32, program: &[&str]) -> Outcome<Command> {
    let overspill = text(&context.overspill);
    let line = format!("ulimit -u {processes}; exec \"$0\" run --ram 32M -- \"$@\"");
    let mut command = Command::new(packages::program("setpriv", "util-linux")?);
    let may_page = ["--inh-caps", "+sys_ptrace", "--ambient-caps", "+sys_ptrace"];
    command
        .args(["--reuid", USER, "--clear-groups"])
        .args(may_page)
        .args(["/bin/bash", "-c", &line, &overspill])
        .args(program);
    let create = |suffix: &str| {
        let path = context.path(format!("{name}.{suffix}"));
        std::fs::File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    command.stdout(create("stdout")?).stderr(create("stderr")?).env("OVERSPILL_CONFIG", "/dev/null");
    Ok(command)
}

fn read(path: impl AsRef<Path>) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

/// *The story:* where one process more was allowed than the launcher and its helper are, the program was
/// started, and then no thread could be. The command ended with 125, and the program ran on.
fn few_processes(context: &Context) -> Outcome {
    const PROGRAM: &str = "$| = 1; print \"begun\\n\"; select(undef, undef, undef, 0.5); print \"done\\n\"";
    let perl = text(&packages::program("perl", "perl")?);
    let mut statuses = Vec::new();
    for processes in 1..=8 {
        let mut command = limited(context, "launcher-few", processes, &[&perl, "-e", PROGRAM])?;
        let status = command.status().map_err(|error| error.to_string())?;
        let (said, complaint) =
            (read(context.path("launcher-few.stdout"))?, read(context.path("launcher-few.stderr"))?);
        let expected = if status.success() { "begun\ndone\n" } else { "" };
        ensure!(said == expected, "with {processes}: {status}, and the program said {said:?}\n{complaint}");
        let is_told = status.success() || status.code() == Some(125) && complaint.contains("cannot");
        ensure!(is_told, "with {processes}: {status}: {complaint}");
        statuses.push(status.success());
    }
    ensure!(statuses.contains(&true) && statuses.contains(&false), "the limits are of no use: {statuses:?}");
    Ok(())
}

/// *The story* (by reading): a process that /proc does not show had ended, for the launcher. What belongs
/// to another user was neither managed nor mentioned.
fn hidden(context: &Context) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let directory = context.path("launcher-hidden");
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let sleep = directory.join("sleep");
    std::fs::copy("/bin/sleep", &sleep).map_err(|error| error.to_string())?;
    let set_mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
    set_mode(&directory, 0o777).and_then(|()| set_mode(&sleep, 0o4755)).map_err(|error| error.to_string())?;
    let json = directory.join("report");
    let _ = std::fs::remove_file(&json);
    let line = "mount -o remount,hidepid=2 /proc && mount -t tmpfs own /mnt && \
                if [ -e /dev/userfaultfd ]; then cp -a /dev/userfaultfd /mnt && \
                    chmod 666 /mnt/userfaultfd && mount --bind /mnt/userfaultfd /dev/userfaultfd; fi && \
                exec setpriv --reuid 65534 --regid 65534 --clear-groups $0 run --ram 32M --json $1 -- $2 1";
    let overspill = text(&context.overspill);
    let finished = Launch::new(context, "launcher-hidden", packages::program("unshare", "util-linux")?)
        .args(["-mpf", "--mount-proc", "/bin/sh", "-c", line, &overspill, &text(&json), &text(&sleep)])
        .env("OVERSPILL_CONFIG", "/dev/null")
        .timeout(60)
        .run()?;
    finished.succeeded()?;
    let report: Value = serde_json::from_str(&read(&json)?).map_err(|error| error.to_string())?;
    let is_told = report["managed"] == false && report["overlooked"] == true;
    ensure!(is_told, "{}", finished.complain(&format!("{}: {report}", kind(&report))));
    std::fs::remove_dir_all(&directory).map_err(|error| error.to_string())
}

/// *The story:* a GiB of zeroes that were read into 100 MiB left RAM without a trace: it "never needed
/// more than 99 MiB". What is proposed is tried.
fn zeroes(context: &Context) -> Outcome {
    let run = |ram: u64| -> Outcome<Value> {
        let finished = Launch::new(context, "launcher-zeroes", "/bin/dd")
            .args(["if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"])
            .ram(ram)
            .run()?;
        finished.succeeded()?;
        finished.report().cloned()
    };
    let left = |report: &Value| report["pager"]["zero_dropped"].as_u64().unwrap_or(0);
    let first = run(64 * MIB)?;
    let verdict = &first["verdict"];
    ensure!(left(&first) > 0 && kind(&first) != "fits", "{} pages left: {verdict}", left(&first));
    let next = verdict["next"].as_str().unwrap_or_default();
    let size = next.split(' ').skip_while(|word| *word != "--ram").nth(1);
    let mib = size.and_then(|size| size.strip_suffix('M')?.parse::<u64>().ok());
    let again = run(mib.ok_or("nothing is proposed")? * MIB)?;
    ensure!(left(&again) == 0 && kind(&again) == "fits", "{next}: {}", again["verdict"]);
    Ok(())
}

/// *The story:* a launcher within a run started a program. It had two agents, each paged the other, and
/// it stood still.
fn within_a_run(context: &Context) -> Outcome {
    let overspill = text(&context.overspill);
    let (json, swap) = (context.path("launcher-inner.report"), text(&context.swap));
    let dd = ["--", "/bin/dd", "if=/dev/urandom", "of=/dev/null", "bs=60M", "count=1"];
    let finished = Launch::new(context, "launcher-outer", overspill)
        .args(["run", "--ram", "32M", "--swap", &swap, "--json", &text(&json)])
        .args(dd)
        .ram(200 * MIB)
        .timeout(60)
        .run()?;
    finished.succeeded()?;
    let report: Value = serde_json::from_str(&read(&json)?).map_err(|error| error.to_string())?;
    let out = report["vmstat"]["pgsteal_anon"].as_u64().unwrap_or(0);
    ensure!(report["managed"] == true && out > 0, "{}", finished.complain(&format!("{out}: {report}")));
    let outer = &finished.report()?["verdict"];
    ensure!(outer["kind"] == "other_run", "{}", finished.complain(&outer.to_string()));
    Ok(())
}

/// *The story:* what an inner run managed was "unmanaged" for the outer one, as a sandbox kept the library
/// from it, and under `--strict` it was ended for that. The inner one might have any budget.
fn within_a_strict_run(context: &Context) -> Outcome {
    let overspill = text(&context.overspill);
    let (json, swap) = (context.path("launcher-inner-strict.report"), text(&context.swap));
    // Long enough for who has no agent to be ended.
    let script = "dd if=/dev/urandom of=/dev/null bs=60M count=1 2>/dev/null; \
                  exec dd if=/dev/urandom of=/dev/null bs=40M count=60";
    let finished = Launch::new(context, "launcher-outer-strict", overspill)
        .args(["run", "--ram", "90M", "--swap", &swap, "--json", &text(&json), "--", "sh", "-c", script])
        .options(["--strict"])
        .ram(32 * MIB)
        .timeout(150)
        .run()?;
    finished.succeeded()?;
    let report: Value = serde_json::from_str(&read(&json)?).map_err(|error| error.to_string())?;
    ensure!(report["ram_bytes"] == 32 * MIB, "{}", finished.complain(&report["ram_bytes"].to_string()));
    let outer = &finished.report()?["verdict"];
    ensure!(outer["kind"] == "other_run", "{}", finished.complain(&outer.to_string()));
    Ok(())
}
