//! What belongs to the process as a whole: break, locks, limits, descriptors, credentials, very
//! large reservations, shared memory.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

use crate::child;
use crate::context::Context;
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW};
use crate::outcome::Outcome;
use crate::sys::check;
use crate::{ensure, fail, pattern, sys};

const SEED: u64 = 0x9c0c;

/// `brk`: the break goes up, memory there goes cold and is right, the break goes down and up again,
/// memory there is zero. Runs in a thread of its own, whose allocations come from elsewhere.
pub fn brk(context: &mut Context) -> Outcome {
    std::thread::scope(|scope| {
        scope.spawn(|| brk_in_thread(context)).join().expect("a panic ends the process")
    })
}

fn brk_in_thread(context: &mut Context) -> Outcome {
    let len = context.options.mib * MIB / 4 / PAGE * PAGE;
    // SAFETY: sbrk(0) asks; the others move the break over memory that only this subtest uses, as
    // the allocator of this thread has an arena of its own and the main thread waits.
    let start = unsafe { libc::sbrk(0) } as usize;
    let start = start.next_multiple_of(PAGE);
    set_break(start + len)?;
    let memory = Memory::adopt(start, len);
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "above the old break")?;
    for kept in [memory.pages() / 2 + 3, memory.pages() / 4] {
        context.cool(&memory)?;
        set_break(start + kept * PAGE)?;
        pattern::check_pages(&memory, 0..kept, SEED, "below the lowered break")?;
        set_break(start + len)?;
        pattern::check_zero(&memory, kept..memory.pages(), "above the raised break")?;
        pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    }
    memory.forget();
    set_break(start)
}

fn set_break(address: usize) -> Outcome {
    // SAFETY: see `brk_in_thread`.
    check("brk", unsafe { libc::brk(address as *mut _) } as isize).map(drop)
}

/// `mlock`: locking cold memory brings it in and keeps it in, locking warm memory keeps it in;
/// unlocking lets go.
pub fn mlock(context: &mut Context) -> Outcome {
    const LOCKED: usize = 4 * MIB;
    let memory = context.subject(SEED)?;
    let (warm, cold) = (memory.base() + MIB, memory.base() + memory.len() - 2 * LOCKED);
    context.cool(&memory)?;
    pattern::check_pages(&memory, 256..256 + LOCKED / PAGE, SEED, "to be locked")?;
    for start in [warm, cold] {
        sys::mlock(start, LOCKED)?;
        ensure!(sys::resident_pages(start, LOCKED)? == LOCKED / PAGE, "mlock returned before all was in RAM");
    }
    context.press()?;
    for start in [warm, cold] {
        let resident = sys::resident_pages(start, LOCKED)?;
        ensure!(resident == LOCKED / PAGE, "{resident} of {} locked pages are in RAM", LOCKED / PAGE);
    }
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "beside and in locked memory")?;
    sys::munlock(warm, LOCKED)?;
    sys::munlock(cold, LOCKED)?;
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "unlocked")?;
    let fresh = Memory::map_with(LOCKED, RW, PRIVATE | libc::MAP_LOCKED)?;
    pattern::fill_pages(&fresh, 0..fresh.pages(), SEED);
    context.press()?;
    ensure!(sys::resident_pages(fresh.base(), LOCKED)? == LOCKED / PAGE, "MAP_LOCKED memory was paged out");
    pattern::check_pages(&fresh, 0..fresh.pages(), SEED, "mapped locked")
}

