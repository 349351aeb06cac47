//! The table: one row a combination, columns as wide as their widest entry. It fits a terminal of
//! 80 columns: names that are the same in every row stand above it, and what is least telling is
//! left out. JSON and the page have everything.

use super::fold::{WIDTH, folded};
use super::{Header, Row};
use crate::options::show_bytes;
use crate::sweep::System;
use crate::time::{percent, permille, show};
use std::fmt::Write;
use std::ops::Range;

/// Columns: heading, whether numbers stand to the right, and the entry of a row.
type Column = (&'static str, bool, fn(&Row) -> String);

/// A column only where there is a pool.
const FROM_POOL: &str = "from pool";

const COLUMNS: &[Column] = &[
    ("RAM", true, |row| show_bytes(row.ram_bytes)),
    ("of all", true, |row| percent(row.ram_permille)),
    ("read-ahead", false, |row| row.readahead.clone()),
    ("device", false, |row| row.device.clone()),
    ("policy", false, |row| row.policy.clone()),
    ("time", true, |row| show(row.elapsed_ns)),
    ("soft", true, |row| row.faults_soft.to_string()),
    ("major", true, |row| row.faults_major.to_string()),
    ("pages in", true, |row| row.pswpin.to_string()),
    ("pages out", true, |row| row.pswpout.to_string()),
    (FROM_POOL, true, |row| row.zswpin.map_or_else(String::new, |pages| pages.to_string())),
    ("read ahead", true, |row| row.swap_ra.to_string()),
    ("used", true, |row| percent(permille(row.swap_ra_hit, row.swap_ra))),
    ("refaults", true, |row| row.workingset_refault_anon.to_string()),
    ("p50", true, |row| show(row.fault_p50_ns)),
    ("p99", true, |row| show(row.fault_p99_ns)),
    ("busy", true, |row| percent(row.device_busy_permille)),
];

/// What the table can do without, the least telling first.
const DISPENSABLE: [&str; 10] =
    ["busy", "refaults", "soft", "read ahead", "used", "pages out", "of all", "p50", "p99", "pages in"];

/// The options, the table (where there are rows), the notes on it, the explanation.
#[must_use]
pub fn report(header: &Header, rows: &[Row], explanation: Option<&str>) -> String {
    let table = if rows.is_empty() { options(header) } else { render(header, rows) + &notes(header, rows) };
    match explanation {
        Some(sentences) if rows.is_empty() => table + &lines(sentences),
        Some(sentences) => table + "\n" + &lines(sentences),
        None => table,
    }
}

/// Each sentence in lines that fit.
fn lines(sentences: &str) -> String {
    sentences.lines().map(|sentence| folded(sentence, "    ")).collect()
}

/// In less RAM than this what an agent takes of it matters.
pub const SMALL_BYTES: u64 = 16 << 20;
/// ... as it says.
pub const SMALL_NOTE: &str = "note: a live run's agent takes 1 to 2 MiB of its RAM, the simulated one \
     nothing: below 16 MiB a run does as the simulation with so much less";

/// Is this RAM of live, and so small that what an agent takes of it matters?
fn is_small(row: &Row) -> bool {
    row.policy.starts_with(System::Live.name()) && row.ram_bytes < SMALL_BYTES
}

/// What a row cannot say of itself.
fn notes(header: &Header, rows: &[Row]) -> String {
    let is_of_memory = header.counted.is_none();
    let small =
        if is_of_memory && rows.iter().any(is_small) { folded(SMALL_NOTE, "    ") } else { String::new() };
    let full = swap_was_full(rows);
    if small.is_empty() && full.is_empty() { String::new() } else { format!("\n{small}{full}") }
}

/// Its RAM was not enough, because swap was full.
fn swap_was_full(rows: &[Row]) -> String {
    let over: Vec<&Row> = rows.iter().filter(|row| row.resident_bytes_max > row.ram_bytes).collect();
    let Some(worst) = over.iter().max_by_key(|row| row.resident_bytes_max - row.ram_bytes) else {
        return String::new();
    };
    let note = format!(
        "note: swap was full in {} of {} rows, which took more than their RAM: with {} up to {}",
        over.len(),
        rows.len(),
        show_bytes(worst.ram_bytes),
        show_bytes(worst.resident_bytes_max)
    );
    folded(&note, "    ")
}

/// The options, a line each, then the table.
#[must_use]
pub fn render(header: &Header, rows: &[Row]) -> String {
    let mut text = options(header);
    let same = |entry: fn(&Row) -> String| rows.windows(2).all(|pair| entry(&pair[0]) == entry(&pair[1]));
    let is_name = |column: &Column| !column.1;
    let (above, mut columns): (Vec<&Column>, Vec<&Column>) =
        COLUMNS.iter().partition(|column| is_name(column) && !rows.is_empty() && same(column.2));
    columns.retain(|(heading, ..)| *heading != FROM_POOL || rows.iter().any(|row| row.zswpin.is_some()));
    for (heading, _, entry) in &above {
        let _ = writeln!(text, "{heading:<14}{}", entry(&rows[0]));
    }
    if !above.is_empty() {
        text.push('\n');
    }
    let table = |columns: &[&Column]| {
        let mut lines = vec![columns.iter().map(|(heading, _, _)| (*heading).to_owned()).collect()];
        lines.extend(rows.iter().map(|row| columns.iter().map(|(_, _, entry)| entry(row)).collect()));
        aligned(&lines, &columns.iter().map(|(_, right, _)| *right).collect::<Vec<_>>())
    };
    for name in DISPENSABLE {
        if table(&columns).lines().all(|line| line.chars().count() <= WIDTH) {
            break;
        }
        columns.retain(|(heading, _, _)| *heading != name);
    }
    text + &table(&columns)
}

/// What stands in a row, from left to right.
#[must_use]
pub fn cells(row: &Row) -> Vec<String> {
    COLUMNS.iter().map(|(_, _, entry)| entry(row)).collect()
}

/// The block of options that stands before everything else.
#[must_use]
pub fn options(header: &Header) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "workload      {}", header.workload);
    let _ = writeln!(text, "its pages     {}", show_bytes(header.workload_bytes));
    if let Some(counted) = &header.counted {
        let label = counted.what;
        let sizes = counted.bytes_mean.map_or_else(
            || "sizes are ignored".to_owned(),
            |bytes| format!("sizes ({} on average) are ignored", show_bytes(bytes)),
        );
        let _ = writeln!(text, "{label:<14}each counts as a page; {sizes}");
    }
    if header.has_no_unit {
        let _ = writeln!(text, "times         of no known unit: what counts are misses");
    }
    if let Some(seed) = header.seed {
        let _ = writeln!(text, "seed          {seed}");
    }
    let processors =
        if header.processors == 0 { "one a thread".to_owned() } else { header.processors.to_string() };
    let _ = writeln!(text, "processors    {processors}");
    let _ = writeln!(text, "page-cluster  {}", header.page_cluster);
    if let Some(pool) = &header.pool {
        let _ = writeln!(text, "pool          {pool}");
    }
    let _ = writeln!(text, "version       {}", header.version);
    text.push('\n');
    text
}

