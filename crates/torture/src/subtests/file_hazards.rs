//! Mapped files beside what else a process may do: lock all that it maps, give threads descriptors of
//! their own, fork while it maps, give up its rights, grow a mapping. Every byte is checked; bare they are
//! the kernel's own mappings, and must do the same.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::mapped_files::{SABOTAGED, SEED, Scratch, check_all};
use crate::child::fork;
use crate::context::{Context, parallel};
use crate::faults;
use crate::memory::{MIB, Memory, PAGE, RW};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SHARED: i32 = libc::MAP_SHARED;
const PRIVATE: i32 = libc::MAP_PRIVATE;
const READ: i32 = libc::PROT_READ;

/// Large enough to be managed, whatever the budget.
const LEN: usize = 40 * MIB;

/// Long before the kernel takes a lease away (`fs.lease-break-time`).
const LEASE_BREAK: Duration = Duration::from_secs(20);

/// A file in which every page differs from the same one of [`Scratch`]'s, mapped by that name.
fn other_file(context: &Context, len: usize) -> Outcome<Scratch> {
    let mut file = Scratch::new(context, len)?;
    let path = file.path.with_extension("other");
    let writer = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
    let mut bytes = vec![0; MIB];
    for offset in (0..len).step_by(MIB) {
        pattern::bytes(SEED + 1, offset, &mut bytes);
        writer.write_all_at(&bytes, offset as u64)?;
    }
    writer.sync_all()?;
    drop(writer);
    std::fs::remove_file(&file.path)?;
    file.path = path;
    file.file = std::fs::File::open(&file.path)?;
    Ok(file)
}

/// A file that fits into nothing else, and one like it with other bytes.
fn two_files(context: &Context) -> Outcome<[Scratch; 2]> {
    // First: both have one name for a while.
    let other = other_file(context, LEN)?;
    Ok([Scratch::new(context, LEN)?, other])
}

/// Some pages of a file, with the one that is wrong in a run that is to fail.
fn some_pages(memory: &Memory) -> impl Iterator<Item = usize> {
    (SABOTAGED % 50..memory.pages()).step_by(50)
}

/// May this user lock as much as the subtests map? Others can map nothing after mlockall.
pub(super) fn may_lock() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is the call's, and the other one asks.
    let (is_told, user) =
        unsafe { (libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) == 0, libc::geteuid()) };
    user == 0 || is_told && limit.rlim_cur >= 512 * MIB as u64
}

/// `file-locked`: what is mapped after mlockall(MCL_FUTURE) shows the file, locked when it is touched and
/// at once, shared and private.
///
/// *The story:* the kernel filled the memory that was to stand for the file with zeroes, as it was locked,
/// before anybody watched it. No fault came, and the file was never read.
pub fn locked(context: &mut Context) -> Outcome {
    const MCL_ONFAULT: i32 = 4;
    let file = Scratch::new(context, LEN)?;
    context.press()?;
    if !may_lock() {
        return Ok(());
    }
    for how in [libc::MCL_FUTURE, libc::MCL_FUTURE | MCL_ONFAULT] {
        for (protection, flags) in [(READ, SHARED), (READ, PRIVATE), (RW, PRIVATE)] {
            let child = fork(|| {
                // SAFETY: changes no content.
                sys::check("mlockall", unsafe { libc::mlockall(how) } as isize)?;
                let memory = file.map(LEN, protection, flags)?;
                check_all(&memory, "mapped when all is locked")?;
                if protection & libc::PROT_WRITE != 0 {
                    pattern::fill_pages(&memory, 0..100, SEED + 1);
                    pattern::check_pages(&memory, 0..100, SEED + 1, "stored to, and locked")?;
                }
                memory.unmap()
            })?;
            child.succeed(&format!("a child with mlockall({how})"))?;
        }
    }
    Ok(())
}

