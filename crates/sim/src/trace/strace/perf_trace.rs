//! `perf trace`, which prints much of what strace does: a line of it as strace would have it.
//!
//! `1.572 ( 0.099 ms): cat/12663 read(fd: 4</tmp/a>, buf: 0x7f, count: 8) = 8`, times in milliseconds.
//! A call that others interrupt ends with `...`, and goes on behind `... [continued]: read()`. The
//! names of its descriptors are those of the first file that each stood for, so they are not believed.

use super::super::calls::bare;
use super::super::labels::in_order;
use super::super::line::{decimal, seconds};
use super::{arguments, word};

/// The line as strace has it; `None` if it is not perf's.
pub(super) fn as_strace(line: &[u8]) -> Option<Vec<u8>> {
    let (milliseconds, rest) = word(line.trim_ascii_start())?;
    let time_ns = seconds(milliseconds)? / 1000;
    let rest = rest.strip_prefix(b"(")?;
    let end = rest.windows(3).position(|part| part == b"): ")?;
    rest[..end].trim_ascii().strip_suffix(b"ms").or(rest[..end].trim_ascii().is_empty().then_some(b""))?;
    // A program's name may hold spaces and slashes; its thread's number comes last.
    let rest = &rest[end + 3..];
    let slash = (0..rest.len()).find(|&at| rest[at] == b'/' && thread_at(&rest[at + 1..]).is_some())?;
    let (thread, text) = thread_at(&rest[slash + 1..])?;
    let mut line =
        format!("{thread} {}.{:09} ", time_ns / 1_000_000_000, time_ns % 1_000_000_000).into_bytes();
    line.extend_from_slice(&call(text.trim_ascii())?);
    Some(line)
}

/// The number of a thread, and what follows it.
fn thread_at(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).filter(|&end| text[end] == b' ')?;
    Some((decimal(&text[..end])?, text[end..].trim_ascii_start()))
}

/// The call as strace has it.
fn call(text: &[u8]) -> Option<Vec<u8>> {
    if let Some(continued) = text.strip_prefix(b"... [continued]: ") {
        let name = continued.windows(2).position(|part| part == b"()")?;
        let resumed = [b"<... ", &continued[..name], b" resumed>", &continued[name + 2..]];
        return Some(resumed.concat());
    }
    let open = text.iter().position(|&byte| byte == b'(')?;
    let (inner, result) = match text.strip_suffix(b"...") {
        Some(begun) => (begun.get(open + 1..)?, None),
        None => {
            let equals = text.windows(3).rposition(|part| part == b" = ")?;
            (text.get(open + 1..equals)?.trim_ascii_end(), Some(&text[equals..]))
        }
    };
    let inner = inner.trim_ascii_end();
    let inner = inner.strip_suffix(b")").unwrap_or(inner);
    let list = in_order(&text[..open], &arguments(inner));
    let list: Vec<&[u8]> = list.into_iter().map(without_name).collect();
    let end: [&[u8]; 2] = result.map_or([b" <unfinished ...>", b""], |result| [b")", result]);
    Some([&text[..=open], &list.join(&b", "[..]), end[0], end[1]].concat())
}

fn without_name(argument: &[u8]) -> &[u8] {
    if argument.first().is_some_and(u8::is_ascii_digit) { bare(argument) } else { argument }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of perf 6.1.
    ///
    /// *The story:* a line that is nobody's panicked, and any text file's lines are tried here. A
    /// line of 1 MiB of slashes took an hour, as a space was looked for behind each.
    #[test]
    fn lines_of_perf_are_lines_of_strace() {
        for (line, expected) in [
            (
                "     1.572 ( 0.099 ms): cat/12663 read(fd: 4</tmp/a, b>, buf: 0x7fd0, count: 13) = 13",
                Some("12663 0.001572000 read(4, 0x7fd0, 13) = 13"),
            ),
            (
                "     0.181 ( 0.016 ms): a/b c/7 pread64(fd: 4, buf: 0x7ffc, count: 784)  = 784",
                Some("7 0.000181000 pread64(4, 0x7ffc, 784, 0) = 784"),
            ),
            (
                "     4.478 (         ): wc/13363 openat(dfd: CWD, filename: 0x83, flags: RDONLY)     ...",
                Some("13363 0.004478000 openat(CWD, 0x83, RDONLY <unfinished ...>"),
            ),
            (
                "     4.478 ( 0.017 ms): wc/13363  ... [continued]: openat())          = -1 ENOENT (No)",
                Some("13363 0.004478000 <... openat resumed>)          = -1 ENOENT (No)"),
            ),
            ("1795296288.178523 read(3, \"(x ms): a/1 \", 4) = 4", None),
            ("     1.572 ( 0.099 ms): cat", None),
            ("", None),
            ("1.572 ( 0.099 ms): cat/7 a = b(c", None),
            ("1.572 ( 0.099 ms): cat/7 foo(...", Some("7 0.001572000 foo( <unfinished ...>")),
            (&format!("1.5 ( 0.1 ms): {}", "/".repeat(1 << 20)), None),
        ] {
            let found = as_strace(line.as_bytes()).map(|line| String::from_utf8(line).expect("text"));
            assert_eq!(found.as_deref(), expected, "{line}");
        }
    }
}
