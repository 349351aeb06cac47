//! Calls about mapped files that the kernel refuses, or that concern them in part only: what is not a
//! pager's to answer is answered by the kernel, managed or not.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering::Relaxed;

use super::mapped_files::{LEN, SEED, Scratch};
use crate::context::Context;
use crate::faults;
use crate::memory::{MIB, Memory, PAGE, RW};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const READ: i32 = libc::PROT_READ;
const SHARED: i32 = libc::MAP_SHARED;
/// Managed from here on.
const PART: usize = 16 * MIB;
/// A flag that no mapping has.
const NO_FLAG: i32 = 1 << 22;

/// `file-refused`: mappings with flags or descriptors that the kernel has its own answer to, and advice
/// for ranges that begin within a page or have gaps.
///
/// *The story:* a pager mapped what the kernel refuses (by a descriptor that only names its file, or is
/// not for reading), and elsewhere than MAP_32BIT says; and all advice went well.
///
/// *Another story:* where a file cannot be made writable that was said first, whatever else was wrong.
pub fn refused(context: &mut Context) -> Outcome {
    let file = Scratch::new(context, LEN)?;
    let opened = |flags: i32, write: bool| {
        OpenOptions::new().read(!write).write(write).custom_flags(flags).open(&file.path)
    };
    let maps = |fd: i32, flags: i32| match sys::mmap(0, LEN, READ, flags, fd) {
        Ok(base) => Ok(Memory::adopt(base, LEN)),
        Err(_) => Err(sys::errno()),
    };
    let named = opened(libc::O_PATH, false)?;
    let found = maps(named.as_raw_fd(), SHARED).err();
    ensure!(found == Some(libc::EBADF), "a mapping by O_PATH gave {found:?}");
    let writer = opened(0, true)?;
    let found = maps(writer.as_raw_fd(), SHARED).err();
    ensure!(found == Some(libc::EACCES), "a mapping by O_WRONLY gave {found:?}");
    drop((named, writer));
    let fd = file.file.as_raw_fd();
    for flag in [libc::MAP_SYNC, NO_FLAG] {
        let found = maps(fd, libc::MAP_SHARED_VALIDATE | flag).err();
        ensure!(found == Some(libc::EOPNOTSUPP), "MAP_SHARED_VALIDATE with {flag:#x} gave {found:?}");
    }
    let low = file.map(LEN, READ, SHARED | libc::MAP_32BIT)?;
    ensure!(low.base() + LEN <= 1 << 32, "MAP_32BIT gave {:#x}", low.base());
    pattern::check_pages(&low, 0..low.pages(), SEED, "mapped low")?;
    low.unmap()?;
    bad_ranges(&file)?;
    Ok(())
}

fn bad_ranges(file: &Scratch) -> Outcome {
    let memory = file.map(LEN, READ, SHARED)?;
    let told = |start: usize, len: usize, advice: i32| {
        sys::madvise(start, len, advice).map_or_else(|_| sys::errno(), |()| 0)
    };
    let all = [libc::MADV_WILLNEED, libc::MADV_RANDOM, libc::MADV_SEQUENTIAL, libc::MADV_NORMAL];
    for advice in all {
        let found = told(memory.base() + 8, PAGE, advice);
        ensure!(found == libc::EINVAL, "advice {advice} from within a page gave {found}");
    }
    sys::munmap(memory.page(100), PAGE)?;
    for advice in all {
        let found = [(0, 100), (101, 50), (90, 20)]
            .map(|(first, pages)| told(memory.page(first), pages * PAGE, advice));
        ensure!(found == [0, 0, libc::ENOMEM], "advice {advice} before, behind and over a gap: {found:?}");
    }
    let protect = |first: usize, flags: i32| {
        let made = sys::mprotect(memory.page(first), 50 * PAGE, RW | flags);
        made.map_or_else(|_| sys::errno(), |()| 0)
    };
    let found = [(0, 0), (0, libc::PROT_GROWSDOWN), (100, 0)].map(|(first, flags)| protect(first, flags));
    let expected = [libc::EACCES, libc::EINVAL, libc::ENOMEM];
    ensure!(found == expected, "made writable, to grow, and from a gap on: {found:?}");
    pattern::check_pages(&memory, 0..100, SEED, "before the gap")?;
    pattern::check_pages(&memory, 101..memory.pages(), SEED, "behind the gap")?;
    memory.unmap()
}

/// `file-rare`: calls that few make: MADV_REMOVE, pkey_mprotect.
///
/// *The story:* MADV_REMOVE of a mapping for reading was EINVAL. And (by reading) a mapping for reading that
/// pkey_mprotect made writable ended who stored to it, or was made writable where the kernel says EACCES.
pub fn rare(context: &mut Context) -> Outcome {
    faults::install()?;
    let file = Scratch::new(context, LEN)?;
    let memory = file.map(LEN, READ, SHARED)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "before")?;
    let removed = errno(sys::madvise(memory.page(7), PAGE, libc::MADV_REMOVE).is_err());
    ensure!(removed == libc::EACCES, "MADV_REMOVE gave {removed}");
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after advice that was refused")?;
    memory.unmap()?;
    let own = Memory::map(PAGE)?;
    // Not every processor has keys, not even the one that every process has.
    if protect_by_key(&own, 0, 1, READ) == 0 { keyed(context, &file) } else { Ok(()) }
}

