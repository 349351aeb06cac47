//! The summary of a run for people: 12 lines at most, but for `--files`, warnings, and what is folded.

use super::Report;
use crate::histogram::Latency;
use crate::human;
use crate::run::places;

/// The bound on what it says, before anything is folded: 12 of every run, one of files, two warnings, and
/// nine of places.
const LINES_MAX: usize = 24;
/// Of a command line within the summary, whatever else there is to say on its line.
const COMMAND_CHARS_MIN: usize = 32;
const PAGE_BYTES: u64 = 4096;

/// The summary, each line ended.
pub fn text(report: &Report) -> String {
    let mut lines = headline(report);
    if report.unmanaged_reason.is_none() {
        lines.push(row("ram", &ram(report)));
        lines.push(row("faults", &format!("soft {}", faults(report.soft_faults))));
        lines.push(row("", &format!("major {}", faults(report.major_faults))));
        lines.push(row("swap", &swap(report)));
        for (index, place) in places::lines(&report.places).iter().enumerate() {
            lines.push(row(if index == 0 { "places" } else { "" }, place));
        }
        lines.push(row("read-ahead", &read_ahead(report)));
        if let Some(files) = files(report) {
            lines.push(row("files", &files));
        }
        lines.push(row("stalled", &stalled(report)));
    }
    if report.has_event("write_error") {
        lines.push(row(
            "warning",
            "a write to swap failed; its area was retired, and its pages are in another one or stayed in RAM",
        ));
    }
    if let Some(reason) = &report.partly_unmanaged_reason {
        let others = report.programs_unmanaged.saturating_sub(1);
        let more = if others > 0 { format!(" (and {others} more)") } else { String::new() };
        lines.push(row("warning", &format!("ran unmanaged: {reason}{more}")));
    }
    lines.push(row("verdict", &report.verdict.text));
    assert!(lines.len() < LINES_MAX);
    let text: String = lines.iter().map(|line| human::folded(line, &row("", ""))).collect();
    text + &human::folded_command(&row("next", &report.verdict.next), &row("", ""))
}

fn row(name: &str, text: &str) -> String {
    format!("  {name:<11}{text}")
}

/// How it ended, and its processor time: behind that, or below where the command is long.
fn headline(report: &Report) -> Vec<String> {
    let command = &report.command_line;
    let ended = format!(": {} after {}", report.status().text(), human::seconds(report.wall_seconds));
    let (user, system) = (human::seconds(report.user_seconds), human::seconds(report.system_seconds));
    let processor = format!("user {user}, system {system}");
    let room = |ending: &str| human::WIDTH.saturating_sub("overspill: ".len() + ending.len());
    let long = format!("{ended} ({processor})");
    if room(&long) >= command.len() {
        return vec![format!("overspill: {command}{long}")];
    }
    let command = human::clipped(command, room(&ended).max(COMMAND_CHARS_MIN));
    vec![format!("overspill: {command}{ended}"), row("processor", &processor)]
}

/// What was held, shared memory included.
///
/// *The story:* of a program alone its own was told: "peak 216.0 KiB", where it held 100 MiB of shared memory.
/// *The other story:* `true` held "0 B" at its peak.
fn ram(report: &Report) -> String {
    let limit = human::bytes(report.ram_bytes);
    let peak = report.tree_peak_bytes.max(report.resident_peak_bytes);
    if peak == 0 {
        return format!("limit {limit}; nothing was seen to be held");
    }
    if report.programs_total <= 1 {
        let is_all = report.tree_peak_shmem_bytes == 0;
        let mean = if is_all { report.resident_mean_bytes } else { report.tree_mean_bytes };
        return format!("limit {limit}, peak {}, mean {}", human::bytes(peak), human::bytes(mean));
    }
    let count = human::count(report.programs_total);
    let least = if report.looked_late { "at least " } else { "" };
    format!(
        "limit {limit}, peak {least}{} (the largest of {count} programs {}), mean {}",
        human::bytes(report.tree_peak_bytes),
        human::bytes(largest(report)),
        human::bytes(report.tree_mean_bytes)
    )
}

/// The most that a program held. Its peaks of both kinds may have been at different times.
fn largest(report: &Report) -> u64 {
    let held = report.processes.iter().map(|process| process.peak_bytes + process.shmem_peak_bytes).max();
    held.unwrap_or(0).min(report.tree_peak_bytes).max(report.resident_peak_bytes)
}

