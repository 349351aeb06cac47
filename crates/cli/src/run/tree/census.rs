//! Who was in the tree, what each held, and whether it was managed: the books that the verdict is
//! computed from.
//!
//! A record is a program that a process ran; a process that becomes another program by exec has one
//! for each. What /proc told (sightings) and what agents reported meet here, in whatever order they
//! come, by process id and by what tells its programs apart. It reads nothing itself and has no
//! clock: whoever feeds it does.

mod record;
mod seen;

use std::collections::{BTreeMap, VecDeque};

use overspill_engine::shared::state;

use super::descendants::of_pid;
use super::others::OtherRun;
use crate::run::common::copies::Need;
use crate::run::common::sharing::Peak;
use crate::run::report::verdict::BOUND_BYTES_EACH;
use crate::run::shared_page::Report as AgentReport;
pub use record::{Record, UNKEPT_BYTES};
pub use seen::{Brief, Sighting, Stopped};

/// Records that are kept one by one; what later ones reported is added up.
const RECORDS_MAX: usize = 4096;
/// So many looks later an agent's last report has come.
const LATE_LOOKS: usize = 256;
/// What lies between two looks counts for no more: the launcher itself may have been stopped.
const STEP_NS_MAX: u64 = 100_000_000;

/// The books.
#[derive(Default)]
pub struct Census {
    living: BTreeMap<u32, Record>,
    ended: Vec<Record>,
    /// The most that the tree held at a time, anonymous and shared memory; and what of it was shared.
    pub tree_peak_bytes: u64,
    /// The most that it held beside what each program that was there at the time may hold above the budget.
    ///
    /// *The story:* a MiB for each of the most that there ever were. Thirty that slept were gone when a tree
    /// of forks passed its budget by 30 MiB, and nothing was said.
    pub tree_peak_beside_bytes: u64,
    /// See there.
    pub tree_peak_shmem_bytes: u64,
    pub tree_peak_table_bytes: u64,
    /// The most at a time that nobody could page.
    pub tree_peak_unpaged_bytes: u64,
    /// The most that it held at a time, without pages of files that nobody asked for.
    pub tree_used_bytes: u64,
    /// The most that it would have held at a time with RAM enough.
    pub tree_needed_bytes: u64,
    /// The same as if each had all that it has by itself.
    pub tree_needed_apart_bytes: u64,
    /// ... with the pages that had left as zeroes by then.
    pub tree_needed_most_bytes: u64,
    /// The most programs that lived at a time.
    pub most_at_once: u64,
    /// What processes held that were stopped.
    pub stopped: Stopped,
    /// The most that the tree may have held between two looks: what a look saw, and by how much more those
    /// that ended before the next one had reported.
    ///
    /// *The story:* four children stored 30 MiB each, and ended within some milliseconds. Their agents had
    /// seen that. "Never needed more than 46 MiB" was told of 136.
    pub tree_late_bytes: u64,
    /// ... of the last looks, by their number.
    late: VecDeque<(u64, u64)>,
    tree_sum_bytes: u128,
    looks: u64,
    last_ns: u64,
    /// Records that are not kept one by one.
    pub left_out: u64,
    /// ... what their agents reported, added up.
    pub left_out_agents: Option<AgentReport>,
    /// ... the most that one of them held, anonymous memory and RAM of any kind.
    ///
    /// *The story:* "a program had 100 MiB in RAM and ended before it could be seen whether within a
    /// limit" was said of one that had been seen all the time, and was left out.
    pub left_out_anon_bytes: u64,
    /// See there.
    pub left_out_resident_bytes: u64,
    /// ... and how long those lived, together, that waited for their agents.
    pub left_out_lives_ns: u64,
    /// ... how many were brief, and what those held at their peaks.
    pub left_out_brief: Brief,
    /// ... and how long the first threads of those neither ran nor waited for a processor.
    pub left_out_blocked_ns: u64,
}

