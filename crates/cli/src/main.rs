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
use nix::sys::resource::{Resource, getrlimit};

use args::{Cli, Command};

/// As much stack as any command takes, and the parser of the command line: more than 96 KiB.
const STACK_BYTES: u64 = 1 << 20;

fn main() -> ExitCode {
    let outcome = match getrlimit(Resource::RLIMIT_STACK) {
        Ok((soft, _)) if soft < STACK_BYTES => on_own_stack(work),
        _ => work(),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            stderr::say!("overspill: {}", human::one_line(&format!("{error:#}")));
            ExitCode::from(exit::OWN_FAILURE)
        }
    }
}

/// The limit on the stack stays as it was: it is the program's.
///
/// *The story:* behind `ulimit -s 64` each command died of that, where other programs run; behind `ulimit
/// -s 100`, hard, still.
fn on_own_stack(body: fn() -> Result<u8>) -> Result<u8> {
    let thread = std::thread::Builder::new().stack_size(2 * STACK_BYTES as usize).spawn(body)?;
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Not a part of `main`, which may have little stack.
#[inline(never)]
fn work() -> Result<u8> {
    usage::parse()?.map_or_else(Ok, dispatch)
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
        Command::Keep { directory } => run::launch::keeper::keep(&directory),
        Command::Reach { shared } => checks::reach(&shared),
        Command::Man { command, out } => manual::main(&command, out.as_deref()),
        Command::Completions { shell } => manual::completions(shell),
    }
}
