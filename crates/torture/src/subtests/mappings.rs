//! munmap, MAP_FIXED and mremap on memory that is out of RAM: what goes must be gone, what stays
//! must be right, what moves must arrive, and what is new must be zero.

use crate::context::{Context, parallel};
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW};
use crate::outcome::Outcome;
use crate::rng::Rng;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0x3a9;
/// Pages of other memory behind the target of a move; more than it is cut by.
const BEHIND: usize = 16;

/// `munmap`: parts of cold memory are unmapped at the head, at the tail and as holes, mapped again
/// at the same place, and are zero then; the rest is right.
pub fn munmap(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let pages = memory.pages();
    let holes = [0..3, 16..17, 100..733, pages / 2 + 7..pages / 2 + 512, pages - 5..pages];
    context.cool(&memory)?;
    for hole in &holes {
        sys::munmap(memory.page(hole.start), hole.len() * PAGE)?;
    }
    check_around(&memory, &holes, SEED)?;
    for hole in &holes {
        let again = sys::mmap(
            memory.page(hole.start),
            hole.len() * PAGE,
            RW,
            PRIVATE | libc::MAP_FIXED_NOREPLACE,
            -1,
        )?;
        ensure!(again == memory.page(hole.start), "mapped at {again:#x}, not where asked");
        pattern::check_zero(&memory, hole.clone(), "mapped again")?;
        pattern::fill_pages(&memory, hole.clone(), SEED + 1);
    }
    context.cool(&memory)?;
    for hole in &holes {
        pattern::check_pages(&memory, hole.clone(), SEED + 1, "filled after mapping again")?;
    }
    check_around(&memory, &holes, SEED)?;
    let (base, len) = memory.forget();
    sys::munmap(base, len)?;
    sys::mmap(base, len, RW, PRIVATE | libc::MAP_FIXED_NOREPLACE, -1)?;
    let memory = Memory::adopt(base, len);
    pattern::check_zero(&memory, 0..pages, "all of it mapped again")
}

fn check_around(memory: &Memory, holes: &[std::ops::Range<usize>], seed: u64) -> Outcome {
    let ends = holes.iter().skip(1).map(|hole| hole.start).chain([memory.pages()]);
    holes.iter().zip(ends).try_for_each(|(hole, end)| {
        pattern::check_pages(memory, hole.end.min(end)..end, seed, "between the holes")
    })
}

/// `munmap-churn`: threads map, fill, check, unmap in parts and map again at the same addresses,
/// all the time.
pub fn munmap_churn(context: &mut Context) -> Outcome {
    let deadline = context.deadline();
    context.under_pressure(|context| {
        parallel(context.options.threads, |lane| {
            let mut rng = context.rng(lane);
            while std::time::Instant::now() < deadline {
                churn_once(context, &mut rng)?;
            }
            Ok(())
        })
    })
}

/// `munmap-again`: threads unmap blocks that are just going cold, map others at the same addresses
/// at once and fill them. What was ordered for the old pages must not reach the new ones.
pub fn munmap_again(context: &mut Context) -> Outcome {
    const BLOCKS: usize = 12;
    let pages = context.options.mib * MIB / 2 / PAGE / context.options.threads / BLOCKS;
    let deadline = context.deadline();
    parallel(context.options.threads, |lane| {
        let mut rng = context.rng(lane);
        let mut blocks = Vec::new();
        for _ in 0..BLOCKS {
            blocks.push((Memory::map(pages * PAGE)?, 0));
        }
        while std::time::Instant::now() < deadline {
            let (old, seed) = blocks.remove(rng.below(BLOCKS));
            // Half of them are unmapped as they are, which may be on their way out.
            if seed != 0 && rng.below(2) == 0 {
                pattern::check_pages(&old, 0..pages, seed, "mapped where others were")?;
            }
            let (base, len) = old.forget();
            sys::munmap(base, len)?;
            // Another thread may have been given the place meanwhile.
            let again = sys::mmap(base, len, RW, PRIVATE | libc::MAP_FIXED_NOREPLACE, -1);
            let block = again.map(|base| Memory::adopt(base, len)).or_else(|_| Memory::map(len))?;
            let seed = rng.next() | 1;
            pattern::fill_pages(&block, 0..pages, seed);
            context.sabotage(&block);
            blocks.push((block, seed));
        }
        Ok(())
    })
}

