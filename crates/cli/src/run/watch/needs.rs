//! What a tree would need to keep all in RAM, what several have together once.

use std::collections::BTreeSet;

use super::families::Families;
use crate::run::common::copies::{self, Copies, Holder, Need};
use crate::run::common::heritage::{Heir, Heritage};
use crate::run::shared_page::Report;
use crate::run::tree::census::Census;
use crate::run::tree::descendants::{Look, of_pid};
use crate::run::tree::filled::Filled;

/// The books.
#[derive(Default)]
pub struct Needs {
    heritage: Heritage,
    copies: Copies,
}

/// What is known beside looks and reports.
pub struct Known<'a> {
    /// What is in common.
    pub families: &'a Families,
    /// What nobody has asked for.
    pub filled: &'a Filled,
    /// Who is in passing.
    pub census: &'a Census,
}

impl Needs {
    /// What the tree would hold now with RAM enough beside shared memory, what several have together once.
    pub fn look(&mut self, looks: &[Look], managed: &[Report], known: &Known<'_>) -> Need {
        let inherits = |report: &&Report| report.counter("inherited_bytes") > 0;
        let heirs: BTreeSet<u32> = managed.iter().filter(inherits).map(|report| report.pid).collect();
        let heir = |report: &Report| {
            let look = of_pid(looks, report.pid).filter(|look| report.is_of(look))?;
            let runs_same = |elder: &&Look| look.runs(elder.program_pages, elder.program_stamp);
            let elder =
                known.families.elder(looks, look, |other| !heirs.contains(&other.pid)).filter(runs_same);
            Some(Heir {
                pid: report.pid,
                claim: report.claim(),
                elder: elder.map(|elder| elder.pid),
                inherited_bytes: report.counter("inherited_bytes"),
                gone_bytes: report.counter("inherited_gone_bytes"),
                copied_bytes: report.counter("copied_bytes"),
                stored: report.counter("stored_pages") as u32,
                needed_bytes: report.counter("needed_bytes"),
            })
        };
        let heirs: Vec<Heir> = managed.iter().filter_map(heir).collect();
        let (common, copies) = (self.heritage.look(&heirs), self.copies.look(&heirs));
        let of = |look: &Look| {
            let report = managed.iter().find(|report| report.is_of(look));
            let told = report.map_or(0, |report| report.counter("needed_bytes"));
            let told_bytes = told.max(look.anon_bytes.saturating_sub(known.filled.bytes(look.pid)));
            let doubly = known.families.sharing().doubly(look.pid).anon_bytes;
            let common = doubly + common.get(&look.pid).copied().unwrap_or(0);
            let needed_bytes = told_bytes.saturating_sub(common);
            let copied_bytes = copies.get(&look.pid).copied().unwrap_or(0);
            let program = (look.program_pages, look.program_stamp);
            Holder { program, told_bytes, needed_bytes, copied_bytes }
        };
        let counted = looks.iter().filter(|look| !look.is_guest && !known.census.is_passing(look.pid));
        copies::needed(counted.map(of))
    }
}
