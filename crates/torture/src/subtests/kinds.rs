//! Kinds of memory and of processes that a pager may overlook: all of it is the program's own
//! memory, and must go cold as any.

use crate::context::Context;
use crate::memory::{MIB, Memory, PAGE, PRIVATE, RW};
use crate::outcome::Outcome;
use crate::{child, ensure, pattern, sys};

const SEED: u64 = 0x41d5;

/// `dev-zero`: a private mapping of /dev/zero, which is anonymous memory that the list of mappings
/// calls a file's. Parts are written, discarded, touched first one by one and in order.
pub fn dev_zero(context: &mut Context) -> Outcome {
    let len = context.options.mib * MIB / 4;
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/zero")?;
    let base = sys::mmap(0, len, RW, libc::MAP_PRIVATE, std::os::fd::AsRawFd::as_raw_fd(&device))?;
    let memory = Memory::adopt(base, len);
    drop(device);
    pattern::fill_pages(&memory, 0..memory.pages() / 2, SEED);
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages() / 2, SEED, "of /dev/zero")?;
    pattern::check_zero(&memory, memory.pages() / 2..memory.pages(), "of /dev/zero, never written")?;
    sys::madvise(memory.page(16), 64 * PAGE, libc::MADV_DONTNEED)?;
    pattern::check_zero(&memory, 16..80, "of /dev/zero, discarded")?;
    pattern::fill_pages(&memory, 0..memory.pages(), SEED + 1);
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED + 1, "of /dev/zero, again")
}

/// `dev-zero-closed`: the same while the program takes away what it may do there, and locks a part.
///
/// *The story:* what was out could not come back, for ever: see `is_of_zeroes` in the agent.
pub fn dev_zero_closed(context: &mut Context) -> Outcome {
    let len = context.options.mib * MIB / 4;
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/zero")?;
    let base = sys::mmap(0, len, RW, libc::MAP_PRIVATE, std::os::fd::AsRawFd::as_raw_fd(&device))?;
    let memory = Memory::adopt(base, len);
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    for closed in [libc::PROT_READ, libc::PROT_NONE] {
        context.cool(&memory)?;
        sys::mprotect(memory.base(), memory.len(), closed)?;
        context.press()?;
        sys::mprotect(memory.base(), memory.len(), libc::PROT_READ)?;
        pattern::check_pages(&memory, 0..memory.pages(), SEED, "of /dev/zero, read-only")?;
        sys::mprotect(memory.base(), memory.len(), RW)?;
    }
    context.cool(&memory)?;
    let part = memory.pages() / 2..memory.pages() / 2 + 256;
    const MLOCK_ONFAULT: i32 = 1;
    // SAFETY: the range is the test's.
    let locked =
        unsafe { libc::syscall(libc::SYS_mlock2, memory.at(part.start * PAGE), 256 * PAGE, MLOCK_ONFAULT) };
    ensure!(locked == 0 || sys::errno() == libc::ENOMEM, "mlock2 gave {}", sys::errno());
    context.sabotage(&memory);
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "of /dev/zero, locked in part")
}

/// `write-only`: memory that may be written to only, which x86 has read all the same; executable, too, and
/// made read-only while it is out.
///
/// *The story:* it was never managed: 192 MiB of it stayed in a budget of 64 as long as the program lived.
pub fn write_only(context: &mut Context) -> Outcome {
    let len = context.options.mib * MIB / 4;
    for (seed, prot) in (SEED..).zip([libc::PROT_WRITE, libc::PROT_WRITE | libc::PROT_EXEC]) {
        let memory = Memory::map_with(len, prot, PRIVATE)?;
        pattern::fill_pages(&memory, 0..memory.pages() - 64, seed);
        context.cool(&memory)?;
        pattern::check_pages(&memory, 0..memory.pages() - 64, seed, "write-only")?;
        pattern::check_zero(&memory, memory.pages() - 64..memory.pages(), "write-only, never written")?;
        context.cool(&memory)?;
        pattern::fill_pages(&memory, 0..memory.pages(), seed + 16);
        for other in [libc::PROT_READ, prot, RW] {
            context.cool(&memory)?;
            sys::mprotect(memory.base(), len, other)?;
            pattern::check_pages(&memory, 0..memory.pages(), seed + 16, "of other rights since")?;
        }
    }
    Ok(())
}

