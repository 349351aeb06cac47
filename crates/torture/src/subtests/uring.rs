//! The program's own io_uring: reads and writes of memory that is out of RAM, buffered and direct,
//! and buffers that are registered, which the kernel holds by their frames.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};

use crate::context::Context;
use crate::memory::{Memory, PAGE};
use crate::outcome::{Failure, Outcome};
use crate::{ensure, pattern, sys};

const SEED: u64 = 0x1049;
const PIECE: usize = 64 << 10;
const DEPTH: usize = 16;
const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;
/// Whoever looks for guards has done so by then.
const LOOKS: Duration = Duration::from_millis(500);
/// Pieces that are registered as buffers.
const BUFFERS: usize = 32;

fn ring() -> Outcome<IoUring> {
    IoUring::new(2 * DEPTH as u32).map_err(|error| Failure(format!("no io_uring for this program: {error}")))
}

/// Submits operations, `DEPTH` at a time, and checks that each moved a whole piece.
fn run_all(ring: &mut IoUring, entries: impl Iterator<Item = squeue::Entry>) -> Outcome {
    let mut entries = entries.peekable();
    let mut in_flight = 0;
    while entries.peek().is_some() || in_flight > 0 {
        while in_flight < DEPTH {
            let Some(entry) = entries.next() else { break };
            // SAFETY: the buffers lie in memory that the caller keeps mapped until this function returns.
            unsafe { ring.submission().push(&entry) }.map_err(|_| Failure("the ring is full".to_owned()))?;
            in_flight += 1;
        }
        ring.submit_and_wait(1)?;
        for completion in ring.completion() {
            in_flight -= 1;
            ensure!(
                completion.result() == PIECE as i32,
                "operation {} gave {}, expected {PIECE}",
                completion.user_data(),
                completion.result()
            );
        }
    }
    Ok(())
}

fn piece(memory: &Memory, number: usize) -> (*mut u8, u32, u64) {
    (memory.at(number * PIECE), PIECE as u32, (number * PIECE) as u64)
}

/// Writes all of `source` to the file and reads it into `target`.
fn copy(ring: &mut IoUring, file: &File, source: &Memory, target: &Memory) -> Outcome {
    let fd = types::Fd(file.as_raw_fd());
    let pieces = source.len() / PIECE;
    let writes = (0..pieces).map(|number| {
        let (address, len, offset) = piece(source, number);
        opcode::Write::new(fd, address, len).offset(offset).build().user_data(offset)
    });
    run_all(ring, writes)?;
    let reads = (0..pieces).map(|number| {
        let (address, len, offset) = piece(target, number);
        opcode::Read::new(fd, address, len).offset(offset).build().user_data(offset)
    });
    run_all(ring, reads)
}

/// `uring`: buffered operations between cold memory and a file, while other memory pushes it out.
pub fn buffered(context: &mut Context) -> Outcome {
    between(context, 0)
}

/// `uring-direct`: the same by O_DIRECT, where a device writes into the frames.
pub fn direct(context: &mut Context) -> Outcome {
    between(context, libc::O_DIRECT)
}

fn between(context: &mut Context, flags: i32) -> Outcome {
    let file = sys::scratch_file(&context.options.directory, flags)?;
    let (source, target) = (context.subject(SEED)?, context.subject(SEED + 1)?);
    context.cool(&target)?;
    context.cool(&source)?;
    context.under_pressure(|_| copy(&mut ring()?, &file, &source, &target))?;
    pattern::check_pages(&target, 0..target.pages(), SEED, "read by io_uring")?;
    pattern::check_pages(&source, 0..source.pages(), SEED, "written by io_uring")
}

/// `uring-guard`: guards (MADV_GUARD_INSTALL) that an io_uring installs over pages that are out, and some
/// time later removes: what they stood over is zeroes, and what lies beside them is as it was.
///
/// *The story:* nobody looked for them before something was put there. All of a MiB had its old bytes.
pub fn guards(context: &mut Context) -> Outcome {
    const GUARDED: usize = 256;
    let memory = context.subject(SEED)?;
    let mut ring = ring()?;
    let first = memory.pages() / 4;
    context.cool(&memory)?;
    if advise(&mut ring, &memory, first..first + GUARDED, MADV_GUARD_INSTALL)? != 0
        || !is_told(&memory, first)?
    {
        // A kernel before 6.15: no guards, or nothing that tells them from what is swapped out.
        return context.sabotage_status();
    }
    std::thread::sleep(LOOKS);
    ensure!(advise(&mut ring, &memory, first..first + GUARDED, MADV_GUARD_REMOVE)? == 0, "guards are to go");
    context.sabotage(&memory);
    pattern::check_zero(&memory, first..first + GUARDED, "behind guards of an io_uring")?;
    pattern::check_pages(&memory, 0..first, SEED, "before guards")?;
    pattern::check_pages(&memory, first + GUARDED..memory.pages(), SEED, "after guards")
}

