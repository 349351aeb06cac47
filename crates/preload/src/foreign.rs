//! Programs of another C library than glibc: the loader of musl loads the agent's library, too, and no agent
//! begins there.
//!
//! That loader ends a program if a library asks for what nobody has. So what glibc alone has is asked for
//! weakly, and told by an address of 0. It passes no arguments to constructors: they are not looked at. Each
//! function that stands before libc's is libc's own there. The plain call would not do: musl's mprotect takes
//! an address within a page, its sendmsg clears what the kernel would take for a part of a length, its munmap
//! waits for threads that end.
//!
//! What gcompat adds to musl has glibc's names. So musl is known by a name of its own.
//!
//! *The story:* a managed program started one that is linked with musl: status 127, as of a program that was
//! not found.

use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicUsize;

use crate::elf;
use crate::tasks::named;

// Words that the loader fills in: where the function or the variable is, or 0.
core::arch::global_asm!(
    ".weak gnu_get_libc_version",
    ".weak __register_atfork",
    ".weak _dl_debug_addr",
    ".pushsection .data.rel.ro.overspill_weak, \"aw\", %progbits",
    ".balign 8",
    ".hidden overspill_weak",
    ".globl overspill_weak",
    "overspill_weak:",
    ".quad gnu_get_libc_version",
    ".quad __register_atfork",
    ".quad _dl_debug_addr",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "overspill_weak"]
    static WEAK: [usize; 3];
}

/// A handler of fork.
pub type Handler = extern "C" fn();
/// glibc's way to register three of them (pthread_atfork is a wrapper that is linked statically).
pub type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

fn weak() -> [usize; 3] {
    // SAFETY: the loader has filled them in before the first constructor; nobody stores to them.
    unsafe { WEAK }
}

/// Is it glibc's?
pub fn is_glibc() -> bool {
    let [version, _, of_musl] = weak();
    version != 0 && of_musl == 0
}

/// glibc's function.
pub fn register() -> Option<Register> {
    let [_, register, _] = weak();
    // SAFETY: the function has this type.
    (register != 0).then(|| unsafe { core::mem::transmute::<usize, Register>(register) })
}

/// Instead of the constructor's work: looks up libc's own functions.
pub fn set_up() {
    let [.., record] = weak();
    // SAFETY: musl has a pointer to its record for debuggers there.
    let known = (record != 0).then(|| unsafe { elf::set_up_by(*(record as *const usize)) });
    if known.is_some() {
        look_up();
    }
}

macro_rules! functions {
    ($($name:ident),*) => {
        /// Where libc has the function of this name, if it is not glibc; else 0.
        #[expect(non_upper_case_globals, reason = "each is named after its function")]
        pub mod of_libc {
            use super::AtomicUsize;
            $(pub static $name: AtomicUsize = AtomicUsize::new(0);)*
        }

        fn look_up() {
            elf::find_next(&[$((const { named(concat!(stringify!($name), "\0")) }, &of_libc::$name)),*]);
        }
    };
}

// The others look for the next library's function with glibc, too.
functions!(
    clone,
    ioctl,
    madvise,
    mlock,
    mlock2,
    mlockall,
    mmap,
    mprotect,
    mremap,
    munmap,
    posix_fadvise,
    posix_madvise,
    prctl,
    prlimit,
    readahead,
    setns,
    setsockopt,
    shmat,
    syscall,
    unshare,
    vmsplice
);

/// At the begin of a function: if libc is not glibc, what libc's own makes of these arguments is returned.
macro_rules! pass {
    ($name:ident($($argument:ident),*)) => {
        let next = $crate::foreign::of_libc::$name.load(core::sync::atomic::Ordering::Acquire);
        if next != 0 {
            let own: unsafe extern "C" fn($($crate::foreign::any!($argument)),*) -> _ = $name;
            // SAFETY: libc's function of this name has this type; the rest is passed on to the caller.
            return unsafe { $crate::foreign::typed(own, next)($($argument),*) };
        }
    };
}
pub(crate) use pass;

/// The type of an argument, whatever it is.
macro_rules! any {
    ($argument:ident) => {
        _
    };
}
pub(crate) use any;

/// The function at this address, which is not 0.
///
/// # Safety
/// It has the type of the first one, which is a pointer to a function.
pub unsafe fn typed<F: Copy>(_: F, address: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<usize>(), "a pointer") };
    // SAFETY: the caller vouches for the type.
    unsafe { core::mem::transmute_copy(&address) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_one_is_glibc() {
        assert!(is_glibc() && register().is_some());
        assert_eq!(of_libc::mmap.load(core::sync::atomic::Ordering::Acquire), 0);
    }

    extern "C" fn twice(number: c_int) -> c_int {
        if number == 0 {
            return -1;
        }
        2 * number
    }

    /// As [`pass!`] has it.
    #[test]
    fn what_is_called_has_the_type_of_what_stands_before_it() {
        extern "C" fn thrice(number: c_int) -> c_int {
            3 * number
        }
        let own: unsafe extern "C" fn(_) -> _ = twice;
        // SAFETY: both have this type.
        let (first, second) = unsafe { (own(7), typed(own, thrice as *const () as usize)(7)) };
        assert_eq!((first, second), (14, 21));
    }
}
