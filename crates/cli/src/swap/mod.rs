//! `overspill swap`: areas to spill to, and what `--swap` names. Printing and making; the rules are
//! in [`overspill_mm::swap`].

pub mod arg;
mod info;
pub mod inspect;
pub mod layout;
pub mod make;
mod orders;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use clap::builder::{OsStringValueParser, TypedValueParser};

use self::arg::SwapArg;
use crate::machine;
use crate::size::Size;

/// Options of `overspill swap`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what a swap file or device is, where it lies and what that costs; exit status 1 if it
    /// cannot be used
    Info {
        /// The file or device, or several
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Print JSON (its fields: docs/json.md); of several an array
        #[arg(long)]
        json: bool,
    },
    /// Make a swap file, or a swap area on a device, for --swap and for swapon
    Make {
        /// The file or device
        path: PathBuf,
        /// Its size [default: that of what is there]
        #[arg(long, value_name = "SIZE")]
        size: Option<Size>,
        /// A name of at most 16 bytes
        #[arg(long, value_name = "LABEL", default_value = "")]
        label: String,
        /// Overwrite what is there, whatever it is
        #[arg(long)]
        erase: bool,
    },
    /// Have a run that goes on page to one more place
    Add {
        /// The run: its launcher's process id, or that of a process in it [default: the only run]
        #[arg(long, value_name = "PID")]
        pid: Option<u32>,
        /// As --swap of `run` has it
        #[arg(value_name = "PLACE[:SIZE][:prio=N]",
              value_parser = OsStringValueParser::new().try_map(SwapArg::parse))]
        place: SwapArg,
    },
    /// Have a run page to a place no more, and wait until all that is there is elsewhere
    Drain {
        /// The run: its launcher's process id, or that of a process in it [default: the only run]
        #[arg(long, value_name = "PID")]
        pid: Option<u32>,
        /// The directory, file or device that was given to --swap or `swap add`
        path: PathBuf,
    },
}

/// Carries out the command.
pub fn main(args: &Args) -> Result<u8> {
    match &args.command {
        Command::Info { paths, json } => info::main(paths, *json),
        Command::Make { path, size, label, erase } => {
            let bytes = size.map(|size| size.bytes(machine::ram_for_shares()));
            make::main(path, bytes, label, *erase)
        }
        Command::Add { pid, place } => orders::add(*pid, place),
        Command::Drain { pid, path } => orders::drain(*pid, path),
    }
}
