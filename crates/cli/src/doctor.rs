//! `overspill doctor`: every check, for people or as JSON.

use std::io::IsTerminal;

use anyhow::Result;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::checks::{self, Check, Status};
use crate::stdout::{print, print_json};

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    ok: bool,
    checks: &'a [Check],
}

/// Prints the checks; exit code 1 if one fails.
pub fn main(args: &DoctorArgs) -> Result<u8> {
    let checks = checks::all(args.swap.as_ref());
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
    let word = format!("{word:<5}");
    let word = if colored { format!("\x1b[{color}m{word}\x1b[0m") } else { word };
    let mut text = format!("{word} {:<15} {}\n", check.name, check.detail);
    if let Some(fix) = &check.fix {
        text.push_str(&format!("{:21} mend: {fix}\n", ""));
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
