//! `overspill-torture SUBTEST [options]`: does to memory what programs do to it, and checks every
//! word. Run bare, it passes on any Linux; run under a budget smaller than `--mib`, it passes only
//! when paging is invisible.
//!
//! Prints `ok NAME` and exits 0, or one line that says what is wrong and exits 1.

mod child;
mod context;
mod faults;
mod futex;
mod memory;
mod outcome;
mod parts;
mod pattern;
mod rng;
mod subtests;
mod sys;

use std::path::PathBuf;
use std::process::ExitCode;

use context::{Context, Options};
use outcome::Outcome;

const USAGE: &str =
    "usage: overspill-torture SUBTEST [--mib N] [--seconds N] [--threads N] [--seed N] [--dir DIR]
                         [--expect-cold] [--sabotage]
       overspill-torture list       names, whether the budget holds, what is tested
       overspill-torture part NAME  a process of one of the subtests

  --mib N        size of the memory that pushes the rest out; more than the budget (160)
  --seconds N    length of the open-ended subtests (3)
  --threads N    threads of the threaded subtests (8)
  --seed N       of all random choices (1)
  --dir DIR      for scratch files; its file system must take O_DIRECT (the directory for temporary files)
  --expect-cold  fail when memory cannot be made cold: proves that paging was at work
  --sabotage     damage memory on purpose: every subtest must fail";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        None | Some("--help" | "-h") => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Some("list") => {
            print!("{}", subtests::list());
            ExitCode::SUCCESS
        }
        Some("part") => finish("part", parts::run(&arguments[1..])),
        Some(name) => run(name, &arguments[1..]),
    }
}

fn run(name: &str, arguments: &[String]) -> ExitCode {
    let Some(subtest) = subtests::find(name) else {
        eprintln!("overspill-torture: no subtest {name:?}; `overspill-torture list` names them");
        return ExitCode::from(2);
    };
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(complaint) => {
            eprintln!("overspill-torture: {complaint}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    finish(name, (subtest.run)(&mut Context::new(options)))
}

fn finish(name: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => {
            println!("ok {name}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("FAILED {name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        mib: 160,
        seconds: 3,
        threads: 8,
        seed: 1,
        directory: std::env::temp_dir(),
        expect_cold: false,
        sabotage: false,
    };
    let mut rest = arguments.iter();
    while let Some(option) = rest.next() {
        match option.as_str() {
            "--expect-cold" => options.expect_cold = true,
            "--sabotage" => options.sabotage = true,
            "--mib" => options.mib = number(option, rest.next())?,
            "--seconds" => options.seconds = number(option, rest.next())? as u64,
            "--threads" => options.threads = number(option, rest.next())?,
            "--seed" => options.seed = number(option, rest.next())? as u64,
            "--dir" => options.directory = PathBuf::from(rest.next().ok_or("--dir needs a directory")?),
            other => return Err(format!("unknown option {other}")),
        }
    }
    if options.mib < 64 || options.threads == 0 || options.threads > subtests::THREADS_MAX {
        return Err(format!("--mib is at least 64, --threads 1 to {}", subtests::THREADS_MAX));
    }
    Ok(options)
}

fn number(option: &str, value: Option<&String>) -> Result<usize, String> {
    value
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("{option} needs a number, got {:?}", value.map_or("", String::as_str)))
}
