//! MADV_DONTFORK is of the memory that was marked, not of its place; and what is marked MADV_WIPEONFORK is
//! empty in every child.

use std::os::unix::fs::FileExt;

use super::mapped_files::{self, SEED as SEED_OF_FILES, Scratch};
use crate::child::{self, Child, Form};
use crate::context::Context;
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW};
use crate::outcome::Outcome;
use crate::{ensure, faults, pattern, sys};

const SEED: u64 = 0xd0f0;
/// More than the C library ever takes from its heap.
const BLOCK: usize = 36 * MIB;

/// `fork-marks`: memory that is marked goes, and other memory comes to its place; memory that is marked
/// moves.
///
/// *The story:* where the kernel tells of no forks, and refuses none, what is managed is withheld from
/// children, but for what the program has marked itself. Marks stayed where they had been made. A child by
/// the bare instruction read zeroes where other memory had come, and what had moved was inherited.
pub fn run(context: &mut Context) -> Outcome {
    faults::install()?;
    let len = context.options.mib * MIB / 4;
    let fixed = PRIVATE | libc::MAP_FIXED;
    let replace: [(&str, &dyn Fn(usize) -> Outcome); 3] = [
        ("munmap and mmap", &|at| {
            sys::munmap(at, len).and_then(|()| sys::mmap(at, len, RW, fixed, -1).map(drop))
        }),
        ("mmap over it", &|at| sys::mmap(at, len, RW, fixed, -1).map(drop)),
        ("the bare instruction", &|at| {
            let arguments = [at, len, RW as usize, fixed as usize, usize::MAX, 0];
            // SAFETY: what is there is to go.
            sys::check("mmap", unsafe { sys::bare(libc::SYS_mmap, arguments) }).map(drop)
        }),
    ];
    for (how, replace) in replace {
        let memory = context.subject(SEED)?;
        sys::madvise(memory.base(), memory.len(), libc::MADV_DONTFORK)?;
        context.press()?;
        replace(memory.base())?;
        inherited(context, &memory, how)?;
    }
    blocks(context)?;
    moves(context)
}

/// What is not marked is inherited by whoever is announced, and never read as zeroes.
fn inherited(context: &mut Context, memory: &Memory, how: &str) -> Outcome {
    pattern::fill_pages(memory, 0..memory.pages(), SEED + 1);
    context.cool(memory)?;
    let verify = || pattern::check_pages(memory, 0..memory.pages(), SEED + 1, how);
    match child::fork_by(Form::BareFork, verify) {
        Ok(child) => refused_or_right(child, how)?,
        Err(failure) => ensure!(sys::errno() == libc::ENOMEM, "{how}: {failure}"),
    }
    child::fork(verify)?.succeed(how)?;
    verify()
}

fn refused_or_right(child: Child, how: &str) -> Outcome {
    let status = child.wait()?;
    // The probe's handler is inherited, and passes on what is not its own.
    let is_refused = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV;
    ensure!(status == 0 || is_refused, "{how}: a bare child: status {status:#x}");
    Ok(())
}

/// The C library's malloc and free map and unmap by calls of their own.
fn blocks(context: &mut Context) -> Outcome {
    let mut last = 0;
    for _ in 0..3 {
        // SAFETY: the block is used within its bounds, and freed once.
        let block = unsafe { libc::malloc(BLOCK) };
        ensure!(!block.is_null(), "no memory");
        let start = (block as usize).next_multiple_of(PAGE);
        let memory = Memory::adopt(start, BLOCK - PAGE);
        if last == start {
            inherited(context, &memory, "a block in the place of one that was freed")?;
        } else {
            pattern::fill_pages(&memory, 0..memory.pages(), SEED);
        }
        sys::madvise(memory.base(), memory.len(), libc::MADV_DONTFORK)?;
        last = start;
        memory.forget();
        // SAFETY: as above.
        unsafe { libc::free(block) };
    }
    Ok(())
}

