//! Sheets as text: cell by cell, then what holds.

use super::{Judge, Paper, Row, Sheet};
use crate::report::table::aligned;
use crate::time::permille;
use std::fmt::Write;

/// In disk rows only order is judged; a ratio that is off by more than this is explained all the same.
const WORTH_A_WORD_PERMILLE: u64 = 150;

/// The whole answer.
#[must_use]
pub fn render(paper: &Paper, sheets: &[Sheet]) -> String {
    let mut text = format!("{}\n{}\n", paper.title, paper.source);
    for sheet in sheets {
        text.push_str(&sheet_text(sheet));
    }
    let holds = sheets.iter().all(Sheet::holds);
    text.push_str(if holds { "\nThe shape holds.\n" } else { "\nThe shape does not hold.\n" });
    text
}

fn sheet_text(sheet: &Sheet) -> String {
    let mut text = format!("\n{} ({})\n", sheet.title, sheet.unit);
    for note in &sheet.notes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {note}");
    }
    text.push('\n');
    let base = sheet.columns[0];
    let of = format!("of {base}");
    let head = ["row", "column", "published", &of, "simulated", &of, "ratio", ""];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in &sheet.rows {
        lines.extend((0..row.cells.len()).map(|column| line(sheet, row, column)));
    }
    text.push_str(&aligned(&lines, &[false, false, true, true, true, true, true, false]));
    text.push('\n');
    for row in &sheet.rows {
        let _ = writeln!(text, "{}", verdict(sheet, row));
    }
    text
}

/// Where nothing was published.
fn none() -> String {
    "-".to_owned()
}

fn line(sheet: &Sheet, row: &Row, column: usize) -> Vec<String> {
    let cell = &row.cells[column];
    let (published, simulated) = row.ratios(column);
    let ratio = cell.published.map(|published| permille(cell.simulated, published));
    let reason = row.reasons.iter().find(|(at, _)| *at == column).map_or("", |(_, reason)| reason);
    let is_off = row.judge != Judge::Nothing && row.is_off(column, WORTH_A_WORD_PERMILLE);
    vec![
        row.name.clone(),
        sheet.columns[column].to_owned(),
        cell.published.map_or_else(none, |published| published.to_string()),
        published.map_or_else(none, thousandths),
        cell.simulated.to_string(),
        thousandths(simulated),
        ratio.map_or_else(none, thousandths),
        if is_off || row.judge == Judge::Nothing { reason.to_owned() } else { String::new() },
    ]
}

fn verdict(sheet: &Sheet, row: &Row) -> String {
    let failures = row.failures(&sheet.columns);
    let rule = match row.judge {
        Judge::Nothing => return format!("{}: not judged", row.name),
        Judge::Order => "order".to_owned(),
        Judge::Ratios { within_permille } => format!("order, ratios within {} %", within_permille / 10),
        Judge::Same { within_permille } => format!("equal within {} %", within_permille / 10),
        Judge::AtMost { permille } => format!("at most {} of the first", thousandths(permille)),
        Judge::AtLeast { permille } => format!("at least {} of the first", thousandths(permille)),
    };
    if failures.is_empty() {
        format!("{}: holds ({rule})", row.name)
    } else {
        format!("{}: does not hold ({rule}): {}", row.name, failures.join("; "))
    }
}

fn thousandths(value: u64) -> String {
    format!("{}.{:02}", value / 1000, value % 1000 / 10)
}
