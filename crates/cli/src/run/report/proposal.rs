//! What to try next after a run: with how much RAM it would not wait, with how much swap that would not be
//! full, and the command with that.

use std::ffi::OsString;

use super::Report;
use super::verdict::{BOUND_BYTES, BOUND_BYTES_EACH, peak};
use crate::args::Tuning;
use crate::human;
use crate::run::launch::room::area_bytes;
use crate::run::places::Place;
use crate::run::tree::filled;
use crate::size::{BUDGET_BYTES_MIN, Size, shortest};
use crate::swap::arg::SwapArg;

/// Room is given out to processes by pieces of so much.
const PIECE_BYTES: u64 = 2 << 20;
/// So much of a need comes on top of it: what is taken out ahead of demand, and what no look saw.
const HEADROOM_SHARE: u64 = 24;
/// ... and so much more where several have it together.
const SEVERAL_SHARE: u64 = 8;
/// More than this part of a need is what several have together.
const TOGETHER_SHARE: u64 = 4;
/// What left as zeroes is told from this part of the need on.
const EMPTIED_SHARE: u64 = 16;
/// What the agent keeps free of a budget for a program that grows fast, at most (an eighth of all).
const RESERVE_BYTES: u64 = 16 << 20;
const RESERVE_SHARE: u64 = 7;

/// What was needed, with the pages that had left as they held zeroes only. Such a page counts until it is
/// touched again, when it has a frame, or dropped. It may have been filled ahead of a program that never
/// came to it.
///
/// *The story:* a program read a GiB of zeroes in 100 MiB. All left RAM again and again, and it "never
/// needed more than 99". *The other story:* each page that left so counted as another one, each time, of all
/// processes that ever were: of four at a time that hold 241 MiB "no more than 720" was told, and 2130.
pub fn needed_most(report: &Report) -> u64 {
    report.needed_most_bytes.max(report.needed_bytes)
}

/// Is much of what was needed pages of zeroes, which may never have been touched?
pub fn is_upper_bound(report: &Report) -> bool {
    needed_most(report) - report.needed_bytes > report.needed_bytes / EMPTIED_SHARE
}

/// With so much nothing would be paged out: what was needed, or held where nothing was paged, and
/// what a pager keeps free of it for a program that grows fast. One that pages grows slowly: how
/// fast it would is not known.
///
/// *The story:* what it grew by while it paged was taken, and python3 was told 67 MiB, in which it
/// paged 16 MiB out. *The other story:* four programs that held 216 MiB together when they were looked at,
/// and paged in 250, were told 242. *One more:* two that held 61 MiB together fitted, and were told 73, in
/// which they paged.
pub fn needed(report: &Report, tuning: &Tuning) -> u64 {
    let is_paged = report.is_paged();
    let needed = match is_paged {
        true => needed_most(report),
        false => filled::used_bytes(report, tuning, peak(report, tuning)).max(report.brief_peak_bytes),
    };
    let needed = needed + RESERVE_BYTES.min(needed / RESERVE_SHARE);
    // Each that grows fast has something kept free for it, whether it paged or not.
    let are_several = report.programs_at_once > 1 && !has_most(report) && !tuning.per_process;
    let several = if are_several { needed / SEVERAL_SHARE } else { 0 };
    let least = if is_paged { report.ram_bytes + report.ram_bytes / HEADROOM_SHARE } else { 0 };
    (needed + several + needed / HEADROOM_SHARE).max(least)
}

/// Was nearly all one process's? (A compiler's driver and its shell hold nothing.) Of what paged that is told
/// by what was needed. It is not of parents and children that have it together: each grows for itself.
///
/// *The story:* of two programs one was in RAM and the other was out. The first had most of what was held.
/// *The other story:* four children of fork with 5 MiB each beside 100 of their parent's paged in 150M, and
/// would not have in 165.
fn has_most(report: &Report) -> bool {
    if report.needed_apart_bytes > report.needed_bytes + report.needed_bytes / TOGETHER_SHARE {
        return false;
    }
    let (largest, all) = match report.is_paged() {
        true => (report.needed_process_bytes, report.needed_bytes),
        false => (report.resident_peak_bytes, report.tree_peak_bytes),
    };
    largest > all / 4 * 3
}

