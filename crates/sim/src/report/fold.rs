//! Text for people in lines that fit a terminal.

/// What a terminal is sure to have: nothing that is printed for people is wider.
pub const WIDTH: usize = 80;

/// Ends a line of a command that goes on.
const CONTINUED: &str = " \\";

/// `text` in lines of at most 80 characters, each ended, the second and later ones behind `indent`.
/// Words that are longer stay whole.
pub fn folded(text: &str, indent: &str) -> String {
    folded_to(text, indent, WIDTH, |words| words.split(' ').collect())
}

/// The same for a command: a shell still takes it as one line, of the same words.
///
/// *The story:* it was folded within quotes, too. A script in one of them was another one when it was pasted.
pub fn folded_command(text: &str, indent: &str) -> String {
    let lines = folded_to(text, indent, WIDTH - CONTINUED.len(), shell_words);
    lines.trim_end().replace('\n', &format!("{CONTINUED}\n")) + "\n"
}

/// The words of a command, quotes and all.
fn shell_words(text: &str) -> Vec<&str> {
    let (mut words, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if !is_quoted => is_escaped = true,
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    words
}

fn folded_to(text: &str, indent: &str, columns: usize, split: impl Fn(&str) -> Vec<&str>) -> String {
    let words = text.trim_start();
    let mut lines = String::new();
    let mut line = text[..text.len() - words.len()].to_string();
    let mut is_empty = true;
    for word in split(words.trim_end()) {
        let width = line.chars().count() + usize::from(!is_empty) + word.chars().count();
        if !is_empty && width > columns {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = indent.to_string();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = is_empty && word.is_empty();
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_goes_on_below() {
        assert_eq!(folded("short", "  "), "short\n");
        assert_eq!(folded("    two  columns", "  "), "    two  columns\n");
        let words = vec!["seven77"; 15].join(" ");
        let text = folded(&words, "    ");
        assert!(text.lines().all(|line| line.len() <= WIDTH) && text.lines().count() == 2, "{text}");
        assert_eq!(text.split_whitespace().count(), 15);
        assert!(text.lines().nth(1).unwrap().starts_with("    seven77 "));
        let command = folded_command(&words, "    ");
        assert!(
            command.lines().all(|line| line.len() <= WIDTH) && command.contains("seven77 \\\n    seven77")
        );
    }

    #[test]
    fn what_is_quoted_stays_whole() {
        let script = format!("'{}; it'\\''s  so'", vec!["seven77"; 15].join(" "));
        let command = folded_command(&format!("sh -c {script} {script} -- end"), "    ");
        let lines: Vec<&str> = command.lines().collect();
        let continued = format!("    {script} \\");
        assert_eq!(lines, ["sh -c \\", &continued, &continued, "    -- end"]);
    }
}
