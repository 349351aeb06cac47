//! What the arguments of a program's call point to, read as the kernel would read it: what may not be
//! read raises no signal.

use core::ffi::c_char;

use overspill_sys::{PAGE_SIZE, mem};

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

/// Brings in the page of what the kernel is to write to. Behind a filter that is not done: a call might not
/// be allowed, and where the address is wrong the kernel passes it over.
pub fn bring_in(address: usize) {
    if !filters::may_be_filtered() {
        let _ = mem::copy_from_self(&mut [0], address);
    }
}

/// Can all of an array of strings be read, up to its null pointer? Each page is tried once, but those
/// that are looked at in turn.
///
/// *The story:* exec with an environment that cannot be read raised SIGSEGV in place of EFAULT.
///
/// # Safety
/// Behind a filter nothing is tried, and the answer is yes: the program must know what it passes.
pub unsafe fn are_strings(strings: *const *const c_char) -> bool {
    if strings.is_null() || filters::may_be_filtered() {
        return true;
    }
    let mut array = Tried::default();
    let mut texts = Tried::default();
    for index in 0.. {
        let entry = (strings as usize).wrapping_add(index * size_of::<usize>());
        if !array.reaches(entry) || !array.reaches(entry.wrapping_add(size_of::<usize>() - 1)) {
            return false;
        }
        // SAFETY: its bytes were read just now.
        let text = unsafe { core::ptr::read_unaligned(entry as *const usize) };
        if text == 0 {
            break;
        }
        for at in text.. {
            if !texts.reaches(at) {
                return false;
            }
            // SAFETY: as above.
            if unsafe { core::ptr::read(at as *const u8) } == 0 {
                break;
            }
        }
    }
    true
}

/// The page that could be read last.
#[derive(Default)]
struct Tried(Option<usize>);

impl Tried {
    fn reaches(&mut self, address: usize) -> bool {
        let page = address / PAGE_SIZE;
        if self.0 != Some(page) {
            if mem::copy_from_self(&mut [0], address) != Ok(1) {
                return false;
            }
            self.0 = Some(page);
        }
        true
    }
}
