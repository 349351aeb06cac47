//! What the arguments of a program's call point to, read as the kernel would read it: what may not be
//! read raises no signal.

use overspill_sys::mem;

use crate::filters;

/// So many words at an address. `None` where they cannot be read: what is wrong with them is the
/// kernel's to say. This waits for what is paged out.
///
/// # Safety
/// Behind a filter the address is read as it is: a call to read it might not be allowed, and the
/// program must know what it passes.
pub unsafe fn words<const N: usize>(address: usize) -> Option<[u64; N]> {
    let mut words = [0u64; N];
    if filters::is_filtered() {
        // SAFETY: the caller vouches for it.
        return Some(unsafe { core::ptr::read_unaligned(address as *const [u64; N]) });
    }
    // SAFETY: words may hold any bytes.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(&words)) };
    let is_whole = mem::copy_from_self(bytes, address) == Ok(size_of_val(&words));
    is_whole.then_some(words)
}
