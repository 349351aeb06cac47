//! The `overspill` command: reads the command line and hands over to the module of each command.
#![deny(unsafe_code)]
#![deny(clippy::print_stderr)]

mod args;
mod bench;
mod cgroup;
mod checks;
mod compare;
mod config;
mod doctor;
#[cfg(test)]
mod documented;
mod exit;
mod histogram;
mod human;
mod idle;
mod load;
mod machine;
mod manual;
mod on_full;
#[allow(unsafe_code)]
mod os;
mod output;
mod part;
mod policy;
mod progress;
mod reclaim_policy;
mod record;
mod run;
mod sim;
mod size;
mod stderr;
mod stdout;
mod swap;
mod top;
mod trace;
mod usage;
mod whole;

use std::process::ExitCode;

use anyhow::Result;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use args::{Cli, Command};

fn main() -> ExitCode {
    match with_stack(usage::parse).and_then(|parsed| parsed.map_or_else(Ok, dispatch)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            stderr::say!("overspill: {}", human::one_line(&format!("{error:#}")));
            ExitCode::from(exit::OWN_FAILURE)
        }
    }
}

/// The command line's parser wants more than 96 KiB of stack. What the program gets is as it was.
///
/// *The story:* behind `ulimit -s 64` each command died of that, where other programs run.
fn with_stack<T>(body: impl FnOnce() -> T) -> T {
    const STACK_BYTES: u64 = 1 << 20;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_STACK) else { return body() };
    if soft >= STACK_BYTES.min(hard) {
        return body();
    }
    // What cannot be raised, or lowered again, stays: the parser may do.
    let _ = setrlimit(Resource::RLIMIT_STACK, STACK_BYTES.min(hard), hard);
    let outcome = body();
    let _ = setrlimit(Resource::RLIMIT_STACK, soft, hard);
    outcome
}

fn dispatch(cli: Cli) -> Result<u8> {
    match cli.command {
        Command::Run(args) => run::main(&args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Compare(args) => compare::main(&args),
        Command::Bench(args) => bench::main(&args),
        Command::Sim(args) => sim::main(&args),
        Command::Swap(args) => swap::main(&args),
        Command::Trace(args) => trace::main(&args),
        Command::Record(args) => record::main(&args),
        Command::Top(args) => top::main(&args),
        Command::Load(args) => load::main(&args),
        Command::Neighbours(args) => load::neighbours::main(&args),
        Command::ReadFile(args) => load::files::main(&args),
        Command::Guard => compare::guardian::main(),
        Command::Keep { directory } => run::agent::keep(&directory),
        Command::Reach { shared } => checks::reach(&shared),
        Command::Man { command, out } => manual::main(&command, out.as_deref()),
        Command::Completions { shell } => manual::completions(shell),
    }
}
