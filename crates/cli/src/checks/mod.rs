//! The preconditions of running a program in less RAM: each is a [`Check`] with a verdict, what was
//! found, and the one command that mends it. `doctor` prints all of them; `run` stops at the first
//! essential one that fails.

mod kernel;
mod surroundings;
pub mod swap_place;

use serde::Serialize;

use crate::args::Tuning;
use crate::human;
use crate::swap::arg::SwapArg;

pub use surroundings::reach;
pub use swap_place::SwapPlace;

use crate::run::launch::agent::Agent;

/// The verdict of a check.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, but slower or less safely than it could.
    Warn,
    /// It does not work.
    Fail,
}

/// One precondition.
#[derive(Serialize, Clone, Debug)]
pub struct Check {
    /// Its short name.
    pub name: &'static str,
    /// The verdict: `ok`, `warn` or `fail`.
    pub status: Status,
    /// What was found, in one line.
    pub detail: String,
    /// The command, or the deed, that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// What does as well, or belongs to it; what opens the most comes last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_fixes: Vec<String>,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, detail: detail.into(), fix: None, other_fixes: Vec::new() }
    }

    fn warn(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { status: Status::Warn, fix: Some(fix.into()), ..Check::ok(name, detail) }
    }

    fn fail(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { status: Status::Fail, fix: Some(fix.into()), ..Check::ok(name, detail) }
    }

    /// Another way to mend it.
    fn or(mut self, fix: impl Into<String>) -> Check {
        self.other_fixes.push(fix.into());
        self
    }

    /// The check on one line, as `run` prints it.
    pub fn line(&self) -> String {
        human::one_line(&match &self.fix {
            Some(fix) => format!("{}: {}; mend it with: {fix}", self.name, self.detail),
            None => format!("{}: {}", self.name, self.detail),
        })
    }
}

/// What `run` needs and has found to be there.
#[derive(Debug)]
pub struct Ready {
    /// Where to spill; at least one place.
    pub swap: Vec<SwapPlace>,
    /// The agent's library.
    pub agent: Agent,
}

/// The checks without which nothing can be managed; quick, and the first failure is returned.
fn essential(swap: &[SwapArg]) -> Result<Ready, Check> {
    passed(surroundings::proc_is_there())?;
    kernel::essential().into_iter().try_for_each(passed)?;
    let swap = swap_place::resolve_all(swap)?;
    swap.iter().map(swap_place::usable).try_for_each(passed)?;
    Ok(Ready { swap, agent: surroundings::agent()? })
}

/// The same for a run with these options: with `--erase` the files and devices that are no swap areas
/// become some first.
pub fn ready(tuning: &Tuning) -> Result<Ready, Check> {
    if tuning.erase {
        swap_place::resolve_all(&tuning.swap)?.iter().try_for_each(swap_place::erase)?;
    }
    essential(&tuning.swap)
}

/// Every check, for `doctor`.
pub fn all(swap: &[SwapArg]) -> Vec<Check> {
    let mut checks = kernel::all();
    checks.extend(surroundings::all());
    match swap_place::resolve_all(swap) {
        Ok(places) => checks.extend(places.iter().flat_map(swap_place::all)),
        Err(check) => checks.push(check),
    }
    checks
}

fn passed(check: Check) -> Result<(), Check> {
    if check.status == Status::Fail { Err(check) } else { Ok(()) }
}
