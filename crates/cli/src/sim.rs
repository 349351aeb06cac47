//! `overspill sim`: the same policy code on virtual time. What it can be asked; the work is in
//! [`overspill_sim`].

mod devices;
mod files;
mod paper;
mod policies;
mod pool;
mod reclaim;
mod soak;
mod sweep;
mod validate;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args as ClapArgs, Subcommand};

use crate::idle::Idle;
use crate::output;

/// Options of `overspill sim`.
#[derive(ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<SimCommand>,
    #[command(flatten)]
    sweep: Option<sweep::SweepArgs>,
}

/// The commands of `sim`, which a mistyped word may be meant for.
const COMMANDS: [&str; 7] = ["calibrate", "devices", "validate", "paper", "policies", "reclaim", "soak"];

#[derive(Subcommand)]
enum SimCommand {
    /// Measure the device under a directory and print a model of it for --device
    Calibrate {
        /// The directory
        directory: PathBuf,
        /// Write the model to this file [default: standard output]
        #[arg(short, long, value_name = "FILE", value_parser = output::any_file_name())]
        output: Option<PathBuf>,
        /// Whether idle processors look for work meanwhile, as they do for the pager; the kernel's
        /// swap lets them sleep
        #[arg(long, value_name = "WHAT", default_value_t)]
        idle: Idle,
    },
    /// List the built-in devices, or print one of them as a file for --device
    Devices {
        /// The device to print
        name: Option<String>,
    },
    /// Compare this machine's kernel, and overspill itself, with their simulations: same loads,
    /// counter by counter (root)
    Validate(validate::Args),
    /// Run a published experiment again and compare: cell by cell, then whether the shape holds (0)
    /// or not (1)
    Paper(paper::Args),
    /// How near reclaim policies come to Belady's optimum, over many traces
    Policies(policies::Args),
    /// Let budget domains contend for one memory: who keeps what, by each kernel's reclaim
    Reclaim(reclaim::Args),
    /// Run random worlds with every check switched on, and say which seed fails
    Soak(soak::Args),
}

/// Carries out the command.
pub fn main(args: &Args) -> Result<u8> {
    match (&args.command, &args.sweep) {
        (Some(SimCommand::Calibrate { directory, output, idle }), _) => {
            devices::tell(directory, *idle, output.as_ref())
        }
        (Some(SimCommand::Devices { name }), _) => devices::show(name.as_deref()),
        (Some(SimCommand::Validate(args)), _) => validate::main(args),
        (Some(SimCommand::Paper(args)), _) => paper::main(args),
        (Some(SimCommand::Policies(args)), _) => policies::main(args),
        (Some(SimCommand::Reclaim(args)), _) => reclaim::main(args),
        (Some(SimCommand::Soak(args)), _) => soak::main(args),
        (None, Some(sweep)) => sweep::main(sweep),
        (None, None) => bail!("a trace or a load is missing; for examples: overspill help sim"),
    }
}

/// Simulations at a time, where nothing is said.
fn jobs(asked: Option<u16>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or_else(processors, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_may_be_meant_for_any_command() {
        let command = SimCommand::augment_subcommands(clap::Command::new("sim"));
        let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(names, COMMANDS);
    }
}