/// `droppable`: memory that the kernel may drop (MAP_DROPPABLE): each page holds what was stored, or zeroes.
/// Memory beside it holds what was stored.
///
/// *The story:* nobody can page it, so it stayed in RAM: 192 MiB in a budget of 64.
pub fn droppable(context: &mut Context) -> Outcome {
    const MAP_DROPPABLE: i32 = 8;
    let len = context.options.mib * MIB / 4;
    let Ok(memory) = Memory::map_with(len, RW, MAP_DROPPABLE | libc::MAP_ANONYMOUS) else {
        eprintln!("this kernel has no such memory");
        return Ok(());
    };
    let other = context.subject(SEED)?;
    for seed in SEED..SEED + 2 {
        pattern::fill_pages(&memory, 0..memory.pages(), seed);
        context.cool_all(&[&memory, &other])?;
        pattern::check_pages(&other, 0..other.pages(), SEED, "beside what may be dropped")?;
        for page in 0..memory.pages() {
            // It may go between two looks at it.
            let is_right = || {
                pattern::check_pages(&memory, [page], seed, "kept")
                    .or_else(|_| pattern::check_zero(&memory, page..page + 1, "neither kept nor dropped"))
            };
            is_right().or_else(|_| is_right())?;
        }
    }
    Ok(())
}

/// `no-reserve`: memory mapped with MAP_NORESERVE, as much of it as there is address space near
/// everything else that is mapped. The kernel makes one mapping of it and of neighbours with the
/// same properties, whoever these belong to.
pub fn no_reserve(context: &mut Context) -> Outcome {
    const PIECES: usize = 16;
    let len = context.options.mib * MIB / 4 / PIECES;
    let flags = PRIVATE | libc::MAP_NORESERVE;
    let pieces = (0..PIECES).map(|_| Memory::map_with(len, RW, flags)).collect::<Outcome<Vec<_>>>()?;
    for (seed, piece) in (SEED..).zip(&pieces) {
        sys::madvise(piece.base(), piece.len(), libc::MADV_NOHUGEPAGE)?;
        pattern::fill_pages(piece, 0..piece.pages(), seed);
    }
    for piece in &pieces {
        context.cool(piece)?;
    }
    (SEED..)
        .zip(&pieces)
        .try_for_each(|(seed, piece)| pattern::check_pages(piece, 0..piece.pages(), seed, "without reserve"))
}

/// `above-file`: a large block directly above a private mapping of a file, where a library has the
/// end of its data.
pub fn above_file(context: &mut Context) -> Outcome {
    let len = context.options.mib * MIB / 4 + PAGE;
    let whole = Memory::map_with(len, RW, PRIVATE)?;
    let (base, _) = whole.forget();
    let file = std::fs::File::open("/proc/self/exe")?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    sys::mmap(base, PAGE, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_FIXED, fd)?;
    let below = Memory::adopt(base, PAGE);
    let memory = Memory::adopt(base + PAGE, len - PAGE);
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "above a file")?;
    below.unmap()
}

/// `main-exit`: the first thread of a process ends, and the others go on: /proc/self is that of the first.
pub fn main_exit(context: &mut Context) -> Outcome {
    context.press()?;
    let mib = context.options.mib.to_string();
    let mut arguments = vec!["--mib", &mib];
    arguments.extend(context.options.expect_cold.then_some("--expect-cold"));
    arguments.extend(context.options.sabotage.then_some("--sabotage"));
    child::expect_success(child::part("main-exit", &arguments), "a process without its first thread")
}

/// The process of `main-exit`. Its first thread does not return.
pub fn main_exit_part(mut context: Context) -> Outcome {
    std::thread::spawn(move || {
        let ended = go_on(&mut context);
        if let Err(failure) = &ended {
            eprintln!("without its first thread: {failure}");
        }
        std::process::exit(i32::from(ended.is_err()));
    });
    // SAFETY: ends this thread and nothing else; what it has on its stack is not used by the other one.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("the first thread has ended");
}

fn go_on(context: &mut Context) -> Outcome {
    let stat = || std::fs::read_to_string(format!("/proc/self/task/{}/stat", std::process::id()));
    while !stat()?.contains(") Z") {
        sys::pause_ms(1);
    }
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let threads = std::fs::read_to_string("/proc/thread-self/status")?;
    ensure!(threads.contains("State:"), "this thread is not told of in /proc");
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "without the first thread")
}
