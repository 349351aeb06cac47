//! Calls as perf prints them: each argument behind its name, `fd: 3, count: 0x1000`. `perf trace`
//! leaves out those that are 0, so that only the names tell which is which.

/// The names of the arguments of calls that matter here, in their order.
const LABELS: [(&str, &[&str]); 18] = [
    ("open", &["filename", "flags"]),
    ("openat", &["dfd", "filename", "flags"]),
    ("close", &["fd"]),
    ("read", &["fd", "buf", "count"]),
    ("write", &["fd", "buf", "count"]),
    ("readv", &["fd", "vec", "vlen"]),
    ("writev", &["fd", "vec", "vlen"]),
    ("pread64", &["fd", "buf", "count", "pos"]),
    ("pwrite64", &["fd", "buf", "count", "pos"]),
    ("preadv", &["fd", "vec", "vlen", "pos_l"]),
    ("pwritev", &["fd", "vec", "vlen", "pos_l"]),
    ("lseek", &["fd", "offset", "whence"]),
    ("dup", &["fildes"]),
    ("dup2", &["oldfd", "newfd"]),
    ("fcntl", &["fd", "cmd", "arg"]),
    ("sendfile64", &["out_fd", "in_fd", "offset", "count"]),
    ("copy_file_range", &["fd_in", "off_in", "fd_out", "off_out", "len", "flags"]),
    ("mmap", &["addr", "len", "prot", "flags", "fd", "off"]),
];

/// The name of an argument, and what stands behind it.
fn split(argument: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = argument.windows(2).position(|pair| pair == b": ")?;
    let name = &argument[..colon];
    let is_name = name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| (name, argument[colon + 2..].trim_ascii()))
}

/// The arguments of a call in their places, without names; what is not there is 0.
pub(super) fn in_order<'a>(call: &[u8], arguments: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let labels = LABELS.iter().find(|(name, _)| name.as_bytes() == call);
    let Some((_, labels)) = labels else {
        return arguments
            .iter()
            .map(|argument| split(argument).map_or(*argument, |(_, value)| value))
            .collect();
    };
    let value = |label: &&str| {
        let named = arguments.iter().filter_map(|argument| split(argument));
        named.into_iter().find(|(name, _)| *name == label.as_bytes()).map_or(&b"0"[..], |(_, value)| value)
    };
    labels.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_their_places_by_name() {
        let words = |list: Vec<&[u8]>| {
            list.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
        };
        let call = [&b"fd: 3"[..], b"count: 784", b"pos: 64"];
        assert_eq!(words(in_order(b"pread64", &call)), ["3", "0", "784", "64"]);
        assert_eq!(
            words(in_order(b"read", &[b"buf: 0x7f", b"count: 9"])),
            ["0", "0x7f", "9"],
            "descriptor 0"
        );
        assert_eq!(
            words(in_order(b"mmap", &[b"len: 8192", b"prot: READ", b"flags: PRIVATE", b"fd: 4"]))[4],
            "4"
        );
        assert_eq!(words(in_order(b"clone", &[b"clone_flags: 0x11"])), ["0x11"]);
    }
}
