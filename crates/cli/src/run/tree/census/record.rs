//! One program that a process ran: what is known of it, and what follows from that.

use overspill_engine::shared::{events, state};

use crate::human;
use crate::run::shared_page::Report as AgentReport;
use crate::run::tree::descendants::Look;
use crate::run::tree::others::OtherRun;

/// A copy of its parent that lives no longer than this before it calls exec or ends, and comes to hold
/// no more than that beside what it was born with, is no program of its own.
const PASSING_NS: u64 = 100_000_000;
const PASSING_BYTES: u64 = 1 << 20;
/// Nor is what becomes another program within so long, and holds no more: it started that one.
const STARTER_NS: u64 = 1_000_000_000;
const STARTER_BYTES: u64 = 4 << 20;
/// What holds more for so long without an agent is not going to get one. Where nothing speaks
/// against it its loader may have much to read.
pub const UNKEPT_BYTES: u64 = 4 << 20;
const UNKEPT_NS: u64 = 1_000_000_000;
const UNKEPT_UNEXPLAINED_NS: u64 = 10_000_000_000;
/// A program that was seen for no longer than this, holding no more, may have ended before its
/// agent could be loaded.
const GLIMPSE_NS: u64 = 30_000_000;
const GLIMPSE_BYTES: u64 = 1 << 20;
/// A program that was seen for so long has been started.
const SETTLED_NS: u64 = 50_000_000;

/// A program that a process ran.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Tells this program from others that the process ran.
    pub program_pages: u32,
    /// The same, where it is known.
    pub(super) program_stamp: u64,
    /// It was a copy of its parent when it was first seen.
    pub is_copy: bool,
    /// The most anonymous memory that it was seen to hold, or reported.
    pub anon_peak_bytes: u64,
    /// The most shared memory.
    pub shmem_peak_bytes: u64,
    /// The most RAM of any kind.
    pub resident_peak_bytes: u64,
    /// ... that a look has shown, whatever its agent reported.
    pub looked_peak_bytes: u64,
    /// What is known against its being managed, should no agent report.
    pub objection: Option<String>,
    /// The run within this one whose agent it has.
    pub other_run: Option<OtherRun>,
    /// What its agent reported at last.
    pub agent: Option<AgentReport>,
    /// Which place of the shared page that agent has.
    pub(super) claim: Option<(usize, u32)>,
    /// The place of a program that the process ran before.
    pub(super) claim_before: Option<(usize, u32)>,
    /// The step at which that agent has given up, and why.
    pub(super) failure: Option<(u32, u32)>,
    /// Of its anonymous memory, the most that nobody else had, while it had no agent.
    pub(super) own_peak_bytes: u64,
    /// Of a copy: what it had of its parent.
    pub(super) born_bytes: u64,
    /// For how long it has held more than [`UNKEPT_BYTES`] without an agent, and could get on.
    pub(super) unkept_ns: u64,
    /// The process has become another program.
    pub(super) is_followed: bool,
    /// It had not ended when the run did.
    pub is_left: bool,
    /// The number of the look that saw it last, and the most that one has shown of what it has by itself,
    /// with files that the kernel keeps.
    pub(super) last_look: Option<u64>,
    pub(super) seen_peak_bytes: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    /// What [`Look::busy_ns`] was then.
    pub(super) first_busy_ns: u64,
    pub(super) last_busy_ns: u64,
}

impl Record {
    /// Is that the program that is seen, as far as is known?
    pub(super) fn is_of(&self, look: &Look) -> bool {
        look.runs(self.program_pages, self.program_stamp)
    }

    /// ... or from which an agent reports?
    pub(super) fn is_told_by(&self, report: &AgentReport) -> bool {
        let (program_pages, program_stamp) = (report.program_pages, report.program_stamp);
        self.is_of(&Look { program_pages, program_stamp, ..Look::default() })
    }

    /// Did more happen to it than can be added up?
    pub(super) fn has_something_to_tell(&self) -> bool {
        let tells =
            |agent: &AgentReport| agent.events & !events::FORKED != 0 || agent.state == state::STRICT_FULL;
        self.agent.as_ref().is_some_and(tells)
    }

    pub(super) fn hear(&mut self, report: AgentReport) {
        self.anon_peak_bytes = self.anon_peak_bytes.max(report.counter("resident_peak_bytes"));
        self.resident_peak_bytes = self.resident_peak_bytes.max(report.counter("rss_peak_bytes"));
        // In the middle of an exec /proc shows the name from before.
        if !report.name.is_empty() {
            self.name.clone_from(&report.name);
        }
        self.agent = Some(report);
    }

    /// By how much its agent saw more than any look did, without what others hold, too.
    ///
    /// *The story:* a child of fork stored to all of its 96 MiB and ended 15 ms later. It had held as much
    /// from its birth on, and its copies were in no figure: "never needed more than 96.7 MiB" of 195.
    pub(super) fn unseen_bytes(&self, report: &AgentReport) -> Option<u64> {
        let filled = report.counter("files_unseen_peak_bytes");
        let held = report.own_bytes("resident_peak_bytes").min(report.counter("own_peak_bytes"));
        held.checked_sub(self.seen_peak_bytes + filled).filter(|&bytes| bytes > 0)
    }