fn churn_once(context: &Context, rng: &mut Rng) -> Outcome {
    let seed = rng.next();
    let memory = Memory::map((1 + rng.below(8 * MIB / PAGE)) * PAGE)?;
    pattern::check_zero(&memory, 0..memory.pages(), "fresh")?;
    pattern::fill_pages(&memory, 0..memory.pages(), seed);
    context.sabotage(&memory);
    let (start, end) = (rng.below(memory.pages()), rng.below(memory.pages()));
    let hole = start.min(end)..start.max(end) + 1;
    let flags = if rng.below(2) == 0 {
        sys::munmap(memory.page(hole.start), hole.len() * PAGE)?;
        // Another thread may have been given the hole meanwhile: then it stays with that thread.
        PRIVATE | libc::MAP_FIXED_NOREPLACE
    } else {
        PRIVATE | libc::MAP_FIXED
    };
    let (base, len) = memory.forget();
    let refilled = sys::mmap(base + hole.start * PAGE, hole.len() * PAGE, RW, flags, -1);
    let taken = refilled.is_err();
    let part = |first: usize, end: usize| Memory::adopt(base + first * PAGE, (end - first) * PAGE);
    if !taken {
        let again = part(hole.start, hole.end);
        pattern::check_zero(&again, 0..hole.len(), "mapped again")?;
        again.unmap()?;
    }
    check_and_unmap(part(0, hole.start), 0, seed)?;
    check_and_unmap(part(hole.end, len / PAGE), hole.end, seed)?;
    Ok(())
}

fn check_and_unmap(memory: Memory, identity: usize, seed: u64) -> Outcome {
    if memory.pages() == 0 {
        memory.forget();
        return Ok(());
    }
    for page in 0..memory.pages() {
        pattern::check_page(&memory, page, seed, identity + page, "beside the hole")?;
    }
    memory.unmap()
}

/// `fixed`: new mappings, anonymous and of a file, are put over parts of cold memory.
pub fn fixed(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let file = sys::scratch_file(&context.options.directory, 0)?;
    file.set_len(64 * PAGE as u64)?;
    let quarter = memory.pages() / 4;
    for round in 0..3 {
        context.cool(&memory)?;
        let over = quarter + round..quarter + round + 700;
        sys::mmap(memory.page(over.start), over.len() * PAGE, RW, PRIVATE | libc::MAP_FIXED, -1)?;
        pattern::check_zero(&memory, over.clone(), "new memory over old")?;
        pattern::fill_pages(&memory, over, SEED);
    }
    context.cool(&memory)?;
    let over = 2 * quarter..2 * quarter + 64;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    sys::mmap(memory.page(over.start), over.len() * PAGE, RW, libc::MAP_SHARED | libc::MAP_FIXED, fd)?;
    pattern::check_zero(&memory, over.clone(), "file over memory")?;
    pattern::fill_pages(&memory, over.clone(), SEED);
    let mut bytes = vec![0; 3 * PAGE];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, PAGE as u64)?;
    pattern::check_bytes(SEED, (over.start + 1) * PAGE, &bytes, "the file under the memory")?;
    context.cool(&memory)?;
    sys::mmap(memory.page(over.start), over.len() * PAGE, RW, PRIVATE | libc::MAP_FIXED, -1)?;
    pattern::check_zero(&memory, over.clone(), "memory over file")?;
    pattern::fill_pages(&memory, over, SEED);
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "patched")
}

