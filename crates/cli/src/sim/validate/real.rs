//! The real half: runs of the built-in load in a cgroup or under the agent, and what was counted meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result, ensure};

use super::verdict::COUNTERS;
use super::{Case, Counters, Setting};
use crate::compare::way::Way;
use crate::compare::{ATTEMPTS, Input, Lab, Measurement};
use crate::load::pattern::Pattern;
use crate::load::{LoadArgs, Work};
use crate::progress::Progress;

/// What the agent leaves to managed memory with the least reserve, in bytes: the mean over a run under overspill, from the first page on
/// that came back. (In its first seconds it keeps more in reserve; so does the simulation.)
pub const BUDGET: &str = "budget_bytes";
/// Seed of the random load, here and in its simulation.
pub const SEED: u64 = 1;

/// What the runs share.
pub struct Bench<'a> {
    /// Where they happen.
    pub lab: &'a mut Lab,
    /// Sizes and numbers.
    pub setting: Setting,
    /// For the patient.
    pub progress: &'a Progress,
}

impl Bench<'_> {
    /// Runs a case as often as asked for.
    pub fn measure(&mut self, case: &Case) -> Result<Vec<Counters>> {
        (1..=self.setting.runs)
            .map(|run| {
                let runs = self.setting.runs;
                self.progress.say(&format!("{} {}, run {run} of {runs}", case.system(), case.pattern));
                self.run(case)
            })
            .collect()
    }

    fn run(&mut self, case: &Case) -> Result<Counters> {
        let (before, run) = self.survivor(case)?;
        let after = kernel_counters()?;
        if run.overspill.is_some() {
            let counters = COUNTERS.map(|name| (name, reported(&run, &format!("/vmstat/{name}"))));
            let of_process = |name| reported(&run, &format!("/processes/0/pager/{name}"));
            let samples = of_process("budget_samples");
            ensure!(samples > 0, "nothing was read back from swap: is the RAM enough for the load?");
            let budget = (BUDGET, of_process("budget_sum_bytes") / samples);
            return Ok(counters.into_iter().chain([budget]).collect());
        }
        let of = |counters: &BTreeMap<String, u64>, name| *counters.get(name).unwrap_or(&0);
        Ok(COUNTERS.map(|name| (name, of(&after, name).saturating_sub(of(&before, name)))).into())
    }

    /// A run that was not killed, and the kernel's counters before it.
    fn survivor(&mut self, case: &Case) -> Result<(BTreeMap<String, u64>, Measurement)> {
        let mut attempt = 1;
        loop {
            let before = kernel_counters()?;
            let run = self.load(case.way, case.pattern, self.setting.size_bytes)?;
            if run.oom_kills == 0 || attempt == ATTEMPTS {
                ensure!(run.is_success(), "the load failed ({}): {}", run.status, run.captured.error_tail);
                return Ok((before, run));
            }
            attempt += 1;
        }
    }

    fn load(&mut self, way: Way, pattern: Pattern, size_bytes: u64) -> Result<Measurement> {
        let work = Work {
            threads: 1,
            laps: Some(self.setting.laps),
            touches: None,
            seconds: None,
            write: true,
            shared: false,
            latency: false,
            hint: false,
            compressible: 0,
            seed: SEED,
        };
        let mut command: Vec<OsString> = vec![std::env::current_exe()?.into()];
        command.extend(LoadArgs::command_line(pattern, size_bytes, &work).into_iter().map(OsString::from));
        self.lab.run(way, &command, &Input::nothing()?, None)
    }
}

/// A number of the agent's report.
fn reported(run: &Measurement, pointer: &str) -> u64 {
    let report = run.overspill.as_ref();
    report.and_then(|report| report.pointer(pointer)).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

fn kernel_counters() -> Result<BTreeMap<String, u64>> {
    let text = fs::read_to_string("/proc/vmstat").context("cannot read /proc/vmstat")?;
    let line = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    Ok(text.lines().filter_map(line).collect())
}
