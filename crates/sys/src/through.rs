//! Writes to a file through a mapping of it.
//!
//! A limit on the length of files (RLIMIT_FSIZE) is for all that a process writes by calls, wherever
//! that is in the file, and not for what it stores to a mapping. It takes the way through the page
//! cache, and waits for the device: this is for whoever must write and may not.

use crate::mem::{self, IoVec, Mapping, Prot};
use crate::raw::{nr, syscall};
use crate::{Errno, Fd};
use core::slice;

/// Writes pieces of memory (whole pages, which stay as they are meanwhile) to a file, from a page's
/// start on and within its length; they are on the device when this returns.
pub fn write(file: &Fd, pieces: &[IoVec], offset: u64) -> Result<(), Errno> {
    let bytes = pieces.iter().map(|piece| piece.len).sum();
    let mapping = Mapping::shared(file, bytes, Prot::RW, offset)?;
    let mut at = mapping.start();
    for piece in pieces {
        // SAFETY: it lies in the mapping, to which nobody else has a reference.
        let target = unsafe { slice::from_raw_parts_mut(at as *mut u8, piece.len) };
        // A store would raise SIGBUS where the file system has no room. The kernel says EFAULT.
        if mem::copy_from_self(target, piece.base)? != piece.len {
            return Err(Errno::NOSPC);
        }
        at += piece.len;
    }
    // SAFETY: what is in the mapping is written, and nothing else changes.
    unsafe { syscall!(nr::__NR_msync, mapping.start(), bytes, nr::MS_SYNC as usize)? };
    drop(mapping);
    // The page cache is RAM, too. That it stays for a while is no failure.
    // SAFETY: a hint about a file.
    let _ = unsafe {
        let hint = nr::POSIX_FADV_DONTNEED as usize;
        syscall!(nr::__NR_fadvise64, file.raw() as usize, offset as usize, bytes, hint)
    };
    Ok(())
}
