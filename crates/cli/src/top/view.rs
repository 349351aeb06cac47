//! From two looks to what is shown: for each run a heading, for each of its processes a row of
//! figures.

use super::scan::{Look, Run, state_word};
use crate::compare::Table;
use crate::human;
use crate::run::places::lines;
use crate::run::shared_page::Report;

const PAGE_BYTES: u64 = 4096;
/// Of a process's name.
const NAME_CHARS_MAX: usize = 12;
/// The columns; rates are those of the time between two looks.
pub const HEADER: [&str; 10] =
    ["pid", "name", "state", "resident", "major", "p50", "p99", "in/s", "out/s", "stalled"];
/// What 80 columns can do without.
pub const DISPENSABLE: [&str; 4] = ["p50", "major", "state", "name"];

/// A run as it is shown.
pub struct View {
    /// The heading: whose budget, and how much of it is taken.
    pub heading: String,
    /// The share of the budget that is taken, in percent; more than 100 where something goes wrong.
    pub percent: u64,
    /// A line for each place, where there are several.
    pub places: Vec<String>,
    /// The figures of each process.
    pub rows: Vec<Vec<String>>,
}

/// What is to be shown of every run.
pub fn views(before: &Look, now: &Look) -> Vec<View> {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-9);
    now.runs.iter().map(|run| view(run, before.same(run), seconds)).collect()
}

fn view(run: &Run, before: Option<&Run>, seconds: f64) -> View {
    let resident: u64 = run.processes.iter().map(|process| process.counter("resident_bytes")).sum();
    let percent = resident * 100 / run.ram_bytes.max(1);
    let heading = format!(
        "{}  {}: {} of {} ({percent} %)",
        run.pid,
        human::clipped(&human::command(&run.command), human::WIDTH - 50),
        human::bytes(resident),
        human::bytes(run.ram_bytes),
    );
    let row = |process: &Report| {
        let old = before.and_then(|run| run.processes.iter().find(|old| old.claim() == process.claim()));
        row(process, old, seconds)
    };
    View { heading, percent, places: lines(&run.places), rows: run.processes.iter().map(row).collect() }
}

fn row(process: &Report, before: Option<&Report>, seconds: f64) -> Vec<String> {
    let since = |name: &str| {
        let old = before.map_or(0, |before| before.counter(name));
        process.counter(name).saturating_sub(old) as f64 / seconds
    };
    let rate = |pages: f64| human::bytes((pages * PAGE_BYTES as f64) as u64);
    let latency = process.major.latency();
    vec![
        process.pid.to_string(),
        human::clipped(&human::one_line(&process.name), NAME_CHARS_MAX),
        state_word(process.state).into(),
        human::bytes(process.counter("resident_bytes")),
        human::count(latency.count),
        human::nanos(latency.p50_ns),
        human::nanos(latency.p99_ns),
        // From swap and from mapped files.
        rate(since("pswpin") + since("files_read")),
        rate(since("pswpout")),
        format!("{:.1} %", (since("stalled_ns") / 1e7).min(100.0)),
    ]
}

/// The figures as plain text.
pub fn text(before: &Look, now: &Look) -> String {
    let views = views(before, now);
    if views.is_empty() {
        return now.nothing().to_owned() + "\n";
    }
    let folded = |line: &String| human::folded(line, "    ");
    let places = |view: &View| view.places.iter().map(folded).collect::<String>();
    views.iter().map(|view| folded(&view.heading) + &places(view) + &table(view) + "\n").collect()
}

fn table(view: &View) -> String {
    if view.rows.is_empty() {
        return "nothing of it has reported yet\n".into();
    }
    let mut table = Table::new(&HEADER);
    view.rows.iter().for_each(|row| table.push(row.clone()));
    table.fitting(&DISPENSABLE).render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn report(counters: &[(&str, u64)]) -> Report {
        let mut report = Report::empty(0, 1, 1234, 7);
        report.name = "sort-with-a-long-name".into();
        for (name, value) in &mut report.counters {
            *value = counters.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| *value);
        }
        report
    }

    fn look(at: Instant, processes: Vec<Report>) -> Look {
        let command = vec!["sort".into(), "x".repeat(200)];
        Look {
            at,
            runs: vec![Run { pid: 99, command, ram_bytes: 100 << 20, processes, places: vec![] }],
            has_closed: false,
        }
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let began = Instant::now();
        let counters = [("resident_bytes", 50 << 20), ("pswpin", 1000), ("stalled_ns", 0)];
        let before = look(began, vec![report(&counters)]);
        let counters =
            [("resident_bytes", 75 << 20), ("pswpin", 1500), ("files_read", 12), ("stalled_ns", 500_000_000)];
        let now = look(began + Duration::from_secs(2), vec![report(&counters)]);
        let views = views(&before, &now);
        assert_eq!(views[0].percent, 75);
        assert_eq!(views[0].rows[0][7..], ["1.0 MiB", "0 B", "25.0 %"]);
        let text = text(&before, &now);
        assert!(text.contains("75.0 MiB of 100.0 MiB (75 %)") && text.contains("1234"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= human::WIDTH), "{text}");
    }

    #[test]
    fn no_figures_make_a_line_too_long() {
        let huge = report(&[("resident_bytes", 1023 << 40), ("pswpin", 1 << 40), ("pswpout", 1 << 40)]);
        let began = Instant::now();
        let text = text(&look(began, vec![]), &look(began + Duration::from_millis(100), vec![huge]));
        assert!(text.lines().all(|line| line.chars().count() <= human::WIDTH), "{text}");
        let nobody = Look { at: began, runs: vec![], has_closed: false };
        assert!(super::text(&nobody, &nobody).contains("no run"));
    }
}
