//! Memory that changes in the very moment in which a pager comes to know of it: it must not notice.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::context::{Context, parallel};
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW, WORDS};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0xad0b;
/// Fresh memory that one thread maps at a time, and how many such pieces it keeps.
const FRESH_BYTES: usize = 2 * MIB;
const FRESH_KEPT: usize = 24;
/// Arenas that grow at the same time, and by how much: as malloc's do.
const ARENAS: usize = 4;
const GROWTH_PAGES: usize = 33;
/// A piece in which `holes` opens one, the pages of the hole, for how long, and how many pieces a
/// thread keeps.
const HOLED_PAGES: usize = 1024;
const HOLE: Range<usize> = 256..768;
const HOLING: Duration = Duration::from_millis(1);
const HOLED_KEPT: usize = 12;
/// The order in which `zero-stores` goes through its pages: by this step, a prime.
const STEP: usize = 7919;
/// One page in so many stays as it was read: zero.
const NEVER_STORED: usize = 7;
/// A mapping is replaced by a new one, of which nobody knows yet, after so many changes.
const CHANGES: usize = 50;

/// `mremap-adopted`: threads grow, shrink and move young mappings without pause while another maps
/// fresh memory, so that a pager looks for new mappings all the time. The kernel refuses (EFAULT)
/// to remap a range that was split in two.
///
/// It also refuses every transfer until the thread whose call changed the address space runs again:
/// beside other work that takes as long as it takes, and the budget cannot be kept meanwhile.
pub fn mremap(context: &mut Context) -> Outcome {
    let subject = context.subject(SEED)?;
    context.cool(&subject)?;
    let deadline = context.deadline();
    let (threads, stop) = (context.options.threads, AtomicBool::new(false));
    let outcome = parallel(threads + 1, |lane| {
        let outcome = if lane == threads {
            map_fresh(&stop)
        } else {
            let mut rng = context.rng(lane);
            let mut round = || {
                let resized = resize_young(&mut rng);
                resized.map(|()| !stop.load(Relaxed) && Instant::now() < deadline)
            };
            loop {
                match round() {
                    Ok(true) => {}
                    end => break end.map(drop),
                }
            }
        };
        stop.store(true, Relaxed);
        outcome
    });
    outcome?;
    context.cool(&subject)?;
    pattern::check_pages(&subject, 0..subject.pages(), SEED, "beside it")
}

fn map_fresh(stop: &AtomicBool) -> Outcome {
    let mut kept = VecDeque::new();
    while !stop.load(Relaxed) {
        let memory = Memory::map(FRESH_BYTES)?;
        pattern::fill_pages(&memory, 0..memory.pages(), SEED);
        kept.push_back(memory);
        if kept.len() > FRESH_KEPT
            && let Some(oldest) = kept.pop_front()
        {
            pattern::check_pages(&oldest, 0..oldest.pages(), SEED, "fresh")?;
        }
    }
    Ok(())
}

/// One mapping's life: its first page carries a pattern, what is new is zero.
fn resize_young(rng: &mut crate::rng::Rng) -> Outcome {
    let memory = Memory::map(MIB)?;
    let seed = rng.next();
    pattern::fill_page(&memory, 0, seed, 0);
    let (mut base, mut len) = memory.forget();
    for _ in 0..CHANGES {
        let new = (1 + rng.below(2 * MIB / PAGE)) * PAGE;
        base = sys::mremap(base, len, new, libc::MREMAP_MAYMOVE, 0)?;
        len = new;
    }
    let memory = Memory::adopt(base, len);
    pattern::check_page(&memory, 0, seed, 0, "kept by mremap")?;
    pattern::check_zero(&memory, 1..memory.pages(), "grown by mremap")?;
    memory.unmap()
}

/// `grown-read-only`: cold memory grows by mremap, and what is new is made read-only before anybody
/// touches it.
///
/// *The story:* the kernel extends the registration with the mapping, so a touch of what is new is
/// reported; it was in no region yet, was no candidate for one, and the thread was sent to try
/// again, for ever.
pub fn grown_read_only(context: &mut Context) -> Outcome {
    let mut memory = context.subject(SEED)?;
    for protection in [libc::PROT_READ, libc::PROT_READ | libc::PROT_EXEC, RW | libc::PROT_EXEC] {
        context.cool(&memory)?;
        let (base, len) = memory.forget();
        let base = sys::mremap(base, len, len + MIB, libc::MREMAP_MAYMOVE, 0)?;
        sys::mprotect(base + len, MIB, protection)?;
        memory = Memory::adopt(base, len + MIB);
        pattern::check_zero(&memory, len / PAGE..memory.pages(), "grown and protected")?;
        sys::mprotect(base + len, MIB, RW)?;
        pattern::fill_pages(&memory, len / PAGE..memory.pages(), SEED);
    }
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "grown three times")
}

