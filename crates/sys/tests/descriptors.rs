//! The program's descriptors, seen from a thread that has a table of its own. One test, because the
//! table is the process's.
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block acts on descriptors the test made itself")]

use overspill_sys::descriptors::{Kind, Looks, Table, Watch};
use overspill_sys::procfs::{self, Limit};
use overspill_sys::uring::{Ring, Setup};
use overspill_sys::{Errno, fd};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

fn kind_of(table: &Table, number: i32) -> Option<Kind> {
    let mut found = None;
    table
        .for_each(|descriptor| {
            if descriptor.number == number as u32 {
                found = Some(descriptor.kind);
            }
            found.is_some()
        })
        .unwrap();
    found
}

#[test]
fn descriptors_are_told_apart() {
    let ring = Ring::new(8, 8, Setup::empty()).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (local, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let numbers = [ring.fd().raw(), reader.as_raw_fd(), writer.as_raw_fd(), socket.as_raw_fd()];
    let look = move || {
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
        let table = Table::open().unwrap();
        let kinds = numbers.map(|number| kind_of(&table, number));
        let [
            Some(Kind::Uring),
            Some(Kind::PipeReader(read)),
            Some(Kind::PipeWriter(written)),
            Some(Kind::Socket),
        ] = kinds
        else {
            panic!("{kinds:?}")
        };
        assert_eq!(read, written);
        assert_eq!(kind_of(&table, 9999), None);
        let socket = numbers[3] as u32;
        (table.lends(socket), table.lends(local.as_raw_fd() as u32))
    };
    assert_eq!(std::thread::spawn(look).join().unwrap(), (Ok(false), Ok(false)));

    let on = 1i32;
    let set = unsafe {
        let (value, len) = ((&raw const on).cast(), size_of::<i32>() as u32);
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, value, len)
    };
    assert_eq!(set, 0);
    let table = Table::open().unwrap();
    assert_eq!(table.lends(numbers[3] as u32), Ok(true));
    assert_eq!(table.lends(9999), Err(Errno::BADF), "it is not open");
    tables_are_seen_whatever_the_limit(numbers[3] as u32);
    who_cannot_lend_is_known_by_its_protocol(&table);
    looks_are_told(&table, numbers[3] as u32);
    a_watch_hears_of_all_that_is_put_in(&table);
    pipes_with_names_are_pipes(&table);
}

fn who_cannot_lend_is_known_by_its_protocol(table: &Table) {
    for (family, kind, cannot) in [
        (libc::AF_UNIX, libc::SOCK_STREAM, true),
        (libc::AF_UNIX, libc::SOCK_DGRAM, true),
        (libc::AF_UNIX, libc::SOCK_SEQPACKET, true),
        (libc::AF_NETLINK, libc::SOCK_RAW, true),
        (libc::AF_INET, libc::SOCK_STREAM, false),
        (libc::AF_INET, libc::SOCK_DGRAM, false),
        (libc::AF_INET6, libc::SOCK_STREAM, false),
    ] {
        let socket = unsafe { libc::socket(family, kind, 0) };
        if socket < 0 && family == libc::AF_INET6 {
            continue; // a kernel without it
        }
        let (on, len) = (1i32, size_of::<i32>() as u32);
        let value = (&raw const on).cast();
        let set = unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, value, len) };
        let told = table.cannot_lend(socket as u32);
        assert_eq!((told, set != 0), (cannot, cannot), "family {family}, kind {kind}");
        assert_eq!(table.lends(socket as u32), Ok(!cannot));
        assert_eq!(unsafe { libc::close(socket) }, 0);
    }
}

/// *The story:* see [`Looks`].
fn looks_are_told(table: &Table, socket: u32) {
    let before = Looks::now();
    assert!(!before.were_any() && !Looks::are_any());
    table
        .for_each(|_| {
            assert!(Looks::are_any() && before.were_any());
            false
        })
        .unwrap();
    assert!(before.were_any() && !Looks::are_any());
    let before = Looks::now();
    assert_eq!(table.lends(socket), Ok(true));
    assert!(before.were_any() && !Looks::now().were_any());
}

/// *The stories:* a program lowered its limit before its first page was used again. The look for
/// lenders failed, and that was taken for "there are none". And what raised the limit raised it to 64,
/// whatever it was.
fn tables_are_seen_whatever_the_limit(socket: u32) {
    let before = procfs::limit(Limit::Descriptors).unwrap();
    fd::insist();
    for limit in [8, 100] {
        procfs::set_limit(Limit::Descriptors, (limit, before.1)).unwrap();
        let mut files: Vec<_> = (0..limit).map_while(|_| std::fs::File::open("/dev/null").ok()).collect();
        assert_eq!(std::fs::File::open("/dev/null").unwrap_err().raw_os_error(), Some(libc::EMFILE));
        assert_eq!(Table::open().and_then(|table| table.lends(socket)), Ok(true));
        assert_eq!(procfs::limit(Limit::Descriptors), Ok((limit, before.1)));
        files.clear();
    }
    procfs::set_limit(Limit::Descriptors, before).unwrap();
}

fn a_watch_hears_of_all_that_is_put_in(table: &Table) {
    type Put = fn(&std::io::PipeWriter, &std::io::PipeReader);
    let put: [Put; 4] = [
        |mut pipe, _| pipe.write_all(b"x").unwrap(),
        |pipe, _| {
            let vector = libc::iovec { iov_base: c"x".as_ptr().cast_mut().cast(), iov_len: 1 };
            assert_eq!(unsafe { libc::vmsplice(pipe.as_raw_fd(), &raw const vector, 1, 0) }, 1);
        },
        |pipe, from| assert_eq!(unsafe { libc::tee(from.as_raw_fd(), pipe.as_raw_fd(), 1, 0) }, 1),
        |pipe, from| {
            let (from, null) = (from.as_raw_fd(), std::ptr::null_mut());
            assert_eq!(unsafe { libc::splice(from, null, pipe.as_raw_fd(), null, 1, 0) }, 1);
        },
    ];
    for put in put {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (other, mut into_other) = std::io::pipe().unwrap();
        let watch = Watch::new().unwrap();
        table.watch(&watch, writer.as_raw_fd() as u32).unwrap();
        into_other.write_all(b"x").unwrap();
        assert!(!watch.has_heard());
        put(&writer, &other);
        assert!(watch.has_heard());
        reader.read_exact(&mut [0]).unwrap();
        assert!(watch.has_heard(), "it is empty, but that says nothing");
    }
}

fn pipes_with_names_are_pipes(table: &Table) {
    let path = std::env::temp_dir().join(format!("overspill-fifo-{}", std::process::id()));
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let both = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let reader = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let kinds = [&both, &reader].map(|end| kind_of(table, end.as_raw_fd()));
    let [Some(Kind::PipeWriter(one)), Some(Kind::PipeReader(other))] = kinds else { panic!("{kinds:?}") };
    assert_eq!(one, other);
}
