//! mremap of several mappings at once (Linux 6.17), with a hole between them; and of what would be one
//! mapping, were it not managed in part.
//!
//! *The story:* the kernel moves none that is registered with userfaultfd so. A range of which a part
//! was read-only could not be moved (EFAULT), and what lay before the first managed mapping was gone.

use std::time::Instant;

use crate::context::Context;
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0x6170;
/// What lies at the target of the hole.
const OTHER: u64 = 0x6171;
const MOVE: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
/// Pages of the front part, which is not managed.
const FRONT: usize = 4;

/// `mremap-into-hole`: one thread moves a block away, another one moves its own to where that was, before the
/// first one has told that its old place is free.
///
/// *The story:* that end was taken for the end of the second block: what of it was on swap read zero, 8672
/// and 15075 pages in two runs of 12 rounds of twice 48 MiB.
pub fn into_hole(context: &mut Context) -> Outcome {
    let blocks = [context.subject(SEED)?, context.subject(OTHER)?];
    let (len, pages) = (blocks[0].len(), blocks[0].pages());
    // Both places and a third, each the target of whose turn it is.
    let reserved = PRIVATE | libc::MAP_NORESERVE;
    let spare = Memory::map_with(len, libc::PROT_NONE, reserved)?.forget().0;
    let [first, second] = blocks.map(|block| block.forget().0);
    let (mut places, mut hole) = ([first, second], spare);
    let until = context.deadline();
    for round in 0.. {
        if round >= 8 && Instant::now() > until {
            break;
        }
        for (place, seed) in places.into_iter().zip([SEED, OTHER]) {
            let block = Memory::adopt(place, len);
            pattern::check_pages(&block, 0..pages, seed, &format!("round {round}"))?;
            block.forget();
        }
        let [leaving, arriving] = places;
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| sys::mremap(leaving, len, len, MOVE, hole).map(drop));
            while sys::resident_pages(leaving, PAGE).is_ok() && !mover.is_finished() {
                std::hint::spin_loop();
            }
            sys::mremap(arriving, len, len, MOVE, leaving)?;
            mover.join().expect("it does not panic")
        })?;
        (places, hole) = ([hole, leaving], arriving);
        // Threads' stacks and the like stay away from it.
        sys::mmap(hole, len, libc::PROT_NONE, reserved | libc::MAP_FIXED, -1)?;
    }
    places.into_iter().try_for_each(|place| Memory::adopt(place, len).unmap())
}

/// `mremap-several`: parts that differ are moved in one call.
pub fn several(context: &mut Context) -> Outcome {
    let moves = moves_several()?;
    let own = libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // What others may share is not managed, nor what may be executed, too. Of that the pages move: whoever
    // moves its old place once more loses them.
    let shared = (RW, libc::MAP_SHARED | own);
    let executable = (RW | libc::PROT_EXEC, libc::MAP_PRIVATE | own);
    let dontunmap = libc::MREMAP_DONTUNMAP;
    for (flags, (prot, front)) in [(0, shared), (dontunmap, shared), (0, executable), (dontunmap, executable)]
    {
        let memory = context.subject(SEED)?;
        context.cool(&memory)?;
        let (base, len, quarter) = (memory.base(), memory.len(), memory.pages() / 4);
        // First what is not managed, then plain memory, some that is read-only, a hole, and some more.
        let hole = 2 * quarter + 1..2 * quarter + 10;
        sys::mmap(base, FRONT * PAGE, prot, front, -1)?;
        pattern::fill_pages(&memory, 0..FRONT, SEED);
        sys::mprotect(memory.page(quarter), quarter * PAGE, libc::PROT_READ)?;
        sys::munmap(memory.page(hole.start), hole.len() * PAGE)?;
        sys::madvise(memory.page(3 * quarter), quarter * PAGE, libc::MADV_DONTDUMP)?;
        let target = Memory::map_with(len, libc::PROT_NONE, PRIVATE | libc::MAP_NORESERVE)?;
        sys::mprotect(target.page(hole.start), hole.len() * PAGE, RW)?;
        pattern::fill_pages(&target, hole.clone(), OTHER);
        let moved =
            context.under_pressure(|_| Ok(sys::mremap(base, len, len, MOVE | flags, target.base())))?;
        ensure!(moved.is_ok() == moves, "{moved:?}, and of memory that is not managed: {moves}");
        let parts = [0..hole.start, hole.end..memory.pages()];
        let place = if moves { &target } else { &memory };
        parts.iter().try_for_each(|part| pattern::check_pages(place, part.clone(), SEED, "moved"))?;
        if moves {
            left_behind(&memory, hole.clone(), flags != 0)?;
        }
        pattern::check_pages(&target, hole, OTHER, "at the target of the hole")?;
        memory.unmap()?;
    }
    Ok(())
}

/// Pages that are mapped behind what is managed: too few to be looked for.
const TAIL: usize = 16;

