//! Runs within this one: a program that is started by `overspill run` may itself be `overspill run`. What
//! that one starts has its agent and its budget, which is no larger than this run's: see [`budget`].
//!
//! *The story:* of what an inner run managed the outer one said that a sandbox kept the library from it, and
//! under `--strict` it ended it for that.

use std::collections::{BTreeMap, BTreeSet};

use overspill_engine::shared::{ENV, state};

use super::descendants::{Look, parent, read_of_memory};
use crate::run::shared_page::{Report, SharedPage};

/// Another run that a process is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherRun {
    /// Its launcher, as it is known to itself.
    pub launcher: u32,
    /// Its budget.
    pub ram_bytes: u64,
}

/// What the run that this process is in may have, and its launcher; nothing where it is in none, or that
/// cannot be asked: its launcher has ended, or it is another user's, or in another pid namespace.
pub fn budget() -> Option<OtherRun> {
    let address = std::env::var(ENV).ok()?;
    let launcher = launcher(&address)?;
    // Who has inherited the variable from a run that is over is in none, though the number may be in use.
    let mut at = std::process::id();
    while at != launcher {
        at = parent(at).filter(|&parent| parent > 0)?;
    }
    let settings = SharedPage::at(&address)?.settings().ok()?;
    Some(OtherRun { launcher, ram_bytes: settings.ram_bytes })
}

/// What is told of the runs that processes are of, if any.
pub fn told(runs: &[OtherRun]) -> Option<String> {
    let launchers: BTreeSet<u32> = runs.iter().map(|run| run.launcher).collect();
    match launchers.len() {
        0 => None,
        1 => {
            let launcher = runs[0].launcher;
            Some(format!("another run of overspill (pid {launcher}), with a budget of its own"))
        }
        several => Some(format!("{several} other runs of overspill, with budgets of their own")),
    }
}

/// The first word of the variable.
fn launcher(address: &str) -> Option<u32> {
    address.split(':').next()?.parse().ok()
}

/// The runs within this one that were met.
#[derive(Default)]
pub struct Others {
    runs: BTreeMap<String, Option<Run>>,
}

struct Run {
    page: SharedPage,
    about: OtherRun,
    /// What its agents report; asked once a look.
    reports: Option<Vec<Report>>,
}

impl Others {
    /// A new look.
    pub fn forget_reports(&mut self) {
        self.runs.values_mut().flatten().for_each(|run| run.reports = None);
    }

    /// The run whose agent watches or manages a process, which is not of the run with such a `mark`.
    pub fn run_of(&mut self, look: &Look, mark: &[u8]) -> Option<OtherRun> {
        let run = self.runs.entry(address_of(look.pid, mark)?).or_insert_with_key(|address| Run::at(address));
        let run = run.as_mut()?;
        let reports = run.reports.get_or_insert_with(|| run.page.reports().unwrap_or_default());
        let keeps = |report: &&Report| {
            let has_agent = matches!(report.state, state::WATCHING | state::MANAGING);
            has_agent && !report.is_over && report.is_of(look)
        };
        reports.iter().find(keeps).map(|_| run.about.clone())
    }
}

impl Run {
    fn at(address: &str) -> Option<Run> {
        let page = SharedPage::at(address)?;
        let about = OtherRun { launcher: launcher(address)?, ram_bytes: page.settings().ok()?.ram_bytes };
        Some(Run { page, about, reports: None })
    }
}

/// Where the variable leads with which a process was started, if that is to another run.
fn address_of(pid: u32, mark: &[u8]) -> Option<String> {
    let environment = read_of_memory(pid, "environ").ok()?;
    let entry = variable(&environment)?;
    let address = std::str::from_utf8(&entry[ENV.len() + 1..]).ok()?;
    (!entry.starts_with(mark)).then(|| address.to_owned())
}

/// The variable that all of a run are started with, by name and value.
pub fn variable(environment: &[u8]) -> Option<&[u8]> {
    let has_name =
        |entry: &&[u8]| entry.strip_prefix(ENV.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
    environment.split(|&byte| byte == 0).find(has_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::shared_page::Settings;

    /// Of whom the other run's agents report nothing it is not known that anybody limits it.
    #[test]
    fn only_who_is_reported_of_is_another_runs() {
        let settings = Settings { ram_bytes: 30 << 20, ..Settings::default() };
        let page = SharedPage::new(&settings).unwrap();
        let address = page.address();
        let mut child = std::process::Command::new("sleep").arg("60").env(ENV, &address).spawn().unwrap();
        let mut others = Others::default();
        // It is that program once it has called exec.
        while address_of(child.id(), b"x") != Some(address.clone()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(address_of(child.id(), &page.mark()), None, "that is the run itself");
        let look = Look { pid: child.id(), program_pages: 7, ..Look::default() };
        assert_eq!(others.run_of(&look, b"x"), None);
        let run = others.runs.values_mut().flatten().next().unwrap();
        let report = |pages: u32, state| Report { state, ..Report::empty(0, 1, look.pid, pages) };
        run.reports = Some(vec![report(7, state::UNMANAGED), report(8, state::MANAGING)]);
        assert_eq!(others.run_of(&look, b"x"), None, "one agent has given up, one is of another program");
        let run = others.runs.values_mut().flatten().next().unwrap();
        run.reports = Some(vec![report(7, state::MANAGING)]);
        let expected = OtherRun { launcher: std::process::id(), ram_bytes: 30 << 20 };
        assert_eq!(others.run_of(&look, b"x"), Some(expected));
        child.kill().and_then(|()| child.wait()).unwrap();
    }
}
