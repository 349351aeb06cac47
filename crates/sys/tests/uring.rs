//! A ring against a real file: requests, waiting, timeouts, an overflowing completion ring.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block acts on memory and files the test made itself"
)]

use overspill_sys::mem::{IoVec, Mapping, Prot};
use overspill_sys::uring::{Ring, Setup, Sqe};
use overspill_sys::{Errno, PAGE_SIZE};
use std::os::fd::AsRawFd;

fn scratch_file(pages: usize) -> std::fs::File {
    let path = std::env::temp_dir().join(format!("overspill-uring-{}-{pages}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.set_len((pages * PAGE_SIZE) as u64).unwrap();
    file
}

fn setups() -> [Setup; 3] {
    let coop = Setup::COOP_TASKRUN | Setup::TASKRUN_FLAG;
    [Setup::empty(), coop | Setup::SINGLE_ISSUER, Setup::SINGLE_ISSUER | Setup::DEFER_TASKRUN]
}

#[test]
fn writes_and_reads_back() {
    for setup in setups() {
        let mut ring = Ring::new(8, 16, setup).unwrap();
        let file = scratch_file(4);
        let memory = Mapping::anon(4 * PAGE_SIZE, Prot::RW).unwrap();
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr::<u8>(), memory.len()) };
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = (index / 7) as u8;
        }
        let before = bytes.to_vec();
        let fd = file.as_raw_fd();
        let vectors = [IoVec::of(memory.range())];
        unsafe { ring.push(Sqe::writev(fd, vectors.as_ptr(), 1, 0, 7)).unwrap() };
        assert_eq!(ring.submit_and_wait(1, None), Ok(1));
        let cqe = ring.pop().unwrap();
        assert_eq!((cqe.user_data, cqe.outcome()), (7, Ok(4 * PAGE_SIZE as u32)));
        bytes.fill(0);
        for page in 0..4u64 {
            let offset = page * PAGE_SIZE as u64;
            unsafe { ring.push(Sqe::read(fd, memory.page(page as usize), 4096, offset, page)).unwrap() };
        }
        assert_eq!(ring.submit(), Ok(4));
        let mut seen = 0u32;
        while seen != 0b1111 {
            ring.submit_and_wait(1, Some(1_000_000_000)).unwrap();
            for cqe in ring.completions() {
                assert_eq!(cqe.outcome(), Ok(4096));
                seen |= 1 << cqe.user_data;
            }
        }
        assert_eq!(bytes, before);
        unsafe { ring.push(Sqe::fallocate(fd, 0, 0, 65536, 1)).unwrap() };
        ring.submit_and_wait(1, None).unwrap();
        assert!(ring.completions().all(|cqe| cqe.result == 0));
        assert_eq!(file.metadata().unwrap().len(), 65536);
    }
}

#[test]
fn waits_end() {
    let mut ring = Ring::best(4, 8).unwrap();
    let start = std::time::Instant::now();
    assert_eq!(ring.submit_and_wait(1, Some(20_000_000)), Ok(0));
    assert!(start.elapsed().as_millis() >= 19);
    assert_eq!(ring.pop(), None);
    assert_eq!(ring.submit(), Ok(0));
    // A read of a pipe that gets its byte later.
    let mut pipe = [0; 2];
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let mut byte = 0u8;
    unsafe { ring.push(Sqe::read(pipe[0], (&raw mut byte).addr(), 1, u64::MAX, 9)).unwrap() };
    ring.submit().unwrap();
    assert_eq!(ring.pop(), None);
    assert_eq!(unsafe { libc::write(pipe[1], c"x".as_ptr().cast(), 1) }, 1);
    ring.submit_and_wait(1, None).unwrap();
    assert_eq!(ring.pop().map(|cqe| (cqe.user_data, cqe.result)), Some((9, 1)));
    assert_eq!(byte, b'x');
    unsafe {
        libc::close(pipe[0]);
        libc::close(pipe[1]);
    }
}

#[test]
fn full_rings() {
    let mut ring = Ring::new(4, 4, Setup::empty()).unwrap();
    assert_eq!((ring.entries(), ring.completion_entries()), (4, 4));
    // Reads that fail at once.
    let nowhere = |number| Sqe::read(-1, 0, 4096, 0, number);
    let mut next = 0;
    for _ in 0..4 {
        for _ in 0..4 {
            unsafe { ring.push(nowhere(next)).unwrap() };
            next += 1;
        }
        let refused = unsafe { ring.push(nowhere(99)) };
        assert_eq!(refused.unwrap_err().user_data(), 99);
        assert_eq!(ring.pending(), 4);
        ring.submit().unwrap();
    }
    // Sixteen finished, four fit: the rest was kept by the kernel and comes when asked for.
    let seen: Vec<u64> = ring.completions().map(|cqe| cqe.user_data).collect();
    assert_eq!(seen, (0..next).collect::<Vec<_>>());
}

#[test]
fn errors_come_back() {
    let mut ring = Ring::best(4, 8).unwrap();
    unsafe { ring.push(Sqe::read(-1, 0, 4096, 0, 3)).unwrap() };
    ring.submit_and_wait(1, None).unwrap();
    assert_eq!(ring.pop().unwrap().outcome(), Err(Errno::BADF));
}
