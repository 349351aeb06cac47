//! From single runs to a table: medians per way, and how fast each way is against the others.

use serde::Serialize;

use super::lab::Measurement;
use super::table::Table;
use crate::human;

/// The medians of one way.
#[derive(Serialize, Clone, Debug)]
pub struct Median {
    /// Which way.
    pub way: String,
    /// So many runs.
    pub runs: usize,
    /// Of these, so many ended otherwise than the first run of all; they do not count unless there
    /// are no others.
    pub failed_runs: usize,
    /// How the runs ended, or how the first one that failed did.
    pub status: String,
    /// From start to end.
    pub wall_seconds: f64,
    /// CPU time of all kinds.
    pub cpu_seconds: f64,
    /// Faults answered without reading.
    pub minor_faults: u64,
    /// Faults that had to read.
    pub major_faults: u64,
    /// Read from swap.
    pub swap_in_bytes: u64,
    /// Written to swap.
    pub swap_out_bytes: u64,
    /// The most memory held.
    pub peak_bytes: u64,
    /// Touches a second of the built-in load.
    pub touches_per_second: Option<f64>,
}

/// How fast one way is against another.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Ratio {
    /// The faster one, if `speed` is above 1.
    pub way: String,
    /// What it is held against.
    pub against: String,
    /// So many times as fast: by touches a second of the built-in load, else by wall time.
    pub speed: f64,
}

/// One median a way, in the order of their first runs.
pub fn medians(runs: &[Measurement]) -> Vec<Median> {
    let mut ways: Vec<&str> = Vec::new();
    for run in runs {
        if !ways.contains(&run.way.as_str()) {
            ways.push(&run.way);
        }
    }
    ways.iter().map(|way| median_of(way, runs)).collect()
}

/// The median of one way over its runs that ended like the first run of all; over all its runs if
/// none did.
fn median_of(way: &str, runs: &[Measurement]) -> Median {
    let own = || runs.iter().filter(|run| run.way == way);
    let (good, failed): (Vec<_>, Vec<_>) = own().partition(|run| run.status == runs[0].status);
    let counted = if good.is_empty() { &failed } else { &good };
    let seconds = |of: fn(&Measurement) -> f64| median(counted.iter().map(|run| of(run)).collect());
    let count =
        |of: fn(&Measurement) -> u64| median(counted.iter().map(|run| of(run) as f64).collect()) as u64;
    let rates: Vec<f64> =
        counted.iter().filter_map(|run| Some(run.load.as_ref()?.touches_per_second)).collect();
    Median {
        way: way.to_string(),
        runs: good.len() + failed.len(),
        failed_runs: failed.len(),
        status: failed.first().unwrap_or(&counted[0]).status.clone(),
        wall_seconds: seconds(|run| run.wall_seconds),
        cpu_seconds: seconds(Measurement::cpu_seconds),
        minor_faults: count(|run| run.minor_faults),
        major_faults: count(|run| run.major_faults),
        swap_in_bytes: count(|run| run.swap_in_bytes),
        swap_out_bytes: count(|run| run.swap_out_bytes),
        peak_bytes: count(|run| run.peak_bytes),
        touches_per_second: (!rates.is_empty()).then(|| median(rates)),
    }
}

/// The middle value, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty());
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

impl Median {
    fn speed(&self) -> f64 {
        self.touches_per_second.unwrap_or(1.0 / self.wall_seconds.max(1e-9))
    }

    /// Whether its figures are those of complete runs.
    fn is_usable(&self) -> bool {
        self.failed_runs < self.runs
    }

    fn status_cell(&self) -> String {
        if self.failed_runs == 0 {
            return self.status.clone();
        }
        format!("{}/{} failed", self.failed_runs, self.runs)
    }

    /// What the table's cell has no room for.
    fn failure_line(&self) -> String {
        if self.failed_runs == 0 {
            return String::new();
        }
        let figures = if self.is_usable() { "the figures are those of the others" } else { "no run counts" };
        let line =
            format!("{}: {} of {} runs: {}; {figures}", self.way, self.failed_runs, self.runs, self.status);
        human::folded(&line, "    ")
    }
}