/// Lines of cells, each column as wide as its widest cell; `right` says which stand to the right.
#[must_use]
pub fn aligned(lines: &[Vec<String>], right: &[bool]) -> String {
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..right.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut out = String::new();
        for (column, cell) in line.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let gap = if column > 0 { "  " } else { "" };
            if right[column] {
                let _ = write!(out, "{gap}{pad}{cell}");
            } else {
                let _ = write!(out, "{gap}{cell}{pad}");
            }
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

/// The same, in lines that fit a terminal: where they would not, the columns behind the first
/// `names` go on in further tables below, each of which begins with those.
#[must_use]
pub fn in_blocks(lines: &[Vec<String>], right: &[bool], names: usize) -> String {
    let block = |some: Range<usize>| {
        let lines: Vec<Vec<String>> = lines.iter().map(|line| picked(line, names, &some)).collect();
        aligned(&lines, &picked(right, names, &some))
    };
    let fits = |text: &str| text.lines().all(|line| line.chars().count() <= WIDTH);
    let mut blocks = Vec::new();
    let mut first = names;
    while first < right.len() {
        // A column that does not fit alone stands there all the same.
        let last = (first + 2..=right.len()).rev().find(|&last| fits(&block(first..last)));
        let last = last.unwrap_or(first + 1);
        blocks.push(block(first..last));
        first = last;
    }
    blocks.join("\n")
}

/// The first `names` of a line, and some of the others.
fn picked<T: Clone>(line: &[T], names: usize, some: &Range<usize>) -> Vec<T> {
    [&line[..names], &line[some.clone()]].concat()
}

/// The same, in lines that fit a terminal: where they would not, what the first `names` columns say
/// stands on a line of its own above the rows that share it.
#[must_use]
pub fn fitting(mut lines: Vec<Vec<String>>, right: &[bool], names: usize) -> String {
    let text = aligned(&lines, right);
    if text.lines().all(|line| line.chars().count() <= WIDTH) {
        return text;
    }
    let headings: Vec<String> =
        lines.iter_mut().map(|line| line.drain(..names).collect::<Vec<_>>().join("  ")).collect();
    let mut out = String::new();
    for (index, line) in aligned(&lines, &right[names..]).lines().enumerate() {
        if index == 1 || index > 1 && headings[index] != headings[index - 1] {
            let _ = writeln!(out, "{}", headings[index]);
        }
        let _ = writeln!(out, "  {line}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::trace::workload::Counted;

    #[test]
    fn no_figures_make_a_line_too_long() {
        let header = Header {
            workload: "zipf".to_owned(),
            workload_bytes: 1 << 30,
            seed: Some(1),
            page_cluster: 3,
            processors: 0,
            counted: None,
            has_no_unit: false,
            pool: None,
            version: "0.1.0".to_owned(),
        };
        let mut row = sample(1023 << 30, "adaptive", 123_456_789_000);
        (row.faults_major, row.pswpin, row.pswpout) = (1 << 40, 1 << 40, 1 << 40);
        let mut other =
            Row { readahead: "linux".to_owned(), policy: "kernel-2012".to_owned(), ..row.clone() };
        other.device = "network-ssd".to_owned();
        let text = render(&header, &[row, other]);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("time") && text.contains("major") && text.contains("kernel-2012"), "{text}");
    }

    #[test]
    fn columns_line_up() {
        let header = Header {
            workload: "zipf".to_owned(),
            workload_bytes: 1 << 30,
            seed: Some(1),
            page_cluster: 3,
            processors: 0,
            counted: None,
            has_no_unit: false,
            pool: None,
            version: "0.1.0".to_owned(),
        };
        let text = render(&header, &[sample(1 << 20, "adaptive", 1_000_000), sample(512 << 20, "none", 2)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "workload      zipf");
        assert_eq!(lines.len(), 13);
        assert_eq!(lines[7..10], ["device        nvme", "policy        live", ""]);
        let at = |line: &str, word: &str| line.find(word).expect("the column is there");
        assert_eq!(at(lines[10], "read-ahead"), at(lines[11], "adaptive"));
        assert_eq!(at(lines[11], "adaptive"), at(lines[12], "none"));
        let mut over = sample(32 << 20, "none", 2);
        assert_eq!(notes(&header, std::slice::from_ref(&over)), "");
        over.resident_bytes_max = 34 << 20;
        let note = "note: swap was full in 1 of 1 rows, which took more than their RAM: with 32 MiB\n    \
                    up to 34 MiB";
        assert!(report(&header, &[over], Some("much")).ends_with(&format!("\n{note}\n\nmuch\n")));
        let everything = cells(&sample(1 << 20, "adaptive", 1_000_000));
        assert!(everything.contains(&"75.0 %".to_owned()) && everything.contains(&"42.1 %".to_owned()));
    }

    /// *The story:* of a sort in 3 MiB a simulation read 367 pages, the run itself 3,244: more than
    /// a third of its RAM was the agent's.
    #[test]
    fn what_an_agent_takes_is_said_where_it_matters() {
        let header = Header {
            workload: "sort".to_owned(),
            workload_bytes: 5 << 20,
            seed: None,
            page_cluster: 3,
            processors: 0,
            counted: None,
            has_no_unit: false,
            pool: None,
            version: "0.1.0".to_owned(),
        };
        let said = |row: &Row| notes(&header, std::slice::from_ref(row)).contains("agent takes");
        let small = sample(SMALL_BYTES - 1, "none", 2);
        assert!(said(&small) && !said(&sample(SMALL_BYTES, "none", 2)));
        assert!(said(&Row { policy: "live:lru".to_owned(), ..small.clone() }));
        assert!(!said(&Row { policy: "kernel".to_owned(), ..small }));
    }

    /// *The story:* an engineer read of a cache of 363 MiB that 1.47 MiB are enough: its objects of 64 KiB
    /// were pages, and nobody said so.
    #[test]
    fn what_counts_as_a_page_is_said() {
        let header = Header {
            workload: "web".to_owned(),
            workload_bytes: 1 << 20,
            seed: None,
            page_cluster: 3,
            processors: 0,
            counted: Some(Counted { what: "objects", bytes_mean: Some(65_536) }),
            has_no_unit: true,
            pool: None,
            version: "0.1.0".to_owned(),
        };
        let text = options(&header);
        assert!(
            text.contains("\nobjects       each counts as a page; sizes (64 KiB on average) are ignored\n"),
            "{text}"
        );
        assert!(text.contains("\ntimes         of no known unit: what counts are misses\n"), "{text}");
    }

    /// *The story:* sixteen policies side by side were a table of 169 columns.
    #[test]
    fn many_columns_go_on_below() {
        let names = (0..16).map(|index| format!("policy-{index}"));
        let head: Vec<String> = ["RAM".to_owned(), "of all".to_owned()].into_iter().chain(names).collect();
        let row: Vec<String> = (0..18).map(|index| format!("{} 0.99", 1000 * index)).collect();
        let text = in_blocks(&[head.clone(), row], &[true; 18], 2);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let blocks: Vec<&str> = text.split("\n\n").collect();
        assert!(blocks.len() > 2 && blocks.iter().all(|block| block.contains("of all")), "{text}");
        assert!(head.iter().all(|name| text.contains(name)), "{text}");
        let wide = ["a".to_owned(), "x".repeat(90), "b".to_owned()].to_vec();
        assert_eq!(in_blocks(&[wide], &[false; 3], 1).split("\n\n").count(), 2);
    }

    /// *The story:* the caution about live traces was one line of 190 columns.
    #[test]
    fn the_explanation_fits_too() {
        let (long, caution) = ("word ".repeat(30), "caution: word ".repeat(20));
        let text = lines(&format!("{long}\n{caution}"));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("\ncaution: word") && text.ends_with('\n'), "{text}");
    }
}
