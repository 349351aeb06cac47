//! `overspill swap`: areas to spill to, and what `--swap` names. Printing and making; the rules are
//! in [`overspill_mm::swap`].

pub mod arg;
mod info;
pub mod inspect;
pub mod make;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

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
        /// The file or device
        path: PathBuf,
        /// Print JSON
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
}

/// Carries out the command.
pub fn main(args: &Args) -> Result<u8> {
    match &args.command {
        Command::Info { path, json } => info::main(path, *json),
        Command::Make { path, size, label, erase } => {
            let bytes = size.map(|size| size.bytes(machine::ram_for_shares()));
            make::main(path, bytes, label, *erase)
        }
    }
}