/// `mremap`: cold memory grows, shrinks and moves, to places of the kernel's and of our choice, by
/// whole pages that are no multiple of 64 KiB or 2 MiB. Other memory behind stays as it is.
pub fn mremap(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let (pages, (mut base, mut len)) = (memory.pages(), memory.forget());
    // (new length, shift of a target of our choice in pages or none)
    let steps = [
        (len + 3 * PAGE, None),
        (len + 3 * PAGE, Some(7)),
        (len - 13 * PAGE, None),
        (len - 13 * PAGE, Some(511)),
        (len + MIB + PAGE, Some(1)),
        (len / 2 + PAGE, Some(33)),
        (len, None),
    ];
    let mut filled = pages;
    for (step, (new, shift)) in steps.into_iter().enumerate() {
        let before = Memory::adopt(base, len);
        context.cool(&before)?;
        before.forget();
        base = match shift {
            None => sys::mremap(base, len, new, libc::MREMAP_MAYMOVE, 0)?,
            Some(shift) => {
                let target = Memory::map(new + (shift + BEHIND) * PAGE)?.forget().0;
                sys::munmap(target, shift * PAGE)?;
                let target = target + shift * PAGE;
                let behind = Memory::adopt(target + new, BEHIND * PAGE);
                pattern::fill_pages(&behind, 0..BEHIND, SEED + 1);
                context.cool(&behind)?;
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                let moved = sys::mremap(base, len, new, flags, target)?;
                pattern::check_pages(&behind, 0..BEHIND, SEED + 1, "behind the target")?;
                moved
            }
        };
        len = new;
        filled = filled.min(len / PAGE);
        let after = Memory::adopt(base, len);
        pattern::check_pages(&after, 0..filled, SEED, &format!("after mremap {step}"))?;
        pattern::check_zero(&after, filled..len / PAGE, "grown by mremap")?;
        after.forget();
    }
    in_place(context, base, len)?;
    sys::munmap(base, len)
}

/// Grows into a hole that is left behind the memory on purpose, then shrinks back.
fn in_place(context: &mut Context, base: usize, len: usize) -> Outcome {
    let wide = Memory::map(2 * len)?.forget().0;
    sys::mremap(base, len, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, wide)?;
    sys::munmap(wide + len, len)?;
    let memory = Memory::adopt(wide, len);
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    context.cool(&memory)?;
    for grown in [len + PAGE, len + 17 * PAGE, 2 * len] {
        let at = sys::mremap(wide, memory.len(), grown, 0, 0)?;
        ensure!(at == wide, "moved, though it was to grow where it is");
        let whole = Memory::adopt(wide, grown);
        pattern::check_zero(&whole, len / PAGE..grown / PAGE, "grown in place")?;
        pattern::fill_pages(&whole, len / PAGE..grown / PAGE, SEED);
        context.cool(&whole)?;
        pattern::check_pages(&whole, 0..whole.pages(), SEED, "grown in place")?;
        whole.forget();
        sys::mremap(wide, grown, len, 0, 0)?;
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "shrunk in place")?;
    }
    let (_, len) = memory.forget();
    sys::mremap(wide, len, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, base).map(drop)
}

/// `mremap-dontunmap`: pages leave, the old range stays mapped and is zero.
pub fn mremap_dontunmap(context: &mut Context) -> Outcome {
    let old = context.subject(SEED)?;
    for round in 0..3 {
        context.cool(&old)?;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        let new = Memory::adopt(sys::mremap(old.base(), old.len(), old.len(), flags, 0)?, old.len());
        if round == 1 {
            context.cool(&new)?;
        }
        pattern::check_pages(&new, 0..new.pages(), SEED, "moved away")?;
        pattern::check_zero(&old, 0..old.pages(), "left behind")?;
        pattern::fill_pages(&old, 0..old.pages(), SEED);
    }
    Ok(())
}

/// `mremap-churn`: threads move, grow and shrink their memory all the time, as a growing realloc does.
pub fn mremap_churn(context: &mut Context) -> Outcome {
    let deadline = context.deadline();
    context.under_pressure(|context| {
        parallel(context.options.threads / 2 + 1, |lane| {
            let mut rng = context.rng(lane);
            let memory = Memory::map(MIB)?;
            pattern::fill_pages(&memory, 0..memory.pages(), SEED);
            let (mut base, mut len) = memory.forget();
            while std::time::Instant::now() < deadline {
                let new = (1 + rng.below(4 * MIB / PAGE)) * PAGE;
                base = sys::mremap(base, len, new, libc::MREMAP_MAYMOVE, 0)?;
                let memory = Memory::adopt(base, new);
                let kept = len.min(new) / PAGE;
                pattern::check_pages(&memory, 0..kept, SEED, "kept by mremap")?;
                pattern::check_zero(&memory, kept..new / PAGE, "grown by mremap")?;
                pattern::fill_pages(&memory, kept..new / PAGE, SEED);
                context.sabotage(&memory);
                len = memory.forget().1;
            }
            sys::munmap(base, len)
        })
    })
}
