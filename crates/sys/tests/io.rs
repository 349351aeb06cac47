//! Both engines through the same tests: content, order of waiting, bounds, errors, and the descriptor to
//! poll.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block acts on memory and files the test made itself"
)]

use overspill_sys::event::{PollFd, poll};
use overspill_sys::file;
use overspill_sys::io::{Full, IoEngine, VECTORS_MAX};
use overspill_sys::mem::{IoVec, Mapping, Prot};
use overspill_sys::{Errno, Fd, PAGE_SIZE, clock, procfs};
use std::ffi::CString;

const DEPTH: u32 = 16;

/// The last one is where no thread can be made.
fn engines() -> [IoEngine; 3] {
    let threads = |workers| IoEngine::threads(DEPTH, workers).unwrap();
    [IoEngine::ring(DEPTH).unwrap(), threads(3), threads(0)]
}

fn scratch() -> Fd {
    let directory = CString::new(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let fd = file::open_nameless(&directory, true).unwrap();
    file::truncate(&fd, 16 << 20).unwrap();
    fd
}

fn is_readable(engine: &IoEngine, timeout_ns: u64) -> bool {
    poll(&mut [PollFd::readable(engine.wait_fd())], Some(timeout_ns)).unwrap() == 1
}

#[test]
fn scattered_writes_and_reads() {
    for mut engine in engines() {
        let fd = scratch();
        let pages = VECTORS_MAX * DEPTH as usize;
        let memory = Mapping::anon(pages * PAGE_SIZE, Prot::RW).unwrap();
        let word = |page: usize| memory.page(page) as *mut u64;
        (0..pages).for_each(|page| unsafe { word(page).write_volatile(page as u64 ^ 0x5555) });
        // Request k holds every DEPTH-th page from k on.
        let set = |request: usize| -> Vec<IoVec> {
            (0..VECTORS_MAX)
                .map(|index| memory.page(index * DEPTH as usize + request))
                .map(|base| IoVec { base, len: PAGE_SIZE })
                .collect()
        };
        let offset = |request: usize| (request * VECTORS_MAX * PAGE_SIZE) as u64;
        for request in 0..DEPTH as usize {
            unsafe { engine.push_write(fd.raw(), &set(request), offset(request), request as u64).unwrap() };
        }
        assert_eq!(unsafe { engine.push_write(fd.raw(), &set(0), 0, 99) }, Err(Full));
        assert_eq!(engine.in_flight(), DEPTH);
        engine.wait(DEPTH, None).unwrap();
        let mut seen = 0u32;
        while let Some(cqe) = engine.pop() {
            assert_eq!(cqe.outcome(), Ok((VECTORS_MAX * PAGE_SIZE) as u32));
            seen |= 1 << cqe.user_data;
        }
        assert_eq!((seen, engine.in_flight()), (0xffff, 0));
        (0..pages).for_each(|page| unsafe { word(page).write_volatile(0) });
        for round in 0..4 {
            for request in round * 4..round * 4 + 4 {
                unsafe {
                    engine.push_read(fd.raw(), &set(request), offset(request), request as u64).unwrap()
                };
            }
            engine.submit().unwrap();
            let mut left = 4;
            while left > 0 {
                assert!(is_readable(&engine, 5_000_000_000));
                while let Some(cqe) = engine.pop() {
                    assert_eq!(cqe.outcome(), Ok((VECTORS_MAX * PAGE_SIZE) as u32));
                    left -= 1;
                }
            }
            assert!(!is_readable(&engine, 0));
        }
        (0..pages).for_each(|page| assert_eq!(unsafe { word(page).read_volatile() }, page as u64 ^ 0x5555));
    }
}

#[test]
fn single_pages_by_the_hundred() {
    for mut engine in engines() {
        let fd = scratch();
        let memory = Mapping::anon(DEPTH as usize * PAGE_SIZE, Prot::RW).unwrap();
        let mut done = 0;
        for number in 0..600u64 {
            let place = (number % u64::from(DEPTH)) as usize;
            if engine.in_flight() == DEPTH {
                engine.wait(DEPTH, Some(5_000_000_000)).unwrap();
                while let Some(cqe) = engine.pop() {
                    assert_eq!(cqe.outcome(), Ok(4096));
                    done += 1;
                }
            }
            let vector = IoVec { base: memory.page(place), len: PAGE_SIZE };
            let offset = number % 4096 * 4096;
            unsafe {
                match number % 2 {
                    0 => engine.push_write(fd.raw(), &[vector], offset, number).unwrap(),
                    _ => engine.push_read(fd.raw(), &[vector], offset - 4096, number).unwrap(),
                }
            }
            engine.submit().unwrap();
        }
        while engine.in_flight() > 0 {
            engine.wait(1, None).unwrap();
            while let Some(cqe) = engine.pop() {
                assert!(cqe.user_data < 600);
                done += 1;
            }
        }
        assert_eq!(done, 600);
    }
}

#[test]
fn nothing_to_wait_for() {
    for mut engine in engines() {
        assert_eq!((engine.pop(), engine.submit(), engine.wait(0, Some(0))), (None, Ok(()), Ok(())));
        // Reading from a descriptor that is only for writing fails.
        let fd = file::open(c"/dev/null", file::Open::WRITE_ONLY).unwrap();
        let memory = Mapping::anon(PAGE_SIZE, Prot::RW).unwrap();
        unsafe { engine.push_read(fd.raw(), &[IoVec::of(memory.range())], 0, 5).unwrap() };
        assert!(!is_readable(&engine, 1_000_000));
        engine.wait(1, None).unwrap();
        let cqe = engine.pop().unwrap();
        assert_eq!((cqe.user_data, cqe.outcome()), (5, Err(Errno::BADF)));
        assert!(!is_readable(&engine, 1_000_000));
    }
}

#[test]
fn writes_are_done_when_it_is_dropped_with_them_under_way() {
    for mut engine in engines() {
        let fd = scratch();
        let memory = Mapping::anon(1 << 20, Prot::RW).unwrap();
        unsafe { memory.as_ptr::<u8>().write_bytes(9, memory.len()) };
        for number in 0..DEPTH as usize {
            let part = memory.page(number * 16)..memory.page(number * 16) + (64 << 10);
            unsafe {
                engine.push_write(fd.raw(), &[IoVec::of(part)], (number * (64 << 10)) as u64, 0).unwrap()
            };
        }
        engine.submit().unwrap();
        drop(engine);
        let mut page = [0u8; PAGE_SIZE];
        let plain = file::open_of_process(std::process::id(), fd.raw() as u32).unwrap();
        assert_eq!(file::pread(&plain, &mut page, (1 << 20) - 4096), Ok(PAGE_SIZE));
        assert!(page.iter().all(|byte| *byte == 9));
    }
}

#[test]
fn waiting_ends_in_time_and_workers_end_with_their_engine() {
    let mut engine = IoEngine::threads(4, 4).unwrap();
    let start = clock::monotonic_ns();
    let fd = scratch();
    let memory = Mapping::anon(PAGE_SIZE, Prot::RW).unwrap();
    unsafe { engine.push_write(fd.raw(), &[IoVec::of(memory.range())], 0, 1).unwrap() };
    engine.wait(1, Some(5_000_000_000)).unwrap();
    assert!(engine.pop().is_some() && clock::monotonic_ns() - start < 5_000_000_000);
    let workers = || {
        let mut count = 0;
        procfs::for_each_thread(|tid| {
            let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
            count += usize::from(name.trim() == "overspill-io");
        })
        .unwrap();
        count
    };
    assert!(workers() >= 4);
    drop(engine);
}
