//! One line that says what to think of a run, and the exact next command. Rules of thumb on the
//! figures of the report, in one place and in order: the first that applies is the verdict.

use serde::Serialize;

use super::Report;
use super::ending::{by_kernel, killed};
use super::proposal::{is_upper_bound, more_swap, needed, needed_most, rounded, run_line, with_added};
use crate::args::Tuning;
use crate::human;
use crate::run::tree::filled;

/// The kind of a run that need not have more.
const COMFORTABLE: &str = "comfortable";
/// Waiting less than this share of the time is not worth more RAM.
const COMFORTABLE_SHARE: f64 = 0.05;
/// Waiting more than this share of the time is more waiting than working.
const THRASHING_SHARE: f64 = 0.5;

/// What several processes held together is a matter of luck in runs that are shorter.
const BRIEF_SECONDS: f64 = 0.5;
/// Programs that are brief matter where they held more than this part of what was seen.
const BRIEF_SHARE: u64 = 8;
/// What stopped processes keep is told from this part of the budget on, if they were for so long.
const STOPPED_SHARE: u64 = 8;
const STOPPED_SECONDS: f64 = 0.5;
/// From this slowdown on it is said.
const SLOWDOWN_WORTH_SAYING: f64 = 1.1;
/// An agent's books come on top of the budget up to this share of it.
const BOOKS_SHARE: u64 = 64;
/// The bound on what a tree that pages holds: its budget, 2 %, and these, in all and for each program.
pub const BOUND_BYTES: u64 = 8 << 20;
pub const BOUND_BYTES_EACH: u64 = 1 << 20;
/// What cannot be paged is told where it leaves less than this share of the budget.
const UNPAGED_SHARE: u64 = 8;

/// The verdict.
#[derive(Serialize, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// `fits`, `comfortable`, `works` or `thrashes` if all was seen and kept; else `exceeded`,
    /// `unmanaged`, `partly_unmanaged`, `other_run`, `killed`, `went_on`, `swap_full`, `strict_ended`,
    /// `strict_refused`, `read_error` or `file_read_error`.
    pub kind: &'static str,
    /// The line for people.
    pub text: String,
    /// The command to try next.
    pub next: String,
}

/// Judges a report that is complete but for its verdict.
pub fn judge(report: &Report, tuning: &Tuning) -> Verdict {
    let tuning = &with_added(report, tuning);
    let and_ended = |verdict: Verdict| match by_kernel(report) {
        Some(how) => Verdict { text: format!("{}; {how}", verdict.text), ..verdict },
        None => verdict,
    };
    lost(report, tuning)
        .map(and_ended)
        .or_else(|| excess(report, tuning))
        .or_else(|| doubt(report, tuning))
        .unwrap_or_else(|| praise(report, tuning))
}

/// What went wrong.
fn lost(report: &Report, tuning: &Tuning) -> Option<Verdict> {
    if let Some(reason) = &report.strict_refused {
        let text = format!("--strict takes nothing without a limit: {reason}");
        return Some(Verdict { kind: "strict_refused", text, next: "overspill doctor".into() });
    }
    if report.strict_ended {
        let text = format!("{} and --strict (or --on-full kill) ended the program", was_full(report));
        return Some(Verdict { kind: "strict_ended", text, next: more_swap(report, tuning) });
    }
    if report.has_event("wrong_bytes") {
        let text = "what came from swap is not what was written there; the program got SIGBUS at that page: \
                    check the disk"
            .into();
        return Some(Verdict { kind: "read_error", text, next: "overspill doctor".into() });
    }
    if report.has_event("read_error") {
        let text = "swap could not be read back; the program got SIGBUS at that page: check the disk".into();
        return Some(Verdict { kind: "read_error", text, next: "overspill doctor".into() });
    }
    if report.has_event("file_read_error") {
        let text = "parts of a mapped file could not be read; the program got SIGBUS there, as it would \
                    from the kernel: check the disk"
            .into();
        return Some(Verdict { kind: "file_read_error", text, next: "overspill doctor".into() });
    }
    if report.swap_full {
        let text = full(report, tuning);
        return Some(Verdict { kind: "swap_full", text, next: more_swap(report, tuning) });
    }
    None
}

