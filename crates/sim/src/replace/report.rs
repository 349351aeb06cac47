//! Replacement policies side by side: a row for each amount of RAM, a column for each policy.

use super::Touches;
use crate::options::show_bytes;
use crate::report::fold::folded;
use crate::report::table::in_blocks;
use crate::time::{muldiv, percent, permille};
use overspill_mm::types::PAGE_SIZE;
use serde::Serialize;

/// One policy with one amount of RAM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// RAM.
    pub ram_bytes: u64,
    /// RAM in thousandths of all pages.
    pub ram_permille: u64,
    /// The policy.
    pub policy: String,
    /// Touches, each of a run of touches of one page, too.
    pub touches: u64,
    /// Pages, each of which is touched for the first time once.
    pub first_touches: u64,
    /// Misses beside those: pages that have to be read.
    pub refaults: u64,
    /// All misses, first touches included: of the touches the miss ratio.
    pub misses: u64,
}

/// Simulates one.
#[must_use]
pub fn cell(touches: &Touches, policy: &str, ram_bytes: u64) -> Cell {
    let frames =
        u32::try_from((ram_bytes / PAGE_SIZE).max(1)).unwrap_or(u32::MAX).min(touches.pages().max(1));
    let mut replace = super::by_name(policy, frames, touches.pages()).expect("the name was checked");
    let first_touches = u64::from(touches.pages());
    let misses = touches.misses(&mut *replace);
    Cell {
        ram_bytes,
        ram_permille: permille(ram_bytes, first_touches * PAGE_SIZE),
        policy: policy.to_owned(),
        touches: touches.len(),
        first_touches,
        refaults: misses - first_touches,
        misses,
    }
}

/// `12.34`, in percent.
fn miss_ratio(cell: &Cell) -> String {
    let hundredths = muldiv(cell.misses, 10_000, cell.touches.max(1));
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The tables: pages to be read, and their ratio to LRU's where that is there; then miss ratios as
/// papers have them. Nothing where no such policy was named.
#[must_use]
pub fn render(policies: &[String], cells: &[Cell]) -> String {
    if cells.is_empty() {
        return String::new();
    }
    let mut heads = vec!["RAM".to_owned(), "of all".to_owned()];
    heads.extend(policies.iter().cloned());
    let (mut lines, mut ratios) = (vec![heads.clone()], vec![heads]);
    for row in cells.chunks(policies.len()) {
        let lru = row.iter().find(|cell| cell.policy == "lru").map(|cell| cell.refaults);
        let mut line = vec![show_bytes(row[0].ram_bytes), percent(row[0].ram_permille)];
        ratios.push(line.iter().cloned().chain(row.iter().map(miss_ratio)).collect());
        line.extend(row.iter().map(|cell| match lru {
            Some(lru) if lru > 0 && cell.policy != "lru" => {
                let ratio = permille(cell.refaults, lru);
                format!("{} {}.{:02}", cell.refaults, ratio / 1000, ratio % 1000 / 10)
            }
            _ => cell.refaults.to_string(),
        }));
        lines.push(line);
    }
    let right = vec![true; lines[0].len()];
    let note = cells.first().map_or(String::new(), |cell| {
        let said = format!(
            "pages read again by pure replacement ({} touches of {} pages, no read-ahead), and by LRU's",
            cell.touches, cell.first_touches
        );
        folded(&said, "    ") + "\n"
    });
    let said = "miss ratio in percent: all misses, first touches included, of all touches";
    note + &in_blocks(&lines, &right, 2) + &format!("\n{said}\n") + &in_blocks(&ratios, &right, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_for_each_amount_and_a_column_for_each_policy() {
        let touches = Touches::new((0..400).map(|step| step % 20).collect(), 20);
        let policies = ["opt", "lru"].map(str::to_owned);
        let cells: Vec<Cell> = [40_960, 81_920]
            .iter()
            .flat_map(|&bytes| policies.iter().map(move |policy| (policy, bytes)))
            .map(|(policy, bytes)| cell(&touches, policy, bytes))
            .collect();
        let text = render(&policies, &cells);
        assert!(text.contains("380"), "LRU reads each page of a loop again: {text}");
        assert_eq!(text.lines().count(), 3 + 3 + 2 + 3, "{text}");
        assert!(text.contains("miss ratio in percent") && text.contains("  100.00\n"), "{text}");
        assert!(text.contains("5.00    5.00"), "20 of 400 are first touches: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(cells[3].refaults, 0, "all of it fits");
    }
}
