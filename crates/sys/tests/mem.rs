//! Mappings, and copying out of memory that is not there.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block acts on memory and files the test made itself"
)]

use overspill_sys::mem::{self, Advice, IoVec, Mapping, Prot};
use overspill_sys::{Errno, PAGE_SIZE};

#[test]
fn mappings_come_and_go() {
    // What is unmapped may be mapped again at once, by a test beside this one: it happened. Not every time.
    let gone = (0..100).any(|_| {
        let range = {
            let memory = Mapping::anon(3 * PAGE_SIZE, Prot::RW).unwrap();
            unsafe { memory.as_ptr::<u64>().write(7) };
            unsafe { memory.advise(Advice::DontNeed).unwrap() };
            assert_eq!(unsafe { memory.as_ptr::<u64>().read() }, 0);
            unsafe { memory.advise(Advice::PopulateWrite).unwrap() };
            memory.range()
        };
        mem::copy_from_self(&mut [0; 8], range.start) == Err(Errno::FAULT)
    });
    assert!(gone, "dropped, and still there");
}

#[test]
fn copies_stop_at_the_end() {
    let memory = Mapping::reserve(3 * PAGE_SIZE).unwrap();
    let first = memory.start()..memory.page(1);
    unsafe { mem::mprotect(first.clone(), Prot::RW).unwrap() };
    unsafe { (memory.start() as *mut u8).write_bytes(5, PAGE_SIZE) };
    let mut copy = vec![0; 2 * PAGE_SIZE];
    assert_eq!(mem::copy_from_self(&mut copy, memory.start()), Ok(PAGE_SIZE));
    assert!(copy[..PAGE_SIZE].iter().all(|&byte| byte == 5));
    unsafe { mem::map_anon_fixed(first, Prot::READ).unwrap() };
    assert_eq!(mem::copy_from_self(&mut copy[..8], memory.start()), Ok(8));
    assert_eq!(copy[..8], [0; 8]);
}

#[test]
fn vectored_advice() {
    let memory = Mapping::anon(8 * PAGE_SIZE, Prot::RW).unwrap();
    for page in 0..8 {
        unsafe { (memory.page(page) as *mut u8).write(1) };
    }
    let pidfd = mem::pidfd_self().unwrap();
    let ranges = [0, 2, 5].map(|page| IoVec { base: memory.page(page), len: PAGE_SIZE });
    assert_eq!(unsafe { mem::process_madvise(&pidfd, &ranges, Advice::DontNeed) }, Ok(3 * PAGE_SIZE));
    let left: Vec<u8> = (0..8).map(|page| unsafe { (memory.page(page) as *const u8).read() }).collect();
    assert_eq!(left, [0, 1, 0, 1, 1, 0, 1, 1]);
}