/// Swap was full: what was held then is above the budget, or not.
///
/// *The story:* "went on above the budget, to 63.2 MiB" was told of a run in 64. *The other story:* so it was
/// of one that `--on-full stop` had kept at 64.3, less than agents may have for their books.
fn full(report: &Report, tuning: &Tuning) -> String {
    let (full, peak) = (was_full(report), peak(report, tuning));
    let held = human::bytes(peak);
    match () {
        () if peak <= report.ram_bytes => format!("{full}; stayed within the budget, with {held} at most"),
        () if !Bounds::of(report, tuning).are_passed(report, tuning) => {
            format!("{full}; stayed within what the budget allows, with {held} at most")
        }
        () => format!("{full}; went on above the budget, to {held}"),
    }
}

/// It is full as soon as it cannot take what does not fit in the budget, before anything is in it.
///
/// *The story:* "swap was full at 0 B".
fn was_full(report: &Report) -> String {
    match report.swap_peak_bytes {
        0 => "budget and swap together were too small".into(),
        bytes => format!("swap was full at {}", human::bytes(bytes)),
    }
}

/// What a tree of so many programs may hold at most that pages.
pub fn bound_bytes(ram_bytes: u64, programs: u64) -> u64 {
    ram_bytes.saturating_add(ram_bytes / 50 + BOUND_BYTES + programs * BOUND_BYTES_EACH)
}

/// The most that was held at a time by those that have a budget together.
///
/// *The story* (by reading): with `--per-process` the sum of all was held against the budget of each.
pub fn peak(report: &Report, tuning: &Tuning) -> u64 {
    if tuning.per_process { report.resident_peak_bytes } else { report.tree_peak_bytes }
}

/// ... without what each program may hold above the budget.
fn beside(report: &Report, tuning: &Tuning) -> u64 {
    if tuning.per_process { 0 } else { report.tree_peak_beside_bytes }
}

/// What may be held above the budget.
struct Bounds {
    /// By whoever need not page.
    allowed: u64,
    /// By all that the run had.
    most: u64,
}

impl Bounds {
    fn of(report: &Report, tuning: &Tuning) -> Bounds {
        let ram = report.ram_bytes;
        // A pager holds its budget but for its books and the time that it takes; what it need not page
        // may not pass it at all.
        let allowed = ram.saturating_add(ram / BOOKS_SHARE);
        let programs = if tuning.per_process { 1 } else { report.programs_at_once };
        let pages =
            report.is_paged() || report.files_unseen_peak_bytes > 0 || report.programs_of_other_runs > 0;
        Bounds { allowed, most: if pages { bound_bytes(ram, programs) } else { allowed } }
    }

    /// Also where it was above when fewer programs were there than ever were.
    fn are_passed(&self, report: &Report, tuning: &Tuning) -> bool {
        let is_beside = || beside(report, tuning) > bound_bytes(report.ram_bytes, 0);
        peak(report, tuning) > self.most || (self.most > self.allowed && is_beside())
    }
}

