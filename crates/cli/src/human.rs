//! Figures for people: KiB / MiB / GiB, seconds with a fitting unit, thousands set apart, commands
//! quoted for a shell. Machines get plain bytes and nanoseconds from the JSON files instead.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

pub use overspill_sim::report::fold::{WIDTH, folded, folded_command};

/// `812 B`, `1.5 KiB`, `100.0 MiB`.
pub fn bytes(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        // What the unit below would round up to 1024.0 of its own is one of this.
        if bytes.saturating_add((1 << (shift - 10)) / 20) >= 1 << shift {
            return format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64);
        }
    }
    format!("{bytes} B")
}

/// `12,345`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `850 ns`, `12.3 us`, `4.5 ms`, `2.81 s`.
pub fn nanos(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_950 => format!("{:.1} us", ns as f64 / 1e3),
        999_950..999_950_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// `2.81 s`, with the precision of a stopwatch.
pub fn seconds(seconds: f64) -> String {
    if seconds < 0.1 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

/// `97.3 %` of `whole`; a dash when there is no whole.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

/// A command line as it would be typed, on one line.
pub fn command<S: AsRef<OsStr>>(words: &[S]) -> String {
    words.iter().map(|word| quoted(word.as_ref().as_bytes())).collect::<Vec<_>>().join(" ")
}

/// The beginning of a text that is too long for a line.
pub fn clipped(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_string();
    }
    text.chars().take(chars_max.saturating_sub(3)).chain("...".chars()).collect()
}

/// On one line, whatever names of files are in it.
pub fn one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// As the text of an HTML element.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// *The story:* bytes that are no text became U+FFFD: what was proposed to be run next was another command.
fn quoted(word: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"%+,-./:=@_".contains(byte);
    if !word.is_empty() && word.iter().all(plain) {
        return word.iter().copied().map(char::from).collect();
    }
    let mut text = String::from("'");
    for part in word.utf8_chunks() {
        part.valid().chars().for_each(|letter| text += &inside_quotes(letter));
        if !part.invalid().is_empty() {
            text += &as_numbers(part.invalid());
        }
    }
    text + "'"
}

/// What moves the cursor, or colours the rest of the screen, is seen, and still means the same.
fn inside_quotes(letter: char) -> String {
    match letter {
        '\'' => r"'\''".into(),
        '\n' => r"'$'\n''".into(),
        letter if letter.is_control() => as_numbers(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        letter => letter.into(),
    }
}

/// Bytes within quotes, as bash and zsh read them.
fn as_numbers(bytes: &[u8]) -> String {
    let numbers: String = bytes.iter().map(|byte| format!(r"\x{byte:02x}")).collect();
    format!("'$'{numbers}''")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(bytes(812), "812 B");
        assert_eq!(bytes(100 << 20), "100.0 MiB");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!([(1 << 20) - 52, (1 << 20) - 51].map(bytes), ["1023.9 KiB", "1.0 MiB"]);
        assert_eq!([(1 << 30) - 1, 1 << 30].map(bytes), ["1.0 GiB", "1.0 GiB"], "it was 1024.0 MiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(12_345), "12,345");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(nanos(850), "850 ns");
        assert_eq!(nanos(12_300), "12.3 us");
        assert_eq!([999_949, 999_950, 999_949_999].map(nanos), ["999.9 us", "1.0 ms", "999.9 ms"]);
        assert_eq!(nanos(999_950_000), "1.00 s", "it was 1000.0 ms");
        assert_eq!(nanos(2_810_000_000), "2.81 s");
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(share(1, 0), "-");
        assert_eq!(share(973, 1000), "97.3 %");
    }

    #[test]
    fn commands_can_be_pasted_into_a_shell() {
        assert_eq!(command(&["sort", "-S", "2G"]), "sort -S 2G");
        assert_eq!(command(&["sh", "-c", "a | b; echo 'x'"]), r"sh -c 'a | b; echo '\''x'\'''");
        assert_eq!(command(&["printf", ""]), "printf ''");
        assert_eq!(command(&["echo", "a\nb"]), r"echo 'a'$'\n''b'");
        assert_eq!(command(&["echo", "a\x1b[31m"]), r"echo 'a'$'\x1b''[31m'");
        let bytes = OsStr::from_bytes(b"we\xffird \xc3\xa9");
        assert_eq!(command(&[bytes]), r"'we'$'\xff''ird é'");
        let line = command(&["printf", "%s"]) + " " + &command(&[bytes]);
        let pasted = std::process::Command::new("bash").args(["-c", &line]).output().expect("bash is there");
        assert_eq!(pasted.stdout, bytes.as_bytes());
    }

    #[test]
    fn a_name_breaks_no_line() {
        assert_eq!(one_line("a\nb\x1b[31m é"), r"a\nb\u{1b}[31m é");
    }

    #[test]
    fn html_shows_what_was_meant() {
        assert_eq!(escaped("a<b> & c"), "a&lt;b&gt; &amp; c");
    }

    #[test]
    fn clipping_keeps_whole_characters() {
        assert_eq!(clipped("short", 10), "short");
        assert_eq!(clipped("äöüäöüäöü", 6), "äöü...");
    }
}
