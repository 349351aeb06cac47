//! From the runs of one load to its table: a row for each way, medians of its runs, and how it
//! stands against the kernel's best setting.

use serde::Serialize;

use crate::compare::figures::median;
use crate::compare::{Measurement, Table};
use crate::human;
use crate::load::Done;

/// One way's medians.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Row {
    /// Which way.
    pub way: String,
    /// Of so many runs.
    pub runs: usize,
    /// Touches a second of all threads together.
    pub touches_per_second: f64,
    /// The same by kind of thread, where there are several kinds.
    pub kinds: Vec<Kind>,
    /// Touches that took as long as a fault takes.
    pub faults: u64,
    /// Half of these took at most this.
    pub fault_p50_ns: u64,
    /// 90 % of them.
    pub fault_p90_ns: u64,
    /// 99 % of them.
    pub fault_p99_ns: u64,
    /// Pages read during the touches.
    pub pages_in: u64,
    /// Of these, pages read ahead.
    pub read_ahead: u64,
    /// Pages read ahead and touched.
    pub read_ahead_hits: u64,
}

/// One kind of threads.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Kind {
    /// Its pattern.
    pub pattern: String,
    /// Touches a second of all its threads.
    pub touches_per_second: f64,
}

/// What a ratio is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part<'a> {
    /// All threads.
    Whole,
    /// Those of one pattern.
    Kind(&'a str),
}

impl Row {
    /// Pages that were read ahead for nothing.
    pub fn in_vain(&self) -> u64 {
        self.read_ahead.saturating_sub(self.read_ahead_hits)
    }

    /// Touches a second of a part; `None` if the load has no such part.
    pub fn rate(&self, part: Part) -> Option<f64> {
        match part {
            Part::Whole => Some(self.touches_per_second),
            Part::Kind(pattern) => {
                let kind = self.kinds.iter().find(|kind| kind.pattern == pattern)?;
                Some(kind.touches_per_second)
            }
        }
    }

    /// What makes a setting better than another: the rate, or the geometric mean of the kinds'
    /// rates.
    pub fn score(&self) -> f64 {
        let kinds = self.kinds.iter().map(|kind| kind.touches_per_second);
        if self.kinds.is_empty() {
            self.touches_per_second
        } else {
            kinds.product::<f64>().powf(1.0 / self.kinds.len() as f64)
        }
    }

    /// Whether this is the kernel's swap.
    pub fn is_kernel(&self) -> bool {
        self.way.starts_with("kernel")
    }
}

/// A row for each way, in the order of their first runs.
pub fn rows(runs: &[Measurement]) -> Vec<Row> {
    let mut ways: Vec<&str> = Vec::new();
    for run in runs {
        if !ways.contains(&run.way.as_str()) {
            ways.push(&run.way);
        }
    }
    let loads = |way: &str| -> Vec<&Done> {
        runs.iter().filter(|run| run.way == way).filter_map(|run| run.load.as_ref()).collect()
    };
    ways.iter()
        .map(|way| (way, loads(way)))
        .filter(|(_, loads)| !loads.is_empty())
        .map(|(way, loads)| row(way, &loads))
        .collect()
}

fn row(way: &str, loads: &[&Done]) -> Row {
    let rate = |of: &dyn Fn(&Done) -> f64| median(loads.iter().map(|done| of(done)).collect());
    let count = |of: &dyn Fn(&Done) -> u64| rate(&|done| of(done) as f64) as u64;
    let latency = |done: &Done| done.fault_latency.unwrap_or_default();
    Row {
        way: way.to_string(),
        runs: loads.len(),
        touches_per_second: rate(&|done| done.touches_per_second),
        kinds: kinds(loads),
        faults: count(&|done| latency(done).count),
        fault_p50_ns: count(&|done| latency(done).p50_ns),
        fault_p90_ns: count(&|done| latency(done).p90_ns),
        fault_p99_ns: count(&|done| latency(done).p99_ns),
        pages_in: count(&|done| done.traffic.pages_in),
        read_ahead: count(&|done| done.traffic.read_ahead),
        read_ahead_hits: count(&|done| done.traffic.read_ahead_hits),
    }
}

/// The kinds of threads, if there are several.
fn kinds(loads: &[&Done]) -> Vec<Kind> {
    let mut patterns: Vec<&str> = loads[0].parts.iter().map(|part| part.pattern.as_str()).collect();
    patterns.dedup();
    if patterns.len() < 2 {
        return Vec::new();
    }
    let kind = |pattern: &str| {
        let rates = loads.iter().map(|done| done.kind_rate(pattern)).collect();
        Kind { pattern: pattern.to_string(), touches_per_second: median(rates) }
    };
    patterns.into_iter().map(kind).collect()
}

/// The kernel's best setting: its row, if the kernel was measured at all. Of a load with several
/// kinds of threads it is the one with the highest geometric mean of their rates, since one setting
/// must do for all.
pub fn best_kernel(rows: &[Row]) -> Option<&Row> {
    rows.iter().filter(|row| row.is_kernel()).max_by(|one, other| one.score().total_cmp(&other.score()))
}

