//! Mappings of files that are larger than the budget: all that a program may do to one, with every
//! byte checked. Bare they are the kernel's own mappings, and must do the same.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::child::{fork, part, spawn_and_wait};
use crate::context::{Context, parallel};
use crate::faults::{self, Fault};
use crate::memory::{MIB, Memory, PAGE, RW, WORDS};
use crate::outcome::{Failure, Outcome};
use crate::{ensure, pattern, sys};

pub(super) const SEED: u64 = 0xf17e5;
/// Twice the budget.
pub(super) const LEN: usize = 128 * MIB;

/// The same, where the ballast is as large as it is by itself.
pub(super) fn size(context: &Context) -> usize {
    (context.options.mib / 5 * 4).max(MIB_MIN) * MIB
}

/// No file is smaller, whatever `--mib` says: the pages that are named below are in it (20,000 are 79 MiB).
const MIB_MIN: usize = 80;

const SHARED: i32 = libc::MAP_SHARED;
const PRIVATE: i32 = libc::MAP_PRIVATE;

/// The page that is wrong in the file of a run that is to fail: whoever checks bytes looks at it.
pub(super) const SABOTAGED: usize = 1549;

/// A file full of the pattern, which nobody has open for writing; its name goes with it.
pub(super) struct Scratch {
    pub path: PathBuf,
    pub file: File,
}

impl Scratch {
    pub fn new(context: &Context, len: usize) -> Outcome<Scratch> {
        let path = context.options.directory.join(format!("torture-mapped-{}", std::process::id()));
        let file = File::create(&path)?;
        let mut bytes = vec![0; MIB];
        for offset in (0..len).step_by(MIB) {
            pattern::bytes(SEED, offset, &mut bytes);
            file.write_all_at(&bytes[..MIB.min(len - offset)], offset as u64)?;
        }
        if context.options.sabotage {
            file.write_all_at(&[0; PAGE], (SABOTAGED * PAGE) as u64)?;
        }
        file.sync_all()?;
        drop(file);
        let file = File::open(&path)?;
        Ok(Scratch { path, file })
    }

