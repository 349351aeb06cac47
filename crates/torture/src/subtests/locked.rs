//! Locked memory that grows as it moves: over memory that is out, and by several threads at once.

use crate::context::Context;
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0x10c4;
/// What moves, and what it is then.
const MOVED: usize = MIB;
const GROWN: usize = 3 * MIB;

type Call = fn(usize, usize, usize, i32, usize) -> Outcome<usize>;

/// `mlock-grows-over`: it moves to where other memory is, which is out.
///
/// *The story:* the kernel tells what ends there after it has filled what memory grows by. So the pages of
/// before were read for whoever fills it, and refused, for ever: mremap never returned, and could not be
/// killed.
///
/// *Another story:* so it was where the place is right behind where memory was, since that looked like growth
/// in place. It took threads that happen to have such places to find that.
pub fn grows_over(context: &mut Context) -> Outcome {
    for call in [sys::mremap as Call, sys::mremap_unheard as Call] {
        for on_fault in [false, true] {
            for is_right_behind in [false, true] {
                grow_over(context, call, on_fault, is_right_behind)?;
            }
        }
    }
    Ok(())
}

fn grow_over(context: &mut Context, call: Call, on_fault: bool, is_right_behind: bool) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let place = memory.pages() / 2;
    let before = place - if is_right_behind { MOVED / PAGE } else { 0 };
    let moving = if is_right_behind {
        let flags = PRIVATE | libc::MAP_FIXED;
        Memory::adopt(sys::mmap(memory.page(before), MOVED, RW, flags, -1)?, MOVED)
    } else {
        Memory::map(MOVED)?
    };
    pattern::fill_pages(&moving, 0..moving.pages(), SEED + 1);
    sys::mlock2(moving.base(), MOVED, on_fault)?;
    let (old, len) = moving.forget();
    let fixed = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let new = call(old, len, GROWN, fixed, memory.page(place))?;
    ensure!(new == memory.page(place), "it is elsewhere");
    let moved = Memory::adopt(new, GROWN);
    check_moved(&moved, SEED + 1)?;
    pattern::check_pages(&memory, 0..before, SEED, "before the place")?;
    let behind = place + moved.pages()..memory.pages();
    pattern::check_pages(&memory, behind, SEED, "behind the place")?;
    moved.forget();
    memory.unmap()
}

/// `mlock-grows-at-once`: threads have theirs moved, each again and again, some over memory of their own.
///
/// *The story:* one was let go on, and the next one when all was told that the first had to tell. That is
/// known when nobody has anything to tell, and the second one had: both hung.
pub fn grows_at_once(context: &mut Context) -> Outcome {
    const THREADS: usize = 6;
    const ROUNDS: usize = 10;
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let move_all = |thread: usize| -> Outcome {
        for round in 0..ROUNDS {
            let seed = SEED + (thread * ROUNDS + round) as u64;
            let moving = Memory::map(MOVED)?;
            pattern::fill_pages(&moving, 0..moving.pages(), seed);
            sys::mlock(moving.base(), MOVED)?;
            let target = Memory::map_with(GROWN, RW, PRIVATE)?;
            let is_fixed = (thread + round).is_multiple_of(2);
            if is_fixed {
                pattern::fill_pages(&target, 0..target.pages(), seed + 1);
            }
            let flags = if is_fixed { libc::MREMAP_FIXED } else { 0 } | libc::MREMAP_MAYMOVE;
            // So that it moves.
            let in_the_way = Memory::map_with(PAGE, libc::PROT_NONE, PRIVATE)?;
            let (old, len) = moving.forget();
            let moved = Memory::adopt(sys::mremap(old, len, GROWN, flags, target.base())?, GROWN);
            check_moved(&moved, seed)?;
            in_the_way.unmap()?;
            moved.unmap()?;
            if is_fixed {
                target.forget();
            } else {
                target.unmap()?;
            }
        }
        Ok(())
    };
    let move_all = &move_all;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || move_all(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a panic ends the process"))
    })?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "beside what moved")
}

fn check_moved(moved: &Memory, seed: u64) -> Outcome {
    pattern::check_pages(moved, 0..MOVED / PAGE, seed, "moved")?;
    pattern::check_zero(moved, MOVED / PAGE..moved.pages(), "what it grew by")
}
