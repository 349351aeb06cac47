//! What processes have in RAM of files that nobody has asked for: read where there was room. It is held, and
//! not needed: whoever wants the room has it.
//!
//! /proc tells what a process holds, and its agent what of that is such, a moment later. Meanwhile it may
//! have become more or less, so the larger figure of this look and the one before counts: with the smaller
//! one something would be said to be needed that is not. What is needed the agents tell, too.

use std::collections::BTreeMap;

use crate::args::Tuning;
use crate::human;
use crate::run::report::Report;
use crate::run::shared_page::Report as AgentReport;

/// Less than this part of the budget is not worth a word.
const TOLD_SHARE: u64 = 16;

/// The figures of the last two looks, by process.
#[derive(Default)]
pub struct Filled {
    now: BTreeMap<u32, u64>,
    before: BTreeMap<u32, u64>,
}

impl Filled {
    /// What agents tell, after the processes were looked at.
    pub fn note(&mut self, reports: &[AgentReport]) {
        let bytes = |report: &AgentReport| (report.pid, report.counter("files_unseen_bytes"));
        let now = reports.iter().map(bytes).filter(|&(_, bytes)| bytes > 0).collect();
        self.before = std::mem::replace(&mut self.now, now);
    }

    /// Of what the process was seen to hold so much at the most nobody has asked for.
    pub fn bytes(&self, pid: u32) -> u64 {
        let at = |figures: &BTreeMap<u32, u64>| figures.get(&pid).copied().unwrap_or(0);
        at(&self.now).max(at(&self.before))
    }
}

/// The most that was held and asked for by those that have a budget together, of `peak_bytes` that were held.
///
/// *The story:* "287.0 MiB would avoid that", in 256, was told of a program that had touched 25.
pub fn used_bytes(report: &Report, tuning: &Tuning, peak_bytes: u64) -> u64 {
    match report.files_unseen_peak_bytes {
        0 => peak_bytes,
        _ if tuning.per_process => report.needed_bytes.min(peak_bytes),
        _ => report.tree_used_bytes,
    }
}

/// ... by all together.
pub fn seen_bytes(report: &Report, tuning: &Tuning) -> u64 {
    used_bytes(report, tuning, report.tree_peak_bytes)
}

/// What beside that was in RAM, of a run that fits, where it was much.
pub fn told(report: &Report) -> String {
    let bytes = report.files_unseen_peak_bytes;
    let is_much = bytes > report.ram_bytes / TOLD_SHARE;
    if is_much {
        format!("; room was filled with up to {} of files", human::bytes(bytes))
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::report::verdict;

    #[test]
    fn the_larger_figure_of_two_looks_counts() {
        let mut filled = Filled::default();
        let told = |bytes| {
            let counters = vec![("files_unseen_bytes", bytes)];
            [AgentReport { counters, ..AgentReport::empty(0, 1, 7, 30) }]
        };
        for (bytes, counts) in [(0, 0), (50, 50), (20, 50), (10, 20), (30, 30), (0, 30), (0, 0)] {
            filled.note(&told(bytes));
            assert_eq!((filled.bytes(7), filled.bytes(8)), (counts, 0));
        }
    }

    /// See [`used_bytes`].
    #[test]
    fn what_only_filled_room_was_not_needed() {
        let of = |unseen: u64| {
            let report = Report {
                command: vec!["look-up".into()],
                ram_bytes: 100 << 20,
                programs_total: 1,
                programs_at_once: 1,
                managed: true,
                pager: [("files_managed", 1)].into(),
                tree_peak_bytes: 102 << 20,
                tree_used_bytes: 26 << 20,
                files_unseen_peak_bytes: unseen << 20,
                ..Report::default()
            };
            verdict::judge(&report, &Tuning::default())
        };
        let fits = of(75);
        let expected = "fits: never needed more than 26.0 MiB; room was filled with up to 75.0 MiB of files";
        assert_eq!((fits.text.as_str(), fits.kind), (expected, "fits"));
        assert!(fits.next.contains("--ram 31M "), "{fits:?}");
        assert_eq!(of(0).kind, "exceeded", "it needs that, and is not paged");
    }
}
