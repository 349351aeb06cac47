//! mremap that grows a private mapping of a file to which the program has stored.
//!
//! Before it grows the mapping is handed back to the kernel, but what was stored is managed memory
//! still, in mappings of its own. The kernel does not let several mappings grow at once, and managed
//! memory would grow by zeroes. So the part of the file that comes in view is mapped behind the old end
//! by the agent, which has the file open; where there is no room the old mappings are moved first, one
//! by one, as others are that are moved together ([`remap`]). Whoever has a part of such a mapping moved
//! must not use it meanwhile anyway.
//!
//! No handler of a signal runs meanwhile: it might not come back, and half of the mapping would be in its
//! new place. It takes as long as the agent takes to map what is new, so signals that no handler is for
//! have their effect.
//!
//! *The story:* one store into a mapping, and it could not grow any more: EFAULT (`torture
//! file-grow-stored`).
//!
//! *Another story:* handlers left it by siglongjmp. The mapping was in two places, what had been mapped for
//! it stayed, and so did an open file (`citizens::jumps-that-grow`).

use linux_raw_sys::general::{
    __NR_mmap, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MREMAP_FIXED, MREMAP_MAYMOVE,
};
use overspill_engine::report::Left;
use overspill_sys::maps::{Maps, SHORT_BUFFER_BYTES};
use overspill_sys::mem::{self, Prot};
use overspill_sys::{AddressRange, Errno, PAGE_SIZE, overlap};

use crate::files::{self, Tail, Wish};
use crate::undisturbed::without_handlers;
use crate::{filters, remap};

/// What is to grow.
struct Stored {
    range: AddressRange,
    file: usize,
    /// The first byte of the file in it.
    offset: u64,
    prot: Prot,
}

/// Makes a call of mremap(2), with these arguments in whole pages, that grows what was handed back but for
/// what was stored to. `None`: that is not what is there, and the kernel's to do or to refuse. `moved` is
/// told where it is then.
pub fn grow(
    old: &AddressRange,
    new_len: usize,
    flags: u32,
    new: usize,
    moved: impl FnOnce(usize),
) -> Option<Result<usize, Errno>> {
    let is_usual = flags & !(MREMAP_MAYMOVE | MREMAP_FIXED) == 0 && old.start.is_multiple_of(PAGE_SIZE);
    if !is_usual || new_len <= old.len() || !files::table().overlaps(old) || filters::is_filtered() {
        return None;
    }
    if flags & MREMAP_FIXED != 0 && !remap::is_sound(old, new, new_len, flags as i32) {
        return None;
    }
    without_handlers(|| {
        let maps = Maps::open().ok()?;
        let stored = Stored::find(old, &maps)?;
        Some(stored.grow(&maps, new_len, flags, new).inspect(|&address| moved(address)))
    })
}

impl Stored {
    /// `None`: it is no mapping of one file with stores, or none that could grow if nobody managed it.
    fn find(range: &AddressRange, maps: &Maps) -> Option<Stored> {
        let (mut found, mut are_several) = (None, false);
        files::table().each(|part| {
            if overlap(&part.range, range) {
                let first = files::table().file(part.file).offset.load(core::sync::atomic::Ordering::SeqCst);
                let at = first + (part.page * PAGE_SIZE) as u64;
                // Where the file would be from the range's start on.
                let start = at.wrapping_sub(part.range.start.wrapping_sub(range.start) as u64);
                are_several |= found.is_some_and(|other| other != (part.file, start));
                found = Some((part.file, start));
            }
        });
        let (file, offset) = found.filter(|_| !are_several)?;
        let mut prot = None;
        let mut at = range.start;
        while at < range.end {
            let look = |vma: &overspill_sys::maps::Vma<'_>| {
                let is_of_file = vma.inode != 0
                    && vma.offset.wrapping_sub(vma.start.wrapping_sub(range.start) as u64) == offset;
                (vma.range(), vma.prot, !vma.shared && (is_of_file || vma.is_private_anonymous()))
            };
            let (vma, allowed, is_part) =
                maps.query(at, false, &mut [0; SHORT_BUFFER_BYTES], look).ok()??;
            if !is_part || prot.is_some_and(|prot| prot != allowed) {
                return None;
            }
            prot = Some(allowed);
            at = vma.end;
        }
        Some(Stored { range: range.clone(), file, offset, prot: prot? })
    }

    fn grow(&self, maps: &Maps, new_len: usize, flags: u32, new: usize) -> Result<usize, Errno> {
        if flags & MREMAP_FIXED == 0 {
            match self.map_tail(self.range.start, new_len, false) {
                Ok(()) => return Ok(self.range.start),
                Err(Errno::EXIST) if flags & MREMAP_MAYMOVE != 0 => {}
                Err(_) => return Err(Errno::NOMEM),
            }
        }
        let fixed = if flags & MREMAP_FIXED != 0 { MAP_FIXED } else { 0 };
        files::leave(&(new..new + if new == 0 { 0 } else { new_len }), Left::Other);
        let kind = (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed) as usize;
        // SAFETY: with MREMAP_FIXED the caller gives up what is there, as for the call; else it is free.
        let place = unsafe { overspill_sys::call(__NR_mmap, [new, new_len, 0, kind, usize::MAX, 0])? };
        self.map_tail(place, new_len, true).inspect_err(|_| {
            // SAFETY: it was mapped just now, and nobody knows of it.
            let _ = unsafe { mem::munmap(place..place + new_len) };
        })?;
        let flags = (MREMAP_MAYMOVE | MREMAP_FIXED).cast_signed();
        // SAFETY: on behalf of the caller; the target was mapped for that.
        unsafe { remap::move_each(maps, &self.range, place, flags) }
    }

    /// Has the file mapped from behind the old end to the new one, if the mapping were at `place`; over what
    /// is there, or where nothing is (EEXIST).
    fn map_tail(&self, place: usize, new_len: usize, replaces: bool) -> Result<(), Errno> {
        let (at, len) = (place + self.range.len(), new_len - self.range.len());
        let offset = self.offset + self.range.len() as u64;
        let tail = Tail { at, len, file: self.file, offset, prot: self.prot, replaces };
        match files::insist(Wish::MapTail(tail)) {
            Some(0) => Ok(()),
            Some(errno) => Err(Errno::from_raw_os_error(errno as i32)),
            None => Err(Errno::NOMEM),
        }
    }
}
