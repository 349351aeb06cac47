//! `overspill doctor`: every check, for people or as JSON.

use std::io::IsTerminal;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::checks::{self, Check, Status};
use crate::human;
use crate::stdout::{print, print_json};

#[derive(Serialize)]
struct Document<'a> {
    /// Of this layout.
    schema_version: u32,
    /// Whether no check failed.
    ok: bool,
    /// All checks.
    checks: &'a [Check],
}

/// Where a check's text begins.
const INDENT: usize = 22;

/// A file that mends something, as the project ships it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Remedy {
    /// A rule for udev: users of the group `overspill`, and whoever sits at the machine, may open
    /// /dev/userfaultfd
    Udev,
    /// A seccomp profile for docker and podman that lets userfaultfd and io_uring through
    Seccomp,
}

impl Remedy {
    fn text(self) -> &'static str {
        match self {
            Remedy::Udev => include_str!("../../../packaging/60-overspill.rules"),
            Remedy::Seccomp => include_str!("../../../packaging/overspill-seccomp.json"),
        }
    }
}

/// Prints the checks; exit code 1 if one fails.
pub fn main(args: &DoctorArgs) -> Result<u8> {
    if let Some(remedy) = args.print {
        print(remedy.text())?;
        return Ok(0);
    }
    crate::os::signals::survive(&[libc::SIGXFSZ]); // as a run does
    crate::os::inherit::raise_limits();
    let checks = checks::all(&args.swap);
    let failures = checks.iter().filter(|check| check.status == Status::Fail).count();
    if args.json {
        let document = Document { schema_version: 1, ok: failures == 0, checks: &checks };
        print_json(&document)?;
    } else {
        let colored =
            std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let text: String = checks.iter().map(|check| lines(check, colored)).collect();
        print(&(text + &conclusion(failures) + "\n"))?;
    }
    Ok(u8::from(failures > 0))
}

fn lines(check: &Check, colored: bool) -> String {
    let (word, color) = match check.status {
        Status::Ok => ("ok", 32),
        Status::Warn => ("warn", 33),
        Status::Fail => ("fail", 31),
    };
    let indent = " ".repeat(INDENT);
    let word = format!("{word:<5}");
    let word = if colored { format!("\x1b[{color}m{word}\x1b[0m") } else { word };
    // Folded as it looks without the colours, which take no room.
    let detail = human::one_line(&check.detail);
    let plain = human::folded(&format!("{:<6}{:<16}{detail}", "", check.name), &indent);
    let mut text = format!("{word} {}", &plain[6..]);
    let fixes = check.fix.iter().map(|fix| ("mend", fix));
    for (what, fix) in fixes.chain(check.other_fixes.iter().map(|fix| ("or", fix))) {
        let line = format!("{indent}{:<6}{}", format!("{what}:"), human::one_line(fix));
        text.push_str(&human::folded(&line, &format!("{indent}      ")));
    }
    text
}

fn conclusion(failures: usize) -> String {
    match failures {
        0 => "overspill can run programs here".into(),
        1 => "1 check fails: overspill cannot run programs here".into(),
        _ => format!("{failures} checks fail: overspill cannot run programs here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_and_how_to_mend_it_fit_a_terminal() {
        let check = Check {
            name: "idle processors",
            status: Status::Warn,
            detail: "something that takes a good many words to say ".repeat(4),
            fix: Some("sudo one command with a good many words to type ".repeat(3)),
            other_fixes: vec!["another".into()],
        };
        let text = lines(&check, false);
        assert!(text.lines().all(|line| line.chars().count() <= human::WIDTH), "{text}");
        assert!(text.starts_with("warn  idle processors something"), "{text}");
        assert!(text.ends_with("                      or:   another\n"), "{text}");
        assert!(lines(&check, true).starts_with("\x1b[33mwarn \x1b[0m idle"));
    }

    #[test]
    fn the_profile_lets_the_pager_through_and_keeps_the_dangerous_out() {
        let profile: serde_json::Value = serde_json::from_str(Remedy::Seccomp.text()).unwrap();
        let names: Vec<&str> = profile["syscalls"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|rule| rule["names"].as_array().unwrap())
            .map(|name| name.as_str().unwrap())
            .collect();
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ALLOW");
        assert!(["mount", "bpf", "kexec_load", "setns"].iter().all(|name| names.contains(name)));
        assert!(!["userfaultfd", "io_uring_setup"].iter().any(|name| names.contains(name)));
        assert!(Remedy::Udev.text().lines().any(|line| line.starts_with("KERNEL==\"userfaultfd\"")));
    }
}
