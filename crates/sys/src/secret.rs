//! A value that nobody else sees: in memory that is never written to a disk, and that no child of
//! fork and no core dump gets.
//!
//! Memory of memfd_secret (5.14) is not even in the kernel's own mapping. Where that is missing or
//! not allowed it is ordinary memory, locked into RAM. Both count against the limit on locked
//! memory. What the value held is overwritten when it goes.

use core::ops::{Deref, DerefMut};

use crate::fd::make;
use crate::mem::{self, Advice, Mapping, Prot};
use crate::raw::{nr, syscall};
use crate::{Errno, PAGE_SIZE, file};

/// A value in such memory.
#[derive(Debug)]
pub struct Secret<T> {
    mapping: Mapping,
    is_hidden: bool,
    value: core::marker::PhantomData<T>,
}

impl<T> Secret<T> {
    const FITS: () = assert!(size_of::<T>() <= PAGE_SIZE && align_of::<T>() <= PAGE_SIZE);

    /// Puts a value there. ENOMEM, EPERM, EAGAIN: no memory may be locked.
    pub fn new(value: T) -> Result<Self, Errno> {
        let () = Self::FITS;
        let hidden = hidden();
        let is_hidden = hidden.is_ok();
        let mapping = hidden.or_else(|_| locked())?;
        for advice in [Advice::DontFork, Advice::DontDump] {
            // SAFETY: neither changes content, and the mapping is ours.
            unsafe { mapping.advise(advice) }?;
        }
        // SAFETY: the mapping has room, is aligned, and nobody else knows it.
        unsafe { mapping.as_ptr::<T>().write(value) };
        Ok(Secret { mapping, is_hidden, value: core::marker::PhantomData })
    }

    /// Does the kernel itself have no mapping of it?
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// Where it is.
    #[must_use]
    pub fn range(&self) -> crate::AddressRange {
        self.mapping.range()
    }
}

fn hidden() -> Result<Mapping, Errno> {
    // SAFETY: makes a descriptor.
    let fd = make(|| unsafe { syscall!(nr::__NR_memfd_secret, nr::O_CLOEXEC as usize) })?;
    file::truncate(&fd, PAGE_SIZE as u64)?;
    Mapping::shared(&fd, PAGE_SIZE, Prot::RW, 0)
}

fn locked() -> Result<Mapping, Errno> {
    let mapping = Mapping::anon(PAGE_SIZE, Prot::RW)?;
    // SAFETY: the mapping is ours, and no pager has it.
    unsafe { mem::mlock(mapping.range()) }?;
    Ok(mapping)
}

impl<T> Deref for Secret<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value was written when the mapping was made, and lives as long.
        unsafe { &*self.mapping.as_ptr::<T>() }
    }
}

impl<T> DerefMut for Secret<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; `&mut self` keeps others away.
        unsafe { &mut *self.mapping.as_ptr::<T>() }
    }
}

impl<T> Drop for Secret<T> {
    fn drop(&mut self) {
        let value = self.mapping.as_ptr::<T>();
        // SAFETY: the value is dropped once; the bytes after it are nobody's.
        unsafe { value.drop_in_place() };
        // SAFETY: the page is ours and mapped for writing.
        wipe(unsafe { core::slice::from_raw_parts_mut(self.mapping.as_ptr::<u8>(), PAGE_SIZE) });
    }
}

/// Overwrites bytes with zeroes, which the compiler must not leave out.
pub fn wipe(bytes: &mut [u8]) {
    for byte in bytes {
        // SAFETY: the byte is exclusive.
        unsafe { core::ptr::write_volatile(byte, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child of fork has nothing at the value's address: it ends by SIGSEGV there.
    #[test]
    fn no_child_of_fork_gets_it() {
        let mut secret = Secret::new([7u8; 32]).unwrap();
        secret[0] = 1;
        assert_eq!((secret[0], secret[31]), (1, 7));
        let address = secret.range().start;
        // SAFETY: the child only looks at an address and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above; the mapping is not there.
            unsafe {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                let byte = core::ptr::read_volatile(address as *const u8);
                libc::_exit(i32::from(byte));
            }
        }
        let mut status = 0;
        // SAFETY: waits for that child.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "{status:#x}");
    }

    #[test]
    fn both_kinds_of_memory_serve() {
        for mapping in [hidden(), locked()].into_iter().flatten() {
            // SAFETY: the mapping is ours and mapped for writing.
            let bytes = unsafe { core::slice::from_raw_parts_mut(mapping.as_ptr::<u8>(), PAGE_SIZE) };
            bytes.fill(9);
            wipe(bytes);
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
    }
}
