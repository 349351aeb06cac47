//! Mappings that are several here and would be one without the agent, and are remapped as one.
//!
//! Managed memory is registered. To the kernel what the program maps beside it is a mapping of its own,
//! until the next look registers that as well; and for good, if the program has touched it before that, or
//! if it is too small to be looked for. mremap of the two at once is EFAULT. Bare they are one mapping.
//!
//! So when the kernel refuses a range of plain private memory without a gap, all of the same protection,
//! each part is moved for itself, the last one first, as only that one changes its size; what cannot be
//! finished is taken back. All of it happens between two turns of the agent. (Before a target is unmapped
//! it is looked whether there are several: not every kernel does that after it has judged the range.)
//!
//! Who makes the call by the bare instruction is not helped.
//!
//! *The story:* 64 KiB were mapped right behind managed memory. mremap of both had EFAULT, however often it
//! was tried: bare that moves.

use overspill_sys::maps::{Maps, Vma};
use overspill_sys::mem::Prot;
use overspill_sys::{AddressRange, Errno, mem};

use linux_raw_sys::general::{
    __NR_mmap, __NR_mremap, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, MREMAP_DONTUNMAP,
    MREMAP_FIXED, MREMAP_MAYMOVE,
};

use crate::message;

/// Of more parts none is moved.
const PARTS_MAX: usize = 64;

/// The parts of a range.
pub struct Parts {
    parts: [(usize, usize); PARTS_MAX],
    count: usize,
}

impl Parts {
    /// `None`: it is one mapping, or would be several without the agent, too.
    pub fn of(maps: &Maps, range: &AddressRange) -> Option<Parts> {
        let mut parts = Parts { parts: [(0, 0); PARTS_MAX], count: 0 };
        let (mut at, mut first) = (range.start, None);
        let look = |vma: &Vma<'_>| (vma.range(), vma.prot, vma.is_private_anonymous());
        while at < range.end {
            let (vma, prot, is_plain): (AddressRange, Prot, bool) =
                super::look(maps, at, false, look).ok()??;
            if !is_plain || *first.get_or_insert(prot) != prot || parts.count == PARTS_MAX {
                return None;
            }
            let end = vma.end.min(range.end);
            parts.parts[parts.count] = (at, end);
            parts.count += 1;
            at = end;
        }
        (parts.count > 1).then_some(parts)
    }

    /// Remaps the range that they are of to `new_len` bytes, at `new` if that is given.
    ///
    /// # Safety
    /// As for mremap(2).
    pub unsafe fn remap(
        &self,
        range: &AddressRange,
        new_len: usize,
        flags: u32,
        new: Option<usize>,
    ) -> Result<usize, Errno> {
        let (last, others) = self.parts[..self.count].split_last().expect("several");
        let last_len = |len: usize| len - (last.0 - range.start);
        if new.is_none() && flags & MREMAP_DONTUNMAP == 0 {
            // SAFETY: passed on to the caller.
            match unsafe { remap(last.0, last.1 - last.0, last_len(new_len), 0, 0) } {
                Ok(_) => return Ok(range.start),
                Err(errno) if flags & MREMAP_MAYMOVE == 0 => return Err(errno),
                Err(_) => {}
            }
        }
        let target = match new {
            Some(new) => new,
            None => reserve(0, new_len, 0)?,
        };
        let doubles = flags & MREMAP_DONTUNMAP;
        let to = |address: usize| address - range.start + target;
        let lens = |part: &(usize, usize)| {
            let len = part.1 - part.0;
            (len, if part == last { last_len(new_len) } else { len })
        };
        let order = || core::iter::once(last).chain(others);
        for (index, part) in order().enumerate() {
            let (len, wanted) = lens(part);
            // SAFETY: passed on to the caller: the target is reserved, or is to be replaced.
            let moved = unsafe { remap(part.0, len, wanted, MREMAP_FIXED | doubles, to(part.0)) };
            if let Err(errno) = moved {
                for part in order().take(index) {
                    let (len, wanted) = lens(part);
                    // SAFETY: it has just been moved there.
                    unsafe { take_back(part.0, len, to(part.0), wanted, doubles != 0) };
                }
                if new.is_none() {
                    // SAFETY: nobody else knows of it yet, and what had been moved there is back.
                    let _ = unsafe { mem::munmap(target..target + new_len) };
                }
                return Err(errno);
            }
        }
        Ok(target)
    }
}

/// # Safety
/// As for mremap(2).
unsafe fn remap(start: usize, len: usize, new_len: usize, flags: u32, new: usize) -> Result<usize, Errno> {
    let flags = if flags & MREMAP_FIXED != 0 { flags | MREMAP_MAYMOVE } else { flags };
    // SAFETY: passed on to the caller.
    unsafe { overspill_sys::call(__NR_mremap, [start, len, new_len, flags as usize, new, 0]) }
}

/// Addresses that nobody else is given, without rights.
fn reserve(start: usize, len: usize, flags: u32) -> Result<usize, Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags;
    // SAFETY: nothing that exists is touched.
    unsafe { overspill_sys::call(__NR_mmap, [start, len, 0, flags as usize, usize::MAX, 0]) }
}

/// Takes back what was moved, to where it was. Another thread may have been given that place: then there
/// is no place at which the program would find it.
///
/// # Safety
/// `wanted` bytes at `moved` are what was moved from `start`, where it was `len` long.
unsafe fn take_back(start: usize, len: usize, moved: usize, wanted: usize, is_double: bool) {
    if wanted > len {
        // SAFETY: it came with the move. (Kernels before 6.17 tell the longer length of what they cut.)
        let _ = unsafe { mem::munmap(moved + len..moved + wanted) };
    }
    let is_free = is_double || reserve(start, len, MAP_FIXED_NOREPLACE) == Ok(start);
    // SAFETY: the place is reserved, or has what the move left.
    if !is_free || unsafe { remap(moved, len, len, MREMAP_FIXED, start) }.is_err() {
        message::end_with("what mremap had moved in part cannot be moved back");
    }
}