/// What is marked moves, grows, and is not marked any more.
fn moves(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    let half = memory.pages() / 2;
    sys::madvise(memory.page(half), half * PAGE, libc::MADV_DONTFORK)?;
    context.cool(&memory)?;
    let (from, len) = memory.forget();
    let target = Memory::map_with(len, libc::PROT_NONE, PRIVATE)?;
    // The halves are two mappings.
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    for part in [0, half] {
        sys::mremap(from + part * PAGE, half * PAGE, half * PAGE, flags, target.page(part))?;
    }
    context.cool(&target)?;
    let shows = |page: usize| {
        let word = pattern::word(SEED, page, 1).to_ne_bytes();
        let at = target.page(page) + size_of_val(&word);
        word.iter().enumerate().all(|(index, &byte)| faults::load(at + index) == Ok(byte))
    };
    child::fork(|| {
        pattern::check_pages(&target, 0..half, SEED, "moved, not marked")?;
        let found = (half..target.pages()).find(|&page| shows(page));
        ensure!(found.is_none(), "page {found:?}, which was marked and moved, is there in the child");
        Ok(())
    })?
    .succeed("a child of who has moved what it has marked")?;
    sys::madvise(target.page(half), half * PAGE, libc::MADV_DOFORK)?;
    context.cool(&target)?;
    child::fork(|| pattern::check_pages(&target, 0..target.pages(), SEED, "not marked any more"))?
        .succeed("a child of who has taken the marks off")?;
    pattern::check_pages(&target, 0..target.pages(), SEED, "in the parent")
}

/// `fork-wiped`: what is marked MADV_WIPEONFORK is empty in a child by any call, though it is out; what a
/// parent does to its marks after a fork is nothing to the child of that.
///
/// *The story:* a child by the bare instruction got what was out, marks or not: 10,868 of 15,360 pages were
/// its parent's.
pub fn wiped(context: &mut Context) -> Outcome {
    const KEEP: i32 = libc::MADV_KEEPONFORK;
    const WIPE: i32 = libc::MADV_WIPEONFORK;
    faults::install()?;
    let memory = &context.subject(SEED)?;
    let third = memory.pages() / 3;
    let advise = |advice: i32| sys::madvise(memory.page(third), third * PAGE, advice);
    let around = || {
        pattern::check_pages(memory, 0..third, SEED, "before what is marked")?;
        pattern::check_pages(memory, 2 * third..memory.pages(), SEED, "behind what is marked")
    };
    let empty =
        || pattern::check_zero(memory, third..2 * third, "what was to be wiped").and_then(|()| around());
    let whole = || pattern::check_pages(memory, third..2 * third, SEED, "not marked").and_then(|()| around());
    advise(WIPE)?;
    for form in Form::ALL {
        context.cool(memory)?;
        made(child::fork_by(form, empty), &format!("what is marked, by {form:?}"), || Ok(()))?;
    }
    for (advice, what) in [(KEEP, "that keeps what was marked"), (WIPE, "that marks it again")] {
        context.cool(memory)?;
        // The fork is made before its maker goes on.
        let child = if advice == KEEP { child::fork_by(BARE, empty) } else { child::fork_by(BARE, whole) };
        made(child, &format!("a child of a parent {what} at once"), || advise(advice))?;
    }
    context.cool(memory)?;
    let goes = || sys::mmap(memory.page(third), third * PAGE, RW, PRIVATE | libc::MAP_FIXED, -1).map(drop);
    made(child::fork_by(BARE, empty), "a child of a parent that replaces what was marked at once", goes)?;
    pattern::fill_pages(memory, third..2 * third, SEED);
    context.cool(memory)?;
    made(child::fork_by(BARE, whole), "a child after what was marked is replaced", || Ok(()))?;
    whole()
}

const BARE: Form = Form::BareFork;

/// A child was made, or refused; its maker does this at once.
fn made(child: Outcome<Child>, how: &str, and: impl FnOnce() -> Outcome) -> Outcome {
    let errno = sys::errno();
    let done = and();
    match child {
        Ok(child) => refused_or_right(child, how)?,
        Err(failure) => ensure!(errno == libc::ENOMEM, "{how}: {failure}"),
    }
    done
}

/// Pages of a mapped file that are marked.
const MARKED: std::ops::Range<usize> = 1000..1038;
/// Of what grows: it is behind those.
const BEHIND: usize = 2000;