fn stalled(report: &Report) -> String {
    let (seconds, agents) = (human::seconds(report.stalled_seconds), human::seconds(report.agent_seconds));
    let mut text = format!("{:.1} % ({seconds}), agent {agents}", report.stalled_share * 100.0);
    if report.is_paged() && report.is_told_of_all() {
        text.push_str(&format!("; x{} the time with RAM enough", report.slowdown.text()));
    }
    text
}

fn faults(latency: Latency) -> String {
    if latency.count == 0 {
        return "0".into();
    }
    format!(
        "{} (p50 {}, p99 {}, max {})",
        human::count(latency.count),
        human::nanos(latency.p50_ns),
        human::nanos(latency.p99_ns),
        human::nanos(latency.max_ns)
    )
}

fn swap(report: &Report) -> String {
    let transfer = |pages: u64| {
        let bytes = pages.saturating_mul(PAGE_BYTES);
        let rate = (bytes as f64 / report.wall_seconds.max(1e-9)) as u64;
        format!("{} ({}/s)", human::bytes(bytes), human::bytes(rate))
    };
    // What came from mapped files is in the row of those.
    format!("in {}; out {}", transfer(report.sum("pswpin")), transfer(report.sum("pswpout")))
}

/// Of swap and of mapped files together.
fn read_ahead(report: &Report) -> String {
    let both = |names: [&str; 2]| names.iter().map(|name| report.sum(name)).sum::<u64>();
    let (hits, read) = (both(["swap_ra_hit", "files_ahead_hit"]), both(["swap_ra", "files_ahead"]));
    let refaults = human::count(both(["workingset_refault_anon", "workingset_refault_file"]));
    if read == 0 {
        return format!("none; {refaults} refaults");
    }
    let (share, hits, read) = (human::share(hits, read), human::count(hits), human::count(read));
    format!("hit rate {share} ({hits} of {read} pages); {refaults} refaults")
}

