//! Sheets as text: cell by cell, then what holds.

use super::{Judge, Paper, Row, Sheet};
use crate::report::fold::folded;
use crate::report::table::fitting;

/// In disk rows only order is judged; a ratio that is off by more than this is explained all the same.
const WORTH_A_WORD_PERMILLE: u64 = 150;

/// The whole answer.
#[must_use]
pub fn render(paper: &Paper, sheets: &[Sheet]) -> String {
    let mut text = folded(paper.title, "    ") + &folded(paper.source, "    ");
    for sheet in sheets {
        text.push_str(&sheet_text(sheet));
    }
    text.push('\n');
    text + &folded(&conclusion(sheets), "    ")
}

/// Whether the shape holds, and what differs beside that.
fn conclusion(sheets: &[Sheet]) -> String {
    let shape = if sheets.iter().all(Sheet::holds) { "holds" } else { "does not hold" };
    let differs = |row: &&Row| match row.judge {
        Judge::Compared { within_permille } => !row.differing(within_permille).is_empty(),
        _ => false,
    };
    let rows = sheets.iter().flat_map(|sheet| &sheet.rows).filter(differs);
    let differing: Vec<&str> = rows.map(|row| row.name.as_str()).collect();
    match &differing[..] {
        [] => format!("The shape {shape}."),
        some => format!("The shape {shape}. Not judged, and not as published: {}.", some.join(", ")),
    }
}

fn sheet_text(sheet: &Sheet) -> String {
    let mut text = format!("\n{}", folded(&format!("{} ({})", sheet.title, sheet.unit), "    "));
    text.extend(sheet.notes.iter().map(|note| folded(&format!("  {note}"), "    ")));
    text.push('\n');
    let mut reasons = Reasons::default();
    text.push_str(&table(sheet, &mut reasons));
    text.push_str(&reasons.text());
    text.push('\n');
    text.extend(sheet.rows.iter().map(|row| folded(&verdict(sheet, row), "    ")));
    text
}

/// A line a cell. Where that is too wide for a terminal the names of the rows stand on lines of
/// their own.
fn table(sheet: &Sheet, reasons: &mut Reasons) -> String {
    let of = format!("of {}", sheet.columns[0]);
    let head = ["row", "column", "published", &of, "simulated", &of, "ratio", ""];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in &sheet.rows {
        lines.extend((0..row.cells.len()).map(|column| line(sheet, row, column, reasons)));
    }
    fitting(lines, &[false, false, true, true, true, true, true, false], 1)
}

