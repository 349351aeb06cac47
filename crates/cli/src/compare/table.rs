//! A table for people: the first column to the left, figures to the right. On a terminal it fits 80
//! columns, if need be without those columns that its maker can best do without; as Markdown and
//! HTML it is whole.

use crate::human::{self, WIDTH};

/// Between two columns.
const GAP: usize = 2;

/// Rows of cells below a header.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with only a header.
    pub fn new(header: &[&str]) -> Table {
        Table { rows: vec![header.iter().map(|cell| cell.to_string()).collect()] }
    }

    /// One more row.
    pub fn push(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.rows[0].len(), "as many cells as the header has");
        self.rows.push(row);
    }

    fn widths(&self) -> Vec<usize> {
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        (0..self.rows[0].len()).map(width).collect()
    }

    /// Without the first of the `dispensable` columns, and the next, until a line is at most 80
    /// wide.
    #[must_use]
    pub fn fitting(mut self, dispensable: &[&str]) -> Table {
        for name in dispensable {
            let widths = self.widths();
            if widths.iter().sum::<usize>() + GAP * (widths.len() - 1) <= WIDTH {
                break;
            }
            let kept: Vec<bool> = self.rows[0].iter().map(|header| header != name).collect();
            for row in &mut self.rows {
                let mut kept = kept.iter();
                row.retain(|_| *kept.next().expect("as many cells as the header has"));
            }
        }
        self
    }

    /// A table in Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = format!("|---|{}\n", "---:|".repeat(self.rows[0].len() - 1));
        let rows: String = self.rows[1..].iter().map(|row| line(row)).collect();
        line(&self.rows[0]) + &rule + &rows
    }

    /// A table in HTML.
    pub fn html(&self) -> String {
        let row = |tag: &str, cells: &[String]| {
            let cells: String =
                cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", human::escaped(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows[1..].iter().map(|cells| row("td", cells)).collect();
        format!("<table>\n{}{rows}</table>\n", row("th", &self.rows[0]))
    }

    /// The lines, each ended.
    pub fn render(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                line.push_str(&format!("  {cell:>width$}"));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_wide_loses_columns_and_no_more_than_it_must() {
        let wide = || {
            let mut table = Table::new(&["way", "first", "second", "third"]);
            table.push(vec!["bare".into(), "x".repeat(30), "y".repeat(30), "z".repeat(30)]);
            table
        };
        let fitting = |names: &[&str]| wide().fitting(names).render();
        assert!(fitting(&["second", "first"]).lines().all(|line| line.len() <= WIDTH));
        assert!(fitting(&["second", "first"]).contains("first"));
        assert!(!fitting(&["second", "first"]).contains("second"));
        assert!(fitting(&[]).contains("second"), "it is the maker who says what can be left out");
        assert!(
            wide().markdown().starts_with("| way | first | second | third |\n|---|---:|---:|---:|\n| bare |")
        );
        assert!(wide().html().contains("<tr><td>bare</td>"));
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["way", "wall", "x"]);
        table.push(vec!["bare".into(), "2.81 s".into(), "1.00".into()]);
        table.push(vec!["kernel:3".into(), "12.00 s".into(), "".into()]);
        assert_eq!(table.render(), "way          wall     x\nbare       2.81 s  1.00\nkernel:3  12.00 s\n");
    }
}
