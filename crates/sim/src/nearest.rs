//! What somebody probably meant who mistyped a name: the nearest one, if it is near.

/// ` (did you mean `linux`?)`, or nothing where no name is near.
#[must_use]
pub fn hint<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(typed, names).map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

/// The name that takes the fewest changes of a letter; none if that were more than a third of them.
#[must_use]
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let changes_max = typed.chars().count() / 3;
    let near = names.into_iter().map(|name| {
        // The beginning of a word counts as the word.
        let is_beginning = typed.len() >= 2 && name.starts_with(typed.as_str());
        (if is_beginning { 0 } else { changes(&typed, name) }, name)
    });
    near.min_by_key(|&(changes, _)| changes)
        .filter(|&(changes, _)| changes <= changes_max)
        .map(|(_, name)| name)
}

/// Letters to insert, remove, replace or exchange with their neighbour.
fn changes(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for i in 1..=from.len() {
        let mut row = vec![i; to.len() + 1];
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            row[j] = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_is_forgiven_and_another_word_is_not() {
        let names = ["adaptive", "linux", "none", "sequential", "zipf"];
        for (typed, meant) in [
            ("lniux", Some("linux")),
            ("Linux", Some("linux")),
            ("adaptiv", Some("adaptive")),
            ("seq", Some("sequential")),
            ("zip", Some("zipf")),
            ("magic", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), meant, "{typed}");
        }
        assert_eq!(hint("nonw", names), " (did you mean `none`?)");
        assert_eq!(hint("magic", names), "");
    }
}
