//! One line that says what to think of a run, and the exact next command. Rules of thumb on the
//! figures of the report, in one place and in order: the first that applies is the verdict.

use serde::Serialize;

use super::Report;
use super::ending::{by_kernel, killed};
use super::proposal::{is_upper_bound, more_swap, needed, needed_most, rounded, run_line};
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
/// *The story:* "went on above the budget, to 63.2 MiB" was told of a run in 64.
fn full(report: &Report, tuning: &Tuning) -> String {
    let (full, peak) = (was_full(report), peak(report, tuning));
    let held = human::bytes(peak);
    match peak > report.ram_bytes {
        true => format!("{full}; went on above the budget, to {held}"),
        false => format!("{full}; stayed within the budget, with {held} at most"),
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

/// More was held than was allowed. How it got on is told beside that, and what is proposed is what it needs.
///
/// *The story:* a pool of four processes thrashed in 200M and came to 220.7 MiB. That was all that was told,
/// and 221M proposed, where it thrashed more; then 257M.
fn excess(report: &Report, tuning: &Tuning) -> Option<Verdict> {
    let paged = report.is_paged();
    let ram = report.ram_bytes;
    // A pager holds its budget but for its books and the time that it takes; what it need not page
    // may not pass it at all.
    let allowed = ram.saturating_add(ram / BOOKS_SHARE);
    let programs = if tuning.per_process { 1 } else { report.programs_at_once };
    let bound = match paged || report.files_unseen_peak_bytes > 0 || report.programs_of_other_runs > 0 {
        true => bound_bytes(ram, programs),
        false => allowed,
    };
    let peak = peak(report, tuning);
    // What was above it when fewer programs were there than ever were.
    let is_above = peak > bound || (bound > allowed && beside(report, tuning) > bound_bytes(ram, 0));
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
    report.programs_total > 1 && (report.wall_seconds < BRIEF_SECONDS || are_brief)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::run::report::slowdown::Slowdown;

    pub fn report() -> Report {
        Report {
            command_line: "sort -S 2G".into(),
            ram_bytes: 100 << 20,
            resident_peak_bytes: 100 << 20,
            tree_peak_bytes: 100 << 20,
            swap_peak_bytes: 300 << 20,
            needed_bytes: 330 << 20,
            programs_total: 1,
            programs_at_once: 1,
            managed: true,
            vmstat: [("pswpout", 1000)].into(),
            ..Report::default()
        }
    }

    pub fn judged(change: impl FnOnce(&mut Report)) -> Verdict {
        let mut report = report();
        change(&mut report);
        let verdict = judge(&report, &Tuning::default());
        assert!(!verdict.text.is_empty() && verdict.next.starts_with("overspill "), "{verdict:?}");
        verdict
    }

    fn kind(change: impl FnOnce(&mut Report)) -> &'static str {
        judged(change).kind
    }

    /// *The story:* clean pages of files leave without a write: a program whose file was twice its
    /// budget was said to fit.
    #[test]
    fn files_that_leave_without_a_write_do_not_fit() {
        let files = |taken: u64| {
            kind(|report| {
                report.vmstat = [("pgsteal_kswapd", taken)].into();
                report.pager = [("files_managed", 1)].into();
            })
        };
        assert_eq!(files(0), "fits");
        assert_ne!(files(1000), "fits");
        let verdict = judged(|report| {
            report.vmstat.clear();
            report.pager = [("files_left_locked_bytes", 64 << 20)].into();
        });
        assert!(verdict.text.contains("without 64.0 MiB of files"), "{verdict:?}");
    }

    /// See [`crate::run::report::proposal::needed_most`].
    #[test]
    fn what_leaves_as_zeroes_has_left_and_counts_once() {
        let emptied = |drops: u64, blank_mib: u64| {
            judged(|report| {
                report.vmstat.clear();
                report.pager = [("zero_dropped", drops)].into();
                report.needed_most_bytes = report.needed_bytes + (blank_mib << 20);
            })
        };
        let (none, few, many) = (emptied(0, 0), emptied(1000, 4), emptied(50_000, 195));
        assert_eq!((none.kind, few.kind, many.kind), ("fits", "comfortable", "comfortable"));
        assert!(few.text.ends_with("; 365.0 MiB would avoid that"), "{few:?}");
        assert!(many.text.ends_with("; no more than 570.0 MiB would avoid that"), "{many:?}");
        assert!(many.next.contains("--ram 570M"), "{many:?}");
        let again = emptied(500_000, 4);
        assert_eq!(again.next, few.next, "the same page may leave so any number of times");
    }

    #[test]
    fn each_kind_of_run_gets_its_verdict() {
        assert_eq!(kind(|_| ()), "comfortable");
        assert_eq!(kind(|report| report.vmstat.clear()), "fits");
        assert_eq!(kind(|report| report.vmstat = [("zswpout", 1000)].into()), "comfortable");
        assert_eq!(kind(|report| report.stalled_share = 0.2), "works");
        assert_eq!(kind(|report| report.stalled_share = 0.9), "thrashes");
        assert_eq!(kind(|report| report.swap_full = true), "swap_full");
        assert_eq!(kind(|report| report.strict_ended = true), "strict_ended");
        assert_eq!(kind(|report| report.unmanaged_reason = Some("static".into())), "unmanaged");
    }

    /// *The story:* a run of which nothing could be managed, in 20 MiB, was said to fit, as it
    /// never needed more than 28.8 MiB.
    #[test]
    fn what_exceeds_its_budget_does_not_fit() {
        let above = |report: &mut Report| {
            report.vmstat.clear();
            report.tree_peak_bytes = report.ram_bytes * 102 / 100;
        };
        assert_eq!(kind(above), "exceeded");
    }

    /// *The story:* with `ulimit -n 10` the launcher saw nobody, and all was managed.
    #[test]
    fn what_could_not_be_looked_at_is_a_doubt() {
        let verdict = judged(|report| report.overlooked = true);
        assert_eq!(verdict.kind, "partly_unmanaged");
        assert!(verdict.text.contains("not every process could be looked at"), "{verdict:?}");
    }

    /// *The story:* an excess was only told where nothing had been paged out: make -j4 held 607 MiB
    /// of 150 and "worked".
    #[test]
    fn an_excess_is_told_of_what_pages_too() {
        let above = |bytes: u64| judged(|report| report.tree_peak_bytes = report.ram_bytes + bytes);
        assert_eq!(above(10 << 20).kind, "comfortable", "2 %, 8 MiB and 1 MiB for its process");
        assert_eq!(above(20 << 20).kind, "exceeded");
        // *The other story:* 600 programs one after the other were allowed 600 MiB.
        let churned = |report: &mut Report| {
            (report.programs_total, report.programs_at_once) = (600, 4);
            report.tree_peak_bytes = report.ram_bytes + (20 << 20);
        };
        assert_eq!(kind(churned), "exceeded");
        let shared =
            judged(|report| (report.tree_peak_bytes, report.tree_peak_shmem_bytes) = (400 << 20, 300 << 20));
        assert!(shared.text.contains("300.0 MiB of it shared memory"), "{}", shared.text);
        assert_eq!(kind(|report| report.unseen_peak_bytes = 290 << 20), "exceeded");
        let tuning = Tuning { per_process: true, ..Tuning::default() };
        let several =
            |each: u64| Report { tree_peak_bytes: 400 << 20, resident_peak_bytes: each << 20, ..report() };
        assert_eq!(judge(&several(105), &tuning).kind, "comfortable", "four of 100 MiB");
        assert_eq!(judge(&several(130), &tuning).kind, "exceeded");
        let fits = judge(&Report { vmstat: Default::default(), ..several(60) }, &tuning);
        assert!(fits.kind == "fits" && fits.next.contains("--ram 72M "), "{fits:?}");
    }

    /// *The story:* static programs that a shell had started, a child without an agent, a run that
    /// was killed: "fits".
    #[test]
    fn what_was_not_seen_does_not_fit() {
        let small = |report: &mut Report| {
            report.vmstat.clear();
            report.tree_peak_bytes = 1 << 20;
        };
        let partly = |report: &mut Report| {
            small(report);
            (report.partly_unmanaged_reason, report.programs_unmanaged) = (Some("a (5): static".into()), 1);
        };
        assert_eq!(kind(partly), "partly_unmanaged");
        let killed = |report: &mut Report| {
            small(report);
            report.signal = Some(9);
        };
        assert!(judged(killed).text.starts_with("killed by SIGKILL before it was done"));
        // See [`killed`].
        let status = |code: i32, kills: u64| {
            judged(|report| {
                small(report);
                (report.exit_code, report.oom_kills) = (Some(code), kills);
                report.group_limit_bytes = Some(64 << 20);
            })
        };
        assert!(status(137, 0).text.starts_with("exit 137, as after SIGKILL, before it was done; 1.0 MiB"));
        let full = "the kernel ended 2 processes, as the memory cgroup (64.0 MiB) was full; ";
        assert!(status(1, 2).text.starts_with(full));
        assert_eq!([status(137, 0).kind, status(0, 1).kind], ["killed"; 2]);
        assert_eq!([1, 127, 128, 255].map(|code| status(code, 0).kind), ["fits"; 4]);
        let left = |report: &mut Report| {
            small(report);
            report.programs_left = 1;
        };
        assert_eq!(kind(left), "went_on");
    }

    /// *The story:* a static program of 48 MiB that lived for 35 ms: "fits: 180 KiB".
    #[test]
    fn what_nobody_saw_is_not_praised() {
        let unseen = |report: &mut Report| {
            report.vmstat.clear();
            (report.tree_peak_bytes, report.unseen_peak_bytes) = (1 << 20, 48 << 20);
        };
        assert_eq!(kind(unseen), "partly_unmanaged");
    }

    /// See [`is_brief`].
    #[test]
    fn little_is_learnt_of_several_that_were_there_for_an_instant() {
        let fits = |programs: u64, seconds: f64| {
            judged(|report| {
                report.vmstat.clear();
                (report.ram_bytes, report.tree_peak_bytes) = (100 << 20, 9 << 20);
                (report.programs_total, report.wall_seconds) = (programs, seconds);
            })
        };
        let brief = fits(3, 0.2);
        assert!(brief.text.starts_with("fits: at most 9.0 MiB were seen, in 0.2 s"), "{brief:?}");
        assert!(brief.next.starts_with("overspill run --ram 100M "), "{brief:?}");
        let burst = |brief: u64, mib: u64| {
            judged(|report| {
                report.vmstat.clear();
                (report.programs_total, report.wall_seconds, report.tree_peak_bytes) = (4, 1.0, 57 << 20);
                (report.brief_programs, report.brief_programs_bytes) = (brief, mib << 20);
            })
        };
        let several = burst(3, 150);
        assert!(several.text.starts_with("fits: at most 57.0 MiB were seen, in 1.0 s"), "{several:?}");
        assert!(several.next.starts_with("overspill run --ram 100M "), "{several:?}");
        assert!([burst(2, 150), burst(3, 5)].iter().all(|one| one.text.contains("never needed")));
        for known in [fits(1, 0.2), fits(3, 0.6)] {
            assert!(known.text.starts_with("fits: never needed more than 9.0 MiB"), "{known:?}");
        }
    }

    /// *The story:* 66 MiB of shared memory that were there for 50 ms: "fits: never needed more than 2.2
    /// MiB", whatever the budget. Its agent had seen that it had them, and nobody what they were.
    #[test]
    fn what_was_too_brief_to_be_looked_at_is_no_figure() {
        let brief = |ram_mib: u64| {
            judged(|report| {
                report.vmstat.clear();
                report.ram_bytes = ram_mib << 20;
                (report.tree_peak_bytes, report.brief_peak_bytes) = (2 << 20, 66 << 20);
            })
        };
        let fits = brief(100);
        assert!(fits.text.starts_with("fits: never needed more than 66.0 MiB, files included"), "{fits:?}");
        assert!(fits.next.contains("--ram 79M "), "{fits:?}");
        assert_eq!(brief(20).kind, "partly_unmanaged");
    }

    /// *The story:* see `others`. A launcher has 2 MiB itself.
    #[test]
    fn what_another_run_manages_is_no_doubt_about_limits() {
        let other = |mib: u64| {
            judged(|report| {
                report.vmstat.clear();
                (report.programs_total, report.programs_of_other_runs) = (4, 1);
                report.other_runs = Some("another run of overspill (pid 7), with a budget of its own".into());
                report.tree_peak_bytes = mib << 20;
            })
        };
        let within = other(102);
        assert_eq!(within.kind, "other_run");
        let expected = "1 of 4 programs was managed by another run of overspill (pid 7), with a budget of its \
                        own; 102.0 MiB at most were seen";
        assert_eq!(within.text, expected);
        assert!(within.next.starts_with("overspill run --ram 100M "), "{within:?}");
        let above = other(160);
        assert_eq!(above.kind, "exceeded");
        assert!(above.text.contains("to 160.0 MiB; 1 of 4 programs was managed by another"), "{above:?}");
    }

    /// See [`doubt`].
    #[test]
    fn each_doubt_is_told() {
        let verdict = judged(|report| {
            report.vmstat.clear();
            (report.partly_unmanaged_reason, report.programs_unmanaged) = (Some("a (5): static".into()), 1);
            (report.programs_total, report.programs_left, report.signal) = (3, 2, Some(9));
        });
        assert_eq!((verdict.kind, verdict.next.as_str()), ("partly_unmanaged", "overspill doctor"));
        let expected = "1 of 3 programs ran unmanaged, without a limit; killed by SIGKILL before it was \
                        done; 2 of its programs went on when the command had ended; 100.0 MiB at most were \
                        seen";
        assert_eq!(verdict.text, expected);
    }

    /// See [`excess`].
    #[test]
    fn an_excess_does_not_hide_that_it_thrashed() {
        let above = |share: f64, needed: u64, peak: u64| {
            judged(|report| {
                (report.stalled_share, report.needed_bytes) = (share, needed << 20);
                report.tree_peak_bytes = peak << 20;
            })
        };
        let thrashed = above(0.64, 330, 121);
        assert_eq!(thrashed.kind, "exceeded");
        let expected = "went above the budget, to 121.0 MiB; thrashes: 64 % of the time spent waiting for \
                        swap; 361.0 MiB would avoid that";
        assert_eq!(thrashed.text, expected);
        assert!(thrashed.next.contains("--ram 361M "), "{thrashed:?}");
        let shared = above(0.01, 90, 400);
        assert!(shared.next.contains("--ram 400M "), "not all that was held can be paged: {shared:?}");
        let brief = judged(|report| (report.stalled_share, report.unseen_peak_bytes) = (0.64, 290 << 20));
        assert!(brief.text.contains("; thrashes: 64 %") && brief.next.contains("--ram 361M "), "{brief:?}");
        let unmanaged = judged(|report| {
            report.vmstat.clear();
            report.tree_peak_bytes = 400 << 20;
        });
        assert_eq!(unmanaged.text, "went above the budget, to 400.0 MiB, and nothing was paged out");
        assert!(unmanaged.next.contains("--ram 400M "), "{unmanaged:?}");
    }

    /// See [`full`].
    #[test]
    fn who_stayed_within_was_not_above() {
        let of =
            |peak: u64| judged(|report| (report.swap_full, report.tree_peak_bytes) = (true, peak << 20)).text;
        assert_eq!(of(99), "swap was full at 300.0 MiB; stayed within the budget, with 99.0 MiB at most");
        assert_eq!(of(140), "swap was full at 300.0 MiB; went on above the budget, to 140.0 MiB");
    }

    /// See [`doubt`].
    #[test]
    fn who_was_ended_is_told_what_it_needed() {
        let ended = |share: f64| judged(|report| (report.stalled_share, report.signal) = (share, Some(15)));
        let thrashed = ended(0.65);
        let expected = "killed by SIGTERM before it was done; 100.0 MiB at most until then; thrashes: 65 % \
                        of the time spent waiting for swap; 330.0 MiB were needed by then";
        assert_eq!((thrashed.kind, thrashed.text.as_str()), ("killed", expected));
        assert!(thrashed.next.contains("--ram 361M "), "{thrashed:?}");
        assert!(ended(0.01).next.contains("--ram 361M "), "{:?}", ended(0.01));
        let plenty = judged(|report| {
            (report.stalled_share, report.signal, report.needed_bytes) = (0.01, Some(15), 90 << 20);
        });
        assert!(plenty.next.contains("--ram 100M "), "{plenty:?}");
        let left = judged(|report| (report.stalled_share, report.programs_left) = (0.65, 1));
        assert!(left.kind == "went_on" && left.next.contains("--ram 361M "), "{left:?}");
    }

    /// See [`is_lower_bound`].
    #[test]
    fn what_paged_unseen_is_told_as_the_least() {
        let of = |brief: u64, programs: u64, needed: u64| {
            judged(|report| {
                (report.ram_bytes, report.wall_seconds, report.tree_peak_bytes) = (64 << 20, 1.0, 60 << 20);
                (report.brief_programs, report.brief_programs_bytes) = (brief, brief * (20 << 20));
                (report.programs_total, report.programs_at_once) = (programs, programs);
                report.needed_bytes = needed << 20;
            })
            .text
        };
        assert!(of(6, 7, 50).ends_with("; at least 67.0 MiB would avoid that"), "{}", of(6, 7, 50));
        assert!(of(0, 7, 50).contains("; at least ") && of(6, 7, 90).contains("; at least "));
        assert!([of(0, 7, 90), of(0, 1, 50)].iter().all(|text| !text.contains("at least")));
    }

    /// See [`Census::tree_peak_beside_bytes`](crate::run::tree::census::Census).
    #[test]
    fn an_excess_is_held_against_who_was_there() {
        let of = |beside: u64| {
            kind(|report| {
                (report.tree_peak_bytes, report.programs_at_once) = (130 << 20, 30);
                report.tree_peak_beside_bytes = beside << 20;
            })
        };
        assert_eq!((of(128), of(105)), ("exceeded", "comfortable"));
    }

    #[test]
    fn a_slow_run_is_not_comfortable() {
        let slow = judged(|report| {
            (report.stalled_share, report.slowdown) = (0.03, Slowdown { least: 4.0, most: 4.2 })
        });
        assert_eq!(slow.kind, "works");
        assert!(slow.text.contains("some 4.2 times as slow"), "{}", slow.text);
    }

    /// See [`was_full`] and [`brief_text`].
    #[test]
    fn no_figure_is_told_that_says_nothing() {
        for (ended, swap, told) in [
            (true, 0, "budget and swap together were too small and --strict"),
            (false, 0, "budget and swap together were too small; stayed"),
            (false, 1, "swap was full at 1 B; stayed"),
        ] {
            let text = judged(|report| {
                (report.swap_full, report.strict_ended, report.swap_peak_bytes) = (true, ended, swap);
            })
            .text;
            assert!(text.starts_with(told), "{text}");
        }
        assert_eq!([0.04, 0.12, 2.0].map(brief_text), ["40.0 ms", "0.1 s", "2.0 s"]);
    }

    /// *The story:* a program that nobody pages filled its memory cgroup, above its budget, and the kernel
    /// ended it: "went above the budget", and no word of its end.
    #[test]
    fn an_excess_does_not_hide_who_was_ended() {
        let ended = |report: &mut Report| {
            (report.oom_kills, report.signal, report.exit_code) = (1, Some(9), None);
            report.group_limit_bytes = Some(150 << 20);
        };
        let above = judged(|report| {
            ended(report);
            (report.ram_bytes, report.tree_peak_bytes) = (50 << 20, 140 << 20);
        });
        let how = "killed by SIGKILL before it was done; the kernel ended 1 process, as the memory cgroup \
                   (150.0 MiB) was full";
        assert!(above.kind == "exceeded" && above.text.contains(how), "{above:?}");
        assert!(above.text.ends_with("330.0 MiB were needed by then"), "{above:?}");
        let full = judged(|report| {
            ended(report);
            report.swap_full = true;
        });
        assert!(full.kind == "swap_full" && full.text.contains("the kernel ended 1 process"), "{full:?}");
        let slow = judged(|report| {
            (report.group_limit_bytes, report.stalled_share) = (Some(150 << 20), 0.2);
        });
        assert!(slow.text.ends_with("would avoid that, and the memory cgroup gives 150.0 MiB"), "{slow:?}");
    }

    /// See [`stopped`].
    #[test]
    fn what_stopped_processes_keep_is_told() {
        let of = |mib: u64, seconds: f64| {
            judged(|report| {
                (report.stopped_peak_bytes, report.stopped_programs) = (mib << 20, 2);
                report.stopped_seconds = seconds;
            })
        };
        let told = of(60, 2.0).text;
        assert!(told.contains(", 60.0 MiB kept by 2 processes that were stopped"), "{told}");
        assert!([of(10, 2.0), of(60, 0.1)].iter().all(|one| !one.text.contains("stopped")));
    }
}