/// `file-own-table`: a thread with a table of descriptors of its own maps the file that it has there.
///
/// *The story:* the number was looked up in the first thread's table, where it was another file's. The
/// thread got that one's bytes.
pub fn own_table(context: &mut Context) -> Outcome {
    let [file, other] = two_files(context)?;
    // Nothing fits beside that.
    context.press()?;
    let (number, theirs) = (file.file.as_raw_fd(), other.file.as_raw_fd());
    for flags in [SHARED, PRIVATE] {
        let thread = std::thread::scope(|scope| {
            let run = || -> Outcome {
                // SAFETY: from here on the thread has a table of its own.
                sys::check("unshare", unsafe { libc::unshare(libc::CLONE_FILES) } as isize)?;
                // SAFETY: the other file takes the number's place, in this table only.
                sys::check("dup2", unsafe { libc::dup2(theirs, number) } as isize)?;
                let memory = file.map(LEN, READ, flags)?;
                pattern::check_pages(&memory, 0..memory.pages(), SEED + 1, "a thread's own file")?;
                memory.unmap()
            };
            scope.spawn(run).join().expect("a panic ends the process")
        });
        thread?;
        let memory = file.map(LEN, READ, flags)?;
        check_all(&memory, "the first thread's file")?;
        memory.unmap()?;
    }
    Ok(())
}

/// `file-opened-beside`: threads make pages of one read-only mapping writable at the same time, each one of
/// its own, and store to it at once.
///
/// *The story:* what the program believes to be read-only is not, until it changes any protection there.
/// Two threads that did so at once both made it so, and the slower one did it to the page that the faster
/// one had just made writable: SIGSEGV.
pub fn opened_beside(context: &mut Context) -> Outcome {
    const ROUNDS: usize = 1000;
    const LANES: usize = 3;
    const STORES: usize = 20_000;
    faults::install()?;
    let file = Scratch::new(context, LEN)?;
    context.press()?;
    let memory = file.map(LEN, READ, PRIVATE)?;
    check_all(&memory, "before any is made writable")?;
    memory.unmap()?;
    let (start, end) = (Barrier::new(LANES), Barrier::new(LANES));
    let place = AtomicUsize::new(0);
    parallel(LANES, |lane| {
        let mut result = Ok(());
        // A lane that fails goes on, or the others would wait for it.
        for round in 0..ROUNDS {
            if lane == 0 {
                place.store(file.map(LEN, READ, PRIVATE)?.forget().0, SeqCst);
            }
            start.wait();
            let page = place.load(SeqCst) + lane * 10 * MIB;
            let stored = sys::mprotect(page, PAGE, RW).and_then(|()| {
                for _ in 0..STORES {
                    let stored = faults::store(page + 8, round as u8);
                    ensure!(stored.is_ok(), "a store to what was made writable: {stored:?}, round {round}");
                }
                Ok(())
            });
            result = result.and(stored);
            end.wait();
            if lane == 0 {
                sys::munmap(place.load(SeqCst), LEN)?;
            }
        }
        result
    })?;
    Ok(())
}

/// `file-grow-beside`: a mapping grows while many threads map, unmap and advise others. All of it is the
/// file's.
///
/// *The story:* who wanted to have a mapping handed back first asked for 50 ms, and did without where
/// others were always before him. Managed memory grew then, by zeroes.
pub fn grow_beside(context: &mut Context) -> Outcome {
    const LANES: usize = 6;
    const ROUNDS: usize = 30;
    let [file, other] = two_files(context)?;
    context.press()?;
    let half = LEN / 2;
    let advised = &other.map(half, READ, PRIVATE)?;
    let is_over = &AtomicBool::new(false);
    let busy = |lane: usize| -> Outcome {
        while !is_over.load(SeqCst) {
            if lane.is_multiple_of(2) {
                let advice = [libc::MADV_WILLNEED, libc::MADV_RANDOM][lane / 2 % 2];
                sys::madvise(advised.base(), advised.len(), advice)?;
                continue;
            }
            let memory = other.map(half, RW, PRIVATE)?;
            for page in (0..memory.pages()).step_by(16) {
                pattern::check_page(&memory, page, SEED + 1, page, "beside one that grows")?;
            }
            memory.unmap()?;
        }
        Ok(())
    };
    let grow = || -> Outcome {
        for _ in 0..ROUNDS {
            let memory = file.map(half, READ, PRIVATE)?;
            pattern::check_page(&memory, 5, SEED, 5, "before it grows")?;
            let base = sys::mremap(memory.forget().0, half, LEN, libc::MREMAP_MAYMOVE, 0)?;
            let memory = Memory::adopt(base, LEN);
            for page in some_pages(&memory) {
                pattern::check_page(&memory, page, SEED, page, "grown beside others")?;
            }
            memory.unmap()?;
        }
        Ok(())
    };
    parallel(LANES + 1, |lane| {
        if lane < LANES {
            return busy(lane);
        }
        let grown = grow();
        is_over.store(true, SeqCst);
        grown
    })?;
    Ok(())
}

