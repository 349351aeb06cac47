//! The arena as the allocator of a whole program (this test), and its edges.
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block acts on memory the test allocated itself")]

use overspill_sys::alloc::{ArenaAlloc, SMALL_MAX};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;

#[global_allocator]
static ARENA: ArenaAlloc = ArenaAlloc::new();

#[test]
fn a_program_lives_on_it() {
    let mut map = BTreeMap::new();
    for key in 0..20_000u64 {
        map.insert(key.wrapping_mul(0x9E37_79B9_7F4A_7C15), vec![key; key as usize % 50]);
    }
    assert!(map.values().all(|values| values.iter().all(|value| *value as usize % 50 == values.len())));
    let address = std::ptr::from_ref(map.values().next().unwrap()) as usize;
    assert!(ARENA.contains(address));
    let on_stack = 0u8;
    assert!(!ARENA.contains(&raw const on_stack as usize));
    let threads: Vec<_> = (0..4)
        .map(|seed: usize| {
            std::thread::spawn(move || {
                let mut kept: Vec<Vec<u8>> = Vec::new();
                for round in 0..20_000usize {
                    let size = (round * 7919 + seed * 104_729) % 3000;
                    kept.push(vec![size as u8; size]);
                    if kept.len() > 100 {
                        let gone = kept.swap_remove(round % 100);
                        assert!(gone.iter().all(|byte| *byte == gone.len() as u8));
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn layouts_are_honoured() {
    let arena = ArenaAlloc::new();
    let mut blocks = Vec::new();
    for size in [1, 8, 16, 17, 100, 4095, 4096, 4097, SMALL_MAX, SMALL_MAX + 1, 1 << 20] {
        for align in [1, 8, 16, 32, 64, 512, 4096, 8192, 1 << 21] {
            let layout = Layout::from_size_align(size, align).unwrap();
            let block = unsafe { arena.alloc_zeroed(layout) };
            assert!(!block.is_null() && (block as usize).is_multiple_of(align), "{size} {align}");
            let bytes = unsafe { std::slice::from_raw_parts_mut(block, size) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(blocks.len() as u8);
            blocks.push((block, layout));
        }
    }
    for (index, (block, layout)) in blocks.iter().enumerate() {
        let bytes = unsafe { std::slice::from_raw_parts(*block, layout.size()) };
        assert!(bytes.iter().all(|byte| *byte == index as u8));
        assert!(arena.contains(*block as usize) && arena.contains(*block as usize + layout.size() - 1));
    }
    let full = arena.mapped_bytes();
    for (block, layout) in blocks {
        unsafe { arena.dealloc(block, layout) };
    }
    assert!(arena.mapped_bytes() < full);
    let mut ranges = 0;
    arena.for_each_range(|range| ranges += range.len());
    assert_eq!(ranges, arena.mapped_bytes());
}

#[test]
fn blocks_grow_and_shrink_with_their_content() {
    let arena = ArenaAlloc::new();
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    let mut size = 10;
    let mut block = unsafe { arena.alloc(layout(size)) };
    unsafe { block.write_bytes(3, size) };
    for new in [12, 40, 5000, 40_000, 400_000, 40_000_000, 100_000, 20_000, 16] {
        block = unsafe { arena.realloc(block, layout(size), new) };
        assert!(!block.is_null());
        let kept = unsafe { std::slice::from_raw_parts(block, size.min(new)) };
        assert!(kept.iter().all(|byte| *byte == 3), "{size} to {new}");
        size = new;
        unsafe { block.write_bytes(3, size) };
    }
    unsafe { arena.dealloc(block, layout(size)) };
    // Freed blocks are used again.
    let before = arena.mapped_bytes();
    for _ in 0..100_000 {
        unsafe { arena.dealloc(arena.alloc(layout(200)), layout(200)) };
    }
    assert_eq!(arena.mapped_bytes(), before);
    assert!(unsafe { arena.alloc(layout(isize::MAX as usize - 7)) }.is_null());
}
