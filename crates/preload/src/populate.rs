//! MADV_POPULATE and MAP_POPULATE in pieces.
//!
//! The kernel holds the lock of the address space for the whole of such a call. Fresh memory is
//! registered under the same lock, so one call for more than the budget would fill it all before
//! the agent could manage any of it. In pieces, the agent gets its turn in between, and from then
//! on the call waits for pages as any touch does.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;

use linux_raw_sys::general::{
    __NR_madvise, __NR_mmap, MADV_COLLAPSE, MADV_DOFORK, MADV_DONTFORK, MADV_HUGEPAGE, MADV_KEEPONFORK,
    MADV_MERGEABLE, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_WILLNEED, MADV_WIPEONFORK, MAP_32BIT,
    MAP_ANONYMOUS, MAP_FIXED, MAP_HUGETLB, MAP_LOCKED, MAP_NONBLOCK, MAP_POPULATE, MAP_PRIVATE, MAP_TYPE,
    PROT_EXEC, PROT_READ, PROT_WRITE,
};

use overspill_sys::mem::{self, Advice};
use overspill_sys::{Errno, Fd, PAGE_SIZE, file};

use crate::files::{self, Mapping};
use crate::kept::{self, Change};
use crate::{file_hints, filters, foreign, fresh, guards, huge, libc, merging, withheld};

/// What mmap returns when it fails.
const MAP_FAILED: isize = -1;

/// A piece: about a millisecond of fresh pages.
const PIECE_BYTES: usize = 2 << 20;

/// madvise(2), which populates in pieces.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, len: usize, advice: c_int) -> c_int {
    foreign::pass!(madvise(address, len, advice));
    advise(address as usize, len, advice, |at, len| {
        // SAFETY: passed on to the caller.
        unsafe { libc::call(__NR_madvise, [at, len, advice as usize, 0, 0, 0]) as c_int }
    })
}

/// Advises the kernel of a range of this process by `call`, which is given an address and a length, and
/// does what is to be done besides.
pub fn advise(address: usize, len: usize, advice: c_int, call: impl Fn(usize, usize) -> c_int) -> c_int {
    if let Some(advised) = file_hints::advise(address, len, advice) {
        return advised.map_or_else(|errno| libc::fail(errno) as c_int, |()| 0);
    }
    if [MADV_HUGEPAGE, MADV_COLLAPSE].contains(&(advice as u32)) {
        huge::note();
    }
    if advice as u32 == MADV_MERGEABLE {
        let advised = call(address, len);
        merging::take_back(address, len);
        return advised;
    }
    if advice == guards::INSTALL {
        return guards::install(address, len, || call(address, len) as isize) as c_int;
    }
    if [MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK].contains(&(advice as u32)) {
        // Of a page in part the kernel marks all.
        let end = address.saturating_add(len).checked_next_multiple_of(PAGE_SIZE).unwrap_or(usize::MAX);
        return withheld::note(advice, address..end, || call(address, len));
    }
    let populates = [MADV_POPULATE_READ, MADV_POPULATE_WRITE].contains(&(advice as u32));
    if !populates || address.checked_add(len).is_none() {
        return call(address, len);
    }
    // To be read, fresh memory gets no pages of its own.
    let coming = if advice as u32 == MADV_POPULATE_WRITE { len } else { 0 };
    fresh::populating(coming, || in_pieces(len, |done, piece| call(address + done, piece)))
}

/// Calls for piece after piece, until one fails.
fn in_pieces(len: usize, mut call: impl FnMut(usize, usize) -> c_int) -> c_int {
    let mut done = 0;
    loop {
        let piece = (len - done).min(PIECE_BYTES);
        let result = call(done, piece);
        done += piece;
        if result != 0 || done == len {
            return result;
        }
        if !filters::is_filtered() {
            // The agent may be waiting for this very processor.
            overspill_sys::thread::yield_now();
        }
    }
}

/// mmap(2), which lets the agent look at much private anonymous memory before it is touched, and
/// populates it in pieces. As with the kernel's, what cannot be populated (all of it before 5.14)
/// is no failure.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    foreign::pass!(mmap(address, len, protection, flags, fd, offset));
    let marks = withheld::before_change();
    let is_anonymous = is_of_zeroes(len, protection as u32, flags as u32, fd, offset);
    let (flags, fd, offset) =
        if is_anonymous { (flags | MAP_ANONYMOUS as c_int, -1, 0) } else { (flags, fd, offset) };
    // SAFETY: passed on to the caller, for whom a private mapping of /dev/zero is anonymous memory.
    let mapped = unsafe { map(address, len, protection, flags, fd, offset) };
    if mapped as isize != MAP_FAILED {
        marks.replaced(mapped as usize, len);
    }
    mapped
}

