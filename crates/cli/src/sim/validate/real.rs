//! The real half: runs of the built-in load in a cgroup or under the agent, and what was counted
//! meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result, ensure};
use overspill_mm::types::PAGE_SIZE;

use super::verdict::COUNTERS;
use super::{ALLOWANCE_BYTES, Case, Counters, Setting};
use crate::compare::way::Way;
use crate::compare::{ATTEMPTS, Input, Lab, Measurement};
use crate::load::pattern::Pattern;
use crate::load::{LoadArgs, Work};
use crate::progress::Progress;

/// What is left to the load's pages, in bytes. Of the agent: what it leaves to managed memory with
/// the least reserve, the mean over a run from the first page on that came back (in its first
/// seconds it keeps more in reserve; so does the simulation). Of the kernel: the cgroup's limit
/// without what a load of hardly any pages holds, and without page tables.
pub const BUDGET: &str = "budget_bytes";
/// Hardly any pages.
const SMALL_BYTES: u64 = 64 << 10;
/// A page table has an entry of 8 bytes for each page.
const TABLES_SHARE: u64 = PAGE_SIZE / 8;
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
        let left = if case.is_pager() { 0 } else { self.left_by_kernel(case.way)? };
        (1..=self.setting.runs)
            .map(|run| {
                let runs = self.setting.runs;
                self.progress.say(&format!("{} {}, run {run} of {runs}", case.system(), case.pattern));
                self.run(case, left)
            })
            .collect()
    }

    /// See [`BUDGET`].
    fn left_by_kernel(&mut self, way: Way) -> Result<u64> {
        let small = self.load(way, Pattern::Sequential, SMALL_BYTES)?;
        ensure!(small.is_success(), "the load failed ({}): {}", small.status, small.captured.error_tail);
        let beside = small.cgroup_peak_bytes.saturating_sub(SMALL_BYTES);
        let limit = self.setting.ram_bytes + ALLOWANCE_BYTES;
        Ok(limit.saturating_sub(beside + self.setting.size_bytes / TABLES_SHARE))
    }

    fn run(&mut self, case: &Case, left_by_kernel: u64) -> Result<Counters> {
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
        let counters = COUNTERS.map(|name| (name, of(&after, name).saturating_sub(of(&before, name))));
        Ok(counters.into_iter().chain([(BUDGET, left_by_kernel)]).collect())
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