/// `2.05x`, `0.0015x`.
fn times(ratio: f64) -> String {
    if ratio >= 0.1 { format!("{ratio:.2}x") } else { format!("{ratio:.4}x") }
}

/// Every way of overspill against every other way.
pub fn ratios(medians: &[Median]) -> Vec<Ratio> {
    let is_overspill =
        |median: &&Median| median.way.starts_with("overspill") || median.way.starts_with("fence");
    let mut ratios = Vec::new();
    for own in medians.iter().filter(is_overspill).filter(|own| own.is_usable()) {
        for other in medians.iter().filter(|other| other.way != own.way && other.is_usable()) {
            let speed = own.speed() / other.speed();
            ratios.push(Ratio { way: own.way.clone(), against: other.way.clone(), speed });
        }
    }
    ratios
}

/// Columns that a terminal can do without, the least telling first.
const DISPENSABLE: [&str; 6] = ["minor", "cpu", "swap out", "MB/s", "peak", "swap in"];

/// The table of all ways, for a terminal, and what is to be said of runs that failed.
pub fn text(medians: &[Median]) -> String {
    let failures: String = medians.iter().map(Median::failure_line).collect();
    table(medians).fitting(&DISPENSABLE).render() + &failures
}

/// The table of all ways, whole.
pub fn table(medians: &[Median]) -> Table {
    let is_load = medians.iter().any(|median| median.touches_per_second.is_some());
    let mut header = vec!["way"];
    if is_load {
        header.extend(["touches/s", "MB/s"]);
    }
    header.extend(["wall", "cpu", "minor", "major", "swap in", "swap out", "peak"]);
    if medians.len() > 1 {
        header.push("speed");
    }
    if medians.iter().any(|median| median.failed_runs > 0 || median.status != "exit 0") {
        header.push("status");
    }
    let mut table = Table::new(&header);
    for median in medians {
        let mut row = vec![median.way.clone()];
        if is_load {
            let rate = median.touches_per_second.unwrap_or(0.0);
            row.extend([human::count(rate as u64), format!("{:.0}", rate * 4096.0 / 1e6)]);
        }
        row.extend([
            human::seconds(median.wall_seconds),
            human::seconds(median.cpu_seconds),
            human::count(median.minor_faults),
            human::count(median.major_faults),
            human::bytes(median.swap_in_bytes),
            human::bytes(median.swap_out_bytes),
            human::bytes(median.peak_bytes),
        ]);
        if header.contains(&"speed") {
            let speed = times(median.speed() / medians[0].speed());
            row.push(if median.is_usable() { speed } else { "-".into() });
        }
        if header.contains(&"status") {
            row.push(median.status_cell());
        }
        table.push(row);
    }
    table
}