/// Device numbers of /dev/zero.
const ZERO: (u32, u32) = (1, 5);
/// What else may be asked for with a private mapping of it.
const ZERO_FLAGS: u32 = files::PLAIN_FLAGS | MAP_32BIT;

/// Is it a private mapping of /dev/zero, which the kernel would make? It is anonymous memory to the
/// kernel as well, by another name. What is wrong with the arguments is the kernel's to say.
///
/// *The story:* 96 MiB of it that were made read-only in a budget of 64 hung. The kernel measures a copy
/// into such a mapping by the length of the device, which is none, and moves nothing into what is
/// read-only: what was out could not come back.
fn is_of_zeroes(len: usize, protection: u32, flags: u32, fd: c_int, offset: i64) -> bool {
    let is_plain = flags & MAP_TYPE == MAP_PRIVATE && flags & !ZERO_FLAGS == 0 && fd >= 0;
    // Behind a filter not every call may be allowed; devices are often mounted without PROT_EXEC.
    if !is_plain || protection & PROT_EXEC != 0 || filters::is_filtered() {
        return false;
    }
    let end = i64::try_from(len).ok().and_then(|len| offset.checked_add(len));
    if offset < 0 || offset % PAGE_SIZE as i64 != 0 || end.is_none() {
        return false;
    }
    // SAFETY: the descriptor is the program's, and is not closed by this.
    let file = ManuallyDrop::new(unsafe { Fd::from_raw(fd) });
    let is_zero = |status: file::Status| status.kind == file::Kind::Other && status.is_device == ZERO;
    file::status(&file).is_ok_and(is_zero) && file::is_readable(&file)
}

/// # Safety
/// As for [`mmap`].
unsafe fn map(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let call = |flags: u32| {
        let arguments =
            [address as usize, len, protection as usize, flags as usize, fd as usize, offset as usize];
        // SAFETY: passed on to the caller.
        unsafe { overspill_sys::call(__NR_mmap, arguments) }
    };
    let place = address as usize..(address as usize).saturating_add(len);
    let make = |flags: u32| {
        let is_over_kept = flags & MAP_FIXED != 0 && kept::overlaps(&place);
        match is_over_kept {
            true => kept::changing(&place, || call(flags), |_| Change::Gone),
            false => call(flags),
        }
    };
    let answer = |result: Result<usize, Errno>| {
        result.unwrap_or_else(|errno| libc::fail(errno) as usize) as *mut c_void
    };
    let map = |flags: u32| answer(make(flags));
    let flags = flags as u32;
    match files::map(address as usize, len, protection as u32, flags, fd, offset) {
        Some(Mapping::Managed(mapped)) => {
            if flags & MAP_POPULATE != 0 {
                let _ = file_hints::advise(mapped, len, MADV_WILLNEED as c_int);
            }
            return mapped as *mut c_void;
        }
        Some(Mapping::Kept(claim)) => return answer(kept::map(&claim, || make(flags))),
        None => {}
    }
    let kinds = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_LOCKED;
    if flags & kinds != MAP_PRIVATE | MAP_ANONYMOUS || protection as u32 & (PROT_READ | PROT_WRITE) == 0 {
        return map(flags);
    }
    let in_pieces_only = flags & (MAP_POPULATE | MAP_NONBLOCK) == MAP_POPULATE && len > PIECE_BYTES;
    let mapped = map(if in_pieces_only { flags & !MAP_POPULATE } else { flags });
    if mapped as isize == MAP_FAILED {
        return mapped;
    }
    if in_pieces_only {
        let is_writable = protection as u32 & PROT_WRITE != 0;
        let advice = if is_writable { Advice::PopulateWrite } else { Advice::PopulateRead };
        let populate = |done: usize, piece: usize| {
            let start = mapped as usize + done;
            // SAFETY: populating changes no content, whatever another thread has mapped there meanwhile.
            unsafe { mem::madvise(start..start + piece, advice) }.map_or(-1, |()| 0)
        };
        fresh::populating(len, || in_pieces(len, populate));
    } else {
        fresh::wait(len);
    }
    mapped
}

/// [`mmap`], by the name that programs with large files use.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: passed on to the caller.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}