impl Census {
    /// All that live at `now`, in the order of their numbers. Returns those whose names and objections are
    /// to be told.
    pub fn look(&mut self, sightings: &[Sighting], now: u64) -> Vec<u32> {
        let mut new = Vec::new();
        let (mut anon_bytes, mut shmem_bytes, mut filled_bytes) = (0, 0, 0);
        let mut stopped = Stopped::default();
        for sighting in sightings.iter().filter(|sighting| !sighting.look.is_guest) {
            let own_bytes = sighting.look.anon_bytes - sighting.doubly_bytes.min(sighting.look.anon_bytes);
            anon_bytes += own_bytes;
            filled_bytes += sighting.filled_bytes.min(own_bytes);
            if sighting.look.is_stopped {
                (stopped.peak_bytes, stopped.programs) =
                    (stopped.peak_bytes + own_bytes, stopped.programs + 1);
            }
            anon_bytes += sighting.kept_bytes.min(sighting.look.shared_bytes);
            shmem_bytes += sighting.shmem_bytes;
            if self.see(sighting, sightings, now) {
                new.push(sighting.look.pid);
            }
        }
        self.note_stopped(stopped, now);
        let gone: Vec<u32> = {
            let lives = |pid: &u32| of_pid(sightings, *pid).is_some_and(|sighting| !sighting.look.is_guest);
            self.living.keys().filter(|pid| !lives(pid)).copied().collect()
        };
        gone.into_iter()
            .filter_map(|pid| self.living.remove(&pid))
            .for_each(|record| self.ended.push(record));
        if self.note_peak(Peak { bytes: anon_bytes + shmem_bytes, shmem_bytes }) {
            self.tree_peak_table_bytes = sightings.iter().map(|sighting| sighting.table_bytes).sum();
        }
        let programs = self.living.len() as u64;
        let beside_bytes = (anon_bytes + shmem_bytes).saturating_sub(programs * BOUND_BYTES_EACH);
        self.tree_peak_beside_bytes = self.tree_peak_beside_bytes.max(beside_bytes);
        self.most_at_once = self.most_at_once.max(programs);
        self.tree_sum_bytes += u128::from(anon_bytes + shmem_bytes);
        let used_bytes = anon_bytes + shmem_bytes - filled_bytes;
        self.tree_used_bytes = self.tree_used_bytes.max(used_bytes);
        self.late.push_back((self.looks, used_bytes));
        if self.late.len() > LATE_LOOKS {
            self.late.pop_front();
        }
        self.looks += 1;
        new
    }

    /// A program has ended that had so much more than any look saw: as if it was after the last one.
    fn note_late(&mut self, look: u64, more_bytes: u64) {
        if let Some((_, bytes)) = self.late.iter_mut().find(|(number, _)| *number == look) {
            *bytes += more_bytes;
            self.tree_late_bytes = self.tree_late_bytes.max(*bytes);
        }
    }

    fn note_stopped(&mut self, stopped: Stopped, now: u64) {
        let step = now.saturating_sub(self.last_ns).min(STEP_NS_MAX);
        let for_ns = self.stopped.for_ns + if stopped.programs > 0 { step } else { 0 };
        let most = if stopped.peak_bytes > self.stopped.peak_bytes { stopped } else { self.stopped };
        self.stopped = Stopped { for_ns, ..most };
        self.last_ns = now;
    }

    /// The tree held so much at some time. Returns whether that is the most by now.
    pub fn note_peak(&mut self, peak: Peak) -> bool {
        let is_more = peak.bytes > self.tree_peak_bytes;
        if is_more {
            (self.tree_peak_bytes, self.tree_peak_shmem_bytes) = (peak.bytes, peak.shmem_bytes);
        }
        is_more
    }

    /// So much is there that nobody can page.
    pub fn note_unpaged(&mut self, bytes: u64) {
        self.tree_peak_unpaged_bytes = self.tree_peak_unpaged_bytes.max(bytes);
    }

    /// True if what is known of the program is to be told: it was not seen before, or only when it
    /// was being started.
    fn see(&mut self, sighting: &Sighting, all: &[Sighting], now: u64) -> bool {
        let look = &sighting.look;
        let is_known = self.living.get(&look.pid).is_some_and(|record| record.is_of(look));
        if !is_known {
            // Numbers start again at some time: a parent that is new, too, may come later.
            let parent = of_pid(all, look.parent);
            let is_copy = parent
                .is_some_and(|parent| look.runs(parent.look.program_pages, parent.look.program_stamp))
                && !self.living.contains_key(&look.pid);
            let parents_peak = self.living.get(&look.parent).map_or(0, |record| record.anon_peak_bytes);
            let parents_bytes = parent.map_or(0, |parent| parent.look.anon_bytes).max(parents_peak);
            let record = Record {
                pid: look.pid,
                program_pages: look.program_pages,
                program_stamp: look.program_stamp,
                is_copy,
                born_bytes: look.anon_bytes.min(parents_bytes),
                first_ns: now,
                first_busy_ns: look.busy_ns,
                ..Record::default()
            };
            let before = self.living.insert(look.pid, record);
            self.ended.extend(before.map(|record| Record { is_followed: true, ..record }));
        }
        let record = self.living.get_mut(&look.pid).expect("it was inserted if it was not there");
        let step = if is_known { (now - record.last_ns).min(STEP_NS_MAX) } else { 0 };
        record.program_stamp =
            if look.program_stamp == 0 { record.program_stamp } else { look.program_stamp };
        (record.last_ns, record.last_busy_ns) = (now, look.busy_ns.max(record.last_busy_ns));
        record.anon_peak_bytes = record.anon_peak_bytes.max(look.anon_bytes);
        let kept_bytes = sighting.kept_bytes.min(look.shared_bytes);
        let own_bytes = look.anon_bytes.saturating_sub(sighting.doubly_bytes);
        record.seen_peak_bytes = record.seen_peak_bytes.max(own_bytes + kept_bytes);
        record.last_look = Some(self.looks);
        record.shmem_peak_bytes = record.shmem_peak_bytes.max(sighting.shmem_bytes);
        record.looked_peak_bytes = record.looked_peak_bytes.max(look.anon_bytes + look.shared_bytes);
        record.resident_peak_bytes = record.resident_peak_bytes.max(record.looked_peak_bytes);
        if !sighting.is_doubtful {
            record.weigh(look.anon_bytes.saturating_sub(sighting.doubly_bytes), step, sighting.is_put_off);
        }
        !is_known || record.is_unsettled()
    }