fn errno(failed: bool) -> i32 {
    if failed { sys::errno() } else { 0 }
}

/// With key 0, which every process has.
fn protect_by_key(memory: &Memory, first: usize, pages: usize, protection: i32) -> i32 {
    let (number, start, len) = (libc::SYS_pkey_mprotect, memory.page(first), pages * PAGE);
    // SAFETY: the range is ours, and nobody has a reference into it.
    errno(unsafe { libc::syscall(number, start, len, protection, 0) != 0 })
}

fn keyed(context: &mut Context, file: &Scratch) -> Outcome {
    let memory = file.map(LEN, READ, SHARED)?;
    let found = [(0, RW), (50, libc::PROT_NONE)].map(|(first, how)| protect_by_key(&memory, first, 10, how));
    ensure!(found == [libc::EACCES, 0], "a shared mapping with a key: {found:?}");
    pattern::check_pages(&memory, 0..50, SEED, "before what has a key")?;
    pattern::check_pages(&memory, 60..memory.pages(), SEED, "behind what has a key")?;
    memory.unmap()?;
    let memory = file.map(LEN, READ, libc::MAP_PRIVATE)?;
    let half = memory.pages() / 2;
    let found = protect_by_key(&memory, 0, half, RW);
    ensure!(found == 0, "a private mapping with a key: {found}");
    for page in (0..half).step_by(3) {
        let stored = faults::store(memory.page(page), 1);
        ensure!(stored.is_ok(), "a store to page {page}: {stored:?}");
        pattern::fill_page(&memory, page, SEED + 1, page);
    }
    let stored = faults::store(memory.page(half), 1);
    ensure!(stored.is_err(), "a store to a page for reading went well");
    context.press()?;
    for page in 0..memory.pages() {
        let is_stored = page < half && page % 3 == 0;
        pattern::check_page(&memory, page, SEED + u64::from(is_stored), page, "with a key")?;
    }
    memory.unmap()
}

/// `file-hints-in-part`: what is asked for ahead of a file that is mapped six times, and of one of which
/// a part is the kernel's: all of it comes.
///
/// *The story:* four mappings were told of, and the kernel of nothing as soon as there was one.
pub fn hints_in_part(context: &mut Context) -> Outcome {
    const WANTED: usize = MIB;
    let file = Scratch::new(context, LEN)?;
    let fd = file.file.as_raw_fd();
    let fadvise = |at: usize, len: usize, advice: i32| -> Outcome {
        // SAFETY: the call looks at no memory.
        let errno = unsafe { libc::posix_fadvise(fd, at as i64, len as i64, advice) };
        ensure!(errno == 0, "posix_fadvise({at}, {len}, {advice}) gave {errno}");
        Ok(())
    };
    let comes = |memory: &Memory, first: usize, pages: usize, what: &str| {
        sys::eventually(|| {
            let there = sys::resident_pages(memory.page(first), pages * PAGE)?;
            ensure!(there == pages, "{there} of {pages} pages came of {what}");
            Ok(())
        })
    };
    fadvise(0, 0, libc::POSIX_FADV_DONTNEED)?;
    let six = (0..6).map(|_| file.map(PART, READ, SHARED)).collect::<Outcome<Vec<Memory>>>()?;
    fadvise(0, WANTED, libc::POSIX_FADV_WILLNEED)?;
    for (number, memory) in six.iter().enumerate() {
        comes(memory, 0, WANTED / PAGE, &format!("mapping {number}"))?;
    }
    // Behind the last of them is a mapping that is too small to be managed.
    let small = Memory::adopt(sys::mmap_from(PART, 2 * MIB, fd)?, 2 * MIB);
    for (by, len) in [("posix_fadvise", 16), ("readahead", 32)] {
        let at = PART - PAGE;
        if by == "readahead" {
            // SAFETY: as above.
            sys::check(by, unsafe { libc::readahead(fd, at as i64, PAGE * (len + 1)) })?;
        } else {
            fadvise(at, PAGE * (len + 1), libc::POSIX_FADV_WILLNEED)?;
        }
        comes(&six[0], PART / PAGE - 1, 1, by)?;
        comes(&small, 0, len, by)?;
    }
    drop(small);
    advised_in_part(&file.map(PART, READ, SHARED)?)?;
    for memory in six {
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "asked for")?;
    }
    Ok(())
}

/// Memory of its own in the middle of a mapping: advice reaches it, too.
fn advised_in_part(memory: &Memory) -> Outcome {
    let (first, pages) = (memory.pages() / 2, 512);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let place = sys::mmap(memory.page(first), pages * PAGE, READ | libc::PROT_WRITE, flags, -1)?;
    ensure!(place == memory.page(first), "MAP_FIXED gave another place");
    for page in first..first + pages {
        memory.word(page, 0).store(page as u64, Relaxed);
    }
    for advice in [libc::MADV_SEQUENTIAL, libc::MADV_WILLNEED, libc::MADV_NOHUGEPAGE] {
        sys::madvise(memory.base(), memory.len(), advice)?;
    }
    for page in first..first + pages {
        let found = memory.word(page, 0).load(Relaxed);
        ensure!(found == page as u64, "page {page} in the middle holds {found:#x}");
    }
    Ok(())
}
