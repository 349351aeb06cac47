//! A table for people: the first column to the left, figures to the right.

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

    /// The lines, each ended.
    pub fn render(&self) -> String {
        let columns = self.rows[0].len();
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
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
    fn columns_line_up() {
        let mut table = Table::new(&["way", "wall", "x"]);
        table.push(vec!["bare".into(), "2.81 s".into(), "1.00".into()]);
        table.push(vec!["kernel:3".into(), "12.00 s".into(), "".into()]);
        assert_eq!(table.render(), "way          wall     x\nbare       2.81 s  1.00\nkernel:3  12.00 s\n");
    }
}