    /// Tells the name of a living program, and what is known against its being managed.
    pub fn describe(&mut self, pid: u32, name: String, objection: Option<String>) {
        if let Some(record) = self.living.get_mut(&pid) {
            (record.name, record.objection) = (name, objection);
        }
    }

    /// The agent of another run has a living program, or has it no more.
    pub fn belongs(&mut self, pid: u32, run: Option<OtherRun>) {
        if let Some(record) = self.living.get_mut(&pid) {
            record.belongs(run);
        }
    }

    /// Has another run's agent any of those that live?
    pub fn has_other_runs(&self) -> bool {
        self.living.values().any(|record| record.other_run.is_some())
    }

    /// Is there a program that was seen for the first time just now, and of which nothing is known yet?
    pub fn is_unsettled(&self) -> bool {
        self.living.values().any(Record::is_unsettled)
    }

    /// So much the tree would hold now with RAM enough, beside what it holds of shared memory; so much more
    /// with what left as zeroes.
    pub fn need(&mut self, need: Need, shared_bytes: u64, blank_bytes: u64) {
        let bytes = need.bytes + shared_bytes;
        if bytes > self.tree_needed_bytes {
            self.tree_needed_bytes = bytes;
            self.tree_needed_apart_bytes = need.apart_bytes + shared_bytes;
        }
        self.tree_needed_most_bytes = self.tree_needed_most_bytes.max(bytes + blank_bytes);
    }

    /// Is it a copy of its parent that may call exec any moment, and has done nothing else?
    pub fn is_passing(&self, pid: u32) -> bool {
        self.living.get(&pid).is_some_and(Record::is_passing)
    }

    /// Is no agent of it known?
    pub fn lacks_agent(&self, pid: u32) -> bool {
        !self.living.get(&pid).is_some_and(Record::has_agent)
    }

    /// Was it there at the last look?
    pub fn knows(&self, pid: u32) -> bool {
        self.living.contains_key(&pid)
    }

    /// An agent has a place, and goes on.
    pub fn note(&mut self, report: &AgentReport) {
        let Some(record) = self.living.get_mut(&report.pid) else { return };
        if !record.is_told_by(report) {
            record.claim_before.get_or_insert(report.claim());
            return;
        }
        let is_new = record.claim.is_none();
        if *record.claim.get_or_insert(report.claim()) == report.claim() {
            let has_failed = report.state == state::UNMANAGED;
            record.failure = has_failed.then_some((report.error_step, report.error));
        }
        if is_new && record.has_agent() {
            record.own_peak_bytes = 0; // that was while it came
        }
    }

    /// What an agent reported last: its process has ended, or has become another program, or the run is over.
    pub fn keep(&mut self, report: AgentReport) {
        let is_its = |record: &&mut Record| {
            record.pid == report.pid
                && record.is_told_by(&report)
                && record.agent.is_none()
                // A program that another one has replaced may look like that one.
                && record.claim.map_or(!report.is_over, |claim| claim == report.claim())
        };
        let living = self.living.get_mut(&report.pid);
        let (pid, is_over) = (report.pid, report.is_over);
        match living.into_iter().chain(self.ended.iter_mut().rev()).find(is_its) {
            Some(record) => {
                let late = record.last_look.zip(record.unseen_bytes(&report));
                record.hear(report);
                if let Some((look, more_bytes)) = late {
                    self.note_late(look, more_bytes);
                }
            }
            // It came and went between two looks.
            None => {
                self.note_follower(&report);
                let mut record = Record {
                    pid: report.pid,
                    program_pages: report.program_pages,
                    program_stamp: report.program_stamp,
                    name: report.name.clone(),
                    ..Record::default()
                };
                record.hear(report);
                self.ended.push(record);
            }
        }
        if is_over && self.living.get(&pid).is_some_and(|record| record.agent.is_some()) {
            // What the process runs now is seen at the next look.
            self.ended.extend(self.living.remove(&pid));
        }
        self.shorten();
    }

