//! One line of /proc/self/maps. A pure function: no line makes it panic, an unknown shape gives `None`.

use super::{Name, Vma};
use crate::mem::Prot;
use crate::text::{skip_blanks, take_number};

/// Reads a line (without its newline); `None` when it is not one.
///
/// `7f0c1000-7f0c3000 rw-p 00001000 08:01 1234      /lib/some file (deleted)`
#[must_use]
pub fn parse_line(line: &[u8]) -> Option<Vma<'_>> {
    let (start, rest) = take_number(line, 16)?;
    let (end, rest) = take_number(rest.strip_prefix(b"-")?, 16)?;
    let rest = rest.strip_prefix(b" ")?;
    let (flags, rest) = rest.split_at_checked(4)?;
    let (offset, rest) = take_number(rest.strip_prefix(b" ")?, 16)?;
    let (major, rest) = take_number(rest.strip_prefix(b" ")?, 16)?;
    let (minor, rest) = take_number(rest.strip_prefix(b":")?, 16)?;
    let (inode, rest) = take_number(rest.strip_prefix(b" ")?, 10)?;
    if start >= end {
        return None;
    }
    Some(Vma {
        start: start as usize,
        end: end as usize,
        prot: prot(flags)?,
        shared: match flags[3] {
            b's' => true,
            b'p' => false,
            _ => return None,
        },
        offset,
        device: (major as u32, minor as u32),
        inode,
        name: name(skip_blanks(rest)),
    })
}

fn prot(flags: &[u8]) -> Option<Prot> {
    let mut prot = Prot::empty();
    for (&flag, (letter, bit)) in
        flags.iter().zip([(b'r', Prot::READ), (b'w', Prot::WRITE), (b'x', Prot::EXEC)])
    {
        match flag {
            b'-' => {}
            flag if flag == letter => prot |= bit,
            _ => return None,
        }
    }
    Some(prot)
}

const DELETED: &[u8] = b" (deleted)";

/// What the last column means. A path starts with a slash, and nothing else does.
pub(super) fn name(text: &[u8]) -> Name<'_> {
    if text.is_empty() {
        return Name::Anonymous;
    }
    if text.starts_with(b"/") {
        return match text.strip_suffix(DELETED) {
            Some(path) => Name::File { path, deleted: true },
            None => Name::File { path: text, deleted: false },
        };
    }
    match text {
        b"[heap]" => Name::Heap,
        b"[stack]" => Name::Stack,
        _ if text.starts_with(b"[anon:") || text.starts_with(b"[anon_shmem:") => Name::Named(text),
        // Kernels before 4.5 marked the stacks of other threads: ordinary memory.
        _ if text.starts_with(b"[stack:") => Name::Named(text),
        _ if text.starts_with(b"[") => Name::Special(text),
        _ => Name::Other(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_lines() {
        let heap =
            parse_line(b"55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]")
                .unwrap();
        assert_eq!(heap.range(), 0x55d0_c0a0_0000..0x55d0_c0a2_1000);
        assert_eq!((heap.prot, heap.shared, heap.name), (Prot::RW, false, Name::Heap));
        assert!(heap.is_private_anonymous());
        let file =
            parse_line(b"7f1200001000-7f1200002000 r-xs 00012000 103:02 77 /usr/lib/libc.so.6").unwrap();
        assert_eq!((file.offset, file.device, file.inode, file.shared), (0x12000, (0x103, 2), 77, true));
        assert_eq!(file.name, Name::File { path: b"/usr/lib/libc.so.6", deleted: false });
        assert!(!file.is_private_anonymous());
        let anonymous = parse_line(b"7f1200001000-7f1200002000 ---p 00000000 00:00 0 ").unwrap();
        assert_eq!((anonymous.prot, anonymous.name), (Prot::empty(), Name::Anonymous));
        assert_eq!(
            parse_line(b"7f1200001000-7f1200002000 ---p 00000000 00:00 0").unwrap().name,
            Name::Anonymous
        );
    }

    #[test]
    fn awkward_names() {
        let named = |name: &'static str| {
            let line = format!("1000-2000 rw-p 00000000 00:00 0                    {name}");
            parse_line(line.leak().as_bytes()).unwrap().name
        };
        assert_eq!(named("[anon:a ] b (deleted)]"), Name::Named(b"[anon:a ] b (deleted)]"));
        assert_eq!(named("[anon:glibc: malloc]"), Name::Named(b"[anon:glibc: malloc]"));
        assert_eq!(named("[anon_shmem:x]"), Name::Named(b"[anon_shmem:x]"));
        assert_eq!(named("[stack]"), Name::Stack);
        assert_eq!(named("[stack:123]"), Name::Named(b"[stack:123]"));
        for special in ["[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]", "[uprobes]"] {
            assert_eq!(named(special), Name::Special(special.as_bytes()));
        }
        assert_eq!(named("/memfd:a b (deleted)"), Name::File { path: b"/memfd:a b", deleted: true });
        assert_eq!(named("/dev/zero (deleted)"), Name::File { path: b"/dev/zero", deleted: true });
        assert_eq!(named("/tmp/two  spaces"), Name::File { path: b"/tmp/two  spaces", deleted: false });
        assert_eq!(named("/tmp/new\\012line"), Name::File { path: b"/tmp/new\\012line", deleted: false });
        assert_eq!(named("/tmp/[heap]"), Name::File { path: b"/tmp/[heap]", deleted: false });
        assert_eq!(named("anon_inode:[io_uring]"), Name::Other(b"anon_inode:[io_uring]"));
        assert_eq!(named("socket:[12345]"), Name::Other(b"socket:[12345]"));
    }

    #[test]
    fn the_last_mapping_of_all() {
        let line = b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]";
        let vma = parse_line(line).unwrap();
        assert_eq!(vma.start, 0xffff_ffff_ff60_0000);
        assert!(!vma.is_private_anonymous());
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            &b""[..],
            b"x",
            b"1000-2000",
            b"1000-2000 rw-p",
            b"1000-2000 rw-p 0 0:0",
            b"1000-2000 rwxq 0 0:0 0",
            b"1000-2000 wr-p 0 0:0 0",
            b"2000-1000 rw-p 0 0:0 0",
            b"1000 2000 rw-p 0 0:0 0",
            b"10000000000000000-20000000000000000 rw-p 0 0:0 0",
            b"1000-2000 rw-p 00000000 00:00 99999999999999999999",
        ] {
            assert_eq!(parse_line(line), None, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn every_prefix_of_a_line_is_safe() {
        let line = b"7f1200001000-7f1200002000 r-xs 00012000 103:02 77 /usr/lib/libc.so.6 (deleted)";
        for len in 0..line.len() {
            let _ = parse_line(&line[..len]);
        }
    }
}
