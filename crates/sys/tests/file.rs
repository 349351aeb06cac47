//! Files, for real: nameless swap files, direct I/O, memory files of others, extents.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block acts on memory and files the test made itself"
)]

use overspill_sys::file::{self, EXTENTS_MAX, Extent, Kind, Open};
use overspill_sys::mem::{IoVec, Mapping, Prot};
use overspill_sys::{Errno, Fd, PAGE_SIZE};
use std::ffi::CString;

fn c(path: &std::path::Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

#[test]
fn scratch_files_leave_nothing_behind() {
    // tmpfs has neither direct I/O (before 6.6) nor always nameless files; the build directory's file system
    // has both.
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("scratch");
    std::fs::create_dir_all(&directory).unwrap();
    let fd = file::open_nameless(&c(&directory), true).unwrap();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    file::truncate(&fd, 1 << 20).unwrap();
    let memory = Mapping::anon(1 << 20, Prot::RW).unwrap();
    assert_eq!(unsafe { file::pwritev(fd.raw(), &[IoVec::of(memory.range())], 0) }, Ok(1 << 20));
    unsafe {
        memory.as_ptr::<u8>().write_bytes(7, memory.len());
        let halves = [memory.page(2)..memory.page(3), memory.page(0)..memory.page(1)].map(IoVec::of);
        assert_eq!(file::pwritev(fd.raw(), &halves, 65536), Ok(2 * PAGE_SIZE));
        assert_eq!(file::pread_at(&fd, memory.page(3), PAGE_SIZE, 65536 + 4096), Ok(PAGE_SIZE));
        assert_eq!(file::pread_at(&fd, memory.page(0) + 1, PAGE_SIZE, 65536), Err(Errno::INVAL));
        assert_eq!(file::preadv(fd.raw(), &halves, 65536), Ok(2 * PAGE_SIZE));
    }
    let status = file::status(&fd).unwrap();
    assert_eq!((status.kind, status.len), (Kind::Regular, 1 << 20));
    assert!(status.allocated_bytes >= 1 << 20);
    let mut extents = [Extent::default(); EXTENTS_MAX];
    let count = file::extents(&fd, 0, &mut extents).unwrap();
    assert!(count > 0);
    assert!(extents[count - 1].flags & Extent::LAST != 0);
    let covered: u64 = extents[..count].iter().map(|extent| extent.len).sum();
    assert!(covered >= 1 << 20);
    file::punch_hole(&fd, 0, 1 << 20).unwrap();
    assert!(file::status(&fd).unwrap().allocated_bytes < 1 << 20);
    let space = file::space(&fd).unwrap();
    assert!(space.available_bytes > 0 && space.available_bytes <= space.total_bytes);
    assert_eq!(file::device_bytes(&fd), Err(Errno::NOTTY));
}

#[test]
fn who_may_read_is_known() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("readable");
    std::fs::write(&path, b"x").unwrap();
    for (flags, expected) in [(0, true), (libc::O_RDWR, true), (libc::O_WRONLY, false), (libc::O_PATH, false)]
    {
        let opened = unsafe { libc::open(c(&path).as_ptr(), flags) };
        let fd = unsafe { overspill_sys::Fd::from_raw(opened) };
        assert_eq!(file::is_readable(&fd), expected, "{flags:#x}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn open_says_why_not() {
    assert_eq!(file::open(c"/nowhere/at/all", Open::empty()).unwrap_err(), Errno::NOENT);
    assert!(file::open_nameless(c"/proc", true).is_err());
    assert_eq!(file::open(c"/dev/null", Open::DIRECTORY).unwrap_err(), Errno::NOTDIR);
}

#[test]
fn memory_files_are_found_by_number() {
    let fd = file::memfd(c"overspill-test").unwrap();
    file::truncate(&fd, PAGE_SIZE as u64).unwrap();
    let mine = Mapping::shared(&fd, PAGE_SIZE, Prot::RW, 0).unwrap();
    let again = file::open_of_process(std::process::id(), fd.raw() as u32).unwrap();
    let other = Mapping::shared(&again, PAGE_SIZE, Prot::RW, 0).unwrap();
    unsafe {
        mine.as_ptr::<u64>().write_volatile(77);
        assert_eq!(other.as_ptr::<u64>().read_volatile(), 77);
    }
    assert_eq!(file::open_of_process(std::process::id(), 9999).unwrap_err(), Errno::NOENT);
}

/// A line for the user must not wait for who reads it. *The story:* the agent wrote it to a full pipe,
/// whose reader waited for the program, which waited for the agent.
#[test]
fn what_would_wait_is_not_written() {
    let [reader, writer] = pipe();
    assert_eq!(file::write_at_once(&writer, b"a line\n"), Ok(7));
    while file::write_at_once(&writer, &[0; 4096]).is_ok() {}
    assert_eq!(file::write_at_once(&writer, b"a line\n"), Err(Errno::AGAIN));
    let mut some = [0; 16 << 10];
    assert!(unsafe { libc::read(reader.raw(), some.as_mut_ptr().cast(), some.len()) } > 0);
    assert_eq!(file::write_at_once(&writer, b"a line\n"), Ok(7));
}

/// As after Ctrl-S.
#[test]
fn a_terminal_that_was_stopped_is_not_waited_for() {
    let terminal = unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY);
        assert!(master >= 0 && libc::grantpt(master) == 0 && libc::unlockpt(master) == 0);
        let name = std::ffi::CStr::from_ptr(libc::ptsname(master));
        let slave = libc::open(name.as_ptr(), libc::O_RDWR | libc::O_NOCTTY);
        assert!(slave >= 0);
        Fd::from_raw(slave)
    };
    assert_eq!(file::write_at_once(&terminal, b"a line\n"), Ok(7));
    assert_eq!(unsafe { libc::tcflow(terminal.raw(), libc::TCOOFF) }, 0);
    assert_eq!(file::write_at_once(&terminal, b"a line\n"), Err(Errno::AGAIN));
    assert_eq!(unsafe { libc::tcflow(terminal.raw(), libc::TCOON) }, 0);
    assert_eq!(file::write_at_once(&terminal, b"a line\n"), Ok(7));
}

/// *The story:* a daemon's data became descriptor 2, and a line for the user went there.
#[test]
fn a_file_is_known_again_and_no_other_is_taken_for_it() {
    let [first, second] = [c"first", c"second"].map(|name| file::memfd(name).unwrap());
    let known = file::identity(&first).unwrap();
    assert_eq!(file::identity(&first.duplicate().unwrap()), Ok(known));
    assert_ne!(file::identity(&second), Ok(known));
    let [reader, writer] = pipe();
    assert_eq!(file::identity(&reader), file::identity(&writer));
    assert_ne!(file::identity(&reader), Ok(known));
    // A number that was free is given away again: here at once.
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("identity");
    let make = || {
        let made = std::fs::File::create(&directory).unwrap();
        let identity = file::identity(&file::open(&c(&directory), Open::empty()).unwrap()).unwrap();
        std::fs::remove_file(&directory).unwrap();
        drop(made);
        identity
    };
    let before = make();
    // The kernel's clock for files ticks each few milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_ne!(make(), before, "two files, one after the other");
}

fn pipe() -> [Fd; 2] {
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    ends.map(|end| unsafe { Fd::from_raw(end) })
}