    /// Nobody has seen the program that reports: what its process was seen to run before has started it.
    fn note_follower(&mut self, report: &AgentReport) {
        let seen = self.living.get_mut(&report.pid);
        let mut seen = seen.into_iter().chain(self.ended.iter_mut().rev());
        let before = seen.find(|record| record.pid == report.pid);
        // One that was there already when that was seen came before it.
        let follows = |record: &Record| !report.is_over && record.claim_before != Some(report.claim());
        if let Some(record) = before.filter(|record| follows(record)) {
            record.is_followed = true;
        }
    }

    /// Why a living program is not managed that holds more than next to nothing: what cannot be at
    /// once, what might be after a while.
    ///
    /// *The story:* only what was known to be static, or to have a cleaned environment, ended a run.
    /// A program in namespaces of its own, a child of a bare fork and one whose agent had given up ran
    /// on without a limit.
    ///
    /// *The other story:* Chromium from a cold disk, and what a debugger had stopped in its loader, were
    /// ended after a second; a run whose launcher had been stopped in the look that found the agent.
    pub fn unkept(&self) -> Option<String> {
        let cannot_be = |record: &Record| {
            record.anon_peak_bytes > UNKEPT_BYTES
                && record.claim.is_none()
                && !record.is_copy
                && record.other_run.is_none()
                && record.objection.is_some()
        };
        self.living.values().find(|record| cannot_be(record) || record.lasts())?.complaint()
    }

    /// Everything, at the end of the run, in the order in which the programs ended.
    pub fn finish(&mut self) -> Vec<Record> {
        for (_, record) in std::mem::take(&mut self.living) {
            self.ended.push(Record { is_left: true, ..record });
        }
        let mut records = std::mem::take(&mut self.ended);
        records.retain(Record::is_program);
        records
    }

    /// The mean of what the tree held.
    pub fn tree_mean_bytes(&self) -> u64 {
        u64::try_from(self.tree_sum_bytes / u128::from(self.looks.max(1))).unwrap_or(u64::MAX)
    }

    /// Keeps no more records than there is room for: managed ones are added up, the others stay.
    fn shorten(&mut self) {
        if self.ended.len() <= RECORDS_MAX {
            return;
        }
        self.ended.retain(Record::is_program);
        let spare = self.ended.len().saturating_sub(RECORDS_MAX / 2);
        let mut left_out = Vec::new();
        self.ended.retain_mut(|record| {
            let goes = left_out.len() < spare && record.is_managed() && !record.has_something_to_tell();
            if goes {
                left_out.push(std::mem::take(record));
            }
            !goes
        });
        left_out.into_iter().for_each(|record| self.leave_out(record));
    }

