//! A line about the run so far, for whoever sends SIGUSR1 to the launcher, as dd(1) has it.
//!
//! The signal is the program's, too, if the program waits for it; one that does not would be killed
//! by it, and gets nothing.

use std::time::Duration;

use crate::histogram::Histogram;
use crate::human;
use crate::os::signals;
use crate::run::places;
use crate::run::shared_page::{Report, SharedPage};
use crate::run::tree::descendants::is_put_off;
use crate::stderr;

const PAGE_BYTES: u64 = 4096;
/// Who keeps the signal out at so many looks waits for it.
const LOOKS: u32 = 3;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Says the line if it was asked for.
pub fn answer(page: &SharedPage, ram_bytes: u64, elapsed: Duration) {
    if !signals::take_status_request() {
        return;
    }
    if signals::child().is_some_and(waits_for_signal) {
        signals::pass_on(libc::SIGUSR1);
    }
    let Ok(reports) = page.reports() else { return };
    let told = [line(&reports, ram_bytes, elapsed)].into_iter().chain(places::lines(&page.places_now()));
    stderr::write_beside(told.map(|line| human::folded(&line, "    ")).collect::<String>());
}

fn line(reports: &[Report], ram_bytes: u64, elapsed: Duration) -> String {
    let sum = |name: &str| reports.iter().map(|report| report.counter(name)).sum::<u64>();
    let mut major = Histogram::default();
    reports.iter().for_each(|report| major.add(&report.major));
    let latency = major.latency();
    let processes = if reports.len() == 1 { "process" } else { "processes" };
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let rate = |pages: u64| human::bytes(((pages * PAGE_BYTES) as f64 / seconds) as u64);
    format!(
        "overspill: {}: {} {processes}, {} of {}, {} major faults (p99 {}), in {}/s, out {}/s, stalled {}",
        human::seconds(seconds),
        reports.len(),
        human::bytes(sum("resident_bytes")),
        human::bytes(ram_bytes),
        human::count(latency.count),
        human::nanos(latency.p99_ns),
        // From swap and from mapped files.
        rate(sum("pswpin") + sum("files_read")),
        rate(sum("pswpout")),
        human::share(sum("stalled_ns"), elapsed.as_nanos() as u64),
    )
}

/// Whether the program has a handler for the signal, or waits for it by sigwait or signalfd: then none of its
/// threads lets it in, and it kills nobody. Whoever starts a thread or a process keeps all signals out for a
/// moment, too.
///
/// *The story:* it was asked for handlers only, and sigwait(SIGUSR1) waited for ever.
fn waits_for_signal(pid: i32) -> bool {
    if is_in(&format!("/proc/{pid}/status"), "SigCgt:") {
        return true;
    }
    (0..LOOKS).all(|look| {
        std::thread::sleep(if look == 0 { Duration::ZERO } else { LOOK_AGAIN });
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
        let mut threads = threads.into_iter().flatten().flatten().peekable();
        !is_put_off(pid as u32)
            && threads.peek().is_some()
            && threads.all(|thread| is_in(&format!("{}/status", thread.path().display()), "SigBlk:"))
    })
}

/// Is the signal in that mask of a process or thread?
fn is_in(status: &str, name: &str) -> bool {
    let status = std::fs::read(status).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(name)?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (libc::SIGUSR1 - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_the_run_goes() {
        let mut report = Report::empty(0, 1, 1234, 7);
        for (name, value) in &mut report.counters {
            *value = match *name {
                "resident_bytes" => 50 << 20,
                "pswpin" => 500,
                "files_read" => 12,
                "stalled_ns" => 500_000_000,
                _ => 0,
            };
        }
        let line = line(&[report], 100 << 20, Duration::from_secs(2));
        let expected = "overspill: 2.00 s: 1 process, 50.0 MiB of 100.0 MiB, 0 major faults (p99 0 ns), \
                        in 1.0 MiB/s, out 0 B/s, stalled 25.0 %";
        assert_eq!(line, expected);
    }
}
