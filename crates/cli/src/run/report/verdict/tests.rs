//! What is thought of runs, by what is seen of them.

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

/// See `looked_late`.
#[test]
fn what_looks_came_too_late_for_is_told_as_the_least() {
    let late = |paged: bool| {
        judged(|report| {
            (report.looked_late, report.wall_seconds, report.stalled_share) = (true, 16.0, 0.2);
            if !paged {
                report.vmstat.clear();
            }
        })
        .text
    };
    assert!(late(true).contains("; at least "), "{}", late(true));
    assert!(late(false).starts_with("fits: at most ") && !late(false).contains("never"), "{}", late(false));
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
    assert_eq!(
        of(101),
        "swap was full at 300.0 MiB; stayed within what the budget allows, with 101.0 MiB at most"
    );
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
    let slow =
        judged(|report| (report.stalled_share, report.slowdown) = (0.03, Slowdown { least: 4.0, most: 4.2 }));
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
