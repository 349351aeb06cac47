//! A newcomer's first hour: as an ordinary user, who is told what is missing and then has it, and on a
//! terminal of 80 columns, where no line is broken.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::context::Context;
use crate::scratch::Setting;
use crate::{Outcome, Test, ensure, packages};

const COLUMNS: usize = 80;
/// Wants some 100 MiB, and prints the same each time.
const SORT: &str = "seq 1500000 | LC_ALL=C sort -S 200M";

/// All of this file.
pub fn tests() -> Vec<Test> {
    vec![
        Test::new("newcomer::user-is-told", user_is_told),
        Test::new("newcomer::user-compares", user_compares),
        Test::new("newcomer::terminal", terminal),
    ]
}

/// A directory of an ordinary user's, who can get at the command in it; gone in the end.
struct Home {
    directory: PathBuf,
}

impl Home {
    fn new(context: &Context, name: &str) -> Outcome<Home> {
        let home = Home { directory: format!("/var/tmp/overspill-e2e-{name}-{}", std::process::id()).into() };
        let error = |error: std::io::Error| format!("{}: {error}", home.directory.display());
        std::fs::create_dir_all(&home.directory).map_err(error)?;
        std::fs::copy(&context.overspill, home.path("overspill")).map_err(error)?;
        std::os::unix::fs::chown(&home.directory, Some(65534), Some(65534)).map_err(error)?;
        Ok(home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Runs a shell line here as nobody, who alone sees a /dev/userfaultfd of this mode.
    fn as_nobody(&self, mode: &str, line: &str) -> Outcome<Said> {
        let script = format!(
            "rm -f node && mknod -m {mode} node c $(stat -c '%Hr %Lr' /dev/userfaultfd) &&
             mount --bind node /dev/userfaultfd &&
             exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs \
                 env -i PATH=$PWD:/usr/bin:/bin HOME=$PWD sh -c '{line}'"
        );
        let mut command = Command::new(packages::program("unshare", "util-linux")?);
        said(command.args(["-m", "sh", "-c", &script]).current_dir(&self.directory))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn said(command: &mut Command) -> Outcome<Said> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
}

/// Without the right: one line, with the narrowest mend, and a doctor who fails.
fn user_is_told(context: &Context) -> Outcome {
    let _refused = Setting::new("/proc/sys/vm/unprivileged_userfaultfd", "0")?;
    let home = Home::new(context, "told")?;
    let run = home.as_nobody("600", "overspill run --ram 64M -- true")?;
    ensure!(run.code == Some(125) && run.stderr.lines().count() == 1, "{:?} {}", run.code, run.stderr);
    // What the machine has: package acl is not everywhere.
    let is_mended = ["setfacl -m u:", "chown $USER"].iter().any(|mend| run.stderr.contains(mend));
    ensure!(is_mended, "no mend: {}", run.stderr);
    let doctor = home.as_nobody("600", "overspill doctor")?;
    ensure!(doctor.code == Some(1) && doctor.stdout.contains("fail"), "{:?} {}", doctor.code, doctor.stdout);
    let kernel = home.as_nobody("666", "overspill compare --ram 64M -- true")?;
    ensure!(kernel.code == Some(125), "{:?} {}", kernel.code, kernel.stderr);
    ensure!(kernel.stderr.contains("--ways bare,overspill"), "{}", kernel.stderr);
    Ok(())
}

/// With the right to open the device, and nothing else: a comparison that pages.
fn user_compares(context: &Context) -> Outcome {
    let _refused = Setting::new("/proc/sys/vm/unprivileged_userfaultfd", "0")?;
    let home = Home::new(context, "compares")?;
    let line = format!("overspill compare --ram 40M --ways bare,overspill --json c.json -- sh -c \"{SORT}\"");
    let said = home.as_nobody("666", &line)?;
    ensure!(said.code == Some(0), "{:?} {} {}", said.code, said.stdout, said.stderr);
    ensure!(said.stdout.contains("the same output in all runs"), "{}", said.stdout);
    narrow(&line, &said.stdout)?;
    let figures = json(&home.path("c.json"))?;
    let runs = figures["runs"].as_array().ok_or("there are no runs")?;
    let paged = runs.iter().any(|run| run["way"] == "overspill" && run["swap_out_bytes"].as_u64() > Some(0));
    ensure!(runs.len() == 2 && paged, "nothing was paged out: {figures}");
    Ok(())
}

fn json(path: &Path) -> Outcome<Value> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// What takes root, on a terminal.
fn terminal(context: &Context) -> Outcome {
    let script = packages::program("script", "bsdutils")?;
    let directory = context.overspill.parent().ok_or("it has no directory")?;
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", directory.display());
    for line in [
        "overspill doctor".to_owned(),
        format!("overspill run --ram 40M -- sh -c \"{SORT} | md5sum\""),
        format!(
            "overspill compare --ram 60M --ways bare,kernel:3,kernel:0:vma,overspill -- sh -c \"{SORT}\""
        ),
        "overspill bench seq --size 48M --ram 40M --laps 2 --ways kernel:3:vma,overspill:linux".to_owned(),
        "overspill bench swapin --only seq --size 48M --ram 40M --laps 1 --ways kernel:3,overspill:linux"
            .to_owned(),
        "overspill bench mixed:1+1 --size 48M --ram 40M --laps 1 --ways overspill".to_owned(),
        "overspill bench extents --size 64M --swap .".to_owned(),
    ] {
        let on_terminal = format!("stty rows 24 cols {COLUMNS}; {line}");
        let mut command = Command::new(&script);
        command.args(["-qefc", &on_terminal, "/dev/null"]).current_dir(&context.scratch);
        command.env("PATH", &path).env("XDG_CONFIG_HOME", context.path("no-configuration"));
        let said = said(command.env("TERM", "xterm"))?;
        ensure!(said.code == Some(0), "{line}: {:?} {}", said.code, said.stdout);
        narrow(&line, &said.stdout)?;
    }
    Ok(())
}

/// No line, and no state of a line that is drawn again and again, is wider than the terminal.
fn narrow(line: &str, text: &str) -> Outcome {
    let wide = text.split(['\n', '\r']).map(plain).find(|shown| shown.chars().count() > COLUMNS);
    ensure!(text.lines().count() > 1, "{line} says nothing");
    wide.map_or(Ok(()), |wide| Err(format!("{line}: wider than {COLUMNS} columns: {wide}")))
}

/// A line without what moves the cursor.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        out + &part[end..]
    })
}
