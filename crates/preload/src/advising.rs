//! process_madvise on oneself (6.13): each piece as madvise has it.
//!
//! *The story:* only guards were looked for here. What was marked MADV_WIPEONFORK so was inherited where
//! it was out (18,663 of 24,576 pages), a mark of MADV_DONTFORK was taken off by the next fork that was
//! announced, and fresh memory was populated at once, past the agent.

use core::ffi::{c_int, c_uint, c_void};

use linux_raw_sys::general::{__NR_process_madvise, MADV_DOFORK};

use overspill_sys::PAGE_SIZE;

use crate::{filters, fork, guards, libc, peek, populate, withheld};

/// A piece: its address and its length.
type Piece = [usize; 2];
/// The kernel takes no longer vectors, and advises no more bytes at a time.
const PIECES_MAX: usize = 1024;
const BYTES_MAX: usize = i32::MAX as usize / PAGE_SIZE * PAGE_SIZE;
/// Addresses that every program has.
const LOW_HALF: usize = 1 << 47;

/// process_madvise(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_madvise(
    process: c_int,
    pieces: *const c_void,
    count: usize,
    advice: c_int,
    flags: c_uint,
) -> isize {
    let call = |pieces: usize, count: usize| {
        let arguments = [process as usize, pieces, count, advice as usize, flags as usize, 0];
        // SAFETY: passed on to the caller.
        unsafe { libc::call(__NR_process_madvise, arguments) }
    };
    let start = pieces as usize;
    if filters::is_filtered() {
        // Not every argument may be allowed.
        guards::note(advice);
        withheld::note_advice(advice);
        return call(start, count);
    }
    let is_one = flags == 0 && (1..=PIECES_MAX).contains(&count) && !fork::is_strange();
    if !is_one || !is_own(process) || !(0..count).all(|index| piece(start, index).is_some()) {
        // What is wrong is the kernel's to say, and so is what another process is advised.
        return call(start, count);
    }
    let mut done = 0;
    for [at, len] in (0..count).map_while(|index| piece(start, index)) {
        let len = len.min(BYTES_MAX - done);
        let advised = populate::advise(at, len, advice, |at, len| {
            let piece: Piece = [at, len];
            let advised = call((&raw const piece) as usize, 1);
            if advised == len as isize { 0 } else { libc::FAILED as c_int }
        });
        if advised != 0 {
            return if done > 0 { done as isize } else { libc::FAILED };
        }
        done += len;
    }
    done as isize
}

/// Is it a process with this memory? The kernel says so by taking advice of no pieces that it takes of
/// nobody else. Before 6.13 it takes none at all.
fn is_own(process: c_int) -> bool {
    let arguments = [process as usize, 0, 0, MADV_DOFORK as usize, 0, 0];
    // SAFETY: nothing is advised.
    unsafe { overspill_sys::call(__NR_process_madvise, arguments) == Ok(0) }
}

/// A piece of a vector. `None`: it cannot be read, or is none.
fn piece(pieces: usize, index: usize) -> Option<Piece> {
    // SAFETY: nobody is behind a filter here.
    let words: [u64; 2] = unsafe { peek::words(pieces.checked_add(index * size_of::<Piece>())?) }?;
    let [at, len] = words.map(|word| word as usize);
    (at.checked_add(len)? < LOW_HALF).then_some([at, len])
}
