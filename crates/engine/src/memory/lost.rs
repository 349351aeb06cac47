//! What was managed and is registered no more, though no event said so: the kernel replaces a mapping in
//! silence where shared memory is attached over it (shmat with SHM_REMAP).

use overspill_sys::mem::{self, Advice, Mapping, Prot};
use overspill_sys::uffd::CopyMode;
use overspill_sys::{Errno, PAGE_SIZE};

use super::{Memory, ZEROES};

/// Zeroes, every page of which is the kernel's zero page already: a fault in the middle of a copy
/// would wait for the lock of the address space (16 ms were seen, beside threads that map and
/// unmap). Behind them lies a page that nobody can read.
pub(super) fn zeroes() -> Result<Mapping, Errno> {
    let mapping = Mapping::anon((ZEROES + 1) * PAGE_SIZE, Prot::READ)?;
    let (readable, unreadable) = (mapping.page(0)..mapping.page(ZEROES), mapping.page(ZEROES));
    // SAFETY: reading changes no content, and the mapping is ours. Before 5.14 the faults come later.
    let _ = unsafe { mem::madvise(readable, Advice::PopulateRead) };
    // SAFETY: nobody has read that page yet.
    unsafe { mem::mprotect(unreadable..unreadable + PAGE_SIZE, Prot::empty()) }?;
    Ok(mapping)
}

impl Memory {
    /// Is the page at `address` in no registered mapping, and does no unread event tell of that? The
    /// kernel is asked to copy what cannot be read. It looks first whether the address space is changing,
    /// then where to: where that is registered the copy fails for want of a source, and changes nothing.
    pub fn is_lost(&self, address: usize) -> bool {
        let unreadable = self.zeroes.page(ZEROES);
        // SAFETY: nothing can be copied from there.
        let copied = unsafe { self.program.copy(address, unreadable, PAGE_SIZE, CopyMode::empty()) };
        copied.is_err_and(|partial| partial.errno == Errno::NOENT)
    }
}