/// The same command with another budget, one that `run` takes.
///
/// *The story:* after a small program `--ram 512K` was proposed, and refused. *The other story:* the budget
/// of the run itself was rounded, too: of what fitted in 1G, 1030M were proposed.
pub fn run_line(report: &Report, tuning: &Tuning, ram_bytes: u64) -> String {
    let ram_bytes = borne(report, tuning, ram_bytes);
    let is_given = ram_bytes == report.ram_bytes;
    let ram_bytes = if is_given { ram_bytes } else { rounded(ram_bytes).max(BUDGET_BYTES_MIN) };
    let mut words: Vec<OsString> = ["overspill", "run", "--ram", &shortest(ram_bytes)].map(Into::into).into();
    words.extend(tuning.to_args());
    words.push("--".into());
    human::command(&words) + " " + &report.command_line
}

/// With the places that `swap add` gave the run, and that it has still: the next one begins with them.
///
/// *The story:* swap was full and the program stopped, until it was given another place. What was proposed
/// was the command from before.
pub fn with_added(report: &Report, tuning: &Tuning) -> Tuning {
    let mut tuning = tuning.clone();
    let has_gone = |place: &&Place| ["drained", "draining", "failed"].contains(&place.state);
    let is_named = |asked: &[SwapArg], added: &SwapArg| asked.iter().any(|other| other.path == added.path);
    for place in report.places.iter().filter(|place| !has_gone(place)) {
        let Some(added) = &place.added else { continue };
        if let (true, Some(first)) = (tuning.swap.is_empty(), report.places.first()) {
            // Where nobody names a place there is one all the same.
            tuning.swap.push(SwapArg::plain(first.path.clone().into()));
        }
        if !is_named(&tuning.swap, added) {
            tuning.swap.push(added.clone());
        }
    }
    tuning
}

/// No more than the memory cgroup around the run bears, if that is more than the run had: a run may hold
/// some MiB above its budget. Less where the group was full with that.
///
/// *The story:* a run in 200M was ended by the kernel, as its group gave 100. The same was proposed again.
fn borne(report: &Report, tuning: &Tuning, ram_bytes: u64) -> u64 {
    let Some(limit_bytes) = report.group_limit_bytes else { return ram_bytes };
    let above_bytes = BOUND_BYTES + report.programs_at_once * BOUND_BYTES_EACH;
    let all = limit_bytes.saturating_sub(above_bytes) / 51 * 50;
    let most = rounded_down(if tuning.per_process { all / report.programs_at_once.max(1) } else { all });
    match report.oom_kills {
        0 => ram_bytes.min(most.max(report.ram_bytes)),
        // Something else in the group takes what it gives.
        _ if report.ram_bytes <= most => ram_bytes.min(rounded_down(report.ram_bytes / 4 * 3)),
        _ => ram_bytes.min(most),
    }
}