    /// May it have been looked at in the middle of its start, when neither its file nor its agent
    /// is there?
    ///
    /// *The story:* one static program in six was seen then, was never asked about again, and the
    /// run was said to fit.
    pub(super) fn is_unsettled(&self) -> bool {
        self.objection.is_none() && self.claim.is_none() && self.lived_ns() < SETTLED_NS
    }

    /// The most that it held, of any kind.
    pub fn held_peak_bytes(&self) -> u64 {
        self.resident_peak_bytes.max(self.anon_peak_bytes)
    }

    /// For how long it waited for its agent.
    pub fn waited_ns(&self) -> u64 {
        self.agent.as_ref().map_or(0, |agent| agent.counter("waiting_ns"))
    }

    /// For how long it was seen, in nanoseconds.
    pub fn lived_ns(&self) -> u64 {
        self.last_ns - self.first_ns
    }

    /// For how long its first thread neither ran nor waited for a processor.
    pub fn blocked_ns(&self) -> u64 {
        self.lived_ns().saturating_sub(self.last_busy_ns.saturating_sub(self.first_busy_ns))
    }

    /// Is there an agent that has not given up?
    pub(super) fn has_agent(&self) -> bool {
        self.claim.is_some() && self.failure.is_none()
    }

    /// ... or one of another run?
    pub(super) fn is_kept(&self) -> bool {
        self.has_agent() || self.other_run.is_some()
    }

    /// Another run's agent has it, or has it no more.
    pub(super) fn belongs(&mut self, run: Option<OtherRun>) {
        if run.is_some() && self.other_run.is_none() {
            self.own_peak_bytes = 0; // that was while it came
        }
        if let (None, Some(OtherRun { launcher, .. })) = (&run, &self.other_run) {
            let text = format!("the other run of overspill (pid {launcher}) manages it no more");
            self.objection = Some(text);
        }
        self.other_run = run;
    }

    /// It has so much by itself, a `step` after the last look, in which it could not get on if it
    /// `is_put_off`. What an agent keeps is not counted.
    ///
    /// *The story:* what a program had had while it was managed was held against it when its agent had
    /// to leave at its end. The run, which had succeeded, was refused.
    pub(super) fn weigh(&mut self, own_bytes: u64, step: u64, is_put_off: bool) {
        let is_kept = self.is_kept();
        if !is_kept {
            self.own_peak_bytes = self.own_peak_bytes.max(own_bytes);
        }
        if is_kept || own_bytes <= UNKEPT_BYTES {
            self.unkept_ns = 0;
        } else if !is_put_off {
            self.unkept_ns += step;
        }
    }

    /// Has it been without an agent for longer than one takes to come?
    pub(super) fn lasts(&self) -> bool {
        let is_explained = self.objection.is_some() || self.failure.is_some() || self.is_copy;
        let most = if is_explained { UNKEPT_NS } else { UNKEPT_UNEXPLAINED_NS };
        !self.is_kept() && self.unkept_ns >= most
    }

    /// It had more than next to nothing without an agent.
    pub fn was_unkept(&self) -> bool {
        !self.is_managed() && self.own_peak_bytes > UNKEPT_BYTES
    }

    /// Its name, and why it was not managed.
    pub fn complaint(&self) -> Option<String> {
        Some(format!("{} ({}): {}", self.name, self.pid, self.reason()?))
    }

    /// An agent watched or managed it, and did not give up.
    pub fn is_managed(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.state != state::UNMANAGED)
    }

    /// Why it was not managed, by this run.
    pub fn reason(&self) -> Option<String> {
        if self.is_managed() {
            return None;
        }
        if let Some(OtherRun { launcher, ram_bytes }) = self.other_run {
            let budget = human::bytes(ram_bytes);
            return Some(format!(
                "another run of overspill (pid {launcher}) has it, with {budget} of its own"
            ));
        }
        let failure = self.agent.as_ref().map(|agent| (agent.error_step, agent.error)).or(self.failure);
        let gave_up = failure.map(|(step, error)| crate::run::failure_text(step, error));
        let unknown = || {
            let text = if self.is_copy {
                "it was made by a bare system call, or a sandbox (Landlock) lets no agent begin in it, or it \
                 ended before one began"
            } else {
                "no agent reported from it: a sandbox (Landlock) may keep the library from it"
            };
            text.into()
        };
        Some(gave_up.or_else(|| self.objection.clone()).unwrap_or_else(unknown))
    }

    /// May it call exec any moment, having done nothing else?
    ///
    /// *The story:* a copy that lived for less was no program whatever it came to hold.
    pub(super) fn is_passing(&self) -> bool {
        self.is_young_copy() && self.anon_peak_bytes <= self.born_bytes + PASSING_BYTES
    }

    pub(super) fn is_young_copy(&self) -> bool {
        self.is_copy && self.lived_ns() < PASSING_NS
    }

    /// False of what was seen between fork and exec, or before its agent could be loaded, and of what
    /// only started a program in its own place.
    pub(super) fn is_program(&self) -> bool {
        let is_starter =
            self.is_followed && self.lived_ns() < STARTER_NS && self.anon_peak_bytes < STARTER_BYTES;
        if self.agent.is_some() || self.objection.is_some() && !is_starter {
            return true;
        }
        let is_glimpse = self.lived_ns() < GLIMPSE_NS && self.anon_peak_bytes < GLIMPSE_BYTES;
        !(self.is_passing() || is_glimpse || is_starter)
    }
}