/// How many times as fast a part of a row is as with the kernel's best setting.
pub fn ratio(rows: &[Row], row: &Row, part: Part) -> Option<f64> {
    Some(row.rate(part)? / best_kernel(rows)?.rate(part)?)
}

/// Columns that a terminal can do without, the least telling first; `--out` keeps everything.
const DISPENSABLE: [&str; 8] = ["runs", "MB/s", "p90", "in vain", "read in", "faults", "p50", "ra_hit"];

/// The table.
pub fn table(rows: &[Row]) -> String {
    let kinds = rows.first().map_or(&[][..], |row| &row.kinds);
    let parts: Vec<Part> = if kinds.is_empty() {
        vec![Part::Whole]
    } else {
        kinds.iter().map(|kind| Part::Kind(&kind.pattern)).collect()
    };
    let mut header = vec!["way".to_string()];
    for part in &parts {
        match part {
            Part::Whole => header.extend(["touches/s", "MB/s", "/ best"].map(String::from)),
            Part::Kind(name) => header.extend([format!("{name}/s"), "MB/s".into(), "/ best".into()]),
        }
    }
    header.extend(["faults", "p50", "p90", "p99", "read in", "ra_hit", "in vain", "runs"].map(String::from));
    let mut table = Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        table.push(cells(rows, row, &parts));
    }
    table.fitting(&DISPENSABLE).render()
}

fn cells(rows: &[Row], row: &Row, parts: &[Part]) -> Vec<String> {
    let mut cells = vec![row.way.clone()];
    for part in parts {
        let rate = row.rate(*part).unwrap_or(0.0);
        let times = ratio(rows, row, *part).map_or("-".into(), |ratio| format!("{ratio:.2}x"));
        cells.extend([human::count(rate as u64), format!("{:.0}", rate * 4096.0 / 1e6), times]);
    }
    cells.extend([
        human::count(row.faults),
        human::nanos(row.fault_p50_ns),
        human::nanos(row.fault_p90_ns),
        human::nanos(row.fault_p99_ns),
        human::count(row.pages_in),
        human::share(row.read_ahead_hits.min(row.read_ahead), row.read_ahead),
        human::count(row.in_vain()),
        row.runs.to_string(),
    ]);
    cells
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A row of so many touches a second, and of kinds if any are given.
    pub fn row_of(way: &str, touches_per_second: f64, kinds: &[(&str, f64)]) -> Row {
        let kind = |&(pattern, touches_per_second): &(&str, f64)| Kind {
            pattern: pattern.to_string(),
            touches_per_second,
        };
        Row {
            way: way.into(),
            runs: 1,
            touches_per_second,
            kinds: kinds.iter().map(kind).collect(),
            faults: 1000,
            fault_p50_ns: 65_535,
            fault_p90_ns: 81_919,
            fault_p99_ns: 131_071,
            pages_in: 2000,
            read_ahead: 1000,
            read_ahead_hits: 990,
        }
    }

    #[test]
    fn every_part_is_held_against_the_one_setting_that_is_best_for_all() {
        let rows = [
            row_of("bare", 9000.0, &[("seq", 8000.0), ("random", 1000.0)]),
            row_of("kernel:0", 3010.0, &[("seq", 10.0), ("random", 3000.0)]),
            row_of("kernel:5:vma", 2500.0, &[("seq", 2000.0), ("random", 500.0)]),
            row_of("overspill:adaptive", 5000.0, &[("seq", 4000.0), ("random", 900.0)]),
        ];
        let of = |part| ratio(&rows, &rows[3], part).unwrap();
        assert_eq!(best_kernel(&rows).unwrap().way, "kernel:5:vma");
        assert_eq!(of(Part::Whole), 2.0);
        assert_eq!(of(Part::Kind("seq")), 2.0);
        assert_eq!(of(Part::Kind("random")), 1.8);
        assert_eq!(ratio(&rows, &rows[3], Part::Kind("stride")), None);
        let text = table(&rows);
        assert!(text.starts_with("way") && text.contains("seq/s") && text.contains("99.0 %"), "{text}");
        assert!(text.lines().last().unwrap().contains("1.80x"), "{text}");
    }

    #[test]
    fn no_figures_make_a_line_too_long() {
        for kinds in [&[][..], &[("seq", 123_456_789.0), ("random", 123_456_789.0)]] {
            let ways = ["kernel:0:cluster", "kernel:5:cluster", "overspill:adaptive"];
            let huge =
                |way: &str| Row { faults: u64::MAX, pages_in: u64::MAX, ..row_of(way, 123_456_789.0, kinds) };
            let text = table(&ways.map(huge));
            assert!(text.lines().all(|line| line.chars().count() <= human::WIDTH), "{text}");
            assert!(text.contains("/ best") && text.contains("p99"), "{text}");
        }
    }

    #[test]
    fn without_the_kernel_there_is_no_ratio() {
        let rows = [row_of("bare", 9000.0, &[])];
        assert_eq!(ratio(&rows, &rows[0], Part::Whole), None);
        assert!(table(&rows).contains("touches/s") && table(&[]).contains("touches/s"));
    }
}