/// `file-marks`: pages of a mapped file that are marked MADV_DONTFORK are not there in children and in
/// theirs, whatever has become of the mapping.
///
/// *The story:* the kernel had the mapping again, after mlock of one page or as it grew, or as somebody wrote
/// to the file: children had all of it. And what it had kept while that fitted was marked no more when it was
/// managed.
pub fn files(context: &mut Context) -> Outcome {
    const SHARED: (i32, i32) = (libc::PROT_READ, libc::MAP_SHARED);
    const PRIVATE: (i32, i32) = (RW, libc::MAP_PRIVATE);
    // One that fits until there is something else, and one that does not.
    for len in [24 * MIB, 80 * MIB] {
        let file = Scratch::new(context, len)?;
        for (way, (prot, flags)) in [
            ("pressed", SHARED),
            ("locked", SHARED),
            ("locked", PRIVATE),
            ("written", SHARED),
            ("grown", PRIVATE),
        ] {
            let memory = file.map(len - MIB, prot, flags)?;
            mapped_files::check_all(&memory, "before it is marked")?;
            sys::madvise(memory.page(MARKED.start), MARKED.len() * PAGE, libc::MADV_DONTFORK)?;
            context.press()?;
            let (pages, _tail) = changed(&file, memory, way)?;
            let what = format!("{way}, {len} bytes, flags {flags}");
            without_what_is_marked(&pages, &what)?;
            sys::madvise(pages.page(MARKED.start), MARKED.len() * PAGE, libc::MADV_DOFORK)?;
            child::fork(|| mapped_files::check_all(&pages, "not marked any more"))?.succeed(&what)?;
        }
    }
    Ok(())
}

/// What becomes of the mapping; what of it is where it was, and what is not.
fn changed(file: &Scratch, memory: Memory, way: &str) -> Outcome<(Memory, Option<Memory>)> {
    match way {
        "locked" => {
            sys::mlock(memory.base(), PAGE)?;
            sys::munlock(memory.base(), PAGE)?;
        }
        "written" => {
            let writer = std::fs::OpenOptions::new().write(true).open(&file.path)?;
            let mut first = [0];
            file.file.read_exact_at(&mut first, 0)?;
            writer.write_all_at(&first, 0)?;
        }
        "grown" => {
            let (base, len) = memory.forget();
            let (front, behind) = (BEHIND * PAGE, len - BEHIND * PAGE);
            let moved = sys::mremap(base + front, behind, behind + MIB, libc::MREMAP_MAYMOVE, 0)?;
            return Ok((Memory::adopt(base, front), Some(Memory::adopt(moved, behind + MIB))));
        }
        _ => {}
    }
    Ok((memory, None))
}

fn without_what_is_marked(memory: &Memory, what: &str) -> Outcome {
    let check = || {
        pattern::check_pages(memory, 0..MARKED.start, SEED_OF_FILES, what)?;
        pattern::check_pages(memory, MARKED.end..memory.pages(), SEED_OF_FILES, what)?;
        let found = MARKED.clone().find(|&page| sys::resident_pages(memory.page(page), PAGE).is_ok());
        ensure!(found.is_none(), "{what}: page {found:?}, which was marked, is there in a child");
        Ok(())
    };
    child::fork(|| {
        check()?;
        child::fork(check)?.succeed(what)
    })?
    .succeed(what)?;
    mapped_files::check_all(memory, what)
}

/// `file-advised`: what else is said of pages of a mapped file stays said, whatever becomes of the mapping.
///
/// *The story:* the kernel had the mapping again, as above, and what was marked MADV_DONTDUMP was in core
/// dumps from then on. The kernel knew nothing of MADV_RANDOM and MADV_SEQUENTIAL, then or before.
pub fn advised(context: &mut Context) -> Outcome {
    let said = [
        (libc::MADV_DONTDUMP, "dd", MARKED),
        (libc::MADV_RANDOM, "rr", MARKED.start + 50..MARKED.end + 50),
        (libc::MADV_SEQUENTIAL, "sr", MARKED.end + 100..MARKED.end + 200),
    ];
    for len in [24 * MIB, 80 * MIB] {
        let file = Scratch::new(context, len)?;
        for way in ["pressed", "locked", "written"] {
            let memory = file.map(len - MIB, libc::PROT_READ, libc::MAP_SHARED)?;
            mapped_files::check_all(&memory, "before it is marked")?;
            for (advice, _, pages) in &said {
                sys::madvise(memory.page(pages.start), pages.len() * PAGE, *advice)?;
            }
            context.press()?;
            let (memory, _) = changed(&file, memory, way)?;
            mapped_files::check_all(&memory, way)?;
            for (advice, name, pages) in &said {
                let is_marked = |page| sys::has_flag(memory.page(page), name);
                for (page, is_said) in
                    [(pages.start - 1, false), (pages.start, true), (pages.end - 1, true), (pages.end, false)]
                {
                    let is_right = is_marked(page)? == is_said;
                    ensure!(is_right, "{way}, {len} bytes: advice {advice} of page {page}: not {is_said}");
                }
            }
        }
    }
    Ok(())
}
