//! Files read into and written from memory that is out of RAM: through the page cache, with
//! O_DIRECT, in one very large call, and by splicing.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::context::{Context, parallel};
use crate::memory::{MIB, Memory, PAGE};
use crate::outcome::Outcome;
use crate::{ensure, pattern, sys};

const SEED: u64 = 0xf11e;

/// `files`: write, read, pwritev and preadv between cold memory and a file in the page cache, at odd offsets.
pub fn files(context: &mut Context) -> Outcome {
    let file = sys::scratch_file(&context.options.directory, 0)?;
    let source = context.subject(SEED)?;
    context.cool(&source)?;
    sys::write_all(file.as_raw_fd(), source.at(0), source.len())?;
    let target = context.subject(SEED + 1)?;
    context.cool(&target)?;
    read_in_pieces(context, &file, &target)?;
    pattern::check_pages(&target, 0..target.pages(), SEED, "read from a file")?;
    context.cool(&source)?;
    pattern::check_pages(&source, 0..source.pages(), SEED, "written to a file")
}

fn read_in_pieces(context: &Context, file: &File, target: &Memory) -> Outcome {
    let mut rng = context.rng(0);
    let mut done = 0;
    while done < target.len() {
        let sizes = [1 + rng.below(9_000), 1 + rng.below(300_000)];
        let first = sizes[0].min(target.len() - done);
        let second = sizes[1].min(target.len() - done - first);
        let vector = [
            libc::iovec { iov_base: target.at(done).cast(), iov_len: first },
            libc::iovec { iov_base: target.at(done + first).cast(), iov_len: second },
        ];
        // SAFETY: both parts lie in the target, which nobody else touches.
        let count = unsafe { libc::preadv(file.as_raw_fd(), vector.as_ptr(), 2, done as i64) };
        let count = sys::check("preadv", count)?;
        ensure!(count == first + second, "preadv gave {count} of {} bytes", first + second);
        done += count;
    }
    Ok(())
}

/// `big-read`: one read(2) and one write(2) of 64 MiB, larger than the budget may be, into and from
/// cold memory.
pub fn big_read(context: &mut Context) -> Outcome {
    const LEN: usize = 64 * MIB;
    let file = sys::scratch_file(&context.options.directory, 0)?;
    let memory = Memory::map(LEN)?;
    pattern::fill_pages(&memory, 0..memory.pages(), SEED);
    context.cool(&memory)?;
    sys::write_all(file.as_raw_fd(), memory.at(0), LEN)?;
    pattern::fill_pages(&memory, 0..memory.pages(), SEED + 1);
    context.cool(&memory)?;
    // SAFETY: moves the file's position.
    sys::check("lseek", unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_SET) } as isize)?;
    let count = sys::read(file.as_raw_fd(), memory.at(0), LEN)?;
    ensure!(count == LEN, "read gave {count} of {LEN} bytes, though the file holds them all");
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "read in one call")?;
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "read in one call, cold again")
}

/// `direct`: threads copy cold memory to a file and back with O_DIRECT while other memory pushes
/// theirs out: the device reads and writes frames that a pager must not take away meanwhile.
pub fn direct(context: &mut Context) -> Outcome {
    const THREADS: usize = 4;
    const PIECE: usize = 256 << 10;
    let file = sys::scratch_file(&context.options.directory, libc::O_DIRECT)?;
    let memory = context.subject(SEED)?;
    context.cool(&memory)?;
    let pieces = memory.len() / PIECE;
    context.under_pressure(|context| {
        parallel(THREADS, |lane| {
            for piece in (lane..pieces).step_by(THREADS) {
                round_trip(&file, &memory, piece * PIECE, PIECE)?;
            }
            Ok(())
        })?;
        context.sabotage(&memory);
        Ok(())
    })?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "after O_DIRECT round trips")
}

/// Writes a range with two vectors, overwrites it, reads it back, compares.
fn round_trip(file: &File, memory: &Memory, offset: usize, len: usize) -> Outcome {
    let half = len / 2;
    let vector = [
        libc::iovec { iov_base: memory.at(offset).cast(), iov_len: half },
        libc::iovec { iov_base: memory.at(offset + half).cast(), iov_len: len - half },
    ];
    let pages = offset / PAGE..(offset + len) / PAGE;
    // SAFETY: both parts lie in memory of ours, in a range that only this thread touches.
    let written = unsafe { libc::pwritev(file.as_raw_fd(), vector.as_ptr(), 2, offset as i64) };
    ensure!(sys::check("pwritev", written)? == len, "pwritev wrote {written} of {len} bytes");
    pattern::fill_pages(memory, pages.clone(), SEED + 1);
    // SAFETY: as above.
    let read = unsafe { libc::preadv(file.as_raw_fd(), vector.as_ptr(), 2, offset as i64) };
    ensure!(sys::check("preadv", read)? == len, "preadv gave {read} of {len} bytes");
    pattern::check_pages(memory, pages, SEED, "O_DIRECT round trip")
}

/// `splice`: cold pages are lent to pipes with vmsplice and come out right, although they are
/// evicted meanwhile.
pub fn splice(context: &mut Context) -> Outcome {
    const LEN: usize = 8 * PAGE;
    /// Many: a frame that is used again too early is one among a thousand.
    const PIPES: usize = 64;
    let memory = context.subject(SEED)?;
    let pipes = (0..PIPES).map(|_| sys::pipe()).collect::<Outcome<Vec<_>>>()?;
    for round in 0..8 {
        context.cool(&memory)?;
        let offset = |pipe: usize| memory.len() / PIPES * pipe / PAGE * PAGE + round * PAGE;
        for (pipe, (_, writer)) in pipes.iter().enumerate() {
            let vector = libc::iovec { iov_base: memory.at(offset(pipe)).cast(), iov_len: LEN };
            // SAFETY: the kernel takes references to pages of ours, which stay as they are until
            // they are read below.
            let lent = unsafe { libc::vmsplice(writer.as_raw_fd(), &raw const vector, 1, 0) };
            let lent = sys::check("vmsplice", lent)?;
            ensure!(lent == LEN, "vmsplice took {lent} of {LEN} bytes");
        }
        context.press()?;
        for (pipe, (reader, _)) in pipes.iter().enumerate() {
            let mut found = vec![0; LEN];
            sys::read_all(reader.as_raw_fd(), found.as_mut_ptr(), LEN)?;
            pattern::check_bytes(SEED, offset(pipe), &found, "lent to a pipe")?;
        }
    }
    context.cool(&memory)?;
    pattern::check_pages(&memory, 0..memory.pages(), SEED, "lent to a pipe, cold again")
}