/// More was held than was allowed. How it got on is told beside that, and what is proposed is what it needs.
///
/// *The story:* a pool of four processes thrashed in 200M and came to 220.7 MiB. That was all that was told,
/// and 221M proposed, where it thrashed more; then 257M.
fn excess(report: &Report, tuning: &Tuning) -> Option<Verdict> {
    let paged = report.is_paged();
    let bounds = Bounds::of(report, tuning);
    let (bound, is_above) = (bounds.most, bounds.are_passed(report, tuning));
    let peak = peak(report, tuning);
    // Less than was held would not do.
    let most = if is_above { peak } else { report.unseen_peak_bytes };
    let pace = Pace::of(report, tuning).map(|pace| Pace { enough: pace.enough.max(rounded(most)), ..pace });
    let ended = killed(report);
    let got_on = |mut text: String| {
        text.extend(ended.iter().map(|how| format!("; {how}")));
        let was_ended = ended.is_some();
        text.extend(pace.iter().map(|pace| format!("; {}", pace.told(report, was_ended))));
        text
    };
    let next = match report.oom_kills > 0 && report.unmanaged_reason.is_some() {
        true => "overspill doctor".into(), // no budget would have kept it from that
        false => run_line(report, tuning, pace.as_ref().map_or(most, |pace| pace.enough)),
    };
    if is_above {
        let held = human::bytes(peak);
        let mut text = format!("went above the budget, to {held}");
        if let Some(reason) = report.unmanaged_reason.as_ref().or(report.partly_unmanaged_reason.as_ref()) {
            text.push_str(&format!("; unmanaged was {reason}"));
        } else if report.has_event("leak_search") {
            text.push_str("; a search for leaks (LeakSanitizer) had everything brought in");
        } else if let Some(others) = of_other_runs(report) {
            text.push_str(&format!("; {others}"));
        } else if report.tree_peak_table_bytes > report.tree_peak_bytes / 2 {
            text.push_str(&format!(", {} of it page tables", human::bytes(report.tree_peak_table_bytes)));
        } else if report.tree_peak_shmem_bytes > report.tree_peak_bytes / 16 {
            let shared = human::bytes(report.tree_peak_shmem_bytes);
            text.push_str(&format!(", {shared} of it shared memory, which is not managed"));
        } else if !paged {
            text.push_str(&unpaged(report).unwrap_or(", and nothing was paged out".into()));
        }
        return Some(Verdict { kind: "exceeded", text: got_on(text), next });
    }
    if report.unseen_peak_bytes > bound {
        let held = human::bytes(report.unseen_peak_bytes);
        let text =
            format!("a process had {held} in RAM for an instant, too short to see whether within the budget");
        return Some(Verdict { kind: "exceeded", text: got_on(text), next });
    }
    None
}

/// Why there was little to page, where what nobody could page took nearly all of the budget.
///
/// *The story:* of SBCL, whose heap could not be paged, it was said that it thrashes.
fn unpaged(report: &Report) -> Option<String> {
    let bytes = report.tree_peak_unpaged_bytes;
    let is_most = bytes > report.ram_bytes - report.ram_bytes / UNPAGED_SHARE;
    is_most
        .then(|| format!(", {} cannot be paged (locked, or out of the agent's reach)", human::bytes(bytes)))
}

