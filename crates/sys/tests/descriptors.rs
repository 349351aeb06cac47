//! The program's descriptors, seen from a thread that has a table of its own. One test, because the
//! table is the process's.
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block acts on descriptors the test made itself")]

use overspill_sys::descriptors::{Kind, Table};
use overspill_sys::uring::{Ring, Setup};
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
    let (mut reader, mut writer) = std::io::pipe().unwrap();
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
        let [_, _, pipe, socket] = numbers.map(|number| number as u32);
        (table.is_full(pipe), table.lends(socket), table.lends(local.as_raw_fd() as u32))
    };
    assert_eq!(std::thread::spawn(look).join().unwrap(), (Some(false), Some(false), Some(false)));

    let nonblocking = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(nonblocking, 0);
    while writer.write(&[0; 4096]).is_ok() {}
    let on = 1i32;
    let set = unsafe {
        let (value, len) = ((&raw const on).cast(), size_of::<i32>() as u32);
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, value, len)
    };
    assert_eq!(set, 0);
    let [_, _, pipe, socket] = numbers.map(|number| number as u32);
    let table = Table::open().unwrap();
    assert_eq!((table.is_full(pipe), table.lends(socket)), (Some(true), Some(true)));
    reader.read_exact(&mut [0; 8192]).unwrap();
    assert_eq!(table.is_full(pipe), Some(false));
    assert_eq!(table.is_full(9999), None, "it is not open");
}