/// `mlock-grows`: cold memory that was locked moves, and grows by more than moves: zeroes, locked as well.
///
/// *The story:* the kernel fills what it grows by before it tells of the move, and refused whatever would
/// have answered that. The thread waited for ever, and all who touched what was out did, too.
pub fn mlock_grows(context: &mut Context) -> Outcome {
    const MOVED: usize = MIB / 8;
    const FIRST: usize = 512;
    type Call = fn(usize, usize, usize, i32, usize) -> Outcome<usize>;
    let [heard, unheard]: [Call; 2] = [sys::mremap, sys::mremap_unheard];
    let (little, much) = (4 * MIB, 160 * MIB);
    let to = libc::MREMAP_FIXED;
    let ways = [(heard, to, little), (heard, 0, little), (unheard, to, little), (unheard, 0, much)];
    for (call, flags, grown) in ways {
        let memory = Memory::map(8 * MIB)?;
        pattern::fill_pages(&memory, 0..memory.pages(), SEED);
        context.cool(&memory)?;
        sys::mlock(memory.page(FIRST), MOVED)?;
        context.press()?;
        // Nobody else's addresses.
        let (target, len) = Memory::map_with(MOVED + grown, libc::PROT_NONE, PRIVATE)?.forget();
        let new = call(memory.page(FIRST), MOVED, len, flags | libc::MREMAP_MAYMOVE, target)?;
        let moved = Memory::adopt(new, len);
        let kept = MOVED / PAGE;
        for page in 0..kept {
            pattern::check_page(&moved, page, SEED, FIRST + page, "moved")?;
        }
        pattern::check_zero(&moved, kept..moved.pages(), "what it grew by")?;
        let resident = sys::resident_pages(new, len)?;
        ensure!(resident == moved.pages(), "{resident} of {} locked pages are in RAM", moved.pages());
        pattern::fill_pages(&moved, 0..moved.pages(), SEED + 1);
        context.press()?;
        pattern::check_pages(&moved, 0..moved.pages(), SEED + 1, "stored to since")?;
        pattern::check_pages(&memory, 0..FIRST, SEED, "before what moved")?;
        moved.unmap()?;
        memory.unmap()?;
        if flags == 0 {
            sys::munmap(target, len)?;
        }
    }
    Ok(())
}

/// `closeall`: the program closes every descriptor, by a loop and by close_range, and goes on;
/// numbers that it opens afterwards start where they should.
pub fn close_all(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    // SAFETY: closes descriptors that nothing in this program uses any more, as its files are
    // opened and closed in single calls; 1 and 2 stay.
    (3..65_536).for_each(|fd| _ = unsafe { libc::close(fd) });
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after closing by a loop")?;
    context.cool(&memory)?;
    // SAFETY: as above.
    check("close_range", unsafe { libc::close_range(3, u32::MAX, 0) } as isize)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after close_range")?;
    let (reader, writer) = sys::pipe()?;
    ensure!(
        reader.as_raw_fd() <= 3 && writer.as_raw_fd() <= 4,
        "descriptors {reader:?} and {writer:?} are not the lowest"
    );
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after opening again")
}

/// `descriptors`: nothing but what the program was given or has opened is in its descriptor table.
pub fn descriptors(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        let foreign = ["memfd:", "userfaultfd", "io_uring", "overspill", "(deleted)"];
        if entry.file_name().to_string_lossy().parse::<i32>().is_ok_and(|fd| fd > 2) {
            ensure!(
                !foreign.iter().any(|part| target.contains(part)),
                "descriptor {:?} is {target}",
                entry.file_name()
            );
        }
    }
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "while listing descriptors")
}

/// `rlimit`: the program lowers its limits for address space, data, descriptors and locked memory
/// after the start.
pub fn rlimit(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let mapped = std::fs::read_to_string("/proc/self/statm")?;
    let mapped_pages: u64 = mapped.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    ensure!(mapped_pages > 0, "/proc/self/statm says {mapped:?}");
    set_limit(libc::RLIMIT_AS, mapped_pages * PAGE as u64 + MIB as u64)?;
    set_limit(libc::RLIMIT_DATA, MIB as u64)?;
    set_limit(libc::RLIMIT_NOFILE, 3)?;
    set_limit(libc::RLIMIT_MEMLOCK, 0)?;
    set_limit(libc::RLIMIT_NPROC, 1)?;
    // What somebody else has of the addresses may come on top of the limit.
    let mapped = mapped_pages as usize * PAGE;
    ensure!(Memory::map(mapped).is_err(), "the limit on address space does not hold");
    for round in 0..3 {
        context.cool(&memory)?;
        pattern::check_pages(&memory, 0..memory.pages(), SEED + round, "under limits")?;
        pattern::fill_pages(&memory, 0..memory.pages(), SEED + round + 1);
    }
    Ok(())
}

