//! Memory that is read before it is stored to: the kernel's zero page, which takes nothing from the
//! budget, until a store makes it the program's own.

use std::sync::atomic::Ordering::Relaxed;

use crate::context::{Context, parallel};
use crate::memory::{MIB, Memory, PAGE, WORDS};
use crate::outcome::Outcome;
use crate::{child, ensure, pattern, sys};

const SEED: u64 = 0x2e70;
/// Anonymous memory may grow by so much while several times as much is read.
const GROWTH_BYTES_MAX: usize = 4 * MIB;

/// `zero-reads`: what is only read shows zeroes and takes no memory; a store shows at once, beside
/// zeroes, whoever made it, and is there for good.
pub fn reads(context: &mut Context) -> Outcome {
    let hot = context.subject(SEED)?;
    let memory = Memory::map(2 * context.options.mib * MIB)?;
    pattern::check_zero(&memory, 0..64, "read before anything")?;
    let before = own_bytes()?;
    for _ in 0..2 {
        pattern::check_zero(&memory, 0..memory.pages(), "only read")?;
    }
    let after = own_bytes()?;
    ensure!(after <= before + GROWTH_BYTES_MAX, "reading took {} KiB", (after - before) >> 10);
    stored_among(&memory, 0..memory.pages() / 2)?;
    context.cool(&hot)?;
    check_stored_among(&memory, 0..memory.pages() / 2)?;
    pattern::check_pages(&hot, 0..hot.pages(), SEED, "beside zeroes")?;
    raced(context)?;
    by_the_kernel()?;
    moved_and_dropped()
}

/// `zero-fork`: a child sees zeroes where its parent has stored nothing, and each its own stores.
pub fn fork(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let zeroes = Memory::map(8 * MIB)?;
    context.cool(&memory)?;
    pattern::check_zero(&zeroes, 0..zeroes.pages(), "before a fork")?;
    let half = 0..zeroes.pages() / 2;
    let child = child::fork(|| {
        pattern::check_zero(&zeroes, 0..zeroes.pages(), "in the child")?;
        pattern::fill_pages(&zeroes, half.clone(), SEED + 1);
        pattern::check_pages(&zeroes, half.clone(), SEED + 1, "stored in the child")?;
        pattern::check_zero(&zeroes, half.end..zeroes.pages(), "beside them in the child")
    })?;
    pattern::fill_pages(&zeroes, half.end..zeroes.pages(), SEED + 2);
    child.succeed("a child that stores to what was only read")?;
    pattern::check_zero(&zeroes, half.clone(), "in the parent")?;
    pattern::check_pages(&zeroes, half.end..zeroes.pages(), SEED + 2, "stored in the parent")?;
    pattern::fill_pages(&zeroes, half.clone(), SEED + 3);
    context.cool(&memory)?;
    pattern::check_pages(&zeroes, half, SEED + 3, "stored after the fork")?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "beside it")
}

/// Bytes of this process's own memory that are in RAM.
fn own_bytes() -> Outcome<usize> {
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| crate::outcome::Failure(format!("/proc/self/status: {error}")))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    ensure!(kib.is_some(), "/proc/self/status has no RssAnon");
    Ok(kib.unwrap_or(0) << 10)
}

/// One page in three gets a word.
fn stored_among(memory: &Memory, pages: std::ops::Range<usize>) -> Outcome {
    for page in pages.clone().step_by(3) {
        memory.word(page, 5).store(pattern::word(SEED, page, 5), Relaxed);
        let found = memory.word(page, 5).load(Relaxed);
        ensure!(found == pattern::word(SEED, page, 5), "page {page}: a store reads back as {found:#x}");
    }
    check_stored_among(memory, pages)
}

fn check_stored_among(memory: &Memory, pages: std::ops::Range<usize>) -> Outcome {
    for page in pages.clone() {
        for index in 0..WORDS {
            let is_stored = (page - pages.start).is_multiple_of(3) && index == 5;
            let expected = if is_stored { pattern::word(SEED, page, 5) } else { 0 };
            let found = memory.word(page, index).load(Relaxed);
            ensure!(found == expected, "page {page} word {index} among zeroes is {found:#x}");
        }
    }
    Ok(())
}