/// Gives advice about pages by the ring: what that gave.
fn advise(ring: &mut IoUring, memory: &Memory, pages: Range<usize>, advice: i32) -> Outcome<i32> {
    let (address, len) = (memory.at(pages.start * PAGE).cast_const().cast(), pages.len() * PAGE);
    let entry = opcode::Madvise::new(address, len as i64, advice).build();
    // SAFETY: the memory is the caller's, who wants that.
    unsafe { ring.submission().push(&entry) }.map_err(|_| Failure("the ring is full".to_owned()))?;
    ring.submit_and_wait(1)?;
    let completion = ring.completion().next();
    completion.map(|completion| completion.result()).ok_or_else(|| Failure("nothing is complete".to_owned()))
}

/// Does the page map tell the guard that is there?
fn is_told(memory: &Memory, page: usize) -> Outcome<bool> {
    const GUARD: u64 = 1 << 58;
    let mut entry = [0; 8];
    let at = (memory.page(page) / PAGE * entry.len()) as u64;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, at)?;
    Ok(u64::from_ne_bytes(entry) & GUARD != 0)
}

/// Registers the pieces from the `first`th on as buffers. They stay mapped for as long as the ring is there.
fn register(ring: &IoUring, memory: &Memory, first: usize) -> Outcome {
    let buffers: Vec<libc::iovec> = (0..BUFFERS)
        .map(|number| libc::iovec { iov_base: memory.at((first + number) * PIECE).cast(), iov_len: PIECE })
        .collect();
    // SAFETY: the caller drops the ring before the memory.
    unsafe { ring.submitter().register_buffers(&buffers)? };
    Ok(())
}

/// Reads into the buffers. The file begins with pieces 0, 1, ...: they get other content than their own
/// places have, and another one in each round.
fn fill(ring: &mut IoUring, file: &File, memory: &Memory, first: usize, round: usize) -> Outcome {
    let fd = types::Fd(file.as_raw_fd());
    let reads = (0..BUFFERS).map(|number| {
        let (address, len, _) = piece(memory, first + number);
        let offset = ((number + round) * PIECE) as u64;
        opcode::ReadFixed::new(fd, address, len, number as u16).offset(offset).build().user_data(offset)
    });
    run_all(ring, reads)
}

/// Checks what [`fill`] has brought.
fn check_filled(memory: &Memory, first: usize, round: usize, what: &str) -> Outcome {
    (0..BUFFERS * PIECE / PAGE).try_for_each(|number| {
        let identity = round * PIECE / PAGE + number;
        pattern::check_page(memory, first * PIECE / PAGE + number, SEED, identity, what)
    })
}

/// `uring-fixed-closed`: buffers are registered, the program may only read its memory from then on, all else
/// is walked, and what the device writes into the buffers then is what the program sees.
///
/// *The story:* what is read-only was copied out of the program's memory and dropped, whether a device held
/// it or not: 1420 of 4096 pages were old.
pub fn fixed_closed(context: &mut Context) -> Outcome {
    let file = sys::scratch_file(&context.options.directory, libc::O_DIRECT)?;
    let memory = context.subject(SEED)?;
    sys::write_all(file.as_raw_fd(), memory.at(0), memory.len())?;
    let mut ring = ring()?;
    let first = memory.len() / PIECE / 2;
    register(&ring, &memory, first)?;
    sys::mprotect(memory.base(), memory.len(), libc::PROT_READ)?;
    for round in 1..4 {
        context.press()?;
        fill(&mut ring, &file, &memory, first, round)?;
        check_filled(&memory, first, round, "read-only buffer")?;
        pattern::check_pages(&memory, 0..first * PIECE / PAGE, SEED, "read-only, before the buffers")?;
    }
    sys::mprotect(memory.base(), memory.len(), libc::PROT_READ | libc::PROT_WRITE)?;
    context.sabotage(&memory);
    pattern::check_pages(&memory, 0..first * PIECE / PAGE, SEED, "before the buffers")?;
    check_filled(&memory, first, 3, "buffer")?;
    let behind = first * PIECE / PAGE + BUFFERS * PIECE / PAGE..memory.pages();
    pattern::check_pages(&memory, behind, SEED, "behind the buffers")
}

/// `uring-fixed`: cold memory is registered as buffers, all else is walked, and what is read into
/// the buffers then is what the program sees.
pub fn fixed(context: &mut Context) -> Outcome {
    let file = sys::scratch_file(&context.options.directory, libc::O_DIRECT)?;
    let memory = context.subject(SEED)?;
    sys::write_all(file.as_raw_fd(), memory.at(0), memory.len())?;
    context.cool(&memory)?;
    let mut ring = ring()?;
    let first = memory.len() / PIECE / 2;
    register(&ring, &memory, first)?;
    for round in 0..3 {
        context.press()?;
        fill(&mut ring, &file, &memory, first, round)?;
        if round == 1 {
            context.press()?;
        }
        context.sabotage(&memory);
        check_filled(&memory, first, round, "registered buffer")?;
    }
    pattern::check_pages(&memory, 0..first * PIECE / PAGE, SEED, "before the registered buffers")
}
