//! A reserve of addresses: what lies in it, what stays out of the program's gaps, and what limits
//! do to it. One test, because a process has one reserve and one set of limits.
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block acts on memory the test mapped itself")]

use overspill_sys::alloc::ArenaAlloc;
use overspill_sys::mem::{Buffer, Mapping, Prot};
use overspill_sys::procfs::kernel_version;
use overspill_sys::uring::{Ring, Setup};
use overspill_sys::{AddressRange, PAGE_SIZE, reserve};
use std::alloc::{GlobalAlloc, Layout};

const MIB: usize = 1 << 20;

fn is_inside(range: &AddressRange) -> bool {
    let all = reserve::range();
    all.start <= range.start && range.end <= all.end
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 16).unwrap()
}

#[test]
fn own_mappings_lie_in_the_reserve_and_nowhere_else() {
    // Before there is one the kernel chooses, and such a mapping is unmapped for good.
    let before = Mapping::anon(MIB, Prot::RW).unwrap();
    assert!(!reserve::is_set_up());
    reserve::set_up(64 * MIB).unwrap();
    assert_eq!(reserve::range().len(), 64 * MIB);
    assert!(!is_inside(&before.range()));
    drop(before);
    // Whatever lies beside it, the kernel makes no mapping of the program's and its own one.
    for _ in 0..2 {
        let own = Mapping::anon(62 * MIB, Prot::RW).unwrap();
        let all = reserve::range();
        assert!(all.start < own.range().start && own.range().end < all.end);
    }

    // The story of the module: a gap that the program makes stays free whatever the heap does.
    let program = map_program(0, 40 * MIB, 0).unwrap();
    let (gap, len) = (program + 10 * MIB, 2 * MIB);
    assert_eq!(unsafe { libc::munmap(gap as *mut _, len) }, 0);
    let arena = ArenaAlloc::new();
    let block = grow(&arena, 20);
    arena.for_each_range(|range| assert!(is_inside(&range), "{range:x?}"));
    assert_eq!(map_program(gap, len, libc::MAP_FIXED_NOREPLACE), Some(gap));

    // The rings of io_uring, which take no address: with MAP_FIXED every agent once went over to threads.
    for _ in 0..20 {
        let ring = Ring::new(64, 64, Setup::empty()).unwrap();
        drop(ring);
    }
    // Since 6.14 they can be given memory: the gap that the kernel would choose stays free.
    if kernel_version() >= (6, 14, 0) {
        let gap = map_program(0, MIB, 0).unwrap();
        assert_eq!(unsafe { libc::munmap(gap as *mut _, MIB) }, 0);
        let ring = Ring::new(256, 2048, Setup::empty()).unwrap();
        assert_eq!(map_program(gap, MIB, libc::MAP_FIXED_NOREPLACE), Some(gap));
        drop(ring);
    }

    // What is freed can be had again, as often as one likes.
    unsafe { arena.dealloc(block, layout(20 * MIB)) };
    for _ in 0..20 {
        assert!(is_inside(&Mapping::anon(40 * MIB, Prot::RW).unwrap().range()));
        let block = grow(&arena, 10);
        unsafe { arena.dealloc(block, layout(10 * MIB)) };
    }

    // Limits that come down afterwards do not concern what was put aside; there, private memory
    // becomes shared memory.
    let mapped = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = mapped.split(' ').next().unwrap().parse().unwrap();
    set_limit(libc::RLIMIT_AS, pages * PAGE_SIZE as u64);
    let block = grow(&arena, 20);
    set_limit(libc::RLIMIT_DATA, 0);
    assert_eq!(map_program(0, MIB, 0), None);
    let other = grow(&arena, 8);
    unsafe { arena.dealloc(block, layout(20 * MIB)) };
    unsafe { arena.dealloc(other, layout(8 * MIB)) };
    set_limit(libc::RLIMIT_DATA, u64::MAX);
    set_limit(libc::RLIMIT_AS, u64::MAX);

    // A child has all but the gaps and what it is not to have.
    let kept = Mapping::anon(3 * MIB, Prot::RW).unwrap();
    let withheld = Buffer::new(8 * MIB).unwrap();
    assert!(is_inside(&kept.range()) && is_inside(&withheld.range()));
    let left = in_child(|| {
        unsafe { reserve::forget() };
        reserve::left_behind() / PAGE_SIZE
    });
    let others = left * PAGE_SIZE - kept.len();
    assert!((2 * PAGE_SIZE..=6 * MIB).contains(&others), "{others} bytes and what is kept");
    drop((kept, withheld));

    // A reserve that has no room: elsewhere, as before.
    let large = Mapping::anon(65 * MIB, Prot::RW).unwrap();
    assert!(!is_inside(&large.range()));
}

/// What a child of fork finds.
fn in_child(find: impl FnOnce() -> usize) -> usize {
    let mut pipe = [0; 2];
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let mut found = [0; size_of::<usize>()];
    if unsafe { libc::fork() } == 0 {
        found = find().to_ne_bytes();
        unsafe { libc::write(pipe[1], found.as_ptr().cast(), found.len()) };
        unsafe { libc::_exit(0) };
    }
    let read = unsafe { libc::read(pipe[0], found.as_mut_ptr().cast(), found.len()) };
    assert_eq!((read, unsafe { libc::wait(core::ptr::null_mut()) } > 0), (found.len() as isize, true));
    usize::from_ne_bytes(found)
}

/// A block of one MiB that grows to so many, beside smaller ones; its first and last words are kept.
fn grow(arena: &ArenaAlloc, mib: usize) -> *mut u8 {
    let mut block = unsafe { arena.alloc(layout(MIB)) };
    for mib in 1..=mib {
        if mib > 1 {
            block = unsafe { arena.realloc(block, layout((mib - 1) * MIB), mib * MIB) };
        }
        assert!(!block.is_null(), "{mib} MiB");
        let words = block.cast::<usize>();
        unsafe { words.add(mib * MIB / 8 - 1).write(mib) };
        for mib in 1..=mib {
            assert_eq!(unsafe { words.add(mib * MIB / 8 - 1).read() }, mib);
        }
        let small = unsafe { arena.alloc(layout(1000)) };
        assert!(is_inside(&(small as usize..small as usize + 1000)));
    }
    block
}

fn map_program(address: usize, len: usize, flags: i32) -> Option<usize> {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags);
    let start = unsafe { libc::mmap(address as *mut _, len, prot, flags, -1, 0) };
    (start != libc::MAP_FAILED).then_some(start as usize)
}

fn set_limit(resource: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: u64::MAX };
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}
