//! Programs that are searched for leaks when they end.
//!
//! LeakSanitizer, a part of AddressSanitizer, stops every thread that it finds under /proc by
//! ptrace, the agent's too, and then reads all memory, from a process of its own that shares it. It
//! would wait for ever where a page is out. So such a program gets everything back before.
//!
//! A search in mid-run (`__lsan_do_leak_check`) is not foreseen.
//!
//! *The story:* a program that was linked with AddressSanitizer ran to its end, and did not end.

use core::ffi::{c_int, c_void};

use crate::{elf, retire};

type Handler = extern "C" fn(*mut c_void);

/// Asks to be called at the end, if there may be a search: whoever searches asks the program
/// whether it wants that.
///
/// The search is an exit handler of the program's or the library's that has the sanitizer, and
/// those of one owner run in the reverse of their order, at that owner's end. So this one is
/// registered by the same handle.
pub fn set_up() {
    let Some(register) = elf::next(c"__cxa_atexit") else { return };
    // SAFETY: the C library's function has this type.
    let register = unsafe {
        core::mem::transmute::<usize, extern "C" fn(Handler, *mut c_void, *mut c_void) -> c_int>(register)
    };
    elf::handles_of_askers(c"__lsan_is_turned_off", |handle| {
        register(before_search, core::ptr::null_mut(), handle as *mut c_void);
    });
}

extern "C" fn before_search(_: *mut c_void) {
    retire::at_the_end();
}