/// `rlimit-fsize`: the program forbids itself to write files, or lets them end within a page; whatever a
/// pager can do then, content stays right.
pub fn rlimit_fsize(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let changed = memory.pages() / 4;
    let limits = [1, 5, 20, 40].map(|mib| mib * MIB as u64 + 100).into_iter().chain([0]);
    let outcome = (1..).zip(limits).try_for_each(|(round, limit)| {
        set_limit(libc::RLIMIT_FSIZE, limit)?;
        pattern::fill_pages(&memory, 0..changed, SEED + round);
        context.cool(&memory)?;
        let what = format!("where files have {limit} bytes");
        pattern::check_pages(&memory, 0..changed, SEED + round, &what)?;
        pattern::check_pages(&memory, changed..memory.pages(), SEED, &what)
    });
    // The closing line may go to a file.
    set_limit(libc::RLIMIT_FSIZE, u64::MAX)?;
    outcome
}

/// Sets the soft limit, to `value` or what the hard limit allows. Returns what it was.
pub fn set_limit(resource: libc::__rlimit_resource_t, value: u64) -> Outcome<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours.
    check("getrlimit", unsafe { libc::getrlimit(resource, &raw mut limit) } as isize)?;
    let before = limit.rlim_cur;
    limit.rlim_cur = value.min(limit.rlim_max);
    // SAFETY: `limit` is initialised and only read.
    check("setrlimit", unsafe { libc::setrlimit(resource, &raw const limit) } as isize)?;
    Ok(before)
}

/// `sparse`: 64 TiB reserved as JVMs and sanitizers do it, parts of it used far apart; and 32 TiB
/// that is accessible from end to end.
pub fn sparse(context: &mut Context) -> Outcome {
    const TIB: usize = 1 << 40;
    const PART: usize = 4 * MIB;
    let parts = context.options.mib * MIB / 2 / PART;
    let reserve = PRIVATE | libc::MAP_NORESERVE;
    let mut spaces =
        [Memory::map_with(64 * TIB, libc::PROT_NONE, reserve)?, Memory::map_with(32 * TIB, RW, reserve)?];
    let addresses = |space: &Memory| -> Vec<usize> {
        (0..parts)
            .map(|part| space.base() + (space.len() - PART) / parts.max(2) / PAGE * PAGE * part)
            .collect()
    };
    for address in addresses(&spaces[0]) {
        sys::mprotect(address, PART, RW)?;
    }
    for space in &mut spaces {
        for address in addresses(space) {
            let part = Memory::adopt(address, PART);
            pattern::fill_pages(&part, 0..part.pages(), address as u64);
            part.forget();
        }
    }
    for round in 0..2 {
        context.press()?;
        for space in &spaces {
            for address in addresses(space) {
                let part = Memory::adopt(address, PART);
                pattern::check_pages(&part, 0..part.pages(), address as u64, "far apart")?;
                if round == 0 {
                    context.sabotage(&part);
                }
                part.forget();
            }
        }
    }
    Ok(())
}

/// `shared`: anonymous shared memory and file mappings are shared and right beside memory that is paged.
pub fn shared(context: &mut Context) -> Outcome {
    let common = Memory::map_with(8 * MIB, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS)?;
    let private = context.subject(SEED)?;
    context.cool(&private)?;
    pattern::fill_pages(&common, 0..common.pages(), SEED);
    let child = child::fork(|| {
        pattern::check_pages(&common, 0..common.pages(), SEED, "shared, in the child")?;
        pattern::fill_pages(&common, 0..common.pages(), SEED + 1);
        Ok(())
    })?;
    child.succeed("the child that shares")?;
    context.cool(&private)?;
    pattern::check_pages(&common, 0..common.pages(), SEED + 1, "shared, written by the child")?;
    pattern::check_pages(&private, 0..private.pages(), SEED, "beside shared memory")?;
    let file = sys::scratch_file(&context.options.directory, 0)?;
    sys::write_all(file.as_raw_fd(), private.at(0), private.len())?;
    let mapped =
        Memory::adopt(sys::mmap(0, private.len(), RW, libc::MAP_PRIVATE, file.as_raw_fd())?, private.len());
    (0..mapped.pages()).step_by(2).for_each(|page| pattern::fill_page(&mapped, page, SEED + 2, page));
    context.press()?;
    for page in 0..mapped.pages() {
        let seed = if page % 2 == 0 { SEED + 2 } else { SEED };
        pattern::check_page(&mapped, page, seed, page, "private mapping of a file")?;
    }
    Ok(())
}

