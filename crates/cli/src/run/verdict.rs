//! One line that says what to think of a run, and the exact next command. Rules of thumb on the figures of the report,
//! in one place and in order: the first that applies is the verdict.

use std::ffi::OsString;

use serde::Serialize;

use super::report::Report;
use crate::args::Tuning;
use crate::human;
use crate::size::shortest;
use crate::swap::arg::SwapArg;

/// Waiting less than this share of the time is not worth more RAM.
const COMFORTABLE_SHARE: f64 = 0.05;
/// Waiting more than this share of the time is more waiting than working.
const THRASHING_SHARE: f64 = 0.5;

/// The verdict.
#[derive(Serialize, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// `fits`, `exceeded`, `comfortable`, `works`, `thrashes`, `swap_full`, `strict_ended`, `read_error` or `unmanaged`.
    pub kind: &'static str,
    /// The line for people.
    pub text: String,
    /// The command to try next.
    pub next: String,
}

/// Judges a report that is complete but for its verdict.
pub fn judge(report: &Report, tuning: &Tuning) -> Verdict {
    let need_bytes = report.resident_peak_bytes + report.swap_peak_bytes;
    let at = |ram_bytes: u64| run_line(report, tuning, ram_bytes);
    let (ram, share) = (report.ram_bytes, report.stalled_share);
    let waited = format!("{:.0} % of the time spent waiting for swap", share * 100.0);
    if report.strict_ended {
        let text = format!(
            "swap was full at {} and --strict ended the program",
            human::bytes(report.swap_peak_bytes)
        );
        return Verdict { kind: "strict_ended", text, next: more_swap(report, tuning) };
    }
    if let Some(reason) = &report.unmanaged_reason {
        let text = format!("ran unmanaged, without a limit: {reason}");
        return Verdict { kind: "unmanaged", text, next: "overspill doctor".into() };
    }
    if report.has_event("read_error") {
        let text = "swap could not be read back; the program got SIGBUS at that page: check the disk".into();
        return Verdict { kind: "read_error", text, next: "overspill doctor".into() };
    }
    if report.swap_full {
        let text =
            format!("swap was full at {}; went on above the budget", human::bytes(report.swap_peak_bytes));
        return Verdict { kind: "swap_full", text, next: more_swap(report, tuning) };
    }
    if report.sum("pswpout") + report.sum("zswpout") == 0 {
        let peak = human::bytes(report.resident_peak_bytes);
        if report.resident_peak_bytes > ram {
            let text = format!("went above the budget, to {peak}, and nothing was paged out");
            return Verdict { kind: "exceeded", text, next: at(report.resident_peak_bytes) };
        }
        let text = format!("fits: never needed more than {peak}");
        return Verdict { kind: "fits", text, next: at(report.resident_peak_bytes.min(ram) / 2) };
    }
    if share < COMFORTABLE_SHARE {
        let text = format!("comfortable: {waited}; it would do with less");
        return Verdict { kind: "comfortable", text, next: at(ram / 4 * 3) };
    }
    if share < THRASHING_SHARE {
        let text = format!("works: {waited}; {} would avoid that", human::bytes(rounded(need_bytes)));
        return Verdict { kind: "works", text, next: at(need_bytes) };
    }
    let text = format!("thrashes: {waited}; it keeps about {} in use", human::bytes(need_bytes));
    Verdict { kind: "thrashes", text, next: at((ram / 2 * 3).min(need_bytes.max(ram))) }
}

/// The same command with another budget.
fn run_line(report: &Report, tuning: &Tuning, ram_bytes: u64) -> String {
    let mut words: Vec<OsString> =
        ["overspill", "run", "--ram", &shortest(rounded(ram_bytes))].map(Into::into).into();
    words.extend(tuning.to_args());
    words.push("--".into());
    words.extend(report.command.iter().map(Into::into));
    human::command(&words)
}

fn more_swap(report: &Report, tuning: &Tuning) -> String {
    let mut tuning = tuning.clone();
    match report.swap_max_bytes {
        Some(bytes) => tuning.swap_max = Some(crate::size::Size::Bytes(rounded(bytes.saturating_mul(2)))),
        None => tuning.swap = vec![SwapArg::plain("DIR-WITH-MORE-ROOM".into())],
    }
    run_line(report, &tuning, report.ram_bytes)
}

/// Up to a figure that people would choose: whole MiB, above 100 MiB tens of them, above 10 GiB whole GiB.
fn rounded(bytes: u64) -> u64 {
    let unit: u64 = match bytes {
        0..0x0640_0000 => 1 << 20,
        0x0640_0000..0x2_8000_0000 => 10 << 20,
        _ => 1 << 30,
    };
    bytes.div_ceil(unit).max(1).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            command: vec!["sort".into(), "-S".into(), "2G".into()],
            ram_bytes: 100 << 20,
            resident_peak_bytes: 100 << 20,
            swap_peak_bytes: 300 << 20,
            vmstat: [("pswpout", 1000)].into(),
            ..Report::default()
        }
    }

    fn kind(change: impl FnOnce(&mut Report)) -> &'static str {
        let mut report = report();
        change(&mut report);
        let verdict = judge(&report, &Tuning::default());
        assert!(!verdict.text.is_empty() && verdict.next.starts_with("overspill "), "{verdict:?}");
        verdict.kind
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

    /// *The story:* a run of which nothing could be managed, in 20 MiB, was said to fit, as it never needed more than 28.8 MiB.
    #[test]
    fn what_exceeds_its_budget_does_not_fit() {
        let above = |report: &mut Report| {
            report.vmstat.clear();
            report.resident_peak_bytes = report.ram_bytes + 1;
        };
        assert_eq!(kind(above), "exceeded");
    }

    #[test]
    fn the_next_command_is_complete() {
        let tuning = Tuning {
            swap: vec![SwapArg::plain("/mnt/fast disk".into())],
            no_uring: true,
            ..Tuning::default()
        };
        let next = judge(&Report { stalled_share: 0.2, ..report() }, &tuning).next;
        assert_eq!(next, "overspill run --ram 400M '--swap=/mnt/fast disk' --no-uring -- sort -S 2G");
    }

    #[test]
    fn suggestions_are_round_and_never_smaller() {
        for bytes in [1, 1 << 20, 57 << 20, 123_456_789, 3 << 30, 20_000_000_000] {
            assert!(rounded(bytes) >= bytes);
        }
        assert_eq!(rounded(0), 1 << 20);
        assert_eq!(shortest(rounded(123_456_789)), "120M");
        assert_eq!(shortest(rounded(20_000_000_000)), "19G");
    }
}