/// `mremap-tail`: memory that is managed and a little that was mapped right behind it, or before it, are
/// remapped in one call: to grow, to move, to a given place, to less, and so that something stays.
///
/// *The story:* to the kernel these are two mappings, and it remaps no two (EFAULT); bare they are one.
pub fn tail(context: &mut Context) -> Outcome {
    let dontunmap = libc::MREMAP_DONTUNMAP | libc::MREMAP_MAYMOVE;
    // From then on memory is managed.
    context.press()?;
    // Flags, and how many pages more there are to be; none: in place, with room behind.
    for (flags, more) in [
        (0, 1000),
        (libc::MREMAP_MAYMOVE, 0),
        (libc::MREMAP_MAYMOVE, 10_000),
        (MOVE, 0),
        (MOVE, 10_000),
        (MOVE, -100),
        (dontunmap, 0),
        (dontunmap | MOVE, 0),
    ] {
        one_with_a_tail(context, flags, more, false)?;
        if more > 0 {
            one_with_a_tail(context, flags, more, true)?;
        }
    }
    Ok(())
}

fn one_with_a_tail(context: &mut Context, flags: i32, more: isize, is_before: bool) -> Outcome {
    let what = format!("flags {flags}, {more} pages more, the tail before: {is_before}");
    let managed = context.options.mib * MIB / 8 / PAGE;
    let pages = managed + TAIL;
    // Room behind it, and only there where it is to grow in place.
    let wide = Memory::map_with(2 * pages * PAGE, libc::PROT_NONE, PRIVATE | libc::MAP_NORESERVE)?;
    let own = PRIVATE | libc::MAP_FIXED;
    let (large, small) = if is_before { (TAIL..pages, 0..TAIL) } else { (0..managed, managed..pages) };
    sys::mmap(wide.page(large.start), managed * PAGE, RW, own, -1)?;
    pattern::fill_pages(&wide, large.clone(), SEED);
    sys::mmap(wide.page(small.start), TAIL * PAGE, RW, own, -1)?;
    pattern::fill_pages(&wide, small, SEED);
    let (base, len) = wide.forget();
    let memory = Memory::adopt(base, pages * PAGE);
    let behind = Memory::adopt(base + pages * PAGE, len - pages * PAGE);
    if flags == 0 || more == 0 {
        behind.unmap()?;
    } else {
        // What is in the way is unmapped later.
        behind.forget();
    }
    let new_pages = pages.saturating_add_signed(more);
    let new_len = new_pages * PAGE;
    let target = Memory::map_with(new_len, libc::PROT_NONE, PRIVATE | libc::MAP_NORESERVE)?;
    context.sabotage(&memory);
    let (from, bytes) = memory.forget();
    let moved = sys::mremap(from, bytes, new_len, flags, target.base());
    let moved = moved.map_err(|failure| crate::outcome::Failure(format!("{what}: {failure}")))?;
    if flags & libc::MREMAP_FIXED != 0 {
        ensure!(moved == target.base(), "{what}: it is elsewhere");
        target.forget();
    }
    let moved = Memory::adopt(moved, new_len);
    let there = pages.min(new_pages);
    pattern::check_pages(&moved, 0..there, SEED, &what)?;
    pattern::check_zero(&moved, there..new_pages, &what)?;
    pattern::fill_pages(&moved, there..new_pages, SEED);
    let stays = flags & libc::MREMAP_DONTUNMAP != 0;
    if stays {
        let left = Memory::adopt(from, bytes);
        pattern::check_zero(&left, 0..pages, &what)?;
    } else if moved.base() != from {
        ensure!(sys::resident_pages(from, PAGE).is_err(), "{what}: something stayed");
    }
    context.cool(&moved)?;
    pattern::check_pages(&moved, 0..new_pages, SEED, &what)?;
    if !(flags == 0 || more == 0) {
        sys::munmap(base + bytes, len - bytes)?;
    }
    Ok(())
}

/// Looks at what a move has left: nothing, or memory that nobody has touched.
fn left_behind(memory: &Memory, hole: std::ops::Range<usize>, stays: bool) -> Outcome {
    for page in (FRONT..memory.pages()).filter(|page| !hole.contains(page)) {
        let is_there = sys::resident_pages(memory.page(page), PAGE).is_ok();
        ensure!(is_there == stays, "page {page} of {} that moved away", memory.pages());
    }
    if stays {
        pattern::check_zero(memory, FRONT..hole.start, "left behind")?;
    }
    Ok(())
}

/// Does this kernel move two mappings at once? Of those that others may share none is managed.
fn moves_several() -> Outcome<bool> {
    let [two, target] =
        [(); 2].map(|()| Memory::map_with(2 * PAGE, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS));
    let (two, target) = (two?, target?);
    sys::mprotect(two.page(1), PAGE, libc::PROT_READ)?;
    Ok(sys::mremap(two.base(), two.len(), two.len(), MOVE, target.base()).is_ok())
}