/// `setuid`: a privileged program gives up its user and group, as servers do after the start; in a
/// process of its own.
pub fn setuid(context: &mut Context) -> Outcome {
    let mib = context.options.mib.to_string();
    let mut command = child::part("setuid", &["--mib", &mib]);
    if context.options.expect_cold {
        command.arg("--expect-cold");
    }
    child::expect_success(command, "a process that changes its user")?;
    context.sabotage_status()
}

/// The body of `setuid`, in its own process: four threads run, then user and group change for all of them.
pub fn setuid_part(context: &mut Context) -> Outcome {
    const NOBODY: u32 = 65_534;
    // SAFETY: asks only.
    if unsafe { libc::geteuid() } != 0 {
        fail!("needs root: only root can give up its user");
    }
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    context.under_pressure(|_| {
        // SAFETY: changes credentials of this process, which ends soon.
        check("setgid", unsafe { libc::setgid(NOBODY) } as isize)?;
        // SAFETY: as above.
        check("setuid", unsafe { libc::setuid(NOBODY) } as isize)?;
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "after setuid")
    })?;
    for round in 0..2 {
        context.cool(&memory)?;
        pattern::check_pages(&memory, 0..memory.pages(), SEED + round, "as another user")?;
        pattern::fill_pages(&memory, 0..memory.pages(), SEED + round + 1);
    }
    let later = Memory::map(32 * MIB)?;
    pattern::fill_pages(&later, 0..later.pages(), SEED);
    context.press()?;
    pattern::check_pages(&later, 0..later.pages(), SEED, "mapped as another user")
}

/// `chroot`: the program's root and working directory change to an empty directory, in a process of its own.
pub fn chroot(context: &mut Context) -> Outcome {
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let empty = context.options.directory.join(format!("overspill-torture-empty-{}", std::process::id()));
    std::fs::create_dir(&empty)?;
    let mib = context.options.mib.to_string();
    let mut command = child::part("chroot", &["--mib", &mib]);
    command.arg("--dir").arg(&empty);
    let outcome = child::expect_success(command, "a process that changes its root");
    std::fs::remove_dir(&empty)?;
    outcome?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "beside a child")
}

/// The body of `chroot`: into the directory for scratch files.
pub fn chroot_part(context: &mut Context) -> Outcome {
    let changed =
        std::os::unix::fs::chroot(&context.options.directory).and_then(|()| std::env::set_current_dir("/"));
    if let Err(error) = changed {
        fail!("needs root: chroot: {error}");
    }
    let memory = context.subject(SEED)?;
    for round in 0..2 {
        context.press()?;
        pattern::check_pages(&memory, 0..memory.pages(), SEED + round, "in another root")?;
        pattern::fill_pages(&memory, 0..memory.pages(), SEED + round + 1);
    }
    ensure!(memory.word(0, 0).load(Relaxed) != 0, "the first word is zero");
    Ok(())
}

/// `mlockall`: all of the program's memory is locked while some of it is cold; what is mapped later
/// is not, and goes cold beside it.
pub fn mlock_all(context: &mut Context) -> Outcome {
    const SEED: u64 = 0x10c4;
    let memory = Memory::map(24 * MIB)?;
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    let other = Memory::map(context.options.mib * MIB / 2)?;
    pattern::fill_pages(&other, 0..other.pages(), SEED + 1);
    other.unmap()?;
    // SAFETY: changes no bytes.
    sys::check("mlockall", unsafe { libc::mlockall(libc::MCL_CURRENT) } as isize)?;
    let resident = sys::resident_pages(memory.base(), memory.len())?;
    ensure!(resident == memory.pages(), "{resident} of {} locked pages are in RAM", memory.pages());
    context.press()?;
    let resident = sys::resident_pages(memory.base(), memory.len())?;
    ensure!(resident == memory.pages(), "{resident} of {} locked pages stayed in RAM", memory.pages());
    context.sabotage(&memory);
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "locked")?;
    // SAFETY: as above.
    sys::check("munlockall", unsafe { libc::munlockall() } as isize)?;
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "no longer locked")
}