/// What of large mappings of files was managed, and what stayed with the kernel, under `--files`: for as
/// long as it fitted, or for good.
fn files(report: &Report) -> Option<String> {
    let (managed, left) = (report.sum("files_managed"), report.sum("files_left"));
    let kept = report.sum("files_kept");
    if managed + left + kept == 0 {
        return None;
    }
    let mut text = format!("managed {managed} ({})", human::bytes(report.sum("files_managed_bytes")));
    if managed > 0 {
        let read = human::bytes(report.sum("files_read").saturating_mul(PAGE_BYTES));
        text.push_str(&format!(", {read} read"));
        let ahead = report.sum("files_ahead");
        if ahead > 0 {
            let share = human::share(report.sum("files_ahead_hit"), ahead);
            text.push_str(&format!(
                ", {share} of {} ahead used",
                human::bytes(ahead.saturating_mul(PAGE_BYTES))
            ));
        }
    }
    if kept > 0 {
        let bytes = human::bytes(report.sum("files_kept_bytes"));
        text.push_str(&format!("; with the kernel while they fit {kept} ({bytes})"));
    }
    let reasons = report.files_left();
    if !reasons.is_empty() {
        let each = |&(why, bytes): &(&str, u64)| format!("{} {why}", human::bytes(bytes));
        let all: Vec<_> = reasons.iter().map(each).collect();
        text.push_str(&format!("; with the kernel {left}: {}", all.join(", ")));
    }
    let cut = report.sum("files_asked_cut_bytes");
    if cut > 0 {
        text.push_str(&format!("; asked for ahead and not read {}", human::bytes(cut)));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::report::verdict::Verdict;

    fn report() -> Report {
        let soft =
            Latency { count: 12_345, p50_ns: 12_000, p90_ns: 20_000, p99_ns: 40_000, max_ns: 1_200_000 };
        Report {
            command_line: "sort -S 2G".into(),
            exit_code: Some(0),
            wall_seconds: 2.81,
            user_seconds: 4.1,
            system_seconds: 1.2,
            ram_bytes: 100 << 20,
            resident_peak_bytes: 99 << 20,
            resident_mean_bytes: 87 << 20,
            managed: true,
            soft_faults: soft,
            major_faults: Latency::default(),
            vmstat: [("pswpin", 256), ("pswpout", 512), ("swap_ra", 100), ("swap_ra_hit", 97)].into(),
            verdict: Verdict { kind: "works", text: "works".into(), next: "overspill run".into() },
            ..Report::default()
        }
    }

    #[test]
    fn a_managed_run_in_full() {
        let expected = "\
overspill: sort -S 2G: exit 0 after 2.81 s (user 4.10 s, system 1.20 s)
  ram        limit 100.0 MiB, peak 99.0 MiB, mean 87.0 MiB
  faults     soft 12,345 (p50 12.0 us, p99 40.0 us, max 1.2 ms)
             major 0
  swap       in 1.0 MiB (364.4 KiB/s); out 2.0 MiB (728.8 KiB/s)
  read-ahead hit rate 97.0 % (97 of 100 pages); 0 refaults
  stalled    0.0 % (0.0 ms), agent 0.0 ms; x1.0 the time with RAM enough
  verdict    works
  next       overspill run
";
        assert_eq!(text(&report()), expected);
    }

    #[test]
    fn what_of_files_was_seen_is_said() {
        let pager = [
            ("files_managed", 2),
            ("files_managed_bytes", 256 << 20),
            ("files_read", 128),
            ("files_ahead", 120),
            ("files_ahead_hit", 60),
            ("files_left", 3),
            ("files_left_locked_bytes", 128 << 20),
            ("files_left_small_bytes", 2 << 20),
        ];
        let text = text(&Report { pager: pager.into(), ..report() });
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = "files managed 2 (256.0 MiB), 512.0 KiB read, 50.0 % of 480.0 KiB ahead used; with \
                        the kernel 3: 128.0 MiB";
        assert!(words.contains(expected), "{text}");
        // *The story:* what was read from files was called swap.
        assert!(text.contains("  swap       in 1.0 MiB ("), "{text}");
        assert!(text.contains("hit rate 71.4 % (157 of 220 pages)"), "of both: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= human::WIDTH), "{text}");
        let pager = [("files_kept", 1), ("files_kept_bytes", 64 << 20)];
        let text = self::text(&Report { pager: pager.into(), ..report() });
        let expected = "  files      managed 0 (0 B); with the kernel while they fit 1 (64.0 MiB)\n";
        assert!(text.contains(expected), "{text}");
    }

    /// See [`ram`].
    #[test]
    fn shared_memory_is_in_the_peak() {
        let shared = Report {
            resident_peak_bytes: 216 << 10,
            resident_mean_bytes: 216 << 10,
            tree_peak_bytes: 100 << 20,
            tree_peak_shmem_bytes: 99 << 20,
            tree_mean_bytes: 60 << 20,
            programs_total: 1,
            ..report()
        };
        let text = text(&shared);
        assert!(text.contains("limit 100.0 MiB, peak 100.0 MiB, mean 60.0 MiB\n"), "{text}");
    }

    /// *The story:* `true` held "0 B" at its peak, and "never needed more than 0 B".
    #[test]
    fn who_was_not_seen_to_hold_anything_is_not_said_to_hold_nothing() {
        let mut brief = Report { tree_peak_bytes: 0, resident_peak_bytes: 0, ..report() };
        brief.vmstat.clear();
        brief.verdict = crate::run::report::verdict::judge(&brief, &crate::args::Tuning::default());
        let text = text(&brief);
        assert!(text.contains("limit 100.0 MiB; nothing was seen to be held\n"), "{text}");
        assert!(text.contains("fits: it ended before any of its memory was seen\n"), "{text}");
        assert!(text.contains("--ram 100M "), "{text}");
    }

    /// *The story:* on a terminal of 80 columns four lines of the summary took two each.
    #[test]
    fn no_figures_make_a_line_too_long() {
        let huge = Latency {
            count: u64::MAX / 4096,
            p50_ns: 999_900_000,
            p90_ns: 999_900_000,
            p99_ns: 999_900_000,
            max_ns: 99_999_900_000,
        };
        let report = Report {
            command_line: format!("a-program {}", "x".repeat(200)),
            soft_faults: huge,
            major_faults: huge,
            vmstat: [
                ("pswpin", 1 << 38),
                ("pswpout", 1 << 38),
                ("swap_ra", 1 << 38),
                ("swap_ra_hit", 1 << 37),
            ]
            .into(),
            ram_bytes: 1023 << 30,
            resident_peak_bytes: 1023 << 30,
            resident_mean_bytes: 1023 << 30,
            ..report()
        };
        let text = text(&report);
        assert!(text.lines().all(|line| line.chars().count() <= human::WIDTH), "{text}");
        assert!(text.lines().count() <= LINES_MAX, "{text}");
    }

    #[test]
    fn an_unmanaged_run_is_short() {
        let text = text(&Report { unmanaged_reason: Some("static".into()), signal: Some(9), ..report() });
        assert_eq!(text.lines().count(), 4);
        assert!(text.contains("killed by SIGKILL"));
    }
}