/// `overspill: 4.10x kernel:3, 2.60x kernel:5, 0.80x bare`: a line for each way of overspill.
pub fn ratio_lines(ratios: &[Ratio]) -> String {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for ratio in ratios {
        let part = format!("{} {}", times(ratio.speed), ratio.against);
        match lines.iter_mut().find(|(way, _)| *way == ratio.way) {
            Some((_, parts)) => parts.push(part),
            None => lines.push((ratio.way.clone(), vec![part])),
        }
    }
    let line = |(way, parts): &(String, Vec<String>)| {
        human::folded(&format!("speed of {way}: {}", parts.join(", ")), "    ")
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median_row(way: &str, wall_seconds: f64, touches_per_second: Option<f64>) -> Median {
        Median {
            way: way.into(),
            runs: 1,
            failed_runs: 0,
            status: "exit 0".into(),
            wall_seconds,
            cpu_seconds: 1.0,
            minor_faults: 1,
            major_faults: 2,
            swap_in_bytes: 1 << 20,
            swap_out_bytes: 0,
            peak_bytes: 100 << 20,
            touches_per_second,
        }
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn runs_that_end_otherwise_do_not_count() {
        let run = |way: &str, wall_seconds: f64, status: &str| Measurement {
            way: way.into(),
            wall_seconds,
            status: status.into(),
            ..Measurement::default()
        };
        let runs = [
            run("bare", 1.0, "exit 1"),
            run("kernel:3", 9.0, "killed by SIGKILL"),
            run("bare", 3.0, "exit 1"),
            run("kernel:3", 5.0, "exit 1"),
            run("fence", 2.0, "exit 125"),
        ];
        let rows = medians(&runs);
        assert_eq!(
            rows.iter().map(|row| row.way.as_str()).collect::<Vec<_>>(),
            ["bare", "kernel:3", "fence"]
        );
        assert_eq!((rows[0].wall_seconds, rows[0].status_cell()), (2.0, "exit 1".into()));
        assert_eq!((rows[1].wall_seconds, rows[1].status_cell()), (5.0, "1/2 failed".into()));
        assert!(
            rows[1].failure_line().contains("1 of 2 runs: killed by SIGKILL"),
            "{}",
            rows[1].failure_line()
        );
        assert!(rows[1].is_usable() && !rows[2].is_usable());
    }

    #[test]
    fn a_command_is_compared_by_its_wall_time() {
        let rows = [
            median_row("bare", 2.0, None),
            median_row("kernel:3", 8.0, None),
            median_row("overspill", 4.0, None),
        ];
        let ratios = ratios(&rows);
        assert_eq!(ratio_lines(&ratios), "speed of overspill: 0.50x bare, 2.00x kernel:3\n");
        let expected = "\
way          wall     cpu  minor  major  swap in  swap out       peak  speed
bare       2.00 s  1.00 s      1      2  1.0 MiB       0 B  100.0 MiB  1.00x
kernel:3   8.00 s  1.00 s      1      2  1.0 MiB       0 B  100.0 MiB  0.25x
overspill  4.00 s  1.00 s      1      2  1.0 MiB       0 B  100.0 MiB  0.50x
";
        assert_eq!(text(&rows), expected);
    }

    #[test]
    fn a_load_is_compared_by_its_touches() {
        let rows = [median_row("kernel:3", 8.0, Some(1000.0)), median_row("overspill", 9.0, Some(4100.0))];
        assert_eq!(ratio_lines(&ratios(&rows)), "speed of overspill: 4.10x kernel:3\n");
        assert!(text(&rows).contains("touches/s"));
    }

    /// *The story:* the table was 98 columns wide, and each of its lines took two on a terminal.
    #[test]
    fn no_figures_make_a_line_too_long() {
        let huge = |way: &str, touches| Median {
            failed_runs: 1,
            runs: 2,
            minor_faults: 1_234_567_890,
            major_faults: 1_234_567_890,
            swap_in_bytes: 1023 << 40,
            swap_out_bytes: 1023 << 40,
            peak_bytes: 1023 << 40,
            cpu_seconds: 12_345.678,
            ..median_row(way, 123_456.789, touches)
        };
        for touches in [None, Some(123_456_789.0)] {
            let rows: Vec<_> =
                ["bare", "kernel:3:cluster", "kernel:5:cluster", "kernel:5:vma", "overspill:adaptive"]
                    .map(|way| huge(way, touches))
                    .into();
            let text = text(&rows) + &ratio_lines(&ratios(&rows));
            assert!(text.lines().all(|line| line.chars().count() <= human::WIDTH), "{text}");
            assert!(text.contains("wall") && text.contains("speed"), "{text}");
        }
    }

    #[test]
    fn a_failure_gets_a_column_and_no_ratio() {
        let mut failed = median_row("kernel:3", 8.0, None);
        failed.status = "killed by SIGKILL".into();
        failed.failed_runs = 1;
        let rows = [median_row("bare", 2.0, None), failed, median_row("overspill", 4.0, None)];
        assert!(text(&rows).contains("1/1 failed") && text(&rows).contains("1 of 1 runs: killed by SIGKILL"));
        assert_eq!(ratio_lines(&ratios(&rows)), "speed of overspill: 0.50x bare\n");
    }
}