/// Why cells differ: each reason once, below the table, with the number that stands in its rows.
#[derive(Default)]
struct Reasons(Vec<&'static str>);

impl Reasons {
    /// `[2]`: the number of that reason.
    fn mark(&mut self, reason: &'static str) -> String {
        let at = self.0.iter().position(|known| *known == reason).unwrap_or_else(|| {
            self.0.push(reason);
            self.0.len() - 1
        });
        format!("[{}]", at + 1)
    }

    fn text(&self) -> String {
        let line = |(at, reason): (usize, &&str)| folded(&format!("[{}] {reason}", at + 1), "    ");
        self.0.iter().enumerate().map(line).collect()
    }
}

/// Where nothing was published.
fn none() -> String {
    "-".to_owned()
}

fn line(sheet: &Sheet, row: &Row, column: usize, reasons: &mut Reasons) -> Vec<String> {
    let cell = &row.cells[column];
    let base = &row.cells[0];
    let published = cell.published.zip(base.published).map(|(cell, base)| hundredths(cell, base));
    let ratio = cell.published.map(|published| hundredths(cell.simulated, published));
    let reason = row.reasons.iter().find(|(at, _)| *at == column).map(|(_, reason)| *reason);
    let is_worth_it = row.judge == Judge::Nothing || row.is_off(column, WORTH_A_WORD_PERMILLE);
    vec![
        row.name.clone(),
        sheet.columns[column].to_owned(),
        cell.published.map_or_else(none, |published| published.to_string()),
        published.unwrap_or_else(none),
        cell.simulated.to_string(),
        hundredths(cell.simulated, base.simulated),
        ratio.unwrap_or_else(none),
        reason.filter(|_| is_worth_it).map(|reason| reasons.mark(reason)).unwrap_or_default(),
    ]
}

fn verdict(sheet: &Sheet, row: &Row) -> String {
    let failures = row.failures(&sheet.columns);
    let rule = match row.judge {
        Judge::Nothing => return format!("{}: not judged", row.name),
        Judge::Compared { within_permille } => return compared(sheet, row, within_permille),
        Judge::Order => "order".to_owned(),
        Judge::Ratios { within_permille } => format!("order, ratios within {} %", within_permille / 10),
        Judge::Same { within_permille } => format!("equal within {} %", within_permille / 10),
        Judge::AtMost { permille } => format!("at most {} of the first", hundredths(permille, 1000)),
        Judge::AtLeast { permille } => format!("at least {} of the first", hundredths(permille, 1000)),
    };
    if failures.is_empty() {
        format!("{}: holds ({rule})", row.name)
    } else {
        format!("{}: does not hold ({rule}): {}", row.name, failures.join("; "))
    }
}

/// What is said of a row on which nothing depends.
fn compared(sheet: &Sheet, row: &Row, within_permille: u64) -> String {
    let differs: Vec<String> = row
        .differing(within_permille)
        .into_iter()
        .map(|column| {
            let (base, cell) = (&row.cells[0], &row.cells[column]);
            let published = cell.published.zip(base.published).map(|(cell, base)| hundredths(cell, base));
            format!(
                "{} {} of the first, published {}",
                sheet.columns[column],
                hundredths(cell.simulated, base.simulated),
                published.unwrap_or_else(none)
            )
        })
        .collect();
    if differs.is_empty() {
        return format!("{}: as published, within {} % (not judged)", row.name, within_permille / 10);
    }
    format!("{}: differs (not judged): {}", row.name, differs.join("; "))
}

/// A ratio, rounded to the nearest hundredth; by nothing it is nothing.
fn hundredths(value: u64, base: u64) -> String {
    let base = u128::from(base);
    let rounded = (u128::from(value) * 200 + base).checked_div(2 * base).unwrap_or(0);
    format!("{}.{:02}", rounded / 100, rounded % 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::{Cell, PAPERS};
    use crate::report::fold::WIDTH;

    #[test]
    fn ratios_are_rounded() {
        let published = [(414_029, 345_413), (6106, 9714), (858_993, 165_191), (14, 27), (62_225, 62_253)];
        let shown = published.map(|(value, base)| hundredths(value, base));
        assert_eq!(shown, ["1.20", "0.63", "5.20", "0.52", "1.00"]);
        assert_eq!((hundredths(5, 0), hundredths(0, 5)), ("0.00".to_owned(), "0.00".to_owned()));
    }

    /// *The story:* "The shape holds." was all that was said last where swap-ins had been four times as many
    /// as before, and were fewer.
    #[test]
    fn what_differs_and_is_not_judged_is_named_at_the_end() {
        let row = |name: &str, judge, after| Row {
            name: name.to_owned(),
            cells: [10, after].map(|simulated| Cell { published: Some(10), simulated }).to_vec(),
            judge,
            reasons: Vec::new(),
        };
        let compared = Judge::Compared { within_permille: 150 };
        let sheet = |rows: Vec<Row>| Sheet {
            title: String::new(),
            unit: "",
            columns: vec!["before", "after"],
            rows,
            notes: Vec::new(),
        };
        let told = |after| conclusion(&[sheet(vec![row("swap ins", compared, after)])]);
        assert_eq!(told(11), "The shape holds.");
        assert_eq!(told(20), "The shape holds. Not judged, and not as published: swap ins.");
        let lost = sheet(vec![row("time", Judge::AtMost { permille: 600 }, 20)]);
        assert_eq!(conclusion(&[lost]), "The shape does not hold.");
    }

    #[test]
    fn nothing_is_wider_than_a_terminal() {
        let row = |name: &str| Row {
            name: name.to_owned(),
            cells: [(Some(9254), 7), (None, 1_234_567_890)]
                .map(|(published, simulated)| Cell { published, simulated })
                .to_vec(),
            judge: Judge::Nothing,
            reasons: vec![(1, "nobody knows the machine that this was measured on, nor what it ran")],
        };
        let sheet = |names: &[&str]| Sheet {
            title: "threads that read at random, in a file that is larger than all of the memory".to_owned(),
            unit: "thousands of operations a second",
            columns: vec!["2.6.20", "on-demand"],
            rows: names.iter().map(|name| row(name)).collect(),
            notes: vec![
                "one disk of the time; every thread has a file of its own, of 2 GB, or so".to_owned(),
            ],
        };
        let text = render(&PAPERS[0], &[sheet(&["short"]), sheet(&["a long name of a row", "another"])]);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(
            text.contains("\nshort  2.6.20") && text.contains("\na long name of a row\n  2.6.20"),
            "{text}"
        );
        assert_eq!(text.matches("[1] nobody knows").count(), 2, "once a table");
    }
}
