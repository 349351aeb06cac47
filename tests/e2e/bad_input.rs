//! Bad input and programs that cannot be managed: one clear line each, and the right status.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::context::Context;
use crate::scratch;
use crate::{Outcome, Test, ensure, packages};

/// (name, arguments, exit status, words that the line must have)
type Case = (&'static str, &'static [&'static str], i32, &'static [&'static str]);

const CASES: [Case; 12] = [
    ("ram-zero", &["run", "--ram", "0", "--", "/bin/true"], 125, &["ram", "0"]),
    ("ram-nonsense", &["run", "--ram", "3X", "--", "/bin/true"], 125, &["ram", "3X"]),
    ("ram-negative", &["run", "--ram=-5M", "--", "/bin/true"], 125, &["ram", "-5M"]),
    ("ram-missing", &["run", "--", "/bin/true"], 125, &["--ram"]),
    ("command-missing", &["run", "--ram", "64M"], 125, &["command"]),
    ("option-unknown", &["run", "--ram", "64M", "--no-such-thing", "/bin/true"], 125, &["--no-such-thing"]),
    (
        "swap-not-there",
        &["run", "--ram", "64M", "--swap", "/nonexistent/a/b", "/bin/true"],
        125,
        &["/nonexistent"],
    ),
    ("swap-not-writable", &["run", "--ram", "64M", "--swap", "/proc", "/bin/true"], 125, &["/proc"]),
    (
        "not-found",
        &["run", "--ram", "64M", "--", "overspill-no-such-program"],
        127,
        &["overspill-no-such-program"],
    ),
    (
        "not-found-path",
        &["run", "--ram", "64M", "--", "/nonexistent/program"],
        127,
        &["/nonexistent/program"],
    ),
    ("not-executable", &["run", "--ram", "64M", "--", "/etc/passwd"], 126, &["/etc/passwd"]),
    ("directory", &["run", "--ram", "64M", "--", "/etc"], 126, &["/etc"]),
];

/// All of this file.
pub fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = CASES
        .iter()
        .map(|case| Test::new(format!("bad-input::{}", case.0), move |context| refused(context, case)))
        .collect();
    tests.push(Test::new("bad-input::ram-above-the-machine", above_the_machine));
    tests.push(Test::new("bad-input::static-program", static_program));
    tests.push(Test::new("bad-input::setuid-program", setuid_program));
    tests.push(Test::new("bad-input::doctor", doctor));
    tests.push(Test::new("bad-input::file-size", file_size));
    tests.push(Test::new("bad-input::doubtful-flag", doubtful_flag));
    tests.push(Test::new("bad-input::configuration-pipe", configuration_pipe));
    tests
}

/// *The story:* under `ulimit -f 0` the launcher was ended by the signal of its first write, and
/// nobody said why.
fn file_size(context: &Context) -> Outcome {
    let mut command = Command::new("sh");
    let line = "ulimit -f 0; exec \"$0\" run --ram 64M -- /bin/true";
    command.args(["-c", line]).arg(&context.overspill);
    let said = say(command)?;
    ensure!(said.code == Some(125), "it ended with {:?}: {}", said.code, said.stderr);
    ensure!(said.stderr.contains("File too large"), "it says {:?}", said.stderr);
    Ok(())
}

/// *The story:* `OVERSPILL_STRICT=maybe` was a yes, without a word.
fn doubtful_flag(context: &Context) -> Outcome {
    for flag in ["STRICT", "ENCRYPT", "QUIET"] {
        let mut command = Command::new(&context.overspill);
        command.args(["run", "--ram", "64M", "--", "/bin/true"]).env(format!("OVERSPILL_{flag}"), "maybe");
        let said = say(command)?;
        ensure!(said.code == Some(125), "{flag}: it ended with {:?}: {}", said.code, said.stderr);
        let is_clear = said.stderr.contains("'maybe'") && said.stderr.contains("yes or on");
        ensure!(is_clear && said.stderr.lines().count() == 1, "it says {:?}", said.stderr);
    }
    Ok(())
}

/// *The story:* a configuration file that is a pipe was read for ever.
fn configuration_pipe(context: &Context) -> Outcome {
    let mut command = Command::new("sh");
    let line =
        "rm -f \"$1\"; mkfifo \"$1\" && OVERSPILL_CONFIG=$1 timeout 20 \"$0\" run --ram 64M -- /bin/true";
    command.args(["-c", line]).arg(&context.overspill).arg(context.path("configuration-pipe"));
    let said = say(command)?;
    ensure!(said.code == Some(125), "it ended with {:?}: {}", said.code, said.stderr);
    ensure!(said.stderr.contains("it is a pipe"), "it says {:?}", said.stderr);
    Ok(())
}

struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn say(mut command: Command) -> Outcome<Said> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
}

fn refused(context: &Context, (name, arguments, code, words): &Case) -> Outcome {
    let mut command = context.overspill_command();
    command.args(*arguments);
    let said = say(command)?;
    let shown = format!("overspill {}: {name}\nstderr:\n{}", arguments.join(" "), said.stderr);
    ensure!(said.code == Some(*code), "status {:?}, expected {code}: {shown}", said.code);
    ensure!(said.stdout.is_empty(), "something on standard output: {shown}");
    let lines: Vec<&str> = said.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let Some(first) = lines.first() else { return Err(format!("nothing is said: {shown}")) };
    ensure!(words.iter().all(|word| first.contains(word)), "the first line does not name {words:?}: {shown}");
    // The complaint, and the command that mends it or the one that helps.
    ensure!(lines.len() <= 3, "{} lines instead of one clear one: {shown}", lines.len());
    Ok(())
}

/// Fine, with a note.
fn above_the_machine(context: &Context) -> Outcome {
    let mut command = context.overspill_command();
    command.args(["run", "--ram", "64T", "--", "/bin/sh", "-c", "exit 3"]);
    let said = say(command)?;
    ensure!(said.code == Some(3), "status {:?}, expected 3; stderr:\n{}", said.code, said.stderr);
    let note = said.stderr.to_lowercase();
    ensure!(note.contains("ram") && note.contains("note"), "no note on standard error:\n{}", said.stderr);
    Ok(())
}

/// Says that the program runs unmanaged, and runs it.
fn unmanaged(context: &Context, program: &PathBuf, words: &[&str]) -> Outcome {
    let mut command = context.overspill_command();
    command.args(["run", "--ram", "64M", "--"]).arg(program);
    let said = say(command)?;
    let shown = format!("{}; stderr:\n{}", program.display(), said.stderr);
    ensure!(said.code == Some(7), "status {:?}, expected 7: {shown}", said.code);
    let text = said.stderr.to_lowercase();
    ensure!(words.iter().all(|word| text.contains(word)), "standard error does not say {words:?}: {shown}");
    Ok(())
}

fn compile(context: &Context, name: &str, options: &[&str]) -> Outcome<PathBuf> {
    let gcc = packages::program("gcc", "gcc")?;
    let source = context.path(format!("{name}.c"));
    std::fs::write(&source, "int main(void) { return 7; }\n").map_err(|error| error.to_string())?;
    let program = context.path(name);
    let _ = std::fs::remove_file(&program);
    let mut command = Command::new(gcc);
    command.args(options).arg("-o").arg(&program).arg(source);
    let said = say(command)?;
    ensure!(said.code == Some(0), "gcc {options:?}: {}", said.stderr);
    Ok(program)
}

fn static_program(context: &Context) -> Outcome {
    unmanaged(context, &compile(context, "static-program", &["-static"])?, &["static", "unmanaged"])
}

fn setuid_program(context: &Context) -> Outcome {
    let program = compile(context, "setuid-program", &[])?;
    let owner = std::os::unix::fs::chown(&program, Some(65_534), Some(65_534));
    owner.map_err(|error| format!("chown (needs root): {error}"))?;
    let mode = std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755));
    mode.map_err(|error| format!("chmod: {error}"))?;
    let outcome = unmanaged(context, &program, &["set", "unmanaged"]);
    let _ = std::fs::remove_file(&program);
    outcome
}

/// On a machine that runs these tests every check passes.
fn doctor(context: &Context) -> Outcome {
    let mut command = context.overspill_command();
    command.arg("doctor").arg("--swap").arg(&context.swap);
    let said = say(command)?;
    ensure!(said.code == Some(0), "doctor fails with {:?}:\n{}{}", said.code, said.stdout, said.stderr);
    let lines = said.stdout.lines().filter(|line| line.contains("ok") || line.contains("warn")).count();
    ensure!(lines >= 6, "doctor lists {lines} checks:\n{}", said.stdout);
    ensure!(scratch::names(&context.swap).is_empty(), "doctor left {:?}", scratch::names(&context.swap));
    Ok(())
}