/// Not all is known that would have to be: each reason for that, the gravest first, and what was held.
///
/// *The story:* the first was told. Of tmux it was said that something ran unmanaged, and not that all
/// of it went on when the command had ended. *The other story:* a run that had waited for 65 % of its time
/// was ended for that, and the same budget was proposed. *One more:* so it was of one that was comfortable,
/// beside the word that more was needed.
fn doubt(report: &Report, tuning: &Tuning) -> Option<Verdict> {
    let held = human::bytes(report.tree_peak_bytes);
    let mut doubts: Vec<(&'static str, String)> = Vec::new();
    if let Some(reason) = &report.unmanaged_reason {
        doubts.push(("unmanaged", format!("ran unmanaged, without a limit: {reason}")));
    } else if report.partly_unmanaged_reason.is_some() {
        let (some, all) = (report.programs_unmanaged, report.programs_total);
        let text = format!("{some} of {all} programs ran unmanaged, without a limit");
        doubts.push(("partly_unmanaged", text));
    }
    let is_unmanaged = !doubts.is_empty();
    if report.overlooked {
        let why = "ulimit -n, or what /proc hides";
        doubts.push(("partly_unmanaged", format!("not every process could be looked at ({why})")));
    }
    if report.unseen_peak_bytes > 0 {
        let unseen = human::bytes(report.unseen_peak_bytes);
        let text =
            format!("a program had {unseen} in RAM and ended before it could be seen whether within a limit");
        doubts.push(("partly_unmanaged", text));
    } else if report.brief_peak_bytes > report.ram_bytes {
        let brief = human::bytes(report.brief_peak_bytes);
        let text = format!("a program had {brief} in RAM, files included, and ended before more was seen");
        doubts.push(("partly_unmanaged", text));
    }
    doubts.extend(of_other_runs(report).map(|text| ("other_run", text)));
    doubts.extend(killed(report).map(|text| ("killed", text)));
    if report.programs_left > 0 {
        let left = report.programs_left;
        doubts.push(("went_on", format!("{left} of its programs went on when the command had ended")));
    }
    let kind = doubts.first()?.0;
    let is_end = |kind: &str| ["killed", "went_on"].contains(&kind);
    let was_ended = doubts.iter().any(|(kind, _)| is_end(kind));
    let texts: Vec<String> = doubts.into_iter().map(|(_, text)| text).collect();
    let seen = if is_end(kind) { "until then" } else { "were seen" };
    let mut text = format!("{}; {held} at most {seen}", texts.join("; "));
    let pace = Pace::of(report, tuning);
    text.extend(pace.iter().map(|pace| format!("; {}", pace.told(report, was_ended))));
    let needs_more = |pace: &Pace| pace.kind != COMFORTABLE || report.needed_bytes > report.ram_bytes;
    let ram_bytes = pace.filter(needs_more).map_or(report.ram_bytes, |pace| pace.enough);
    let next = if is_unmanaged { "overspill doctor".into() } else { run_line(report, tuning, ram_bytes) };
    Some(Verdict { kind, text, next })
}

/// What this run cannot tell of, as another one within it managed it.
fn of_other_runs(report: &Report) -> Option<String> {
    let (some, all) = (report.programs_of_other_runs, report.programs_total);
    let verb = if some == 1 { "was" } else { "were" };
    report.other_runs.as_ref().map(|runs| format!("{some} of {all} programs {verb} managed by {runs}"))
}

/// What processes held that were stopped, where that was much of the budget and lasted.
///
/// *The story:* a process was stopped by Ctrl-Z, and kept all that it had. What else there was crawled, and
/// nobody said why.
fn stopped(report: &Report) -> Option<String> {
    let (bytes, programs) = (report.stopped_peak_bytes, report.stopped_programs);
    let is_much = bytes > report.ram_bytes / STOPPED_SHARE && report.stopped_seconds > STOPPED_SECONDS;
    let stopped = if programs == 1 { "process that was" } else { "processes that were" };
    is_much.then(|| format!(", {} kept by {programs} {stopped} stopped", human::bytes(bytes)))
}

/// How a run got on that paged.
struct Pace {
    kind: &'static str,
    /// The kind, and what was waited.
    waited: String,
    /// What was learnt is what it would hold with RAM enough, no more: whether less would do, nobody has
    /// tried.
    enough: u64,
    bound: &'static str,
}

impl Pace {
    fn of(report: &Report, tuning: &Tuning) -> Option<Pace> {
        if !report.is_paged() {
            return None;
        }
        let share = report.stalled_share;
        let is_slow = report.is_told_of_all() && report.slowdown.reaches(SLOWDOWN_WORTH_SAYING);
        let kind = match share {
            _ if share < COMFORTABLE_SHARE && !is_slow => COMFORTABLE,
            _ if share < THRASHING_SHARE => "works",
            _ => "thrashes",
        };
        let mut waited = format!("{kind}: {:.0} % of the time spent waiting for swap", share * 100.0);
        if is_slow {
            waited.push_str(&format!(", some {} times as slow as with RAM enough", report.slowdown.text()));
        }
        waited.extend(unpaged(report));
        waited.extend(stopped(report));
        let bound = match () {
            () if is_lower_bound(report) => "at least ",
            () if is_upper_bound(report) => "no more than ",
            () => "",
        };
        Some(Pace { kind, waited, enough: rounded(needed(report, tuning)), bound })
    }

    fn text(&self, report: &Report) -> String {
        let gives = self.lacking(report).unwrap_or_default();
        format!("{}; {}{} would avoid that{gives}", self.waited, self.bound, human::bytes(self.enough))
    }

    /// The same of a run that may have been ended: it may come to need more than it did.
    fn told(&self, report: &Report, was_ended: bool) -> String {
        match was_ended {
            true => format!("{}; {} were needed by then", self.waited, human::bytes(report.needed_bytes)),
            false => self.text(report),
        }
    }

    /// What there is, if it is less than would be enough.
    fn lacking(&self, report: &Report) -> Option<String> {
        let limit = report.group_limit_bytes.filter(|&limit| limit < self.enough)?;
        Some(format!(", and the memory cgroup gives {}", human::bytes(limit)))
    }
}

/// Was more needed than anybody saw? So it is where several paged though less than the budget was seen to be
/// needed, or were there for an instant only.
///
/// *The story:* six children that had 20 MiB each for 10 ms paged in 64: "66.5 MiB would avoid that".
fn is_lower_bound(report: &Report) -> bool {
    let are_several = report.programs_at_once > 1 && report.programs_total > 1;
    is_brief(report) || (are_several && needed_most(report) < report.ram_bytes)
}

/// All was seen, and all was kept.
fn praise(report: &Report, tuning: &Tuning) -> Verdict {
    if let Some(pace) = Pace::of(report, tuning) {
        return Verdict {
            kind: pace.kind,
            text: pace.text(report),
            next: run_line(report, tuning, pace.enough),
        };
    }
    // What only the kernel has seen of it may be files, or shared memory: that is not known.
    let (seen, brief) = (filled::seen_bytes(report, tuning), report.brief_peak_bytes);
    let mut text = if brief.max(seen) == 0 {
        "fits: it ended before any of its memory was seen".into()
    } else if brief > seen {
        format!("fits: never needed more than {}, files included", human::bytes(brief))
    } else if is_brief(report) {
        format!("fits: at most {} were seen, in {}", human::bytes(seen), brief_text(report.wall_seconds))
    } else {
        format!("fits: never needed more than {}", human::bytes(seen))
    };
    let unseen: u64 = report.files_left().iter().map(|&(_, bytes)| bytes).sum();
    if unseen > 0 {
        text.push_str(&format!(", without {} of files left to the kernel", human::bytes(unseen)));
    }
    text.push_str(&filled::told(report));
    let (ram, enough) = (report.ram_bytes, rounded(needed(report, tuning)));
    let next = if is_brief(report) || brief.max(seen) == 0 { ram } else { enough.min(ram) };
    Verdict { kind: "fits", text, next: run_line(report, tuning, next) }
}

/// *The story:* "fits: at most 500.0 KiB were seen, in 0.0 s".
fn brief_text(seconds: f64) -> String {
    if seconds < 0.1 { human::seconds(seconds) } else { format!("{seconds:.1} s") }
}

/// Were several processes there for so short that little was seen of what they held together? The tree is
/// looked at every 10 to 50 ms.
///
/// *The story:* two workers of Python that were there for a tenth of a second held 28 MiB with their maker.
/// "Never needed more than 9.2 MiB" was told, and 34, and what to try next was to be 20. *The other story:*
/// three of 50 MiB at once, in a run of a second: 56.6 MiB were told, and 134.5, and 64.8.
fn is_brief(report: &Report) -> bool {
    // As many as were there at once, of those that are of the kind.
    let each = report.brief_programs_bytes / report.brief_programs.max(1);
    let at_once = report.brief_programs.min(report.programs_at_once);
    let matter = each * at_once > report.tree_peak_bytes / BRIEF_SHARE;
    let are_brief = report.brief_programs * 2 > report.programs_total && matter;
    report.looked_late || report.programs_total > 1 && (report.wall_seconds < BRIEF_SECONDS || are_brief)
}

#[cfg(test)]
pub mod tests;