/// `file-grow-stored`: private mappings grow to which the program has stored, in place and elsewhere, more
/// than once. What was stored is there, all else is the file's, children see the same, and what is stored
/// later stays.
///
/// *The story:* what was stored to was in mappings of its own when the rest had been handed back. The
/// kernel lets no several mappings grow: EFAULT, after one store.
pub fn grow_stored(context: &mut Context) -> Outcome {
    let file = Scratch::new(context, LEN)?;
    let half = LEN / 2;
    let is_stored = |page: usize| page.is_multiple_of(700) || page == half / PAGE - 1;
    let check = |memory: &Memory, what: &str| -> Outcome {
        (0..memory.pages()).try_for_each(|page| {
            let stored = page < half / PAGE && is_stored(page);
            pattern::check_page(memory, page, SEED + u64::from(stored), page, what)
        })
    };
    for way in ["in place", "elsewhere", "to a place"] {
        // The place behind the mapping is free, or it is not.
        let memory = file.map(half, RW, PRIVATE)?;
        let room = sys::mmap(0, 2 * LEN, libc::PROT_NONE, PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let memory = Memory::adopt(sys::mremap(memory.forget().0, half, half, flags, room)?, half);
        (0..memory.pages()).filter(|&page| is_stored(page)).for_each(|page| {
            pattern::fill_page(&memory, page, SEED + 1, page);
        });
        context.press()?;
        let old = memory.forget().0;
        let behind = room + half;
        let grow = |old: usize, from: usize, to: usize| match way {
            "in place" => sys::mremap(old, from, to, 0, 0),
            "elsewhere" => sys::mremap(old, from, to, libc::MREMAP_MAYMOVE, 0),
            _ => sys::mremap(old, from, to, flags, room + LEN),
        };
        if way == "in place" {
            sys::munmap(behind, 2 * LEN - half)?;
        }
        let between = half + LEN / 4;
        let base = grow(old, half, between)?;
        let memory = Memory::adopt(base, between);
        check(&memory, &format!("grown {way}"))?;
        // A second time, by way of where it is.
        let flags = if way == "in place" { 0 } else { libc::MREMAP_MAYMOVE };
        let memory = Memory::adopt(sys::mremap(memory.forget().0, between, LEN, flags, 0)?, LEN);
        check(&memory, &format!("grown {way}, twice"))?;
        fork(|| check(&memory, "in a child"))?.succeed("a child of what has grown")?;
        let last = memory.pages() - 1;
        pattern::fill_page(&memory, last, SEED + 2, last);
        context.press()?;
        pattern::check_page(&memory, last, SEED + 2, last, "stored to where it has grown")?;
        pattern::check_page(&memory, last - 1, SEED, last - 1, "next to that")?;
        memory.unmap()?;
    }
    Ok(())
}

/// `file-lease`: whoever opens a file for writing does not wait for a mapping that the kernel has again,
/// since a part of it was locked, or it has grown; nor is he sent away.
///
/// *The story:* the kernel's mapping was made by the open file that had the lease, and kept it. Whoever
/// wanted to write waited until the kernel took it away after 45 s.
pub fn lease(context: &mut Context) -> Outcome {
    context.press()?;
    for way in ["locked", "grown", "grown past its end", "unmapped"] {
        let file = Scratch::new(context, LEN)?;
        let half = LEN / 2;
        let memory = file.map(half, READ, SHARED)?;
        check_all(&memory, "before")?;
        let (base, len) = match way {
            "locked" => {
                sys::mlock(memory.base(), PAGE)?;
                (memory.base(), half)
            }
            "unmapped" => (memory.base(), half),
            _ => {
                let len = if way == "grown" { LEN } else { LEN + MIB };
                (sys::mremap(memory.base(), half, len, libc::MREMAP_MAYMOVE, 0)?, len)
            }
        };
        memory.forget();
        if way == "unmapped" {
            sys::munmap(base, len)?;
        }
        let began = Instant::now();
        // At once, where it was handed back before the call returned.
        if way != "unmapped" {
            let opened =
                OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&file.path).map(drop);
            ensure!(opened.is_ok(), "what was {way}: {opened:?} without waiting");
        }
        let writer = OpenOptions::new().write(true).open(&file.path)?;
        ensure!(began.elapsed() < LEASE_BREAK, "who writes to what was {way} waited {:?}", began.elapsed());
        writer.write_all_at(&[7; PAGE], 100 * PAGE as u64)?;
        if way != "unmapped" {
            let memory = Memory::adopt(base, len);
            let found = memory.word(100, 3).load(SeqCst);
            ensure!(found == 0x0707_0707_0707_0707, "what was {way} shows {found:#x}");
            memory.unmap()?;
        }
    }
    Ok(())
}

