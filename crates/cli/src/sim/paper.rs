//! `overspill sim paper`: published experiments, simulated. Options and printing; the work is in
//! [`overspill_sim::paper`].

use std::sync::Mutex;

use anyhow::{Result, anyhow};
use overspill_sim::nearest;
use overspill_sim::paper::{self, Effort, PAPERS, Sheet, render};

use crate::human::folded;
use crate::progress::Progress;
use crate::stdout::{print, print_json};

/// Options of `overspill sim paper`.
#[derive(clap::Args)]
pub struct Args {
    /// The experiment, or `list`
    name: String,
    /// Do only one in N of the touches (or N times less memory and time); 1 = in full. At which
    /// scale a shape holds is known of the default alone [default: what the rows allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    shorten: Option<u64>,
    /// Simulations at a time [default: one for each processor]
    #[arg(long, env = "OVERSPILL_SIM_JOBS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print JSON (its fields: docs/json.md)
    #[arg(long)]
    json: bool,
}

/// Carries out the command. 0 when the shape holds, else 1.
pub fn main(args: &Args) -> Result<u8> {
    if args.name == "list" {
        print(&list())?;
        return Ok(0);
    }
    let known = || PAPERS.map(|paper| paper.name).join(", ");
    let paper = paper::find(&args.name).ok_or_else(|| {
        let hint = nearest::hint(&args.name, PAPERS.map(|paper| paper.name));
        anyhow!("no experiment is called `{}`{hint}; there are {}", args.name, known())
    })?;
    let progress = Mutex::new(Progress::new());
    progress.lock().expect("nobody else has it yet").share(0, 1, "simulations");
    let say = |done: usize, total: usize| {
        if let Ok(progress) = progress.lock() {
            progress.share(done, total, "simulations");
        }
    };
    let effort = Effort {
        jobs: super::jobs(args.jobs),
        shorten: args.shorten.unwrap_or(paper.shorten),
        progress: &say,
    };
    let sheets = (paper.run)(&effort).map_err(|error| anyhow!("{error}"))?;
    drop(progress);
    if args.json {
        print_json(&sheets)?;
    } else {
        print(&render::render(paper, &sheets))?;
    }
    Ok(u8::from(!sheets.iter().all(Sheet::holds)))
}

fn list() -> String {
    let widest = PAPERS.iter().map(|paper| paper.name.len()).max().unwrap_or(0);
    let indent = " ".repeat(widest + 2);
    let entry = |paper: &paper::Paper| {
        let title = folded(&format!("{:<widest$}  {}", paper.name, paper.title), &indent);
        title + &folded(&format!("{indent}{}", paper.source), &indent)
    };
    PAPERS.iter().map(entry).collect()
}