    fn leave_out(&mut self, record: Record) {
        self.left_out += 1;
        self.left_out_anon_bytes = self.left_out_anon_bytes.max(record.anon_peak_bytes);
        self.left_out_resident_bytes = self.left_out_resident_bytes.max(record.held_peak_bytes());
        self.left_out_brief.add(&record);
        if record.waited_ns() > 0 {
            self.left_out_lives_ns += record.lived_ns();
            self.left_out_blocked_ns += record.blocked_ns();
        }
        let Some(agent) = record.agent else { return };
        match &mut self.left_out_agents {
            Some(sum) => sum.add(&agent),
            None => self.left_out_agents = Some(agent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tree::descendants::Look;
    use overspill_engine::shared::events;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;

    fn sighting(pid: u32, parent: u32, program_pages: u32, mib: u64) -> Sighting {
        let look = Look { pid, parent, program_pages, anon_bytes: mib * MIB, ..Look::default() };
        Sighting { look, ..Sighting::default() }
    }

    fn report(pid: u32, program_pages: u32, generation: u32, state: u32) -> AgentReport {
        AgentReport { state, ..AgentReport::empty(0, generation, pid, program_pages) }
    }

    fn raise(report: &mut AgentReport, counter: &str, mib: u64) {
        report.counters.iter_mut().find(|(name, _)| *name == counter).unwrap().1 = mib * MIB;
    }

    /// *The story:* see `borrowing` of the agent. It has discarded what was lent to it.
    #[test]
    fn what_a_copy_let_go_of_was_not_its_own() {
        let (parent, mut child) = (sighting(4, 1, 30, 96), sighting(5, 4, 30, 96));
        child.doubly_bytes = 96 * MIB;
        let mut census = Census::default();
        census.look(&[parent, child], 0);
        let mut told = report(5, 30, 1, state::WATCHING);
        raise(&mut told, "resident_peak_bytes", 96);
        raise(&mut told, "own_peak_bytes", 30);
        census.keep(told);
        assert_eq!(census.tree_late_bytes, 126 * MIB);
    }

    /// See [`Record::unseen_bytes`].
    #[test]
    fn what_a_copy_came_to_have_by_itself_is_held_beside_its_parent() {
        let (parent, mut child) = (sighting(4, 1, 30, 96), sighting(5, 4, 30, 96));
        child.doubly_bytes = 96 * MIB;
        let mut census = Census::default();
        census.look(&[parent], 0);
        census.look(&[parent, child], 20 * MS);
        let mut told = report(5, 30, 1, state::WATCHING);
        told.borrowed_bytes = 6 * MIB;
        raise(&mut told, "resident_peak_bytes", 96);
        raise(&mut told, "own_peak_bytes", 90);
        census.keep(told);
        assert_eq!((census.tree_late_bytes, census.tree_peak_bytes), (186 * MIB, 96 * MIB));
    }

    /// See [`Census::tree_peak_beside_bytes`].
    #[test]
    fn who_is_gone_lets_nobody_hold_more() {
        let mut census = Census::default();
        let many: Vec<Sighting> = (10..40).map(|pid| sighting(pid, 1, 30, 1)).collect();
        census.look(&many, 0);
        assert_eq!(census.tree_peak_beside_bytes, 0);
        census.look(&[sighting(50, 1, 30, 120), sighting(51, 1, 30, 10)], 20 * MS);
        assert_eq!((census.tree_peak_beside_bytes, census.most_at_once), (128 * MIB, 30));
    }

    /// See [`Census::tree_late_bytes`].
    #[test]
    fn what_agents_saw_of_those_that_ended_is_held_at_a_time() {
        let told = |pid: u32, mib: u64| {
            let mut report = report(pid, 30, 1, state::WATCHING);
            raise(&mut report, "resident_peak_bytes", mib);
            raise(&mut report, "own_peak_bytes", mib);
            report
        };
        let mut census = Census::default();
        let all: Vec<Sighting> = (5..9).map(|pid| sighting(pid, 1, 30, 10)).collect();
        census.look(&all, 0);
        census.look(&all[..3], 20 * MS);
        census.keep(told(8, 40));
        assert_eq!(census.tree_late_bytes, 70 * MIB, "of the look before its end");
        census.look(&all[..1], 40 * MS);
        census.keep(told(6, 40));
        assert_eq!(census.tree_late_bytes, 70 * MIB, "the other one had gone by then: 60");
        census.keep(told(7, 35));
        assert_eq!((census.tree_late_bytes, census.tree_peak_bytes), (85 * MIB, 40 * MIB));
        census.keep(told(5, 9));
        assert_eq!(census.tree_late_bytes, 85 * MIB, "that was seen");
    }

    /// *The story:* a shell started a static program of 290 MiB in 100, and the run was said to
    /// fit, as the shell needed 152 KiB.
    #[test]
    fn what_no_agent_reports_from_is_unmanaged() {
        let mut census = Census::default();
        assert_eq!(census.look(&[sighting(5, 1, 30, 1)], 0), [5]);
        let both = [sighting(5, 1, 30, 1), sighting(6, 5, 900, 290)];
        assert_eq!(census.look(&both, 10 * MS), [5, 6], "the first may have been seen too early");
        assert_eq!(census.look(&both, 50 * MS), [6]);
        assert!(census.is_unsettled());
        census.describe(6, "go".into(), Some("it is static".into()));
        assert!(!census.is_unsettled());
        census.keep(report(5, 30, 1, state::WATCHING));
        assert!(census.look(&[], 60 * MS).is_empty());
        let records = census.finish();
        assert_eq!(records.iter().map(Record::is_managed).collect::<Vec<_>>(), [true, false]);
        assert_eq!(records[1].reason().unwrap(), "it is static");
        assert_eq!((census.tree_peak_bytes, records[1].anon_peak_bytes), (291 * MIB, 290 * MIB));
    }

    /// One place for all that a process became hid that the last program had no agent.
    #[test]
    fn a_program_that_a_process_becomes_has_a_record_of_its_own() {
        let mut census = Census::default();
        census.look(&[sighting(5, 1, 30, 1)], 0);
        assert_eq!(census.look(&[sighting(5, 1, 31, 50)], 40 * MS), [5]);
        census.look(&[sighting(5, 1, 31, 60)], 90 * MS);
        census.keep(report(5, 30, 1, state::WATCHING));
        let records = census.finish();
        assert_eq!(records.len(), 2);
        assert!(records[0].is_managed() && !records[1].is_managed());
        assert!(records[1].is_left && records[1].anon_peak_bytes == 60 * MIB);
    }

    /// Two small programs have code of the same size.
    #[test]
    fn an_agent_tells_that_another_program_has_taken_over() {
        let mut census = Census::default();
        census.look(&[sighting(5, 1, 1, 1)], 0);
        census.note(&report(5, 1, 1, state::WATCHING));
        census.look(&[sighting(5, 1, 1, 50)], MS);
        census.keep(AgentReport { is_over: true, ..report(5, 1, 1, state::WATCHING) });
        assert_eq!(census.look(&[sighting(5, 1, 1, 60)], 50 * MS), [5]);
        // Nobody had looked when this one was replaced.
        census.keep(AgentReport { is_over: true, ..report(5, 1, 2, state::WATCHING) });
        census.look(&[sighting(5, 1, 1, 60)], 99 * MS);
        let records = census.finish();
        assert_eq!(records.iter().map(Record::is_managed).collect::<Vec<_>>(), [true, true, false]);
    }

    /// *The story:* `execv` of a static program of as many pages of code: it was taken for what it had
    /// replaced, `"managed": true`, and `--strict` let it run.
    #[test]
    fn programs_of_the_same_size_are_told_apart() {
        let seen = |program_stamp, mib| {
            let sighting = sighting(5, 1, 1, mib);
            Sighting { look: Look { program_stamp, ..sighting.look }, ..sighting }
        };
        let told = AgentReport { program_stamp: 7, ..report(5, 1, 1, state::WATCHING) };
        let mut census = Census::default();
        census.look(&[seen(7, 1)], 0);
        census.note(&told);
        assert_eq!(census.look(&[seen(8, 50)], 10 * MS), [5]);
        census.note(&told);
        census.look(&[seen(8, 300)], 50 * MS);
        census.describe(5, "tiny".into(), Some("it is static".into()));
        assert!(census.unkept().is_some_and(|complaint| complaint.contains("it is static")));
        census.look(&[], 60 * MS);
        census.keep(told.clone());
        let managed =
            |census: &mut Census| census.finish().iter().map(Record::is_managed).collect::<Vec<_>>();
        assert_eq!(managed(&mut census), [true, false]);
        // Nobody had looked when the first was replaced; and one of which it is not known.
        for (stamp, expected) in [(8, vec![false, true]), (0, vec![true])] {
            let mut unseen = Census::default();
            unseen.look(&[seen(stamp, 50)], 0);
            unseen.note(&told);
            unseen.look(&[seen(stamp, 300)], 50 * MS);
            unseen.look(&[], 60 * MS);
            unseen.keep(told.clone());
            assert_eq!(managed(&mut unseen), expected, "{stamp}");
        }
    }

    /// A child of fork that calls exec at once holds all that its parent does, for a millisecond.
    #[test]
    fn what_lies_between_fork_and_exec_is_no_program() {
        let mut census = Census::default();
        census.look(&[sighting(5, 1, 30, 80)], 0);
        census.look(&[sighting(5, 1, 30, 80), sighting(6, 5, 30, 80)], MS);
        census.look(&[sighting(5, 1, 30, 80), sighting(6, 5, 7, 1)], 2 * MS);
        census.keep(report(5, 30, 1, state::WATCHING));
        census.keep(report(6, 7, 2, state::WATCHING));
        let records = census.finish();
        assert_eq!(
            records.iter().map(|record| (record.pid, record.is_managed())).collect::<Vec<_>>(),
            [(5, true), (6, true)]
        );
        // But one that stays is.
        census.look(&[sighting(5, 1, 30, 80)], 0);
        census.look(&[sighting(5, 1, 30, 80), sighting(6, 5, 30, 80)], MS);
        census.look(&[sighting(5, 1, 30, 80), sighting(6, 5, 30, 90)], 201 * MS);
        assert_eq!(census.finish().iter().filter(|record| record.pid == 6).count(), 1);
    }

    /// *The story:* a child of a bare fork that filled 500 MiB within 100 ms, and ended, was no program.
    #[test]
    fn a_copy_that_grows_is_a_program_however_short_it_lives() {
        let mut census = Census::default();
        census.look(&[sighting(5, 1, 30, 80)], 0);
        census.look(&[sighting(5, 1, 30, 80), sighting(6, 5, 30, 80)], MS);
        assert!(census.is_passing(6));
        census.look(&[sighting(5, 1, 30, 80), sighting(6, 5, 30, 90)], 20 * MS);
        assert!(!census.is_passing(6));
        census.look(&[sighting(5, 1, 30, 80)], 30 * MS);
        assert_eq!(census.finish().iter().filter(|record| record.pid == 6).count(), 1);
    }

    /// *The story:* `gosu nobody prog` is a static program for some milliseconds, and then `prog`,
    /// which was managed. The run was "partly unmanaged".
    #[test]
    fn what_starts_a_program_in_its_own_place_is_none() {
        let start = |mib: u64, until: u64| {
            let mut census = Census::default();
            census.look(&[sighting(5, 1, 30, mib)], 0);
            census.describe(5, "gosu".into(), Some("it is static".into()));
            census.look(&[sighting(5, 1, 30, mib)], until * MS);
            census
        };
        let managed =
            |census: &mut Census| census.finish().iter().map(Record::is_managed).collect::<Vec<_>>();
        for (mib, until, expected) in [(2, 60, 1), (5, 60, 2), (2, 900, 1), (2, 1100, 2)] {
            let mut census = start(mib, until);
            census.look(&[sighting(5, 1, 31, 50)], (until + 10) * MS);
            census.note(&report(5, 31, 1, state::WATCHING));
            census.keep(report(5, 31, 1, state::WATCHING));
            assert_eq!(managed(&mut census).len(), expected, "{mib} MiB for {until} ms");
        }
        // The program came and went before anybody looked.
        let mut unseen = start(2, 60);
        unseen.keep(report(5, 31, 1, state::WATCHING));
        assert_eq!(managed(&mut unseen), [true]);
        // It was a shell, which came before.
        let mut shell = start(2, 60);
        shell.note(&report(5, 31, 1, state::WATCHING));
        shell.keep(report(5, 31, 1, state::WATCHING));
        assert_eq!(managed(&mut shell).len(), 2);
    }

    /// For how many ms a child of 50 MiB, seen every 50 ms, is let live without an agent.
    fn let_live(also: &[Sighting], child: Sighting, report: Option<AgentReport>) -> (u64, String) {
        let mut census = Census::default();
        for now in (0..20_000).step_by(50) {
            census.look(&[also, &[child]].concat(), now * MS);
            report.iter().for_each(|report| census.note(report));
            if let Some(complaint) = census.unkept() {
                return (now, complaint);
            }
        }
        (u64::MAX, String::new())
    }

    /// See [`Census::unkept`].
    #[test]
    fn whoever_has_no_agent_for_a_while_is_not_kept() {
        let child = sighting(6, 5, 30, 50);
        let (after, complaint) = let_live(&[], child, None);
        assert!(after == 10_000 && complaint.contains("no agent reported"), "{after}: no objection is known");
        let parent = sighting(5, 1, 30, 50);
        let parents = || Some(report(5, 30, 1, state::MANAGING));
        assert_eq!(let_live(&[parent], child, parents()).0, 1000, "a bare fork");
        let theirs = Sighting { doubly_bytes: 48 * MIB, ..child };
        assert_eq!(let_live(&[parent], theirs, parents()).0, u64::MAX, "it is the parent's");
        let gave_up = AgentReport { error_step: 4, error: 12, ..report(6, 30, 1, state::UNMANAGED) };
        let (after, complaint) = let_live(&[], child, Some(gave_up));
        assert!(after == 1000 && complaint.contains("the agent could not register memory"), "{after}");
        assert_eq!(let_live(&[], child, Some(report(6, 30, 1, state::MANAGING))).0, u64::MAX);
    }

    /// See [`Census::unkept`].
    #[test]
    fn whoever_cannot_get_on_is_waited_for() {
        let parent = sighting(5, 1, 30, 50);
        let child = sighting(6, 5, 30, 50);
        let parents = || Some(report(5, 30, 1, state::MANAGING));
        assert_eq!(let_live(&[parent], Sighting { is_put_off: true, ..child }, parents()).0, u64::MAX);
        assert_eq!(let_live(&[parent], Sighting { is_doubtful: true, ..child }, parents()).0, u64::MAX);
        // The launcher was stopped, and finds the agent when it goes on.
        let mut census = Census::default();
        census.look(&[child], 0);
        census.look(&[child], 60_000 * MS);
        assert_eq!(census.unkept(), None);
        for now in 1..200 {
            census.look(&[child], (60_000 + now * 100) * MS);
        }
        assert!(census.unkept().is_some());
        census.note(&report(6, 30, 1, state::WATCHING));
        assert_eq!(census.unkept(), None);
    }

    /// See [`Record::weigh`].
    #[test]
    fn what_an_agent_kept_is_not_held_against_who_had_it() {
        let ended = |grows_without: bool| {
            let mut census = Census::default();
            let seen = |mib| [sighting(6, 5, 30, mib)];
            census.look(&seen(10), 0);
            census.note(&report(6, 30, 1, state::MANAGING));
            census.look(&seen(50), MS);
            census.note(&report(6, 30, 1, state::UNMANAGED));
            census.look(&seen(if grows_without { 50 } else { 2 }), 2 * MS);
            census.keep(report(6, 30, 1, state::UNMANAGED));
            census.finish().iter().any(Record::was_unkept)
        };
        assert_eq!((ended(false), ended(true)), (false, true));
    }

    /// See [`Stopped`].
    #[test]
    fn what_stopped_processes_hold_is_told() {
        let seen = |is_stopped, mib| {
            let sighting = sighting(5, 1, 30, mib);
            Sighting { look: Look { is_stopped, ..sighting.look }, ..sighting }
        };
        let mut census = Census::default();
        for (now, is_stopped, mib) in [(0, false, 70), (50, true, 60), (100, true, 50), (150, false, 90)] {
            census.look(&[seen(is_stopped, mib), sighting(6, 1, 30, 10)], now * MS);
        }
        let Stopped { for_ns, peak_bytes, programs } = census.stopped;
        assert_eq!((for_ns, peak_bytes, programs), (100 * MS, 60 * MIB, 1));
    }

    #[test]
    fn what_two_hold_together_counts_once_and_guests_do_not_count() {
        let mut census = Census::default();
        let mut child = sighting(6, 5, 30, 80);
        child.doubly_bytes = 70 * MIB;
        let mut guest = sighting(7, 5, 30, 80);
        guest.look.is_guest = true;
        census.look(&[sighting(5, 1, 30, 80), child, guest], 0);
        assert_eq!(census.tree_peak_bytes, 90 * MIB);
        let pids: Vec<u32> = census.finish().iter().map(|record| record.pid).collect();
        assert_eq!(pids, [5], "the copy was seen once");
    }

    /// *The story:* of a shell that started seventy programs six had no place, and were neither
    /// managed nor mentioned.
    #[test]
    fn any_number_of_programs_is_counted() {
        let mut census = Census::default();
        for pid in 10..10 + 2 * RECORDS_MAX as u32 {
            census.keep(report(pid, 30, 1, state::WATCHING));
        }
        let left_out = census.left_out;
        assert_eq!(census.finish().len() + left_out as usize, 2 * RECORDS_MAX);
        assert!(census.left_out_agents.is_some());
    }

    /// See [`Census::left_out_anon_bytes`].
    #[test]
    fn what_those_held_that_are_left_out_is_kept() {
        let mut census = Census::default();
        let large = |now: u64, census: &mut Census| census.look(&[sighting(5, 1, 30, 100)], now);
        large(0, &mut census);
        large(7 * MS, &mut census);
        for pid in (10..10 + 2 * RECORDS_MAX as u32).chain([5]).rev() {
            let mut agent = report(pid, 30, 1, state::WATCHING);
            let waits = agent.counters.iter_mut().find(|(name, _)| *name == "waiting_ns").unwrap();
            waits.1 = 1;
            census.keep(agent);
            census.look(&[], 7 * MS);
        }
        let records = census.finish();
        let kept = records.iter().find(|record| record.pid == 5);
        assert!(kept.is_none() && census.left_out_lives_ns == 7 * MS, "{}", census.left_out_lives_ns);
        assert_eq!(census.left_out_anon_bytes, 100 * MIB);
        assert!(census.left_out_resident_bytes >= 100 * MIB);
    }

    /// *The story:* the peaks of those that are not kept were added up, and what had happened to them
    /// was forgotten: a build "went above the budget, to 60 GiB".
    #[test]
    fn peaks_of_many_are_not_added_up_and_who_has_something_to_tell_is_kept() {
        let mut census = Census::default();
        for pid in 10..10 + 2 * RECORDS_MAX as u32 {
            let mut agent = report(pid, 30, 1, state::WATCHING);
            let counted = |(name, _): &&mut (&str, u64)| ["resident_peak_bytes", "pswpout"].contains(name);
            agent.counters.iter_mut().filter(counted).for_each(|(_, value)| *value = 30);
            agent.events = if pid == 10 { events::READ_ERROR } else { events::FORKED };
            census.keep(agent);
        }
        let sum = census.left_out_agents.as_ref().unwrap();
        assert_eq!(sum.counter("resident_peak_bytes"), 30);
        assert_eq!(sum.counter("pswpout"), 30 * census.left_out);
        assert!(census.finish().iter().any(|record| record.pid == 10));
    }
}