/// `file-fork-beside`: one thread maps two files in turn, and unmaps them, while others fork. A child finds
/// what was mapped when it was made.
///
/// *The story:* what was mapped while a fork was under way was not in the child's list, and showed zeroes.
/// And the descriptor for children of one file was taken for that of the next one, which had its place by
/// then: the child saw another file's bytes, or nothing at all.
pub fn fork_beside(context: &mut Context) -> Outcome {
    const FORKERS: usize = 3;
    const FORKS: usize = 60;
    const SOME: usize = 20 * MIB;
    let files = &two_files(context)?;
    context.press()?;
    let (published, left) = (&AtomicUsize::new(0), &AtomicUsize::new(FORKERS));
    let map = |protection: i32| -> Outcome {
        let mut number = 0;
        while left.load(SeqCst) > 0 {
            let memory = files[number].map(SOME, protection, PRIVATE)?;
            published.store(memory.base() | (number + 1), SeqCst);
            std::thread::sleep(Duration::from_micros(500));
            published.store(0, SeqCst);
            // A child that was made before has the mapping.
            std::thread::sleep(Duration::from_micros(500));
            memory.unmap()?;
            number = 1 - number;
        }
        Ok(())
    };
    let look = || -> Outcome {
        let found = published.load(SeqCst);
        if found == 0 {
            return Ok(());
        }
        let memory = Memory::adopt(found & !(PAGE - 1), SOME);
        let seed = SEED + (found % PAGE) as u64 - 1;
        for page in some_pages(&memory) {
            pattern::check_page(&memory, page, seed, page, "in a child beside one that maps")?;
        }
        memory.forget();
        Ok(())
    };
    let forks = || -> Outcome {
        (0..FORKS).try_for_each(|_| fork(look)?.succeed("a child beside a thread that maps"))
    };
    for protection in [READ, RW] {
        left.store(FORKERS, SeqCst);
        parallel(FORKERS + 1, |lane| {
            if lane == 0 {
                return map(protection);
            }
            let forked = forks();
            left.fetch_sub(1, SeqCst);
            forked
        })?;
    }
    Ok(())
}

