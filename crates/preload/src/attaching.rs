//! shmat over memory that is there (SHM_REMAP): the kernel takes that away and tells nobody.
//!
//! So the segment is attached elsewhere first, where nothing is lost if that fails, and moved then: of what
//! a move replaces the kernel tells. Where there is no room for both, or it cannot be moved, the place is
//! emptied by a mapping without permissions, of which the kernel tells as well.
//!
//! Who makes the call by the bare instruction, or behind a filter, is found by the next look (`adopt`).
//!
//! *The story:* what had been managed there stayed so in the books. What the program mapped at that place
//! later was taken for it, its pages were moved out, and read as zeroes (4069 of 4096).

use core::ffi::{c_int, c_void};

use linux_raw_sys::general::{
    __NR_mmap, __NR_mremap, __NR_shmat, __NR_shmctl, __NR_shmdt, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE,
    MAP_PRIVATE, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_NONE,
};

use overspill_sys::{AddressRange, Errno, PAGE_SIZE};

use crate::kept::{self, Change};
use crate::{filters, foreign, libc, withheld};

const SHM_RND: c_int = 0o20_000;
const SHM_REMAP: c_int = 0o40_000;
const IPC_STAT: usize = 2;
/// The kernel's structure of a segment in words, and the one with its size.
const SEGMENT_WORDS: usize = 14;
const SIZE_AT: usize = 6;

/// shmat(2).
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, address: *const c_void, flags: c_int) -> *mut c_void {
    foreign::pass!(shmat(id, address, flags));
    let attach = |at: usize, flags: c_int| {
        // SAFETY: passed on to the caller.
        unsafe { overspill_sys::call(__NR_shmat, [id as usize, at, flags as usize, 0, 0, 0]) }
    };
    let result = match replaced(id, address as usize, flags) {
        Some(place) => {
            // SAFETY: the kernel would take away what is there, on behalf of the caller.
            let replace = || unsafe { replace(&place, flags, attach) };
            let marks = withheld::before_change();
            let result = match kept::overlaps(&place) {
                true => kept::changing(&place, replace, |_| Change::Gone),
                false => replace(),
            };
            if result.is_ok() {
                marks.replaced(place.start, place.len());
            }
            result
        }
        None => attach(address as usize, flags),
    };
    result.unwrap_or_else(|errno| libc::fail(errno) as usize) as *mut c_void
}

/// What an attachment replaces; `None`: nothing, or the kernel says what is wrong with it.
fn replaced(id: c_int, address: usize, flags: c_int) -> Option<AddressRange> {
    if flags & SHM_REMAP == 0 || filters::is_filtered() {
        return None;
    }
    let start = if flags & SHM_RND == 0 { address } else { address / PAGE_SIZE * PAGE_SIZE };
    let mut segment = [0_u64; SEGMENT_WORDS];
    let arguments = [id as usize, IPC_STAT, segment.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the call writes the structure. Who may not ask may not attach.
    unsafe { overspill_sys::call(__NR_shmctl, arguments) }.ok()?;
    let len = usize::try_from(segment[SIZE_AT]).ok()?.checked_next_multiple_of(PAGE_SIZE)?;
    let is_sound = start != 0 && start.is_multiple_of(PAGE_SIZE) && len > 0;
    is_sound.then_some(start..start.checked_add(len)?)
}

/// Attaches a segment at a place.
///
/// # Safety
/// What is there is to go.
unsafe fn replace(
    place: &AddressRange,
    flags: c_int,
    attach: impl Fn(usize, c_int) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let (start, len) = (place.start, place.len());
    match attach(0, flags & !(SHM_REMAP | SHM_RND)) {
        Ok(elsewhere) => {
            let how = (MREMAP_MAYMOVE | MREMAP_FIXED) as usize;
            // SAFETY: nobody else knows of the first place yet, and the caller vouches for the second.
            let moved = unsafe { overspill_sys::call(__NR_mremap, [elsewhere, len, len, how, start, 0]) };
            if moved.is_ok() {
                return moved;
            }
            // SAFETY: as above.
            let _ = unsafe { overspill_sys::call(__NR_shmdt, [elsewhere, 0, 0, 0, 0, 0]) };
        }
        // Whoever may not attach it was told so before there was found to be no room.
        Err(Errno::NOMEM) => {}
        Err(errno) => return Err(errno),
    }
    let how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    let arguments = [start, len, PROT_NONE as usize, how as usize, usize::MAX, 0];
    // SAFETY: passed on to the caller.
    unsafe { overspill_sys::call(__NR_mmap, arguments) }?;
    attach(start, flags)
}