/// `arenas`: threads grow their memory as malloc does, by making a reservation accessible piece by
/// piece, together more than the budget; take the right to touch one half of it away and give it
/// back; give that half up and grow anew.
///
/// *The stories:* a mapping that another thread grew between the list of mappings and its
/// registration was left for later, and what was left was taken for memory that cannot be managed:
/// 24 of 48 MiB at the first look, 20 MiB more 20 ms later. And what a managed arena grew by was
/// found by the next look only: up to 88 MiB in a budget of 64. Its reservation is managed with it
/// now.
pub fn arenas(context: &mut Context) -> Outcome {
    let bytes = context.options.mib * MIB / ARENAS;
    parallel(ARENAS, |lane| {
        let seed = SEED + lane as u64;
        let arena = Memory::map_with(bytes, libc::PROT_NONE, PRIVATE | libc::MAP_NORESERVE)?;
        let (pages, half) = (arena.pages(), arena.pages() / 2);
        let (upper, upper_bytes) = (arena.page(half), (pages - half) * PAGE);
        grow(&arena, 0..pages, seed)?;
        context.sabotage(&arena);
        pattern::check_pages(&arena, 0..pages, seed, "grown piece by piece")?;
        sys::mprotect(upper, upper_bytes, libc::PROT_NONE)?;
        pattern::check_pages(&arena, 0..half, seed, "beside memory that became inaccessible")?;
        sys::mprotect(upper, upper_bytes, RW)?;
        pattern::check_pages(&arena, half..pages, seed, "inaccessible for a while")?;
        sys::mmap(upper, upper_bytes, libc::PROT_NONE, PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED, -1)?;
        grow(&arena, half..pages, !seed)?;
        pattern::check_pages(&arena, 0..half, seed, "below an arena's new end")?;
        pattern::check_pages(&arena, half..pages, !seed, "given up and grown anew")
    })
}

/// Makes pages accessible and fills them, piece by piece.
fn grow(arena: &Memory, pages: Range<usize>, seed: u64) -> Outcome {
    let mut done = pages.start;
    while done < pages.end {
        let end = (done + GROWTH_PAGES).min(pages.end);
        sys::mprotect(arena.page(done), (end - done) * PAGE, RW)?;
        pattern::check_zero(arena, done + GROWTH_PAGES / 2..end, "just become accessible")?;
        pattern::fill_pages(arena, done..end, seed);
        done = end;
    }
    Ok(())
}

/// `holes`: threads unmap a part of young mappings and map another in its place, over and over,
/// while the mappings are found.
///
/// *The story:* the kernel registers what is in a range, holes or not. What came into the hole
/// after that was not registered, and taken for managed memory: its pages were moved out, nobody
/// was told of the next touches, and they found zeroes.
pub fn holes(context: &mut Context) -> Outcome {
    let deadline = context.deadline();
    context.under_pressure(|context| {
        parallel(context.options.threads, |lane| {
            let (mut rng, mut kept) = (context.rng(lane), VecDeque::new());
            while Instant::now() < deadline {
                let (memory, seed) = (holed()?, rng.next());
                pattern::fill_pages(&memory, 1..HOLED_PAGES, seed);
                context.sabotage(&memory);
                kept.push_back((memory, seed));
                if kept.len() > HOLED_KEPT
                    && let Some((oldest, seed)) = kept.pop_front()
                {
                    pattern::check_pages(&oldest, 1..HOLED_PAGES, seed, "found while it had holes")?;
                }
            }
            Ok(())
        })
    })
}

/// A mapping that is full again after a hole was in it many times. Its first page is read-only and
/// keeps it apart from others.
fn holed() -> Outcome<Memory> {
    let memory = Memory::map_unheard(HOLED_PAGES * PAGE)?;
    sys::mprotect(memory.base(), PAGE, libc::PROT_READ)?;
    pattern::fill_pages(&memory, 1..HOLE.start, SEED);
    let (hole, bytes) = (memory.page(HOLE.start), HOLE.len() * PAGE);
    let end = Instant::now() + HOLING;
    while Instant::now() < end {
        sys::munmap(hole, bytes)?;
        // Another thread may be given the hole meanwhile: then this one is left as it is, and another made.
        if sys::mmap(hole, bytes, RW, PRIVATE | libc::MAP_FIXED_NOREPLACE, -1).is_err() {
            let (base, len) = memory.forget();
            sys::munmap(base, hole - base)?;
            sys::munmap(hole + bytes, base + len - hole - bytes)?;
            return holed();
        }
    }
    Ok(memory)
}

/// `zero-stores`: threads store to memory that was only read so far, which is the kernel's zero
/// page, in the moment in which it is found and its pages are taken away. Mapped by bare system
/// calls, so that it is not found before.
///
/// *The story:* a store to a zero page raises no fault that anybody hears of, so that memory
/// adopted with zero pages in view filled up unseen: 69 to 126 MiB in a budget of 64. They are
/// taken out of view now, beside the stores; none may be lost.
pub fn zero_stores(context: &mut Context) -> Outcome {
    let (deadline, threads) = (context.deadline(), context.options.threads);
    for round in 1.. {
        let memory = Memory::map_unheard(context.options.mib * MIB)?;
        let share = memory.pages() / threads;
        ensure!(!share.is_multiple_of(STEP), "{share} pages a thread: the order would leave pages out");
        parallel(threads, |lane| {
            pattern::check_zero(&memory, lane * share..(lane + 1) * share, "read before anything was stored")
        })?;
        let value =
            |page: usize| if page.is_multiple_of(NEVER_STORED) { 0 } else { (round << 32) + page as u64 };
        let words = |lane: usize| [lane, WORDS - 1];
        parallel(threads, |lane| {
            let pages = (0..share).map(|index| lane + threads * (index * STEP % share));
            for page in pages.filter(|&page| value(page) != 0) {
                words(lane).iter().for_each(|&index| memory.word(page, index).store(value(page), Relaxed));
            }
            Ok(())
        })?;
        context.sabotage(&memory);
        for page in 0..share * threads {
            for index in (0..WORDS).step_by(WORDS / 8 - 1).chain(words(page % threads)) {
                let found = memory.word(page, index).load(Relaxed);
                let expected = if words(page % threads).contains(&index) { value(page) } else { 0 };
                ensure!(
                    found == expected,
                    "round {round}: word {index} of page {page} is {found:#x}, not {expected:#x}"
                );
            }
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    Ok(())
}