/// `file-fork-rights`: a process that has no descriptor left, and one that (as root) has given its rights
/// or its root directory up, forks. Its children see the file that it had mapped before; and record locks
/// that it holds are not lost by forking.
///
/// *The story:* the child's file was opened before each fork, with what the program might open by then. It
/// was unmapped in the child where that failed: daemons that give up root's rights had children that ended
/// by SIGSEGV. Where it could be opened it was closed again, and the locks on the file went with it.
pub fn fork_rights(context: &mut Context) -> Outcome {
    let file = Scratch::new(context, LEN)?;
    // SAFETY: asks.
    let is_root = unsafe { libc::geteuid() } == 0;
    let jail = Jail(file.path.with_extension("jail"));
    std::fs::create_dir(&jail.0)?;
    let directory = std::ffi::CString::new(jail.0.to_str().unwrap_or("/")).expect("no zeroes are in it");
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&file.path, std::fs::Permissions::from_mode(0o600))?;
    }
    context.press()?;
    let ways: &[&str] =
        if is_root { &["descriptors", "locks", "rights", "root"] } else { &["descriptors", "locks"] };
    for way in ways {
        for (protection, flags) in [(READ, SHARED), (RW, PRIVATE)] {
            let child = fork(|| {
                let memory = file.map(LEN, protection, flags)?;
                let seed = |page: usize| SEED + u64::from(flags == PRIVATE && page == 900);
                let check = |what: &str| {
                    let pages = some_pages(&memory).chain([900]);
                    pages
                        .into_iter()
                        .try_for_each(|page| pattern::check_page(&memory, page, seed(page), page, what))
                };
                if flags == PRIVATE {
                    pattern::fill_page(&memory, 900, SEED + 1, 900);
                }
                check("before")?;
                give_up(way, &file, &directory)?;
                for _ in 0..2 {
                    let child = fork(|| {
                        check("in the child")?;
                        ensure!(*way != "locks" || is_locked(&file)?, "a record lock is gone");
                        Ok(())
                    })?;
                    child.succeed(&format!("a child without {way}"))?;
                }
                check("afterwards")
            })?;
            child.succeed(&format!("one that gave up {way}"))?;
        }
    }
    Ok(())
}

/// An empty directory, which goes with this.
struct Jail(std::path::PathBuf);

impl Drop for Jail {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn give_up(way: &str, file: &Scratch, directory: &std::ffi::CStr) -> Outcome {
    match way {
        "descriptors" => {
            let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
            // SAFETY: the structure is the call's.
            sys::check("setrlimit", unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }
                as isize)?;
            // SAFETY: makes descriptors, until there are no more.
            while unsafe { libc::dup(file.file.as_raw_fd()) } >= 0 {}
        }
        "rights" => {
            // SAFETY: takes rights away from this process only.
            sys::check("setgid", unsafe { libc::setgid(65534) } as isize)?;
            // SAFETY: as above.
            sys::check("setuid", unsafe { libc::setuid(65534) } as isize)?;
        }
        "root" => {
            // SAFETY: changes where names of this process begin.
            sys::check("chroot", unsafe { libc::chroot(directory.as_ptr()) } as isize)?;
        }
        _ => {
            let lock = record();
            // SAFETY: the structure is the call's.
            let set = unsafe { libc::fcntl(file.file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
            sys::check("F_SETLK", set as isize)?;
        }
    }
    Ok(())
}

/// A lock for reading on the first byte.
fn record() -> libc::flock {
    // SAFETY: all zeroes are a value of the plain structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence, lock.l_len) = (libc::F_RDLCK as i16, libc::SEEK_SET as i16, 1);
    lock
}

/// Does another process hold a lock on the first byte?
fn is_locked(file: &Scratch) -> Outcome<bool> {
    let mut lock = record();
    lock.l_type = libc::F_WRLCK as i16;
    // SAFETY: the structure is the call's.
    let asked = unsafe { libc::fcntl(file.file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    sys::check("F_GETLK", asked as isize)?;
    Ok(lock.l_type != libc::F_UNLCK as i16)
}