/// Some threads read fresh pages in order while others store to them: every store is there.
fn raced(context: &Context) -> Outcome {
    let threads = context.options.threads.max(2);
    let memory = &Memory::map(16 * MIB)?;
    parallel(threads, |lane| {
        for page in 0..memory.pages() {
            if lane % 2 == 0 {
                _ = memory.word(page, 9).load(Relaxed);
            } else {
                memory.word(page, lane).fetch_add(page as u64 + 1, Relaxed);
            }
        }
        Ok(())
    })?;
    for page in 0..memory.pages() {
        for lane in (1..threads).step_by(2) {
            let found = memory.word(page, lane).load(Relaxed);
            ensure!(found == page as u64 + 1, "page {page}: thread {lane}'s store is {found}");
        }
    }
    Ok(())
}

/// System calls store to what was only read; some of it is locked or populated.
fn by_the_kernel() -> Outcome {
    let memory = Memory::map(4 * MIB)?;
    let pages = memory.pages();
    pattern::check_zero(&memory, 0..pages, "read before the kernel stores")?;
    let (reader, writer) = sys::pipe()?;
    let mut sent = [0u8; 3 * PAGE / 2];
    pattern::bytes(SEED, 0, &mut sent);
    use std::os::fd::AsRawFd;
    sys::write_all(writer.as_raw_fd(), sent.as_ptr(), sent.len())?;
    sys::read_all(reader.as_raw_fd(), memory.at(7 * PAGE + 100), sent.len())?;
    let mut found = vec![0u8; sent.len()];
    for (at, byte) in found.iter_mut().enumerate() {
        let offset = 7 * PAGE + 100 + at;
        let word = memory.word(offset / PAGE, offset % PAGE / 8).load(Relaxed);
        *byte = word.to_ne_bytes()[offset % 8];
    }
    pattern::check_bytes(SEED, 0, &found, "read(2) into zeroes")?;
    sys::madvise(memory.page(100), 50 * PAGE, libc::MADV_POPULATE_WRITE)?;
    // A limit may forbid it; then it changes nothing.
    let locked = sys::mlock(memory.page(200), 10 * PAGE).is_ok();
    pattern::check_zero(&memory, 100..pages, "populated and locked")?;
    pattern::fill_pages(&memory, 100..pages, SEED);
    pattern::check_pages(&memory, 100..pages, SEED, "stored to after that")?;
    if locked {
        sys::munlock(memory.page(200), 10 * PAGE)?;
    }
    Ok(())
}

/// mremap takes it along, MADV_DONTNEED and mprotect change nothing that shows.
fn moved_and_dropped() -> Outcome {
    let memory = Memory::map(4 * MIB)?;
    let (base, len) = memory.forget();
    let memory = Memory::adopt(base, len);
    pattern::check_zero(&memory, 0..memory.pages(), "to be moved")?;
    memory.word(3, 3).store(33, Relaxed);
    memory.forget();
    let moved = sys::mremap(base, len, 2 * len, libc::MREMAP_MAYMOVE, 0)?;
    let memory = Memory::adopt(moved, 2 * len);
    ensure!(memory.word(3, 3).load(Relaxed) == 33, "a store before mremap is lost");
    pattern::check_zero(&memory, 4..memory.pages(), "moved")?;
    let before = own_bytes()?;
    sys::madvise(memory.page(10), 100 * PAGE, libc::MADV_DONTNEED)?;
    sys::mprotect(memory.page(500), 100 * PAGE, libc::PROT_READ)?;
    pattern::check_zero(&memory, 4..memory.pages(), "dropped, protected")?;
    sys::mprotect(memory.page(500), 100 * PAGE, libc::PROT_READ | libc::PROT_WRITE)?;
    ensure!(own_bytes()? <= before + GROWTH_BYTES_MAX, "reading what was moved takes memory");
    pattern::fill_pages(&memory, 4..memory.pages(), SEED);
    pattern::check_pages(&memory, 4..memory.pages(), SEED, "stored to after all that")
}