/// Room for all that the program had, whether in RAM or out: that is known of one that went on. One
/// that was ended needs that much and an unknown part more. Of a piece that one process uses others
/// have nothing.
///
/// *The story:* a place that was full within its size was left as it was: only `--swap-max` was
/// raised, or another place asked for. With both the next run was full at the same page.
///
/// *The other story:* an area of 40 MiB under `--swap-max 30M` was to hold 195.
pub fn more_swap(report: &Report, tuning: &Tuning) -> String {
    let mut tuning = tuning.clone();
    let pieces = if tuning.per_process { 1 } else { report.programs_at_once } * PIECE_BYTES;
    let needed = report.needed_bytes.saturating_add(pieces);
    let wanted = |bytes: u64| {
        let least = if report.strict_ended { bytes.saturating_mul(2) } else { bytes + (1 << 20) };
        rounded(needed.max(least))
    };
    let bytes_of = |size: Size| size.bytes(crate::machine::ram_for_shares());
    let sizes: Option<Vec<u64>> = tuning.swap.iter().map(|place| place.size.map(bytes_of)).collect();
    let room = sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| sizes.iter().sum::<u64>());
    let limit = [room, report.swap_max_bytes].into_iter().flatten().min();
    if let Some(bytes) = report.swap_max_bytes.filter(|bytes| Some(*bytes) == limit || *bytes < needed) {
        tuning.swap_max = Some(Size::Bytes(wanted(bytes)));
    }
    // Files and devices that are there have what they have.
    let areas: Option<u64> = tuning.swap.iter().map(|place| area_bytes(&place.path)).sum();
    if areas.is_some_and(|bytes| !tuning.swap.is_empty() && bytes < needed) {
        tuning.swap.push(more_room());
    } else if limit.is_none() {
        tuning.swap = vec![more_room()];
    } else if let (Some(all), Some(last)) = (room, tuning.swap.last_mut())
        && (room == limit || all < needed)
    {
        let own = last.size.map_or(0, bytes_of);
        last.size = Some(Size::Bytes(wanted(all).saturating_sub(all - own)));
    }
    run_line(report, &tuning, report.ram_bytes)
}

/// Whoever reads it chooses one.
fn more_room() -> SwapArg {
    SwapArg::plain("DIR-WITH-MORE-ROOM".into())
}

/// Up to a figure that people would choose, some 2 % more: halves of a MiB, above 25 MiB whole
/// ones, above 500 MiB tens of them, above 50 GiB whole GiB.
pub fn rounded(bytes: u64) -> u64 {
    let unit = unit(bytes);
    bytes.div_ceil(unit).max(1).saturating_mul(unit)
}

fn rounded_down(bytes: u64) -> u64 {
    bytes / unit(bytes) * unit(bytes)
}

