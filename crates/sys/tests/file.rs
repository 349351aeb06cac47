//! Files, for real: nameless swap files, direct I/O, memory files of others, extents.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block acts on memory and files the test made itself"
)]

use overspill_sys::file::{self, Allocate, EXTENTS_MAX, Extent, Kind, Open};
use overspill_sys::mem::{IoVec, Mapping, Prot};
use overspill_sys::{Errno, PAGE_SIZE};
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
    let fd = file::open_scratch(&c(&directory), &c(&directory.join("name")), true).unwrap();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    file::truncate(&fd, 1 << 20).unwrap();
    file::allocate(&fd, Allocate::Reserve, 0, 1 << 20).unwrap();
    let memory = Mapping::anon(4 * PAGE_SIZE, Prot::RW).unwrap();
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
    file::allocate(&fd, Allocate::PunchHole, 0, 1 << 20).unwrap();
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