    pub fn map(&self, len: usize, protection: i32, flags: i32) -> Outcome<Memory> {
        let base = sys::mmap(0, len, protection, flags, self.file.as_raw_fd())?;
        Ok(Memory::adopt(base, len.next_multiple_of(PAGE)))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

pub(super) fn check_all(memory: &Memory, what: &str) -> Outcome {
    pattern::check_pages(memory, 0..memory.pages(), SEED, what)
}

/// `file-loop`: over and over, forwards and backwards, shared and private, and at random.
pub fn over_and_over(context: &mut Context) -> Outcome {
    let file = Scratch::new(context, size(context))?;
    for flags in [SHARED, PRIVATE] {
        let memory = file.map(size(context), libc::PROT_READ, flags)?;
        check_all(&memory, "in order")?;
        check_all(&memory, "in order again")?;
        for page in (0..memory.pages()).rev() {
            pattern::check_page(&memory, page, SEED, page, "backwards")?;
        }
        let mut rng = context.rng(0);
        for _ in 0..4000 {
            let page = rng.below(memory.pages());
            pattern::check_page(&memory, page, SEED, page, "at random")?;
        }
        memory.unmap()?;
    }
    Ok(())
}

/// `file-end`: a file that ends within a page, mapped with more behind it: zeroes, then SIGBUS.
pub fn end(context: &mut Context) -> Outcome {
    faults::install()?;
    let len = size(context) - 1234;
    let file = Scratch::new(context, len)?;
    for (protection, flags) in [(libc::PROT_READ, SHARED), (RW, PRIVATE)] {
        let memory = file.map(size(context) + 16 * PAGE, protection, flags)?;
        let last = len / PAGE;
        pattern::check_pages(&memory, 0..last, SEED, "before the last page")?;
        let rest = len % PAGE / 8;
        for index in 0..WORDS {
            let found = memory.word(last, index).load(Relaxed);
            let expected = if index < rest { pattern::word(SEED, last, index) } else { 0 };
            // The word that the end divides holds both.
            ensure!(index == rest || found == expected, "word {index} of the last page is {found:#x}");
        }
        for page in [last + 1, last + 16] {
            expect(
                faults::load(memory.page(page)).map(drop),
                libc::SIGBUS,
                memory.page(page),
                "behind the end",
            )?;
        }
        memory.unmap()?;
    }
    Ok(())
}

pub(super) fn expect(result: Result<(), Fault>, signal: i32, address: usize, what: &str) -> Outcome {
    let expected = Fault { signal, address };
    ensure!(result == Err(expected), "{what}: {result:?}, expected {expected:?}");
    Ok(())
}

/// `file-private`: stores to a private mapping stay, all else is the file's, and the file is as it
/// was; what is discarded shows the file again.
pub fn private(context: &mut Context) -> Outcome {
    let file = Scratch::new(context, size(context))?;
    let memory = file.map(size(context), RW, PRIVATE)?;
    let is_stored = |page: usize| page % 5 == 2 || (1000..1200).contains(&page);
    for round in 1..4u64 {
        for page in 0..memory.pages() {
            if !is_stored(page) {
                pattern::check_page(&memory, page, SEED, page, "not stored to")?;
                continue;
            }
            if round > 1 {
                pattern::check_page(&memory, page, SEED + round - 1, page, "stored to")?;
            }
            pattern::fill_page(&memory, page, SEED + round, page);
        }
    }
    context.press()?;
    sys::madvise(memory.page(1000), 200 * PAGE, libc::MADV_DONTNEED)?;
    pattern::check_pages(&memory, 1000..1200, SEED, "discarded")?;
    memory.word(1100, 3).store(7, Relaxed);
    context.press()?;
    ensure!(memory.word(1100, 3).load(Relaxed) == 7, "a store after the discarding is lost");
    let mut bytes = vec![0; MIB];
    for offset in (0..size(context)).step_by(MIB) {
        file.file.read_exact_at(&mut bytes, offset as u64)?;
        pattern::check_bytes(SEED, offset, &bytes, "the file")?;
    }
    Ok(())
}

/// `file-read-only`: a store to a read-only mapping is the program's own SIGSEGV, a system call's
/// EFAULT; made writable, a private one takes stores and a shared one is refused.
pub fn read_only(context: &mut Context) -> Outcome {
    faults::install()?;
    let file = Scratch::new(context, size(context))?;
    for flags in [SHARED, PRIVATE] {
        let memory = file.map(size(context), libc::PROT_READ, flags)?;
        for page in [3, 700, 20_000, memory.pages() - 1] {
            expect(faults::store(memory.page(page), 1), libc::SIGSEGV, memory.page(page), "a store")?;
            pattern::check_page(&memory, page, SEED, page, "after a store that failed")?;
            expect(faults::store(memory.page(page) + 9, 1), libc::SIGSEGV, memory.page(page) + 9, "again")?;
        }
        let failed = sys::read(std::fs::File::open("/dev/zero")?.as_raw_fd(), memory.at(50 * PAGE), 100);
        ensure!(failed.is_err() && sys::errno() == libc::EFAULT, "read(2) into it gave {failed:?}");
        check_all(&memory, "after stores that failed")?;
        let half = memory.pages() / 2;
        let opened = sys::mprotect(memory.base(), half * PAGE, RW);
        if flags == SHARED {
            ensure!(opened.is_err() && sys::errno() == libc::EACCES, "mprotect gave {opened:?}");
        } else {
            opened?;
            for page in (0..half).step_by(7) {
                pattern::fill_page(&memory, page, SEED + 1, page);
            }
            expect(faults::store(memory.page(half), 1), libc::SIGSEGV, memory.page(half), "the other half")?;
            for page in 0..memory.pages() {
                let stored = page < half && page % 7 == 0;
                pattern::check_page(&memory, page, SEED + u64::from(stored), page, "half of it writable")?;
            }
        }
        memory.unmap()?;
    }
    Ok(())
}

/// `file-cut`: what lies behind the end of a file that was cut raises SIGBUS, what lies before it
/// does not.
pub fn cut(context: &mut Context) -> Outcome {
    faults::install()?;
    for flags in [SHARED, PRIVATE] {
        let file = Scratch::new(context, size(context))?;
        let memory = file.map(size(context), libc::PROT_READ, flags)?;
        check_all(&memory, "whole")?;
        let left = memory.pages() / 2;
        OpenOptions::new().write(true).open(&file.path)?.set_len((left * PAGE) as u64)?;
        // Whoever looks instead of being told sees it a moment later.
        sys::eventually(|| {
            [left, left + 1, memory.pages() - 1].into_iter().try_for_each(|page| {
                expect(faults::load(memory.page(page)).map(drop), libc::SIGBUS, memory.page(page), "cut off")
            })
        })?;
        pattern::check_pages(&memory, 0..left, SEED, "what is left")?;
        memory.unmap()?;
    }
    Ok(())
}

/// `file-writer`: another process opens the file for writing, and writes: it is not kept waiting,
/// and who reads a shared mapping then sees it.
pub fn writer(context: &mut Context) -> Outcome {
    let file = Scratch::new(context, size(context))?;
    let memory = file.map(size(context), libc::PROT_READ, SHARED)?;
    check_all(&memory, "before")?;
    let path = file.path.to_str().ok_or_else(|| Failure("the directory has no name".into()))?;
    let began = std::time::Instant::now();
    let status = spawn_and_wait(&mut part("rewrite", &[path]))?;
    ensure!(status.success(), "the writer: {status}");
    ensure!(began.elapsed().as_secs() < 30, "the writer waited for {:?}", began.elapsed());
    for page in 0..memory.pages() {
        let seed = SEED + u64::from(page < REWRITTEN);
        pattern::check_page(&memory, page, seed, page, "after another's writes")?;
    }
    // With what the program itself writes it is the same.
    let bytes = vec![0; PAGE];
    OpenOptions::new().write(true).open(&file.path)?.write_all_at(&bytes, 9000 * PAGE as u64)?;
    pattern::check_zero(&memory, 9000..9001, "after a write of one's own")?;
    Ok(())
}

/// Pages that [`rewrite_part`] writes.
pub(super) const REWRITTEN: usize = 5000;

/// Writes another pattern to the first pages of a file.
pub fn rewrite_part(path: &str) -> Outcome {
    let file = OpenOptions::new().write(true).open(path)?;
    let mut bytes = vec![0; PAGE];
    for offset in (0..REWRITTEN * PAGE).step_by(PAGE) {
        pattern::bytes(SEED + 1, offset, &mut bytes);
        file.write_all_at(&bytes, offset as u64)?;
    }
    Ok(())
}

/// `file-fork`: children see the file and what their parent had stored by then, and keep stores of
/// their own to themselves.
pub fn forks(context: &mut Context) -> Outcome {
    let file = Scratch::new(context, size(context))?;
    let read_only = file.map(size(context), libc::PROT_READ, SHARED)?;
    let memory = file.map(size(context), RW, PRIVATE)?;
    for page in (0..memory.pages()).step_by(9) {
        pattern::fill_page(&memory, page, SEED + 1, page);
    }
    let check = |step: usize, what: &str| -> Outcome {
        for page in 0..memory.pages() {
            let seed = SEED + u64::from(page % step == 0);
            pattern::check_page(&memory, page, seed, page, what)?;
        }
        check_all(&read_only, what)
    };
    for _ in 0..2 {
        let child = fork(|| {
            check(9, "in the child")?;
            (0..memory.pages()).for_each(|page| memory.word(page, 1).store(0, Relaxed));
            let grandchild = fork(|| check_all(&read_only, "in a child's child"))?;
            grandchild.succeed("a child's child")
        })?;
        check(9, "in the parent")?;
        child.succeed("a child")?;
    }
    // Children that are made past libc's fork.
    for form in [crate::child::Form::Quiet, crate::child::Form::CallClone3] {
        let child = crate::child::fork_by(form, || check(9, "in a child by another way"))?;
        child.succeed(&format!("a child by {form:?}"))?;
    }
    context.press()?;
    check(9, "at last")?;
    Ok(())
}

/// `file-fork-written`: children have mapped files that nobody stores to, which leave and come meanwhile.
/// Then somebody writes to the file: what is mapped shows that, and is in no more pieces than before.
///
/// *The story:* what the kernel does not move, as a child has it, too, was made this process's own by a
/// store. It counted as stored to: up to 1707 of 6144 pages showed what the file had held before, for good.
/// Where nobody may store each page became a mapping of its own, 239 in place of 53.
pub fn fork_written(context: &mut Context) -> Outcome {
    let file = Scratch::new(context, size(context))?;
    let read_only = file.map(size(context), libc::PROT_READ, SHARED)?;
    let private = file.map(size(context), RW, PRIVATE)?;
    // Between those that nobody stores to.
    for page in (0..private.pages()).step_by(STORED_STEP) {
        pattern::fill_page(&private, page, SEED + 2, page);
    }
    let check_as = |seed: u64, what: &str| -> Outcome {
        for page in 0..private.pages() {
            let seed = if page.is_multiple_of(STORED_STEP) { SEED + 2 } else { seed };
            pattern::check_page(&private, page, seed, page, what)?;
        }
        pattern::check_pages(&read_only, 0..read_only.pages(), seed, what)
    };
    let check = |what: &str| check_as(SEED, what);
    check("before")?;
    let mappings = || std::fs::read_to_string("/proc/self/maps").map(|maps| maps.lines().count());
    let before = mappings()?;
    for _ in 0..3 {
        let child = fork(|| check("in a child"))?;
        check("beside a child")?;
        child.succeed("a child")?;
    }
    let after = mappings()?;
    ensure!(after <= before + PIECES_MORE, "{after} mappings after forks, {before} before");
    let writer = fork(|| {
        let file = OpenOptions::new().write(true).open(&file.path)?;
        let mut bytes = vec![0; MIB];
        for offset in (0..size(context)).step_by(MIB) {
            pattern::bytes(SEED + 1, offset, &mut bytes);
            file.write_all_at(&bytes, offset as u64)?;
        }
        Ok(())
    })?;
    writer.succeed("who writes")?;
    let old = |memory: &Memory| {
        let is_old = |page: &usize| memory.word(*page, 7).load(Relaxed) == pattern::word(SEED, *page, 7);
        (0..memory.pages()).filter(is_old).count()
    };
    let begun = std::time::Instant::now();
    while old(&private) + old(&read_only) > 0 {
        let counts = (old(&private), old(&read_only));
        ensure!(begun.elapsed() < SEEN_WITHIN, "{counts:?} pages show what the file had");
    }
    check_as(SEED + 1, "after the writer")
}

/// One page of so many is stored to.
const STORED_STEP: usize = 7;
/// Mappings of the allocator's, and the like.
const PIECES_MORE: usize = 32;
/// What somebody else has written is seen at the next look, where there is no lease.
const SEEN_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// `file-fork-unheard`: bare forks while a thread walks through mapped files, so that pages come into
/// view all the time. The child sees the file, and what its parent had stored; what the agent cannot
/// give it raises SIGBUS. *The story:* what was read ahead between the reading of such a fork and its
/// handling came into the parent's view, was therefore neither given nor refused to the child, and
/// showed zeroes there.
pub fn forks_unheard(context: &mut Context) -> Outcome {
    faults::install()?;
    let file = Scratch::new(context, size(context))?;
    let (read_only, private) =
        (&file.map(size(context), libc::PROT_READ, SHARED)?, &file.map(size(context), RW, PRIVATE)?);
    let seed = |page: usize| SEED + u64::from(page.is_multiple_of(9));
    for page in (0..private.pages()).step_by(9) {
        pattern::fill_page(private, page, seed(page), page);
    }
    let is_there = |memory: &Memory, page: usize| match faults::load(memory.page(page)) {
        Ok(_) => Ok(true),
        Err(Fault { signal: libc::SIGBUS, .. }) => Ok(false),
        Err(fault) => Err(Failure(format!("page {page} in the child: {fault:?}"))),
    };
    // Each SIGBUS takes a while.
    let verify = || {
        for page in (0..private.pages()).step_by(3) {
            for (memory, seed) in [(read_only, SEED), (private, seed(page))] {
                if is_there(memory, page)? {
                    let (found, expected) =
                        (memory.word(page, 5).load(Relaxed), pattern::word(seed, page, 5));
                    ensure!(found == expected, "page {page} in the child: {found:#x}, not {expected:#x}");
                }
            }
        }
        Ok(())
    };
    let stop = AtomicBool::new(false);
    let walk = || {
        while !stop.load(Relaxed) {
            check_all(read_only, "beside a fork")?;
            (0..private.pages())
                .try_for_each(|page| pattern::check_page(private, page, seed(page), page, "beside a fork"))?;
        }
        Ok(())
    };
    let fork = || {
        (0..16).try_for_each(|round| {
            sys::pause_ms(5 + 7 * (round % 5));
            match crate::child::fork_by(crate::child::Form::BareFork, verify) {
                Ok(child) => child.succeed("a child beside a thread that reads files"),
                Err(_) if sys::errno() == libc::ENOMEM => Ok(()),
                Err(failure) => Err(failure),
            }
        })
    };
    parallel(2, |lane| {
        if lane == 0 {
            return walk();
        }
        let forked = fork();
        stop.store(true, Relaxed);
        forked
    })?;
    Ok(())
}

/// `file-pieces`: parts are unmapped, replaced, moved, shrunk and grown, protected and opened.
pub fn pieces(context: &mut Context) -> Outcome {
    faults::install()?;
    let file = Scratch::new(context, size(context))?;
    let memory = file.map(size(context), libc::PROT_READ, SHARED)?;
    let pages = memory.pages();
    // Fragments at both ends and a hole in the middle, as loaders of models do.
    sys::munmap(memory.base(), 100 * PAGE)?;
    sys::munmap(memory.page(pages - 300), 300 * PAGE)?;
    sys::munmap(memory.page(5000), 1000 * PAGE)?;
    for page in [50, 5500, pages - 10] {
        expect(faults::load(memory.page(page)).map(drop), libc::SIGSEGV, memory.page(page), "unmapped")?;
    }
    let other = sys::mmap(memory.page(5200), 64 * PAGE, RW, crate::memory::PRIVATE | libc::MAP_FIXED, -1)?;
    ensure!(other == memory.page(5200), "MAP_FIXED gave another place");
    let block = Memory::adopt(other, 64 * PAGE);
    pattern::fill_pages(&block, 0..64, SEED + 5);
    sys::mprotect(memory.page(7000), 10 * PAGE, libc::PROT_NONE)?;
    for _ in 0..2 {
        for page in (100..5000).chain(6000..7000).chain(7010..pages - 300) {
            pattern::check_page(&memory, page, SEED, page, "around the holes")?;
        }
    }
    expect(faults::load(memory.page(7003)).map(drop), libc::SIGSEGV, memory.page(7003), "inaccessible")?;
    sys::mprotect(memory.page(7000), 10 * PAGE, libc::PROT_READ)?;
    pattern::check_pages(&memory, 7000..7010, SEED, "accessible again")?;
    pattern::check_pages(&block, 0..64, SEED + 5, "what was put into the hole")?;
    // What moved shows the same part, what was grown more of it.
    let moved = sys::mremap(memory.page(10_000), 2000 * PAGE, 1500 * PAGE, libc::MREMAP_MAYMOVE, 0)?;
    let target = Memory::map(1500 * PAGE)?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let moved = sys::mremap(moved, 1500 * PAGE, 1500 * PAGE, flags, target.base())?;
    let check_moved = |pages: usize, base: usize, what: &str| -> Outcome {
        let part = Memory::adopt(base, pages * PAGE);
        let result = pattern::check_moved(&part, 10_000, SEED, what);
        part.forget();
        result
    };
    check_moved(1500, moved, "moved")?;
    context.press()?;
    check_moved(1500, moved, "moved and cold")?;
    let grown = sys::mremap(moved, 1500 * PAGE, 4000 * PAGE, libc::MREMAP_MAYMOVE, 0)?;
    target.forget();
    check_moved(4000, grown, "grown")?;
    sys::munmap(grown, 4000 * PAGE)?;
    let around = (100..5000).chain(6000..10_000).chain(12_000..pages - 300);
    pattern::check_pages(&memory, around, SEED, "at last")?;
    block.unmap()?;
    memory.forget();
    Ok(())
}

/// `file-advice`: every advice, msync, mincore, mlock: no byte changes, and what a file's mapping
/// refuses is refused.
pub fn advice(context: &mut Context) -> Outcome {
    const MADV_FREE: i32 = 8;
    let file = Scratch::new(context, size(context))?;
    let memory = file.map(size(context), libc::PROT_READ, SHARED)?;
    for advice in [
        libc::MADV_RANDOM,
        libc::MADV_SEQUENTIAL,
        libc::MADV_NORMAL,
        libc::MADV_WILLNEED,
        libc::MADV_DONTNEED,
        libc::MADV_COLD,
        libc::MADV_PAGEOUT,
        libc::MADV_DONTDUMP,
    ] {
        sys::madvise(memory.base(), memory.len(), advice)?;
        check_all(&memory, &format!("after advice {advice}"))?;
    }
    let freed = sys::madvise(memory.base(), PAGE, MADV_FREE);
    ensure!(freed.is_err() && sys::errno() == libc::EINVAL, "MADV_FREE of a file gave {freed:?}");
    file_marks(&memory)?;
    for how in [libc::MS_ASYNC, libc::MS_SYNC, libc::MS_SYNC | libc::MS_INVALIDATE] {
        // SAFETY: the range is ours; nothing in it is dirty.
        sys::check("msync", unsafe { libc::msync(memory.at(0).cast(), memory.len(), how) } as isize)?;
    }
    let resident = sys::resident_pages(memory.base(), memory.len())?;
    ensure!(resident <= memory.pages(), "{resident} pages are in RAM");
    sys::mlock(memory.page(100), 500 * PAGE)?;
    ensure!(sys::resident_pages(memory.page(100), 500 * PAGE)? == 500, "locked pages are in RAM");
    check_all(&memory, "locked in part")?;
    sys::munlock(memory.page(100), 500 * PAGE)?;
    Ok(())
}

/// Marks for children: none gets zeroes for a file.
///
/// *The story:* MADV_WIPEONFORK succeeded, as the kernel saw anonymous memory, and what had been stored to a
/// private mapping was zeroes in a child.
fn file_marks(memory: &Memory) -> Outcome {
    let wiped = sys::madvise(memory.base(), memory.len(), libc::MADV_WIPEONFORK);
    ensure!(wiped.is_err() && sys::errno() == libc::EINVAL, "MADV_WIPEONFORK of a file gave {wiped:?}");
    let piece = [memory.base(), memory.len()];
    for (advice, expected) in [(libc::MADV_WIPEONFORK, libc::EINVAL), (libc::MADV_KEEPONFORK, 0)] {
        // SAFETY: the piece is whole, and of memory that is ours; content does not change.
        let advised = unsafe {
            let number = libc::SYS_process_madvise;
            libc::syscall(number, super::own_advice::PIDFD_SELF, &raw const piece, 1_usize, advice, 0_u32)
        };
        let errno = if advised < 0 { sys::errno() } else { 0 };
        // Kernels before 6.14 know no such descriptor.
        ensure!(errno == expected || errno == libc::EBADF, "advice {advice} of a piece gave {errno}");
    }
    sys::madvise(memory.base(), memory.len(), libc::MADV_KEEPONFORK)?;
    fork(|| check_all(memory, "in a child that gets all"))?.succeed("a child after marks that are refused")
}

/// `file-hints`: what is said by descriptor, and MAP_POPULATE. What is asked for ahead comes, although
/// the budget is full and nobody touches it; no byte changes.
///
/// *The story:* 1818 of 2048 pages came once in some dozens of runs: those that were there already
/// made room for the rest (`mm/tests/files.rs`).
pub fn hints(context: &mut Context) -> Outcome {
    const PART: usize = 8 * MIB;
    const MARKS: usize = 8;
    let file = Scratch::new(context, size(context))?;
    let memory = file.map(size(context), libc::PROT_READ, SHARED)?;
    let fd = file.file.as_raw_fd();
    check_all(&memory, "before")?;
    // SAFETY: the calls look at no memory.
    let fadvise = |at: usize, len: usize, advice: i32| match unsafe {
        libc::posix_fadvise(fd, at as i64, len as i64, advice)
    } {
        0 => Ok(()),
        errno => Err(Failure(format!("posix_fadvise({at}, {len}, {advice}) gave {errno}"))),
    };
    let comes = |at: usize, what: &str| -> Outcome {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let there = sys::resident_pages(memory.page(at / PAGE), PART)?;
            // All of it, but for marks of streams: those wait in RAM to be touched.
            if there >= PART / PAGE - MARKS {
                return Ok(());
            }
            let pages = PART / PAGE;
            ensure!(std::time::Instant::now() < deadline, "{there} of {pages} pages came by {what}");
            sys::pause_ms(5);
        }
    };
    fadvise(0, 0, libc::POSIX_FADV_RANDOM)?;
    fadvise(8 * MIB, PART, libc::POSIX_FADV_WILLNEED)?;
    comes(8 * MIB, "posix_fadvise")?;
    // SAFETY: as above.
    sys::check("readahead", unsafe { libc::readahead(fd, 24 * MIB as i64, PART) })?;
    comes(24 * MIB, "readahead")?;
    sys::madvise(memory.page(40 * MIB / PAGE), PART, libc::MADV_WILLNEED)?;
    comes(40 * MIB, "madvise")?;
    // SAFETY: the range is ours.
    let advised = unsafe { libc::posix_madvise(memory.at(56 * MIB).cast(), PART, libc::POSIX_MADV_WILLNEED) };
    ensure!(advised == 0, "posix_madvise gave {advised}");
    comes(56 * MIB, "posix_madvise")?;
    check_all(&memory, "asked for")?;
    for advice in [libc::POSIX_FADV_SEQUENTIAL, libc::POSIX_FADV_NORMAL, libc::POSIX_FADV_DONTNEED] {
        fadvise(0, 0, advice)?;
        check_all(&memory, "advised by descriptor")?;
    }
    memory.unmap()?;
    let memory = file.map(size(context), libc::PROT_READ, SHARED | libc::MAP_POPULATE)?;
    check_all(&memory, "populated")?;
    Ok(())
}

/// Signals that were handled.
static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_tick(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    HANDLED.fetch_add(1, Relaxed);
}

/// `file-threads`: two threads read halves in turns, a third stores to a private mapping, while
/// signals interrupt them and other memory presses.
pub fn threads(context: &mut Context) -> Outcome {
    faults::install_handler(libc::SIGUSR2, on_tick)?;
    let file = Scratch::new(context, size(context))?;
    let memory = file.map(size(context), libc::PROT_READ, SHARED)?;
    let private = file.map(size(context), RW, PRIVATE)?;
    let half = memory.pages() / 2;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ticker = scope.spawn(|| {
            while !is_over.load(Relaxed) {
                // SAFETY: a handler is installed.
                unsafe { libc::kill(libc::getpid(), libc::SIGUSR2) };
                std::thread::sleep(std::time::Duration::from_micros(500));
            }
        });
        let result = context.under_pressure(|_| {
            parallel(3, |lane| match lane {
                0 | 1 => (0..2).try_for_each(|_| {
                    pattern::check_pages(&memory, lane * half..(lane + 1) * half, SEED, "a half of it")
                }),
                _ => (1..3u64).try_for_each(|round| {
                    for page in (0..private.pages()).step_by(3) {
                        let before = if round == 1 { SEED } else { SEED + round - 1 };
                        pattern::check_page(&private, page, before, page, "stored to by a thread")?;
                        pattern::fill_page(&private, page, SEED + round, page);
                    }
                    Ok(())
                }),
            })
        });
        is_over.store(true, Relaxed);
        ticker.join().expect("a panic ends the process");
        result
    })?;
    ensure!(HANDLED.load(Relaxed) > 10, "{} signals were handled", HANDLED.load(Relaxed));
    for page in 0..private.pages() {
        let seed = if page % 3 == 0 { SEED + 2 } else { SEED };
        pattern::check_page(&private, page, seed, page, "at last")?;
    }
    Ok(())
}