fn unit(bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    match bytes / MIB {
        0..25 => MIB / 2,
        25..500 => MIB,
        500..51_200 => 10 * MIB,
        _ => 1 << 30,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::report::verdict::judge;
    use crate::run::report::verdict::tests::{judged, report};

    /// *The story:* 64 MiB of swap were full beside 100 MiB, and "next" asked for 128 of whatever was
    /// needed: too little for a large program, too much for a small one.
    #[test]
    fn swap_that_was_full_is_to_hold_all_that_was_needed() {
        let next = |ended: bool| {
            judged(|report| {
                report.swap_full = true;
                report.strict_ended = ended;
                report.swap_max_bytes = Some(64 << 20);
                report.needed_bytes = 300 << 20;
            })
            .next
        };
        assert!(next(false).contains("--swap-max=302M"), "{}", next(false));
        assert!(next(true).contains("--swap-max=302M"), "{}", next(true));
        let of = |words: &[&str], swap_max: Option<u64>| {
            let swap = words.iter().map(|word| SwapArg::parse(word.into()).unwrap()).collect();
            let report = Report { swap_full: true, needed_bytes: 300 << 20, ..report() };
            let report = Report { programs_at_once: 10, swap_max_bytes: swap_max, ..report };
            let tuning = Tuning { swap, swap_max: swap_max.map(Size::Bytes), ..Tuning::default() };
            judge(&report, &tuning).next
        };
        let sized = of(&["/a:16M", "/b:32M:prio=2"], None);
        assert!(sized.contains("--swap=/a:16M --swap=/b:304M:prio=2"), "{sized}");
        let both = of(&["/a:16M"], Some(64 << 20));
        assert!(both.contains("--swap=/a:320M") && both.contains("--swap-max=320M"), "{both}");
        let place_only = of(&["/a:16M"], Some(1 << 30));
        assert!(
            place_only.contains("--swap=/a:320M") && place_only.contains("--swap-max=1G"),
            "{place_only}"
        );
        assert!(of(&["/a"], None).contains("DIR-WITH-MORE-ROOM"));
        let area = std::env::temp_dir().join(format!("overspill-proposal-{}", std::process::id()));
        std::fs::write(&area, [0; 4096]).unwrap();
        let word = area.to_str().unwrap();
        let full = of(&[word], Some(64 << 20));
        let places = format!("--swap={word} --swap=DIR-WITH-MORE-ROOM");
        assert!(full.contains(&places) && full.contains("--swap-max=320M"), "{full}");
        std::fs::remove_file(&area).unwrap();
        let ended_early = judged(|report| {
            report.strict_ended = true;
            report.swap_max_bytes = Some(64 << 20);
            report.needed_bytes = 70 << 20;
        });
        assert!(ended_early.next.contains("--swap-max=128M"), "{}", ended_early.next);
    }

    /// *The story:* a page in RAM that keeps its slot was counted twice, and what "would avoid
    /// that" was 25 to 100 % too much; half of what fitted was proposed next, which nobody had
    /// tried.
    #[test]
    fn what_is_proposed_was_learnt() {
        let works = judged(|report| report.stalled_share = 0.2);
        assert!(works.text.ends_with("361.0 MiB would avoid that"), "{}", works.text);
        assert!(works.next.starts_with("overspill run --ram 361M "), "{}", works.next);
        let fits = judged(|report| {
            report.vmstat.clear();
            (report.tree_peak_bytes, report.needed_bytes) = (60 << 20, 60 << 20);
        });
        assert!(fits.next.starts_with("overspill run --ram 72M "), "{}", fits.next);
    }

    /// See [`needed`].
    #[test]
    fn what_paged_needs_more_than_it_had() {
        let next = |needed: u64, at_once: u64| {
            judged(|report| {
                (report.ram_bytes, report.tree_peak_bytes) = (250 << 20, 221 << 20);
                report.resident_peak_bytes = 60 << 20;
                (report.needed_bytes, report.programs_at_once) = (needed << 20, at_once);
            })
            .next
        };
        assert!(next(216, 4).contains("--ram 271M "), "{}", next(216, 4));
        assert!(next(243, 4).contains("--ram 303M "), "{}", next(243, 4));
        assert!(next(243, 1).contains("--ram 270M "), "{}", next(243, 1));
    }

    /// See [`needed`] and [`has_most`].
    #[test]
    fn several_that_fit_have_something_kept_free_for_each() {
        let next = |process: u64, at_once: u64| {
            judged(|report| {
                report.vmstat.clear();
                (report.tree_peak_bytes, report.resident_peak_bytes) = (61 << 20, process << 20);
                report.programs_at_once = at_once;
            })
            .next
        };
        assert!(next(40, 3).contains("--ram 82M "), "{}", next(40, 3));
        assert!(next(61, 1).contains("--ram 73M ") && next(60, 3).contains("--ram 73M "));
        let paged = |process: u64| {
            judged(|report| {
                (report.tree_peak_bytes, report.resident_peak_bytes) = (100 << 20, 95 << 20);
                (report.needed_process_bytes, report.needed_bytes) = (process << 20, 240 << 20);
                report.programs_at_once = 3;
            })
            .next
        };
        assert!(paged(120).contains("--ram 299M "), "{}", paged(120));
        assert!(paged(230).contains("--ram 267M "), "{}", paged(230));
        let family = judged(|report| {
            (report.needed_process_bytes, report.needed_bytes) = (230 << 20, 240 << 20);
            (report.programs_at_once, report.needed_apart_bytes) = (3, 500 << 20);
        })
        .next;
        assert!(family.contains("--ram 299M "), "{family}");
    }

    #[test]
    fn the_next_command_is_complete() {
        let tuning = Tuning {
            swap: vec![SwapArg::plain("/mnt/fast disk".into())],
            no_uring: true,
            ..Tuning::default()
        };
        let next = judge(&Report { stalled_share: 0.2, ..report() }, &tuning).next;
        assert_eq!(next, "overspill run --ram 361M '--swap=/mnt/fast disk' --no-uring -- sort -S 2G");
    }

    /// See [`with_added`].
    #[test]
    fn places_that_were_added_stay() {
        let place = |path: &str, state, added: Option<&str>| Place {
            path: path.into(),
            state,
            added: added.map(|word| SwapArg::parse(word.into()).unwrap()),
            ..Place::default()
        };
        let next = |swap: Vec<SwapArg>, change: fn(&mut Report)| {
            let added = [
                place("/a", "open", None),
                place("/b", "open", Some("/b:64M:prio=2")),
                place("/c", "drained", Some("/c")),
            ];
            let mut report =
                Report { places: added.into(), needed_bytes: 300 << 20, stalled_share: 0.2, ..report() };
            change(&mut report);
            judge(&report, &Tuning { swap, swap_max: Some(Size::Bytes(16 << 20)), ..Tuning::default() }).next
        };
        let full = |report: &mut Report| (report.swap_full, report.swap_max_bytes) = (true, Some(16 << 20));
        for swap in [vec![SwapArg::plain("/a".into())], vec![]] {
            let (full, slow) = (next(swap.clone(), full), next(swap, |_| ()));
            assert!(full.contains("--swap=/a --swap=/b:64M:prio=2 --swap-max=302M"), "{full}");
            assert!(slow.contains("--swap=/a --swap=/b:64M:prio=2 --swap-max=16M"), "{slow}");
        }
    }

    /// See [`run_line`].
    #[test]
    fn no_more_is_proposed_than_was_enough() {
        let fits = |ram: u64, seen: u64, seconds: f64| {
            judged(|report| {
                report.vmstat.clear();
                (report.ram_bytes, report.tree_peak_bytes) = (ram, seen);
                (report.programs_total, report.wall_seconds) = (200, seconds);
            })
            .next
        };
        let brief = fits(1 << 30, 512 << 20, 0.2);
        assert!(brief.starts_with("overspill run --ram 1G "), "{brief}");
        let tight = fits(1 << 30, 1020 << 20, 9.0);
        assert!(tight.starts_with("overspill run --ram 1G "), "{tight}");
        let odd = fits((100 << 20) + 1024, 99 << 20, 9.0);
        assert!(odd.starts_with("overspill run --ram 102401K "), "{odd}");
        let again = judged(|report| (report.ram_bytes, report.overlooked) = (1 << 30, true)).next;
        assert!(again.starts_with("overspill run --ram 1G "), "{again}");
    }

    /// See [`borne`].
    #[test]
    fn no_more_is_proposed_than_the_group_bears() {
        let next = |ram: u64, limit: u64, kills: u64, needed: u64| {
            judged(|report| {
                (report.ram_bytes, report.tree_peak_bytes) = (ram << 20, 60 << 20);
                (report.group_limit_bytes, report.oom_kills) = (Some(limit << 20), kills);
                (report.needed_bytes, report.stalled_share) = (needed << 20, 0.2);
            })
            .next
        };
        assert!(next(200, 100, 1, 150).contains("--ram 89M "), "{}", next(200, 100, 1, 150));
        assert!(next(60, 100, 1, 150).contains("--ram 45M "), "{}", next(60, 100, 1, 150));
        assert!(next(60, 100, 0, 150).contains("--ram 89M "), "{}", next(60, 100, 0, 150));
        assert!(next(95, 100, 0, 150).contains("--ram 95M "), "what it had it bore");
        assert!(next(60, 2000, 0, 150).contains("--ram 173M "), "{}", next(60, 2000, 0, 150));
    }

    #[test]
    fn suggestions_are_round_and_never_smaller() {
        for bytes in [1, 1 << 20, 57 << 20, 123_456_789, 3 << 30, 20_000_000_000] {
            assert!(rounded(bytes) >= bytes);
        }
        assert_eq!(rounded(0), 1 << 19);
        assert_eq!(rounded((9 << 20) + 1), 19 << 19, "9 % more was proposed of so little");
        assert_eq!(shortest(rounded(123_456_789)), "118M");
        assert_eq!(shortest(rounded(200_000_000_000)), "187G");
    }
}
