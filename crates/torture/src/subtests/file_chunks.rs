//! Mappings of files that are read in order, so that chunks of 2 MiB come and go whole, in budgets in
//! which they do; and what is done to parts of chunks meanwhile. Every byte is checked.

use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::mapped_files::{SEED, Scratch, check_all, expect, size};
use crate::child::fork;
use crate::context::Context;
use crate::faults;
use crate::memory::{Memory, PAGE, RW};
use crate::outcome::Outcome;
use crate::rng::Rng;
use crate::{pattern, sys};

/// Pages in a chunk.
const CHUNK: usize = 512;
/// One chunk in so many is looked at by a child.
const CHILDREN: usize = 40;

fn check(memory: &Memory, pages: impl IntoIterator<Item = usize>, what: &str) -> Outcome {
    pattern::check_pages(memory, pages, SEED, what)
}

/// Does something to a part of the chunk that begins with this page, and looks at some of it.
fn disturb(memory: &Memory, first: usize, rng: &mut Rng) -> Outcome {
    let page = first + rng.below(CHUNK);
    let rest = first + CHUNK - page;
    match rng.below(6) {
        0 => sys::madvise(memory.page(page), PAGE, libc::MADV_DONTNEED)?,
        1 => sys::madvise(memory.page(page), rest * PAGE, libc::MADV_DONTNEED)?,
        2 => {
            sys::mprotect(memory.page(page), PAGE, libc::PROT_NONE)?;
            expect(faults::load(memory.page(page)).map(drop), libc::SIGSEGV, memory.page(page), "closed")?;
            sys::mprotect(memory.page(page), PAGE, libc::PROT_READ)?;
        }
        3 => expect(faults::store(memory.page(page), 1), libc::SIGSEGV, memory.page(page), "a store")?,
        4 => sys::madvise(memory.page(first), CHUNK * PAGE, libc::MADV_DONTNEED)?,
        _ => {}
    }
    check(memory, [page, first + rng.below(CHUNK)], "a page for itself")
}

/// `file-chunks`: laps in order, forwards and backwards; between them, and during them, pages of
/// chunks are touched for themselves, discarded, closed and opened, stored to in vain, seen by
/// children; at last parts of chunks are unmapped and moved away, and the file is cut within one.
pub fn chunks(context: &mut Context) -> Outcome {
    faults::install()?;
    let file = Scratch::new(context, size(context))?;
    let memory = file.map(size(context), libc::PROT_READ, libc::MAP_SHARED)?;
    // It need not begin with one, for whoever manages it.
    let pages = memory.pages() / CHUNK * CHUNK;
    let mut rng = context.rng(0);
    for _ in 0..2 {
        check_all(&memory, "in order")?;
        for first in (0..pages).step_by(CHUNK) {
            disturb(&memory, first, &mut rng)?;
            if rng.below(CHILDREN) == 0 {
                let child = fork(|| check(&memory, first..first + CHUNK, "in a child"))?;
                disturb(&memory, first, &mut rng)?;
                child.succeed("a child")?;
            }
        }
    }
    check(&memory, (0..memory.pages()).rev(), "backwards")?;
    disturbed_meanwhile(&memory, pages, &mut rng)?;
    context.press()?;
    check_all(&memory, "cold")?;
    take_parts(&memory)?;
    cut(&file, &memory)?;
    memory.forget();
    Ok(())
}

/// A thread reads in order while another disturbs what it reads.
fn disturbed_meanwhile(memory: &Memory, pages: usize, rng: &mut Rng) -> Outcome {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let read = check(memory, 0..pages, "in order, disturbed");
            is_over.store(true, Relaxed);
            read
        });
        while !is_over.load(Relaxed) {
            let page = rng.below(pages);
            match rng.below(2) {
                0 => sys::madvise(memory.page(page), PAGE, libc::MADV_DONTNEED)?,
                _ => check(memory, [page], "beside a reader")?,
            }
        }
        reader.join().expect("a panic ends the process")
    })
}

/// Unmaps a page of a chunk, and moves a part away that begins within one and ends within another.
fn take_parts(memory: &Memory) -> Outcome {
    let (hole, from, count) = (9 * CHUNK + 100, 20 * CHUNK + 77, 2 * CHUNK);
    let around = (8 * CHUNK..hole).chain(hole + 1..from).chain(from + count..24 * CHUNK);
    check(memory, 8 * CHUNK..24 * CHUNK, "before parts go")?;
    sys::munmap(memory.page(hole), PAGE)?;
    let target = sys::mmap(0, count * PAGE, RW, crate::memory::PRIVATE, -1)?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let moved = sys::mremap(memory.page(from), count * PAGE, count * PAGE, flags, target)?;
    let part = Memory::adopt(moved, count * PAGE);
    for what in ["moved", "moved, again"] {
        pattern::check_moved(&part, from, SEED, what)?;
        check(memory, around.clone(), "around the parts that went")?;
        check(memory, 24 * CHUNK..memory.pages(), "behind the parts that went")?;
    }
    expect(faults::load(memory.page(hole)).map(drop), libc::SIGSEGV, memory.page(hole), "unmapped")?;
    part.unmap()
}

fn cut(file: &Scratch, memory: &Memory) -> Outcome {
    let left = memory.pages() / 2 + 100;
    // Not where parts went.
    check(memory, (left / 2).max(24 * CHUNK)..memory.pages(), "before the cut")?;
    OpenOptions::new().write(true).open(&file.path)?.set_len((left * PAGE) as u64)?;
    sys::eventually(|| {
        [left, left + CHUNK, memory.pages() - 1].into_iter().try_for_each(|page| {
            expect(faults::load(memory.page(page)).map(drop), libc::SIGBUS, memory.page(page), "cut off")
        })
    })?;
    check(memory, 24 * CHUNK..left, "what is left")
}
